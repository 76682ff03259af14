//! `transit-spool`: look after the spool of this host.
//!
//! What only looks changes nothing and needs no right to write. What changes something is safe beside a running
//! transitd and any number of senders.

mod change;
mod check;
mod export;
mod flush;
mod import;
mod list;
mod pattern;
mod record;
mod stats;

use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use self::pattern::Pattern;
use super::output::{Exit, Failure};
use super::{Common, Page, Tool, control, duration};
use crate::clock::{Clock, SystemClock, Wall};
use crate::net::service;
use crate::store::StoreError;
use crate::store::spool::Spool;
use crate::store::spool::look::{Look, Which};

const NAME: &str = "transit-spool";

/// Look after the spool: what waits, what was sent, what is dead.
///
/// The spool is where transit-send keeps events and transitd keeps messages until the other side has them. All of
/// this works beside them while they run.
#[derive(Debug, Parser)]
#[command(name = NAME, version, disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    /// Print one JSON object a line.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List entries in the order in which they were added.
    List {
        /// Only those in this state; pending ones include those that are being tried.
        #[arg(long, value_enum, value_name = "STATE", default_value_t = StateArg::All)]
        state: StateArg,
        /// Only those whose destination matches this shell pattern: * ? [a-z] [!a-z].
        #[arg(long, value_name = "PATTERN", value_parser = Pattern::parse)]
        dest: Option<Pattern>,
    },
    /// Show entries with their bodies.
    Show {
        /// The ids.
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Try the events that are due.
    ///
    /// One flush runs at a time: a second one says so and ends at once, or waits with --wait. What is refused for
    /// good dies and is named on stderr. The exit status is 75 while an event still waits, and 0 otherwise. Messages
    /// are transitd's, which also tries due events while it runs.
    Flush(flush::Args),
    /// Make entries due now, dead ones too; nothing is sent by that.
    ///
    /// An entry keeps its attempts and its age. So an event that is older than three days has one attempt, and is
    /// dead again if that fails.
    Retry {
        /// The ids.
        #[arg(value_name = "ID", required_unless_present = "all_dead", conflicts_with = "all_dead")]
        ids: Vec<String>,
        /// Every entry that is dead.
        #[arg(long)]
        all_dead: bool,
    },
    /// Remove entries, whatever their state; not one that is being tried right now.
    Rm {
        /// The ids.
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Remove old entries that were sent or are dead.
    Purge {
        /// How long ago their state changed; for pending ones, how long ago they were added.
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        older_than: Duration,
        /// Only those in this state, and pending ones only when they are named here; all is sent and dead.
        #[arg(long, value_enum, value_name = "STATE", default_value_t = StateArg::All)]
        state: StateArg,
    },
    /// Say how much there is.
    Stats {
        /// In which form.
        #[arg(long, value_enum, value_name = "FORM", conflicts_with = "json")]
        format: Option<stats::Form>,
    },
    /// Print all entries, one JSON object a line, for import.
    ///
    /// From a damaged spool it prints every entry that can still be read, says what is lost, and ends with 74.
    Export {
        /// Only those in this state; pending ones include those that are being tried.
        #[arg(long, value_enum, value_name = "STATE", default_value_t = StateArg::All)]
        state: StateArg,
    },
    /// Bring in what export printed. What is there already stays as it is.
    ///
    /// Ids, states, attempts and times are kept; what was being tried is pending. A record that cannot be used ends
    /// it with 65 and its line, after those before it are in.
    Import {
        /// Where the records are; - or none is stdin.
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Look for damage.
    Check,
}

/// A state, as options name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StateArg {
    /// It waits, or is being tried.
    Pending,
    /// The other side has it.
    Sent,
    /// It was refused for good, or grew too old.
    Dead,
    /// Any.
    All,
}

impl From<StateArg> for Which {
    fn from(state: StateArg) -> Self {
        match state {
            StateArg::Pending => Self::Pending,
            StateArg::Sent => Self::Sent,
            StateArg::Dead => Self::Dead,
            StateArg::All => Self::All,
        }
    }
}

/// Where the spool is, and how answers look.
struct Session {
    data: PathBuf,
    json: bool,
    verbose: bool,
    now: Wall,
}

impl Session {
    /// A look at the spool; `None` when there is none.
    fn look(&self) -> Result<Option<Look>, Failure> {
        Look::open(&self.data).map_err(|err| failed("look into the spool", &err))
    }

    /// The spool, to change it; `None` when there is none.
    fn open(&self) -> Result<Option<Spool>, Failure> {
        Spool::open_existing(&self.data).map_err(|err| failed("open the spool", &err))
    }
}

/// A failure of the spool, with what this command can do about damage.
fn failed(what: &str, err: &StoreError) -> Failure {
    let failure = Failure::store(what, err);
    match err {
        StoreError::Damaged { .. } => failure.hint(MEND),
        StoreError::ReadOnly { .. } => failure.hint(
            "run this as its owner, where it can be written; list, show, stats, export and check only read",
        ),
        _ => failure,
    }
}

/// What to do about a damaged spool.
const MEND: &str = "rescue what can be read with transit-spool export >FILE, move the files spool.db* away, then \
                    transit-spool import FILE";

/// Does what was asked.
///
/// # Errors
/// When the spool cannot be used, or what was asked for is not there.
pub fn run(args: Args) -> Result<Exit, Failure> {
    // Where that cannot be had, a limit on file sizes ends us as it ends everybody else.
    let _ = service::outlive_file_limit();
    let session = Session {
        data: control::paths()?.data,
        json: args.json,
        verbose: args.common.verbose > 0,
        now: SystemClock::new().wall(),
    };
    match args.verb {
        Verb::List { state, dest } => list::run(&session, state.into(), dest.as_ref()),
        Verb::Show { ids } => list::show(&session, &ids),
        Verb::Flush(args) => flush::run(&session, &args),
        Verb::Retry { all_dead: true, .. } => change::retry_all_dead(&session),
        Verb::Retry { ids, .. } => change::retry(&session, &ids),
        Verb::Rm { ids } => change::remove(&session, &ids),
        Verb::Purge { older_than, state } => change::purge(&session, older_than, state),
        Verb::Stats { format } => stats::run(&session, format),
        Verb::Export { state } => export::run(&session, state.into()),
        Verb::Import { files } => import::run(&session, &files),
        Verb::Check => check::run(&session),
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
        Exit::CannotCreate,
        Exit::Io,
        Exit::TryLater,
        Exit::Config,
    ],
    environment: &[
        ("TRANSIT_DATA_DIR", "The directory with the spool; ~/.local/share/transit by default."),
        (
            "TRANSIT_SECRET",
            "The secret of events that were spooled with a variable instead of a file; flush reads it, or the one \
             that the entry names.",
        ),
        (
            "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY",
            "The proxy that flush goes through; loopback never does.",
        ),
        ("SSL_CERT_FILE", "The root certificates that flush trusts instead of the system's."),
    ],
    files: &[
        ("~/.local/share/transit/spool.db", "What waits, what was sent and what is dead."),
        (
            "~/.local/share/transit/flush.lock",
            "Locked by the flush that runs. The lock ends with its process; the file stays.",
        ),
    ],
    examples: &[
        ("See what waits:", "transit-spool list --state pending"),
        (
            "Try what is due once a minute, from cron, with mail only when something has died:",
            "* * * * * transit-spool flush --quiet --deadline 50s || test $? = 75",
        ),
        (
            "Name the destinations of what is dead, each once:",
            "transit-spool list --state dead --json | jq -r .dest | sort | uniq -c",
        ),
        (
            "Give everything that died another chance, and wait up to a minute for it:",
            "transit-spool retry --all-dead && transit-spool flush --wait --deadline 60s",
        ),
        ("Forget what is older than a week:", "transit-spool purge --older-than 7d"),
        (
            "Move a spool to another machine, or out of a damaged file:",
            "transit-spool export >spool.ndjson\ntransit-spool import spool.ndjson",
        ),
        (
            "Let node_exporter show it:",
            "transit-spool stats --format prometheus >/var/lib/node_exporter/transit.prom",
        ),
    ],
    see_also: &["transit-send(1)", "transitd(8)", "transit(7)"],
};
