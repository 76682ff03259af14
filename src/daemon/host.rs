//! What the threads of one daemon share. Everything in it is a hint or a view; what must survive is in the spool.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::guard::Loops;
use super::herdr;
use super::life::Pulses;
use super::local_api::Standing;
use super::registry::Registry;
use super::uplink::Enrolment;
use super::wire_log::WireLog;
use crate::addr;
use crate::clock::{Clock, Mono, SystemClock, Wall};
use crate::net::service::{self, Shutdown};
use crate::net::wake::Wake;
use crate::proto::wire::RpcError;
use crate::secret::without_passwords;
use crate::store::StoreError;
use crate::store::config::{Config, Paths};
use crate::store::home::Broken;
use crate::store::spool::Spool;
use crate::text;

/// What a message came to while its sender waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SendOutcome {
    /// The Worker has committed it.
    Committed,
    /// Its recipient on this host has it in the session.
    Injected,
    /// The terminal of its recipient on this host has shown it.
    Shown,
    /// Its recipient on this host does not take it, for this reason, and there is no Worker to tell it to.
    Returned(String),
    /// The Worker has refused it, with this code.
    Refused(&'static str),
    /// The Worker does not take it now, because agents go round in a loop; it is not kept.
    Held,
}

/// A call of the Worker that a local caller waits for.
#[derive(Debug)]
pub(super) struct RpcCall {
    pub(super) method: String,
    pub(super) params: Value,
    pub(super) answer: Sender<Result<Value, RpcError>>,
}

impl RpcCall {
    /// The Worker will not be asked.
    fn unasked(self) {
        let text = format!("{} needs the Worker, and the connection ended before it was asked", self.method);
        // A caller that went away needs no answer.
        let _ = self.answer.send(Err(RpcError::new("rpc_failed", text)));
    }
}

/// How the connection to the Worker is.
#[derive(Debug, Clone, Default)]
pub(super) struct Link {
    /// The Worker's URL, once the host is enrolled.
    pub(super) url: Option<String>,
    /// The Worker has taken the hello of the connection that stands.
    pub(super) connected: bool,
    /// The organisation's slug, once the Worker has told it.
    pub(super) org: Option<String>,
    /// Why it is not connected, or was not the last time.
    pub(super) last_error: Option<String>,
}

/// What a part of the daemon does when the configuration is to be read anew.
type Reload = Box<dyn Fn() -> Reread + Send>;

/// What a part of the daemon says of what it has read anew.
#[derive(Debug, Default)]
pub(super) struct Reread {
    /// Why something of it is not used, if that is so.
    pub(super) wrong: Option<String>,
    /// What holds only after a restart.
    pub(super) restart: Option<&'static str>,
}

/// One daemon.
pub(super) struct Host {
    pub(super) paths: Paths,
    pub(super) registry: Registry,
    pub(super) herdr: herdr::State,
    pub(super) stop: Shutdown,
    /// Wakes the thread that talks to the Worker.
    pub(super) uplink: Wake,
    pub(super) wire_log: Option<WireLog>,
    /// The threads without which the daemon is none.
    pub(super) pulses: Pulses,
    /// What an operator asks for is done one thing at a time.
    pub(super) ordering: Mutex<()>,
    pub(super) loops: Loops,
    /// Registrations are decided one at a time: a name is looked up and taken in one go.
    pub(super) registering: Mutex<()>,
    clock: SystemClock,
    started: Mono,
    kicked: AtomicBool,
    paused: AtomicBool,
    name: Mutex<addr::Host>,
    /// The configuration at the start.
    config: OnceLock<Config>,
    enrolment: Mutex<Option<Enrolment>>,
    link: Mutex<Link>,
    api: Mutex<Option<Standing>>,
    reloads: Mutex<Vec<Reload>>,
    /// What was told of files of the agents' home that cannot be used; each is told once.
    told: Mutex<BTreeSet<Broken>>,
    waiters: Mutex<HashMap<String, Sender<SendOutcome>>>,
    calls: Mutex<Vec<RpcCall>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    pub(super) fn new(
        paths: Paths,
        name: addr::Host,
        stop: Shutdown,
        uplink: Wake,
        wire_log: Option<WireLog>,
        loops: Loops,
        herdr: herdr::State,
    ) -> Self {
        let clock = SystemClock::new();
        Self {
            paths,
            registry: Registry::default(),
            herdr,
            stop,
            uplink,
            wire_log,
            pulses: Pulses::default(),
            ordering: Mutex::default(),
            loops,
            registering: Mutex::default(),
            started: clock.mono(),
            clock,
            kicked: AtomicBool::default(),
            paused: AtomicBool::default(),
            name: Mutex::new(name),
            config: OnceLock::new(),
            enrolment: Mutex::default(),
            link: Mutex::default(),
            api: Mutex::default(),
            reloads: Mutex::default(),
            told: Mutex::default(),
            waiters: Mutex::default(),
            calls: Mutex::default(),
        }
    }

