//! `transit-envelope id`: fresh ids.

use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;

use crate::cli::output::{Exit, Failure, Out};
use crate::id::IdKind;

/// Print fresh ids.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What the id is for.
    #[arg(value_enum, value_name = "KIND", default_value_t)]
    kind: Kind,
    /// How many.
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 1)]
    count: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Kind {
    /// A direct or room message, tx_….
    #[default]
    Message,
    /// A channel delivery, dlv_….
    Delivery,
}

#[derive(Serialize)]
struct Record {
    id: String,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let kind = match args.kind {
        Kind::Message => IdKind::Message,
        Kind::Delivery => IdKind::Delivery,
    };
    let mut out = Out::new();
    for _ in 0..args.count {
        let id = kind.fresh();
        if args.json {
            out.json(&Record { id })?;
        } else {
            writeln!(out, "{id}")?;
        }
    }
    out.finish()?;
    Ok(Exit::Ok)
}
