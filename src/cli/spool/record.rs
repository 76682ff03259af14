//! An entry as a record of JSON: what `list`, `show` and `export` print and `import` reads.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::addr::{Addr, AgentAddr};
use crate::cli::report::Report;
use crate::clock::Wall;
use crate::id::IdKind;
use crate::limits;
use crate::proto::ingest::parse_event;
use crate::store::spool::outbox::{Entry, EntryKind, SecretRef, State};

/// The fields that `transit-send` has too, and more.
#[derive(Debug, Serialize)]
pub(super) struct Record<'a> {
    #[serde(flatten)]
    report: Report,
    created_at: String,
    updated_at: String,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<&'a str>,
    #[serde(flatten)]
    secret: Option<Place>,
    #[serde(flatten)]
    body: Option<Body<'a>>,
}

/// Where the secret is, never the secret.
#[derive(Debug, Serialize)]
enum Place {
    #[serde(rename = "secret_file")]
    File(String),
    #[serde(rename = "secret_file_base64")]
    OddFile(String),
    #[serde(rename = "secret_env")]
    Env(String),
}

/// The body: as text where it is one.
#[derive(Debug, Serialize)]
enum Body<'a> {
    #[serde(rename = "body")]
    Text(&'a str),
    #[serde(rename = "body_base64")]
    Bytes(String),
}

impl<'a> Record<'a> {
    /// An entry in a list, whose body is so long.
    pub(super) fn listed(entry: &'a Entry, bytes: u64) -> Self {
        Self {
            report: Report::of(entry),
            created_at: entry.created_at.to_string(),
            updated_at: entry.updated_at.to_string(),
            bytes,
            from: entry.from.as_deref(),
            reply_to: entry.reply_to.as_deref(),
            secret: None,
            body: None,
        }
    }

    /// An entry with its body.
    pub(super) fn shown(entry: &'a Entry) -> Self {
        let body = match std::str::from_utf8(&entry.body) {
            Ok(text) => Body::Text(text),
            Err(_) => Body::Bytes(STANDARD.encode(&entry.body)),
        };
        let secret = entry.secret.as_ref().map(|secret| match secret {
            SecretRef::Env(name) => Place::Env(name.clone()),
            SecretRef::File(path) => match path.to_str() {
                Some(path) => Place::File(path.to_owned()),
                None => Place::OddFile(STANDARD.encode(path.as_os_str().as_bytes())),
            },
        });
        Self { secret, body: Some(body), ..Self::listed(entry, entry.body.len() as u64) }
    }
}

/// A record as it comes in; fields that are not known are ignored.
#[derive(Debug, Deserialize)]
struct Incoming {
    id: String,
    kind: String,
    dest: String,
    state: String,
    #[serde(default)]
    attempts: u32,
    from: Option<String>,
    reply_to: Option<String>,
    event_key: Option<String>,
    outcome: Option<String>,
    error: Option<String>,
    created_at: Option<String>,
    updated_at: Option<String>,
    next_attempt_at: Option<String>,
    secret_file: Option<String>,
    secret_file_base64: Option<String>,
    secret_env: Option<String>,
    body: Option<String>,
    body_base64: Option<String>,
}

/// Reads a record that [`Record::shown`] has made.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse(line: &str, now: Wall) -> Result<Entry, String> {
    let record: Incoming = serde_json::from_str(line).map_err(|err| unlined(&err))?;
    let kind = word("kind", &record.kind, &EntryKind::ALL, EntryKind::as_str)?;
    let state = word("state", &record.state, &State::ALL, State::as_str)?;
    let body = match (record.body, record.body_base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(bytes)) => decoded("body_base64", &bytes)?,
        (None, None) => return Err("body is missing".to_owned()),
        (Some(_), Some(_)) => return Err("it has both body and body_base64".to_owned()),
    };
    let odd_file = record.secret_file_base64.map(|path| decoded("secret_file_base64", &path)).transpose()?;
    let file = odd_file.map(OsString::from_vec).or(record.secret_file.map(OsString::from));
    let secret =
        file.map(|path| SecretRef::File(path.into())).or_else(|| record.secret_env.map(SecretRef::Env));
    let created_at = time("created_at", record.created_at)?.unwrap_or(now);
    let updated_at = time("updated_at", record.updated_at)?.unwrap_or(created_at);
    let entry = Entry {
        id: record.id,
        kind,
        dest: record.dest,
        from: record.from,
        reply_to: record.reply_to,
        event_key: record.event_key,
        body,
        secret,
        state,
        attempts: record.attempts,
        created_at,
        updated_at,
        next_attempt_at: time("next_attempt_at", record.next_attempt_at)?.unwrap_or(updated_at),
        // A list says of every entry how it stands; only what the other side said is kept.
        outcome: record.outcome.filter(|_| state == State::Sent),
        error: record.error,
    };
    check(&entry)?;
    Ok(entry)
}

/// The rules that an entry has kept when it was added.
fn check(entry: &Entry) -> Result<(), String> {
    let form = match entry.kind {
        EntryKind::Event => IdKind::Event,
        EntryKind::Message => IdKind::Message,
    };
    if IdKind::of(&entry.id) != Some(form) {
        return Err(format!("id is not {form} and 12 lowercase hexadecimal digits"));
    }
    match entry.kind {
        EntryKind::Event => {
            let url = Url::parse(&entry.dest).map_err(|err| format!("dest: {err}"))?;
            if !matches!(url.scheme(), "http" | "https") {
                return Err("dest is no http or https URL".to_owned());
            }
            let event = parse_event(&entry.body).map_err(|err| format!("body: {}", err.text))?;
            if entry.event_key.as_ref().is_some_and(|key| *key != event.event_key) {
                return Err("event_key is not the one of the body".to_owned());
            }
            if let Some(SecretRef::File(path)) = &entry.secret
                && !path.is_absolute()
            {
                return Err("secret_file is no absolute path".to_owned());
            }
        }
        EntryKind::Message => {
            entry.dest.parse::<Addr>().map_err(|err| format!("dest: {err}"))?;
            if let Some(from) = &entry.from {
                from.parse::<AgentAddr>().map_err(|err| format!("from: {err}"))?;
            }
            std::str::from_utf8(&entry.body).map_err(|_| "body is no text")?;
            if !(1..=limits::BODY_BYTES).contains(&entry.body.len()) {
                return Err(format!("body is not 1 to {} bytes long", limits::BODY_BYTES));
            }
        }
    }
    Ok(())
}

