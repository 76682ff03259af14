//! Writing a record of a dump. Secrets are replaced before anything leaves this module.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::clock::Wall;
use crate::secret::REDACTED;

/// Fields that hold secrets, at any depth.
const SECRETS: [&str; 6] = ["capability", "token", "device_token", "agent_token", "secret", "authorization"];

/// Whether a field of this name holds a secret. Names of header fields come in any case.
#[inline]
pub fn is_secret(name: &[u8]) -> bool {
    // Most names are none, and are asked for often: their length and their first letters tell.
    name.len() >= 5
        && matches!(name[0] | 0x20, b'a' | b'c' | b'd' | b's' | b't')
        && is_one_of_the_secrets(name)
}

#[inline(never)] // so that the names that are none cost nothing of it
fn is_one_of_the_secrets(name: &[u8]) -> bool {
    SECRETS.iter().any(|secret| secret.as_bytes().eq_ignore_ascii_case(name))
}

/// What is spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proto {
    /// transit-wire/1, between a daemon and the Worker.
    Wire,
    /// transit-agent/1, between a harness adapter and its daemon.
    Agent,
    /// The calls of `transit.sock`, which have no protocol name: an object with `op` each, and its answer.
    Control,
    /// The local client API, which has neither a name nor a version.
    Api,
}

impl Proto {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Wire, Self::Agent, Self::Control, Self::Api];

    /// Its name in `proto`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wire => "transit-wire/1",
            Self::Agent => "transit-agent/1",
            Self::Control => "transit.sock",
            Self::Api => "local-api",
        }
    }

    /// The one of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|proto| proto.name() == name)
    }

    /// The end that connects, and the one that it connects to.
    pub fn ends(self) -> (&'static str, &'static str) {
        match self {
            Self::Wire => ("daemon", "worker"),
            Self::Agent => ("adapter", "daemon"),
            Self::Control | Self::Api => ("client", "server"),
        }
    }

    /// What `dir` says of a frame that went this way.
    pub fn dir(self, way: Way) -> &'static str {
        match (self, way) {
            (Self::Wire, Way::Forth) => "daemon>worker",
            (Self::Wire, Way::Back) => "worker>daemon",
            (Self::Agent, Way::Forth) => "adapter>daemon",
            (Self::Agent, Way::Back) => "daemon>adapter",
            (Self::Control | Self::Api, Way::Forth) => "client>server",
            (Self::Control | Self::Api, Way::Back) => "server>client",
        }
    }

    /// The way that `dir` names.
    pub fn way(self, dir: &str) -> Option<Way> {
        [Way::Forth, Way::Back].into_iter().find(|way| self.dir(*way) == dir)
    }
}

/// Which way a frame went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// From the end that connected: a daemon to its Worker, an adapter to its daemon, a client to its server.
    Forth,
    /// To the end that connected.
    Back,
}

/// What happened on a connection besides its frames. Not one of them is a fault of a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Note<'a> {
    /// The end that connected sent an HTTP request: it asks for a WebSocket, most likely.
    Open {
        /// The path of its request, without the query.
        path: &'a str,
    },
    /// The answer to that.
    Answer {
        /// The HTTP status; 101 opens the WebSocket.
        status: u16,
    },
    /// A WebSocket ping.
    Ping {
        /// Length of what it carries.
        bytes: u64,
    },
    /// A WebSocket pong.
    Pong {
        /// Length of what it carries.
        bytes: u64,
    },
    /// A binary message, which no protocol of ours has.
    Binary {
        /// Its length.
        bytes: u64,
    },
    /// A text message or line that is not UTF-8.
    NotUtf8,
    /// A text message or line over 1 MiB, of which nothing is kept.
    TooLong {
        /// The length that was seen when this was written.
        bytes: u64,
    },
    /// A message or line that had not ended when its stream did.
    Cut,
    /// A WebSocket close frame.
    Close {
        /// Its code.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<u16>,
        /// Its reason.
        #[serde(skip_serializing_if = "str::is_empty")]
        reason: &'a str,
    },
    /// Nothing more comes this way.
    End,
    /// The connection broke.
    Broken {
        /// How.
        why: &'a str,
    },
    /// What came this way was not understood; it passed unchanged all the same.
    Blind {
        /// Why not.
        why: &'a str,
    },
    /// Records that were not kept, because nobody took them in time.
    Lost {
        /// How many.
        records: u64,
    },
}

