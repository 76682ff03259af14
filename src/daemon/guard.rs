//! The loop guard of this host.
//!
//! A message between two of its agents does not wait for the Worker, which has the last word on loops. So the daemon
//! counts too, and once a pair or a chain has come half as far as it may, it asks: the message goes round by the Worker
//! and is handed over when that has taken it. On a host that is not enrolled there is nobody to ask, and the daemon's
//! own count decides.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::addr::AgentAddr;
use crate::clock::{Mono, Wall};
use crate::id::IdKind;
use crate::proto::envelope::{self, Envelope, Kind, SYSTEM};
use crate::proto::guard::{Counted, Guard, MESSAGES, Passing};
use crate::store::StoreError;
use crate::store::spool::Spool;
use crate::store::spool::passed::{Said, What};

/// How a message gets to an agent of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Road {
    /// At once, and the Worker hears of it afterwards.
    Straight,
    /// Once the Worker has taken it.
    Round,
}

/// A message is to be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// Messages that were counted.
    pub(super) counted: usize,
    /// The time after which it is cool again.
    pub(super) cools_in: Duration,
}

/// A message that may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admitted {
    pub(super) road: Road,
    counted: Option<Counted>,
}

pub(super) struct Loops {
    limit: u32,
    span: Duration,
    state: Mutex<State>,
}

struct State {
    guard: Guard,
    /// Messages that are going round: sender and recipient of each.
    round: HashMap<String, (String, String)>,
    /// Whom a notice is on its way to, and about whom; until when.
    noticed: HashMap<(String, String), Mono>,
}

impl Loops {
    /// A `limit` of 0 turns the guard off.
    pub(super) fn new((limit, span): (u32, Duration)) -> Self {
        let guard = Guard::new(limit, span, RandomState::new());
        Self {
            limit,
            span,
            state: Mutex::new(State { guard, round: HashMap::new(), noticed: HashMap::new() }),
        }
    }

    /// Takes from the spool what was said in the time that the guard looks at, and what is still going round.
    ///
    /// # Errors
    /// When the spool cannot be read.
    pub(super) fn recall(&self, spool: &Spool, host: &str, wall: Wall, now: Mono) -> Result<(), StoreError> {
        let said = spool.said_since(wall - self.span, MESSAGES)?;
        let away = spool.away(host, wall)?;
        let mut state = self.state();
        for Said { at, what } in said {
            let age = Duration::from_millis(wall.0.saturating_sub(at.0).max(0).unsigned_abs());
            let at = Mono(self.time(now).0.saturating_sub(age));
            match what {
                What::Sent { id, from, to, reply_to } => {
                    let passing =
                        Passing { org_id: "", from: &from, to: &to, id: &id, reply_to: reply_to.as_deref() };
                    // What was taken although it would be refused now was taken all the same.
                    let _ = state.guard.pass(passing, None, at);
                }
                What::Got { id, agent, envelope } => {
                    hear(&mut state.guard, &id, &format!("{agent}@{host}"), &envelope, at);
                }
            }
        }
        state.round.extend(away.into_iter().map(|away| (away.id, (away.from, away.to))));
        Ok(())
    }

    /// An agent of this host wants to send a message; `is_near` when it is to another one of them. It counts, unless
    /// it is refused, and [`give_back`](Self::give_back) takes that back.
    ///
    /// # Errors
    /// When it must not go. With a Worker that is the Worker's to say.
    pub(super) fn admit(
        &self,
        message: Passing<'_>,
        is_near: bool,
        has_worker: bool,
        now: Mono,
    ) -> Result<Admitted, Held> {
        let now = self.time(now);
        let mut state = self.state();
        let counted_before = state.guard.standing(message, now).counted;
        let counted = match state.guard.pass(message, None, now) {
            Err(held) if !has_worker => {
                return Err(Held { counted: counted_before, cools_in: held.cools_in });
            }
            passed => passed,
        };
        let is_half_way = self.limit > 0 && counted_before >= (self.limit / 2) as usize;
        let road =
            match is_near && has_worker && (is_half_way || state.has_one_away(message.from, message.to)) {
                true => Road::Round,
                false => Road::Straight,
            };
        if road == Road::Round {
            state.round.insert(message.id.to_owned(), (message.from.to_owned(), message.to.to_owned()));
        }
        Ok(Admitted { road, counted: counted.ok().flatten() })
    }

