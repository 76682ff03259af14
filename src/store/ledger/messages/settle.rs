//! What answers, lost connections and rosters do to a delivery.

use super::super::{Row, StoreError, Tx, values};
use super::ending::die;
use super::{DRAFT_BUSY, Queue, is_free};
use crate::clock::{Backoff, Wall};
use crate::limits::DELIVERY_ATTEMPTS;

/// What a refusal came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// It is tried again then.
    Later(Wall),
    /// It is dead; the queue, if any, is the one that now holds a bounce for the sender.
    Dead(Option<Queue>),
}

/// How a delivery has come to its end where it was to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It is durably in the agent's session.
    Injected,
    /// The agent's terminal has shown it, which is all that is known.
    Shown,
}

impl Arrival {
    /// The state that it makes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Injected => "injected",
            Self::Shown => "shown",
        }
    }
}

/// The daemon says that the agent has it. When others waited behind it, answers whose queue moves on.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn arrived(
    tx: &Tx<'_>,
    org_id: &str,
    host: &str,
    id: &str,
    agent: Option<&str>,
    arrival: Arrival,
    now: Wall,
) -> Result<Option<String>, StoreError> {
    let Some(found) = answered(tx, org_id, host, id, agent)? else { return Ok(None) };
    arrive(tx, org_id, found, arrival, now)
}

/// The same for the delivery `seq`, by whoever has sent it: nothing has to be found by a random id.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn arrived_by_seq(
    tx: &Tx<'_>,
    org_id: &str,
    seq: i64,
    arrival: Arrival,
    now: Wall,
) -> Result<Option<String>, StoreError> {
    let found = tx.one(
        "SELECT seq, agent, attempts, held FROM message_delivery
         WHERE org_id = ?1 AND seq = ?2 AND state = 'queued'",
        values![org_id, seq],
        Answered::read,
    )?;
    found.map_or(Ok(None), |found| arrive(tx, org_id, found, arrival, now))
}

fn arrive(
    tx: &Tx<'_>,
    org_id: &str,
    found: Answered,
    arrival: Arrival,
    now: Wall,
) -> Result<Option<String>, StoreError> {
    tx.execute(
        "UPDATE message_delivery SET state = ?3, last_error = NULL, updated_at = ?4
         WHERE org_id = ?1 AND seq = ?2",
        values![org_id, found.seq, arrival.as_str(), now],
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
    let free = is_free(code);
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
