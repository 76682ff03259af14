//! The text of a message, for an agent that asks for it.

use super::super::{Row, StoreError, Tx, values};
use super::Queue;

/// The text of a message, for an agent that asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The sender's address.
    pub sender: String,
    /// The whole text.
    pub body: String,
    /// The state of the delivery to that agent; `None` when the message was not for it.
    pub state: Option<String>,
    /// Whether it was said in a room.
    pub is_of_room: bool,
}

/// The message with this id, and whether it was for that agent.
///
/// # Errors
/// When the ledger cannot be read.
pub fn text(tx: &Tx<'_>, queue: &Queue, id: &str) -> Result<Option<Text>, StoreError> {
    let read = |row: &Row<'_>| {
        let (sender, body, state) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Text { sender, body, state, is_of_room: row.get(3)? })
    };
    tx.one(
        "SELECT m.sender, m.body, d.state, m.room_number IS NOT NULL FROM message m
         LEFT JOIN message_delivery d ON d.message_seq = m.seq AND d.host = ?3 AND d.agent = ?4
         WHERE m.org_id = ?1 AND m.id = ?2 AND m.nak IS NULL",
        values![&queue.org_id, id, &queue.host, &queue.agent],
        read,
    )
}
