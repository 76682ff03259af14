//! One run of an agent: from its manifest to its reply.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::engine::Engine;
use super::environment::{Call, Given, command};
use super::locked;
use super::process::{Ended, Why, supervise};
use super::stdout::{Stderr, Stdout, Watch};
use crate::proto::assistant::{Outcome, fit, shape, take_memos};
use crate::store::home::Manifest;
use crate::store::home::assistant::{Conversation, Pointers};
use crate::store::home::heartbeat::Heartbeat;
use crate::store::home::manifest::Assistant;
use crate::store::home::runs::Run;
use crate::store::process::{Process, start_time};

/// What stands for the exit code of what was not started.
const NOT_STARTED: i32 = -1;

/// What a run came to.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) outcome: Outcome,
    /// What its agent says, as people read it.
    pub(super) reply: String,
}

impl Engine {
    /// Runs an agent for a trigger that is on the audit trail, and answers what came of it. `watch` sees it work.
    pub(super) fn run(&self, name: &str, call: &Call<'_>, watch: &dyn Watch) -> Report {
        let Some(agent) = self.agent(name) else {
            let why = format!("trigger names unknown agent '{name}'");
            return self.report(name, None, call, Outcome::NotRun(why));
        };
        let outcome = self.begin_and_end(&agent, call, watch).unwrap_or_else(|outcome| outcome);
        self.report(name, agent.assistant.as_ref(), call, outcome)
    }

    fn begin_and_end(
        &self,
        agent: &Manifest,
        call: &Call<'_>,
        watch: &dyn Watch,
    ) -> Result<Outcome, Outcome> {
        let not_run = |err: &dyn std::fmt::Display| Outcome::NotRun(err.to_string());
        if let Some(why) = agent.unfit {
            return Err(not_run(&why));
        }
        let of_call = json!({
            "source": call.source, "actor": call.actor, "agent": agent.name, "schedule": agent.schedule,
        });
        self.audit("agent_triggered", of_call).map_err(|_| Outcome::NoAudit)?;
        let run = self.runs.begin().map_err(|err| not_run(&err))?;
        self.preflight(agent, &run, watch)?;
        let limits = self.limits();
        let log = self.home.run_log(&agent.name);
        let mut stdout =
            Stdout::new(watch, log, agent.is_assistant_v1, limits.text_bytes(), limits.reply_bytes());
        let mut stderr = Stderr::new(limits.text_bytes(), limits.reply_bytes());
        let started = self.host.now();
        let mut heartbeat = self.heartbeat(agent, call);
        let ended = self.supervised(agent, call, &run, heartbeat.path(), &mut stdout, &mut stderr);
        let ended = ended.map_err(|err| {
            self.end_heartbeat(&mut heartbeat, NOT_STARTED);
            not_run(&err)
        })?;
        let stderr = stderr.text();
        stdout.finish(&stderr);
        let (code, why) = (ended.code(), ended.why);
        let noted = self.tell_of_run(agent, call, &ended, self.host.now().since(started));
        self.end_heartbeat(&mut heartbeat, noted);
        if let (Some(assistant), Some((session, bytes))) = (&agent.assistant, &stdout.frames.session) {
            let kept = self.home.end(conversation(call), assistant, (session, *bytes), self.host.wall());
            tell(kept, "could not keep what an agent calls its session");
        }
        self.clean_up(ended.child, Some(run));
        Ok(match (code, why) {
            (0, _) => Outcome::Done { reply: stdout.frames.reply, stdout: stdout.tail.text() },
            (_, Why::TimedOut) => Outcome::TimedOut { stderr },
            (_, Why::Stopped) => Outcome::Stopped,
            (code, Why::Itself) => Outcome::Failed { code, stderr },
        })
    }

