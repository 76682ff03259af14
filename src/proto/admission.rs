//! Who may trigger a run, and what waits for what: first come, first served within a conversation, conversations side
//! by side, and limits on everything (local client API, "Limits").
//!
//! It holds the jobs and runs none. A conversation has a place as long as it has a job that runs or waits, so an idle
//! one never stands in the way of a new one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use crate::clock::Mono;

/// The time in which triggers are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Actors that are remembered before those are looked for whose triggers are all forgotten.
const ACTORS: usize = 256;

/// How much is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Conversations of one lane at a time.
    pub conversations: usize,
    /// Jobs of one conversation that wait, besides the one that runs.
    pub queue: usize,
    /// Triggers of one actor within a minute.
    pub rate_per_minute: usize,
}

/// What runs beside what: a command of the operating system does not wait for the dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Runs of the dispatcher.
    Agent,
    /// `!` commands.
    Command,
}

/// One conversation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Where its triggers come from.
    pub source: &'static str,
    /// Its session there.
    pub session: String,
    /// What its jobs are.
    pub lane: Lane,
}

/// Why a trigger is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The actor has triggered enough for now.
    #[error("rate limit exceeded")]
    RateLimited,
    /// There is no place for another conversation.
    #[error("session cap reached")]
    SessionCap,
    /// Too much waits in this conversation.
    #[error("conversation queue full")]
    QueueFull,
}

#[derive(Debug)]
struct Conversation<J> {
    is_running: bool,
    waiting: VecDeque<J>,
}

/// The jobs of all conversations.
#[derive(Debug)]
pub struct Admission<J> {
    limits: Limits,
    conversations: BTreeMap<Key, Conversation<J>>,
    actors: HashMap<String, VecDeque<Mono>>,
}

