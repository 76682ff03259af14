//! The end of the file in which an agent keeps its session: what is there has arrived, but for what only waits there.

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use memchr::memmem;
use rustix::fs::OFlags;

use crate::proto::herdr::{Needle, Searched};

/// How much of the end is looked at, in bytes.
const TAIL: u64 = 512 * 1024;
/// What Claude Code writes of a prompt that it has not begun with: a person may still take it back. No text in a JSON
/// string can hold these bytes.
const QUEUED: &[u8] = b"\"type\":\"queue-operation\"";

/// Looks for an envelope at the end of a file. A file that is not there, is none, or is somebody else's says nothing.
pub fn search(path: &Path, needle: &Needle) -> Searched {
    match tail(path) {
        Some(bytes) if is_told(&bytes, needle) => Searched::Found,
        Some(_) => Searched::Absent,
        None => Searched::Unreadable,
    }
}

/// Whether the envelope is there otherwise than in a line that says that it waits.
fn is_told(bytes: &[u8], needle: &Needle) -> bool {
    if memmem::find(bytes, QUEUED).is_none() {
        return needle.is_in(bytes);
    }
    // A transcript that is no JSON may break an envelope into lines, but not its opening tag.
    bytes.split(|byte| *byte == b'\n').any(|line| memmem::find(line, QUEUED).is_none() && needle.is_in(line))
}

fn tail(path: &Path) -> Option<Vec<u8>> {
    if !path.is_absolute() {
        return None;
    }
    // Whoever names the file could name a pipe that nobody writes to.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    file.seek(SeekFrom::Start(found.len().saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_file_of_ours_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("session.jsonl");
        let needle = Needle::of("tx_0123456789ab", "");
        let find = |path: &Path| search(path, &needle);
        assert_eq!(find(&path), Searched::Unreadable);
        std::fs::write(&path, "{\"text\":\"<transit id=\\\"tx_0123456789ab\\\">\"}\n").unwrap();
        assert_eq!(find(&path), Searched::Found);
        let queued = r#"{"type":"queue-operation","operation":"enqueue","content":"<transit id=\"tx_0123456789ab\">"}"#;
        std::fs::write(&path, format!("{queued}\n")).unwrap();
        assert_eq!(find(&path), Searched::Absent, "it only waits");
        let taken =
            r#"{"type":"user","message":"<transit id=\"tx_0123456789ab\"> \"type\":\"queue-operation\""}"#;
        std::fs::write(&path, format!("{queued}\n{taken}\n")).unwrap();
        assert_eq!(find(&path), Searched::Found);
        std::fs::write(&path, "tx_0123456789ab".to_owned() + &" ".repeat(TAIL as usize)).unwrap();
        assert_eq!(find(&path), Searched::Absent);
        assert_eq!(find(dir.path()), Searched::Unreadable);
        assert_eq!(find(Path::new("session.jsonl")), Searched::Unreadable);
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(find(&pipe), Searched::Unreadable);
    }
}
