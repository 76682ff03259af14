//! transit/1: the envelope in an agent's terminal.
//!
//! [`render`] makes the text that a harness shows, [`parse`] reads one back, and a [`Scanner`] picks them out of a
//! terminal's log. [`Fields`] are an envelope as people and programs write it down, checked. Bodies and names come from peers: [`render`] sees to it that none of them can forge an
//! attribute, close its envelope or command the terminal, and [`parse`] takes nothing that [`render`] does not
//! make. [`render_full`] wraps what `read_message` returns.

mod fields;
mod parse;
mod render;
mod scan;
mod screen;
#[cfg(test)]
mod tests;

pub use fields::{FieldError, Fields};
pub use parse::{ParseError, Parsed, parse, sender};
pub use render::{preview, render, render_full};
pub use scan::{Fault, Found, Scanner};

use crate::text;

/// What the last attribute of every envelope says.
pub const SCHEMA: &str = "transit/1";

/// Who speaks when it is none of the agents and nobody outside: a message came back, or agents may go on.
pub const SYSTEM: &str = "transit";

/// The preview of a channel delivery that has no text.
pub const NO_TEXT: &str = "(no text — attachments or an empty body)";

/// The longest envelope that a [`Scanner`] looks for, in bytes. A body has 16,000 at most, and what the protocols let
/// into attributes is less than the rest.
pub const LONGEST: usize = 64 * 1024;

const TAG: &str = "transit";
const CLOSE: &str = "\n</transit>";

/// A message or delivery, before it is rendered or after it was parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Who it is from: an address, or the name of a connector.
    pub from: String,
    /// `tx_…`, or `dlv_…` for channel deliveries; the receiver's idempotency key.
    pub id: String,
    /// When it was sent, RFC 3339.
    pub ts: String,
    /// The id of the message that this one answers.
    pub reply_to: Option<String>,
    /// The whole text; rendering clips it, or makes the preview of a channel delivery. Parsed, it is what was
    /// rendered.
    pub body: String,
    /// What kind of message it is, with what only that kind has.
    pub kind: Kind,
}

/// The kinds of envelopes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A direct message.
    Dm,
    /// A message to a room.
    Room {
        /// The room's name, without `#`.
        room: String,
        /// Its number in the room, from 1.
        seq: u64,
        /// The operator posted it, so that the hint answers the room and not the sender.
        operator: bool,
    },
    /// A delivery from a source or connector.
    Channel {
        /// Opaque; echoed on the reply.
        conversation_id: String,
        /// `ingest` for sources, else the connector's name.
        connector: String,
        /// Upstream's display name; clipped to 64 code points, and `unknown` when empty.
        user: String,
        /// How often it was shown before.
        redelivery: u32,
        /// It was read, but not settled. Without a redelivery the envelope does not tell it.
        read: bool,
        /// Why it is delivered; left out when empty.
        trigger: String,
    },
}

/// What `read_message` returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Full {
    /// The delivery or message.
    pub id: String,
    /// Its conversation.
    pub conversation_id: String,
    /// Upstream's display name, whole; `unknown` when absent or empty.
    pub user: Option<String>,
    /// As in the envelope.
    pub connector: String,
    /// The state of the delivery.
    pub status: String,
    /// It was not read before.
    pub first_read: bool,
    /// There is nothing left to settle.
    pub settled: bool,
    /// The whole text, verbatim.
    pub body: String,
    /// What the operator of the integration asks for, in one line.
    pub instructions: Option<String>,
}

/// How an envelope asks to be answered. `to` and `id` stand as their attributes do, escaped.
fn reply_hint(to: &str, id: &str) -> String {
    format!("[reply: send_message to=\"{}\" reply_to=\"{}\"]", value(to), value(id))
}

const SETTLE_HINT: &str = "[read_message, then settle: chat_reply or mark_handled]";

/// What a channel delivery that was shown before adds to its hint.
fn redelivery_note(redelivery: u32, read: bool) -> String {
    if read {
        format!("[redelivery {redelivery}, read/unsettled: do not reply twice; chat_reply or mark_handled]")
    } else {
        format!("[redelivery {redelivery}, unread: already replied? mark_handled; otherwise read_message]")
    }
}

/// `raw` as it stands between the quotes of an attribute.
fn value(raw: &str) -> String {
    text::escape_attribute(&text::attribute(raw)).into_owned()
}
