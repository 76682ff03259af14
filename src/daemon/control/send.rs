//! Sending a message: keeping it, handing it to an agent of this host at once, and waiting a little for what it comes
//! to.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use serde_json::json;

use super::{Answer, store_error};
use crate::addr::{Addr, AgentAddr, Name};
use crate::clock::Wall;
use crate::daemon::host::{Host, SendOutcome};
use crate::daemon::registry::Session;
use crate::id::IdKind;
use crate::limits;
use crate::proto::control::ControlError;
use crate::proto::envelope::{self, Envelope, Kind};
use crate::store::StoreError;
use crate::store::spool::inbox::Delivery;
use crate::store::spool::outbox::{EntryKind, NewEntry};

/// Time that the sender of a message waits at most for more than its being kept.
const SEND_WAIT: Duration = Duration::from_secs(10);

/// What a caller wants to be sent.
pub(super) struct Asked {
    /// The address, as it was written.
    pub to: String,
    /// The text.
    pub body: String,
    /// The id of the message that this one answers.
    pub reply_to: Option<String>,
    /// How long to wait for more than its being kept.
    pub wait: Option<Duration>,
}

/// Keeps a message, then waits a little for what it comes to.
pub(super) fn send(host: &Host, sender: &Session, asked: &Asked) -> Answer {
    let Asked { to, body, reply_to, wait } = asked;
    let to: Addr = to.parse().map_err(|err| ControlError::new("bad_address", format!("{err}")))?;
    if body.is_empty() {
        return Err(ControlError::new("bad_request", "the message is empty"));
    }
    if body.len() > limits::BODY_BYTES {
        let text = format!("the message has {} bytes, {} are allowed", body.len(), limits::BODY_BYTES);
        return Err(ControlError::new("body_too_large", text));
    }
    if reply_to.as_ref().is_some_and(|id| IdKind::of(id).is_none()) {
        return Err(ControlError::new("bad_request", "reply_to is no id"));
    }
    let id = IdKind::Message.fresh();
    let waiting = Waiting { host, id: &id, told: host.wait_for(&id) };
    let link = host.link();
    let message = Message {
        id: &id,
        from: &sender.address,
        to: &to,
        body,
        reply_to: reply_to.as_deref(),
        at: host.wall(),
    };
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
    let wait = if is_worth_waiting { wait.unwrap_or(SEND_WAIT).min(SEND_WAIT) } else { Duration::ZERO };
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
    told: Receiver<SendOutcome>,
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
