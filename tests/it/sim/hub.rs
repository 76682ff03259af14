//! The Worker: its ends of the wire, and a ledger whose commits are explicit.

use std::collections::{BTreeMap, BTreeSet};

use transit::clock::{Backoff, Mono, Wall};
use transit::proto::wire::{NakCode, SendFrame, WorkerConfig, WorkerEnd, WorkerEvent, close};
use transit::proto::{Input, Output};

use super::agenda::{Agenda, Due, HubOp, Side};
use super::host::Host;
use super::net::Net;
use super::spool::is_due;

/// A delivery: one recipient of one message.
pub(super) struct Row {
    pub(super) id: String,
    pub(super) agent: String,
    host: String,
    from: String,
    to: String,
    body: String,
    pub(super) end: Option<Result<(), String>>,
    attempts: u32,
    due: Wall,
}

struct Link {
    end: WorkerEnd,
    host: usize,
    wake: Mono,
}

/// The Worker. `messages` and `rows` survive a crash.
pub(super) struct Hub {
    /// What became of every message that is remembered.
    pub(super) messages: BTreeMap<String, Result<(), NakCode>>,
    pub(super) rows: Vec<Row>,
    pub(super) wall: i64,
    pub(super) life: u32,
    pub(super) up: bool,
    /// How often a message was refused for a while.
    pub(super) limited: u32,
    /// Whether anything is still refused for a while.
    pub(super) limits: bool,
    links: BTreeMap<usize, Link>,
    /// The connection of each host that said the newest good hello.
    current: BTreeMap<usize, usize>,
    committed: Mono,
}

/// Where a message goes: `(agent, host)` of every recipient; nobody when there is no route.
pub(super) fn recipients(from: &str, to: &str) -> Vec<(String, String)> {
    let all = ["ada@h0", "bob@h0", "cyd@h1", "dan@h1", "eve@h2"];
    let is_recipient = |addr: &str| if to == "#all" { addr != from } else { addr == to };
    let split = |addr: &str| addr.split_once('@').map(|(agent, host)| (agent.to_owned(), host.to_owned()));
    all.into_iter().filter(|addr| is_recipient(addr)).filter_map(split).collect()
}

impl Hub {
    pub(super) fn new() -> Self {
        Self {
            messages: BTreeMap::new(),
            rows: Vec::new(),
            wall: 0,
            life: 0,
            up: false,
            limited: 0,
            limits: true,
            links: BTreeMap::new(),
            current: BTreeMap::new(),
            committed: Mono::default(),
        }
    }

    fn wall(&self, now: Mono) -> Wall {
        Wall(self.wall + now.0.as_millis() as i64)
    }

    pub(super) fn start(&mut self, agenda: &mut Agenda) {
        self.up = true;
        agenda.soon(100, Due::Pump { at: Side::Hub, life: self.life });
    }

    pub(super) fn crash(&mut self, agenda: &mut Agenda, net: &mut Net) {
        for (conn, _) in std::mem::take(&mut self.links) {
            net.hang_up(agenda, conn, Side::Hub);
        }
        self.current.clear();
        self.up = false;
        self.life += 1;
        agenda.soon(20_000, Due::Restart { at: Side::Hub });
    }

    /// An input for the end of one connection. The first one makes the end, as the upgrade would.
    pub(super) fn input(&mut self, agenda: &mut Agenda, net: &mut Net, conn: usize, input: Input<'_>) {
        if !self.up {
            return;
        }
        if let Input::Text(text) = input
            && text.contains("\"t\":\"hello\"")
        {
            let host = net.host(conn);
            let (host_id, org) = (format!("hst_{host:012x}"), "default".into());
            let config = WorkerConfig { host: format!("h{host}"), host_id, org };
            let end = WorkerEnd::new(config, agenda.now);
            self.links.insert(conn, Link { end, host, wake: Mono::default() });
        }
        if let Some(link) = self.links.get_mut(&conn)
            && (input != Input::Tick || link.wake == agenda.now)
        {
            link.end.handle(input, agenda.now);
        }
    }

    pub(super) fn eof(&mut self, conn: usize) {
        if let Some(link) = self.links.get_mut(&conn) {
            link.end.close(close::GOING_AWAY, "eof");
        }
    }

    pub(super) fn is_ready(&self, conn: usize) -> bool {
        self.links.get(&conn).is_some_and(|link| link.end.is_ready())
    }

    /// Does what the machines want done.
    pub(super) fn drain(&mut self, agenda: &mut Agenda, net: &mut Net, hosts: &[Host]) {
        while let Some((conn, output)) = self.poll() {
            match output {
                Output::Write(text) => net.send(agenda, conn, Side::Hub, text),
                Output::WakeAt(time) => {
                    if let Some(link) = self.links.get_mut(&conn) {
                        link.wake = time.max(agenda.now);
                        agenda.at(time, Due::Wake { conn, at: Side::Hub });
                    }
                }
                Output::Close(why) => {
                    let expected = [close::SILENT, close::REPLACED].contains(&why.code);
                    assert!(expected, "the Worker closed with {} {}", why.code, why.reason);
                    self.links.remove(&conn);
                    self.current.retain(|_, current| *current != conn);
                    net.hang_up(agenda, conn, Side::Hub);
                }
                Output::Event(event) => self.event(agenda, hosts, conn, event),
            }
        }
    }

    fn poll(&mut self) -> Option<(usize, Output<WorkerEvent>)> {
        self.links.iter_mut().find_map(|(&conn, link)| link.end.poll().map(|output| (conn, output)))
    }

