//! The loop guard: agents that answer each other without a person or an event between them are stopped. The Worker has
//! one for all that passes, and each host's daemon one for what its agents say to each other.
//!
//! A message between agents counts in two windows: its reply chain, and its ordered pair or, when it goes to a room,
//! that room. A window in which as many as the limit were counted within its span is tripped: further messages are
//! refused until nothing has been counted in it for that span. Whatever an operator, a person or an event says to one
//! of the agents of a window empties it.
//!
//! This is a machine: it is told what happens and when. Its memory is bounded, and what it forgets under pressure, the
//! longest quiet first, lets more through, never less.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::time::Duration;

use crate::clock::Mono;

/// Chains, pairs and rooms that are watched at the same time.
const WINDOWS: usize = 10_000;
/// Messages that are remembered with the chain that they belong to.
pub const MESSAGES: usize = 100_000;
/// Agents whose last interruption is remembered.
const AGENTS: usize = 40_000;
/// Agents that a window is known to be about; of a larger crowd, those that came last.
const SPEAKERS: usize = 64;
/// A limit beyond this lets all pass, as 0 does: what is counted is kept in memory.
pub const LIMIT_MAX: u32 = 10_000;
/// Entries from which on it is worth looking for those that are over.
const SWEEP_FROM: usize = 256;

/// A message that passes between agents.
#[derive(Debug, Clone, Copy)]
pub struct Passing<'a> {
    /// The organisation's id. On a host, which has one only, it is empty.
    pub org_id: &'a str,
    /// The sender's address.
    pub from: &'a str,
    /// The recipient: an agent's address, or `#room`.
    pub to: &'a str,
    /// Its id.
    pub id: &'a str,
    /// The message that it answers.
    pub reply_to: Option<&'a str>,
}

impl Passing<'_> {
    /// Whether it goes to a room.
    pub fn is_post(&self) -> bool {
        self.to.starts_with('#')
    }
}

/// A message was counted. Whoever does not take it after all says so with [`Guard::give_back`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    at: Mono,
    chain: Key,
    pair: Key,
    /// The message, when it was not known before.
    message: Option<Key>,
}

/// A message is to be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// What is tripped: `chain`, `pair` or `room`.
    pub what: &'static str,
    /// The time after which it is cool again.
    pub cools_in: Duration,
    /// The operator does not know yet.
    pub is_first: bool,
}

/// How far the fuller one of a message's two windows has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// Messages that were counted in it.
    pub counted: usize,
    /// The time after which nothing has been counted in either for the span.
    pub quiet_in: Duration,
}

/// A chain, a pair, a room, an agent or a message: the hash of its names under a key of this process. Two that are the
/// same to it would be watched as one; at 64 bits that does not happen.
type Key = u64;

/// Where a message counts.
struct Place {
    id: Key,
    /// The first message of its chain.
    root: Key,
    chain: Key,
    /// The pair or the room.
    pair: Key,
    /// Who sends it and, unless that is a room, to whom.
    speakers: [Key; 2],
}

/// What was counted about one thing.
#[derive(Debug, Default)]
struct Window {
    /// When, in order; never more than the limit.
    at: VecDeque<Mono>,
    /// The last one's place in the order of everything.
    turn: u64,
    /// The limit that was reached.
    tripped: Option<u32>,
    told: bool,
    speakers: VecDeque<Key>,
}

impl Window {
    fn count(&mut self, at: Mono, turn: u64, limit: u32, speakers: &[Key]) {
        self.at.push_back(at);
        self.turn = turn;
        if self.at.len() >= limit as usize {
            self.tripped = Some(limit);
        }
        for &speaker in speakers {
            if !self.speakers.contains(&speaker) {
                if self.speakers.len() >= SPEAKERS {
                    self.speakers.pop_front();
                }
                self.speakers.push_back(speaker);
            }
        }
    }

    /// How many count now. What has tripped counts until all of it is over.
    fn counted(&self, span: Duration, now: Mono) -> usize {
        match self.tripped {
            Some(_) => self.at.len(),
            None => self.at.iter().filter(|&&at| at + span > now).count(),
        }
    }

    fn is_over(&self, span: Duration, now: Mono) -> bool {
        self.at.back().is_none_or(|&last| last + span <= now)
    }
}

/// A message that was seen.
#[derive(Debug, Clone, Copy)]
struct Message {
    /// The first message of its chain.
    root: Key,
    at: Mono,
    turn: u64,
    /// It was counted. One that was refused belongs to its chain as well: its recipient may have it all the same, from
    /// a daemon of both, and answer it.
    is_counted: bool,
}

/// An agent that takes part in something.
#[derive(Debug, Clone, Copy)]
struct Agent {
    /// The last interruption's place in the order of everything.
    interrupted: u64,
    seen: Mono,
}

