//! Reading a file ahead on a thread of its own, while the lines before are worked on.

use std::fs::File;
use std::io::{self, Read};
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

use super::input::{Feed, Sink};
use crate::cli::output::Failure;

/// Shorter files are read before a thread would have begun.
pub(super) const WORTH_IT: u64 = 4 * 1024 * 1024;

/// Bytes that are read at once.
const READ: usize = 256 * 1024;
/// Room before them, for the line that the bytes before have begun.
const ROOM: usize = 32 * 1024;
/// Blocks on their way.
const BLOCKS: usize = 3;

/// Reads all of `from`.
///
/// # Errors
/// When it cannot be read, or the sink fails.
pub(super) fn read(from: File, feed: &mut Feed, sink: &mut impl Sink) -> Result<(), Failure> {
    thread::scope(|scope| {
        let (give, blocks) = channel();
        let (full, filled) = sync_channel(BLOCKS);
        for _ in 0..BLOCKS {
            // Nobody is there yet who could have let go of the other end.
            let _ = give.send(vec![0; ROOM + READ]);
        }
        let fill = move || {
            for mut block in blocks {
                let length = once(&from, &mut block);
                let is_last = !matches!(length, Ok(1..));
                if full.send((block, length)).is_err() || is_last {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("reader".to_owned()).spawn_scoped(scope, fill);
        thread.map_err(|err| feed.unread(err))?;
        while let Ok((mut block, length)) = filled.recv() {
            match length.map_err(|err| feed.unread(err))? {
                0 => break,
                length => feed.take(&mut block, ROOM..ROOM + length, sink)?,
            }
            let _ = give.send(block);
        }
        Ok(())
    })
}

/// Reads once, behind the room.
fn once(mut from: &File, block: &mut Vec<u8>) -> io::Result<usize> {
    // A long line leaves a longer one behind.
    if block.len() > ROOM + READ {
        *block = vec![0; ROOM + READ];
    }
    loop {
        match from.read(&mut block[ROOM..]) {
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
