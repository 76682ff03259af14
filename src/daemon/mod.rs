//! The role of a host: `transitd`.
//!
//! A message comes down from the Worker through `uplink` into the inbox, from there through `dispatch` into a
//! session on the socket of `agents` or in a pane of `herdr`, and its answer goes back up the same way as a row. A message of this host's
//! agents comes in through `control` and goes out through the outbox.

mod accept;
mod agents;
mod claim;
mod control;
mod dispatch;
pub mod enroll;
pub mod events;
pub mod fate;
mod flush;
mod gateway;
mod guard;
mod herdr;
mod host;
mod life;
mod local_api;
mod near;
mod orders;
mod peer;
mod registry;
mod session;
mod trouble;
mod uplink;
mod wire_log;

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use self::gateway::programs::Programs;
use self::guard::Loops;
use self::host::Host;
use self::local_api::Served;
use self::wire_log::WireLog;
use crate::addr;
use crate::net::service::{self, Shutdown};
use crate::net::unix::{AGENT_SOCK, Bound, SocketError, TRANSIT_SOCK};
use crate::net::wake::Wake;
use crate::store::config::{Config, Paths};
use crate::store::home::Home;
use crate::store::spool::Spool;
use crate::store::{StoreError, files};

pub use self::uplink::{EnrolmentError, configured};

/// The name of a host that neither its operator nor its system has named.
const NAMELESS: &str = "localhost";

/// What a daemon is run with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where its files are.
    pub paths: Paths,
    /// Where the host's own agents are, if anywhere.
    pub home: Option<Home>,
    /// Where to write every frame of transit-wire/1 down, if anywhere.
    pub wire_log: Option<PathBuf>,
    /// How many messages its agents may send each other, with nobody else between, and in what time. 0 is no limit.
    pub loops: (u32, Duration),
}

/// A daemon that serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// The socket for commands.
    pub transit_sock: PathBuf,
    /// The socket for harness adapters.
    pub agent_sock: PathBuf,
    /// The socket of the local client API, if it is there.
    pub api_sock: Option<PathBuf>,
}

/// Why a daemon does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// Another one serves this data directory.
    #[error("transitd is running already, as process {pid}")]
    Running {
        /// Its pid; 0 when it has not said so yet.
        pid: u32,
    },
    /// The configuration or the token makes no sense.
    #[error(transparent)]
    Enrolment(#[from] EnrolmentError),
    /// A file or the spool cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A socket cannot be bound.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// What the service manager has passed is no socket of ours.
    #[error("the sockets that were passed (LISTEN_FDS) cannot be used: {0}")]
    Passed(io::Error),
    /// A part of it failed by a bug of ours, so that all of it stopped. What was promised is kept.
    #[error("the thread {thread} has panicked")]
    Panicked {
        /// Its name.
        thread: String,
    },
    /// The system gives no descriptor or thread.
    #[error("could not {doing}: {source}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// Runs the daemon until `stop` is triggered.
///
/// # Errors
/// When it cannot start. Once `ready` was called, it ends only by `stop`.
pub fn run(settings: Settings, stop: Shutdown, ready: impl FnOnce(&Ready)) -> Result<(), DaemonError> {
    let Settings { paths, home, wire_log, loops } = settings;
    let system = |doing| move |source| DaemonError::System { doing, source };
    let hangup = service::on_hangup().map_err(system("catch SIGHUP"))?;
    let mut passed = Passed::take().map_err(DaemonError::Passed)?;
    files::private_dir(&paths.data)?;
    let lock = Lock::take(&paths.daemon_lock())?;
    let enrolment = uplink::Enrolment::load(&paths)?;
    let config = Config::load(&paths.config)?;
    let panes = herdr::Settings::load(&config, |name| std::env::var_os(name).map(PathBuf::from))?;
    let name = config.host.clone().unwrap_or_else(system_name);
    let wire_log = wire_log
        .map(|path| WireLog::open(&path).map_err(|err| StoreError::io("open", &path, err)))
        .transpose()?;
    let spool = Spool::open(&paths.data)?;
    let transit_sock = passed.or_bind(&paths, TRANSIT_SOCK)?;
    let agent_sock = passed.or_bind(&paths, AGENT_SOCK)?;
    let sockets = [&transit_sock, &agent_sock].map(|bound| bound.path().to_owned());
    let uplink_wake = Wake::new().map_err(system("make a pipe"))?;
    let loops = Loops::new(loops);
    let panes = herdr::State::new(panes).map_err(system("make a pipe"))?;
    let host = Arc::new(Host::new(paths, name, stop.clone(), uplink_wake.clone(), wire_log, loops, panes));
    host.loops.recall(&spool, host.name().as_str(), host.wall(), host.now())?;
    host.set_paused(orders::was_paused(&host.paths.paused()));
    host.started_with(config);
    // Known before anybody is served: whoever asks at once is not to hear that there is none.
    host.enrolled(enrolment.as_ref());

    let uplink_stop = Shutdown::new();
    uplink_stop.on_trigger(move || uplink_wake.wake());
    let uplink = {
        let (host, stop) = (Arc::clone(&host), uplink_stop.clone());
        spawn("uplink", &host.stop.clone(), move || uplink::run(&host, &stop))?
    };
    let agents = serve(&host, agent_sock, "agents", "agent", agents::serve)?;
    let control = serve(&host, transit_sock, "control", "call", control::serve)?;
    let herdr = herdr::start(&host)?;
    flush::start(&host)?;
    let wake = Wake::new().map_err(system("make a pipe"))?;
    let waker = wake.clone();
    stop.on_trigger(move || waker.wake());

    let programs = home.clone().and_then(|home| Programs::open(home, &host));
    let api = home.and_then(|home| Served::open(home, &host));

    tracing::info!(pid = std::process::id(), "transitd is ready");
    let [transit_sock, agent_sock] = sockets;
    ready(&Ready { transit_sock, agent_sock, api_sock: host.api_sock() });
    service::notify_ready();
    life::run(&host, spool, &hangup, &wake);

    tracing::info!("transitd is stopping");
    service::notify_stopping();
    host.let_go();
    // Sessions first: what they have not answered is given back, and the Worker still hears of it.
    let ended = [join(agents), join(control), join(herdr)];
    if let Some(api) = api {
        api.finish();
    }
    let ended = ended.into_iter().chain(programs.map(|programs| join(programs.into_thread())));
    let ended: Vec<_> = ended.collect();
    uplink_stop.trigger();
    let uplink = join(uplink);
    drop(lock);
    ended.into_iter().chain([uplink]).collect()
}

/// The sockets that the service manager has opened for this process.
struct Passed(Vec<(String, UnixListener)>);

impl Passed {
    fn take() -> io::Result<Self> {
        service::inherited_unix_listeners().map(Self)
    }

    /// The socket `name`, as it was passed, by its own name or by that of its unit's file; else it is bound.
    fn or_bind(&mut self, paths: &Paths, name: &str) -> Result<Bound, SocketError> {
        let is_it = |listener: &UnixListener| {
            let at = listener.local_addr();
            at.is_ok_and(|at| at.as_pathname().and_then(Path::file_name).is_some_and(|file| file == name))
        };
        match self.0.iter().position(|(called, listener)| called == name || is_it(listener)) {
            Some(at) => Bound::adopt(paths, name, self.0.swap_remove(at).1),
            None => Bound::bind(paths, name),
        }
    }
}

/// Starts a thread that the daemon cannot do without: should it panic, the whole daemon stops, for half of one would
/// look alive and do nothing.
fn spawn(
    name: &str,
    stop: &Shutdown,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, DaemonError> {
    let guard = StopsOnPanic { stop: stop.clone(), name: name.to_owned() };
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _guard = guard;
        run();
    });
    spawned.map_err(|source| DaemonError::System { doing: "start a thread", source })
}

