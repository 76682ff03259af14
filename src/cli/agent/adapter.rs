//! `transit-agent adapter`: the adapters that are no part of their harness, but a child of it.

mod claude;

use crate::cli::output::{Exit, Failure};

/// Which harness it is a child of.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The harness.
    #[arg(value_enum, value_name = "HARNESS")]
    harness: Harness,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Harness {
    /// Claude Code, as a monitor of a plugin.
    Claude,
}

/// Runs until the harness ends.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    match args.harness {
        Harness::Claude => claude::run(),
    }
}
