//! A whole row of the outbox, however it was read: through SQL, or from the bytes of a damaged file.
//!
//! Nothing here trusts a row: what is no word of ours, no time, or not what was once stored, is told as a fault.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rusqlite::types::Value;
use sha2::{Digest, Sha256};

use super::entry::{Entry, EntryKind, SecretRef, State};
use crate::clock::Wall;
use crate::id::IdKind;
use crate::limits;
use crate::store::process::Process;

/// The columns of the table, in its order.
pub(crate) const FIELDS: &str = "seq, state, claim_pid, claim_start, attempts, created_at, updated_at, \
     next_attempt_at, longest_wait, kind, id, digest, dest, sender, reply_to, event_key, secret_file, secret_env, \
     outcome, error, body";
/// How many these are.
pub(crate) const FIELD_COUNT: usize = 21;
/// Where each of them stood in the first version of the table, which had no digest.
const FIRST_ORDER: [Option<usize>; FIELD_COUNT] = [
    Some(0),
    Some(10),
    Some(11),
    Some(12),
    Some(13),
    Some(14),
    Some(15),
    Some(16),
    Some(17),
    Some(2),
    Some(1),
    None,
    Some(3),
    Some(4),
    Some(5),
    Some(6),
    Some(8),
    Some(9),
    Some(18),
    Some(19),
    Some(7),
];
/// The end of the year 9999, in milliseconds; what is later is no time that any clock had.
const LAST_TIME: i64 = 253_402_300_799_999;
/// Bytes of a digest that are kept.
const DIGEST_BYTES: usize = 16;

/// A row of the outbox as it stands in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its place in the order in which entries were added.
    pub seq: i64,
    /// The entry, its state and its next attempt as they are stored.
    pub entry: Entry,
    /// The process that has claimed it, which may be gone.
    pub claim: Option<Process>,
}

/// A row that is not what was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its place, where that can be told.
    pub seq: i64,
    /// Its id, as far as it can be told.
    pub id: Option<String>,
    /// What is wrong with it.
    pub why: String,
}

/// The digest of all that never changes in a row.
pub(in crate::store::spool) fn digest(entry: &Entry) -> Vec<u8> {
    let (file, variable) = match &entry.secret {
        Some(SecretRef::File(path)) => (Some(path.as_os_str().as_bytes()), None),
        Some(SecretRef::Env(name)) => (None, Some(name.as_bytes())),
        None => (None, None),
    };
    let text = |text: &'_ Option<String>| text.as_ref().map(|text| text.as_bytes().to_vec());
    let mut hash = Sha256::new();
    let mut add = |field: Option<&[u8]>| {
        // Every field with its length, and none told from empty: no two entries hash the same bytes.
        let length = field.map_or(u64::MAX, |field| field.len() as u64);
        hash.update(length.to_le_bytes());
        hash.update(field.unwrap_or_default());
    };
    add(Some(entry.id.as_bytes()));
    add(Some(entry.kind.as_str().as_bytes()));
    add(Some(entry.dest.as_bytes()));
    for field in [&entry.from, &entry.reply_to, &entry.event_key] {
        add(text(field).as_deref());
    }
    add(file);
    add(variable);
    add(Some(&entry.body));
    hash.finalize()[..DIGEST_BYTES].to_vec()
}

/// Reads the values of a row, in the order of [`FIELDS`] or, without a digest, in that of the first version.
pub(crate) fn decode(values: Vec<Value>) -> Result<Row, Fault> {
    let values = in_order(values);
    let (seq, id) = match (values.first(), values.get(10)) {
        (Some(Value::Integer(seq)), Some(Value::Text(id))) => (*seq, Some(id.clone())),
        (Some(Value::Integer(seq)), _) => (*seq, None),
        _ => (0, None),
    };
    read(values).map_err(|why| Fault { seq, id, why })
}

fn in_order(mut values: Vec<Value>) -> Vec<Value> {
    if values.len() + 1 != FIELD_COUNT {
        return values;
    }
    let take =
        |at: Option<usize>| at.map_or(Value::Null, |at| std::mem::replace(&mut values[at], Value::Null));
    FIRST_ORDER.into_iter().map(take).collect()
}

