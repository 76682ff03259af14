//! Times in buckets: whole milliseconds up to 255, and from there on 128 buckets for each doubling, so that a time is
//! known to within 1 % and any number of them takes the same memory.

/// Buckets of exact milliseconds.
const EXACT: u64 = 256;
/// Buckets for each doubling after them.
const STEPS: u64 = 128;

/// Times of one kind of answer.
#[derive(Debug, Default)]
pub(super) struct Times {
    answered: u64,
    timed: u64,
    min: Option<u64>,
    max: Option<u64>,
    buckets: Vec<u64>,
}

impl Times {
    /// Takes one answer, and its time in milliseconds if it is known.
    pub(super) fn take(&mut self, time: Option<u64>) {
        self.answered += 1;
        let Some(time) = time else { return };
        self.timed += 1;
        self.min = Some(self.min.map_or(time, |min| min.min(time)));
        self.max = self.max.max(Some(time));
        let bucket = bucket(time);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
    }

    pub(super) fn answered(&self) -> u64 {
        self.answered
    }

    pub(super) fn min(&self) -> Option<u64> {
        self.min
    }

    pub(super) fn max(&self) -> Option<u64> {
        self.max
    }

    /// The time that `percent` of a hundred are not longer than.
    pub(super) fn percentile(&self, percent: u64) -> Option<u64> {
        let rank = (self.timed * percent).div_ceil(100).max(1);
        let mut below = 0;
        let bucket = self.buckets.iter().position(|count| {
            below += count;
            below >= rank
        })?;
        Some(upper(bucket as u64).clamp(self.min?, self.max?))
    }
}

fn bucket(time: u64) -> usize {
    let bucket = match time {
        0..EXACT => time,
        _ => {
            let doublings = u64::from(time.ilog2()) - 7;
            EXACT + (doublings - 1) * STEPS + (time >> doublings) - STEPS
        }
    };
    usize::try_from(bucket).expect("there are less than 8,000 buckets")
}

/// The longest time of a bucket.
fn upper(bucket: u64) -> u64 {
    if bucket < EXACT {
        return bucket;
    }
    let (doublings, step) = ((bucket - EXACT) / STEPS + 1, (bucket - EXACT) % STEPS);
    ((STEPS + step + 1) << doublings).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_numbers_of_times_have_the_percentiles_that_one_counts_out() {
        let mut times = Times::default();
        assert_eq!((times.min(), times.percentile(50)), (None, None));
        for time in [5, 1, 9, 7, 3] {
            times.take(Some(time));
        }
        times.take(None);
        assert_eq!((times.answered(), times.min(), times.max()), (6, Some(1), Some(9)));
        assert_eq!((times.percentile(50), times.percentile(99)), (Some(5), Some(9)));
    }

    proptest! {
        #[test]
        fn a_time_is_known_within_one_percent(time in prop_oneof![0..5000u64, any::<u64>()]) {
            let known = upper(u64::try_from(bucket(time)).unwrap());
            prop_assert!(known >= time && known - time <= time / 100, "{} {}", time, known);
        }

        #[test]
        fn longer_times_are_in_later_buckets(time in any::<u64>()) {
            prop_assert!(bucket(time) >= bucket(time / 2) && bucket(time) >= bucket(time.saturating_sub(1)));
            prop_assert!(bucket(time) < 8000);
        }
    }
}
