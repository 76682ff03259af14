//! One message to an agent of this host: its run, and what its end means.
//!
//! The run has the message when it exits 0, and not for good when it exits 75, 126 or 127, is killed, or takes too
//! long; any other exit refuses it. Its reply has an id that follows from the message's, so that it is sent once,
//! however often the message comes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::super::engine::Engine;
use super::super::environment::Call;
use super::super::locked;
use super::super::run::Report;
use super::super::stdout::Watch;
use crate::addr::{Addr, AgentAddr};
use crate::daemon::control::send::{Asked, send};
use crate::daemon::session::Session;
use crate::id::IdKind;
use crate::limits::BODY_BYTES;
use crate::proto::assistant::Outcome as Ended;
use crate::proto::envelope::{self, Envelope, Kind, SYSTEM};
use crate::store::StoreError;
use crate::store::home::component;
use crate::store::home::owed::{Owed, Reply};
use crate::store::process::Process;
use crate::store::spool::inbox::Outcome;

/// Where the triggers of these runs come from.
const SOURCE: &str = "transit";
/// Exits that say nothing about the message: EX_TEMPFAIL, what a shell says of a program that it cannot run or find,
/// and a death by signal.
const TRY_LATER: [i32; 4] = [75, 126, 127, -1];
/// Longest variable that the system hands to a process, in bytes, with its name.
const VARIABLE_BYTES: usize = 128 * 1024 - 64;
/// What is wrong when a message could not be put into the spool.
const NOT_KEPT: [&str; 5] = ["disk_full", "spool_busy", "spool_full", "spool_not_writable", "store_error"];
/// What stands behind a reply that is longer than a message may be.
const CLIPPED: &str = "\n… truncated.";

/// A message on its way into a run.
pub(super) struct Message {
    pub(super) agent: String,
    pub(super) id: String,
    session: Session,
    processes: Arc<Mutex<Vec<Process>>>,
    text: String,
    /// What it says, if it can be read.
    envelope: Option<Envelope>,
    conversation: String,
}

impl Message {
    pub(super) fn new(
        agent: String,
        session: Session,
        processes: Arc<Mutex<Vec<Process>>>,
        id: String,
        text: String,
    ) -> Self {
        let envelope = envelope::parse(&text).ok().map(|parsed| parsed.envelope);
        let conversation = envelope.as_ref().map_or_else(|| component(&id), conversation);
        Self { agent, id, session, processes, text, envelope, conversation }
    }

    /// What is run one after the other.
    pub(super) fn line(&self) -> (String, String) {
        (self.agent.clone(), self.conversation.clone())
    }

    /// The id of its reply.
    fn reply_id(&self) -> String {
        let digest = Sha256::digest(format!("reply {} {}", self.session.address, self.id));
        IdKind::Message.from_bytes(std::array::from_fn(|at| digest[at]))
    }
}

/// The session that a message is of: its sender, its room, or its conversation at a connector. Two of them are never
/// called the same.
fn conversation(envelope: &Envelope) -> String {
    let plain = match &envelope.kind {
        // No name holds an underscore.
        Kind::Dm => envelope.from.replace('@', "_"),
        Kind::Room { room, .. } => format!("room_{}", room.trim_start_matches('#')),
        Kind::Channel { connector, conversation_id, .. } => format!("{connector} {conversation_id}"),
    };
    component(&plain)
}

/// Nobody sees it work; but what it calls, its agent calls.
struct Owner<'a>(&'a Mutex<Vec<Process>>);

impl Watch for Owner<'_> {
    fn beginning(&self) -> Box<dyn FnOnce(Process) + '_> {
        let mut processes = locked(self.0);
        Box::new(move |process| processes.push(process))
    }

    fn typing(&self) {}
    fn line(&self, _: &str) {}
}

fn refused(code: &str, retryable: bool) -> Outcome {
    Outcome::Refused { code: code.to_owned(), retryable }
}

/// Runs the agent for a message, sends its reply, and answers what the sender is to be told.
pub(super) fn handle(engine: &Engine, message: &Message) -> Outcome {
    let Some(envelope) = &message.envelope else { return refused("unreadable_envelope", false) };
    if envelope.from == SYSTEM {
        // A bounce, or a notice: there is nobody to answer.
        tracing::info!(
            id = message.id,
            agent = message.agent,
            "the system has written to an agent that is a program"
        );
        return Outcome::Injected;
    }
    match is_replied(engine, message) {
        Ok(true) => return Outcome::Injected,
        Ok(false) => {}
        Err(err) => {
            tracing::error!(id = message.id, %err, "could not look for an earlier reply");
            return refused("reply_not_known", true);
        }
    }
    let payload = json!({ "session_id": message.conversation, "text": message.text }).to_string();
    if payload.len() > VARIABLE_BYTES {
        return refused("payload_too_large", false);
    }
    let reply_to = match &envelope.kind {
        Kind::Dm => &envelope.from,
        Kind::Room { room, .. } => room,
        Kind::Channel { .. } => &message.id,
    };
    let trigger = json!({ "source": SOURCE, "actor": envelope.from, "reply_to": reply_to, "id": message.id });
    if engine.audit("trigger_received", trigger).is_err() {
        return refused("audit_unavailable", true);
    }
    let (actor, session) = (envelope.from.replace('\0', ""), &message.conversation);
    let call = Call { source: SOURCE, session, actor: &actor, reply_to, payload: &payload };
    let report = engine.run(&message.agent, &call, &Owner(&message.processes));
    locked(&message.processes).retain(|process| process.is_alive());
    settle(engine, message, envelope, report)
}

