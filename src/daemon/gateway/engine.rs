//! What all runs share: the home and its audit trail, the wish to stop, and what runs leave behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

use super::super::host::Host;
use super::{GatewayError, fields, locked};
use crate::clock::{Clock, Mono, SystemClock};
use crate::net::service::Shutdown;
use crate::net::wake::Wake;
use crate::store::StoreError;
use crate::store::home::audit::Audit;
use crate::store::home::runs::{Orphan, Run, Runs};
use crate::store::home::{ApiLimits, Broken, Home, Manifest};
use crate::store::process::{all_pids, process_group};

/// How long runs may go on by themselves when the daemon stops.
const DRAIN: Duration = Duration::from_secs(5);
/// How long a process has between being asked to end and being killed.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// How long a stop takes at the most: the drain, the grace, and what it takes to tell of it.
pub(super) const LONGEST_STOP: Duration = Duration::from_secs(15);

/// Variables of the daemon's own service manager, which are nobody else's.
pub(super) const OF_THE_SERVICE: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// The wish that runs end. It stays once it is there, and wakes everybody who looks at its descriptor.
pub(super) struct Stop {
    pub(super) clock: SystemClock,
    pub(super) wake: Wake,
    at: Mutex<Option<Mono>>,
}

impl Stop {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { clock: SystemClock::new(), wake: Wake::new()?, at: Mutex::default() })
    }

    /// When runs are asked to end, if they are.
    pub(super) fn at(&self) -> Option<Mono> {
        *locked(&self.at)
    }

    /// Lets runs be asked to end after a while.
    fn raise(&self, after: Duration) {
        locked(&self.at).get_or_insert(self.clock.mono() + after);
        self.wake.wake();
    }
}

/// A manifest's file as it was when it was read.
type Stamp = (PathBuf, u64, i64, i64, u64);

/// What runs share.
pub(super) struct Engine {
    pub(super) home: Home,
    pub(super) host: Arc<Host>,
    pub(super) runs: Runs,
    pub(super) stop: Stop,
    /// What assistants want remembered is read and written in one go.
    pub(super) remembering: Mutex<()>,
    audit: Audit,
    limits: Mutex<ApiLimits>,
    stamps: Mutex<BTreeMap<String, Stamp>>,
    /// Threads that end what runs left behind.
    cleaners: Mutex<Vec<JoinHandle<()>>>,
    /// Raised when nothing is left to wait for.
    hurry: Shutdown,
}

impl Engine {
    /// `part` tells the runs of the gateway from those of the mesh. What an earlier daemon has left running of it is
    /// ended first.
    pub(super) fn open(
        home: Home,
        host: &Arc<Host>,
        part: &str,
        limits: ApiLimits,
    ) -> Result<Arc<Self>, GatewayError> {
        let runs = Runs::of(&host.paths.data, part);
        let audit = Audit::of(&home);
        end_orphans(&runs, |group| {
            // It is ended in any case.
            let _ = audit.add("orphan_reaped", &fields(json!({ "process_group": group })), host.wall());
        })?;
        let stop = Stop::new()?;
        Ok(Arc::new(Self {
            home,
            host: Arc::clone(host),
            runs,
            stop,
            remembering: Mutex::default(),
            audit,
            limits: Mutex::new(limits),
            stamps: Mutex::default(),
            cleaners: Mutex::default(),
            hurry: Shutdown::new(),
        }))
    }

    /// The limits that hold now.
    pub(super) fn limits(&self) -> ApiLimits {
        locked(&self.limits).clone()
    }

    /// Reads the limits anew. A configuration that makes no sense changes nothing.
    ///
    /// # Errors
    /// When it makes no sense.
    pub(super) fn reload(&self) -> Result<(), StoreError> {
        self.discover();
        let limits = configured(&self.home);
        if let Err(err) = &limits {
            tracing::error!(%err, "the limits of before stay");
        }
        limits.map(|limits| *locked(&self.limits) = limits)
    }

    /// Adds an entry to the audit trail.
    pub(super) fn audit(&self, event: &str, entry: Value) -> Result<(), StoreError> {
        let added = self.audit.add(event, &fields(entry), self.host.wall());
        if let Err(err) = &added {
            tracing::error!(%err, event, "nothing is triggered while the audit log cannot be written");
        }
        added
    }

    /// The agents that there are now.
    pub(super) fn discover(&self) -> Vec<Manifest> {
        let found = self.home.discover();
        self.tell_broken("manifest", &found.broken);
        for file in found.shadowed.iter().filter(|file| self.host.is_news(file)) {
            tracing::info!(path = %file.path.display(), why = file.why, "a manifest does not count");
        }
        found.agents
    }

