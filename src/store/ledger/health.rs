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
    count(tx, "SELECT COUNT(*) FROM message_delivery WHERE state = 'dead'")
}

/// How many events their agents have refused for good, of those that are still kept.
///
/// # Errors
/// What the engine says.
pub fn refused_events(tx: &Tx<'_>) -> Result<u64, StoreError> {
    count(tx, "SELECT COUNT(*) FROM delivery WHERE state = 'dead'")
}

fn count(tx: &Tx<'_>, sql: &str) -> Result<u64, StoreError> {
    let counted = tx.one(sql, &[], |row| row.get::<i64>(0))?;
    Ok(counted.unwrap_or(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ledger::tests::with_org;

    const NOW: Wall = Wall(1_700_000_000_000);

    #[test]
    fn what_waits_too_long_or_is_nearly_full_is_told() {
        with_org(|tx, org| {
            let id = org.id.as_str();
            let put = |sql: &str| tx.execute(sql, values![id, NOW]).unwrap();
            for (host, seen, revoked) in
                [("new", "NULL", "NULL"), ("old", "?2", "NULL"), ("gone", "NULL", "?2")]
            {
                put(&format!(
                    "INSERT INTO host (id, org_id, slug, daemon_ver, created_at, last_seen_at, revoked_at)
                     VALUES ('hst_{host}', ?1, '{host}', '1', ?2, {seen}, {revoked})"
                ));
            }
            assert_eq!(unseen_hosts(tx).unwrap(), [("default".to_owned(), "new".to_owned())]);

            put("INSERT INTO source (integration_id, org_id, name, target_addr, prefixes, secret, secret_no, paused,
                                     rate, burst, created_at, updated_at)
                 VALUES ('int_1', ?1, 'ci', 'bob@new', '', '', 1, 0, 1, 1, ?2, ?2)");
            put("INSERT INTO event (id, delivery_id, org_id, integration_id, event_key, conversation_id, content, meta,
                                    digest, secret_no, created_at)
                 VALUES ('evt_1', 'dlv_1', ?1, 'int_1', 'k', 'c', '', '', '', 1, ?2)");
            put("INSERT INTO delivery (org_id, id, event_seq, integration_id, host, agent, state, attempts, shown,
                                       misses, next_attempt_at, created_at, updated_at)
                 VALUES (?1, 'dlv_1', 1, 'int_1', 'new', 'bob', 'replied', 1, 1, 0, ?2, ?2, ?2)");
            put("INSERT INTO reply (org_id, delivery_id, integration_id, agent, message, state, attempts,
                                    next_attempt_at, created_at)
                 VALUES (?1, 'dlv_1', 'int_1', 'bob@new', 'done', 'due', 3, ?2, ?2)");
            assert_eq!(failing_replies(tx, NOW + LONG_FAILING / 2).unwrap(), []);
            let failing = &failing_replies(tx, NOW + LONG_FAILING).unwrap()[0];
            assert_eq!((failing.source.as_str(), failing.replies, failing.since), ("ci", 1, NOW));

            put("INSERT INTO message (org_id, id, host, sender, recipient, body, ts, created_at)
                 VALUES (?1, 'tx_1', 'new', 'amy@new', 'bob@new', '', '', ?2)");
            put("INSERT INTO message_delivery (org_id, message_seq, host, agent, sender, state, held, attempts,
                                               next_attempt_at, expires_at, created_at, updated_at)
                 VALUES (?1, 1, 'new', 'eve', 'amy@new', 'dead', 0, 0, ?2, ?2, ?2, ?2)");
            assert_eq!(long_queues(tx).unwrap(), []);
            assert_eq!((dead_messages(tx).unwrap(), refused_events(tx).unwrap()), (1, 0));
            put("UPDATE delivery SET state = 'dead', updated_at = ?2 WHERE org_id = ?1");
            assert_eq!(refused_events(tx).unwrap(), 1);
        });
    }

    #[test]
    fn a_queue_is_told_before_it_is_full() {
        with_org(|tx, org| {
            for n in 0..LONG_QUEUE {
                assert_eq!(long_queues(tx).unwrap(), [], "{n}");
                let seq = tx
                    .insert(
                        "INSERT INTO message (org_id, id, host, sender, recipient, body, ts, created_at)
                         VALUES (?1, ?2, 'new', 'amy@new', 'bob@new', '', '', ?3)",
                        values![&org.id, format!("tx_{n}"), NOW],
                    )
                    .unwrap();
                tx.execute(
                    "INSERT INTO message_delivery (org_id, message_seq, host, agent, sender, state, held, attempts,
                                                   next_attempt_at, expires_at, created_at, updated_at)
                     VALUES (?1, ?2, 'new', 'bob', 'amy@new', 'queued', 0, 0, ?3, ?3, ?3, ?3)",
                    values![&org.id, seq, NOW],
                )
                .unwrap();
            }
            let long = long_queues(tx).unwrap();
            assert_eq!((long.len(), long[0].0.agent.as_str(), long[0].1), (1, "bob", LONG_QUEUE));
        });
    }
}
