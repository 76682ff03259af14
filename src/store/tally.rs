//! Counting without a lock: what has happened, how often, and how large or how long it was.
//!
//! A count costs one or three additions, in any thread. Reading gives numbers of about the same moment, which is all
//! that a watcher needs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Most buckets of a [`Histogram`], without the last one, which has no bound.
pub const BOUNDS_MAX: usize = 20;

/// How often something happened.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// It happened once more.
    pub fn one(&self) {
        self.add(1);
    }

    /// It happened so many times more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// How often so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many of what size: values sorted into buckets, and their sum.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    buckets: [Counter; BOUNDS_MAX + 1],
    sum: Counter,
}

impl Histogram {
    /// Buckets that end at `bounds`, which are in rising order, and one behind them. Of more than [`BOUNDS_MAX`]
    /// bounds the rest is left out.
    pub fn new(bounds: &'static [u64]) -> Self {
        let bounds = &bounds[..bounds.len().min(BOUNDS_MAX)];
        Self { bounds, buckets: Default::default(), sum: Counter::default() }
    }

    /// Adds a value.
    pub fn add(&self, value: u64) {
        let bucket = self.bounds.iter().position(|&bound| value <= bound).unwrap_or(self.bounds.len());
        self.buckets[bucket].one();
        self.sum.add(value);
    }

    /// Adds a time, in microseconds.
    pub fn add_time(&self, took: Duration) {
        self.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// What was added so far.
    pub fn read(&self) -> Spread {
        let mut count = 0;
        let mut up_to = |bucket: &Counter| {
            count += bucket.get();
            count
        };
        let ends = self.bounds.iter().zip(&self.buckets).map(|(&bound, bucket)| (bound, up_to(bucket)));
        let ends = ends.collect();
        let count = up_to(&self.buckets[self.bounds.len()]);
        Spread { ends, count, sum: self.sum.get() }
    }
}

/// What a [`Histogram`] held at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spread {
    /// Each bound, and how many values were not beyond it.
    pub ends: Vec<(u64, u64)>,
    /// How many values there were.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_up_to_their_bound() {
        let sizes = Histogram::new(&[1, 10]);
        [0, 1, 2, 10, 11, 1_000].into_iter().for_each(|value| sizes.add(value));
        sizes.add_time(Duration::from_micros(2));
        let read = sizes.read();
        assert_eq!(read, Spread { ends: vec![(1, 2), (10, 5)], count: 7, sum: 1_026 });
        assert_eq!(Histogram::new(&[]).read(), Spread::default());
    }

    #[test]
    fn bounds_that_are_too_many_are_left_out() {
        const MANY: [u64; BOUNDS_MAX + 5] = [7; BOUNDS_MAX + 5];
        let sizes = Histogram::new(&MANY);
        sizes.add(9);
        assert_eq!((sizes.read().ends.len(), sizes.read().count), (BOUNDS_MAX, 1));
    }
}
