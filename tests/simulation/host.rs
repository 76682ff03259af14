//! A host: its daemon's end of the wire, its spool, and its agents' sessions.

mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use transit::clock::{Mono, Reconnect, Wall};
use transit::limits;
use transit::proto::wire::{
    AgentInfo, DaemonConfig, DaemonEnd, DaemonEvent, NamedBy, RpcError, SendFrame, close,
};
use transit::proto::{Input, Output};

use super::agenda::{Agenda, Due, End};
use super::spool::{HostOp, Spool};
use super::story::Whose;
use super::wires::Wires;

/// The body of a message that no session takes.
pub(crate) const UNWELCOME: &str = "unwelcome";

struct Link {
    wire: usize,
    end: DaemonEnd,
    since: Mono,
    wake: Mono,
}

/// A call that waits for its answer.
pub(crate) struct Call {
    pub(crate) agent: String,
    pub(crate) method: &'static str,
    pub(crate) about: String,
    pub(crate) whose: Whose,
}

/// One host. What is above `up` survives a crash.
pub(crate) struct Host {
    pub(crate) index: usize,
    pub(crate) org: usize,
    pub(crate) name: &'static str,
    pub(crate) agents: Vec<&'static str>,
    pub(crate) token: Option<String>,
    pub(crate) spool: Spool,
    /// Agents that are elsewhere for now.
    pub(crate) away: BTreeSet<&'static str>,
    /// How far the wall clock is from the monotonic one, in milliseconds.
    pub(crate) wall: i64,
    pub(crate) life: u32,
    pub(crate) up: bool,
    link: Option<Link>,
    reconnect: Reconnect,
    calls: BTreeMap<String, Call>,
    called: u64,
    committed: Mono,
}

/// What a host's machine wants the world to know.
pub(crate) enum Heard {
    Committing(HostOp),
    Called(Call, Result<Value, RpcError>),
    Closed { code: u16, wire: usize },
}

