//! Which deliveries of a host go out, and when: the memory of one link.
//!
//! The ledger has the truth; this only knows what this socket has been sent and not answered, so that the row that
//! records an attempt need not be waited for. It dies with the socket.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::app::App;
use super::links::{Grown, Handle, Owner};
use crate::clock::{Backoff, Mono, Wall};
use crate::limits::QUEUE_BATCH;
use crate::proto::envelope::{Envelope, Kind, render};
use crate::proto::wire::WorkerEnd;
use crate::store::StoreError;
use crate::store::ledger::Tx;
use crate::store::ledger::deliveries::{self, DeliveryRow};
use crate::store::ledger::messages::{self, Due};

/// The connector's name in channel envelopes of sources.
pub(super) const INGEST: &str = "ingest";

/// After a hello, daemons get this long to send late answers before lost ones are sent again.
pub(super) const LATE_ANSWERS: Duration = Duration::from_secs(1);
/// More than the ledger takes to hear that something was acknowledged.
const SETTLING: Duration = Duration::from_secs(1);

/// How much of a queue is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// What came after the last look.
    New,
    /// All of it: something that was passed over may be due.
    All,
}

#[derive(Default)]
struct AgentQueue {
    messages: Side,
    deliveries: Side,
    /// What was sent and not answered, and when it is sent again.
    flights: HashMap<String, Flight>,
    settled: Settled,
    /// There was more than could be sent.
    behind: bool,
    /// Something was held when it was looked at last, and others may have been passed over for it.
    held: bool,
    /// Refusals that the ledger does not have yet. Until it has, nothing goes out: what comes after the refused
    /// message must not pass it.
    refusals: u32,
}

impl AgentQueue {
    /// What is over without an answer, such as a message that was cancelled, takes nobody's place. Until a moment after
    /// it would be sent again it may be that the row only says so a little later.
    fn forget_gone(&mut self, is_due: impl Fn(&String) -> bool, now: Mono) {
        self.flights.retain(|id, flight| now < flight.again_at + SETTLING || is_due(id));
    }
}

/// What was acknowledged a moment ago. The ledger hears of it a little later, and until then would have it sent again.
#[derive(Default)]
struct Settled {
    ids: HashSet<String>,
    order: VecDeque<(Mono, String)>,
}

impl Settled {
    fn add(&mut self, id: &str, now: Mono) {
        self.forget(now);
        if self.ids.insert(id.to_owned()) {
            self.order.push_back((now, id.to_owned()));
        }
    }

    /// Forgets what the ledger has heard of by now.
    fn forget(&mut self, now: Mono) {
        while self.order.front().is_some_and(|(at, _)| now.since(*at) >= SETTLING) {
            if let Some((_, id)) = self.order.pop_front() {
                self.ids.remove(&id);
            }
        }
    }
}

/// One kind of what waits for an agent.
#[derive(Default)]
struct Side {
    /// Rows up to here have been looked at.
    to: i64,
    look: Option<Look>,
}

impl Side {
    fn look(&mut self, look: Look) {
        self.look = self.look.max(Some(look));
    }

    /// Behind which row to look for what is due, if at all.
    fn begin(&mut self) -> Option<i64> {
        self.look.take().map(|look| match look {
            Look::New => self.to,
            Look::All => 0,
        })
    }
}

struct Flight {
    /// The place of its row.
    seq: i64,
    /// Order of sending on this link.
    number: u64,
    again_at: Mono,
    /// The `redelivery` that it carried. While this connection stands, the frame is not lost but unanswered: it is
    /// sent again as it was, so that one which crosses its answer is known for what it is.
    redelivery: u32,
    /// When the daemon was asked first on this link.
    since: Mono,
}

/// One deliver frame that goes out.
struct Sent {
    seq: i64,
    is_message: bool,
    /// It went out on this connection before.
    is_repeated: bool,
    again_after: Duration,
}

/// The queues of one host, as its link sees them.
pub(super) struct Dispatch {
    app: App,
    handle: Arc<Handle>,
    owner: Arc<Owner>,
    /// The agents that the daemon says are there; nothing is sent to others.
    present: BTreeSet<String>,
    /// Boxed: a node of the tree has room for eleven, and most hosts have few agents.
    queues: BTreeMap<String, Box<AgentQueue>>,
    sent: u64,
    /// What went out and is not recorded yet.
    unrecorded: Vec<Sent>,
    /// When something that was sent or refused is due again.
    retry_at: Option<Mono>,
    /// There is more to send at once.
    is_behind: bool,
}

