//! Messages as an operator sees them, and what an operator may do to one.

use super::messages::{self, Fate};
use super::{Refusal, Row, StoreError, Tx, values};
use crate::clock::Wall;
use crate::limits::DELIVERY_TTL;
use crate::proto::wire::NakCode;

/// Why a delivery that an operator has cancelled is dead.
const CANCELLED: &str = "cancelled_by_operator";

/// One message, for a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its place in the order of arrival; a list goes on after it.
    pub seq: i64,
    /// `tx_…`.
    pub id: String,
    /// `queued` while a delivery of it can still succeed; then `dead` if one of them did not, `shown` if
    /// one was only shown by a terminal, else `injected`.
    pub state: String,
    /// The sender's address.
    pub from: String,
    /// The recipient: an agent's address, or `#room`.
    pub to: String,
    /// What it answers.
    pub reply_to: Option<String>,
    /// The length of its text, in bytes.
    pub bytes: u32,
    /// Deliver frames so far, of all its deliveries.
    pub attempts: u32,
    /// Why it was refused, or why a delivery of it failed last.
    pub last_error: Option<String>,
    /// When it was taken, or refused.
    pub created_at: Wall,
    /// When a delivery of it was last moved.
    pub updated_at: Wall,
}

impl Listed {
    /// Of the deliveries of a message, this is what its state is made of.
    const STATE: &str = "CASE WHEN m.nak IS NOT NULL THEN 'dead'
              WHEN EXISTS (SELECT 1 FROM message_delivery d WHERE d.message_seq = m.seq AND d.state = 'queued')
              THEN 'queued'
              WHEN EXISTS (SELECT 1 FROM message_delivery d WHERE d.message_seq = m.seq AND d.state = 'dead')
              THEN 'dead'
              WHEN EXISTS (SELECT 1 FROM message_delivery d WHERE d.message_seq = m.seq AND d.state = 'shown')
              THEN 'shown' ELSE 'injected' END";

    fn query(wanted: &str) -> String {
        format!(
            "SELECT m.seq, m.id, {}, m.sender, m.recipient, m.reply_to, LENGTH(CAST(m.body AS BLOB)),
                    COALESCE((SELECT SUM(d.attempts) FROM message_delivery d WHERE d.message_seq = m.seq), 0),
                    COALESCE(m.nak, (SELECT MAX(d.last_error) FROM message_delivery d WHERE d.message_seq = m.seq)),
                    m.created_at,
                    COALESCE((SELECT MAX(d.updated_at) FROM message_delivery d WHERE d.message_seq = m.seq),
                             m.created_at)
             FROM message m WHERE m.org_id = ?1 AND {wanted}",
            Self::STATE
        )
    }

    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            seq: row.get(0)?,
            id: row.get(1)?,
            state: row.get(2)?,
            from: row.get(3)?,
            to: row.get(4)?,
            reply_to: row.get(5)?,
            bytes: row.get(6)?,
            attempts: row.get(7)?,
            last_error: row.get(8)?,
            created_at: row.get(9)?,
            updated_at: row.get(10)?,
        })
    }
}

/// Which messages are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Only those that stand here.
    pub state: Option<String>,
    /// Only those to this room, with its `#`.
    pub room: Option<String>,
}

impl Wanted {
    /// What a message must be. Those that wait are found by their queues: they are few among all that ever were.
    fn sql(&self) -> String {
        let waiting =
            "m.seq IN (SELECT message_seq FROM message_delivery WHERE org_id = ?1 AND state = 'queued')";
        let narrowed = if self.state.as_deref() == Some("queued") { waiting } else { "TRUE" };
        let state = Listed::STATE;
        format!("{narrowed} AND (?4 IS NULL OR {state} = ?4) AND (?5 IS NULL OR m.recipient = ?5)")
    }
}

/// The next messages of an organisation beyond `after` (0 for the first ones), in the order of arrival.
///
/// # Errors
/// When the ledger cannot be read.
pub fn list(
    tx: &Tx<'_>,
    org_id: &str,
    wanted: &Wanted,
    after: i64,
    limit: u32,
) -> Result<Vec<Listed>, StoreError> {
    let sql = Listed::query(&format!("m.seq > ?2 AND {} ORDER BY m.seq LIMIT ?3", wanted.sql()));
    let values = values![org_id, after, limit, wanted.state.as_deref(), wanted.room.as_deref()];
    tx.all(&sql, values, Listed::read)
}

/// The `count` latest messages of an organisation, in the order of arrival.
///
/// # Errors
/// When the ledger cannot be read.
pub fn latest(tx: &Tx<'_>, org_id: &str, wanted: &Wanted, count: u32) -> Result<Vec<Listed>, StoreError> {
    let sql = Listed::query(&format!("m.seq < ?2 AND {} ORDER BY m.seq DESC LIMIT ?3", wanted.sql()));
    let values = values![org_id, i64::MAX, count, wanted.state.as_deref(), wanted.room.as_deref()];
    let mut found = tx.all(&sql, values, Listed::read)?;
    found.reverse();
    Ok(found)
}

