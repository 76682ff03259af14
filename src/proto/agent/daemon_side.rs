//! The daemon's end of one connection on `agent.sock`.

use std::collections::BTreeMap;
use std::time::Duration;

use subtle::ConstantTimeEq;

use super::frames::carried;
use super::{AdapterFrame, HostFrame, PROTO, Register, VIA_SCREEN, decode_adapter};
use crate::addr::{Harness, Name};
use crate::clock::Mono;
use crate::limits;
use crate::proto::outputs::Outputs;
use crate::proto::wire::close;
use crate::proto::{Decoded, Input, Malformed, Output};
use crate::text;

/// Most code points of a refusal code that an adapter may choose.
const CODE_RUNES: usize = 64;
/// Longest session id, in bytes.
const SESSION_BYTES: usize = 512;

/// Who is at the other end of the socket, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerProcess {
    /// The process id; 0 when it lives in another pid namespace and cannot be seen.
    pub pid: u32,
    /// Its pid in its own pid namespace, which is the one that it knows; the same as `pid` outside of containers.
    pub own: u32,
}

impl PeerProcess {
    /// Whether `pid` is what it calls itself.
    pub fn is_called(self, pid: u32) -> bool {
        self.pid == pid || self.own == pid
    }
}

/// What the daemon learns from an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DaemonSideEvent {
    /// A session asks for its place. Its form, version and pid are right; the owner answers with
    /// [`DaemonSide::registered`] or [`DaemonSide::refuse`].
    Register(Register),
    /// The envelope is durably in the session. May come late, after a `Nak` or for a delivery of an earlier
    /// connection: it still settles.
    Ack {
        /// The delivery.
        id: String,
        /// Only the terminal has shown it; whether the session keeps it is not known.
        is_only_seen: bool,
    },
    /// The envelope did not get into the session. At most one for each `deliver`.
    Nak {
        /// The delivery.
        id: String,
        /// The adapter's own word, or `adapter_timeout`, `adapter_ack_invalid`, `adapter_rejected`,
        /// `adapter_unavailable`, `frame_too_large`.
        code: String,
        /// Whether another attempt can succeed.
        retryable: bool,
    },
    /// The session's state, as [`status_word`] has it.
    Status(String),
    /// The session answered a ping.
    Alive,
}

/// Where the connection stands. Without `Debug`, as its owner: a capability is nobody else's.
enum Stage {
    /// Nothing has come yet.
    New,
    /// The owner decides about a registration.
    Asked,
    /// The session is registered.
    Registered { capability: String, next_ping: Mono },
}

/// An envelope that the adapter has not answered.
#[derive(Debug)]
struct Delivery {
    started: Mono,
    deadline: Mono,
}

impl Delivery {
    fn new(now: Mono) -> Self {
        Self { started: now, deadline: now + limits::ADAPTER_WAIT }
    }

    /// A sign of life keeps the daemon waiting, up to a limit.
    fn extend(&mut self, now: Mono) {
        let latest = self.started + limits::ADAPTER_WAIT_MAX;
        self.deadline = self.deadline.max((now + limits::ADAPTER_WAIT).min(latest));
    }
}

/// The daemon's end: one registration, then deliveries and signs of life.
pub struct DaemonSide {
    out: Outputs<DaemonSideEvent>,
    peer: PeerProcess,
    ancestors: Vec<PeerProcess>,
    started: Mono,
    stage: Stage,
    open: BTreeMap<String, Delivery>,
}

impl DaemonSide {
    /// A connection that was just accepted.
    pub fn new(peer: PeerProcess, now: Mono) -> Self {
        let (out, ancestors, open) = (Outputs::new(), Vec::new(), BTreeMap::new());
        Self { out, peer, ancestors, started: now, stage: Stage::New, open }
    }

    /// Lets the peer register for one of these as well: an adapter may be a child of the harness that it serves. The
    /// caller has seen to it that each is an ancestor of the peer and of the same user.
    pub fn with_ancestors(mut self, ancestors: Vec<PeerProcess>) -> Self {
        self.ancestors = ancestors;
        self
    }

