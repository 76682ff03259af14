//! Whether the record is whole: each line names the one before it, across all files.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::super::super::StoreError;
use super::super::Home;
use super::{GENESIS, hash, segments};

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Lines, of all files.
    pub entries: usize,
    /// The first line that does not go on from the one before it: its file, and its number there.
    pub broken: Option<(PathBuf, usize)>,
}

#[derive(Deserialize)]
struct Line {
    event: Event,
    prev_hash: String,
}

#[derive(Deserialize)]
struct Event {
    event_type: String,
}

/// A walk through the files.
#[derive(Default)]
struct Walk {
    found: Checked,
    /// The hash of the line before.
    prev: Option<String>,
    /// The line before is none, and only one that tells of it may follow.
    is_cut: bool,
}

impl Home {
    /// Walks through the audit trail, the oldest file first.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn check_audit(&self) -> Result<Checked, StoreError> {
        let live = self.audit_log();
        let files = segments::all(&live).map_err(|err| StoreError::io("read", &live, err))?;
        let mut walk = Walk::default();
        for path in files.into_iter().chain([live]) {
            walk.file(&path).map_err(|err| StoreError::io("read", &path, err))?;
        }
        Ok(walk.found)
    }
}

impl Walk {
    fn file(&mut self, path: &Path) -> io::Result<()> {
        let file = match File::open(path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        for (at, line) in BufReader::new(file).split(b'\n').enumerate() {
            let line = line?;
            if !self.goes_on(&line) && self.found.broken.is_none() {
                self.found.broken = Some((path.to_owned(), at + 1));
            }
            self.found.entries += 1;
            self.prev = Some(hash(&line));
        }
        Ok(())
    }

    /// Whether a line goes on from the one before it. What was removed of the beginning, whole files at a time, is named
    /// by the line that is the first one then.
    fn goes_on(&mut self, line: &[u8]) -> bool {
        let Ok(Line { event, prev_hash }) = serde_json::from_slice(line) else {
            // One that a crash has cut, if the next one says so.
            return !std::mem::replace(&mut self.is_cut, true);
        };
        let is_cut = std::mem::take(&mut self.is_cut);
        let is_mended = !is_cut || event.event_type == "audit_mended";
        is_mended
            && match &self.prev {
                Some(prev) => *prev == prev_hash,
                None => prev_hash == GENESIS || event.event_type == "audit_log_rotated",
            }
    }
}
