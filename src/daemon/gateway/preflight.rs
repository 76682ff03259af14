//! What a manifest wants checked before each run: plugins, in the form that dotagent has for them.
//!
//! A plugin is a program that is called with `invoke` and a JSON object on its stdin, and says on its stdout whether
//! the agent may run now. One that cannot be asked, or says nothing that makes sense, has not said so.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::engine::{Engine, grouped};
use super::process::{Intake, Why, supervise};
use super::stdout::{TYPING, Watch};
use crate::proto::assistant::Outcome;
use crate::store::home::Manifest;
use crate::store::home::manifest::Preflight;
use crate::store::home::runs::{Run, TMPDIR_VARIABLE};

/// Bytes of an answer, and of what a plugin complains of, that are read.
const KEPT: usize = 64 * 1024;

/// What a plugin answers. More may be in it.
#[derive(Deserialize)]
struct Answer {
    ok: bool,
    /// What clears the way.
    suggest: Option<String>,
    error: Option<String>,
}

/// What a plugin writes, while whoever watches hears that the run is in progress.
struct Said<'a> {
    watch: Option<&'a dyn Watch>,
    bytes: Vec<u8>,
}

impl Intake for Said<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        let room = KEPT.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn interval(&self) -> Option<Duration> {
        self.watch.map(|_| TYPING)
    }

    fn tick(&mut self) {
        if let Some(watch) = self.watch {
            watch.typing();
        }
    }
}

impl Engine {
    /// Asks all plugins that the manifest names, one after the other.
    ///
    /// # Errors
    /// What the run comes to when one of them does not let it begin.
    pub(super) fn preflight(&self, agent: &Manifest, run: &Run, watch: &dyn Watch) -> Result<(), Outcome> {
        for check in &agent.preflight {
            let Preflight { plugin, .. } = check;
            let Err(blocked) = self.ask(agent, check, run, watch) else { continue };
            if let Outcome::Blocked { suggest, .. } = &blocked {
                tracing::warn!(
                    agent = agent.name,
                    plugin,
                    suggest,
                    "a preflight keeps an agent from running"
                );
                let entry = json!({ "agent": agent.name, "schedule": agent.schedule, "plugin": plugin });
                // It does not run in any case.
                let _ = self.audit("preflight_failed", entry);
            }
            return Err(blocked);
        }
        Ok(())
    }

    fn ask(&self, agent: &Manifest, check: &Preflight, run: &Run, watch: &dyn Watch) -> Result<(), Outcome> {
        let blocked = |suggest: String| Outcome::Blocked { plugin: check.plugin.clone(), suggest };
        let mut stdout = Said { watch: Some(watch), bytes: Vec::new() };
        let mut stderr = Said { watch: None, bytes: Vec::new() };
        let program = self.home.plugin(&check.plugin);
        let command = self.plugin(&program, agent, check, run).map_err(&blocked)?;
        let begun = |pid| {
            if let Err(err) = run.is_process(pid) {
                tracing::warn!(%err, "could not note a preflight");
            }
        };
        let ended = supervise(command, check.timeout, &self.stop, begun, &mut stdout, &mut stderr)
            .map_err(|err| blocked(format!("{} could not be started: {err}", program.display())))?;
        let (code, why) = (ended.code(), ended.why);
        self.clean_up(ended.child, None);
        match (why, serde_json::from_slice::<Answer>(&stdout.bytes)) {
            (Why::Stopped, _) => Err(Outcome::Stopped),
            (Why::TimedOut, _) => Err(blocked(format!("it took longer than {} s", check.timeout.as_secs()))),
            (Why::Itself, Ok(answer)) if answer.ok && code == 0 => Ok(()),
            (Why::Itself, Ok(Answer { ok: false, suggest, error })) => {
                Err(blocked(suggest.or(error).unwrap_or_default()))
            }
            (Why::Itself, _) => {
                let complaint = String::from_utf8_lossy(&stderr.bytes);
                Err(blocked(format!("it exited {code} and gave no answer: {}", complaint.trim())))
            }
        }
    }

    /// The call of a plugin. What it is told goes through a file, which takes any length and waits for nobody.
    fn plugin(
        &self,
        program: &Path,
        agent: &Manifest,
        check: &Preflight,
        run: &Run,
    ) -> Result<Command, String> {
        let told = json!({
            "kind": "preflight", "agent": agent.name, "schedule": agent.schedule, "event": "preflight",
            "message": "", "config": check.config,
        });
        let path = run.tmp().join(".preflight");
        let stdin = fs::write(&path, told.to_string()).and_then(|()| File::open(&path));
        let stdin = stdin.map_err(|err| format!("it could not be told: {err}"))?;
        // The agent finds its directory empty.
        let _ = fs::remove_file(&path);
        let mut command = grouped(Command::new(program));
        command.arg("invoke").env(TMPDIR_VARIABLE, run.tmp()).stdin(stdin);
        Ok(command)
    }
}
