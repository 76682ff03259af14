//! Channel deliveries as an operator sees them, and what an operator may do to one.

use super::deliveries::{self, State};
use super::{Refusal, Row, StoreError, Tx, values};
use crate::clock::Wall;

/// One delivery, for a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its place in the order of arrival; a list goes on after it.
    pub seq: i64,
    /// `dlv_…`.
    pub id: String,
    /// Where it stands, as [`State::as_str`] has it.
    pub state: String,
    /// The name of its source; `None` when that was deleted.
    pub source: Option<String>,
    /// The address of its agent; while it waits for somebody to join its room, the room's.
    pub agent: String,
    /// The room that its event went to, without `#`. Each member has a row under the same id.
    pub room: Option<String>,
    /// The event's conversation.
    pub conversation_id: String,
    /// The event's key.
    pub event_key: String,
    /// Deliver frames so far.
    pub attempts: u32,
    /// Why the last one failed.
    pub last_error: Option<String>,
    /// When the event was accepted.
    pub created_at: Wall,
    /// When it was last moved.
    pub updated_at: Wall,
}

impl Listed {
    const QUERY: &str = "SELECT d.seq, d.id, d.state, s.name, \
         CASE WHEN d.agent = '' THEN '#' || d.room ELSE d.agent || '@' || d.host END, e.conversation_id, \
         e.event_key, d.attempts, d.last_error, d.created_at, d.updated_at, d.room \
         FROM delivery d JOIN event e ON e.org_id = d.org_id AND e.seq = d.event_seq \
         LEFT JOIN source s ON s.org_id = d.org_id AND s.integration_id = d.integration_id";

    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            seq: row.get(0)?,
            id: row.get(1)?,
            state: row.get(2)?,
            source: row.get(3)?,
            agent: row.get(4)?,
            conversation_id: row.get(5)?,
            event_key: row.get(6)?,
            attempts: row.get(7)?,
            last_error: row.get(8)?,
            created_at: row.get(9)?,
            updated_at: row.get(10)?,
            room: row.get(11)?,
        })
    }
}

/// The reply to a delivery, with its latest attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The address of the agent that gave it.
    pub agent: String,
    /// What the agent said.
    pub message: String,
    /// `due`, `posted` or `dropped`.
    pub state: String,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// When it is posted next, while it is due.
    pub next_attempt_at: Wall,
    /// The latest attempts: their number, when, and why they failed.
    pub attempts: Vec<(u32, Wall, Option<String>)>,
}

/// The next deliveries of an organisation beyond `after` (0 for the first ones), in the order of arrival.
///
/// # Errors
/// When the ledger cannot be read.
pub fn list(
    tx: &Tx<'_>,
    org_id: &str,
    state: Option<&str>,
    after: i64,
    limit: u32,
) -> Result<Vec<Listed>, StoreError> {
    let sql = format!(
        "{} WHERE d.org_id = ?1 AND d.seq > ?2 AND (?3 IS NULL OR d.state = ?3) ORDER BY d.seq LIMIT ?4",
        Listed::QUERY
    );
    tx.all(&sql, values![org_id, after, state, limit], Listed::read)
}

/// The delivery with this id: of one to a room, each member's.
///
/// # Errors
/// When the ledger cannot be read.
pub fn get(tx: &Tx<'_>, org_id: &str, id: &str) -> Result<Vec<Listed>, StoreError> {
    let sql = format!("{} WHERE d.org_id = ?1 AND d.id = ?2 ORDER BY d.seq", Listed::QUERY);
    tx.all(&sql, values![org_id, id], Listed::read)
}

