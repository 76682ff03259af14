//! `audit.log`: who triggered what, and what was run for it. Never what a message says.
//!
//! One line of JSON an entry, each with the SHA-256 of the line before it, so that a line that was changed or taken
//! out shows. An entry is on the disk before anybody is told of what it is about, and what cannot be written down is
//! not done. A file that is full is put aside, and the first line of the next one goes on from it.

mod check;
mod segments;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

pub use self::check::Checked;
use self::segments::Seam;
use super::super::{StoreError, files};
use super::Home;
use crate::clock::Wall;

/// Longest file, in bytes, but for its last entry. Then it is put aside.
const LONGEST: u64 = 32 << 20;
/// How much of the end of the file is searched for its last line.
const LAST_LINE: u64 = 1 << 20;
/// What stands for the hash of the line before the first one.
const GENESIS: &str = "GENESIS";

/// The record of what was triggered.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    longest: u64,
    /// Whose configuration says how many files that were put aside are kept; all are without one.
    home: Option<Home>,
    /// The file as this process left it, and the hash of its last line.
    last: Mutex<Option<Last>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Last {
    inode: u64,
    length: u64,
    hash: String,
}

#[derive(Serialize)]
struct Line<'a> {
    ts: String,
    severity: &'static str,
    event: Event<'a>,
    prev_hash: &'a str,
}

#[derive(Serialize)]
struct Event<'a> {
    event_type: &'a str,
    #[serde(flatten)]
    fields: &'a Map<String, Value>,
}

impl Audit {
    /// The record of a home, which is made when there is something to write.
    pub fn of(home: &Home) -> Self {
        let path = home.audit_log();
        Self { path, longest: LONGEST, home: Some(home.clone()), last: Mutex::default() }
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
        let added = self.append(last.take(), event, fields, now);
        *last = added.as_ref().ok().cloned();
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
        let mut found = file.metadata()?;
        if found.len() >= self.longest {
            self.put_aside(file, now);
            file = self.open()?;
            found = file.metadata()?;
        }
        let known = last.filter(|last| last.inode == found.ino() && last.length == found.len());
        let (prev, mut text) = match known {
            Some(last) => (last.hash, Vec::new()),
            None if found.len() == 0 => self.beginning(now)?,
            None => self.last_line(&mut file, found.len(), now)?,
        };
        let line = line(event, fields, &prev, now);
        text.extend_from_slice(&line);
        text.push(b'\n');
        let written = file.write_all(&text).and_then(|()| file.sync_data());
        let written = written.and_then(|()| if found.len() == 0 { self.sync_dir() } else { Ok(()) });
        if let Err(err) = written {
            // What stands of it would be a line that was cut.
            let _ = file.set_len(found.len());
            return Err(err);
        }
        Ok(Last { inode: found.ino(), length: found.len() + text.len() as u64, hash: hash(&line) })
    }

    /// The file. As long as it is open, nobody else writes it, or puts it aside.
    fn open(&self) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).append(true).create(true).mode(0o600);
        let open = || options.open(&self.path);
        loop {
            let file = match open() {
                Err(err) if err.kind() == io::ErrorKind::NotFound => {
                    files::make_parent(&self.path).map_err(io::Error::other)?;
                    open()?
                }
                opened => opened?,
            };
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("it is no file")); // a pipe would be waited for
            }
            flock(&file, FlockOperation::LockExclusive)?;
            let found = file.metadata()?;
            // It may have been put aside before it was locked.
            if !std::fs::metadata(&self.path).is_ok_and(|now| now.ino() == found.ino()) {
                continue;
            }
            if found.mode() & 0o077 != 0 {
                file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
            }
            return Ok(file);
        }
    }

    /// What an empty file begins with: a line that goes on from the newest file that was put aside, if there is one.
    fn beginning(&self, now: Wall) -> io::Result<(String, Vec<u8>)> {
        let Some(seam) = Seam::of_newest(&self.path)? else { return Ok((GENESIS.to_owned(), Vec::new())) };
        let line = line("audit_log_rotated", &seam.fields(), &seam.tail_hash, now);
        Ok(ended(line))
    }

    /// The hash of the last line, and what is to be written first: nothing, or what mends a line that was cut.
    fn last_line(&self, file: &mut File, length: u64, now: Wall) -> io::Result<(String, Vec<u8>)> {
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
        // The mending is an entry of its own, behind the newline that ends what was cut.
        let (prev, mended) = ended(line("audit_mended", &fields, &prev, now));
        Ok((prev, [b"\n", &mended[..]].concat()))
    }

    /// Puts a full file aside. One whose last line was cut is mended first, and one that cannot be put aside is gone on
    /// with.
    fn put_aside(&self, mut file: File, now: Wall) {
        let mut last = [0];
        let is_read = file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last)).is_ok();
        if !is_read || last != *b"\n" {
            return;
        }
        let keep = self.home.as_ref().and_then(|home| home.settings().ok()?.audit_segments);
        let aside = segments::put_aside(&self.path, now).and_then(|aside| {
            self.sync_dir()?;
            segments::forget(&self.path, keep)?;
            Ok(aside)
        });
        match aside {
            Ok(aside) => tracing::info!(path = %aside.display(), "the audit log was full and is put aside"),
            Err(err) => tracing::error!(%err, "the audit log is full and could not be put aside"),
        }
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}