    pub(super) fn now(&self) -> Mono {
        self.clock.mono()
    }

    pub(super) fn wall(&self) -> Wall {
        self.clock.wall()
    }

    /// How long it has been running.
    pub(super) fn uptime(&self) -> Duration {
        self.now().since(self.started)
    }

    /// A connection to the spool for the calling thread.
    pub(super) fn spool(&self) -> Result<Spool, StoreError> {
        Spool::open(&self.paths.data)
    }

    /// This host's name.
    pub(super) fn name(&self) -> addr::Host {
        locked(&self.name).clone()
    }

    /// The host was enrolled under a name. Sessions that were told another address have to register again.
    pub(super) fn rename(&self, name: &addr::Host) {
        let is_news = std::mem::replace(&mut *locked(&self.name), name.clone()) != *name;
        if is_news {
            self.registry.end_all();
        }
    }

    /// Remembers the configuration that the daemon was started with.
    pub(super) fn started_with(&self, config: Config) {
        // It starts once.
        let _ = self.config.set(config);
    }

    /// The configuration that the daemon was started with.
    pub(super) fn config_at_start(&self) -> Option<&Config> {
        self.config.get()
    }

    /// The enrolment that the daemon connects with.
    pub(super) fn enrolment(&self) -> Option<Enrolment> {
        locked(&self.enrolment).clone()
    }

    /// The daemon connects with this enrolment from now on.
    pub(super) fn enrolled(&self, enrolment: Option<&Enrolment>) {
        if let Some(enrolment) = enrolment {
            self.rename(&enrolment.host);
        }
        *locked(&self.enrolment) = enrolment.cloned();
        self.with_link(|link| link.url = enrolment.map(|enrolment| enrolment.url.clone()));
    }

    pub(super) fn link(&self) -> Link {
        locked(&self.link).clone()
    }

    pub(super) fn with_link(&self, change: impl FnOnce(&mut Link)) {
        change(&mut locked(&self.link));
        self.announce();
    }

    /// How long the machine has been suspended so far.
    pub(super) fn suspended(&self) -> Duration {
        self.clock.suspended()
    }

    /// Whether nothing is to be handed over to sessions.
    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// From now on nothing is handed over any more, or everything is again.
    pub(super) fn set_paused(&self, is_paused: bool) {
        self.paused.store(is_paused, Ordering::Release);
        self.announce();
    }

    /// Tells the service manager how the daemon is.
    pub(super) fn announce(&self) {
        let Link { url, connected, last_error, .. } = self.link();
        let link = match (url, last_error) {
            (None, _) => "not enrolled".to_owned(),
            (Some(url), _) if connected => format!("connected to {}", without_passwords(&url)),
            (Some(_), None) => "connecting".to_owned(),
            (Some(_), Some(why)) => format!("not connected: {why}"),
        };
        let paused = if self.is_paused() { "paused, " } else { "" };
        service::notify_status(&text::visible(&format!("{paused}{link}")));
    }

