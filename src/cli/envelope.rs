//! `transit-envelope`: render, read and clip transit/1.
//!
//! A verb is a file. Nothing here reads configuration or talks to anybody.

mod full;
mod id;
mod input;
mod parse;
mod preview;
mod render;

use clap::{CommandFactory, Parser, Subcommand};

use super::output::{Exit, Failure};
use super::{Common, Page, Tool};

const NAME: &str = "transit-envelope";

/// Render, find and clip transit/1 envelopes.
///
/// An envelope is how a message looks in the terminal of an agent. Bodies and names in it are somebody's text:
/// rendering sees to it that none of them can close the envelope, forge an attribute or command the terminal.
#[derive(Debug, Parser)]
#[command(name = NAME, version, subcommand_required = true, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Render(Box<render::Args>),
    Parse(parse::Args),
    Preview(preview::Args),
    Full(full::Args),
    Id(id::Args),
}

/// Does what was asked.
///
/// # Errors
/// When the input cannot be read or breaks a rule of transit/1, or `parse` finds nothing.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let verbose = args.common.verbose;
    match args.verb {
        Verb::Render(args) => render::run(*args, verbose),
        Verb::Parse(args) => parse::run(&args, verbose),
        Verb::Preview(args) => preview::run(&args),
        Verb::Full(args) => full::run(args),
        Verb::Id(args) => id::run(&args),
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
    examples: &[
        (
            "Render a direct message from stdin:",
            "echo 'build is green' | transit-envelope render --kind dm --from jess@titan \\\n  --id \"$(transit-envelope id)\" --ts 2026-03-01T10:20:30Z",
        ),
        (
            "List the envelopes in a log of a terminal:",
            "transit-envelope parse typescript | jq -r '[.offset, .from, .id] | @tsv'",
        ),
        (
            "Fail on the first one that is damaged:",
            "transit-envelope parse --strict typescript > envelopes.ndjson",
        ),
        (
            "Render what was found again:",
            "transit-envelope parse typescript | transit-envelope render --json",
        ),
        ("See what an agent would see of a mail:", "transit-envelope preview mail.html"),
        ("Make ten ids of deliveries:", "transit-envelope id delivery -n 10"),
    ],
    see_also: &["transit-agent(1)", "transit-send(1)", "transit(7)"],
};
