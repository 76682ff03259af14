//! An adapter's end of one connection to `agent.sock`.

use super::{AdapterFrame, HostFrame, Register, VIA_SCREEN, decode_host};
use crate::clock::Mono;
use crate::limits;
use crate::proto::outputs::Outputs;
use crate::proto::wire::close;
use crate::proto::{Decoded, Input, Output};

/// What an adapter learns from its daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdapterEvent {
    /// The session has its place; once more when its name changes.
    Registered {
        /// The agent's name.
        agent: String,
        /// Its address.
        address: String,
        /// How often this session has registered.
        generation: u64,
    },
    /// The session has no place, and why; the connection closes.
    Refused {
        /// A stable word.
        code: String,
        /// One line for people.
        error: String,
    },
    /// An envelope for the session. It is answered with `ack` once it is durably visible there, else with `nak`.
    Deliver {
        /// The delivery; the same one may come again.
        id: String,
        /// The rendered transit/1 text.
        envelope: String,
    },
}

/// An adapter's end: the registration first, then deliveries and their answers. Without `Debug`: the capability is
/// nobody else's.
pub struct AdapterSide {
    out: Outputs<AdapterEvent>,
    started: Mono,
    /// What `registered` gave, and what every frame carries from then on.
    capability: Option<String>,
    /// What waits for it.
    held: Vec<AdapterFrame>,
}

impl AdapterSide {
    /// A connection that was just made; its first output is the registration.
    pub fn new(register: Register, now: Mono) -> Self {
        let mut out = Outputs::new();
        if !out.write(AdapterFrame::Register(register).encode()) {
            out.close(close::TOO_LONG, "frame_too_large");
        }
        Self { out, started: now, capability: None, held: Vec::new() }
    }

    /// Takes what happened.
    pub fn handle(&mut self, input: Input<'_>, now: Mono) {
        if self.out.is_closed() {
            return;
        }
        match input {
            Input::Text(line) => self.line(line),
            Input::Binary => self.out.close(close::INVALID, "invalid_json: a line is UTF-8"),
            Input::TooLong => self.out.close(close::INVALID, "frame_too_large"),
            Input::Sound => {}
            Input::Tick => self.out.woken(),
        }
        if self.next_deadline().is_some_and(|deadline| now >= deadline) {
            self.out.close(close::SILENT, "register was not answered");
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output<AdapterEvent>> {
        let next = self.next_deadline();
        self.out.poll(next)
    }

    /// Says that the envelope is durably visible in the session. Before the registration it waits.
    pub fn ack(&mut self, id: &str) {
        let capability = String::new();
        self.say(AdapterFrame::DeliverAck { id: id.to_owned(), persisted: true, via: None, capability });
    }

    /// Says that the envelope was typed and that the terminal has shown it, which is all that is known. Before the
    /// registration it waits.
    pub fn seen(&mut self, id: &str) {
        let (via, capability) = (Some(VIA_SCREEN.to_owned()), String::new());
        self.say(AdapterFrame::DeliverAck { id: id.to_owned(), persisted: true, via, capability });
    }

    /// Says that the envelope did not get into the session. Before the registration it waits.
    pub fn nak(&mut self, id: &str, code: &str, retryable: bool) {
        let (id, code, capability) = (id.to_owned(), Some(code.to_owned()), String::new());
        self.say(AdapterFrame::DeliverNak { id, code, retryable, capability });
    }

    /// Says what the session is doing; a sign of life. Before the registration it waits.
    pub fn status(&mut self, status: &str) {
        self.say(AdapterFrame::Status { status: status.to_owned(), capability: String::new() });
    }

    /// Gives a sign of life, so that the daemon goes on waiting for an answer. Before the registration there is
    /// nobody who waits.
    pub fn alive(&mut self) {
        if self.capability.is_some() {
            self.say(AdapterFrame::Pong { capability: String::new() });
        }
    }

    /// Ends the connection.
    pub fn close(&mut self) {
        self.out.close(close::GOING_AWAY, "closed");
    }

    fn line(&mut self, line: &str) {
        match decode_host(line) {
            Decoded::Frame(frame) => self.frame(frame),
            Decoded::Unknown => {}
            Decoded::Malformed(malformed) => self.out.close(close::INVALID, &malformed.to_string()),
        }
    }

    fn frame(&mut self, frame: HostFrame) {
        match frame {
            HostFrame::Registered { agent, address, generation, capability } => {
                self.capability = Some(capability);
                self.out.event(AdapterEvent::Registered { agent, address, generation });
                for frame in std::mem::take(&mut self.held) {
                    self.say(frame);
                }
            }
            HostFrame::RegisterErr { code, error } => {
                let reason = format!("refused: {code}");
                self.out.event(AdapterEvent::Refused { code, error });
                self.out.close(close::INVALID, &reason);
            }
            HostFrame::Deliver { id, envelope } if self.capability.is_some() => {
                self.out.event(AdapterEvent::Deliver { id, envelope });
            }
            HostFrame::Deliver { .. } => {
                self.out.close(close::INVALID, "invalid_frame: registered must come first");
            }
            HostFrame::Ping => self.alive(),
        }
    }

    fn say(&mut self, frame: AdapterFrame) {
        match &self.capability {
            Some(capability) => {
                self.out.write(with_capability(frame, capability.clone()).encode());
            }
            None if self.out.is_closed() => {}
            None => self.held.push(frame),
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        self.capability.is_none().then(|| self.started + limits::ADAPTER_WAIT)
    }
}

fn with_capability(mut frame: AdapterFrame, capability: String) -> AdapterFrame {
    match &mut frame {
        AdapterFrame::DeliverAck { capability: place, .. }
        | AdapterFrame::DeliverNak { capability: place, .. }
        | AdapterFrame::Status { capability: place, .. }
        | AdapterFrame::Pong { capability: place } => *place = capability,
        AdapterFrame::Register(_) => {}
    }
    frame
}
