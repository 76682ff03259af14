//! The inbox: deliveries on their way into a session, and the history that recognises them when they come again.
//!
//! A row is one `(id, agent)`. It is committed before anything is handed to a session, and its outcome is
//! committed before the Worker is told, so that a crash at any point costs a repetition and never a message.

use std::collections::HashSet;
use std::time::Duration;

use rusqlite::{OptionalExtension, Row, Transaction, named_params};

use super::Spool;
use super::ending::ONLY_HERE;
use crate::clock::{Backoff, Wall};
use crate::id::IdKind;
use crate::limits;
use crate::proto::envelope;
use crate::store::StoreError;

/// A `due_at` that only a new session or another deliver of the Worker ends.
const HELD: i64 = i64::MAX;
/// Longest time that a row waits for its retry, whatever it waits for.
pub const LONGEST_WAIT: Duration = Backoff::DELIVERY.cap;
/// When a waiting row is due. One that says it is due further off than it ever could be, or that has come later than it is
/// now, was written under a wrong clock.
const DUE: &str = "CASE WHEN due_at = :held THEN due_at
                        WHEN due_at > :far AND (attempts > 0 OR code IS NOT NULL OR received_at > :far) THEN 0
                        ELSE due_at END";
/// Rows that are looked at for what can be handed over beside what comes first, if anything can.
const LOOK_AHEAD: usize = 256;
/// The refusal that is a person's, who is in the way: it costs no attempt.
pub const DRAFT_BUSY: &str = "draft_busy";
/// The `code` of a row that was only seen on a screen.
pub(super) const SEEN: &str = "screen";

/// One delivery for one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// `tx_…` or `dlv_…`.
    pub id: String,
    /// The recipient's name.
    pub agent: String,
    /// The rendered transit/1 text.
    pub envelope: String,
    /// How often its channel delivery was shown before, as the envelope says; 0 for messages.
    pub redelivery: u32,
}

impl Delivery {
    /// Who a message is from, so that the next ones of the same sender come after it. Deliveries of sources keep no
    /// order: each is shown until it is settled, however long that takes, so that one would hold up the others for
    /// ever. Nor do the system's words, each of which is about something else.
    pub fn sender(&self) -> Option<&str> {
        let is_message = IdKind::of(&self.id) == Some(IdKind::Message);
        envelope::sender(&self.envelope).filter(|sender| is_message && *sender != envelope::SYSTEM)
    }
}

/// What a delivery turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// It was not known.
    New,
    /// It is known and waits; both callers share its outcome.
    Waiting,
    /// The session has it already, or has refused it for good; the Worker gets the same answer again.
    Injected,
    /// The session has it already, and is to be reminded: a later redelivery, or a refusal that is tried anew.
    Again,
}

/// An answer that is due to the Worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    seq: i64,
    /// The delivery.
    pub id: String,
    /// Its agent.
    pub agent: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is durably in the session.
    Injected,
    /// It was typed, and its terminal has shown it; whether the session keeps it is not known. Nothing more will be.
    Seen,
    /// It is not.
    Refused {
        /// Why, as a stable word.
        code: String,
        /// Whether another attempt can succeed.
        retryable: bool,
    },
}

/// What the inbox holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InboxCounts {
    /// Rows that wait for a session or for its answer.
    pub waiting: u64,
    /// Answers that wait for the Worker.
    pub answers: u64,
}

impl Spool {
    /// Takes deliveries of the Worker, all in one commit and in their order. One answer each.
    ///
    /// # Errors
    /// When they cannot be stored; then none of them is.
    pub fn receive(&mut self, deliveries: &[Delivery], now: Wall) -> Result<Vec<Received>, StoreError> {
        self.write(|tx| deliveries.iter().map(|delivery| receive(tx, delivery, now)).collect())
    }

