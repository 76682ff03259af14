//! What gets into an inbox of this host without the Worker's bringing it: messages between its agents, and words of the
//! system to one of them.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::host::Host;
use crate::addr::{AgentAddr, Name};
use crate::clock::Wall;
use crate::id::IdKind;
use crate::proto::envelope::{self, Envelope, Kind, SYSTEM};
use crate::store::StoreError;
use crate::store::spool::Spool;
use crate::store::spool::inbox::Delivery;
use crate::store::spool::outbox::Entry;

/// What the sender of a message hears that nobody has taken in time; the Worker says the same.
const WAITED: &str = "it waited for 24 h";

/// A message that an agent of this host sends.
pub(super) struct Message<'a> {
    pub(super) id: &'a str,
    /// The sender's address.
    pub(super) from: &'a str,
    /// An agent's address, or `#room`.
    pub(super) to: &'a str,
    pub(super) body: &'a str,
    pub(super) reply_to: Option<&'a str>,
    pub(super) at: Wall,
}

/// Hands a message to an agent of this host. What comes back from the Worker is recognised by its id.
pub(super) fn put(
    host: &Host,
    spool: &mut Spool,
    message: &Message<'_>,
    agent: &Name,
) -> Result<(), StoreError> {
    let delivery = delivery(message, agent);
    let is_clipped = || envelope::parse(&delivery.envelope).is_ok_and(|seen| seen.truncated);
    if host.link().url.is_none() && is_clipped() {
        // There is no Worker that would have the rest.
        spool.put_local_whole(&delivery, message.body, message.at)?;
    } else {
        spool.put_local(&delivery, message.at)?;
    }
    host.registry.wake(agent.as_str());
    Ok(())
}

fn delivery(message: &Message<'_>, agent: &Name) -> Delivery {
    let envelope = envelope::render(&Envelope {
        from: message.from.to_owned(),
        id: message.id.to_owned(),
        ts: message.at.to_string(),
        reply_to: message.reply_to.map(str::to_owned),
        body: message.body.to_owned(),
        kind: Kind::Dm,
    });
    Delivery { id: message.id.to_owned(), agent: agent.to_string(), envelope, redelivery: 0 }
}

/// The Worker has taken a message that went round: it may be handed over. The Worker brings it as well, so that nothing
/// is lost when this fails.
pub(super) fn put_taken(host: &Host, spool: &mut Spool, entry: &Entry) -> Result<(), StoreError> {
    let to = entry.dest.parse::<AgentAddr>().ok().filter(|to| to.host == host.name());
    let (Some(to), Some(from), Ok(body)) = (to, &entry.from, std::str::from_utf8(&entry.body)) else {
        return Ok(());
    };
    let reply_to = entry.reply_to.as_deref();
    let message = Message { id: &entry.id, from, to: &entry.dest, body, reply_to, at: entry.created_at };
    put(host, spool, &message, &to.name)
}

/// Tells an agent of this host that its message did not get to `to`, once, however often this is called. A word of the
/// system has nobody to be told.
pub(super) fn put_bounce(
    host: &Host,
    spool: &mut Spool,
    (id, from, to): (&str, &str, &str),
    why: &str,
) -> Result<(), StoreError> {
    let Some(bounce) = bounce(host, (id, from, to), why) else { return Ok(()) };
    spool.put_local(&bounce, host.wall())?;
    host.registry.wake(&bounce.agent);
    Ok(())
}

/// Ends what has come by `before` for agents of this host, and still waits, if there is no Worker to see to that. Each
/// sender is told, once.
pub(super) fn end_overdue(host: &Host, spool: &mut Spool, before: Wall) -> Result<(), StoreError> {
    for overdue in spool.overdue(before)? {
        let from = envelope::sender(&overdue.envelope).unwrap_or_default();
        let to = format!("{}@{}", overdue.agent, host.name());
        let bounce = bounce(host, (&overdue.id, from, &to), WAITED);
        if spool.end(&overdue, bounce.as_ref(), host.wall())? {
            tracing::info!(id = overdue.id, agent = overdue.agent, "a message has waited for too long");
            if let Some(bounce) = bounce {
                host.registry.wake(&bounce.agent);
            }
        }
    }
    Ok(())
}

/// The envelope that tells an agent of this host that its message did not get to `to`.
pub(super) fn bounce(host: &Host, (id, from, to): (&str, &str, &str), why: &str) -> Option<Delivery> {
    let sender = from.parse::<AgentAddr>().ok()?;
    let message = Message {
        id: &bounce_id(id, to),
        from: SYSTEM,
        to: from,
        body: &format!("undeliverable to {to}: {why}"),
        reply_to: Some(id),
        at: host.wall(),
    };
    Some(delivery(&message, &sender.name))
}

/// The id of what tells that a message did not get to `to`.
fn bounce_id(id: &str, to: &str) -> String {
    let digest = Sha256::digest(format!("bounce {to} {id}"));
    IdKind::Message.from_bytes(std::array::from_fn(|at| digest[at]))
}

/// Tells an agent of this host that it may write to `to` again, `wait` from now.
pub(super) fn put_notice(host: &Host, from: &str, to: &str, wait: Duration) -> Result<(), StoreError> {
    let Ok(sender) = from.parse::<AgentAddr>() else { return Ok(()) };
    // The wall clock counts whole milliseconds, and it must be cool by then.
    let due = host.wall() + wait + Duration::from_millis(1);
    let id = IdKind::Message.fresh();
    let envelope = envelope::render(&Envelope {
        from: SYSTEM.to_owned(),
        id: id.clone(),
        ts: due.to_string(),
        reply_to: None,
        body: format!("messages to {to} pass again: the loop guard that refused one has cooled"),
        kind: Kind::Dm,
    });
    let notice = Delivery { id, agent: sender.name.to_string(), envelope, redelivery: 0 };
    host.spool()?.put_notice(&notice, due, host.wall())?;
    host.registry.wake(sender.name.as_str());
    Ok(())
}
