//! Many events, one a line: several are tried at a time, and their outcomes come out in the order of the lines.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender as Tell, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::{Map, Value};

use super::dest::Target;
use super::event::{Sender, broken};
use super::report::Ended;
use super::{Args, EventArgs, NAME, body};
use crate::cli::output::{self, Exit, Failure, Out};
use crate::cli::progress::Progress;
use crate::proto::ingest::{SCHEMA, check_object, parse_event};
use crate::proto::lines::{Line, Lines};

/// Longest line, in bytes: an event whose every character is escaped still fits.
const LINE_BYTES: usize = 2 << 20;
/// Lines that are read ahead of the one whose outcome is printed next.
const AHEAD: usize = 256;

/// One event to be sent, and where its outcome is waited for.
struct Task {
    /// The number of its line.
    number: u64,
    event_key: String,
    body: Vec<u8>,
    tell: Tell<Result<Ended, Failure>>,
}

/// The outcome of one line, which may not have come yet.
type Outcome = Receiver<Result<Ended, Failure>>;

/// Sends every line of the body as an event.
///
/// # Errors
/// When a line cannot be used or an event cannot be kept; the good ones before it went out, and their outcomes
/// were printed.
pub(super) fn run(args: &Args, target: Target) -> Result<Exit, Failure> {
    let (from, name) = body::open(args.body.as_deref())?;
    let sender = Arc::new(Sender::new(args, target)?);
    let reader = Reader { name, options: args.event.clone() };
    if args.delivery.dry_run {
        return show(&sender, &reader, from, args.json);
    }
    let (give, tasks) = sync_channel(usize::from(args.event.jobs));
    let (announce, outcomes) = sync_channel(AHEAD);
    let (tasks, stop) = (Arc::new(Mutex::new(tasks)), Arc::new(AtomicBool::new(false)));
    let reader = Arc::new(reader);
    for _ in 0..args.event.jobs {
        let (sender, tasks, stop, reader) = (sender.clone(), tasks.clone(), stop.clone(), reader.clone());
        spawn("send", move || work(&sender, &tasks, &stop, &reader.name))?;
    }
    spawn("read", move || hand_out(&reader, from, &give, &announce))?;
    let mut printer = Printer::new(args.json);
    let printed = printer.print(&outcomes, &stop);
    printer.finish(printed, args.common.verbose)
}

/// Prints the request of every line, up to the first one that cannot be used.
fn show(sender: &Sender, reader: &Reader, from: impl Read, json: bool) -> Result<Exit, Failure> {
    let mut out = Out::new();
    let mut shown = Ok(());
    let read = reader.run(from, |_, _, body| {
        shown = sender.show(&mut out, &body, json);
        shown.is_ok()
    });
    shown?;
    out.finish()?;
    read.map(|()| Exit::Ok)
}

fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(f);
    started.map(drop).map_err(|err| Failure::new(Exit::TryLater, "start a thread", err))
}

/// Prints outcomes as they come, in their order. What was not taken has its outcome, too, and the first of them is the
/// exit.
struct Printer {
    out: Out,
    progress: Progress,
    json: bool,
    exit: Exit,
    all: u64,
    failed: u64,
}

impl Printer {
    fn new(json: bool) -> Self {
        // Outcomes on a terminal show by themselves how far it is.
        let progress = Progress::new("sent", None, !output::is_on_terminal());
        Self { out: Out::new(), progress, json, exit: Exit::Ok, all: 0, failed: 0 }
    }

    /// Prints until there are no more. After the first failure of ours nothing new is begun, and what was begun before
    /// has its outcome printed.
    fn print(&mut self, outcomes: &Receiver<Outcome>, stop: &AtomicBool) -> Result<(), Failure> {
        while let Some(outcome) = self.next(outcomes)? {
            let ended = self.next(&outcome)?.unwrap_or_else(|| {
                Err(Failure::new(Exit::Software, "send an event", "its thread ended without an outcome"))
            });
            let failure = match ended {
                Ok(ended) => {
                    self.write(ended)?;
                    continue;
                }
                Err(failure) => failure,
            };
            stop.store(true, Ordering::SeqCst);
            while let Ok(outcome) = outcomes.try_recv() {
                if let Some(Ok(ended)) = self.next(&outcome)? {
                    self.write(ended)?;
                }
            }
            return Err(failure);
        }
        Ok(())
    }

    /// The next one, which is waited for; a program that reads what is printed has it all before that.
    fn next<T>(&mut self, from: &Receiver<T>) -> Result<Option<T>, Failure> {
        match from.try_recv() {
            Ok(next) => Ok(Some(next)),
            Err(TryRecvError::Disconnected) => Ok(None),
            Err(TryRecvError::Empty) => {
                self.out.flush()?;
                Ok(from.recv().ok())
            }
        }
    }

    fn write(&mut self, ended: Ended) -> Result<(), Failure> {
        ended.report.write(&mut self.out, self.json)?;
        self.all += 1;
        self.progress.at(self.all);
        if let Some(failure) = ended.failure {
            self.failed += 1;
            self.exit = if self.exit == Exit::Ok { failure.exit } else { self.exit };
        }
        Ok(())
    }