/// The machine.
#[derive(Debug)]
pub struct Guard {
    limit: u32,
    span: Duration,
    hash: RandomState,
    windows: HashMap<Key, Window>,
    agents: HashMap<Key, Agent>,
    messages: HashMap<Key, Message>,
    /// The messages in the order in which they came.
    order: VecDeque<(Mono, Key)>,
    /// Counts everything that happens.
    turn: u64,
    /// At so many windows, and so many agents, those that are over are looked for.
    sweep_at: (usize, usize),
}

impl Guard {
    /// Lets `limit` messages pass within `span`. A limit of 0 lets all pass. What is watched is known by its hash, so
    /// that `hash` is to be one that nobody can foresee.
    pub fn new(limit: u32, span: Duration, hash: RandomState) -> Self {
        Self {
            limit,
            span,
            hash,
            windows: HashMap::new(),
            agents: HashMap::new(),
            messages: HashMap::new(),
            order: VecDeque::new(),
            turn: 0,
            sweep_at: (SWEEP_FROM, SWEEP_FROM),
        }
    }

    /// Counts a message, unless it is to be refused, which counts nothing. A room may have a limit of its own.
    /// Answers `None` for a message that is not watched.
    pub fn pass(
        &mut self,
        message: Passing<'_>,
        of_room: Option<u32>,
        now: Mono,
    ) -> Result<Option<Counted>, Held> {
        let limit = of_room.unwrap_or(self.limit);
        if limit == 0 || limit > LIMIT_MAX {
            return Ok(None);
        }
        self.forget_old(now);
        let Place { id, root, chain, pair, speakers, .. } = self.place(&message);
        let speakers = if message.is_post() { &speakers[..1] } else { &speakers[..] };

        for &speaker in speakers {
            self.agents.entry(speaker).or_insert(Agent { interrupted: 0, seen: now }).seen = now;
        }
        if message.reply_to.is_some() {
            self.begin_chain(chain, root, limit, speakers);
        }
        let of_pair = if message.is_post() { "room" } else { "pair" };
        for (what, key) in [("chain", chain), (of_pair, pair)] {
            if let Err((cools_in, is_first)) = self.look(key, limit, now) {
                self.remember(id, Message { root, at: now, turn: self.turn, is_counted: false });
                return Err(Held { what, cools_in, is_first });
            }
        }
        self.turn += 1;
        if let Some(window) = self.windows.get_mut(&chain) {
            window.count(now, self.turn, limit, speakers);
        }
        self.windows.entry(pair).or_default().count(now, self.turn, limit, speakers);
        let is_new = self.remember(id, Message { root, at: now, turn: self.turn, is_counted: true });
        Ok(Some(Counted { at: now, chain, pair, message: is_new.then_some(id) }))
    }

    /// Remembers a message unless it is known; answers whether it was not. One that was refused is when it is counted.
    fn remember(&mut self, id: Key, message: Message) -> bool {
        let known = self.messages.get(&id);
        if known.is_some_and(|known| known.is_counted || !message.is_counted) {
            return false;
        }
        self.messages.insert(id, message);
        self.order.push_back((message.at, id));
        true
    }

    /// How far what this message would count in has come; it is not counted.
    pub fn standing(&self, message: Passing<'_>, now: Mono) -> Standing {
        let Place { root, chain, pair, .. } = self.place(&message);
        let mut standing = Standing::default();
        for key in [chain, pair] {
            let Some(window) = self.windows.get(&key) else { continue };
            if !is_void(window, &self.agents, self.span, now) {
                let last = window.at.back().copied().unwrap_or_default();
                standing.counted = standing.counted.max(window.counted(self.span, now));
                standing.quiet_in = standing.quiet_in.max((last + self.span).since(now));
            }
        }
        let begins_chain = message.reply_to.is_some() && !self.windows.contains_key(&chain);
        if begins_chain && self.messages.get(&root).is_some_and(|first| first.is_counted) {
            standing.counted = standing.counted.max(1);
        }
        standing
    }

    /// Whether the message is one that was counted.
    pub fn knows(&self, org_id: &str, id: &str) -> bool {
        self.messages.get(&self.key(&["message", org_id, id])).is_some_and(|message| message.is_counted)
    }

    /// A message that was counted was not taken, or had been taken before.
    pub fn give_back(&mut self, counted: Counted) {
        for key in [counted.chain, counted.pair] {
            let Some(window) = self.windows.get_mut(&key) else { continue };
            let Some(place) = window.at.iter().rposition(|&at| at == counted.at) else { continue };
            window.at.remove(place);
            if window.tripped.is_some_and(|limit| window.at.len() < limit as usize) {
                window.tripped = None;
            }
        }
        if let Some(id) = counted.message {
            self.messages.remove(&id);
        }
    }

