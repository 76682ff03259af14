//! One call of the local daemon over `transit.sock`, as commands make it.

use std::env;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::output::{Exit, Failure};
use super::ways;
use crate::limits;
use crate::net::unix::{self, SocketError, TRANSIT_SOCK};
use crate::proto::control::{self, Call, ControlError, Op};
use crate::proto::lines::{Line, Lines};
use crate::store::config::Paths;
use crate::store::home::Home;

/// Longer than the daemon itself waits for anything before it answers.
const WAIT: Duration = Duration::from_secs(35);
/// The pane of a terminal multiplexer that this process runs in.
const PANE_VARIABLE: &str = "HERDR_PANE_ID";
/// The session that this process runs in, where a harness has several in one process.
const SESSION_VARIABLE: &str = "TRANSIT_SESSION_ID";

/// The paths of this process.
///
/// # Errors
/// When the environment does not tell them.
pub(super) fn paths() -> Result<Paths, Failure> {
    let var = |name: &str| env::var_os(name).map(PathBuf::from);
    Paths::from_env(var).map_err(|err| Failure::new(Exit::Config, "find the data directory", err))
}

/// The home of the host's own agents; `None` when the environment does not tell it.
pub(super) fn agents_home() -> Option<Home> {
    let var = |name: &str| env::var_os(name).map(PathBuf::from);
    Home::from_env(var, env::current_dir().ok()).ok()
}

/// A call from this process, in the name of `as_agent` if a person asks for that.
pub(super) fn call_of(op: Op, as_agent: Option<String>) -> Call {
    Call { op, pane_id: pane_id(), session_id: variable(SESSION_VARIABLE), as_agent }
}

/// The terminal pane that this process runs in, if its environment says so.
pub(super) fn pane_id() -> Option<String> {
    variable(PANE_VARIABLE)
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// What is known when the daemon has the call and its answer is lost.
pub(super) const UNKNOWN: &str = "it may have been done all the same, and would be done again";

/// Makes the call and reads the answer; the inner error is the daemon's no.
///
/// # Errors
/// When there is no daemon, it may not be asked, or it does not answer.
pub(super) fn ask(paths: &Paths, call: &Call) -> Result<Result<Map<String, Value>, ControlError>, Failure> {
    let mut stream = unix::connect(paths, TRANSIT_SOCK).map_err(|err| unreachable(&err))?;
    match control::parse_answer(&exchange(&mut stream, &call.encode())?) {
        Err(err) if err.code == "bad_answer" => {
            Err(Failure::new(Exit::Protocol, "read transitd's answer", err.text))
        }
        answer => Ok(answer),
    }
}

fn exchange(stream: &mut UnixStream, line: &str) -> Result<String, Failure> {
    let silent = |err| Failure::new(Exit::Unavailable, "wait for transitd's answer", err).hint(UNKNOWN);
    stream
        .set_read_timeout(Some(WAIT))
        .and_then(|()| stream.set_write_timeout(Some(WAIT)))
        .map_err(silent)?;
    stream.write_all(format!("{line}\n").as_bytes()).map_err(silent)?;
    let mut lines = Lines::new(limits::LINE_BYTES);
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = match stream.read(&mut bytes) {
            // The command was stopped and goes on.
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(silent)?,
        };
        lines.push(&bytes[..read]);
        match lines.next() {
            Some(Line::Text(answer)) => return Ok(answer),
            None if read > 0 => {}
            None => {
                let failure = Failure::new(Exit::Unavailable, "ask transitd", "it ended without an answer");
                return Err(failure.hint(UNKNOWN));
            }
            Some(Line::NotUtf8 | Line::TooLong) => {
                return Err(Failure::new(Exit::Protocol, "read transitd's answer", "it is no line of text"));
            }
        }
    }
}

/// Why the daemon cannot be asked, as the commands say it.
pub(super) fn unreachable(err: &SocketError) -> Failure {
    let exit = match err {
        SocketError::NoDaemon { .. } => Exit::Unavailable,
        SocketError::Denied { .. } => Exit::NoPermission,
        SocketError::Untrusted { .. } => Exit::Config,
        SocketError::InTheWay { .. } => Exit::CannotCreate,
        _ => Exit::Io,
    };
    let failure = Failure::new(exit, "reach transitd", err);
    if exit == Exit::Unavailable { failure.hint("start it with: transitd run") } else { failure }
}

/// The daemon's no, as the commands say it, and the way out; the stable code stands at the end of the line.
pub(super) fn refused(what: impl Display, err: &ControlError) -> Failure {
    let exit = match err.code.as_str() {
        "no_route" | "agent_not_found" | "room_not_found" => Exit::NoRecipient,
        "body_too_large" | "reserved_name" | "bad_address" | "bad_request" | "bad_params"
        | "unknown_method" => Exit::Data,
        "not_member" | "not_owner" | "invalid_caller" | "pid_not_visible" | "invite_only" => {
            Exit::NoPermission
        }
        "rpc_failed" | "not_connected" => Exit::Unavailable,
        "too_many" | "rate_limited" | "loop_guard" | "plan_limit" | "spool_full" | "spool_busy"
        | "session_absent" | "rpc_error" => Exit::TryLater,
        "disk_full" | "spool_not_writable" => Exit::CannotCreate,
        "not_enrolled" | "bad_config" => Exit::Config,
        "store_error" => Exit::Io,
        _ => Exit::No,
    };
    Failure::new(exit, what, err).way(ways::out_of_refusal(err))
}