/// One message, its text, and what became of it.
///
/// # Errors
/// When the ledger cannot be read.
pub fn get(tx: &Tx<'_>, org_id: &str, id: &str) -> Result<Option<(Listed, String, Fate)>, StoreError> {
    let Some(found) = tx.one(&Listed::query("m.id = ?2"), values![org_id, id], Listed::read)? else {
        return Ok(None);
    };
    let body =
        tx.one("SELECT body FROM message WHERE org_id = ?1 AND id = ?2", values![org_id, id], |row| {
            row.get(0)
        })?;
    let fate = messages::fate(tx, org_id, id)?;
    Ok(body.zip(fate).map(|(body, fate)| (found, body, fate)))
}

/// Queues the deliveries of a message anew that are dead: with all their attempts, and all their time.
///
/// # Errors
/// [`Refusal::NotFound`], and [`Refusal::NotDead`] when nothing of it is dead, or it was refused when it came.
pub fn requeue(tx: &Tx<'_>, org_id: &str, id: &str, now: Wall) -> Result<Listed, StoreError> {
    let found = present(tx, org_id, id)?;
    let queued = tx.execute(
        "UPDATE message_delivery
         SET state = 'queued', held = 0, attempts = 0, next_attempt_at = ?3, expires_at = ?4, last_error = NULL,
             updated_at = ?3
         WHERE org_id = ?1 AND message_seq = ?2 AND state = 'dead'",
        values![org_id, found.seq, now, now + DELIVERY_TTL],
    )?;
    if queued == 0 {
        return Err(Refusal::NotDead { id: id.to_owned(), state: state_in_words(&found) }.into());
    }
    tx.directory_changed();
    present(tx, org_id, id)
}

/// Ends the deliveries of a message that wait. Nobody is told but who asks: a bounce would be one more message.
///
/// # Errors
/// [`Refusal::NotFound`], and [`Refusal::NotQueued`] when nothing of it waits.
pub fn cancel(tx: &Tx<'_>, org_id: &str, id: &str, now: Wall) -> Result<Listed, StoreError> {
    let found = present(tx, org_id, id)?;
    let cancelled = tx.execute(
        "UPDATE message_delivery SET state = 'dead', last_error = ?3, updated_at = ?4
         WHERE org_id = ?1 AND message_seq = ?2 AND state = 'queued'",
        values![org_id, found.seq, CANCELLED, now],
    )?;
    if cancelled == 0 {
        return Err(Refusal::NotQueued { id: id.to_owned(), state: state_in_words(&found) }.into());
    }
    tx.directory_changed();
    present(tx, org_id, id)
}

/// A message that was refused when it came is not queued, whatever is done.
fn state_in_words(found: &Listed) -> String {
    match (found.state.as_str(), &found.last_error) {
        ("dead", Some(code)) if found.attempts == 0 && NakCode::of(code).is_some() => {
            format!("refused ({code})")
        }
        (state, _) => state.to_owned(),
    }
}

