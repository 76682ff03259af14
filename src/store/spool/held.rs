//! Deliveries that wait for a person: somebody types where they would go, or is asked something there. That costs no
//! attempt, so that nobody's long text uses a message up.

use rusqlite::named_params;

use super::inbox::SEEN;
use super::{Spool, renaming};
use crate::addr::Name;
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

    /// A terminal has shown the envelope, which is all that is known. It settles the row, as what a session has does.
    ///
    /// # Errors
    /// When it cannot be stored; then the Worker must not be told either.
    pub fn seen(&mut self, id: &str, agent: &str, now: Wall) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.prepare_cached(
                "UPDATE inbox SET state = 'injected', updated_at = ?3, code = ?4,
                        answer = CASE WHEN from_worker THEN 'ack' END
                 WHERE id = ?1 AND agent = ?2 AND state <> 'injected'",
            )?
            .execute((id, agent, now.0, SEEN))
            .map(drop)
        })
    }

    /// An agent goes by another name: its mail goes with it. What is there under the new name already stays as it is.
    ///
    /// # Errors
    /// When it cannot be stored; then nothing has moved.
    pub fn readdress(&mut self, old: &Name, new: &Name) -> Result<(), StoreError> {
        self.write(|tx| renaming::take_along(tx, old, new))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::spool::inbox::{Delivery, Outcome};
    use crate::store::spool::local::LocalState;

    const NOW: Wall = Wall(1_700_000_000_000);

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

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
    fn what_a_screen_has_shown_is_settled_and_not_called_more() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        spool.receive(&[delivery("jess")], NOW).unwrap();
        spool.seen("tx_000000000001", "jess", NOW).unwrap();
        spool.injected("tx_000000000001", "jess", NOW).unwrap();
        let answers = spool.unanswered(9).unwrap();
        assert_eq!(answers.iter().map(|answer| &answer.outcome).collect::<Vec<_>>(), [&Outcome::Seen]);
        spool.answered(&answers).unwrap();
        assert!(spool.unanswered(9).unwrap().is_empty() && spool.due("jess", NOW, 9).unwrap().is_empty());
        assert_eq!(spool.local_deliveries("tx_000000000001").unwrap()[0].state, LocalState::Seen);
    }

    #[test]
    fn mail_follows_an_agent_to_its_new_name() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        spool.receive(&[delivery("jess")], NOW).unwrap();
        spool.readdress(&name("jess"), &name("jo")).unwrap();
        assert!(spool.due("jess", NOW, 9).unwrap().is_empty());
        assert_eq!(spool.due("jo", NOW, 9).unwrap().len(), 1);
        spool.receive(&[delivery("jess")], NOW).unwrap();
        spool.readdress(&name("jess"), &name("jo")).unwrap();
        assert_eq!(spool.due("jo", NOW, 9).unwrap().len(), 1);
    }
}
