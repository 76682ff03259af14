//! A host: its daemon's end of the wire, a spool whose commits are explicit, and its agents' sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use transit::clock::{Backoff, Mono, Reconnect, Wall};
use transit::limits;
use transit::proto::wire::{
    AgentInfo, DaemonConfig, DaemonEnd, DaemonEvent, NakCode, NamedBy, SendFrame, close,
};
use transit::proto::{Input, Output};

use super::agenda::{Agenda, Due, HostOp, Side};
use super::hub::Hub;
use super::net::Net;

/// Time for which a sent message waits for its answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// A row of the outbox.
pub(super) struct OutRow {
    pub(super) message: SendFrame,
    /// `None` while it is pending.
    pub(super) end: Option<Result<(), NakCode>>,
    attempts: u32,
    due: Wall,
}

/// A row of the inbox, keyed by `(id, agent)`.
struct InRow {
    id: String,
    agent: String,
    envelope: String,
    end: Option<Result<(), &'static str>>,
    attempts: u32,
    due: Wall,
    /// Whether the Worker waits for an answer.
    owed: bool,
}

struct Link {
    conn: usize,
    end: DaemonEnd,
    since: Mono,
    wake: Mono,
}

/// One host. Everything above `up` survives a crash.
pub(super) struct Host {
    index: usize,
    pub(super) name: String,
    pub(super) outbox: Vec<OutRow>,
    inbox: Vec<InRow>,
    /// What each agent was shown, in order, duplicates too.
    pub(super) sessions: BTreeMap<String, Vec<String>>,
    /// How far the wall clock is from the monotonic one, in milliseconds.
    pub(super) wall: i64,
    pub(super) life: u32,
    pub(super) up: bool,
    link: Option<Link>,
    reconnect: Reconnect,
    asked: BTreeMap<String, Mono>,
    injecting: BTreeSet<(String, String)>,
    committed: Mono,
}

impl Host {
    pub(super) fn new(index: usize, agents: &[&str]) -> Self {
        Self {
            index,
            name: format!("h{index}"),
            outbox: Vec::new(),
            inbox: Vec::new(),
            sessions: agents.iter().map(|agent| ((*agent).to_owned(), Vec::new())).collect(),
            wall: 0,
            life: 0,
            up: false,
            link: None,
            reconnect: Reconnect::default(),
            asked: BTreeMap::new(),
            injecting: BTreeSet::new(),
            committed: Mono::default(),
        }
    }

    fn wall(&self, now: Mono) -> Wall {
        Wall(self.wall + now.0.as_millis() as i64)
    }

    pub(super) fn start(&mut self, agenda: &mut Agenda) {
        self.up = true;
        let (at, host, life) = (Side::Host(self.index), self.index, self.life);
        agenda.soon(100, Due::Connect { host, life });
        agenda.soon(100, Due::Pump { at, life });
    }

    /// The process is gone, with all that was not committed.
    pub(super) fn crash(&mut self, agenda: &mut Agenda, net: &mut Net) {
        if let Some(link) = self.link.take() {
            net.hang_up(agenda, link.conn, Side::Host(self.index));
        }
        self.up = false;
        self.life += 1;
        self.asked.clear();
        self.injecting.clear();
        self.reconnect.reset();
        agenda.soon(20_000, Due::Restart { at: Side::Host(self.index) });
    }

    /// Accepts a message of an agent: from the commit on it survives anything.
    pub(super) fn accept(&mut self, agenda: &Agenda, message: SendFrame) {
        let due = self.wall(agenda.now);
        if let Some((agent, host)) = message.to.split_once('@')
            && host == self.name
            && self.sessions.contains_key(agent)
        {
            self.receive(agenda.now, &message.id, agent, &message.body, false);
        }
        self.outbox.push(OutRow { message, end: None, attempts: 0, due });
    }

    pub(super) fn connect(&mut self, agenda: &mut Agenda, net: &mut Net) {
        if self.link.is_some() {
            return;
        }
        let conn = net.open(agenda, self.index);
        let config = DaemonConfig { host: self.name.clone(), daemon_ver: "sim".into() };
        let end = DaemonEnd::new(config, agenda.now);
        let mut link = Link { conn, end, since: agenda.now, wake: Mono::default() };
        link.end.roster(self.sessions.keys().map(|name| info(name)).collect());
        self.link = Some(link);
    }

    /// An input for the end of one connection; an older connection's is of no interest any more.
    pub(super) fn input(&mut self, agenda: &mut Agenda, conn: usize, input: Input<'_>) {
        if let Some(link) = self.link.as_mut().filter(|link| link.conn == conn)
            && (input != Input::Tick || link.wake == agenda.now)
        {
            link.end.handle(input, agenda.now);
        }
    }

