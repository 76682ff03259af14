//! Messages keep their order: of those from one sender to one recipient, the next is begun when the one before it is
//! through, or dead. One that waits for its retry, or that was not answered yet, is not passed.

use std::collections::HashSet;

use rusqlite::{Connection, Transaction};

use super::{COLUMNS, Entry, EntryKind, Outbox, claims, free_lapsed, mark_claimed, read_entry};
use crate::clock::Wall;
use crate::store::StoreError;
use crate::store::process::Process;

/// The first message of a pair that is not through; it is not being tried.
struct Head {
    seq: i64,
    due: Wall,
}

impl Outbox<'_> {
    /// Claims at most `most` messages that are due and the first of their pairs, the longest due first.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn claim_messages(&mut self, by: Process, now: Wall, most: usize) -> Result<Vec<Entry>, StoreError> {
        self.0.write(|tx| {
            free_lapsed(tx)?;
            let mut due: Vec<Head> = heads(tx, now)?.into_iter().filter(|head| head.due <= now).collect();
            due.sort_by_key(|head| (head.due, head.seq));
            due.into_iter().take(most).map(|head| claim(tx, head.seq, by, now)).collect()
        })
    }

    /// When a message can be claimed next; `now` or earlier when one can. `None` when none waits, but for one that is
    /// being tried.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn next_message_due(&self, now: Wall) -> Result<Option<Wall>, StoreError> {
        self.0.read(|db| {
            let message = EntryKind::Message.as_str();
            if claims(db)?.iter().any(|claim| claim.kind == message && !claim.by.is_alive()) {
                return Ok(Some(now));
            }
            Ok(heads(db, now)?.into_iter().map(|head| head.due).min())
        })
    }
}

fn heads(db: &Connection, now: Wall) -> rusqlite::Result<Vec<Head>> {
    let mut query = db.prepare_cached(
        "SELECT seq, state = 'claimed', sender, dest, next_attempt_at, longest_wait FROM outbox
         WHERE state IN ('pending', 'claimed') AND kind = 'message' ORDER BY seq",
    )?;
    let mut rows = query.query([])?;
    let (mut pairs, mut heads) = (HashSet::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let pair: (Option<String>, String) = (row.get(2)?, row.get(3)?);
        let is_first = pairs.insert(pair);
        if !is_first || row.get(1)? {
            continue;
        }
        let (due, longest): (i64, i64) = (row.get(4)?, row.get(5)?);
        // One that says it is due further off than it ever could be was scheduled by a wrong clock.
        let due = if due > now.0.saturating_add(longest) { now } else { Wall(due) };
        heads.push(Head { seq: row.get(0)?, due });
    }
    Ok(heads)
}

fn claim(tx: &Transaction<'_>, seq: i64, by: Process, now: Wall) -> rusqlite::Result<Entry> {
    let sql = format!("SELECT {COLUMNS} FROM outbox WHERE seq = ?1");
    let entry = tx.prepare_cached(&sql)?.query_row([seq], |row| read_entry(row, now))?;
    mark_claimed(tx, entry, by, now)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::spool::Spool;
    use crate::store::spool::outbox::NewEntry;

    const fn at(seconds: i64) -> Wall {
        Wall(seconds * 1000)
    }

    fn add(spool: &mut Spool, id: &str, from: &str, dest: &str) {
        let entry = NewEntry {
            id,
            kind: EntryKind::Message,
            dest,
            from: Some(from),
            reply_to: None,
            event_key: None,
            body: b"x",
            secret: None,
        };
        spool.outbox().add(&entry, at(0)).unwrap();
    }

    #[test]
    fn a_message_is_not_passed_by_the_next_one_of_its_pair() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        let me = Process::current();
        for (id, from, dest) in [
            ("a1", "amy@t", "bob@h"),
            ("a2", "amy@t", "bob@h"),
            ("b1", "amy@t", "#ops"),
            ("c1", "zoe@t", "bob@h"),
            ("a3", "amy@t", "bob@h"),
        ] {
            add(&mut spool, id, from, dest);
        }
        let mut outbox = spool.outbox();
        let mut claimed = |outbox: &mut Outbox<'_>, now| {
            let claimed = outbox.claim_messages(me, at(now), 9).unwrap();
            claimed.into_iter().map(|entry| entry.id).collect::<Vec<_>>()
        };
        assert_eq!(outbox.next_message_due(at(1)).unwrap(), Some(at(0)));
        assert_eq!(claimed(&mut outbox, 1), ["a1", "b1", "c1"]);
        assert_eq!(outbox.next_message_due(at(1)).unwrap(), None, "each pair has one under way");
        assert!(claimed(&mut outbox, 1).is_empty());
        outbox.retry_later("a1", me, Duration::from_secs(9), "rate_limited", at(1)).unwrap();
        assert_eq!(outbox.next_message_due(at(2)).unwrap(), Some(at(10)), "nothing but the first counts");
        assert!(claimed(&mut outbox, 9).is_empty());
        assert_eq!(claimed(&mut outbox, 10), ["a1"]);
        outbox.sent("a1", "committed", at(10)).unwrap();
        assert_eq!(claimed(&mut outbox, 10), ["a2"]);
        outbox.dead("a2", "no_route", at(11)).unwrap();
        assert_eq!(claimed(&mut outbox, 11), ["a3"]);
        outbox.release("a3", me).unwrap();
        assert_eq!(claimed(&mut outbox, 11), ["a3"], "given back, and due as before");
    }
}
