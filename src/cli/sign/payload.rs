//! Payloads: whole files and records, read in pieces.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use super::record::Sink;
use crate::cli::output::{Exit, Failure};
use crate::clock::{Clock, SystemClock};
use crate::proto::ingest::{self, Signer};

const PIECE: usize = 64 * 1024;
/// Pieces that are read ahead.
const AHEAD: usize = 8;
/// What is read and taken by one thread: starting another costs more than a small payload.
const ALONE: u64 = 1 << 20;

/// The files to read, `-` for stdin when none is named.
pub(super) fn files(named: &[PathBuf]) -> impl Iterator<Item = &Path> {
    let stdin = named.is_empty().then_some(Path::new("-"));
    named.iter().map(PathBuf::as_path).chain(stdin)
}

/// The name of a file in words.
pub(super) fn name(file: &Path) -> String {
    if is_stdin(file) { "standard input".to_owned() } else { file.display().to_string() }
}

pub(super) fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Opens a file, or stdin for `-`.
pub(super) fn open(file: &Path) -> Result<Box<dyn Read>, Failure> {
    if is_stdin(file) {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(file)
        .map_err(|err| Failure::new(Exit::NoInput, format_args!("open {}", name(file)), err))?;
    Ok(Box::new(opened))
}

/// A failure while reading: a directory is no input, everything else is the disk's.
pub(super) fn unread(file: &Path, err: io::Error) -> Failure {
    let exit = if err.kind() == io::ErrorKind::IsADirectory { Exit::NoInput } else { Exit::Io };
    Failure::new(exit, format_args!("read {}", name(file)), err)
}

/// Reads all of `from`, handing each piece on. From the first mebibyte on, reading goes ahead while a thread takes the
/// pieces, so that a large payload passes as fast as it can be hashed.
pub(super) fn pieces(
    file: &Path,
    mut from: impl Read,
    mut take: impl FnMut(&[u8]) + Send,
) -> Result<u64, Failure> {
    let mut piece = vec![0; PIECE];
    let mut total = 0;
    while total < ALONE {
        let length = read(file, &mut from, &mut piece)?;
        if length == 0 {
            return Ok(total);
        }
        take(&piece[..length]);
        total += length as u64;
    }
    std::thread::scope(|scope| {
        let (full, to_take) = mpsc::sync_channel::<(Vec<u8>, usize)>(AHEAD);
        let (give_back, taken) = mpsc::channel();
        for _ in 0..AHEAD {
            give_back.send(vec![0; PIECE]).expect("its receiver is here");
        }
        scope.spawn(move || {
            for (piece, length) in to_take {
                take(&piece[..length]);
                // Nobody wants it back once all is read.
                let _ = give_back.send(piece);
            }
        });
        for mut piece in taken {
            let length = read(file, &mut from, &mut piece)?;
            if length == 0 || full.send((piece, length)).is_err() {
                break;
            }
            total += length as u64;
        }
        Ok(total)
    })
}

fn read(file: &Path, from: &mut impl Read, piece: &mut [u8]) -> Result<usize, Failure> {
    loop {
        match from.read(piece) {
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            read => return read.map_err(|err| unread(file, err)),
        }
    }
}

/// The time of signing: the one that was given, or each payload's own, so that a stream which goes on for hours
/// does not go stale.
pub(super) struct Stamp {
    given: bool,
    clock: SystemClock,
    second: i64,
    text: String,
}

impl Stamp {
    pub(super) fn new(given: Option<&str>) -> Result<Self, Failure> {
        let (text, second) = match given {
            Some(text) => ingest::parse_timestamp(text.as_bytes())
                .map_err(|err| Failure::new(Exit::Data, format_args!("use --timestamp {text}"), err))?,
            None => (String::new(), i64::MIN),
        };
        Ok(Self { given: given.is_some(), clock: SystemClock::new(), second, text })
    }

    pub(super) fn now(&mut self) -> &str {
        if !self.given {
            let second = self.clock.wall().unix_seconds();
            if second != self.second {
                self.second = second;
                self.text = second.to_string();
            }
        }
        &self.text
    }
}

/// Signs one whole file as one payload.
pub(super) fn sign_whole(signer: &Signer, stamp: &mut Stamp, sink: &mut Sink<'_>) -> Result<u64, Failure> {
    let from = open(sink.file)?;
    let timestamp = stamp.now();
    let mut running = signer.begin(timestamp);
    let bytes = pieces(sink.file, from, |piece| running.update(piece))?;
    sink.put(timestamp, &running.finish(), bytes)?;
    Ok(1)
}

/// Signs every record of a file, each without the byte that ends it. A last record without its end counts.
pub(super) fn sign_records(
    signer: &Signer,
    stamp: &mut Stamp,
    end: u8,
    sink: &mut Sink<'_>,
) -> Result<u64, Failure> {
    let mut from = BufReader::with_capacity(PIECE, open(sink.file)?);
    let mut count = 0;
    loop {
        // Whoever feeds us slowly sees each signature before the next record.
        if from.buffer().is_empty() {
            sink.out.flush()?;
        }
        if fill(sink.file, &mut from)?.is_empty() {
            return Ok(count);
        }
        let timestamp = stamp.now();
        let mut running = signer.begin(timestamp);
        let mut bytes = 0;
        loop {
            let piece = fill(sink.file, &mut from)?;
            let found = memchr::memchr(end, piece);
            let length = found.unwrap_or(piece.len());
            running.update(&piece[..length]);
            bytes += length as u64;
            let over = found.is_some() || piece.is_empty();
            from.consume(length + usize::from(found.is_some()));
            if over {
                break;
            }
        }
        sink.put(timestamp, &running.finish(), bytes)?;
        count += 1;
    }
}

fn fill<'a>(file: &Path, from: &'a mut impl BufRead) -> Result<&'a [u8], Failure> {
    // A second look only when the first was interrupted: the borrow of a success cannot leave the loop.
    while let Err(err) = from.fill_buf() {
        if err.kind() != io::ErrorKind::Interrupted {
            return Err(unread(file, err));
        }
    }
    from.fill_buf().map_err(|err| unread(file, err))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time, as a pipe does, and fails at the end when it is to.
    struct Pipe {
        left: usize,
        fails: bool,
    }

    impl Read for Pipe {
        fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
            if self.left == 0 && self.fails {
                return Err(io::Error::other("torn"));
            }
            let length = piece.len().min(9_973).min(self.left);
            for (at, byte) in piece[..length].iter_mut().enumerate() {
                *byte = ((self.left - at) % 251) as u8;
            }
            self.left -= length;
            Ok(length)
        }
    }

    #[test]
    fn pieces_come_whole_and_in_order_whoever_takes_them() {
        let small = usize::try_from(ALONE).unwrap();
        for left in [0, 1, small - 1, small, small + 9_973, 3 * small + 17] {
            let mut taken = Vec::new();
            let total = pieces(Path::new("f"), Pipe { left, fails: false }, |piece| {
                taken.extend_from_slice(piece);
            });
            assert_eq!(total.unwrap(), left as u64);
            let expected: Vec<u8> = (1..=left).rev().map(|n| (n % 251) as u8).collect();
            assert!(taken == expected, "{left} bytes");
            assert!(pieces(Path::new("f"), Pipe { left, fails: true }, |_| ()).is_err());
        }
    }
}