    /// Puts an envelope of this host's own into the inbox: a message between two of its agents, or a bounce. The
    /// Worker is owed no answer for it. One that is known stays as it is.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn put_local(&mut self, delivery: &Delivery, now: Wall) -> Result<(), StoreError> {
        self.write(|tx| put(tx, delivery, now))
    }

    /// The same for a message whose envelope was clipped, with all that it says: nobody else has that.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn put_local_whole(&mut self, delivery: &Delivery, body: &str, now: Wall) -> Result<(), StoreError> {
        self.write(|tx| {
            put(tx, delivery, now)?;
            tx.prepare_cached("UPDATE inbox SET body = ?3 WHERE id = ?1 AND agent = ?2")?
                .execute((&delivery.id, &delivery.agent, body))
                .map(drop)
        })
    }

    /// Puts a word of the system into the inbox that is shown from `due` on, whatever sessions come and go until then.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn put_notice(&mut self, notice: &Delivery, due: Wall, now: Wall) -> Result<(), StoreError> {
        self.write(|tx| {
            insert(tx, notice, false, now)?;
            // Its age counts from then on.
            tx.prepare_cached("UPDATE inbox SET due_at = ?3, updated_at = ?3 WHERE id = ?1 AND agent = ?2")?
                .execute((&notice.id, &notice.agent, due.0))
                .map(drop)
        })
    }

    /// Takes back what [`put_local`](Self::put_local) has put in, if no session has it yet. Answers whether one has.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn withdraw(&mut self, id: &str, agent: &str) -> Result<bool, StoreError> {
        self.write(|tx| {
            tx.prepare_cached(
                "DELETE FROM inbox WHERE id = ?1 AND agent = ?2 AND state = 'waiting' AND NOT from_worker",
            )?
            .execute((id, agent))?;
            tx.prepare_cached("SELECT 1 FROM inbox WHERE id = ?1 AND agent = ?2 AND state = 'injected'")?
                .exists((id, agent))
        })
    }

    /// The oldest rows that wait for this agent's session, those in flight among them; of each sender only the first
    /// message. Whatever becomes of it, the next ones of its sender come after it: should it be refused for now, what
    /// had been handed over behind it could not be taken back, and would pass it.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn due(&self, agent: &str, now: Wall, limit: usize) -> Result<Vec<Delivery>, StoreError> {
        self.read(|conn| {
            let mut waiting = conn.prepare_cached(&format!(
                "SELECT id, agent, envelope, redelivery, {DUE} AS due FROM inbox
                 WHERE state = 'waiting' AND agent = :agent ORDER BY seq",
            ))?;
            let far = now + LONGEST_WAIT;
            let mut rows = waiting.query(named_params! { ":agent": agent, ":held": HELD, ":far": far.0 })?;
            let (mut due, mut senders, mut seen) = (Vec::new(), HashSet::new(), 0);
            while due.len() < limit
                && (seen < LOOK_AHEAD || due.is_empty())
                && let Some(row) = rows.next()?
            {
                seen += 1;
                let found = delivery(row)?;
                let is_first = found.sender().is_none_or(|sender| senders.insert(sender.to_owned()));
                if is_first && row.get::<_, i64>("due")? <= now.0 {
                    due.push(found);
                }
            }
            Ok(due)
        })
    }

    /// When the next row of this agent is due that is not due yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn next_inbox_due(&self, agent: &str, now: Wall) -> Result<Option<Wall>, StoreError> {
        self.read(|conn| {
            conn.prepare_cached(&format!(
                "SELECT min(due) FROM (SELECT {DUE} AS due FROM inbox WHERE state = 'waiting' AND agent = :agent)
                 WHERE due > :now AND due < :held",
            ))?
            .query_row(
                named_params! {
                    ":agent": agent, ":now": now.0, ":held": HELD, ":far": (now + LONGEST_WAIT).0,
                },
                |row| Ok(row.get::<_, Option<i64>>(0)?.map(Wall)),
            )
        })
    }

    /// A session has the envelope durably. It settles the row whatever became of it before.
    ///
    /// # Errors
    /// When it cannot be stored; then the Worker must not be told either.
    pub fn injected(&mut self, id: &str, agent: &str, now: Wall) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.prepare_cached(
                "UPDATE inbox SET state = 'injected', updated_at = ?3, code = NULL,
                        answer = CASE WHEN from_worker THEN 'ack' END
                 WHERE id = ?1 AND agent = ?2 AND state <> 'injected'",
            )?
            .execute((id, agent, now.0))
            .map(drop)
        })
    }

    /// An agent has settled the delivery at the Worker: it is not shown any more, whether it was or not. One that went to
    /// a room is settled for all its members.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn settled(&mut self, id: &str, now: Wall) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.prepare_cached(
                "UPDATE inbox SET state = 'injected', updated_at = ?2, code = NULL,
                        answer = CASE WHEN asked THEN 'ack' END
                 WHERE id = ?1 AND state = 'waiting'",
            )?
            .execute((id, now.0))
            .map(drop)
        })
    }

    /// A session has refused the envelope. A refusal that passes leaves the row waiting: for the Worker's next
    /// deliver, for the next session of this agent, or for a while, if no Worker will hear of this refusal: because it
    /// does not know of the message, or was answered before. Of what no Worker will ever know the last attempt is refused
    /// for good; a person who is in the way ([`DRAFT_BUSY`]) costs none. Answers whether it is over with the row.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn refused(
        &mut self,
        id: &str,
        agent: &str,
        code: &str,
        retryable: bool,
        now: Wall,
    ) -> Result<bool, StoreError> {
        self.write(|tx| {
            let sql = format!(
                "SELECT attempts, {ONLY_HERE} FROM inbox WHERE id = ?1 AND agent = ?2 AND state = 'waiting'"
            );
            let Some((attempts, is_only_here)) = tx
                .prepare_cached(&sql)?
                .query_row((id, agent), |row| Ok((row.get::<_, u32>(0)?, row.get::<_, bool>(1)?)))
                .optional()?
            else {
                return Ok(false);
            };
            let costs = u32::from(code != DRAFT_BUSY);
            let is_last = is_only_here && attempts.saturating_add(costs) >= limits::DELIVERY_ATTEMPTS;
            let retryable = retryable && !is_last;
            let later = now + Backoff::DELIVERY.after(attempts.saturating_add(1));
            tx.prepare_cached(
                "UPDATE inbox SET state = CASE WHEN :retryable THEN 'waiting' ELSE 'refused' END,
                        due_at = CASE WHEN asked OR (from_worker AND received_at <= :old) THEN :held ELSE :later END,
                        attempts = attempts + :costs, answer = CASE WHEN asked THEN 'nak' END,
                        code = :code, retryable = :retryable, updated_at = :now
                 WHERE id = :id AND agent = :agent",
            )?
            .execute(named_params! {
                ":id": id, ":agent": agent, ":code": code, ":retryable": retryable, ":costs": costs,
                ":held": HELD, ":later": later.0, ":old": (now - limits::DELIVERY_TTL).0, ":now": now.0,
            })?;
            Ok(!retryable)
        })
    }

    /// The agent has no session: everything that the Worker waits for is answered with a refusal that passes, and
    /// stays for the agent's next session. Answers how many rows that were.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn give_back(&mut self, agent: &str, code: &str, now: Wall) -> Result<usize, StoreError> {
        self.write(|tx| {
            tx.prepare_cached(
                "UPDATE inbox SET answer = 'nak', code = ?2, retryable = 1, updated_at = ?3
                 WHERE agent = ?1 AND state = 'waiting' AND asked",
            )?
            .execute((agent, code, now.0))
        })
    }

    /// The agent has a new session: whatever was kept for it is due now, but for what was never to be shown before its
    /// time.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn release(&mut self, agent: &str) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.prepare_cached(
                "UPDATE inbox SET due_at = 0
                 WHERE agent = ?1 AND state = 'waiting' AND due_at > 0
                   AND (attempts > 0 OR due_at = ?2 OR code IS NOT NULL)",
            )?
            .execute((agent, HELD))
            .map(drop)
        })
    }

    /// The oldest answers that are due to the Worker.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn unanswered(&self, limit: u32) -> Result<Vec<Answer>, StoreError> {
        self.read(|conn| {
            conn.prepare_cached(
                "SELECT seq, id, agent, answer, code, retryable FROM inbox
                 WHERE answer IS NOT NULL ORDER BY seq LIMIT ?1",
            )?
            .query_map([limit], answer)?
            .collect()
        })
    }

    /// These answers are on their way. An outcome that has changed since stays due.
    ///
    /// # Errors
    /// When it cannot be stored; then they are sent once more, which does no harm.
    pub fn answered(&mut self, answers: &[Answer]) -> Result<(), StoreError> {
        self.write(|tx| {
            let mut done = tx.prepare_cached(
                "UPDATE inbox SET answer = NULL, asked = 0 WHERE seq = ?1 AND answer = ?2 AND code IS ?3",
            )?;
            for answer in answers {
                let (word, code) = match &answer.outcome {
                    Outcome::Injected => ("ack", None),
                    Outcome::Seen => ("ack", Some(SEEN)),
                    Outcome::Refused { code, .. } => ("nak", Some(code.as_str())),
                };
                done.execute((answer.seq, word, code))?;
            }
            Ok(())
        })
    }

    /// How much waits.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn inbox_counts(&self) -> Result<InboxCounts, StoreError> {
        self.read(|conn| {
            conn.query_row(
                "SELECT (SELECT count(*) FROM inbox WHERE state = 'waiting'),
                        (SELECT count(*) FROM inbox WHERE answer IS NOT NULL)",
                [],
                |row| Ok(InboxCounts { waiting: count(row, 0)?, answers: count(row, 1)? }),
            )
        })
    }

    /// Forgets settled rows that have not changed since `settled`, and waiting ones of the Worker, which has given them up,
    /// that have not since `waiting`. What no Worker knows of [ends](Self::end) first.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn forget(&mut self, settled: Wall, waiting: Wall) -> Result<usize, StoreError> {
        self.write(|tx| {
            tx.execute(
                "DELETE FROM inbox WHERE (updated_at < ?1 AND state <> 'waiting')
                                      OR (updated_at < ?2 AND state = 'waiting')",
                (settled.0, waiting.0),
            )
        })
    }
}

fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::cast_unsigned)
}

struct Known {
    seq: i64,
    state: String,
    redelivery: u32,
    answer: Option<String>,
    from_worker: bool,
}

fn find(tx: &Transaction<'_>, delivery: &Delivery) -> rusqlite::Result<Option<Known>> {
    tx.prepare_cached(
        "SELECT seq, state, redelivery, answer, from_worker FROM inbox WHERE id = ?1 AND agent = ?2",
    )?
    .query_row((&delivery.id, &delivery.agent), |row| {
        Ok(Known {
            seq: row.get(0)?,
            state: row.get(1)?,
            redelivery: row.get(2)?,
            answer: row.get(3)?,
            from_worker: row.get(4)?,
        })
    })
    .optional()
}

fn receive(tx: &Transaction<'_>, delivery: &Delivery, now: Wall) -> rusqlite::Result<Received> {
    let Some(known) = find(tx, delivery)? else {
        insert(tx, delivery, true, now)?;
        return Ok(Received::New);
    };
    let is_newer = delivery.redelivery > known.redelivery;
    let received = match known.state.as_str() {
        "waiting" => Received::Waiting,
        // A reminder of a channel delivery is shown again; a message never is.
        "injected" if IdKind::of(&delivery.id) == Some(IdKind::Delivery) && is_newer => Received::Again,
        "injected" => Received::Injected,
        // The refusal has not reached the Worker yet: it gets it, and may then ask anew. Of what was put in here it has
        // not heard at all.
        _ if known.answer.is_some() || !known.from_worker => Received::Injected,
        _ => Received::Again,
    };
    match received {
        Received::Injected => answer_again(tx, &known, now)?,
        _ => wait_again(tx, &known, delivery, is_newer, now)?,
    }
    if received == Received::Waiting && known.from_worker {
        give_up_before(tx, &known, delivery, now)?;
    }
    Ok(received)
}