/// The reply to a delivery, if its agent has given one.
///
/// # Errors
/// When the ledger cannot be read.
pub fn reply(tx: &Tx<'_>, org_id: &str, id: &str) -> Result<Option<Reply>, StoreError> {
    let found = tx.one(
        "SELECT message, state, last_error, next_attempt_at, agent FROM reply WHERE org_id = ?1 AND delivery_id = ?2",
        values![org_id, id],
        |row| {
            let attempts = Vec::new();
            let (message, state) = (row.get(0)?, row.get(1)?);
            let agent = row.get(4)?;
            Ok(Reply { agent, message, state, last_error: row.get(2)?, next_attempt_at: row.get(3)?, attempts })
        },
    )?;
    let Some(mut reply) = found else { return Ok(None) };
    reply.attempts = tx.all(
        "SELECT attempt, at, error FROM reply_attempt WHERE org_id = ?1 AND delivery_id = ?2 ORDER BY attempt",
        values![org_id, id],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    Ok(Some(reply))
}

/// Settles a delivery in the operator's name. A reply that was not posted yet never will be.
///
/// # Errors
/// [`Refusal::NotFound`], and [`Refusal::Settled`] when there is nothing left to settle.
pub fn handle(tx: &Tx<'_>, org_id: &str, id: &str, now: Wall) -> Result<Listed, StoreError> {
    waiting(tx, org_id, id)?;
    tx.execute(
        "UPDATE reply SET state = 'dropped' WHERE org_id = ?1 AND delivery_id = ?2 AND state = 'due'",
        values![org_id, id],
    )?;
    deliveries::settle(tx, org_id, id, State::Handled, now)?;
    tx.directory_changed();
    present(tx, org_id, id)
}

/// Makes a delivery due now: the agent is shown it again, also when it has refused it for good, or its reply is posted
/// again.
///
/// # Errors
/// [`Refusal::NotFound`], and [`Refusal::Settled`] when nothing of it waits.
pub fn requeue(tx: &Tx<'_>, org_id: &str, id: &str, now: Wall) -> Result<Listed, StoreError> {
    waiting(tx, org_id, id)?;
    tx.execute(
        "UPDATE reply SET next_attempt_at = ?3 WHERE org_id = ?1 AND delivery_id = ?2 AND state = 'due'",
        values![org_id, id, now],
    )?;
    tx.execute(
        "UPDATE delivery SET next_attempt_at = ?3, updated_at = ?3,
                             misses = CASE WHEN state = 'dead' THEN 0 ELSE misses END,
                             state = CASE WHEN state <> 'dead' THEN state
                                          WHEN read_at IS NULL THEN 'pending' ELSE 'read' END
         WHERE org_id = ?1 AND id = ?2 AND state IN ('pending', 'dispatched', 'read', 'dead')",
        values![org_id, id, now],
    )?;
    tx.directory_changed();
    present(tx, org_id, id)
}

/// The delivery, if its agent or its reply still waits.
fn waiting(tx: &Tx<'_>, org_id: &str, id: &str) -> Result<Listed, StoreError> {
    let found = present(tx, org_id, id)?;
    if found.state == State::Handled.as_str() {
        return Err(Refusal::Settled { id: id.to_owned() }.into());
    }
    Ok(found)
}

fn present(tx: &Tx<'_>, org_id: &str, id: &str) -> Result<Listed, StoreError> {
    let found = get(tx, org_id, id)?.into_iter().next();
    Ok(found.ok_or_else(|| Refusal::not_found("delivery", id))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ledger::directory::OrgRow;
    use crate::store::ledger::messages::Queue;
    use crate::store::ledger::tests::{code, with_org};
    use crate::store::ledger::{events, replies, sources};
    use crate::store::seal::MasterKey;

    const NOW: Wall = Wall(1_000_000);
    const LATER: Wall = Wall(1_000_500);

    /// A source, and the ids of `count` deliveries of its events.
    fn with_deliveries(count: usize, test: impl Fn(&Tx<'_>, &OrgRow, Vec<String>) + Send + 'static) {
        with_org(move |tx, org| {
            let source = sources::NewSource {
                name: "ci".parse().unwrap(),
                target_addr: "bob@demo".parse().unwrap(),
                reply_url: None,
                prefixes: vec![],
                secret: crate::secret::Secret::new("s").unwrap(),
                rate: 5,
                burst: 20,
                instructions: None,
            };
            let key = MasterKey::from_base64("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").unwrap();
            let source = sources::create(tx, &org.id, &source, &key, NOW).unwrap();
            let accept = |n| {
                let body = format!(
                    r#"{{"schema":"transit.ingest/1","event_key":"k{n}","conversation_id":"c","content":"x"}}"#
                );
                let event = crate::proto::ingest::parse_event(body.as_bytes()).unwrap();
                let target = "bob@demo".parse().unwrap();
                events::accept(tx, &source, &event, "d", 1, &target, NOW).unwrap().delivery_id
            };
            let ids = (0..count).map(accept).collect();
            test(tx, org, ids);
        });
    }

    #[test]
    fn a_list_goes_on_after_its_last_row_and_keeps_to_a_state() {
        with_deliveries(5, |tx, org, ids| {
            let first = list(tx, &org.id, None, 0, 3).unwrap();
            let rest = list(tx, &org.id, None, first[2].seq, 3).unwrap();
            let listed: Vec<_> = first.iter().chain(&rest).map(|row| row.id.clone()).collect();
            assert_eq!(listed, ids);
            let Listed { source, agent, event_key, .. } = &first[1];
            assert_eq!((source.as_deref(), &**agent, &**event_key), (Some("ci"), "bob@demo", "k1"));
            handle(tx, &org.id, &ids[1], LATER).unwrap();
            assert_eq!(list(tx, &org.id, Some("handled"), 0, 9).unwrap().len(), 1);
            assert_eq!(list(tx, &org.id, Some("pending"), 0, 9).unwrap().len(), 4);
            assert!(list(tx, "org_other", None, 0, 9).unwrap().is_empty());
        });
    }

    #[test]
    fn a_reply_that_waits_is_posted_at_once_or_never() {
        with_deliveries(1, |tx, org, ids| {
            let (org, id) = (org.id.as_str(), ids[0].as_str());
            assert_eq!(reply(tx, org, id).unwrap(), None);
            let bob = Queue { org_id: org.into(), host: "demo".into(), agent: "bob".into() };
            let delivery = deliveries::get(tx, &bob, id).unwrap().unwrap();
            replies::record(tx, org, &delivery, "done", NOW).unwrap();
            requeue(tx, org, id, LATER).unwrap();
            let waits = reply(tx, org, id).unwrap().unwrap();
            assert_eq!((waits.state.as_str(), waits.next_attempt_at), ("due", LATER));
            let settled = handle(tx, org, id, LATER).unwrap();
            assert_eq!((settled.state.as_str(), settled.updated_at), ("handled", LATER));
            assert_eq!(reply(tx, org, id).unwrap().unwrap().state, "dropped");
            assert_eq!(code(requeue(tx, org, id, LATER)), "already_handled");
            assert_eq!(code(handle(tx, org, id, LATER)), "already_handled");
            assert_eq!(code(handle(tx, org, "dlv_none", LATER)), "not_found");
        });
    }

    #[test]
    fn the_deliveries_of_a_deleted_source_stay() {
        with_deliveries(1, |tx, org, ids| {
            sources::delete(tx, &org.id, &"ci".parse().unwrap()).unwrap();
            assert_eq!(get(tx, &org.id, &ids[0]).unwrap()[0].source, None);
            requeue(tx, &org.id, &ids[0], LATER).unwrap();
        });
    }
}
