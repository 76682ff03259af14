//! What the threads of a flush share: how far it goes, what is being tried, and what has come of it.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, Mono, SystemClock};
use crate::daemon::events::{Settled, Verdict, Watch};
use crate::net::service::Shutdown;
use crate::store::spool::outbox::Entry;

/// What became of one entry.
pub(super) struct Said {
    pub(super) id: String,
    pub(super) dest: String,
    /// `None` when it could not be written down.
    pub(super) settled: Option<Settled>,
    /// It could not be written down before, and now was.
    pub(super) is_late: bool,
}

/// See the module.
pub(super) struct Board {
    pub(super) clock: SystemClock,
    pub(super) stop: Shutdown,
    timeout: Duration,
    deadline: Option<Mono>,
    /// How many may be tried.
    max: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many were tried.
    begun: u64,
    /// And how many may have been, with those for which an entry is still looked for.
    allowed: u64,
    in_flight: HashSet<String>,
    unnoted: HashSet<String>,
    said: Vec<Said>,
    is_closed: bool,
}

impl Board {
    pub(super) fn new(
        clock: SystemClock,
        stop: Shutdown,
        timeout: Duration,
        deadline: Option<Mono>,
        max: Option<u64>,
    ) -> Self {
        Self { clock, stop, timeout, deadline, max: max.unwrap_or(u64::MAX), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time until the deadline; `None` without one.
    pub(super) fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.since(self.clock.mono()))
    }

    /// Whether nothing more is begun: a signal came, the time is up, or enough was tried.
    pub(super) fn is_over(&self) -> bool {
        self.stop.is_triggered()
            || self.left().is_some_and(|left| left.is_zero())
            || self.state().begun >= self.max
    }

    /// What was said since this was last asked.
    pub(super) fn heard(&self) -> Vec<Said> {
        std::mem::take(&mut self.state().said)
    }

    /// Ends a pass, and answers what is still being tried in it.
    pub(super) fn close(&self) -> HashSet<String> {
        let mut state = self.state();
        state.is_closed = true;
        std::mem::take(&mut state.in_flight)
    }

    /// Lets a pass begin.
    pub(super) fn open(&self) {
        let mut state = self.state();
        state.is_closed = false;
        state.allowed = state.begun;
    }

    fn say(&self, entry: &Entry, settled: Option<Settled>) {
        let mut state = self.state();
        state.in_flight.remove(&entry.id);
        let is_late = state.unnoted.remove(&entry.id);
        if settled.is_none() {
            state.unnoted.insert(entry.id.clone());
        }
        state.said.push(Said { id: entry.id.clone(), dest: entry.dest.clone(), settled, is_late });
    }
}

impl Watch for Board {
    fn next(&self) -> Option<Duration> {
        let left = self.left();
        if self.stop.is_triggered() || left.is_some_and(|left| left.is_zero()) {
            return None;
        }
        let mut state = self.state();
        if state.is_closed || state.allowed >= self.max {
            return None;
        }
        state.allowed += 1;
        Some(left.map_or(self.timeout, |left| left.min(self.timeout)))
    }

    fn begins(&self, entry: &Entry) {
        let mut state = self.state();
        state.begun += 1;
        state.in_flight.insert(entry.id.clone());
    }

    fn ended(&self, entry: &Entry, settled: &Settled) {
        self.say(entry, Some(settled.clone()));
    }

    fn unnoted(&self, entry: &Entry, _verdict: &Verdict) {
        self.say(entry, None);
    }
}
