//! What one daemon's connection does, without its socket: it feeds the machine of transit-wire/1 and does what comes
//! out of it.
//!
//! Nothing here waits, neither for the disk nor for the peer. What the ledger answers comes back as a note, between
//! frames; what is to be written is asked for with [`Link::next`]. [`super::socket`] moves the bytes.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value;

use super::app::App;
pub(super) use super::calls::Call;
use super::calls::Calls;
use super::dispatch::{Dispatch, LATE_ANSWERS, lost};
use super::links::{Grown, Handle, Owner};
use super::metrics::Unanswered;
use super::notes::{Notes, Tell};
use super::panes::Panes;
use super::route;
use crate::addr::Name;
use crate::clock::{Mono, Wall};
use crate::id::IdKind;
use crate::limits::{FRAME_BYTES, ROSTER_MAX, ROSTER_TEXT_BYTES, WORD_BYTES};
use crate::proto::wire::{AgentInfo, NakCode, RpcError, WorkerConfig, WorkerEnd, WorkerEvent, close};
use crate::proto::{Close, Input, Output};
use crate::store::StoreError;
use crate::store::ledger::messages::{self, Refused};
use crate::store::ledger::{credentials, deliveries, directory, roster};
use crate::text;

/// Time that messages and calls which were read have for their answers, when the process stops.
const DRAIN_WAIT: Duration = Duration::from_secs(2);

/// Whose device token this is.
///
/// # Errors
/// When the ledger cannot be read.
pub(super) fn owner(app: &App, token: &str) -> Result<Option<Owner>, StoreError> {
    let token_hash = credentials::token_hash(token);
    app.db.read(|tx| {
        let Some(host) = directory::host_by_token(tx, &token_hash)? else { return Ok(None) };
        let Some(org) = directory::org(tx, &host.org_id)? else { return Ok(None) };
        Ok(Some(Owner {
            org_id: host.org_id,
            org: org.slug.to_string(),
            host_id: host.id,
            host: host.slug.to_string(),
            token_hash,
        }))
    })
}

/// What comes back to a link from the ledger and from calls.
pub(super) enum Note {
    /// A message was taken, or not.
    Sent { id: String, nak: Option<NakCode> },
    /// A call has its answer.
    Answer { rid: String, result: Result<Value, RpcError>, owed: usize },
    /// A roster is committed.
    Roster(BTreeSet<String>),
    /// A refusal of this agent is in the ledger, or failed to get there.
    Recorded(String),
    /// Others waited behind something that is gone.
    Moved(String),
    /// A refused delivery is due again then.
    Later(Wall),
}

