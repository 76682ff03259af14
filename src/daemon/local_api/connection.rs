//! One connection: bytes to its machine, its requests to the gateway, and frames back.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::gateway::{Actor, Refusal, Trigger};
use super::Front;
use super::sink::{Client, ClientSink};
use crate::clock::{Clock, Mono};
use crate::proto::local::{Answer, Asked, Code, Input, Request, Status, WireError};
use crate::proto::wire::close;
use crate::proto::{Close, Output};

/// What is read at once.
const READ: usize = 16 * 1024;
/// Time in which a client whose line was too long may go on sending it before it meets a closed socket.
const LINGER: Duration = Duration::from_secs(1);
/// The source of a trigger, as the audit and the agent see it.
const SOURCE: &str = "local";

/// A connection and its thread's own things.
pub(super) struct Connection {
    pub(super) stream: UnixStream,
    pub(super) client: Arc<Client>,
    pub(super) front: Arc<dyn Front>,
    pub(super) actor: Actor,
}

/// Whatever ends the thread, no run waits for it.
struct LetGo<'a>(&'a Client);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        let now = self.0.clock().mono();
        self.0.change(|machine| {
            machine.handle(Input::Deaf, now);
            machine.handle(Input::End, now);
        });
    }
}

impl Connection {
    /// Serves the connection to its end.
    pub(super) fn run(mut self) {
        let client = Arc::clone(&self.client);
        let _let_go = LetGo(&client);
        if let Err(err) = self.stream.set_nonblocking(true) {
            return tracing::warn!(%err, "could not serve a client of the local API");
        }
        let close = self.serve();
        tracing::debug!(reason = close.reason, "a client's connection ends");
        if close.code == close::TOO_LONG {
            self.linger();
        }
        // The listener looks at the same socket, so that dropping it here would end nothing.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn serve(&mut self) -> Close {
        let (mut unsent, mut wake_at) = (Vec::new(), None);
        loop {
            let now = self.now();
            let (asked, close, wants_input) = {
                let mut machine = self.client.machine();
                if wake_at.is_some_and(|at| now >= at) {
                    wake_at = None;
                    machine.handle(Input::Tick, now);
                }
                let (mut asked, mut close) = (None, None);
                while let Some(output) = machine.poll() {
                    match output {
                        Output::Write(line) => {
                            unsent.extend_from_slice(line.as_bytes());
                            unsent.push(b'\n');
                        }
                        Output::Event(event) => asked = Some(event),
                        Output::WakeAt(at) => wake_at = Some(at),
                        Output::Close(end) => close = Some(end),
                    }
                }
                (asked, close, machine.wants_input())
            };
            if let Some(close) = close {
                return close;
            }
            if let Some(asked) = asked {
                self.answer(asked);
                continue;
            }
            if self.flush(&mut unsent) {
                continue;
            }
            self.wait(wants_input, !unsent.is_empty(), wake_at);
        }
    }

    fn now(&self) -> Mono {
        self.client.clock().mono()
    }

    /// Answers one request. The machine is not held meanwhile: the gateway may narrate before it has answered.
    fn answer(&self, asked: Asked) {
        let Asked { ticket, request } = asked;
        let answer = match request {
            Request::Status => {
                let gateway = if self.front.is_dispatcher_there() { "ok" } else { "dispatcher_missing" };
                let dispatcher_agent = self.front.dispatcher().to_owned();
                Answer::Status(Status { daemon: "ok", dispatcher_agent, gateway })
            }
            Request::Commands => Answer::Commands(self.front.catalog()),
            Request::Send { session, text } => {
                let sink = Arc::new(ClientSink::new(Arc::clone(&self.client), ticket));
                let actor = self.actor;
                match self.front.submit(Trigger { source: SOURCE, session, text, actor, sink }) {
                    Ok(()) => Answer::Accepted,
                    Err(refusal) => Answer::Refused(refused(refusal)),
                }
            }
        };
        let now = self.now();
        self.client.machine().answer(ticket, &answer, now);
    }

    /// Writes what the client takes; answers whether that was anything, or it turned out that it never will.
    fn flush(&mut self, unsent: &mut Vec<u8>) -> bool {
        let mut sent = 0;
        let mut is_deaf = false;
        while sent < unsent.len() {
            match self.stream.write(&unsent[sent..]) {
                Ok(n) => sent += n,
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => break,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    is_deaf = true;
                    break;
                }
            }
        }
        if sent == 0 && !is_deaf {
            return false;
        }
        let now = self.now();
        let input = if is_deaf {
            unsent.clear();
            Input::Deaf
        } else {
            unsent.drain(..sent);
            Input::Sent(sent)
        };
        if unsent.is_empty() {
            unsent.shrink_to(READ);
        }
        self.client.machine().handle(input, now);
        self.client.tell_runs();
        true
    }

    /// Waits until something happens, and tells the machine what.
    fn wait(&mut self, wants_input: bool, has_unsent: bool, wake_at: Option<Mono>) {
        let mut wants = PollFlags::empty();
        wants.set(PollFlags::IN, wants_input);
        wants.set(PollFlags::OUT, has_unsent);
        let timeout = wake_at.map(|at| timespec(at.since(self.now())));
        let wake = self.client.wake();
        let mut fds = [PollFd::new(&self.stream, wants), PollFd::new(wake, PollFlags::IN)];
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return; // interrupted: it is looked at again
        }
        let (stream, woken) = (fds[0].revents(), !fds[1].revents().is_empty());
        if woken {
            wake.clear();
        }
        if stream.contains(PollFlags::IN) {
            self.read();
        } else if stream.intersects(PollFlags::HUP | PollFlags::ERR) {
            self.deserted();
        }
    }

    fn read(&mut self) {
        let mut bytes = [0; READ];
        let read = self.stream.read(&mut bytes);
        let now = self.now();
        match read {
            Ok(0) => self.client.machine().handle(Input::End, now),
            Ok(n) => self.client.machine().handle(Input::Bytes(&bytes[..n]), now),
            Err(err) if matches!(err.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => {
                self.deserted();
                self.client.machine().handle(Input::End, now);
            }
        }
    }

    /// The client has closed its socket. What it sent before is still read, up to its end.
    fn deserted(&self) {
        let now = self.now();
        self.client.machine().handle(Input::Deaf, now);
        self.client.tell_runs();
    }

    /// Reads what still comes, and drops it. A socket that is closed before would cost the client its last frames, or
    /// end it with a signal.
    fn linger(&mut self) {
        let until = self.now() + LINGER;
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut bytes = [0; READ];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => {
                    let left = timespec(until.since(self.now()));
                    let _ = poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&left));
                }
                Err(_) => return,
            }
            if self.now() >= until {
                return;
            }
        }
    }
}

/// Why the gateway does not take a message, as the client is told.
fn refused(refusal: Refusal) -> WireError {
    let code = match refusal {
        Refusal::RateLimited => Code::RateLimited,
        Refusal::SessionCap | Refusal::QueueFull | Refusal::Unavailable => Code::Internal,
    };
    WireError::new(code, refusal.to_string())
}

/// A wait for `poll`, never shorter than it should be.
fn timespec(wait: Duration) -> Timespec {
    let wait = wait.saturating_add(Duration::from_micros(999)).min(Duration::from_secs(3600));
    Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: i64::from(wait.subsec_nanos()) }
}
