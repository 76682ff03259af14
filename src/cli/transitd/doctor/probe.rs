//! `transitd doctor --probe`: a message the whole way, until the session of its agent has it.
//!
//! Connected is not arrived. The command registers as an agent of this host, as every process may, so that the message
//! has a true sender; it says what it is, and asks for nothing. An agent of this host is reached through the Worker
//! too, where there is one: that is the way that others take.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::super::ask;
use crate::addr::{AgentAddr, Name};
use crate::cli::agent::session::{Next, Session};
use crate::cli::control;
use crate::cli::output::{Exit, Failure, Out};
use crate::id::fill_random;
use crate::net::service::Shutdown;
use crate::proto::agent::{PROTO, Register};
use crate::proto::control::Op;
use crate::store::config::Paths;
use crate::text;

/// What this command is registered as. The session is always the same one, so that all probes have one name.
const HARNESS: &str = "doctor";
/// How often is looked how far the message is.
const LOOK: Duration = Duration::from_millis(20);

/// Steps, as they come.
struct Steps {
    out: Out,
    json: bool,
    began: Instant,
}

impl Steps {
    fn tell(&mut self, step: &'static str, words: &str) -> Result<(), Failure> {
        let ms = self.began.elapsed().as_secs_f64() * 1000.0;
        if self.json {
            self.out.json(&json!({ "step": step, "ms": (ms * 10.0).round() / 10.0, "text": words }))?;
        } else {
            writeln!(self.out, "{ms:>8.1} ms {step:<10} {}", text::visible(words))?;
        }
        self.out.flush()?;
        Ok(())
    }

    /// The probe ends here.
    fn stop(&mut self, words: &str, hint: &str) -> Result<Exit, Failure> {
        if self.json {
            self.out.json(&json!({ "step": "failed", "text": words, "hint": hint }))?;
        } else {
            writeln!(self.out, "{:>11} {:<10} {}", "", "failed", text::visible(&format!("{words}; {hint}")))?;
        }
        self.out.flush()?;
        Ok(Exit::No)
    }
}

/// How far a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Kept,
    Committed,
    Handed,
    Acked,
    Told,
}

/// Reads the name or the address of an agent.
///
/// # Errors
/// What is wrong with it.
pub(super) fn agent(text: &str) -> Result<String, String> {
    let read = if text.contains('@') {
        text.parse::<AgentAddr>().map(drop).map_err(|err| err.to_string())
    } else {
        text.parse::<Name>().map(drop).map_err(|err| err.to_string())
    };
    read.map(|()| text.to_owned())
}

/// Sends the probe and follows it. 0 when it has arrived, 1 when it has not.
///
/// # Errors
/// When the daemon cannot be asked at all, or nothing can be printed.
pub(super) fn run(paths: &Paths, agent: &str, timeout: Duration, json: bool) -> Result<Exit, Failure> {
    let mut steps = Steps { out: Out::new(), json, began: Instant::now() };
    let status = ask(paths, Op::Status)?;
    let is_enrolled = status.get("enrolled") == Some(&Value::Bool(true));
    let host = status.get("host").and_then(Value::as_str).unwrap_or_default();
    let to = if agent.contains('@') { agent.to_owned() } else { format!("{agent}@{host}") };
    let is_near = to.rsplit('@').next() == Some(host);
    steps.tell("daemon", if is_enrolled { "it serves" } else { "it serves; this host is not enrolled" })?;
    if status.get("paused") == Some(&Value::Bool(true)) {
        return steps.stop("the daemon is paused", "go on with: transitd resume");
    }
    let stop = Shutdown::on_signals().map_err(|err| Failure::new(Exit::Io, "get ready to wait", err))?;
    let mut session = Session::with(paths.clone(), register(), stop.clone())?;
    let from = loop {
        match session.next(&[], None)? {
            Next::Registered { address, .. } => break address,
            Next::Stop => return Ok(Exit::No),
            _ => {}
        }
    };
    steps.tell("registered", &format!("this command is {from} for as long"))?;
    if is_enrolled && status.get("connected") != Some(&Value::Bool(true)) {
        let why = status.get("last_error").and_then(Value::as_str).unwrap_or("it has only begun");
        return steps.stop(&format!("the daemon is not connected to the Worker: {why}"), "transitd kick");
    }
    let probe = Op::Probe { to: to.clone(), body: body() };
    let sent = match control::ask(paths, &control::call_of(probe, None))? {
        Ok(sent) => sent,
        Err(err) => return steps.stop(&err.to_string(), "see which agents there are: transitd status"),
    };
    let id = sent.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    steps.tell("kept", &format!("{id} for {to} is in the spool"))?;
    if is_near && !is_here(&status, &to) {
        steps.tell("waits", &format!("no session of {to} is on this host now; it waits for one"))?;
    }
    let way = Way { paths, id, is_near, is_enrolled, stop };
    way.follow(&mut steps, timeout)
}

/// Whether an agent of this host has a session.
fn is_here(status: &Map<String, Value>, address: &str) -> bool {
    let agents = status.get("agents").and_then(Value::as_array);
    agents.is_some_and(|agents| agents.iter().any(|agent| agent["address"] == address))
}

