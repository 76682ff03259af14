//! Direct messages and their deliveries: queued → injected | dead.
//!
//! A queue belongs to one agent and is read along `seq`. A delivery that was refused, or whose answer was lost
//! with its connection, is *held* until it is settled: the sender's later messages to the same agent wait behind
//! it.

mod fate;

pub use self::fate::{Fate, Recipient, fate};
use super::{Row, StoreError, Tx, roster, values};
use crate::clock::{Backoff, Wall};
use crate::id::IdKind;
use crate::limits::{DELIVERY_ATTEMPTS, DELIVERY_TTL, QUEUE_MAX};
use crate::proto::wire::{NakCode, SendFrame};

/// The sender of bounces, and the host that their rows name.
pub const SYSTEM: &str = "transit";
/// What a daemon says when a person is typing where the envelope would go: it costs no attempt.
pub const DRAFT_BUSY: &str = "draft_busy";

/// What is remembered of a message id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The host that used the id first.
    pub host: String,
    /// The permanent refusal; without one the message was taken.
    pub nak: Option<NakCode>,
}

/// What became of a message that was handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Stored now, with its delivery.
    Stored {
        /// Places that are left in the agent's queue, if they were counted.
        free: Option<u64>,
    },
    /// The id was known: the answer is the one that was given before.
    Before(Option<NakCode>),
    /// Not taken; permanent refusals are remembered.
    Refused(NakCode),
}

/// A delivery that may go out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Its place in the queue.
    pub seq: i64,
    /// The message.
    pub id: String,
    /// The sender's address.
    pub sender: String,
    /// The whole text.
    pub body: String,
    /// What it answers.
    pub reply_to: Option<String>,
    /// When it was sent, as the sender's daemon wrote it.
    pub ts: String,
    /// Attempts before this one.
    pub attempts: u32,
}

/// An agent whose queue has changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Queue {
    /// The organisation.
    pub org_id: String,
    /// The host.
    pub host: String,
    /// The agent.
    pub agent: String,
}

impl Queue {
    /// Reads organisation, host and agent, in this order.
    pub(super) fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        Ok(Self { org_id: row.get(0)?, host: row.get(1)?, agent: row.get(2)? })
    }
}

/// What a refusal came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// It is tried again then.
    Later(Wall),
    /// It is dead; the queue, if any, is the one that now holds a bounce for the sender.
    Dead(Option<Queue>),
}

/// What is remembered of this id in the organisation.
///
/// # Errors
/// When the ledger cannot be read.
pub fn known(tx: &Tx<'_>, org_id: &str, id: &str) -> Result<Option<Known>, StoreError> {
    tx.one("SELECT host, nak FROM message WHERE org_id = ?1 AND id = ?2", values![org_id, id], |row| {
        let nak: Option<String> = row.get(1)?;
        Ok(Known { host: row.get(0)?, nak: nak.as_deref().and_then(NakCode::of) })
    })
}

/// Stores a message and its one delivery, unless its id is known, there is no such agent, or its queue is full.
/// Everything that can be refused without the ledger was refused before. `has_place` says that the queue is known not
/// to be full: counting looks at all that waits.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn take(
    tx: &Tx<'_>,
    queue: &Queue,
    from_host: &str,
    frame: &SendFrame,
    has_place: bool,
    now: Wall,
) -> Result<Taken, StoreError> {
    let org_id = &queue.org_id;
    if let Some(known) = known(tx, org_id, &frame.id)? {
        let ours = known.host == from_host;
        return Ok(if ours { Taken::Before(known.nak) } else { Taken::Refused(NakCode::ReservedName) });
    }
    if !roster::is_known(tx, org_id, &queue.host, &queue.agent)? {
        refuse(tx, org_id, from_host, frame, NakCode::NoRoute, now)?;
        return Ok(Taken::Refused(NakCode::NoRoute));
    }
    let free = if has_place { None } else { Some(QUEUE_MAX.saturating_sub(waiting(tx, queue)?)) };
    if free == Some(0) {
        return Ok(Taken::Refused(NakCode::RateLimited));
    }
    add(tx, queue, from_host, frame, now)?;
    Ok(Taken::Stored { free: free.map(|free| free - 1) })
}

/// Remembers that a message was refused for good, so that the answer stays the same.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn refuse(
    tx: &Tx<'_>,
    org_id: &str,
    from_host: &str,
    frame: &SendFrame,
    code: NakCode,
    now: Wall,
) -> Result<(), StoreError> {
    tx.execute(
        "INSERT INTO message (org_id, id, host, sender, recipient, body, ts, nak, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, '', ?6, ?7, ?8) ON CONFLICT (org_id, id) DO NOTHING",
        values![org_id, &frame.id, from_host, &frame.from, &frame.to, &frame.ts, code.as_str(), now],
    )?;
    Ok(())
}

