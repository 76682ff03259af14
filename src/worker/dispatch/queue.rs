//! What a link remembers of one agent's queue: how far it has looked, and what is under way.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::clock::{Backoff, Mono};

/// More than the ledger takes to hear that something was acknowledged.
const SETTLING: Duration = Duration::from_secs(1);

/// How much of a queue is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// What came after the last look.
    New,
    /// All of it: something that was passed over may be due.
    All,
}

#[derive(Default)]
pub(super) struct AgentQueue {
    pub(super) messages: Side,
    pub(super) deliveries: Side,
    /// What was sent and not answered, and when it is sent again.
    pub(super) flights: HashMap<String, Flight>,
    pub(super) settled: Settled,
    /// There was more than could be sent.
    pub(super) behind: bool,
    /// Something was held when it was looked at last, and others may have been passed over for it.
    pub(super) held: bool,
}

impl AgentQueue {
    /// What is over without an answer, such as a message that was cancelled, takes nobody's place. Until a moment
    /// after it would be sent again it may be that the row only says so a little later.
    pub(super) fn forget_gone(&mut self, is_due: impl Fn(&String) -> bool, now: Mono) {
        self.flights.retain(|id, flight| now < flight.again_at + SETTLING || is_due(id));
    }
}

/// What was acknowledged a moment ago. The ledger hears of it a little later, and until then would have it sent again.
#[derive(Default)]
pub(super) struct Settled {
    ids: HashSet<String>,
    order: VecDeque<(Mono, String)>,
}

impl Settled {
    pub(super) fn add(&mut self, id: &str, now: Mono) {
        self.forget(now);
        if self.ids.insert(id.to_owned()) {
            self.order.push_back((now, id.to_owned()));
        }
    }

    fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Forgets what the ledger has heard of by now.
    pub(super) fn forget(&mut self, now: Mono) {
        while self.order.front().is_some_and(|(at, _)| now.since(*at) >= SETTLING) {
            if let Some((_, id)) = self.order.pop_front() {
                self.ids.remove(&id);
            }
        }
    }
}

/// One kind of what waits for an agent.
#[derive(Default)]
pub(super) struct Side {
    /// Rows up to here have been looked at.
    to: i64,
    look: Option<Look>,
}

impl Side {
    pub(super) fn look(&mut self, look: Look) {
        self.look = self.look.max(Some(look));
    }

    /// Whether there is something to look for.
    pub(super) fn is_wanting(&self) -> bool {
        self.look.is_some()
    }

    /// Behind which row to look for what is due, if at all.
    pub(super) fn begin(&mut self) -> Option<i64> {
        let look = self.look.take()?;
        if look == Look::All {
            // It may come to its end before it has reached what was looked at before: what was passed over then, while
            // something was held, is not to be passed by what is new.
            self.to = 0;
        }
        Some(self.to)
    }

    /// The row at this place has been looked at.
    pub(super) fn reached(&mut self, seq: i64) {
        self.to = self.to.max(seq);
    }
}

/// One that was sent and not answered.
pub(super) struct Flight {
    /// The place of its row.
    pub(super) seq: i64,
    /// Order of sending on this link.
    pub(super) number: u64,
    again_at: Mono,
    /// The `redelivery` that it carried. While this connection stands, the frame is not lost but unanswered: it is
    /// sent again as it was, so that one which crosses its answer is known for what it is.
    redelivery: u32,
    /// When the daemon was asked first on this link.
    pub(super) since: Mono,
}

/// One deliver frame that goes out.
pub(super) struct Sent {
    pub(super) seq: i64,
    pub(super) is_message: bool,
    /// It went out on this connection before.
    pub(super) is_repeated: bool,
    pub(super) again_after: Duration,
}

/// What becomes of a row that is due.
pub(super) enum Step {
    /// It goes out, with the `redelivery` that it carries.
    Sent(u32),
    /// It was sent before and is not due again, or was acknowledged just now.
    UnderWay,
    /// As many as may be are under way.
    Full,
}

/// One look at an agent's queue, which takes what goes out.
pub(super) struct Round<'a> {
    pub(super) queue: &'a mut AgentQueue,
    /// What goes out is added here.
    pub(super) sent: &'a mut Vec<Sent>,
    /// How many frames this link has sent.
    pub(super) number: &'a mut u64,
    /// So many more may be under way.
    pub(super) room: usize,
    pub(super) now: Mono,
    /// When the first of what was taken is sent again.
    pub(super) soonest: Option<Mono>,
}

impl Round<'_> {
    /// Takes one that is due, a delivery with the `redelivery` that it would carry first. `misses` counts the attempts
    /// that space the next one out, this one among them.
    pub(super) fn take(&mut self, id: &str, seq: i64, redelivery: Option<u32>, misses: u32) -> Step {
        let Self { queue, now, .. } = self;
        let before = queue.flights.get(id);
        if before.is_some_and(|flight| *now < flight.again_at) || queue.settled.contains(id) {
            return Step::UnderWay;
        }
        if self.room == 0 {
            queue.behind = true;
            return Step::Full;
        }
        self.room -= 1;
        *self.number += 1;
        let again_after = Backoff::DELIVERY.after(misses);
        let again_at = *now + again_after;
        self.soonest = Some(self.soonest.map_or(again_at, |at| at.min(again_at)));
        let (is_message, is_repeated) = (redelivery.is_none(), before.is_some());
        let first = (redelivery.unwrap_or_default(), *now);
        let (redelivery, since) = before.map_or(first, |flight| (flight.redelivery, flight.since));
        let flight = Flight { seq, number: *self.number, again_at, redelivery, since };
        queue.flights.insert(id.to_owned(), flight);
        self.sent.push(Sent { seq, is_message, is_repeated, again_after });
        Step::Sent(redelivery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_is_forgotten_once_the_ledger_knows() {
        let mut settled = Settled::default();
        settled.add("dlv_000000000001", Mono::default());
        assert!(settled.contains("dlv_000000000001"));
        settled.forget(Mono::default() + SETTLING);
        assert!(settled.ids.is_empty() && settled.order.is_empty(), "it is due when its time comes");
    }
}
