//! What this host wants to get out: events for sources, messages for the Worker.
//!
//! | from | to | who and when |
//! | --- | --- | --- |
//! | | pending | [`Outbox::add`]: the promise to the sender |
//! | pending | claimed | [`Outbox::claim`], [`Outbox::claim_due`]: one process is about to try |
//! | claimed | pending | [`Outbox::retry_later`] after a passing failure, [`Outbox::release`] without a try |
//! | claimed | pending | anyone, when the claiming process is gone: it costs neither an attempt nor a wait |
//! | claimed | sent | [`Outbox::sent`]: the other side has it |
//! | any but sent | dead | [`Outbox::dead`]: a permanent refusal, or too old |

mod entry;
mod order;
pub(super) mod row;
mod tend;

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, params};

pub(super) use self::entry::{COLUMNS, read_claim, read_entry, read_kind, read_state};
pub use self::entry::{Entry, EntryKind, NewEntry, SecretRef, State};
pub use self::row::{Fault, Row};
pub use self::tend::{Imported, Removed, Retried};
use super::Spool;
use crate::clock::Wall;
use crate::limits;
use crate::store::StoreError;
use crate::store::process::Process;

/// What became of an entry that was to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Added {
    /// It is stored.
    New,
    /// This id was there before, in this state; nothing changed.
    Known(State),
}

/// How many entries are in which state. What is claimed counts as pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// They wait, or are being tried.
    pub pending: u64,
    /// The other side has them.
    pub sent: u64,
    /// Refused or too old.
    pub dead: u64,
}

/// The outbox of a spool. Every change is on the disk when its function returns.
#[derive(Debug)]
pub struct Outbox<'a>(&'a mut Spool);

impl Spool {
    /// What this host wants to get out.
    pub fn outbox(&mut self) -> Outbox<'_> {
        Outbox(self)
    }
}

