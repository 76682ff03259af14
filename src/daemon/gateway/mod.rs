//! The gateway behind the local client API: it lets triggers in, has the host's own agents run for them, and hands on
//! what they say.
//!
//! It keeps no conversation. A trigger is on the audit trail before anybody is told that it was taken; from then on
//! it is answered exactly once, with a reply, whatever becomes of its run. Each conversation has a thread of its own
//! while it has jobs, so that none waits for another.

mod bang;
mod engine;
mod environment;
mod jobs;
mod preflight;
mod process;
pub(super) mod programs;
mod run;
mod stdout;
#[cfg(test)]
pub(super) mod tests;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::{Value, json};

use self::engine::Engine;
use self::jobs::{Job, Task};
use super::DaemonError;
use super::host::{Host, Reread};
use crate::proto::admission::{Admission, Key, Lane, Limits, Refused};
use crate::proto::bang::{Message, Parked};
use crate::proto::local::{CatalogEntry, LocalEvent, SessionId};
use crate::store::StoreError;
use crate::store::home::{ApiLimits, Home, Settings};

/// The runs for local clients, where they are written down.
const LOCAL: &str = "local";
/// The dispatcher, as the configuration has it.
pub(super) const DISPATCHER_KEY: &str = "dispatcher_agent";
/// What begins a new session of an assistant, unless a command of that name is installed.
const NEW_SESSION: [&str; 2] = ["/novo", "/new"];

/// A message for the dispatcher, or a `!` command.
pub(super) struct Trigger {
    /// Where it comes from: `local`.
    pub(super) source: &'static str,
    /// The conversation there.
    pub(super) session: SessionId,
    /// What it says.
    pub(super) text: String,
    /// Who the kernel says it is.
    pub(super) actor: Actor,
    /// Where its events go.
    pub(super) sink: Arc<dyn Sink>,
}

/// Takes the events of a trigger.
pub(super) trait Sink: Send + Sync {
    /// Takes the next event. It may block while the client's queue is full, so that the run's pipe feels it. `false`
    /// once the client is gone; nobody has to tell it anything more then.
    fn event(&self, event: LocalEvent) -> bool;
}

/// Who has triggered something, as far as the kernel says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Actor {
    /// The process.
    pub(super) pid: Option<u32>,
    /// Its user.
    pub(super) uid: Option<u32>,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, self.uid) {
            (Some(pid), Some(uid)) => write!(f, "pid={pid} uid={uid}"),
            (Some(pid), None) => write!(f, "pid={pid}"),
            (None, Some(uid)) => write!(f, "uid={uid}"),
            (None, None) => f.write_str("local"),
        }
    }
}

