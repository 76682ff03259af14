//! What the writer does, for whoever watches it: how many changes share a commit, how long a commit takes, and
//! whether the ledger takes any.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::super::tally::{Counter, Histogram};

/// Changes of one commit.
const SIZES: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// Microseconds from the begin of a transaction to the end of its commit.
const TIMES: [u64; 14] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// The work of one ledger's writer since it was opened.
#[derive(Debug)]
pub struct Work {
    /// Changes of each transaction that was committed; each is one sync of the disk.
    pub sizes: Histogram,
    /// How long each of them took, in microseconds.
    pub times: Histogram,
    /// Transactions that could not be committed. Whoever waited for a change of one was told so.
    pub failures: Counter,
    origin: Instant,
    /// The last transaction could not be committed.
    has_failed: AtomicBool,
    /// When the transaction that is under way began, in microseconds after `origin`; 0 when there is none.
    began: AtomicU64,
}

impl Work {
    pub(super) fn new() -> Self {
        Self {
            sizes: Histogram::new(&SIZES),
            times: Histogram::new(&TIMES),
            failures: Counter::default(),
            origin: Instant::now(),
            has_failed: AtomicBool::new(false),
            began: AtomicU64::new(0),
        }
    }

    /// A transaction begins.
    pub(super) fn begin(&self) -> Instant {
        self.began.store(self.now().max(1), Ordering::Relaxed);
        Instant::now()
    }

    /// The transaction that began then was committed or was not.
    pub(super) fn end(&self, began: Instant, is_committed: bool) {
        if is_committed {
            self.times.add_time(began.elapsed());
        } else {
            self.failures.one();
        }
        self.has_failed.store(!is_committed, Ordering::Relaxed);
        self.began.store(0, Ordering::Relaxed);
    }

    /// Whether the last transaction could not be committed.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// How long the transaction that is under way has been so; zero when there is none.
    pub fn busy_for(&self) -> Duration {
        match self.began.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => Duration::from_micros(self.now().saturating_sub(began)),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_last_is_known_until_something_succeeds() {
        let work = Work::new();
        assert!(!work.has_failed() && work.busy_for().is_zero());
        work.end(work.begin(), false);
        assert!(work.has_failed());
        assert_eq!((work.failures.get(), work.times.read().count), (1, 0));
        work.end(work.begin(), true);
        assert!(!work.has_failed() && work.busy_for().is_zero());
        assert_eq!((work.failures.get(), work.times.read().count), (1, 1));
    }
}
