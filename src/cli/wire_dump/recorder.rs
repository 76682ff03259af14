//! Where records of a live conversation go: to a file at once, to stdout by a thread of its own, so that a reader
//! who takes his time slows nothing down.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::filter::Filter;
use super::print::Printer;
use super::{NAME, Printing};
use crate::cli::output::{self, Exit, Failure, Out};
use crate::clock::{Clock, SystemClock};
use crate::net::service::Shutdown;
use crate::net::tap::{Seen, What};
use crate::proto::dump::{Note, Reader, Record};
use crate::store::files;
use crate::store::records::RecordFile;
use crate::text;

/// Bytes that may wait for the reader of stdout; beyond, records are dropped and counted.
const WAITING: usize = 16 * 1024 * 1024;
/// Time for the reader of stdout to take the last of them.
const LAST: Duration = Duration::from_secs(2);

/// Where the records of all connections go.
pub(super) struct Recorder {
    log: Option<Mutex<Log>>,
    screen: Option<Arc<Screen>>,
    /// What of it is shown.
    shown: fn(&Seen<'_>) -> bool,
    connections: AtomicU64,
    clock: SystemClock,
}

impl Recorder {
    /// Adds to the file, and prints on a thread of its own. When nobody reads what is printed, and there is no file,
    /// it asks to stop.
    ///
    /// # Errors
    /// When the file or the thread cannot be had.
    pub(super) fn open(
        file: Option<&Path>,
        print: Option<Printing>,
        shown: fn(&Seen<'_>) -> bool,
        stop: &Shutdown,
    ) -> Result<Self, Failure> {
        let log = file.map(Log::open).transpose()?.map(Mutex::new);
        let stop = log.is_none().then(|| stop.clone());
        let screen = print.map(|print| Screen::start(print, stop)).transpose();
        let screen = screen.map_err(|err| Failure::new(Exit::Unavailable, "start a thread", err))?;
        Ok(Self { log, screen, shown, connections: AtomicU64::new(0), clock: SystemClock::new() })
    }

    /// The number of another connection.
    pub(super) fn connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Writes down what was seen.
    pub(super) fn record(&self, conn: u64, seen: &Seen<'_>) {
        let is_one_of_many = self.connections.load(Ordering::Relaxed) > 1;
        let conn = is_one_of_many.then_some(conn);
        let record = Record { at: self.clock.wall(), proto: seen.proto, way: seen.way, conn };
        let line = match &seen.what {
            What::Text(text) => record.frame(text),
            What::Note(note) => record.note(note),
        };
        if let Some(log) = &self.log {
            log.lock().unwrap_or_else(PoisonError::into_inner).write(&line, record);
        }
        if let Some(screen) = self.screen.as_ref().filter(|_| (self.shown)(seen)) {
            screen.push(line, record);
        }
    }

    /// Waits a little until all is printed.
    ///
    /// # Errors
    /// When printing failed and nothing else keeps the records.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        let failed = self.screen.as_ref().and_then(|screen| screen.finish());
        match failed {
            Some(err) if self.log.is_none() => Err(err.into()),
            _ => Ok(()),
        }
    }
}

/// The file.
struct Log {
    file: RecordFile,
    /// Records that could not be written since the last one that could.
    lost: u64,
}

impl Log {
    fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |err| Failure::new(Exit::CannotCreate, format_args!("write {}", path.display()), err);
        let file = RecordFile::open(path).map_err(failed)?;
        if files::is_exposed(path) {
            let path = path.display();
            output::warn(NAME, format_args!("others can read the dump {path}; mend it: chmod 600 {path}"));
        }
        Ok(Self { file, lost: 0 })
    }

    fn write(&mut self, line: &str, record: Record) {
        let missing = match self.lost {
            0 => String::new(),
            records => record.note(&Note::Lost { records }),
        };
        let text = format!("{missing}{line}");
        match self.file.append(&text) {
            Ok(()) => {
                if self.lost > 0 {
                    let (path, lost) = (self.file.path().display(), self.lost);
                    output::warn(NAME, format_args!("{path} is written again; {lost} records are missing"));
                }
                self.lost = 0;
            }
            Err(err) => {
                if self.lost == 0 {
                    let path = self.file.path().display();
                    output::warn(
                        NAME,
                        format_args!("could not write {path}: {err}; all goes on passing, unrecorded"),
                    );
                }
                self.lost += 1;
            }
        }
    }
}

/// Stdout, and what waits for it.
struct Screen {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    /// Bytes of the lines that are not printed yet.
    bytes: usize,
    /// Records that were dropped since the last one that was not.
    lost: u64,
    /// Nothing more will be pushed.
    is_ending: bool,
    /// Nothing more will be printed.
    is_over: bool,
    failed: Option<io::Error>,
}

impl Screen {
    fn start(print: Printing, stop: Option<Shutdown>) -> io::Result<Arc<Self>> {
        let screen = Arc::new(Self { queue: Mutex::default(), changed: Condvar::new() });
        let shared = Arc::clone(&screen);
        thread::Builder::new().name("printer".into()).spawn(move || {
            let done = shared.print_all(print);
            let has_failed = done.is_err();
            let mut queue = shared.queue();
            queue.is_over = true;
            queue.lines.clear();
            queue.failed = done.err();
            drop(queue);
            shared.changed.notify_all();
            if let (true, Some(stop)) = (has_failed, stop) {
                stop.trigger();
            }
        })?;
        Ok(screen)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: String, record: Record) {
        let mut queue = self.queue();
        if queue.is_over {
            return;
        }
        if queue.bytes + line.len() > WAITING {
            queue.lost += 1;
            return;
        }
        let lost = std::mem::take(&mut queue.lost);
        let missing = (lost > 0).then(|| record.note(&Note::Lost { records: lost }));
        for line in missing.into_iter().chain([line]) {
            queue.bytes += line.len();
            queue.lines.push_back(line);
        }
        drop(queue);
        self.changed.notify_all();
    }

    /// Prints until nothing more comes.
    fn print_all(&self, print: Printing) -> io::Result<()> {
        let mut printer = Printer::new(Out::new(), print.look);
        let mut reader = Reader::new();
        loop {
            let mut queue = self.queue();
            while queue.lines.is_empty() && !queue.is_ending {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let lines = std::mem::take(&mut queue.lines);
            drop(queue);
            if lines.is_empty() {
                return Ok(());
            }
            for line in &lines {
                match reader.read(line.trim_end_matches('\n')) {
                    Ok(line) if Filter(&print.filter).takes(&line) => printer.print(&line)?,
                    _ => {}
                }
            }
            printer.flush()?;
            self.queue().bytes -= lines.iter().map(String::len).sum::<usize>();
        }
    }

    /// Waits a little until all is printed; answers what went wrong with it.
    fn finish(&self) -> Option<io::Error> {
        let mut queue = self.queue();
        queue.is_ending = true;
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(queue, LAST, |queue| !queue.is_over);
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        let lost = queue.lost + queue.lines.len() as u64;
        if lost > 0 && queue.failed.is_none() {
            output::warn(
                NAME,
                format_args!("{lost} records were not printed, because nobody took them in time"),
            );
        }
        queue.failed.take()
    }
}

/// What is said about a connection on stderr.
pub(super) fn tell(conn: u64, what: impl std::fmt::Display) {
    output::say(format_args!("{NAME}: connection {conn}: {}", text::visible(&what.to_string())));
}
