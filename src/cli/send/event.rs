//! One event: checked, kept, signed and tried.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Instant;

use super::dest::Target;
use super::report::{Ended, Report};
use super::{Args, EventArgs, NAME, body};
use crate::cli::control;
use crate::cli::output::{self, Exit, Failure, Out};
use crate::cli::secret::{DEFAULT_VARIABLE, SecretArgs};
use crate::clock::{Clock, SystemClock, Wall};
use crate::daemon::events::{Poster, Settled, Verdict, signed_headers};
use crate::id::{self, IdKind};
use crate::limits;
use crate::proto::ingest::{Event, RuleError, parse_event};
use crate::secret::Secret;
use crate::store::process::Process;
use crate::store::spool::Spool;
use crate::store::spool::outbox::{Added, Entry, EntryKind, NewEntry, SecretRef};
use crate::text;

/// `KEY=VALUE`.
pub(super) fn parse_meta(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("it is not KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Sends the one event that the arguments and the body make.
///
/// # Errors
/// When it breaks a rule, is refused, or can neither be sent nor kept.
pub(super) fn run(args: &Args, target: Target) -> Result<Exit, Failure> {
    let (event_key, body) = if args.event.raw { raw(args)? } else { from_content(args)? };
    let sender = Sender::new(args, target)?;
    let mut out = Out::new();
    if args.delivery.dry_run {
        sender.show(&mut out, &body, args.json)?;
        out.finish()?;
        return Ok(Exit::Ok);
    }
    let began = Instant::now();
    let ended = sender.send(sender.open_spool()?.as_mut(), &event_key, &body)?;
    if args.common.verbose > 0 {
        let (id, bytes, took) = (&ended.report.id, body.len(), began.elapsed().as_millis());
        output::say(format_args!("{NAME}: {id}: {bytes} bytes, {} ms, {}", took, sender.doing()));
    }
    if let Some(failure) = ended.failure {
        return Err(failure);
    }
    ended.report.write(&mut out, args.json)?;
    out.finish()?;
    Ok(Exit::Ok)
}

fn raw(args: &Args) -> Result<(String, Vec<u8>), Failure> {
    let rule = format!("the request body is over {} bytes", limits::INGEST_BYTES);
    let body = body::read(args, limits::INGEST_BYTES, &rule)?;
    let event = parse_event(&body).map_err(|err| broken("send the body", &err))?;
    Ok((event.event_key, body))
}

fn from_content(args: &Args) -> Result<(String, Vec<u8>), Failure> {
    if args.event.conversation.is_none() {
        return Err(Failure::new(Exit::Usage, "send an event", "it needs --conversation ID"));
    }
    let rule = format!("content is not 1 to {} bytes long", limits::CONTENT_BYTES);
    let content = body::read_text(args, limits::CONTENT_BYTES, &rule)?;
    let event = args.event.to_event(content);
    let body = event.checked_body().map_err(|err| broken("send the event", &err))?;
    Ok((event.event_key, body))
}

/// A rule of transit.ingest/1 that something breaks.
pub(super) fn broken(what: impl std::fmt::Display, err: &RuleError) -> Failure {
    Failure::new(Exit::Data, what, &err.text)
}

/// A key that no other event has.
fn fresh_key() -> String {
    let mut bytes = [0; 16];
    id::fill_random(&mut bytes);
    hex::encode(bytes)
}

impl EventArgs {
    /// Of a key that is given twice, one value would be lost without a word.
    ///
    /// # Errors
    /// When there is one (65).
    pub(super) fn refuse_meta_twice(&self) -> Result<(), Failure> {
        let mut seen = BTreeSet::new();
        match self.meta.iter().find(|(key, _)| !seen.insert(key)) {
            Some((key, _)) => {
                Err(Failure::new(Exit::Data, "send the event", format_args!("meta.{key} is given twice")))
            }
            None => Ok(()),
        }
    }

    /// The event with this content, and a key of its own if none was given.
    pub(super) fn to_event(&self, content: String) -> Event {
        Event {
            event_key: self.event_key.clone().unwrap_or_else(fresh_key),
            conversation_id: self.conversation.clone().unwrap_or_default(),
            user: self.user.clone(),
            trigger: self.trigger.clone(),
            content,
            reply_url: self.reply_url.clone(),
            meta: self.meta.iter().cloned().collect(),
        }
    }
}

/// Sends events to one source. Threads share it; each has its own spool.
pub(super) struct Sender {
    target: Target,
    secret: Secret,
    reference: SecretRef,
    poster: Poster,
    keeps: bool,
    tries: bool,
    clock: SystemClock,
}

impl Sender {
    /// Finds out where the secret is and reads it.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn new(args: &Args, target: Target) -> Result<Self, Failure> {
        let places = match (&args.secret, &target.secret_file) {
            (SecretArgs { secret_file: None, secret_env: None }, Some(file)) => {
                SecretArgs { secret_file: Some(file.clone()), secret_env: None }
            }
            (given, _) => given.clone(),
        };
        let secret = places.read(NAME)?;
        let reference = match places.secret_file {
            Some(file) => {
                let absolute = std::path::absolute(&file).map_err(|err| {
                    Failure::new(Exit::NoInput, format_args!("find {}", file.display()), err)
                })?;
                SecretRef::File(absolute)
            }
            None => SecretRef::Env(places.secret_env.unwrap_or_else(|| DEFAULT_VARIABLE.to_owned())),
        };
        Ok(Self {
            target,
            secret,
            reference,
            poster: Poster::new(args.delivery.timeout()),
            keeps: !args.delivery.no_spool,
            tries: !args.delivery.spool_only,
            clock: SystemClock::new(),
        })
    }

    /// What it does with an event, in words.
    fn doing(&self) -> &'static str {
        match (self.keeps, self.tries) {
            (true, true) => "kept in the spool and tried once",
            (true, false) => "kept in the spool and not tried",
            (false, _) => "tried once and not kept",
        }
    }

    /// The spool, where this sender keeps what it sends.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(super) fn open_spool(&self) -> Result<Option<Spool>, Failure> {
        if !self.keeps {
            return Ok(None);
        }
        Spool::open(&control::paths()?.data).map(Some).map_err(|err| Failure::store("open the spool", &err))
    }

    /// Keeps the event, tries it once, and tells what became of it; or only one of these.
    ///
    /// # Errors
    /// When it cannot be kept. Nothing was sent then.
    pub(super) fn send(
        &self,
        spool: Option<&mut Spool>,
        event_key: &str,
        body: &[u8],
    ) -> Result<Ended, Failure> {
        let dest = self.target.url.as_str();
        let Some(spool) = spool else {
            let report = Report::event(&IdKind::Event.fresh(), dest, event_key);
            return Ok(Ended::unkept(report, self.poster.post(dest, body, &self.secret, self.clock.wall())));
        };
        let failed = |err| Failure::store("keep the event", &err);
        let now = self.clock.wall();
        // Two fresh ids that are the same are a rare thing, and then the second one is made anew.
        loop {
            let id = IdKind::Event.fresh();
            let report = Report::event(&id, dest, event_key);
            let entry = self.entry(&id, event_key, body);
            if !self.tries {
                match spool.outbox().add(&entry, now).map_err(failed)? {
                    Added::Known(_) => continue,
                    Added::New => {}
                }
                return Ok(Ended::well(Report { next_attempt_at: Some(now.to_string()), ..report }));
            }
            let claimed = spool.outbox().add_claimed(&entry, Process::current(), now).map_err(failed)?;
            if let Some(claimed) = claimed {
                return Ok(self.attempt(spool, &claimed, report));
            }
        }
    }

    fn entry<'a>(&'a self, id: &'a str, event_key: &'a str, body: &'a [u8]) -> NewEntry<'a> {
        NewEntry {
            id,
            kind: EntryKind::Event,
            dest: self.target.url.as_str(),
            from: None,
            reply_to: None,
            event_key: Some(event_key),
            body,
            secret: Some(&self.reference),
        }
    }

    fn attempt(&self, spool: &mut Spool, entry: &Entry, report: Report) -> Ended {
        match self.poster.attempt(spool, entry, Some(&self.secret), &self.clock) {
            Ok(settled) => Ended::settled(report, settled),
            Err(unrecorded) => {
                let what = format!("the outcome could not be noted in the spool: {}", unrecorded.error);
                output::warn(NAME, what);
                Ended::settled(report, as_if_noted(unrecorded.verdict, self.clock.wall()))
            }
        }
    }

    /// Prints the request that would go out now: its exact bytes, but what a terminal would act on is shown as an
    /// escape there.
    pub(super) fn show(&self, out: &mut Out, body: &[u8], json: bool) -> std::io::Result<()> {
        let url = &self.target.url;
        let host = match (url.host_str().unwrap_or_default(), url.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        };
        let signed = signed_headers(body, &self.secret, self.clock.wall());
        let length = ("Content-Length", body.len().to_string());
        let headers = std::iter::once(("Host", host)).chain(signed).chain(std::iter::once(length));
        // Every rule was checked, so that it is text.
        let text = String::from_utf8_lossy(body);
        if json {
            let headers: serde_json::Map<_, _> =
                headers.map(|(name, value)| (name.to_owned(), value.into())).collect();
            let request =
                serde_json::json!({"method": "POST", "url": url.as_str(), "headers": headers, "body": text});
            return writeln!(out, "{}", text::visible_json(&request.to_string()));
        }
        writeln!(out, "POST {} HTTP/1.1", url.path())?;
        for (name, value) in headers {
            writeln!(out, "{name}: {value}")?;
        }
        writeln!(out)?;
        if output::is_on_terminal() {
            let lines: Vec<_> = text.split('\n').map(text::visible).collect();
            return writeln!(out, "{}", lines.join("\n"));
        }
        out.write_all(body)?;
        writeln!(out)
    }
}

/// What the entry will be once the spool can be written again: what was not noted as sent is sent again, under the
/// same key, when this process has ended.
fn as_if_noted(verdict: Verdict, now: Wall) -> Settled {
    match verdict {
        Verdict::Done(outcome) => Settled::Sent(outcome),
        Verdict::Refused { kind, why } => Settled::Dead { kind: Some(kind), why },
        Verdict::Later { why, .. } | Verdict::Misconfigured { why } => Settled::Waiting { next: now, why },
    }
}