/// The Worker sends a message again only when it wants none of the same sender first: what is held here, and was
/// answered for, has ended there. Should the Worker ask for it all the same, it is tried anew.
fn give_up_before(
    tx: &Transaction<'_>,
    known: &Known,
    delivery: &Delivery,
    now: Wall,
) -> rusqlite::Result<()> {
    let Some(from) = delivery.sender() else { return Ok(()) };
    let held: Vec<(i64, Delivery)> = tx
        .prepare_cached(
            "SELECT id, agent, envelope, redelivery, seq FROM inbox
             WHERE agent = ?1 AND state = 'waiting' AND seq < ?2 AND due_at > ?3 AND from_worker AND NOT asked",
        )?
        .query_map((&delivery.agent, known.seq, now.0), |row| Ok((row.get("seq")?, self::delivery(row)?)))?
        .collect::<Result<_, _>>()?;
    for (seq, _) in held.iter().filter(|(_, held)| held.sender() == Some(from)) {
        tx.prepare_cached("UPDATE inbox SET state = 'refused', updated_at = ?2 WHERE seq = ?1")?
            .execute((seq, now.0))?;
    }
    Ok(())
}

fn answer_again(tx: &Transaction<'_>, known: &Known, now: Wall) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "UPDATE inbox SET answer = CASE state WHEN 'injected' THEN 'ack' ELSE 'nak' END,
                from_worker = 1, asked = 1, updated_at = ?2
         WHERE seq = ?1",
    )?
    .execute((known.seq, now.0))
    .map(drop)
}

