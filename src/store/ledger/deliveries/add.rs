//! How a delivery comes to be.

use super::super::messages::Queue;
use super::super::sources::SourceRow;
use super::super::{StoreError, Tx, values};
use super::room::NOBODY;
use crate::addr::Name;
use crate::clock::Wall;

/// What a new delivery is of.
pub(in super::super) struct Fresh<'a> {
    /// Where its event came from.
    pub(in super::super) source: &'a SourceRow,
    /// `dlv_…`.
    pub(in super::super) id: &'a str,
    /// Its event.
    pub(in super::super) event_seq: i64,
    /// When the event was accepted.
    pub(in super::super) now: Wall,
}

/// Stores the delivery to one agent.
pub(in super::super) fn add(
    tx: &Tx<'_>,
    fresh: &Fresh<'_>,
    room: Option<&str>,
    host: &str,
    agent: &str,
) -> Result<(), StoreError> {
    let Fresh { source, id, event_seq, now } = *fresh;
    tx.execute(
        "INSERT INTO delivery (org_id, id, event_seq, integration_id, host, agent, state, attempts, shown, misses,
                               next_attempt_at, created_at, updated_at, room)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'pending', 0, 0, 0, ?7, ?7, ?7, ?8)",
        values![&source.org_id, id, event_seq, &source.integration_id, host, agent, now, room],
    )?;
    Ok(())
}

/// Stores the delivery to every member of a room, or for the first who joins it.
pub(in super::super) fn add_to_room(
    tx: &Tx<'_>,
    fresh: &Fresh<'_>,
    room: &Name,
    members: &[Queue],
) -> Result<(), StoreError> {
    for Queue { host, agent, .. } in members {
        add(tx, fresh, Some(room.as_str()), host, agent)?;
    }
    if members.is_empty() { add(tx, fresh, Some(room.as_str()), NOBODY, NOBODY) } else { Ok(()) }
}
