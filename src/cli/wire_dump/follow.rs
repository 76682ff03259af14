//! `--follow`: files that grow, are rotated, are cut short, or are not there yet; and stdin until it ends.

use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::NAME;
use super::input::{self, Feed, Sink};
use crate::cli::output::{self, Failure};
use crate::net::service::Shutdown;

/// How long nothing is looked at when there was nothing to read.
const PAUSE: Duration = Duration::from_millis(100);
/// Reads of one file before the next one has its turn.
const TURN: usize = 16;

/// Reads until `stop`, or until there is nothing that could grow.
pub(super) fn run(paths: &[&Path], stop: &Shutdown, sink: &mut impl Sink) -> Result<(), Failure> {
    let mut followed: Vec<Followed> = paths.iter().copied().map(Followed::new).collect();
    while !stop.is_triggered() {
        let mut is_quiet = true;
        for file in &mut followed {
            is_quiet &= file.step(sink)? == 0;
        }
        if is_quiet {
            sink.idle()?;
            followed.retain(|file| !file.has_ended);
            if followed.is_empty() {
                break;
            }
            stop.wait(Some(PAUSE));
        }
    }
    Ok(())
}

/// One file, or stdin.
struct Followed {
    path: PathBuf,
    feed: Feed,
    open: Option<File>,
    position: u64,
    /// That it is not there, or cannot be opened, was told.
    is_told: bool,
    /// Nothing more can come, which is so only for stdin.
    has_ended: bool,
}

impl Followed {
    fn new(path: &Path) -> Self {
        let feed = Feed::new(path);
        Self { path: path.to_owned(), feed, open: None, position: 0, is_told: false, has_ended: false }
    }

    /// Reads what is there, and looks what became of the file when that is nothing. Answers how much it read.
    fn step(&mut self, sink: &mut impl Sink) -> Result<usize, Failure> {
        if self.has_ended {
            return Ok(0);
        }
        if self.path.as_os_str() == "-" {
            return self.step_stdin(sink);
        }
        if self.open.is_none() && !self.try_open() {
            return Ok(0);
        }
        let mut total = 0;
        for _ in 0..TURN {
            let read = self.read(sink)?;
            if read == 0 {
                break;
            }
            total += read;
        }
        if total == 0 && self.has_changed()? {
            self.replace(sink)?;
        }
        Ok(total)
    }

    fn read(&mut self, sink: &mut impl Sink) -> Result<usize, Failure> {
        let Some(file) = &mut self.open else { return Ok(0) };
        let read = self.feed.read(file, sink)?;
        self.position += read as u64;
        Ok(read)
    }

    fn step_stdin(&mut self, sink: &mut impl Sink) -> Result<usize, Failure> {
        if self.open.is_none() {
            self.open = Some(input::stdin()?);
        }
        let Some(file) = &self.open else { return Ok(0) };
        let wait = Timespec::try_from(Duration::ZERO).ok();
        let mut ready = [PollFd::new(file, PollFlags::IN)];
        // A poll that fails is tried again with the next step.
        if !poll(&mut ready, wait.as_ref()).is_ok_and(|ready| ready > 0) {
            return Ok(0);
        }
        let read = self.read(sink)?;
        if read == 0 {
            self.feed.end(sink)?;
            self.has_ended = true;
        }
        Ok(read)
    }

    /// Opens the file, or says once that it has to be waited for.
    fn try_open(&mut self) -> bool {
        match File::open(&self.path) {
            Ok(file) => {
                self.open = Some(file);
                self.position = 0;
                self.is_told = false;
                true
            }
            Err(err) => {
                if !std::mem::replace(&mut self.is_told, true) {
                    output::warn(NAME, format_args!("waiting for {}: {err}", self.path.display()));
                }
                false
            }
        }
    }

    /// Whether another file stands in the place of the one that is open, or that one was cut short.
    fn has_changed(&mut self) -> Result<bool, Failure> {
        let Some(file) = &mut self.open else { return Ok(false) };
        let own = file.metadata().map_err(|err| input::unread(&self.path, err))?;
        if own.is_file() && own.len() < self.position {
            output::warn(NAME, format_args!("{} was cut short; reading it anew", self.path.display()));
            file.seek(SeekFrom::Start(0)).map_err(|err| input::unread(&self.path, err))?;
            self.position = 0;
            self.feed.restart();
            return Ok(false);
        }
        Ok(std::fs::metadata(&self.path).is_ok_and(|there| is_successor(&own, &there)))
    }

    /// Goes on with the file that stands in the old one's place. What was written to the old one meanwhile comes first.
    fn replace(&mut self, sink: &mut impl Sink) -> Result<(), Failure> {
        while self.read(sink)? > 0 {}
        self.feed.end(sink)?;
        self.feed.restart();
        self.open = None;
        self.try_open();
        Ok(())
    }
}

/// Whether `there` is the file that the writer has gone on to. An empty one was only made for it.
fn is_successor(own: &Metadata, there: &Metadata) -> bool {
    (own.dev(), own.ino()) != (there.dev(), there.ino()) && there.len() > 0
}
