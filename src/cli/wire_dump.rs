//! `transit-wire-dump`: see the frames of a dump.
//!
//! Lines pass through one at a time; a dump of any length takes no more memory than its longest line.

mod connect;
mod filter;
mod input;
mod live;
mod pen;
mod print;
mod proxy;
mod recorder;
mod socket;

use std::path::PathBuf;

use clap::{CommandFactory, Parser};

use self::filter::{Clause, Filter};
use self::input::{Feed, Place, Sink};
use self::live::LiveArgs;
use self::print::{Look, Printer};
use super::output::{self, Exit, Failure};
use super::{Common, Page, Tool};
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
    /// Columns of a line, 0 for no limit [default: the terminal's].
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// Show capabilities, tokens and secrets, which a dump of other programs may hold.
    #[arg(long)]
    show_secrets: bool,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    common: Common,
}

/// What is printed, and how.
struct Printing {
    look: Look,
    filter: Vec<Clause>,
}

/// Does what was asked.
///
/// # Errors
/// When a file cannot be read.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let look = Look {
        json: args.json,
        color: args.common.color.on_stdout(),
        width: width(&args),
        secrets: if args.show_secrets { Secrets::Shown } else { Secrets::Redacted },
    };
    if args.live.is_asked_for() {
        let print = Printing { look, filter: args.filter };
        return live::run(&args.live, print, args.common.verbose > 0);
    }
    let mut print = Print { printer: Printer::new(look), filter: Filter(&args.filter), matched: 0, bad: 0 };
    let mut exit = Exit::Ok;
    for path in input::files(&args.files) {
        let mut feed = Feed::new(path);
        let mut from = input::open(path)?;
        while feed.read(&mut *from, &mut print)? > 0 {}
        feed.end(&mut print)?;
    }
    print.idle()?;
    if print.bad > 0 {
        exit = Exit::Data;
    } else if print.matched == 0 && !print.filter.is_open() {
        exit = Exit::No;
    }
    Ok(exit)
}

fn width(args: &Args) -> Option<usize> {
    args.width.filter(|width| *width > 0)
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

    fn bad(&mut self, place: Place<'_>, why: &str) -> Result<(), Failure> {
        self.bad += 1;
        self.printer.flush()?;
        let failure = Failure::new(Exit::Data, format_args!("read {place}"), why);
        output::say(format_args!("{NAME}: {}", failure.line));
        Ok(())
    }

    fn idle(&mut self) -> Result<(), Failure> {
        Ok(self.printer.flush()?)
    }
}

/// The command and its page.
pub fn tool() -> Tool {
    Tool { command: Args::command(), page: PAGE }
}

const PAGE: Page = Page {
    section: "1",
    exits: &[Exit::Ok, Exit::No, Exit::Usage, Exit::Data, Exit::NoInput, Exit::Io],
    environment: &[],
    files: &[],
    examples: &[("Print a dump:", "transit-wire-dump frames.ndjson")],
    see_also: &["transitd(8)", "transit(7)"],
};
