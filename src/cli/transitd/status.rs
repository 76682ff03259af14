//! `transitd status`: how the daemon is, for people and for programs.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::ask;
use crate::cli::output::{Exit, Failure, Out};
use crate::cli::{control, duration};
use crate::proto::control::Op;
use crate::text;

/// How often a daemon that is waited for is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Wait until the daemon is connected to the Worker, at most this long.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
}

/// Prints the status; waits before for the connection to the Worker, if that was asked for.
///
/// # Errors
/// When there is no daemon, or the wait is over.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let paths = control::paths()?;
    let until = args.wait.map(|wait| Instant::now() + wait);
    let status = loop {
        let asked = ask(&paths, Op::Status);
        let is_over = until.is_none_or(|until| Instant::now() >= until);
        match asked {
            Ok(status) if until.is_none() || status.get("connected") == Some(&Value::Bool(true)) => {
                break status;
            }
            Ok(status) if is_over => {
                let why = status.get("last_error").and_then(Value::as_str).unwrap_or("it takes longer");
                return Err(Failure::new(Exit::Unavailable, "wait for the connection to the Worker", why));
            }
            Err(failure) if is_over || failure.exit != Exit::Unavailable => return Err(failure),
            Ok(_) | Err(_) => std::thread::sleep(ASK_AGAIN),
        }
    };
    let mut out = Out::new();
    if args.json {
        out.json(&status)?;
    } else {
        write!(out, "{}", for_people(&status))?;
    }
    out.finish()?;
    Ok(Exit::Ok)
}

/// The status as lines. Whatever is in it came from elsewhere.
fn for_people(status: &Map<String, Value>) -> String {
    use std::fmt::Write;
    let mut lines = String::new();
    let mut line = |label: &str, text: &str| {
        let _ = writeln!(lines, "{label:<15}{text}");
    };
    let number = |name| status.get(name).and_then(Value::as_u64).unwrap_or_default();
    line("host", &word(status, "host"));
    line("worker url", &word(status, "worker_url"));
    line("connected", &word(status, "connected"));
    if status.get("paused") == Some(&Value::Bool(true)) {
        line("paused", "true; nothing is handed over until transitd resume");
    }
    line("outbox", &format!("{}", number("outbox")));
    line("inbox", &format!("{}", number("inbox")));
    let hint = if number("dead") > 0 { "; see transit-spool list --state dead" } else { "" };
    line("dead", &format!("{}{hint}", number("dead")));
    line("last error", &word(status, "last_error"));
    for (label, name) in [("api socket", "api_sock"), ("api error", "api_error")] {
        if status.get(name).is_some_and(|value| !value.is_null()) {
            line(label, &word(status, name));
        }
    }
    line("uptime", &duration::words(Duration::from_secs(number("uptime_seconds"))));
    line("version", &word(status, "version"));
    line("pid", &word(status, "pid"));
    let agents = status.get("agents").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if agents.is_empty() {
        line("agents", "none is here");
    }
    for agent in agents.iter().filter_map(Value::as_object) {
        let of = |name| word(agent, name);
        line("agent", &format!("{} ({}, {})", of("address"), of("harness"), of("status")));
    }
    lines
}

fn word(fields: &Map<String, Value>, name: &str) -> String {
    match fields.get(name) {
        Some(Value::String(text)) => text::visible(text).into_owned(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_safe_to_show() {
        let status = json!({
            "host": "titan", "connected": false, "last_error": "a\u{1b}[31m",
            "agents": [{ "address": "jess@titan", "harness": "claude", "status": "i\ndle" }],
        });
        let shown = for_people(status.as_object().unwrap());
        assert!(shown.contains("last error     a\\u{1b}[31m\n"), "{shown}");
        assert!(shown.contains("agent          jess@titan (claude, i\\ndle)\n"), "{shown}");
        assert!(shown.contains("worker url     -\n"));
    }
}
