//! What became of one event or message, as lines of JSON or for people.

use std::io::{self, Write};

use serde::Serialize;

use crate::cli::output::{Exit, Failure};
use crate::daemon::events::{Outcome, Refusal, Settled, Verdict};
use crate::proto::control::{MessageState, MessageStatus};
use crate::store::spool::outbox::{Entry, EntryKind, State};
use crate::text;

/// One outcome. The names are the stable ones of `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    pub(super) id: String,
    pub(super) kind: &'static str,
    pub(super) dest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event_key: Option<String>,
    /// `queued`, `duplicate`, `committed`, `injected`, `spooled`; `dead` when it was refused for good, `failed`
    /// when it was neither taken nor kept.
    pub(super) outcome: String,
    /// `pending`, `claimed`, `sent`, `dead`; `none` for what is neither there nor kept.
    pub(super) state: &'static str,
    pub(super) attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_attempt_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl Report {
    /// An event that nothing has happened to.
    pub(super) fn event(id: &str, dest: &str, event_key: &str) -> Self {
        Self {
            id: id.to_owned(),
            kind: "event",
            dest: dest.to_owned(),
            event_key: Some(event_key.to_owned()),
            outcome: "spooled".to_owned(),
            state: State::Pending.as_str(),
            attempts: 0,
            next_attempt_at: None,
            error: None,
        }
    }

    /// An entry of the spool as it is.
    pub(super) fn of(entry: &Entry) -> Self {
        let waits = matches!(entry.state, State::Pending | State::Claimed);
        let outcome = match (entry.state, &entry.outcome) {
            (State::Sent, Some(outcome)) => outcome.clone(),
            (State::Sent, None) => "sent".to_owned(),
            (State::Dead, _) => "dead".to_owned(),
            _ => "spooled".to_owned(),
        };
        Self {
            id: entry.id.clone(),
            kind: entry.kind.as_str(),
            dest: entry.dest.clone(),
            event_key: entry.event_key.clone(),
            outcome,
            state: entry.state.as_str(),
            attempts: entry.attempts,
            next_attempt_at: waits.then(|| entry.next_attempt_at.to_string()),
            error: entry.error.clone(),
        }
    }

    /// A message as far as it is known.
    pub(super) fn of_message(status: &MessageStatus) -> Self {
        let (outcome, state) = match status.state {
            MessageState::Spooled => ("spooled", State::Pending),
            MessageState::Committed => ("committed", State::Sent),
            MessageState::Injected => ("injected", State::Sent),
            MessageState::Dead => ("dead", State::Dead),
        };
        Self {
            id: status.id.clone(),
            kind: EntryKind::Message.as_str(),
            dest: status.dest.clone(),
            event_key: None,
            outcome: outcome.to_owned(),
            state: state.as_str(),
            attempts: status.attempts,
            next_attempt_at: status.next_attempt_at.clone(),
            error: status.error.clone(),
        }
    }

    fn done(mut self, outcome: Outcome) -> Self {
        (self.outcome, self.state, self.attempts) = (outcome.as_str().to_owned(), State::Sent.as_str(), 1);
        self
    }

    fn failed(mut self, outcome: &str, state: &'static str, why: &str) -> Self {
        (self.outcome, self.state, self.attempts) = (outcome.to_owned(), state, 1);
        self.error = Some(why.to_owned());
        self
    }

    /// Writes it as one line.
    pub(super) fn write(&self, out: &mut impl Write, json: bool) -> io::Result<()> {
        if json {
            return writeln!(out, "{}", text::visible_json(&serde_json::to_string(self)?));
        }
        write!(
            out,
            "{} {} {}",
            text::visible(&self.outcome),
            text::visible(&self.id),
            text::visible(&self.dest)
        )?;
        if let Some(key) = &self.event_key {
            write!(out, " event_key={}", text::visible(key))?;
        }
        if let Some(next) = &self.next_attempt_at {
            write!(out, " next_attempt_at={next}")?;
        }
        match &self.error {
            Some(error) => writeln!(out, ": {}", text::visible(error)),
            None => writeln!(out),
        }
    }
}

/// What became of an event, and how a command that sent only this one ends.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) report: Report,
    /// `None` is success.
    pub(super) failure: Option<Failure>,
}

impl Ended {
    /// It is safe, or taken.
    pub(super) fn well(report: Report) -> Self {
        Self { report, failure: None }
    }

    /// After an attempt at an entry of the spool.
    pub(super) fn settled(report: Report, settled: Settled) -> Self {
        match settled {
            Settled::Sent(outcome) => Self::well(report.done(outcome)),
            Settled::Waiting { next, why } => {
                let next = Some(next.to_string());
                Self::well(Report { next_attempt_at: next, ..report.failed("spooled", "pending", &why) })
            }
            Settled::Dead { kind, why } => {
                let exit = kind.map_or(Exit::TryLater, exit_of);
                let failure = Failure::new(exit, format_args!("send to {}", report.dest), &why)
                    .hint(format_args!("it is kept as dead: transit-send --status {}", report.id));
                Self { report: report.failed("dead", "dead", &why), failure: Some(failure) }
            }
        }
    }

    /// After an attempt at what nobody keeps.
    pub(super) fn unkept(report: Report, verdict: Verdict) -> Self {
        let (exit, why) = match verdict {
            Verdict::Done(outcome) => return Self::well(report.done(outcome)),
            Verdict::Refused { kind, why } => (exit_of(kind), why),
            Verdict::Later { why, .. } => (Exit::TryLater, why),
            Verdict::Misconfigured { why } => (Exit::Config, why),
        };
        let failure = Failure::new(exit, format_args!("send to {}", report.dest), &why);
        Self { report: report.failed("failed", "none", &why), failure: Some(failure) }
    }
}

fn exit_of(kind: Refusal) -> Exit {
    match kind {
        Refusal::Rule => Exit::Data,
        Refusal::NoSource => Exit::NoRecipient,
        Refusal::Denied => Exit::NoPermission,
    }
}
