//! `transit.sock`: one call, one answer, and the connection closes. Who calls is what the kernel says.

mod alone;
mod care;
mod inbox;
pub(super) mod send;

use std::os::unix::net::UnixStream;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::claim;
use super::fate;
use super::herdr;
use super::host::Host;
use super::local_api::Standing;
use super::peer::lineage;
use super::registry::{Caller, Hint};
use super::session::Session;
use crate::addr::Name;
use crate::clock::Mono;
use crate::limits;
use crate::net::line::LineSocket;
use crate::net::unix::Peer;
use crate::net::wake::Wake;
use crate::proto::agent::NOT_VISIBLE;
use crate::proto::control::{Call, ControlError, Op, failure, ok};
use crate::proto::lines::Line;
use crate::store::StoreError;

/// Time for a call to come, and for its answer to be read.
const CALL_WAIT: Duration = Duration::from_secs(35);

/// Longer than an adapter waits before it connects anew.
const RETURN_WAIT: Duration = Duration::from_secs(60);

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
            // There is one call and no more, so that the end of it is told by the end of the caller's writing as well.
            Err(_) => return socket.rest(),
        }
        let left = until.since(host.now());
        if left.is_zero() || host.stop.is_triggered() || socket.wait(wake, left).is_err() {
            return None;
        }
    }
}

fn answer(host: &Host, call: Call, peer: Peer) -> Answer {
    let hint = Hint { pane_id: call.pane_id.as_deref(), session_id: call.session_id.as_deref() };
    let caller = || caller(host, peer, hint, call.as_agent.as_deref());
    match call.op {
        Op::Status => status(host),
        Op::Kick => {
            host.kick();
            Ok(json!({ "kicked": true }))
        }
        Op::Pause { paused, toggle } => care::pause(host, paused, toggle),
        Op::Reload => care::reload(host),
        Op::Probe { to, body } => {
            let (reply_to, wait, far) = (None, Some(Duration::ZERO), true);
            send::send(host, &caller()?, &send::Asked { to, body, reply_to, wait, far, id: None })
        }
        Op::Trace { id } => care::trace(host, &id),
        Op::Whoami => {
            let session = caller()?;
            let connected = host.link().connected;
            let mut told = json!({
                "address": session.address, "host": host.name(), "connected": connected,
                "harness": session.who.harness, "session_id": session.who.session_id,
            });
            if call.as_agent.is_some() && matches!(session_of(host, peer, hint), Caller::Nobody) {
                told["as_agent"] = true.into();
            }
            Ok(told)
        }
        Op::ClaimName { name } => claim::ask(&caller()?, &name).map(|place| {
            json!({ "address": format!("{}@{}", place.name, host.name()), "generation": place.generation })
        }),
        Op::Inbox => inbox::inbox(host),
        Op::Send { to, body, reply_to, wait_ms } => {
            let wait = wait_ms.map(Duration::from_millis);
            send::send(host, &caller()?, &send::Asked { to, body, reply_to, wait, far: false, id: None })
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
fn caller(host: &Host, peer: Peer, hint: Hint<'_>, as_agent: Option<&str>) -> Result<Session, ControlError> {
    if peer.pid == 0 {
        // Which session it runs in cannot be told, so that it may not speak as any.
        return Err(ControlError::new("pid_not_visible", NOT_VISIBLE));
    }
    match (session_of(host, peer, hint), as_agent) {
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
        (Caller::Absent, _) => {
            let text = "the session that this process was started for is not back since transitd was started";
            Err(ControlError::new("session_absent", text))
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

/// The session that the calling process runs in.
fn session_of(host: &Host, peer: Peer, hint: Hint<'_>) -> Caller {
    let line = lineage(peer.pid);
    let may_come_back = host.uptime() < RETURN_WAIT;
    // A session that registers just now is neither awaited any more nor there yet.
    let _nobody_registers =
        may_come_back.then(|| host.registering.lock().unwrap_or_else(PoisonError::into_inner));
    match host.registry.caller(&line, hint, |id| may_come_back && is_awaited(host, id)) {
        Caller::Nobody => herdr::caller(host, &line, hint.pane_id).unwrap_or(Caller::Nobody),
        found => found,
    }
}

/// Whether a session that is not there may be about to come back: its adapter has lost its daemon, and has not found this
/// one yet.
fn is_awaited(host: &Host, session_id: &str) -> bool {
    let started = host.wall() - host.uptime();
    host.spool().and_then(|spool| spool.knew_session(session_id, started)).unwrap_or_else(|err| {
        tracing::error!(%err, "could not look for a session");
        true
    })
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
    let api_error = host.api().and_then(|standing| match standing {
        Standing::Listening(_) => None,
        Standing::Waiting(why) => Some(why),
    });
    Ok(json!({
        "host": host.name(),
        "worker_url": link.url,
        "enrolled": is_enrolled,
        "org": link.org,
        "connected": link.connected,
        "paused": host.is_paused(),
        "agents": agents,
        "outbox": outbox.pending,
        "inbox": inbox.waiting,
        "dead": outbox.dead,
        "last_error": last_error,
        "api_sock": host.api_sock(),
        "api_error": api_error,
        "herdr": host.herdr.status(),
        "draft_holds": host.herdr.holds(),
        "delivery_mode": host.herdr.mode(),
        "uptime_seconds": host.uptime().as_secs(),
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

/// Calls the Worker in the caller's name. Whatever the parameters say of the caller is replaced.
fn rpc(host: &Host, caller: &Session, method: String, params: Value) -> Answer {
    let mut params = match params {
        Value::Object(params) => params,
        Value::Null => Map::new(),
        _ => return Err(ControlError::new("bad_params", "params is no object")),
    };
    params.insert("caller".to_owned(), Value::String(caller.address.clone()));
    if host.link().url.is_none() {
        return alone::answer(host, caller, &method, &params);
    }
    let offline = |why: &str| ControlError::new("rpc_failed", format!("{method} needs the Worker: {why}"));
    let link = host.link();
    if !link.connected {
        return Err(offline(link.last_error.as_deref().unwrap_or("this host is not connected")));
    }
    let settles = matches!(method.as_str(), "chat_reply" | "mark_handled");
    let delivery = params.get("delivery_id").and_then(Value::as_str).filter(|_| settles).map(str::to_owned);
    // What is not even asked is `rpc_failed` as well; of any other end it is not known what it left done.
    let answered = host.call(method.clone(), Value::Object(params));
    match answered.recv_timeout(limits::RPC_WAIT + Duration::from_secs(1)) {
        Ok(Ok(result)) => {
            if let Some(id) = delivery {
                take_out(host, &id);
            }
            Ok(json!({ "result": result }))
        }
        Ok(Err(err)) => Err(ControlError::new(&err.code, err.message)),
        Err(_) => {
            let text = format!("the connection to the Worker ended before {method} was answered");
            Err(ControlError::new("rpc_error", text))
        }
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