fn add(tx: &Tx<'_>, queue: &Queue, from_host: &str, frame: &SendFrame, now: Wall) -> Result<(), StoreError> {
    let Queue { org_id, host, agent } = queue;
    let message_seq = tx.insert(
        "INSERT INTO message (org_id, id, host, sender, recipient, body, reply_to, ts, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        values![
            org_id,
            &frame.id,
            from_host,
            &frame.from,
            &frame.to,
            &frame.body,
            frame.reply_to.as_deref(),
            &frame.ts,
            now
        ],
    )?;
    tx.execute(
        "INSERT INTO message_delivery (org_id, message_seq, host, agent, sender, state, held, attempts,
                                       next_attempt_at, expires_at, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, 'queued', 0, 0, ?6, ?7, ?6, ?6)",
        values![org_id, message_seq, host, agent, &frame.from, now, now + DELIVERY_TTL],
    )?;
    Ok(())
}

/// Deliveries that wait for an agent; counting ends at the limit.
fn waiting(tx: &Tx<'_>, queue: &Queue) -> Result<u64, StoreError> {
    let count = tx.one(
        "SELECT COUNT(*) FROM (SELECT 1 FROM message_delivery
         WHERE org_id = ?1 AND host = ?2 AND agent = ?3 AND state = 'queued' LIMIT ?4) AS q",
        values![&queue.org_id, &queue.host, &queue.agent, QUEUE_MAX as i64],
        |row| row.get::<i64>(0),
    )?;
    Ok(count.unwrap_or(0).unsigned_abs())
}

/// The deliveries of one agent beyond `after` that may go out now, in their order. One that is held lets nobody
/// of its sender pass.
///
/// # Errors
/// When the ledger cannot be read.
pub fn due(tx: &Tx<'_>, queue: &Queue, after: i64, now: Wall, limit: usize) -> Result<Vec<Due>, StoreError> {
    tx.all(
        "SELECT d.seq, m.id, d.sender, m.body, m.reply_to, m.ts, d.attempts
         FROM message_delivery d JOIN message m ON m.seq = d.message_seq
         WHERE d.org_id = ?1 AND d.host = ?2 AND d.agent = ?3 AND d.state = 'queued' AND d.seq > ?4
           AND d.next_attempt_at <= ?5 AND d.attempts < ?6 AND d.expires_at > ?5
           AND NOT EXISTS (SELECT 1 FROM message_delivery e
                           WHERE e.org_id = ?1 AND e.host = ?2 AND e.agent = ?3 AND e.sender = d.sender
                             AND e.state = 'queued' AND e.held = 1 AND e.seq < d.seq)
         ORDER BY d.seq LIMIT ?7",
        values![
            &queue.org_id,
            &queue.host,
            &queue.agent,
            after,
            now,
            DELIVERY_ATTEMPTS,
            i64::try_from(limit).unwrap_or(i64::MAX)
        ],
        |row| {
            Ok(Due {
                seq: row.get(0)?,
                id: row.get(1)?,
                sender: row.get(2)?,
                body: row.get(3)?,
                reply_to: row.get(4)?,
                ts: row.get(5)?,
                attempts: row.get(6)?,
            })
        },
    )
}

/// The next time after `now` at which a delivery of this host is due.
///
/// # Errors
/// When the ledger cannot be read.
pub fn next_due(tx: &Tx<'_>, org_id: &str, host: &str, now: Wall) -> Result<Option<Wall>, StoreError> {
    let next = tx.one(
        "SELECT MIN(next_attempt_at) FROM message_delivery
         WHERE org_id = ?1 AND host = ?2 AND state = 'queued' AND next_attempt_at > ?3",
        values![org_id, host, now],
        |row| row.get::<Option<Wall>>(0),
    )?;
    Ok(next.flatten())
}

/// The queues, of all organisations, in which something is due for an agent that is there: what no hint may have told.
/// Each is looked at up to the first such delivery, however much waits in it.
///
/// # Errors
/// When the ledger cannot be read.
pub fn overdue(tx: &Tx<'_>, now: Wall) -> Result<Vec<Queue>, StoreError> {
    tx.all(
        "SELECT a.org_id, a.host, a.name FROM agent a WHERE a.present = 1
           AND EXISTS (SELECT 1 FROM message_delivery d
                       WHERE d.org_id = a.org_id AND d.host = a.host AND d.agent = a.name
                         AND d.state = 'queued' AND d.next_attempt_at <= ?1)",
        values![now],
        Queue::read,
    )
}

