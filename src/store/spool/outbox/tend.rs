//! What a person does to entries: make them due, take them out, bring them in from elsewhere.
//!
//! Many entries are changed in small commits, so that no sender waits for long behind one.

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::{Entry, Outbox, State, free_lapsed, read_claim, read_state, store};
use crate::clock::Wall;
use crate::store::StoreError;
use crate::store::process::Process;

/// Rows that are changed in one commit.
const BATCH: i64 = 256;

/// What became of an entry that was to be due now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    /// It is due now.
    Due,
    /// The other side has it already.
    Sent,
    /// This process is trying it.
    Claimed(Process),
    /// There is no such entry.
    Unknown,
}

/// What became of an entry that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// It is gone.
    Gone,
    /// This process is trying it, and what that comes to must be written down.
    Claimed(Process),
    /// There is no such entry.
    Unknown,
}

/// How many entries came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    /// They were not there.
    pub new: u64,
    /// Their ids were there; nothing changed.
    pub known: u64,
}

impl Outbox<'_> {
    /// Makes an entry due now; a dead one lives again. It keeps its attempts and its age.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn retry_now(&mut self, id: &str, now: Wall) -> Result<Retried, StoreError> {
        self.0.write(|tx| {
            free_lapsed(tx)?;
            match standing(tx, id)? {
                None => Ok(Retried::Unknown),
                Some((State::Sent, _)) => Ok(Retried::Sent),
                Some((_, Some(by))) => Ok(Retried::Claimed(by)),
                Some(_) => make_due(tx, "id = ?1", id, now).map(|_| Retried::Due),
            }
        })
    }

    /// Makes every dead entry due now. Answers how many that were.
    ///
    /// # Errors
    /// Whatever the disk says; what was done before stays done.
    pub fn retry_dead(&mut self, now: Wall) -> Result<u64, StoreError> {
        let (mut count, mut after) = (0, 0);
        loop {
            let found = self.0.read(|db| places(db, "state = 'dead'", after, Wall(i64::MAX)))?;
            let Some(last) = found.last() else { return Ok(count) };
            after = *last;
            count += self.0.write(|tx| {
                let due = |seq: &i64| make_due(tx, "seq = ?1 AND state = 'dead'", seq, now);
                found.iter().map(due).sum::<rusqlite::Result<usize>>()
            })? as u64;
        }
    }

    /// Removes an entry, whatever its state, unless a process is trying it right now.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn remove(&mut self, id: &str) -> Result<Removed, StoreError> {
        self.0.write(|tx| {
            free_lapsed(tx)?;
            match standing(tx, id)? {
                None => Ok(Removed::Unknown),
                Some((_, Some(by))) => Ok(Removed::Claimed(by)),
                Some(_) => {
                    tx.prepare_cached("DELETE FROM outbox WHERE id = ?1")?.execute([id])?;
                    Ok(Removed::Gone)
                }
            }
        })
    }

    /// Removes the entries of this state that have been in it since before `before`; of pending ones those that
    /// were added before it. What a process is trying stays. Answers how many are gone.
    ///
    /// # Errors
    /// Whatever the disk says; what was done before stays done.
    pub fn purge(&mut self, state: State, before: Wall) -> Result<u64, StoreError> {
        let which = match state {
            State::Pending | State::Claimed => "state IN ('pending', 'claimed') AND created_at < ?2",
            State::Sent => "state = 'sent' AND updated_at < ?2",
            State::Dead => "state = 'dead' AND updated_at < ?2",
        };
        let (mut count, mut after) = (0, 0);
        loop {
            let found = self.0.read(|db| places(db, which, after, before))?;
            let Some(last) = found.last() else { return Ok(count) };
            after = *last;
            count += self.0.write(|tx| {
                free_lapsed(tx)?;
                // Looked at again: what was found may have moved on meanwhile.
                let sql = format!("DELETE FROM outbox WHERE seq = ?1 AND state <> 'claimed' AND {which}");
                let mut delete = tx.prepare_cached(&sql)?;
                found.iter().map(|seq| delete.execute((seq, before.0))).sum::<rusqlite::Result<usize>>()
            })? as u64;
        }
    }

    /// Brings in entries from elsewhere, all in one commit. What is claimed there is pending here, and an id that is
    /// here already changes nothing. The limit on what waits is not asked: all of these were accepted once.
    ///
    /// # Errors
    /// Whatever the disk says; none of them is in then.
    pub fn import(&mut self, entries: &[Entry]) -> Result<Imported, StoreError> {
        self.0.write(|tx| {
            let mut imported = Imported::default();
            for entry in entries {
                if standing(tx, &entry.id)?.is_some() {
                    imported.known += 1;
                    continue;
                }
                match entry.state {
                    State::Claimed => store(tx, &Entry { state: State::Pending, ..entry.clone() }, None)?,
                    _ => store(tx, entry, None)?,
                }
                imported.new += 1;
            }
            Ok(imported)
        })
    }
}

/// How an entry stands, and whose it is.
fn standing(db: &Connection, id: &str) -> rusqlite::Result<Option<(State, Option<Process>)>> {
    db.prepare_cached("SELECT state, claim_pid, claim_start FROM outbox WHERE id = ?1")?
        .query_row([id], |row| {
            let state = read_state(row, 0)?;
            let claim = (state == State::Claimed).then(|| read_claim(row, 1)).transpose()?;
            Ok((state, claim))
        })
        .optional()
}

/// The next places of rows of which `which` is true, after the place `after`; the second parameter is `before`.
fn places(db: &Connection, which: &str, after: i64, before: Wall) -> rusqlite::Result<Vec<i64>> {
    // Not every condition asks for the second parameter, and all statements are given it.
    let sql = format!(
        "SELECT seq FROM outbox NOT INDEXED WHERE seq > ?1 AND ?2 IS NOT NULL AND {which} ORDER BY seq LIMIT ?3"
    );
    db.prepare_cached(&sql)?.query_map(params![after, before.0, BATCH], |row| row.get(0))?.collect()
}

fn make_due(
    tx: &Transaction<'_>,
    which: &str,
    key: impl rusqlite::ToSql,
    now: Wall,
) -> rusqlite::Result<usize> {
    let sql =
        format!("UPDATE outbox SET state = 'pending', next_attempt_at = ?2, updated_at = ?2 WHERE {which}");
    tx.prepare_cached(&sql)?.execute(params![key, now.0])
}
