//! Time and chance of a simulation. Both have it, this one and that of the whole Worker.

use std::collections::BTreeMap;
use std::time::Duration;

use transit::clock::Mono;

/// A small random source (splitmix64): the same seed gives the same story everywhere.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True in `percent` of all cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Up to `ms` milliseconds, at least one.
    pub(crate) fn wait(&mut self, ms: usize) -> Duration {
        Duration::from_millis(1 + self.below(ms) as u64)
    }

    /// One of `from`, which is not empty.
    pub(crate) fn one<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// What is to happen, in order of time; at one time, in order of planning.
pub(crate) struct Agenda<Due> {
    pub(crate) now: Mono,
    pub(crate) rng: Rng,
    planned: u64,
    queue: BTreeMap<(Mono, u64), Due>,
}

impl<Due> Agenda<Due> {
    pub(crate) fn new(seed: u64) -> Self {
        Self { now: Mono::default(), rng: Rng::new(seed), planned: 0, queue: BTreeMap::new() }
    }

    pub(crate) fn at(&mut self, time: Mono, due: Due) {
        self.planned += 1;
        self.queue.insert((time.max(self.now), self.planned), due);
    }

    pub(crate) fn after(&mut self, wait: Duration, due: Due) {
        self.at(self.now + wait, due);
    }

    /// Within `ms` milliseconds.
    pub(crate) fn soon(&mut self, ms: usize, due: Due) {
        let wait = self.rng.wait(ms);
        self.after(wait, due);
    }

    /// Moves the time on to what comes next.
    pub(crate) fn next(&mut self) -> Option<Due> {
        let ((time, _), due) = self.queue.pop_first()?;
        self.now = time;
        Some(due)
    }
}
