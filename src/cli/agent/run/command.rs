//! One COMMAND at work: how it is started, what it finds in its environment, and what its end means.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, MemfdFlags, access, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::clock::Mono;
use crate::proto::envelope::{self, Kind};
use crate::text;

use super::queue::Delivery;
use super::warden;

/// The exit of a COMMAND that wants the message again later: EX_TEMPFAIL of sysexits.
const TRY_LATER: i32 = 75;
/// What a shell exits with when its command cannot be run, or is not there.
const NOT_RUN: [i32; 2] = [126, 127];

/// Every attribute that COMMAND can find in its environment.
const VARIABLES: [&str; 12] = [
    "TRANSIT_ID",
    "TRANSIT_FROM",
    "TRANSIT_KIND",
    "TRANSIT_TS",
    "TRANSIT_ROOM",
    "TRANSIT_SEQ",
    "TRANSIT_REPLY_TO",
    "TRANSIT_CONVERSATION_ID",
    "TRANSIT_CONNECTOR",
    "TRANSIT_USER",
    "TRANSIT_REDELIVERY",
    "TRANSIT_TRIGGER",
];

/// What the end of a COMMAND means for its envelope.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// `None` when COMMAND has the message, else a stable word for why not.
    pub(super) code: Option<&'static str>,
    /// Whether the message comes again.
    pub(super) retryable: bool,
    /// One line for whoever looks after COMMAND.
    pub(super) why: Option<String>,
}

impl Outcome {
    /// COMMAND could not be started.
    pub(super) const NOT_STARTED: Self =
        Self { code: Some("command_not_started"), retryable: true, why: None };
    /// This process ends before COMMAND was started.
    pub(super) const STOPPED: Self = Self { code: Some("agent_stopped"), retryable: true, why: None };

    /// `hurried`: COMMAND was asked to end, so that a failure says nothing about the message.
    fn of(status: ExitStatus, hurried: Option<Hurried>) -> Self {
        let later = |code, why: String| Self { code: Some(code), retryable: true, why: Some(why) };
        match (status.code(), status.signal(), hurried) {
            (Some(0), ..) => Self { code: None, retryable: false, why: None },
            (.., Some(Hurried { code, why })) => later(code, why.to_owned()),
            (Some(TRY_LATER), ..) => later("command_try_later", "it wants to try later (75)".to_owned()),
            (Some(code), ..) if NOT_RUN.contains(&code) => {
                later("command_not_started", format!("it could not be run ({code}); it is tried again later"))
            }
            (Some(code), ..) => {
                let why = format!("refused for good, as it exited with {code}");
                Self { code: Some("command_refused"), retryable: false, why: Some(why) }
            }
            (None, signal, _) => {
                let why = format!("killed by signal {}; it is tried again later", signal.unwrap_or_default());
                later("command_killed", why)
            }
        }
    }
}

/// A COMMAND at work, and the envelope that it has. Polling it for reading tells its end.
pub(super) struct Running {
    pub(super) delivery: Delivery,
    child: Child,
    ended: OwnedFd,
    stage: Stage,
    /// Why it was asked to end, if it was.
    hurried: Option<Hurried>,
}

/// Why a COMMAND was asked to end: a stable word, and a line for people.
#[derive(Debug, Clone, Copy)]
struct Hurried {
    code: &'static str,
    why: &'static str,
}

impl Hurried {
    const TIMEOUT: Self =
        Self { code: "command_timeout", why: "it took longer than its time limit, and is tried again later" };
    const STOPPED: Self =
        Self { code: "agent_stopped", why: "transit-agent ends, and the message comes again" };
}

enum Stage {
    /// It works until its time limit.
    Working(Mono),
    /// It was asked to end, and is killed at this time.
    Asked(Mono),
    /// It was killed.
    Killed,
}

