//! Messages, direct and to rooms, and their deliveries: queued → injected | shown | dead.
//!
//! A queue belongs to one agent and is read along `seq`. A delivery that was refused, or whose answer was lost
//! with its connection, is *held* until it is settled: the sender's later messages to the same agent wait behind
//! it.
//!
//! [`take`] and [`post`] are how a message comes in, [`due`] what goes out; [`arrived`], [`refused`] and [`expire`] are
//! how a delivery moves on.

mod ending;
mod fate;
mod queue;
mod room;
mod settle;
mod take;
mod text;

pub use self::ending::expire;
pub use self::fate::{Fate, Recipient, fate};
pub use self::queue::{Due, attempted, due, is_held, next_due, overdue};
pub use self::room::{Place, Posted, post, post_as_operator};
pub use self::settle::{Arrival, Refused, arrived, arrived_by_seq, reconnected, refused, release};
pub use self::take::{Known, Taken, known, refuse, take};
pub use self::text::{Text, text};
use super::{Row, StoreError};
/// The sender of bounces, and the host that their rows name.
pub use crate::proto::envelope::SYSTEM;

/// The operator, as the sender of messages to rooms.
pub const OPERATOR: &str = "operator@transit";
/// What a daemon says when a person is typing where the envelope would go: it costs no attempt.
pub(super) const DRAFT_BUSY: &str = "draft_busy";
/// What a daemon says that its operator has paused: it costs no attempt either.
const PAUSED: &str = "paused";

/// Whether a refusal with this code is held against nothing: the time that it lasts is a person's.
pub(super) fn is_free(code: &str) -> bool {
    matches!(code, DRAFT_BUSY | PAUSED)
}

/// An agent whose queue has changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Queue {
    /// The organisation.
    pub org_id: String,
    /// The host.
    pub host: String,
    /// The agent.
    pub agent: String,
}

impl Queue {
    /// The agent's address, `NAME@HOST`.
    pub fn address(&self) -> String {
        format!("{}@{}", self.agent, self.host)
    }

    /// Reads organisation, host and agent, in this order.
    pub(super) fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        Ok(Self { org_id: row.get(0)?, host: row.get(1)?, agent: row.get(2)? })
    }
}

#[cfg(test)]
mod tests;
