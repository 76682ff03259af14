//! The Worker's end of one transit-wire/1 connection.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{AgentInfo, DaemonFrame, NakCode, PROTO, RpcError, SendFrame, WorkerFrame, close, decode_daemon};
use crate::clock::{Bucket, Mono};
use crate::limits;
use crate::proto::agent::VIA_SCREEN;
use crate::proto::outputs::Outputs;
use crate::proto::{Decoded, Input, Output};

/// Whom the device token belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    /// The host that the token was issued for; the hello must name it.
    pub host: String,
    /// The host's id.
    pub host_id: String,
    /// The organisation's slug.
    pub org: String,
}

/// What the Worker learns from a daemon.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerEvent {
    /// The hello was good, and `hello_ok` is on its way. Comes first, and once.
    Hello {
        /// The daemon's version, for people.
        daemon_ver: String,
    },
    /// All agents of the host; it replaces the roster before it.
    Roster(Vec<AgentInfo>),
    /// A message. It is answered with `send_ack` once it is committed, or with `send_nak`.
    Send(SendFrame),
    /// A delivery is durably in its agent's session, or its terminal has shown it.
    DeliverAck {
        /// The id of the deliver frame.
        id: String,
        /// Its agent; an older daemon does not say.
        agent: Option<String>,
        /// All that is known is that the terminal has shown it.
        is_only_seen: bool,
    },
    /// A delivery did not reach its agent.
    DeliverNak {
        /// The id of the deliver frame.
        id: String,
        /// Its agent; an older daemon does not say.
        agent: Option<String>,
        /// Why, as a stable word.
        code: String,
        /// Whether it is worth another attempt.
        retryable: bool,
    },
    /// A tool call. It is answered with `rpc_result`.
    Rpc {
        /// The daemon's name of the call.
        rid: String,
        /// The method.
        method: String,
        /// Its parameters, with the caller that the daemon has put in.
        params: Value,
    },
}

/// The Worker's end: a good hello first, then whatever the daemon says, at the rate it is allowed.
#[derive(Debug)]
pub struct WorkerEnd {
    config: WorkerConfig,
    out: Outputs<WorkerEvent>,
    ready: bool,
    /// What waits for `hello_ok`.
    held: Vec<String>,
    /// Outstanding calls, and when each is given up.
    calls: BTreeMap<String, Mono>,
    rate: Bucket,
    started: Mono,
    heard: Mono,
}

impl WorkerEnd {
    /// A connection whose upgrade just succeeded with a valid token.
    pub fn new(config: WorkerConfig, now: Mono) -> Self {
        Self {
            config,
            out: Outputs::new(),
            ready: false,
            held: Vec::new(),
            calls: BTreeMap::new(),
            rate: Bucket::new(limits::FRAME_RATE, limits::FRAME_BURST, now),
            started: now,
            heard: now,
        }
    }

    /// The same connection with another frame rate: `rate` a second, `burst` at once.
    #[must_use]
    pub fn with_frame_rate(self, rate: u32, burst: u32, now: Mono) -> Self {
        Self { rate: Bucket::new(rate, burst, now), ..self }
    }

