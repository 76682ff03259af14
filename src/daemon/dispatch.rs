//! From the inbox into a session, and back: due rows are handed over in their order, and every answer becomes a
//! row before anything else happens with it.
//!
//! Each session hands over what is due to itself. So there is no queue but the inbox, a wake-up that is lost costs
//! a delay, and `(id, agent)` is never under way twice.

use std::collections::BTreeSet;
use std::time::Duration;

use super::host::{Host, SendOutcome};
use super::near;
use super::session::{Mailbox, Session};
use super::trouble::Trouble;
use crate::addr::Name;
use crate::clock::{Mono, Wall};
use crate::limits;
use crate::proto::agent::DaemonSide;
use crate::proto::envelope;
use crate::store::StoreError;
use crate::store::spool::Spool;
use crate::store::spool::agents::{Identity, Place, PlaceError};
use crate::store::spool::inbox::{LONGEST_WAIT, Outcome};

/// Longest time that whoever served the session before has to settle what it has heard.
const HAND_OVER: Duration = Duration::from_secs(2);
/// Wait after the spool could not be read or written.
const SPOOL_FAILED: Duration = Duration::from_secs(1);

/// What came of an envelope that was handed over.
#[derive(Clone)]
enum Answered {
    Outcome(Outcome),
    /// It waits for a person, for this reason.
    Held(&'static str),
}

/// What brings envelopes into a session. Whatever comes of one is told by [`Dispatch::answered`].
pub(super) trait Carrier {
    /// Takes an envelope that is due. It is not handed over again before it was answered.
    fn deliver(&mut self, id: &str, envelope: String, now: Mono);
}

impl Carrier for DaemonSide {
    fn deliver(&mut self, id: &str, envelope: String, now: Mono) {
        Self::deliver(self, id, envelope, now);
    }
}

/// The deliveries of one session.
pub(super) struct Dispatch {
    spool: Spool,
    agent: String,
    /// Handed over, and not settled in the spool yet.
    open: BTreeSet<String>,
    /// Answers of the session that the spool has not taken yet.
    unsettled: Vec<(String, Answered)>,
    /// Those who served the session before, and until when they are waited for.
    older: Vec<Mailbox>,
    older_until: Mono,
    /// When to look again at the latest.
    look_at: Option<Mono>,
    /// With the spool.
    trouble: Trouble,
}

impl Dispatch {
    /// Takes over what is kept for the agent of a session that has just registered.
    pub(super) fn new(mut spool: Spool, agent: &str, now: Mono) -> Result<Self, StoreError> {
        spool.release(agent)?;
        let (open, unsettled, older, trouble) = Default::default();
        let (agent, older_until, look_at) = (agent.to_owned(), now, Some(now));
        Ok(Self { spool, agent, open, unsettled, older, older_until, look_at, trouble })
    }

    /// Hands nothing over before these, which served the session until now, have settled what they have heard: what
    /// was acknowledged before the session came again is not to be shown again.
    pub(super) fn follow(&mut self, older: Vec<Mailbox>, now: Mono) {
        self.older = older;
        self.older_until = now + HAND_OVER;
    }

    /// Whether nobody is waited for any more.
    fn has_taken_over(&mut self, now: Mono) -> bool {
        if now >= self.older_until {
            self.older.clear();
        }
        self.older.retain(|older| !older.is_over());
        self.older.is_empty()
    }

    /// Gives the agent another name; everything of it goes along.
    ///
    /// # Errors
    /// When the name is another session's, or it cannot be stored; then nothing has changed.
    pub(super) fn rename(&mut self, who: &Identity, name: &Name, now: Wall) -> Result<Place, PlaceError> {
        let place = self.spool.rename(who, name, now)?;
        name.as_str().clone_into(&mut self.agent);
        Ok(place)
    }

    /// Something may have become due.
    pub(super) fn look(&mut self, now: Mono) {
        self.look_at = Some(now);
    }

    /// When [`advance`](Self::advance) has something to do again, unless it is told earlier.
    pub(super) fn next(&self) -> Option<Mono> {
        self.look_at
    }

    /// The session has answered a delivery.
    pub(super) fn answered(&mut self, id: String, outcome: Outcome, now: Mono) {
        self.unsettled.push((id, Answered::Outcome(outcome)));
        self.look(now);
    }

    /// The session has not taken a delivery, because of the person at it. `code` says so to the Worker.
    pub(super) fn held(&mut self, id: String, code: &'static str, now: Mono) {
        self.unsettled.push((id, Answered::Held(code)));
        self.look(now);
    }

    /// Nothing waits for a person any more.
    pub(super) fn release(&mut self, now: Mono) -> Result<(), StoreError> {
        self.spool.release(&self.agent)?;
        self.look(now);
        Ok(())
    }

