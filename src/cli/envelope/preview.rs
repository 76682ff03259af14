//! `transit-envelope preview`: the one line that a channel delivery shows of its body.

use std::borrow::Cow;
use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::input::{self, Input};
use crate::cli::output::{Exit, Failure, Out};
use crate::proto::envelope;

/// Print the one line that a channel delivery shows of its body.
///
/// Tags become blanks, white space collapses, and 100 code points are left.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The body.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Record<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<Cow<'a, str>>,
    preview: String,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut out = Out::new();
    for file in input::files(&args.files) {
        let body = match Input::open(Some(file)).and_then(Input::text) {
            Ok(body) => body,
            Err(failure) => {
                out.finish()?;
                return Err(failure);
            }
        };
        let preview = envelope::preview(&body);
        if args.json {
            out.json(&Record { file: input::told(&args.files, file), preview })?;
        } else {
            writeln!(out, "{preview}")?;
        }
    }
    out.finish()?;
    Ok(Exit::Ok)
}