    pub(super) fn eof(&mut self, conn: usize) {
        if let Some(link) = self.link.as_mut().filter(|link| link.conn == conn) {
            link.end.close(close::GOING_AWAY, "eof");
        }
    }

    pub(super) fn is_ready(&self, conn: usize) -> bool {
        self.link.as_ref().is_some_and(|link| link.conn == conn && link.end.is_ready())
    }

    /// Does what the machine wants done.
    pub(super) fn drain(&mut self, agenda: &mut Agenda, net: &mut Net, hub: &Hub) {
        let me = Side::Host(self.index);
        while let Some((conn, output)) = self.poll() {
            match output {
                Output::Write(text) => net.send(agenda, conn, me, text),
                Output::WakeAt(time) => {
                    if let Some(link) = &mut self.link {
                        link.wake = time.max(agenda.now);
                        agenda.at(time, Due::Wake { conn, at: me });
                    }
                }
                Output::Close(why) => self.closed(agenda, net, why.code, &why.reason),
                Output::Event(event) => self.event(agenda, hub, event),
            }
        }
    }

    fn poll(&mut self) -> Option<(usize, Output<DaemonEvent>)> {
        let link = self.link.as_mut()?;
        link.end.poll().map(|output| (link.conn, output))
    }

    fn closed(&mut self, agenda: &mut Agenda, net: &mut Net, code: u16, reason: &str) {
        assert!(code == close::SILENT, "the daemon closed with {code} {reason}");
        let Some(link) = self.link.take() else { return };
        net.hang_up(agenda, link.conn, Side::Host(self.index));
        self.asked.clear();
        let wait = self.reconnect.next(agenda.now.since(link.since), agenda.rng.next() as u32);
        agenda.after(wait, Due::Connect { host: self.index, life: self.life });
    }

    fn event(&mut self, agenda: &mut Agenda, hub: &Hub, event: DaemonEvent) {
        match event {
            DaemonEvent::Ready { .. } => {}
            DaemonEvent::Refused { code } => panic!("the Worker refused a good hello: {code}"),
            DaemonEvent::Deliver { id, agent, envelope } => {
                self.commit(agenda, HostOp::Receive { id, agent, envelope });
            }
            DaemonEvent::SendAck { id } => {
                assert!(hub.has_accepted(&id), "{id} was acknowledged without a commit");
                self.commit(agenda, HostOp::Answered { id, answer: Ok(()) });
            }
            DaemonEvent::SendNak { id, code } => {
                self.commit(agenda, HostOp::Answered { id, answer: Err(code) });
            }
            DaemonEvent::RpcResult { .. } => panic!("nobody called"),
        }
    }

    /// Begins a transaction; its effects are those of [`apply`](Self::apply), unless the process dies before.
    fn commit(&mut self, agenda: &mut Agenda, op: HostOp) {
        let longest = if agenda.rng.chance(5) { 2_000 } else { 20 };
        let wait = agenda.rng.wait(longest);
        self.committed = self.committed.max(agenda.now + wait);
        agenda.at(self.committed, Due::HostCommit { host: self.index, life: self.life, op });
    }

    /// The transaction is on the disk.
    pub(super) fn apply(&mut self, agenda: &mut Agenda, op: HostOp) {
        match op {
            HostOp::Receive { id, agent, envelope } => {
                self.receive(agenda.now, &id, &agent, &envelope, true);
            }
            HostOp::Injected { id, agent } => self.injected(&id, &agent),
            HostOp::Refused { id, agent, code, retryable } => {
                self.refused(agenda.now, &id, &agent, code, retryable);
            }
            HostOp::Answered { id, answer } => self.answered(agenda.now, &id, answer),
        }
        self.answer();
    }

    fn receive(&mut self, now: Mono, id: &str, agent: &str, envelope: &str, owed: bool) {
        let due = self.wall(now);
        match self.row(id, agent) {
            Some(row) => row.owed |= owed,
            None => self.inbox.push(InRow {
                id: id.to_owned(),
                agent: agent.to_owned(),
                envelope: envelope.to_owned(),
                end: None,
                attempts: 0,
                due,
                owed,
            }),
        }
    }

    fn row(&mut self, id: &str, agent: &str) -> Option<&mut InRow> {
        self.inbox.iter_mut().find(|row| row.id == id && row.agent == agent)
    }

    fn injected(&mut self, id: &str, agent: &str) {
        self.injecting.remove(&(id.to_owned(), agent.to_owned()));
        let row = self.row(id, agent).expect("a row is never deleted");
        row.end = Some(Ok(()));
        row.owed = true;
    }

