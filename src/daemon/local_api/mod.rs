//! `api.sock`: the local client API in front of the gateway.
//!
//! One thread accepts, and one drives the machine of each connection. What the runs have to say comes from their own
//! threads, through a [`sink`](sink::ClientSink) that makes them wait for a client that reads and lets them go on
//! without one that does not.

mod connection;
mod listener;
mod sink;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use self::listener::{Listener, Places};
use super::gateway::{DISPATCHER_KEY, Gateway, Refusal, Trigger};
use super::host::{Host, Reread};
use crate::clock::{Clock, SystemClock};
use crate::net::service::Shutdown;
use crate::net::unix::API_SOCK;
use crate::net::wake::Wake;
use crate::proto::local::{CatalogEntry, ServerConfig};
use crate::store::files;
use crate::store::home::{ApiLimits, Home};

/// Time for clients to take their last frames once the gateway has stopped.
const LAST_FRAMES: Duration = Duration::from_secs(2);

/// What the API needs of the gateway.
pub(super) trait Front: Send + Sync {
    /// Takes a message, or says why not. Answers once that is certain, and never waits for a run.
    fn submit(&self, trigger: Trigger) -> Result<(), Refusal>;
    /// The entries of `commands.list`.
    fn catalog(&self) -> Vec<CatalogEntry>;
    /// The agent that messages go to.
    fn dispatcher(&self) -> &str;
    /// Whether that agent is still there.
    fn is_dispatcher_there(&self) -> bool;
    /// What holds for the next client.
    fn limits(&self) -> Limits;
}

impl Front for Gateway {
    fn submit(&self, trigger: Trigger) -> Result<(), Refusal> {
        self.submit(trigger)
    }

    fn catalog(&self) -> Vec<CatalogEntry> {
        self.catalog()
    }

    fn dispatcher(&self) -> &str {
        self.dispatcher()
    }

    fn is_dispatcher_there(&self) -> bool {
        self.is_dispatcher_there()
    }

    fn limits(&self) -> Limits {
        let ApiLimits { connections, idle_timeout, server, .. } = self.limits();
        Limits { connections, idle: idle_timeout, server }
    }
}

/// What an operator may change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections at the same time.
    pub(super) connections: usize,
    /// Silence after which a client that waits for nothing makes room for another; `None` is never.
    pub(super) idle: Option<Duration>,
    /// What counts for each connection.
    pub(super) server: ServerConfig,
}

/// The gateway, and the API in front of it.
pub(super) struct Served {
    gateway: Arc<Gateway>,
    api: LocalApi,
}

impl Served {
    /// Opens both for a home, and notes in `host` how the API stands. `None` when there is no dispatcher, or when the
    /// home is not fit for use: the host's agents that are sessions do not depend on it.
    pub(super) fn open(home: Home, host: &Arc<Host>) -> Option<Self> {
        let later = home.clone();
        let served = Self::start(home, host);
        if served.is_none() {
            host.on_reload(move || {
                let is_named = later.settings().is_ok_and(|settings| settings.is_dispatcher_named);
                Reread { wrong: None, restart: is_named.then_some(DISPATCHER_KEY) }
            });
        }
        served
    }

    fn start(home: Home, host: &Arc<Host>) -> Option<Self> {
        let dir = home.socket_dir().to_owned();
        let opened = Gateway::open(home, host).map_err(|err| err.to_string()).and_then(|gateway| {
            let Some(gateway) = gateway else { return Ok(None) };
            files::make_parent(&dir.join(API_SOCK)).map_err(|err| err.to_string())?;
            let teller = Arc::clone(host);
            let tell = move |standing| teller.set_api(standing);
            let front = Arc::clone(&gateway) as _;
            let api = LocalApi::start(dir, front, host.stop.clone(), tell).map_err(|err| err.to_string())?;
            // Behind what the gateway does then, which reads them.
            let shared = Arc::downgrade(&api.shared);
            host.on_reload(move || {
                if let Some(shared) = shared.upgrade() {
                    shared.reload();
                }
                Reread::default()
            });
            Ok(Some(Self { gateway, api }))
        });
        opened.unwrap_or_else(|why| {
            tracing::error!(why, "there is no local client API");
            host.set_api(Standing::Waiting(why));
            None
        })
    }

    /// Ends both, once the daemon stops: what ends by itself in the time that the gateway gives it has its reply
    /// delivered.
    pub(super) fn finish(self) {
        self.gateway.stop();
        self.api.finish();
    }
}

/// How the API stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// It listens here.
    Listening(PathBuf),
    /// There is none, for this reason. Binding a socket is tried again and again.
    Waiting(String),
}

/// The API, from its socket to its last connection.
pub(super) struct LocalApi {
    shared: Arc<Shared>,
    wake: Wake,
    thread: JoinHandle<()>,
}

/// What the threads of the API share.
struct Shared {
    front: Arc<dyn Front>,
    clock: SystemClock,
    stop: Shutdown,
    places: Mutex<Places>,
}

impl Shared {
    /// Lets clients that are there have what holds for the next one.
    fn reload(&self) {
        let limits = self.front.limits();
        locked(&self.places).set_config(limits.server);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalApi {
    /// Listens in `dir`. `tell` is told how the API stands, first before this returns: a socket that cannot be bound
    /// now, because another daemon listens there, is bound once it can be. When `stop` is triggered, the socket goes
    /// away and no request is taken any more, but replies are still delivered, until [`finish`](Self::finish).
    ///
    /// # Errors
    /// When the system gives no descriptor or thread.
    pub(super) fn start(
        dir: PathBuf,
        front: Arc<dyn Front>,
        stop: Shutdown,
        tell: impl Fn(Standing) + Send + 'static,
    ) -> io::Result<Self> {
        let wake = Wake::new()?;
        let shared = Shared { front, clock: SystemClock::new(), stop, places: Mutex::default() };
        let shared = Arc::new(shared);
        let waker = wake.clone();
        shared.stop.on_trigger(move || waker.wake());
        let mut listener = Listener::new(Arc::clone(&shared), dir, wake.clone(), Box::new(tell));
        listener.bind();
        let thread = std::thread::Builder::new().name("api".into()).spawn(move || listener.run())?;
        Ok(Self { shared, wake, thread })
    }

    /// Waits for the end of all connections, after `stop` was triggered and the gateway has nothing to say any more.
    pub(super) fn finish(self) {
        self.wake.wake();
        if self.thread.join().is_err() {
            tracing::error!("the thread of the local client API has panicked");
        }
        let now = self.shared.clock.mono();
        locked(&self.shared.places).finish(now + LAST_FRAMES, now);
    }
}
