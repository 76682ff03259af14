//! The host's own agents as agents of the mesh: an envelope to one of them starts a run of it.
//!
//! One thread has all of them on the roster, takes what is due to them from the inbox, and settles it by how its run
//! ended. Messages of one sender to one agent are run one after the other, others side by side. A session that
//! registers under an agent's name takes its place until it goes.

mod message;
mod owed;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::message::{Message, handle};
use super::super::dispatch::{Carrier, Dispatch};
use super::super::host::{Host, Reread};
use super::super::session::{Mailbox, Session, Way};
use super::super::{DaemonError, spawn};
use super::engine::{self, Engine, LONGEST_STOP};
use super::{GatewayError, locked};
use crate::addr::{Harness, Name};
use crate::clock::Mono;
use crate::net::wake::Wake;
use crate::store::home::{ApiLimits, Home, Manifest};
use crate::store::process::Process;
use crate::store::spool::agents::Identity;
use crate::store::spool::inbox::Outcome;
use crate::text;

/// The part of the runs that are for messages.
const MESH: &str = "mesh";
/// What stands for the harness of a session that is a program.
const HARNESS: &str = "program";
/// Runs at a time, of all agents.
const RUNS: usize = 4;
/// How often it is looked whether there are other agents.
const LOOK: Duration = Duration::from_secs(60);
/// How often it is looked whether a name is free again, or whether the Worker takes what is owed to it.
const LOOK_SOON: Duration = Duration::from_secs(5);
/// Code points of a description on the roster.
const TITLE_RUNES: usize = 200;

/// The thread that has them.
pub(in crate::daemon) struct Programs {
    thread: JoinHandle<()>,
}

impl Programs {
    /// The same, for a daemon that does not depend on it: what is wrong is told, and there are none.
    pub(in crate::daemon) fn open(home: Home, host: &Arc<Host>) -> Option<Self> {
        let started = Self::start(home, host);
        started.map_err(|err| tracing::error!(%err, "the host's own agents cannot be reached")).ok()
    }

    /// Begins to reach the agents of a home.
    ///
    /// # Errors
    /// When what an earlier daemon left behind cannot be read, or the system gives no thread.
    pub(in crate::daemon) fn start(home: Home, host: &Arc<Host>) -> Result<Self, StartError> {
        // What a local client may do is no reason to keep messages from anybody.
        let limits = engine::configured(&home).unwrap_or_else(|err| {
            tracing::error!(%err, "the limits on replies are the usual ones");
            ApiLimits::default()
        });
        let engine = Engine::open(home, host, MESH, limits)?;
        let wake = Wake::new().map_err(GatewayError::from)?;
        let waker = wake.clone();
        host.stop.on_trigger(move || waker.wake());
        let look = Arc::new(AtomicBool::new(true));
        let (news, waker, limited) = (Arc::clone(&look), wake.clone(), Arc::downgrade(&engine));
        host.on_reload(move || {
            let read = limited.upgrade().map_or(Ok(()), |engine| engine.reload());
            news.store(true, Ordering::Release);
            waker.wake();
            Reread { wrong: read.err().map(|err| err.to_string()), restart: None }
        });
        let mut desk = Desk::new(Arc::clone(host), engine, wake, look);
        let thread = spawn("programs", &host.stop.clone(), move || desk.run())?;
        Ok(Self { thread })
    }

    /// The thread, to be waited for once the daemon stops.
    pub(in crate::daemon) fn into_thread(self) -> JoinHandle<()> {
        self.thread
    }
}

/// Why agents cannot be reached.
#[derive(Debug, thiserror::Error)]
pub(in crate::daemon) enum StartError {
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}

/// What was handed over and has its turn to come.
#[derive(Default)]
struct Queue(VecDeque<(String, String)>);

impl Carrier for Queue {
    fn deliver(&mut self, id: &str, envelope: String, _: Mono) {
        self.0.push_back((id.to_owned(), envelope));
    }
}

