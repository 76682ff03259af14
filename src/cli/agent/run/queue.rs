//! What waits for COMMAND, and what may begin beside what runs.
//!
//! Messages of one sender, messages of one room and events of one conversation are worked on one after the other, in
//! the order in which they came; everything else is free. A message that is to come again later holds back the next
//! ones of its sender, as the daemon does with those that it has not handed over yet.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::id::IdKind;
use crate::proto::envelope::{self, Kind};

/// What keeps two deliveries from being worked on at once.
#[derive(Debug, PartialEq, Eq)]
enum Lane {
    Sender(String),
    Room(String),
    Conversation { connector: String, id: String },
}

/// An envelope in hand.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) id: String,
    pub(super) envelope: String,
    lanes: Vec<Lane>,
}

impl Delivery {
    /// One that cannot be read is in no lane.
    pub(super) fn new(id: String, envelope: String) -> Self {
        let mut lanes = Vec::new();
        if let Ok(parsed) = envelope::parse(&envelope) {
            if IdKind::of(&id) == Some(IdKind::Message) {
                lanes.push(Lane::Sender(parsed.envelope.from));
            }
            match parsed.envelope.kind {
                Kind::Dm => {}
                Kind::Room { room, .. } => lanes.push(Lane::Room(room)),
                Kind::Channel { connector, conversation_id: id, .. } => {
                    lanes.push(Lane::Conversation { connector, id });
                }
            }
        }
        Self { id, envelope, lanes }
    }

    /// Who a message is from; events have no sender in this sense.
    fn sender(&self) -> Option<&str> {
        self.lanes
            .iter()
            .find_map(|lane| if let Lane::Sender(from) = lane { Some(from.as_str()) } else { None })
    }

    fn is_beside(&self, other: &Self) -> bool {
        self.lanes.iter().any(|lane| other.lanes.contains(lane))
    }
}

/// The deliveries that have not begun, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Delivery>,
    /// Senders with a message that is to come again, and has not yet.
    held: HashMap<String, Held>,
}

