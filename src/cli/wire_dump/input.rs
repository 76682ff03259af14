//! Files and stdin, a line at a time, for whoever wants them.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::ahead;
use crate::cli::output::{Exit, Failure};
use crate::proto::dump::cut::{Cut, Cutter, LINE_BYTES};
use crate::proto::dump::{Line, Reader};

/// What lines are for.
pub(super) trait Sink {
    /// One line that is JSON.
    fn line(&mut self, place: Place<'_>, line: &Line<'_>) -> Result<(), Failure>;
    /// One line that is not: the rule that it breaks, as a stable word, and how.
    fn bad(&mut self, place: Place<'_>, rule: &'static str, why: &str) -> Result<(), Failure>;
    /// Nothing more can be read right now.
    fn idle(&mut self) -> Result<(), Failure>;
    /// Everything was read. How the command ends, as far as the lines go.
    fn finish(&mut self) -> Result<Exit, Failure>;
}

/// Where a line stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) file: &'a str,
    pub(super) line: u64,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The files to read, `-` for stdin when none is named.
pub(super) fn files(named: &[PathBuf]) -> Vec<&Path> {
    if named.is_empty() { vec![Path::new("-")] } else { named.iter().map(PathBuf::as_path).collect() }
}

/// Reads all of a file, or of stdin for `-`.
pub(super) fn read(path: &Path, sink: &mut impl Sink) -> Result<(), Failure> {
    let mut from = open(path)?;
    // What comes through a pipe may be waited for: lines are not held back meanwhile.
    let found = from.metadata().ok().filter(Metadata::is_file);
    let is_file = found.is_some();
    let mut feed = Feed::new(path);
    if found.is_some_and(|found| found.len() >= ahead::WORTH_IT) {
        ahead::read(from, &mut feed, sink)?;
        return feed.end(sink);
    }
    while feed.read(&mut from, sink)? > 0 {
        if !is_file {
            sink.idle()?;
        }
    }
    feed.end(sink)
}

fn open(path: &Path) -> Result<File, Failure> {
    if path.as_os_str() == "-" {
        return stdin();
    }
    let opened = File::open(path);
    opened.map_err(|err| Failure::new(Exit::NoInput, format_args!("open {}", path.display()), err))
}

/// Stdin without a buffer of its own.
pub(super) fn stdin() -> Result<File, Failure> {
    let own = io::stdin().as_fd().try_clone_to_owned();
    own.map(File::from).map_err(|err| unread(Path::new("-"), err))
}

/// One stream on its way to lines.
pub(super) struct Feed {
    path: PathBuf,
    name: String,
    number: u64,
    cutter: Cutter,
    reader: Reader,
}

impl Feed {
    pub(super) fn new(path: &Path) -> Self {
        let name = path.display().to_string();
        Self {
            path: path.to_owned(),
            name,
            number: 0,
            cutter: Cutter::new(LINE_BYTES),
            reader: Reader::new(),
        }
    }

    /// Reads once, and hands on what came; answers how much that was.
    pub(super) fn read(&mut self, from: &mut impl Read, sink: &mut impl Sink) -> Result<usize, Failure> {
        loop {
            match from.read(self.cutter.space()) {
                Ok(length) => {
                    self.cutter.filled(length);
                    self.hand_on(sink)?;
                    return Ok(length);
                }
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(unread(&self.path, err)),
            }
        }
    }

    /// Hands on what was read elsewhere, `block[read]`; leaves a block to read into in its place.
    pub(super) fn take(
        &mut self,
        block: &mut Vec<u8>,
        read: Range<usize>,
        sink: &mut impl Sink,
    ) -> Result<(), Failure> {
        if self.cutter.swap(block, read.clone()) {
            return self.hand_on(sink);
        }
        let mut rest = &block[read];
        while !rest.is_empty() {
            let space = self.cutter.space();
            let (now, later) = rest.split_at(rest.len().min(space.len()));
            space[..now.len()].copy_from_slice(now);
            self.cutter.filled(now.len());
            self.hand_on(sink)?;
            rest = later;
        }
        Ok(())
    }

    /// The failure to read what is read.
    pub(super) fn unread(&self, err: io::Error) -> Failure {
        unread(&self.path, err)
    }

    /// Hands on what stands after the last newline, when nothing more comes.
    pub(super) fn end(&mut self, sink: &mut impl Sink) -> Result<(), Failure> {
        if let Some(cut) = self.cutter.end() {
            self.number += 1;
            let place = Place { file: &self.name, line: self.number };
            one(&mut self.reader, place, cut, sink)?;
        }
        Ok(())
    }

    /// Begins anew, as with another file; a line that has not ended is dropped.
    pub(super) fn restart(&mut self) {
        self.number = 0;
        self.cutter = Cutter::new(LINE_BYTES);
    }

    fn hand_on(&mut self, sink: &mut impl Sink) -> Result<(), Failure> {
        while let Some(cut) = self.cutter.next() {
            self.number += 1;
            let place = Place { file: &self.name, line: self.number };
            one(&mut self.reader, place, cut, sink)?;
        }
        Ok(())
    }
}

fn one(reader: &mut Reader, place: Place<'_>, cut: Cut<'_>, sink: &mut impl Sink) -> Result<(), Failure> {
    let Cut::Line(mut bytes) = cut else {
        return sink.bad(
            place,
            "frame_too_large",
            &format!("longer than the {LINE_BYTES} bytes that are read of a line"),
        );
    };
    if place.line == 1 {
        bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    }
    bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    if bytes.first() != Some(&b'{') && bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => match reader.read(text) {
            Ok(line) => sink.line(place, &line),
            Err(err) => {
                let rule = if err.is_json { "invalid_frame" } else { "invalid_json" };
                sink.bad(place, rule, &format!("no frame: {err}"))
            }
        },
        Err(err) => sink.bad(place, "not_text", &format!("no UTF-8 at byte {}", err.valid_up_to() + 1)),
    }
}

/// A failure while reading: a directory is no input, everything else is the disk's.
pub(super) fn unread(path: &Path, err: io::Error) -> Failure {
    let exit = if err.kind() == io::ErrorKind::IsADirectory { Exit::NoInput } else { Exit::Io };
    Failure::new(exit, format_args!("read {}", path.display()), err)
}
