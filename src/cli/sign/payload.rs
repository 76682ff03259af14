//! Payloads: whole files and records, read in pieces.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use super::record::Sink;
use crate::cli::output::{Exit, Failure};
use crate::clock::{Clock, SystemClock};
use crate::proto::ingest::{self, Signer};

const PIECE: usize = 64 * 1024;

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

/// Reads all of `from`, handing each piece on.
pub(super) fn pieces(file: &Path, mut from: impl Read, mut take: impl FnMut(&[u8])) -> Result<u64, Failure> {
    let mut piece = vec![0; PIECE];
    let mut total = 0;
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(total),
            Ok(length) => {
                take(&piece[..length]);
                total += length as u64;
            }
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(unread(file, err)),
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
