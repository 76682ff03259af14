//! The frames of transit-wire/1 as values, and their decoding.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::PROTO;
use crate::proto::Decoded;
use crate::proto::tagged::{decode, decode_by, encode};

/// A frame from the daemon to the Worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum DaemonFrame {
    /// The first frame of a connection.
    Hello {
        /// The protocol version.
        proto: u64,
        /// The daemon's version, for people.
        daemon_ver: String,
        /// The host that the daemon believes to be; it must be the token's.
        host: String,
    },
    /// All agents of the host, on connect, on change and every 60 s.
    Roster {
        /// The agents; none when absent or null.
        #[serde(default, deserialize_with = "null_is_default")]
        agents: Vec<AgentInfo>,
    },
    /// A message of one of the host's agents.
    Send(SendFrame),
    /// A delivery is durably in the agent's session, or its terminal has shown it.
    DeliverAck {
        /// The id of the deliver frame.
        id: String,
        /// Its agent; an older daemon leaves it out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
        /// How that is known, if not by the session: [`VIA_SCREEN`](crate::proto::agent::VIA_SCREEN).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<String>,
    },
    /// A delivery did not reach the agent.
    DeliverNak {
        /// The id of the deliver frame.
        id: String,
        /// Its agent; an older daemon leaves it out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
        /// Why, as a stable word.
        code: String,
        /// Whether it is worth another attempt.
        retryable: bool,
    },
    /// A tool call of one of the host's agents.
    Rpc {
        /// The daemon's name of the call.
        rid: String,
        /// The method.
        method: String,
        /// Its parameters; the daemon has put the caller in.
        params: Value,
    },
    /// The heartbeat. The Worker answers with [`WorkerFrame::Ping`].
    Pong,
}

/// A message on its way to the Worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendFrame {
    /// The idempotency key, `tx_…`.
    pub id: String,
    /// The sending agent's address.
    pub from: String,
    /// The recipient: `name@host` or `#room`.
    pub to: String,
    /// The whole text.
    pub body: String,
    /// The id of the message that this one answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// When it was sent, RFC 3339.
    pub ts: String,
}

/// One agent of a roster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInfo {
    /// The agent's name on its host.
    pub name: String,
    /// The harness or kind of program.
    pub kind: String,
    /// The pane, or a synthetic id of a native session.
    pub pane_id: String,
    /// What it is doing, as its harness says.
    pub status: String,
    /// Its working directory.
    pub cwd: String,
    /// What it is about, for people.
    pub title: String,
    /// Who chose the name.
    #[serde(default)]
    pub named_by: NamedBy,
}

/// Who chose an agent's name. Whatever is not known counts as a person's choice, which is never overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NamedBy {
    /// A person, or a declaration.
    #[default]
    User,
    /// The daemon made it up.
    Auto,
}

impl<'de> Deserialize<'de> for NamedBy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = Value::deserialize(from)?;
        Ok(if word == "auto" { Self::Auto } else { Self::User })
    }
}

/// A frame from the Worker to the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum WorkerFrame {
    /// The hello was good.
    HelloOk {
        /// The host's id.
        host_id: String,
        /// The organisation's slug.
        org: String,
    },
    /// The hello was not good; the connection closes.
    HelloErr {
        /// `host_mismatch`, `hello_required` or `unsupported_proto`.
        code: String,
    },
    /// A delivery for one agent of the host.
    Deliver {
        /// `tx_…` or `dlv_…`.
        id: String,
        /// The recipient's name on the host.
        agent: String,
        /// The rendered transit/1 text.
        envelope: String,
    },
    /// A message and its deliveries are committed.
    SendAck {
        /// The message.
        id: String,
    },
    /// A message was not taken.
    SendNak {
        /// The message.
        id: String,
        /// Why.
        code: NakCode,
    },
    /// The answer to a call.
    RpcResult {
        /// The daemon's name of the call.
        rid: String,
        /// The result, unless it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<RpcError>,
    },
    /// The answer to [`DaemonFrame::Pong`]; it is never answered.
    Ping,
}

/// Why a message was not taken. The first four are for good; the others pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NakCode {
    /// No such agent, host or room, or a sender that is not of this host.
    NoRoute,
    /// The sender is not a member of the room.
    NotMember,
    /// The body is over [`BODY_BYTES`](crate::limits::BODY_BYTES).
    BodyTooLarge,
    /// A reserved name, or an id that belongs to another host's message.
    ReservedName,
    /// Too many at once, a full queue, or the loop guard.
    RateLimited,
    /// The operator's plan does not allow it now.
    PlanLimit,
}

impl NakCode {
    /// Whether another attempt is pointless.
    pub fn is_permanent(self) -> bool {
        !matches!(self, Self::RateLimited | Self::PlanLimit)
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoRoute => "no_route",
            Self::NotMember => "not_member",
            Self::BodyTooLarge => "body_too_large",
            Self::ReservedName => "reserved_name",
            Self::RateLimited => "rate_limited",
            Self::PlanLimit => "plan_limit",
        }
    }

    /// The code of a word on the wire.
    pub fn of(word: &str) -> Option<Self> {
        use NakCode::{BodyTooLarge, NoRoute, NotMember, PlanLimit, RateLimited, ReservedName};
        [NoRoute, NotMember, BodyTooLarge, ReservedName, RateLimited, PlanLimit]
            .into_iter()
            .find(|code| code.as_str() == word)
    }
}

/// Why a call failed: branch on the code, show the message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// A stable word.
    pub code: String,
    /// One line for people.
    pub message: String,
}

impl RpcError {
    /// An error of this code.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}

fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl DaemonFrame {
    /// What `t` can be.
    pub const KINDS: [&'static str; 7] =
        ["hello", "roster", "send", "deliver_ack", "deliver_nak", "rpc", "pong"];

    /// The frame as one line of JSON.
    pub fn encode(&self) -> String {
        encode(self)
    }
}

impl WorkerFrame {
    /// What `t` can be.
    pub const KINDS: [&'static str; 7] =
        ["hello_ok", "hello_err", "deliver", "send_ack", "send_nak", "rpc_result", "ping"];

    /// The frame as one line of JSON.
    pub fn encode(&self) -> String {
        encode(self)
    }
}

/// Decodes a frame from the daemon. The length is the reader's to check first; it is checked here too.
pub fn decode_daemon(text: &str) -> Decoded<DaemonFrame> {
    decode_by(text, &DaemonFrame::KINDS, |t, text| match t {
        // The frame that comes most and is longest.
        "send" => serde_json::from_str(text).map(DaemonFrame::Send),
        "hello" => hello(text),
        _ => serde_json::from_str(text),
    })
}

/// A hello of another version of the protocol is one whatever else it holds or lacks: that is the version's to say.
fn hello(text: &str) -> serde_json::Result<DaemonFrame> {
    #[derive(Deserialize)]
    struct Version {
        proto: u64,
    }
    #[derive(Deserialize)]
    struct Hello {
        daemon_ver: String,
        host: String,
    }
    let proto = serde_json::from_str::<Version>(text)?.proto;
    let Hello { daemon_ver, host } = match serde_json::from_str(text) {
        Err(_) if proto != PROTO => Hello { daemon_ver: String::new(), host: String::new() },
        hello => hello?,
    };
    Ok(DaemonFrame::Hello { proto, daemon_ver, host })
}

/// Decodes a frame from the Worker.
pub fn decode_worker(text: &str) -> Decoded<WorkerFrame> {
    decode(text, &WorkerFrame::KINDS)
}