    /// Takes what happened.
    pub fn handle(&mut self, input: Input<'_>, now: Mono) {
        if self.out.is_closed() {
            return;
        }
        match input {
            Input::Text(line) => self.line(line, now),
            Input::Binary => self.malformed("invalid_json: a line is UTF-8"),
            Input::TooLong => self.malformed("frame_too_large"),
            Input::Sound => {}
            Input::Tick => self.out.woken(),
        }
        self.time(now);
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output<DaemonSideEvent>> {
        let next = self.next_deadline();
        self.out.poll(next)
    }

    /// Takes the registration. `capability` is what every later frame of this adapter must carry.
    pub fn registered(&mut self, agent: &str, address: &str, generation: u64, capability: String, now: Mono) {
        let frame = HostFrame::Registered {
            agent: agent.to_owned(),
            address: address.to_owned(),
            generation,
            capability: capability.clone(),
        };
        self.out.write(frame.encode());
        self.stage = Stage::Registered { capability, next_ping: now + limits::AGENT_PING };
    }

    /// Tells the adapter its new name: `registered` once more, with the capability that it has. Nothing is said to one
    /// that is not registered.
    pub fn renamed(&mut self, agent: &str, address: &str, generation: u64) {
        let Stage::Registered { capability, .. } = &self.stage else { return };
        let frame = HostFrame::Registered {
            agent: agent.to_owned(),
            address: address.to_owned(),
            generation,
            capability: capability.clone(),
        };
        self.out.write(frame.encode());
    }

    /// Refuses the registration and ends the connection. `text` is one line for people.
    pub fn refuse(&mut self, code: &str, text: &str) {
        self.out.write(HostFrame::RegisterErr { code: code.to_owned(), error: text.to_owned() }.encode());
        self.end(code);
    }

    /// Hands an envelope to the session. One that is open already is not handed over again: both callers share
    /// the one outcome. Without a registration the outcome is `adapter_unavailable`.
    pub fn deliver(&mut self, id: &str, envelope: String, now: Mono) {
        if self.open.contains_key(id) {
            return;
        }
        if !matches!(self.stage, Stage::Registered { .. }) {
            return self.nak(id, "adapter_unavailable", true);
        }
        let frame = HostFrame::Deliver { id: id.to_owned(), envelope };
        if self.out.write(frame.encode()) {
            self.open.insert(id.to_owned(), Delivery::new(now));
        } else {
            self.nak(id, "frame_too_large", false);
        }
    }

    /// Forgets a delivery without an outcome. The adapter may already have begun with it; its ack still counts.
    pub fn cancel(&mut self, id: &str) {
        self.open.remove(id);
    }

    /// Ends the connection; what is open gets `adapter_unavailable` first. Also what to say when the adapter has
    /// ended it.
    pub fn close(&mut self) {
        self.end("closed");
    }

    fn end(&mut self, reason: &str) {
        for (id, _) in std::mem::take(&mut self.open) {
            self.nak(&id, "adapter_unavailable", true);
        }
        self.out.close(close::INVALID, reason);
    }

    fn malformed(&mut self, text: &str) {
        match self.stage {
            Stage::New => self.refuse("bad_request", text),
            Stage::Asked | Stage::Registered { .. } => self.end(text),
        }
    }

    fn line(&mut self, line: &str, now: Mono) {
        match (decode_adapter(line), &self.stage) {
            (Decoded::Unknown, _) => {}
            (Decoded::Malformed(Malformed::Frame(_)), Stage::Registered { capability, .. })
                if carried(line).is_some_and(|carried| !is_same(&carried, capability)) => {}
            (Decoded::Malformed(malformed), _) => self.malformed(&malformed.to_string()),
            (Decoded::Frame(AdapterFrame::Register(register)), Stage::New) => self.register(register),
            (Decoded::Frame(AdapterFrame::Register(_)), _) => {
                self.refuse("bad_request", "this connection has registered already");
            }
            (Decoded::Frame(_), Stage::New) => {
                self.refuse("register_required", "the first frame is register")
            }
            (Decoded::Frame(_), Stage::Asked) => {} // no capability was given yet, so it cannot be right
            (Decoded::Frame(frame), Stage::Registered { capability, .. }) => {
                if is_same(capability_of(&frame), capability) {
                    self.frame(frame, now);
                }
            }
        }
    }

    fn register(&mut self, register: Register) {
        match refusal(&register, self.peer, &self.ancestors) {
            Some((code, text)) => self.refuse(code, &text),
            None => {
                self.stage = Stage::Asked;
                self.out.event(DaemonSideEvent::Register(register));
            }
        }
    }

    fn frame(&mut self, frame: AdapterFrame, now: Mono) {
        match frame {
            AdapterFrame::DeliverAck { id, persisted: true, via, .. } => {
                self.open.remove(&id);
                let is_only_seen = via.as_deref() == Some(VIA_SCREEN);
                self.out.event(DaemonSideEvent::Ack { id, is_only_seen });
            }
            AdapterFrame::DeliverAck { id, .. } => self.rejected(&id, "adapter_ack_invalid", true),
            AdapterFrame::DeliverNak { id, code, retryable, .. } => {
                let code = code.filter(|code| !code.is_empty());
                self.rejected(&id, code.as_deref().unwrap_or("adapter_rejected"), retryable);
            }
            AdapterFrame::Status { status, .. } => {
                self.sign_of_life(now);
                self.out.event(DaemonSideEvent::Status(status_word(&status).to_owned()));
            }
            AdapterFrame::Pong { .. } => {
                self.sign_of_life(now);
                self.out.event(DaemonSideEvent::Alive);
            }
            AdapterFrame::Register(_) => {}
        }
    }

    /// A refusal of a delivery that is not open has had its outcome already.
    fn rejected(&mut self, id: &str, code: &str, retryable: bool) {
        if self.open.remove(id).is_some() {
            self.nak(id, code, retryable);
        }
    }

    fn nak(&mut self, id: &str, code: &str, retryable: bool) {
        let (id, code) = (id.to_owned(), text::clip(code, CODE_RUNES).to_owned());
        self.out.event(DaemonSideEvent::Nak { id, code, retryable });
    }

    fn sign_of_life(&mut self, now: Mono) {
        for delivery in self.open.values_mut() {
            delivery.extend(now);
        }
    }

    /// What is due by time alone.
    fn time(&mut self, now: Mono) {
        match &mut self.stage {
            Stage::New if now >= self.started + limits::HELLO_WAIT => {
                return self.refuse("register_required", &no_register(limits::HELLO_WAIT));
            }
            Stage::Registered { next_ping, .. } if now >= *next_ping => {
                *next_ping = now + limits::AGENT_PING;
                self.out.write(HostFrame::Ping.encode());
            }
            _ => {}
        }
        let late = self.open.iter().filter(|(_, delivery)| now >= delivery.deadline);
        for id in late.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.rejected(&id, "adapter_timeout", true);
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        let own = match self.stage {
            Stage::New => Some(self.started + limits::HELLO_WAIT),
            Stage::Asked => None,
            Stage::Registered { next_ping, .. } => Some(next_ping),
        };
        self.open.values().map(|delivery| delivery.deadline).chain(own).min()
    }
}

fn no_register(wait: Duration) -> String {
    format!("no register within {} s", wait.as_secs())
}

/// Compares capabilities in constant time.
fn is_same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

fn capability_of(frame: &AdapterFrame) -> &str {
    match frame {
        AdapterFrame::DeliverAck { capability, .. }
        | AdapterFrame::DeliverNak { capability, .. }
        | AdapterFrame::Status { capability, .. }
        | AdapterFrame::Pong { capability } => capability,
        AdapterFrame::Register(_) => "",
    }
}

/// Why a registration cannot stand whatever the daemon knows: a code and a line for people.
fn refusal(
    register: &Register,
    peer: PeerProcess,
    ancestors: &[PeerProcess],
) -> Option<(&'static str, String)> {
    if register.proto != PROTO {
        let text = format!("this daemon speaks transit-agent/1, not {}", register.proto);
        return Some(("unsupported_proto", text));
    }
    if peer.pid == 0 {
        return Some(("pid_not_visible", NOT_VISIBLE.to_owned()));
    }
    let is_its_own = peer.is_called(register.pid);
    if !is_its_own && !ancestors.iter().any(|ancestor| ancestor.is_called(register.pid)) {
        let text = format!(
            "the frame says pid {}, which is neither the socket's peer, pid {}, nor an ancestor of it",
            register.pid, peer.pid
        );
        return Some(("pid_mismatch", text));
    }
    if let Err(err) = register.harness.parse::<Harness>() {
        return Some(("unsupported_harness", err.to_string()));
    }
    let session = &register.session_id;
    if session.is_empty() || session.len() > SESSION_BYTES || session.contains(text::is_unsafe) {
        let text = format!("session_id is 1 to {SESSION_BYTES} bytes without control characters");
        return Some(("invalid_session", text));
    }
    let name = register.name.as_deref()?.parse::<Name>();
    name.err().map(|err| ("invalid_name", err.to_string()))
}

/// The word for a session's state, whatever word its harness has for it; one that is not known stands as it is.
pub fn status_word(status: &str) -> &str {
    match status {
        "busy" | "retry" => "working",
        "shell" => "idle",
        other => other,
    }
}

/// What a process is told whose pid cannot be seen, and what to do about it.
pub const NOT_VISIBLE: &str = "the daemon cannot see this process, because it runs in another pid namespace \
    (a container or a sandbox): run transitd inside it, or run the agent outside of it";
