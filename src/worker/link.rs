//! What one daemon's connection does, without its socket: it feeds the machine of transit-wire/1 and does what comes
//! out of it.
//!
//! Nothing here waits, neither for the disk nor for the peer. What the ledger answers comes back as a note, between
//! frames; what is to be written is asked for with [`Link::next`]. [`super::socket`] moves the bytes.

mod frames;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value;

use super::app::App;
pub(super) use super::calls::Call;
use super::calls::Calls;
use super::dispatch::Dispatch;
use super::links::{Handle, Owner};
use super::metrics::Unanswered;
use super::notes::{Notes, Tell};
use super::panes::Panes;
use crate::clock::{Mono, Wall};
use crate::limits::FRAME_BYTES;
use crate::proto::wire::{NakCode, RpcError, WorkerConfig, WorkerEnd, close};
use crate::proto::{Close, Input, Output};

/// Time that messages and calls which were read have for their answers, when the process stops.
const DRAIN_WAIT: Duration = Duration::from_secs(2);

/// What comes back to a link from the ledger and from calls.
pub(super) enum Note {
    /// A message was taken, or not.
    Sent { id: String, nak: Option<NakCode> },
    /// A call has its answer.
    Answer { rid: String, result: Result<Value, RpcError>, owed: usize },
    /// A roster is committed.
    Roster(BTreeSet<String>),
    /// The refusal of this number is in the ledger, or failed to get there.
    Recorded(u64),
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
            Note::Recorded(refusal) => self.dispatch.recorded(refusal),
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
}
