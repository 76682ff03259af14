//! Messages between agents of a host that no Worker has, and never will: their time ends here, and their senders hear of
//! it from here.

use rusqlite::named_params;

use super::Spool;
use super::inbox::{Delivery, put};
use super::outbox::bury;
use crate::clock::Wall;
use crate::limits;
use crate::store::StoreError;

/// Whether a row of the inbox is all that there is of its message. What is kept for the Worker comes back from there.
pub(super) const ONLY_HERE: &str =
    "(NOT from_worker AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.id = inbox.id))";

/// The `code` of a message that has waited for too long.
pub const EXPIRED: &str = "expired";

/// A message whose time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    /// Its id.
    pub id: String,
    /// The recipient's name.
    pub agent: String,
    /// The rendered transit/1 text, which names the sender.
    pub envelope: String,
}

impl Spool {
    /// The messages that no Worker has, and that have come by `before`, oldest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn overdue(&self, before: Wall) -> Result<Vec<Overdue>, StoreError> {
        self.read(|db| {
            db.prepare_cached(&format!(
                "SELECT id, agent, envelope FROM inbox
                 WHERE state = 'waiting' AND received_at <= ?1 AND {ONLY_HERE} ORDER BY seq"
            ))?
            .query_map([before.0], |row| {
                Ok(Overdue { id: row.get("id")?, agent: row.get("agent")?, envelope: row.get("envelope")? })
            })?
            .collect()
        })
    }

    /// When the time of the next of them is over, by the wall clock, if any waits.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn next_overdue(&self) -> Result<Option<Wall>, StoreError> {
        self.read(|db| {
            let sql = format!("SELECT min(received_at) FROM inbox WHERE state = 'waiting' AND {ONLY_HERE}");
            let first: Option<i64> = db.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
            Ok(first.map(|at| Wall(at) + limits::DELIVERY_TTL))
        })
    }

    /// Ends a message that waits and puts `bounce` into its sender's inbox, both or neither. One that does not wait any
    /// more stays as it is; answers whether it has ended.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn end(
        &mut self,
        overdue: &Overdue,
        bounce: Option<&Delivery>,
        now: Wall,
    ) -> Result<bool, StoreError> {
        self.write(|tx| {
            let ended = tx
                .prepare_cached(
                    "UPDATE inbox SET state = 'refused', code = :code, retryable = 0, updated_at = :now
                     WHERE id = :id AND agent = :agent AND state = 'waiting' AND NOT from_worker",
                )?
                .execute(named_params! {
                    ":code": EXPIRED, ":now": now.0, ":id": overdue.id, ":agent": overdue.agent,
                })?;
            if let Some(bounce) = bounce.filter(|_| ended > 0) {
                put(tx, bounce, now)?;
            }
            Ok(ended > 0)
        })
    }

    /// The Worker has refused a message of this host for good: it is not tried again, and `bounce` is in its sender's
    /// inbox, both or neither.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn refuse(
        &mut self,
        id: &str,
        error: &str,
        bounce: Option<&Delivery>,
        now: Wall,
    ) -> Result<(), StoreError> {
        self.write(|tx| {
            bury(tx, id, error, now)?;
            bounce.map_or(Ok(()), |bounce| put(tx, bounce, now))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::spool::local::LocalState;
    use crate::store::spool::outbox::{EntryKind, NewEntry};

    const NOW: Wall = Wall(1_700_000_000_000);

    fn delivery(id: &str, agent: &str) -> Delivery {
        Delivery { id: id.into(), agent: agent.into(), envelope: format!("e {id}"), redelivery: 0 }
    }

    fn ids(spool: &Spool, now: Wall) -> Vec<String> {
        spool.overdue(now - limits::DELIVERY_TTL).unwrap().into_iter().map(|overdue| overdue.id).collect()
    }

    #[test]
    fn what_nobody_else_has_ends_after_a_day_and_its_sender_is_told_with_that() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        let [only, kept, theirs] = ["tx_00000000000a", "tx_00000000000b", "tx_00000000000c"];
        spool.put_local(&delivery(only, "bob"), NOW).unwrap();
        spool.put_local(&delivery(kept, "bob"), NOW).unwrap();
        let entry = NewEntry {
            id: kept,
            kind: EntryKind::Message,
            dest: "bob@titan",
            from: Some("amy@titan"),
            reply_to: None,
            event_key: None,
            body: b"x",
            secret: None,
        };
        spool.outbox().add(&entry, NOW).unwrap();
        spool.receive(&[delivery(theirs, "bob")], NOW).unwrap();
        let over = NOW + limits::DELIVERY_TTL;
        assert_eq!(spool.next_overdue().unwrap(), Some(over));
        assert!(ids(&spool, over - Duration::from_millis(1)).is_empty());
        assert_eq!(ids(&spool, over), [only], "the Worker sees to the others");
        // A refusal that passes does not make it younger.
        spool.refused(only, "bob", "busy", true, over).unwrap();
        let overdue = spool.overdue(NOW).unwrap().remove(0);
        let bounce = delivery("tx_00000000000d", "amy");
        assert!(spool.end(&overdue, Some(&bounce), over).unwrap());
        assert!(!spool.end(&overdue, Some(&bounce), over).unwrap(), "once");
        let row = spool.local_deliveries(only).unwrap().remove(0);
        assert_eq!((row.state, row.code.as_deref()), (LocalState::Refused, Some(EXPIRED)));
        assert_eq!(spool.due("amy", over, 9).unwrap(), [bounce]);
    }

    #[test]
    fn a_person_in_the_way_uses_no_message_up() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        spool.put_local(&delivery("tx_00000000000a", "bob"), NOW).unwrap();
        for _ in 0..2 * limits::DELIVERY_ATTEMPTS {
            assert!(!spool.refused("tx_00000000000a", "bob", "draft_busy", true, NOW).unwrap());
        }
        assert_eq!(spool.next_inbox_due("bob", NOW).unwrap(), Some(NOW + Duration::from_secs(5)));
    }

    #[test]
    fn what_nobody_else_has_is_not_tried_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        let (here, theirs) = ("tx_00000000000a", "tx_00000000000b");
        spool.put_local(&delivery(here, "bob"), NOW).unwrap();
        spool.receive(&[delivery(theirs, "bob")], NOW).unwrap();
        for attempt in 1..=limits::DELIVERY_ATTEMPTS {
            let is_over = spool.refused(here, "bob", "busy", true, NOW).unwrap();
            assert_eq!(is_over, attempt == limits::DELIVERY_ATTEMPTS, "{attempt}");
            assert!(
                !spool.refused(theirs, "bob", "busy", true, NOW).unwrap(),
                "the Worker counts for itself"
            );
        }
        assert_eq!(spool.local_deliveries(here).unwrap()[0].state, LocalState::Refused);
    }

    #[test]
    fn a_refusal_and_the_word_of_it_are_kept_together_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        let (id, bounce) = ("tx_000000000001", delivery("tx_000000000002", "jess"));
        let entry = NewEntry {
            id,
            kind: EntryKind::Message,
            dest: "omar@nowhere",
            from: Some("jess@titan"),
            reply_to: None,
            event_key: None,
            body: b"hi",
            secret: None,
        };
        spool.outbox().add(&entry, NOW).unwrap();
        let has_bounce = |spool: &Spool| spool.due("jess", NOW, 9).unwrap() == [bounce.clone()];
        let dead = |spool: &mut Spool| spool.outbox().counts().unwrap().dead;
        let no = "CREATE TRIGGER no BEFORE INSERT ON inbox BEGIN SELECT RAISE(ABORT, 'no'); END";
        spool.write(|tx| tx.execute_batch(no)).unwrap();
        assert!(spool.refuse(id, "no_route", Some(&bounce), NOW).is_err());
        assert_eq!((dead(&mut spool), has_bounce(&spool)), (0, false));
        spool.write(|tx| tx.execute_batch("DROP TRIGGER no")).unwrap();
        spool.refuse(id, "no_route", Some(&bounce), NOW).unwrap();
        spool.refuse(id, "no_route", Some(&bounce), NOW).unwrap();
        assert_eq!((dead(&mut spool), has_bounce(&spool)), (1, true), "once");
    }
}
