//! `transit-wire-dump`: see the frames of a dump.
//!
//! Lines pass through one at a time; a dump of any length takes no more memory than its longest line.

mod ahead;
mod check;
mod connect;
mod filter;
mod follow;
mod input;
mod live;
mod pen;
mod print;
mod proxy;
mod recorder;
mod socket;
mod stats;

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;

use clap::{CommandFactory, Parser};

use serde::Serialize;

use self::check::Check;
use self::filter::{Clause, Filter};
use self::input::{Place, Sink};
use self::live::LiveArgs;
use self::print::{Look, Printer};
use self::stats::Stats;
use super::output::{self, Exit, Failure, Out};
use super::{Common, Page, Tool};
use crate::net::service::Shutdown;
use crate::proto::dump::raw;
use crate::proto::dump::{Line, Secrets};

const NAME: &str = "transit-wire-dump";

/// See the frames of a wire.
///
/// FILE holds NDJSON: records of a dump, as transitd run --wire-log writes them, or bare frames, whose direction follows
/// from their t. Without FILE, or with -, it is stdin. Each frame becomes one line: when, who to whom, what, its id,
/// its short fields, and then its long ones.
#[derive(Debug, Parser)]
#[command(name = NAME, version)]
pub struct Args {
    /// What to read.
    #[arg(value_name = "FILE", conflicts_with = "live")]
    files: Vec<PathBuf>,
    /// Print records in JSON, one a line.
    #[arg(long)]
    json: bool,
    /// Only frames with these values; repeat it for others.
    ///
    /// FIELD is any field of the frame itself, or dir, proto or conn of its record. All values of one --filter must
    /// be there; with several, those of any one.
    #[arg(long, value_name = "FIELD=VALUE,…", value_parser = filter::parse)]
    filter: Vec<Clause>,
    /// Go on reading as files grow, are rotated, or come to be; until a signal.
    #[arg(long, conflicts_with = "live")]
    follow: bool,
    /// Print numbers instead: frames, bytes, and how long answers took.
    ///
    /// Answers are matched by id, and for deliveries by agent. With --filter only the frames it takes are counted;
    /// the answers to them are timed whether it takes them or not. With --follow a signal prints the numbers.
    #[arg(long, conflicts_with_all = ["check", "live"])]
    stats: bool,
    /// Print instead what breaks the protocol; exit 1 if anything does.
    ///
    /// Each frame is held against its protocol alone and in its place among the others: malformed, wrong direction,
    /// before the hello, an ack without a deliver, and so on. A t that is not known is allowed, and so is a dump that
    /// begins in the middle of a connection; both are told as info. With --filter every frame is looked at, and what
    /// is found about those it takes is told.
    #[arg(long, conflicts_with = "live")]
    check: bool,
    /// Columns of a line, 0 for no limit [default: the terminal's].
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// Show capabilities, tokens and secrets, which a dump of other programs may hold.
    #[arg(long)]
    show_secrets: bool,
    #[command(flatten)]
    common: Common,
    // Last, because its heading is that of all options after it.
    #[command(flatten)]
    live: LiveArgs,
}

/// What is printed, and how.
struct Printing {
    look: Look,
    filter: Vec<Clause>,
}

/// Does what was asked.
///
/// # Errors
/// When stdin or stdout breaks. What is wrong with one file is told, and the next one is read.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let filter = Filter(&args.filter);
    let stop = args.follow.then(Shutdown::on_signals).transpose();
    let stop = stop.map_err(|err| Failure::new(Exit::Software, "wait for signals", err))?;
    let stop = stop.as_ref();
    if args.check {
        return read(&args, stop, Check::new(out(stop)?, filter, args.json, args.common.verbose > 0));
    }
    if args.stats {
        return read(&args, stop, Stats::new(out(stop)?, filter, args.json));
    }
    let look = Look {
        json: args.json,
        color: args.common.color.on_stdout(),
        width: width(args.width),
        secrets: if args.show_secrets { Secrets::Shown } else { Secrets::Redacted },
    };
    if args.live.is_asked_for() {
        let print = Printing { look, filter: args.filter };
        return live::run(&args.live, print, args.common.verbose > 0);
    }
    read(&args, stop, Print { printer: Printer::new(out(stop)?, look), filter, matched: 0, bad: 0 })
}

/// Where it goes: until `stop`, when there is such a thing.
fn out(stop: Option<&Shutdown>) -> Result<Out, Failure> {
    let out = stop.map_or_else(|| Ok(Out::new()), Out::until);
    out.map_err(|err| Failure::new(Exit::Software, "get ready to wait", err))
}

/// Hands all lines to the sink, and answers with the worst that came of it.
fn read(args: &Args, stop: Option<&Shutdown>, mut sink: impl Sink) -> Result<Exit, Failure> {
    let files = input::files(&args.files);
    let mut unread = Exit::Ok;
    if let Some(stop) = stop {
        follow::run(&files, stop, &mut sink)?;
    } else {
        for path in files {
            match input::read(path, &mut sink) {
                Err(failure) if !failure.closed_pipe && failure.exit != Exit::Software => {
                    sink.idle()?;
                    output::say(format_args!("{NAME}: {}", failure.line));
                    unread = unread.max(failure.exit);
                }
                read => read?,
            }
        }
    }
    Ok(sink.finish()?.max(unread))
}

