//! Replies to events: one a delivery, recorded before it is posted, posted until it is taken.

use super::deliveries::{self, State};
use super::{Row, StoreError, Tx, values};
use crate::clock::{Backoff, Wall};

/// Attempts whose outcome is kept, the latest ones.
const ATTEMPTS_KEPT: u32 = 50;

/// A reply as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyRow {
    /// What the agent said.
    pub message: String,
    /// Whether the receiver has taken it.
    pub posted: bool,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
}

/// A reply that is to be posted, with what its body says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueReply {
    /// Its organisation.
    pub org_id: String,
    /// The delivery that it answers.
    pub delivery_id: String,
    /// The source of the event.
    pub integration_id: String,
    /// The address of the agent that answered.
    pub agent: String,
    /// What it said.
    pub message: String,
    /// Attempts so far.
    pub attempts: u32,
    /// The event's conversation.
    pub conversation_id: String,
    /// The event's key.
    pub event_key: String,
    /// Who the event is from.
    pub user: Option<String>,
    /// Where the event wants its reply.
    pub reply_url: Option<String>,
    /// The number of the secret that verified the event.
    pub secret_no: i64,
}

impl DueReply {
    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            org_id: row.get(0)?,
            delivery_id: row.get(1)?,
            integration_id: row.get(2)?,
            agent: row.get(3)?,
            message: row.get(4)?,
            attempts: row.get(5)?,
            conversation_id: row.get(6)?,
            event_key: row.get(7)?,
            user: row.get(8)?,
            reply_url: row.get(9)?,
            secret_no: row.get(10)?,
        })
    }
}

/// Records the reply to a delivery, which is settled by it.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn record(
    tx: &Tx<'_>,
    org_id: &str,
    delivery: &deliveries::DeliveryRow,
    message: &str,
    now: Wall,
) -> Result<(), StoreError> {
    let agent = format!("{}@{}", delivery.agent, delivery.host);
    tx.execute(
        "INSERT INTO reply (org_id, delivery_id, integration_id, agent, message, state, attempts,
                            next_attempt_at, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, 'due', 0, ?6, ?6)",
        values![org_id, &delivery.id, &delivery.integration_id, agent, message, now],
    )?;
    deliveries::settle(tx, org_id, &delivery.id, State::Replied, now)
}

/// The reply to a delivery.
///
/// # Errors
/// When the ledger cannot be read.
pub fn get(tx: &Tx<'_>, org_id: &str, delivery_id: &str) -> Result<Option<ReplyRow>, StoreError> {
    tx.one(
        "SELECT message, state, last_error FROM reply WHERE org_id = ?1 AND delivery_id = ?2",
        values![org_id, delivery_id],
        |row| {
            let posted = row.get::<String>(1)? == "posted";
            Ok(ReplyRow { message: row.get(0)?, posted, last_error: row.get(2)? })
        },
    )
}

/// The sources, each with its organisation, that have replies due. A reply whose source was deleted is never due.
///
/// # Errors
/// When the ledger cannot be read.
pub fn due_sources(tx: &Tx<'_>, now: Wall) -> Result<Vec<(String, String)>, StoreError> {
    tx.all(
        "SELECT DISTINCT r.org_id, r.integration_id FROM reply r
         JOIN source s ON s.org_id = r.org_id AND s.integration_id = r.integration_id
         WHERE r.state = 'due' AND r.next_attempt_at <= ?1",
        values![now],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
}

/// The replies of one source that are due, the longest overdue first.
///
/// # Errors
/// When the ledger cannot be read.
pub fn due(
    tx: &Tx<'_>,
    org_id: &str,
    integration_id: &str,
    now: Wall,
    limit: usize,
) -> Result<Vec<DueReply>, StoreError> {
    tx.all(
        "SELECT r.org_id, r.delivery_id, r.integration_id, r.agent, r.message, r.attempts, e.conversation_id,
                e.event_key, e.user_name, e.reply_url, e.secret_no
         FROM reply r
         JOIN event e ON e.org_id = r.org_id
              AND e.seq = (SELECT MIN(d.event_seq) FROM delivery d
                           WHERE d.org_id = r.org_id AND d.id = r.delivery_id)
         WHERE r.org_id = ?1 AND r.integration_id = ?2 AND r.state = 'due' AND r.next_attempt_at <= ?3
         ORDER BY r.next_attempt_at LIMIT ?4",
        values![org_id, integration_id, now, i64::try_from(limit).unwrap_or(i64::MAX)],
        DueReply::read,
    )
}

/// The next time after `now` at which a reply is due.
///
/// # Errors
/// When the ledger cannot be read.
pub fn next_due(tx: &Tx<'_>, now: Wall) -> Result<Option<Wall>, StoreError> {
    let next = tx.one(
        "SELECT MIN(next_attempt_at) FROM reply WHERE state = 'due' AND next_attempt_at > ?1",
        values![now],
        |row| row.get::<Option<Wall>>(0),
    )?;
    Ok(next.flatten())
}

/// The receiver took the reply: the delivery is handled.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn posted(tx: &Tx<'_>, reply: &DueReply, now: Wall) -> Result<(), StoreError> {
    let DueReply { org_id, delivery_id, .. } = reply;
    tx.execute(
        "UPDATE reply SET state = 'posted', attempts = attempts + 1, posted_at = ?3, last_error = NULL
         WHERE org_id = ?1 AND delivery_id = ?2",
        values![org_id, delivery_id, now],
    )?;
    log(tx, reply, None, now)?;
    deliveries::settle(tx, org_id, delivery_id, State::Handled, now)
}

/// An attempt failed; the reply is tried again at the answered time.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn failed(tx: &Tx<'_>, reply: &DueReply, error: &str, now: Wall) -> Result<Wall, StoreError> {
    let next = now + Backoff::CALLBACK.after(reply.attempts + 1);
    tx.execute(
        "UPDATE reply SET attempts = attempts + 1, next_attempt_at = ?3, last_error = ?4
         WHERE org_id = ?1 AND delivery_id = ?2 AND state = 'due'",
        values![&reply.org_id, &reply.delivery_id, next, error],
    )?;
    log(tx, reply, Some(error), now)?;
    Ok(next)
}

fn log(tx: &Tx<'_>, reply: &DueReply, error: Option<&str>, now: Wall) -> Result<(), StoreError> {
    let attempt = reply.attempts + 1;
    let DueReply { org_id, delivery_id, .. } = reply;
    tx.execute(
        "INSERT INTO reply_attempt (org_id, delivery_id, attempt, at, error) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (org_id, delivery_id, attempt) DO NOTHING",
        values![org_id, delivery_id, attempt, now, error],
    )?;
    tx.execute(
        "DELETE FROM reply_attempt WHERE org_id = ?1 AND delivery_id = ?2 AND attempt <= ?3",
        values![org_id, delivery_id, i64::from(attempt) - i64::from(ATTEMPTS_KEPT)],
    )?;
    Ok(())
}
