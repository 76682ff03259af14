//! Whether the record is whole: each line names the one before it, across all files.

use std::fs::{self, File};
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
    /// Where the line before is, if it is none: only one that tells of it may follow.
    cut: Option<(PathBuf, usize)>,
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
        // A last line without its end is one that a crash has cut.
        walk.found.broken = walk.found.broken.or(walk.cut);
        Ok(walk.found)
    }
}

impl Walk {
    fn file(&mut self, path: &Path) -> io::Result<()> {
        match fs::metadata(path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(found) if !found.is_file() => return Err(io::Error::other("it is no file")),
            _ => {}
        }
        let file = File::open(path)?;
        let mut file = BufReader::new(file);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if file.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let is_whole = line.pop_if(|byte| *byte == b'\n').is_some();
            let place = (path.to_owned(), number);
            let cut = self.cut.take();
            match serde_json::from_slice(&line) {
                Ok(line) if self.goes_on(&line, cut.is_some()) => {}
                Err(_) if cut.is_none() => self.cut = is_whole.then_some(place),
                _ => self.found.broken = self.found.broken.take().or(Some(place)),
            }
            self.found.entries += 1;
            self.prev = Some(hash(&line));
        }
        Ok(())
    }

    /// Whether a line goes on from the one before it. What was removed of the beginning, whole files at a time, is named
    /// by the line that is the first one then.
    fn goes_on(&self, line: &Line, is_behind_a_cut: bool) -> bool {
        let event = line.event.event_type.as_str();
        let tells = !is_behind_a_cut || event == "audit_mended";
        tells
            && match &self.prev {
                Some(prev) => *prev == line.prev_hash,
                None => line.prev_hash == GENESIS || event == "audit_log_rotated",
            }
    }
}
