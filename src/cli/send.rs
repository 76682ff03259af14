//! `transit-send`: send an event to a source, or a message to an agent.
//!
//! An event is in the spool before it is tried, and signed when it is tried. A message goes to the local daemon,
//! which keeps it and alone says who it is from.

mod body;
mod dest;
mod event;
mod lines;
mod message;
mod report;
mod sources;
mod status;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, Parser};

use self::dest::Dest;
use self::status::Wait;
use super::output::{Exit, Failure};
use super::secret::SecretArgs;
use super::{Common, Page, Tool, duration};
use crate::limits;
use crate::net::service;

const NAME: &str = "transit-send";
const USAGE: &str = "transit-send [OPTIONS] DEST [BODY-FILE | -m TEXT]
       transit-send --status ID [--wait STATE]
       transit-send --list-sources";

/// Send an event to a source, or a message to an agent.
///
/// DEST is a URL that ends in /ingest/SOURCE, or the name of a source in the configuration: then the body is the
/// content of a signed event. Or it is NAME@HOST or '#ROOM' (in quotes: to a shell, a bare # begins a comment): then
/// the body is a message, which the local transitd keeps and sends.
///
/// An event is written to the spool, tried once, and its outcome printed: queued or duplicate when the other side
/// has it, spooled when it waits for its next attempt. All of these are success. An event that is refused for good
/// is kept as dead.
///
/// A message is committed when the Worker has it, injected when it is durably in the recipient's session, and spooled
/// until then. It is shown when it was typed into a terminal of this host that has shown it, and nobody can tell
/// whether the session keeps it.
#[derive(Debug, Parser)]
#[command(name = NAME, version, override_usage = USAGE)]
pub struct Args {
    /// Where to: a URL, a source, NAME@HOST or '#ROOM'.
    #[arg(value_name = "DEST")]
    dest: Option<String>,
    /// The file with the body, byte for byte; - or none is stdin.
    #[arg(value_name = "BODY-FILE", conflicts_with = "message")]
    body: Option<PathBuf>,
    /// The body itself.
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    message: Option<OsString>,
    /// Say what became of the event or message ID, and send nothing.
    #[arg(long, value_name = "ID", conflicts_with_all = SENDING)]
    status: Option<String>,
    /// Print the names of the sources in the configuration.
    #[arg(long, conflicts_with_all = SENDING, conflicts_with_all = ["status", "wait"], hide_short_help = true)]
    list_sources: bool,
    /// Print outcomes as lines of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    secret: SecretArgs,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    event: EventArgs,
    #[command(flatten)]
    delivery: DeliveryArgs,
    /// The agent that a message is from, when not run inside one.
    ///
    /// Inside an agent's session the sender is that agent, and another is refused.
    #[arg(long = "as", value_name = "NAME", help_heading = "Messages", hide_short_help = true)]
    as_agent: Option<String>,
    /// The id of the message that a message answers.
    #[arg(long, value_name = "ID", help_heading = "Messages")]
    reply_to: Option<String>,
    /// Wait until it is injected or settled [default time: 60s].
    ///
    /// A message is injected once every recipient has it durably in the session, and settled once it is at its end
    /// with each of them; one that is shown is settled, and not injected. Ends with 75 when it is not so far in time, and with 1 when it never will be; the message
    /// is kept all the same. A message to a room with nobody else in it is committed and injected nowhere: at once 75
    /// for injected, and 0 for settled. A source tells nothing of an event after it was taken, so that an event is not waited
    /// for.
    #[arg(long, value_name = "STATE[=TIME]", value_parser = status::parse_wait, conflicts_with = "dry_run", help_heading = "Messages")]
    wait: Option<Wait>,
}

/// What only makes sense when something is sent.
const SENDING: [&str; 8] = ["dest", "body", "message", "lines", "raw", "no_spool", "spool_only", "dry_run"];

/// The fields of an event.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Events")]
struct EventArgs {
    /// The conversation that the event belongs to, 1 to 200 characters.
    #[arg(long, value_name = "ID", conflicts_with = "raw")]
    conversation: Option<String>,
    /// The key that makes a repeated event one [default: a fresh one].
    #[arg(long, value_name = "KEY", conflicts_with_all = ["raw", "lines"])]
    event_key: Option<String>,
    /// Who it is from, as upstream shows it.
    #[arg(long, value_name = "NAME", conflicts_with = "raw", hide_short_help = true)]
    user: Option<String>,
    /// Why it is delivered, such as mention or alert.
    #[arg(long, value_name = "WORD", conflicts_with = "raw", hide_short_help = true)]
    trigger: Option<String>,
    /// An entry of the event's meta; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = event::parse_meta, conflicts_with = "raw", hide_short_help = true)]
    meta: Vec<(String, String)>,
    /// Where a reply is posted instead of the source's own address.
    #[arg(long, value_name = "URL", conflicts_with = "raw", hide_short_help = true)]
    reply_url: Option<String>,
    /// Send the body as the whole request body, byte for byte.
    #[arg(long, hide_short_help = true)]
    raw: bool,
    /// Send every line of the body, a JSON object, as one event.
    ///
    /// The object has the fields of an event; those that it lacks come from the options. Outcomes are printed in the
    /// order of the lines. The first line that cannot be used ends the command; those before it went out.
    #[arg(long, conflicts_with_all = ["raw", "message"])]
    lines: bool,
    /// With --lines, send this many at a time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64), requires = "lines", hide_short_help = true)]
    jobs: u8,
}

