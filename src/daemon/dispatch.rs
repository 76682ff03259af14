//! From the inbox into a session, and back: due rows are handed over in their order, and every answer becomes a
//! row before anything else happens with it.
//!
//! Each session hands over what is due to itself. So there is no queue but the inbox, a wake-up that is lost costs
//! a delay, and `(id, agent)` is never under way twice.

use std::collections::BTreeSet;
use std::time::Duration;

use super::host::{Host, SendOutcome};
use super::registry::Session;
use crate::clock::{Mono, Wall};
use crate::limits;
use crate::proto::agent::DaemonSide;
use crate::store::StoreError;
use crate::store::spool::Spool;
use crate::store::spool::inbox::Outcome;

/// Wait after the spool could not be read or written.
const SPOOL_FAILED: Duration = Duration::from_secs(1);

/// The deliveries of one session.
pub(super) struct Dispatch {
    spool: Spool,
    agent: String,
    /// Handed over, and not settled in the spool yet.
    open: BTreeSet<String>,
    /// Answers of the adapter that the spool has not taken yet.
    unsettled: Vec<(String, Outcome)>,
    /// When to look again at the latest.
    look_at: Option<Mono>,
}

impl Dispatch {
    /// Takes over what is kept for the agent of a session that has just registered.
    pub(super) fn new(mut spool: Spool, agent: &str, now: Mono) -> Result<Self, StoreError> {
        spool.release(agent)?;
        let (open, unsettled) = (BTreeSet::new(), Vec::new());
        Ok(Self { spool, agent: agent.to_owned(), open, unsettled, look_at: Some(now) })
    }

    /// Something may have become due.
    pub(super) fn look(&mut self, now: Mono) {
        self.look_at = Some(now);
    }

    /// When [`advance`](Self::advance) has something to do again, unless it is told earlier.
    pub(super) fn next(&self) -> Option<Mono> {
        self.look_at
    }

    /// The adapter has answered a delivery.
    pub(super) fn answered(&mut self, id: String, outcome: Outcome, now: Mono) {
        self.unsettled.push((id, outcome));
        self.look(now);
    }

    /// Settles what was answered, then hands over what is due.
    pub(super) fn advance(&mut self, host: &Host, machine: &mut DaemonSide) {
        let now = host.now();
        if self.look_at.is_none_or(|at| now < at) {
            return;
        }
        self.look_at = None;
        if let Err(err) = self.settle(host).and_then(|()| self.hand_over(host, machine, now)) {
            tracing::error!(agent = self.agent, %err, "could not move a delivery; trying again");
            self.look_at = Some(now + SPOOL_FAILED);
        }
    }

    /// Settles what was answered and hands nothing over any more; answers whether nothing is open.
    pub(super) fn settle_last(&mut self, host: &Host) -> bool {
        if let Err(err) = self.settle(host) {
            tracing::error!(agent = self.agent, %err, "could not settle a delivery");
        }
        self.open.is_empty()
    }

    fn settle(&mut self, host: &Host) -> Result<(), StoreError> {
        while let Some((id, outcome)) = self.unsettled.first() {
            let now = host.wall();
            match outcome {
                Outcome::Injected => self.spool.injected(id, &self.agent, now)?,
                Outcome::Refused { code, retryable } => {
                    self.spool.refused(id, &self.agent, code, *retryable, now)?;
                }
            }
            let (id, outcome) = self.unsettled.remove(0);
            tracing::debug!(id, agent = self.agent, ?outcome, "the adapter has answered");
            self.open.remove(&id);
            if outcome == Outcome::Injected {
                host.tell_sender(&id, SendOutcome::Injected);
            }
            host.uplink.wake();
        }
        Ok(())
    }

    fn hand_over(&mut self, host: &Host, machine: &mut DaemonSide, now: Mono) -> Result<(), StoreError> {
        let wall = host.wall();
        for due in self.spool.due(&self.agent, wall, limits::AGENT_WINDOW)? {
            if self.open.insert(due.id.clone()) {
                tracing::debug!(id = due.id, agent = self.agent, "handing over");
                machine.deliver(&due.id, due.envelope, now);
            }
        }
        if let Some(Wall(at)) = self.spool.next_inbox_due(&self.agent, wall)? {
            let wait = Duration::from_millis(at.saturating_sub(wall.0).unsigned_abs());
            self.look_at = Some(now + wait);
        }
        Ok(())
    }

    /// The session is over. Unless another connection has taken it over, the Worker hears that what was open is not
    /// there; the rows stay for the next session.
    pub(super) fn end(mut self, host: &Host, session: &Session) {
        let settled = self.settle(host);
        let given_back = if host.registry.leave(session) {
            self.spool.give_back(&self.agent, "adapter_unavailable", host.wall()).map(drop)
        } else {
            Ok(())
        };
        if let Err(err) = settled.and(given_back) {
            tracing::error!(agent = self.agent, %err, "could not settle a delivery; the Worker will ask again");
        }
        host.uplink.wake();
    }
}
