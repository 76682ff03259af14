//! What became of something that was sent before, and waiting for what becomes of it.

use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, Sender as Tell, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::report::Report;
use super::{Args, NAME};
use crate::cli::control;
use crate::cli::duration;
use crate::cli::output::{self, Exit, Failure, Out};
use crate::cli::ways::{self, Reader};
use crate::clock::{Backoff, Clock, SystemClock};
use crate::daemon::fate;
use crate::net::service::Shutdown;
use crate::proto::control::{MessageState, MessageStatus, Op};
use crate::store::config::Paths;
use crate::store::spool::Spool;
use crate::store::spool::outbox::EntryKind;

/// How often the daemon is asked while something is waited for. It asks the Worker, which serves others too.
const LOOKS: Backoff = Backoff { first: Duration::from_millis(250), cap: Duration::from_secs(4) };
/// Time that is waited unless the option says another.
const DEFAULT_TIME: Duration = Duration::from_secs(60);

/// What is waited for, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    goal: Goal,
    /// At most.
    pub(super) time: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    Injected,
    Settled,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Injected { "injected" } else { "settled" })
    }
}

/// Reads `injected` or `settled`, and a time after `=`.
pub(super) fn parse_wait(text: &str) -> Result<Wait, String> {
    let (goal, time) = match text.split_once('=') {
        Some((goal, time)) => (goal, duration::parse(time)?),
        None => (text, DEFAULT_TIME),
    };
    let goal = match goal {
        "injected" => Goal::Injected,
        "settled" => Goal::Settled,
        _ => {
            return Err("it is neither injected nor settled, with or without a time: injected=60s".to_owned());
        }
    };
    Ok(Wait { goal, time })
}

/// How something stands against what is waited for.
enum Standing {
    Reached,
    NotYet,
    /// It cannot be reached any more.
    Dead,
    /// There is nobody who could have it.
    Nobody,
}

impl Goal {
    fn standing(self, status: &MessageStatus) -> Standing {
        let is_lost = || status.recipients.iter().any(|recipient| recipient.state == "dead");
        match status.state {
            MessageState::Injected => Standing::Reached,
            // It is at its end, and nobody knows whether the session has it.
            MessageState::Shown if self == Self::Settled => Standing::Reached,
            MessageState::Dead => Standing::Dead,
            // With each of none it is at its end.
            _ if status.for_nobody && self == Self::Settled => Standing::Reached,
            _ if status.for_nobody => Standing::Nobody,
            // For all to be at their end the others still count, for all to have it they do not.
            _ if self == Self::Injected && is_lost() => Standing::Dead,
            _ => Standing::NotYet,
        }
    }
}

/// Says what became of the entry `id`; with `--wait`, once it has come so far.
///
/// # Errors
/// When nobody knows the entry (1), or it cannot be looked up.
pub(super) fn run(args: &Args, id: &str) -> Result<Exit, Failure> {
    let failed = |err| Failure::store("look into the spool", &err);
    let paths = control::paths()?;
    let spool = Spool::open_existing(&paths.data).map_err(failed)?;
    let mut spool = spool.ok_or_else(|| unknown(id))?;
    let now = SystemClock::new().wall();
    let entry = spool.outbox().get(id, now).map_err(failed)?;
    if let Some(event) = entry.filter(|entry| entry.kind == EntryKind::Event) {
        refuse_event(args.wait)?;
        return print(&Report::of(&event), args.json);
    }
    if let Some(wait) = args.wait {
        let known = fate::known_here(&mut spool, id, now).map_err(failed)?.ok_or_else(|| unknown(id))?;
        return follow(args, wait, known.status, Instant::now());
    }
    let status = match look(&paths, id) {
        Err(failure) if failure.exit == Exit::Unavailable => {
            let known = fate::known_here(&mut spool, id, now).map_err(failed)?.ok_or_else(|| unknown(id))?;
            output::warn(NAME, format_args!("only the spool was asked: {}", failure.line));
            known.status
        }
        looked => looked?,
    };
    if let Some(why) = &status.unknown {
        output::warn(NAME, format_args!("nothing more is known of {id} now: {why}"));
    }
    print(&Report::of_message(&status), args.json)
}

