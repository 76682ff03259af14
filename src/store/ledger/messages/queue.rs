//! What may go out, and when.

use super::super::{Row, StoreError, Tx, values};
use super::Queue;
use crate::clock::Wall;
use crate::limits::DELIVERY_ATTEMPTS;

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
    /// The room that it was said in, as `#room`, and its number there.
    pub room: Option<(String, u64)>,
}

/// The deliveries of one agent beyond `after` that may go out now, in their order. One that is held lets nobody
/// of its sender pass; one that never went out waits for no time, so that a clock that was set back lets nobody pass
/// it either.
///
/// # Errors
/// When the ledger cannot be read.
pub fn due(tx: &Tx<'_>, queue: &Queue, after: i64, now: Wall, limit: usize) -> Result<Vec<Due>, StoreError> {
    tx.all(
        "SELECT d.seq, m.id, d.sender, m.body, m.reply_to, m.ts, d.attempts, m.room_number,
                CASE WHEN m.room_number IS NULL THEN NULL ELSE m.recipient END
         FROM message_delivery d JOIN message m ON m.seq = d.message_seq
         WHERE d.org_id = ?1 AND d.host = ?2 AND d.agent = ?3 AND d.state = 'queued' AND d.seq > ?4
           AND (d.next_attempt_at <= ?5 OR (d.attempts = 0 AND d.held = 0))
           AND d.attempts < ?6 AND d.expires_at > ?5
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
                room: room(row)?,
            })
        },
    )
}

/// Whether anything that waits for this agent is held, so that [`due`] may pass over what comes after it.
///
/// # Errors
/// When the ledger cannot be read.
pub fn is_held(tx: &Tx<'_>, queue: &Queue) -> Result<bool, StoreError> {
    let found = tx.one(
        "SELECT 1 FROM message_delivery
         WHERE org_id = ?1 AND host = ?2 AND agent = ?3 AND state = 'queued' AND held = 1 LIMIT 1",
        values![&queue.org_id, &queue.host, &queue.agent],
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

fn room(row: &Row<'_>) -> Result<Option<(String, u64)>, StoreError> {
    let Some(number) = row.get::<Option<i64>>(7)? else { return Ok(None) };
    Ok(Some((row.get(8)?, number.unsigned_abs())))
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
