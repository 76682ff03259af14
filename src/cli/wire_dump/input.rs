//! Files and stdin, a line at a time, for whoever wants them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::cli::output::{Exit, Failure};
use crate::proto::dump::cut::{Cut, Cutter, LINE_BYTES};
use crate::proto::dump::{Line, Reader};

/// What lines are for.
pub(super) trait Sink {
    /// One line that is JSON.
    fn line(&mut self, place: Place<'_>, line: &Line<'_>) -> Result<(), Failure>;
    /// One line that is not, and why.
    fn bad(&mut self, place: Place<'_>, why: &str) -> Result<(), Failure>;
    /// Nothing more can be read right now.
    fn idle(&mut self) -> Result<(), Failure>;
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

/// Opens a file, or stdin for `-`.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(path)
        .map_err(|err| Failure::new(Exit::NoInput, format_args!("open {}", path.display()), err))?;
    Ok(Box::new(opened))
}

/// One stream on its way to lines.
pub(super) struct Feed {
    name: String,
    number: u64,
    cutter: Cutter,
    reader: Reader,
}

impl Feed {
    pub(super) fn new(path: &Path) -> Self {
        let name = path.display().to_string();
        Self { name, number: 0, cutter: Cutter::new(LINE_BYTES), reader: Reader::new() }
    }

    /// Reads once, and hands on what came; answers how much that was.
    pub(super) fn read(&mut self, from: &mut dyn Read, sink: &mut impl Sink) -> Result<usize, Failure> {
        loop {
            match from.read(self.cutter.space()) {
                Ok(length) => {
                    self.cutter.filled(length);
                    self.hand_on(sink)?;
                    return Ok(length);
                }
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(unread(&self.name, err)),
            }
        }
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
        return sink.bad(place, &format!("longer than the {LINE_BYTES} bytes that are read of a line"));
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
            Err(err) => sink.bad(place, &format!("no frame: {err}")),
        },
        Err(err) => sink.bad(place, &format!("no UTF-8 at byte {}", err.valid_up_to() + 1)),
    }
}

/// A failure while reading: a directory is no input, everything else is the disk's.
fn unread(name: &str, err: io::Error) -> Failure {
    let exit = if err.kind() == io::ErrorKind::IsADirectory { Exit::NoInput } else { Exit::Io };
    Failure::new(exit, format_args!("read {name}"), err)
}