/// How bad it is for an entry to stand there.
fn severity(event: &str, fields: &Map<String, Value>) -> &'static str {
    let has_failed = || fields.get("exit_code").is_some_and(|code| *code != 0);
    match event {
        "agent_run" if !has_failed() => "info",
        "trigger_received" | "agent_triggered" | "os_command_started" | "audit_log_rotated" => "notice",
        _ => "critical",
    }
}

fn line(event: &str, fields: &Map<String, Value>, prev_hash: &str, now: Wall) -> Vec<u8> {
    let severity = severity(event, fields);
    let event = Event { event_type: event, fields };
    let line = Line { ts: now.to_string(), severity, event, prev_hash };
    serde_json::to_vec(&line).expect("strings and values are JSON")
}

/// The hash of a line, and the line with its newline.
fn ended(mut line: Vec<u8>) -> (String, Vec<u8>) {
    let hash = hash(&line);
    line.push(b'\n');
    (hash, line)
}

fn hash(line: &[u8]) -> String {
    hex::encode(Sha256::digest(line))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    const NOW: Wall = Wall(1_786_011_300_000);

    fn at(path: &Path) -> Audit {
        let (path, longest) = (path.to_owned(), LONGEST);
        Audit { path, longest, home: None, last: Mutex::default() }
    }

    fn fields(n: u32) -> Map<String, Value> {
        Map::from_iter([("n".to_owned(), json!(n))])
    }

    fn entries(path: &Path) -> Vec<Value> {
        let text = fs::read(path).unwrap();
        assert_eq!(text.last(), Some(&b'\n'));
        let lines = text[..text.len() - 1].split(|byte| *byte == b'\n');
        lines.map(|line| serde_json::from_slice(line).unwrap_or_default()).collect()
    }

    fn checked(dir: &Path) -> Checked {
        Home::at(dir).check_audit().unwrap()
    }

    #[test]
    fn an_entry_has_the_form_that_others_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let audit = at(&path);
        audit.add("trigger_received", &fields(1), NOW).unwrap();
        audit.add("agent_run", &Map::from_iter([("exit_code".to_owned(), json!(3))]), NOW).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let first = r#"{"ts":"2026-08-06T10:15:00.000Z","severity":"notice","event":{"event_type":"trigger_received","n":1},"prev_hash":"GENESIS"}"#;
        assert_eq!(text.lines().next(), Some(first));
        let second = &entries(&path)[1];
        assert_eq!(
            (&second["severity"], &second["prev_hash"]),
            (&json!("critical"), &json!(hash(first.as_bytes())))
        );
    }

    #[test]
    fn every_entry_names_the_one_before_also_when_two_processes_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/audit.log");
        let (one, other) = (at(&path), at(&path));
        for n in 0..5 {
            one.add("trigger_received", &fields(n), NOW).unwrap();
            one.add("agent_run", &fields(n), NOW).unwrap();
            other.add("trigger_received", &fields(n), NOW).unwrap();
        }
        assert_eq!(checked(path.parent().unwrap()), Checked { entries: 15, broken: None });
        assert_eq!(entries(&path)[3]["event"], json!({ "event_type": "trigger_received", "n": 1 }));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_line_that_was_cut_stays_and_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let add = |n| at(&path).add("agent_run", &fields(n), NOW).unwrap();
        add(0);
        add(1);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(checked(dir.path()), Checked { entries: 2, broken: None }, "so far it is a crash");
        add(2);
        add(3);
        let found = entries(&path);
        assert_eq!(found.len(), 5);
        assert!(found[1].is_null(), "the cut line");
        let of = |at: usize| &found[at]["event"];
        assert_eq!((&of(2)["event_type"], &of(3)["n"]), (&json!("audit_mended"), &json!(2)));
        assert_eq!(checked(dir.path()), Checked { entries: 5, broken: None });
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_full_file_is_put_aside_and_the_next_one_goes_on_from_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let home = Home::at(dir.path());
        let small = || Audit { longest: 600, home: Some(home.clone()), ..at(&path) };
        let (one, other) = (small(), small());
        fs::write(home.config(), "[audit]\nsegments = 0").unwrap();
        for n in 0..40 {
            if n % 3 == 0 { &other } else { &one }.add("trigger_received", &fields(n), NOW).unwrap();
        }
        let parts = segments::all(&path).unwrap();
        assert!(parts.len() > 3, "{parts:?}");
        let all: Vec<Value> = parts.iter().chain([&path]).flat_map(|part| entries(part)).collect();
        let seams: Vec<_> =
            all.iter().filter(|entry| entry["event"]["event_type"] == "audit_log_rotated").collect();
        assert_eq!(seams.len(), parts.len());
        for (seam, part) in seams.into_iter().zip(&parts) {
            assert_eq!(seam["event"]["rotated_to"].as_str(), part.file_name().unwrap().to_str());
            assert_eq!(seam["event"]["entries"], entries(part).len());
            assert_eq!(seam["prev_hash"], seam["event"]["tail_hash"]);
            assert!(fs::metadata(part).unwrap().len() < 600 + 300);
        }
        let told: Vec<_> = all.iter().filter_map(|entry| entry["event"]["n"].as_u64()).collect();
        assert_eq!(told, (0..40).collect::<Vec<u64>>(), "nothing is lost, or told twice");
        assert_eq!(checked(dir.path()), Checked { entries: all.len(), broken: None });

        fs::write(home.config(), "[audit]\nsegments = 2").unwrap();
        for n in 0..4 {
            one.add("trigger_received", &fields(n), NOW).unwrap();
        }
        assert_eq!(segments::all(&path).unwrap().len(), 2);
        assert_eq!(checked(dir.path()).broken, None, "whole files that are gone are named");
    }

    #[test]
    fn a_crash_between_two_files_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        at(&path).add("trigger_received", &fields(0), NOW).unwrap();
        segments::put_aside(&path, NOW).unwrap();
        at(&path).add("trigger_received", &fields(1), NOW).unwrap();
        assert_eq!(checked(dir.path()), Checked { entries: 3, broken: None });
        segments::put_aside(&path, NOW).unwrap();
        fs::write(&path, "").unwrap();
        at(&path).add("trigger_received", &fields(2), NOW).unwrap();
        assert_eq!(checked(dir.path()), Checked { entries: 5, broken: None });
    }

    #[test]
    fn what_was_changed_or_taken_out_shows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        for n in 0..4 {
            at(&path).add("trigger_received", &fields(n), NOW).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let broken_at = |text: String| {
            fs::write(&path, text).unwrap();
            checked(dir.path()).broken.map(|(_, line)| line)
        };
        assert_eq!(broken_at(text.replace("\"n\":1", "\"n\":7")), Some(3));
        assert_eq!(broken_at([lines[0], lines[2], lines[3]].concat()), Some(2));
        assert_eq!(broken_at(lines[1..].concat()), Some(1), "the beginning");
        assert_eq!(broken_at(format!("{}x\n{}", lines[0], lines[1])), Some(3));
        assert_eq!(broken_at(format!("{text}x\ny\n")), Some(6));
        assert_eq!(broken_at(format!("{text}x\n")), Some(5), "a line with its end was not cut by a crash");
        assert_eq!(broken_at(text.clone()), None);
    }

    #[test]
    fn another_ones_lines_and_a_new_file_are_gone_on_from() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        fs::write(&path, "{\"of\":\"somebody else\"}\n").unwrap();
        let audit = at(&path);
        audit.add("agent_run", &fields(0), NOW).unwrap();
        assert_eq!(entries(&path)[1]["prev_hash"], json!(hash(b"{\"of\":\"somebody else\"}")));
        fs::rename(&path, dir.path().join("audit.log.1")).unwrap();
        audit.add("agent_run", &fields(1), NOW).unwrap();
        assert_eq!(entries(&path).len(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        fs::create_dir(&path).unwrap();
        let told = at(&path).add("agent_run", &fields(0), NOW).unwrap_err();
        assert!(told.to_string().contains("audit.log"), "{told}");
        fs::remove_dir(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let told = at(&path).add("agent_run", &fields(0), NOW).unwrap_err();
        assert!(told.to_string().contains("it is no file"), "{told}");
    }
}
