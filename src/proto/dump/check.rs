//! Every frame of a dump against its protocol: each alone, through the decoder that the programs use, and in its
//! place among the others.
//!
//! What is remembered is bounded ([`REMEMBERED`]). An answer whose question may have been forgotten is not judged.

mod memory;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::line::{Kind, Line};
use super::record::{Proto, Way};
use crate::clock::Wall;
use crate::proto::agent::{self, AdapterFrame, HostFrame};
use crate::proto::control::{self, Call};
use crate::proto::wire::{self, DaemonFrame, WorkerFrame};
use crate::proto::{Decoded, Malformed};
pub use memory::REMEMBERED;
use memory::{Answer, Memory};

/// Connections of one dump that are told apart at a time.
const CONNECTIONS: usize = 1024;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// A rule is broken.
    Fault,
    /// Worth knowing, and allowed.
    Info,
}

/// One thing that was found about a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// The rule, as a stable word.
    pub rule: &'static str,
    /// One line for people. It holds text of peers as it is.
    pub text: String,
}

/// Where the conversation of one connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// Nothing is known: the dump may begin in its middle.
    #[default]
    Unknown,
    /// It was opened, or refused what was said, and nothing was said since.
    New,
    /// Something was said that comes too early, and that was told.
    Early,
    /// The first frame was said.
    Asked,
    /// It was answered.
    Ready,
}

#[derive(Debug, Default)]
struct Connection {
    stage: Stage,
    /// Tells it from the connections before it that had the same number.
    serial: u32,
    /// Frames that wait for the answer which every one of them gets: heartbeats, and calls of `transit.sock`.
    unanswered: u64,
}

/// The number that tells a line's connection from others.
fn number(line: &Line<'_>) -> u64 {
    line.conn().and_then(|conn| conn.json().parse().ok()).unwrap_or(1)
}

/// Checks the lines of a dump in their order; rotated files of one dump are one dump.
#[derive(Debug, Default)]
pub struct Checker {
    connections: BTreeMap<(Proto, u64), Connection>,
    serials: u32,
    deliveries: Memory,
    sends: Memory,
    calls: Memory,
    found: Vec<Finding>,
}

