//! `transitd`: the host daemon, and how its operator speaks to it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser, Subcommand};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Map, Value, json};

use super::logging::{self, LogArgs};
use super::output::{Exit, Failure, Out};
use super::{Common, Page, Tool, control, duration, loops, quickstart};
use crate::addr::Host;
use crate::daemon::enroll::{EnrollError, Enrolled, enroll};
use crate::daemon::{self, DaemonError, EnrolmentError, Ready, Settings};
use crate::net::fetch::FetchError;
use crate::net::service::{self, Shutdown};
use crate::net::unix::{self, Peer, SocketError, TRANSIT_SOCK};
use crate::proto::control::Op;
use crate::store::config::Paths;
use crate::store::files;
use crate::text;

const NAME: &str = "transitd";
/// Time for a daemon to stop.
const STOP_WAIT: Duration = Duration::from_secs(30);
/// How often a daemon that is waited for is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Run the daemon of this host, and speak to the one that runs.
///
/// The daemon keeps the agents of this host in touch with the Worker. It hands each message over to its agent's
/// session, counts it as arrived only when the session says so, and keeps what agents send until the Worker has
/// committed it.
#[derive(Debug, Parser)]
#[command(name = NAME, version, disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the daemon in the foreground, until SIGINT or SIGTERM.
    ///
    /// There is one for each data directory. A host that is not enrolled runs too: its own agents can write to
    /// each other.
    Run(RunArgs),
    /// Enrol this host with a code from the Worker's operator.
    ///
    /// The code was made for one host, with `transit-worker host enroll`; it is used up by this. A daemon that runs
    /// connects at once.
    Enroll(EnrollArgs),
    /// See the whole of Transit at work on this machine, with no account and no network.
    ///
    /// Starts a Worker on loopback, enrols this host, registers an agent and declares a source; then sends one
    /// signed event through the public endpoint and shows every step, to the signed callback.
    Quickstart(quickstart::Args),
    /// Tell how the daemon is.
    Status(StatusArgs),
    /// Let the daemon connect to the Worker anew, at once.
    Kick,
    /// Stop the daemon in order, and wait until it has ended.
    Stop,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Write FILE once the daemon serves: one JSON object with its pid and its sockets.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Add every frame to and from the Worker to FILE, without secrets, one line of JSON each.
    ///
    /// FILE may be renamed at any time, as logrotate does it: the next frame begins a new one.
    #[arg(long, value_name = "FILE")]
    wire_log: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, clap::Args)]
struct EnrollArgs {
    /// The Worker's address.
    #[arg(long, value_name = "URL", env = "TRANSIT_URL", hide_env_values = true)]
    url: String,
    /// The code.
    #[arg(long, value_name = "CODE")]
    code: String,
    /// The host that the code must be for.
    #[arg(long, value_name = "HOST")]
    host: Option<Host>,
    /// Replace an enrolment that is there.
    #[arg(long)]
    force: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct StatusArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Wait until the daemon is connected to the Worker, at most this long.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
}

/// Does what was asked.
///
/// # Errors
/// When the daemon cannot start, is not there, or says no.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let Args { verb, common } = args;
    match verb {
        Verb::Run(args) => serve(&common, args),
        Verb::Enroll(args) => enrol(&args),
        Verb::Quickstart(args) => quickstart::run(&args),
        Verb::Status(args) => status(&args),
        Verb::Kick => {
            ask(&control::paths()?, Op::Kick)?;
            Ok(Exit::Ok)
        }
        Verb::Stop => stop(),
    }
}

fn serve(common: &Common, args: RunArgs) -> Result<Exit, Failure> {
    let RunArgs { ready_file, wire_log, log } = args;
    logging::start(common, log)?;
    let stop = Shutdown::on_signals().map_err(|err| Failure::new(Exit::Io, "catch signals", err))?;
    service::raise_descriptor_limit();
    // A limit on file sizes is a full disk to us: whoever writes is told, and nobody is ended by it.
    let _ = service::outlive_file_limit();
    let settings = Settings { paths: control::paths()?, wire_log, loops: loops::settings(None, None)? };
    let mut told = Ok(());
    let ran = daemon::run(settings, stop.clone(), |ready| {
        if let Some(path) = &ready_file {
            told = files::write_private(path, ready_record(ready).as_bytes());
        }
        if told.is_err() {
            stop.trigger();
        }
    });
    if let Some(path) = &ready_file
        && told.is_ok()
        && !matches!(ran, Err(DaemonError::Running { .. }))
    {
        // Whoever looks for it learns that nobody serves any more.
        let _ = std::fs::remove_file(path);
    }
    ran.map_err(not_running)?;
    told.map_err(|err| Failure::store("write the ready file", &err))?;
    Ok(Exit::Ok)
}

