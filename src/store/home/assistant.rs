//! What is kept of an agent's conversations between its runs: pointers, never what was said.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::super::{StoreError, files};
use super::manifest::{Assistant, Server, Way};
use super::{Home, component};
use crate::clock::Wall;

/// Longest record, in bytes.
const LONGEST: u64 = 1 << 20;
/// Longest name of an agent's session that is kept, in bytes: it goes through the environment.
const LONGEST_POINTER: usize = 4096;

/// The record of one conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    source: String,
    session_id: String,
    /// The agent's own name for its session.
    model_session: Option<String>,
    /// Counts the sessions that were given up.
    generation: u64,
    toolkit_hash: Option<String>,
    transcript_bytes: u64,
    updated_at: String,
    /// The next run is to be told that its session was retired.
    #[serde(skip_serializing_if = "is_false")]
    context_retired: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What a run is told of its conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pointers {
    /// The agent's own name for the session that it is to go on with.
    pub session: Option<String>,
    /// Its session was retired since the last run; told once.
    pub retired: bool,
    /// The file that tells of its tool servers, and its hash.
    pub toolkit: Option<(PathBuf, String)>,
}

/// The conversation of one source.
#[derive(Debug, Clone, Copy)]
pub struct Conversation<'a> {
    /// Where its triggers come from.
    pub source: &'a str,
    /// Its session there.
    pub session: &'a str,
}

impl Home {
    fn assistant_dir(&self) -> PathBuf {
        self.dir.join("state/assistant")
    }

    fn record_path(&self, of: Conversation<'_>) -> PathBuf {
        let name = format!("{}-{}.json", component(of.source), component(of.session));
        self.assistant_dir().join(name)
    }

    /// What the next run is told. A retirement is told by this once; [`untell`](Self::untell) takes that back. Other
    /// tools than the last time begin a new session.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn begin(&self, of: Conversation<'_>, with: &Assistant, now: Wall) -> Result<Pointers, StoreError> {
        let toolkit = self.toolkit(&with.servers)?;
        let mut record = self.record(of)?;
        let before = record.clone();
        let hash = toolkit.as_ref().map(|(_, hash)| hash.clone());
        if record.toolkit_hash != hash {
            record.toolkit_hash = hash;
            record.model_session = None;
            record.transcript_bytes = 0;
        }
        let retired = std::mem::take(&mut record.context_retired);
        if record != before {
            self.keep(of, record.clone(), now)?;
        }
        Ok(Pointers { session: record.model_session, retired, toolkit })
    }

    /// The run that was told of a retirement was never begun: the next one is told.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn untell(&self, of: Conversation<'_>, now: Wall) -> Result<(), StoreError> {
        let record = Record { context_retired: true, ..self.record(of)? };
        self.keep(of, record, now)
    }

    /// A run has named its session. One whose transcript is longer than the agent allows is retired.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn end(
        &self,
        of: Conversation<'_>,
        with: &Assistant,
        session: (&str, u64),
        now: Wall,
    ) -> Result<(), StoreError> {
        let mut record = self.record(of)?;
        let (pointer, bytes) = session;
        let is_good = !pointer.is_empty() && pointer.len() <= LONGEST_POINTER && !pointer.contains('\0');
        if bytes > with.transcript_bytes_max {
            record = Record { context_retired: true, ..given_up(record) };
        } else {
            record.model_session = is_good.then(|| pointer.to_owned());
            record.transcript_bytes = bytes;
        }
        self.keep(of, record, now)
    }

    /// Somebody wants a new session. It is not told to the agent as a retirement.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn begin_anew(&self, of: Conversation<'_>, now: Wall) -> Result<(), StoreError> {
        let record = given_up(self.record(of)?);
        self.keep(of, record, now)
    }

    /// A record that cannot be read is told of, and gone on without: it is a hint to the agent.
    fn record(&self, of: Conversation<'_>) -> Result<Record, StoreError> {
        let path = self.record_path(of);
        let text = match files::read_small(&path, LONGEST) {
            Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Record::default());
            }
            read => read?,
        };
        Ok(serde_json::from_slice(&text).unwrap_or_else(|err| {
            tracing::warn!(path = %path.display(), %err, "a conversation's record makes no sense; it is begun anew");
            Record::default()
        }))
    }

    fn keep(&self, of: Conversation<'_>, record: Record, now: Wall) -> Result<(), StoreError> {
        let path = self.record_path(of);
        let (source, session_id) = (of.source.to_owned(), of.session.to_owned());
        let record = Record { source, session_id, updated_at: now.to_string(), ..record };
        let text = serde_json::to_vec_pretty(&record).expect("strings and numbers are JSON");
        files::private_dir(&self.assistant_dir())?;
        files::write_private(&path, &text)
    }

    /// The file for the agent that tells of its tool servers, and its hash; it is made when it is not there.
    fn toolkit(&self, servers: &[Server]) -> Result<Option<(PathBuf, String)>, StoreError> {
        if servers.is_empty() {
            return Ok(None);
        }
        let servers: serde_json::Map<_, _> = servers
            .iter()
            .map(|server| {
                let way = match &server.way {
                    Way::Own => json!({ "command": "transit-mcp" }),
                    Way::Http { url } => json!({ "type": "http", "url": url }),
                    Way::Stdio { command, args } => json!({ "command": command, "args": args }),
                };
                (server.name.clone(), way)
            })
            .collect();
        let text = serde_json::to_vec(&json!({ "mcpServers": servers })).expect("strings are JSON");
        let hash = hex::encode(&Sha256::digest(&text)[..16]);
        let path = self.assistant_dir().join(format!("toolkit-{hash}.json"));
        if !path.is_file() {
            files::private_dir(&self.assistant_dir())?;
            files::write_private(&path, &text)?;
        }
        Ok(Some((path, hash)))
    }
}

