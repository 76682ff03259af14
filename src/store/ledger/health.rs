//! What an operator should know of a ledger that works: what waits too long, and what is nearly full.

use std::time::Duration;

use super::messages::Queue;
use super::{StoreError, Tx, values};
use crate::clock::Wall;
use crate::limits::QUEUE_MAX;

/// A queue of so many is told of: there is time left to do something.
const LONG_QUEUE: u64 = QUEUE_MAX * 9 / 10;
/// A reply that could not be posted for so long is told of.
const LONG_FAILING: Duration = Duration::from_secs(3600);

/// A host that never came, by its organisation's slug and its own.
pub type Unseen = (String, String);

/// The hosts that are enrolled and were never seen.
///
/// # Errors
/// What the engine says.
pub fn unseen_hosts(tx: &Tx<'_>) -> Result<Vec<Unseen>, StoreError> {
    tx.all(
        "SELECT o.slug, h.slug FROM host h JOIN organisation o ON o.id = h.org_id
         WHERE h.last_seen_at IS NULL AND h.revoked_at IS NULL ORDER BY o.slug, h.slug",
        &[],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
}

/// Replies of one source that cannot be posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// The slug of the organisation.
    pub org: String,
    /// The source.
    pub source: String,
    /// How many wait.
    pub replies: u64,
    /// Since when the oldest of them waits.
    pub since: Wall,
    /// One of them.
    pub delivery_id: String,
}

/// The sources whose replies have failed for an hour or more. What a deleted source left is not posted, and does not
/// wait.
///
/// # Errors
/// What the engine says.
pub fn failing_replies(tx: &Tx<'_>, now: Wall) -> Result<Vec<Failing>, StoreError> {
    tx.all(
        "SELECT o.slug, s.name, COUNT(*), MIN(r.created_at), MIN(r.delivery_id)
         FROM reply r
         JOIN source s ON s.org_id = r.org_id AND s.integration_id = r.integration_id
         JOIN organisation o ON o.id = r.org_id
         WHERE r.state = 'due' AND r.attempts > 0 AND r.created_at <= ?1
         GROUP BY o.slug, s.name ORDER BY o.slug, s.name",
        values![now - LONG_FAILING],
        |row| {
            let replies = row.get::<i64>(2)?.unsigned_abs();
            let (org, source) = (row.get(0)?, row.get(1)?);
            Ok(Failing { org, source, replies, since: row.get(3)?, delivery_id: row.get(4)? })
        },
    )
}

/// The queues of messages that are nearly full, and how long they are.
///
/// # Errors
/// What the engine says.
pub fn long_queues(tx: &Tx<'_>) -> Result<Vec<(Queue, u64)>, StoreError> {
    tx.all(
        "SELECT org_id, host, agent, COUNT(*) FROM message_delivery
         WHERE state = 'queued' GROUP BY org_id, host, agent HAVING COUNT(*) >= ?1
         ORDER BY org_id, host, agent",
        values![LONG_QUEUE as i64],
        |row| Ok((Queue::read(row)?, row.get::<i64>(3)?.unsigned_abs())),
    )
}

/// How many messages did not arrive, of those that are still kept.
///
/// # Errors
/// What the engine says.
pub fn dead_messages(tx: &Tx<'_>) -> Result<u64, StoreError> {
    let dead =
        tx.one("SELECT COUNT(*) FROM message_delivery WHERE state = 'dead'", &[], |row| row.get::<i64>(0))?;
    Ok(dead.unwrap_or(0).unsigned_abs())
}
