//! One line of the client, as it concerns us: a message for the SDK, an answer that we give ourselves, or nothing.
//!
//! The SDK passes over what is no JSON. A client that waits for an answer would wait for ever, so that whatever can be
//! an attempt at a request is answered here (JSON-RPC 2.0, section 5.1). What has no id gets no answer.

use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientRequest, CustomRequest, DiscoverRequest,
    DiscoverRequestParams, ErrorCode, GetMeta, Implementation, InitializeRequest, InitializeRequestParams,
    JsonRpcMessage, NumberOrString, ProtocolVersion, RequestId, RequestMetaObject,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::proto::lines::Line;

/// Longest line, in bytes.
pub(super) const LINE_BYTES: usize = 8 << 20;

/// What a line comes to.
#[derive(Debug)]
pub(super) enum Heard {
    /// A message for the SDK.
    Message(Box<ClientJsonRpcMessage>),
    /// An answer to give at once, one line without its newline.
    Answer(String),
    /// Nothing.
    Nothing,
}

/// The parts of a message that say what it is. Nothing else of it is looked at, nor kept.
#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
}

/// Null is something else than nothing.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// What is asked for before anything was agreed upon, and nothing else.
#[derive(Debug, Default)]
pub(super) struct Ear {
    /// The client has begun a session.
    has_begun: bool,
}

impl Ear {
    /// Takes a line.
    pub(super) fn hear(&mut self, line: &Line) -> Heard {
        match line {
            Line::Text(text) => self.text(text),
            Line::NotUtf8 => refuse(ErrorCode::PARSE_ERROR, "the line is not UTF-8", None),
            Line::TooLong => {
                let why = format!("the line is over {LINE_BYTES} bytes long");
                refuse(ErrorCode::INVALID_REQUEST, &why, None)
            }
        }
    }

    fn text(&mut self, line: &str) -> Heard {
        let line = line.strip_prefix('\u{feff}').unwrap_or(line).trim_ascii();
        if line.is_empty() {
            return Heard::Nothing;
        }
        let no_json = |err| refuse(ErrorCode::PARSE_ERROR, &format!("no JSON: {err}"), None);
        if !line.starts_with('{') {
            // Batches were part of one revision only.
            let why = "a message is an object, and each stands on a line of its own";
            let is_json = serde_json::from_str::<IgnoredAny>(line);
            return is_json.map_or_else(no_json, |_| refuse(ErrorCode::INVALID_REQUEST, why, None));
        }
        let shape: Shape<'_> = match serde_json::from_str(line) {
            Ok(shape) => shape,
            Err(err) if err.is_data() => {
                return refuse(ErrorCode::INVALID_REQUEST, &format!("no message: {err}"), None);
            }
            Err(err) => return no_json(err),
        };
        match (shape.id, shape.method) {
            (None, None) => Heard::Nothing,
            (None, Some(_)) => self.notification(line),
            (Some(id), method) => match serde_json::from_str::<NumberOrString>(id.get()) {
                Err(_) => refuse(ErrorCode::INVALID_REQUEST, "id is neither a string nor an integer", None),
                Ok(id) => self.request(line, &shape, id, method.is_some()),
            },
        }
    }

    /// Of a message that nobody waits for, what is not understood counts for nothing.
    fn notification(&self, line: &str) -> Heard {
        match serde_json::from_str(line) {
            Ok(message @ JsonRpcMessage::Notification(_)) if self.has_begun => {
                Heard::Message(Box::new(message))
            }
            _ => Heard::Nothing,
        }
    }

    fn request(&mut self, line: &str, shape: &Shape<'_>, id: RequestId, has_method: bool) -> Heard {
        if shape.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
            return refuse(ErrorCode::INVALID_REQUEST, "jsonrpc is not \"2.0\"", Some(id));
        }
        match serde_json::from_str::<ClientJsonRpcMessage>(line) {
            Ok(JsonRpcMessage::Request(mut request)) => {
                if let Some(err) = self.refusal(&mut request.request) {
                    return refuse(err.code, &err.message, Some(id));
                }
                Heard::Message(Box::new(JsonRpcMessage::Request(request)))
            }
            Ok(_) => Heard::Nothing,
            Err(_) if !has_method && !line.contains("\"method\"") && is_response(line) => Heard::Nothing,
            Err(err) => refuse(ErrorCode::INVALID_REQUEST, &format!("no request: {err}"), Some(id)),
        }
    }

    /// Why a request goes no further, if it does not.
    fn refusal(&mut self, request: &mut ClientRequest) -> Option<ErrorData> {
        if matches!(request, ClientRequest::CustomRequest(request) if request.method == DISCOVER) {
            *request = ClientRequest::DiscoverRequest(DiscoverRequest::new(DiscoverRequestParams {}));
        }
        if let ClientRequest::CustomRequest(custom) = &*request
            && let Some(params) = short_initialize(custom)
        {
            *request = ClientRequest::InitializeRequest(InitializeRequest::new(params));
        }
        let is_incomplete =
            !request.get_meta().missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty();
        match request {
            ClientRequest::CustomRequest(request) => {
                // The SDK takes a method of its own whose parameters it cannot read for one of somebody else.
                let is_known = METHODS.contains(&request.method.as_str());
                return Some(if is_known {
                    let text = format!("the parameters of {} cannot be used", request.method);
                    ErrorData::invalid_params(text, None)
                } else {
                    let text = format!("there is no method {}", request.method);
                    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None)
                });
            }
            ClientRequest::InitializeRequest(_) => self.has_begun = true,
            ClientRequest::PingRequest(_) => {}
            // A probe of a client that does not know yet what we speak: it is answered, whatever it says of itself.
            ClientRequest::DiscoverRequest(_) if is_incomplete => {
                *request.get_meta_mut() = RequestMetaObject::with_client_context(
                    ProtocolVersion::V_2026_07_28,
                    Implementation::new("unknown", "0"),
                    ClientCapabilities::default(),
                );
            }
            ClientRequest::DiscoverRequest(_) => {}
            _ if !self.has_begun => {
                if is_incomplete {
                    let text =
                        "initialize comes first, or the _meta of revision 2026-07-28 with every request";
                    return Some(ErrorData::invalid_request(text, None));
                }
                self.has_begun = true;
            }
            _ => {}
        }
        None
    }
}

