//! `transit-envelope parse`: every envelope in a stream, as NDJSON.

use std::borrow::Cow;
use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::NAME;
use super::input::{self, Input};
use crate::cli::output::{self, Exit, Failure, Out};
use crate::proto::envelope::{Fault, Fields, Found, Parsed, Scanner};

/// Find every envelope in a stream, and print each as a line of JSON.
///
/// A log of a terminal will do: escape sequences, line ends, moves of the cursor, prompts and frames are seen through.
/// What is damaged is told on stderr with its place and skipped.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to look through.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Stop with 65 at the first damaged envelope.
    ///
    /// The good ones before it have been printed.
    #[arg(long)]
    strict: bool,
    /// As every command has it; the output is JSON anyway.
    #[arg(long, hide = true)]
    json: bool,
}

/// What is printed of an envelope: what `render --json` takes, and what only reading tells.
#[derive(Serialize)]
struct Record<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<Cow<'a, str>>,
    offset: u64,
    #[serde(flatten)]
    fields: Fields,
    truncated: bool,
    hint: String,
}

/// What was found in all.
#[derive(Default)]
struct Count {
    good: u64,
    damaged: u64,
}

pub(super) fn run(args: &Args, verbose: u8) -> Result<Exit, Failure> {
    let mut out = Out::new();
    let mut count = Count::default();
    let mut failed = None;
    for file in input::files(&args.files) {
        let read = Input::open(Some(file)).and_then(|from| {
            scan(from, &mut |name, found| {
                take(args, &mut out, &mut count, input::told(&args.files, file), name, found)
            })
        });
        match read {
            Ok(()) => {}
            // One file that cannot be read does not hide what is in the others.
            Err(failure) if failure.exit == Exit::NoInput && args.files.len() > 1 => {
                output::tell(NAME, &failure);
                failed = Some(failure.exit);
            }
            Err(failure) => {
                out.finish()?;
                return Err(failure);
            }
        }
    }
    out.finish()?;
    if verbose > 0 {
        output::say(format_args!("{NAME}: found {} good, {} damaged", count.good, count.damaged));
    }
    match failed {
        Some(exit) => Ok(exit),
        None if count.good == 0 => Ok(Exit::No),
        None => Ok(Exit::Ok),
    }
}

/// Scans a file, handing on what is found as soon as it is.
fn scan(
    mut from: Input,
    take: &mut impl FnMut(&str, Option<Found>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut scanner = Scanner::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut piece)?;
        scanner.push(&piece[..length]);
        if length == 0 {
            scanner.end();
        }
        while let Some(found) = scanner.next() {
            take(&from.name, Some(found))?;
        }
        take(&from.name, None)?;
        if length == 0 {
            return Ok(());
        }
    }
}

/// Prints one that was found; for none, what was printed goes out.
fn take(
    args: &Args,
    out: &mut Out,
    count: &mut Count,
    file: Option<Cow<'_, str>>,
    name: &str,
    found: Option<Found>,
) -> Result<(), Failure> {
    let Some(Found { offset, what }) = found else { return Ok(out.flush()?) };
    match what {
        Ok(parsed) => {
            count.good += 1;
            let Parsed { truncated, ref hint, .. } = *parsed;
            let hint = hint.clone();
            let record = Record { file, offset, fields: Fields::from(*parsed), truncated, hint };
            Ok(out.json(&record)?)
        }
        Err(fault) => {
            count.damaged += 1;
            let failure = damaged(name, offset, &fault);
            if args.strict {
                return Err(failure);
            }
            // In their order also where both go to one terminal.
            out.flush()?;
            output::tell(NAME, &failure);
            Ok(())
        }
    }
}

fn damaged(name: &str, offset: u64, fault: &Fault) -> Failure {
    let how = if fault.is_truncated() { "truncated" } else { "malformed" };
    let what = format!("parse {}: {how} envelope at byte {offset}", name);
    Failure::new(Exit::Data, what, fault)
}