/// Nobody tells a sender what becomes of an event after it was taken.
///
/// # Errors
/// When `wait` is given (2).
pub(super) fn refuse_event(wait: Option<Wait>) -> Result<(), Failure> {
    let Some(Wait { goal, .. }) = wait else { return Ok(()) };
    let why =
        "an event's sender is told that it is queued, and nothing after that; --wait goes with a message";
    let failure = Failure::new(Exit::Usage, format_args!("wait until an event is {goal}"), why);
    Err(failure
        .hint("the agent's answer comes to --reply-url; the Worker's operator asks transit-worker delivery"))
}

fn unknown(id: &str) -> Failure {
    Failure::new(Exit::No, format_args!("look up {id}"), "the spool has no such entry")
}

fn print(report: &Report, json: bool) -> Result<Exit, Failure> {
    let mut out = Out::new();
    report.write(&mut out, json)?;
    out.finish()?;
    Ok(Exit::Ok)
}

/// Asks the daemon once.
fn look(paths: &Paths, id: &str) -> Result<MessageStatus, Failure> {
    let call = control::call_of(Op::MessageStatus { id: id.to_owned() }, None);
    let fields = control::ask(paths, &call)?.map_err(|err| match err.code.as_str() {
        "not_found" => unknown(id),
        _ => control::refused(format_args!("look up {id}"), &err),
    })?;
    serde_json::from_value(Value::Object(fields))
        .map_err(|err| Failure::new(Exit::Protocol, "read transitd's answer", err))
}

enum News {
    Looked(Result<MessageStatus, Failure>),
    Interrupted,
}

/// Waits from `began` on until the message is where `wait` wants it, and prints how far it has come.
///
/// # Errors
/// When it is not there in time (75), will never be (1), or cannot be looked up. The record is printed all the same.
pub(super) fn follow(
    args: &Args,
    wait: Wait,
    status: MessageStatus,
    began: Instant,
) -> Result<Exit, Failure> {
    let (tell, news) = channel();
    let interrupt = Shutdown::on_signals().map_err(|err| Failure::new(Exit::Io, "catch signals", err))?;
    let interrupted = tell.clone();
    interrupt.on_trigger(move || drop(interrupted.send(News::Interrupted)));
    let (paths, id) = (control::paths()?, status.id.clone());
    thread::Builder::new()
        .name("look".to_owned())
        .spawn(move || watch(&paths, &id, &interrupt, &tell))
        .map_err(|err| Failure::new(Exit::TryLater, "start a thread", err))?;
    let mut status = status;
    let mut trouble = None;
    let why = loop {
        match wait.goal.standing(&status) {
            Standing::Reached => return print(&Report::of_message(&status), args.json),
            Standing::Dead => break None,
            Standing::Nobody => {
                print(&Report::of_message(&status), args.json)?;
                return Err(for_nobody(&status));
            }
            Standing::NotYet => {}
        }
        match news.recv_timeout(wait.time.saturating_sub(began.elapsed())) {
            Ok(News::Looked(Ok(newer))) => (status, trouble) = (newer, None),
            // It may be back before the time is over.
            Ok(News::Looked(Err(failure))) if failure.exit == Exit::Unavailable => {
                trouble = Some(failure.line)
            }
            Ok(News::Looked(Err(failure))) => {
                print(&Report::of_message(&status), args.json)?;
                return Err(failure.hint(ask_later(&status.id)));
            }
            Ok(News::Interrupted) => break Some("interrupted".to_owned()),
            Err(RecvTimeoutError::Timeout) => break Some(format!("not within {} s", wait.time.as_secs())),
            Err(RecvTimeoutError::Disconnected) => break Some("nobody looks any more".to_owned()),
        }
    };
    print(&Report::of_message(&status), args.json)?;
    Err(unreached(wait.goal, &status, why, trouble))
}

/// Looks until nobody wants to know any more.
fn watch(paths: &Paths, id: &str, interrupt: &Shutdown, tell: &Tell<News>) {
    let mut looks = 0;
    while tell.send(News::Looked(look(paths, id))).is_ok() {
        looks += 1;
        if interrupt.wait(Some(LOOKS.after(looks))) {
            return;
        }
    }
}

