//! The pages of a database as of the last commit: those of the log over those of the file.

use std::fs::File;
use std::io;
use std::path::Path;

use super::super::with_suffix;
use super::cells::{Cell, be16, be32};
use super::log::{Log, read_whole};

/// The page size of every file that this program makes.
const USUAL_SIZE: usize = 4096;
/// Longer than any row: a body of 256 KiB, and fields that are short beside it.
const LONGEST_PAYLOAD: usize = 4 << 20;

/// A page size that the format knows.
pub(super) fn is_page_size(size: usize) -> bool {
    size.is_power_of_two() && (512..=65_536).contains(&size)
}

/// The pages of a database and its log.
#[derive(Debug)]
pub(super) struct Pages {
    file: File,
    log: Option<Log>,
    size: usize,
    usable: usize,
    count: u32,
}

impl Pages {
    /// Opens both files for reading.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut head = [0; 100];
        let is_whole = read_whole(&file, &mut head, 0)?.is_some() && head.starts_with(b"SQLite format 3\0");
        let stored = be16(&head, 16).map(|size| if size == 1 { 65_536 } else { usize::from(size) });
        let stored = stored.filter(|size| is_whole && is_page_size(*size));
        let (log, size) = match Log::open(&with_suffix(path, "-wal"), stored)? {
            Some((log, size)) => (Some(log), size),
            None => (None, stored.unwrap_or(USUAL_SIZE)),
        };
        let in_file = u32::try_from(file.metadata()?.len() / size as u64).unwrap_or(u32::MAX);
        let count = in_file.max(log.as_ref().map_or(0, Log::last_page));
        let unused = if stored.is_some() { usize::from(head[20]) } else { 0 };
        // The format demands at least this much of every page.
        let usable = size.checked_sub(unused).filter(|usable| *usable >= 480).unwrap_or(size);
        Ok(Self { file, log, size, usable, count })
    }

    /// How many pages there are, those included that are lost.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The bytes of a page that hold content.
    pub(super) fn usable(&self) -> usize {
        self.usable
    }

    /// A page; `None` when neither file has it whole.
    pub(super) fn read(&self, number: u32) -> io::Result<Option<Vec<u8>>> {
        let mut content = vec![0; self.size];
        if let Some(log) = &self.log
            && log.read(number, &mut content)?
        {
            return Ok(Some(content));
        }
        let Some(before) = number.checked_sub(1) else { return Ok(None) };
        let at = u64::from(before) * self.size as u64;
        Ok(read_whole(&self.file, &mut content, at)?.map(|()| content))
    }

    /// All of a cell's payload; `None` when a page that it runs over to is lost.
    pub(super) fn payload(&self, cell: &Cell<'_>) -> Option<Vec<u8>> {
        if cell.length > LONGEST_PAYLOAD {
            return None;
        }
        let mut payload = cell.local.to_vec();
        let mut next = cell.overflow;
        // Every page brings something, so a chain that goes round in a circle ends with the payload.
        while payload.len() < cell.length {
            let page = self.read(next?).ok()??;
            let rest = (cell.length - payload.len()).min(self.usable - 4);
            payload.extend_from_slice(page.get(4..4 + rest)?);
            next = be32(&page, 0).filter(|number| *number > 0);
        }
        // A chain that goes on after its end is not the one that was written.
        next.is_none().then_some(payload)
    }
}
