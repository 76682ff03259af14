//! Who is in Herdr's panes. What Herdr lists is the truth; nothing of it is kept but the names that agents have had.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::pane::{self, Shared};
use super::socket::{Socket, running};
use super::{Health, locked};
use crate::addr::{Harness, Name};
use crate::daemon::agents::made_up;
use crate::daemon::dispatch::Dispatch;
use crate::daemon::host::Host;
use crate::daemon::peer::lineage;
use crate::daemon::session::{Mailbox, Session, Way};
use crate::daemon::spawn;
use crate::limits;
use crate::net::wake::Wake;
use crate::proto::herdr::{Agent, Fault, Request, agents, processes, protocol};
use crate::store::config::DeliveryMode;
use crate::store::process::Process;
use crate::store::spool::agents::{Identity, Place, PlaceError};

/// Rounds without an answer after which Herdr's agents count as gone.
const MISSES: u32 = 3;
/// Rounds after which Herdr is asked again what it speaks: it may be replaced while it runs.
const PING_EVERY: u32 = 30;
/// Rounds between two attempts to write a made-up name into Herdr.
const NAME_EVERY: u32 = 15;

/// How long the thread sleeps while there is no Herdr, and no pane of one.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// An agent that is reached through its pane.
struct Pane {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    session: Session,
    /// As Herdr said it last.
    agent: Agent,
    /// The session is an adapter's.
    is_shadow: bool,
    /// Rounds until its made-up name is written into Herdr again.
    name_in: u32,
}

/// A session that has an adapter.
struct Adapter {
    process: Process,
    /// The pane that it says it is in.
    pane_id: Option<String>,
    session: Session,
    /// Its process and the ancestors of that.
    line: Vec<Process>,
}

impl Adapter {
    /// Whether it is the adapter of the agent in this pane, which is then not reached through the pane. Other programs
    /// may well run below the same shell.
    fn is_in(&self, agent: &Agent, processes: &[Process]) -> bool {
        self.pane_id.as_ref() == Some(&agent.pane_id)
            || (self.session.who.harness == harness(&agent.kind)
                && self.line.iter().any(|process| processes.contains(process)))
    }
}

struct Roster<'a> {
    host: &'a Arc<Host>,
    socket: Socket,
    panes: BTreeMap<String, Pane>,
    /// What was found in panes that are not ours to reach.
    seen: HashMap<String, (u64, String, Vec<Process>)>,
    /// The ancestors of adapters.
    lines: HashMap<Process, Vec<Process>>,
    misses: u32,
    ping_in: u32,
}

/// Asks Herdr again and again until the daemon stops.
pub(super) fn run(host: &Arc<Host>) {
    let Some(socket) = host.herdr.settings.socket.clone() else { return };
    let mut roster = Roster {
        host,
        socket,
        panes: BTreeMap::new(),
        seen: HashMap::new(),
        lines: HashMap::new(),
        misses: 0,
        ping_in: 0,
    };
    while !host.stop.is_triggered() {
        roster.round();
        // Of a Herdr that comes, `State::notice` tells.
        let is_alone = roster.panes.is_empty() && matches!(*locked(&host.herdr.health), Health::Absent);
        let wait = if is_alone { LONGEST_WAIT } else { host.herdr.settings.poll };
        host.herdr.wake.wait(wait);
    }
    for pane in std::mem::take(&mut roster.panes).into_values() {
        retire(pane);
    }
}

/// Ends the thread of a pane, and waits for it. It never takes long: nothing that it waits for outlasts a wake-up.
fn retire(pane: Pane) {
    pane.shared.end();
    if pane.thread.join().is_err() {
        tracing::error!(pane = pane.shared.agent.pane_id, "the thread of a pane has panicked");
    }
}

