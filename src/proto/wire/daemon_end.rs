//! The daemon's end of one transit-wire/1 connection.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::{AgentInfo, DaemonFrame, NakCode, PROTO, RpcError, SendFrame, WorkerFrame, close, decode_worker};
use crate::clock::{Bucket, Mono};
use crate::limits;
use crate::proto::agent::VIA_SCREEN;
use crate::proto::outputs::Outputs;
use crate::proto::{Decoded, Input, Output};
use crate::text;

/// Most code points of a code that comes from elsewhere: for a `deliver_nak`, and of a `hello_err`.
const CODE_RUNES: usize = 64;
/// Most code points of each text of an agent once a roster would not fit its frame.
const ROSTER_RUNES: usize = 256;
/// The Worker closes a socket that sends more than [`limits::FRAME_RATE`]. We stay well below it, because frames
/// that left at their pace may arrive closer together, and heartbeats are not counted here.
const PACE_RATE: u32 = limits::FRAME_RATE * 4 / 5;
const PACE_BURST: u32 = limits::FRAME_BURST * 4 / 5;
/// Shortest wait for the pace: rounding must not make it nothing.
const PACE_WAIT: Duration = Duration::from_millis(1);
/// Unanswered heartbeats after which the connection is given up.
const MISSED_BEATS: u32 = 2;

/// Who the daemon is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonConfig {
    /// The host that the device token was issued for.
    pub host: String,
    /// The daemon's version, for people.
    pub daemon_ver: String,
}

/// What the daemon learns from its Worker.
#[derive(Debug, Clone, PartialEq)]
pub enum DaemonEvent {
    /// The hello was good; what was queued is being sent.
    Ready {
        /// The host's id at the Worker.
        host_id: String,
        /// The organisation's slug.
        org: String,
    },
    /// The hello was not good, and why; the connection closes.
    Refused {
        /// A stable word, such as `host_mismatch`; the beginning of a long one.
        code: String,
    },
    /// A delivery for one agent. It is answered with `deliver_ack` or `deliver_nak`, on this connection or a
    /// later one.
    Deliver {
        /// With `agent`, what tells duplicates apart.
        id: String,
        /// The recipient's name on this host.
        agent: String,
        /// The rendered transit/1 text.
        envelope: String,
    },
    /// The Worker has committed a message.
    SendAck {
        /// The message.
        id: String,
    },
    /// The Worker has not taken a message.
    SendNak {
        /// The message.
        id: String,
        /// Why; [`NakCode::is_permanent`] says whether another attempt is worth it.
        code: NakCode,
    },
    /// A call has its answer. Each call gets exactly one.
    RpcResult {
        /// The name that [`DaemonEnd::rpc`] was given.
        rid: String,
        /// The answer, or why there is none.
        result: Result<Value, RpcError>,
    },
}

/// A frame that waits for `hello_ok` or for its turn.
#[derive(Debug)]
struct Held {
    text: String,
    /// The call that it makes, if it makes one.
    rid: Option<String>,
}

/// The daemon's end: hello first, then the roster, then everything else in order, at the rate that the Worker
/// allows.
#[derive(Debug)]
pub struct DaemonEnd {
    out: Outputs<DaemonEvent>,
    ready: bool,
    /// The newest roster, if it was not sent yet; it goes before what is held.
    roster: Option<String>,
    held: VecDeque<Held>,
    pace: Bucket,
    /// When the next held frame may go, once the pace has run out.
    turn: Option<Mono>,
    /// Outstanding calls, and when each is given up.
    calls: BTreeMap<String, Mono>,
    started: Mono,
    now: Mono,
    heard: Mono,
    /// When the next `pong` is due, and how many were not answered.
    beat: Mono,
    unanswered: u32,
}

impl DaemonEnd {
    /// A connection that was just opened; its first output is the hello.
    pub fn new(config: DaemonConfig, now: Mono) -> Self {
        let DaemonConfig { host, daemon_ver } = config;
        let mut out = Outputs::new();
        out.write(DaemonFrame::Hello { proto: PROTO, daemon_ver, host }.encode());
        Self {
            out,
            ready: false,
            roster: None,
            held: VecDeque::new(),
            pace: Bucket::new(PACE_RATE, PACE_BURST, now),
            turn: None,
            calls: BTreeMap::new(),
            started: now,
            now,
            heard: now,
            beat: now,
            unanswered: 0,
        }
    }