impl Running {
    /// Starts COMMAND with exactly the envelope as its stdin, in a process group of its own, so that whatever it
    /// starts ends with it, and with this process.
    ///
    /// # Errors
    /// When it cannot be started; the delivery comes back.
    pub(super) fn start(
        command: &[OsString],
        delivery: Delivery,
        deadline: Mono,
    ) -> Result<Self, (Delivery, io::Error)> {
        match spawn(command, &delivery) {
            Ok((child, ended)) => {
                Ok(Self { delivery, child, ended, stage: Stage::Working(deadline), hurried: None })
            }
            Err(err) => Err((delivery, err)),
        }
    }

    /// When [`look_at_the_time`](Self::look_at_the_time) has something to do.
    pub(super) fn deadline(&self) -> Option<Mono> {
        match self.stage {
            Stage::Working(deadline) | Stage::Asked(deadline) => Some(deadline),
            Stage::Killed => None,
        }
    }

    /// Asks a COMMAND to end that has reached its time limit, and kills one that did not.
    pub(super) fn look_at_the_time(&mut self, now: Mono, grace: Duration) {
        match self.stage {
            Stage::Working(deadline) if now >= deadline => {
                self.hurried = Some(Hurried::TIMEOUT);
                self.ask(now + grace);
            }
            Stage::Asked(deadline) if now >= deadline => self.kill(),
            _ => {}
        }
    }

    /// Asks COMMAND to end, because this process ends.
    pub(super) fn ask_to_end(&mut self, kill_at: Mono) {
        if matches!(self.stage, Stage::Working(_)) {
            self.hurried = Some(Hurried::STOPPED);
            self.ask(kill_at);
        }
    }

    /// Waits for the end, and brings it about after `grace`.
    pub(super) fn wait(&mut self, grace: Duration) {
        let wait = Timespec::try_from(grace).ok();
        let polled = poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], wait.as_ref());
        if !matches!(polled, Ok(1)) {
            self.kill();
        }
    }

    /// What its end means. Waits for it, if it has not ended.
    pub(super) fn outcome(&mut self) -> Outcome {
        if self.hurried.is_some() {
            // It was asked to end with all that it started, which may not have listened.
            self.signal(Signal::KILL);
        }
        match self.child.wait() {
            Ok(status) => Outcome::of(status, self.hurried),
            Err(err) => {
                let why = format!("how it ended is not known: {err}");
                Outcome { code: Some("command_lost"), retryable: true, why: Some(why) }
            }
        }
    }

    fn ask(&mut self, kill_at: Mono) {
        self.stage = Stage::Asked(kill_at);
        self.signal(Signal::TERM);
    }

    fn kill(&mut self) {
        self.stage = Stage::Killed;
        self.signal(Signal::KILL);
    }

    /// The child was not waited for, so that its number is still its own.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }
}

impl AsFd for Running {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }
}

fn spawn(command: &[OsString], delivery: &Delivery) -> io::Result<(Child, OwnedFd)> {
    let Delivery { id, envelope, .. } = delivery;
    let mut stdin = File::from(memfd_create("envelope", MemfdFlags::CLOEXEC)?);
    stdin.write_all(envelope.as_bytes())?;
    stdin.rewind()?;
    let mut process = warden::command(command);
    process.stdin(stdin);
    VARIABLES.iter().for_each(|name| {
        process.env_remove(name);
    });
    process.envs(variables(id, envelope));
    let mut child = process.spawn()?;
    match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        Ok(ended) => Ok((child, ended)),
        Err(err) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(err.into())
        }
    }
}

/// Sees whether there is such a program to run, as it would be looked for: by its path, or in PATH.
///
/// # Errors
/// When there is none, or none that may be run.
pub(super) fn look_for(program: &OsStr) -> io::Result<()> {
    let runs = |path: &Path| -> io::Result<()> {
        access(path, Access::EXEC_OK)?;
        if path.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(()) }
    };
    if program.as_bytes().contains(&b'/') {
        return runs(Path::new(program));
    }
    let places = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut found: Vec<_> = env::split_paths(&places).map(|dir| runs(&dir.join(program))).collect();
    // One that is there and may not be run says more than all the places where none is.
    found.sort_by_key(|found| {
        found.as_ref().map_or_else(|err| 1 + u8::from(err.kind() == io::ErrorKind::NotFound), |()| 0)
    });
    found.into_iter().next().unwrap_or(Err(io::ErrorKind::NotFound.into()))
}