fn read(values: Vec<Value>) -> Result<Row, String> {
    let mut fields = Fields(values.into_iter());
    let seq = fields.number("seq")?;
    let state =
        fields.word("state", &[State::Pending, State::Claimed, State::Sent, State::Dead], State::as_str)?;
    let claim = match (fields.maybe_number("claim_pid")?, fields.maybe_number("claim_start")?) {
        (None, None) => None,
        (Some(pid), Some(start)) => {
            let pid = u32::try_from(pid).map_err(|_| "claim_pid is no process id")?;
            Some(Process { pid, start_time: start.cast_unsigned() })
        }
        _ => return Err("its claim is only half there".to_owned()),
    };
    let attempts = u32::try_from(fields.number("attempts")?).map_err(|_| "attempts is no count")?;
    let [created_at, updated_at, next_attempt_at] =
        [fields.time("created_at")?, fields.time("updated_at")?, fields.time("next_attempt_at")?];
    fields.number("longest_wait")?;
    let kind = fields.word("kind", &[EntryKind::Event, EntryKind::Message], EntryKind::as_str)?;
    let id = fields.text("id")?;
    let stored = fields.maybe_bytes("digest")?;
    let dest = fields.text("dest")?;
    let [from, reply_to, event_key] =
        [fields.maybe_text("sender")?, fields.maybe_text("reply_to")?, fields.maybe_text("event_key")?];
    let file =
        fields.maybe_bytes("secret_file")?.map(|path| SecretRef::File(OsString::from_vec(path).into()));
    let secret = file.or(fields.maybe_text("secret_env")?.map(SecretRef::Env));
    let (outcome, error) = (fields.maybe_text("outcome")?, fields.maybe_text("error")?);
    let body = fields.maybe_bytes("body")?.ok_or("body is missing")?;
    let entry = Entry {
        id,
        kind,
        dest,
        from,
        reply_to,
        event_key,
        body,
        secret,
        state,
        attempts,
        created_at,
        updated_at,
        next_attempt_at,
        outcome,
        error,
    };
    if (state == State::Claimed) != claim.is_some() {
        return Err(format!(
            "it is {} and {} a claim",
            state.as_str(),
            if claim.is_some() { "has" } else { "lacks" }
        ));
    }
    if stored.is_some_and(|stored| stored != digest(&entry)) {
        return Err("it is not what was stored (its digest differs)".to_owned());
    }
    Ok(Row { seq, entry, claim })
}

/// The values that were not read yet.
struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    fn next(&mut self, name: &str) -> Result<Value, String> {
        self.0.next().ok_or_else(|| format!("{name} is missing"))
    }

    fn maybe_number(&mut self, name: &str) -> Result<Option<i64>, String> {
        match self.next(name)? {
            Value::Null => Ok(None),
            Value::Integer(number) => Ok(Some(number)),
            _ => Err(format!("{name} is no number")),
        }
    }

    fn number(&mut self, name: &str) -> Result<i64, String> {
        self.maybe_number(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    fn time(&mut self, name: &str) -> Result<Wall, String> {
        let at = self.number(name)?;
        if (0..=LAST_TIME).contains(&at) { Ok(Wall(at)) } else { Err(format!("{name} is no time")) }
    }

    fn maybe_text(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.next(name)? {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            _ => Err(format!("{name} is no text")),
        }
    }

    fn text(&mut self, name: &str) -> Result<String, String> {
        self.maybe_text(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    fn maybe_bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, String> {
        match self.next(name)? {
            Value::Null => Ok(None),
            Value::Blob(bytes) => Ok(Some(bytes)),
            _ => Err(format!("{name} holds no bytes")),
        }
    }

    fn word<T: Copy>(&mut self, name: &str, all: &[T], word: fn(T) -> &'static str) -> Result<T, String> {
        let text = self.text(name)?;
        all.iter().copied().find(|it| word(*it) == text).ok_or_else(|| format!("{name} is {text:?}"))
    }
}

impl Row {
    /// The rules of the spool that a row breaks although it is what was stored. Empty for a good one.
    pub fn broken_rules(&self) -> Vec<String> {
        let Entry { id, kind, body, .. } = &self.entry;
        let (form, longest) = match kind {
            EntryKind::Event => (IdKind::Event, limits::INGEST_BYTES),
            EntryKind::Message => (IdKind::Message, limits::BODY_BYTES),
        };
        let mut broken = Vec::new();
        if IdKind::of(id) != Some(form) {
            broken.push(format!("its id is not {form} and 12 lowercase hexadecimal digits"));
        }
        if body.len() > longest {
            broken.push(format!("its body has {} bytes, more than {longest}", body.len()));
        }
        if self.entry.dest.is_empty() {
            broken.push("it goes nowhere: dest is empty".to_owned());
        }
        broken
    }
}