/// What became of a row that is due.
enum Step {
    /// With the `redelivery` that it carries.
    Sent(u32),
    /// It was sent before and is not due again, or was acknowledged just now.
    UnderWay,
    /// As many as may be are under way.
    Full,
}

impl Dispatch {
    pub(super) fn new(app: App, handle: Arc<Handle>) -> Self {
        let owner = handle.owner.clone();
        let (present, queues) = Default::default();
        let unrecorded = Vec::new();
        let (retry_at, is_behind) = (None, false);
        Self { app, handle, owner, present, queues, sent: 0, unrecorded, retry_at, is_behind }
    }

    /// The roster is in the ledger: whoever is on it gets what is due.
    pub(super) fn present(&mut self, agents: BTreeSet<String>) {
        self.queues
            .retain(|agent, queue| agents.contains(agent) || !queue.flights.is_empty() || queue.refusals > 0);
        self.present = agents;
        self.look_at_all();
    }

    /// An agent has another name, and with it what is under way to it.
    pub(super) fn renamed(&mut self, old: &str, new: &str) {
        if let Some(queue) = self.queues.remove(old) {
            self.queues.insert(new.to_owned(), queue);
        }
    }

    /// Something new is in an agent's queue.
    pub(super) fn grown(&mut self, agent: String, by: Grown) {
        let queue = self.queues.entry(agent).or_default();
        match by {
            Grown::Messages => queue.messages.look(Look::New),
            Grown::Deliveries => queue.deliveries.look(Look::New),
        }
    }

    /// Something that others waited behind is gone from an agent's queue.
    pub(super) fn moved(&mut self, agent: String) {
        self.look_at(agent);
    }

    /// Something is due again then.
    pub(super) fn later(&mut self, at: Wall) {
        let wait = Duration::from_millis(at.0.saturating_sub(self.app.wall().0).max(0).unsigned_abs());
        self.retry_no_later(self.app.mono() + wait);
    }

    /// Whether [`send`](Self::send) has left something out that could go at once.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// When [`time`](Self::time) is to be called.
    pub(super) fn wake_at(&self) -> Option<Mono> {
        self.retry_at
    }

    /// Looks for what is due by time.
    pub(super) fn time(&mut self, now: Mono) {
        if self.retry_at.is_none_or(|at| now < at) {
            return;
        }
        self.retry_at = None;
        self.look_at_all();
        let (owner, wall) = (self.owner.clone(), self.app.wall());
        let next = self.app.db.read(|tx| {
            let message = messages::next_due(tx, &owner.org_id, &owner.host, wall)?;
            let delivery = deliveries::next_due(tx, &owner.org_id, &owner.host, wall)?;
            Ok(message.into_iter().chain(delivery).min())
        });
        match next {
            Ok(Some(at)) => self.later(at),
            Ok(None) => {}
            Err(err) => self.unreadable(&err),
        }
    }

    /// The daemon answered a deliver frame. Without an agent it is about the oldest of that id. Answers whose queue
    /// it is about, and what it answers when that was sent on this connection.
    fn answered(&mut self, id: &str, agent: Option<&str>) -> Option<(String, Option<Flight>)> {
        let oldest = || {
            let with_id =
                self.queues.iter().filter_map(|(agent, q)| Some((q.flights.get(id)?.number, agent)));
            with_id.min().map(|(_, agent)| agent.clone())
        };
        let agent = agent.map(str::to_owned).or_else(oldest)?;
        let queue = self.queues.get_mut(&agent)?;
        let flight = queue.flights.remove(id);
        if queue.behind && queue.flights.len() <= QUEUE_BATCH / 2 {
            queue.behind = false;
            self.look_at(agent.clone());
        }
        Some((agent, flight))
    }

    /// The daemon has it in the agent's session. Answers the place of the row when it was sent on this connection.
    pub(super) fn acknowledged(&mut self, id: &str, agent: Option<&str>) -> Option<i64> {
        let now = self.app.mono();
        let (agent, flight) = self.answered(id, agent)?;
        self.queues.get_mut(&agent)?.settled.add(id, now);
        let flight = flight?;
        self.app.metrics.deliver_acked(now.since(flight.since));
        Some(flight.seq)
    }

    /// The answer was a refusal, which is on its way to the ledger. Whoever is answered here is to be told to
    /// [`recorded`](Self::recorded) when it has arrived, or has failed to.
    pub(super) fn refused(&mut self, id: &str, agent: Option<&str>) -> Option<String> {
        let (agent, _) = self.answered(id, agent)?;
        self.queues.get_mut(&agent)?.refusals += 1;
        Some(agent)
    }

