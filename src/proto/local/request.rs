//! A request line as a value, and everything that can be wrong with it.

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;

use super::frames::{Code, WireError};
use super::salvage::{normal, salvage_id};
use super::words::SessionId;
use crate::text;

/// Code points of a client's own words that an error repeats.
const REPEATED_RUNES: usize = 200;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// `message.send`: one message to the dispatcher.
    Send {
        /// The conversation; `default` when the client named none.
        session: SessionId,
        /// Not blank, and as long as it may be. It may hold anything, NUL too.
        text: String,
    },
    /// `commands.list`.
    Commands,
    /// `status.get`.
    Status,
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(deserialize_with = "id")]
    id: String,
    method: String,
    #[serde(default)]
    params: Option<Value>,
}

#[derive(Deserialize)]
struct SendParams {
    #[serde(default)]
    session_id: Option<String>,
    text: String,
}

/// Reads a request, whose text may have `most` bytes. With it, or with what is wrong, comes the id that the answer
/// carries.
pub fn parse(line: &str, most: usize) -> (String, Result<Request, WireError>) {
    let value: Value = match serde_json::from_str(line) {
        Ok(value) => value,
        Err(err) => return (salvage_id(line.as_bytes()), Err(invalid(format!("invalid JSON: {err}")))),
    };
    let known = value.get("id").and_then(normal);
    match serde_json::from_value::<Envelope>(value) {
        Ok(Envelope { id, method, params }) => (id, request(&method, params, most)),
        Err(err) => (known.unwrap_or_default(), Err(invalid(format!("invalid request: {err}")))),
    }
}

fn id<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let value = Value::deserialize(deserializer)?;
    normal(&value).ok_or_else(|| D::Error::custom(format!("id must be a string or a number, got: {value}")))
}

fn request(method: &str, params: Option<Value>, most: usize) -> Result<Request, WireError> {
    match method {
        "message.send" => send(params, most),
        "commands.list" => Ok(Request::Commands),
        "status.get" => Ok(Request::Status),
        _ => Err(invalid(format!(
            "unknown method '{method}'; there are message.send, commands.list and status.get"
        ))),
    }
}

fn send(params: Option<Value>, most: usize) -> Result<Request, WireError> {
    let params = params.ok_or_else(|| invalid("message.send requires params".to_owned()))?;
    let SendParams { session_id, text } = serde_json::from_value(params)
        .map_err(|err| invalid(format!("invalid params for message.send: {err}")))?;
    if text.trim().is_empty() {
        return Err(invalid("text must not be empty".to_owned()));
    }
    if text.len() > most {
        return Err(invalid(format!("text exceeds {most} bytes")));
    }
    let session = session_id.as_deref().unwrap_or(SessionId::DEFAULT);
    let session = session
        .parse()
        .map_err(|err| WireError::new(Code::SessionIdInvalid, clipped(format!("{err}, got: {session:?}"))))?;
    Ok(Request::Send { session, text })
}

fn invalid(message: String) -> WireError {
    WireError::new(Code::InvalidRequest, clipped(message))
}

