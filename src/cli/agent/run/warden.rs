//! What is between `run` and a COMMAND: it ends COMMAND, and all that COMMAND started, as soon as `run` is gone.
//!
//! However `run` ends, the kernel says so to its child. That child is this very program once more, at the head of
//! COMMAND's process group; it waits for COMMAND, and ends as COMMAND did.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpgrp, getpid, getppid, kill_process_group, pidfd_open,
    set_parent_process_death_signal,
};

use crate::cli::agent::NAME;
use crate::cli::output;
use crate::net::service;

/// The name that this program is started by for it; its arguments are a pid, and COMMAND.
const WARDEN: &str = "transit-agent-warden";
/// What a shell exits with when its command is not there, or cannot be run.
const NOT_THERE: u8 = 127;
const NOT_RUN: u8 = 126;

/// What to run, and for whom.
pub(in crate::cli::agent) struct Args {
    /// The process without which COMMAND ends.
    parent: i32,
    /// The program to run, and its arguments.
    command: Vec<OsString>,
}

impl Args {
    /// What a process was started for with these; `None` when it is no warden.
    pub(in crate::cli::agent) fn of(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        args.next().filter(|name| name == WARDEN)?;
        let parent = args.next()?.to_str()?.parse().ok()?;
        let command: Vec<OsString> = args.collect();
        (!command.is_empty()).then_some(Self { parent, command })
    }
}

/// COMMAND, to be started by this process with its warden, in a process group of their own.
pub(super) fn command(command: &[OsString]) -> Command {
    // Whatever stands at its path by now, it is this program that is run.
    let mut warden = Command::new("/proc/self/exe");
    warden.arg0(WARDEN).arg(std::process::id().to_string()).args(command).process_group(0);
    warden
}

/// Runs COMMAND, and ends as it ends.
pub(in crate::cli::agent) fn run(args: &Args) -> ExitCode {
    match hold(args) {
        Ok(Some(status)) => like(status),
        Ok(None) => {
            end_all();
            NOT_RUN.into()
        }
        Err(err) => {
            let shown = args.command[0].to_string_lossy();
            output::warn(NAME, format_args!("could not start {shown}: {err}"));
            if err.kind() == io::ErrorKind::NotFound { NOT_THERE.into() } else { NOT_RUN.into() }
        }
    }
}

/// Answers how COMMAND has ended; nothing, when its time is over because the parent is gone.
fn hold(args: &Args) -> io::Result<Option<ExitStatus>> {
    // The parent asks the whole group to end; COMMAND decides when, and this process stays until then.
    let asked = service::on_endings()?;
    set_parent_process_death_signal(Some(Signal::HUP))?;
    let is_alone = || getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != args.parent);
    if is_alone() {
        // It ended before the kernel was asked to tell.
        return Ok(None);
    }
    let (program, rest) = args.command.split_first().expect("there is a COMMAND");
    let mut child = Command::new(program).args(rest).spawn()?;
    let Ok(ended) = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) else {
        child.kill()?;
        return child.wait().map(Some);
    };
    loop {
        let mut fds = [PollFd::new(&ended, PollFlags::IN), PollFd::new(&asked, PollFlags::IN)];
        if poll(&mut fds, None).is_ok() && !fds[0].revents().is_empty() {
            return child.wait().map(Some);
        }
        asked.clear();
        if is_alone() {
            return Ok(None);
        }
    }
}

/// Ends the whole group, and this process with it.
fn end_all() {
    if getpgrp() == getpid() {
        let _ = kill_process_group(getpid(), Signal::KILL);
    }
}

fn like(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        service::die_of(signal);
    }
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(NOT_RUN).into()
}
