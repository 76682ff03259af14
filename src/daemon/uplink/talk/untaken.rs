//! Messages that could not be stored, and went back to the Worker for now: what their senders sent next, which may be
//! on its way already, goes back too, so that nothing passes them.

use std::collections::{HashMap, HashSet};

use crate::store::spool::inbox::Delivery;

/// By agent and sender. It lasts as long as the connection: on the next one the Worker begins with the first anyway.
#[derive(Debug, Default)]
pub(super) struct Untaken(HashMap<(String, String), Pair>);

#[derive(Debug)]
struct Pair {
    first: String,
    /// What went back behind it.
    behind: HashSet<String>,
}

fn key(delivery: &Delivery) -> Option<(String, String)> {
    Some((delivery.agent.clone(), delivery.sender()?.to_owned()))
}

impl Untaken {
    /// It could not be stored.
    pub(super) fn note(&mut self, delivery: &Delivery) {
        let Some(key) = key(delivery) else { return };
        let new = || Pair { first: delivery.id.clone(), behind: HashSet::new() };
        self.0.entry(key).or_insert_with(new).behind.insert(delivery.id.clone());
    }

    /// Whether it has passed one that went back, and has to go back itself. What comes again does not: the Worker sends
    /// again in order, and what it gave up it does not send.
    pub(super) fn has_passed(&mut self, delivery: &Delivery) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let Some(key) = key(delivery) else { return false };
        let Some(pair) = self.0.get_mut(&key) else { return false };
        if pair.first != delivery.id && pair.behind.insert(delivery.id.clone()) {
            return true;
        }
        self.0.remove(&key);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(n: u8, from: &str) -> Delivery {
        let (id, agent) = (format!("tx_00000000000{n}"), "jess".to_owned());
        Delivery { id, agent, envelope: format!("<transit from=\"{from}\" id="), redelivery: 0 }
    }

    #[test]
    fn what_comes_after_one_that_went_back_goes_back_until_that_comes_again() {
        let mut untaken = Untaken::default();
        assert!(!untaken.has_passed(&delivery(1, "amy@a")));
        untaken.note(&delivery(1, "amy@a"));
        untaken.note(&delivery(2, "amy@a"));
        assert!(untaken.has_passed(&delivery(3, "amy@a")) && untaken.has_passed(&delivery(4, "amy@a")));
        assert!(!untaken.has_passed(&delivery(5, "zoe@a")), "another sender's");
        for n in [1, 2, 3, 4, 6] {
            assert!(!untaken.has_passed(&delivery(n, "amy@a")), "in their order: {n}");
        }
    }

    #[test]
    fn one_that_never_comes_again_holds_nobody_back_for_good() {
        let mut untaken = Untaken::default();
        untaken.note(&delivery(1, "amy@a"));
        assert!(untaken.has_passed(&delivery(2, "amy@a")));
        assert!(!untaken.has_passed(&delivery(2, "amy@a")), "the Worker has given up the first");
        assert!(!untaken.has_passed(&delivery(3, "amy@a")));
        let event = Delivery { id: "dlv_000000000001".into(), ..delivery(1, "ingest") };
        untaken.note(&event);
        assert!(
            !untaken.has_passed(&Delivery { id: "dlv_000000000002".into(), ..event }),
            "events are passed"
        );
    }
}