    fn finish(mut self, printed: Result<(), Failure>, verbose: u8) -> Result<Exit, Failure> {
        self.progress.clear();
        self.out.finish()?;
        if verbose > 0 {
            output::say(format_args!("{NAME}: {} of {} events were taken", self.all - self.failed, self.all));
        }
        printed?;
        if self.failed == 0 {
            return Ok(self.exit);
        }
        let why = format!("{} of {} events were not taken", self.failed, self.all);
        Err(Failure::new(self.exit, "send the lines", why).hint("each one's outcome says why"))
    }
}

/// Sends tasks until there are none, or nothing more is to be begun.
fn work(sender: &Sender, tasks: &Mutex<Receiver<Task>>, stop: &AtomicBool, name: &str) {
    let mut spool = None;
    loop {
        let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = task else { return };
        if stop.load(Ordering::SeqCst) {
            // Dropping it tells who waits for its outcome that there is none.
            continue;
        }
        let open = match spool.take() {
            Some(open) => Ok(open),
            None => sender.open_spool(),
        };
        let ended = open.and_then(|mut open| {
            let ended = sender.send(open.as_mut(), &task.event_key, &task.body);
            spool = Some(open);
            ended
        });
        let ended = ended.map_err(|failure| failure.at(format_args!("line {} of {name}", task.number)));
        // Nobody waits any more when the command has failed already.
        let _ = task.tell.send(ended);
    }
}

/// Hands every event to whoever sends next; what ends the reading is an outcome, too.
fn hand_out(reader: &Reader, from: impl Read, give: &SyncSender<Task>, announce: &SyncSender<Outcome>) {
    let read = reader.run(from, |number, event_key, body| {
        let (tell, outcome) = channel();
        announce.send(outcome).is_ok() && give.send(Task { number, event_key, body, tell }).is_ok()
    });
    if let Err(failure) = read {
        let (tell, outcome) = channel();
        // The printer may have failed before us, and then it does not matter.
        let _ = tell.send(Err(failure));
        let _ = announce.send(outcome);
    }
}

/// Turns lines into events.
struct Reader {
    name: String,
    options: EventArgs,
}

impl Reader {
    /// Gives the number, the key and the request body of every line to `each`, until that answers that nobody wants
    /// more.
    fn run(
        &self,
        mut from: impl Read,
        mut each: impl FnMut(u64, String, Vec<u8>) -> bool,
    ) -> Result<(), Failure> {
        let mut lines = Lines::new(LINE_BYTES);
        let mut bytes = vec![0; 64 * 1024];
        let mut waiting = VecDeque::new();
        let mut number = 0u64;
        let mut is_open = true;
        while is_open {
            match from.read(&mut bytes) {
                Ok(0) => {
                    is_open = false;
                    waiting.extend(lines.end());
                }
                Ok(read) => lines.push(&bytes[..read]),
                Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
                Err(err) => return Err(body::unreadable(&self.name, &err)),
            }
            while let Some(line) = lines.next() {
                waiting.push_back(line);
            }
            for line in waiting.drain(..) {
                number += 1;
                if let Some((event_key, body)) = self.event(&line, number)?
                    && !each(number, event_key, body)
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The key and the request body of a line; `None` for a line that is blank.
    fn event(&self, line: &Line, number: u64) -> Result<Option<(String, Vec<u8>)>, Failure> {
        let what = format!("send line {number} of {}", self.name);
        let wrong = |why: &dyn std::fmt::Display| Failure::new(Exit::Data, &what, why);
        let text = match line {
            Line::Text(text) if text.trim_ascii().is_empty() => return Ok(None),
            Line::Text(text) => text,
            Line::NotUtf8 => return Err(wrong(&"it is not UTF-8")),
            Line::TooLong => return Err(wrong(&format_args!("it is over {LINE_BYTES} bytes long"))),
        };
        // Before a key that stands there twice is lost in a map.
        check_object(text).map_err(|err| broken(&what, &err))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut fields: Map<String, Value> = serde_json::from_str(text).map_err(|err| wrong(&err))?;
        self.complete(&mut fields);
        // Not from the text: what was added is judged with the rest.
        let whole = Value::Object(fields).to_string();
        let event = parse_event(whole.as_bytes()).map_err(|err| broken(&what, &err))?;
        let body = event.to_body();
        Ok(Some((event.event_key, body)))
    }

    /// Fields that the line does not have come from the options.
    fn complete(&self, fields: &mut Map<String, Value>) {
        let Ok(Value::Object(options)) = serde_json::to_value(self.options.to_event(String::new())) else {
            return;
        };
        fields.entry("schema").or_insert_with(|| SCHEMA.into());
        for (name, value) in options {
            let is_given = value.as_str().is_none_or(|text| !text.is_empty());
            if is_given && !fields.contains_key(&name) {
                fields.insert(name, value);
            }
        }
    }
}