impl Checker {
    /// A checker that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at one line, and hands out what is to be said of it.
    pub fn check(&mut self, line: &Line<'_>) -> impl Iterator<Item = Finding> + '_ {
        self.found.clear();
        match line.kind() {
            Kind::Note => {
                self.record(line);
                self.note(line);
            }
            Kind::Frame => {
                self.record(line);
                self.frame(line);
            }
            Kind::Bare => self.frame(line),
        }
        self.found.drain(..)
    }

    /// Answers that were not judged, because what they answer may have been forgotten or was not recorded.
    pub fn unjudged(&self) -> u64 {
        self.deliveries.unjudged() + self.sends.unjudged() + self.calls.unjudged()
    }

    fn fault(&mut self, rule: &'static str, text: impl Into<String>) {
        self.found.push(Finding { level: Level::Fault, rule, text: text.into() });
    }

    fn info(&mut self, rule: &'static str, text: impl Into<String>) {
        self.found.push(Finding { level: Level::Info, rule, text: text.into() });
    }

    /// What every record has besides its frame.
    fn record(&mut self, line: &Line<'_>) {
        let is_time = |text: &str| text.contains('T') && Wall::parse(text).is_some();
        if !line.at().and_then(|at| at.text()).is_some_and(|text| is_time(&text)) {
            self.fault("bad_record", "at is no RFC 3339 time");
        }
        if !line.says_proto() {
            self.fault("bad_record", "no proto");
        }
        if !line.says_dir() {
            self.fault("bad_record", "no dir");
        } else if let Some(proto) = line.known_proto()
            && line.way().is_none()
        {
            let dir = line.dir().unwrap_or_default();
            self.fault("bad_record", format!("dir {dir} is no direction of {}", proto.name()));
        }
    }

    fn note(&mut self, line: &Line<'_>) {
        let note = line.field("note").and_then(|note| note.text()).unwrap_or_default();
        match &*note {
            "binary" if line.known_proto() == Some(Proto::Wire) => {
                self.fault("not_text", "a binary message; frames are text");
            }
            "not_utf8" => self.fault("not_text", "a frame is UTF-8"),
            "too_long" => self.fault("frame_too_large", "a frame is at most 1 MiB"),
            "open" => {
                if let Some(proto) = line.known_proto() {
                    self.keep(
                        (proto, number(line)),
                        Connection { stage: Stage::New, ..Connection::default() },
                    );
                }
            }
            "lost" => {
                for memory in [&mut self.deliveries, &mut self.sends, &mut self.calls] {
                    memory.lose();
                }
                self.info("lost", "records are missing; answers to frames before this are not judged");
            }
            "blind" => self.info("blind", "what follows this way was not understood, and is not here"),
            _ => {}
        }
    }

    fn frame(&mut self, line: &Line<'_>) {
        let Some((proto, way)) = self.place(line) else { return self.homeless(line) };
        let text = match line.frame().text() {
            // What was no JSON stands in its record as a text.
            Some(text) => text,
            None => line.frame().json().into(),
        };
        let number = number(line);
        let mut connection = self.connections.remove(&(proto, number)).unwrap_or_default();
        match (proto, way) {
            (Proto::Wire, Way::Forth) => {
                if let Some(frame) = self.decoded(wire::decode_daemon(&text), line, &WorkerFrame::KINDS) {
                    self.daemon(&mut connection, frame);
                }
            }
            (Proto::Wire, Way::Back) => {
                if let Some(frame) = self.decoded(wire::decode_worker(&text), line, &DaemonFrame::KINDS) {
                    self.worker(&mut connection, frame);
                }
            }
            (Proto::Agent, Way::Forth) => {
                if let Some(frame) = self.decoded(agent::decode_adapter(&text), line, &HostFrame::KINDS) {
                    self.adapter(&mut connection, frame, line.conn().is_some());
                }
            }
            (Proto::Agent, Way::Back) => {
                if let Some(frame) = self.decoded(agent::decode_host(&text), line, &AdapterFrame::KINDS) {
                    self.host(&mut connection, frame);
                }
            }
            (Proto::Control, way) => self.control(&mut connection, way, &text),
            (Proto::Api, way) => self.api(way, line),
        }
        self.keep((proto, number), connection);
    }

    fn keep(&mut self, key: (Proto, u64), connection: Connection) {
        if self.connections.len() >= CONNECTIONS {
            self.connections.pop_first();
        }
        self.connections.insert(key, connection);
    }

    /// Protocol and way of a frame. What comes without them, and may belong to two protocols, belongs to the one that
    /// is spoken here.
    fn place(&self, line: &Line<'_>) -> Option<(Proto, Way)> {
        let own = line.known_proto().zip(line.way());
        let Some(tag) = line.tag().and_then(|tag| tag.text()).filter(|_| line.kind() == Kind::Bare) else {
            return own;
        };
        let speaks = |proto| self.connections.keys().any(|(spoken, _)| *spoken == proto);
        let (own, way) = own?;
        let (wire, agent) = (speaks(Proto::Wire), speaks(Proto::Agent));
        match own {
            // What has an agent, a capability or `persisted` has told already whose it is.
            Proto::Agent if &*tag == "deliver" && wire && !agent => Some((Proto::Wire, way)),
            Proto::Wire if agent && !wire && is_agents(&tag) => Some((Proto::Agent, way)),
            own => Some((own, way)),
        }
    }

    /// A frame whose protocol is not ours, or cannot be told.
    fn homeless(&mut self, line: &Line<'_>) {
        match (line.says_proto(), line.tag().and_then(|tag| tag.text())) {
            (true, _) if line.known_proto().is_some() => {} // its dir is wrong, which was told
            (true, _) => self.info("unknown_proto", "a protocol that is not checked"),
            (false, Some(tag)) => {
                self.info("unknown_t", format!("t {tag} is of no protocol that is known here"))
            }
            (false, None) => self.fault("invalid_frame", "no t"),
        }
    }

    fn decoded<F>(&mut self, decoded: Decoded<F>, line: &Line<'_>, other: &[&str]) -> Option<F> {
        match decoded {
            Decoded::Frame(frame) => return Some(frame),
            Decoded::Unknown => {
                let tag = line.tag().and_then(|tag| tag.text()).unwrap_or_default();
                if other.contains(&&*tag) {
                    self.fault(
                        "wrong_direction",
                        format!("{tag} never goes {}", line.dir().unwrap_or_default()),
                    );
                } else {
                    self.info("unknown_t", format!("t {tag} is not known; it is ignored"));
                }
            }
            Decoded::Malformed(malformed) => {
                let text = match &malformed {
                    Malformed::Json(why) | Malformed::Frame(why) => why.clone(),
                    Malformed::TooLong => "a frame is at most 1 MiB".to_owned(),
                };
                self.fault(malformed.code(), text);
            }
        }
        None
    }

    fn begin(&mut self, connection: &mut Connection) {
        self.serials += 1;
        *connection = Connection { stage: Stage::Asked, serial: self.serials, unanswered: 0 };
    }

    /// What may come only from a stage on. One that comes too early is told, those after it are not.
    fn needs(&mut self, connection: &mut Connection, stage: Stage, rule: &'static str, text: &str) {
        match (connection.stage, stage) {
            (Stage::Unknown, _) => {
                self.info(
                    rule,
                    format!("{text}, and is not here: the dump begins later than the connection"),
                );
            }
            (Stage::New, _) | (Stage::Asked, Stage::Ready) => self.fault(rule, text),
            _ => return,
        }
        connection.stage = Stage::Early;
    }

    fn daemon(&mut self, connection: &mut Connection, frame: DaemonFrame) {
        let is_hello = matches!(frame, DaemonFrame::Hello { .. });
        if !is_hello {
            self.needs(connection, Stage::Asked, "hello_required", "the first frame is hello");
        }
        match frame {
            DaemonFrame::Hello { proto, .. } => {
                self.begin(connection);
                if proto != wire::PROTO {
                    self.fault(
                        "unsupported_proto",
                        format!("this is transit-wire/1, the hello says {proto}"),
                    );
                }
            }
            DaemonFrame::Send(message) => self.sends.asked(&["send", &message.id]),
            DaemonFrame::DeliverAck { id, agent, .. } => {
                self.delivery(connection, &id, agent.as_deref(), true)
            }
            DaemonFrame::DeliverNak { id, agent, .. } => {
                self.delivery(connection, &id, agent.as_deref(), false);
            }
            DaemonFrame::Rpc { rid, .. } => {
                if !self.calls.asked_once(&[&connection.serial.to_string(), &rid]) {
                    self.fault("rid_in_use", format!("rid {rid} names a call that waits for its answer"));
                }
            }
            DaemonFrame::Pong => connection.unanswered += 1,
            DaemonFrame::Roster { .. } => {}
        }
    }

    fn worker(&mut self, connection: &mut Connection, frame: WorkerFrame) {
        match frame {
            WorkerFrame::HelloOk { .. } => {
                self.needs(connection, Stage::Asked, "hello_required", "hello_ok answers a hello");
                connection.stage = Stage::Ready;
                return;
            }
            WorkerFrame::HelloErr { .. } => return connection.stage = Stage::New,
            _ => self.needs(connection, Stage::Ready, "hello_required", "hello_ok comes first"),
        }
        match frame {
            WorkerFrame::Deliver { id, agent, .. } => {
                // Older daemons answer without the agent.
                self.deliveries.asked(&["wire", &id, &agent]);
                self.deliveries.asked(&["wire", &id]);
            }
            WorkerFrame::SendAck { id } => self.sent(connection, &id, "send_ack"),
            WorkerFrame::SendNak { id, .. } => self.sent(connection, &id, "send_nak"),
            WorkerFrame::RpcResult { rid, .. } => {
                if !self.calls.answered_once(&[&connection.serial.to_string(), &rid]) {
                    self.fault("unknown_rid", format!("no call {rid} waits for an answer"));
                }
            }
            WorkerFrame::Ping if connection.unanswered == 0 && connection.serial > 0 => {
                self.fault("ping_without_pong", "the Worker only answers a pong");
            }
            WorkerFrame::Ping => connection.unanswered = connection.unanswered.saturating_sub(1),
            WorkerFrame::HelloOk { .. } | WorkerFrame::HelloErr { .. } => {}
        }
    }

    fn adapter(&mut self, connection: &mut Connection, frame: AdapterFrame, is_numbered: bool) {
        match frame {
            AdapterFrame::Register(register) => {
                // Without a number this may well be another connection.
                if is_numbered && matches!(connection.stage, Stage::Asked | Stage::Ready) {
                    self.fault("registered_twice", "a connection registers once");
                }
                self.begin(connection);
                if register.proto != agent::PROTO {
                    let text = format!("this is transit-agent/1, the register says {}", register.proto);
                    self.fault("unsupported_proto", text);
                }
                return;
            }
            _ => self.needs(connection, Stage::Ready, "register_required", "registered comes first"),
        }
        match frame {
            AdapterFrame::DeliverAck { id, persisted, .. } => {
                if !persisted {
                    self.fault("not_persisted", "an ack says persisted: true");
                }
                self.delivery_of(connection, &["agent", &id], &id, persisted);
            }
            AdapterFrame::DeliverNak { id, .. } => self.delivery_of(connection, &["agent", &id], &id, false),
            AdapterFrame::Status { .. } | AdapterFrame::Pong { .. } | AdapterFrame::Register(_) => {}
        }
    }

    fn host(&mut self, connection: &mut Connection, frame: HostFrame) {
        match frame {
            HostFrame::Registered { .. } => {
                self.needs(connection, Stage::Asked, "register_required", "registered answers a register");
                connection.stage = Stage::Ready;
            }
            HostFrame::RegisterErr { .. } => connection.stage = Stage::New,
            HostFrame::Deliver { id, .. } => {
                self.needs(connection, Stage::Ready, "register_required", "registered comes first");
                self.deliveries.asked(&["agent", &id]);
            }
            HostFrame::Ping => {
                self.needs(connection, Stage::Ready, "register_required", "registered comes first")
            }
        }
    }

    fn delivery(&mut self, connection: &Connection, id: &str, agent: Option<&str>, is_ack: bool) {
        let all = ["wire", id];
        let Some(agent) = agent else { return self.delivery_of(connection, &all, id, is_ack) };
        let own = ["wire", id, agent];
        // Acks without an agent may have settled this one too.
        if is_ack && self.deliveries.is_open(&own) && self.deliveries.is_settled(&all, connection.serial) {
            self.deliveries.settle(&own, connection.serial, is_ack);
        }
        self.deliveries.settle(&all, connection.serial, is_ack);
        self.delivery_of(connection, &own, id, is_ack);
    }

    fn delivery_of(&mut self, connection: &Connection, key: &[&str], id: &str, is_ack: bool) {
        match (self.deliveries.answered(key, connection.serial, is_ack), is_ack) {
            (Answer::Unasked, true) => self.fault("ack_without_deliver", format!("{id} was not delivered")),
            (Answer::Unasked, false) => self.fault("nak_without_deliver", format!("{id} was not delivered")),
            (Answer::Again, true) => self.fault("duplicate_ack", format!("{id} was acknowledged already")),
            _ => {}
        }
    }

    fn sent(&mut self, connection: &Connection, id: &str, what: &str) {
        match self.sends.answered(&["send", id], connection.serial, true) {
            Answer::Unasked => {
                self.fault("answer_without_send", format!("{what} for {id}, which was not sent"))
            }
            Answer::Again => {
                self.fault("duplicate_ack", format!("{what} for {id}, which was answered already"))
            }
            Answer::Fine => {}
        }
    }

    fn control(&mut self, connection: &mut Connection, way: Way, text: &str) {
        match way {
            Way::Forth => match Call::decode(text) {
                Ok(_) => connection.unanswered += 1,
                Err(err) => self.fault("bad_request", err.text),
            },
            Way::Back => {
                if let Err(err) = control::parse_answer(text)
                    && err.code == "bad_answer"
                {
                    self.fault("bad_answer", err.text);
                }
                if connection.unanswered == 0 {
                    self.fault("answer_without_call", "nothing was asked");
                }
                connection.unanswered = connection.unanswered.saturating_sub(1);
            }
        }
    }

    fn api(&mut self, way: Way, line: &Line<'_>) {
        if way == Way::Forth && line.field("method").and_then(|method| method.inner()).is_none() {
            self.fault("invalid_frame", "a request has a method, which is a text");
        }
    }
}

fn is_agents(tag: &str) -> bool {
    AdapterFrame::KINDS.contains(&tag) || HostFrame::KINDS.contains(&tag)
}