/// What all records of one moment of a connection say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When.
    pub at: Wall,
    /// What is spoken.
    pub proto: Proto,
    /// Which way.
    pub way: Way,
    /// Which connection, from 1; `None` while there has been only one.
    pub conn: Option<u64>,
}

impl Record {
    /// The line for a frame, with its newline. A frame that is no JSON, or too deep to be walked through, stands in
    /// it as a text, up to where a secret may begin.
    pub fn frame(self, text: &str) -> String {
        // Only what a `Value` can be made of is shallow enough to be walked through.
        let frame = serde_json::from_str::<Value>(text)
            .and_then(|_| serde_json::from_str(text))
            .and_then(redacted)
            .or_else(|_| to_raw_value(&safe_part(text)))
            .expect("every text is a JSON string");
        self.line(Frame { frame })
    }

    /// The line for anything else that happened, with its newline.
    pub fn note(self, note: &Note<'_>) -> String {
        self.line(note)
    }

    fn line(self, content: impl Serialize) -> String {
        let head = Head {
            at: self.at.to_string(),
            proto: self.proto.name(),
            dir: self.proto.dir(self.way),
            conn: self.conn,
        };
        let json =
            |part: serde_json::Result<String>| part.expect("a record holds only text, numbers and JSON");
        let mut line = json(serde_json::to_string(&head));
        // Two objects become one: flattening would not let the frame stand as it is.
        line.pop();
        line.push(',');
        line.push_str(&json(serde_json::to_string(&content))[1..]);
        line.push('\n');
        line
    }
}

/// The first fields of a line, in the order in which people read them.
#[derive(Serialize)]
struct Head {
    at: String,
    proto: &'static str,
    dir: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    conn: Option<u64>,
}

#[derive(Serialize)]
struct Frame {
    frame: Box<RawValue>,
}

/// `raw` without blanks and without secrets; its fields stay in their order, and repeated ones stay too.
fn redacted(raw: &RawValue) -> serde_json::Result<Box<RawValue>> {
    match raw.get().as_bytes().first() {
        Some(b'{') => {
            let Fields(fields) = serde_json::from_str(raw.get())?;
            let mut out = Vec::new();
            let mut map = serde_json::Serializer::new(&mut out);
            let mut map = map.serialize_map(Some(fields.len()))?;
            for (name, value) in fields {
                if is_secret(name.as_bytes()) {
                    map.serialize_entry(&name, REDACTED)?;
                } else {
                    map.serialize_entry(&name, &redacted(value)?)?;
                }
            }
            map.end()?;
            RawValue::from_string(String::from_utf8_lossy(&out).into_owned())
        }
        Some(b'[') => {
            let values: Vec<&RawValue> = serde_json::from_str(raw.get())?;
            let values = values.into_iter().map(redacted).collect::<Result<Vec<_>, _>>()?;
            to_raw_value(&values)
        }
        _ => Ok(raw.to_owned()),
    }
}

/// What of a text that is no JSON may be kept: all before a name that may be a secret's, which an escape may spell.
fn safe_part(text: &str) -> Cow<'_, str> {
    let lower = text.to_ascii_lowercase();
    let names = SECRETS.iter().filter_map(|name| lower.find(name)).min();
    match [names, text.find("\\u00")].into_iter().flatten().min() {
        Some(at) => format!("{}{REDACTED}", &text[..at]).into(),
        None => text.into(),
    }
}