fn ready_record(ready: &Ready) -> String {
    let shown = |path: &Path| path.display().to_string();
    let record = json!({
        "pid": std::process::id(),
        "transit_sock": shown(&ready.transit_sock),
        "agent_sock": shown(&ready.agent_sock),
    });
    format!("{record}\n")
}

fn not_running(err: DaemonError) -> Failure {
    const WHAT: &str = "run the daemon";
    let exit = match err {
        DaemonError::Enrolment(EnrolmentError::Store(err)) | DaemonError::Store(err) => {
            return Failure::store(WHAT, &err);
        }
        DaemonError::Enrolment(_) | DaemonError::Socket(SocketError::Untrusted { .. }) => Exit::Config,
        DaemonError::Panicked { .. } => Exit::Software,
        DaemonError::Running { .. } | DaemonError::Socket(SocketError::Live { .. }) => Exit::TryLater,
        DaemonError::Socket(SocketError::Denied { .. }) => Exit::NoPermission,
        DaemonError::Socket(_) => Exit::CannotCreate,
        _ => Exit::Io,
    };
    Failure::new(exit, WHAT, err)
}

fn enrol(args: &EnrollArgs) -> Result<Exit, Failure> {
    let paths = control::paths()?;
    let enrolled =
        enroll(&args.url, &args.code, args.host.as_ref(), &paths, args.force).map_err(not_enrolled)?;
    // A daemon that runs connects now; one that starts later will anyway.
    let _ = control::ask(&paths, &control::call_of(Op::Kick, None));
    let Enrolled { host, host_id, org } = &enrolled;
    let mut out = Out::new();
    if args.json {
        out.json(&json!({ "host": host, "host_id": host_id, "org": org }))?;
    } else {
        let line = format!("Enrolled host {host} ({host_id}) in {org}.");
        writeln!(out, "{}", text::visible(&line))?;
    }
    out.finish()?;
    Ok(Exit::Ok)
}

