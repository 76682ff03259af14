//! Questions that wait for their answers, within bounds.

use std::collections::{BTreeMap, VecDeque};

use crate::clock::Wall;
use crate::text;

/// Questions that wait at a time. Beyond, the oldest one is forgotten.
pub const WAITING: usize = 32_768;
/// Most ids without an answer that a report names.
pub const NAMED: usize = 100;
/// Most code points of an id, and of an agent, that are kept.
const ID_RUNES: usize = 48;

type Key = (usize, String, String);

#[derive(Debug)]
struct Question {
    at: Option<Wall>,
    /// Its place among all questions.
    number: u64,
}

/// Questions by kind, id and agent.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    questions: BTreeMap<Key, Question>,
    /// The numbers and keys of questions in their order; those that were answered are still in it for a while.
    order: VecDeque<(u64, Key)>,
    asked: u64,
    forgotten: u64,
}

impl Waiting {
    /// A question; once more, it still waits since the first time.
    pub(super) fn asked(&mut self, kind: usize, id: &str, agent: Option<&str>, at: Option<Wall>) {
        let key = key(kind, id, agent);
        if self.questions.contains_key(&key) {
            return;
        }
        self.asked += 1;
        self.order.push_back((self.asked, key.clone()));
        self.questions.insert(key, Question { at, number: self.asked });
        self.bound();
    }

    /// An answer. Since when its question waited; the outer `None` is for an answer to no question.
    pub(super) fn answered(&mut self, kind: usize, id: &str, agent: Option<&str>) -> Option<Option<Wall>> {
        let mut key = key(kind, id, agent);
        if agent.is_none() && !self.questions.contains_key(&key) {
            let same =
                self.questions.range(key.clone()..).take_while(|(own, _)| own.0 == kind && own.1 == key.1);
            key = same.min_by_key(|(_, question)| question.number)?.0.clone();
        }
        self.questions.remove(&key).map(|question| question.at)
    }

    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// How many questions of a kind wait.
    pub(super) fn count(&self, kind: usize) -> u64 {
        self.questions.keys().filter(|key| key.0 == kind).count() as u64
    }

    /// The first of them, in their order.
    pub(super) fn names(&self, kind: usize) -> Vec<String> {
        let waits = |(number, key): &&(u64, Key)| {
            key.0 == kind && self.questions.get(key).is_some_and(|question| question.number == *number)
        };
        let name = |(_, (_, id, agent)): &(u64, Key)| {
            if agent.is_empty() { id.clone() } else { format!("{id} {agent}") }
        };
        self.order.iter().filter(waits).take(NAMED).map(name).collect()
    }

    fn bound(&mut self) {
        let waits = |questions: &BTreeMap<Key, Question>, number: u64, key: &Key| {
            questions.get(key).is_some_and(|question| question.number == number)
        };
        while self.questions.len() > WAITING
            && let Some((number, key)) = self.order.pop_front()
        {
            if waits(&self.questions, number, &key) {
                self.questions.remove(&key);
                self.forgotten += 1;
            }
        }
        if self.order.len() > 2 * WAITING {
            self.order.retain(|(number, key)| waits(&self.questions, *number, key));
        }
    }
}

fn key(kind: usize, id: &str, agent: Option<&str>) -> Key {
    let clipped = |text: &str| text::clip(text, ID_RUNES).to_owned();
    (kind, clipped(id), agent.map(clipped).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_and_named_in_its_order() {
        let mut waiting = Waiting::default();
        for n in 0..WAITING + 10 {
            waiting.asked(0, &format!("tx_{n}"), None, None);
        }
        assert_eq!((waiting.count(0), waiting.forgotten()), (WAITING as u64, 10));
        assert_eq!(waiting.answered(0, "tx_0", None), None);
        assert_eq!(waiting.answered(0, "tx_10", None), Some(None));
        assert_eq!(waiting.names(0)[..2], ["tx_11", "tx_12"]);
        assert_eq!((waiting.names(0).len(), waiting.names(1).len()), (NAMED, 0));
    }

    #[test]
    fn what_is_answered_again_and_again_takes_no_memory() {
        let mut waiting = Waiting::default();
        for n in 0..10 * WAITING {
            waiting.asked(0, &format!("tx_{n}"), None, None);
            waiting.answered(0, &format!("tx_{n}"), None);
        }
        assert!(waiting.order.len() <= 2 * WAITING && waiting.questions.is_empty());
    }
}
