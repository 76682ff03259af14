//! What is over is removed: settled messages and deliveries, events that nothing refers to, codes that expired.
//!
//! Each table is walked along `seq` from its oldest row, a page at a time, and what was found is then removed in
//! small changes: nobody who waits for a commit waits long for one of these. Whatever still waits stays, however old
//! it is. The newest row of a table stays too: the number of a removed one would be given again, and who has looked at
//! a queue up to that number would not see the row that has it now. The room of what was removed is used again.

use std::time::Duration;

use super::{Row, StoreError, Tx, values};
use crate::clock::Wall;
use crate::limits::{DELIVERIES_KEEP, EVENT_KEY_KEEP, MESSAGES_KEEP};

/// Rows that are looked at with one read.
const PAGE_ROWS: i64 = 500;

/// How long what is settled is kept. `None` is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Messages that are settled or dead, and remembered refusals, since they last moved.
    pub messages: Option<Duration>,
    /// Deliveries of events, with their replies, since they were settled. The events themselves, and so the keys by
    /// which they are known again, stay for 30 days at the least.
    pub deliveries: Option<Duration>,
}

impl Default for Keep {
    fn default() -> Self {
        Self { messages: Some(MESSAGES_KEEP), deliveries: Some(DELIVERIES_KEEP) }
    }
}

/// What is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Messages with their deliveries.
    Messages,
    /// Deliveries of events, with their replies.
    Deliveries,
    /// Events of which no delivery is left.
    Events,
}

impl Table {
    /// All of them; events come after what refers to them.
    pub const ALL: [Self; 3] = [Self::Messages, Self::Deliveries, Self::Events];

    /// Rows of this table that have not moved since this time may be removed. `None` when none may.
    pub fn cutoff(self, keep: Keep, now: Wall) -> Option<Wall> {
        let age = match self {
            Self::Messages => keep.messages,
            Self::Deliveries => keep.deliveries,
            Self::Events => keep.deliveries.map(|_| EVENT_KEY_KEEP),
        };
        age.map(|age| now - age)
    }
}

/// A row that may be removed, by organisation and place.
pub type Over = (String, i64);

/// One page of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// What may be removed.
    pub over: Vec<Over>,
    /// After which row the walk goes on; `None` when it is at its end.
    pub next: Option<i64>,
}

/// Looks at the next page of a table: rows after `after` that have not moved since `cutoff`. A walk ends where
/// rows are too young. One whose time is still to come was written under a wrong clock, and says nothing about the
/// rows after it.
///
/// # Errors
/// What the engine says.
pub fn look(tx: &Tx<'_>, table: Table, after: i64, cutoff: Wall, now: Wall) -> Result<Page, StoreError> {
    let sql = match table {
        Table::Messages => {
            "SELECT m.org_id, m.seq, m.created_at,
                    EXISTS (SELECT 1 FROM message_delivery d WHERE d.message_seq = m.seq
                                                       AND (d.state = 'queued' OR d.updated_at >= ?2
                                                         OR d.seq = (SELECT MAX(seq) FROM message_delivery)))
                    OR m.seq = (SELECT MAX(seq) FROM message)
             FROM message m WHERE m.seq > ?1 ORDER BY m.seq LIMIT ?3"
        }
        Table::Deliveries => {
            "SELECT d.org_id, d.seq, d.created_at,
                    d.state IN ('pending', 'dispatched', 'read') OR d.updated_at >= ?2
                    OR d.seq = (SELECT MAX(seq) FROM delivery)
                    OR EXISTS (SELECT 1 FROM reply r JOIN source s ON s.integration_id = r.integration_id
                               WHERE r.org_id = d.org_id AND r.delivery_id = d.id AND r.state = 'due')
             FROM delivery d WHERE d.seq > ?1 ORDER BY d.seq LIMIT ?3"
        }
        Table::Events => {
            "SELECT e.org_id, e.seq, e.created_at,
                    e.created_at >= ?2 OR EXISTS (SELECT 1 FROM delivery d WHERE d.org_id = e.org_id AND d.id = e.delivery_id)
             FROM event e WHERE e.seq > ?1 ORDER BY e.seq LIMIT ?3"
        }
    };
    let mut page = Page { over: Vec::new(), next: None };
    let mut is_young = false;
    let read =
        |row: &Row<'_>| Ok((row.get::<String>(0)?, row.get(1)?, row.get::<Wall>(2)?, row.get::<bool>(3)?));
    let rows = tx.all(sql, values![after, cutoff, PAGE_ROWS], read)?;
    let is_last = rows.len() < PAGE_ROWS as usize;
    for (org_id, seq, created_at, stays) in rows {
        is_young |= (cutoff..=now).contains(&created_at);
        page.next = Some(seq);
        if !stays && created_at < cutoff {
            page.over.push((org_id, seq));
        }
    }
    if is_young || is_last {
        page.next = None;
    }
    Ok(page)
}

