//! The spool of a simulated daemon, whose commits are explicit: what is in its rows outlives the process. Both
//! simulations have it, this one and that of the whole Worker.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use transit::clock::{Backoff, Mono, Wall};
use transit::proto::envelope::{self, Kind};
use transit::proto::wire::{DaemonEnd, NakCode, SendFrame};

/// Time for which a sent message waits for its answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// A transaction, whose effects are those of [`Spool::apply`] unless the process dies before.
#[derive(Debug)]
pub(crate) enum HostOp {
    /// The Worker has delivered it.
    Receive { id: String, agent: String, envelope: String },
    /// An adapter has it in its session, as it was after so many redeliveries.
    Injected { id: String, agent: String, redelivery: u32 },
    /// An adapter has not taken it.
    Refused { id: String, agent: String, code: &'static str, retryable: bool },
    /// The Worker has answered a message.
    Answered { id: String, answer: Result<(), NakCode> },
}

/// A row of the outbox.
pub(crate) struct OutRow {
    pub(crate) message: SendFrame,
    /// `None` while it is pending.
    pub(crate) end: Option<Result<(), NakCode>>,
    attempts: u32,
    due: Wall,
}

/// A row of the inbox, keyed by `(id, agent)`.
pub(crate) struct InRow {
    pub(crate) id: String,
    pub(crate) agent: String,
    pub(crate) envelope: String,
    /// How often it was shown before, as the envelope says.
    pub(crate) redelivery: u32,
    pub(crate) end: Option<Result<(), &'static str>>,
    attempts: u32,
    due: Wall,
    /// Whether the Worker waits for an answer.
    owed: bool,
}

/// An envelope whose turn it is.
pub(crate) struct Turn {
    pub(crate) id: String,
    pub(crate) agent: String,
    pub(crate) envelope: String,
}

/// Rows, and what a process remembers of them.
#[derive(Default)]
pub(crate) struct Spool {
    pub(crate) outbox: Vec<OutRow>,
    pub(crate) inbox: Vec<InRow>,
    /// Messages that wait for their answers, and until when.
    asked: BTreeMap<String, Mono>,
    injecting: BTreeSet<(String, String)>,
}

impl Spool {
    /// The process is gone, with all that was not committed.
    pub(crate) fn crash(&mut self) {
        self.hang_up();
        self.injecting.clear();
    }

    /// There is nobody any more who would answer.
    pub(crate) fn hang_up(&mut self) {
        self.asked.clear();
    }

    /// Keeps a message of an agent.
    pub(crate) fn accept(&mut self, message: SendFrame, due: Wall) {
        self.outbox.push(OutRow { message, end: None, attempts: 0, due });
    }

    /// The transaction is on the disk. `link` is the end of a connection, if there is one.
    pub(crate) fn apply(&mut self, op: HostOp, wall: Wall, link: Option<&mut DaemonEnd>) {
        match op {
            HostOp::Receive { id, agent, envelope } => self.receive(id, agent, envelope, true, wall),
            HostOp::Injected { id, agent, redelivery } => self.injected(&id, &agent, redelivery),
            HostOp::Refused { id, agent, code, retryable } => {
                let is_to_be_told = self.refused(&id, &agent, code, retryable, wall);
                if let Some(end) = link.filter(|_| is_to_be_told) {
                    end.deliver_nak(&id, &agent, code, true);
                }
            }
            HostOp::Answered { id, answer } => self.answered(&id, answer, wall),
        }
    }

    /// Keeps an envelope; the Worker is `owed` an answer when it is the one who sent it.
    pub(crate) fn receive(&mut self, id: String, agent: String, envelope: String, owed: bool, due: Wall) {
        let redelivery = redelivery(&envelope);
        match self.row(&id, &agent) {
            // It is shown again with its note.
            Some(row) if redelivery > row.redelivery => {
                (row.redelivery, row.envelope, row.end, row.due) = (redelivery, envelope, None, due);
                row.owed = true;
            }
            Some(row) => row.owed |= owed,
            None => {
                self.inbox.push(InRow { id, agent, envelope, redelivery, end: None, attempts: 0, due, owed });
            }
        }
    }

    pub(crate) fn row(&mut self, id: &str, agent: &str) -> Option<&mut InRow> {
        self.inbox.iter_mut().find(|row| row.id == id && row.agent == agent)
    }

    fn injected(&mut self, id: &str, agent: &str, redelivery: u32) {
        self.injecting.remove(&(id.to_owned(), agent.to_owned()));
        let row = self.row(id, agent).expect("a row is never deleted");
        if row.redelivery == redelivery {
            row.end = Some(Ok(()));
            row.owed = true;
        }
    }

