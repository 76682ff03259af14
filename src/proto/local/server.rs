//! The server's end of one connection on `api.sock`.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::cutter::{Cutter, Piece};
use super::frames::{Answer, Code, EventFrame, Kind, WireError, error_line};
use super::request::{Request, parse};
use super::salvage::salvage_id;
use crate::clock::Mono;
use crate::limits;
use crate::proto::Output;
use crate::proto::outputs::Outputs;
use crate::proto::wire::close;

/// Answers that may wait for a client before its next request is read.
const ANSWERS: usize = 64;
/// Their bytes.
const ANSWER_BYTES: usize = 256 * 1024;
/// Events of a request that may come before its answer is there.
const HELD: usize = 16;

/// What an operator may change. The defaults are those of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerConfig {
    /// Requests in any minute.
    pub rate_per_minute: usize,
    /// Bytes of a line.
    pub line_bytes: usize,
    /// Bytes of a text.
    pub text_bytes: usize,
    /// Bytes of events that may wait.
    pub event_bytes: usize,
    /// Frames that may wait.
    pub frames: usize,
    /// Time in which a client takes one frame, and all that waits once there is no more room.
    pub write_wait: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            rate_per_minute: limits::API_RATE,
            line_bytes: limits::API_LINE_BYTES,
            text_bytes: limits::API_TEXT_BYTES,
            event_bytes: limits::API_EVENT_BYTES,
            frames: limits::API_FRAMES,
            write_wait: limits::API_WRITE_WAIT,
        }
    }
}

/// What reaches the machine from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input<'a> {
    /// What was read.
    Bytes(&'a [u8]),
    /// The client has ended its writing. It may still read.
    End,
    /// So many bytes of what was written, newlines included, have left for the client.
    Sent(usize),
    /// The client reads nothing any more: it is gone. What it said before still counts.
    Deaf,
    /// Nothing but time.
    Tick,
}

/// One request of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// A request that its owner answers with [`Server::answer`], before there is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// By which it is answered.
    pub ticket: Ticket,
    /// What is asked for.
    pub request: Request,
}

/// Why an event was not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Unsent {
    /// There is no room for it yet: to be offered again once the client has taken something.
    Full(EventFrame),
    /// Nobody waits for it any more.
    Gone,
}

/// A frame that has not left.
#[derive(Debug)]
struct Waiting {
    /// What of it has not left, its newline included.
    left: usize,
    is_event: bool,
}

/// The frames that have not left, in their order.
#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Waiting>,
    answers: usize,
    answer_bytes: usize,
    event_bytes: usize,
    /// Frames that have left altogether.
    gone: u64,
    /// Since when the first frame has been waiting to leave.
    front: Option<Mono>,
    /// Since when there was no room for an event, and how many frames must have left until there counts as room.
    full: Option<(Mono, u64)>,
}

impl Queue {
    fn push(&mut self, bytes: usize, is_event: bool, now: Mono) {
        self.front.get_or_insert(now);
        self.frames.push_back(Waiting { left: bytes, is_event });
        if is_event {
            self.event_bytes += bytes;
        } else {
            self.answers += 1;
            self.answer_bytes += bytes;
        }
    }

    fn sent(&mut self, mut bytes: usize, now: Mono) {
        while let Some(first) = self.frames.front_mut() {
            let part = bytes.min(first.left);
            first.left -= part;
            bytes -= part;
            *(if first.is_event { &mut self.event_bytes } else { &mut self.answer_bytes }) -= part;
            if first.left > 0 {
                return;
            }
            self.answers -= usize::from(!first.is_event);
            self.frames.pop_front();
            self.gone += 1;
            self.front = (!self.frames.is_empty()).then_some(now);
            self.full = self.full.filter(|(_, until)| self.gone < *until);
        }
    }

    /// Whether an event of this size has room. One that is larger than all the room has it when nothing else waits.
    fn has_room(&self, bytes: usize, config: &ServerConfig) -> bool {
        let events = self.frames.len() - self.answers;
        events + ANSWERS < config.frames
            && (self.event_bytes + bytes <= config.event_bytes || self.event_bytes == 0)
    }

    /// When the client is given up, unless it reads.
    fn deadline(&self, wait: Duration) -> Option<Mono> {
        let since = [self.front, self.full.map(|(since, _)| since)];
        since.into_iter().flatten().min().map(|since| since + wait)
    }
}

/// A window that slides over the requests that were let through.
#[derive(Debug, Default)]
struct Window(VecDeque<Mono>);

impl Window {
    fn take(&mut self, most: usize, now: Mono) -> bool {
        while self.0.front().is_some_and(|&first| now.since(first) >= limits::API_WINDOW) {
            self.0.pop_front();
        }
        let passes = self.0.len() < most;
        if passes {
            self.0.push_back(now);
        }
        passes
    }
}

/// The request that its owner has not answered yet.
#[derive(Debug)]
struct Open {
    ticket: Ticket,
    id: String,
    /// What its run has said already.
    held: Vec<EventFrame>,
    /// It will say nothing more.
    is_over: bool,
}