/// Accepts on a socket; the thread ends, and takes the socket away, when the daemon stops.
fn serve(
    host: &Arc<Host>,
    bound: Bound,
    name: &str,
    connection: &'static str,
    serve: fn(&Arc<Host>, std::os::unix::net::UnixStream, crate::net::unix::Peer, Wake),
) -> Result<JoinHandle<()>, DaemonError> {
    let wake = Wake::new().map_err(|source| DaemonError::System { doing: "make a pipe", source })?;
    let waker = wake.clone();
    host.stop.on_trigger(move || waker.wake());
    let host = Arc::clone(host);
    spawn(name, &host.stop.clone(), move || accept::accept(&host, &bound, &wake, connection, serve))
}

struct StopsOnPanic {
    stop: Shutdown,
    name: String,
}

impl Drop for StopsOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(thread = self.name, "a thread has panicked; the daemon stops");
            self.stop.trigger();
        }
    }
}

/// Waits for the end of a thread.
fn join(thread: JoinHandle<()>) -> Result<(), DaemonError> {
    let thread_name = thread.thread().name().unwrap_or_default().to_owned();
    thread.join().map_err(|_| DaemonError::Panicked { thread: thread_name })
}

/// A name for a host that is not enrolled: the system's, as far as it is one.
fn system_name() -> addr::Host {
    let node = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    let first = node.split('.').next().unwrap_or_default();
    first.parse().unwrap_or_else(|_| NAMELESS.parse().expect("it is a host's name"))
}

/// The lock of a data directory. It is the kernel's, so that it goes with the process however that ends.
#[derive(Debug)]
struct Lock(File);

impl Lock {
    fn take(path: &Path) -> Result<Self, DaemonError> {
        let failed = |err| StoreError::io("lock", path, err);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                // Whoever has the lock writes its pid right after taking it.
                let _ = file.read_to_string(&mut pid);
                return Err(DaemonError::Running { pid: pid.trim().parse().unwrap_or(0) });
            }
            Err(err) => return Err(failed(err.into()).into()),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file stays, so that everybody locks the same one; empty, it names nobody.
        let _ = self.0.set_len(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_told_who_has_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.lock");
        let first = Lock::take(&path).unwrap();
        match Lock::take(&path) {
            Err(DaemonError::Running { pid }) => assert_eq!(pid, std::process::id()),
            other => panic!("{other:?}"),
        }
        drop(first);
        Lock::take(&path).unwrap();
    }

    #[test]
    fn every_system_has_a_name() {
        assert!(!system_name().as_str().is_empty());
    }
}
