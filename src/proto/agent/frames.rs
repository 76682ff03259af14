//! The frames of transit-agent/1 as values, and their decoding.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::PROTO;
use crate::proto::Decoded;
use crate::proto::tagged::{decode, decode_by, encode};

/// A frame from an adapter to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum AdapterFrame {
    /// The first frame: who this is.
    Register(Register),
    /// The envelope is durably visible in the session.
    DeliverAck {
        /// The delivery.
        id: String,
        /// Must be true; anything else counts as a refusal, and so does its absence.
        #[serde(default, deserialize_with = "is_true")]
        persisted: bool,
        /// How that is known, if it is less than the session's own word: `screen`, when only the terminal has shown
        /// it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<String>,
        /// As `registered` gave it.
        capability: String,
    },
    /// The envelope did not get into the session.
    DeliverNak {
        /// The delivery.
        id: String,
        /// Why, as a stable word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// Whether another attempt can succeed.
        retryable: bool,
        /// As `registered` gave it.
        capability: String,
    },
    /// The session's state changed; a sign of life.
    Status {
        /// `idle`, `working`, `blocked`, or the harness's own word.
        status: String,
        /// As `registered` gave it.
        capability: String,
    },
    /// The answer to a ping; a sign of life.
    Pong {
        /// As `registered` gave it.
        capability: String,
    },
}

/// What an adapter says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The protocol version; anything but 1 is refused.
    pub proto: u64,
    /// The harness, `^[a-z][a-z0-9-]{0,31}$`.
    pub harness: String,
    /// The harness's own name of the session; with `harness`, the identity of the agent.
    pub session_id: String,
    /// The harness's process; it must be the peer of the socket, or an ancestor of that one.
    pub pid: u32,
    /// The session's working directory.
    pub cwd: String,
    /// What the session is about, for people.
    pub title: String,
    /// What it is doing.
    pub status: String,
    /// A declared name; without one, the stored one or a generated one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The terminal pane that it runs in, as its environment says; what is typed there would reach the same agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pane_id: Option<String>,
}

/// A frame from the daemon to an adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum HostFrame {
    /// The registration stands.
    Registered {
        /// The agent's name.
        agent: String,
        /// Its address.
        address: String,
        /// How often this `(harness, session_id)` has registered.
        generation: u64,
        /// 32 hexadecimal characters that every later frame must carry.
        capability: String,
    },
    /// The registration was refused; the connection closes.
    RegisterErr {
        /// Why, as a stable word.
        code: String,
        /// One line for people.
        error: String,
    },
    /// An envelope to put into the session.
    Deliver {
        /// The delivery.
        id: String,
        /// The rendered transit/1 text.
        envelope: String,
    },
    /// Is the adapter there? An answer is welcome, not required.
    Ping,
}

impl AdapterFrame {
    /// What `t` can be.
    pub const KINDS: [&'static str; 5] = ["register", "deliver_ack", "deliver_nak", "status", "pong"];

    /// The frame as one line of JSON, without its newline.
    pub fn encode(&self) -> String {
        encode(self)
    }
}

impl HostFrame {
    /// What `t` can be.
    pub const KINDS: [&'static str; 4] = ["registered", "register_err", "deliver", "ping"];

    /// The frame as one line of JSON, without its newline.
    pub fn encode(&self) -> String {
        encode(self)
    }
}

/// Decodes a line from an adapter.
pub fn decode_adapter(line: &str) -> Decoded<AdapterFrame> {
    decode_by(line, &AdapterFrame::KINDS, |t, line| match t {
        "register" => register(line).map(AdapterFrame::Register),
        _ => serde_json::from_str(line),
    })
}

/// A register of another version of the protocol is one whatever else it holds or lacks: that is the version's to say.
fn register(line: &str) -> serde_json::Result<Register> {
    #[derive(Deserialize)]
    struct Version {
        proto: u64,
    }
    let proto = serde_json::from_str::<Version>(line)?.proto;
    match serde_json::from_str(line) {
        Err(_) if proto != PROTO => Ok(Register { proto, ..Register::default() }),
        register => register,
    }
}

/// The capability of a frame that should carry one; empty when it does not. Nothing else of it is looked at.
pub(super) fn carried(line: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Carrier {
        t: String,
        #[serde(default)]
        capability: Value,
    }
    let Carrier { t, capability } = serde_json::from_str(line).ok()?;
    (t != "register").then(|| capability.as_str().unwrap_or_default().to_owned())
}

fn is_true<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Value::deserialize(from).map(|value| value == Value::Bool(true))
}

/// Decodes a line from the daemon.
pub fn decode_host(line: &str) -> Decoded<HostFrame> {
    decode(line, &HostFrame::KINDS)
}
