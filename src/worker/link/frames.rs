//! What a daemon's frames do: each is taken from the machine as an event, and most change the ledger.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Call, Link, Note};
use crate::addr::Name;
use crate::id::IdKind;
use crate::limits::{ROSTER_MAX, ROSTER_TEXT_BYTES, WORD_BYTES};
use crate::proto::wire::{AgentInfo, WorkerEvent};
use crate::store::StoreError;
use crate::store::ledger::messages::{self, Arrival, Refused};
use crate::store::ledger::{Tx, deliveries, directory, roster};
use crate::text;
use crate::worker::app::App;
use crate::worker::dispatch::{LATE_ANSWERS, lost};
use crate::worker::links::Grown;
use crate::worker::route;

impl Link {
    /// Answers a call that is to be answered.
    pub(super) fn event(&mut self, event: WorkerEvent) -> Option<Call> {
        match event {
            WorkerEvent::Hello { daemon_ver } => self.hello(daemon_ver),
            WorkerEvent::Roster(agents) => self.roster(agents),
            WorkerEvent::Send(frame) => {
                self.unanswered.came(&frame.id, self.app.mono());
                route::send(&self.app, &self.owner, &self.senders, frame, &self.tell);
            }
            WorkerEvent::DeliverAck { id, agent, is_only_seen } => {
                let arrival = if is_only_seen { Arrival::Shown } else { Arrival::Injected };
                self.delivered(id, agent, arrival);
            }
            WorkerEvent::DeliverNak { id, agent, code, retryable } => {
                self.refused(id, agent, code, retryable);
            }
            WorkerEvent::Rpc { rid, method, params } => {
                let who = (&self.app, &self.owner, &self.handle);
                let is_early = self.storing.strong_count() > 0;
                return Some(self.calls.begin(who, &self.tell, rid, (method, params), is_early));
            }
        }
        None
    }

    fn hello(&mut self, mut daemon_ver: String) {
        cut(&mut daemon_ver, WORD_BYTES);
        tracing::info!(host = self.owner.host, org = self.owner.org, daemon_ver, "a daemon is linked");
        self.app.links.claim(&self.handle);
        let owner = &self.owner;
        match self.app.db.read(|tx| roster::panes(tx, &owner.org_id, &owner.host)) {
            Ok(panes) => {
                self.senders = panes.iter().map(|(name, _)| name.clone()).collect();
                self.panes.recall(panes);
            }
            Err(err) => tracing::error!(host = owner.host, %err, "reading a roster failed"),
        }
        let (owner, now) = (self.owner.clone(), self.app.wall());
        let due_at = now + LATE_ANSWERS;
        self.change(
            "recording a hello",
            move |tx| {
                directory::saw_host(tx, &owner.org_id, &owner.host_id, &daemon_ver, now)?;
                lost(tx, &owner, due_at)
            },
            move |_, ()| Some(Note::Later(due_at)),
        );
    }

    /// Names that are none are no agents. One that is in the pane of another that is gone is that one, renamed.
    fn roster(&mut self, mut agents: Vec<AgentInfo>) {
        agents.retain(|agent| agent.name.parse::<Name>().is_ok());
        agents.truncate(ROSTER_MAX);
        for agent in &mut agents {
            let AgentInfo { name: _, kind, pane_id, status, cwd, title, named_by: _ } = agent;
            [kind, pane_id, status, cwd, title].into_iter().for_each(|text| cut(text, ROSTER_TEXT_BYTES));
        }
        let names: BTreeSet<String> = agents.iter().map(|agent| agent.name.clone()).collect();
        let returned: Vec<String> = names.difference(&self.senders).cloned().collect();
        self.senders.clone_from(&names);
        let renamed = self.panes.replace(&agents);
        renamed.iter().for_each(|(old, new)| self.dispatch.renamed(old, new));
        let (owner, now, storing) = (self.owner.clone(), self.app.wall(), Arc::new(()));
        self.storing = Arc::downgrade(&storing);
        self.change(
            "storing a roster",
            move |tx| {
                for (old, new) in &renamed {
                    roster::rename(tx, &owner.org_id, &owner.host, (old, new), now)?;
                }
                roster::replace(tx, &owner.org_id, &owner.host, &agents, now)?;
                messages::release(tx, &owner.org_id, &owner.host, &returned, now)?;
                deliveries::release(tx, &owner.org_id, &owner.host, &returned, now)
            },
            move |_, ()| {
                drop(storing);
                Some(Note::Roster(names))
            },
        );
    }