/// Records that a deliver frame goes out for the delivery `seq`, and when it is tried again without an answer.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn attempted(tx: &Tx<'_>, org_id: &str, seq: i64, again_at: Wall, now: Wall) -> Result<(), StoreError> {
    tx.execute(
        "UPDATE message_delivery SET attempts = attempts + 1, next_attempt_at = ?3, updated_at = ?4
         WHERE org_id = ?1 AND seq = ?2 AND state = 'queued'",
        values![org_id, seq, again_at, now],
    )?;
    Ok(())
}

/// The queued delivery that an answer of this host is about; without an agent, the oldest of that id.
fn answered(
    tx: &Tx<'_>,
    org_id: &str,
    host: &str,
    id: &str,
    agent: Option<&str>,
) -> Result<Option<Answered>, StoreError> {
    let read = Answered::read;
    const OF_HOST: &str = "SELECT d.seq, d.agent, d.attempts, d.held
         FROM message m JOIN message_delivery d ON d.message_seq = m.seq
         WHERE m.org_id = ?1 AND m.id = ?2 AND d.host = ?3 AND d.state = 'queued'";
    match agent {
        // There is one at most. Even so the engine would sort it, which costs as much as finding it.
        Some(agent) => tx.one(&format!("{OF_HOST} AND d.agent = ?4"), values![org_id, id, host, agent], read),
        None => tx.one(&format!("{OF_HOST} ORDER BY d.seq LIMIT 1"), values![org_id, id, host], read),
    }
}

struct Answered {
    seq: i64,
    agent: String,
    attempts: u32,
    held: bool,
}

impl Answered {
    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        Ok(Self { seq: row.get(0)?, agent: row.get(1)?, attempts: row.get(2)?, held: row.get(3)? })
    }
}

/// The daemon has it in the agent's session. When others waited behind it, answers whose queue moves on.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn injected(
    tx: &Tx<'_>,
    org_id: &str,
    host: &str,
    id: &str,
    agent: Option<&str>,
    now: Wall,
) -> Result<Option<String>, StoreError> {
    let Some(found) = answered(tx, org_id, host, id, agent)? else { return Ok(None) };
    inject(tx, org_id, found, now)
}

/// The same for the delivery `seq`, by whoever has sent it: nothing has to be found by a random id.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn injected_by_seq(tx: &Tx<'_>, org_id: &str, seq: i64, now: Wall) -> Result<Option<String>, StoreError> {
    let found = tx.one(
        "SELECT seq, agent, attempts, held FROM message_delivery
         WHERE org_id = ?1 AND seq = ?2 AND state = 'queued'",
        values![org_id, seq],
        Answered::read,
    )?;
    found.map_or(Ok(None), |found| inject(tx, org_id, found, now))
}

fn inject(tx: &Tx<'_>, org_id: &str, found: Answered, now: Wall) -> Result<Option<String>, StoreError> {
    tx.execute(
        "UPDATE message_delivery SET state = 'injected', last_error = NULL, updated_at = ?3
         WHERE org_id = ?1 AND seq = ?2",
        values![org_id, found.seq, now],
    )?;
    Ok(found.held.then_some(found.agent))
}

/// The daemon could not deliver it: it is tried again later, or is dead when that is pointless or was tried too
/// often. `None` when it was not queued any more.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn refused(
    tx: &Tx<'_>,
    (org_id, host): (&str, &str),
    id: &str,
    agent: Option<&str>,
    (code, retryable): (&str, bool),
    now: Wall,
) -> Result<Option<(String, Refused)>, StoreError> {
    let Some(found) = answered(tx, org_id, host, id, agent)? else { return Ok(None) };
    let free = code == DRAFT_BUSY;
    if !retryable || (!free && found.attempts >= DELIVERY_ATTEMPTS) {
        let bounced = die(tx, org_id, found.seq, code, now)?;
        return Ok(Some((found.agent, Refused::Dead(bounced))));
    }
    let attempts = if free { found.attempts.saturating_sub(1) } else { found.attempts };
    let next = now + if free { Backoff::DELIVERY.cap } else { Backoff::DELIVERY.after(attempts) };
    tx.execute(
        "UPDATE message_delivery
         SET held = 1, attempts = ?3, next_attempt_at = ?4, last_error = ?5, updated_at = ?6
         WHERE org_id = ?1 AND seq = ?2",
        values![org_id, found.seq, attempts, next, code, now],
    )?;
    Ok(Some((found.agent, Refused::Later(next))))
}

/// Holds the deliveries of a host whose answers were lost with its last connection, and makes them due soon:
/// the daemon first gets the time to send late answers.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn reconnected(tx: &Tx<'_>, org_id: &str, host: &str, due_at: Wall) -> Result<(), StoreError> {
    tx.execute(
        "UPDATE message_delivery SET held = 1, next_attempt_at = ?3
         WHERE org_id = ?1 AND host = ?2 AND state = 'queued' AND held = 0 AND attempts > 0",
        values![org_id, host, due_at],
    )?;
    Ok(())
}