    /// Takes what happened.
    pub fn handle(&mut self, input: Input<'_>, now: Mono) {
        if self.out.is_closed() {
            return;
        }
        self.now = self.now.max(now);
        if input == Input::Tick {
            self.out.woken();
        } else {
            self.heard = self.now;
        }
        match input {
            Input::Text(text) => self.text(text),
            Input::Binary => self.close(close::NOT_TEXT, "text frames required"),
            Input::TooLong => self.close(close::TOO_LONG, "frame_too_large"),
            Input::Sound | Input::Tick => {}
        }
        self.time();
        self.release();
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output<DaemonEvent>> {
        let next = self.next_deadline();
        self.out.poll(Some(next))
    }

    /// Whether the Worker has taken the hello.
    pub fn is_ready(&self) -> bool {
        self.ready && !self.out.is_closed()
    }

    /// Frames that wait for `hello_ok` or for their turn. An owner with much to send waits until there are few.
    pub fn backlog(&self) -> usize {
        self.held.len()
    }

    /// Tells the Worker all agents of this host. Only the newest roster is kept until it can be sent; it is the
    /// first frame after `hello_ok`. One that no frame can hold is shortened: first the texts, then the list.
    pub fn roster(&mut self, agents: Vec<AgentInfo>) {
        self.roster = Some(fitting_roster(agents));
        self.release();
    }

    /// Sends a message. One that no frame can hold is answered at once with `body_too_large`.
    pub fn send(&mut self, message: SendFrame) {
        let id = message.id.clone();
        if !self.say(&DaemonFrame::Send(message), None) {
            self.out.event(DaemonEvent::SendNak { id, code: NakCode::BodyTooLarge });
        }
    }

    /// Says that a delivery is durably in its agent's session.
    pub fn deliver_ack(&mut self, id: &str, agent: &str) {
        self.ack(id, agent, None);
    }

    /// Says that a terminal has shown a delivery, which is all that is known of it. A Worker that does not know the
    /// difference takes it as settled all the same.
    pub fn deliver_seen(&mut self, id: &str, agent: &str) {
        self.ack(id, agent, Some(VIA_SCREEN.to_owned()));
    }

    fn ack(&mut self, id: &str, agent: &str, via: Option<String>) {
        let (id, agent) = (id.to_owned(), Some(agent.to_owned()));
        self.say(&DaemonFrame::DeliverAck { id, agent, via }, None);
    }

    /// Says that a delivery did not reach its agent.
    pub fn deliver_nak(&mut self, id: &str, agent: &str, code: &str, retryable: bool) {
        let (id, agent) = (id.to_owned(), Some(agent.to_owned()));
        let code = text::clip(code, CODE_RUNES).to_owned();
        self.say(&DaemonFrame::DeliverNak { id, agent, code, retryable }, None);
    }

    /// Calls a method of the Worker. `rid` must not name a call that is still outstanding. The answer is one
    /// [`DaemonEvent::RpcResult`]: the Worker's; `too_many` when [`limits::RPC_OUTSTANDING`] calls wait already;
    /// `bad_params` when no frame can hold the call; `rpc_error` when none came within [`limits::RPC_WAIT`] or
    /// the connection ended.
    pub fn rpc(&mut self, rid: String, method: &str, params: Value, now: Mono) {
        self.now = self.now.max(now);
        if self.out.is_closed() {
            return; // nobody polls for the answer any more
        }
        if self.calls.len() >= limits::RPC_OUTSTANDING {
            let text = format!("{} calls are waiting for the Worker already", limits::RPC_OUTSTANDING);
            return self.failed(rid, "too_many", text);
        }
        let frame = DaemonFrame::Rpc { rid: rid.clone(), method: method.to_owned(), params };
        if self.say(&frame, Some(&rid)) {
            self.calls.insert(rid, self.now + limits::RPC_WAIT);
        } else {
            self.failed(rid, "bad_params", "the call is longer than a frame may be");
        }
    }

    /// Ends the connection; calls that still wait are answered with `rpc_error` first. Also what to say when the
    /// peer has ended it.
    pub fn close(&mut self, code: u16, reason: &str) {
        for (rid, _) in std::mem::take(&mut self.calls) {
            self.failed(rid, "rpc_error", "the connection to the Worker ended");
        }
        self.out.close(code, reason);
    }

    /// Queues a frame; answers whether a frame can hold it.
    fn say(&mut self, frame: &DaemonFrame, rid: Option<&str>) -> bool {
        let text = frame.encode();
        let fits = text.len() <= limits::FRAME_BYTES;
        if fits && !self.out.is_closed() {
            self.held.push_back(Held { text, rid: rid.map(str::to_owned) });
            self.release();
        }
        fits
    }

    /// Sends what is held, as far as the pace allows.
    fn release(&mut self) {
        self.turn = None;
        while self.ready && (self.roster.is_some() || !self.held.is_empty()) {
            if let Err(wait) = self.pace.take(self.now) {
                self.turn = Some(self.now + wait.max(PACE_WAIT));
                return;
            }
            let next = self.roster.take().or_else(|| self.held.pop_front().map(|held| held.text));
            if let Some(text) = next {
                self.out.write(text);
            }
        }
    }

    fn text(&mut self, text: &str) {
        match decode_worker(text) {
            Decoded::Frame(frame) if self.ready => self.frame(frame),
            Decoded::Frame(frame) => self.first(frame),
            Decoded::Unknown => {}
            Decoded::Malformed(malformed) => self.close(malformed.close_code(), &malformed.to_string()),
        }
    }

    fn first(&mut self, frame: WorkerFrame) {
        match frame {
            WorkerFrame::HelloOk { host_id, org } => {
                self.ready = true;
                self.beat = self.now + limits::HEARTBEAT;
                self.out.event(DaemonEvent::Ready { host_id, org });
            }
            WorkerFrame::HelloErr { code } => self.refused(code),
            _ => self.close(close::INVALID, "invalid_frame: hello_ok must come first"),
        }
    }

    fn frame(&mut self, frame: WorkerFrame) {
        match frame {
            WorkerFrame::Deliver { id, agent, envelope } => {
                self.out.event(DaemonEvent::Deliver { id, agent, envelope });
            }
            WorkerFrame::SendAck { id } => self.out.event(DaemonEvent::SendAck { id }),
            WorkerFrame::SendNak { id, code } => self.out.event(DaemonEvent::SendNak { id, code }),
            WorkerFrame::RpcResult { rid, result, error } => self.answered(rid, result, error),
            WorkerFrame::Ping => self.unanswered = 0,
            WorkerFrame::HelloErr { code } => self.refused(code),
            WorkerFrame::HelloOk { .. } => {}
        }
    }

    fn refused(&mut self, code: String) {
        let code = text::clip(&code, CODE_RUNES).to_owned();
        let reason = format!("refused: {code}");
        self.out.event(DaemonEvent::Refused { code });
        self.close(close::INVALID, &reason);
    }

    /// An answer to a call that was given up, or never made, is of no interest.
    fn answered(&mut self, rid: String, result: Option<Value>, error: Option<RpcError>) {
        if self.calls.remove(&rid).is_some() {
            let result = error.map_or_else(|| Ok(result.unwrap_or(Value::Null)), Err);
            self.out.event(DaemonEvent::RpcResult { rid, result });
        }
    }

    fn failed(&mut self, rid: String, code: &str, text: impl Into<String>) {
        self.out.event(DaemonEvent::RpcResult { rid, result: Err(RpcError::new(code, text)) });
    }

    /// What is due by time alone.
    fn time(&mut self) {
        self.give_up_calls();
        if !self.ready {
            if self.now >= self.hello_deadline() {
                self.close(close::SILENT, "no hello_ok");
            }
        } else if self.now >= self.heard + limits::SILENCE {
            self.close(close::SILENT, "the Worker is silent");
        } else if self.now >= self.beat {
            self.beat();
        }
    }

    fn beat(&mut self) {
        if self.unanswered >= MISSED_BEATS {
            return self.close(close::SILENT, "two heartbeats were not answered");
        }
        self.out.write(DaemonFrame::Pong.encode());
        self.unanswered += 1;
        self.beat = self.now + limits::HEARTBEAT;
    }

    fn give_up_calls(&mut self) {
        let late = self.calls.iter().filter(|&(_, &at)| self.now >= at);
        for rid in late.map(|(rid, _)| rid.clone()).collect::<Vec<_>>() {
            self.calls.remove(&rid);
            self.held.retain(|held| held.rid.as_ref() != Some(&rid));
            let text = format!("no answer within {} s", limits::RPC_WAIT.as_secs());
            self.failed(rid, "rpc_error", text);
        }
    }

    /// The hello is the first heartbeat: its answer may be missed as long as that of a `pong`.
    fn hello_deadline(&self) -> Mono {
        self.started + limits::HEARTBEAT * MISSED_BEATS
    }

    fn next_deadline(&self) -> Mono {
        let own = match self.ready {
            true => self.beat.min(self.heard + limits::SILENCE),
            false => self.hello_deadline(),
        };
        self.calls.values().copied().chain(self.turn).fold(own, Mono::min)
    }
}

fn fitting_roster(mut agents: Vec<AgentInfo>) -> String {
    let text = DaemonFrame::Roster { agents: agents.clone() }.encode();
    if text.len() <= limits::FRAME_BYTES {
        return text;
    }
    for agent in &mut agents {
        let AgentInfo { name, kind, pane_id, status, cwd, title, named_by: _ } = agent;
        for field in [name, kind, pane_id, status, cwd, title] {
            *field = text::clip(field, ROSTER_RUNES).to_owned();
        }
    }
    loop {
        let text = DaemonFrame::Roster { agents: agents.clone() }.encode();
        if text.len() <= limits::FRAME_BYTES {
            return text;
        }
        agents.truncate(agents.len() / 2);
    }
}
