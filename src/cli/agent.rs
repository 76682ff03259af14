//! `transit-agent`: any program as an agent (transit-agent/1).
//!
//! `run`, `listen` and `tmux` hold a session on the daemon's `agent.sock`; `call` is one tool call of the local daemon,
//! which is how a script that `run` starts reads on and answers.

mod adapter;
mod call;
pub(super) mod install;
mod listen;
mod run;
pub(super) mod session;
mod socket;
mod tmux;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use super::output::{Exit, Failure};
use super::{Common, Page, Tool};
use crate::addr::{Harness, Name};
use crate::proto::agent::{PROTO, Register};
use crate::secret::without_passwords;

const NAME: &str = "transit-agent";

/// Make any program an agent of this host.
///
/// An agent has an address, NAME@HOST, to which messages and events can be sent. The local transitd hands each one
/// over as a transit/1 envelope, and counts it as arrived only when this program says so.
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
    /// Run COMMAND once for every envelope, with the envelope on its stdin.
    ///
    /// The attributes of the envelope are in COMMAND's environment: TRANSIT_ID, TRANSIT_FROM, TRANSIT_KIND,
    /// TRANSIT_TS, and where they apply TRANSIT_ROOM, TRANSIT_SEQ, TRANSIT_REPLY_TO, TRANSIT_CONVERSATION_ID,
    /// TRANSIT_CONNECTOR, TRANSIT_USER, TRANSIT_REDELIVERY and TRANSIT_TRIGGER. A COMMAND that exits 0 has the
    /// message. 75, 126, 127, death by a signal, a failed start and the time limit bring the message back later,
    /// with the same TRANSIT_ID; until then no later message of its sender is begun. Any other exit refuses it for
    /// good. An id may come twice; a COMMAND that must not act twice remembers the ids that it has handled. Without such
    /// a program nothing is registered, and the exit is 2.
    ///
    /// One COMMAND runs at a time, in the order in which envelopes came. With --jobs several do, and only what has an
    /// order keeps it: messages of one sender, messages of one room, and events of one conversation. A COMMAND that
    /// works for minutes is run once; the daemon hears meanwhile that it is at work. It ends with this command, and
    /// all that it started does, also when this one is killed.
    Run(run::Args),
    /// Print envelopes as lines of JSON, and read their answers from stdin.
    ///
    /// Lines on stdout: {"t":"registered","agent","address","generation"} and {"t":"deliver","id","envelope"}.
    /// Lines on stdin: {"t":"deliver_ack","id"}, {"t":"deliver_nak","id","code","retryable"} and
    /// {"t":"status","status"}. A line that is none of these is told on stderr and passed over. When stdin ends,
    /// envelopes go on being printed, but nothing can be answered any more without --auto-ack; the command
    /// ends when its stdout is closed, and what was said on stdin before that is passed on. It connects again by
    /// itself, says so with a new registered line, and prints once more what was not answered.
    Listen(listen::Args),
    /// Call one tool of the local daemon, as the agent that this process runs in.
    ///
    /// Inside a COMMAND of `transit-agent run` the caller is that agent. The tools and their parameters, those in
    /// brackets optional: read_message {"id"}, chat_reply {"delivery_id","conversation_id","message"}, mark_handled
    /// {"delivery_id"}, send_message {"to","message",["reply_to"]}, list_agents {["host"]}, whoami {}, claim_name
    /// {"name"}, list_rooms {}, create_room {"name",["policy"]}, join_room {"room"} and leave_room {"room"}. A result
    /// that is text is printed as text, any other as JSON. A tool that refuses ends the command with 1, or 77 where
    /// something is not the caller's.
    Call(call::Args),
    /// Put the adapter of a harness in place, so that its sessions become agents.
    ///
    /// Every file that is touched is told. Done again it changes nothing, and renews what an older version has put
    /// there. Settings of the harness keep every byte but the entry in question; what a person has changed, and a
    /// file that is no strict JSON, is left alone.
    Install(install::Args),
    /// Take the adapter of a harness away, and nothing else.
    Uninstall(install::RemoveArgs),
    /// Be the adapter of a harness that starts it as a child; nothing for people to run.
    Adapter(adapter::Args),
    /// Print the path of the daemon's agent.sock, for adapters.
    ///
    /// It depends on TRANSIT_DATA_DIR and XDG_DATA_HOME, and on how deep that directory is.
    Socket,
    /// Type envelopes into a program in a tmux pane, which knows nothing of Transit.
    ///
    /// Nothing is typed while somebody scrolls in the pane, while another program than the agent's is in its
    /// foreground, a shell above all, and where a composer is recognised in which somebody has begun to write; the
    /// message waits then, and costs no attempt. tmux brackets the paste when the program has asked for that. A line
    /// that the terminal would cut is refused before a byte is typed. Once the pane shows the envelope, or that it
    /// was taken, the message counts as shown, which is all that a terminal can tell; with --transcript it counts as
    /// injected, once it is in that file. The command ends with the pane.
    Tmux(tmux::Args),
}

