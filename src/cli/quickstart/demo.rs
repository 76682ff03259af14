//! The agent of the quickstart: it reads every event and answers it.

use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::Names;
use super::setup::Place;
use crate::cli::agent::session::{Answer, Next, Session};
use crate::cli::control;
use crate::cli::output::{Exit, Failure};
use crate::net::service::Shutdown;
use crate::proto::agent::Register;
use crate::proto::control::Op;
use crate::proto::envelope::{Kind, parse};
use crate::store::config::Paths;

/// What the agent did.
pub(super) enum Heard {
    /// It has its address.
    Registered(String),
    /// It was shown an envelope.
    Envelope { id: String, envelope: String },
    /// It answered, and the Worker said this of the answer.
    Replied { status: String },
}

/// Starts the agent on a thread of its own; it tells what it does.
pub(super) fn start(
    place: &Place,
    names: &Names,
    tell: Sender<Heard>,
    stop: &Shutdown,
) -> Result<JoinHandle<()>, Failure> {
    let register = Register {
        proto: 1,
        harness: "quickstart".into(),
        session_id: names.robin.name.to_string(),
        pid: std::process::id(),
        cwd: place.paths().data.display().to_string(),
        title: "answers every event".into(),
        status: "idle".into(),
        name: Some(names.robin.name.to_string()),
        pane_id: None,
    };
    let paths = place.paths();
    let mut session = Session::with(paths.clone(), register, stop.clone())?;
    let run = move || {
        // Whoever listens sees that nothing more comes; a failure of the connection was told by the session.
        let _ = attend(&mut session, &paths, &tell);
    };
    std::thread::Builder::new()
        .name("robin".into())
        .spawn(run)
        .map_err(|err| Failure::new(Exit::Io, "start the agent", err))
}

fn attend(session: &mut Session, paths: &Paths, tell: &Sender<Heard>) -> Result<(), Failure> {
    loop {
        match session.next(&[], None)? {
            Next::Stop => return Ok(()),
            Next::Registered { address, .. } => {
                let _ = tell.send(Heard::Registered(address));
            }
            Next::Deliver { id, envelope } => {
                let _ = tell.send(Heard::Envelope { id: id.clone(), envelope: envelope.clone() });
                session.say(Answer::Ack { id: id.clone() })?;
                // A call that fails is shown in place of the answer; the next event is attended to all the same.
                let answered = answer(paths, &id, &envelope);
                if let Some(status) = answered.unwrap_or_else(|failure| Some(failure.line)) {
                    let _ = tell.send(Heard::Replied { status });
                }
            }
            Next::Ready(_) | Next::Due => {}
        }
    }
}

/// Reads the whole event and replies to it, as an agent does through its tools. A message of another agent has no
/// conversation and is left alone.
fn answer(paths: &Paths, id: &str, envelope: &str) -> Result<Option<String>, Failure> {
    let Ok(parsed) = parse(envelope) else { return Ok(None) };
    let Kind::Channel { conversation_id, .. } = parsed.envelope.kind else { return Ok(None) };
    call(paths, "read_message", json!({ "id": id }))?;
    let message = format!("On it. I have read all of {id} and will report here.");
    let reply = json!({ "delivery_id": id, "conversation_id": conversation_id, "message": message });
    let answered = call(paths, "chat_reply", reply)?;
    Ok(Some(answered["status"].as_str().unwrap_or("answered").to_owned()))
}

/// Who makes the call is this process, which the daemon knows as the agent.
fn call(paths: &Paths, method: &str, params: Value) -> Result<Value, Failure> {
    let call = control::call_of(Op::Rpc { method: method.to_owned(), params }, None);
    let mut answer = control::ask(paths, &call)?.map_err(|err| control::refused(method, &err))?;
    Ok(answer.remove("result").unwrap_or(Value::Null))
}
