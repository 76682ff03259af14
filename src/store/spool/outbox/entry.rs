//! An entry of the outbox: its fields, its states, and how a row is read.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rusqlite::Row;
use rusqlite::types::Type;

use crate::clock::{Backoff, Wall};
use crate::store::process::Process;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// The body of an ingest request, to be signed and posted (transit.ingest/1).
    Event,
    /// A message for the Worker (transit-wire/1).
    Message,
}

impl EntryKind {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Event, Self::Message];

    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Message => "message",
        }
    }

    /// How long an entry of this kind waits between its attempts.
    pub fn backoff(self) -> Backoff {
        match self {
            Self::Event => Backoff::EVENT,
            Self::Message => Backoff::MESSAGE,
        }
    }
}

/// Where an entry is on its way. The table of this module says who moves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It waits for its next attempt.
    Pending,
    /// A process is trying.
    Claimed,
    /// The other side has it.
    Sent,
    /// It was refused for good, or grew too old; kept for inspection.
    Dead,
}

impl State {
    /// All of them, in the order of an entry's way.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Claimed, Self::Sent, Self::Dead];

    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Claimed => "claimed",
            Self::Sent => "sent",
            Self::Dead => "dead",
        }
    }
}

/// Where an event's secret is. The secret itself is never stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SecretRef {
    /// A file, by its absolute path.
    File(PathBuf),
    /// A variable of the environment that the attempt is made in.
    Env(String),
}

/// An entry that is to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// Its id, the idempotency key of the spool: `tx_…` for messages, `evt_…` for events.
    pub id: &'a str,
    /// What it is.
    pub kind: EntryKind,
    /// The URL of an event, the address of a message.
    pub dest: &'a str,
    /// The address of a message's sender.
    pub from: Option<&'a str>,
    /// The message that this one answers.
    pub reply_to: Option<&'a str>,
    /// The sender's key of an event.
    pub event_key: Option<&'a str>,
    /// The exact bytes of the request body, or the text of the message.
    pub body: &'a [u8],
    /// Where the secret of an event is.
    pub secret: Option<&'a SecretRef>,
}

impl NewEntry<'_> {
    /// The entry that this becomes when it is added.
    pub(super) fn to_entry(&self, now: Wall) -> Entry {
        Entry {
            id: self.id.to_owned(),
            kind: self.kind,
            dest: self.dest.to_owned(),
            from: self.from.map(str::to_owned),
            reply_to: self.reply_to.map(str::to_owned),
            event_key: self.event_key.map(str::to_owned),
            body: self.body.to_vec(),
            secret: self.secret.cloned(),
            state: State::Pending,
            attempts: 0,
            created_at: now,
            updated_at: now,
            next_attempt_at: now,
            outcome: None,
            error: None,
        }
    }
}

/// An entry as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// See [`NewEntry::id`].
    pub id: String,
    /// See [`NewEntry::kind`].
    pub kind: EntryKind,
    /// See [`NewEntry::dest`].
    pub dest: String,
    /// See [`NewEntry::from`].
    pub from: Option<String>,
    /// See [`NewEntry::reply_to`].
    pub reply_to: Option<String>,
    /// See [`NewEntry::event_key`].
    pub event_key: Option<String>,
    /// See [`NewEntry::body`].
    pub body: Vec<u8>,
    /// See [`NewEntry::secret`].
    pub secret: Option<SecretRef>,
    /// Where it is on its way. The claim of a process that is gone shows as pending, which it is.
    pub state: State,
    /// Attempts that came to an end.
    pub attempts: u32,
    /// When it was added.
    pub created_at: Wall,
    /// When its state last changed.
    pub updated_at: Wall,
    /// When it is tried next; of no meaning once it is sent or dead.
    pub next_attempt_at: Wall,
    /// What the other side said when it took it: `queued`, `duplicate`, `committed`, `injected`.
    pub outcome: Option<String>,
    /// Why the last attempt failed, or why it is dead.
    pub error: Option<String>,
}

/// The columns that [`read_entry`] reads.
pub(in crate::store::spool) const COLUMNS: &str = "id, kind, dest, sender, reply_to, event_key, body, secret_file, secret_env, state, attempts, \
                       created_at, updated_at, next_attempt_at, outcome, error, longest_wait, claim_pid, claim_start";

pub(in crate::store::spool) fn read_entry(row: &Row<'_>, now: Wall) -> rusqlite::Result<Entry> {
    let file: Option<Vec<u8>> = row.get(7)?;
    let variable: Option<String> = row.get(8)?;
    let (next, longest): (i64, i64) = (row.get(13)?, row.get(16)?);
    let state = read_state(row, 9)?;
    Ok(Entry {
        id: row.get(0)?,
        kind: read_kind(row, 1)?,
        dest: row.get(2)?,
        from: row.get(3)?,
        reply_to: row.get(4)?,
        event_key: row.get(5)?,
        body: row.get(6)?,
        secret: file
            .map(|bytes| SecretRef::File(OsString::from_vec(bytes).into()))
            .or(variable.map(SecretRef::Env)),
        state: if state == State::Claimed && !read_claim(row, 17)?.is_alive() {
            State::Pending
        } else {
            state
        },
        attempts: row.get(10)?,
        created_at: Wall(row.get(11)?),
        updated_at: Wall(row.get(12)?),
        next_attempt_at: if next > now.0.saturating_add(longest) { now } else { Wall(next) },
        outcome: row.get(14)?,
        error: row.get(15)?,
    })
}

pub(in crate::store::spool) fn read_kind(row: &Row<'_>, column: usize) -> rusqlite::Result<EntryKind> {
    let word = row.get_ref(column)?.as_str()?;
    EntryKind::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or_else(|| unknown(column, word))
}

pub(in crate::store::spool) fn read_state(row: &Row<'_>, column: usize) -> rusqlite::Result<State> {
    let word = row.get_ref(column)?.as_str()?;
    State::ALL.into_iter().find(|state| state.as_str() == word).ok_or_else(|| unknown(column, word))
}

fn unknown(column: usize, word: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, format!("unknown word {word:?}").into())
}

/// The process that has claimed the row: its pid in this column, its start in the next one.
pub(in crate::store::spool) fn read_claim(row: &Row<'_>, column: usize) -> rusqlite::Result<Process> {
    Ok(Process { pid: row.get(column)?, start_time: row.get::<_, i64>(column + 1)?.cast_unsigned() })
}
