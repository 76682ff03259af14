//! `!` commands: run as they are, without a shell, when the configuration allows it.

use std::process::Command;

use serde_json::json;

use super::engine::{Engine, grouped};
use super::jobs::Job;
use super::process::{Ended, Intake, Why, supervise};
use super::{Gateway, locked};
use crate::proto::bang::{Policy, Verdict, quoted};
use crate::store::home::Settings;
use crate::store::home::runs::TMPDIR_VARIABLE;

/// Longest output that is shown, in bytes.
const SHOWN: usize = 8_000;
/// Bytes of an output that are kept, so that blanks before it take nothing away.
const KEPT: usize = 64 * 1024;
/// Bytes of a command's words that go onto the audit trail.
const AUDITED: usize = 4_096;

/// The beginning of an output.
#[derive(Default)]
struct Head(Vec<u8>);

impl Intake for Head {
    fn bytes(&mut self, bytes: &[u8]) {
        let room = KEPT.saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl Head {
    /// What is shown of it.
    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let text = text.trim();
        if text.len() <= SHOWN {
            return text.to_owned();
        }
        let end = (0..=SHOWN).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        format!("{}\n… truncated at {SHOWN} bytes.", &text[..end])
    }
}

impl Gateway {
    /// Runs a command, parks it, or says why not.
    pub(super) fn command(&self, job: &Job, words: Vec<String>) -> String {
        let settings = match self.engine.home.settings() {
            Ok(settings) => settings,
            Err(err) => return format!("`{}` is not allowed: {err}", name(&words)),
        };
        match settings.os.decide(&words) {
            Verdict::Deny => denied(&words, &settings.os),
            Verdict::Run => self.engine.execute(job, &words, &settings),
            Verdict::Ask => {
                let asked = format!(
                    "This will run:\n\n    {}\n\nSend `!!` to confirm. It expires in {}s.",
                    quoted(&words),
                    settings.confirm_ttl.as_secs()
                );
                let (session, now) = (job.session.as_str(), self.engine.host.now());
                locked(&self.parked).park(job.source, session, words, now, settings.confirm_ttl);
                asked
            }
        }
    }

    /// Runs the command that was parked, if it may still be run.
    pub(super) fn confirm(&self, job: &Job) -> String {
        let now = self.engine.host.now();
        let Some(words) = locked(&self.parked).take(job.source, job.session.as_str(), now) else {
            return "Nothing is waiting for confirmation here (or it expired).".to_owned();
        };
        match self.engine.home.settings() {
            Ok(settings) if settings.os.decide(&words) != Verdict::Deny => {
                self.engine.execute(job, &words, &settings)
            }
            Ok(settings) => denied(&words, &settings.os),
            Err(err) => format!("`{}` is not allowed: {err}", name(&words)),
        }
    }
}

impl Engine {
    fn execute(&self, job: &Job, words: &[String], settings: &Settings) -> String {
        let bin = name(words);
        let of_job = |more: serde_json::Value| {
            let mut entry =
                json!({ "source": job.source, "actor": job.actor, "bin": bin, "args": audited(words) });
            if let (Some(entry), serde_json::Value::Object(more)) = (entry.as_object_mut(), more) {
                entry.extend(more);
            }
            entry
        };
        if self.audit("os_command_started", of_job(json!({}))).is_err() {
            return "Could not run trigger: audit unavailable.".to_owned();
        }
        let (mut stdout, mut stderr) = (Head::default(), Head::default());
        let ended = self.started(words, settings, &mut stdout, &mut stderr);
        let ended = match ended {
            Ok(ended) => ended,
            Err(why) => {
                let _ = self
                    .audit("os_command_invoked", of_job(json!({ "exit_code": null, "timed_out": false })));
                return not_started(words, &why);
            }
        };
        let (code, why) = ended;
        let timed_out = why == Why::TimedOut;
        let _ =
            self.audit("os_command_invoked", of_job(json!({ "exit_code": code, "timed_out": timed_out })));
        match (code, why, stdout.text()) {
            (0, _, text) if text.is_empty() => format!("`{bin}` exited 0 and printed nothing."),
            (0, _, text) => text,
            (_, Why::TimedOut, _) => {
                let limit = settings.os_timeout.as_secs();
                format!("`{bin}` was still running after {limit}s and was killed.")
            }
            (_, Why::Stopped, _) => format!("`{bin}` was ended, because the daemon stops."),
            (code, Why::Itself, text) => {
                let said = Some(stderr.text()).filter(|text| !text.is_empty()).unwrap_or(text);
                format!("`{bin}` exited {code}.\n{said}")
            }
        }
    }

    fn started(
        &self,
        words: &[String],
        settings: &Settings,
        stdout: &mut Head,
        stderr: &mut Head,
    ) -> Result<(i32, Why), String> {
        let run = self.runs.begin().map_err(|err| err.to_string())?;
        let (bin, args) = words.split_first().ok_or("there is no command")?;
        let mut command = Command::new(bin);
        command.args(args).env(TMPDIR_VARIABLE, run.tmp());
        let begun = |pid| {
            if let Err(err) = run.is_process(pid) {
                tracing::warn!(%err, "could not note a command");
            }
        };
        let ended = supervise(grouped(command), settings.os_timeout, &self.stop, begun, stdout, stderr)
            .map_err(|err| err.to_string())?;
        let (code, why) = (ended.code(), ended.why);
        let Ended { child, .. } = ended;
        self.clean_up(child, Some(run));
        Ok((code, why))
    }
}

/// The reply to a command that was not begun.
pub(super) fn not_started(words: &[String], why: &dyn std::fmt::Display) -> String {
    format!("Could not start `{}`: {why}", name(words))
}

/// The reply to a command that may not be run, with what keeps it from that.
fn denied(words: &[String], policy: &Policy) -> String {
    let name = name(words);
    let enabled = Policy { enabled: true, ..policy.clone() };
    if !policy.enabled && enabled.decide(words) != Verdict::Deny {
        return format!(
            "`{name}` is not allowed. Set `enabled = true` in `[os]` of config.toml to change that."
        );
    }
    format!("`{name}` is not allowed. Add it to `[os] allow` in config.toml to change that.")
}

fn name(words: &[String]) -> &str {
    words.first().map_or("", String::as_str)
}

/// The arguments, as far as there is room on the audit trail.
fn audited(words: &[String]) -> Vec<&str> {
    let mut room = AUDITED;
    let args = words.iter().skip(1).map_while(|word| {
        room = room.checked_sub(word.len())?;
        Some(word.as_str())
    });
    args.collect()
}
