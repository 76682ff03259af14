//! `transitd doctor`: whether everything is in place for messages to arrive, and how to mend what is not.

mod agents;
mod files;
mod harness;
mod probe;
mod reach;

use std::time::Duration;

use crate::cli::findings::Findings;
use crate::cli::output::{Exit, Failure};
use crate::cli::{control, duration};
use crate::store::config::Config;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Send AGENT a message the whole way, and wait until its session has it.
    ///
    /// AGENT is NAME or NAME@HOST. The message says what it is and asks for nothing; its sender is this command, which
    /// registers as an agent of this host for as long. It goes through the Worker where the host is enrolled, even to
    /// an agent of this host. Each step is told with the time that it took.
    #[arg(long, value_name = "AGENT", value_parser = probe::agent)]
    probe: Option<String>,
    /// How long the probe may take.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "60s", requires = "probe")]
    timeout: Duration,
    /// Print one JSON object for each thing that was looked at, and for each step of a probe.
    #[arg(long)]
    json: bool,
}

/// Looks at everything, then probes, if that was asked for.
///
/// # Errors
/// When the environment does not tell where things are, or nothing can be printed.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let paths = control::paths()?;
    let mut found = Findings::default();
    let config = match Config::load(&paths.config) {
        Ok(config) => config,
        Err(err) => {
            found.wrong("config", err.to_string(), format!("correct or remove {}", paths.config.display()));
            Config::default()
        }
    };
    files::config(&paths, &config, &mut found);
    files::permissions(&paths, &config, &mut found);
    files::disk(&paths, &mut found);
    files::writable(&paths, &mut found);
    files::spool(&paths, &mut found);
    let status = reach::daemon(&paths, &mut found);
    reach::sockets(&paths, status.is_some(), &mut found);
    reach::proxy(&config, &mut found);
    reach::worker(&config, &mut found);
    agents::home(status.as_ref(), &mut found);
    harness::adapters(status.as_ref(), &mut found);
    let seen = found.print(args.json)?;
    let Some(agent) = &args.probe else { return Ok(seen) };
    let probed = probe::run(&paths, agent, args.timeout, args.json)?;
    Ok(if probed == Exit::Ok { seen } else { probed })
}
