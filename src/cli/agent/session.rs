//! One session on `agent.sock`: it registers, hears deliveries, answers them, and connects anew when the
//! connection breaks.
//!
//! One thread does everything. [`Session::next`] waits for the socket, for what its caller watches, for a point
//! in time and for the wish to stop, whichever comes first.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use super::NAME;
use crate::cli::control;
use crate::cli::output::{self, Exit, Failure};
use crate::cli::ways::{self, Reader};
use crate::clock::{Clock, Mono, Reconnect, SystemClock};
use crate::id::fill_random;
use crate::limits;
use crate::net::service::Shutdown;
use crate::net::unix::{self, AGENT_SOCK, SocketError};
use crate::net::wake::Wake;
use crate::proto::agent::{AdapterEvent, AdapterSide, Register};
use crate::proto::control::Op;
use crate::proto::lines::Lines;
use crate::proto::{Input, Output};
use crate::store::config::Paths;

/// A daemon that takes nothing for this long is gone.
const WRITE_WAIT: Duration = Duration::from_secs(10);

/// What a wait ended with.
pub(in crate::cli) enum Next {
    /// The session has its place, for the first time or again.
    Registered { agent: String, address: String, generation: u64 },
    /// An envelope to be answered; the same one may come again.
    Deliver { id: String, envelope: String },
    /// Something that the caller watches is ready: one flag for each, in its order.
    Ready(Vec<bool>),
    /// The time has come.
    Due,
    /// Somebody wants this process to end.
    Stop,
}

/// What is said of a delivery, or of the session.
pub(in crate::cli) enum Answer {
    /// The envelope is durably where it belongs.
    Ack { id: String },
    /// The terminal has shown it, which is all that is known.
    Seen { id: String },
    /// It is not, and why.
    Nak { id: String, code: String, retryable: bool },
    /// What the session is doing; a sign of life.
    Status(String),
}

/// A session and its connection, if there is one.
pub(in crate::cli) struct Session {
    paths: Paths,
    register: Register,
    clock: SystemClock,
    stop: Shutdown,
    wake: Wake,
    link: Option<Link>,
    reconnect: Reconnect,
    /// When to connect next, while there is no connection.
    due: Mono,
    /// What was heard and not handed out yet.
    heard: VecDeque<Next>,
    /// What was said of deliveries while nobody listened. Of the session's states the last one counts: the next
    /// registration says it, or what follows it.
    held: Vec<Answer>,
    /// The trouble with the connection was told, and is not told again before it is over.
    told: bool,
    /// The process that is this session now, and is so no more once this one has registered.
    holder: Option<u64>,
}

struct Link {
    stream: UnixStream,
    machine: AdapterSide,
    lines: Lines,
    wake_at: Option<Mono>,
    since: Mono,
    registered: bool,
    /// The state of the session that it was told last.
    told: String,
}

impl Session {
    /// A session of this process, which ends by a signal; see [`with`](Self::with).
    ///
    /// # Errors
    /// When the environment does not tell where the daemon is, or signals cannot be caught.
    pub(super) fn new(register: Register) -> Result<Self, Failure> {
        let stop = Shutdown::on_signals().map_err(|err| Failure::new(Exit::Io, "get ready to wait", err))?;
        let paths = control::paths()?;
        let holder = holder(&paths, &register);
        Ok(Self { holder, ..Self::with(paths, register, stop)? })
    }

    /// A session that connects at its first [`next`](Self::next) and ends when `stop` is raised.
    ///
    /// # Errors
    /// When there is nothing to be woken by.
    pub(in crate::cli) fn with(paths: Paths, register: Register, stop: Shutdown) -> Result<Self, Failure> {
        let wake = Wake::new().map_err(|err| Failure::new(Exit::Io, "get ready to wait", err))?;
        let waker = wake.clone();
        stop.on_trigger(move || waker.wake());
        Ok(Self {
            paths,
            register,
            clock: SystemClock::new(),
            stop,
            wake,
            link: None,
            reconnect: Reconnect::default(),
            due: Mono::default(),
            heard: VecDeque::new(),
            held: Vec::new(),
            told: false,
            holder: None,
        })
    }

