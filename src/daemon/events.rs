//! One attempt to post a spooled event, whoever makes it: the command that spooled it, or the daemon.
//!
//! An event is signed at the moment of its attempt, so that it never grows stale, with a secret that is read at
//! that moment from where the entry says it is. Its key lets the other side see that it comes a second time, so a
//! doubtful end is always a reason to try again.

mod flusher;

use std::env;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use serde::Deserialize;
use url::Url;

use crate::clock::{Ages, Backoff, Clock, Wall};
use crate::limits;
use crate::net::fetch::{AddressPolicy, Answer, Client, FetchError, Request};
use crate::proto::ingest::{SIGNATURE_HEADER, Signer, TIMESTAMP_HEADER, retry_after};
use crate::secret::Secret;
use crate::store::process::Process;
use crate::store::spool::Spool;
use crate::store::spool::outbox::{Entry, SecretRef};
use crate::store::{StoreError, files};
use crate::text;

pub use self::flusher::{Flushed, Flusher, Watch, flush_in_parallel};

/// Nobody is asked again sooner than this, also when they ask for it.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// More than any secret has.
const SECRET_BYTES: u64 = 65_536;
/// Most runes that are kept of what the other side says about its refusal.
const WHY_RUNES: usize = 300;

/// What the other side says of an event that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is new there.
    Queued,
    /// It was there before.
    Duplicate,
}

impl Outcome {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Duplicate => "duplicate",
        }
    }
}

/// The kinds of a permanent refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The event breaks a rule.
    Rule,
    /// There is no such source.
    NoSource,
    /// The signature is not accepted.
    Denied,
}

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The other side has it. This is final.
    Done(Outcome),
    /// It will never be taken as it is.
    Refused {
        /// Of which kind.
        kind: Refusal,
        /// The status, and the rule as the other side names it.
        why: String,
    },
    /// It may be taken later.
    Later {
        /// How long the other side asks to be left alone.
        wait: Option<Duration>,
        /// What went wrong.
        why: String,
    },
    /// Nothing was sent, because of how this process is set up; another one may get it out.
    Misconfigured {
        /// What is wrong.
        why: String,
    },
}

/// Where an attempt left an entry of the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The other side has it.
    Sent(Outcome),
    /// It is not tried any more.
    Dead {
        /// Of which kind the refusal was; `None` when it was only too old.
        kind: Option<Refusal>,
        /// Why.
        why: String,
    },
    /// It waits for its next attempt.
    Waiting {
        /// When that is due.
        next: Wall,
        /// What went wrong.
        why: String,
    },
}

/// What came of an attempt, when the spool could not take it.
#[derive(Debug)]
pub struct Unrecorded {
    /// What it came to.
    pub verdict: Verdict,
    /// Why that could not be recorded.
    pub error: StoreError,
}

/// A secret that cannot be read now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The entry does not say where its secret is.
    #[error("the entry does not say where its secret is")]
    NoReference,
    /// Its file cannot be read.
    #[error("the secret cannot be read: {0}")]
    File(StoreError),
    /// Its variable is not set in this process.
    #[error("the secret cannot be read: the variable {0} is not set here")]
    Variable(String),
    /// What is there is no secret.
    #[error("the secret cannot be used: {0}")]
    Content(crate::secret::NoSecret),
}

/// Reads the secret that an entry refers to.
///
/// # Errors
/// When it is not there, or empty, or no text.
pub fn read_secret(reference: Option<&SecretRef>) -> Result<Secret, SecretError> {
    let bytes = match reference {
        None => return Err(SecretError::NoReference),
        Some(SecretRef::File(path)) => files::read_small(path, SECRET_BYTES).map_err(SecretError::File)?,
        Some(SecretRef::Env(name)) => {
            let value =
                (!name.is_empty() && !name.contains(['=', '\0'])).then(|| env::var_os(name)).flatten();
            value.map(OsStringExt::into_vec).ok_or_else(|| SecretError::Variable(name.clone()))?
        }
    };
    Secret::from_bytes(&bytes).map_err(SecretError::Content)
}