/// The parameters of an initialize that leaves some of them out; what it does say has to make sense. Who names no
/// revision speaks the oldest one.
fn short_initialize(request: &CustomRequest) -> Option<InitializeRequestParams> {
    let mut params = match &request.params {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params.clone(),
        Some(_) => return None,
    };
    for (name, value) in [
        ("protocolVersion", json!(ProtocolVersion::V_2024_11_05)),
        ("capabilities", json!({})),
        ("clientInfo", json!({ "name": "unknown", "version": "0" })),
    ] {
        params.entry(name).or_insert(value);
    }
    (request.method == "initialize").then(|| serde_json::from_value(Value::Object(params)).ok()).flatten()
}

const DISCOVER: &str = "server/discover";

/// The other methods that the SDK knows.
const METHODS: [&str; 15] = [
    "initialize",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "resources/templates/list",
    "subscriptions/listen",
    "tools/call",
    "tools/list",
    "completion/complete",
    "logging/setLevel",
    "tasks/get",
];

/// Whether a line answers something. We ask nothing, so that it does not matter what it says.
fn is_response(line: &str) -> bool {
    #[derive(Deserialize)]
    struct Response<'a> {
        #[serde(borrow, default, deserialize_with = "present")]
        result: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        error: Option<&'a RawValue>,
    }
    serde_json::from_str::<Response<'_>>(line)
        .is_ok_and(|response| response.result.is_some() || response.error.is_some())
}

/// The answer to a request whose id another one has that is not answered yet.
pub(super) fn in_use(id: &RequestId) -> String {
    refusal(ErrorCode::INVALID_REQUEST, "another request of this id is not answered yet", Some(id))
}

/// The answer to what is no request that can be served.
fn refuse(code: ErrorCode, why: &str, id: Option<RequestId>) -> Heard {
    Heard::Answer(refusal(code, why, id.as_ref()))
}

