//! Herdr: coding agents in terminal panes that have no adapter of their own.
//!
//! `roster` asks every few seconds who is there, gives names, and keeps one session in the registry for each agent
//! that is reached through its pane; `pane` is the thread of such a session. Both talk to Herdr through `socket`, one
//! request a connection. Herdr is one way among others: when it is missing, or is another program, its agents are not
//! there, and nothing else changes.

mod pane;
mod roster;
mod socket;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use self::socket::Socket;
use super::host::Host;
use super::registry::Caller;
use super::session::Way;
use super::{DaemonError, spawn};
use crate::addr::Name;
use crate::clock::Wall;
use crate::net::wake::Wake;
use crate::proto::herdr::{Hold, PROTOCOLS, Request, processes};
use crate::store::StoreError;
use crate::store::config::{Config, DeliveryMode};
use crate::store::process::Process;

/// How often Herdr is asked who is there, unless the environment says otherwise.
const POLL: Duration = Duration::from_secs(2);
/// The longest that may be asked for.
const POLL_MAX: u64 = 3600;

/// What an operator says about Herdr.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    socket: Option<Socket>,
    protocols: Vec<u64>,
    guard: bool,
    mode: DeliveryMode,
    poll: Duration,
}

impl Settings {
    /// From the configuration and a way to read the environment, which wins where both speak.
    ///
    /// # Errors
    /// When a variable makes no sense.
    pub(super) fn load(config: &Config, var: impl Fn(&str) -> Option<PathBuf>) -> Result<Self, StoreError> {
        let word = |name: &str| var(name).map(|value| value.to_string_lossy().trim().to_owned());
        let word = |name: &str| word(name).filter(|word| !word.is_empty());
        let bad = |name: &str, why: String| StoreError::Config { path: PathBuf::from(name), why };
        let mode = match word("TRANSIT_DELIVERY_MODE") {
            Some(mode) => mode.parse().map_err(|err| bad("TRANSIT_DELIVERY_MODE", format!("{err}")))?,
            None => config.delivery_mode.unwrap_or_default(),
        };
        let protocols = match word("TRANSIT_HERDR_PROTOCOL_ALLOW") {
            Some(list) => list
                .split(',')
                .map(|number| number.trim().parse())
                .collect::<Result<_, _>>()
                .map_err(|_| bad("TRANSIT_HERDR_PROTOCOL_ALLOW", "it is a list of numbers".to_owned()))?,
            None => PROTOCOLS.to_vec(),
        };
        let poll = match word("TRANSIT_POLL_SECONDS") {
            Some(seconds) => match seconds.parse() {
                Ok(seconds @ 1..=POLL_MAX) => Duration::from_secs(seconds),
                _ => return Err(bad("TRANSIT_POLL_SECONDS", format!("it is a number from 1 to {POLL_MAX}"))),
            },
            None => POLL,
        };
        let guard = !matches!(word("TRANSIT_DRAFT_GUARD").as_deref(), Some("0" | "false"));
        Ok(Self { socket: Socket::find(config, var), protocols, guard, mode, poll })
    }
}

/// How Herdr is.
#[derive(Debug, Clone, Default)]
enum Health {
    /// There is none, and nobody has said that there should be one.
    #[default]
    Absent,
    /// It answers.
    Connected { protocol: u64, version: String },
    /// It does not, or not as Herdr does.
    Unavailable { why: String },
}

/// An agent that is not typed to for now.
#[derive(Debug, Clone)]
struct Held {
    agent: String,
    hold: Hold,
    since: Wall,
}