    /// Settles what was answered, then hands over what is due.
    pub(super) fn advance(&mut self, host: &Host, carrier: &mut impl Carrier) {
        let now = host.now();
        if self.look_at.is_none_or(|at| now < at) {
            return;
        }
        self.look_at = None;
        match self.settle(host).and_then(|()| self.hand_over(host, carrier, now)) {
            Ok(()) if self.trouble.is_over() => {
                tracing::info!(agent = self.agent, "deliveries are moved again");
            }
            Ok(()) => {}
            Err(err) => {
                if let Some(untold) = self.trouble.seen(now) {
                    tracing::error!(agent = self.agent, %err, untold, "could not move a delivery; trying again");
                }
                self.look_at = Some(now + SPOOL_FAILED);
            }
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
        while let Some((id, answered)) = self.unsettled.first().cloned() {
            if let Answered::Outcome(Outcome::Refused { code, retryable: false }) = &answered {
                // First, so that no crash can keep it from the sender; what has its id is not put twice.
                self.bounce(host, &id, code)?;
            }
            let is_refused = self.keep(&id, &answered, host.wall())?;
            self.unsettled.remove(0);
            self.open.remove(&id);
            match answered {
                Answered::Outcome(outcome) => {
                    tracing::debug!(id, agent = self.agent, ?outcome, "the session has answered");
                    match outcome {
                        Outcome::Injected => drop(host.tell_sender(&id, SendOutcome::Injected)),
                        Outcome::Seen => drop(host.tell_sender(&id, SendOutcome::Shown)),
                        // So often that it is not tried again.
                        Outcome::Refused { code, retryable: true } if is_refused => {
                            self.bounce(host, &id, &code)?
                        }
                        Outcome::Refused { .. } => {}
                    }
                }
                Answered::Held(code) => {
                    tracing::debug!(id, agent = self.agent, code, "it waits for a person")
                }
            }
            host.uplink.wake();
        }
        Ok(())
    }

    /// Puts what came of an envelope into the spool; answers whether it is refused for good by that.
    fn keep(&mut self, id: &str, answered: &Answered, now: Wall) -> Result<bool, StoreError> {
        match answered {
            Answered::Outcome(Outcome::Injected) => self.spool.injected(id, &self.agent, now)?,
            Answered::Outcome(Outcome::Seen) => self.spool.seen(id, &self.agent, now)?,
            Answered::Outcome(Outcome::Refused { code, retryable }) => {
                return self.spool.refused(id, &self.agent, code, *retryable, now);
            }
            Answered::Held(code) => self.spool.held(id, &self.agent, code, now + LONGEST_WAIT, now)?,
        }
        Ok(false)
    }

    /// A session has refused a message for good. Where there is a Worker, it tells the sender; else this host does.
    fn bounce(&mut self, host: &Host, id: &str, why: &str) -> Result<(), StoreError> {
        if host.link().url.is_some() {
            return Ok(());
        }
        let rows = self.spool.local_deliveries(id)?;
        let Some(row) = rows.iter().find(|row| row.agent == self.agent) else { return Ok(()) };
        let from = envelope::sender(&row.envelope).unwrap_or_default();
        let to = format!("{}@{}", self.agent, host.name());
        near::put_bounce(host, &mut self.spool, (id, from, &to), why)?;
        host.tell_sender(id, SendOutcome::Returned(why.to_owned()));
        Ok(())
    }

    fn hand_over(&mut self, host: &Host, carrier: &mut impl Carrier, now: Mono) -> Result<(), StoreError> {
        if host.is_paused() {
            return Ok(());
        }
        if !self.has_taken_over(now) {
            self.look_at = Some(self.older_until);
            return Ok(());
        }
        let wall = host.wall();
        for due in self.spool.due(&self.agent, wall, limits::AGENT_WINDOW)? {
            if self.open.insert(due.id.clone()) {
                tracing::debug!(id = due.id, agent = self.agent, "handing over");
                carrier.deliver(&due.id, due.envelope, now);
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

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::daemon::gateway::tests::host;

    struct Nowhere;

    impl Carrier for Nowhere {
        fn deliver(&mut self, _: &str, _: String, _: Mono) {}
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_spool_that_cannot_be_used_is_told_once_and_looked_at_again_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path());
        let mut dispatch = Dispatch::new(host.spool().unwrap(), "bob", host.now()).unwrap();
        for entry in std::fs::read_dir(&host.paths.data).unwrap() {
            let path = entry.unwrap().path();
            let length = path.metadata().unwrap().len();
            if path.file_name().unwrap().to_str().unwrap().starts_with("spool.db") {
                std::fs::write(&path, vec![b'?'; usize::try_from(length).unwrap()]).unwrap();
            }
        }
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..5 {
                dispatch.look(host.now());
                dispatch.advance(&host, &mut Nowhere);
                assert!(dispatch.next().is_some_and(|at| at > host.now()), "it is tried again");
            }
        });
        let told = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(told.matches("could not move a delivery").count(), 1, "{told}");
    }
}
