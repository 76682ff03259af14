//! `transitd stop`: ends the daemon in order, by its process.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::ask;
use crate::cli::control;
use crate::cli::output::{Exit, Failure};
use crate::net::unix::{self, Peer, TRANSIT_SOCK};
use crate::proto::control::Op;

/// Time for a daemon to stop.
const STOP_WAIT: Duration = Duration::from_secs(30);

/// Ends the daemon by its process, so that a later one of the same pid is never meant.
///
/// # Errors
/// When there is no daemon, it may not be ended from here, or it does not end in time.
pub(super) fn run() -> Result<Exit, Failure> {
    let failed = |err: rustix::io::Errno| Failure::new(Exit::Io, "stop transitd", err);
    let paths = control::paths()?;
    // While nobody has answered there, the socket may be the service manager's, which must not be ended.
    ask(&paths, Op::Status).map_err(|failure| match failure.exit {
        Exit::Unavailable => {
            failure.hint("nothing is to be stopped here; TRANSIT_DATA_DIR names another data directory")
        }
        _ => failure,
    })?;
    // The pid is the kernel's: the one that a daemon tells of itself is another process's outside of its container.
    let stream = unix::connect(&paths, TRANSIT_SOCK).map_err(|err| control::unreachable(&err))?;
    let peer = Peer::of(&stream).map_err(|err| Failure::new(Exit::Io, "ask for transitd's process", err))?;
    let pid = Pid::from_raw(peer.pid.cast_signed()).ok_or_else(|| {
        let why = "it runs in another pid namespace (a container), where this process cannot reach it";
        Failure::new(Exit::NoPermission, "stop transitd", why)
    })?;
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(Exit::Ok),
        opened => opened.map_err(failed)?,
    };
    match pidfd_send_signal(&process, Signal::TERM) {
        Err(rustix::io::Errno::SRCH) => return Ok(Exit::Ok),
        sent => sent.map_err(failed)?,
    }
    let wait = Timespec { tv_sec: STOP_WAIT.as_secs().cast_signed(), tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&wait)).map_err(failed)?;
    if ended == 0 {
        return Err(Failure::new(Exit::TryLater, "stop transitd", "it takes longer than 30 s")
            .hint("it settles what is in flight, and its log says what; run the command again to wait on"));
    }
    Ok(Exit::Ok)
}
