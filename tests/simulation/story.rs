//! What was seen from outside, and what the ledger holds at the end: all that a proof is about.

use std::collections::BTreeSet;

use serde_json::Value;
use transit::proto::wire::NakCode;

/// A message that a host's spool has taken from one of its agents.
#[derive(Debug, Clone)]
pub(crate) struct Accepted {
    pub(crate) org: usize,
    pub(crate) host: String,
    pub(crate) id: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) body: String,
    /// What the Worker has answered, each time.
    pub(crate) answers: Vec<Result<(), NakCode>>,
}

/// An envelope in an agent's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) org: usize,
    pub(crate) agent: String,
    pub(crate) id: String,
    pub(crate) from: String,
    pub(crate) body: String,
    /// Of a delivery from a source: its conversation.
    pub(crate) conversation: String,
    /// Of a delivery from a source: how often it was shown before, as it says.
    pub(crate) redelivery: Option<u32>,
    /// Of a message to a room: its number there.
    pub(crate) seq: Option<u64>,
    /// The life of the daemon that showed it.
    pub(crate) life: u32,
}

/// A deliver frame that has left the Worker.
#[derive(Debug, Clone)]
pub(crate) struct Delivered {
    pub(crate) org: usize,
    pub(crate) id: String,
    pub(crate) agent: String,
    /// Whether the ledger still waited for it when it left.
    pub(crate) was_open: bool,
}

/// Something that was said to somebody, and whether a commit had made it true.
#[derive(Debug, Clone)]
pub(crate) struct Promise {
    pub(crate) what: String,
    pub(crate) is_kept: bool,
}

/// An event that somebody outside has told.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) org: usize,
    pub(crate) source: &'static str,
    pub(crate) key: String,
    pub(crate) content: String,
    /// Status and ids of each answer that came through.
    pub(crate) taken: Vec<(u16, String)>,
}

/// A reply that came to a receiver.
#[derive(Debug, Clone)]
pub(crate) struct Posted {
    /// Whose receiver it was.
    pub(crate) org: usize,
    pub(crate) body: Value,
    pub(crate) is_signed: bool,
    pub(crate) is_taken: bool,
}

/// Whose the thing is that a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Own,
    /// A room's, of which the agent may be a member.
    Rooms,
    /// Another agent's of the organisation.
    Others,
    /// Another organisation's.
    Foreign,
}

/// A call of an agent that was answered.
#[derive(Debug, Clone)]
pub(crate) struct Called {
    pub(crate) org: usize,
    pub(crate) method: &'static str,
    pub(crate) about: String,
    pub(crate) whose: Whose,
    pub(crate) result: Result<Value, String>,
    /// Whether the ledger had it settled by then, and the receiver had it taken.
    pub(crate) is_settled: bool,
    pub(crate) is_taken: bool,
}

/// A delivery of a message, as the ledger has it at the end.
#[derive(Debug, Clone)]
pub(crate) struct MessageRow {
    pub(crate) org: usize,
    pub(crate) id: String,
    pub(crate) sender: String,
    pub(crate) agent: String,
    pub(crate) state: String,
    pub(crate) error: Option<String>,
    pub(crate) reply_to: Option<String>,
    pub(crate) body: String,
    /// When the Worker took it, and when it last moved, by its wall clock.
    pub(crate) created_ms: i64,
    pub(crate) moved_ms: i64,
}

/// A message to a room, as the ledger has it at the end.
#[derive(Debug, Clone)]
pub(crate) struct RoomPost {
    pub(crate) org: usize,
    pub(crate) id: String,
    pub(crate) sender: String,
    pub(crate) number: u64,
    pub(crate) created_ms: i64,
}

/// A delivery from a source, as the ledger has it at the end.
#[derive(Debug, Clone)]
pub(crate) struct DeliveryRow {
    pub(crate) org: usize,
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) state: String,
    /// The state of its reply, if there is one.
    pub(crate) reply: Option<String>,
    /// Whose it is.
    pub(crate) agent: String,
    pub(crate) created_ms: i64,
    pub(crate) moved_ms: i64,
}

/// A row that was removed from the ledger.
#[derive(Debug, Clone)]
pub(crate) struct Gone {
    pub(crate) what: String,
    pub(crate) is_settled: bool,
    /// For how long it had not moved, and for how long it was to be kept.
    pub(crate) age_ms: i64,
    pub(crate) keep_ms: i64,
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Story {
    pub(crate) accepted: Vec<Accepted>,
    pub(crate) shown: Vec<Shown>,
    pub(crate) delivered: Vec<Delivered>,
    pub(crate) promises: Vec<Promise>,
    pub(crate) events: Vec<Event>,
    pub(crate) posted: Vec<Posted>,
    pub(crate) called: Vec<Called>,
    /// What an operator's change has forbidden and happened all the same, and how often it was tried.
    pub(crate) defied: Vec<String>,
    pub(crate) heeded: u64,
    /// Deliveries that an operator has settled.
    pub(crate) by_operator: BTreeSet<String>,
    pub(crate) messages: Vec<MessageRow>,
    pub(crate) posts: Vec<RoomPost>,
    pub(crate) deliveries: Vec<DeliveryRow>,
    pub(crate) gone: Vec<Gone>,
    /// Messages and deliveries that are not in the ledger any more.
    pub(crate) gone_ids: BTreeSet<(usize, String)>,
    /// What was taken although there was no room for it, and how often nothing was.
    pub(crate) crammed: Vec<String>,
    pub(crate) without_room: u64,
    /// What a Worker that stopped had read and did not answer, and how many links ended with everything answered.
    pub(crate) cut_off: Vec<String>,
    pub(crate) goodbyes: u64,
    /// No wall clock was set: the times of the ledger are those of the story.
    pub(crate) is_steady: bool,
    /// What had not come to rest.
    pub(crate) restless: Vec<String>,
}