/// An agent that is on the roster.
struct Program {
    session: Session,
    dispatch: Dispatch,
    queue: Queue,
    processes: Arc<Mutex<Vec<Process>>>,
}

/// What its own threads tell the desk.
enum Told {
    /// A message has been handled.
    Handled { message: Box<Message>, outcome: Outcome },
    /// What was owed was offered to the Worker.
    Offered,
}

struct Desk {
    host: Arc<Host>,
    engine: Arc<Engine>,
    wake: Wake,
    /// Whether to look for other agents at once.
    look: Arc<AtomicBool>,
    look_at: Mono,
    programs: BTreeMap<String, Program>,
    waiting: VecDeque<Message>,
    /// Agent and conversation of what runs.
    running: HashSet<(String, String)>,
    /// Agent and message of it. An agent may be back, and be handed the message anew, before it ends.
    at_work: HashSet<(String, String)>,
    is_offering: bool,
    offer_at: Mono,
    tell: Sender<Told>,
    told: Receiver<Told>,
}

impl Desk {
    fn new(host: Arc<Host>, engine: Arc<Engine>, wake: Wake, look: Arc<AtomicBool>) -> Self {
        let (tell, told) = channel();
        let now = host.now();
        Self {
            host,
            engine,
            wake,
            look,
            look_at: now,
            programs: BTreeMap::new(),
            waiting: VecDeque::new(),
            running: HashSet::new(),
            at_work: HashSet::new(),
            is_offering: false,
            offer_at: now,
            tell,
            told,
        }
    }

    fn run(&mut self) {
        while !self.host.stop.is_triggered() {
            let now = self.host.now();
            self.hear();
            if self.look.swap(false, Ordering::AcqRel) || now >= self.look_at {
                self.look_at = now + if self.look_around() { LOOK_SOON } else { LOOK };
            }
            self.take();
            self.begin();
            self.offer();
            self.wait();
        }
        self.stop();
    }

    /// Takes what the threads of runs have told.
    fn hear(&mut self) {
        while let Ok(told) = self.told.try_recv() {
            self.settle(told);
        }
    }

    fn settle(&mut self, told: Told) {
        let Told::Handled { message, outcome } = told else {
            self.is_offering = false;
            return;
        };
        let now = self.host.now();
        self.running.remove(&message.line());
        self.at_work.remove(&(message.agent.clone(), message.id.clone()));
        match &outcome {
            Outcome::Refused { code, retryable: true } => {
                tracing::info!(id = message.id, agent = message.agent, code, "a run has not taken a message");
            }
            Outcome::Refused { code, retryable: false } => {
                tracing::warn!(id = message.id, agent = message.agent, code, "a run has refused a message");
            }
            _ => {}
        }
        let comes_again = matches!(outcome, Outcome::Refused { retryable: true, .. });
        let line = message.line();
        match self.programs.get_mut(&message.agent) {
            Some(program) => program.dispatch.answered(message.id.clone(), outcome, now),
            // Another session has the name by now; what this one has done is done.
            None => self.settle_alone(&message.id, &message.agent, &outcome),
        }
        if comes_again {
            self.give_back_behind(&line, now);
        }
        self.tell_status(&line.0);
    }

    fn settle_alone(&self, id: &str, agent: &str, outcome: &Outcome) {
        if *outcome != Outcome::Injected {
            return;
        }
        let settled = self.host.spool().and_then(|mut spool| spool.injected(id, agent, self.host.wall()));
        if let Err(err) = settled {
            tracing::error!(id, agent, %err, "could not settle a delivery");
        }
        self.host.uplink.wake();
    }

    /// A message that comes again later is not to be passed by the next ones of its sender.
    fn give_back_behind(&mut self, line: &(String, String), now: Mono) {
        let (behind, others) =
            std::mem::take(&mut self.waiting).into_iter().partition(|message| message.line() == *line);
        self.waiting = others;
        let behind: VecDeque<Message> = behind;
        for message in behind {
            if let Some(program) = self.programs.get_mut(&message.agent) {
                let outcome = Outcome::Refused { code: "behind_another".to_owned(), retryable: true };
                program.dispatch.answered(message.id, outcome, now);
            }
        }
    }