    /// A person, an operator or an event has said something to this agent, or to this `#room`.
    pub fn interrupt(&mut self, org_id: &str, address: &str, now: Mono) {
        if address.starts_with('#') {
            let room = self.key(&["room", org_id, address]);
            self.windows.remove(&room);
            return;
        }
        let agent = self.key(&["agent", org_id, address]);
        // One that has taken part in nothing can be interrupted in nothing.
        if let Some(agent) = self.agents.get_mut(&agent) {
            self.turn += 1;
            *agent = Agent { interrupted: self.turn, seen: now };
        }
    }

    fn place(&self, message: &Passing<'_>) -> Place {
        let Passing { org_id, from, to, .. } = *message;
        let id = self.key(&["message", org_id, message.id]);
        let answered = message.reply_to.map(|id| self.key(&["message", org_id, id]));
        let root =
            answered.map_or(id, |answered| self.messages.get(&answered).map_or(answered, |known| known.root));
        let pair = match message.is_post() {
            true => self.key(&["room", org_id, to]),
            false => self.key(&["pair", org_id, from, to]),
        };
        let speakers = [self.key(&["agent", org_id, from]), self.key(&["agent", org_id, to])];
        Place { id, root, chain: self.hash.hash_one(("chain", root)), pair, speakers }
    }

    fn key(&self, names: &[&str]) -> Key {
        self.hash.hash_one(names)
    }

    /// A chain is watched from its first answer on. What is answered counts in it as well, if it was seen.
    fn begin_chain(&mut self, chain: Key, root: Key, limit: u32, speakers: &[Key]) {
        if !self.windows.contains_key(&chain) {
            let mut window = Window::default();
            if let Some(first) = self.messages.get(&root).filter(|first| first.is_counted) {
                window.count(first.at, first.turn, limit, speakers);
            }
            self.windows.insert(chain, window);
        }
    }

    /// Whether one more may be counted. Otherwise for how long it may not, and whether that is news.
    fn look(&mut self, key: Key, limit: u32, now: Mono) -> Result<(), (Duration, bool)> {
        let Some(window) = self.windows.get_mut(&key) else { return Ok(()) };
        if is_void(window, &self.agents, self.span, now) {
            *window = Window::default();
            return Ok(());
        }
        while window.tripped.is_none() && window.at.front().is_some_and(|&at| at + self.span <= now) {
            window.at.pop_front();
        }
        window.tripped =
            window.tripped.filter(|&by| limit <= by).or((window.at.len() >= limit as usize).then_some(limit));
        if window.tripped.is_none() {
            return Ok(());
        }
        let last = window.at.back().copied().unwrap_or(now);
        Err(((last + self.span).since(now), !std::mem::replace(&mut window.told, true)))
    }

    fn forget_old(&mut self, now: Mono) {
        let span = self.span;
        while let Some(&(at, id)) = self.order.front() {
            if at + span > now && self.order.len() <= MESSAGES {
                break;
            }
            self.order.pop_front();
            if self.messages.get(&id).is_some_and(|message| message.at == at) {
                self.messages.remove(&id);
            }
        }
        if self.windows.len() >= self.sweep_at.0 {
            self.windows.retain(|_, window| !window.is_over(span, now));
            // One that is tripped counts nothing, and is in use all the same.
            let last = |window: &Window| match window.tripped {
                Some(_) => now,
                None => window.at.back().copied().unwrap_or_default(),
            };
            shrink(&mut self.windows, WINDOWS, last);
            self.sweep_at.0 = (2 * self.windows.len()).clamp(SWEEP_FROM, WINDOWS);
        }
        if self.agents.len() >= self.sweep_at.1 {
            self.agents.retain(|_, agent| agent.seen + span > now);
            shrink(&mut self.agents, AGENTS, |agent| agent.seen);
            self.sweep_at.1 = (2 * self.agents.len()).clamp(SWEEP_FROM, AGENTS);
        }
    }
}

/// Whether nothing counts any more of what a window has counted: it is over, or somebody came between.
fn is_void(window: &Window, agents: &HashMap<Key, Agent>, span: Duration, now: Mono) -> bool {
    let interrupted = |speaker: &Key| agents.get(speaker).is_none_or(|agent| agent.interrupted > window.turn);
    window.is_over(span, now) || window.speakers.iter().any(interrupted)
}

/// Leaves room below `most`: the half that was used longest ago goes.
fn shrink<T>(map: &mut HashMap<Key, T>, most: usize, used: impl Fn(&T) -> Mono) {
    if map.len() * 4 <= most * 3 {
        return;
    }
    let mut ages: Vec<Mono> = map.values().map(&used).collect();
    let middle = ages.len() / 2;
    let (_, &mut from, _) = ages.select_nth_unstable(middle);
    map.retain(|_, entry| used(entry) >= from);
    if map.len() >= most {
        map.clear();
    }
}

#[cfg(test)]
mod tests;
