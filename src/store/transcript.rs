//! The end of the file in which an agent keeps its session: what is there has arrived.

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::proto::herdr::{Needle, Searched};

/// How much of the end is looked at, in bytes.
const TAIL: u64 = 512 * 1024;

/// Looks for an envelope at the end of a file. A file that is not there, is none, or is somebody else's says nothing.
pub fn search(path: &Path, needle: &Needle) -> Searched {
    match tail(path) {
        Some(bytes) if needle.is_in(&bytes) => Searched::Found,
        Some(_) => Searched::Absent,
        None => Searched::Unreadable,
    }
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
        std::fs::write(&path, "tx_0123456789ab".to_owned() + &" ".repeat(TAIL as usize)).unwrap();
        assert_eq!(find(&path), Searched::Absent);
        assert_eq!(find(dir.path()), Searched::Unreadable);
        assert_eq!(find(Path::new("session.jsonl")), Searched::Unreadable);
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(find(&pipe), Searched::Unreadable);
    }
}
