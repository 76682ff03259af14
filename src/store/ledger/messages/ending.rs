//! What time ends, and what its sender is told.

use super::super::{StoreError, Tx, values};
use super::take::add;
use super::{Queue, SYSTEM};
use crate::clock::Wall;
use crate::id::IdKind;
use crate::limits::DELIVERY_ATTEMPTS;
use crate::proto::wire::SendFrame;

/// Ends the deliveries, of all organisations, whose time or attempts are used up. Answers the queues that now
/// hold a bounce.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn expire(tx: &Tx<'_>, now: Wall) -> Result<Vec<Queue>, StoreError> {
    let over = tx.all(
        "SELECT org_id, seq, expires_at <= ?1 FROM message_delivery
         WHERE state = 'queued' AND (expires_at <= ?1 OR (attempts >= ?2 AND next_attempt_at <= ?1))
         LIMIT 500",
        values![now, DELIVERY_ATTEMPTS],
        |row| Ok((row.get::<String>(0)?, row.get::<i64>(1)?, row.get::<bool>(2)?)),
    )?;
    let mut bounced = Vec::new();
    for (org_id, seq, by_time) in over {
        let reason = if by_time { "it waited for 24 h" } else { "it was tried 40 times" };
        bounced.extend(die(tx, &org_id, seq, reason, now)?);
    }
    Ok(bounced)
}

/// Ends one delivery and tells its sender, once. Of a message to a room that is once for each member it did not reach,
/// who is named. A bounce that cannot be delivered is not bounced, and the operator has no session to tell.
pub(super) fn die(
    tx: &Tx<'_>,
    org_id: &str,
    seq: i64,
    reason: &str,
    now: Wall,
) -> Result<Option<Queue>, StoreError> {
    let dead = tx.one(
        "UPDATE message_delivery SET state = 'dead', last_error = COALESCE(last_error || '; ', '') || ?3,
                                     updated_at = ?4
         WHERE org_id = ?1 AND seq = ?2 AND state = 'queued'
         RETURNING (SELECT id FROM message m WHERE m.seq = message_seq), sender, agent, host, last_error,
                   (SELECT recipient FROM message m WHERE m.seq = message_seq AND m.room_number IS NOT NULL)",
        values![org_id, seq, reason, now],
        |row| {
            Ok((
                row.get::<String>(0)?,
                row.get::<String>(1)?,
                format!("{}@{}", row.get::<String>(2)?, row.get::<String>(3)?),
                row.get::<String>(4)?,
                row.get::<Option<String>>(5)?,
            ))
        },
    )?;
    let Some((id, sender, recipient, why, room)) = dead else { return Ok(None) };
    let Some((agent, host)) = sender.split_once('@').filter(|(_, host)| *host != SYSTEM) else {
        return Ok(None);
    };
    let room = room.map(|room| format!(" in {room}")).unwrap_or_default();
    let queue = Queue { org_id: org_id.to_owned(), host: host.to_owned(), agent: agent.to_owned() };
    let bounce = SendFrame {
        id: IdKind::Message.fresh(),
        from: SYSTEM.to_owned(),
        to: sender.clone(),
        body: format!("undeliverable to {recipient}{room}: {why}"),
        reply_to: Some(id),
        ts: now.to_string(),
    };
    add(tx, &queue, SYSTEM, &bounce, now)?;
    Ok(Some(queue))
}