/// How events are kept and tried.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Keeping and trying")]
struct DeliveryArgs {
    /// Keep nothing; a passing failure then ends with 75.
    #[arg(long, conflicts_with = "spool_only")]
    no_spool: bool,
    /// Only keep it; transitd and transit-spool flush try it.
    #[arg(long, hide_short_help = true)]
    spool_only: bool,
    /// Check everything and print the request that would go out.
    #[arg(long)]
    dry_run: bool,
    /// Time for one attempt; at most 10s of it for connecting [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = parse_timeout, hide_short_help = true)]
    timeout: Option<Duration>,
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    duration::parse(text)
        .and_then(|wait| if wait.is_zero() { Err("no time at all".to_owned()) } else { Ok(wait) })
}

impl DeliveryArgs {
    fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(limits::ATTEMPT_WAIT)
    }
}

/// Does what was asked.
///
/// # Errors
/// When something is wrong with what is to be sent, it is refused, or it can neither be sent nor kept.
pub fn run(args: Args) -> Result<Exit, Failure> {
    // Where that cannot be had, a limit on file sizes ends us as it ends everybody else.
    let _ = service::outlive_file_limit();
    if args.list_sources {
        return sources::list(args.json);
    }
    if let Some(id) = &args.status {
        return status::run(&args, id);
    }
    let Some(text) = args.dest.as_deref() else {
        let failure = Failure::new(Exit::Usage, "read the arguments", "DEST is missing");
        return Err(
            failure.hint("name a URL, a source, NAME@HOST or '#ROOM' (a # without quotes is a comment)")
        );
    };
    match dest::parse(text)? {
        Dest::Message(to) => message::run(&args, &to),
        Dest::Event(target) => {
            refuse_options_of_messages(&args)?;
            args.event.refuse_meta_twice()?;
            if args.event.lines { lines::run(&args, target) } else { event::run(&args, target) }
        }
    }
}

fn refuse_options_of_messages(args: &Args) -> Result<(), Failure> {
    let given = [("--as", args.as_agent.is_some()), ("--reply-to", args.reply_to.is_some())];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            Err(Failure::new(Exit::Usage, option, "goes with a message, and DEST is a source"))
        }
        None => status::refuse_event(args.wait),
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
        Exit::Software,
        Exit::CannotCreate,
        Exit::Io,
        Exit::TryLater,
        Exit::Protocol,
        Exit::NoPermission,
        Exit::Config,
    ],
    environment: &[
        (
            "TRANSIT_SECRET",
            "The secret of the source, unless an option or the configuration names another place.",
        ),
        ("TRANSIT_CONFIG", "The configuration; ~/.config/transit/config.json by default."),
        (
            "TRANSIT_DATA_DIR",
            "The directory with the spool and transitd's sockets; ~/.local/share/transit by default.",
        ),
        (
            "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY",
            "The proxy that events go through; loopback never does.",
        ),
        ("SSL_CERT_FILE", "The root certificates to trust instead of the system's."),
        ("HERDR_PANE_ID", "The terminal pane that a message is sent from."),
    ],
    files: &[
        (
            "~/.config/transit/config.json",
            "Names sources: {\"sources\":{\"ci\":{\"url\":…,\"secret_file\":…}}}.",
        ),
        ("~/.local/share/transit/spool.db", "What waits, what was sent and what is dead."),
    ],
    examples: &[
        (
            "Tell an agent that a build failed; the key makes a repeated call harmless:",
            "tail -n 50 build.log | transit-send https://transit.example/ingest/ci \\\n  --secret-file ci.secret --conversation build-main \\\n  --event-key build-4711 --trigger alert",
        ),
        (
            "Send a message to an agent, from the session of another:",
            "transit-send jess@titan -m 'the build is green again'",
        ),
        (
            "The same from a shell, as an agent of this host:",
            "transit-send jess@titan --as helper -m 'the build is green again'",
        ),
        ("Answer one:", "transit-send jess@titan --reply-to tx_0123456789ab -m 'on it'"),
        (
            "Send a message, and go on once it is in the agent's session:",
            "transit-send jess@titan --wait injected=5m -m 'stop, the disk is full'",
        ),
        (
            "Write to a room; without the quotes the shell would see a comment:",
            "transit-send '#ops' -m 'deploying'",
        ),
        ("Look at the request that would go out:", "transit-send ci --conversation c1 -m hello --dry-run"),
        (
            "Send every line of a file as an event, eight at a time:",
            "transit-send ci --lines --jobs 8 events.ndjson",
        ),
        ("Ask later what became of one:", "transit-send --status evt_0123456789ab --json"),
    ],
    see_also: &["transit-sign(1)", "transit-spool(1)", "transitd(8)", "transit(7)"],
};