    fn delivered(&mut self, id: String, agent: Option<String>, arrival: Arrival) {
        let agent = self.panes.name_now(agent);
        let seq = self.dispatch.acknowledged(&id, agent.as_deref());
        let (owner, now) = (self.owner.clone(), self.app.wall());
        // Nobody waits for this. If it is lost, the delivery comes again and the daemon knows it.
        self.change_lazily(
            "settling a delivery",
            move |tx| {
                let (org_id, host) = (&owner.org_id, &owner.host);
                if IdKind::of(&id) == Some(IdKind::Delivery) {
                    if let Some(row) = deliveries::dispatched(tx, org_id, host, &id, agent.as_deref(), now)? {
                        tracing::debug!(host, id, agent = row.agent, "dispatched");
                    }
                    return Ok(None);
                }
                match seq {
                    Some(seq) => messages::arrived_by_seq(tx, org_id, seq, arrival, now),
                    None => messages::arrived(tx, org_id, host, &id, agent.as_deref(), arrival, now),
                }
            },
            |_, moved| moved.map(Note::Moved),
        );
    }

    fn refused(&mut self, id: String, agent: Option<String>, mut code: String, retryable: bool) {
        cut(&mut code, WORD_BYTES);
        self.app.metrics.deliver_nacked(&code);
        let agent = self.panes.name_now(agent);
        let waiting = self.dispatch.refused(&id, agent.as_deref());
        let (shown, of) =
            (text::clip(&id, WORD_BYTES), agent.as_deref().map(|of| text::clip(of, WORD_BYTES)));
        let host = &self.owner.host;
        if retryable {
            tracing::info!(host, id = shown, agent = of, code, "a delivery was refused");
        } else {
            tracing::warn!(host, id = shown, agent = of, code, "a delivery was refused for good");
        }
        let (owner, now, tell) = (self.owner.clone(), self.app.wall(), self.tell.clone());
        let noting =
            self.noting("recording a refusal", |app, refused: Option<(String, Refused)>| match refused? {
                (_, Refused::Later(at)) => Some(Note::Later(at)),
                (agent, Refused::Dead(bounced)) => {
                    bounced.iter().for_each(|queue| app.links.wake(queue, Grown::Messages));
                    Some(Note::Moved(agent))
                }
            });
        self.app.db.submit(
            move |tx| {
                let place = (owner.org_id.as_str(), owner.host.as_str());
                let agent = agent.as_deref();
                let why = (code.as_str(), retryable);
                if let Some((agent, again)) = deliveries::refused(tx, place, &id, agent, why, now)? {
                    return Ok(Some((agent, again.map_or(Refused::Dead(None), Refused::Later))));
                }
                messages::refused(tx, place, &id, agent, why, now)
            },
            move |outcome| {
                noting(outcome);
                // The link may be gone, and with it what waits.
                if let Some(refusal) = waiting {
                    tell.send(Note::Recorded(refusal));
                }
            },
        );
    }

    /// Changes the ledger; what is to be noted comes back once it is committed. A change that fails is as if the
    /// frame had been lost: whatever it was about is still due.
    fn change<T: Send + 'static>(
        &self,
        doing: &'static str,
        change: impl Fn(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
        note: impl FnOnce(&App, T) -> Option<Note> + Send + 'static,
    ) {
        self.app.db.submit(change, self.noting(doing, note));
    }

    /// The same for a change that nobody waits for.
    fn change_lazily<T: Send + 'static>(
        &self,
        doing: &'static str,
        change: impl Fn(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
        note: impl FnOnce(&App, T) -> Option<Note> + Send + 'static,
    ) {
        self.app.db.submit_lazily(change, self.noting(doing, note));
    }

    fn noting<T>(
        &self,
        doing: &'static str,
        note: impl FnOnce(&App, T) -> Option<Note> + Send + 'static,
    ) -> impl FnOnce(Result<T, StoreError>) + Send + 'static {
        let (app, tell) = (self.app.clone(), self.tell.clone());
        move |outcome| match outcome {
            Ok(done) => {
                if let Some(note) = note(&app, done) {
                    tell.send(note);
                }
            }
            Err(err) => tracing::error!(doing, %err, "changing the ledger failed"),
        }
    }
}

/// Leaves out what is beyond `longest` bytes.
fn cut(text: &mut String, longest: usize) {
    if text.len() > longest {
        let end = (0..=longest).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
        text.truncate(end);
    }
}