    fn supervised(
        &self,
        agent: &Manifest,
        call: &Call<'_>,
        run: &Run,
        heartbeat: &Path,
        stdout: &mut Stdout<'_>,
        stderr: &mut Stderr,
    ) -> Result<Ended, String> {
        let (pointers, memory) = self.given(agent, call);
        let tmp = run.tmp();
        let given = Given {
            tmp: Path::new(&tmp),
            heartbeat: heartbeat.to_owned(),
            pointers: &pointers,
            memory: memory.as_deref(),
            now: self.host.wall(),
        };
        let command = command(agent, call, &given, std::env::vars_os());
        // The process may call this very daemon before anything else here is done.
        let is_process = stdout.watch().beginning();
        let begun = |pid| {
            start_time(pid).map(|start_time| Process { pid, start_time }).map(is_process);
            tell(run.is_process(pid), "could not note a run");
        };
        supervise(command, agent.timeout, &self.stop, begun, stdout, stderr).map_err(|err| {
            if pointers.retired {
                // Nobody has heard it.
                tell(self.home.untell(conversation(call), self.host.wall()), "could not keep a conversation");
            }
            format!("spawn failed: {err}")
        })
    }

    /// Notes that a run begins.
    fn heartbeat(&self, agent: &Manifest, call: &Call<'_>) -> Heartbeat {
        let slug = call.slug();
        let path = self.home.heartbeat(&agent.name, &slug);
        let heartbeat = Heartbeat::begin(path, &agent.name, &slug, self.host.wall());
        tell(heartbeat.write(), "could not note that an agent runs");
        heartbeat
    }

    fn end_heartbeat(&self, heartbeat: &mut Heartbeat, exit_code: i32) {
        heartbeat.end(exit_code, self.host.wall());
        tell(heartbeat.write(), "could not note how an agent has run");
    }

    /// What an assistant is told of its conversation. That it could not be read keeps nobody from running.
    fn given(&self, agent: &Manifest, call: &Call<'_>) -> (Pointers, Option<String>) {
        let Some(assistant) = &agent.assistant else { return Default::default() };
        let pointers = self.home.begin(conversation(call), assistant, self.host.wall());
        let memory = if assistant.memory { self.home.remembered(&agent.name) } else { Ok(None) };
        (
            tell(pointers, "an agent is not told of its session").unwrap_or_default(),
            tell(memory, "an agent is not told what it remembers").flatten(),
        )
    }

    /// Tells of a run that is over; answers the exit code that stands for it.
    fn tell_of_run(&self, agent: &Manifest, call: &Call<'_>, ended: &Ended, ran: Duration) -> i32 {
        let timed_out = ended.why == Why::TimedOut;
        // What a shell says of a program that was ended so.
        let code = if timed_out && ended.status.is_err() { 124 } else { ended.code() };
        let entry = json!({
            "source": call.source, "actor": call.actor, "agent": agent.name, "schedule": agent.schedule,
            "slug": call.slug(), "exit_code": code, "duration_seconds": ran.as_secs(), "timed_out": timed_out,
        });
        // It has run in any case, and its trigger is on the trail.
        let _ = self.audit("agent_run", entry);
        tracing::info!(agent = agent.name, code, "an agent has run");
        code
    }

    /// Shapes the reply, and keeps what an assistant wants remembered.
    fn report(&self, name: &str, assistant: Option<&Assistant>, call: &Call<'_>, outcome: Outcome) -> Report {
        // What is to be remembered often stands at the end, so that nothing is cut off before it was taken out.
        let mut reply = shape(name, &outcome, usize::MAX);
        if let Some(assistant) = assistant {
            let (kept, memos) = take_memos(&reply);
            reply = kept;
            if assistant.memory {
                let _in_one_go = locked(&self.remembering);
                let kept = self.home.remember(name, call.session, &memos, self.host.wall());
                tell(kept, "could not keep what an agent wants remembered");
            }
        }
        Report { outcome, reply: fit(reply, self.limits().reply_bytes()) }
    }
}

fn conversation<'a>(call: &Call<'a>) -> Conversation<'a> {
    Conversation { source: call.source, session: call.session }
}

/// What may fail without keeping anybody from anything: it is told of.
fn tell<T, E: std::fmt::Display>(result: Result<T, E>, what: &str) -> Option<T> {
    result.map_err(|err| tracing::warn!(%err, "{what}")).ok()
}
