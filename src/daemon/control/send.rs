//! Sending a message: keeping it, handing it to an agent of this host at once, and waiting a little for what it comes
//! to.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use serde_json::json;

use super::{Answer, store_error};
use crate::addr::{Addr, AgentAddr, Name};
use crate::daemon::guard::{Admitted, Held, Road};
use crate::daemon::host::{Host, SendOutcome};
use crate::daemon::near::{Message, put, put_notice};
use crate::daemon::session::Session;
use crate::id::IdKind;
use crate::limits;
use crate::proto::control::ControlError;
use crate::proto::guard::Passing;
use crate::store::StoreError;
use crate::store::spool::outbox::{EntryKind, NewEntry};

/// Time that the sender of a message waits at most for more than its being kept.
const SEND_WAIT: Duration = Duration::from_secs(10);

/// What a caller wants to be sent.
pub(in crate::daemon) struct Asked {
    /// The address, as it was written.
    pub to: String,
    /// The text.
    pub body: String,
    /// The id of the message that this one answers.
    pub reply_to: Option<String>,
    /// How long to wait for more than its being kept.
    pub wait: Option<Duration>,
    /// Whether it is to go through the Worker, if there is one, also to an agent of this host.
    pub far: bool,
    /// The id that it has, if it was given one; a message that is known by it is not sent again.
    pub id: Option<String>,
}

/// Keeps a message, then waits a little for what it comes to.
pub(in crate::daemon) fn send(host: &Host, sender: &Session, asked: &Asked) -> Answer {
    let Asked { to, body, reply_to, wait, far, id } = asked;
    let to: Addr = to.parse().map_err(|err| ControlError::new("bad_address", format!("{err}")))?;
    if body.is_empty() {
        return Err(ControlError::new("bad_request", "the message is empty"));
    }
    if body.len() > limits::BODY_BYTES {
        let text = format!("the message has {} bytes, {} are allowed", body.len(), limits::BODY_BYTES);
        return Err(ControlError::new("body_too_large", text));
    }
    let reply_to = reply_to.as_deref();
    if reply_to.is_some_and(|id| IdKind::of(id).is_none()) {
        return Err(ControlError::new("bad_request", "reply_to is no id"));
    }
    let (id, dest) = (id.clone().unwrap_or_else(|| IdKind::Message.fresh()), to.to_string());
    let waiting = Waiting { host, id: &id, told: host.wait_for(&id) };
    let message = Message { id: &id, from: &sender.address, to: &dest, body, reply_to, at: host.wall() };
    let link = host.link();
    let has_worker = link.url.is_some();
    let near = near(host, &to)?.filter(|_| !far || !has_worker);
    if !has_worker && near.is_none() {
        let text = format!("this host is not enrolled: only its own agents can be written to, not {to}");
        return Err(ControlError::new("not_enrolled", text));
    }
    let admitted = host
        .loops
        .admit(passing(&message), near.is_some(), has_worker, host.now())
        .map_err(|held| refusal(host, &message, held))?;
    let straight = near.filter(|_| admitted.road == Road::Straight);
    if let Err(err) = take(host, &message, has_worker, straight) {
        host.loops.give_back(&id, admitted);
        return Err(store_error(&err));
    }
    let is_worth_waiting = link.connected || (straight.is_some() && !host.is_paused());
    let wait = if is_worth_waiting { wait.unwrap_or(SEND_WAIT).min(SEND_WAIT) } else { Duration::ZERO };
    outcome(host, &message, admitted, waiting.wait(wait))
}

/// Puts a message where it belongs: into the outbox, into the inbox of an agent of this host, or both.
fn take(
    host: &Host,
    message: &Message<'_>,
    has_worker: bool,
    agent: Option<&Name>,
) -> Result<(), StoreError> {
    let mut spool = host.spool()?;
    if has_worker {
        // The Worker has every message in its ledger.
        let entry = NewEntry {
            id: message.id,
            kind: EntryKind::Message,
            dest: message.to,
            from: Some(message.from),
            reply_to: message.reply_to,
            event_key: None,
            body: message.body.as_bytes(),
            secret: None,
        };
        spool.outbox().add(&entry, message.at)?;
        host.uplink.wake();
    }
    let Some(agent) = agent else { return Ok(()) };
    match put(host, &mut spool, message, agent) {
        Err(err) if has_worker => {
            // What is kept for the Worker comes back from there.
            tracing::error!(id = message.id, %err, "could not hand a message over");
            host.loops.goes_round(message.id, message.from, message.to);
            Ok(())
        }
        put => put,
    }
}

/// What a sender is told of its message.
fn outcome(host: &Host, message: &Message<'_>, admitted: Admitted, outcome: Option<SendOutcome>) -> Answer {
    let id = message.id;
    match outcome {
        Some(SendOutcome::Committed) => Ok(json!({ "id": id, "state": "committed" })),
        Some(SendOutcome::Injected) => Ok(json!({ "id": id, "state": "injected", "local": true })),
        Some(SendOutcome::Shown) => Ok(json!({ "id": id, "state": "shown", "local": true })),
        Some(SendOutcome::Returned(why)) => {
            let warning = format!("{} has refused it: {why}", message.to);
            Ok(json!({ "id": id, "state": "spooled", "local": true, "warning": warning }))
        }
        Some(SendOutcome::Refused(code)) => {
            host.loops.give_back(id, admitted);
            Err(ControlError::new(code, "the Worker has refused it").about(id))
        }
        Some(SendOutcome::Held) => {
            host.loops.give_back(id, admitted);
            let held = host.loops.held(passing(message), host.now());
            Err(refusal(host, message, held))
        }
        None => Ok(json!({ "id": id, "state": "spooled", "local": false })),
    }
}

/// A message is refused because agents go round in a loop. Its sender hears of it again when that is over.
fn refusal(host: &Host, message: &Message<'_>, held: Held) -> ControlError {
    let Held { counted, cools_in } = held;
    if host.loops.is_to_be_noticed(message.from, message.to, cools_in, host.now()) {
        tracing::warn!(
            from = message.from,
            to = message.to,
            reply_to = message.reply_to,
            cools_in_s = cools_in.as_secs(),
            "agents go round in a loop"
        );
        if let Err(err) = put_notice(host, message.from, message.to, cools_in) {
            tracing::error!(from = message.from, %err, "could not leave a notice");
        }
    }
    let text = format!(
        "agents have written {counted} times with no person and no event between; messages to {} pass again in {} s",
        message.to,
        cools_in.as_secs().max(1)
    );
    ControlError::new("loop_guard", text)
}

fn passing<'a>(message: &Message<'a>) -> Passing<'a> {
    let Message { id, from, to, reply_to, .. } = *message;
    Passing { org_id: "", from, to, id, reply_to }
}

/// A sender that waits. However its wait ends, it is forgotten.
struct Waiting<'a> {
    host: &'a Host,
    id: &'a str,
    told: Receiver<SendOutcome>,
}

impl Waiting<'_> {
    /// What the message comes to in this time. Whoever is about to tell it is waited for.
    fn wait(&self, wait: Duration) -> Option<SendOutcome> {
        match self.told.recv_timeout(wait) {
            Ok(outcome) => Some(outcome),
            Err(_) if self.host.forget_waiter(self.id) => None,
            Err(_) => self.told.recv().ok(),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.host.forget_waiter(self.id);
    }
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