/// As many columns as asked for, or as the terminal has.
fn width(asked: Option<usize>) -> Option<usize> {
    let columns = || {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        Some(usize::from(size.ws_col))
    };
    asked.or_else(columns).filter(|width| *width > 0)
}

/// What is wrong with a line.
fn say_bad(place: Place<'_>, why: &str) {
    let failure = Failure::new(Exit::Data, format_args!("read {place}"), why);
    output::say(format_args!("{NAME}: {}", failure.line));
}

/// A value of ours as a line of JSON, in which nothing that a terminal would act on stands as it is.
fn json_line(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("texts and numbers");
    let mut line = String::with_capacity(json.len());
    let Ok(()) = raw::shown(&json, Secrets::Shown, |piece| {
        line.push_str(piece);
        Ok::<_, Infallible>(())
    });
    line
}

/// Prints what the filter takes.
struct Print<'a> {
    printer: Printer,
    filter: Filter<'a>,
    matched: u64,
    bad: u64,
}

impl Sink for Print<'_> {
    fn line(&mut self, _: Place<'_>, line: &Line<'_>) -> Result<(), Failure> {
        if self.filter.takes(line) {
            self.matched += 1;
            self.printer.print(line)?;
        }
        Ok(())
    }

    fn bad(&mut self, place: Place<'_>, _: &'static str, why: &str) -> Result<(), Failure> {
        self.bad += 1;
        self.printer.flush()?;
        say_bad(place, why);
        Ok(())
    }

    fn idle(&mut self) -> Result<(), Failure> {
        Ok(self.printer.flush()?)
    }

    fn finish(&mut self) -> Result<Exit, Failure> {
        self.printer.flush()?;
        Ok(match () {
            () if self.bad > 0 => Exit::Data,
            () if self.matched == 0 && !self.filter.is_open() => Exit::No,
            () => Exit::Ok,
        })
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
        Exit::Unavailable,
        Exit::CannotCreate,
        Exit::Io,
        Exit::TryLater,
        Exit::Protocol,
        Exit::NoPermission,
        Exit::Config,
    ],
    environment: &[
        ("NO_COLOR", "When set, no colour unless --color always."),
        ("CLICOLOR_FORCE", "When set, colour although stdout is no terminal."),
        (
            "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY",
            "The proxy through which --to and --connect are reached, as for transitd. Loopback never is.",
        ),
        ("SSL_CERT_FILE", "Root certificates for wss, instead of the system's."),
    ],
    files: &[(
        "FILE",
        "One JSON object a line, of up to 8 MiB: {\"at\",\"proto\",\"dir\",\"conn\"?,\"frame\"} for a frame, \
         {\"at\",\"proto\",\"dir\",\"conn\"?,\"note\",…} for what else happened on a connection, or a bare frame. Values \
         named capability, token, device_token, agent_token, secret and authorization are shown as [redacted], \
         at any depth. A line that is none of these is told on stderr with its place, the rest is read, and the \
         exit is 65; with --check it is one more finding.",
    )],
    examples: &[
        ("Print what a daemon and its Worker said:", "transit-wire-dump frames.ndjson"),
        (
            "Watch the deliveries of one agent as they happen:",
            "transit-wire-dump --follow --filter t=deliver,agent=helper \\\n  --filter t=deliver_ack,agent=helper frames.ndjson",
        ),
        (
            "Find messages that were never acknowledged:",
            "transit-wire-dump --stats --json frames.ndjson |\n  jq -r '.times[] | select(.from == \"send\") | .waiting[]'",
        ),
        (
            "Check a dump and its rotated part against the protocol:",
            "transit-wire-dump --check frames.ndjson.1 frames.ndjson",
        ),
        (
            "Look at an older dump through other tools:",
            "zcat frames.ndjson.2.gz | transit-wire-dump --json --filter t=rpc |\n  jq -r .frame.method | sort | uniq -c",
        ),
        (
            "Put a proxy between a daemon and its Worker, and keep a dump:",
            "transit-wire-dump --proxy 127.0.0.1:9787 --to ws://127.0.0.1:8787 --write frames.ndjson",
        ),
        (
            "Be a host for a moment, to see what its Worker says:",
            "transit-wire-dump --connect https://transit.example --token-file token --host titan",
        ),
        (
            "Ask a Worker with frames of your own:",
            "echo '{\"t\":\"roster\"}' |\n  transit-wire-dump --connect http://127.0.0.1:8787 --token-file token --json",
        ),
        (
            "Stand between the commands and their daemon:",
            "cd ~/.local/share/transit\nmv transit.sock real.sock\n\
             transit-wire-dump --socket real.sock --proxy-socket transit.sock\nmv real.sock transit.sock",
        ),
    ],
    see_also: &["transitd(8)", "transit-worker(8)", "transit(7)"],
};
