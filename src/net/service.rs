//! The manners of a service: stopping in order, signals, and what systemd is told.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use super::wake::Wake;

type Callback = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    triggered: bool,
    callbacks: Vec<Callback>,
}

/// Lets this process have as many descriptors open as the system allows it, for a service that holds connections.
/// Where that cannot be, the limit that it was started with stands.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// How many descriptors this process may have open.
pub fn descriptor_limit() -> u64 {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The listening sockets that systemd, or whoever else started us, has opened for this process (LISTEN_FDS). They stay
/// open when we end, so that nobody is refused until the next server is there.
///
/// # Errors
/// When one of them is no listening TCP socket.
pub fn inherited_listeners() -> io::Result<Vec<TcpListener>> {
    let mut passed = listenfd::ListenFd::from_env();
    let listeners = (0..passed.len()).filter_map(|at| passed.take_tcp_listener(at).transpose());
    listeners.collect()
}

/// The same for Unix sockets, each with the name that the unit gives it (LISTEN_FDNAMES); without one, an empty one.
///
/// # Errors
/// When one of them is no listening Unix socket.
pub fn inherited_unix_listeners() -> io::Result<Vec<(String, UnixListener)>> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':').map(str::to_owned);
    let mut passed = listenfd::ListenFd::from_env();
    let listeners = (0..passed.len()).filter_map(|at| {
        let name = names.next().unwrap_or_default();
        let taken = passed.take_unix_listener(at).transpose()?;
        Some(taken.map(|listener| (name, listener)))
    });
    listeners.collect()
}

/// A wake-up that every SIGHUP gives from now on; without it the signal would end the process.
///
/// # Errors
/// When the signal cannot be caught.
pub fn on_hangup() -> io::Result<Wake> {
    on_each(&[SIGHUP])
}

/// A wake-up that every SIGHUP, SIGINT and SIGTERM gives from now on; none of them ends the process any more.
///
/// # Errors
/// When the signals cannot be caught.
pub fn on_endings() -> io::Result<Wake> {
    on_each(&[SIGHUP, SIGINT, SIGTERM])
}

fn on_each(signals: &[i32]) -> io::Result<Wake> {
    let wake = Wake::new()?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, wake.writer()?)?;
    }
    Ok(wake)
}

/// Ends this process by a signal, as another one was ended, without a core of its own. Returns when the signal ends
/// nobody.
pub fn die_of(signal: i32) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum });
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}

/// A wish to stop, handed down to everything that runs. Clones are the same wish.
#[derive(Clone, Default)]
pub struct Shutdown {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Shutdown {
    /// A wish that nobody has yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A wish that SIGINT and SIGTERM raise. A second signal ends the process at once, as the system does it.
    ///
    /// # Errors
    /// When the signals cannot be caught.
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::new();
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let raised = shutdown.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for (seen, signal) in signals.forever().enumerate() {
                raised.trigger();
                if seen > 0 {
                    // The default action does not return for these two; if it cannot be had, going on is all there is.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
            }
        })?;
        Ok(shutdown)
    }

    /// Asks everything to stop. Asking twice is asking once.
    pub fn trigger(&self) {
        let callbacks = {
            let mut state = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.triggered = true;
            std::mem::take(&mut state.callbacks)
        };
        self.shared.1.notify_all();
        for callback in callbacks {
            callback();
        }
    }

    /// Whether stopping was asked for.
    pub fn is_triggered(&self) -> bool {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).triggered
    }

    /// Runs `callback` when stopping is asked for; at once, if it was.
    pub fn on_trigger(&self, callback: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.triggered {
            drop(state);
            callback();
        } else {
            state.callbacks.push(Box::new(callback));
        }
    }

    /// Waits until stopping is asked for, at most for `longest`. Answers whether it was.
    pub fn wait(&self, longest: Option<Duration>) -> bool {
        let state = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        match longest {
            None => {
                self.shared
                    .1
                    .wait_while(state, |s| !s.triggered)
                    .unwrap_or_else(PoisonError::into_inner)
                    .triggered
            }
            Some(longest) => {
                self.shared
                    .1
                    .wait_timeout_while(state, longest, |s| !s.triggered)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
                    .triggered
            }
        }
    }
}

/// Lets a write beyond the limit on file sizes (`ulimit -f`) fail as one on a full disk does, where the system
/// would otherwise end the process.
///
/// # Errors
/// When the signal cannot be caught.
pub fn outlive_file_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Tells systemd that the service is ready. Without systemd it does nothing.
pub fn notify_ready() {
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}

/// Tells systemd that the configuration is being read again; [`notify_ready`] ends it.
pub fn notify_reloading() {
    use sd_notify::NotifyState;
    let now = NotifyState::monotonic_usec_now();
    let _ = now.and_then(|now| sd_notify::notify(&[NotifyState::Reloading, now]));
}

/// Tells systemd in one line how the service is, for `systemctl status`.
pub fn notify_status(line: &str) {
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Status(line)]);
}

/// How often systemd wants to hear that the service lives, halved, so that none is late; `None` when it does not ask.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|longest| longest / 2)
}

/// Tells systemd that the service lives.
pub fn notify_alive() {
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
}

/// Tells systemd that the service is stopping.
pub fn notify_stopping() {
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_reaches_every_clone_and_callback_once() {
        let shutdown = Shutdown::new();
        let (tell, told) = std::sync::mpsc::channel();
        let again = tell.clone();
        shutdown.on_trigger(move || tell.send("before").unwrap());
        assert!(!shutdown.clone().wait(Some(Duration::ZERO)));
        shutdown.clone().trigger();
        shutdown.trigger();
        assert!(shutdown.wait(None) && shutdown.is_triggered());
        shutdown.on_trigger(move || again.send("after").unwrap());
        assert_eq!(told.iter().collect::<Vec<_>>(), ["before", "after"]);
    }
}
