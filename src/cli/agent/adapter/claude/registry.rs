//! What Claude Code says of itself: one file a process, `sessions/PID.json` in its configuration directory.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::store::process::{Process, start_time};

/// A running Claude Code.
pub(super) struct Claude {
    process: Process,
    file: PathBuf,
}

/// The session that it has open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Running {
    /// Changes with /clear and /resume.
    pub(super) session_id: String,
    pub(super) cwd: String,
    /// What it is called; may be empty.
    pub(super) name: String,
    /// In our words.
    pub(super) status: String,
    /// Where it takes messages.
    pub(super) inbox: Option<PathBuf>,
}

/// The file, as far as it matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    pid: u32,
    session_id: String,
    #[serde(default)]
    cwd: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    status: Option<String>,
    /// When the process started, in clock ticks; a text or a number.
    #[serde(default)]
    proc_start: Value,
    #[serde(default)]
    messaging_socket_path: Option<PathBuf>,
}

impl Claude {
    /// The Claude Code that this process belongs to: `pid`, if that is known, else the parent if it is one.
    pub(super) fn find(dir: &Path, pid: Option<u32>) -> Option<Self> {
        let of = |pid: u32| {
            let process = Process { pid, start_time: start_time(pid)? };
            Some(Self { process, file: dir.join("sessions").join(format!("{pid}.json")) })
        };
        let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get().unsigned_abs());
        let parent = || of(parent?).filter(|parent| parent.file.exists());
        pid.and_then(of).or_else(parent)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid
    }

    pub(super) fn is_alive(&self) -> bool {
        self.process.is_alive()
    }

    /// The session that is open now; `None` when there is none yet, the file is that of an earlier process, or Claude
    /// Code has ended, which may leave its file behind.
    pub(super) fn running(&self) -> Option<Running> {
        if !self.is_alive() {
            return None;
        }
        let entry: Entry = serde_json::from_slice(&fs::read(&self.file).ok()?).ok()?;
        let started = match &entry.proc_start {
            Value::String(ticks) => ticks.parse().ok(),
            ticks => ticks.as_u64(),
        };
        let is_ours = entry.pid == self.process.pid
            && started.is_none_or(|started: u64| started == self.process.start_time);
        is_ours.then(|| Running {
            session_id: entry.session_id,
            cwd: entry.cwd,
            name: entry.name.unwrap_or_default(),
            status: in_our_words(entry.status.as_deref().unwrap_or("idle")).to_owned(),
            inbox: entry.messaging_socket_path,
        })
    }
}

/// `shell` is a session that does nothing while something runs in its background, as this adapter does.
fn in_our_words(status: &str) -> &str {
    match status {
        "busy" => "working",
        "shell" => "idle",
        "waiting" => "blocked",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_session_is_believed_only_of_the_very_process() {
        let dir = tempfile::tempdir().unwrap();
        let own = Process::current();
        let write = |entry: Value| {
            fs::create_dir_all(dir.path().join("sessions")).unwrap();
            fs::write(dir.path().join(format!("sessions/{}.json", own.pid)), entry.to_string()).unwrap();
        };
        let claude = Claude::find(dir.path(), Some(own.pid)).unwrap();
        assert!(claude.is_alive() && claude.running().is_none());
        let mut entry = json!({
            "pid": own.pid, "sessionId": "s-1", "cwd": "/src", "procStart": own.start_time.to_string(),
            "status": "busy", "messagingSocketPath": "/tmp/x.sock", "kind": "interactive",
        });
        write(entry.clone());
        let running = claude.running().unwrap();
        assert_eq!((running.session_id.as_str(), running.status.as_str()), ("s-1", "working"));
        assert_eq!(running.inbox.as_deref(), Some(Path::new("/tmp/x.sock")));
        for (status, ours) in [("shell", "idle"), ("idle", "idle"), ("waiting", "blocked"), ("odd", "odd")] {
            entry["status"] = status.into();
            write(entry.clone());
            assert_eq!(claude.running().unwrap().status, ours);
        }
        entry["procStart"] = json!(own.start_time + 1);
        write(entry.clone());
        assert_eq!(claude.running(), None, "an earlier process of this pid");
        entry["procStart"] = json!(own.start_time);
        entry["pid"] = json!(own.pid + 1);
        write(entry);
        assert_eq!(claude.running(), None);
        write(json!("nonsense"));
        assert_eq!(claude.running(), None);
        assert!(Claude::find(dir.path(), None).is_none(), "the parent is no Claude Code");
    }
}