    /// The ledger has a refusal of this agent.
    pub(super) fn recorded(&mut self, agent: &str) {
        if let Some(queue) = self.queues.get_mut(agent) {
            queue.refusals = queue.refusals.saturating_sub(1);
        }
    }

    /// Sends what is due to whoever has something to look for.
    pub(super) fn send(&mut self, end: &mut WorkerEnd) {
        let wanting: Vec<String> = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.messages.look.is_some() || queue.deliveries.look.is_some())
            .filter(|(_, queue)| queue.refusals == 0)
            .filter(|(agent, _)| self.present.contains(*agent))
            .map(|(agent, _)| agent.clone())
            .collect();
        let mut sent = std::mem::take(&mut self.unrecorded);
        let before = sent.len();
        self.is_behind = false;
        for agent in wanting {
            // What is sent at once must be taken by the peer before there is more: it has to fit into memory.
            if sent.len() >= before + QUEUE_BATCH {
                self.is_behind = true;
                break;
            }
            if let Err(err) = self.send_to(&agent, end, &mut sent) {
                self.unreadable(&err);
            }
        }
        self.unrecorded = sent;
    }

    /// Looks at all that waits for an agent.
    fn look_at(&mut self, agent: String) {
        let queue = self.queues.entry(agent).or_default();
        queue.messages.look(Look::All);
        queue.deliveries.look(Look::All);
    }

    fn look_at_all(&mut self) {
        for agent in self.present.clone() {
            self.look_at(agent);
        }
    }

    fn retry_no_later(&mut self, at: Mono) {
        self.retry_at = Some(self.retry_at.map_or(at, |before| before.min(at)));
    }

    /// A ledger that cannot be read now is asked again; nothing is lost by waiting.
    fn unreadable(&mut self, err: &StoreError) {
        tracing::error!(host = self.owner.host, %err, "reading a queue failed");
        self.retry_no_later(self.app.mono() + Backoff::DELIVERY.first);
    }

    fn send_to(&mut self, agent: &str, end: &mut WorkerEnd, sent: &mut Vec<Sent>) -> Result<(), StoreError> {
        let (mono, wall) = (self.app.mono(), self.app.wall());
        let queue: &mut AgentQueue =
            self.queues.get_mut(agent).expect("only queues that are there are looked at");
        queue.settled.forget(mono);
        if queue.held {
            // What was held may be settled by now, and what comes now must not pass those that waited behind it.
            queue.messages.look(Look::All);
        }
        let (messages_after, deliveries_after) = (queue.messages.begin(), queue.deliveries.begin());
        let mut room = QUEUE_BATCH.saturating_sub(queue.flights.len());
        if room == 0 {
            queue.behind = true;
            return Ok(());
        }
        let place = self.owner.queue(agent);
        let (due_messages, due_deliveries, held) = self.app.db.read(|tx| {
            let messages = messages_after.map(|after| messages::due(tx, &place, after, wall, QUEUE_BATCH));
            let deliveries =
                deliveries_after.map(|after| deliveries::due(tx, &place, after, wall, QUEUE_BATCH));
            let (messages, deliveries) = (messages.transpose()?, deliveries.transpose()?);
            let held = messages.as_ref().map(|_| messages::is_held(tx, &place)).transpose()?;
            Ok((messages.unwrap_or_default(), deliveries.unwrap_or_default(), held))
        })?;
        // Asked after the look: a newer link sends only what was there before, in its order, or what it sees as well.
        if self.handle.is_replaced() {
            return Ok(());
        }
        queue.held = held.unwrap_or(queue.held);
        queue.behind |= due_messages.len() == QUEUE_BATCH || due_deliveries.len() == QUEUE_BATCH;
        if !queue.behind && (messages_after, deliveries_after) == (Some(0), Some(0)) {
            let is_due = |id: &String| {
                due_messages.iter().any(|due| due.id == *id) || due_deliveries.iter().any(|due| due.id == *id)
            };
            queue.forget_gone(is_due, mono);
        }
        let mut soonest: Option<Mono> = None;
        let mut go = |queue: &mut AgentQueue, id: &str, seq, redelivery: Option<u32>, misses| {
            let before =
                queue.flights.get(id).map(|flight| (flight.again_at, flight.redelivery, flight.since));
            if before.is_some_and(|(again_at, _, _)| mono < again_at) || queue.settled.ids.contains(id) {
                return Step::UnderWay;
            }
            if room == 0 {
                queue.behind = true;
                return Step::Full;
            }
            room -= 1;
            self.sent += 1;
            let again_after = Backoff::DELIVERY.after(misses);
            let again_at = mono + again_after;
            soonest = Some(soonest.map_or(again_at, |at| at.min(again_at)));
            let is_message = redelivery.is_none();
            let redelivery = before.map_or(redelivery.unwrap_or_default(), |(_, redelivery, _)| redelivery);
            let since = before.map_or(mono, |(_, _, since)| since);
            let flight = Flight { seq, number: self.sent, again_at, redelivery, since };
            queue.flights.insert(id.to_owned(), flight);
            sent.push(Sent { seq, is_message, is_repeated: before.is_some(), again_after });
            Step::Sent(redelivery)
        };
        // What found no room is not looked past: what comes after it would arrive before it.
        for due in due_messages {
            match go(queue, &due.id, due.seq, None, due.attempts + 1) {
                Step::Sent(_) => end.deliver(&due.id, agent, message_envelope(&due)),
                Step::UnderWay => {}
                Step::Full => break,
            }
            queue.messages.to = queue.messages.to.max(due.seq);
        }
        for due in due_deliveries {
            match go(queue, &due.id, due.seq, Some(due.shown), due.misses + 1) {
                Step::Sent(redelivery) => end.deliver(&due.id, agent, channel_envelope(&due, redelivery)),
                Step::UnderWay => {}
                Step::Full => break,
            }
            queue.deliveries.to = queue.deliveries.to.max(due.seq);
        }
        if let Some(at) = soonest {
            self.retry_no_later(at);
        }
        Ok(())
    }

    /// Records what went out; nobody waits for it. If it is lost, the frames are sent again, as after any crash.
    pub(super) fn record(&mut self) {
        if self.unrecorded.is_empty() {
            return;
        }
        let sent = std::mem::take(&mut self.unrecorded);
        let (handle, now) = (self.handle.clone(), self.app.wall());
        self.app.db.submit_lazily(
            move |tx| {
                let owner = &handle.owner;
                for &Sent { seq, is_message, is_repeated, again_after } in &sent {
                    let again_at = now + again_after;
                    match is_message {
                        true => messages::attempted(tx, &owner.org_id, seq, again_at, now)?,
                        false => deliveries::attempted(tx, &owner.org_id, seq, is_repeated, again_at, now)?,
                    }
                }
                if handle.is_replaced() {
                    // The newer link's hello came too early to find these among what is lost, and they were not on
                    // that link: what comes after them must not pass.
                    lost(tx, owner, now + LATE_ANSWERS)?;
                }
                Ok(())
            },
            |outcome| {
                if let Err(err) = outcome {
                    tracing::error!(%err, "recording attempts failed");
                }
            },
        );
    }
}