/// The server's end: requests out, answers and events in.
///
/// Requests come one at a time and are answered in their order. While answers wait for a client that does not read,
/// its next requests wait too, wherever they are ([`wants_input`](Self::wants_input)), so that a client that asks a
/// lot at once and reads is never ended for it. An event without room is given back to be offered again. A client
/// that takes no whole frame for [`ServerConfig::write_wait`], or does not take all that waited when there was no room
/// within that time, is given up.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    out: Outputs<Asked>,
    cutter: Cutter,
    window: Window,
    queue: Queue,
    asked: u64,
    open: Option<Open>,
    /// The requests whose last event has not come.
    running: BTreeSet<Ticket>,
    /// No more bytes come, or none are wanted.
    is_at_end: bool,
    is_deaf: bool,
    /// Everything that waits is still sent, and then this is why the connection ends.
    parting: Option<(u16, &'static str)>,
    /// The connection ends at this time, whatever still waits.
    ends_at: Option<Mono>,
    /// When the client was last heard or took a frame.
    alive: Mono,
}

impl Server {
    /// A connection that was just accepted.
    pub fn new(config: ServerConfig, now: Mono) -> Self {
        Self {
            config,
            out: Outputs::new(),
            cutter: Cutter::default(),
            window: Window::default(),
            queue: Queue::default(),
            asked: 0,
            open: None,
            running: BTreeSet::new(),
            is_at_end: false,
            is_deaf: false,
            parting: None,
            ends_at: None,
            alive: now,
        }
    }

    /// Other limits from now on. Nothing that was let in is turned out.
    pub fn set_config(&mut self, config: ServerConfig) {
        self.config = config;
    }

