//! The harnesses of this host, and whether their sessions reach the daemon.

use std::path::Path;

use serde_json::{Map, Value};

use crate::cli::findings::Findings;

/// The harnesses that have an adapter of ours, and what their programs are called.
const HARNESSES: [&str; 4] = ["claude", "omp", "pi", "opencode"];

/// Whether each harness that is there has its adapter, as far as its sessions show it.
pub(super) fn adapters(status: Option<&Map<String, Value>>, found: &mut Findings) {
    let agents =
        status.and_then(|status| status.get("agents")?.as_array()).map(Vec::as_slice).unwrap_or_default();
    for harness in HARNESSES {
        let is_its = |agent: &&Value| agent.get("harness").and_then(Value::as_str) == Some(harness);
        let sessions = agents.iter().filter(is_its).count();
        if sessions > 0 {
            let noun = if sessions == 1 { "session is" } else { "sessions are" };
            found.ok("adapters", format!("{harness}: {sessions} {noun} registered"));
        } else if is_on_path(harness) {
            let text = format!("{harness} is installed, and none of its sessions is registered");
            found.note("adapters", text, "put its adapter in place, and start a session anew");
        }
    }
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| is_program(&dir.join(program)))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