    fn event(&mut self, agenda: &mut Agenda, hosts: &[Host], conn: usize, event: WorkerEvent) {
        match event {
            WorkerEvent::Hello { .. } => self.hello(conn),
            WorkerEvent::Roster(agents) => assert!(!agents.is_empty()),
            WorkerEvent::Send(message) => self.commit(agenda, conn, HubOp::Admit(message)),
            WorkerEvent::DeliverAck { id, agent, .. } => {
                let agent = agent.expect("our daemon names the agent");
                let host = &hosts[self.links[&conn].host];
                assert!(host.has_injected(&id, &agent), "{id} to {agent} was acknowledged without a commit");
                self.commit(agenda, conn, HubOp::Settle { id, agent });
            }
            WorkerEvent::DeliverNak { id, agent, code, retryable } => {
                let agent = agent.expect("our daemon names the agent");
                self.commit(agenda, conn, HubOp::Refuse { id, agent, code, retryable });
            }
            WorkerEvent::Rpc { .. } => panic!("nobody called"),
        }
    }

    /// The older connection of the host is replaced at the newer one's good hello.
    fn hello(&mut self, conn: usize) {
        let host = self.links[&conn].host;
        let older = self.current.insert(host, conn).filter(|&older| older != conn);
        if let Some(link) = older.and_then(|older| self.links.get_mut(&older)) {
            link.end.close(close::REPLACED, "replaced by a new daemon connection");
        }
    }

    /// Begins a transaction; its effects are those of [`apply`](Self::apply), unless the process dies before.
    fn commit(&mut self, agenda: &mut Agenda, conn: usize, op: HubOp) {
        let longest = if agenda.rng.chance(5) { 3_000 } else { 20 };
        let wait = agenda.rng.wait(longest);
        self.committed = self.committed.max(agenda.now + wait);
        agenda.at(self.committed, Due::HubCommit { life: self.life, conn, op });
    }

    /// The transaction is on the disk; whoever asked is answered, if still connected.
    pub(super) fn apply(&mut self, agenda: &mut Agenda, conn: usize, op: HubOp) {
        match op {
            HubOp::Admit(message) => {
                let id = message.id.clone();
                let answer = self.admit(agenda, message);
                let Some(link) = self.links.get_mut(&conn) else { return };
                match answer {
                    Ok(()) => link.end.send_ack(&id),
                    Err(code) => link.end.send_nak(&id, code),
                }
            }
            HubOp::Settle { id, agent } => {
                // An ack of a same-host message may be faster than the message itself.
                if let Some(row) = self.row(&id, &agent) {
                    let wrong = matches!(row.end, Some(Err(_)));
                    assert!(!wrong, "{id} to {agent}: a permanent refusal was taken back");
                    row.end = Some(Ok(()));
                }
            }
            HubOp::Refuse { id, agent, code, retryable } => {
                self.refuse(agenda.now, &id, &agent, code, retryable);
            }
        }
    }

    /// Only permanent refusals are remembered.
    fn admit(&mut self, agenda: &mut Agenda, message: SendFrame) -> Result<(), NakCode> {
        if let Some(known) = self.messages.get(&message.id) {
            return *known;
        }
        if self.limits && agenda.rng.chance(15) {
            self.limited += 1;
            return Err(NakCode::RateLimited);
        }
        let recipients = recipients(&message.from, &message.to);
        let outcome = if recipients.is_empty() { Err(NakCode::NoRoute) } else { Ok(()) };
        self.messages.insert(message.id.clone(), outcome);
        let due = self.wall(agenda.now);
        self.rows.extend(recipients.into_iter().map(|(agent, host)| Row {
            id: message.id.clone(),
            agent,
            host,
            from: message.from.clone(),
            to: message.to.clone(),
            body: message.body.clone(),
            end: None,
            attempts: 0,
            due,
        }));
        outcome
    }

    fn row(&mut self, id: &str, agent: &str) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.id == id && row.agent == agent)
    }

    fn refuse(&mut self, now: Mono, id: &str, agent: &str, code: String, retryable: bool) {
        let wall = self.wall(now);
        let Some(row) = self.row(id, agent).filter(|row| row.end.is_none()) else { return };
        if !retryable {
            row.end = Some(Err(code));
            return;
        }
        row.due = wall + Backoff::DELIVERY.after(row.attempts);
        if code == "draft_busy" {
            row.attempts = row.attempts.saturating_sub(1);
        }
    }

    /// Looks through the ledger for what is due. A row that waits is not passed by the next one of its pair.
    pub(super) fn pump(&mut self, agenda: &mut Agenda) {
        let wall = self.wall(agenda.now);
        let mut queues = BTreeSet::new();
        for row in self.rows.iter_mut().filter(|row| row.end.is_none()) {
            let first = queues.insert((row.from.clone(), row.to.clone(), row.agent.clone()));
            let host: usize = row.host[1..].parse().expect("hosts are h0, h1, …");
            let conn = self.current.get(&host);
            let link = conn.and_then(|conn| self.links.get_mut(conn)).filter(|link| link.end.is_ready());
            if let Some(link) = link.filter(|_| first && is_due(row.due, wall, Backoff::DELIVERY)) {
                row.attempts += 1;
                row.due = wall + Backoff::DELIVERY.after(row.attempts);
                link.end.deliver(&row.id, &row.agent, row.body.clone());
            }
        }
        agenda.soon(1_000, Due::Pump { at: Side::Hub, life: self.life });
    }

    pub(super) fn has_accepted(&self, id: &str) -> bool {
        self.messages.get(id) == Some(&Ok(()))
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.rows.iter().all(|row| row.end.is_some())
    }
}
