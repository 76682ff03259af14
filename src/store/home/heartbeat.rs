//! When an agent ran last, and how that ended: a file for each agent and slug, for its runs and for people's scripts.
//!
//! It is a view. What was triggered stands on the audit trail, and nothing here depends on this file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::super::files;
use crate::clock::Wall;

/// Longest file that is read, in bytes.
const LONGEST: u64 = 64 * 1024;

/// The file of one agent and slug, while a run of it is under way.
#[derive(Debug)]
pub struct Heartbeat {
    path: PathBuf,
    all: Map<String, Value>,
    started: Wall,
}

impl Heartbeat {
    /// Notes that a run begins. Members that something else has put into the file stay, as does when a run last went
    /// well; whoever writes no JSON object into it loses that.
    pub fn begin(path: PathBuf, agent: &str, slug: &str, now: Wall) -> Self {
        let mut all = read(&path).unwrap_or_default();
        for of_the_last in ["finished_at", "finished_at_iso", "exit_code", "duration_seconds"] {
            all.remove(of_the_last);
        }
        all.insert("name".to_owned(), json!(agent));
        all.insert("slug".to_owned(), json!(slug));
        all.insert("args".to_owned(), json!([]));
        let mut new = Self { path, all, started: now };
        new.time("started_at", now);
        new
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes how the run has ended. What it has put into the file itself stays.
    pub fn end(&mut self, exit_code: i32, now: Wall) {
        for (name, value) in read(&self.path).unwrap_or_default() {
            self.all.entry(name).or_insert(value);
        }
        self.time("finished_at", now);
        let seconds = now.unix_seconds().saturating_sub(self.started.unix_seconds());
        self.all.insert("duration_seconds".to_owned(), json!(seconds));
        self.all.insert("exit_code".to_owned(), json!(exit_code));
        if exit_code == 0 {
            self.time("last_success_at", now);
        }
    }

    /// Writes the file. A reader sees the old one or the new one, whole.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self) -> io::Result<()> {
        files::make_parent(&self.path).map_err(io::Error::other)?;
        let beside = self.path.with_extension("json.new");
        let text = format!("{}\n", serde_json::to_string_pretty(&self.all)?);
        let mut new = File::options().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        new.write_all(text.as_bytes())?;
        fs::rename(&beside, &self.path)
    }

    /// A time, as a number and as people read it.
    fn time(&mut self, name: &str, at: Wall) {
        let to_the_second: String = at.to_string().chars().take(19).collect();
        self.all.insert(name.to_owned(), json!(at.unix_seconds()));
        self.all.insert(format!("{name}_iso"), json!(format!("{to_the_second}+0000")));
    }
}

fn read(path: &Path) -> Option<Map<String, Value>> {
    serde_json::from_slice(&files::read_small(path, LONGEST).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_noted_before_and_after_and_the_last_success_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/agents/tiny/trigger-local-a.heartbeat.json");
        let read = || serde_json::from_slice::<Value>(&fs::read(&path).unwrap()).unwrap();
        let run = |exit_code, at: i64| {
            let mut beat = Heartbeat::begin(path.clone(), "tiny", "trigger-local-a", Wall(at));
            beat.write().unwrap();
            let mut begun = read();
            begun["runs"] = json!(at);
            fs::write(&path, begun.to_string()).unwrap();
            beat.end(exit_code, Wall(at + 3_900));
            beat.write().unwrap();
            begun
        };
        assert!(run(0, 1_700_000_000_000)["finished_at"].is_null());
        let want = json!({
            "name": "tiny", "slug": "trigger-local-a", "args": [], "exit_code": 0, "duration_seconds": 3,
            "started_at": 1_700_000_000, "started_at_iso": "2023-11-14T22:13:20+0000",
            "finished_at": 1_700_000_003, "finished_at_iso": "2023-11-14T22:13:23+0000",
            "last_success_at": 1_700_000_003, "last_success_at_iso": "2023-11-14T22:13:23+0000",
            "runs": 1_700_000_000_000_i64,
        });
        assert_eq!(read(), want);
        let mut own = read();
        own["cursor"] = json!("of the agent itself");
        fs::write(&path, own.to_string()).unwrap();
        let begun = run(4, 1_700_000_100_000);
        assert!(begun["exit_code"].is_null() && begun["finished_at_iso"].is_null());
        let now = read();
        assert_eq!((&now["exit_code"], &now["last_success_at"]), (&json!(4), &json!(1_700_000_003)));
        assert_eq!(now["cursor"], "of the agent itself");
        fs::write(&path, "no JSON").unwrap();
        run(0, 1_700_000_200_000);
        assert_eq!(read()["last_success_at"], 1_700_000_203);
    }
}