    /// Takes what happened.
    pub fn handle(&mut self, input: Input<'_>, now: Mono) {
        if self.out.is_closed() {
            return;
        }
        if input == Input::Tick {
            self.out.woken();
        } else {
            self.heard = self.heard.max(now);
        }
        let is_frame = !matches!(input, Input::Sound | Input::Tick);
        if is_frame && self.rate.take(now).is_err() {
            return self.out.close(close::RATE, "rate_limited");
        }
        match input {
            Input::Text(text) => self.text(text, now),
            Input::Binary => self.out.close(close::NOT_TEXT, "text frames required"),
            Input::TooLong => self.out.close(close::TOO_LONG, "frame_too_large"),
            Input::Sound | Input::Tick => {}
        }
        self.time(now);
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output<WorkerEvent>> {
        let next = self.next_deadline();
        self.out.poll(Some(next))
    }

    /// Whether the hello was good.
    pub fn is_ready(&self) -> bool {
        self.ready && !self.out.is_closed()
    }

    /// Delivers an envelope to one agent of the host; before the hello it waits. One that no frame can hold is
    /// answered at once by a `DeliverNak` with `frame_too_large`, not retryable.
    pub fn deliver(&mut self, id: &str, agent: &str, envelope: String) {
        let frame = WorkerFrame::Deliver { id: id.to_owned(), agent: agent.to_owned(), envelope };
        if !self.say(&frame) {
            let (id, agent) = (id.to_owned(), Some(agent.to_owned()));
            let code = "frame_too_large".to_owned();
            self.out.event(WorkerEvent::DeliverNak { id, agent, code, retryable: false });
        }
    }

    /// Says that a message and its deliveries are committed.
    pub fn send_ack(&mut self, id: &str) {
        self.say(&WorkerFrame::SendAck { id: id.to_owned() });
    }

    /// Says that a message was not taken.
    pub fn send_nak(&mut self, id: &str, code: NakCode) {
        self.say(&WorkerFrame::SendNak { id: id.to_owned(), code });
    }

    /// Answers a call. A result that no frame can hold becomes an error. A call that is not outstanding any more
    /// was answered already, by time.
    pub fn rpc_result(&mut self, rid: &str, result: Result<Value, RpcError>) {
        if self.calls.remove(rid).is_none() {
            return;
        }
        let (result, error) = match result {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        if !self.say(&WorkerFrame::RpcResult { rid: rid.to_owned(), result, error }) {
            self.failed(rid, "rpc_error", "the result is longer than a frame may be");
        }
    }

    /// Ends the connection.
    pub fn close(&mut self, code: u16, reason: &str) {
        self.out.close(code, reason);
    }

    /// Takes a frame that comes after [`close`](Self::close): only what answers a delivery. It was given before the peer
    /// knew of the end, and is given once; everything else is asked again on the next connection.
    pub fn late(&mut self, text: &str, now: Mono) -> Option<WorkerEvent> {
        if !self.ready || self.rate.take(now).is_err() {
            return None;
        }
        match decode_daemon(text) {
            Decoded::Frame(frame) => answered(frame),
            Decoded::Unknown | Decoded::Malformed(_) => None,
        }
    }

    /// Queues a frame now or for after `hello_ok`; answers whether a frame can hold it.
    fn say(&mut self, frame: &WorkerFrame) -> bool {
        let text = frame.encode();
        if self.ready {
            return self.out.write(text);
        }
        let fits = text.len() <= limits::FRAME_BYTES;
        if fits && !self.out.is_closed() {
            self.held.push(text);
        }
        fits
    }

    fn text(&mut self, text: &str, now: Mono) {
        match decode_daemon(text) {
            Decoded::Frame(DaemonFrame::Hello { proto, daemon_ver, host }) => {
                self.hello(proto, daemon_ver, &host);
            }
            Decoded::Frame(frame) if self.ready => self.frame(frame, now),
            Decoded::Frame(_) => self.refuse("hello_required", close::INVALID, "hello required"),
            Decoded::Unknown => {}
            Decoded::Malformed(malformed) => {
                self.out.close(malformed.close_code(), &malformed.to_string());
            }
        }
    }

    /// A second hello is answered as the first one was, without an event.
    fn hello(&mut self, proto: u64, daemon_ver: String, host: &str) {
        if proto != PROTO {
            return self.refuse("unsupported_proto", close::INVALID, "invalid_frame: unsupported_proto");
        }
        if host != self.config.host {
            return self.refuse("host_mismatch", close::HOST_MISMATCH, "host mismatch");
        }
        let WorkerConfig { host_id, org, .. } = self.config.clone();
        self.out.write(WorkerFrame::HelloOk { host_id, org }.encode());
        if !self.ready {
            self.ready = true;
            self.out.event(WorkerEvent::Hello { daemon_ver });
            for text in std::mem::take(&mut self.held) {
                self.out.write(text);
            }
        }
    }

    fn refuse(&mut self, code: &str, close: u16, reason: &str) {
        self.out.write(WorkerFrame::HelloErr { code: code.to_owned() }.encode());
        self.out.close(close, reason);
    }

    fn frame(&mut self, frame: DaemonFrame, now: Mono) {
        match frame {
            DaemonFrame::Roster { agents } => self.out.event(WorkerEvent::Roster(agents)),
            DaemonFrame::Send(message) => self.out.event(WorkerEvent::Send(message)),
            DaemonFrame::DeliverAck { .. } | DaemonFrame::DeliverNak { .. } => {
                answered(frame).into_iter().for_each(|event| self.out.event(event));
            }
            DaemonFrame::Rpc { rid, method, params } => self.rpc(rid, method, params, now),
            DaemonFrame::Pong => {
                self.out.write(WorkerFrame::Ping.encode());
            }
            DaemonFrame::Hello { proto, daemon_ver, host } => self.hello(proto, daemon_ver, &host),
        }
    }

    fn rpc(&mut self, rid: String, method: String, params: Value, now: Mono) {
        if rid.len() > limits::RID_BYTES {
            return self.out.close(close::INVALID, "invalid_frame: rid is too long");
        }
        if self.calls.contains_key(&rid) {
            return; // the one answer that is on its way is an answer to both
        }
        if self.calls.len() >= limits::RPC_OUTSTANDING {
            let text = format!("{} calls of this socket wait already", limits::RPC_OUTSTANDING);
            return self.failed(&rid, "too_many", text);
        }
        self.calls.insert(rid.clone(), now + limits::RPC_WAIT);
        self.out.event(WorkerEvent::Rpc { rid, method, params });
    }

    fn failed(&mut self, rid: &str, code: &str, text: impl Into<String>) {
        let error = Some(RpcError::new(code, text));
        self.say(&WorkerFrame::RpcResult { rid: rid.to_owned(), result: None, error });
    }

    /// What is due by time alone.
    fn time(&mut self, now: Mono) {
        self.give_up_calls(now);
        if !self.ready && now >= self.started + limits::HELLO_WAIT {
            self.refuse("hello_required", close::INVALID, "hello required");
        } else if now >= self.heard + limits::SILENCE {
            self.out.close(close::SILENT, "the daemon is silent");
        }
    }

    fn give_up_calls(&mut self, now: Mono) {
        let late: Vec<String> =
            self.calls.iter().filter(|&(_, &at)| now >= at).map(|(rid, _)| rid.clone()).collect();
        for rid in late {
            self.calls.remove(&rid);
            self.failed(&rid, "rpc_error", format!("no answer within {} s", limits::RPC_WAIT.as_secs()));
        }
    }

    fn next_deadline(&self) -> Mono {
        let own = match self.ready {
            true => self.heard + limits::SILENCE,
            false => self.started + limits::HELLO_WAIT,
        };
        self.calls.values().copied().fold(own, Mono::min)
    }
}

/// What a frame that answers a delivery says.
fn answered(frame: DaemonFrame) -> Option<WorkerEvent> {
    match frame {
        DaemonFrame::DeliverAck { id, agent, via } => {
            let is_only_seen = via.as_deref() == Some(VIA_SCREEN);
            Some(WorkerEvent::DeliverAck { id, agent, is_only_seen })
        }
        DaemonFrame::DeliverNak { id, agent, code, retryable } => {
            Some(WorkerEvent::DeliverNak { id, agent, code, retryable })
        }
        _ => None,
    }
}
