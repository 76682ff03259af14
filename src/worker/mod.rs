//! The role of the server: `transit-worker`.
//!
//! It takes signed events and the messages of daemons, keeps them in the ledger, and hands each to the daemon of
//! its agent. Everything that is promised to anybody is a committed row first; what is held in memory (who is
//! connected, what is in flight, token buckets) can be lost at any time.
//!
//! Start here: [`serve`] shows what runs and in which order it starts and stops.

mod app;
mod body;
mod callback;
mod calls;
mod clocks;
mod connection;
mod dispatch;
#[cfg(feature = "interop")]
pub mod echo;
mod enroll;
mod guard;
mod ingest;
mod link;
mod links;
mod metrics;
mod notes;
mod panes;
mod places;
mod probes;
mod receiver;
mod retain;
mod rooms;
mod route;
mod rpc;
#[cfg(feature = "simulation")]
pub mod simulation;
mod socket;
mod sources;
mod sweep;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use crate::limits;
use crate::net::service::{self, Shutdown};
use crate::store::StoreError;
use crate::store::ledger::retention::Keep;
use crate::store::ledger::sources::check_key;
use crate::store::ledger::{self, Answers, Db, ServeLock, directory};
use crate::store::seal::MasterKey;
use app::{App, Shared};
use connection::{Door, Host};
use metrics::Metrics;
pub use receiver::{ReceivedReply, receive};

/// Threads that serve connections; the ledger's writer and the posting of replies have their own.
const SERVING_THREADS: usize = 2;
/// Time in which connections may end in order after a wish to stop.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// Time that threads have to end after that.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// How a Worker is run.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Listening sockets that were opened for this process, and that are served instead when there are some.
    pub inherited: Vec<Arc<TcpListener>>,
    /// Where `/metrics` and `/readyz` are served, when that is not beside everything else.
    pub metrics_listen: Option<SocketAddr>,
    /// The SQLite file of its ledger.
    pub database: PathBuf,
    /// How the world reaches it, when that differs from where it listens.
    pub public_url: Option<String>,
    /// Whether replies may be posted to loopback and private addresses.
    pub allow_private_callbacks: bool,
    /// What the secrets in the ledger are sealed under.
    pub master_key: MasterKey,
    /// What a peer may do, and how much is committed at once.
    pub limits: Limits,
    /// How long what is settled is kept.
    pub keep: Keep,
}

impl Config {
    /// A Worker with the defaults of everything else.
    pub fn new(listen: SocketAddr, database: PathBuf, master_key: MasterKey) -> Self {
        Self {
            listen,
            inherited: Vec::new(),
            metrics_listen: None,
            database,
            public_url: None,
            allow_private_callbacks: false,
            master_key,
            limits: Limits::default(),
            keep: Keep::default(),
        }
    }
}

/// What a peer may do, and how much is committed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Frames a second of one socket, and at once.
    pub frames: (u32, u32),
    /// Messages a second of one sender, and at once.
    pub sends: (u32, u32),
    /// Messages between agents that pass without a person or an event between them, and within what time; 0 is no
    /// limit.
    pub loops: (u32, Duration),
    /// Most changes of the ledger that share one commit. 1 is for comparison: each has its own.
    pub commit_group: usize,
    /// Connections of any kind that may be open at once.
    pub connections: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frames: (limits::FRAME_RATE, limits::FRAME_BURST),
            sends: (limits::SEND_RATE, limits::SEND_BURST),
            loops: (limits::LOOP_LIMIT, limits::LOOP_WINDOW),
            commit_group: ledger::COMMIT_GROUP,
            connections: limits::CONNECTIONS,
        }
    }
}

/// What is known once it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// The address it listens on.
    pub listen: SocketAddr,
    /// Its base URL, without a final slash.
    pub url: String,
    /// Where `/metrics` and `/readyz` are, when that is not beside everything else.
    pub metrics_listen: Option<SocketAddr>,
}

