//! `transitd`: the host daemon, and how its operator speaks to it.

mod enroll;
mod run;
mod status;
mod stop;

use clap::{CommandFactory, Parser, Subcommand};
use serde_json::{Map, Value};

use super::output::{Exit, Failure};
use super::{Common, Page, Tool, control, logging, quickstart};
use crate::proto::control::Op;
use crate::store::config::Paths;

const NAME: &str = "transitd";

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
    Run(run::Args),
    /// Enrol this host with a code from the Worker's operator.
    ///
    /// The code was made for one host, with `transit-worker host enroll`; it is used up by this. A daemon that runs
    /// connects at once.
    Enroll(enroll::Args),
    /// See the whole of Transit at work on this machine, with no account and no network.
    ///
    /// Starts a Worker on loopback, enrols this host, registers an agent and declares a source; then sends one
    /// signed event through the public endpoint and shows every step, to the signed callback.
    Quickstart(quickstart::Args),
    /// Tell how the daemon is.
    Status(status::Args),
    /// Let the daemon connect to the Worker anew, at once.
    Kick,
    /// Stop the daemon in order, and wait until it has ended.
    Stop,
}

/// Does what was asked.
///
/// # Errors
/// When the daemon cannot start, is not there, or says no.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let Args { verb, common } = args;
    match verb {
        Verb::Run(args) => run::run(&common, args),
        Verb::Enroll(args) => enroll::run(&args),
        Verb::Quickstart(args) => quickstart::run(&args),
        Verb::Status(args) => status::run(&args),
        Verb::Kick => {
            ask(&control::paths()?, Op::Kick)?;
            Ok(Exit::Ok)
        }
        Verb::Stop => stop::run(),
    }
}

/// Asks the daemon for something that needs no sender.
fn ask(paths: &Paths, op: Op) -> Result<Map<String, Value>, Failure> {
    control::ask(paths, &control::call_of(op, None))?.map_err(|err| control::refused("ask transitd", &err))
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