impl Outbox<'_> {
    /// Adds an entry that is due now.
    ///
    /// # Errors
    /// [`StoreError::LimitReached`] when [`limits::SPOOL_MAX`] entries wait, and whatever the disk says. Nothing
    /// is stored then.
    pub fn add(&mut self, entry: &NewEntry<'_>, now: Wall) -> Result<Added, StoreError> {
        self.0.need_room(entry.body.len())?;
        self.0.write(|tx| insert(tx, entry, now, None))?.ok_or(FULL)
    }

    /// Adds an entry and claims it at once, for a sender that tries by itself. `None` when its id was there before;
    /// nothing changed then.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_claimed(
        &mut self,
        entry: &NewEntry<'_>,
        by: Process,
        now: Wall,
    ) -> Result<Option<Entry>, StoreError> {
        self.0.need_room(entry.body.len())?;
        match self.0.write(|tx| insert(tx, entry, now, Some(by)))?.ok_or(FULL)? {
            Added::New => Ok(Some(Entry { state: State::Claimed, ..entry.to_entry(now) })),
            Added::Known(_) => Ok(None),
        }
    }

    /// Claims one entry, due or not. `None` when there is no such entry, when it is sent or dead, and when a
    /// process that still runs has it.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn claim(&mut self, id: &str, by: Process, now: Wall) -> Result<Option<Entry>, StoreError> {
        self.0.write(|tx| {
            free_lapsed(tx)?;
            let sql = format!("SELECT {COLUMNS} FROM outbox WHERE id = ?1 AND state = 'pending'");
            let found = tx.prepare_cached(&sql)?.query_row([id], |row| read_entry(row, now)).optional()?;
            found.map(|entry| mark_claimed(tx, entry, by, now)).transpose()
        })
    }

    /// Claims at most `most` entries that were due at `due` and now still are, the longest due first, and of those the
    /// first that was added. `due` is not after `now`.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn claim_due(
        &mut self,
        kind: EntryKind,
        by: Process,
        due: Wall,
        now: Wall,
        most: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        self.0.write(|tx| {
            free_lapsed(tx)?;
            let sql = format!(
                "SELECT {COLUMNS} FROM outbox WHERE state = 'pending' AND kind = ?1
                 AND (next_attempt_at <= ?2 OR next_attempt_at > ?3 + longest_wait)
                 ORDER BY next_attempt_at, seq LIMIT ?4"
            );
            let mut query = tx.prepare_cached(&sql)?;
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let found =
                query.query_map(params![kind.as_str(), due.0, now.0, most], |row| read_entry(row, now))?;
            // All of them first: what is being read must not change.
            let found = found.collect::<rusqlite::Result<Vec<_>>>()?;
            found.into_iter().map(|entry| mark_claimed(tx, entry, by, now)).collect()
        })
    }

    /// Gives a claim back after an attempt that failed for now; the next one is due after `wait`. Answers whether
    /// the claim was there.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn retry_later(
        &mut self,
        id: &str,
        by: Process,
        wait: Duration,
        error: &str,
        now: Wall,
    ) -> Result<bool, StoreError> {
        let wait_ms = (now + wait).0 - now.0;
        let longest = |kind: EntryKind| (now + wait.max(kind.backoff().cap)).0 - now.0;
        let changed = self.0.write(|tx| {
            tx.prepare_cached(
                "UPDATE outbox SET state = 'pending', claim_pid = NULL, claim_start = NULL,
                 attempts = attempts + 1, next_attempt_at = ?4 + ?5, error = ?6, updated_at = ?4,
                 -- A clock that was ahead when the entry came must not keep it alive for longer.
                 created_at = MIN(created_at, ?4),
                 longest_wait = CASE kind WHEN 'event' THEN ?7 ELSE ?8 END
                 WHERE id = ?1 AND claim_pid = ?2 AND claim_start = ?3",
            )?
            .execute(params![
                id,
                by.pid,
                by.start_time.cast_signed(),
                now.0,
                wait_ms,
                error,
                longest(EntryKind::Event),
                longest(EntryKind::Message),
            ])
        })?;
        Ok(changed > 0)
    }

    /// Gives a claim back untried: it costs no attempt, and the entry is due as it was before.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn release(&mut self, id: &str, by: Process) -> Result<(), StoreError> {
        self.0.write(|tx| {
            tx.prepare_cached(
                "UPDATE outbox SET state = 'pending', claim_pid = NULL, claim_start = NULL
                 WHERE id = ?1 AND claim_pid = ?2 AND claim_start = ?3",
            )?
            .execute(params![id, by.pid, by.start_time.cast_signed()])
            .map(drop)
        })
    }

    /// The other side has it, and said `outcome`. This is final, whoever finds it out.
    ///
    /// # Errors
    /// Whatever the disk says. The entry is then tried again, and its key lets the other side see that.
    pub fn sent(&mut self, id: &str, outcome: &str, now: Wall) -> Result<(), StoreError> {
        self.0.write(|tx| {
            tx.prepare_cached(
                "UPDATE outbox SET attempts = attempts + (state = 'claimed'), state = 'sent', claim_pid = NULL,
                 claim_start = NULL, outcome = ?2, error = NULL, updated_at = ?3 WHERE id = ?1 AND state <> 'sent'",
            )?
            .execute(params![id, outcome, now.0])
            .map(drop)
        })
    }

    /// It is not kept after all, and its sender is told so. Only for whoever has claimed it; answers whether it is gone.
    ///
    /// # Errors
    /// Whatever the disk says. It stays then.
    pub fn drop_claimed(&mut self, id: &str, by: Process) -> Result<bool, StoreError> {
        let sql = "DELETE FROM outbox WHERE id = ?1 AND claim_pid = ?2 AND claim_start = ?3";
        let gone = self
            .0
            .write(|tx| tx.prepare_cached(sql)?.execute(params![id, by.pid, by.start_time.cast_signed()]))?;
        Ok(gone > 0)
    }

    /// It will not be tried again, and why. What was sent stays sent.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn dead(&mut self, id: &str, error: &str, now: Wall) -> Result<(), StoreError> {
        self.0.write(|tx| bury(tx, id, error, now))
    }

    /// The entry of this id.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn get(&self, id: &str, now: Wall) -> Result<Option<Entry>, StoreError> {
        self.0.read(|db| {
            let sql = format!("SELECT {COLUMNS} FROM outbox WHERE id = ?1");
            db.prepare_cached(&sql)?.query_row([id], |row| read_entry(row, now)).optional()
        })
    }

    /// How many entries are in which state.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn counts(&self) -> Result<Counts, StoreError> {
        self.0.read(|db| {
            let mut counts = Counts::default();
            let mut query = db.prepare_cached("SELECT state, COUNT(*) FROM outbox GROUP BY state")?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let count = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
                match row.get_ref(0)?.as_str()? {
                    "sent" => counts.sent += count,
                    "dead" => counts.dead += count,
                    _ => counts.pending += count,
                }
            }
            Ok(counts)
        })
    }

    /// When the next entry of this kind is due; `now` or earlier when one is. `None` when none waits that is not
    /// being tried.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn next_due(&self, kind: EntryKind, now: Wall) -> Result<Option<Wall>, StoreError> {
        self.0.read(|db| {
            if claims(db)?.iter().any(|claim| claim.kind == kind.as_str() && !claim.by.is_alive()) {
                return Ok(Some(now));
            }
            db.prepare_cached(
                "SELECT MIN(CASE WHEN next_attempt_at > ?2 + longest_wait THEN ?2 ELSE next_attempt_at END)
                 FROM outbox WHERE state = 'pending' AND kind = ?1",
            )?
            .query_row(params![kind.as_str(), now.0], |row| Ok(row.get::<_, Option<i64>>(0)?.map(Wall)))
        })
    }

    /// Entries that are due, at most `most`, without a claim: for a disk that takes none. In the order in which they
    /// were added, after the place `after`; each with its place.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn due_unclaimed(
        &self,
        kind: EntryKind,
        now: Wall,
        after: i64,
        most: u32,
    ) -> Result<Vec<(i64, Entry)>, StoreError> {
        self.0.read(|db| {
            let sql = format!(
                "SELECT {COLUMNS}, seq FROM outbox NOT INDEXED WHERE seq > ?1 AND kind = ?2
                 AND (state = 'claimed' OR state = 'pending'
                      AND (next_attempt_at <= ?3 OR next_attempt_at > ?3 + longest_wait))
                 ORDER BY seq LIMIT ?4"
            );
            let mut query = db.prepare_cached(&sql)?;
            let found = query.query_map(params![after, kind.as_str(), now.0, most], |row| {
                Ok((row.get(19)?, read_entry(row, now)?))
            })?;
            found.collect()
        })
    }

    /// How many entries of this kind are due.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn due_count(&self, kind: EntryKind, now: Wall) -> Result<u64, StoreError> {
        self.0.read(|db| {
            let lapsed =
                claims(db)?.iter().filter(|it| it.kind == kind.as_str() && !it.by.is_alive()).count();
            let waiting: i64 = db
                .prepare_cached(
                    "SELECT COUNT(*) FROM outbox WHERE state = 'pending' AND kind = ?1
                     AND (next_attempt_at <= ?2 OR next_attempt_at > ?2 + longest_wait)",
                )?
                .query_row((kind.as_str(), now.0), |row| row.get(0))?;
            Ok(waiting.cast_unsigned() + lapsed as u64)
        })
    }

    /// How many entries of this kind wait or are being tried.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn waiting(&self, kind: EntryKind) -> Result<u64, StoreError> {
        self.0.read(|db| {
            let sql = "SELECT COUNT(*) FROM outbox WHERE state IN ('pending', 'claimed') AND kind = ?1";
            db.prepare_cached(sql)?
                .query_row([kind.as_str()], |row| row.get::<_, i64>(0))
                .map(i64::cast_unsigned)
        })
    }

    /// Forgets what was sent before `before`. Answers how many entries that were.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn forget_sent(&mut self, before: Wall) -> Result<usize, StoreError> {
        self.0.write(|tx| {
            tx.prepare_cached("DELETE FROM outbox WHERE state = 'sent' AND updated_at < ?1")?
                .execute([before.0])
        })
    }
}

