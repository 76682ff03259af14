//! `transit.sock`: one call, one answer, and the connection closes. Who calls is what the kernel says.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::fate;
use super::host::{Host, SendOutcome};
use super::peer::lineage;
use super::registry::{Caller, Session};
use crate::addr::{Addr, AgentAddr, Name};
use crate::clock::{Mono, Wall};
use crate::id::IdKind;
use crate::limits;
use crate::net::line::LineSocket;
use crate::net::unix::Peer;
use crate::net::wake::Wake;
use crate::proto::agent::NOT_VISIBLE;
use crate::proto::control::{Call, ControlError, Op, failure, ok};
use crate::proto::envelope::{self, Envelope, Kind};
use crate::proto::lines::Line;
use crate::store::StoreError;
use crate::store::spool::inbox::Delivery;
use crate::store::spool::outbox::{EntryKind, NewEntry};

/// Time for a call to come, and for its answer to be read.
const CALL_WAIT: Duration = Duration::from_secs(35);
/// Time that the sender of a message waits for more than its being kept.
const SEND_WAIT: Duration = Duration::from_secs(10);

type Answer = Result<Value, ControlError>;

/// Serves one call.
pub(super) fn serve(host: &Arc<Host>, stream: UnixStream, peer: Peer, wake: Wake) {
    let mut socket = match LineSocket::new(stream) {
        Ok(socket) => socket,
        Err(err) => return tracing::warn!(%err, "could not serve a call"),
    };
    let until = host.now() + CALL_WAIT;
    let Some(line) = receive(host, &mut socket, &wake, until) else { return };
    let answer = match line {
        Line::Text(line) => Call::decode(&line).and_then(|call| answer(host, call, peer)),
        Line::NotUtf8 => Err(ControlError::new("bad_request", "the line is not UTF-8")),
        Line::TooLong => Err(ControlError::new("bad_request", "the line is too long")),
    };
    socket.write(&match answer {
        Ok(answer) => ok(answer),
        Err(err) => failure(&err),
    });
    let until = host.now() + CALL_WAIT;
    while !socket.flush().unwrap_or(true) && host.now() < until {
        if socket.wait(&wake, until.since(host.now())).is_err() || host.stop.is_triggered() {
            return;
        }
    }
}

fn receive(host: &Host, socket: &mut LineSocket, wake: &Wake, until: Mono) -> Option<Line> {
    loop {
        match socket.read() {
            Ok(Some(line)) => return Some(line),
            Ok(None) => {}
            Err(_) => return None,
        }
        let left = until.since(host.now());
        if left.is_zero() || host.stop.is_triggered() || socket.wait(wake, left).is_err() {
            return None;
        }
    }
}

fn answer(host: &Host, call: Call, peer: Peer) -> Answer {
    let caller = || caller(host, peer, call.pane_id.as_deref(), call.as_agent.as_deref());
    match call.op {
        Op::Status => status(host),
        Op::Kick => {
            host.kick();
            Ok(json!({ "kicked": true }))
        }
        Op::Whoami => {
            let session = caller()?;
            let connected = host.link().connected;
            Ok(json!({
                "address": session.address, "host": host.name(), "connected": connected,
                "harness": session.who.harness, "session_id": session.who.session_id,
            }))
        }
        Op::Send { to, body, reply_to, wait_ms } => {
            let wait = wait_ms.map_or(SEND_WAIT, |wait| Duration::from_millis(wait).min(SEND_WAIT));
            send(host, &caller()?, &to, &body, reply_to.as_deref(), wait)
        }
        Op::MessageStatus { id } => fate::status(host, &id).map(|status| json!(status)),
        Op::Rpc { method, params } => rpc(host, &caller()?, method, params),
        Op::Room { action, room, policy } => {
            let session = caller()?;
            let params = json!({ "room": room, "address": session.address, "policy": policy });
            rpc(host, &session, action.method().to_owned(), params)
        }
    }
}

/// The agent that speaks: the session that the calling process runs in, or the one that a person outside of every
/// session names.
fn caller(
    host: &Host,
    peer: Peer,
    pane_id: Option<&str>,
    as_agent: Option<&str>,
) -> Result<Session, ControlError> {
    if peer.pid == 0 {
        // Which session it runs in cannot be told, so that it may not speak as any.
        return Err(ControlError::new("pid_not_visible", NOT_VISIBLE));
    }
    match (host.registry.caller(&lineage(peer.pid), pane_id), as_agent) {
        (Caller::Session(session), None) => Ok(*session),
        (Caller::Session(session), Some(name)) if is_called(&session, name) => Ok(*session),
        (Caller::Session(session), Some(name)) => {
            let text = format!(
                "inside the session of {} nobody else can be spoken for, not {name}",
                session.address
            );
            Err(ControlError::new("invalid_caller", text))
        }
        (Caller::Unclear, _) => {
            let text = "several sessions share this process, and nothing says which one calls";
            Err(ControlError::new("invalid_caller", text))
        }
        (Caller::Nobody, Some(name)) => {
            let bare = name.split('@').next().unwrap_or(name);
            let session = bare.parse::<Name>().ok().and_then(|name| host.registry.get(&name));
            session.filter(|session| is_called(session, name)).ok_or_else(|| {
                ControlError::new("agent_not_found", format!("no session of this host is called {name}"))
            })
        }
        (Caller::Nobody, None) => {
            let text = "this process runs in no session of this host: call from inside one, or name the agent \
                        that is to speak (--as NAME)";
            Err(ControlError::new("invalid_caller", text))
        }
    }
}

