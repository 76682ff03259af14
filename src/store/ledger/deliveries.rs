//! Channel deliveries: pending → dispatched → read → replied → handled.
//!
//! A delivery is shown to its agent until it is settled, and never dies by itself: it is dead only when its agent has
//! refused it for good, and an operator can have that tried again. `shown` counts the deliver frames that were not
//! answered by a nak: it is the `redelivery` of the next one, and it spaces them out.
//!
//! An event that goes to a room is delivered to every member, each at its own pace, under one id; the first to settle
//! it settles it for all. While nobody is in the room the delivery waits for the first who joins, as a row without
//! an agent.

mod add;
mod room;

pub(super) use self::add::{Fresh, add, add_to_room};
pub(super) use self::room::{abandon, adopt, give_up};
use super::messages::{DRAFT_BUSY, Queue, is_free};
use super::{Row, StoreError, Tx, values};
use crate::clock::{Backoff, Wall, channel_redelivery};

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Accepted; not yet in the agent's session.
    Pending,
    /// In the agent's session.
    Dispatched,
    /// The agent has read the whole of it.
    Read,
    /// The agent has replied; the reply is recorded and not yet posted.
    Replied,
    /// Settled: the reply was posted, or none was wanted.
    Handled,
    /// The agent has refused it for good. It may still settle it, and the operator may have it shown again.
    Dead,
}

impl State {
    /// The word that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Dispatched => "dispatched",
            Self::Read => "read",
            Self::Replied => "replied",
            Self::Handled => "handled",
            Self::Dead => "dead",
        }
    }

    /// Whether the agent has nothing to do any more.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Replied | Self::Handled)
    }

    fn of(word: &str) -> Self {
        [Self::Pending, Self::Dispatched, Self::Read, Self::Replied, Self::Dead]
            .into_iter()
            .find(|state| state.as_str() == word)
            .unwrap_or(Self::Handled)
    }
}

/// A delivery with the event that it delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRow {
    /// Its place in the queue.
    pub seq: i64,
    /// `dlv_…`.
    pub id: String,
    /// The source that the event came through.
    pub integration_id: String,
    /// The host of its agent.
    pub host: String,
    /// Its agent.
    pub agent: String,
    /// Where it stands.
    pub state: State,
    /// Deliver frames that were not answered by a nak.
    pub shown: u32,
    /// Attempts since the last ack.
    pub misses: u32,
    /// When the agent read it first.
    pub read_at: Option<Wall>,
    /// The event's conversation.
    pub conversation_id: String,
    /// Who the event is from, as the source says.
    pub user: Option<String>,
    /// Why the source delivers it.
    pub trigger: Option<String>,
    /// The whole text.
    pub content: String,
    /// Where the event wants its reply.
    pub reply_url: Option<String>,
    /// When the event was accepted.
    pub created_at: Wall,
}

impl DeliveryRow {
    const COLUMNS: &str = "d.seq, d.id, d.integration_id, d.host, d.agent, d.state, d.shown, d.misses, \
         d.read_at, e.conversation_id, e.user_name, e.trigger_name, e.content, e.reply_url, e.created_at \
         FROM delivery d JOIN event e ON e.org_id = d.org_id AND e.seq = d.event_seq";

    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            seq: row.get(0)?,
            id: row.get(1)?,
            integration_id: row.get(2)?,
            host: row.get(3)?,
            agent: row.get(4)?,
            state: State::of(&row.get::<String>(5)?),
            shown: row.get(6)?,
            misses: row.get(7)?,
            read_at: row.get(8)?,
            conversation_id: row.get(9)?,
            user: row.get(10)?,
            trigger: row.get(11)?,
            content: row.get(12)?,
            reply_url: row.get(13)?,
            created_at: row.get(14)?,
        })
    }

    /// Whether it is this agent's to settle.
    pub fn is_of(&self, queue: &Queue) -> bool {
        self.host == queue.host && self.agent == queue.agent
    }
}

