//! What assistants want remembered: one file an agent, one line of JSON a fact.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::{StoreError, files};
use super::{Home, component};
use crate::clock::Wall;
use crate::proto::assistant::Memo;

/// Longest file, in bytes; its older half goes when it is longer.
const LONGEST: usize = 1 << 20;
/// Longest block that a run is given of it, in bytes.
const BLOCK: usize = 2048;

#[derive(Serialize, Deserialize)]
struct Line {
    ts: String,
    session_id: String,
    fact: String,
    #[serde(default)]
    topics: Vec<String>,
}

impl Home {
    fn memory_path(&self, agent: &str) -> PathBuf {
        self.dir.join("state/memory").join(format!("{}.jsonl", component(agent)))
    }

    /// Keeps what a run of `agent` wants remembered.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn remember(&self, agent: &str, session: &str, memos: &[Memo], now: Wall) -> Result<(), StoreError> {
        if memos.is_empty() {
            return Ok(());
        }
        let mut text = self.memory(agent)?;
        for memo in memos {
            let (fact, topics) = (memo.fact.clone(), memo.topics.clone());
            let line = Line { ts: now.to_string(), session_id: session.to_owned(), fact, topics };
            text.extend(serde_json::to_vec(&line).expect("strings are JSON"));
            text.push(b'\n');
        }
        if text.len() > LONGEST {
            let half = text.len() - LONGEST / 2;
            let cut =
                text[half..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| half + at + 1);
            text.drain(..cut);
        }
        let path = self.memory_path(agent);
        files::private_dir(path.parent().unwrap_or(&self.dir))?;
        files::write_private(&path, &text)
    }

    /// The newest facts of an agent, one a line, in at most 2048 bytes; `None` when there is none.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn remembered(&self, agent: &str) -> Result<Option<String>, StoreError> {
        let text = self.memory(agent)?;
        let mut lines = Vec::new();
        let mut room = BLOCK;
        for line in text.rsplit(|byte| *byte == b'\n') {
            let Ok(Line { fact, .. }) = serde_json::from_slice(line) else { continue };
            let line = format!("- {}\n", fact.replace(['\n', '\0'], " "));
            let Some(left) = room.checked_sub(line.len()) else { break };
            room = left;
            lines.push(line);
        }
        lines.reverse();
        Ok((!lines.is_empty()).then(|| lines.concat().trim_end().to_owned()))
    }

    fn memory(&self, agent: &str) -> Result<Vec<u8>, StoreError> {
        match files::read_small(&self.memory_path(agent), 4 * LONGEST as u64) {
            Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(Vec::new())
            }
            read => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memo(fact: &str) -> Memo {
        Memo { fact: fact.into(), topics: vec!["t".into()] }
    }

    #[test]
    fn the_newest_facts_come_back_as_far_as_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let add = |facts: &[Memo]| home.remember("tiny", "s", facts, Wall(0)).unwrap();
        assert_eq!(home.remembered("tiny").unwrap(), None);
        add(&[]);
        add(&[memo("one"), memo("two")]);
        add(&[memo("three\nlines")]);
        assert_eq!(home.remembered("tiny").unwrap().unwrap(), "- one\n- two\n- three lines");
        assert_eq!(home.remembered("other").unwrap(), None);
        add(&[memo(&"x".repeat(2040))]);
        assert_eq!(home.remembered("tiny").unwrap().unwrap(), format!("- {}", "x".repeat(2040)));
    }

    #[test]
    fn the_file_does_not_grow_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let long = "y".repeat(100_000);
        for n in 0..15 {
            home.remember("a/b", "s", &[memo(&long), memo(&format!("fact {n}"))], Wall(0)).unwrap();
        }
        assert!(home.memory("a/b").unwrap().len() <= LONGEST);
        assert!(home.remembered("a/b").unwrap().unwrap().ends_with("- fact 14"));
    }
}
