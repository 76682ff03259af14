//! `transitd`: the host daemon, and how its operator speaks to it.

mod doctor;
mod enroll;
mod run;
mod status;
mod stop;

use clap::{CommandFactory, Parser, Subcommand};
use serde_json::{Map, Value};

use super::output::{self, Exit, Failure};
use super::{Common, Page, Tool, control, logging, quickstart};
use crate::clock::{Clock, SystemClock, Wall};
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
    /// Hand nothing over to agents any more, until `resume`.
    ///
    /// What agents send goes on going out. What comes for them is kept, here or at the Worker, where it waits for its
    /// 24 hours. The daemon stays paused over a restart.
    Pause,
    /// Hand over again what has come since `pause`, and what comes.
    Resume,
    /// Let the daemon connect to the Worker anew, at once.
    Kick,
    /// Let the daemon read its configuration and its enrolment anew, as SIGHUP does.
    ///
    /// The connection to the Worker is made anew if it is to another one, and agents register anew if the host has
    /// another name. A configuration that makes no sense is refused, and the old one stands; exit 78 tells of it. The
    /// limits of the local client API and the manifests of the host's own agents are read anew too. Fields that hold
    /// only after a restart are named when they differ; the data directory, --wire-log and the variables of the
    /// environment always need one.
    Reload,
    /// Look whether everything is in place, and say how to mend what is not.
    ///
    /// Looks at the configuration, at who can read it, at the sockets, the spool and the disk, at the Worker and the
    /// clocks, and at the adapters of harnesses. Exits 1 when something is wrong, 74 when the spool is damaged.
    Doctor(doctor::Args),
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
        Verb::Kick => order(Op::Kick),
        Verb::Pause => order(Op::Pause { paused: Some(true), toggle: false }),
        Verb::Resume => order(Op::Pause { paused: Some(false), toggle: false }),
        Verb::Reload => reload(),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Stop => stop::run(),
    }
}

fn reload() -> Result<Exit, Failure> {
    let done = ask(&control::paths()?, Op::Reload)?;
    let texts = |name: &str| -> Vec<&str> {
        let list = done.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(Value::as_str).collect()
    };
    let (later, wrong) = (texts("needs_restart"), texts("not_used"));
    if !later.is_empty() {
        let later = later.join(", ");
        output::say(format_args!(
            "{NAME}: {later}: what the daemon was started with holds until it is restarted"
        ));
    }
    for why in &wrong {
        output::say(format_args!("{NAME}: what was there before holds: {why}"));
    }
    Ok(if wrong.is_empty() { Exit::Ok } else { Exit::Config })
}

/// Asks the daemon to do something, and says nothing when it has.
fn order(op: Op) -> Result<Exit, Failure> {
    ask(&control::paths()?, op)?;
    Ok(Exit::Ok)
}

/// Asks the daemon for something that needs no sender.
fn ask(paths: &Paths, op: Op) -> Result<Map<String, Value>, Failure> {
    control::ask(paths, &control::call_of(op, None))?.map_err(|err| control::refused("ask transitd", &err))
}

/// The time of day.
fn wall() -> Wall {
    SystemClock::new().wall()
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
        (
            "TRANSIT_HERDR_SOCKET, HERDR_SOCKET_PATH",
            "Herdr's socket, when herdr_socket in the configuration does not name it; $XDG_CONFIG_HOME/herdr/herdr.sock by default.",
        ),
        (
            "TRANSIT_HERDR_PROTOCOL_ALLOW",
            "The protocols of Herdr that are spoken, with commas between them; 19,20,22 by default.",
        ),
        (
            "TRANSIT_DELIVERY_MODE",
            "prefer an adapter where there is one, the default; require one, and let messages wait for it; or shadow it, and deliver through its pane. It wins over delivery_mode in the configuration.",
        ),
        ("TRANSIT_DRAFT_GUARD", "0 lets envelopes be typed into panes in spite of a draft."),
        ("TRANSIT_POLL_SECONDS", "How often Herdr is asked who is there; 2 by default."),
        ("TRANSIT_URL", "The Worker's address, when --url does not give it."),
        ("DOTAGENT_HOME", "The home of the host's own agents; ~/.config/dotagent by default."),
        (
            "TRANSIT_AGENTS_HOME",
            "Another home, whose agents are used instead; api.sock stays in DOTAGENT_HOME.",
        ),
        ("DOTAGENT_ROOT", "Further directories with agents, separated by colons, which come first."),
        ("TRANSIT_API_RATE", "Requests a minute on the local client API; 30 by default."),
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
        ("$TRANSIT_DATA_DIR/runs/", "What runs of the host's own agents are under way."),
        ("$TRANSIT_DATA_DIR/owed/", "Their replies to events that the Worker has not taken yet."),
        ("$TRANSIT_DATA_DIR/paused", "There while the daemon is paused."),
        ("$DOTAGENT_HOME/api.sock", "Where clients of the local API ask, once there is a dispatcher agent."),
        ("$DOTAGENT_HOME/agents/*/agent.toml", "The host's own agents."),
        ("$DOTAGENT_HOME/commands/", "What commands.list of the local API tells."),
        ("$DOTAGENT_HOME/config.toml", "Which agent that is, the limits of the API, and what ! may run."),
        ("$DOTAGENT_HOME/state/", "What assistants are given back: pointers to their sessions, and memos."),
        (
            "$DOTAGENT_HOME/audit.log",
            "Who triggered what, and what ran; beside it, as audit.log.*, what was put aside.",
        ),
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
        ("See what is wrong, and whether messages arrive:", "transitd doctor --probe helper"),
    ],
    see_also: &["transit-agent(1)", "transit-send(1)", "transit-worker(8)", "transit(7)"],
};