/// The delivery with this id: this agent's own, or if it has none that of another.
///
/// # Errors
/// When the ledger cannot be read.
pub fn get(tx: &Tx<'_>, agent: &Queue, id: &str) -> Result<Option<DeliveryRow>, StoreError> {
    let own = "AND d.host = ?3 AND d.agent = ?4";
    let sql = format!("SELECT {} WHERE d.org_id = ?1 AND d.id = ?2 {own}", DeliveryRow::COLUMNS);
    let Queue { org_id, host, agent } = agent;
    if let Some(found) = tx.one(&sql, values![org_id, id, host, agent], DeliveryRow::read)? {
        return Ok(Some(found));
    }
    let sql =
        format!("SELECT {} WHERE d.org_id = ?1 AND d.id = ?2 ORDER BY d.seq LIMIT 1", DeliveryRow::COLUMNS);
    tx.one(&sql, values![org_id, id], DeliveryRow::read)
}

/// The unsettled deliveries of one agent beyond `after` that are due, in their order.
///
/// # Errors
/// When the ledger cannot be read.
pub fn due(
    tx: &Tx<'_>,
    queue: &Queue,
    after: i64,
    now: Wall,
    limit: usize,
) -> Result<Vec<DeliveryRow>, StoreError> {
    let sql = format!(
        "SELECT {} WHERE d.org_id = ?1 AND d.host = ?2 AND d.agent = ?3
           AND d.state IN ('pending', 'dispatched', 'read') AND d.seq > ?4 AND d.next_attempt_at <= ?5
         ORDER BY d.seq LIMIT ?6",
        DeliveryRow::COLUMNS
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let Queue { org_id, host, agent } = queue;
    tx.all(&sql, values![org_id, host, agent, after, now, limit], DeliveryRow::read)
}

/// The next time after `now` at which a delivery of this host is due.
///
/// # Errors
/// When the ledger cannot be read.
pub fn next_due(tx: &Tx<'_>, org_id: &str, host: &str, now: Wall) -> Result<Option<Wall>, StoreError> {
    let next = tx.one(
        "SELECT MIN(next_attempt_at) FROM delivery
         WHERE org_id = ?1 AND host = ?2 AND state IN ('pending', 'dispatched', 'read') AND next_attempt_at > ?3",
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
           AND EXISTS (SELECT 1 FROM delivery d
                       WHERE d.org_id = a.org_id AND d.host = a.host AND d.agent = a.name
                         AND d.state IN ('pending', 'dispatched', 'read') AND d.next_attempt_at <= ?1)",
        values![now],
        Queue::read,
    )
}

/// Records that a deliver frame goes out, and when the next one does without an answer. One that is repeated on the
/// connection it went out on before was not shown once more.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn attempted(
    tx: &Tx<'_>,
    org_id: &str,
    seq: i64,
    is_repeated: bool,
    again_at: Wall,
    now: Wall,
) -> Result<(), StoreError> {
    tx.execute(
        "UPDATE delivery SET attempts = attempts + 1, shown = shown + ?5, misses = misses + 1,
                             next_attempt_at = ?3, updated_at = ?4
         WHERE org_id = ?1 AND seq = ?2 AND state IN ('pending', 'dispatched', 'read')",
        values![org_id, seq, again_at, now, !is_repeated],
    )?;
    Ok(())
}

/// The daemon has it in the agent's session: it is shown again only when it stays unsettled.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn dispatched(
    tx: &Tx<'_>,
    org_id: &str,
    host: &str,
    id: &str,
    agent: Option<&str>,
    now: Wall,
) -> Result<Option<DeliveryRow>, StoreError> {
    let Some(found) = unsettled(tx, org_id, host, id, agent)? else { return Ok(None) };
    let state = if found.state == State::Pending { State::Dispatched } else { found.state };
    let next = now + channel_redelivery(found.shown, found.read_at.is_some());
    tx.execute(
        "UPDATE delivery SET state = ?3, misses = 0, next_attempt_at = ?4, last_error = NULL, updated_at = ?5
         WHERE org_id = ?1 AND seq = ?2",
        values![org_id, found.seq, state.as_str(), next, now],
    )?;
    Ok(Some(found))
}