    /// The time of this session's clock.
    pub(super) fn now(&self) -> Mono {
        self.clock.mono()
    }

    /// Waits for the next thing: at most until `until`, and for one of `watched` to become ready.
    ///
    /// # Errors
    /// When the daemon refuses the session for good, or the socket is not to be trusted.
    pub(in crate::cli) fn next(
        &mut self,
        watched: &[(BorrowedFd<'_>, PollFlags)],
        until: Option<Mono>,
    ) -> Result<Next, Failure> {
        loop {
            if self.stop.is_triggered() {
                return Ok(Next::Stop);
            }
            if let Some(heard) = self.heard.pop_front() {
                return Ok(heard);
            }
            let now = self.now();
            if until.is_some_and(|until| now >= until) {
                return Ok(Next::Due);
            }
            if self.link.is_none() && now >= self.due {
                self.connect(now)?;
                continue;
            }
            let own = self.link.as_ref().map_or(Some(self.due), |link| link.wake_at);
            let deadline = [own, until].into_iter().flatten().min();
            let (readable, ready) = self.poll(watched, deadline)?;
            if readable {
                self.read()?;
            }
            self.tick()?;
            if ready.contains(&true) {
                return Ok(Next::Ready(ready));
            }
        }
    }

    /// Says something to the daemon: now, or once there is one again.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(in crate::cli) fn say(&mut self, answer: Answer) -> Result<(), Failure> {
        if let Answer::Status(status) = &answer {
            self.register.status.clone_from(status);
        }
        match &mut self.link {
            Some(link) if link.registered => {
                link.say(&answer);
                self.drain()
            }
            _ if matches!(answer, Answer::Status(_)) => Ok(()),
            _ => {
                self.held.push(answer);
                Ok(())
            }
        }
    }

    /// Whether the connection is ready, and which of `watched` are; waits until one is or the time has come.
    fn poll(
        &self,
        watched: &[(BorrowedFd<'_>, PollFlags)],
        deadline: Option<Mono>,
    ) -> Result<(bool, Vec<bool>), Failure> {
        let mut fds: Vec<_> =
            watched.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        fds.push(PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN));
        fds.extend(self.link.as_ref().map(|link| PollFd::new(&link.stream, PollFlags::IN)));
        let wait = deadline.map(|deadline| deadline.since(self.now()));
        let wait = wait.map(|wait| Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 }));
        match poll(&mut fds, wait.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok((false, Vec::new())),
            polled => polled.map_err(|err| Failure::new(Exit::Io, "wait for transitd", err))?,
        };
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let of_the_caller: Vec<bool> = ready.by_ref().take(watched.len()).collect();
        let connection = ready.nth(1).unwrap_or(false);
        Ok((connection, of_the_caller))
    }

    fn connect(&mut self, now: Mono) -> Result<(), Failure> {
        match unix::connect(&self.paths, AGENT_SOCK) {
            Ok(stream) => self.begin(stream, now),
            Err(err @ (SocketError::NoDaemon { .. } | SocketError::Io { .. })) => self.lost(&err.to_string()),
            Err(err) => return Err(control::unreachable(&err)),
        }
        self.drain()
    }

    fn begin(&mut self, stream: UnixStream, now: Mono) {
        if let Err(err) = stream.set_write_timeout(Some(WRITE_WAIT)) {
            return self.lost(&err.to_string());
        }
        self.link = Some(Link {
            stream,
            machine: AdapterSide::new(self.register.clone(), now),
            lines: Lines::new(limits::LINE_BYTES),
            wake_at: None,
            since: now,
            registered: false,
            told: self.register.status.clone(),
        });
    }

    fn read(&mut self) -> Result<(), Failure> {
        let now = self.now();
        let Some(link) = &mut self.link else { return Ok(()) };
        let mut bytes = [0; 16 * 1024];
        match link.stream.read(&mut bytes) {
            Ok(0) => self.lost("transitd closed the connection"),
            Err(err) => self.lost(&err.to_string()),
            Ok(read) => {
                link.lines.push(&bytes[..read]);
                while let Some(line) = link.lines.next() {
                    link.machine.handle(line.as_input(), now);
                }
            }
        }
        self.drain()
    }