/// Why a Worker could not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The address cannot be listened on.
    #[error("could not listen on {listen}: {source}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The threads of the server cannot be started.
    #[error("could not start the server's threads: {0}")]
    Runtime(#[source] io::Error),
    /// The ledger cannot be opened, or another process serves it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Serves until `stop` is raised. `ready` is called once, when connections are accepted.
///
/// # Errors
/// When the address or the ledger cannot be had. Failures of single requests are theirs alone.
pub fn serve(config: Config, stop: Shutdown, ready: impl FnOnce(&Ready)) -> Result<(), WorkerError> {
    let _lock = ServeLock::take(&config.database)?;
    let db = Db::open_guarded(&config.database, config.limits.commit_group)?;
    let (doors, listen) = doors(&config)?;
    let probe_doors = config.metrics_listen.map(listen_on).transpose()?;
    let url = config.public_url.clone().unwrap_or_else(|| format!("http://{listen}"));
    let url = url.trim_end_matches('/').to_owned();
    db.read(|tx| check_key(tx, &config.master_key))?;
    let told = url.clone();
    db.write(move |tx| directory::set_public_url(tx, &told))?;
    let metrics_listen = probe_doors.as_ref().map(|(_, bound)| *bound);
    let ready_now = || ready(&Ready { listen, url, metrics_listen });
    let is_inherited = !config.inherited.is_empty();
    let ledger = db.clone();
    let ended = run(&stop, |stopping| async move {
        let enter = |listeners, is_inherited| {
            connect(listeners, is_inherited).map_err(|source| WorkerError::Listen { listen, source })
        };
        let doors = enter(doors, is_inherited)?;
        let probe_doors = probe_doors.map(|(door, _)| enter(vec![door], false)).transpose()?;
        answer_on_runtime(&db);
        let app: App = Arc::new(Shared::new(db, config.master_key, config.limits, stopping.clone()));
        app.loops.recall(&app.db, app.wall())?;
        let callbacks = tokio::spawn(callback::run(app.clone(), config.allow_private_callbacks));
        let sweeper = tokio::spawn(sweep::run(app.clone()));
        let probes = probe_doors.map(|doors| tokio::spawn(serve_probes(doors, app.clone())));
        let alive = service::watchdog().map(|interval| tokio::spawn(say_alive(interval)));
        let retainer = tokio::spawn(retain::run(app.clone(), config.keep));
        ready_now();
        tracing::info!(%listen, is_inherited, connections = config.limits.connections, "serving");

        let host = Host {
            router: app::router(app.clone(), probes.is_none()),
            metrics: app.metrics.clone(),
            connections: config.limits.connections,
        };
        let until = connection::serve(doors, host, stopping, STOP_WAIT).await;

        // No request comes any more. The links say goodbye, and replies that are being posted are recorded.
        let _ = tokio::time::timeout_at(until, app.links.closed()).await;
        let _ = sweeper.await;
        let _ = retainer.await;
        let _ = tokio::time::timeout_at(until, callbacks).await;
        probes.into_iter().chain(alive).for_each(|task| task.abort());
        Ok(())
    });
    write_out(&ledger);
    tracing::info!("stopped");
    ended
}

/// Waits until all that was heard is in the ledger. What nobody waits for, such as an acknowledgement, is said once.
fn write_out(ledger: &Db) {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    ledger.submit(|_| Ok(()), move |_| drop(tell));
    let _ = told.recv_timeout(STOP_WAIT);
}

/// The listening sockets, and the address of the first.
fn doors(config: &Config) -> Result<(Vec<TcpListener>, SocketAddr), WorkerError> {
    let Some(first) = config.inherited.first() else {
        return listen_on(config.listen).map(|(listener, bound)| (vec![listener], bound));
    };
    let inherit = || {
        let again = |listener: &Arc<TcpListener>| {
            listener.set_nonblocking(true)?;
            listener.try_clone()
        };
        let listeners = config.inherited.iter().map(again).collect::<io::Result<_>>()?;
        Ok((listeners, first.local_addr()?))
    };
    inherit().map_err(|source| WorkerError::Listen { listen: config.listen, source })
}

fn listen_on(address: SocketAddr) -> Result<(TcpListener, SocketAddr), WorkerError> {
    let listen = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    listen().map_err(|source| WorkerError::Listen { listen: address, source })
}

/// Gives listening sockets to the runtime, within which this is called.
fn connect(listeners: Vec<TcpListener>, is_inherited: bool) -> io::Result<Vec<Door>> {
    let door = |listener| Ok(Door { listener: tokio::net::TcpListener::from_std(listener)?, is_inherited });
    listeners.into_iter().map(door).collect()
}

/// Answers the operator's questions, also while the process stops; that is one of the answers.
async fn serve_probes(doors: Vec<Door>, app: App) {
    let (_never, stopping) = watch::channel(false);
    let metrics = Arc::new(Metrics::new(app.wall()));
    let host = Host { router: probes::router(app), metrics, connections: limits::PROBES };
    connection::serve(doors, host, stopping, STOP_WAIT).await;
}

/// Tells systemd that requests would be served; who cannot run this cannot serve one.
async fn say_alive(interval: Duration) {
    loop {
        service::notify_alive();
        tokio::time::sleep(interval).await;
    }
}

/// Runs `main` on a runtime of its own; what it is given turns true when `stop` is raised.
fn run<F: Future<Output = Result<(), WorkerError>>>(
    stop: &Shutdown,
    main: impl FnOnce(watch::Receiver<bool>) -> F,
) -> Result<(), WorkerError> {
    let runtime = runtime(SERVING_THREADS)?;
    let (tell, stopping) = watch::channel(false);
    stop.on_trigger(move || {
        tell.send_replace(true);
    });
    let ended = runtime.block_on(main(stopping));
    // What still blocks a thread is a reply under way; it is posted again by the next server.
    runtime.shutdown_timeout(LAST_WAIT);
    ended
}

/// Has the answers of a commit given by one task, in their order. Whomever it wakes runs after it on the same thread:
/// one wake-up from the writer's thread where there would be one for each who waits, and a link that is told of many
/// messages hears of them at once.
fn answer_on_runtime(db: &Db) {
    let (hand_over, mut handed) = mpsc::unbounded_channel::<Answers>();
    tokio::spawn(async move {
        while let Some(answers) = handed.recv().await {
            answers();
        }
    });
    db.answer_through(move |answers| {
        // Without the task the runtime is gone, and nobody waits.
        let _ = hand_over.send(answers);
    });
}

fn runtime(threads: usize) -> Result<Runtime, WorkerError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("worker")
        .enable_all()
        .build()
        .map_err(WorkerError::Runtime)
}