    fn refused(&mut self, now: Mono, id: &str, agent: &str, code: &'static str, retryable: bool) {
        self.injecting.remove(&(id.to_owned(), agent.to_owned()));
        let wall = self.wall(now);
        let row = self.row(id, agent).expect("a row is never deleted");
        if row.end.is_some() {
            return; // a late ack was faster
        }
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
        let row = self.outbox.iter_mut().find(|row| row.message.id == id).expect("an answer to our message");
        match answer {
            Err(code) if !code.is_permanent() => {
                if asked && row.end.is_none() {
                    row.attempts += 1;
                    row.due = wall + Backoff::MESSAGE.after(row.attempts);
                }
            }
            answer => {
                assert!(row.end.is_none_or(|end| end == answer), "{id}: {:?}, then {answer:?}", row.end);
                row.end = Some(answer);
            }
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
    pub(super) fn pump(&mut self, agenda: &mut Agenda) {
        self.answer();
        self.release_unanswered(agenda.now);
        self.send_due(agenda.now);
        self.inject_due(agenda);
        agenda.soon(1_000, Due::Pump { at: Side::Host(self.index), life: self.life });
    }

    fn release_unanswered(&mut self, now: Mono) {
        let wall = self.wall(now);
        for row in &mut self.outbox {
            if self.asked.get(&row.message.id).is_some_and(|&until| now >= until) {
                self.asked.remove(&row.message.id);
                row.attempts += 1;
                row.due = wall + Backoff::MESSAGE.after(row.attempts);
            }
        }
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
                begin.push((key, row.envelope == "unwelcome"));
            }
        }
        for ((id, agent), unwelcome) in begin {
            self.injecting.insert((id.clone(), agent.clone()));
            self.inject(agenda, id, agent, unwelcome);
        }
    }

    fn inject(&mut self, agenda: &mut Agenda, id: String, agent: String, unwelcome: bool) {
        let (host, life) = (self.index, self.life);
        let refuse =
            |code, retryable| HostOp::Refused { id: id.clone(), agent: agent.clone(), code, retryable };
        if unwelcome {
            return self.commit(agenda, refuse("adapter_rejected", false));
        }
        match agenda.rng.below(100) {
            0..10 => self.commit(agenda, refuse("draft_busy", true)),
            10..20 => self.commit(agenda, refuse("adapter_unavailable", true)),
            20..25 => {
                // Shown, but the ack comes after the daemon has given up.
                let op = refuse("adapter_timeout", true);
                agenda.after(limits::ADAPTER_WAIT, Due::HostCommit { host, life, op });
                let ack_after = limits::ADAPTER_WAIT + agenda.rng.wait(10_000);
                agenda.soon(1_000, Due::Show { host, life, id, agent, ack_after });
            }
            _ => {
                let ack_after = agenda.rng.wait(500);
                agenda.soon(1_000, Due::Show { host, life, id, agent, ack_after });
            }
        }
    }

    /// The adapter has the envelope in its session, which a daemon's crash does not undo.
    pub(super) fn show(
        &mut self,
        agenda: &mut Agenda,
        life: u32,
        id: String,
        agent: String,
        ack_after: Duration,
    ) {
        self.sessions.get_mut(&agent).expect("an agent of this host").push(id.clone());
        let op = HostOp::Injected { id, agent };
        agenda.after(ack_after, Due::HostCommit { host: self.index, life, op });
    }

    /// Whether the ack of a delivery is committed, and true.
    pub(super) fn has_injected(&self, id: &str, agent: &str) -> bool {
        let row = self.inbox.iter().find(|row| row.id == id && row.agent == agent);
        let shown = self.sessions.get(agent).is_some_and(|ids| ids.iter().any(|shown| shown == id));
        shown && row.is_some_and(|row| row.end == Some(Ok(())))
    }

    /// Whether nothing waits here.
    pub(super) fn is_quiet(&self) -> bool {
        self.outbox.iter().all(|row| row.end.is_some()) && self.inbox.iter().all(|row| row.end.is_some())
    }

    /// The connection in use, if any.
    pub(super) fn conn(&self) -> Option<usize> {
        self.link.as_ref().map(|link| link.conn)
    }
}

/// A time further off than the largest backoff was written before the wall clock stepped back.
pub(super) fn is_due(due: Wall, wall: Wall, backoff: Backoff) -> bool {
    due <= wall || due > wall + backoff.cap
}

fn info(name: &str) -> AgentInfo {
    AgentInfo {
        name: name.to_owned(),
        kind: "program".into(),
        pane_id: String::new(),
        status: "idle".into(),
        cwd: "/".into(),
        title: String::new(),
        named_by: NamedBy::Auto,
    }
}
