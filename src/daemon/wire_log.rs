//! Every frame of transit-wire/1 as a line of a file, `{"at","proto","dir","frame"}`. Secrets are replaced before
//! anything is written.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

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

fn record(at: Wall, direction: Direction, text: &str) -> String {
    let dir = match direction {
        Direction::ToWorker => "daemon>worker",
        Direction::FromWorker => "worker>daemon",
    };
    let mut frame = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    redact(&mut frame);
    let record = json!({ "at": at.to_string(), "proto": "transit-wire/1", "dir": dir, "frame": frame });
    format!("{record}\n")
}

fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if SECRETS.contains(&name.as_str()) { *value = REDACTED.into() } else { redact(value) }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(redact),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
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
}