const FULL: StoreError = StoreError::LimitReached { what: "the spool", limit: limits::SPOOL_MAX };

/// `None` when the spool is full.
fn insert(
    tx: &Transaction<'_>,
    entry: &NewEntry<'_>,
    now: Wall,
    by: Option<Process>,
) -> rusqlite::Result<Option<Added>> {
    let known = tx
        .prepare_cached("SELECT state FROM outbox WHERE id = ?1")?
        .query_row([entry.id], |row| read_state(row, 0))
        .optional()?;
    if let Some(state) = known {
        return Ok(Some(Added::Known(state)));
    }
    if is_full(tx)? {
        return Ok(None);
    }
    store(tx, &entry.to_entry(now), by)?;
    Ok(Some(Added::New))
}

/// Whether as many entries wait as may.
fn is_full(tx: &Transaction<'_>) -> rusqlite::Result<bool> {
    let holds = |sql| {
        let most = i64::try_from(limits::SPOOL_MAX).unwrap_or(i64::MAX);
        tx.prepare_cached(sql)?.query_row([most], |row| row.get::<_, bool>(0))
    };
    // Counting reads an index of all entries, and everybody waits meanwhile. How far the last entry is from the first
    // one is known at once, and there cannot be more.
    let may_be =
        "SELECT IFNULL((SELECT MAX(seq) FROM outbox) - (SELECT MIN(seq) FROM outbox) + 1 >= ?1, FALSE)";
    let is = "SELECT COUNT(*) >= ?1 FROM outbox WHERE state IN ('pending', 'claimed')";
    Ok(holds(may_be)? && holds(is)?)
}

