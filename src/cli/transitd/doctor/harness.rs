//! The harnesses of this host: whether each has its adapter, and whether its sessions reach the daemon.

use serde_json::{Map, Value};

use crate::cli::agent::install::{Harness, State, state};
use crate::cli::findings::Findings;

/// Whether each harness that is there has its adapter, and how many of its sessions are registered.
pub(super) fn adapters(status: Option<&Map<String, Value>>, found: &mut Findings) {
    let agents = status.and_then(|status| status.get("agents")?.as_array());
    let agents = agents.map(Vec::as_slice).unwrap_or_default();
    for harness in Harness::ALL {
        let name = harness.name();
        let is_its = |agent: &&Value| agent.get("harness").and_then(Value::as_str) == Some(name);
        let sessions = agents.iter().filter(is_its).count();
        let install = format!("put it in place: transit-agent install {name}");
        match state(harness) {
            // Nobody misses the adapter of a program that is not there.
            Ok(None) => {}
            Ok(Some(State::Installed)) if sessions == 0 => {
                let text = format!("{name}: its adapter is in place, and no session is registered");
                found.note("adapters", text, "a session that was there before is to be started anew");
            }
            Ok(Some(State::Installed)) => {
                found.ok(
                    "adapters",
                    format!("{name}: its adapter is in place; sessions registered: {sessions}"),
                );
            }
            Ok(Some(State::Outdated)) => {
                found.wrong("adapters", format!("{name}: its adapter is of another version"), install);
            }
            Ok(Some(State::Changed)) => {
                let text = format!("{name}: somebody has changed its adapter");
                found.note("adapters", text, format!("put ours back: transit-agent install {name} --force"));
            }
            Ok(Some(State::Absent)) => {
                found.note("adapters", format!("{name} is here, and has no adapter"), install);
            }
            Err(failure) => {
                let way = failure.hint.unwrap_or_else(|| "mend that".to_owned());
                let way = format!("{way}; then transit-agent install {name}");
                found.wrong("adapters", format!("{name}: {}", failure.line), way);
            }
        }
    }
}