fn refusal(code: ErrorCode, why: &str, id: Option<&RequestId>) -> String {
    let error = json!({ "code": code.0, "message": why });
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a line: the method of a message, the code of an answer with its id, or nothing.
    fn heard(ear: &mut Ear, line: &str) -> String {
        match ear.hear(&Line::Text(line.into())) {
            Heard::Message(message) => match *message {
                JsonRpcMessage::Request(request) => format!("request {}", request.request.method()),
                JsonRpcMessage::Notification(_) => "notification".to_owned(),
                other => panic!("{other:?}"),
            },
            Heard::Answer(line) => {
                let answer: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(answer["jsonrpc"], "2.0");
                assert!(answer.get("id").is_some() && answer["error"]["message"].is_string());
                format!("{} {}", answer["error"]["code"], answer["id"])
            }
            Heard::Nothing => "nothing".to_owned(),
        }
    }

    const INIT: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

    #[test]
    fn whatever_can_be_a_request_is_answered_and_what_has_no_id_is_not() {
        let mut ear = Ear { has_begun: true };
        for (line, comes_to) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, "request tools/list"),
            (r#"{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{}}"#, "request tools/list"),
            ("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r", "request ping"),
            ("", "nothing"),
            ("  \r", "nothing"),
            ("{", "-32700 null"),
            ("what?", "-32700 null"),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} x", "-32700 null"),
            ("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", "-32600 null"),
            ("[1", "-32700 null"),
            ("7", "-32600 null"),
            ("null", "-32600 null"),
            ("{}", "nothing"),
            (r#"{"id":1,"id":2,"method":"ping"}"#, "-32600 null"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "-32600 null"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "-32600 null"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, "-32600 null"),
            (r#"{"jsonrpc":"1.0","id":5,"method":"ping"}"#, "-32600 5"),
            (r#"{"id":5,"method":"ping"}"#, "-32600 5"),
            (r#"{"jsonrpc":"2.0","id":5}"#, "-32600 5"),
            (r#"{"jsonrpc":"2.0","id":5,"method":7}"#, "-32600 5"),
            (r#"{"jsonrpc":"2.0","id":5,"method":"fetch"}"#, "-32601 5"),
            (r#"{"jsonrpc":"2.0","id":5,"method":"tools/call"}"#, "-32602 5"),
            (r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":1}}"#, "-32602 5"),
            (r#"{"jsonrpc":"2.0","id":5,"result":{}}"#, "nothing"),
            (r#"{"jsonrpc":"2.0","id":5,"result":null}"#, "nothing"),
            (r#"{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":"no"}}"#, "nothing"),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "notification"),
            (r#"{"jsonrpc":"2.0","method":"tools/list"}"#, "nothing"),
            (r#"{"jsonrpc":"2.0","method":7}"#, "nothing"),
        ] {
            let got = heard(&mut ear, line);
            assert!(got == comes_to || (got == "notification" && comes_to == "nothing"), "{line}: {got}");
        }
        for (line, code) in [(Line::NotUtf8, "-32700"), (Line::TooLong, "-32600")] {
            let Heard::Answer(answer) = ear.hear(&line) else { panic!("{line:?}") };
            assert!(answer.contains(code) && answer.contains("\"id\":null"), "{answer}");
        }
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(heard(&mut ear, &deep), "-32600 null");
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{{"name":"x","arguments":{{"a":{deep}}}}}}}"#
        );
        assert_eq!(heard(&mut ear, &deep), "-32600 6");
    }

    #[test]
    fn a_session_begins_with_initialize_or_with_what_a_request_says_of_itself() {
        let mut ear = Ear::default();
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let probe = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#;
        assert_eq!(heard(&mut ear, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#), "nothing");
        assert_eq!(heard(&mut ear, list), "-32600 1");
        assert_eq!(heard(&mut ear, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), "request ping");
        assert_eq!(heard(&mut ear, probe), "request server/discover");
        for wrong in [
            r#"{"protocolVersion":7}"#,
            r#"{"protocolVersion":null}"#,
            r#"{"capabilities":[]}"#,
            r#"{"clientInfo":"t"}"#,
        ] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{wrong}}}"#);
            assert_eq!(heard(&mut ear, &line), "-32602 1", "{line}");
        }
        assert_eq!(heard(&mut ear, list), "-32600 1");
        assert_eq!(heard(&mut ear, INIT), "request initialize");
        assert_eq!(heard(&mut ear, list), "request tools/list");

        for short in ["", r#","params":null"#, r#","params":{}"#, r#","params":{"capabilities":{}}"#] {
            let mut ear = Ear::default();
            let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize"{short}}}"#);
            let Heard::Message(message) = ear.hear(&Line::Text(line.clone())) else { panic!("{line}") };
            let JsonRpcMessage::Request(request) = *message else { panic!("{line}") };
            let ClientRequest::InitializeRequest(request) = request.request else { panic!("{line}") };
            assert_eq!(request.params.protocol_version, ProtocolVersion::V_2024_11_05, "{line}");
            assert_eq!(heard(&mut ear, list), "request tools/list", "{line}");
        }

        let mut ear = Ear::default();
        let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
        let inline =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{meta}}}}}"#);
        assert_eq!(heard(&mut ear, &inline), "request tools/list");
    }
}
