//! Deliveries that wait for a person: somebody types where they would go, or is asked something there. That costs no
//! attempt, so that nobody's long text uses a message up.

use rusqlite::named_params;

use super::Spool;
use crate::clock::Wall;
use crate::store::StoreError;

impl Spool {
    /// Nothing was typed. The Worker hears why, once; the row waits until `until`, or until its agent is released.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn held(
        &mut self,
        id: &str,
        agent: &str,
        code: &str,
        until: Wall,
        now: Wall,
    ) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.prepare_cached(
                "UPDATE inbox SET due_at = :until, answer = CASE WHEN asked THEN 'nak' END,
                        code = :code, retryable = 1, updated_at = :now
                 WHERE id = :id AND agent = :agent AND state = 'waiting'",
            )?
            .execute(named_params! {
                ":id": id, ":agent": agent, ":code": code, ":until": until.0, ":now": now.0,
            })
            .map(drop)
        })
    }

    /// An agent goes by another name: what waits for it goes with it. What is there under the new name already stays
    /// as it is.
    ///
    /// # Errors
    /// When it cannot be stored; then nothing has moved.
    pub fn readdress(&mut self, old: &str, new: &str) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute(
                "UPDATE OR IGNORE inbox SET agent = ?2 WHERE agent = ?1 AND state = 'waiting'",
                (old, new),
            )
            .map(drop)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::spool::inbox::{Delivery, Outcome};

    const NOW: Wall = Wall(1_700_000_000_000);

    fn delivery(agent: &str) -> Delivery {
        Delivery { id: "tx_000000000001".into(), agent: agent.into(), envelope: "e".into(), redelivery: 0 }
    }

    #[test]
    fn what_is_held_is_told_once_and_comes_back_by_itself_or_by_a_release() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        spool.receive(&[delivery("jess")], NOW).unwrap();
        let until = NOW + Duration::from_secs(300);
        let hold = |spool: &mut Spool| spool.held("tx_000000000001", "jess", "draft_busy", until, NOW);
        hold(&mut spool).unwrap();
        assert!(spool.due("jess", NOW, 9).unwrap().is_empty());
        assert_eq!(spool.next_inbox_due("jess", NOW).unwrap(), Some(until));
        let answers = spool.unanswered(9).unwrap();
        let nak = Outcome::Refused { code: "draft_busy".into(), retryable: true };
        assert_eq!(answers.iter().map(|answer| &answer.outcome).collect::<Vec<_>>(), [&nak]);
        spool.answered(&answers).unwrap();
        assert_eq!(spool.due("jess", until, 9).unwrap().len(), 1);
        hold(&mut spool).unwrap();
        assert!(spool.unanswered(9).unwrap().is_empty(), "the Worker waits for nothing");
        spool.release("jess").unwrap();
        assert_eq!(spool.due("jess", NOW, 9).unwrap().len(), 1);
        spool.injected("tx_000000000001", "jess", NOW).unwrap();
        assert_eq!(spool.unanswered(9).unwrap().len(), 1, "a late ack");
    }

    #[test]
    fn mail_follows_an_agent_to_its_new_name() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        spool.receive(&[delivery("jess")], NOW).unwrap();
        spool.readdress("jess", "jo").unwrap();
        assert!(spool.due("jess", NOW, 9).unwrap().is_empty());
        assert_eq!(spool.due("jo", NOW, 9).unwrap().len(), 1);
        spool.receive(&[delivery("jess")], NOW).unwrap();
        spool.readdress("jess", "jo").unwrap();
        assert_eq!(spool.due("jo", NOW, 9).unwrap().len(), 1);
    }
}