/// Removes these rows, with what belongs to them, unless they have moved meanwhile. Answers how many are gone.
///
/// # Errors
/// What the engine says.
pub fn remove(tx: &Tx<'_>, table: Table, rows: &[Over], cutoff: Wall) -> Result<u64, StoreError> {
    let mut removed = 0;
    for (org_id, seq) in rows {
        removed += u64::from(match table {
            Table::Messages => remove_message(tx, org_id, *seq, cutoff)?,
            Table::Deliveries => remove_delivery(tx, org_id, *seq, cutoff)?,
            Table::Events => remove_event(tx, org_id, *seq)?,
        });
    }
    Ok(removed)
}

fn remove_message(tx: &Tx<'_>, org_id: &str, seq: i64, cutoff: Wall) -> Result<bool, StoreError> {
    let moved = tx.one(
        "SELECT 1 FROM message_delivery
         WHERE org_id = ?1 AND message_seq = ?2 AND (state = 'queued' OR updated_at >= ?3) LIMIT 1",
        values![org_id, seq, cutoff],
        |_| Ok(()),
    )?;
    if moved.is_some() {
        return Ok(false);
    }
    tx.execute("DELETE FROM message_delivery WHERE org_id = ?1 AND message_seq = ?2", values![org_id, seq])?;
    Ok(tx.execute("DELETE FROM message WHERE org_id = ?1 AND seq = ?2", values![org_id, seq])? > 0)
}

fn remove_delivery(tx: &Tx<'_>, org_id: &str, seq: i64, cutoff: Wall) -> Result<bool, StoreError> {
    let id = tx.one(
        "SELECT d.id FROM delivery d
         WHERE d.org_id = ?1 AND d.seq = ?2 AND d.state NOT IN ('pending', 'dispatched', 'read')
           AND d.updated_at < ?3
           AND NOT EXISTS (SELECT 1 FROM reply r JOIN source s ON s.integration_id = r.integration_id
                           WHERE r.org_id = d.org_id AND r.delivery_id = d.id AND r.state = 'due')",
        values![org_id, seq, cutoff],
        |row| row.get::<String>(0),
    )?;
    let Some(id) = id else { return Ok(false) };
    for table in ["reply_attempt", "reply"] {
        // Deliveries of one event may share a reply, which goes with the last of them.
        let sql = format!(
            "DELETE FROM {table} WHERE org_id = ?1 AND delivery_id = ?2
               AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.org_id = ?1 AND d.id = ?2 AND d.seq <> ?3)"
        );
        tx.execute(&sql, values![org_id, &id, seq])?;
    }
    Ok(tx.execute("DELETE FROM delivery WHERE org_id = ?1 AND seq = ?2", values![org_id, seq])? > 0)
}

fn remove_event(tx: &Tx<'_>, org_id: &str, seq: i64) -> Result<bool, StoreError> {
    let removed = tx.execute(
        "DELETE FROM event WHERE org_id = ?1 AND seq = ?2
           AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.org_id = event.org_id AND d.id = event.delivery_id)",
        values![org_id, seq],
    )?;
    Ok(removed > 0)
}

/// Removes the enrolment codes that have expired. Answers how many.
///
/// # Errors
/// What the engine says.
pub fn remove_codes(tx: &Tx<'_>, now: Wall) -> Result<u64, StoreError> {
    Ok(tx.execute("DELETE FROM enroll_code WHERE expires_at <= ?1", values![now])? as u64)
}

#[cfg(test)]
mod tests;
