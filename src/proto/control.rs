//! What is said on `transit.sock`: one line of JSON to the daemon, one line back, and the connection closes.
//!
//! A call never says who makes it. The daemon takes the caller's process from the kernel; `pane_id` and `session_id`
//! only help it to tell the panes and sessions of one process apart, and `as_agent` is honoured only for what a person
//! types.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::limits;

/// One call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// What is to be done.
    #[serde(flatten)]
    pub op: Op,
    /// The terminal pane that the caller runs in, from its environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pane_id: Option<String>,
    /// The harness's own name of the session that the caller runs in, from its environment. It only chooses among the
    /// sessions that the caller's own process tree has registered, and it may be old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The agent of this host that a person wants to speak as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_agent: Option<String>,
}

/// The operations of the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// How the daemon is. Answer: `host`, `connected`, …
    Status,
    /// Keeps a message and sends it. Answer: `id`, `state`.
    Send {
        /// `name@host` or `#room`.
        to: String,
        /// The whole text.
        body: String,
        /// The id of the message that this one answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<String>,
        /// How long the caller waits for more than that it is kept, in milliseconds; the daemon has a limit too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
    },
    /// What became of a message that this host has sent. Answer: a [`MessageStatus`].
    MessageStatus {
        /// The message.
        id: String,
    },
    /// Calls a method of the Worker in the caller's name. Answer: `result`.
    Rpc {
        /// The method.
        method: String,
        /// Its parameters, an object; the daemon puts `caller` in.
        #[serde(default)]
        params: Value,
    },
    /// Makes, joins or leaves a room of the Worker as the caller. Answer: `result`.
    Room {
        /// Which of them.
        action: RoomAction,
        /// Its name, with or without `#`.
        room: String,
        /// `open` or `invite`, of a room that is made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<String>,
    },
    /// Who the caller is. Answer: `address`, `host`, `connected`, and `as_agent` when a person has chosen the agent.
    Whoami,
    /// Gives the caller another name, which it keeps. Answer: `address`, `generation`.
    ClaimName {
        /// The name.
        name: String,
    },
    /// What waits on this host. Answer: `outbox`, `dead`, `held`, the newest of each, and how many there are.
    Inbox,
    /// Reconnects to the Worker at once. Answer: `kicked`.
    Kick,
    /// Hands nothing over to sessions any more, or everything again. Without a wish it only tells. Answer: `paused`.
    Pause {
        /// What is wished.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        paused: Option<bool>,
        /// Whether the other of the two is wished.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        toggle: bool,
    },
    /// Reads the configuration and the token anew. Answer: `reloaded`, `changed`, `needs_restart`.
    Reload,
    /// Sends a message as `send` does, but through the Worker also to an agent of this host, and waits for nothing.
    /// Answer: `id`, `state`.
    Probe {
        /// `name@host`.
        to: String,
        /// The whole text.
        body: String,
    },
    /// How far a message is on its way through this host. Answer: `committed`, `handed`, `injected`, and `code` or
    /// `dead` if something is in its way.
    Trace {
        /// The message.
        id: String,
    },
}

/// What is done about a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoomAction {
    /// It is made, and joined.
    Create,
    /// The caller joins it.
    Join,
    /// The caller leaves it.
    Leave,
}

impl RoomAction {
    /// The method of the Worker that does it.
    pub fn method(self) -> &'static str {
        match self {
            Self::Create => "create_room",
            Self::Join => "join_room",
            Self::Leave => "leave_room",
        }
    }
}

/// How far a message has come. None of the words says more than is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    /// It is in the spool of this host.
    Spooled,
    /// The Worker has committed it.
    Committed,
    /// Every recipient has it durably in the session.
    Injected,
    /// It was typed for its recipient, whose terminal has shown it; whether the session keeps it is not known.
    Shown,
    /// It was refused for good, or given up, by the Worker or for one of its recipients.
    Dead,
}

/// What is known of a message that this host has sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageStatus {
    /// The message.
    pub id: String,
    /// Where it goes.
    pub dest: String,
    /// How far it has come.
    pub state: MessageState,
    /// Attempts to hand it to the Worker that came to an end.
    pub attempts: u32,
    /// When the next one is due, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<String>,
    /// Why the last attempt failed, or why it is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its recipients, once the Worker has told them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<RecipientStatus>,
    /// It is for nobody: the room that it went to had no other member then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_nobody: bool,
    /// Why nothing more is known now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// How far a message has come on its way to one of its recipients, in the Worker's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecipientStatus {
    /// The agent's address.
    pub agent: String,
    /// `queued`, `injected`, `shown` or `dead`.
    pub state: String,
    /// Why the last attempt failed, or why it is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Why a call failed: branch on the code, show the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text} ({code})")]
pub struct ControlError {
    /// A stable word.
    pub code: String,
    /// One line for people.
    pub text: String,
    /// The entry of the spool that is kept as dead.
    pub id: Option<String>,
}

impl ControlError {
    /// An error of this code.
    pub fn new(code: &str, text: impl Into<String>) -> Self {
        Self { code: code.to_owned(), text: text.into(), id: None }
    }

    /// The same error, about an entry of the spool that is kept as dead.
    #[must_use]
    pub fn about(self, id: &str) -> Self {
        Self { id: Some(id.to_owned()), ..self }
    }
}

