//! The sources that the configuration names.

use std::io::Write;

use serde_json::json;

use crate::cli::control;
use crate::cli::output::{Exit, Failure, Out};
use crate::secret::without_passwords;
use crate::store::config::Config;
use crate::text;

/// Prints their names, one a line, for people and for shells that complete them; as JSON with their URLs.
///
/// # Errors
/// When the configuration is there and cannot be used.
pub(super) fn list(json: bool) -> Result<Exit, Failure> {
    let path = control::paths()?.config;
    let config = Config::load(&path).map_err(|err| Failure::store("read the configuration", &err))?;
    let mut out = Out::new();
    for (name, source) in &config.sources {
        if json {
            let record = json!({ "name": name, "url": without_passwords(&source.url) }).to_string();
            writeln!(out, "{}", text::visible_json(&record))?;
        } else {
            writeln!(out, "{name}")?;
        }
    }
    out.finish()?;
    Ok(Exit::Ok)
}