/// The attributes of the envelope. One that cannot be read has only its id.
fn variables(id: &str, envelope: &str) -> Vec<(&'static str, String)> {
    let mut variables = vec![("TRANSIT_ID", id.to_owned())];
    let Ok(parsed) = envelope::parse(envelope) else { return variables };
    let envelope = parsed.envelope;
    variables.push(("TRANSIT_KIND", envelope.kind.name().to_owned()));
    variables.extend([("TRANSIT_FROM", envelope.from), ("TRANSIT_TS", envelope.ts)]);
    variables.extend(envelope.reply_to.map(|id| ("TRANSIT_REPLY_TO", id)));
    match envelope.kind {
        Kind::Dm => {}
        Kind::Room { room, seq, .. } => {
            variables.extend([("TRANSIT_ROOM", room), ("TRANSIT_SEQ", seq.to_string())]);
        }
        Kind::Channel { conversation_id, connector, user, redelivery, trigger, .. } => {
            variables.extend([
                ("TRANSIT_CONVERSATION_ID", conversation_id),
                ("TRANSIT_CONNECTOR", connector),
                ("TRANSIT_USER", user),
                ("TRANSIT_REDELIVERY", redelivery.to_string()),
            ]);
            variables.extend(Some(("TRANSIT_TRIGGER", trigger)).filter(|(_, trigger)| !trigger.is_empty()));
        }
    }
    // A peer's NUL would keep COMMAND from starting.
    variables.into_iter().map(|(name, value)| (name, text::attribute(&value).into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envelope::{Envelope, render};

    #[test]
    fn every_end_has_its_meaning() {
        let exit = |code: i32| ExitStatus::from_raw(code << 8);
        for (status, code, retryable) in [
            (exit(0), None, false),
            (exit(75), Some("command_try_later"), true),
            (exit(126), Some("command_not_started"), true),
            (exit(127), Some("command_not_started"), true),
            (ExitStatus::from_raw(9), Some("command_killed"), true),
            (exit(1), Some("command_refused"), false),
            (exit(255), Some("command_refused"), false),
        ] {
            let outcome = Outcome::of(status, None);
            assert_eq!((outcome.code, outcome.retryable), (code, retryable), "{status}");
        }
        assert_eq!(
            Outcome::of(exit(0), Some(Hurried::TIMEOUT)).code,
            None,
            "it has the message all the same"
        );
        assert!(Outcome::of(exit(1), Some(Hurried::TIMEOUT)).retryable);
    }

    #[test]
    fn the_environment_has_what_the_envelope_has() {
        let kind = Kind::Channel {
            conversation_id: "c\"1".into(),
            connector: "ingest".into(),
            user: "ann".into(),
            redelivery: 2,
            read: false,
            trigger: String::new(),
        };
        let envelope = Envelope {
            from: "ingest".into(),
            id: "dlv_001122334455".into(),
            ts: "2026-01-02T03:04:05Z".into(),
            reply_to: None,
            body: "hello".into(),
            kind,
        };
        let found = variables(&envelope.id, &render(&envelope));
        let value = |name| found.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str());
        assert_eq!(value("TRANSIT_KIND"), Some("channel"));
        assert_eq!(value("TRANSIT_CONVERSATION_ID"), Some("c\"1"));
        assert_eq!(value("TRANSIT_REDELIVERY"), Some("2"));
        assert_eq!(value("TRANSIT_TRIGGER"), None);
        assert!(found.iter().all(|(name, _)| VARIABLES.contains(name)));
        assert_eq!(variables("tx_1", "no envelope"), [("TRANSIT_ID", "tx_1".to_owned())]);
    }
}