    /// Enters agents that are new or whose name is free again, and takes out those that are gone. Answers whether a
    /// name is somebody else's now.
    fn look_around(&mut self) -> bool {
        let found = self.engine.home.on_the_mesh();
        self.engine.tell_broken("manifest", &found.broken);
        self.engine.tell_unfit(&found.unfit);
        let agents: BTreeMap<String, Manifest> =
            found.agents.into_iter().map(|agent| (agent.name.clone(), agent)).collect();
        let gone: Vec<String> = self
            .programs
            .iter()
            .filter(|(name, program)| {
                let mailbox = &program.session.mailbox;
                mailbox.is_replaced() || mailbox.is_ended() || !agents.contains_key(*name)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.leave(&name);
        }
        let mut is_shadowed = false;
        for (name, agent) in agents {
            if !self.programs.contains_key(&name) {
                is_shadowed |= !self.enter(&agent);
            }
        }
        is_shadowed
    }

    /// Puts an agent on the roster; answers whether it is there.
    fn enter(&mut self, agent: &Manifest) -> bool {
        match self.place(agent) {
            Ok(Some(program)) => {
                tracing::info!(agent = agent.name, "messages to it start a run");
                self.programs.insert(agent.name.clone(), program);
                self.host.uplink.wake();
                true
            }
            Ok(None) => false,
            Err(why) => {
                tracing::error!(agent = agent.name, why, "no message can reach it");
                false
            }
        }
    }

    fn place(&self, agent: &Manifest) -> Result<Option<Program>, String> {
        let told = |err: &dyn std::fmt::Display| err.to_string();
        let name: Name = agent.name.parse().map_err(|err| told(&err))?;
        let harness: Harness = HARNESS.parse().map_err(|err| told(&err))?;
        let who = Identity { harness, session_id: agent.name.clone() };
        let _one_at_a_time = locked(&self.host.registering);
        if self.host.registry.get(&name).is_some() {
            return Ok(None);
        }
        let mut spool = self.host.spool().map_err(|err| told(&err))?;
        let place = spool
            .remember(&who, Some(&name), |_| false, || name.clone(), self.host.wall())
            .map_err(|err| told(&err))?;
        let processes = Arc::<Mutex<Vec<Process>>>::default();
        let session = Session {
            who,
            address: format!("{name}@{}", self.host.name()),
            place,
            way: Way::Program { processes: Arc::clone(&processes) },
            status: "idle".to_owned(),
            cwd: agent.working_dir.display().to_string(),
            title: text::clip(&agent.description, TITLE_RUNES).to_owned(),
            mailbox: Mailbox::new(self.wake.clone()),
        };
        let dispatch =
            Dispatch::new(spool, session.place.name.as_str(), self.host.now()).map_err(|err| told(&err))?;
        // Nobody had the name.
        let _ = self.host.registry.enter(session.clone());
        Ok(Some(Program { session, dispatch, queue: Queue::default(), processes }))
    }

    fn leave(&mut self, name: &str) {
        self.waiting.retain(|message| message.agent != name);
        if let Some(program) = self.programs.remove(name) {
            program.dispatch.end(&self.host, &program.session);
            program.session.mailbox.over();
            tracing::info!(agent = name, "messages to it start no run any more");
        }
    }

    /// Takes what is due from the inbox.
    fn take(&mut self) {
        for (name, program) in &mut self.programs {
            program.dispatch.advance(&self.host, &mut program.queue);
            let session = &program.session;
            let at_work = &self.at_work;
            let new =
                program.queue.0.drain(..).filter(|(id, _)| !at_work.contains(&(name.clone(), id.clone())));
            self.waiting.extend(new.map(|(id, envelope)| {
                Message::new(name.clone(), session.clone(), Arc::clone(&program.processes), id, envelope)
            }));
        }
    }

    /// Begins as many runs as there may be, the oldest message first.
    fn begin(&mut self) {
        let mut at = 0;
        while self.running.len() < RUNS && at < self.waiting.len() {
            if self.running.contains(&self.waiting[at].line()) {
                at += 1;
                continue;
            }
            let Some(message) = self.waiting.remove(at).map(Box::new) else { return };
            let line = message.line();
            let (engine, tell, wake) = (Arc::clone(&self.engine), self.tell.clone(), self.wake.clone());
            let (id, agent) = (message.id.clone(), message.agent.clone());
            let work = move || {
                let outcome = handle(&engine, &message);
                // Nobody listens any more when the daemon could not wait longer; the row is due again then.
                let _ = tell.send(Told::Handled { message, outcome });
                wake.wake();
            };
            self.running.insert(line.clone());
            self.at_work.insert((agent.clone(), id.clone()));
            if let Err(err) = spawn("program", &self.host.stop.clone(), work) {
                tracing::error!(id, agent, %err, "could not begin a run");
                self.running.remove(&line);
                self.at_work.remove(&(agent.clone(), id.clone()));
                let outcome = Outcome::Refused { code: "agent_not_started".to_owned(), retryable: true };
                if let Some(program) = self.programs.get_mut(&agent) {
                    program.dispatch.answered(id, outcome, self.host.now());
                }
                return;
            }
            self.tell_status(&line.0);
        }
    }

    fn tell_status(&self, agent: &str) {
        let Some(program) = self.programs.get(agent) else { return };
        let is_working = self.running.iter().any(|(name, _)| name == agent);
        let status = if is_working { "working" } else { "idle" };
        if self.host.registry.set_status(&program.session, status) {
            self.host.uplink.wake();
        }
    }

    /// Offers the Worker what is owed to it, beside everything else.
    fn offer(&mut self) {
        let now = self.host.now();
        if self.is_offering || now < self.offer_at {
            return;
        }
        self.offer_at = now + LOOK_SOON;
        let link = self.host.link();
        if !link.connected || !owed::is_anything(&self.host) {
            return;
        }
        let (host, tell, wake) = (Arc::clone(&self.host), self.tell.clone(), self.wake.clone());
        let work = move || {
            owed::offer(&host);
            let _ = tell.send(Told::Offered);
            wake.wake();
        };
        // It is not waited for when the daemon stops: what was not taken stays owed.
        self.is_offering = spawn("replies", &self.host.stop.clone(), work).is_ok();
    }

    fn wait(&mut self) {
        let owes = owed::is_anything(&self.host).then_some(self.offer_at);
        let due = self.programs.values().filter_map(|program| program.dispatch.next());
        let next = due.chain(owes).chain([self.look_at]).min().unwrap_or_default();
        sleep(&self.wake, next.since(self.host.now()));
        self.wake.clear();
        let now = self.host.now();
        let is_out =
            |program: &Program| program.session.mailbox.is_replaced() || program.session.mailbox.is_ended();
        if self.programs.values().any(is_out) {
            self.look_at = now;
        }
        self.programs.values_mut().for_each(|program| program.dispatch.look(now));
    }

    /// Begins nothing more, gives what runs a while to end, and settles it.
    fn stop(&mut self) {
        self.engine.stop();
        let until = self.host.now() + LONGEST_STOP;
        while !self.running.is_empty() && self.host.now() < until {
            self.wake.clear();
            self.hear();
            if !self.running.is_empty() {
                sleep(&self.wake, until.since(self.host.now()));
            }
        }
        self.engine.join();
        for name in self.programs.keys().cloned().collect::<Vec<_>>() {
            self.leave(&name);
        }
    }
}

fn sleep(wake: &Wake, longest: Duration) {
    let longest = Timespec::try_from(longest).ok();
    // Interrupted by a signal; whoever waits looks again.
    let _ = poll(&mut [PollFd::new(wake, PollFlags::IN)], longest.as_ref());
}
