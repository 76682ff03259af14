//! A host: its daemon's end of the wire, a spool whose commits are explicit, and its agents' sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use transit::clock::{Backoff, Mono, Reconnect, Wall};
use transit::limits;
use transit::proto::envelope::{self, Kind};
use transit::proto::wire::{
    AgentInfo, DaemonConfig, DaemonEnd, DaemonEvent, NakCode, NamedBy, RpcError, SendFrame, close,
};
use transit::proto::{Input, Output};

use super::agenda::{Agenda, Due, End, HostOp};
use super::story::{Shown, Whose};
use super::wires::Wires;

/// Time for which a sent message waits for its answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// The body of a message that no session takes.
pub(crate) const UNWELCOME: &str = "unwelcome";

/// A row of the outbox.
pub(crate) struct OutRow {
    pub(crate) message: SendFrame,
    /// `None` while it is pending.
    pub(crate) end: Option<Result<(), NakCode>>,
    attempts: u32,
    due: Wall,
}

/// A row of the inbox, keyed by `(id, agent)`.
struct InRow {
    id: String,
    agent: String,
    envelope: String,
    redelivery: u32,
    end: Option<Result<(), &'static str>>,
    attempts: u32,
    due: Wall,
    /// Whether the Worker waits for an answer.
    owed: bool,
}

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
    pub(crate) outbox: Vec<OutRow>,
    inbox: Vec<InRow>,
    /// Agents that are elsewhere for now.
    pub(crate) away: BTreeSet<&'static str>,
    /// How far the wall clock is from the monotonic one, in milliseconds.
    pub(crate) wall: i64,
    pub(crate) life: u32,
    pub(crate) up: bool,
    link: Option<Link>,
    reconnect: Reconnect,
    asked: BTreeMap<String, Mono>,
    injecting: BTreeSet<(String, String)>,
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
            outbox: Vec::new(),
            inbox: Vec::new(),
            away: BTreeSet::new(),
            wall,
            life: 0,
            up: false,
            link: None,
            reconnect: Reconnect::default(),
            asked: BTreeMap::new(),
            injecting: BTreeSet::new(),
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
        self.asked.clear();
        self.injecting.clear();
        self.calls.clear();
        self.reconnect.reset();
    }

    /// Takes a message of an agent: from the commit on it survives anything.
    pub(crate) fn accept(&mut self, now: Mono, message: SendFrame) {
        let due = self.wall(now);
        self.outbox.push(OutRow { message, end: None, attempts: 0, due });
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
                    self.asked.clear();
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
        match op {
            HostOp::Receive { id, agent, envelope } => self.receive(now, id, agent, envelope),
            HostOp::Injected { id, agent, redelivery } => {
                self.injecting.remove(&(id.clone(), agent.clone()));
                if let Some(row) = self.row(&id, &agent)
                    && row.redelivery == redelivery
                {
                    row.end = Some(Ok(()));
                    row.owed = true;
                }
            }
            HostOp::Refused { id, agent, code, retryable } => self.refused(now, &id, &agent, code, retryable),
            HostOp::Answered { id, answer } => self.answered(now, &id, answer),
        }
        self.answer();
    }

    fn receive(&mut self, now: Mono, id: String, agent: String, envelope: String) {
        let due = self.wall(now);
        let redelivery = redelivery(&envelope).unwrap_or_default();
        match self.row(&id, &agent) {
            // It is shown again with its note.
            Some(row) if redelivery > row.redelivery => {
                (row.redelivery, row.envelope, row.end, row.due) = (redelivery, envelope, None, due);
                row.owed = true;
            }
            Some(row) => row.owed = true,
            None => self.inbox.push(InRow {
                id,
                agent,
                envelope,
                redelivery,
                end: None,
                attempts: 0,
                due,
                owed: true,
            }),
        }
    }

    fn row(&mut self, id: &str, agent: &str) -> Option<&mut InRow> {
        self.inbox.iter_mut().find(|row| row.id == id && row.agent == agent)
    }

    fn refused(&mut self, now: Mono, id: &str, agent: &str, code: &'static str, retryable: bool) {
        self.injecting.remove(&(id.to_owned(), agent.to_owned()));
        let wall = self.wall(now);
        let Some(row) = self.row(id, agent).filter(|row| row.end.is_none()) else { return };
        if !retryable {
            row.end = Some(Err(code));
            row.owed = true;
            return;
        }
        row.attempts += 1;
        row.due = wall + Backoff::DELIVERY.after(row.attempts);
        if std::mem::take(&mut row.owed)
            && let Some(link) = &mut self.link
        {
            link.end.deliver_nak(id, agent, code, true);
        }
    }

    fn answered(&mut self, now: Mono, id: &str, answer: Result<(), NakCode>) {
        let asked = self.asked.remove(id).is_some();
        let wall = self.wall(now);
        let Some(row) = self.outbox.iter_mut().find(|row| row.message.id == id) else { return };
        match answer {
            Err(code) if !code.is_permanent() => {
                if asked && row.end.is_none() {
                    row.attempts += 1;
                    row.due = wall + Backoff::MESSAGE.after(row.attempts);
                }
            }
            answer => row.end = row.end.or(Some(answer)),
        }
    }

    /// Pays what is owed to the Worker.
    fn answer(&mut self) {
        let Some(link) = self.link.as_mut().filter(|link| link.end.is_ready()) else { return };
        for row in self.inbox.iter_mut().filter(|row| row.owed) {
            match row.end {
                None => continue,
                Some(Ok(())) => link.end.deliver_ack(&row.id, &row.agent),
                Some(Err(code)) => link.end.deliver_nak(&row.id, &row.agent, code, false),
            }
            row.owed = false;
        }
    }

    /// Looks through the spool for what is due.
    pub(crate) fn pump(&mut self, agenda: &mut Agenda) {
        self.answer();
        let wall = self.wall(agenda.now);
        for row in &mut self.outbox {
            if self.asked.get(&row.message.id).is_some_and(|&until| agenda.now >= until) {
                self.asked.remove(&row.message.id);
                row.attempts += 1;
                row.due = wall + Backoff::MESSAGE.after(row.attempts);
            }
        }
        self.send_due(agenda.now);
        self.inject_due(agenda);
        agenda.soon(2_000, Due::Pump { host: self.index, life: self.life });
    }

    /// One message of a pair is under way at a time, so that a refused one is not passed by the next.
    fn send_due(&mut self, now: Mono) {
        let wall = self.wall(now);
        let Some(link) = self.link.as_mut().filter(|link| link.end.is_ready()) else { return };
        let mut pairs = BTreeSet::new();
        for row in self.outbox.iter().filter(|row| row.end.is_none()) {
            let first = pairs.insert((&row.message.from, &row.message.to));
            let id = &row.message.id;
            if first && !self.asked.contains_key(id) && is_due(row.due, wall, Backoff::MESSAGE) {
                link.end.send(row.message.clone());
                self.asked.insert(id.clone(), now + ANSWER_WAIT);
            }
        }
    }

    /// One envelope of an agent is under way at a time, the oldest.
    fn inject_due(&mut self, agenda: &mut Agenda) {
        let wall = self.wall(agenda.now);
        let mut agents = BTreeSet::new();
        let mut begin = Vec::new();
        for row in self.inbox.iter().filter(|row| row.end.is_none()) {
            let key = (row.id.clone(), row.agent.clone());
            let first = agents.insert(&row.agent);
            if first && !self.injecting.contains(&key) && is_due(row.due, wall, Backoff::DELIVERY) {
                begin.push((key, row.envelope.contains(UNWELCOME)));
            }
        }
        for ((id, agent), is_unwelcome) in begin {
            self.injecting.insert((id.clone(), agent.clone()));
            self.inject(agenda, id, agent, is_unwelcome);
        }
    }

    fn inject(&mut self, agenda: &mut Agenda, id: String, agent: String, is_unwelcome: bool) {
        let refusal = match agenda.rng.below(100) {
            _ if self.away.contains(agent.as_str()) => Some(("no_such_agent", true)),
            _ if is_unwelcome => Some(("adapter_rejected", false)),
            0..8 => Some(("draft_busy", true)),
            8..16 => Some(("adapter_unavailable", true)),
            _ => None,
        };
        match refusal {
            Some((code, retryable)) => self.commit(agenda, HostOp::Refused { id, agent, code, retryable }),
            None => {
                let (host, life) = (self.index, self.life);
                agenda.soon(800, Due::Show { host, life, id, agent });
            }
        }
    }

    /// The adapter has the envelope in its session, which a daemon's crash does not undo.
    pub(crate) fn show(&mut self, agenda: &mut Agenda, life: u32, id: &str, agent: &str) -> Option<Shown> {
        let (org, name, is_alive) = (self.org, self.name, self.up && self.life == life);
        let row = self.row(id, agent)?;
        let parsed = envelope::parse(&row.envelope).expect("the Worker's envelopes can be read").envelope;
        let redelivery = row.redelivery;
        let (told, seq, conversation) = match parsed.kind {
            Kind::Channel { redelivery, conversation_id, .. } => (Some(redelivery), None, conversation_id),
            Kind::Room { seq, .. } => (None, Some(seq), String::new()),
            Kind::Dm => (None, None, String::new()),
        };
        if is_alive {
            let op = HostOp::Injected { id: id.to_owned(), agent: agent.to_owned(), redelivery };
            self.commit(agenda, op);
        }
        Some(Shown {
            org,
            agent: format!("{agent}@{name}"),
            id: id.to_owned(),
            from: parsed.from,
            body: parsed.body,
            conversation,
            redelivery: told,
            seq,
            life,
        })
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
        self.outbox.iter().all(|row| row.end.is_some())
    }

    /// What is not done yet.
    pub(crate) fn unrest(&self) -> Option<String> {
        let out = self.outbox.iter().find(|row| row.end.is_none());
        let out = out.map(|row| format!("{} waits at {} to be sent", row.message.id, self.name));
        out.or_else(|| {
            let row = self.inbox.iter().find(|row| row.end.is_none())?;
            Some(format!("{} waits at {} for {}", row.id, self.name, row.agent))
        })
    }
}

/// How often an envelope says that it was shown before.
fn redelivery(envelope: &str) -> Option<u32> {
    match envelope::parse(envelope).ok()?.envelope.kind {
        Kind::Channel { redelivery, .. } => Some(redelivery),
        _ => None,
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

/// An entry that is due further off than its largest backoff is due now: the clock was set back.
fn is_due(due: Wall, now: Wall, backoff: Backoff) -> bool {
    due <= now || due > now + backoff.cap
}