/// What serde says, without the line, which is always the first here.
fn unlined(err: &serde_json::Error) -> String {
    err.to_string().replace(" at line 1 column", " at column")
}

fn word<T: Copy>(name: &str, text: &str, all: &[T], word: fn(T) -> &'static str) -> Result<T, String> {
    all.iter().copied().find(|it| word(*it) == text).ok_or_else(|| format!("{name} is {text:?}"))
}

fn time(name: &str, text: Option<String>) -> Result<Option<Wall>, String> {
    let Some(text) = text else { return Ok(None) };
    let at = Wall::parse(&text).filter(|at| at.0 >= 0);
    at.map(Some).ok_or_else(|| format!("{name} is no RFC 3339 time: {text:?}"))
}

fn decoded(name: &str, text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|err| format!("{name}: {err}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let body = r#"{"schema":"transit.ingest/1","event_key":"k","conversation_id":"c","content":"hi"}"#;
        Entry {
            id: "evt_00112233445f".to_owned(),
            kind: EntryKind::Event,
            dest: "https://h/ingest/ci".to_owned(),
            from: None,
            reply_to: None,
            event_key: Some("k".to_owned()),
            body: body.as_bytes().to_vec(),
            secret: Some(SecretRef::File("/s/ü".into())),
            state: State::Pending,
            attempts: 3,
            created_at: Wall(1_700_000_000_001),
            updated_at: Wall(1_700_000_000_002),
            next_attempt_at: Wall(1_700_000_000_003),
            outcome: None,
            error: Some("no answer".to_owned()),
        }
    }

    fn round_trip(entry: &Entry) -> Result<Entry, String> {
        parse(&serde_json::to_string(&Record::shown(entry)).unwrap(), Wall(0))
    }

    #[test]
    fn an_entry_comes_back_as_it_went_out() {
        let odd = OsString::from_vec(b"/s/\xff".to_vec());
        for given in [
            entry(),
            Entry { secret: Some(SecretRef::File(odd.into())), ..entry() },
            Entry { secret: Some(SecretRef::Env("CI_SECRET".to_owned())), attempts: 0, ..entry() },
            Entry { secret: None, state: State::Dead, next_attempt_at: Wall(1_700_000_000_002), ..entry() },
            Entry {
                state: State::Sent,
                outcome: Some("duplicate".to_owned()),
                error: None,
                next_attempt_at: Wall(1_700_000_000_002),
                ..entry()
            },
            Entry {
                id: "tx_00112233445f".to_owned(),
                kind: EntryKind::Message,
                dest: "#ops".to_owned(),
                from: Some("bob@titan".to_owned()),
                reply_to: Some("tx_000000000001".to_owned()),
                event_key: None,
                secret: None,
                body: "a\u{1b}[31m\r\n\0".as_bytes().to_vec(),
                ..entry()
            },
        ] {
            assert_eq!(round_trip(&given), Ok(given));
        }
        let bytes = serde_json::to_value(Record::shown(&Entry { body: vec![0xff], ..entry() })).unwrap();
        assert_eq!((&bytes["body_base64"], &bytes["bytes"]), (&"/w==".into(), &1.into()));
    }

    #[test]
    fn what_no_spool_would_have_taken_is_refused() {
        let refused = |change: fn(&mut serde_json::Value)| {
            let mut record = serde_json::to_value(Record::shown(&entry())).unwrap();
            change(&mut record);
            parse(&record.to_string(), Wall(0)).unwrap_err()
        };
        for (change, why) in [
            ((|r| r["id"] = "evt_1".into()) as fn(&mut serde_json::Value), "id is not evt_"),
            (|r| r["id"] = "tx_00112233445f".into(), "id is not evt_"),
            (|r| r["kind"] = "mail".into(), "kind is \"mail\""),
            (|r| r["state"] = "lost".into(), "state is \"lost\""),
            (|r| r["dest"] = "ftp://h/".into(), "dest is no http"),
            (|r| r["event_key"] = "another".into(), "event_key is not the one"),
            (|r| r["secret_file"] = "secret".into(), "secret_file is no absolute path"),
            (|r| r["body"] = "{}".into(), "body: "),
            (|r| r["body"] = serde_json::Value::Null, "body is missing"),
            (|r| r["body_base64"] = "?".into(), "it has both"),
            (|r| r["attempts"] = (-1).into(), "invalid value"),
            (|r| r["created_at"] = "soon".into(), "created_at is no RFC 3339 time"),
        ] {
            let said = refused(change);
            assert!(said.starts_with(why), "{why}: {said}");
        }
        let message = Entry {
            id: "tx_00112233445f".to_owned(),
            kind: EntryKind::Message,
            dest: "jess@titan".to_owned(),
            from: Some("bob@titan\u{1b}".to_owned()),
            event_key: None,
            secret: None,
            ..entry()
        };
        assert!(round_trip(&message).unwrap_err().starts_with("from: "));
        assert_eq!(parse("{", Wall(0)).unwrap_err(), "EOF while parsing an object at column 1");
    }
}