/// The headers of a request with this body that is made now.
pub fn signed_headers(body: &[u8], secret: &Secret, now: Wall) -> [(&'static str, String); 3] {
    let timestamp = now.unix_seconds().to_string();
    let signature = Signer::new(secret).sign(&timestamp, body);
    [
        ("Content-Type", "application/json".to_owned()),
        (TIMESTAMP_HEADER, timestamp),
        (SIGNATURE_HEADER, signature),
    ]
}

/// Posts events, and keeps connections between them. Clones share those.
#[derive(Debug, Clone)]
pub struct Poster {
    client: Client,
    timeout: Duration,
    ages: Ages,
}

impl Poster {
    /// A poster whose attempts take at most `timeout`; of that, connecting takes at most
    /// [`limits::CONNECT_WAIT`].
    pub fn new(timeout: Duration) -> Self {
        Self { client: Client::new(AddressPolicy::Any), timeout, ages: Ages::new() }
    }

    /// The same poster for one attempt that may take no longer than `longest`.
    #[must_use]
    pub fn within(&self, longest: Duration) -> Self {
        Self { timeout: self.timeout.min(longest), ..self.clone() }
    }

    /// Signs the body and posts it once.
    pub fn post(&self, dest: &str, body: &[u8], secret: &Secret, now: Wall) -> Verdict {
        let url = match Url::parse(dest) {
            Ok(url) => url,
            Err(err) => return Verdict::Refused { kind: Refusal::Rule, why: format!("{dest}: {err}") },
        };
        let headers = signed_headers(body, secret, now);
        let answer = self.client.post(&Request {
            url: &url,
            headers: &headers.each_ref().map(|(name, value)| (*name, value.as_str())),
            body,
            timeout: self.timeout,
            connect_timeout: self.timeout.min(limits::CONNECT_WAIT),
        });
        judge(&answer, now)
    }

    /// Makes one attempt at an entry that this process has claimed, and records what came of it. `secret` is the
    /// entry's, for a caller that has it already; otherwise it is read from where the entry says.
    ///
    /// # Errors
    /// When the result cannot be recorded; it stands beside the reason, so that it can be recorded later.
    pub fn attempt(
        &self,
        spool: &mut Spool,
        entry: &Entry,
        secret: Option<&Secret>,
        clock: &dyn Clock,
    ) -> Result<Settled, Box<Unrecorded>> {
        let read;
        let verdict = match secret {
            Some(secret) => self.post(&entry.dest, &entry.body, secret, clock.wall()),
            None => {
                read = read_secret(entry.secret.as_ref());
                match &read {
                    Ok(secret) => self.post(&entry.dest, &entry.body, secret, clock.wall()),
                    Err(err) => Verdict::Later { wait: None, why: err.to_string() },
                }
            }
        };
        let now = clock.wall();
        record(spool, entry, &verdict, self.is_too_old(entry, now), now)
            .map_err(|error| Box::new(Unrecorded { verdict, error }))
    }

    /// Whether an entry has had its time. One from a clock that was ahead has had it once it was tried as often as
    /// others are in that time.
    fn is_too_old(&self, entry: &Entry, now: Wall) -> bool {
        match self.ages.of(entry.created_at, now) {
            Some(age) => age >= limits::EVENT_TTL,
            None => entry.attempts >= limits::EVENT_ATTEMPTS,
        }
    }
}

/// What an answer, or none, means for the event (COMMANDS, "answers to an event").
fn judge(answer: &Result<Answer, FetchError>, now: Wall) -> Verdict {
    let answer = match answer {
        Ok(answer) => answer,
        Err(FetchError::Url(why)) => return Verdict::Refused { kind: Refusal::Rule, why: why.clone() },
        Err(FetchError::Config(why)) => return Verdict::Misconfigured { why: why.clone() },
        Err(err) => return Verdict::Later { wait: None, why: err.to_string() },
    };
    let refused = |kind| Verdict::Refused { kind, why: describe(answer) };
    match answer.status {
        200..=299 => Verdict::Done(outcome(answer)),
        // Its head came whole, and with it how long to wait.
        _ if answer.is_cut => {
            let why = format!("the answer ({}) was cut off", answer.status);
            Verdict::Later { wait: asked_wait(answer, now), why }
        }
        408 | 425 | 429 => later(answer, now),
        401 | 403 => refused(Refusal::Denied),
        404 | 410 => refused(Refusal::NoSource),
        400..=499 => refused(Refusal::Rule),
        _ => later(answer, now),
    }
}

fn later(answer: &Answer, now: Wall) -> Verdict {
    Verdict::Later { wait: asked_wait(answer, now), why: describe(answer) }
}

fn asked_wait(answer: &Answer, now: Wall) -> Option<Duration> {
    answer.retry_after.as_deref().and_then(|value| retry_after(value, now))
}

/// The part of an answer's body that is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    status: String,
    error: String,
    field: String,
}

fn said(answer: &Answer) -> Said {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

fn outcome(answer: &Answer) -> Outcome {
    match (said(answer).status.as_str(), answer.status) {
        ("queued", _) => Outcome::Queued,
        ("duplicate", _) | (_, 200) => Outcome::Duplicate,
        _ => Outcome::Queued,
    }
}

fn describe(answer: &Answer) -> String {
    let said = said(answer);
    let hint = match answer.status {
        300..=399 => "; redirects are not followed",
        401 | 403 => "; is it the right secret, and is the clock right?",
        _ => "",
    };
    let why = match (text::clip(&said.error, WHY_RUNES), text::clip(&said.field, WHY_RUNES)) {
        ("", _) => match answer.status {
            404 | 410 => ": there is no such source".to_owned(),
            413 => ": the body is too large".to_owned(),
            _ => String::new(),
        },
        (error, field) if field.is_empty() || error.contains(field) => format!(": {error}"),
        (error, field) => format!(": {field}: {error}"),
    };
    format!("the answer was {}{why}{hint}", answer.status)
}

/// Writes down what came of an attempt at an entry that this process has claimed.
///
/// # Errors
/// Whatever the disk says. The entry is then still claimed.
fn record(
    spool: &mut Spool,
    entry: &Entry,
    verdict: &Verdict,
    is_too_old: bool,
    now: Wall,
) -> Result<Settled, StoreError> {
    let mut outbox = spool.outbox();
    let (wait, why) = match verdict {
        Verdict::Done(outcome) => {
            outbox.sent(&entry.id, outcome.as_str(), now)?;
            return Ok(Settled::Sent(*outcome));
        }
        Verdict::Refused { kind, why } => {
            outbox.dead(&entry.id, why, now)?;
            return Ok(Settled::Dead { kind: Some(*kind), why: why.clone() });
        }
        Verdict::Later { wait, why } => (*wait, why),
        Verdict::Misconfigured { why } => (None, why),
    };
    if is_too_old {
        let why = format!("given up after {} days: {why}", limits::EVENT_TTL.as_secs() / 86_400);
        outbox.dead(&entry.id, &why, now)?;
        return Ok(Settled::Dead { kind: None, why });
    }
    let backoff = Backoff::EVENT.after(entry.attempts + 1);
    let wait = wait.map_or(backoff, |wait| wait.max(SHORTEST_WAIT));
    outbox.retry_later(&entry.id, Process::current(), wait, why, now)?;
    Ok(Settled::Waiting { next: now + wait, why: why.clone() })
}

#[cfg(test)]
mod tests;