impl<J> Admission<J> {
    /// Nobody is there yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, conversations: BTreeMap::new(), actors: HashMap::new() }
    }

    /// Other limits from now on. Nothing that was let in is turned out.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Whether a job of `actor` may be added to a conversation now. It counts against the actor's rate, unless that is
    /// why not.
    ///
    /// # Errors
    /// Why not.
    pub fn admit(&mut self, key: &Key, actor: &str, now: Mono) -> Result<(), Refused> {
        self.count(actor, now)?;
        match self.conversations.get(key) {
            Some(conversation) if conversation.waiting.len() >= self.limits.queue => Err(Refused::QueueFull),
            Some(_) => Ok(()),
            None => {
                let here = self.conversations.keys().filter(|other| other.lane == key.lane).count();
                if here < self.limits.conversations { Ok(()) } else { Err(Refused::SessionCap) }
            }
        }
    }

    fn count(&mut self, actor: &str, now: Mono) -> Result<(), Refused> {
        let is_old = |at: &Mono| now.since(*at) >= WINDOW;
        if self.actors.len() >= ACTORS {
            self.actors.retain(|_, times| times.back().is_some_and(|last| !is_old(last)));
        }
        let times = self.actors.entry(actor.to_owned()).or_default();
        while times.front().is_some_and(is_old) {
            times.pop_front();
        }
        if times.len() >= self.limits.rate_per_minute {
            return Err(Refused::RateLimited);
        }
        times.push_back(now);
        Ok(())
    }

    /// Adds a job that was admitted. Answers whether nobody works for its conversation, so that somebody is to begin.
    pub fn push(&mut self, key: Key, job: J) -> bool {
        let new = || Conversation { is_running: false, waiting: VecDeque::new() };
        let conversation = self.conversations.entry(key).or_insert_with(new);
        conversation.waiting.push_back(job);
        !std::mem::replace(&mut conversation.is_running, true)
    }

    /// The next job of a conversation, for who works for it; the one before is over. Without one the conversation is
    /// idle, and its place is free.
    pub fn next(&mut self, key: &Key) -> Option<J> {
        let job = self.conversations.get_mut(key)?.waiting.pop_front();
        if job.is_none() {
            self.conversations.remove(key);
        }
        job
    }

    /// How many conversations have a place.
    pub fn conversations(&self) -> usize {
        self.conversations.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { conversations: 4, queue: 64, rate_per_minute: 30 };

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    fn key(session: &str) -> Key {
        Key { source: "local", session: session.into(), lane: Lane::Agent }
    }

    fn offer(
        all: &mut Admission<u32>,
        session: &str,
        actor: &str,
        job: u32,
        now: u64,
    ) -> Result<bool, Refused> {
        all.admit(&key(session), actor, at(now)).map(|()| all.push(key(session), job))
    }

    #[test]
    fn jobs_of_a_conversation_come_in_their_order_and_one_at_a_time() {
        let mut all = Admission::new(LIMITS);
        let begins: Vec<_> = (0..3).map(|n| offer(&mut all, "a", "me", n, 0).unwrap()).collect();
        assert_eq!(begins, [true, false, false]);
        assert_eq!([all.next(&key("a")), all.next(&key("a"))], [Some(0), Some(1)]);
        assert!(!offer(&mut all, "a", "me", 3, 0).unwrap(), "somebody works for it");
        assert_eq!([all.next(&key("a")), all.next(&key("a")), all.next(&key("a"))], [Some(2), Some(3), None]);
        assert_eq!(all.conversations(), 0);
        assert!(offer(&mut all, "a", "me", 4, 0).unwrap());
    }

    #[test]
    fn the_fifth_conversation_waits_for_an_idle_one_and_no_longer() {
        let mut all = Admission::new(LIMITS);
        for session in ["a", "b", "c", "d"] {
            offer(&mut all, session, "me", 0, 0).unwrap();
        }
        assert_eq!(offer(&mut all, "e", "me", 0, 0), Err(Refused::SessionCap));
        let beside = Key { lane: Lane::Command, ..key("e") };
        assert_eq!(all.admit(&beside, "me", at(0)), Ok(()), "commands have places of their own");
        assert_eq!((all.next(&key("b")), all.next(&key("b"))), (Some(0), None));
        assert_eq!(offer(&mut all, "e", "me", 0, 0), Ok(true));
    }

    #[test]
    fn the_queue_has_its_limit_besides_what_runs() {
        let mut all = Admission::new(Limits { rate_per_minute: 1000, ..LIMITS });
        offer(&mut all, "a", "me", 0, 0).unwrap();
        all.next(&key("a"));
        for n in 1..=64 {
            offer(&mut all, "a", "me", n, 0).unwrap();
        }
        assert_eq!(offer(&mut all, "a", "me", 65, 0), Err(Refused::QueueFull));
        assert_eq!(offer(&mut all, "b", "me", 65, 0), Ok(true), "the others go on");
    }

    #[test]
    fn each_actor_has_a_rate_and_what_is_refused_for_it_is_not_counted() {
        let mut all = Admission::new(LIMITS);
        for n in 0..30 {
            offer(&mut all, "a", "me", n, u64::from(n)).unwrap();
        }
        assert_eq!(offer(&mut all, "a", "me", 30, 59), Err(Refused::RateLimited));
        assert!(offer(&mut all, "a", "you", 31, 59).is_ok());
        assert!(offer(&mut all, "a", "me", 32, 60).is_ok(), "the first one is a minute old");
        assert_eq!(offer(&mut all, "a", "me", 33, 60), Err(Refused::RateLimited));
    }

    #[test]
    fn two_thousand_sessions_over_an_hour_leave_nothing_behind() {
        let mut all = Admission::new(LIMITS);
        for n in 0..2_000_u32 {
            // 1.8 s apart, each by a process of its own, and each over before the fifth one comes.
            let now = u64::from(n) * 9 / 5;
            let (session, actor) = (format!("s{n}"), format!("pid={n} uid=0"));
            assert_eq!(offer(&mut all, &session, &actor, n, now), Ok(true), "{n} at {now}");
            assert_eq!(all.next(&key(&session)), Some(n));
            if let Some(before) = n.checked_sub(3) {
                assert_eq!(all.next(&key(&format!("s{before}"))), None);
            }
            assert!(all.conversations() <= 4 && all.actors.len() <= ACTORS);
        }
        // One actor alone is let in thirty times a minute, whatever the sessions are called.
        let let_in = (0..3_600_u32).filter(|&n| {
            let session = format!("t{n}");
            let is_in = offer(&mut all, &session, "one", 0, 10_000 + u64::from(n)).is_ok();
            all.next(&key(&session));
            all.next(&key(&session));
            is_in
        });
        assert_eq!(let_in.count(), 1_800);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_reordered_or_let_in_beyond_the_limits(
            steps in proptest::collection::vec((0_u8..3, 0_u8..7), 0..400),
        ) {
            let limits = Limits { conversations: 3, queue: 4, rate_per_minute: 20 };
            let mut all = Admission::new(limits);
            let (mut waiting, mut working) = (HashMap::<u8, VecDeque<u32>>::new(), Vec::new());
            let mut now = 0;
            for (n, (what, session)) in steps.into_iter().enumerate() {
                let name = session.to_string();
                match what {
                    0 => now += 7,
                    1 => {
                        let job = u32::try_from(n).unwrap();
                        let there = waiting.len();
                        match offer(&mut all, &name, "me", job, now) {
                            Ok(begins) => {
                                prop_assert_eq!(begins, !waiting.contains_key(&session));
                                waiting.entry(session).or_default().push_back(job);
                            }
                            Err(Refused::SessionCap) => prop_assert!(there == 3 && !waiting.contains_key(&session)),
                            Err(Refused::QueueFull) => prop_assert_eq!(waiting[&session].len(), 4),
                            Err(Refused::RateLimited) => {}
                        }
                    }
                    _ => {
                        let want = waiting.get_mut(&session).and_then(VecDeque::pop_front);
                        prop_assert_eq!(all.next(&key(&name)), want);
                        if want.is_none() { waiting.remove(&session); } else { working.push(want); }
                    }
                }
                prop_assert_eq!(all.conversations(), waiting.len());
            }
        }
    }
}