/// Makes the deliveries due that waited for a person to finish typing, and those of `returned`, agents that were
/// not there and are now.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn release(
    tx: &Tx<'_>,
    org_id: &str,
    host: &str,
    returned: &[String],
    now: Wall,
) -> Result<(), StoreError> {
    tx.execute(
        "UPDATE message_delivery SET next_attempt_at = ?3
         WHERE org_id = ?1 AND host = ?2 AND state = 'queued' AND last_error = ?4 AND next_attempt_at > ?3",
        values![org_id, host, now, DRAFT_BUSY],
    )?;
    for agent in returned {
        tx.execute(
            "UPDATE message_delivery SET next_attempt_at = ?3
             WHERE org_id = ?1 AND host = ?2 AND agent = ?4 AND state = 'queued' AND held = 1
               AND next_attempt_at > ?3",
            values![org_id, host, now, agent],
        )?;
    }
    Ok(())
}

/// Ends the deliveries, of all organisations, whose time or attempts are used up. Answers the queues that now
/// hold a bounce.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn expire(tx: &Tx<'_>, now: Wall) -> Result<Vec<Queue>, StoreError> {
    let over = tx.all(
        "SELECT org_id, seq, expires_at <= ?1 FROM message_delivery
         WHERE state = 'queued' AND (expires_at <= ?1 OR (attempts >= ?2 AND next_attempt_at <= ?1))
         LIMIT 500",
        values![now, DELIVERY_ATTEMPTS],
        |row| Ok((row.get::<String>(0)?, row.get::<i64>(1)?, row.get::<bool>(2)?)),
    )?;
    let mut bounced = Vec::new();
    for (org_id, seq, by_time) in over {
        let reason = if by_time { "it waited for 24 h" } else { "it was tried 40 times" };
        bounced.extend(die(tx, &org_id, seq, reason, now)?);
    }
    Ok(bounced)
}

/// Ends one delivery and tells its sender, once. A bounce that cannot be delivered is not bounced.
fn die(tx: &Tx<'_>, org_id: &str, seq: i64, reason: &str, now: Wall) -> Result<Option<Queue>, StoreError> {
    let dead = tx.one(
        "UPDATE message_delivery SET state = 'dead', last_error = COALESCE(last_error || '; ', '') || ?3,
                                     updated_at = ?4
         WHERE org_id = ?1 AND seq = ?2 AND state = 'queued'
         RETURNING (SELECT id FROM message m WHERE m.seq = message_seq), sender, agent, host, last_error",
        values![org_id, seq, reason, now],
        |row| {
            Ok((
                row.get::<String>(0)?,
                row.get::<String>(1)?,
                format!("{}@{}", row.get::<String>(2)?, row.get::<String>(3)?),
                row.get::<String>(4)?,
            ))
        },
    )?;
    let Some((id, sender, recipient, why)) = dead else { return Ok(None) };
    let Some((agent, host)) = sender.split_once('@') else { return Ok(None) };
    let queue = Queue { org_id: org_id.to_owned(), host: host.to_owned(), agent: agent.to_owned() };
    let bounce = SendFrame {
        id: IdKind::Message.fresh(),
        from: SYSTEM.to_owned(),
        to: sender.clone(),
        body: format!("undeliverable to {recipient}: {why}"),
        reply_to: Some(id),
        ts: now.to_string(),
    };
    add(tx, &queue, SYSTEM, &bounce, now)?;
    Ok(Some(queue))
}

/// The text of a message, for an agent that asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The sender's address.
    pub sender: String,
    /// The whole text.
    pub body: String,
    /// The state of the delivery to that agent; `None` when the message was not for it.
    pub state: Option<String>,
}

/// The message with this id, and whether it was for that agent.
///
/// # Errors
/// When the ledger cannot be read.
pub fn text(tx: &Tx<'_>, queue: &Queue, id: &str) -> Result<Option<Text>, StoreError> {
    let read = |row: &Row<'_>| Ok(Text { sender: row.get(0)?, body: row.get(1)?, state: row.get(2)? });
    tx.one(
        "SELECT m.sender, m.body, d.state FROM message m
         LEFT JOIN message_delivery d ON d.message_seq = m.seq AND d.host = ?3 AND d.agent = ?4
         WHERE m.org_id = ?1 AND m.id = ?2 AND m.nak IS NULL",
        values![&queue.org_id, id, &queue.host, &queue.agent],
        read,
    )
}

#[cfg(test)]
mod tests;
