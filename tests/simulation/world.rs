//! The world around a Worker: two organisations, their hosts and agents, senders and receivers of events, operators,
//! and whatever goes wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use transit::clock::{Mono, Wall};
use transit::limits::{BODY_BYTES, LOOP_LIMIT, ROSTER_REFRESH};
use transit::proto::Input;
use transit::proto::wire::{SendFrame, close};
use transit::secret::Secret;
use transit::store::ledger::stepped::Crash;
use transit::store::seal::MasterKey;
use transit::worker::simulation::{Asked, Conn, FakeClock, Process};

use super::agenda::{Agenda, Due, End};
use super::host::{Heard, Host, UNWELCOME};
use super::spool::HostOp;
use super::story::{Accepted, Story};
use super::strain::Strain;
use super::tally::Tally;
use super::trace::Trace;
use super::wires::Wires;

/// Every story begins on this day.
const BEGIN: Wall = Wall(1_767_225_600_000);
/// Time in which things go wrong and agents speak; less where nothing but one thing goes wrong.
pub(crate) const TROUBLE: Duration = Duration::from_secs(300);
const QUIET: Duration = Duration::from_secs(60);

/// The room of each organisation.
pub(crate) const ROOM: &str = "#hall";

/// How a story is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plot {
    pub(crate) seed: u64,
    /// Nothing goes wrong but this: the Worker dies in its `n`th commit.
    pub(crate) crash: Option<(u64, Crash)>,
    /// Nothing else goes wrong.
    pub(crate) is_quiet: bool,
    /// Whether every step is printed.
    pub(crate) is_told: bool,
}

/// An organisation, with what its operator knows.
pub(crate) struct Org {
    pub(crate) id: String,
    /// The secrets of its sources, by name; the newest last.
    pub(crate) secrets: BTreeMap<&'static str, Vec<Secret>>,
    pub(crate) paused: BTreeSet<&'static str>,
    /// The first members are in its room.
    pub(crate) has_met: bool,
    /// Numbers its messages.
    pub(crate) messages: u64,
}

/// A request that somebody waits for.
pub(crate) enum Waiting {
    /// A host wants its token.
    Enrolment { host: usize },
    /// An event. The source was paused, or the disk without room, when it was posted.
    Event { event: usize, was_paused: bool, was_full: bool },
}

