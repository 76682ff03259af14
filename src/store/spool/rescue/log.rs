//! The write-ahead log beside the database: which page stands where in it (4, "The write-ahead log").
//!
//! Every frame carries a checksum over itself that starts from the one of the frame before, so each can be checked
//! with its neighbour alone. The engine stops at the first one that is wrong; here only that one is passed over.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::cells::be32;

const HEAD: usize = 32;
const FRAME_HEAD: usize = 24;
const MAGIC: u32 = 0x377f_0682;

/// A log, looked through once.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    /// Where the newest committed content of each page begins.
    places: HashMap<u32, u64>,
}

/// What is known of a frame.
struct Frame {
    page: u32,
    /// The database's size after the commit that this frame ends; 0 for another frame.
    commit: u32,
    salts: [u32; 2],
    is_sound: bool,
}

impl Log {
    /// Looks through the log. `page_size` is the database's, if its head tells it. Answers the page size as well;
    /// `None` when there is no log to use.
    pub(super) fn open(path: &Path, page_size: Option<usize>) -> io::Result<Option<(Self, usize)>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(err),
        };
        let mut head = [0; HEAD];
        if read_whole(&file, &mut head, 0)?.is_none() {
            return Ok(None);
        }
        let word = |at| be32(&head, at).unwrap_or(0);
        let own = usize::try_from(word(8)).ok().filter(|size| super::pages::is_page_size(*size));
        let (big, is_known) = (word(0) & 1 == 1, word(0) & !1 == MAGIC);
        let big = if is_known { big } else { cfg!(target_endian = "big") };
        let Some(size) = page_size.or(own) else { return Ok(None) };
        let is_sound = is_known && checksum(big, [0; 2], &head[..24]) == [word(24), word(28)];
        let salts = is_sound.then(|| [word(16), word(20)]);
        let mut log = Self { file, places: HashMap::new() };
        log.look_through(size, big, [word(24), word(28)], salts)?;
        Ok(Some((log, size)))
    }

    /// Where the newest content of a page is, if the log has it.
    pub(super) fn read(&self, page: u32, content: &mut [u8]) -> io::Result<bool> {
        match self.places.get(&page) {
            None => Ok(false),
            Some(at) => Ok(read_whole(&self.file, content, *at)?.is_some()),
        }
    }

    /// The greatest number of a page in it.
    pub(super) fn last_page(&self) -> u32 {
        self.places.keys().copied().max().unwrap_or(0)
    }

    fn look_through(
        &mut self,
        size: usize,
        big: bool,
        first_seed: [u32; 2],
        mut salts: Option<[u32; 2]>,
    ) -> io::Result<()> {
        let (mut at, mut seed) = (HEAD as u64, first_seed);
        let mut content = vec![0; FRAME_HEAD + size];
        let mut uncommitted: Vec<(u32, u64)> = Vec::new();
        while read_whole(&self.file, &mut content, at)?.is_some() {
            let frame = look_at(&content, big, seed);
            // A log is written over from its beginning; what is left of an earlier round has other salts.
            if frame.is_sound && *salts.get_or_insert(frame.salts) == frame.salts && frame.page > 0 {
                uncommitted.push((frame.page, at + FRAME_HEAD as u64));
                if frame.commit > 0 {
                    self.places.extend(uncommitted.drain(..));
                }
            }
            seed = [16, 20].map(|at| be32(&content, at).unwrap_or(0));
            at += content.len() as u64;
        }
        Ok(())
    }
}

fn look_at(content: &[u8], big: bool, seed: [u32; 2]) -> Frame {
    let word = |at| be32(content, at).unwrap_or(0);
    let sum = checksum(big, checksum(big, seed, &content[..8]), &content[FRAME_HEAD..]);
    Frame {
        page: word(0),
        commit: word(4),
        salts: [word(8), word(12)],
        is_sound: sum == [word(16), word(20)],
    }
}

/// The checksum of 4.2, continued from `seed`. The length is a multiple of eight.
fn checksum(big: bool, seed: [u32; 2], bytes: &[u8]) -> [u32; 2] {
    let word = |bytes: &[u8]| {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    };
    bytes.chunks_exact(8).fold(seed, |[first, second], pair| {
        let first = first.wrapping_add(word(&pair[..4])).wrapping_add(second);
        [first, second.wrapping_add(word(&pair[4..])).wrapping_add(first)]
    })
}

/// Fills `content` from this place of the file; `None` when the file ends before.
pub(super) fn read_whole(file: &File, content: &mut [u8], at: u64) -> io::Result<Option<()>> {
    match file.read_exact_at(content, at) {
        Ok(()) => Ok(Some(())),
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(err) => Err(err),
    }
}
