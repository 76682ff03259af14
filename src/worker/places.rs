//! Free places in the queues of agents, as they were counted last.
//!
//! Counting looks at everything that waits for an agent, so it is done once for many messages. Near the limit every
//! message is counted, so that the limit is kept to the last place.

use std::collections::HashMap;
use std::sync::Mutex;

use super::app::lock;
use crate::store::ledger::messages::Queue;

/// Messages that are taken on one count, and as many again that are left over for those that come meanwhile.
const AT_ONCE: u64 = 64;
/// Queues that are remembered; beyond, all are counted anew.
const QUEUES: usize = 10_000;

#[derive(Default)]
pub(super) struct Places(Mutex<HashMap<Queue, u64>>);

impl Places {
    /// Takes a place that is known to be free. `false`: count.
    pub(super) fn take(&self, queue: &Queue) -> bool {
        let mut places = lock(&self.0);
        let Some(left) = places.get_mut(queue) else { return false };
        *left -= 1;
        if *left == 0 {
            places.remove(queue);
        }
        true
    }

    /// So many were free a moment ago.
    pub(super) fn counted(&self, queue: &Queue, free: u64) {
        let mut places = lock(&self.0);
        if places.len() >= QUEUES {
            places.clear();
        }
        match free.saturating_sub(AT_ONCE).min(AT_ONCE) {
            0 => places.remove(queue),
            left => places.insert(queue.clone(), left),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_from_a_count_and_never_near_the_limit() {
        let queue = |agent: &str| Queue { org_id: "o".into(), host: "h".into(), agent: agent.into() };
        let places = Places::default();
        assert!(!places.take(&queue("a")), "nothing was counted");
        places.counted(&queue("a"), 1000);
        assert!(!places.take(&queue("b")));
        assert_eq!((0..200).filter(|_| places.take(&queue("a"))).count(), 64);
        places.counted(&queue("a"), 70);
        assert_eq!((0..200).filter(|_| places.take(&queue("a"))).count(), 6);
        places.counted(&queue("a"), 1000);
        places.counted(&queue("a"), 64);
        assert!(!places.take(&queue("a")), "the last ones are counted one by one");
    }
}
