//! What was asked and waits for an answer, within bounds.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// Questions of each kind that are remembered, answered ones too.
pub const REMEMBERED: usize = 65_536;

/// What an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// To a question that was asked, or may have been.
    Fine,
    /// To no question.
    Unasked,
    /// Given before, on the same connection.
    Again,
}

#[derive(Debug, Clone, Copy, Default)]
struct Question {
    /// How often it was asked and not answered.
    open: u32,
    /// The connection on which it was last answered for good; 0 is one whose beginning was not seen.
    settled_on: Option<u32>,
}

/// Questions by their keys. A key is kept as a hash of 64 bits, whose collisions are far rarer than faults.
#[derive(Debug, Default)]
pub(super) struct Memory {
    questions: HashMap<u64, Question>,
    order: VecDeque<u64>,
    /// A question may have been asked that is not here.
    is_gone: bool,
    unjudged: u64,
}

impl Memory {
    pub(super) fn unjudged(&self) -> u64 {
        self.unjudged
    }

    /// Takes note of questions that were not seen.
    pub(super) fn lose(&mut self) {
        self.is_gone = true;
    }

    /// Something was asked, perhaps once more.
    pub(super) fn asked(&mut self, key: &[&str]) {
        self.question(key).open += 1;
    }

    /// Something was asked that must not be asked again before it is answered. Whether it was not.
    pub(super) fn asked_once(&mut self, key: &[&str]) -> bool {
        let question = self.question(key);
        let is_first = question.open == 0;
        question.open = 1;
        is_first
    }

    /// An answer that is good once for each question.
    pub(super) fn answered_once(&mut self, key: &[&str]) -> bool {
        match self.questions.get_mut(&hash(key)) {
            Some(question) if question.open > 0 => {
                question.open = 0;
                true
            }
            Some(_) => false,
            None => self.unasked() == Answer::Fine,
        }
    }

    /// An answer on a connection. One that is not `for_good` may be followed by another one.
    pub(super) fn answered(&mut self, key: &[&str], connection: u32, for_good: bool) -> Answer {
        let Some(question) = self.questions.get_mut(&hash(key)) else { return self.unasked() };
        let is_again = question.open == 0 && question.settled_on == Some(connection);
        question.open = question.open.saturating_sub(1);
        if for_good {
            question.settled_on = Some(connection);
        }
        if is_again { Answer::Again } else { Answer::Fine }
    }

    /// Takes one question away without judging the answer.
    pub(super) fn settle(&mut self, key: &[&str], connection: u32, for_good: bool) {
        if let Some(question) = self.questions.get_mut(&hash(key)) {
            question.open = question.open.saturating_sub(1);
            if for_good {
                question.settled_on = Some(connection);
            }
        }
    }

    /// Whether a question waits for an answer.
    pub(super) fn is_open(&self, key: &[&str]) -> bool {
        self.questions.get(&hash(key)).is_some_and(|question| question.open > 0)
    }

    /// Whether every question of this key was answered, the last time for good and on this connection.
    pub(super) fn is_settled(&self, key: &[&str], connection: u32) -> bool {
        self.questions
            .get(&hash(key))
            .is_some_and(|question| question.open == 0 && question.settled_on == Some(connection))
    }

    fn unasked(&mut self) -> Answer {
        if self.is_gone {
            self.unjudged += 1;
            return Answer::Fine;
        }
        Answer::Unasked
    }

    fn question(&mut self, key: &[&str]) -> &mut Question {
        let key = hash(key);
        if !self.questions.contains_key(&key) {
            if self.order.len() >= REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.questions.remove(&oldest);
                self.is_gone = true;
            }
            self.order.push_back(key);
        }
        self.questions.entry(key).or_default()
    }
}

fn hash(key: &[&str]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_takes_one_answer_on_a_connection() {
        let mut memory = Memory::default();
        assert_eq!(memory.answered(&["a"], 1, true), Answer::Unasked);
        memory.asked(&["a"]);
        memory.asked(&["a"]);
        let answers = [(); 3].map(|()| memory.answered(&["a"], 1, true));
        assert_eq!(answers, [Answer::Fine, Answer::Fine, Answer::Again]);
        assert_eq!(memory.answered(&["a"], 2, true), Answer::Fine, "a later connection may say it again");
        assert_eq!(memory.answered(&["a"], 2, true), Answer::Again);
        assert_eq!(memory.answered(&["a", ""], 2, true), Answer::Unasked, "keys do not run together");
    }

    #[test]
    fn an_answer_that_is_not_for_good_may_be_followed_by_one_that_is() {
        let mut memory = Memory::default();
        memory.asked(&["a"]);
        let answers = [false, false, true, true].map(|good| memory.answered(&["a"], 1, good));
        assert_eq!(answers, [Answer::Fine, Answer::Fine, Answer::Fine, Answer::Again]);
    }

    #[test]
    fn a_question_is_asked_once_until_it_is_answered() {
        let mut memory = Memory::default();
        assert!(memory.asked_once(&["1", "r"]) && !memory.asked_once(&["1", "r"]));
        assert!(memory.answered_once(&["1", "r"]) && !memory.answered_once(&["1", "r"]));
        assert!(memory.asked_once(&["1", "r"]) && !memory.answered_once(&["2", "r"]));
    }

    #[test]
    fn what_may_have_been_forgotten_is_not_judged() {
        let mut memory = Memory::default();
        for n in 0..=REMEMBERED {
            memory.asked(&[&n.to_string()]);
        }
        assert_eq!(memory.answered(&["0"], 1, true), Answer::Fine);
        assert_eq!(memory.answered(&["1"], 1, true), Answer::Fine);
        assert_eq!((memory.unjudged(), memory.questions.len()), (1, REMEMBERED));
    }
}
