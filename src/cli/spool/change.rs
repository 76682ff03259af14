//! `transit-spool retry`, `rm` and `purge`.

use std::io::Write;
use std::time::Duration;

use serde_json::json;

use super::{NAME, Session, StateArg, failed};
use crate::cli::output::{self, Exit, Failure, Out};
use crate::store::process::Process;
use crate::store::spool::outbox::{Removed, Retried, State};
use crate::text;

/// What one id came to.
enum Done {
    Well,
    No(&'static str),
    /// This process is trying it.
    Busy(Process),
}

const UNKNOWN: Done = Done::No("the spool has no such entry");

pub(super) fn retry(session: &Session, ids: &[String]) -> Result<Exit, Failure> {
    let mut spool = session.open()?;
    each(session, "retry", "is due now", ids, |id| {
        let Some(spool) = &mut spool else { return Ok(UNKNOWN) };
        Ok(match spool.outbox().retry_now(id, session.now).map_err(|err| failed("retry an entry", &err))? {
            Retried::Due => Done::Well,
            Retried::Sent => Done::No("it was sent already"),
            Retried::Claimed(by) => Done::Busy(by),
            Retried::Unknown => UNKNOWN,
        })
    })
}

pub(super) fn remove(session: &Session, ids: &[String]) -> Result<Exit, Failure> {
    let mut spool = session.open()?;
    each(session, "remove", "is removed", ids, |id| {
        let Some(spool) = &mut spool else { return Ok(UNKNOWN) };
        Ok(match spool.outbox().remove(id).map_err(|err| failed("remove an entry", &err))? {
            Removed::Gone => Done::Well,
            Removed::Claimed(by) => Done::Busy(by),
            Removed::Unknown => UNKNOWN,
        })
    })
}

/// Does it for every id. One that cannot be done does not keep the others from it, and turns the exit status: 1 when
/// the answer is no, 75 when a process is in the way that will be out of it soon.
fn each(
    session: &Session,
    what: &str,
    done: &str,
    ids: &[String],
    mut act: impl FnMut(&str) -> Result<Done, Failure>,
) -> Result<Exit, Failure> {
    let mut out = Out::new();
    let mut exit = Exit::Ok;
    for id in ids {
        let shown = text::visible(id);
        match act(id)? {
            Done::Well if session.json => writeln!(out, "{}", json!({ "id": id, "done": what }))?,
            Done::Well => writeln!(out, "{shown} {done}")?,
            Done::No(why) => {
                output::say(format_args!("{NAME}: {what} {shown}: {why}"));
                exit = Exit::No;
            }
            Done::Busy(by) => {
                output::say(format_args!(
                    "{NAME}: {what} {shown}: process {} is trying it right now",
                    by.pid
                ));
                exit = if exit == Exit::Ok { Exit::TryLater } else { exit };
            }
        }
    }
    out.finish()?;
    Ok(exit)
}

pub(super) fn retry_all_dead(session: &Session) -> Result<Exit, Failure> {
    let mut spool = session.open()?;
    let count = spool.as_mut().map(|spool| spool.outbox().retry_dead(session.now)).transpose();
    let count = count.map_err(|err| failed("retry what is dead", &err))?.unwrap_or(0);
    counted(session, "retried", count, "due now")
}

pub(super) fn purge(session: &Session, older_than: Duration, state: StateArg) -> Result<Exit, Failure> {
    let states: &[State] = match state {
        StateArg::Pending => &[State::Pending],
        StateArg::Sent => &[State::Sent],
        StateArg::Dead => &[State::Dead],
        StateArg::All => &[State::Sent, State::Dead],
    };
    let mut count = 0;
    if let Some(mut spool) = session.open()? {
        for state in states {
            let purged = spool.outbox().purge(*state, session.now - older_than);
            count += purged.map_err(|err| failed("purge the spool", &err))?;
        }
    }
    counted(session, "removed", count, "removed")
}

fn counted(session: &Session, name: &str, count: u64, words: &str) -> Result<Exit, Failure> {
    let mut out = Out::new();
    if session.json {
        writeln!(out, "{}", json!({ name: count }))?;
    } else {
        let entries = if count == 1 { "entry is" } else { "entries are" };
        writeln!(out, "{count} {entries} {words}")?;
    }
    out.finish()?;
    Ok(Exit::Ok)
}