/// Which session this is.
#[derive(Debug, clap::Args)]
struct Identity {
    /// The agent's name; its address is NAME@HOST.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// The kind of program.
    #[arg(long, value_name = "HARNESS", default_value = "program")]
    harness: String,
    /// What makes the session the same one after a restart, so that it keeps its address and its mail [default:
    /// NAME].
    ///
    /// A session is one process: a second one takes it over, both say so, and the first one ends with 77.
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
}

impl Identity {
    /// The registration of this process; `title` is what the session is about, for people.
    fn register(&self, title: &str) -> Result<Register, Failure> {
        let Self { name, harness, session_id } = self;
        let broken = |err| Failure::new(Exit::Data, "register", err);
        name.parse::<Name>().map_err(broken)?;
        harness.parse::<Harness>().map_err(broken)?;
        let cwd = std::env::current_dir().unwrap_or_default();
        Ok(Register {
            proto: PROTO,
            harness: harness.clone(),
            session_id: session_id.as_ref().unwrap_or(name).clone(),
            pid: std::process::id(),
            cwd: Path::display(&cwd).to_string(),
            // A command line, which everybody in the organisation may read.
            title: without_passwords(title).into_owned(),
            status: "idle".to_owned(),
            name: Some(name.clone()),
            pane_id: None,
        })
    }
}

/// The program: `transit-agent`, or what that puts between itself and a COMMAND, which goes by another name.
pub fn main() -> ExitCode {
    match run::warden::Args::of(std::env::args_os()) {
        Some(args) => run::warden::run(&args),
        None => super::main(tool, run),
    }
}

/// Does what was asked.
///
/// # Errors
/// When the daemon refuses the session or the call, or cannot be used.
pub fn run(args: Args) -> Result<Exit, Failure> {
    match args.verb {
        Verb::Run(args) => run::run(args),
        Verb::Listen(args) => listen::run(args),
        Verb::Call(args) => call::run(args),
        Verb::Install(args) => install::run(args),
        Verb::Uninstall(args) => install::remove(args),
        Verb::Adapter(args) => adapter::run(&args),
        Verb::Socket => socket::run(),
        Verb::Tmux(args) => tmux::run(args),
    }
}

/// The command and its page.
pub fn tool() -> Tool {
    Tool { command: Args::command(), page: PAGE }
}

const PAGE: Page = Page {
    section: "1",
    exits: &[
        Exit::Ok,
        Exit::No,
        Exit::Usage,
        Exit::Data,
        Exit::NoInput,
        Exit::NoRecipient,
        Exit::Unavailable,
        Exit::Io,
        Exit::TryLater,
        Exit::Protocol,
        Exit::NoPermission,
        Exit::Config,
    ],
    environment: &[
        (
            "TRANSIT_DATA_DIR",
            "The directory in which transitd's sockets are; ~/.local/share/transit by default.",
        ),
        (
            "HERDR_PANE_ID",
            "The terminal pane of a call, so that transitd can tell panes of one process apart.",
        ),
        ("TMUX", "The server that tmux asks, when --tmux-socket does not name one; tmux sets it."),
        ("TMUX_PANE", "The pane that tmux types into, when --target does not name one; tmux sets it."),
        (
            "TRANSIT_SESSION_ID",
            "The session of a call, so that transitd can tell sessions of one process apart.",
        ),
    ],
    files: &[
        ("$TRANSIT_DATA_DIR/agent.sock", "Where run, listen and tmux register."),
        ("$TRANSIT_DATA_DIR/transit.sock", "Where call asks."),
    ],
    examples: &[
        (
            "Append every envelope to a file, as agent log:",
            "transit-agent run --name log -- sh -c 'cat >>envelopes'",
        ),
        (
            "Read the whole text of an event; a script that runs as COMMAND does this:",
            "transit-agent call read_message \"{\\\"id\\\":\\\"$TRANSIT_ID\\\"}\"",
        ),
        (
            "Answer an event as agent bob, from outside of its session:",
            "transit-agent call --as bob chat_reply \\\n  '{\"delivery_id\":\"dlv_0123456789ab\",\"conversation_id\":\"main\",\"message\":\"on it\"}'",
        ),
        (
            "Watch what comes for agent bob, taking each envelope as handled once it is printed:",
            "transit-agent listen --name bob --auto-ack",
        ),
        (
            "Type what comes for agent bob into the program in the tmux pane %3:",
            "transit-agent tmux --name bob --target %3",
        ),
    ],
    see_also: &["transitd(8)", "transit-send(1)", "transit(7)"],
};
