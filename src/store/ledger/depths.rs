//! How much waits, for whoever watches a Worker: read along the indexes of what is not settled, and never further than
//! a bound, so that asking costs the same beside a million settled rows, and beside a million that wait.

use super::{StoreError, Tx, values};

/// What waits, over all organisations. Each number ends at the bound that it was asked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depths {
    /// Messages that are to be delivered, once for each recipient.
    pub queued: u64,
    /// Those of them that were refused, or not answered, and are tried again.
    pub held: u64,
    /// Deliveries of events that no session has had yet.
    pub pending: u64,
    /// Deliveries that were put into their agent's session.
    pub dispatched: u64,
    /// Deliveries whose agent has read the whole, and has neither answered nor settled them.
    pub read: u64,
    /// Replies that are to be posted.
    pub replies: u64,
}

/// Counts what waits, each kind up to `most`.
///
/// # Errors
/// When the ledger cannot be read.
pub fn depths(tx: &Tx<'_>, most: u32) -> Result<Depths, StoreError> {
    let count = |sql: &str| {
        let counted = tx.one(sql, values![most], |row| row.get::<i64>(0))?;
        Ok::<_, StoreError>(counted.unwrap_or_default().unsigned_abs())
    };
    let mut depths =
        Depths { queued: count(QUEUED)?, held: count(HELD)?, replies: count(REPLIES)?, ..Depths::default() };
    for (state, number) in
        tx.all(DELIVERIES, values![most], |row| Ok((row.get::<String>(0)?, row.get::<i64>(1)?)))?
    {
        let number = number.unsigned_abs();
        match state.as_str() {
            "pending" => depths.pending = number,
            "dispatched" => depths.dispatched = number,
            _ => depths.read = number,
        }
    }
    Ok(depths)
}

// The conditions are those of the partial indexes, word by word: that is how an engine knows that it may use them.
const QUEUED: &str =
    "SELECT COUNT(*) FROM (SELECT 1 FROM message_delivery WHERE state = 'queued' LIMIT ?1) AS waiting";
const HELD: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM message_delivery WHERE state = 'queued' AND held = 1 \
     LIMIT ?1) AS waiting";
const REPLIES: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM reply WHERE state = 'due' LIMIT ?1) AS waiting";
const DELIVERIES: &str = "SELECT state, COUNT(*) FROM (SELECT state FROM delivery \
     WHERE state IN ('pending', 'dispatched', 'read') LIMIT ?1) AS waiting GROUP BY state";

#[cfg(test)]
mod tests {
    use super::super::Db;
    use super::*;

    #[test]
    fn only_what_waits_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(&dir.path().join("worker.db")).unwrap();
        assert_eq!(db.read(|tx| depths(tx, 10)).unwrap(), Depths::default());
        for sql in [QUEUED, HELD, REPLIES, DELIVERIES] {
            let plan = db.read(|tx| {
                let explained = format!("EXPLAIN QUERY PLAN {sql}");
                tx.all(&explained, values![10], |row| row.get::<String>(3))
            });
            let plan = plan.unwrap().join("\n");
            assert!(plan.contains("INDEX"), "{sql} reads a whole table:\n{plan}");
        }
    }

    #[test]
    fn what_waits_is_counted_by_its_state_up_to_the_bound() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(&dir.path().join("worker.db")).unwrap();
        let states = ["pending", "dispatched", "dispatched", "read", "handled", "replied"];
        db.write(move |tx| {
            for (n, state) in states.iter().enumerate() {
                tx.execute(
                    "INSERT INTO delivery (org_id, id, event_seq, integration_id, host, agent, state, attempts,
                                           shown, misses, next_attempt_at, created_at, updated_at)
                     VALUES ('o', ?1, 1, 'i', 'h', 'a', ?2, 0, 0, 0, 0, 0, 0)",
                    values![format!("dlv_{n}"), *state],
                )?;
            }
            Ok(())
        })
        .unwrap();
        let counted = db.read(|tx| depths(tx, 10)).unwrap();
        assert_eq!(counted, Depths { pending: 1, dispatched: 2, read: 1, ..Depths::default() });
        let bounded = db.read(|tx| depths(tx, 2)).unwrap();
        assert_eq!(bounded.pending + bounded.dispatched + bounded.read, 2);
    }
}
