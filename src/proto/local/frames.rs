//! What the server says: answers and events, one line each.

use serde::Serialize;

use super::words::{CatalogEntry, LocalEvent, SessionId};

/// Why a request is refused, as a word that stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The line is no request, or one with values that cannot be.
    InvalidRequest,
    /// The connection, or the caller over all of them, asks too often.
    RateLimited,
    /// The session id has another form.
    SessionIdInvalid,
    /// There is no place for this connection. It is closed.
    TooManyConnections,
    /// The gateway does not take it now; the message says why.
    Internal,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WireError {
    /// What a client branches on.
    pub code: Code,
    /// What a person reads.
    pub message: String,
}

impl WireError {
    /// A refusal.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The answer to `status.get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// `ok`, since it answers.
    pub daemon: &'static str,
    /// The agent that messages go to.
    pub dispatcher_agent: String,
    /// `ok`, or why messages would not get anywhere.
    pub gateway: &'static str,
}

/// What a request came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The message has entered the gateway; its events follow.
    Accepted,
    /// How things are.
    Status(Status),
    /// What `/` commands there are.
    Commands(Vec<CatalogEntry>),
    /// It was refused.
    Refused(WireError),
}

#[derive(Serialize)]
struct Response<'a, R: Serialize> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a WireError>,
}

fn response<R: Serialize>(id: &str, result: Option<R>, error: Option<&WireError>) -> String {
    serde_json::to_string(&Response { id, result, error }).expect("strings and lists of them are JSON")
}

impl Answer {
    /// The answer to the request `id`, without its newline.
    pub(super) fn encode(&self, id: &str) -> String {
        #[derive(Serialize)]
        struct Accepted {
            accepted: bool,
        }
        match self {
            Self::Accepted => response(id, Some(Accepted { accepted: true }), None),
            Self::Status(status) => response(id, Some(status), None),
            Self::Commands(entries) => response(id, Some(entries), None),
            Self::Refused(err) => error_line(id, err),
        }
    }
}

/// A refusal of the request `id`, or of the connection when that is empty; without its newline.
pub fn error_line(id: &str, err: &WireError) -> String {
    response::<()>(id, None, Some(err))
}

/// An event on its way: encoded once, by whoever has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFrame {
    /// The frame without its newline.
    pub(super) line: String,
    pub(super) kind: Kind,
}

/// What the queue must know of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// May be left out when there is no room: it says only that there is a run.
    Hint,
    /// Small and rare: it always has room.
    Small,
    /// Waits for room.
    Delta,
    /// Waits for room, and is the last one of its request.
    Last,
}

impl EventFrame {
    /// Encodes an event.
    pub fn new(event: &LocalEvent) -> Self {
        #[derive(Serialize)]
        struct Frame<'a> {
            event: &'static str,
            session_id: &'a SessionId,
            #[serde(skip_serializing_if = "Option::is_none")]
            agent: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            line: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            text: Option<&'a str>,
        }
        let bare = |event, session_id| Frame { event, session_id, agent: None, line: None, text: None };
        let (frame, kind) = match event {
            LocalEvent::Typing { session } => (bare("typing", session), Kind::Hint),
            LocalEvent::RunStarted { session, agent } => {
                (Frame { agent: Some(agent), ..bare("run.started", session) }, Kind::Small)
            }
            LocalEvent::ReplyDelta { session, line } => {
                (Frame { line: Some(line), ..bare("reply.delta", session) }, Kind::Delta)
            }
            LocalEvent::Reply { session, text } => {
                (Frame { text: Some(text), ..bare("reply", session) }, Kind::Last)
            }
        };
        Self { line: serde_json::to_string(&frame).expect("strings are JSON"), kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_their_fields_in_this_order_and_no_others() {
        let session: SessionId = "s-1".parse().unwrap();
        let event = |event| EventFrame::new(&event).line;
        let of = |session: &SessionId| session.clone();
        assert_eq!(
            event(LocalEvent::Typing { session: of(&session) }),
            r#"{"event":"typing","session_id":"s-1"}"#
        );
        assert_eq!(
            event(LocalEvent::RunStarted { session: of(&session), agent: "tiny".into() }),
            r#"{"event":"run.started","session_id":"s-1","agent":"tiny"}"#
        );
        assert_eq!(
            event(LocalEvent::ReplyDelta { session: of(&session), line: String::new() }),
            r#"{"event":"reply.delta","session_id":"s-1","line":""}"#
        );
        assert_eq!(
            event(LocalEvent::Reply { session: of(&session), text: "a\n\"b\"\0".into() }),
            r#"{"event":"reply","session_id":"s-1","text":"a\n\"b\"\u0000"}"#
        );
    }

    #[test]
    fn an_answer_has_a_result_or_an_error() {
        assert_eq!(Answer::Accepted.encode("1"), r#"{"id":"1","result":{"accepted":true}}"#);
        let status = Status { daemon: "ok", dispatcher_agent: "tiny".into(), gateway: "ok" };
        assert_eq!(
            Answer::Status(status).encode(""),
            r#"{"id":"","result":{"daemon":"ok","dispatcher_agent":"tiny","gateway":"ok"}}"#
        );
        let entry = CatalogEntry {
            name: "a:b".into(),
            telegram_name: "a_b".into(),
            description: "d".into(),
            argument_hint: None,
        };
        assert_eq!(
            Answer::Commands(vec![entry]).encode("c"),
            r#"{"id":"c","result":[{"name":"a:b","telegram_name":"a_b","description":"d","argument_hint":null}]}"#
        );
        for (code, word) in [
            (Code::InvalidRequest, "invalid_request"),
            (Code::RateLimited, "rate_limited"),
            (Code::SessionIdInvalid, "session_id_invalid"),
            (Code::TooManyConnections, "too_many_connections"),
            (Code::Internal, "internal"),
        ] {
            let refused = Answer::Refused(WireError::new(code, "why")).encode("x");
            assert_eq!(refused, format!(r#"{{"id":"x","error":{{"code":"{word}","message":"why"}}}}"#));
        }
    }
}