/// What a link hears of its peer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Heard<'a> {
    /// A text frame.
    Text(&'a str),
    /// A binary frame.
    Binary,
    /// A frame that is longer than any that is read.
    TooLong,
    /// A sign of life that is no frame.
    Sound,
    /// The connection is at its end, with the code and the reason that this has.
    Fault(u16, &'a str),
}

/// What a link wants done.
pub(super) enum Doing {
    /// A frame is to be written.
    Write(String),
    /// A call is to be answered, in its own time.
    Answer(Call),
    /// The connection is to be closed. Nothing comes after this.
    End(Close),
}

/// One connection. It owns its host's deliveries for as long as no newer one says hello.
pub(super) struct Link {
    app: App,
    handle: Arc<Handle>,
    owner: Arc<Owner>,
    end: WorkerEnd,
    dispatch: Dispatch,
    /// The agents that may send: those of the last roster, also of an earlier connection.
    senders: BTreeSet<String>,
    panes: Panes,
    /// Is there for as long as the last roster is on its way to the ledger.
    storing: Weak<()>,
    tell: Tell,
    wake_at: Mono,
    /// Messages that were read and not answered.
    unanswered: Unanswered,
    calls: Calls,
    /// As much was asked to be written as is written at once.
    is_full: bool,
    /// Since the process stops: until when what was read is still answered. Nothing is read any more.
    drain_until: Option<Mono>,
}

impl Link {
    /// A connection that was just opened with a good token, and where the notes for it come.
    pub(super) fn new(app: App, owner: Owner) -> (Self, Arc<Notes>) {
        let now = app.mono();
        let config =
            WorkerConfig { host: owner.host.clone(), host_id: owner.host_id.clone(), org: owner.org.clone() };
        let (tell, notes) = Tell::new();
        let owner = Arc::new(owner);
        let handle = Handle::new(owner.clone());
        app.links.opened();
        let (rate, burst) = app.limits.frames;
        let link = Self {
            end: WorkerEnd::new(config, now).with_frame_rate(rate, burst, now),
            dispatch: Dispatch::new(app.clone(), handle.clone()),
            senders: BTreeSet::new(),
            panes: Panes::default(),
            storing: Weak::new(),
            wake_at: now,
            unanswered: Unanswered::default(),
            calls: Calls::default(),
            is_full: false,
            drain_until: None,
            app,
            handle,
            owner,
            tell,
        };
        (link, notes)
    }

    /// How others reach it.
    pub(super) fn handle(&self) -> Arc<Handle> {
        self.handle.clone()
    }

    /// The next thing to do. Once there is nothing more and all of it is done, [`written`](Self::written) is told.
    pub(super) fn next(&mut self) -> Option<Doing> {
        loop {
            let output = self.end.poll().or_else(|| {
                self.send();
                self.end.poll()
            })?;
            match output {
                Output::Write(text) => {
                    self.app.metrics.frames_out.one(text.len());
                    return Some(Doing::Write(text));
                }
                Output::Event(event) => {
                    if let Some(call) = self.event(event) {
                        return Some(Doing::Answer(call));
                    }
                }
                Output::WakeAt(at) => self.wake_at = at,
                Output::Close(end) => return Some(Doing::End(end)),
            }
        }
    }

    /// Sends what is due, but not more than a part of it before that is written: what is sent is held in memory.
    fn send(&mut self) {
        if !self.is_full && self.drain_until.is_none() {
            self.dispatch.send(&mut self.end);
            self.is_full = self.dispatch.is_behind();
        }
    }

    /// All that was to be written is with the peer's system.
    pub(super) fn written(&mut self) {
        self.is_full = false;
        self.dispatch.record();
    }

    /// When [`time`](Self::time) is to be called.
    pub(super) fn wake_at(&self) -> Mono {
        if self.drain_until.is_none() && self.dispatch.is_behind() {
            return self.app.mono();
        }
        let own = self.drain_until.map_or(self.wake_at, |until| until.min(self.wake_at));
        self.dispatch.wake_at().map_or(own, |at| at.min(own))
    }

    /// Whether its hello was good.
    pub(super) fn is_greeted(&self) -> bool {
        self.end.is_ready()
    }

    /// Whether the process stops, and nothing is read any more.
    pub(super) fn is_draining(&self) -> bool {
        self.drain_until.is_some()
    }

    /// Takes what came from the peer.
    pub(super) fn hear(&mut self, heard: Heard<'_>) {
        let now = self.app.mono();
        match heard {
            Heard::Text(text) if text.len() > FRAME_BYTES => self.end.handle(Input::TooLong, now),
            Heard::Text(text) => {
                self.app.metrics.frames_in.one(text.len());
                self.end.handle(Input::Text(text), now);
            }
            Heard::Binary => self.end.handle(Input::Binary, now),
            Heard::TooLong => self.end.handle(Input::TooLong, now),
            Heard::Sound => self.end.handle(Input::Sound, now),
            Heard::Fault(code, reason) => self.end.close(code, reason),
        }
    }

    /// Takes what the ledger or a call has answered.
    pub(super) fn note(&mut self, note: Note) {
        match note {
            Note::Sent { id, nak } => {
                let took = self.unanswered.answered(&id, self.app.mono());
                self.app.metrics.sent(took, nak.map(NakCode::as_str));
                match nak {
                    None => self.end.send_ack(&id),
                    Some(code) => self.end.send_nak(&id, code),
                }
            }
            Note::Answer { rid, result, owed } => {
                self.calls.ended(owed);
                self.end.rpc_result(&rid, result);
            }
            Note::Roster(agents) => self.dispatch.present(agents),
            Note::Recorded(agent) => self.dispatch.recorded(&agent),
            Note::Moved(agent) => self.dispatch.moved(agent),
            Note::Later(at) => self.dispatch.later(at),
        }
        self.end_if_drained();
    }

    /// Does what others have ordered.
    pub(super) fn obey(&mut self) {
        let orders = self.handle.orders();
        for (agent, by) in orders.grown {
            self.dispatch.grown(agent, by);
        }
        for agent in orders.overdue {
            self.dispatch.moved(agent);
        }
        if let Some(Close { code, reason }) = orders.close {
            self.end.close(code, &reason);
        }
    }

    /// Does what is due by time.
    pub(super) fn time(&mut self) {
        let now = self.app.mono();
        self.end.handle(Input::Tick, now);
        self.dispatch.time(now);
        self.end_if_drained();
    }

    /// The process stops: what was read gets its answer, then the connection ends.
    pub(super) fn stop(&mut self) {
        self.drain_until = Some(self.app.mono() + DRAIN_WAIT);
        self.end_if_drained();
    }

    fn end_if_drained(&mut self) {
        let Some(until) = self.drain_until else { return };
        let is_done = self.unanswered.is_empty() && self.calls.is_empty();
        if is_done || self.app.mono() >= until {
            self.end.close(close::GOING_AWAY, "the Worker stops");
        }
    }

    /// The connection is at its end: the one that this link wanted, or the peer's.
    pub(super) fn gone(&self, end: Option<&Close>) {
        self.app.links.gone(&self.handle);
        let Owner { host, org, .. } = &*self.owner;
        match end {
            Some(Close { code, reason }) => {
                self.app.metrics.closes.one(&code.to_string());
                tracing::info!(host, org, code, reason, "closing a link");
            }
            None => {
                self.app.metrics.closes.one("broken");
                tracing::info!(host, org, "a link is gone");
            }
        }
    }

    /// Answers a call that is to be answered.
    fn event(&mut self, event: WorkerEvent) -> Option<Call> {
        match event {
            WorkerEvent::Hello { daemon_ver } => self.hello(daemon_ver),
            WorkerEvent::Roster(agents) => self.roster(agents),
            WorkerEvent::Send(frame) => {
                self.unanswered.came(&frame.id, self.app.mono());
                route::send(&self.app, &self.owner, &self.senders, frame, &self.tell);
            }
            WorkerEvent::DeliverAck { id, agent } => self.delivered(id, agent),
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

    fn delivered(&mut self, id: String, agent: Option<String>) {
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
                    Some(seq) => messages::injected_by_seq(tx, org_id, seq, now),
                    None => messages::injected(tx, org_id, host, &id, agent.as_deref(), now),
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
        tracing::info!(
            host = self.owner.host,
            id = shown,
            agent = of,
            code,
            retryable,
            "a delivery was refused"
        );
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
                if let Some((agent, at)) = deliveries::refused(tx, place, &id, agent, &code, now)? {
                    return Ok(Some((agent, Refused::Later(at))));
                }
                messages::refused(tx, place, &id, agent, (&code, retryable), now)
            },
            move |outcome| {
                noting(outcome);
                // The link may be gone, and with it what waits.
                if let Some(agent) = waiting {
                    tell.send(Note::Recorded(agent));
                }
            },
        );
    }

    /// Changes the ledger; what is to be noted comes back once it is committed. A change that fails is as if the
    /// frame had been lost: whatever it was about is still due.
    fn change<T: Send + 'static>(
        &self,
        doing: &'static str,
        change: impl Fn(&crate::store::ledger::Tx<'_>) -> Result<T, StoreError> + Send + 'static,
        note: impl FnOnce(&App, T) -> Option<Note> + Send + 'static,
    ) {
        self.app.db.submit(change, self.noting(doing, note));
    }

    /// The same for a change that nobody waits for.
    fn change_lazily<T: Send + 'static>(
        &self,
        doing: &'static str,
        change: impl Fn(&crate::store::ledger::Tx<'_>) -> Result<T, StoreError> + Send + 'static,
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