fn is_called(session: &Session, name: &str) -> bool {
    session.place.name.as_str() == name || session.address == name
}

fn status(host: &Host) -> Answer {
    let link = host.link();
    let mut spool = host.spool().map_err(|err| store_error(&err))?;
    let outbox = spool.outbox().counts().map_err(|err| store_error(&err))?;
    let inbox = spool.inbox_counts().map_err(|err| store_error(&err))?;
    let agents: Vec<Value> = host.registry.all().iter().map(agent_status).collect();
    let is_enrolled = link.url.is_some();
    let last_error = link.last_error.or_else(|| (!is_enrolled).then(|| "not enrolled".to_owned()));
    Ok(json!({
        "host": host.name(),
        "worker_url": link.url,
        "enrolled": is_enrolled,
        "org": link.org,
        "connected": link.connected,
        "paused": false,
        "agents": agents,
        "outbox": outbox.pending,
        "inbox": inbox.waiting,
        "dead": outbox.dead,
        "last_error": last_error,
        "uptime_seconds": host.uptime_seconds(),
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
    }))
}

fn agent_status(session: &Session) -> Value {
    json!({
        "name": session.place.name,
        "address": session.address,
        "harness": session.who.harness,
        "session_id": session.who.session_id,
        "status": session.status,
        "generation": session.place.generation,
        "pid": session.way.pid(),
    })
}

/// Keeps a message, then waits a little for what it comes to.
fn send(
    host: &Host,
    sender: &Session,
    to: &str,
    body: &str,
    reply_to: Option<&str>,
    wait: Duration,
) -> Answer {
    let to: Addr = to.parse().map_err(|err| ControlError::new("bad_address", format!("{err}")))?;
    if body.is_empty() {
        return Err(ControlError::new("bad_request", "the message is empty"));
    }
    if body.len() > limits::BODY_BYTES {
        let text = format!("the message has {} bytes, {} are allowed", body.len(), limits::BODY_BYTES);
        return Err(ControlError::new("body_too_large", text));
    }
    if reply_to.is_some_and(|id| IdKind::of(id).is_none()) {
        return Err(ControlError::new("bad_request", "reply_to is no id"));
    }
    let id = IdKind::Message.fresh();
    let waiting = Waiting { host, id: &id, told: host.wait_for(&id) };
    let link = host.link();
    let message = Message { id: &id, from: &sender.address, to: &to, body, reply_to, at: host.wall() };
    let near = near(host, &to)?;
    if link.url.is_some() {
        keep(host, &message).map_err(|err| store_error(&err))?;
    } else if near.is_none() {
        let text = format!("this host is not enrolled: only its own agents can be written to, not {to}");
        return Err(ControlError::new("not_enrolled", text));
    }
    if let Some(agent) = near {
        match put(host, &message, agent) {
            // What is kept for the Worker comes back from there.
            Err(err) if link.url.is_some() => tracing::error!(id, %err, "could not hand a message over"),
            put => put.map_err(|err| store_error(&err))?,
        }
    }
    let is_worth_waiting = link.connected || near.is_some();
    let wait = if is_worth_waiting { wait } else { Duration::ZERO };
    match waiting.told.recv_timeout(wait) {
        Ok(SendOutcome::Committed) => Ok(json!({ "id": id, "state": "committed" })),
        Ok(SendOutcome::Injected) => Ok(json!({ "id": id, "state": "injected", "local": true })),
        Ok(SendOutcome::Refused(code)) => {
            Err(ControlError::new(code, "the Worker has refused it").about(&id))
        }
        Err(_) => Ok(json!({ "id": id, "state": "spooled", "local": false })),
    }
}

/// A sender that waits. However its wait ends, it is forgotten.
struct Waiting<'a> {
    host: &'a Host,
    id: &'a str,
    told: std::sync::mpsc::Receiver<SendOutcome>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.host.forget_waiter(self.id);
    }
}

/// A message that an agent of this host sends.
struct Message<'a> {
    id: &'a str,
    from: &'a str,
    to: &'a Addr,
    body: &'a str,
    reply_to: Option<&'a str>,
    at: Wall,
}