/// Writes a row of its own for this entry, which is not there yet.
fn store(tx: &Transaction<'_>, entry: &Entry, by: Option<Process>) -> rusqlite::Result<()> {
    let (file, variable) = match &entry.secret {
        Some(SecretRef::File(path)) => (Some(path.as_os_str().as_bytes()), None),
        Some(SecretRef::Env(name)) => (None, Some(name)),
        None => (None, None),
    };
    let wait = entry.next_attempt_at.0.saturating_sub(entry.updated_at.0);
    tx.prepare_cached(
        "INSERT INTO outbox (id, kind, dest, sender, reply_to, event_key, body, secret_file, secret_env, state,
         claim_pid, claim_start, created_at, updated_at, next_attempt_at, longest_wait, attempts, outcome, error,
         digest)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
    )?
    .execute(params![
        entry.id,
        entry.kind.as_str(),
        entry.dest,
        entry.from,
        entry.reply_to,
        entry.event_key,
        entry.body,
        file,
        variable,
        if by.is_some() { State::Claimed } else { entry.state }.as_str(),
        by.map(|by| by.pid),
        by.map(|by| by.start_time.cast_signed()),
        entry.created_at.0,
        entry.updated_at.0,
        entry.next_attempt_at.0,
        wait.max((entry.updated_at + entry.kind.backoff().cap).0 - entry.updated_at.0),
        entry.attempts,
        entry.outcome,
        entry.error,
        row::digest(entry),
    ])
    .map(drop)
}

struct Claim {
    id: String,
    kind: String,
    by: Process,
}

fn claims(db: &Connection) -> rusqlite::Result<Vec<Claim>> {
    let mut query =
        db.prepare_cached("SELECT id, kind, claim_pid, claim_start FROM outbox WHERE state = 'claimed'")?;
    let claims = query
        .query_map([], |row| Ok(Claim { id: row.get(0)?, kind: row.get(1)?, by: read_claim(row, 2)? }))?;
    claims.collect()
}

/// Makes the entries free that processes had claimed which are gone.
fn free_lapsed(tx: &Transaction<'_>) -> rusqlite::Result<()> {
    for claim in claims(tx)? {
        if !claim.by.is_alive() {
            tx.prepare_cached(
                "UPDATE outbox SET state = 'pending', claim_pid = NULL, claim_start = NULL WHERE id = ?1",
            )?
            .execute([claim.id])?;
        }
    }
    Ok(())
}

fn mark_claimed(tx: &Transaction<'_>, mut entry: Entry, by: Process, now: Wall) -> rusqlite::Result<Entry> {
    tx.prepare_cached(
        "UPDATE outbox SET state = 'claimed', claim_pid = ?2, claim_start = ?3, updated_at = ?4 WHERE id = ?1",
    )?
    .execute(params![entry.id, by.pid, by.start_time.cast_signed(), now.0])?;
    (entry.state, entry.updated_at) = (State::Claimed, now);
    Ok(entry)
}

/// An entry will not be tried again, unless it was sent.
pub(super) fn bury(tx: &Transaction<'_>, id: &str, error: &str, now: Wall) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "UPDATE outbox SET attempts = attempts + (state = 'claimed'), state = 'dead', claim_pid = NULL,
         claim_start = NULL, error = ?2, updated_at = ?3 WHERE id = ?1 AND state <> 'sent'",
    )?
    .execute(params![id, error, now.0])
    .map(drop)
}

#[cfg(test)]
mod tests;