fn not_enrolled(err: EnrollError) -> Failure {
    const WHAT: &str = "enrol this host";
    let (exit, hint) = match err {
        EnrollError::Store(err) => return Failure::store(WHAT, &err),
        EnrollError::Already { .. } => (Exit::CannotCreate, Some("replace the enrolment with --force")),
        EnrollError::Code => (Exit::NoPermission, Some("make a new one: transit-worker host enroll HOST")),
        EnrollError::Url { .. } => (Exit::Usage, None),
        EnrollError::Fetch(FetchError::Garbage(_)) | EnrollError::Garbage { .. } => (Exit::Protocol, None),
        EnrollError::Status { status: 403 } => (Exit::NoPermission, None),
        EnrollError::Status { status: 408 | 425 | 429 } => (Exit::TryLater, None),
        EnrollError::Status { status } if status < 500 => (Exit::Protocol, None),
        EnrollError::Fetch(_) | EnrollError::Status { .. } => (Exit::Unavailable, None),
        _ => (Exit::Config, None),
    };
    let failure = Failure::new(exit, WHAT, err);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn ask(paths: &Paths, op: Op) -> Result<Map<String, Value>, Failure> {
    control::ask(paths, &control::call_of(op, None))?.map_err(|err| control::refused("ask transitd", &err))
}

fn status(args: &StatusArgs) -> Result<Exit, Failure> {
    let paths = control::paths()?;
    let until = args.wait.map(|wait| Instant::now() + wait);
    let status = loop {
        let asked = ask(&paths, Op::Status);
        let is_over = until.is_none_or(|until| Instant::now() >= until);
        match asked {
            Ok(status) if until.is_none() || status.get("connected") == Some(&Value::Bool(true)) => {
                break status;
            }
            Ok(status) if is_over => {
                let why = status.get("last_error").and_then(Value::as_str).unwrap_or("it takes longer");
                return Err(Failure::new(Exit::Unavailable, "wait for the connection to the Worker", why));
            }
            Err(failure) if is_over || failure.exit != Exit::Unavailable => return Err(failure),
            Ok(_) | Err(_) => std::thread::sleep(ASK_AGAIN),
        }
    };
    let mut out = Out::new();
    if args.json {
        out.json(&status)?;
    } else {
        write!(out, "{}", for_people(&status))?;
    }
    out.finish()?;
    Ok(Exit::Ok)
}

/// The status as lines. Whatever is in it came from elsewhere.
fn for_people(status: &Map<String, Value>) -> String {
    use std::fmt::Write;
    let word = |fields: &Map<String, Value>, name: &str| match fields.get(name) {
        Some(Value::String(text)) => text::visible(text).into_owned(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(other) => other.to_string(),
    };
    let mut lines = String::new();
    for name in [
        "host",
        "worker_url",
        "connected",
        "outbox",
        "dead",
        "last_error",
        "uptime_seconds",
        "version",
        "pid",
    ] {
        let label = name.replace('_', " ");
        let _ = writeln!(lines, "{label:<15}{}", word(status, name));
    }
    let agents = status.get("agents").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for agent in agents.iter().filter_map(Value::as_object) {
        let of = |name| word(agent, name);
        let _ = writeln!(lines, "{:<15}{} ({}, {})", "agent", of("address"), of("harness"), of("status"));
    }
    lines
}

/// Ends the daemon by its process, so that a later one of the same pid is never meant.
fn stop() -> Result<Exit, Failure> {
    let failed = |err: rustix::io::Errno| Failure::new(Exit::Io, "stop transitd", err);
    // The pid is the kernel's: the one that a daemon tells of itself is another process's outside of its container.
    let stream = unix::connect(&control::paths()?, TRANSIT_SOCK).map_err(|err| control::unreachable(&err))?;
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
        return Err(Failure::new(Exit::TryLater, "stop transitd", "it takes longer than 30 s"));
    }
    Ok(Exit::Ok)
}

/// The command and its page.
pub fn tool() -> Tool {
    Tool { command: Args::command(), page: PAGE }
}

const PAGE: Page = Page {
    section: "8",
    exits: &[
        Exit::Ok,
        Exit::No,
        Exit::Usage,
        Exit::NoInput,
        Exit::Unavailable,
        Exit::Software,
        Exit::CannotCreate,
        Exit::Io,
        Exit::TryLater,
        Exit::Protocol,
        Exit::NoPermission,
        Exit::Config,
    ],
    environment: &[
        ("TRANSIT_CONFIG", "The configuration; ~/.config/transit/config.json by default."),
        ("TRANSIT_DATA_DIR", "The data directory; ~/.local/share/transit by default."),
        ("TRANSIT_URL", "The Worker's address, when --url does not give it."),
        (logging::VARIABLE, "What run logs: debug, or for example transit=trace,warn. It wins over -v."),
        (
            "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY",
            "The proxy on the way to the Worker, and for which hosts there is none.",
        ),
        ("SSL_CERT_FILE, SSL_CERT_DIR", "The certificates to trust, instead of the system's."),
    ],
    files: &[
        (
            "$TRANSIT_CONFIG",
            "Where this host is enrolled: url and host. When its agents go round in a loop: \
             {\"loop_guard\": {\"limit\": 30, \"window\": \"10m\"}}. From half the limit on run asks the Worker before it \
             hands a message between two of them over; without one it refuses at the limit. 0 turns that off.",
        ),
        ("$TRANSIT_DATA_DIR/token", "The device token; whoever has it is this host."),
        ("$TRANSIT_DATA_DIR/spool.db", "What waits for the Worker and for agents, and what was delivered."),
        ("$TRANSIT_DATA_DIR/agent.sock", "Where harness adapters register."),
        ("$TRANSIT_DATA_DIR/transit.sock", "Where commands ask."),
        ("$TRANSIT_DATA_DIR/daemon.lock", "Locked by the daemon; holds its pid."),
        (
            "/run/user/UID/transit-UID-*, /tmp/transit-UID-*",
            "The sockets of a data directory that is too deep for the address of a socket.",
        ),
    ],
    examples: &[
        ("See it all at work, on this machine alone:", "transitd quickstart"),
        ("Enrol this host:", "transitd enroll --url https://hub.example --code ABCD-EFGH"),
        (
            "Run, and let a script wait until the Worker is reached:",
            "transitd run & transitd status --wait 10s",
        ),
        ("See every frame:", "transitd run --wire-log frames.ndjson"),
    ],
    see_also: &["transit-agent(1)", "transit-send(1)", "transit-worker(8)", "transit(7)"],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_safe_to_show() {
        let status = json!({
            "host": "titan", "connected": false, "last_error": "a\u{1b}[31m",
            "agents": [{ "address": "jess@titan", "harness": "claude", "status": "i\ndle" }],
        });
        let shown = for_people(status.as_object().unwrap());
        assert!(shown.contains("last error     a\\u{1b}[31m\n"), "{shown}");
        assert!(shown.contains("agent          jess@titan (claude, i\\ndle)\n"), "{shown}");
        assert!(shown.contains("worker url     -\n"));
    }
}