    /// The agent of this name, as its manifest is now.
    pub(super) fn agent(&self, name: &str) -> Option<Manifest> {
        let agent = self.discover().into_iter().find(|agent| agent.name == name);
        let stamp = agent.as_ref().and_then(|agent| stamp(agent.dir.join("agent.toml")));
        let mut stamps = locked(&self.stamps);
        match stamp {
            Some(stamp) => stamps.insert(name.to_owned(), stamp),
            None => stamps.remove(name),
        };
        agent
    }

    /// Whether there is an agent of this name. As long as its manifest is the same file, that is all that is looked at.
    pub(super) fn is_there(&self, name: &str) -> bool {
        let known = locked(&self.stamps).get(name).cloned();
        known.is_some_and(|known| stamp(known.0.clone()) == Some(known)) || self.agent(name).is_some()
    }

    /// Tells of files that make no sense: each in the log and on the audit trail, once.
    pub(super) fn tell_broken(&self, kind: &str, broken: &[Broken]) {
        for file in broken {
            if !self.host.is_news(file) {
                continue;
            }
            let (path, why) = (file.path.display().to_string(), &file.why);
            tracing::warn!(path, why, "a {kind} makes no sense and is left out");
            // It is left out in any case; what cannot be written down was logged.
            let _ = self.audit(&format!("{kind}_invalid"), json!({ "path": path, "reason": why }));
        }
    }

    /// Tells of agents that nothing can run, or no message reach: each in the log, once.
    pub(super) fn tell_unfit(&self, unfit: &[Broken]) {
        for file in unfit.iter().filter(|file| self.host.is_news(file)) {
            tracing::warn!(path = %file.path.display(), why = file.why, "no message can reach an agent");
        }
    }

    /// Asks everything that runs to end, after a while.
    pub(super) fn stop(&self) {
        self.stop.raise(DRAIN);
    }

    /// Waits until what runs left behind is gone; what has not ended by now is killed.
    pub(super) fn join(&self) {
        self.hurry.trigger();
        for cleaner in std::mem::take(&mut *locked(&self.cleaners)) {
            let _ = cleaner.join();
        }
    }

    /// Ends what a process that is over has left in its group, without waiting for it; `run` is over with it. Whatever
    /// is meant to live on begins a group of its own, as daemons do.
    pub(super) fn clean_up(&self, mut child: Child, run: Option<Run>) {
        let leader = child.id();
        let is_left = |pid: &u32| *pid != leader && process_group(*pid) == Some(leader);
        if !all_pids().iter().any(is_left) {
            return reap(&mut child);
        }
        // The child was not waited for, so that its number is still that of its group.
        let group = Pid::from_child(&child);
        let _ = kill_process_group(group, Signal::TERM);
        let hurry = self.hurry.clone();
        let cleaner = std::thread::Builder::new().name("clean-up".into()).spawn(move || {
            hurry.wait(Some(GRACE));
            let _ = kill_process_group(group, Signal::KILL);
            reap(&mut child);
            drop(run);
        });
        match cleaner {
            Ok(cleaner) => {
                let mut cleaners = locked(&self.cleaners);
                cleaners.retain(|cleaner| !cleaner.is_finished());
                cleaners.push(cleaner);
            }
            Err(err) => {
                // Its child went with the closure and will not be waited for; its group can still be ended.
                let _ = kill_process_group(group, Signal::KILL);
                tracing::error!(%err, "could not wait for what a run has left behind");
            }
        }
    }
}

/// The limits that the configuration of this process asks for.
pub(super) fn configured(home: &Home) -> Result<ApiLimits, StoreError> {
    home.api_limits(|name| std::env::var(name).ok())
}

/// A command in a group of its own, without input, and without what the daemon's service manager wants of the daemon.
pub(super) fn grouped(mut command: Command) -> Command {
    command.process_group(0).stdin(Stdio::null());
    OF_THE_SERVICE.iter().for_each(|name| {
        command.env_remove(name);
    });
    command
}

fn reap(child: &mut Child) {
    if let Err(err) = child.wait() {
        tracing::warn!(%err, "could not wait for a process that has ended");
    }
}

fn stamp(path: PathBuf) -> Option<Stamp> {
    let found = fs::metadata(&path).ok()?;
    Some((path, found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
}

/// Ends what a daemon that was killed has left running, and tells of each run.
fn end_orphans(runs: &Runs, tell: impl Fn(Option<u32>)) -> Result<(), StoreError> {
    for Orphan { group, others } in runs.orphans()? {
        tell(group);
        tracing::warn!(?group, ?others, "ending what an earlier daemon left running");
        if let Some(group) = group.and_then(|group| Pid::from_raw(group.cast_signed())) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        for pid in others.into_iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    runs.forget()
}