    fn tick(&mut self) -> Result<(), Failure> {
        let now = self.now();
        let Some(link) = &mut self.link else { return Ok(()) };
        if link.wake_at.is_some_and(|at| now >= at) {
            link.wake_at = None;
            link.machine.handle(Input::Tick, now);
        }
        self.drain()
    }

    /// Does what the machine wants done.
    fn drain(&mut self) -> Result<(), Failure> {
        while let Some(link) = &mut self.link {
            match link.machine.poll() {
                None => break,
                Some(Output::Write(line)) => {
                    if let Err(err) = link.stream.write_all(format!("{line}\n").as_bytes()) {
                        self.lost(&err.to_string());
                    }
                }
                Some(Output::WakeAt(at)) => link.wake_at = Some(at),
                Some(Output::Close(close)) => self.lost(&close.reason),
                Some(Output::Event(event)) => self.event(event)?,
            }
        }
        Ok(())
    }

    fn event(&mut self, event: AdapterEvent) -> Result<(), Failure> {
        match event {
            AdapterEvent::Registered { agent, address, generation } => {
                self.told = false;
                if let Some(pid) = self.holder.take() {
                    let what = format_args!("{address} was process {pid}, which has lost it to this one");
                    output::warn(NAME, what);
                }
                // A daemon that takes us is a good one: when it is started anew, we are back within a second.
                self.reconnect.reset();
                self.heard.push_back(Next::Registered { agent, address, generation });
                if let Some(link) = &mut self.link {
                    link.registered = true;
                    if link.told != self.register.status {
                        link.say(&Answer::Status(self.register.status.clone()));
                    }
                    self.held.drain(..).for_each(|answer| link.say(&answer));
                }
            }
            AdapterEvent::Deliver { id, envelope } => self.heard.push_back(Next::Deliver { id, envelope }),
            AdapterEvent::Refused { code, error } => {
                if let Some(exit) = refusal(&code) {
                    let what = format!("register {}", self.register.name.as_deref().unwrap_or_default());
                    let failure = Failure::new(exit, what, format_args!("{error} ({code})"));
                    return Err(failure.way(ways::out_of(&code, Reader::Person)));
                }
                self.lost(&format!("{error} ({code})"));
            }
        }
        Ok(())
    }

    /// The connection is gone, or could not be made. Another one is tried later.
    fn lost(&mut self, why: &str) {
        let now = self.now();
        let lasted = self.link.take().filter(|link| link.registered).map(|link| now.since(link.since));
        let mut random = [0; 4];
        fill_random(&mut random);
        let wait = self.reconnect.next(lasted.unwrap_or_default(), u32::from_ne_bytes(random));
        self.due = now + wait;
        if !self.stop.is_triggered() && !std::mem::replace(&mut self.told, true) {
            output::warn(NAME, format_args!("{why}; trying again until transitd is there"));
        }
    }
}

impl Link {
    fn say(&mut self, answer: &Answer) {
        match answer {
            Answer::Ack { id } => self.machine.ack(id),
            Answer::Seen { id } => self.machine.seen(id),
            Answer::Nak { id, code, retryable } => self.machine.nak(id, code, *retryable),
            Answer::Status(status) => {
                status.clone_into(&mut self.told);
                self.machine.status(status);
            }
        }
    }
}

/// The process that has registered as this very session, if a daemon is there and knows of one.
fn holder(paths: &Paths, register: &Register) -> Option<u64> {
    let told = control::ask(paths, &control::call_of(Op::Status, None)).ok()?.ok()?;
    let is_it = |agent: &&Value| {
        agent["harness"] == register.harness.as_str() && agent["session_id"] == register.session_id.as_str()
    };
    told.get("agents")?.as_array()?.iter().find(is_it)?["pid"].as_u64()
}

/// The exit code of a refusal that stands, whatever time passes; `None` for one that may pass.
fn refusal(code: &str) -> Option<Exit> {
    match code {
        "name_allocation_failed" | "name_persistence_failed" | "capability_failed" => None,
        "pid_mismatch" | "pid_not_visible" | "name_taken" | "replaced" => Some(Exit::NoPermission),
        "unsupported_proto" => Some(Exit::Protocol),
        _ => Some(Exit::Config),
    }
}