/// What went back of one sender.
#[derive(Debug)]
struct Held {
    first: String,
    /// What went back behind it.
    behind: HashSet<String>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.waiting.iter().any(|delivery| delivery.id == id)
    }

    /// Takes a delivery on; the id of one that has to go back, since it has passed a message that is to come again.
    ///
    /// The daemon may have handed it over before it heard that. Whatever it hands over again it does in order, so
    /// that one goes back once at most.
    pub(super) fn push(&mut self, delivery: Delivery) -> Option<String> {
        if let Some(sender) = delivery.sender()
            && let Some(held) = self.held.get_mut(sender)
        {
            if held.first != delivery.id && held.behind.insert(delivery.id.clone()) {
                return Some(delivery.id);
            }
            self.held.remove(sender);
        }
        self.waiting.push_back(delivery);
        None
    }

    /// The first delivery that may begin beside those that run.
    pub(super) fn next<'a>(
        &mut self,
        running: impl Iterator<Item = &'a Delivery> + Clone,
    ) -> Option<Delivery> {
        let may_begin = |(at, delivery): (usize, &Delivery)| {
            let earlier = self.waiting.iter().take(at).any(|other| other.is_beside(delivery));
            !earlier && !running.clone().any(|other| other.is_beside(delivery))
        };
        let at = self.waiting.iter().enumerate().position(may_begin)?;
        self.waiting.remove(at)
    }

    /// A message is to come again later: the ids of those that have to go back with it.
    pub(super) fn hold_back(&mut self, first: &Delivery) -> Vec<String> {
        let Some(sender) = first.sender() else { return Vec::new() };
        let (behind, others): (VecDeque<_>, _) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|delivery| delivery.sender() == Some(sender));
        self.waiting = others;
        let ids: Vec<String> = behind.into_iter().map(|delivery| delivery.id).collect();
        let held = Held { first: first.id.clone(), behind: ids.iter().cloned().collect() };
        self.held.insert(sender.to_owned(), held);
        ids
    }

    /// The one that came first, whatever runs.
    pub(super) fn pop(&mut self) -> Option<Delivery> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envelope::{Envelope, render};

    fn delivery(id: &str, from: &str, kind: Kind) -> Delivery {
        let (from, ts) = (from.to_owned(), "2026-01-02T03:04:05Z".to_owned());
        let envelope = Envelope { from, id: id.to_owned(), ts, reply_to: None, body: "x".into(), kind };
        Delivery::new(id.to_owned(), render(&envelope))
    }

    fn dm(n: u8, from: &str) -> Delivery {
        delivery(&format!("tx_00000000000{n}"), &format!("{from}@titan"), Kind::Dm)
    }

    fn room(n: u8, from: &str, seq: u64) -> Delivery {
        let kind = Kind::Room { room: "ops".into(), seq, operator: false };
        delivery(&format!("tx_00000000000{n}"), &format!("{from}@titan"), kind)
    }

    fn event(n: u8, conversation: &str) -> Delivery {
        let kind = Kind::Channel {
            conversation_id: conversation.into(),
            connector: "ingest".into(),
            user: "ann".into(),
            redelivery: 0,
            read: false,
            trigger: String::new(),
        };
        delivery(&format!("dlv_00000000000{n}"), "ingest", kind)
    }

    /// The last digits of what can begin at once.
    fn begun(queue: &mut Queue) -> String {
        let mut running: Vec<Delivery> = Vec::new();
        while let Some(next) = queue.next(running.iter()) {
            running.push(next);
        }
        running.iter().map(|delivery| &delivery.id[delivery.id.len() - 1..]).collect()
    }

    #[test]
    fn only_what_has_an_order_waits_for_what_came_before() {
        let mut queue = Queue::default();
        let came = [dm(1, "amy"), dm(2, "amy"), dm(3, "zoe"), event(4, "c"), event(5, "c"), event(6, "d")];
        assert!(came.into_iter().all(|delivery| queue.push(delivery).is_none()));
        assert_eq!(begun(&mut queue), "1346");
        assert_eq!(begun(&mut queue), "25");
        assert!(queue.is_empty());
    }

    #[test]
    fn a_room_keeps_its_order_and_nobody_passes_through_two_lanes() {
        let mut queue = Queue::default();
        // The second waits for the room, and so the third has to wait for its sender.
        for delivery in [room(1, "amy", 1), room(2, "zoe", 2), dm(3, "zoe"), dm(4, "kim")] {
            assert!(queue.push(delivery).is_none());
        }
        assert_eq!(begun(&mut queue), "14");
        assert_eq!(begun(&mut queue), "2");
        assert_eq!(begun(&mut queue), "3");
    }

    #[test]
    fn what_cannot_be_read_waits_for_nothing() {
        let mut queue = Queue::default();
        for id in ["tx_000000000001", "tx_000000000002"] {
            assert!(queue.push(Delivery::new(id.to_owned(), "no envelope".to_owned())).is_none());
        }
        assert_eq!(begun(&mut queue), "12");
    }

    #[test]
    fn those_behind_a_message_that_comes_again_go_back_once() {
        let mut queue = Queue::default();
        assert!(queue.push(dm(2, "amy")).is_none() && queue.push(dm(3, "zoe")).is_none());
        assert_eq!(queue.hold_back(&dm(1, "amy")), ["tx_000000000002"], "it waited");
        assert_eq!(queue.push(dm(4, "amy")).as_deref(), Some("tx_000000000004"), "it was on its way");
        assert_eq!(queue.push(room(5, "amy", 1)).as_deref(), Some("tx_000000000005"), "so was this");
        assert!(queue.push(event(6, "c")).is_none() && queue.push(dm(7, "kim")).is_none());
        assert_eq!(begun(&mut queue), "367");
        assert!(queue.push(dm(1, "amy")).is_none(), "it comes again");
        assert!(queue.push(dm(2, "amy")).is_none() && queue.push(dm(8, "amy")).is_none());
        assert_eq!(begun(&mut queue), "1");
    }

    #[test]
    fn a_message_that_never_comes_again_holds_nobody_back_for_good() {
        let mut queue = Queue::default();
        assert!(queue.hold_back(&dm(1, "amy")).is_empty());
        assert!(queue.push(dm(2, "amy")).is_some());
        assert!(queue.push(dm(2, "amy")).is_none(), "the daemon has given up the first one");
        assert!(queue.push(dm(3, "amy")).is_none());
        assert!(queue.hold_back(&event(4, "c")).is_empty(), "events are passed");
        assert!(queue.push(event(5, "c")).is_none());
    }
}
