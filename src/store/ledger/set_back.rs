//! After the wall clock was set back: nothing waits for longer than the longest wait that there is.
//!
//! What is due again at some time keeps that time by the wall clock, the only one that outlives a process. A clock that
//! ran ahead and was put right would hold all of it up by as much as it was ahead.

use super::{StoreError, Tx, values};
use crate::clock::{Backoff, Wall, channel_redelivery};
use crate::limits::DELIVERY_TTL;

/// Makes due now, in all organisations, what is due further off than its largest wait. Answers how many rows that were.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn catch_up(tx: &Tx<'_>, now: Wall) -> Result<usize, StoreError> {
    let messages = tx.execute(
        "UPDATE message_delivery SET next_attempt_at = ?1 WHERE state = 'queued' AND next_attempt_at > ?2",
        values![now, now + Backoff::DELIVERY.cap],
    )?;
    tx.execute(
        "UPDATE message_delivery SET expires_at = ?1 WHERE state = 'queued' AND expires_at > ?1",
        values![now + DELIVERY_TTL],
    )?;
    let deliveries = tx.execute(
        "UPDATE delivery SET next_attempt_at = ?1
         WHERE state IN ('pending', 'dispatched', 'read') AND next_attempt_at > ?2",
        values![now, now + channel_redelivery(u32::MAX, true)],
    )?;
    let replies = tx.execute(
        "UPDATE reply SET next_attempt_at = ?1 WHERE state = 'due' AND next_attempt_at > ?2",
        values![now, now + Backoff::CALLBACK.cap],
    )?;
    Ok(messages + deliveries + replies)
}
