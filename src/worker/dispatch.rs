//! Which deliveries of a host go out, and when: the memory of one link.
//!
//! The ledger has the truth; this only knows what this socket has been sent and not answered, so that the row that
//! records an attempt need not be waited for. It dies with the socket.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::app::App;
use super::links::Owner;
use crate::clock::{Backoff, Mono, Wall};
use crate::limits::QUEUE_BATCH;
use crate::proto::envelope::{Envelope, Kind, render};
use crate::proto::wire::WorkerEnd;
use crate::store::StoreError;
use crate::store::ledger::deliveries::{self, DeliveryRow};
use crate::store::ledger::messages::{self, Due};

/// The connector's name in channel envelopes of sources.
pub(super) const INGEST: &str = "ingest";

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
    /// Rows up to here have been looked at.
    messages_to: i64,
    deliveries_to: i64,
    /// What was sent and not answered, and when it is sent again.
    flights: HashMap<String, Flight>,
    look: Option<Look>,
    /// There was more than could be sent.
    behind: bool,
}

struct Flight {
    /// Order of sending on this link.
    number: u64,
    again_at: Mono,
    /// The `redelivery` that it carried. While this connection stands, the frame is not lost but unanswered: it is
    /// sent again as it was, so that one which crosses its answer is known for what it is.
    redelivery: u32,
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
    owner: Arc<Owner>,
    /// The agents that the daemon says are there; nothing is sent to others.
    present: HashSet<String>,
    queues: HashMap<String, AgentQueue>,
    sent: u64,
    /// When something that was sent or refused is due again.
    retry_at: Option<Mono>,
}

/// What became of a row that is due.
enum Step {
    /// With the `redelivery` that it carries.
    Sent(u32),
    /// It was sent before, and is not due again.
    UnderWay,
    /// As many as may be are under way.
    Full,
}

impl Dispatch {
    pub(super) fn new(app: App, owner: Arc<Owner>) -> Self {
        let (present, queues) = Default::default();
        Self { app, owner, present, queues, sent: 0, retry_at: None }
    }

    /// The roster is in the ledger: whoever is on it gets what is due.
    pub(super) fn present(&mut self, agents: HashSet<String>) {
        self.queues.retain(|agent, queue| agents.contains(agent) || !queue.flights.is_empty());
        self.present = agents;
        self.look_at_all();
    }

    /// Something new is in an agent's queue.
    pub(super) fn grown(&mut self, agent: String) {
        self.look(agent, Look::New);
    }

    /// Something that others waited behind is gone from an agent's queue.
    pub(super) fn moved(&mut self, agent: String) {
        self.look(agent, Look::All);
    }

    /// Something is due again then.
    pub(super) fn later(&mut self, at: Wall) {
        let wait = Duration::from_millis(at.0.saturating_sub(self.app.wall().0).max(0).unsigned_abs());
        self.retry_no_later(self.app.mono() + wait);
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

    /// The daemon answered a deliver frame. Without an agent it is about the oldest of that id.
    pub(super) fn answered(&mut self, id: &str, agent: Option<&str>) {
        let oldest = || {
            let with_id =
                self.queues.iter().filter_map(|(agent, q)| Some((q.flights.get(id)?.number, agent)));
            with_id.min().map(|(_, agent)| agent.clone())
        };
        let Some(agent) = agent.map(str::to_owned).or_else(oldest) else { return };
        let Some(queue) = self.queues.get_mut(&agent) else { return };
        queue.flights.remove(id);
        if queue.behind && queue.flights.len() <= QUEUE_BATCH / 2 {
            queue.behind = false;
            self.look(agent, Look::All);
        }
    }

    /// Sends what is due to whoever has something to look for.
    pub(super) fn send(&mut self, end: &mut WorkerEnd) {
        let wanting: Vec<String> = self
            .queues
            .iter()
            .filter(|(agent, queue)| queue.look.is_some() && self.present.contains(*agent))
            .map(|(agent, _)| agent.clone())
            .collect();
        let mut sent = Vec::new();
        for agent in wanting {
            if let Err(err) = self.send_to(&agent, end, &mut sent) {
                self.unreadable(&err);
            }
        }
        if !sent.is_empty() {
            self.record(sent);
        }
    }

    fn look(&mut self, agent: String, look: Look) {
        let queue = self.queues.entry(agent).or_default();
        queue.look = queue.look.max(Some(look));
    }

    fn look_at_all(&mut self) {
        for agent in self.present.clone() {
            self.look(agent, Look::All);
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
        let queue = self.queues.get_mut(agent).expect("only queues that are there are looked at");
        let (messages_after, deliveries_after) = match queue.look.take() {
            Some(Look::New) => (queue.messages_to, queue.deliveries_to),
            _ => (0, 0),
        };
        let mut room = QUEUE_BATCH.saturating_sub(queue.flights.len());
        if room == 0 {
            queue.behind = true;
            return Ok(());
        }
        let place = self.owner.queue(agent);
        let (due_messages, due_deliveries) = self.app.db.read(|tx| {
            let messages = messages::due(tx, &place, messages_after, wall, QUEUE_BATCH)?;
            Ok((messages, deliveries::due(tx, &place, deliveries_after, wall, QUEUE_BATCH)?))
        })?;
        queue.behind = due_messages.len() == QUEUE_BATCH || due_deliveries.len() == QUEUE_BATCH;
        let mut soonest: Option<Mono> = None;
        let mut go = |queue: &mut AgentQueue, id: &str, seq, redelivery: Option<u32>, misses| {
            let before = queue.flights.get(id).map(|flight| (flight.again_at, flight.redelivery));
            if before.is_some_and(|(again_at, _)| mono < again_at) {
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
            let redelivery = before.map_or(redelivery.unwrap_or_default(), |(_, redelivery)| redelivery);
            queue.flights.insert(id.to_owned(), Flight { number: self.sent, again_at, redelivery });
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
            queue.messages_to = queue.messages_to.max(due.seq);
        }
        for due in due_deliveries {
            match go(queue, &due.id, due.seq, Some(due.shown), due.misses + 1) {
                Step::Sent(redelivery) => end.deliver(&due.id, agent, channel_envelope(&due, redelivery)),
                Step::UnderWay => {}
                Step::Full => break,
            }
            queue.deliveries_to = queue.deliveries_to.max(due.seq);
        }
        if let Some(at) = soonest {
            self.retry_no_later(at);
        }
        Ok(())
    }

    /// Records the attempts; nobody waits for it. If it is lost, the frames are sent again, as after any crash.
    fn record(&self, sent: Vec<Sent>) {
        let (owner, now) = (self.owner.clone(), self.app.wall());
        self.app.db.submit_lazily(
            move |tx| {
                for &Sent { seq, is_message, is_repeated, again_after } in &sent {
                    let again_at = now + again_after;
                    match is_message {
                        true => messages::attempted(tx, &owner.org_id, seq, again_at, now)?,
                        false => deliveries::attempted(tx, &owner.org_id, seq, is_repeated, again_at, now)?,
                    }
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

fn message_envelope(due: &Due) -> String {
    render(&Envelope {
        from: due.sender.clone(),
        id: due.id.clone(),
        ts: due.ts.clone(),
        reply_to: due.reply_to.clone(),
        body: due.body.clone(),
        kind: Kind::Dm,
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