impl Call {
    /// The call as one line, without its newline.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a call holds only strings and JSON values")
    }

    /// Reads a call. Fields that are not known, a `pid` among them, are ignored.
    ///
    /// # Errors
    /// `bad_request` for whatever is not a call, an unknown `op` too.
    pub fn decode(line: &str) -> Result<Self, ControlError> {
        if line.len() > limits::LINE_BYTES {
            return Err(ControlError::new("bad_request", "the line is too long"));
        }
        let bad = |why: String| ControlError::new("bad_request", why);
        // serde would take a number for the op of that place.
        let tag: Tag<'_> = serde_json::from_str(line).map_err(|err| bad(err.to_string()))?;
        if tag.op.is_some_and(|op| !op.get().starts_with('"')) {
            return Err(bad("op is not a string".to_owned()));
        }
        serde_json::from_str(line).map_err(|err| bad(err.to_string()))
    }
}

/// What says which call it is.
#[derive(Deserialize)]
struct Tag<'a> {
    #[serde(borrow)]
    op: Option<&'a RawValue>,
}

/// The line of a good answer: the fields of `answer`, and `"ok":true`. A value that is no object stands under
/// `result`. An answer that no line can hold becomes the failure `answer_too_long`.
pub fn ok(answer: Value) -> String {
    let mut fields = match answer {
        Value::Object(fields) => fields,
        other => Map::from_iter([("result".to_owned(), other)]),
    };
    fields.insert("ok".to_owned(), Value::Bool(true));
    let line = Value::Object(fields).to_string();
    if line.len() > limits::LINE_BYTES {
        return failure(&ControlError::new("answer_too_long", "the answer is longer than a line may be"));
    }
    line
}

/// The line of a failure.
pub fn failure(err: &ControlError) -> String {
    let mut line = serde_json::json!({ "ok": false, "code": err.code, "error": err.text });
    if let Some(id) = &err.id {
        line["id"] = id.as_str().into();
    }
    line.to_string()
}

/// Reads an answer: its fields without `ok`, or the failure that it tells.
///
/// # Errors
/// The daemon's error; `bad_answer` when the line is none of ours.
pub fn parse_answer(line: &str) -> Result<Map<String, Value>, ControlError> {
    let bad = |text: String| ControlError::new("bad_answer", text);
    let mut fields: Map<String, Value> = serde_json::from_str(line).map_err(|err| bad(err.to_string()))?;
    let word = |fields: &Map<String, Value>, name| {
        fields.get(name).and_then(Value::as_str).map(str::to_owned).unwrap_or_default()
    };
    match fields.remove("ok") {
        Some(Value::Bool(true)) => Ok(fields),
        Some(Value::Bool(false)) => {
            let id = fields.get("id").and_then(Value::as_str).map(str::to_owned);
            Err(ControlError { code: word(&fields, "code"), text: word(&fields, "error"), id })
        }
        _ => Err(bad("no ok".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let ops = [
            Op::Status,
            Op::Send {
                to: "jess@titan".into(),
                body: "a\nb".into(),
                reply_to: Some("tx_1".into()),
                wait_ms: Some(1),
            },
            Op::MessageStatus { id: "tx_1".into() },
            Op::Rpc { method: "list_agents".into(), params: json!({"host": "titan"}) },
            Op::Whoami,
            Op::ClaimName { name: "jess".into() },
            Op::Inbox,
            Op::Kick,
        ];
        for op in ops {
            let call = Call { op, pane_id: Some("p1".into()), session_id: Some("s1".into()), as_agent: None };
            let line = call.encode();
            assert!(!line.contains('\n'));
            assert_eq!(Call::decode(&line), Ok(call));
        }
    }

    #[test]
    fn a_pid_in_the_line_is_nothing_to_us() {
        let call = Call::decode(r#"{"op":"whoami","pid":1,"pane_id":null}"#).unwrap();
        assert_eq!(call, Call { op: Op::Whoami, pane_id: None, session_id: None, as_agent: None });
    }

    #[test]
    fn what_is_no_call_is_a_bad_request() {
        for line in [
            "",
            "{",
            "[]",
            "[\"status\"]",
            "7",
            "{}",
            r#"{"op":0}"#,
            r#"{"op":1}"#,
            r#"{"op":null}"#,
            r#"{"op":"launch"}"#,
            r#"{"op":"send"}"#,
        ] {
            assert_eq!(Call::decode(line).unwrap_err().code, "bad_request", "{line}");
        }
        let long = Call::decode(&" ".repeat(limits::LINE_BYTES + 1)).unwrap_err();
        assert_eq!(long.code, "bad_request");
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let fields = parse_answer(&ok(json!({"id": "tx_1", "state": "spooled"}))).unwrap();
        assert_eq!(Value::Object(fields), json!({"id": "tx_1", "state": "spooled"}));
        assert_eq!(Value::Object(parse_answer(&ok(json!([1]))).unwrap()), json!({"result": [1]}));
        for error in
            [ControlError::new("store_error", "disk full"), ControlError::new("no_route", "no").about("tx_1")]
        {
            assert_eq!(parse_answer(&failure(&error)).unwrap_err(), error);
        }
        for line in ["", "[]", "{}", r#"{"ok":"yes"}"#] {
            assert_eq!(parse_answer(line).unwrap_err().code, "bad_answer", "{line}");
        }
    }

    #[test]
    fn an_answer_that_no_line_can_hold_is_a_failure() {
        let line = ok(json!({ "result": "x".repeat(limits::LINE_BYTES) }));
        assert_eq!(parse_answer(&line).unwrap_err().code, "answer_too_long");
    }
}
