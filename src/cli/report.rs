//! An entry of the spool as commands show it: a line of JSON, or one for people.

use std::io::{self, Write};

use serde::Serialize;

use crate::proto::control::{MessageState, MessageStatus};
use crate::store::spool::outbox::{Entry, EntryKind, State};
use crate::text;

/// One outcome. The names are the stable ones of `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::cli) struct Report {
    pub(in crate::cli) id: String,
    pub(in crate::cli) kind: &'static str,
    pub(in crate::cli) dest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) event_key: Option<String>,
    /// `queued`, `duplicate`, `committed`, `injected`, `spooled`; `dead` when it was refused for good, `failed`
    /// when it was neither taken nor kept.
    pub(in crate::cli) outcome: String,
    /// `pending`, `claimed`, `sent`, `dead`; `none` for what is neither there nor kept.
    pub(in crate::cli) state: &'static str,
    pub(in crate::cli) attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) next_attempt_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) error: Option<String>,
}

impl Report {
    /// An event that nothing has happened to.
    pub(in crate::cli) fn event(id: &str, dest: &str, event_key: &str) -> Self {
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
    pub(in crate::cli) fn of(entry: &Entry) -> Self {
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
    pub(in crate::cli) fn of_message(status: &MessageStatus) -> Self {
        let (outcome, state) = match status.state {
            MessageState::Spooled => ("spooled", State::Pending),
            MessageState::Committed => ("committed", State::Sent),
            MessageState::Injected => ("injected", State::Sent),
            MessageState::Shown => ("shown", State::Sent),
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

    /// Writes it as one line.
    pub(in crate::cli) fn write(&self, out: &mut impl Write, json: bool) -> io::Result<()> {
        if json {
            return writeln!(out, "{}", text::visible_json(&serde_json::to_string(self)?));
        }
        let (outcome, id) = (text::visible(&self.outcome), text::visible(&self.id));
        write!(out, "{outcome} {id} {}", text::visible(&self.dest))?;
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
