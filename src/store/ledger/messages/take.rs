//! Taking a message: each id once, with its delivery, or a refusal that is remembered.

use super::super::{StoreError, Tx, roster, values};
use super::Queue;
use crate::clock::Wall;
use crate::limits::{DELIVERY_TTL, QUEUE_MAX};
use crate::proto::wire::{NakCode, SendFrame};

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

/// Stores a message and its one delivery.
pub(super) fn add(
    tx: &Tx<'_>,
    queue: &Queue,
    from_host: &str,
    frame: &SendFrame,
    now: Wall,
) -> Result<(), StoreError> {
    let message_seq = insert(tx, &queue.org_id, from_host, frame, None, now)?;
    deliver(tx, message_seq, queue, &frame.from, now)
}

/// Stores a message, of a room with the room and its number there; answers what its deliveries refer to.
pub(super) fn insert(
    tx: &Tx<'_>,
    org_id: &str,
    from_host: &str,
    frame: &SendFrame,
    room: Option<(i64, i64)>,
    now: Wall,
) -> Result<Option<i64>, StoreError> {
    tx.insert(
        "INSERT INTO message (org_id, id, host, sender, recipient, body, reply_to, ts, created_at, room_seq,
                              room_number)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        values![
            org_id,
            &frame.id,
            from_host,
            &frame.from,
            &frame.to,
            &frame.body,
            frame.reply_to.as_deref(),
            &frame.ts,
            now,
            room.map(|(seq, _)| seq),
            room.map(|(_, number)| number),
        ],
    )
}

/// Stores the delivery of a message to one agent.
pub(super) fn deliver(
    tx: &Tx<'_>,
    message_seq: Option<i64>,
    queue: &Queue,
    sender: &str,
    now: Wall,
) -> Result<(), StoreError> {
    let Queue { org_id, host, agent } = queue;
    tx.execute(
        "INSERT INTO message_delivery (org_id, message_seq, host, agent, sender, state, held, attempts,
                                       next_attempt_at, expires_at, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, 'queued', 0, 0, ?6, ?7, ?6, ?6)",
        values![org_id, message_seq, host, agent, sender, now, now + DELIVERY_TTL],
    )?;
    Ok(())
}

/// Deliveries that wait for an agent; counting ends at the limit.
pub(super) fn waiting(tx: &Tx<'_>, queue: &Queue) -> Result<u64, StoreError> {
    let count = tx.one(
        "SELECT COUNT(*) FROM (SELECT 1 FROM message_delivery
         WHERE org_id = ?1 AND host = ?2 AND agent = ?3 AND state = 'queued' LIMIT ?4) AS q",
        values![&queue.org_id, &queue.host, &queue.agent, QUEUE_MAX as i64],
        |row| row.get::<i64>(0),
    )?;
    Ok(count.unwrap_or(0).unsigned_abs())
}