/// The recipient, if it is an agent of this host.
fn near<'a>(host: &Host, to: &'a Addr) -> Result<Option<&'a Name>, ControlError> {
    let name = match to {
        Addr::Agent(AgentAddr { name, host: its }) if *its == host.name() => name,
        _ => return Ok(None),
    };
    let is_known = host.spool().and_then(|spool| spool.knows_agent(name.as_str()));
    if is_known.map_err(|err| store_error(&err))? {
        return Ok(Some(name));
    }
    Err(ControlError::new("agent_not_found", format!("no agent of this host is called {name}")))
}

/// Keeps a message for the Worker, which has every message in its ledger.
fn keep(host: &Host, message: &Message<'_>) -> Result<(), StoreError> {
    let entry = NewEntry {
        id: message.id,
        kind: EntryKind::Message,
        dest: &message.to.to_string(),
        from: Some(message.from),
        reply_to: message.reply_to,
        event_key: None,
        body: message.body.as_bytes(),
        secret: None,
    };
    host.spool()?.outbox().add(&entry, message.at)?;
    host.uplink.wake();
    Ok(())
}

/// Hands a message to an agent of this host, without a way through the Worker. What comes back from there is
/// recognised by its id.
fn put(host: &Host, message: &Message<'_>, agent: &Name) -> Result<(), StoreError> {
    let envelope = envelope::render(&Envelope {
        from: message.from.to_owned(),
        id: message.id.to_owned(),
        ts: message.at.to_string(),
        reply_to: message.reply_to.map(str::to_owned),
        body: message.body.to_owned(),
        kind: Kind::Dm,
    });
    let delivery = Delivery { id: message.id.to_owned(), agent: agent.to_string(), envelope, redelivery: 0 };
    host.spool()?.put_local(&delivery, message.at)?;
    host.registry.wake(agent.as_str());
    Ok(())
}

/// Calls the Worker in the caller's name. Whatever the parameters say of the caller is replaced.
fn rpc(host: &Host, caller: &Session, method: String, params: Value) -> Answer {
    let mut params = match params {
        Value::Object(params) => params,
        Value::Null => serde_json::Map::new(),
        _ => return Err(ControlError::new("bad_params", "params is no object")),
    };
    params.insert("caller".to_owned(), Value::String(caller.address.clone()));
    let offline = |why: &str| ControlError::new("rpc_failed", format!("{method} needs the Worker: {why}"));
    let link = host.link();
    if !link.connected {
        return Err(offline(link.last_error.as_deref().unwrap_or("this host is not connected")));
    }
    let settles = matches!(method.as_str(), "chat_reply" | "mark_handled");
    let delivery = params.get("delivery_id").and_then(Value::as_str).filter(|_| settles).map(str::to_owned);
    let answered = host.call(method.clone(), Value::Object(params));
    match answered.recv_timeout(limits::RPC_WAIT + Duration::from_secs(1)) {
        Ok(Ok(result)) => {
            if let Some(id) = delivery {
                take_out(host, &id);
            }
            Ok(json!({ "result": result }))
        }
        Ok(Err(err)) => Err(ControlError::new(&err.code, err.message)),
        Err(_) => Err(offline("the connection ended")),
    }
}

/// A delivery that is settled is not shown any more, if it waits; to nobody, if it went to a room.
fn take_out(host: &Host, id: &str) {
    let settled = host.spool().and_then(|mut spool| spool.settled(id, host.wall()));
    match settled {
        Ok(()) => host.uplink.wake(),
        // It may be shown once more, with a note that says what to do then.
        Err(err) => tracing::error!(id, %err, "could not take a settled delivery out"),
    }
}

/// A failure of the spool, as callers can branch on it.
pub(super) fn store_error(err: &StoreError) -> ControlError {
    let code = match err {
        StoreError::LimitReached { .. } => "spool_full",
        StoreError::Full { .. } => "disk_full",
        StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => "disk_full",
        StoreError::ReadOnly { .. } | StoreError::InTheWay { .. } => "spool_not_writable",
        _ if err.is_passing() => "spool_busy",
        _ => "store_error",
    };
    ControlError::new(code, err.to_string())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_caller_can_tell_a_full_disk_from_a_full_spool_and_from_a_broken_one() {
        let path = || std::path::PathBuf::from("spool.db");
        let io = |kind: io::ErrorKind| StoreError::Io { doing: "open", path: path(), source: kind.into() };
        for (err, code) in [
            (StoreError::LimitReached { what: "the spool", limit: 1 }, "spool_full"),
            (StoreError::Full { path: path() }, "disk_full"),
            (io(io::ErrorKind::StorageFull), "disk_full"),
            (StoreError::ReadOnly { path: path() }, "spool_not_writable"),
            (StoreError::Locked { path: path() }, "spool_busy"),
            (io(io::ErrorKind::Other), "store_error"),
        ] {
            assert_eq!(store_error(&err).code, code, "{err}");
        }
    }
}