fn wait_again(
    tx: &Transaction<'_>,
    known: &Known,
    delivery: &Delivery,
    is_newer: bool,
    now: Wall,
) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "UPDATE inbox SET state = 'waiting', due_at = 0, from_worker = 1, asked = 1, answer = NULL, code = NULL,
                envelope = CASE WHEN :newer THEN :envelope ELSE envelope END,
                redelivery = max(redelivery, :redelivery), updated_at = :now
         WHERE seq = :seq",
    )?
    .execute(named_params! {
        ":seq": known.seq, ":newer": is_newer, ":envelope": delivery.envelope,
        ":redelivery": delivery.redelivery, ":now": now.0,
    })
    .map(drop)
}

/// Puts an envelope of this host's own in, unless it is known.
pub(super) fn put(tx: &Transaction<'_>, delivery: &Delivery, now: Wall) -> rusqlite::Result<()> {
    if find(tx, delivery)?.is_none() {
        insert(tx, delivery, false, now)?;
    }
    Ok(())
}

fn insert(tx: &Transaction<'_>, new: &Delivery, from_worker: bool, now: Wall) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "INSERT INTO inbox (id, agent, envelope, redelivery, state, from_worker, asked, received_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, 'waiting', ?5, ?5, ?6, ?6)",
    )?
    .execute((&new.id, &new.agent, &new.envelope, new.redelivery, from_worker, now.0))
    .map(drop)
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    Ok(Delivery {
        id: row.get("id")?,
        agent: row.get("agent")?,
        envelope: row.get("envelope")?,
        redelivery: row.get("redelivery")?,
    })
}

fn answer(row: &Row<'_>) -> rusqlite::Result<Answer> {
    let code: Option<String> = row.get("code")?;
    let outcome = match (row.get_ref("answer")?.as_str()?, code) {
        ("ack", Some(code)) if code == SEEN => Outcome::Seen,
        ("ack", _) => Outcome::Injected,
        (_, code) => Outcome::Refused { code: code.unwrap_or_default(), retryable: row.get("retryable")? },
    };
    Ok(Answer { seq: row.get("seq")?, id: row.get("id")?, agent: row.get("agent")?, outcome })
}

#[cfg(test)]
mod tests;
