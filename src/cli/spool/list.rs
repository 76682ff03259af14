//! `transit-spool list` and `show`.

use std::io::{self, Write};

use super::pattern::Pattern;
use super::record::Record;
use super::{NAME, Session, failed};
use crate::cli::output::{self, Exit, Failure, Out};
use crate::store::spool::look::{Listed, Which};
use crate::store::spool::outbox::{Entry, State};
use crate::text;

/// Entries that are read at once; a list is as long as it is, and memory stays flat.
const PAGE_ROWS: u32 = 500;

pub(super) fn run(session: &Session, which: Which, dest: Option<&Pattern>) -> Result<Exit, Failure> {
    let Some(look) = session.look()? else { return Ok(Exit::Ok) };
    let mut out = Out::new();
    let mut after = 0;
    loop {
        let page = look.page(which, after, PAGE_ROWS, session.now);
        let page = page.map_err(|err| failed("list the entries", &err))?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for listed in page.iter().filter(|listed| dest.is_none_or(|dest| dest.matches(&listed.entry.dest))) {
            write_listed(&mut out, listed, session.json)?;
        }
    }
    out.finish()?;
    Ok(Exit::Ok)
}

fn write_listed(out: &mut Out, listed: &Listed, json: bool) -> io::Result<()> {
    let entry = &listed.entry;
    if json {
        return out.json(&Record::listed(entry, listed.bytes));
    }
    // What waits is looked at for its next attempt, the rest for when it ended.
    let at = if waits(entry) { entry.next_attempt_at } else { entry.updated_at };
    let (id, dest) = (text::visible(&entry.id), text::visible(&entry.dest));
    let state = entry.state.as_str();
    write!(out, "{id}  {state:<7}  {:>3}  {at}  {dest}", entry.attempts)?;
    match &entry.error {
        Some(error) => writeln!(out, ": {}", text::visible(error)),
        None => writeln!(out),
    }
}

fn waits(entry: &Entry) -> bool {
    matches!(entry.state, State::Pending | State::Claimed)
}

pub(super) fn show(session: &Session, ids: &[String]) -> Result<Exit, Failure> {
    let look = session.look()?;
    let mut out = Out::new();
    let mut exit = Exit::Ok;
    for id in ids {
        let found = look.as_ref().map(|look| look.get(id, session.now)).transpose();
        let found = found.map_err(|err| failed("look up the entry", &err))?;
        let Some(entry) = found.flatten() else {
            out.flush()?;
            output::say(format_args!("{NAME}: show {}: the spool has no such entry", text::visible(id)));
            exit = Exit::No;
            continue;
        };
        if session.json {
            out.json(&Record::shown(&entry))?;
        } else {
            write_shown(&mut out, &entry)?;
        }
    }
    out.finish()?;
    Ok(exit)
}

fn write_shown(out: &mut impl Write, entry: &Entry) -> io::Result<()> {
    let record = serde_json::to_value(Record::shown(entry))?;
    for name in [
        "id",
        "kind",
        "from",
        "dest",
        "reply_to",
        "event_key",
        "state",
        "outcome",
        "attempts",
        "error",
        "created_at",
        "updated_at",
        "next_attempt_at",
        "secret_file",
        "secret_env",
        "bytes",
    ] {
        match &record[name] {
            serde_json::Value::Null => {}
            serde_json::Value::String(value) => writeln!(out, "{name}: {}", text::visible(value))?,
            value => writeln!(out, "{name}: {value}")?,
        }
    }
    let body = String::from_utf8_lossy(&entry.body);
    writeln!(out, "\n{}\n", text::body(&body))
}