/// What the threads of one daemon know about Herdr.
#[derive(Debug)]
pub(super) struct State {
    settings: Settings,
    health: Mutex<Health>,
    holds: Mutex<BTreeMap<String, Held>>,
    /// Sessions of adapters that their panes deliver for, and what wakes the threads of those.
    shadowed: Mutex<BTreeMap<Name, Wake>>,
    /// Wakes the thread that asks who is there.
    wake: Wake,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Nothing is known yet.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub(super) fn new(settings: Settings) -> std::io::Result<Self> {
        let (health, holds, shadowed) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { settings, health, holds, shadowed, wake: Wake::new()? })
    }

    /// Looks whether a Herdr is there that was not. Asked by a thread that wakes up anyway, so that a host without one
    /// has no other that does.
    pub(super) fn notice(&self) {
        let is_absent = matches!(*locked(&self.health), Health::Absent);
        if is_absent && self.settings.socket.as_ref().is_some_and(|socket| !socket.is_absent()) {
            self.wake.wake();
        }
    }

    /// For people and programs: how Herdr is.
    pub(super) fn status(&self) -> Value {
        let socket = self.settings.socket.as_ref().map(Socket::path);
        match &*locked(&self.health) {
            Health::Absent => json!({ "state": "absent", "socket": socket }),
            Health::Connected { protocol, version } => json!({
                "state": "connected", "socket": socket, "protocol": protocol, "version": version,
            }),
            Health::Unavailable { why } => json!({ "state": "unavailable", "socket": socket, "error": why }),
        }
    }

    /// The same for panes that are not typed into for now.
    pub(super) fn holds(&self) -> Vec<Value> {
        let hold = |(pane_id, held): (&String, &Held)| {
            let reason = match held.hold {
                Hold::Draft => "draft",
                Hold::Blocked => "blocked",
            };
            json!({ "pane_id": pane_id, "agent": held.agent, "at": held.since.to_string(), "reason": reason })
        };
        locked(&self.holds).iter().map(hold).collect()
    }

    /// Whether a pane delivers for this session of an adapter, which then hands nothing over itself. The pane's thread
    /// looks what is due.
    pub(super) fn delivers_for(&self, name: &Name) -> bool {
        let shadowed = locked(&self.shadowed);
        let wake = shadowed.get(name);
        if let Some(wake) = wake {
            wake.wake();
        }
        wake.is_some()
    }

    /// What envelopes for an agent with an adapter go through.
    pub(super) fn mode(&self) -> DeliveryMode {
        self.settings.mode
    }
}

/// Starts the thread that keeps the agents of Herdr's panes in the registry. It ends with the daemon, after them.
pub(super) fn start(host: &Arc<Host>) -> Result<JoinHandle<()>, DaemonError> {
    let wake = host.herdr.wake.clone();
    host.stop.on_trigger(move || wake.wake());
    let host = Arc::clone(host);
    spawn("herdr", &host.stop.clone(), move || roster::run(&host))
}

/// The agent in whose pane a caller runs that no session owns as far as is known: its program may have been started
/// since Herdr was asked last. The pane that the caller names is only where to look; Herdr says what runs there.
pub(super) fn caller(host: &Host, line: &[Process], pane_id: Option<&str>) -> Option<Caller> {
    let socket = host.herdr.settings.socket.as_ref()?;
    let session = host.registry.all().into_iter().find(
        |session| matches!(&session.way, Way::Pane { pane_id: its, .. } if Some(its.as_str()) == pane_id),
    )?;
    let wake = Wake::new().ok()?;
    let info = socket.ask(&Request::processes(pane_id?), &wake, || host.stop.is_triggered()).ok()?;
    let owned = socket::running(&processes(&info));
    line.iter().any(|process| owned.contains(process)).then(|| Caller::Session(Box::new(session)))
}

/// A file name or the like of ours, for people.
fn shown(path: &Path) -> String {
    crate::text::visible(&path.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(config: &Config, vars: &[(&str, &str)]) -> Result<Settings, StoreError> {
        Settings::load(config, |name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| PathBuf::from(v)))
    }

    #[test]
    fn the_environment_wins_over_the_configuration_and_that_over_the_defaults() {
        let none = load(&Config::default(), &[]).unwrap();
        assert_eq!((none.mode, none.guard, none.poll), (DeliveryMode::Prefer, true, POLL));
        assert_eq!(none.protocols, PROTOCOLS);
        let config = Config { delivery_mode: Some(DeliveryMode::Shadow), ..Config::default() };
        assert_eq!(load(&config, &[]).unwrap().mode, DeliveryMode::Shadow);
        let vars = [
            ("TRANSIT_DELIVERY_MODE", "require"),
            ("TRANSIT_HERDR_PROTOCOL_ALLOW", "21, 30"),
            ("TRANSIT_DRAFT_GUARD", "0"),
            ("TRANSIT_POLL_SECONDS", "5"),
        ];
        let all = load(&config, &vars).unwrap();
        assert_eq!((all.mode, all.guard, all.poll), (DeliveryMode::Require, false, Duration::from_secs(5)));
        assert_eq!(all.protocols, [21, 30]);
        for bad in [
            ("TRANSIT_DELIVERY_MODE", "both"),
            ("TRANSIT_HERDR_PROTOCOL_ALLOW", "x"),
            ("TRANSIT_POLL_SECONDS", "0"),
        ] {
            let err = load(&config, &[bad]).unwrap_err().to_string();
            assert!(err.starts_with(bad.0), "{err}");
        }
    }
}