impl Host {
    pub(crate) fn new(
        index: usize,
        org: usize,
        name: &'static str,
        agents: &[&'static str],
        wall: i64,
    ) -> Self {
        Self {
            index,
            org,
            name,
            agents: agents.to_vec(),
            token: None,
            spool: Spool::default(),
            away: BTreeSet::new(),
            wall,
            life: 0,
            up: false,
            link: None,
            reconnect: Reconnect::default(),
            calls: BTreeMap::new(),
            called: 0,
            committed: Mono::default(),
        }
    }

    fn wall(&self, now: Mono) -> Wall {
        Wall(self.wall + now.0.as_millis() as i64)
    }

    pub(crate) fn start(&mut self, agenda: &mut Agenda) {
        self.up = true;
        let (host, life) = (self.index, self.life);
        agenda.soon(100, Due::Connect { host, life });
        agenda.soon(100, Due::Pump { host, life });
        agenda.after(limits::ROSTER_REFRESH, Due::Roster { host, life });
    }

    /// The process is gone, with all that was not committed.
    pub(crate) fn crash(&mut self, agenda: &mut Agenda, wires: &mut Wires) {
        if let Some(link) = self.link.take() {
            wires.hang_up(agenda, link.wire, End::Host);
        }
        self.up = false;
        self.life += 1;
        self.spool.crash();
        self.calls.clear();
        self.reconnect.reset();
    }

    /// Takes a message of an agent: from the commit on it survives anything.
    pub(crate) fn accept(&mut self, now: Mono, message: SendFrame) {
        let due = self.wall(now);
        self.spool.accept(message, due);
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// Speaks through a new connection.
    pub(crate) fn connected(&mut self, now: Mono, wire: usize) {
        let config = DaemonConfig { host: self.name.to_owned(), daemon_ver: "sim".into() };
        self.link = Some(Link { wire, end: DaemonEnd::new(config, now), since: now, wake: Mono::default() });
        self.roster();
    }

    /// A connection that was not had, or was lost: how long to wait for the next.
    pub(crate) fn wait(&mut self, session: Duration, agenda: &mut Agenda) -> Duration {
        let random = agenda.rng.next() as u32;
        self.reconnect.next(session, random)
    }

    pub(crate) fn roster(&mut self) {
        let there = self.agents.iter().filter(|name| !self.away.contains(*name));
        let agents = there.map(|name| info(name)).collect();
        if let Some(link) = &mut self.link {
            link.end.roster(agents);
        }
    }

    /// An input for the end of one wire; an older one's is of no interest any more.
    pub(crate) fn input(&mut self, now: Mono, wire: usize, input: Input<'_>) {
        if let Some(link) = self.link.as_mut().filter(|link| link.wire == wire)
            && (input != Input::Tick || link.wake == now)
        {
            link.end.handle(input, now);
        }
    }

    pub(crate) fn eof(&mut self, wire: usize) {
        if let Some(link) = self.link.as_mut().filter(|link| link.wire == wire) {
            link.end.close(close::GOING_AWAY, "eof");
        }
    }

    pub(crate) fn wire(&self) -> Option<usize> {
        self.link.as_ref().map(|link| link.wire)
    }

    /// Does what the machine wants done, up to what the world must know.
    pub(crate) fn next(&mut self, agenda: &mut Agenda, wires: &mut Wires) -> Option<Heard> {
        loop {
            let link = self.link.as_mut()?;
            let wire = link.wire;
            match link.end.poll()? {
                Output::Write(text) => wires.send(agenda, wire, End::Worker, text),
                Output::WakeAt(time) => {
                    link.wake = time.max(agenda.now);
                    agenda.at(time, Due::HostWake { wire });
                }
                Output::Close(why) => {
                    let since = link.since;
                    self.link = None;
                    wires.hang_up(agenda, wire, End::Host);
                    self.spool.hang_up();
                    self.calls.clear();
                    let wait = self.wait(agenda.now.since(since), agenda);
                    agenda.after(wait, Due::Connect { host: self.index, life: self.life });
                    return Some(Heard::Closed { code: why.code, wire });
                }
                Output::Event(event) => {
                    if let Some(heard) = self.event(event) {
                        return Some(heard);
                    }
                }
            }
        }
    }

    fn event(&mut self, event: DaemonEvent) -> Option<Heard> {
        match event {
            DaemonEvent::Ready { .. } | DaemonEvent::Refused { .. } => None,
            DaemonEvent::Deliver { id, agent, envelope } => {
                Some(Heard::Committing(HostOp::Receive { id, agent, envelope }))
            }
            DaemonEvent::SendAck { id } => Some(Heard::Committing(HostOp::Answered { id, answer: Ok(()) })),
            DaemonEvent::SendNak { id, code } => {
                Some(Heard::Committing(HostOp::Answered { id, answer: Err(code) }))
            }
            DaemonEvent::RpcResult { rid, result } => {
                self.calls.remove(&rid).map(|call| Heard::Called(call, result))
            }
        }
    }

    /// Begins a transaction; its effects are those of [`apply`](Self::apply), unless the process dies before.
    pub(crate) fn commit(&mut self, agenda: &mut Agenda, op: HostOp) {
        let longest = if agenda.rng.chance(5) { 2_000 } else { 20 };
        self.committed = self.committed.max(agenda.now + agenda.rng.wait(longest));
        agenda.at(self.committed, Due::HostCommit { host: self.index, life: self.life, op });
    }

    /// The transaction is on the disk.
    pub(crate) fn apply(&mut self, now: Mono, op: HostOp) {
        let wall = self.wall(now);
        self.spool.apply(op, wall, self.link.as_mut().map(|link| &mut link.end));
        self.answer();
    }

    fn answer(&mut self) {
        if let Some(link) = self.link.as_mut().filter(|link| link.end.is_ready()) {
            self.spool.answer(&mut link.end);
        }
    }

    /// Looks through the spool for what is due.
    pub(crate) fn pump(&mut self, agenda: &mut Agenda) {
        self.answer();
        let wall = self.wall(agenda.now);
        self.spool.release_unanswered(agenda.now, wall);
        if let Some(link) = self.link.as_mut().filter(|link| link.end.is_ready()) {
            self.spool.send_due(&mut link.end, agenda.now, wall);
        }
        for turn in self.spool.take_due(wall) {
            self.inject(agenda, turn);
        }
        agenda.soon(2_000, Due::Pump { host: self.index, life: self.life });
    }

    /// An agent calls a method of the Worker. `false` when it cannot now.
    pub(crate) fn call(&mut self, now: Mono, call: Call, mut params: Value) -> bool {
        let Some(link) = self.link.as_mut().filter(|link| self.up && link.end.is_ready()) else {
            return false;
        };
        self.called += 1;
        let rid = format!("{}-{}", self.life, self.called);
        params["caller"] = json!(format!("{}@{}", call.agent, self.name));
        let method = call.method;
        self.calls.insert(rid.clone(), call);
        link.end.rpc(rid, method, params, now);
        true
    }

    /// Whether every message has its final answer.
    pub(crate) fn has_sent_everything(&self) -> bool {
        self.spool.outbox.iter().all(|row| row.end.is_some())
    }

    /// What is not done yet.
    pub(crate) fn unrest(&self) -> Option<String> {
        self.spool.unrest().map(|what| format!("at {}, {what}", self.name))
    }
}

fn info(name: &str) -> AgentInfo {
    AgentInfo {
        name: name.to_owned(),
        kind: "sim".into(),
        pane_id: format!("pane of {name}"),
        status: "idle".into(),
        cwd: "/".into(),
        title: String::new(),
        named_by: NamedBy::User,
    }
}
