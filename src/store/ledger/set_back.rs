//! After the wall clock was set back: nothing waits for longer than the longest wait that there is.
//!
//! What is due again at some time keeps that time by the wall clock, the only one that outlives a process. A clock that
//! ran ahead and was put right would hold all of it up by as much as it was ahead.

use super::{StoreError, Tx, values};
use crate::clock::{Backoff, Wall, channel_redelivery};
use crate::limits::DELIVERY_TTL;

/// Makes due now, in all organisations, what is due further off than its largest wait. Answers how many rows that were.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn catch_up(tx: &Tx<'_>, now: Wall) -> Result<usize, StoreError> {
    let messages = tx.execute(
        "UPDATE message_delivery SET next_attempt_at = ?1 WHERE state = 'queued' AND next_attempt_at > ?2",
        values![now, now + Backoff::DELIVERY.cap],
    )?;
    tx.execute(
        "UPDATE message_delivery SET expires_at = ?1 WHERE state = 'queued' AND expires_at > ?1",
        values![now + DELIVERY_TTL],
    )?;
    let deliveries = tx.execute(
        "UPDATE delivery SET next_attempt_at = ?1
         WHERE state IN ('pending', 'dispatched', 'read') AND next_attempt_at > ?2",
        values![now, now + channel_redelivery(u32::MAX, true)],
    )?;
    let replies = tx.execute(
        "UPDATE reply SET next_attempt_at = ?1 WHERE state = 'due' AND next_attempt_at > ?2",
        values![now, now + Backoff::CALLBACK.cap],
    )?;
    Ok(messages + deliveries + replies)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::proto::wire::SendFrame;
    use crate::store::ledger::messages::{self, Queue};
    use crate::store::ledger::roster::tests::{agent, enrol};
    use crate::store::ledger::{Db, directory};

    #[test]
    fn what_a_clock_that_was_ahead_has_put_off_is_due_when_it_is_put_right() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(&dir.path().join("w.db")).unwrap();
        let right = Wall(1_700_000_000_000);
        let ahead = right + Duration::from_secs(6 * 3600);
        let queue = db.write(move |tx| {
            let org_id = directory::org(tx, "default")?.unwrap().id;
            enrol(tx, &org_id, "beta", &[agent("bob", "idle")], right)?;
            let queue = Queue { org_id: org_id.clone(), host: "beta".into(), agent: "bob".into() };
            let frame = SendFrame {
                id: "tx_000000000001".into(),
                from: "amy@alpha".into(),
                to: "bob@beta".into(),
                body: "x".into(),
                reply_to: None,
                ts: ahead.to_string(),
            };
            messages::take(tx, &queue, "alpha", &frame, false, ahead)?;
            Ok(queue)
        });
        let queue = queue.unwrap();
        let due = |now| db.read(|tx| messages::due(tx, &queue, 0, now, 9)).unwrap().len();
        assert_eq!(due(right), 0);
        assert_eq!(db.write(move |tx| catch_up(tx, right)).unwrap(), 1);
        assert_eq!((due(right), due(right + DELIVERY_TTL)), (1, 0), "nor does it live for longer than a day");
        let soon = right + Duration::from_secs(60);
        assert_eq!(db.write(move |tx| catch_up(tx, right + Duration::from_secs(1))).unwrap(), 0);
        assert_eq!(due(soon), 1);
    }
}