pub(crate) struct World {
    pub(crate) agenda: Agenda,
    pub(crate) wires: Wires,
    pub(crate) hosts: Vec<Host>,
    pub(crate) orgs: Vec<Org>,
    pub(crate) story: Story,
    pub(crate) tally: Tally,
    pub(crate) strain: Strain,
    pub(crate) trace: Trace,
    pub(crate) plot: Plot,
    pub(crate) calm: bool,
    /// It is night: everybody sleeps but the Worker.
    pub(crate) night: bool,
    // The Worker, and what is planned for it.
    pub(crate) process: Option<Process>,
    pub(crate) life: u32,
    pub(crate) clock: FakeClock,
    pub(crate) key: MasterKey,
    pub(crate) database: PathBuf,
    pub(crate) turns: BTreeSet<Conn>,
    pub(crate) buffers: BTreeMap<Conn, Vec<String>>,
    pub(crate) commit_at: Option<Mono>,
    pub(crate) wake_at: Option<Mono>,
    pub(crate) post_at: Option<Mono>,
    pub(crate) waiting: BTreeMap<Asked, Waiting>,
    pub(crate) done: bool,
    _dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new(plot: Plot) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let day = BEGIN.0;
        // The same names in both organisations: only the organisation tells them apart.
        let hosts = vec![
            Host::new(0, 0, "titan", &["ada", "bob"], day),
            Host::new(1, 0, "rhea", &["cyd", "dan"], day),
            Host::new(2, 0, "dione", &["eve"], day),
            Host::new(3, 1, "titan", &["ada", "bob"], day),
            Host::new(4, 1, "rhea", &["cyd"], day),
        ];
        let mut world = Self {
            agenda: Agenda::new(plot.seed),
            wires: Wires::default(),
            hosts,
            orgs: Vec::new(),
            story: Story::default(),
            tally: Tally::default(),
            strain: Strain::default(),
            trace: Trace::new(plot.is_told),
            plot,
            calm: false,
            night: false,
            process: None,
            life: 0,
            clock: FakeClock::new(BEGIN),
            key: MasterKey::from_base64("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").unwrap(),
            database: dir.path().join("worker.db"),
            turns: BTreeSet::new(),
            buffers: BTreeMap::new(),
            commit_at: None,
            wake_at: None,
            post_at: None,
            waiting: BTreeMap::new(),
            done: false,
            _dir: dir,
        };
        world.found();
        world.start_worker();
        for host in 0..world.hosts.len() {
            world.hosts[host].start(&mut world.agenda);
        }
        world.agenda.soon(4_000, Due::Speak);
        world.agenda.soon(4_000, Due::Happens);
        world.agenda.after(Duration::from_secs(2), Due::Convene);
        world.agenda.after(if plot.is_quiet { QUIET } else { TROUBLE }, Due::Calm);
        world.agenda.after(Duration::from_secs(300), Due::Retain);
        if plot.is_quiet {
            world.agenda.after(QUIET / 2, Due::Stop);
        } else {
            world.agenda.soon(10_000, Due::Mishap);
            world.agenda.soon(30_000, Due::Operate);
        }
        world
    }

    /// Tells the story to its end.
    pub(crate) fn run(&mut self) {
        while !self.done {
            let due = self.agenda.next().expect("the Worker always has something to come");
            self.clock.pass(self.agenda.now);
            self.trace.line(self.agenda.now, format_args!("{due:?}"));
            self.happen(due);
            self.drain_hosts();
            self.settle_worker();
        }
        self.tally.time += self.agenda.now.0;
        self.tally.wires += self.wires.opened() as u64;
        self.close_the_books();
    }

    fn happen(&mut self, due: Due) {
        let now = self.agenda.now;
        match due {
            Due::Arrive { wire, at, text } => {
                if self.wires.is_cut(wire, at, now) {
                    return;
                }
                match at {
                    End::Worker => self.heard(wire, text),
                    End::Host => {
                        let host = self.wires.get(wire).host;
                        self.hosts[host].input(now, wire, Input::Text(&text));
                    }
                }
            }
            Due::Eof { wire, at: End::Worker } => self.lost(wire),
            Due::Eof { wire, at: End::Host } => {
                let host = self.wires.get(wire).host;
                self.hosts[host].eof(wire);
            }
            Due::Turn { life, conn } if life == self.life => self.turn(conn),
            Due::Commit { life } if life == self.life => self.commit(),
            Due::Wake { life } if life == self.life && self.wake_at == Some(now) => self.wake_at = None,
            Due::Sweep { life } if life == self.life => self.sweep(),
            Due::Post { life } if life == self.life => self.post_replies(),
            Due::HostWake { wire } => {
                let host = self.wires.get(wire).host;
                self.hosts[host].input(now, wire, Input::Tick);
            }
            Due::Connect { host, life } if self.hosts[host].life == life => self.connect(host),
            Due::Pump { host, life } if self.hosts[host].life == life => {
                self.hosts[host].pump(&mut self.agenda);
            }
            Due::HostCommit { host, life, op } if self.hosts[host].life == life => {
                self.host_commit(host, op);
            }
            Due::Show { host, life, id, agent } => self.show(host, life, id, agent),
            Due::Act { host, agent, id } => self.act(host, &agent, &id),
            Due::Roster { host, life } if self.hosts[host].life == life => {
                self.hosts[host].roster();
                self.agenda.after(ROSTER_REFRESH, Due::Roster { host, life });
            }
            Due::Turn { .. }
            | Due::Commit { .. }
            | Due::Wake { .. }
            | Due::Sweep { .. }
            | Due::Post { .. }
            | Due::Connect { .. }
            | Due::Pump { .. }
            | Due::HostCommit { .. }
            | Due::Roster { .. } => {} // it died with its process
            Due::Convene => self.convene(),
            Due::Move { host, agent } => self.move_between_rooms(host, agent),
            Due::Speak => self.speak(),
            Due::Happens => self.something_happens(),
            Due::Deliver { event } => self.deliver_event(event),
            Due::Operate => self.operate(),
            Due::Mishap => self.mishap(),
            Due::Restart => self.start_worker(),
            Due::DiskFreed => self.free_disk(),
            Due::Stop => self.stop_worker(),
            Due::Stopped { life } => {
                if life == self.life {
                    self.worker_ends("after its time for a stop");
                }
            }
            Due::Retain => self.retain(),
            Due::HostRestart { host } => {
                if !self.hosts[host].up && !self.night {
                    self.hosts[host].start(&mut self.agenda);
                }
            }
            Due::Morning => self.morning(),
            Due::Calm => self.calm(),
            Due::Look => self.look(),
        }
    }

    fn host_commit(&mut self, host: usize, op: HostOp) {
        if let HostOp::Answered { id, answer } = &op {
            let org = self.hosts[host].org;
            let name = self.hosts[host].name;
            let told = self.story.accepted.iter_mut().rev();
            let mut mine = told.filter(|one| one.org == org && one.host == name && one.id == *id);
            if let Some(accepted) = mine.next() {
                accepted.answers.push(*answer);
            }
        }
        self.hosts[host].apply(self.agenda.now, op);
    }

    fn show(&mut self, host: usize, life: u32, id: String, agent: String) {
        let Some(shown) = self.hosts[host].show(&mut self.agenda, life, &id, &agent) else { return };
        self.tally.shown += 1;
        self.tally.redelivered += u64::from(shown.redelivery.is_some_and(|n| n > 0));
        if shown.redelivery.is_some() {
            self.agenda.soon(20_000, Due::Act { host, agent, id });
        }
        self.story.shown.push(shown);
    }

    /// What the machines of the hosts have to say.
    fn drain_hosts(&mut self) {
        for host in 0..self.hosts.len() {
            while let Some(heard) = self.hosts[host].next(&mut self.agenda, &mut self.wires) {
                match heard {
                    Heard::Committing(op) => self.hosts[host].commit(&mut self.agenda, op),
                    Heard::Called(call, result) => self.called(host, call, result),
                    Heard::Closed { code, wire } => {
                        self.trace.line(self.agenda.now, format_args!("host {host} closes {wire}: {code}"));
                        let is_fine = code == close::SILENT;
                        if !is_fine {
                            self.story.restless.push(format!("the daemon of host {host} closed with {code}"));
                        }
                    }
                }
            }
        }
    }

    fn connect(&mut self, host: usize) {
        if self.hosts[host].is_linked() || !self.hosts[host].up {
            return;
        }
        let token = self.hosts[host].token.clone();
        let conn = match (&mut self.process, &token) {
            (Some(process), Some(token)) if !self.strain.is_stopping => process.connect(token).unwrap(),
            _ => None,
        };
        match conn {
            Some(conn) => {
                let wire = self.wires.open(&mut self.agenda, host, conn, self.life);
                self.buffers.insert(conn, Vec::new());
                self.hosts[host].connected(self.agenda.now, wire);
            }
            None => {
                if self.process.is_some() && !self.strain.is_stopping {
                    self.enrol(host);
                }
                let wait = self.hosts[host].wait(Duration::ZERO, &mut self.agenda);
                let life = self.hosts[host].life;
                self.agenda.after(wait, Due::Connect { host, life });
            }
        }
    }

    /// A few messages of one agent to one recipient.
    fn speak(&mut self) {
        if self.night || self.calm {
            return;
        }
        self.agenda.soon(6_000, Due::Speak);
        let has_met = self.orgs.iter().all(|org| org.has_met);
        let rng = &mut self.agenda.rng;
        let host = rng.below(self.hosts.len());
        let Host { org, name, agents, .. } = &self.hosts[host];
        let (org, name) = (*org, *name);
        let from = format!("{}@{name}", rng.one(agents));
        let everywhere =
            ["ada@titan", "bob@titan", "cyd@rhea", "dan@rhea", "eve@dione", "cyd@rhea", ROOM, ROOM];
        let everywhere = if has_met { &everywhere[..] } else { &everywhere[..6] };
        let odd = ["nobody@titan", "transit@rhea", "not an address", "#nowhere"];
        let to = if rng.chance(8) { *rng.one(&odd) } else { *rng.one(everywhere) };
        let burst = if rng.chance(3) { 25 } else { 4 };
        // Two that cannot stop.
        let count = if rng.chance(2) { LOOP_LIMIT as usize + 10 } else { rng.below(burst) };
        let stolen = rng.chance(2).then(|| self.others_id(org, name)).flatten();
        for n in 0..count {
            self.orgs[org].messages += 1;
            let number = self.orgs[org].messages;
            let id = stolen.clone().filter(|_| n == 0).unwrap_or_else(|| format!("tx_{number:012x}"));
            let is_odd = self.agenda.rng.below(100);
            let body = match is_odd {
                0..4 => UNWELCOME.to_owned(),
                4 => "x".repeat(BODY_BYTES + 1),
                _ => format!("org {org} says {number}"),
            };
            let (from, to) = (from.clone(), to.to_owned());
            let ts = "2026-01-01T00:00:00Z".to_owned();
            let message = SendFrame { id, from, to, body, reply_to: None, ts };
            self.accept(host, message);
        }
    }

    fn accept(&mut self, host: usize, message: SendFrame) {
        if !self.hosts[host].up {
            return;
        }
        self.tally.messages += 1;
        let SendFrame { id, from, to, body, .. } = message.clone();
        let (org, name) = (self.hosts[host].org, self.hosts[host].name.to_owned());
        self.story.accepted.push(Accepted { org, host: name, id, from, to, body, answers: Vec::new() });
        self.hosts[host].accept(self.agenda.now, message);
    }

    /// The id of a message that the Worker has taken from another host of the organisation.
    fn others_id(&mut self, org: usize, name: &str) -> Option<String> {
        let in_org = || self.story.accepted.iter().filter(|one| one.org == org);
        let own: BTreeSet<&String> = in_org().filter(|one| one.host == name).map(|one| &one.id).collect();
        // An id that is removed is free again.
        let gone = |id: &String| self.story.gone_ids.contains(&(org, id.clone()));
        let others = in_org().filter(|one| one.host != name && !own.contains(&one.id) && !gone(&one.id));
        let taken: Vec<&String> =
            others.filter(|one| one.answers.first() == Some(&Ok(()))).map(|one| &one.id).collect();
        (!taken.is_empty()).then(|| (*self.agenda.rng.one(&taken)).clone())
    }
}