/// A message is for people: it repeats the beginning of what the client said, not 64 KiB of it.
fn clipped(mut message: String) -> String {
    let end = text::clip(&message, REPEATED_RUNES).len();
    message.truncate(end);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    fn parse(line: &str) -> (String, Result<Request, WireError>) {
        super::parse(line, limits::API_TEXT_BYTES)
    }

    fn refused(line: &str) -> (String, Code, String) {
        let (id, request) = parse(line);
        let err = request.unwrap_err();
        (id, err.code, err.message)
    }

    fn says(line: &str, id: &str, message: &str) {
        let (got_id, code, got) = refused(line);
        assert_eq!((got_id.as_str(), code), (id, Code::InvalidRequest), "{line}");
        assert!(got.starts_with(message), "{line}: {got}");
    }

    fn sent(params: &str) -> (SessionId, String) {
        match parse(&format!(r#"{{"id":1,"method":"message.send","params":{params}}}"#)) {
            (id, Ok(Request::Send { session, text })) if id == "1" => (session, text),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_id_is_a_string_as_it_is_or_a_number_as_its_text() {
        for (id, text) in [
            (r#""a b""#, "a b"),
            (r#""""#, ""),
            ("0", "0"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("18446744073709551615", "18446744073709551615"),
            ("1.5", "1.5"),
            ("1.0", "1.0"),
            ("1e3", "1000.0"),
            ("-0", "-0.0"),
            ("123456789012345678901234567890", "1.2345678901234568e+29"),
        ] {
            let line = format!(r#"{{"id":{id},"method":"status.get"}}"#);
            assert_eq!(parse(&line), (text.to_owned(), Ok(Request::Status)), "{id}");
        }
        for bad in ["null", "true", "{\"id\":\"x\"}", "[\"x\"]"] {
            let line = format!(r#"{{"id":{bad},"method":"status.get"}}"#);
            says(&line, "", &format!("invalid request: id must be a string or a number, got: {bad}"));
        }
        says(r#"{"method":"status.get"}"#, "", "invalid request: missing field `id`");
        assert_eq!(parse(r#"{"id":1,"id":2,"method":"status.get"}"#).0, "2");
    }

    #[test]
    fn what_is_no_request_is_told_with_its_id() {
        says("not json", "", "invalid JSON: expected ident at line 1 column 2");
        says("   ", "", "invalid JSON: EOF while parsing a value");
        says(r#"{"id":7,"method":"status.get"} x"#, "7", "invalid JSON: trailing characters");
        says(
            r#"{"id":"u","method":5}"#,
            "u",
            "invalid request: invalid type: integer `5`, expected a string",
        );
        says(r#"{"id":"u","method":null}"#, "u", "invalid request: invalid type: null, expected a string");
        says(r#"{"id":"u"}"#, "u", "invalid request: missing field `method`");
        says("5", "", "invalid request: invalid type: integer `5`, expected struct");
        says(r#""text""#, "", "invalid request: invalid type: string");
        says(
            r#"{"id":"u","method":"Status.Get"}"#,
            "u",
            "unknown method 'Status.Get'; there are message.send, ",
        );
        let nested = |deep: usize| {
            format!(r#"{{"id":"d","method":"status.get","params":{}{}}}"#, "[".repeat(deep), "]".repeat(deep))
        };
        assert!(parse(&nested(126)).1.is_ok());
        says(&nested(127), "d", "invalid JSON: recursion limit exceeded");
    }

    #[test]
    fn methods_without_parameters_take_any() {
        for params in ["5", "null", "[]", r#"{"a":1}"#] {
            let line = |method: &str| format!(r#"{{"id":"p","method":"{method}","params":{params},"x":0}}"#);
            assert_eq!(parse(&line("status.get")), ("p".into(), Ok(Request::Status)));
            assert_eq!(parse(&line("commands.list")), ("p".into(), Ok(Request::Commands)));
        }
    }

    #[test]
    fn a_message_is_checked_in_order_text_then_size_then_session() {
        let line = |params: &str| format!(r#"{{"id":"m","method":"message.send"{params}}}"#);
        let params = |params: &str| line(&format!(r#","params":{params}"#));
        for none in [line(""), params("null")] {
            says(&none, "m", "message.send requires params");
        }
        for (bad, why) in [
            ("5", "invalid type: integer `5`, expected struct"),
            ("{}", "missing field `text`"),
            (r#"{"text":5}"#, "invalid type: integer `5`, expected a string"),
            (r#"{"text":"x","session_id":5}"#, "invalid type: integer `5`, expected a string"),
        ] {
            says(&params(bad), "m", &format!("invalid params for message.send: {why}"));
        }
        let big = "é".repeat(16_385);
        for blank in ["", " \\t\\n", "\u{2003}\u{85}\u{a0}"] {
            says(
                &params(&format!(r#"{{"text":"{blank}","session_id":"no good"}}"#)),
                "m",
                "text must not be empty",
            );
        }
        says(
            &params(&format!(r#"{{"text":"{big}","session_id":"no good"}}"#)),
            "m",
            "text exceeds 32768 bytes",
        );
        let (id, code, message) = refused(&params(r#"{"text":"x","session_id":"no\ngood"}"#));
        assert_eq!((id.as_str(), code), ("m", Code::SessionIdInvalid));
        assert_eq!(message, r#"session_id must match ^[A-Za-z0-9_-]{1,64}$, got: "no\ngood""#);
        for bad in ["", "a b", "ü", "a/b", "a.b", &"a".repeat(65)] {
            let line = params(&format!(r#"{{"text":"x","session_id":"{bad}"}}"#));
            assert_eq!(refused(&line).1, Code::SessionIdInvalid, "{bad}");
        }
    }

    #[test]
    fn a_message_goes_to_its_session_whole() {
        assert_eq!(sent(r#"{"text":"hi","agent":"other"}"#).0.as_str(), "default");
        assert_eq!(sent(r#"{"text":"hi","session_id":null}"#).0.as_str(), "default");
        assert_eq!(sent(r#"{"text":" a\u0000b ","session_id":"chat-9_a"}"#).1, " a\0b ");
        let full = "é".repeat(16_384);
        assert_eq!(sent(&format!(r#"{{"text":"{full}"}}"#)).1, full);
        let longest = "a".repeat(64);
        assert_eq!(sent(&format!(r#"{{"text":"x","session_id":"{longest}"}}"#)).0.as_str(), longest);
    }

    #[test]
    fn an_error_repeats_no_more_than_a_line_of_what_was_said() {
        let (_, _, message) = refused(&format!(r#"{{"id":1,"method":"{}"}}"#, "m".repeat(60_000)));
        assert!(message.starts_with("unknown method 'mmm") && message.chars().count() <= REPEATED_RUNES);
    }
}
