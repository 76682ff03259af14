//! Which deliveries of a host go out, and when: the memory of one link.
//!
//! The ledger has the truth; this only knows what this socket has been sent and not answered, so that the row that
//! records an attempt need not be waited for. It dies with the socket.

mod queue;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use self::queue::{AgentQueue, Flight, Look, Round, Sent, Step};
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
    /// Refusals that the ledger does not have yet, by their numbers, and the agents that they are of. Until it has
    /// them, nothing goes out to these: what comes after the refused message must not pass it.
    refusals: BTreeMap<u64, String>,
    refused: u64,
    /// What went out and is not recorded yet.
    unrecorded: Vec<Sent>,
    /// When something that was sent or refused is due again.
    retry_at: Option<Mono>,
    /// There is more to send at once.
    is_behind: bool,
}

impl Dispatch {
    pub(super) fn new(app: App, handle: Arc<Handle>) -> Self {
        let owner = handle.owner.clone();
        let (present, queues, refusals, unrecorded) = Default::default();
        let (sent, refused) = (0, 0);
        let (retry_at, is_behind) = (None, false);
        Self { app, handle, owner, present, queues, sent, refusals, refused, unrecorded, retry_at, is_behind }
    }

    /// The roster is in the ledger: whoever is on it gets what is due.
    pub(super) fn present(&mut self, agents: BTreeSet<String>) {
        self.queues.retain(|agent, queue| agents.contains(agent) || !queue.flights.is_empty());
        self.present = agents;
        self.look_at_all();
    }

    /// An agent has another name, and with it what is under way to it.
    pub(super) fn renamed(&mut self, old: &str, new: &str) {
        if let Some(mut queue) = self.queues.remove(old) {
            // Whoever had the name before may have left something unanswered.
            queue.flights.extend(self.queues.remove(new).map(|before| before.flights).into_iter().flatten());
            self.queues.insert(new.to_owned(), queue);
        }
        self.refusals.values_mut().filter(|agent| *agent == old).for_each(|agent| new.clone_into(agent));
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

    /// The answer was a refusal, which is on its way to the ledger. The number that is answered here is to be told to
    /// [`recorded`](Self::recorded) when it has arrived, or has failed to. It is no name: the agent may have another
    /// one by then.
    pub(super) fn refused(&mut self, id: &str, agent: Option<&str>) -> Option<u64> {
        let (agent, _) = self.answered(id, agent)?;
        self.refused += 1;
        self.refusals.insert(self.refused, agent);
        Some(self.refused)
    }

    /// The ledger has this refusal.
    pub(super) fn recorded(&mut self, refusal: u64) {
        self.refusals.remove(&refusal);
    }

    /// Sends what is due to whoever has something to look for.
    pub(super) fn send(&mut self, end: &mut WorkerEnd) {
        let wanting: Vec<String> = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.messages.is_wanting() || queue.deliveries.is_wanting())
            .filter(|(agent, _)| self.present.contains(*agent))
            .filter(|(agent, _)| !self.refusals.values().any(|refusing| refusing == *agent))
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
        let room = QUEUE_BATCH.saturating_sub(queue.flights.len());
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
        let mut round = Round { queue, sent, number: &mut self.sent, room, now: mono, soonest: None };
        // What found no room is not looked past: what comes after it would arrive before it.
        for due in due_messages {
            match round.take(&due.id, due.seq, None, due.attempts + 1) {
                Step::Sent(_) => end.deliver(&due.id, agent, message_envelope(&due)),
                Step::UnderWay => {}
                Step::Full => break,
            }
            round.queue.messages.reached(due.seq);
        }
        for due in due_deliveries {
            match round.take(&due.id, due.seq, Some(due.shown), due.misses + 1) {
                Step::Sent(redelivery) => end.deliver(&due.id, agent, channel_envelope(&due, redelivery)),
                Step::UnderWay => {}
                Step::Full => break,
            }
            round.queue.deliveries.reached(due.seq);
        }
        if let Some(at) = round.soonest {
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