/// The fields of an object as they stand in it.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        from.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(way: Way) -> Record {
        Record { at: Wall(0), proto: Proto::Wire, way, conn: None }
    }

    #[test]
    fn a_record_is_one_line_without_secrets() {
        let frame = r#"{"t":"rpc","params":[{"token":"s3cret"},{"deep":{"secret":{"a":1}}}],"body":"x\ny"}"#;
        let line = at(Way::Forth).frame(frame);
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
        let record: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(record["at"], "1970-01-01T00:00:00.000Z");
        assert_eq!(record["dir"], "daemon>worker");
        assert_eq!(record["frame"]["params"], json!([{"token": REDACTED}, {"deep": {"secret": REDACTED}}]));
        assert!(at(Way::Back).frame("no json").contains("\"no json\""));
    }

    #[test]
    fn a_frame_keeps_the_order_of_its_fields() {
        let frame = "{\"t\":\"send\",\n \"id\":\"tx_1\",\"body\":\"a token\",\"n\":1.50,\"deep\":[{\"z\":1,\"a\":2}]}";
        let line = at(Way::Forth).frame(frame);
        let kept = r#""frame":{"t":"send","id":"tx_1","body":"a token","n":1.50,"deep":[{"z":1,"a":2}]}}"#;
        assert!(
            line.starts_with(r#"{"at":"1970-01-01T00:00:00.000Z","proto":"transit-wire/1","dir":""#),
            "{line}"
        );
        assert!(line.trim_end().ends_with(kept), "{line}");
    }

    #[test]
    fn no_secret_hides_behind_a_repeated_or_an_escaped_name() {
        let frame =
            r#"{"t":"x","a":{"token":"s3cret"},"a":1,"\u0073ecret":"s3cret","token":"s3cret","token":2}"#;
        let line = at(Way::Back).frame(frame);
        assert!(!line.contains("s3cret"), "{line}");
        assert!(line.contains(r#""frame":{"t":"x","a":"#), "{line}");
    }

    #[test]
    fn a_frame_too_deep_to_walk_through_is_a_text() {
        let frame = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let line = at(Way::Back).frame(&frame);
        assert!(line.contains(r#""frame":"[[["#));
    }

    #[test]
    fn a_text_that_is_no_json_ends_before_a_secret() {
        for (text, kept) in [
            (r#"{"t":"x","token":"s3cret""#, r#""{\"t\":\"x\",\"[redacted]""#),
            (r#"{"t":"x","\u0074oken":"s3cret""#, r#""{\"t\":\"x\",\"[redacted]""#),
            ("no json", "\"no json\""),
        ] {
            let line = at(Way::Forth).frame(text);
            assert!(line.ends_with(&format!("\"frame\":{kept}}}\n")), "{line}");
        }
        let deep = format!("{}{}{}", r#"{"a":"#.repeat(200), r#"{"secret":"s3cret"}"#, "}".repeat(200));
        assert!(!at(Way::Forth).frame(&deep).contains("s3cret"));
    }

    #[test]
    fn what_happened_besides_frames_is_a_note() {
        let record = Record { conn: Some(2), ..at(Way::Back) };
        assert_eq!(
            record.note(&Note::Close { code: Some(4000), reason: "replaced" }),
            "{\"at\":\"1970-01-01T00:00:00.000Z\",\"proto\":\"transit-wire/1\",\"dir\":\"worker>daemon\",\"conn\":2,\
             \"note\":\"close\",\"code\":4000,\"reason\":\"replaced\"}\n"
        );
        assert!(at(Way::Back).note(&Note::End).ends_with("\"note\":\"end\"}\n"));
        let bare = Note::Close { code: None, reason: "" };
        assert!(at(Way::Back).note(&bare).ends_with("\"note\":\"close\"}\n"));
    }

    #[test]
    fn names_and_directions_are_read_as_they_are_written() {
        for proto in Proto::ALL {
            assert_eq!(Proto::of_name(proto.name()), Some(proto));
            for way in [Way::Forth, Way::Back] {
                assert_eq!(proto.way(proto.dir(way)), Some(way));
            }
        }
        assert_eq!((Proto::of_name("transit-wire/2"), Proto::Wire.way("client>server")), (None, None));
    }
}