fn ask_later(id: &str) -> String {
    format!("it is kept and goes on its way; ask later: transit-send --status {id}")
}

/// It is no failure of the message, and the same again may succeed once somebody is there.
fn for_nobody(status: &MessageStatus) -> Failure {
    let what = format!("wait until {} is injected", status.id);
    let why = format!("nobody else was in {}: it is committed, and no session gets it", status.dest);
    Failure::new(Exit::TryLater, what, why)
        .hint("send it again once somebody is there; who is: transit-agent call list_rooms")
}

/// `why` is `None` for a message that is dead.
fn unreached(goal: Goal, status: &MessageStatus, why: Option<String>, trouble: Option<String>) -> Failure {
    let what = format!("wait until {} is {goal}", status.id);
    let error = status.error.as_deref();
    let Some(why) = why else {
        let failure =
            Failure::new(Exit::No, what, format_args!("it is dead: {}", error.unwrap_or("nobody says why")));
        return failure.way(error.and_then(|code| ways::out_of(code, Reader::Person)));
    };
    let state = match status.state {
        MessageState::Spooled => "in the spool",
        MessageState::Shown => "shown by the terminal, and the session does not say that it has it",
        _ => "committed",
    };
    let more = trouble.as_deref().or(status.unknown.as_deref()).or(error);
    let more = more.map(|more| format!("; {more}")).unwrap_or_default();
    Failure::new(Exit::TryLater, what, format_args!("{why}: it is {state}{more}")).hint(ask_later(&status.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::control::RecipientStatus;

    #[test]
    fn a_state_is_waited_for_a_minute_or_as_told() {
        let wait = |goal, seconds| Ok(Wait { goal, time: Duration::from_secs(seconds) });
        assert_eq!(parse_wait("injected"), wait(Goal::Injected, 60));
        assert_eq!(parse_wait("settled=5m"), wait(Goal::Settled, 300));
        assert_eq!(parse_wait("injected=0s"), wait(Goal::Injected, 0));
        for bad in ["", "queued", "injected=", "injected=5", "=60s", "Injected", "settled 60s"] {
            assert!(parse_wait(bad).is_err(), "{bad}");
        }
    }

    fn status(state: MessageState, recipients: &[&str]) -> MessageStatus {
        let recipient =
            |state: &&str| RecipientStatus { agent: "a@b".into(), state: (*state).to_owned(), error: None };
        MessageStatus {
            id: "tx_00000000000a".into(),
            dest: "#ops".into(),
            state,
            attempts: 1,
            next_attempt_at: None,
            error: None,
            recipients: recipients.iter().map(recipient).collect(),
            for_nobody: false,
            unknown: None,
        }
    }

    #[test]
    fn one_recipient_that_is_lost_ends_the_wait_for_all_to_have_it() {
        let standing =
            |goal: Goal, state, recipients: &[&str]| match goal.standing(&status(state, recipients)) {
                Standing::Reached => "reached",
                Standing::NotYet => "not yet",
                Standing::Dead => "dead",
                Standing::Nobody => "nobody",
            };
        let some = ["dead", "queued"];
        assert_eq!(standing(Goal::Injected, MessageState::Committed, &some), "dead");
        assert_eq!(standing(Goal::Settled, MessageState::Committed, &some), "not yet");
        for goal in [Goal::Injected, Goal::Settled] {
            assert_eq!(standing(goal, MessageState::Spooled, &[]), "not yet");
            assert_eq!(standing(goal, MessageState::Committed, &["queued"]), "not yet");
            assert_eq!(standing(goal, MessageState::Injected, &["injected"]), "reached");
            assert_eq!(standing(Goal::Settled, MessageState::Shown, &[]), "reached");
            assert_eq!(standing(Goal::Injected, MessageState::Shown, &[]), "not yet");
            assert_eq!(standing(goal, MessageState::Dead, &["dead", "injected"]), "dead");
        }
        let alone = MessageStatus { for_nobody: true, ..status(MessageState::Committed, &[]) };
        assert!(matches!(Goal::Injected.standing(&alone), Standing::Nobody));
        assert!(matches!(Goal::Settled.standing(&alone), Standing::Reached));
    }
}
