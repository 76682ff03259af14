//! Every frame of transit-wire/1 as a line of a file, `{"at","proto","dir","frame"}`. Secrets are replaced before
//! anything is written.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::de::{MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::clock::Wall;
use crate::secret::REDACTED;

/// Fields that hold secrets, at any depth.
const SECRETS: [&str; 6] = ["capability", "token", "device_token", "agent_token", "secret", "authorization"];

/// Which way a frame went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToWorker,
    FromWorker,
}

/// A file of frames.
#[derive(Debug)]
pub(super) struct WireLog(Mutex<File>);

impl WireLog {
    /// Adds to the file, which is made 0600 when it is not there.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self(Mutex::new(file)))
    }

    /// Writes one frame down. A frame that cannot be written is missing from the file, and from nothing else.
    pub(super) fn record(&self, at: Wall, direction: Direction, text: &str) {
        let line = record(at, direction, text);
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(err) = file.write_all(line.as_bytes()) {
            tracing::warn!("could not write the wire log: {err}");
        }
    }
}

/// A line of the file. Its fields stand in the order in which people read them.
#[derive(Serialize)]
struct Record {
    at: String,
    proto: &'static str,
    dir: &'static str,
    frame: Box<RawValue>,
}

fn record(at: Wall, direction: Direction, text: &str) -> String {
    let dir = match direction {
        Direction::ToWorker => "daemon>worker",
        Direction::FromWorker => "worker>daemon",
    };
    // Only what a `Value` can be made of is shallow enough to be walked through.
    let frame = serde_json::from_str::<Value>(text)
        .and_then(|_| serde_json::from_str(text))
        .and_then(redacted)
        .or_else(|_| to_raw_value(text))
        .expect("every text is a JSON string");
    let record = Record { at: at.to_string(), proto: "transit-wire/1", dir, frame };
    let line = serde_json::to_string(&record).expect("a record holds only text and JSON");
    format!("{line}\n")
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
                if SECRETS.contains(&name.as_str()) {
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

    #[test]
    fn a_record_is_one_line_without_secrets() {
        let frame = r#"{"t":"rpc","params":[{"token":"s3cret"},{"deep":{"secret":{"a":1}}}],"body":"x\ny"}"#;
        let line = record(Wall(0), Direction::ToWorker, frame);
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
        let record: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(record["at"], "1970-01-01T00:00:00.000Z");
        assert_eq!(record["dir"], "daemon>worker");
        assert_eq!(record["frame"]["params"], json!([{"token": REDACTED}, {"deep": {"secret": REDACTED}}]));
        assert!(super::record(Wall(0), Direction::FromWorker, "no json").contains("\"no json\""));
    }

    #[test]
    fn a_frame_keeps_the_order_of_its_fields() {
        let at = Wall(0);
        let frame = "{\"t\":\"send\",\n \"id\":\"tx_1\",\"body\":\"a token\",\"n\":1.50,\"deep\":[{\"z\":1,\"a\":2}]}";
        let line = record(at, Direction::ToWorker, frame);
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
        let line = record(Wall(0), Direction::FromWorker, frame);
        assert!(!line.contains("s3cret"), "{line}");
        assert!(line.contains(r#""frame":{"t":"x","a":"#), "{line}");
    }

    #[test]
    fn a_frame_too_deep_to_walk_through_is_a_text() {
        let frame = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let line = record(Wall(0), Direction::FromWorker, &frame);
        assert!(line.contains(r#""frame":"[[["#));
    }
}
