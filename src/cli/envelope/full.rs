//! `transit-envelope full`: the wrapper of what `read_message` returns.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;

use super::input::Input;
use crate::cli::output::{Exit, Failure, Out};
use crate::id::IdKind;
use crate::proto::envelope::{Full, render_full};

/// Print the <transit_full …> wrapper in which read_message returns a message.
///
/// The body stays as it is, byte for byte, except that it cannot close the wrapper. On a terminal, what would command
/// the terminal is replaced.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The whole text.
    #[arg(value_name = "BODY-FILE")]
    body: Option<PathBuf>,
    /// The delivery or message: dlv_… or tx_….
    #[arg(long, value_name = "ID")]
    id: String,
    /// Its conversation.
    #[arg(long, value_name = "X")]
    conversation_id: String,
    /// Who wrote it upstream [default: unknown].
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The connector that it came by.
    #[arg(long, value_name = "NAME")]
    connector: String,
    /// The state of the delivery: pending, dispatched, read, replied, handled, …
    #[arg(long, value_name = "STATUS")]
    status: String,
    /// Whether it is read for the first time.
    #[arg(long, value_enum, value_name = "WHICH", default_value_t)]
    read: Read,
    /// There is nothing left to settle.
    #[arg(long)]
    settled: bool,
    /// What the operator of the source asks for.
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Read {
    #[default]
    First,
    Again,
}

#[derive(Serialize)]
struct Record {
    text: String,
}

pub(super) fn run(args: Args) -> Result<Exit, Failure> {
    if !matches!(IdKind::of(&args.id), Some(IdKind::Message | IdKind::Delivery)) {
        let what = format_args!("use --id {}", args.id).to_string();
        let why = "it is not dlv_ or tx_ and 12 lowercase hexadecimal digits";
        return Err(Failure::new(Exit::Data, what, why));
    }
    let full = Full {
        body: Input::open(args.body.as_deref())?.text()?,
        id: args.id,
        conversation_id: args.conversation_id,
        user: args.user,
        connector: args.connector,
        status: args.status,
        first_read: args.read == Read::First,
        settled: args.settled,
        instructions: args.instructions,
    };
    let text = render_full(&full);
    let mut out = Out::new();
    if args.json {
        out.json(&Record { text })?;
    } else {
        out.text(&text)?;
        out.write_all(b"\n")?;
    }
    out.finish()?;
    Ok(Exit::Ok)
}