    /// A message that was admitted does not go after all.
    pub(super) fn give_back(&self, id: &str, admitted: Admitted) {
        let mut state = self.state();
        state.round.remove(id);
        if let Some(counted) = admitted.counted {
            state.guard.give_back(counted);
        }
    }

    /// A message that was to go straight comes by the Worker after all.
    pub(super) fn goes_round(&self, id: &str, from: &str, to: &str) {
        self.state().round.insert(id.to_owned(), (from.to_owned(), to.to_owned()));
    }

    /// Whether this message is going round.
    pub(super) fn is_round(&self, id: &str) -> bool {
        self.state().round.contains_key(id)
    }

    /// A message that went round has come to its end, or to its agent: the next one of its pair may go straight.
    pub(super) fn came_round(&self, id: &str) {
        self.state().round.remove(id);
    }

    /// The Worker has refused a message that went round.
    pub(super) fn held(&self, message: Passing<'_>, now: Mono) -> Held {
        let standing = self.state().guard.standing(message, self.time(now));
        // A Worker that has counted more than this host cools later than can be told from here.
        let cools_in = if standing.quiet_in.is_zero() { self.span } else { standing.quiet_in };
        Held { counted: standing.counted, cools_in }
    }

    /// The Worker has delivered something to an agent of this host.
    pub(super) fn hear(&self, id: &str, address: &str, envelope: &str, now: Mono) {
        let mut state = self.state();
        state.round.remove(id);
        hear(&mut state.guard, id, address, envelope, self.time(now));
    }

    /// Whether the sender is to be told that it may write to `to` again in `wait`: once for each time that it has to
    /// cool.
    pub(super) fn is_to_be_noticed(&self, from: &str, to: &str, wait: Duration, now: Mono) -> bool {
        let mut state = self.state();
        state.noticed.retain(|_, until| *until > now);
        let is_news = !state.noticed.contains_key(&(from.to_owned(), to.to_owned()));
        if is_news {
            state.noticed.insert((from.to_owned(), to.to_owned()), now + wait);
        }
        is_news
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guard's clock is ahead of the process's, so that it has a time for what was before.
    fn time(&self, now: Mono) -> Mono {
        now + self.span
    }
}

impl State {
    /// Whether an earlier message of this pair is still going round: none may pass it.
    fn has_one_away(&self, from: &str, to: &str) -> bool {
        self.round.values().any(|pair| pair.0 == from && pair.1 == to)
    }
}

/// An agent of this host gets something: agents' messages count, and whatever else comes is an interruption.
fn hear(guard: &mut Guard, id: &str, address: &str, text: &str, at: Mono) {
    if IdKind::of(id) == Some(IdKind::Delivery) {
        return guard.interrupt("", address, at);
    }
    let Ok(parsed) = envelope::parse(text) else { return };
    let envelope = parsed.envelope;
    if envelope.from == SYSTEM || guard.knows("", &envelope.id) {
        return;
    }
    let room = match &envelope.kind {
        Kind::Room { room, .. } => Some(format!("#{room}")),
        _ => None,
    };
    if envelope.from.parse::<AgentAddr>().is_err() {
        guard.interrupt("", address, at);
        room.iter().for_each(|room| guard.interrupt("", room, at));
        return;
    }
    let to = room.as_deref().unwrap_or(address);
    let Envelope { from, id, reply_to, .. } = &envelope;
    // What the Worker has let pass has passed.
    let _ = guard.pass(Passing { org_id: "", from, to, id, reply_to: reply_to.as_deref() }, None, at);
}

#[cfg(test)]
mod tests;
