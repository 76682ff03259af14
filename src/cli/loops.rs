//! When agents that answer each other go round in a loop: as options and the configuration say, for the Worker and for
//! the daemon alike.

use std::time::Duration;

use super::output::{Exit, Failure};
use super::{control, duration};
use crate::limits;
use crate::store::config::Config;

/// The messages that pass with nobody else between, 0 for any number, and the time in which they are counted: the
/// options', else the configuration's, else the default.
///
/// # Errors
/// When the configuration cannot be read or makes no sense (78).
pub(super) fn settings(limit: Option<u32>, window: Option<Duration>) -> Result<(u32, Duration), Failure> {
    let failed = |err| Failure::store("read the configuration", &err);
    let config =
        control::paths().ok().map(|paths| Config::load(&paths.config)).transpose().map_err(failed)?;
    let told = config.and_then(|config| config.loop_guard).unwrap_or_default();
    let of_config = told.window.as_deref().map(parse_window).transpose().map_err(|err| {
        Failure::new(Exit::Config, "read the configuration", format_args!("loop_guard.window: {err}"))
    })?;
    let window = window.or(of_config).unwrap_or(limits::LOOP_WINDOW);
    Ok((limit.or(told.limit).unwrap_or(limits::LOOP_LIMIT), window))
}

/// Reads the time in which they are counted.
///
/// # Errors
/// What a duration looks like, and for none at all how the guard is turned off.
pub(super) fn parse_window(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        Duration::ZERO => Err("in no time nothing is counted; a limit of 0 turns the guard off".to_owned()),
        window => Ok(window),
    }
}