fn present(tx: &Tx<'_>, org_id: &str, id: &str) -> Result<Listed, StoreError> {
    let found = tx.one(&Listed::query("m.id = ?2"), values![org_id, id], Listed::read)?;
    Ok(found.ok_or_else(|| Refusal::not_found("message", id))?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::proto::wire::SendFrame;
    use crate::store::ledger::messages::{Queue, Taken};
    use crate::store::ledger::roster::tests::{agent, enrol};
    use crate::store::ledger::tests::{code, with_org};

    const NOW: Wall = Wall(1_000_000);

    fn frame(n: u32, to: &str) -> SendFrame {
        SendFrame {
            id: format!("tx_{n:012}"),
            from: "amy@alpha".into(),
            to: to.into(),
            body: "hällo".into(),
            reply_to: None,
            ts: String::new(),
        }
    }

    /// `count` messages to `bob@beta`.
    fn with_messages(count: u32, test: impl Fn(&Tx<'_>, &str) + Send + 'static) {
        with_org(move |tx, org| {
            enrol(tx, &org.id, "beta", &[agent("bob", "idle")], NOW).unwrap();
            for n in 1..=count {
                let taken =
                    messages::take(tx, &queue(&org.id), "alpha", &frame(n, "bob@beta"), false, NOW).unwrap();
                assert!(matches!(taken, Taken::Stored { .. }));
            }
            test(tx, &org.id);
        });
    }

    fn queue(org_id: &str) -> Queue {
        Queue { org_id: org_id.to_owned(), host: "beta".into(), agent: "bob".into() }
    }

    fn ids(listed: &[Listed]) -> Vec<&str> {
        listed.iter().map(|row| row.id.as_str()).collect()
    }

    fn in_state(state: &str) -> Wanted {
        Wanted { state: Some(state.into()), room: None }
    }

    #[test]
    fn a_list_goes_on_after_its_last_row_or_begins_at_the_latest_ones() {
        with_messages(5, |tx, org| {
            let all = Wanted::default();
            let first = list(tx, org, &all, 0, 3).unwrap();
            let rest = list(tx, org, &all, first[2].seq, 9).unwrap();
            assert_eq!(ids(&first), ["tx_000000000001", "tx_000000000002", "tx_000000000003"]);
            assert_eq!(ids(&rest), ["tx_000000000004", "tx_000000000005"]);
            assert_eq!(latest(tx, org, &all, 2).unwrap(), rest);
            let Listed { from, to, bytes, attempts, state, .. } = &first[0];
            assert_eq!((from.as_str(), to.as_str(), *bytes, *attempts), ("amy@alpha", "bob@beta", 6, 0));
            assert_eq!(state, "queued");
            assert!(list(tx, "org_other", &all, 0, 9).unwrap().is_empty());
            let room = Wanted { state: None, room: Some("#ops".into()) };
            assert!(list(tx, org, &room, 0, 9).unwrap().is_empty());
        });
    }

    #[test]
    fn a_list_keeps_to_a_state() {
        with_messages(4, |tx, org| {
            messages::arrived(tx, org, "beta", "tx_000000000001", None, messages::Arrival::Injected, NOW)
                .unwrap();
            let rejected = ("adapter_rejected", false);
            messages::refused(tx, (org, "beta"), "tx_000000000002", None, rejected, NOW).unwrap();
            messages::refuse(tx, org, "alpha", &frame(9, "eve@beta"), NakCode::NoRoute, NOW).unwrap();
            let of = |state: &str| {
                let listed = list(tx, org, &in_state(state), 0, 9).unwrap();
                assert_eq!(latest(tx, org, &in_state(state), 9).unwrap(), listed);
                listed
            };
            assert_eq!(ids(&of("injected")), ["tx_000000000001"]);
            let dead = of("dead");
            assert_eq!(ids(&dead), ["tx_000000000002", "tx_000000000009"]);
            assert_eq!(dead[0].last_error.as_deref(), Some("adapter_rejected"));
            assert_eq!(dead[1].last_error.as_deref(), Some("no_route"));
            // The bounce to amy waits as well.
            let queued = of("queued");
            assert_eq!(ids(&queued)[..2], ["tx_000000000003", "tx_000000000004"]);
            assert_eq!((queued.len(), queued[2].from.as_str()), (3, "transit"));
        });
    }

    #[test]
    fn what_is_cancelled_is_dead_without_a_bounce_and_can_be_queued_again() {
        with_messages(2, |tx, org| {
            let id = "tx_000000000001";
            assert_eq!(code(requeue(tx, org, id, NOW)), "not_dead");
            let later = NOW + Duration::from_secs(60);
            let cancelled = cancel(tx, org, id, later).unwrap();
            assert_eq!((cancelled.state.as_str(), cancelled.updated_at), ("dead", later));
            assert_eq!(cancelled.last_error.as_deref(), Some(CANCELLED));
            assert_eq!(code(cancel(tx, org, id, later)), "not_queued");
            assert_eq!(list(tx, org, &Wanted::default(), 0, 9).unwrap().len(), 2, "nobody is told");
            assert_eq!(messages::due(tx, &queue(org), 0, later, 9).unwrap().len(), 1);
            messages::arrived(tx, org, "beta", id, None, messages::Arrival::Injected, later).unwrap();
            assert_eq!(get(tx, org, id).unwrap().unwrap().0.state, "dead", "a late ack does not revive it");

            let end = NOW + DELIVERY_TTL;
            let queued = requeue(tx, org, id, end).unwrap();
            assert_eq!((queued.state.as_str(), queued.attempts, queued.last_error), ("queued", 0, None));
            let bounces = messages::expire(tx, end).unwrap();
            assert_eq!(bounces.len(), 1, "only the other one's time is over");
            let due = messages::due(tx, &queue(org), 0, end, 9).unwrap();
            assert_eq!(due.iter().map(|due| due.id.as_str()).collect::<Vec<_>>(), [id]);
        });
    }

    #[test]
    fn what_was_refused_when_it_came_is_told_and_stays() {
        with_messages(0, |tx, org| {
            messages::refuse(tx, org, "alpha", &frame(9, "eve@beta"), NakCode::NoRoute, NOW).unwrap();
            for outcome in [requeue(tx, org, "tx_000000000009", NOW), cancel(tx, org, "tx_000000000009", NOW)]
            {
                let err = outcome.unwrap_err().to_string();
                assert!(err.contains("refused (no_route)"), "{err}");
            }
            let (_, body, fate) = get(tx, org, "tx_000000000009").unwrap().unwrap();
            assert_eq!((body.as_str(), fate.nak, fate.recipients.len()), ("", Some(NakCode::NoRoute), 0));
            assert_eq!(get(tx, org, "tx_none").unwrap(), None);
            assert_eq!(code(cancel(tx, org, "tx_none", NOW)), "not_found");
            assert_eq!(code(requeue(tx, "org_other", "tx_000000000009", NOW)), "not_found");
        });
    }
}
