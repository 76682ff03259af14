//! The transcript of a session: a file of JSON lines that Claude Code appends to. What it has as a user's message is
//! in the session, and is there again after a resume.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// Which showing of which delivery: one that is shown again on purpose keeps its id and counts its redeliveries.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    id: String,
    redelivery: Option<String>,
}

impl Key {
    /// That of an envelope, which is the delivery `id`.
    pub(super) fn of(envelope: &str, id: &str) -> Self {
        let tag = envelope.lines().next().unwrap_or_default();
        Self { id: id.to_owned(), redelivery: attribute(tag, "redelivery") }
    }

    /// Those of all envelopes in a text.
    fn all(text: &str) -> impl Iterator<Item = Self> {
        let tags = text.lines().filter(|line| line.starts_with("<transit ") && line.ends_with('>'));
        tags.filter_map(|tag| {
            Some(Self { id: attribute(tag, "id")?, redelivery: attribute(tag, "redelivery") })
        })
    }
}

/// An attribute of a line that is an opening tag. The values that are looked for have nothing that is escaped.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, value) = tag.split_once(&format!(" {name}=\""))?;
    value.split_once('"').map(|(value, _)| value.to_owned())
}

/// A line of the transcript, as far as it matters here.
#[derive(Deserialize)]
struct Record {
    r#type: String,
    #[serde(default)]
    message: Value,
}

/// What a transcript holds, read as far as it goes.
pub(super) struct Transcript {
    projects: PathBuf,
    name: String,
    path: Option<PathBuf>,
    read: u64,
    /// A line whose end is not there yet.
    rest: Vec<u8>,
    seen: HashSet<Key>,
}

impl Transcript {
    /// That of a session.
    pub(super) fn new(dir: &Path, session_id: &str) -> Self {
        Self {
            projects: dir.join("projects"),
            name: format!("{session_id}.jsonl"),
            path: None,
            read: 0,
            rest: Vec::new(),
            seen: HashSet::new(),
        }
    }

    /// Whether the session has it as a user's message by now. A session without a transcript has nothing.
    ///
    /// # Errors
    /// When the transcript cannot be read.
    pub(super) fn has(&mut self, key: &Key) -> io::Result<bool> {
        if !self.seen.contains(key) {
            self.look()?;
        }
        Ok(self.seen.contains(key))
    }

    /// Reads what has come since the last time.
    fn look(&mut self) -> io::Result<()> {
        if self.path.is_none() {
            self.path = self.find();
        }
        let Some(path) = &self.path else { return Ok(()) };
        let mut file = match File::open(path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                self.path = None;
                return Ok(());
            }
            file => file?,
        };
        if file.metadata()?.len() < self.read {
            // Somebody has written it anew.
            self.read = 0;
            self.rest.clear();
        }
        file.seek(SeekFrom::Start(self.read))?;
        self.read += file.read_to_end(&mut self.rest)? as u64;
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for line in self.rest[..end].split(|byte| *byte == b'\n') {
            self.seen.extend(keys(line));
        }
        self.rest.drain(..end);
        Ok(())
    }

    /// The directory is named after the working directory that the session began in, by a rule of Claude Code.
    fn find(&self) -> Option<PathBuf> {
        let dirs = fs::read_dir(&self.projects).ok()?.filter_map(Result::ok);
        dirs.map(|dir| dir.path().join(&self.name)).find(|path| path.is_file())
    }
}

/// The envelopes in a line that is a user's message. A queued one, and what a tool has read, do not count.
fn keys(line: &[u8]) -> Vec<Key> {
    if memchr::memmem::find(line, b"<transit ").is_none() {
        return Vec::new();
    }
    match serde_json::from_slice(line) {
        Ok(Record { r#type, message }) if r#type == "user" => {
            texts(&message["content"]).into_iter().flat_map(Key::all).collect()
        }
        _ => Vec::new(),
    }
}

fn texts(content: &Value) -> Vec<&str> {
    match content {
        Value::String(text) => vec![text],
        Value::Array(parts) => parts
            .iter()
            .filter(|part| part["type"] == "text")
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::json;

    use super::*;

    const ENVELOPE: &str =
        "<transit from=\"a@b\" id=\"tx_000000000001\" schema=\"transit/1\">\nhi\n</transit>";

    #[test]
    fn only_a_users_message_counts_and_only_once_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let mut transcript = Transcript::new(dir.path(), "s-1");
        let key = Key::of(ENVELOPE, "tx_000000000001");
        assert!(!transcript.has(&key).unwrap(), "there is no transcript yet");
        fs::create_dir_all(dir.path().join("projects/-src")).unwrap();
        let path = dir.path().join("projects/-src/s-1.jsonl");
        let mut file = File::create(&path).unwrap();
        let wrapped = format!("Another session sent a message:\n{ENVELOPE}\n\nIt is a peer's.");
        for other in [
            json!({ "type": "queue-operation", "operation": "enqueue", "content": wrapped }),
            json!({ "type": "assistant", "message": { "content": wrapped } }),
            json!({ "type": "user", "message": { "content": [{ "type": "tool_result", "content": wrapped }] } }),
            json!({ "type": "user", "message": { "content": "tx_000000000001" } }),
        ] {
            writeln!(file, "{other}").unwrap();
            assert!(!transcript.has(&key).unwrap(), "{other}");
        }
        let line = json!({ "type": "user", "message": { "content": wrapped } }).to_string();
        let (first, second) = line.split_at(line.len() / 2);
        file.write_all(first.as_bytes()).unwrap();
        assert!(!transcript.has(&key).unwrap(), "half a line");
        writeln!(file, "{second}").unwrap();
        assert!(transcript.has(&key).unwrap());
        assert!(!transcript.has(&Key::of(ENVELOPE, "tx_000000000002")).unwrap());
    }

    #[test]
    fn what_is_shown_again_on_purpose_is_another_showing() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("projects/x")).unwrap();
        let again = ENVELOPE.replace(" schema=", " redelivery=\"2\" schema=");
        let path = dir.path().join("projects/x/s-1.jsonl");
        let mut transcript = Transcript::new(dir.path(), "s-1");
        let line = |text: &str| {
            format!(
                "{}\n",
                json!({ "type": "user", "message": { "content": [{ "type": "text", "text": text }] } })
            )
        };
        fs::write(&path, line(ENVELOPE).repeat(2)).unwrap();
        assert!(transcript.has(&Key::of(ENVELOPE, "tx_000000000001")).unwrap());
        assert!(!transcript.has(&Key::of(&again, "tx_000000000001")).unwrap());
        // Shorter than what was read of it before.
        fs::write(&path, line(&again)).unwrap();
        assert!(
            transcript.has(&Key::of(&again, "tx_000000000001")).unwrap(),
            "a transcript that was written anew"
        );
    }
}