    /// Takes what happened.
    pub fn handle(&mut self, input: Input<'_>, now: Mono) {
        match input {
            Input::Bytes(_) | Input::End if self.is_at_end => {}
            Input::Bytes(bytes) => {
                self.alive = now;
                self.cutter.push(bytes);
            }
            Input::End => {
                self.is_at_end = true;
                self.cutter.end();
            }
            Input::Sent(bytes) => {
                self.alive = now;
                self.queue.sent(bytes, now);
            }
            Input::Deaf => self.deafen(),
            Input::Tick => self.out.woken(),
        }
        self.advance(now);
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output<Asked>> {
        let next = self.queue.deadline(self.config.write_wait).into_iter().chain(self.ends_at).min();
        self.out.poll(next)
    }

    /// Whether [`poll`](Self::poll) has handed out everything. Whoever makes that untrue wakes whoever polls.
    pub fn is_drained(&self) -> bool {
        self.out.is_drained()
    }

    /// Whether more bytes are of use now. Until they are, they had better stay where they are.
    pub fn wants_input(&self) -> bool {
        !self.is_at_end && !self.out.is_closed() && self.open.is_none() && self.cutter.is_hungry()
    }

    /// Answers the request that was asked. What its run has said in the meantime follows.
    pub fn answer(&mut self, ticket: Ticket, answer: &Answer, now: Mono) {
        let Some(open) = self.open.take_if(|open| open.ticket == ticket) else { return };
        self.say(answer.encode(&open.id), now);
        if *answer == Answer::Accepted && self.is_listening() {
            self.running.insert(ticket);
            for frame in open.held {
                self.narrate(ticket, frame, now);
            }
            if open.is_over {
                self.running.remove(&ticket);
            }
        }
        self.advance(now);
    }

    /// Takes an event of a request, if there is room. It counts as taken when the answer to the request is not there
    /// yet, and follows it.
    ///
    /// # Errors
    /// When there is no room, or nobody to hear it.
    pub fn offer(&mut self, ticket: Ticket, frame: EventFrame, now: Mono) -> Result<(), Unsent> {
        if !self.is_listening() {
            return Err(Unsent::Gone);
        }
        if let Some(open) = self.open.as_mut().filter(|open| open.ticket == ticket) {
            if open.held.len() >= HELD {
                return Err(Unsent::Full(frame));
            }
            open.held.push(frame);
            return Ok(());
        }
        if !self.running.contains(&ticket) {
            return Err(Unsent::Gone);
        }
        if !self.queue.has_room(frame.line.len() + 1, &self.config) {
            match frame.kind {
                Kind::Hint => return Ok(()),
                Kind::Small => {}
                Kind::Delta | Kind::Last => {
                    let until = self.queue.gone + self.queue.frames.len() as u64;
                    self.queue.full.get_or_insert((now, until));
                    return Err(Unsent::Full(frame));
                }
            }
        }
        self.narrate(ticket, frame, now);
        Ok(())
    }

    /// Nothing more comes for this request, whether or not its last event has come.
    pub fn abandon(&mut self, ticket: Ticket, now: Mono) {
        self.running.remove(&ticket);
        if let Some(open) = self.open.as_mut().filter(|open| open.ticket == ticket) {
            open.is_over = true;
        }
        self.advance(now);
    }

    /// Takes no further requests; what runs may end, and its client hears of it.
    pub fn stop(&mut self, now: Mono) {
        self.is_at_end = true;
        self.cutter.clear();
        self.advance(now);
    }

    /// Nothing comes any more from anybody: sends what waits, until `by` at the latest, and ends.
    pub fn finish(&mut self, by: Mono, now: Mono) {
        self.ends_at = Some(by);
        self.running.clear();
        self.stop(now);
    }

    /// Tells the client that it has no place, and ends.
    pub fn dismiss(&mut self, err: &WireError, now: Mono) {
        self.say(error_line("", err), now);
        self.part(close::INVALID, "dismissed");
        self.advance(now);
    }

    /// Since when the client has been silent, if it waits for nothing either.
    pub fn silent_since(&self) -> Option<Mono> {
        let waits = self.open.is_some() || !self.running.is_empty() || !self.queue.frames.is_empty();
        (!waits && !self.out.is_closed()).then_some(self.alive)
    }

    fn is_listening(&self) -> bool {
        !self.is_deaf && self.parting.is_none() && !self.out.is_closed()
    }

    /// Everything that follows from what is known by now.
    fn advance(&mut self, now: Mono) {
        while self.parting.is_none()
            && self.open.is_none()
            && !self.out.is_closed()
            && self.queue.answers < ANSWERS
            && self.queue.answer_bytes < ANSWER_BYTES
        {
            let Some(piece) = self.cutter.next(self.config.line_bytes) else { break };
            self.piece(piece, now);
        }
        if self.queue.deadline(self.config.write_wait).is_some_and(|at| now >= at) {
            return self.give_up("it does not read");
        }
        if self.ends_at.is_some_and(|at| now >= at) {
            return self.give_up("the daemon stops");
        }
        let is_idle = self.open.is_none() && self.running.is_empty() && self.queue.frames.is_empty();
        match self.parting {
            Some((code, reason)) if self.queue.frames.is_empty() => self.out.close(code, reason),
            None if self.is_at_end && is_idle && self.cutter.is_hungry() => {
                self.out.close(close::INVALID, "done")
            }
            _ => {}
        }
    }

    fn piece(&mut self, piece: Piece, now: Mono) {
        let passes = self.window.take(self.config.rate_per_minute, now);
        match piece {
            Piece::TooLong(start) => {
                let why = format!("request line exceeds {} bytes", self.config.line_bytes);
                let err = if passes { WireError::new(Code::InvalidRequest, why) } else { self.too_fast() };
                self.say(error_line(&salvage_id(&start), &err), now);
                self.part(close::TOO_LONG, "a line is too long");
            }
            Piece::Text(line) if !passes => {
                self.say(error_line(&salvage_id(line.as_bytes()), &self.too_fast()), now);
            }
            Piece::NotUtf8 if !passes => self.say(error_line("", &self.too_fast()), now),
            Piece::NotUtf8 => {
                let err = WireError::new(Code::InvalidRequest, "request line is not valid UTF-8");
                self.say(error_line("", &err), now);
            }
            Piece::Text(line) => match parse(&line, self.config.text_bytes) {
                (id, Ok(request)) => {
                    self.asked += 1;
                    let ticket = Ticket(self.asked);
                    self.open = Some(Open { ticket, id, held: Vec::new(), is_over: false });
                    self.out.event(Asked { ticket, request });
                }
                (id, Err(err)) => self.say(error_line(&id, &err), now),
            },
        }
    }

    fn too_fast(&self) -> WireError {
        let most = self.config.rate_per_minute;
        WireError::new(Code::RateLimited, format!("more than {most} requests per minute; slow down"))
    }

    /// Queues an answer.
    fn say(&mut self, line: String, now: Mono) {
        self.write(line, false, now);
    }

    /// Queues an event.
    fn narrate(&mut self, ticket: Ticket, frame: EventFrame, now: Mono) {
        if frame.kind == Kind::Last {
            self.running.remove(&ticket);
        }
        self.write(frame.line, true, now);
    }

    fn write(&mut self, line: String, is_event: bool, now: Mono) {
        if self.is_deaf || self.parting.is_some() || self.out.is_closed() {
            return;
        }
        self.queue.push(line.len() + 1, is_event, now);
        self.out.line(line);
    }

    /// The client is gone; requests that it has sent are still served.
    fn deafen(&mut self) {
        self.is_deaf = true;
        self.running.clear();
        self.queue = Queue::default();
    }

    /// Ends the connection once all that waits has left.
    fn part(&mut self, code: u16, reason: &'static str) {
        self.is_at_end = true;
        self.running.clear();
        self.cutter.clear();
        self.parting.get_or_insert((code, reason));
    }

    fn give_up(&mut self, reason: &str) {
        self.is_at_end = true;
        self.running.clear();
        self.out.close(close::INVALID, reason);
    }
}