    /// How the local client API stands; `None` when nobody is there whom its messages could be for.
    pub(super) fn api(&self) -> Option<Standing> {
        locked(&self.api).clone()
    }

    /// Where the local client API listens, if it does.
    pub(super) fn api_sock(&self) -> Option<PathBuf> {
        match self.api() {
            Some(Standing::Listening(path)) => Some(path),
            Some(Standing::Waiting(_)) | None => None,
        }
    }

    pub(super) fn set_api(&self, standing: Standing) {
        *locked(&self.api) = Some(standing);
    }

    /// Lets `reload` be called whenever the configuration is to be read anew.
    pub(super) fn on_reload(&self, reload: impl Fn() -> Reread + Send + 'static) {
        locked(&self.reloads).push(Box::new(reload));
    }

    /// Whether this was not told of a file since the configuration was read the last time.
    pub(super) fn is_news(&self, file: &Broken) -> bool {
        locked(&self.told).insert(file.clone())
    }

    /// Lets every part of the daemon read anew what it has of its own configuration.
    pub(super) fn reload_parts(&self) -> Vec<Reread> {
        locked(&self.told).clear();
        locked(&self.reloads).iter().map(|reload| reload()).collect()
    }

    /// Asks for a new connection at once.
    pub(super) fn kick(&self) {
        self.kicked.store(true, Ordering::Release);
        self.uplink.wake();
    }

    /// Whether a new connection is asked for.
    pub(super) fn is_kicked(&self) -> bool {
        self.kicked.load(Ordering::Acquire)
    }

    /// Whether a new connection was asked for; it counts as begun then.
    pub(super) fn take_kick(&self) -> bool {
        self.kicked.swap(false, Ordering::AcqRel)
    }

    /// Waits for what a message comes to. To be called before the message can be sent.
    pub(super) fn wait_for(&self, id: &str) -> Receiver<SendOutcome> {
        let (tell, told) = channel();
        locked(&self.waiters).insert(id.to_owned(), tell);
        told
    }

    /// Nobody waits for the message any more; answers whether somebody has, and was not told yet.
    pub(super) fn forget_waiter(&self, id: &str) -> bool {
        locked(&self.waiters).remove(id).is_some()
    }

    /// Whether somebody waits for what comes of the message.
    pub(super) fn has_waiter(&self, id: &str) -> bool {
        locked(&self.waiters).contains_key(id)
    }

    /// The right to tell the sender of a message what came of it. While it is held the sender waits for that, however
    /// long it wanted to.
    pub(super) fn take_waiter(&self, id: &str) -> Option<Sender<SendOutcome>> {
        locked(&self.waiters).remove(id)
    }

    /// Tells the sender of a message what came of it; answers whether somebody still waits.
    pub(super) fn tell_sender(&self, id: &str, outcome: SendOutcome) -> bool {
        locked(&self.waiters).remove(id).is_some_and(|tell| tell.send(outcome).is_ok())
    }

    /// Puts a call in line for the Worker.
    pub(super) fn call(&self, method: String, params: Value) -> Receiver<Result<Value, RpcError>> {
        let (answer, answered) = channel();
        locked(&self.calls).push(RpcCall { method, params, answer });
        self.uplink.wake();
        answered
    }

    /// The calls that came since the last time.
    pub(super) fn take_calls(&self) -> Vec<RpcCall> {
        std::mem::take(&mut *locked(&self.calls))
    }

    /// There is no connection: calls that would have to be made on one are not made.
    pub(super) fn refuse_calls(&self) {
        self.take_calls().into_iter().for_each(RpcCall::unasked);
    }

    /// Lets everybody go who waits for something that will not come any more.
    pub(super) fn let_go(&self) {
        locked(&self.waiters).clear();
        self.refuse_calls();
    }
}
