//! Events from outside, as they were accepted: each once, with its delivery.

use sha2::{Digest, Sha256};

use super::Refusal;
use super::deliveries::{self, Fresh};
use super::messages::Queue;
use super::sources::SourceRow;
use super::{StoreError, Tx, rooms, values};
use crate::addr::Addr;
use crate::clock::Wall;
use crate::id::IdKind;
use crate::proto::ingest::Event;

/// What the sender of an event is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// `evt_…`.
    pub event_id: String,
    /// `dlv_…`.
    pub delivery_id: String,
    /// How this event relates to what was stored.
    pub kind: AcceptedKind,
    /// The queues of the room's members, when a new event went to a room.
    pub members: Vec<Queue>,
}

/// How an event relates to what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptedKind {
    /// It is stored now.
    New,
    /// It was stored before, with the same content.
    Same,
    /// Another event was stored before under its key, and stays.
    Different,
}

/// What tells whether two events are the same: a digest over all their fields.
pub fn digest(event: &Event) -> String {
    let mut text = vec![0; 64];
    hex::encode_to_slice(Sha256::digest(event.to_body()), &mut text).expect("64 digits hold 32 bytes");
    String::from_utf8(text).expect("hexadecimal digits are ASCII")
}

/// The event that the source sent before under this key.
///
/// # Errors
/// When the ledger cannot be read.
pub fn find(
    tx: &Tx<'_>,
    source: &SourceRow,
    event_key: &str,
    digest: &str,
) -> Result<Option<Accepted>, StoreError> {
    tx.one(
        "SELECT id, delivery_id, digest FROM event WHERE org_id = ?1 AND integration_id = ?2 AND event_key = ?3",
        values![&source.org_id, &source.integration_id, event_key],
        |row| {
            let same = row.get::<String>(2)? == digest;
            let kind = if same { AcceptedKind::Same } else { AcceptedKind::Different };
            Ok(Accepted { event_id: row.get(0)?, delivery_id: row.get(1)?, kind, members: Vec::new() })
        },
    )
}

/// Stores an event and its delivery to `target`, unless its key is known: to a room, one to every member. `secret_no`
/// is the secret that verified it, so that its reply is signed with the same one.
///
/// # Errors
/// When the ledger cannot be changed, and [`Refusal::NoRoom`] when the target is a room that does not exist.
pub fn accept(
    tx: &Tx<'_>,
    source: &SourceRow,
    event: &Event,
    digest: &str,
    secret_no: i64,
    target: &Addr,
    now: Wall,
) -> Result<Accepted, StoreError> {
    let (event_id, delivery_id) = (IdKind::Event.fresh(), IdKind::Delivery.fresh_beyond());
    let meta = serde_json::to_string(&event.meta).expect("meta holds only strings");
    let stored = tx.insert(
        "INSERT INTO event (id, delivery_id, org_id, integration_id, event_key, conversation_id, user_name,
                            trigger_name, content, reply_url, meta, digest, secret_no, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
         ON CONFLICT (integration_id, event_key) DO NOTHING",
        values![
            &event_id,
            &delivery_id,
            &source.org_id,
            &source.integration_id,
            &event.event_key,
            &event.conversation_id,
            event.user.as_deref(),
            event.trigger.as_deref(),
            &event.content,
            event.reply_url.as_deref(),
            meta,
            digest,
            secret_no,
            now,
        ],
    )?;
    let Some(event_seq) = stored else {
        let before = find(tx, source, &event.event_key, digest)?;
        return Ok(before.ok_or_else(|| Refusal::not_found("event", &event.event_key))?);
    };
    let fresh = Fresh { source, id: &delivery_id, event_seq, now };
    let members = match target {
        Addr::Agent(agent) => {
            deliveries::add(tx, &fresh, None, agent.host.as_str(), agent.name.as_str())?;
            Vec::new()
        }
        Addr::Room(name) => {
            let room = rooms::get(tx, &source.org_id, name)?;
            let members = rooms::members(tx, &source.org_id, &room)?;
            let queues: Vec<Queue> = members.into_iter().map(|member| member.queue).collect();
            deliveries::add_to_room(tx, &fresh, name, &queues)?;
            queues
        }
    };
    Ok(Accepted { event_id, delivery_id, kind: AcceptedKind::New, members })
}