/// The answers to whatever this host has been sent are lost with its connection: it is sent again, not before `due_at`.
///
/// # Errors
/// When the ledger cannot be changed.
pub(super) fn lost(tx: &Tx<'_>, owner: &Owner, due_at: Wall) -> Result<(), StoreError> {
    messages::reconnected(tx, &owner.org_id, &owner.host, due_at)?;
    deliveries::reconnected(tx, &owner.org_id, &owner.host, due_at)
}

fn message_envelope(due: &Due) -> String {
    render(&Envelope {
        from: due.sender.clone(),
        id: due.id.clone(),
        ts: due.ts.clone(),
        reply_to: due.reply_to.clone(),
        body: due.body.clone(),
        kind: due.room.as_ref().map_or(Kind::Dm, |(room, seq)| Kind::Room {
            room: room.trim_start_matches('#').to_owned(),
            seq: *seq,
            operator: due.sender == messages::OPERATOR,
        }),
    })
}

fn channel_envelope(due: &DeliveryRow, redelivery: u32) -> String {
    render(&Envelope {
        from: INGEST.to_owned(),
        id: due.id.clone(),
        ts: due.created_at.to_string(),
        reply_to: None,
        body: due.content.clone(),
        kind: Kind::Channel {
            conversation_id: due.conversation_id.clone(),
            connector: INGEST.to_owned(),
            user: due.user.clone().unwrap_or_default(),
            redelivery,
            read: due.read_at.is_some(),
            trigger: due.trigger.clone().unwrap_or_default(),
        },
    })
}

#[cfg(test)]
mod tests;