impl Roster<'_> {
    fn round(&mut self) {
        let ended: Vec<String> = self
            .panes
            .iter()
            .filter(|(_, pane)| pane.thread.is_finished())
            .map(|(pane_id, _)| pane_id.clone())
            .collect();
        for pane_id in ended {
            self.retire(&pane_id);
        }
        match self.listed() {
            Ok(agents) => {
                self.misses = 0;
                self.reconcile(agents);
            }
            Err(fault) => self.missed(&fault),
        }
    }

    fn retire(&mut self, pane_id: &str) {
        if let Some(pane) = self.panes.remove(pane_id) {
            retire(pane);
        }
    }

    fn missed(&mut self, fault: &Fault) {
        self.ping_in = 0;
        self.misses = self.misses.saturating_add(1);
        let health = if self.socket.is_absent() {
            Health::Absent
        } else {
            Health::Unavailable { why: fault.to_string() }
        };
        let is_news = {
            let mut now = locked(&self.host.herdr.health);
            let is_news = std::mem::discriminant(&*now) != std::mem::discriminant(&health);
            *now = health;
            is_news
        };
        if is_news {
            tracing::warn!(%fault, "Herdr cannot be reached; its panes are left alone until it can");
        }
        if self.misses >= MISSES {
            std::mem::take(&mut self.panes).into_values().for_each(retire);
        }
    }

    fn ask(&self, request: &Request) -> Result<serde_json::Value, Fault> {
        self.socket.ask(request, &self.host.herdr.wake, || self.host.stop.is_triggered())
    }

    /// The agents of all panes, once it is known that it is a Herdr that answers.
    fn listed(&mut self) -> Result<Vec<Agent>, Fault> {
        if self.ping_in == 0 {
            let (protocol, version) = protocol(&self.ask(&Request::ping())?)?;
            if !self.host.herdr.settings.protocols.contains(&protocol) {
                let why = format!(
                    "Herdr speaks protocol {protocol}, which is not known to work (TRANSIT_HERDR_PROTOCOL_ALLOW \
                     lets it)"
                );
                return Err(Fault::Unavailable(why));
            }
            let mut health = locked(&self.host.herdr.health);
            if !matches!(&*health, Health::Connected { .. }) {
                tracing::info!(version, protocol, "connected to Herdr");
            }
            *health = Health::Connected { protocol, version };
            self.ping_in = PING_EVERY;
        }
        self.ping_in -= 1;
        let list = self.ask(&Request::agents())?;
        let mut seen = HashSet::new();
        let all = agents(&list, limits::ROSTER_MAX);
        Ok(all.into_iter().filter(|agent| seen.insert(agent.pane_id.clone())).collect())
    }

    fn reconcile(&mut self, agents: Vec<Agent>) {
        let there: HashSet<&str> = agents.iter().map(|agent| agent.pane_id.as_str()).collect();
        self.seen.retain(|pane_id, _| there.contains(pane_id.as_str()));
        let gone: Vec<String> =
            self.panes.keys().filter(|pane_id| !there.contains(pane_id.as_str())).cloned().collect();
        for pane_id in gone {
            self.retire(&pane_id);
        }
        let adapters = self.adapters();
        let taken: HashSet<String> = agents.iter().filter_map(|agent| agent.name.clone()).collect();
        for agent in agents {
            if self.host.stop.is_triggered() {
                return;
            }
            let processes = self.processes(&agent);
            let adapter = adapters.iter().find(|adapter| adapter.is_in(&agent, &processes));
            if let Some(adapter) = adapter {
                self.shadow(agent, adapter);
                continue;
            }
            let is_other = self
                .panes
                .get(&agent.pane_id)
                .is_some_and(|pane| pane.is_shadow || !is_same(&pane.agent, &agent));
            if is_other {
                self.retire(&agent.pane_id);
            }
            match self.panes.remove(&agent.pane_id) {
                Some(pane) => {
                    let pane = self.update(pane, agent, processes, &taken);
                    self.panes.insert(pane.agent.pane_id.clone(), pane);
                }
                None => self.begin(agent, processes, &taken),
            }
        }
    }

    /// An agent that has an adapter: its pane is left alone, or delivers for it while the adapter looks on.
    fn shadow(&mut self, agent: Agent, adapter: &Adapter) {
        let is_right = |pane: &Pane| {
            pane.is_shadow && is_same(&pane.agent, &agent) && pane.session.place == adapter.session.place
        };
        let is_wanted = self.host.herdr.mode() == DeliveryMode::Shadow;
        if is_wanted && self.panes.get(&agent.pane_id).is_some_and(is_right) {
            return;
        }
        self.retire(&agent.pane_id);
        if !is_wanted {
            return;
        }
        match self.deliver_for(&agent, &adapter.session) {
            Ok((shared, thread)) => {
                let session = adapter.session.clone();
                let pane_id = agent.pane_id.clone();
                self.panes
                    .insert(pane_id, Pane { shared, thread, session, agent, is_shadow: true, name_in: 0 });
            }
            Err(why) => tracing::warn!(pane = agent.pane_id, why, "could not deliver through a pane"),
        }
    }

    fn deliver_for(&self, agent: &Agent, session: &Session) -> Result<(Arc<Shared>, JoinHandle<()>), String> {
        let wake = Wake::new().map_err(|err| err.to_string())?;
        let name = session.place.name.clone();
        let spool = self.host.spool().map_err(|err| err.to_string())?;
        locked(&self.host.herdr.shadowed).insert(name.clone(), wake.clone());
        let shared = Arc::new(Shared::shadow(agent.clone(), wake));
        let begun = Dispatch::new(spool, name.as_str(), self.host.now())
            .map_err(|err| err.to_string())
            .and_then(|dispatch| self.spawn(&shared, session, dispatch));
        if begun.is_err() {
            locked(&self.host.herdr.shadowed).remove(&name);
        }
        begun.map(|thread| (shared, thread))
    }

    fn spawn(
        &self,
        shared: &Arc<Shared>,
        session: &Session,
        dispatch: Dispatch,
    ) -> Result<JoinHandle<()>, String> {
        let (host, socket) = (Arc::clone(self.host), self.socket.clone());
        let (shared, session) = (Arc::clone(shared), session.clone());
        spawn("pane", &self.host.stop.clone(), move || pane::run(&host, &socket, &shared, session, dispatch))
            .map_err(|err| err.to_string())
    }

    /// The adapters that are connected.
    fn adapters(&mut self) -> Vec<Adapter> {
        let sessions = self.host.registry.all();
        let mut adapters = Vec::new();
        for session in sessions {
            if let Way::Adapter { process, pane_id } = session.way.clone() {
                let line = self.lines.entry(process).or_insert_with(|| lineage(process.pid)).clone();
                adapters.push(Adapter { process, pane_id, session, line });
            }
        }
        self.lines.retain(|process, _| adapters.iter().any(|adapter| adapter.process == *process));
        adapters
    }

    /// The processes of a pane; asked for again whenever its agent has begun or ended something.
    fn processes(&mut self, agent: &Agent) -> Vec<Process> {
        if let Some((seq, terminal_id, processes)) = self.seen.get(&agent.pane_id)
            && *seq == agent.seq
            && *terminal_id == agent.terminal_id
            && !processes.is_empty()
        {
            return processes.clone();
        }
        let found = self.ask(&Request::processes(&agent.pane_id));
        let found = found.map(|info| running(&processes(&info))).unwrap_or_default();
        let known = (agent.seq, agent.terminal_id.clone(), found.clone());
        self.seen.insert(agent.pane_id.clone(), known);
        found
    }

    /// An agent that was not there before.
    fn begin(&mut self, agent: Agent, processes: Vec<Process>, taken: &HashSet<String>) {
        if agent.name.is_none() && agent.launch_pending {
            return; // It cannot be named yet.
        }
        let begun = self.session(&agent, processes, taken).and_then(|(session, shared, dispatch)| match self
            .spawn(&shared, &session, dispatch)
        {
            Ok(thread) => Ok((session, shared, thread)),
            Err(why) => {
                self.host.registry.leave(&session);
                Err(why)
            }
        });
        match begun {
            Ok((session, shared, thread)) => {
                tracing::info!(agent = %session.place.name, pane = agent.pane_id, kind = agent.kind, "an agent in a pane");
                self.host.uplink.wake();
                let mut pane = Pane { shared, thread, session, agent, is_shadow: false, name_in: 0 };
                self.write_name(&mut pane);
                self.panes.insert(pane.agent.pane_id.clone(), pane);
            }
            Err(why) => tracing::warn!(pane = agent.pane_id, why, "could not take an agent in a pane"),
        }
    }

    fn session(
        &self,
        agent: &Agent,
        processes: Vec<Process>,
        taken: &HashSet<String>,
    ) -> Result<(Session, Arc<Shared>, Dispatch), String> {
        let wake = Wake::new().map_err(|err| err.to_string())?;
        let shared = Arc::new(Shared::new(agent.clone(), wake.clone()));
        let _one_at_a_time = self.host.registering.lock().unwrap_or_else(PoisonError::into_inner);
        let who = identity(agent);
        let place = self.place(&who, agent, taken).map_err(|err| err.to_string())?;
        let address = format!("{}@{}", place.name, self.host.name());
        let way = Way::Pane { pane_id: agent.pane_id.clone(), processes };
        let mailbox = Mailbox::new(wake);
        let Agent { cwd, title, .. } = agent.clone();
        let status = agent.status.as_str().to_owned();
        let session = Session { who, place, address, way, status, cwd, title, mailbox };
        let spool = self.host.spool().map_err(|err| err.to_string())?;
        let now = self.host.now();
        let dispatch = Dispatch::new(spool, session.place.name.as_str(), now);
        let mut dispatch = dispatch.map_err(|err| err.to_string())?;
        dispatch.follow(self.host.registry.enter(session.clone()), now);
        Ok((session, shared, dispatch))
    }

    /// The name of an agent: the one that somebody gave it in Herdr, else the one that it had, else a made-up one. A
    /// name that another session has, or that is none here, is nobody's.
    fn place(&self, who: &Identity, agent: &Agent, taken: &HashSet<String>) -> Result<Place, PlaceError> {
        let declared = agent.name.as_deref().and_then(translated);
        let mut spool = self.host.spool()?;
        let is_live = |name: &Name| {
            self.host.registry.get(name).is_some_and(|holder| holder.who != *who && !holder.way.gives_way())
        };
        let make_up = || {
            let name = made_up(who.harness.as_str());
            // Herdr refuses a second one of the same name, and so this one cannot be written down there.
            if taken.contains(name.as_str()) { made_up(who.harness.as_str()) } else { name }
        };
        let now = self.host.wall();
        match spool.remember(who, declared.as_ref(), is_live, make_up, now) {
            Err(PlaceError::Taken { name }) => {
                tracing::warn!(%name, pane = agent.pane_id, "another session has the name; the pane gets another one");
                spool.remember(who, None, is_live, make_up, now)
            }
            place => place,
        }
    }

    /// An agent that was there before: what it is doing, and whether it has another name.
    fn update(&self, mut pane: Pane, agent: Agent, processes: Vec<Process>, taken: &HashSet<String>) -> Pane {
        let was = std::mem::replace(&mut pane.agent, agent);
        if pane.agent.name != was.name && pane.agent.name.is_some() {
            let _one_at_a_time = self.host.registering.lock().unwrap_or_else(PoisonError::into_inner);
            match self.place(&pane.session.who, &pane.agent, taken) {
                Ok(place) if place.name != pane.session.place.name => {
                    pane.session.address = format!("{}@{}", place.name, self.host.name());
                    pane.session.place = place;
                    pane.session.mailbox = Mailbox::new(pane.shared.wake.clone());
                    pane.shared.rename(pane.session.clone());
                }
                Ok(_) => {}
                Err(err) => {
                    tracing::warn!(%err, "could not take an agent's new name; trying again");
                    pane.agent.name = was.name;
                }
            }
        }
        pane.session.way = Way::Pane { pane_id: pane.agent.pane_id.clone(), processes };
        pane.agent.status.as_str().clone_into(&mut pane.session.status);
        pane.session.cwd.clone_from(&pane.agent.cwd);
        pane.session.title.clone_from(&pane.agent.title);
        let before = self.host.registry.version();
        self.host.registry.observed(&pane.session);
        if before != self.host.registry.version() {
            self.host.uplink.wake();
        }
        self.write_name(&mut pane);
        pane
    }

    /// Writes the name of an agent into Herdr that has none there. A name that somebody gave is never overwritten.
    fn write_name(&self, pane: &mut Pane) {
        if pane.agent.name.is_some() || pane.agent.launch_pending {
            return;
        }
        if pane.name_in > 0 {
            pane.name_in -= 1;
            return;
        }
        pane.name_in = NAME_EVERY;
        let name = pane.session.place.name.as_str();
        match self.ask(&Request::rename(&pane.agent.pane_id, name)) {
            Ok(_) => pane.agent.name = Some(name.to_owned()),
            Err(fault) => {
                tracing::info!(%fault, name, pane = pane.agent.pane_id, "Herdr does not take a name")
            }
        }
    }
}