fn settle(engine: &Engine, message: &Message, envelope: &Envelope, report: Report) -> Outcome {
    let has_said = match &report.outcome {
        Ended::Done { reply: Some(_), .. } => !report.reply.trim().is_empty(),
        Ended::Done { reply: None, stdout } => !stdout.trim().is_empty() && !report.reply.trim().is_empty(),
        Ended::Failed { code, .. } if TRY_LATER.contains(code) => return refused("agent_try_later", true),
        Ended::Failed { .. } => return refused("agent_refused", false),
        Ended::TimedOut { .. } => return refused("agent_timeout", true),
        Ended::Stopped => return refused("agent_stopped", true),
        Ended::Blocked { .. } => return refused("agent_blocked", true),
        Ended::NotRun(why) => {
            tracing::warn!(agent = message.agent, why, "could not run an agent");
            return refused("agent_not_started", true);
        }
        Ended::NoAudit => return refused("audit_unavailable", true),
    };
    let said = has_said.then(|| clipped(report.reply));
    let sent = match &envelope.kind {
        Kind::Channel { conversation_id, .. } => owe(engine, message, conversation_id, said),
        // Two programs in one room would answer each other for ever.
        Kind::Room { .. } if envelope.reply_to.is_some() => Ok(()),
        Kind::Room { room, .. } => said.map_or(Ok(()), |said| answer(engine, message, room, said)),
        // It would be run for what it has said itself, and two programs would answer each other, again and again.
        Kind::Dm if envelope.from == message.session.address => Ok(()),
        Kind::Dm if envelope.reply_to.is_some() && is_program(engine, &envelope.from) => Ok(()),
        Kind::Dm => said.map_or(Ok(()), |said| answer(engine, message, &envelope.from, said)),
    };
    match sent {
        Ok(()) => Outcome::Injected,
        Err(why) => {
            tracing::error!(id = message.id, agent = message.agent, why, "could not keep a reply");
            refused("reply_not_kept", true)
        }
    }
}

/// Whether an address is that of an agent of this host that is a program.
fn is_program(engine: &Engine, address: &str) -> bool {
    let host = &engine.host;
    let here = address.parse::<AgentAddr>().ok().filter(|address| address.host == host.name());
    here.and_then(|address| host.registry.get(&address.name)).is_some_and(|session| session.way.gives_way())
}

/// A reply as long as a message may be.
fn clipped(mut reply: String) -> String {
    if reply.len() > BODY_BYTES {
        let longest = BODY_BYTES - CLIPPED.len();
        let end = (0..=longest).rev().find(|at| reply.is_char_boundary(*at)).unwrap_or_default();
        reply.truncate(end);
        reply.push_str(CLIPPED);
    }
    reply
}

/// Sends a reply as a message of the agent. One that nobody can get is dropped; the run is done all the same.
fn answer(engine: &Engine, message: &Message, to: &str, body: String) -> Result<(), String> {
    if to.parse::<Addr>().is_err() {
        tracing::info!(id = message.id, to, "there is no address for a reply");
        return Ok(());
    }
    let asked = Asked {
        to: to.to_owned(),
        body,
        reply_to: Some(message.id.clone()),
        wait: Some(Duration::ZERO),
        far: false,
        id: Some(message.reply_id()),
    };
    match send(&engine.host, &message.session, &asked) {
        Ok(_) => Ok(()),
        Err(err) if NOT_KEPT.contains(&err.code.as_str()) => Err(err.text),
        Err(err) => {
            tracing::warn!(id = message.id, to, code = err.code, "a reply was not sent");
            Ok(())
        }
    }
}

/// Keeps the settlement of a channel delivery for the Worker.
fn owe(engine: &Engine, message: &Message, conversation: &str, said: Option<String>) -> Result<(), String> {
    let reply = Reply {
        caller: message.session.address.clone(),
        delivery_id: message.id.clone(),
        conversation_id: conversation.to_owned(),
        message: said,
        since: engine.host.wall().0,
    };
    Owed::of(&engine.host.paths.data).keep(&reply).map_err(|err| err.to_string())
}

/// Whether the message was handled before, and only that was not noted.
fn is_replied(engine: &Engine, message: &Message) -> Result<bool, StoreError> {
    let (host, id) = (&engine.host, message.reply_id());
    if Owed::of(&host.paths.data).holds(&message.id, &message.session.address) {
        return Ok(true);
    }
    let mut spool = host.spool()?;
    Ok(!spool.local_deliveries(&id)?.is_empty() || spool.outbox().get(&id, host.wall())?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(from: &str, kind: Kind) -> Envelope {
        let (id, ts) = ("tx_001122334455".into(), "2026-01-01T00:00:00Z".into());
        Envelope { from: from.into(), id, ts, reply_to: None, body: "hi".into(), kind }
    }

    #[test]
    fn each_sender_room_and_conversation_is_a_session_and_none_is_a_path() {
        let channel = |connector: &str, conversation_id: &str| Kind::Channel {
            conversation_id: conversation_id.into(),
            connector: connector.into(),
            user: String::new(),
            redelivery: 0,
            read: false,
            trigger: String::new(),
        };
        assert_eq!(conversation(&envelope("jess@titan", Kind::Dm)), "jess_titan");
        let (one, other) = (channel("ingest", "../../x"), channel("ingest", "../../y"));
        let (one, other) = (conversation(&envelope("ingest", one)), conversation(&envelope("ingest", other)));
        assert!(one.starts_with('k') && one.len() == 17 && one != other, "{one}");
    }

    #[test]
    fn a_reply_is_no_longer_than_a_message() {
        assert_eq!(clipped("short".into()), "short");
        let long = clipped("é".repeat(BODY_BYTES));
        assert!(long.len() <= BODY_BYTES && long.ends_with(CLIPPED));
    }
}