/// Why a trigger is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// Its actor has triggered enough for now.
    #[error("rate limit exceeded")]
    RateLimited,
    /// There is no place for another conversation.
    #[error("session cap reached")]
    SessionCap,
    /// Too much waits in its conversation.
    #[error("conversation queue full")]
    QueueFull,
    /// The daemon is stopping, or nothing can be written down about it.
    #[error("gateway unavailable")]
    Unavailable,
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::RateLimited => Self::RateLimited,
            Refused::SessionCap => Self::SessionCap,
            Refused::QueueFull => Self::QueueFull,
        }
    }
}

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum GatewayError {
    /// The configuration makes no sense, or what an earlier daemon left behind cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The dispatcher that the configuration names is not there.
    #[error("no agent is called {0:?}, as [telegram] dispatcher_agent says")]
    NoDispatcher(String),
    /// The system gives no descriptor.
    #[error("could not make a pipe: {0}")]
    System(#[from] std::io::Error),
    /// The system gives no thread.
    #[error(transparent)]
    Thread(#[from] DaemonError),
}

/// The gateway.
pub(super) struct Gateway {
    me: Weak<Self>,
    engine: Arc<Engine>,
    dispatcher: String,
    admission: Mutex<Admission<Job>>,
    /// A conversation became idle.
    idle: Condvar,
    /// Triggers are decided one at a time, so that their order is that of the audit trail.
    submitting: Mutex<()>,
    parked: Mutex<Parked>,
    is_closed: AtomicBool,
    /// Conversations that are to begin: a thread takes longer to make than a client should wait for an answer.
    beginning: Sender<Key>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn limits(api: &ApiLimits) -> Limits {
    let ApiLimits { conversations, queue, .. } = *api;
    Limits { conversations, queue, rate_per_minute: api.server.rate_per_minute }
}

impl Gateway {
    /// The gateway for a home, once what an earlier daemon left running was ended. `None` when no dispatcher is named,
    /// and none is there of the usual name: there is nobody then whom a message could be for.
    ///
    /// # Errors
    /// When `config.toml` makes no sense, because what it says is not to be guessed; and when it names a dispatcher
    /// that is not there.
    pub(super) fn open(home: Home, host: &Arc<Host>) -> Result<Option<Arc<Self>>, GatewayError> {
        let Settings { dispatcher, is_dispatcher_named, .. } = home.settings()?;
        let limits_now = engine::configured(&home)?;
        let engine = Engine::open(home, host, LOCAL, limits_now)?;
        if engine.agent(&dispatcher).is_none() {
            // Who has named none has asked for none.
            return if is_dispatcher_named { Err(GatewayError::NoDispatcher(dispatcher)) } else { Ok(None) };
        }
        let admission = Admission::new(limits(&engine.limits()));
        let (beginning, to_begin) = channel();
        let gateway = Arc::new_cyclic(|me: &Weak<Self>| Self {
            me: me.clone(),
            engine,
            dispatcher,
            admission: Mutex::new(admission),
            idle: Condvar::new(),
            submitting: Mutex::default(),
            parked: Mutex::default(),
            is_closed: AtomicBool::default(),
            beginning,
        });
        gateway.begin_all(to_begin)?;
        let me = gateway.me.clone();
        host.on_reload(move || me.upgrade().map(|gateway| gateway.reload()).unwrap_or_default());
        Ok(Some(gateway))
    }

    /// Takes a trigger on, or says why not; in both cases it is on the audit trail first. It never waits for a run.
    pub(super) fn submit(&self, trigger: Trigger) -> Result<(), Refusal> {
        let Trigger { source, session, text, actor, sink } = trigger;
        let task = self.task(text);
        let lane = if task.is_command() { Lane::Command } else { Lane::Agent };
        let key = Key { source, session: session.as_str().to_owned(), lane };
        let actor = actor.to_string();
        let is_run = matches!(task, Task::Run(_));
        let (announced, is_announced) = channel();
        {
            let _one_at_a_time = locked(&self.submitting);
            self.admit(&key, &actor)?;
            let job =
                Job { task, session: session.clone(), source, actor, sink: Arc::clone(&sink), is_announced };
            if locked(&self.admission).push(key.clone(), job) {
                // Whoever takes it lives as long as this gateway.
                let _ = self.beginning.send(key);
            }
        }
        if is_run {
            let agent = self.dispatcher.clone();
            sink.event(LocalEvent::RunStarted { session, agent });
        }
        // The job's own events come behind that one. Nobody listens when it was over before it began.
        let _ = announced.send(());
        Ok(())
    }

    fn admit(&self, key: &Key, actor: &str) -> Result<(), Refusal> {
        let is_open = !self.is_closed.load(Ordering::Acquire);
        let now = self.engine.host.now();
        let admitted = match is_open {
            true => locked(&self.admission).admit(key, actor, now).map_err(Refusal::from),
            false => Err(Refusal::Unavailable),
        };
        match admitted {
            Ok(()) => {
                let fields = json!({ "source": key.source, "actor": actor, "reply_to": key.session });
                self.engine.audit("trigger_received", fields).map_err(|_| Refusal::Unavailable)
            }
            Err(refusal) => {
                let fields = json!({ "source": key.source, "actor": actor, "reason": refusal.to_string() });
                // That it is refused does not depend on it.
                let _ = self.engine.audit("trigger_rejected", fields);
                Err(refusal)
            }
        }
    }

    fn task(&self, text: String) -> Task {
        match Message::parse(&text) {
            Message::Command(words) => Task::Command(words),
            Message::Confirm => Task::Confirm,
            Message::Other if self.is_for_a_new_session(text.trim()) => Task::NewSession,
            Message::Other => Task::Run(text),
        }
    }

    /// Whether a text asks for a new session: the dispatcher has sessions, and no command has taken the name.
    fn is_for_a_new_session(&self, text: &str) -> bool {
        NEW_SESSION.contains(&text)
            && self.engine.agent(&self.dispatcher).is_some_and(|agent| agent.assistant.is_some())
            && self.catalog().iter().all(|entry| entry.telegram_name != text[1..])
    }

    /// The commands that are installed. Without a configuration that makes sense there are none.
    pub(super) fn catalog(&self) -> Vec<CatalogEntry> {
        match self.engine.home.settings() {
            Ok(settings) => {
                let (entries, broken) = self.engine.home.catalog(&settings.commands);
                self.engine.tell_broken("command", &broken);
                entries
            }
            Err(err) => {
                tracing::error!(%err, "no command is listed");
                Vec::new()
            }
        }
    }

    /// The limits that hold now.
    pub(super) fn limits(&self) -> ApiLimits {
        self.engine.limits()
    }

    /// The name of the agent that messages are for.
    pub(super) fn dispatcher(&self) -> &str {
        &self.dispatcher
    }

    /// Whether its manifest is still there.
    pub(super) fn is_dispatcher_there(&self) -> bool {
        self.engine.is_there(&self.dispatcher)
    }

    /// Reads anew what is kept in memory of the configuration: the limits. The dispatcher stays who it is, and
    /// everything else is read when it is used.
    fn reload(&self) -> Reread {
        let read = self.engine.reload();
        locked(&self.admission).set_limits(limits(&self.engine.limits()));
        let is_another = self.engine.home.settings().is_ok_and(|now| now.dispatcher != self.dispatcher);
        Reread { wrong: read.err().map(|err| err.to_string()), restart: is_another.then_some(DISPATCHER_KEY) }
    }

    /// Lets nothing in any more, gives what runs a while to end by itself, and ends it then; what waits behind it is
    /// told that it is too late, in its turn. Every reply was handed to its sink when this returns.
    pub(super) fn stop(&self) {
        {
            // Whoever was let in has its job among those that are waited for.
            let _nobody_submits = locked(&self.submitting);
            self.is_closed.store(true, Ordering::Release);
        }
        self.engine.stop();
        let admission = locked(&self.admission);
        let all_idle = self
            .idle
            .wait_timeout_while(admission, engine::LONGEST_STOP, |admission| admission.conversations() > 0);
        drop(all_idle);
        self.engine.join();
    }
}

/// The fields of an entry of the audit trail.
fn fields(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => serde_json::Map::new(),
    }
}