/// Whether a pane still hosts the agent that it did.
fn is_same(was: &Agent, is: &Agent) -> bool {
    was.terminal_id == is.terminal_id && was.kind == is.kind
}

/// Who an agent in a pane is: it has no session of its own that we know of, but its pane.
fn identity(agent: &Agent) -> Identity {
    Identity { harness: harness(&agent.kind), session_id: format!("herdr:{}", agent.pane_id) }
}

/// A program's name as a harness is called.
fn harness(kind: &str) -> Harness {
    let mut name = String::new();
    for c in kind.to_ascii_lowercase().chars() {
        match c {
            'a'..='z' | '0'..='9' => name.push(c),
            _ if !name.is_empty() && !name.ends_with('-') => name.push('-'),
            _ => {}
        }
    }
    name.truncate(26);
    name.trim_end_matches('-').parse().unwrap_or_else(|_| "agent".parse().expect("it is a harness's name"))
}

/// A name of Herdr's as one of ours: Herdr's may hold `_`. `None` when it is none here, as a reserved one is not.
fn translated(name: &str) -> Option<Name> {
    name.replace('_', "-").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_herdr_calls_an_agent_becomes_a_name_and_a_harness_of_ours() {
        assert_eq!(translated("build_bot").unwrap().as_str(), "build-bot");
        assert_eq!(translated("a__b_").unwrap().as_str(), "a--b-");
        for none in ["operator", "transit", "", "_a", "Alice"] {
            assert!(translated(none).is_none(), "{none}");
        }
        for (kind, called) in [
            ("pi", "pi"),
            ("Claude Code", "claude-code"),
            ("", "agent"),
            ("4o", "agent"),
            ("--x--", "x"),
            ("ünï", "n"),
            ("a-very-long-name-of-a-program-x", "a-very-long-name-of-a-prog"),
        ] {
            assert_eq!(harness(kind).as_str(), called, "{kind}");
        }
    }
}