fn given_up(record: Record) -> Record {
    let generation = record.generation + 1;
    Record { model_session: None, transcript_bytes: 0, context_retired: false, generation, ..record }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NOW: Wall = Wall(1_767_225_600_000);

    fn of(session: &str) -> Conversation<'_> {
        Conversation { source: "local", session }
    }

    fn assistant(servers: Vec<Server>) -> Assistant {
        Assistant { memory: true, transcript_bytes_max: 100, servers }
    }

    fn told(session: Option<&str>, retired: bool) -> Pointers {
        Pointers { session: session.map(str::to_owned), retired, toolkit: None }
    }

    #[test]
    fn a_pointer_comes_back_until_its_transcript_is_too_long_and_that_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let (home, with) = (Home::at(dir.path()), assistant(vec![]));
        let begin = || home.begin(of("a"), &with, NOW).unwrap();
        let end = |bytes| home.end(of("a"), &with, ("s-1", bytes), NOW).unwrap();
        assert_eq!(begin(), told(None, false));
        end(100);
        assert_eq!([begin(), begin()], [told(Some("s-1"), false), told(Some("s-1"), false)]);
        end(101);
        assert_eq!(begin(), told(None, true));
        assert_eq!(begin(), told(None, false), "once");
        home.untell(of("a"), NOW).unwrap();
        assert_eq!(begin(), told(None, true), "nobody had heard it");
        assert_eq!(home.begin(of("b"), &with, NOW).unwrap(), told(None, false), "another conversation");
        let text = fs::read_to_string(dir.path().join("state/assistant/local-a.json")).unwrap();
        let record: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            record,
            json!({ "source": "local", "session_id": "a", "model_session": null, "generation": 1,
                    "toolkit_hash": null, "transcript_bytes": 0, "updated_at": "2026-01-01T00:00:00.000Z" })
        );
        assert!(text.contains("\n  "), "it is for people too");
    }

    #[test]
    fn a_new_session_is_no_retirement() {
        let dir = tempfile::tempdir().unwrap();
        let (home, with) = (Home::at(dir.path()), assistant(vec![]));
        home.end(of("a"), &with, ("s-1", 101), NOW).unwrap();
        home.begin_anew(of("a"), NOW).unwrap();
        assert_eq!(home.begin(of("a"), &with, NOW).unwrap(), told(None, false));
        home.end(of("a"), &with, ("s-2", 1), NOW).unwrap();
        home.begin_anew(of("a"), NOW).unwrap();
        assert_eq!(home.begin(of("a"), &with, NOW).unwrap(), told(None, false));
        assert_eq!(home.record(of("a")).unwrap().generation, 3);
    }

    #[test]
    fn other_tools_begin_a_new_session_of_the_same_generation() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let server = |name: &str| Server { name: name.into(), way: Way::Own };
        let (one, two) = (assistant(vec![server("a")]), assistant(vec![server("b")]));
        home.begin(of("a"), &one, NOW).unwrap();
        home.end(of("a"), &one, ("s-1", 1), NOW).unwrap();
        let same = home.begin(of("a"), &one, NOW).unwrap();
        let (path, hash) = same.toolkit.unwrap();
        assert_eq!(same.session.as_deref(), Some("s-1"));
        assert!(path.ends_with(format!("toolkit-{hash}.json")));
        assert_eq!(fs::read_to_string(path).unwrap(), r#"{"mcpServers":{"a":{"command":"transit-mcp"}}}"#);
        let other = home.begin(of("a"), &two, NOW).unwrap();
        assert_eq!((other.session, other.retired), (None, false));
        assert_eq!(home.record(of("a")).unwrap().generation, 0);
    }

    #[test]
    fn what_a_peer_says_becomes_no_path_and_no_variable_that_cannot_be() {
        let dir = tempfile::tempdir().unwrap();
        let (home, with) = (Home::at(dir.path()), assistant(vec![]));
        home.end(of("../../x"), &with, ("a\0b", 1), NOW).unwrap();
        let files: Vec<_> = fs::read_dir(dir.path().join("state/assistant")).unwrap().collect();
        let name = files[0].as_ref().unwrap().file_name().into_string().unwrap();
        assert!(files.len() == 1 && name.starts_with("local-k"), "{name}");
        assert_eq!(home.begin(of("../../x"), &with, NOW).unwrap(), told(None, false));
    }

    #[test]
    fn a_record_that_makes_no_sense_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (home, with) = (Home::at(dir.path()), assistant(vec![]));
        home.end(of("a"), &with, ("s", 1), NOW).unwrap();
        fs::write(dir.path().join("state/assistant/local-a.json"), "{").unwrap();
        assert_eq!(home.begin(of("a"), &with, NOW).unwrap(), told(None, false));
    }
}