    /// Answers whether the Worker waits to be told that it may come again.
    fn refused(&mut self, id: &str, agent: &str, code: &'static str, retryable: bool, wall: Wall) -> bool {
        self.injecting.remove(&(id.to_owned(), agent.to_owned()));
        let row = self.row(id, agent).expect("a row is never deleted");
        if row.end.is_some() {
            return false; // a late ack was faster
        }
        if !retryable {
            row.end = Some(Err(code));
            row.owed = true;
            return false;
        }
        row.attempts += 1;
        row.due = wall + Backoff::DELIVERY.after(row.attempts);
        std::mem::take(&mut row.owed)
    }

    fn answered(&mut self, id: &str, answer: Result<(), NakCode>, wall: Wall) {
        let asked = self.asked.remove(id).is_some();
        let row = self.outbox.iter_mut().find(|row| row.message.id == id).expect("an answer to our message");
        match answer {
            Err(code) if !code.is_permanent() => {
                if asked && row.end.is_none() {
                    row.try_later(wall);
                }
            }
            answer => {
                assert!(row.end.is_none_or(|end| end == answer), "{id}: {:?}, then {answer:?}", row.end);
                row.end = Some(answer);
            }
        }
    }

    /// Pays what is owed to the Worker.
    pub(crate) fn answer(&mut self, end: &mut DaemonEnd) {
        for row in self.inbox.iter_mut().filter(|row| row.owed) {
            match row.end {
                None => continue,
                Some(Ok(())) => end.deliver_ack(&row.id, &row.agent),
                Some(Err(code)) => end.deliver_nak(&row.id, &row.agent, code, false),
            }
            row.owed = false;
        }
    }

    /// Gives up on answers that have not come.
    pub(crate) fn release_unanswered(&mut self, now: Mono, wall: Wall) {
        for row in &mut self.outbox {
            if self.asked.get(&row.message.id).is_some_and(|&until| now >= until) {
                self.asked.remove(&row.message.id);
                row.try_later(wall);
            }
        }
    }

    /// One message of a pair is under way at a time, so that a refused one is not passed by the next.
    pub(crate) fn send_due(&mut self, end: &mut DaemonEnd, now: Mono, wall: Wall) {
        let mut pairs = BTreeSet::new();
        for row in self.outbox.iter().filter(|row| row.end.is_none()) {
            let first = pairs.insert((&row.message.from, &row.message.to));
            let id = &row.message.id;
            if first && !self.asked.contains_key(id) && is_due(row.due, wall, Backoff::MESSAGE) {
                end.send(row.message.clone());
                self.asked.insert(id.clone(), now + ANSWER_WAIT);
            }
        }
    }

    /// One envelope of an agent is under way at a time, the oldest.
    pub(crate) fn take_due(&mut self, wall: Wall) -> Vec<Turn> {
        let mut agents = BTreeSet::new();
        let mut turns = Vec::new();
        for row in self.inbox.iter().filter(|row| row.end.is_none()) {
            let first = agents.insert(&row.agent);
            let key = (row.id.clone(), row.agent.clone());
            if first && !self.injecting.contains(&key) && is_due(row.due, wall, Backoff::DELIVERY) {
                self.injecting.insert(key);
                let (id, agent, envelope) = (row.id.clone(), row.agent.clone(), row.envelope.clone());
                turns.push(Turn { id, agent, envelope });
            }
        }
        turns
    }

    /// What is not done yet.
    pub(crate) fn unrest(&self) -> Option<String> {
        let out = self.outbox.iter().find(|row| row.end.is_none());
        let out = out.map(|row| format!("{} waits to be sent", row.message.id));
        out.or_else(|| {
            let row = self.inbox.iter().find(|row| row.end.is_none())?;
            Some(format!("{} waits for {}", row.id, row.agent))
        })
    }
}

impl OutRow {
    fn try_later(&mut self, wall: Wall) {
        self.attempts += 1;
        self.due = wall + Backoff::MESSAGE.after(self.attempts);
    }
}

/// How often an envelope says that it was shown before. A word that is none was not.
fn redelivery(envelope: &str) -> u32 {
    match envelope::parse(envelope).map(|parsed| parsed.envelope.kind) {
        Ok(Kind::Channel { redelivery, .. }) => redelivery,
        _ => 0,
    }
}

/// A time further off than the largest backoff was written before the wall clock stepped back.
pub(crate) fn is_due(due: Wall, wall: Wall, backoff: Backoff) -> bool {
    due <= wall || due > wall + backoff.cap
}
