//! `audit.log`: who triggered what, and what was run for it. Never what a message says.
//!
//! One line of JSON an entry, each with the SHA-256 of the line before it, so that a line that was changed or taken
//! out shows. An entry is on the disk before anybody is told of what it is about, and what cannot be written down is
//! not done.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::super::{StoreError, files};
use crate::clock::Wall;

/// How much of the end of the file is searched for its last line.
const LAST_LINE: u64 = 1 << 20;
/// What stands for the line before the first one.
const BEGINNING: [u8; 32] = [0; 32];

/// The record of what was triggered.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    /// The file as this process left it, and the hash of its last line.
    last: Mutex<Option<Last>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Last {
    inode: u64,
    length: u64,
    hash: [u8; 32],
}

#[derive(Serialize)]
struct Line<'a> {
    ts: String,
    event: &'a str,
    #[serde(flatten)]
    fields: &'a Map<String, Value>,
    prev: String,
}

impl Audit {
    /// The record at `path`, which is made when there is something to write.
    pub fn at(path: PathBuf) -> Self {
        Self { path, last: Mutex::default() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds an entry, and returns when it is on the disk. Other processes may add to the same file. A last line that
    /// was cut off, as a crash may do it, stays as it is; an entry `audit_mended` behind it tells of it.
    ///
    /// # Errors
    /// When it could not be written; nothing of it stands then.
    pub fn add(&self, event: &str, fields: &Map<String, Value>, now: Wall) -> Result<(), StoreError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let added = self.append(*last, event, fields, now);
        *last = added.as_ref().ok().copied();
        added.map(drop).map_err(|err| StoreError::io("write", &self.path, err))
    }

    fn append(
        &self,
        last: Option<Last>,
        event: &str,
        fields: &Map<String, Value>,
        now: Wall,
    ) -> io::Result<Last> {
        let mut file = self.open()?;
        flock(&file, FlockOperation::LockExclusive)?;
        let found = file.metadata()?;
        let known = last.filter(|last| last.inode == found.ino() && last.length == found.len());
        let (mut prev, mut text) = match known {
            Some(last) => (last.hash, Vec::new()),
            None => self.last_line(&mut file, found.len(), now)?,
        };
        if !text.is_empty() {
            // The mending is an entry of its own: the newline that ends what was cut, and a line about it.
            prev = hash(text[1..].strip_suffix(b"\n").unwrap_or_default());
        }
        let line = line(event, fields, &prev, now);
        text.extend_from_slice(&line);
        text.push(b'\n');
        let written = file.write_all(&text).and_then(|()| file.sync_data());
        if let Err(err) = written {
            // What stands of it would be a line that was cut.
            let _ = file.set_len(found.len());
            return Err(err);
        }
        Ok(Last { inode: found.ino(), length: found.len() + text.len() as u64, hash: hash(&line) })
    }

    fn open(&self) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).append(true).create(true).mode(0o600);
        let open = || options.open(&self.path);
        let file = match open() {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                files::make_parent(&self.path).map_err(io::Error::other)?;
                open()?
            }
            opened => opened?,
        };
        let found = file.metadata()?;
        if found.mode() & 0o077 != 0 && found.is_file() {
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        Ok(file)
    }

    /// The hash of the last line, and what is to be written first: nothing, or what mends a line that was cut.
    fn last_line(&self, file: &mut File, length: u64, now: Wall) -> io::Result<([u8; 32], Vec<u8>)> {
        if length == 0 {
            return Ok((BEGINNING, Vec::new()));
        }
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_LINE)))?;
        let mut end = Vec::new();
        file.take(LAST_LINE).read_to_end(&mut end)?;
        let is_whole = end.pop_if(|byte| *byte == b'\n').is_some();
        let start = memchr::memrchr(b'\n', &end).map_or(0, |at| at + 1);
        let prev = hash(&end[start..]);
        if is_whole {
            return Ok((prev, Vec::new()));
        }
        let cut = end.len() - start;
        tracing::warn!(path = %self.path.display(), cut, "the last line of the audit log was cut off; it stays");
        let fields = Map::from_iter([("cut_bytes".to_owned(), Value::from(cut))]);
        let mut text = vec![b'\n'];
        text.extend_from_slice(&line("audit_mended", &fields, &prev, now));
        text.push(b'\n');
        Ok((prev, text))
    }
}

fn line(event: &str, fields: &Map<String, Value>, prev: &[u8; 32], now: Wall) -> Vec<u8> {
    let line = Line { ts: now.to_string(), event, fields, prev: hex::encode(prev) };
    serde_json::to_vec(&line).expect("strings and values are JSON")
}

fn hash(line: &[u8]) -> [u8; 32] {
    Sha256::digest(line).into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn fields(n: u32) -> Map<String, Value> {
        Map::from_iter([("n".to_owned(), json!(n))])
    }

    /// Every line names the one before it.
    fn check(path: &Path) -> Vec<Value> {
        let text = fs::read(path).unwrap();
        assert_eq!(text.last(), Some(&b'\n'));
        let mut prev = BEGINNING;
        let lines = text[..text.len() - 1].split(|byte| *byte == b'\n').map(|line| {
            let entry: Value = serde_json::from_slice(line).unwrap_or_default();
            if !entry.is_null() && entry["prev"].is_string() {
                assert_eq!(entry["prev"], json!(hex::encode(prev)), "{entry}");
            }
            prev = hash(line);
            entry
        });
        lines.collect()
    }

    #[test]
    fn every_entry_names_the_one_before_also_when_two_processes_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/audit.log");
        let (one, other) = (Audit::at(path.clone()), Audit::at(path.clone()));
        for n in 0..5 {
            one.add("trigger_received", &fields(n), Wall(1)).unwrap();
            one.add("agent_run", &fields(n), Wall(1)).unwrap();
            other.add("trigger_received", &fields(n), Wall(2)).unwrap();
        }
        let entries = check(&path);
        assert_eq!(entries.len(), 15);
        assert_eq!(entries[3]["event"], "trigger_received");
        assert_eq!(entries[3]["n"], 1);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_line_that_was_cut_stays_and_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let add = |n| Audit::at(path.clone()).add("agent_run", &fields(n), Wall(1)).unwrap();
        add(0);
        add(1);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        add(2);
        add(3);
        let entries = check(&path);
        assert_eq!(entries.len(), 5);
        assert!(entries[1].is_null(), "the cut line");
        assert_eq!((&entries[2]["event"], &entries[3]["n"]), (&json!("audit_mended"), &json!(2)));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn another_ones_lines_and_a_new_file_are_gone_on_from() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        fs::write(&path, "{\"of\":\"somebody else\"}\n").unwrap();
        let audit = Audit::at(path.clone());
        audit.add("agent_run", &fields(0), Wall(1)).unwrap();
        assert_eq!(check(&path)[1]["prev"], json!(hex::encode(hash(b"{\"of\":\"somebody else\"}"))));
        fs::rename(&path, dir.path().join("audit.log.1")).unwrap();
        audit.add("agent_run", &fields(1), Wall(1)).unwrap();
        assert_eq!(check(&path).len(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        fs::create_dir(&path).unwrap();
        let told = Audit::at(path).add("agent_run", &fields(0), Wall(1)).unwrap_err();
        assert!(told.to_string().contains("audit.log"), "{told}");
    }
}
