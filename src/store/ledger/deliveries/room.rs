//! What joining and leaving a room does to its unsettled deliveries.

use super::super::messages::Queue;
use super::super::{StoreError, Tx, values};
use crate::addr::Name;
use crate::clock::Wall;

/// The host and the agent of a delivery that waits for somebody to join its room.
pub(super) const NOBODY: &str = "";

/// Gives what nobody has to all of `members`; to whom it is new. Answers whether there was anything.
pub(in super::super) fn adopt(
    tx: &Tx<'_>,
    room: &Name,
    members: &[Queue],
    now: Wall,
) -> Result<bool, StoreError> {
    let Some((first, others)) = members.split_first() else { return Ok(false) };
    for Queue { org_id, host, agent } in others {
        tx.execute(
            "INSERT INTO delivery (org_id, id, event_seq, integration_id, host, agent, room, state, attempts, shown,
                                   misses, next_attempt_at, created_at, updated_at)
             SELECT org_id, id, event_seq, integration_id, ?4, ?5, room, 'pending', 0, 0, 0, ?6, created_at, ?6
             FROM delivery
             WHERE org_id = ?1 AND host = ?2 AND agent = ?2 AND room = ?3
               AND state IN ('pending', 'dispatched', 'read') ORDER BY seq",
            values![org_id, NOBODY, room.as_str(), host, agent, now],
        )?;
    }
    let Queue { org_id, host, agent } = first;
    let adopted = tx.execute(
        "UPDATE delivery SET host = ?4, agent = ?5, next_attempt_at = ?6, updated_at = ?6
         WHERE org_id = ?1 AND host = ?2 AND agent = ?2 AND room = ?3
           AND state IN ('pending', 'dispatched', 'read')",
        values![org_id, NOBODY, room.as_str(), host, agent, now],
    )?;
    if adopted > 0 {
        // They are older than what was looked at last, also by a server beside this process.
        tx.directory_changed();
    }
    Ok(adopted > 0)
}

/// Takes the deliveries of a room from an agent that has left it. What nobody else has is nobody's then.
pub(in super::super) fn give_up(
    tx: &Tx<'_>,
    room: &Name,
    agent: &Queue,
    now: Wall,
) -> Result<(), StoreError> {
    let Queue { org_id, host, agent } = agent;
    tx.execute(
        "DELETE FROM delivery
         WHERE org_id = ?1 AND host = ?2 AND agent = ?3 AND room = ?4
           AND state IN ('pending', 'dispatched', 'read')
           AND EXISTS (SELECT 1 FROM delivery o
                       WHERE o.org_id = ?1 AND o.id = delivery.id AND o.seq <> delivery.seq)",
        values![org_id, host, agent, room.as_str()],
    )?;
    tx.execute(
        "UPDATE delivery SET host = ?5, agent = ?5, state = 'pending', shown = 0, misses = 0, read_at = NULL,
                             last_error = NULL, updated_at = ?6
         WHERE org_id = ?1 AND host = ?2 AND agent = ?3 AND room = ?4
           AND state IN ('pending', 'dispatched', 'read')",
        values![org_id, host, agent, room.as_str(), NOBODY, now],
    )?;
    Ok(())
}

/// The room is no more. What nobody has is settled; what its members have is theirs as if it had been sent to each, for
/// a room that gets the name is another one.
pub(in super::super) fn abandon(
    tx: &Tx<'_>,
    org_id: &str,
    room: &Name,
    members: &[Queue],
    now: Wall,
) -> Result<(), StoreError> {
    for Queue { host, agent, .. } in members {
        tx.execute(
            "UPDATE delivery SET room = NULL
             WHERE org_id = ?1 AND host = ?2 AND agent = ?3 AND room = ?4
               AND state IN ('pending', 'dispatched', 'read')",
            values![org_id, host, agent, room.as_str()],
        )?;
    }
    tx.execute(
        "UPDATE delivery SET state = 'handled', last_error = 'room_deleted', updated_at = ?4
         WHERE org_id = ?1 AND host = ?2 AND agent = ?2 AND room = ?3
           AND state IN ('pending', 'dispatched', 'read')",
        values![org_id, NOBODY, room.as_str(), now],
    )?;
    Ok(())
}