fn register() -> Register {
    Register {
        proto: PROTO,
        harness: HARNESS.to_owned(),
        session_id: HARNESS.to_owned(),
        pid: std::process::id(),
        cwd: "/".to_owned(),
        title: "transitd doctor".to_owned(),
        status: "working".to_owned(),
        name: None,
        pane_id: None,
    }
}

/// What the agent reads.
fn body() -> String {
    let mut nonce = [0; 8];
    fill_random(&mut nonce);
    format!(
        "This is a probe of transitd doctor, {}. It only shows that messages arrive in this session. Nothing is asked \
         of you, and no answer is needed.",
        hex::encode(nonce)
    )
}

/// A message under way.
struct Way<'a> {
    paths: &'a Paths,
    id: String,
    is_near: bool,
    is_enrolled: bool,
    stop: Shutdown,
}

impl Way<'_> {
    fn follow(&self, steps: &mut Steps, timeout: Duration) -> Result<Exit, Failure> {
        let (mut stage, mut refusal) = (Stage::Kept, None);
        let last = if self.is_near && self.is_enrolled { Stage::Told } else { Stage::Acked };
        while stage < last {
            if steps.began.elapsed() >= timeout {
                return self.late(steps, stage, refusal.as_deref());
            }
            let seen = ask(self.paths, Op::Trace { id: self.id.clone() })?;
            if let Some(why) = seen.get("dead").and_then(Value::as_str) {
                return steps.stop(&format!("it was refused for good: {why}"), "see the log of the daemon");
            }
            let now = self.stage(&seen)?;
            for (each, step, words) in [
                (Stage::Committed, "committed", "the Worker has it in its ledger"),
                (Stage::Handed, "delivered", "it is back on this host, and on its way into the session"),
                (Stage::Acked, "arrived", "the adapter says that it is durably in the session"),
                (Stage::Told, "told", "the Worker has heard of it"),
            ] {
                let is_taken = match each {
                    Stage::Committed | Stage::Told => self.is_enrolled,
                    Stage::Handed => self.is_near,
                    Stage::Kept | Stage::Acked => true,
                };
                if stage < each && each <= now && is_taken {
                    steps.tell(step, words)?;
                }
            }
            stage = stage.max(now);
            let code = seen.get("code").and_then(Value::as_str).map(str::to_owned);
            if let Some(code) = code.filter(|code| refusal.as_ref() != Some(code)) {
                steps.tell("waits", &format!("it could not be put into the session now: {code}"))?;
                refusal = Some(code);
            }
            if stage < last && self.stop.wait(Some(LOOK)) {
                return steps.stop("interrupted", "the probe goes on, and arrives when it can");
            }
        }
        Ok(Exit::Ok)
    }

    /// How far the rows of this host say that it is, and the Worker, for what it alone knows.
    fn stage(&self, seen: &Map<String, Value>) -> Result<Stage, Failure> {
        let is = |name: &str| seen.get(name) == Some(&Value::Bool(true));
        if is("injected") {
            return Ok(if self.is_told()? { Stage::Told } else { Stage::Acked });
        }
        if is("handed") {
            return Ok(Stage::Handed);
        }
        if !is("committed") {
            return Ok(Stage::Kept);
        }
        Ok(if !self.is_near && self.is_told()? { Stage::Acked } else { Stage::Committed })
    }

    /// Whether the Worker says that its recipient has it.
    fn is_told(&self) -> Result<bool, Failure> {
        if !self.is_enrolled {
            return Ok(false);
        }
        let op = Op::Rpc { method: "message_status".to_owned(), params: json!({ "id": self.id }) };
        let answer = control::ask(self.paths, &control::call_of(op, None))?;
        Ok(answer.is_ok_and(|answer| {
            answer.get("result").and_then(|result| result.get("state")?.as_str()) == Some("injected")
        }))
    }

    fn late(&self, steps: &mut Steps, stage: Stage, refusal: Option<&str>) -> Result<Exit, Failure> {
        let (words, hint) = match (stage, refusal) {
            (Stage::Kept, _) if self.is_enrolled => {
                ("the Worker has not taken it", "see the log of the daemon, and transitd status")
            }
            (Stage::Committed, _) => (
                "the Worker has it, and it has not arrived",
                "see that the agent's host is connected, and its session registered: transitd status there",
            ),
            (Stage::Told | Stage::Acked, _) => {
                ("it has arrived, and the Worker has not heard of it yet", "see the log of the daemon")
            }
            (_, Some("draft_busy")) => {
                ("a draft is in the way", "send or clear what stands half-typed in the session")
            }
            (_, Some("adapter_unavailable")) => ("the session is gone", "start it anew"),
            (_, None) => (
                "the session has it from the daemon, and has not acknowledged it",
                "it may be busy or wait for an answer of its user; its adapter may be broken",
            ),
            (_, Some(_)) => ("the session did not take it", "see what it waits for; it is tried again"),
        };
        steps.stop(&format!("{words} after {:.0?}", steps.began.elapsed()), hint)
    }
}