/// The daemon could not deliver it: it is tried again at the answered time, or is dead when that is pointless. An
/// attempt that was refused was not shown, and one that met a person's typing, or a pause, costs nothing at all.
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
) -> Result<Option<(String, Option<Wall>)>, StoreError> {
    let Some(found) = unsettled(tx, org_id, host, id, agent)? else { return Ok(None) };
    let free = is_free(code);
    let state = if retryable { found.state } else { State::Dead };
    let misses = if free { found.misses.saturating_sub(1) } else { found.misses };
    let next = now + if free { Backoff::DELIVERY.cap } else { Backoff::DELIVERY.after(misses) };
    tx.execute(
        "UPDATE delivery SET shown = ?3, misses = ?4, attempts = attempts - ?5, next_attempt_at = ?6,
                             last_error = ?7, updated_at = ?8, state = ?9
         WHERE org_id = ?1 AND seq = ?2",
        values![
            org_id,
            found.seq,
            found.shown.saturating_sub(1),
            misses,
            free,
            next,
            code,
            now,
            state.as_str()
        ],
    )?;
    Ok(Some((found.agent, retryable.then_some(next))))
}

/// The unsettled delivery that an answer of this host is about; without an agent the oldest of that id, one that waits
/// for an answer first.
fn unsettled(
    tx: &Tx<'_>,
    org_id: &str,
    host: &str,
    id: &str,
    agent: Option<&str>,
) -> Result<Option<DeliveryRow>, StoreError> {
    let of_host = format!(
        "SELECT {} WHERE d.org_id = ?1 AND d.id = ?2 AND d.host = ?3
           AND d.state IN ('pending', 'dispatched', 'read')",
        DeliveryRow::COLUMNS
    );
    match agent {
        Some(agent) => {
            let sql = format!("{of_host} AND d.agent = ?4");
            tx.one(&sql, values![org_id, id, host, agent], DeliveryRow::read)
        }
        None => {
            let sql = format!("{of_host} ORDER BY CASE WHEN d.misses > 0 THEN 0 ELSE 1 END, d.seq LIMIT 1");
            tx.one(&sql, values![org_id, id, host], DeliveryRow::read)
        }
    }
}

/// Makes the deliveries of a host due at `due_at` whose answers were lost with its last connection.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn reconnected(tx: &Tx<'_>, org_id: &str, host: &str, due_at: Wall) -> Result<(), StoreError> {
    tx.execute(
        "UPDATE delivery SET next_attempt_at = ?3
         WHERE org_id = ?1 AND host = ?2 AND state IN ('pending', 'dispatched', 'read') AND misses > 0
           AND last_error IS NULL AND next_attempt_at > ?3",
        values![org_id, host, due_at],
    )?;
    Ok(())
}

/// Makes the deliveries due that waited for a person to finish typing, and those that `returned`, agents that
/// were not there and are now, have refused.
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
        "UPDATE delivery SET next_attempt_at = ?3
         WHERE org_id = ?1 AND host = ?2 AND state IN ('pending', 'dispatched', 'read')
           AND last_error = ?4 AND next_attempt_at > ?3",
        values![org_id, host, now, DRAFT_BUSY],
    )?;
    for agent in returned {
        tx.execute(
            "UPDATE delivery SET next_attempt_at = ?3
             WHERE org_id = ?1 AND host = ?2 AND agent = ?4 AND state IN ('pending', 'dispatched', 'read')
               AND last_error IS NOT NULL AND next_attempt_at > ?3",
            values![org_id, host, now, agent],
        )?;
    }
    Ok(())
}

/// The agent reads the whole of it. An unsettled one is shown again later than one that was never read; one that it has
/// refused for good stays so.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn read(tx: &Tx<'_>, org_id: &str, found: &DeliveryRow, now: Wall) -> Result<State, StoreError> {
    if found.state.is_settled() || found.state == State::Dead {
        return Ok(found.state);
    }
    tx.execute(
        "UPDATE delivery SET state = 'read', read_at = COALESCE(read_at, ?3), next_attempt_at = ?4,
                             last_error = NULL, misses = 0, updated_at = ?3
         WHERE org_id = ?1 AND seq = ?2",
        values![org_id, found.seq, now, now + channel_redelivery(found.shown, true)],
    )?;
    Ok(State::Read)
}

/// Moves a delivery to a settled state, for everybody who has it.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn settle(tx: &Tx<'_>, org_id: &str, id: &str, state: State, now: Wall) -> Result<(), StoreError> {
    tx.execute(
        "UPDATE delivery SET state = ?3, updated_at = ?4 WHERE org_id = ?1 AND id = ?2",
        values![org_id, id, state.as_str(), now],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests;
