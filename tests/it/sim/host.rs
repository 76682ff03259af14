//! A host: its daemon's end of the wire, its spool, and its agents' sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use transit::clock::{Mono, Reconnect, Wall};
use transit::limits;
use transit::proto::wire::{AgentInfo, DaemonConfig, DaemonEnd, DaemonEvent, NamedBy, SendFrame, close};
use transit::proto::{Input, Output};

use super::agenda::{Agenda, Due, Side};
use super::hub::Hub;
use super::net::Net;
use super::spool::{HostOp, Spool, Turn};

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
    pub(super) spool: Spool,
    /// What each agent was shown, in order, duplicates too.
    pub(super) sessions: BTreeMap<String, Vec<String>>,
    /// How far the wall clock is from the monotonic one, in milliseconds.
    pub(super) wall: i64,
    pub(super) life: u32,
    pub(super) up: bool,
    link: Option<Link>,
    reconnect: Reconnect,
    committed: Mono,
}

impl Host {
    pub(super) fn new(index: usize, agents: &[&str]) -> Self {
        Self {
            index,
            name: format!("h{index}"),
            spool: Spool::default(),
            sessions: agents.iter().map(|agent| ((*agent).to_owned(), Vec::new())).collect(),
            wall: 0,
            life: 0,
            up: false,
            link: None,
            reconnect: Reconnect::default(),
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
        self.spool.crash();
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
            self.spool.receive(message.id.clone(), agent.to_owned(), message.body.clone(), false, due);
        }
        self.spool.accept(message, due);
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
        self.spool.hang_up();
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
        let wall = self.wall(agenda.now);
        self.spool.apply(op, wall, self.link.as_mut().map(|link| &mut link.end));
        self.answer();
    }

    fn answer(&mut self) {
        if let Some(link) = self.link.as_mut().filter(|link| link.end.is_ready()) {
            self.spool.answer(&mut link.end);
        }
    }

    /// Looks through the spool for what is due.
    pub(super) fn pump(&mut self, agenda: &mut Agenda) {
        self.answer();
        let wall = self.wall(agenda.now);
        self.spool.release_unanswered(agenda.now, wall);
        if let Some(link) = self.link.as_mut().filter(|link| link.end.is_ready()) {
            self.spool.send_due(&mut link.end, agenda.now, wall);
        }
        for turn in self.spool.take_due(wall) {
            self.inject(agenda, turn);
        }
        agenda.soon(1_000, Due::Pump { at: Side::Host(self.index), life: self.life });
    }

    fn inject(&mut self, agenda: &mut Agenda, Turn { id, agent, envelope }: Turn) {
        let (host, life) = (self.index, self.life);
        let refuse =
            |code, retryable| HostOp::Refused { id: id.clone(), agent: agent.clone(), code, retryable };
        if envelope == "unwelcome" {
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
        let op = HostOp::Injected { id, agent, redelivery: 0 };
        agenda.after(ack_after, Due::HostCommit { host: self.index, life, op });
    }

    /// Whether the ack of a delivery is committed, and true.
    pub(super) fn has_injected(&self, id: &str, agent: &str) -> bool {
        let row = self.spool.inbox.iter().find(|row| row.id == id && row.agent == agent);
        let shown = self.sessions.get(agent).is_some_and(|ids| ids.iter().any(|shown| shown == id));
        shown && row.is_some_and(|row| row.end == Some(Ok(())))
    }

    /// Whether nothing waits here.
    pub(super) fn is_quiet(&self) -> bool {
        self.spool.unrest().is_none()
    }

    /// The connection in use, if any.
    pub(super) fn conn(&self) -> Option<usize> {
        self.link.as_ref().map(|link| link.conn)
    }
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
