//! One connection to the Worker, from its hello to its end.

mod round;

mod roster;
mod untaken;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use serde_json::Value;

use self::roster::Roster;
use self::untaken::Untaken;
use super::Enrolment;
use crate::addr::AgentAddr;
use crate::clock::{Backoff, Mono};
use crate::daemon::host::{Host, RpcCall, SendOutcome};
use crate::daemon::life::Pulse;
use crate::daemon::near;
use crate::daemon::orders::PAUSED;
use crate::daemon::trouble::Trouble;

use crate::net::service::Shutdown;
use crate::net::ws::{Gone, Heard, Socket};
use crate::proto::dump::Way;
use crate::proto::envelope::{self, Kind};
use crate::proto::wire::{DaemonConfig, DaemonEnd, DaemonEvent, NakCode, RpcError, SendFrame, close};
use crate::proto::{Close, Input, Output};
use crate::store::StoreError;
use crate::store::process::Process;
use crate::store::spool::Spool;
use crate::store::spool::inbox::{Delivery, Outcome, Received};
use crate::store::spool::outbox::Entry;

/// Longest time that this thread sleeps; every hint wakes it.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Wait after the spool could not be read or written.
const SPOOL_FAILED: Duration = Duration::from_secs(1);
/// Messages under way at once.
const SENDS: usize = 32;
/// Time after which a message that was not answered is sent again.
const SEND_WAIT: Duration = Duration::from_secs(30);
/// Frames that are read, and answers that are sent, at once.
const BATCH: u32 = 64;
/// Time for the last answers to go out when the daemon stops.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// A message under way.
struct Sending {
    /// The name of its sender.
    sender: String,
    attempts: u32,
    /// When it is given up.
    until: Mono,
}

/// How a connection ended.
enum End {
    /// Our machine ends it.
    Ours(Close),
    /// The peer or the network did.
    Theirs(Gone),
}

/// A connection that was.
pub(super) struct Ended {
    /// How long the Worker took part.
    pub(super) lasted: Duration,
    /// The code that the Worker closed it with, if it did.
    pub(super) code: Option<u16>,
    /// Why it ended.
    pub(super) why: String,
}

pub(super) struct Talk<'a> {
    host: &'a Arc<Host>,
    stop: &'a Shutdown,
    spool: Spool,
    socket: Socket,
    machine: DaemonEnd,
    me: Process,
    pulse: &'a Pulse,
    deadline: Option<Mono>,
    /// When to look again for what is to be said, unless a hint comes first.
    look_at: Option<Mono>,
    /// When the Worker took the hello.
    ready_at: Option<Mono>,
    roster: Roster,
    /// Messages under way.
    sends: HashMap<String, Sending>,
    calls: HashMap<String, Sender<Result<Value, RpcError>>>,
    call_count: u64,
    /// Deliveries that were heard and are not stored yet.
    heard: Vec<Delivery>,
    untaken: Untaken,
    /// When the last answers must be out, once the daemon stops.
    stop_at: Option<Mono>,
    /// With the spool.
    trouble: Trouble,
}

impl<'a> Talk<'a> {
    pub(super) fn new(
        host: &'a Arc<Host>,
        stop: &'a Shutdown,
        spool: Spool,
        socket: Socket,
        enrolment: &Enrolment,
        pulse: &'a Pulse,
    ) -> Self {
        let now = host.now();
        let config = DaemonConfig {
            host: enrolment.host.to_string(),
            daemon_ver: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Self {
            host,
            stop,
            spool,
            socket,
            machine: DaemonEnd::new(config, now),
            me: Process::current(),
            pulse,
            deadline: None,
            look_at: None,
            ready_at: None,
            roster: Roster::default(),
            sends: HashMap::new(),
            calls: HashMap::new(),
            call_count: 0,
            heard: Vec::new(),
            untaken: Untaken::default(),
            stop_at: None,
            trouble: Trouble::default(),
        }
    }

    /// Talks until the connection ends.
    pub(super) fn run(mut self) -> Ended {
        let end = loop {
            if let Err(end) = self.round() {
                break end;
            }
        };
        let lasted = self.ready_at.map_or(Duration::ZERO, |at| self.host.now().since(at));
        self.let_go();
        match end {
            End::Theirs(gone) => {
                let code = if let Gone::Closed { code, .. } = gone { Some(code) } else { None };
                Ended { lasted, code, why: gone.to_string() }
            }
            End::Ours(close) => {
                self.socket.close(close.code, &close.reason);
                Ended { lasted, code: None, why: close.reason }
            }
        }
    }

    fn round(&mut self) -> Result<(), End> {
        self.pulse.beat();
        let is_more = self.hear()?;
        self.store_heard();
        if self.machine.is_ready() {
            self.say();
        }
        if self.stop.is_triggered() {
            self.stop();
        } else if self.host.is_kicked() {
            self.machine.close(close::GOING_AWAY, "a new connection was asked for");
        }
        self.drain()?;
        let wait = if is_more { Duration::ZERO } else { self.longest_wait() };
        self.socket.wait(&self.host.uplink, wait).map_err(End::Theirs)?;
        let now = self.host.now();
        if self.deadline.is_some_and(|at| now >= at) {
            self.deadline = None;
            self.machine.handle(Input::Tick, now);
        }
        Ok(())
    }

    fn longest_wait(&self) -> Duration {
        let next = [self.deadline, self.look_at, self.stop_at].into_iter().flatten().min();
        next.map_or(LONGEST_WAIT, |at| at.since(self.host.now()).min(LONGEST_WAIT))
    }

    /// Hands what has come to the machine; answers whether there may be more.
    fn hear(&mut self) -> Result<bool, End> {
        for _ in 0..BATCH {
            match self.socket.read() {
                Ok(None) => return Ok(false),
                Ok(Some(heard)) => {
                    if let (Some(log), Heard::Text(text)) = (&self.host.wire_log, &heard) {
                        log.record(self.host.wall(), Way::Back, text);
                    }
                    self.machine.handle(heard.as_input(), self.host.now());
                    self.drain()?;
                }
                Err(gone) => {
                    // What came before the end was heard and counts.
                    self.store_heard();
                    return Err(match gone {
                        Gone::Fault { code, reason } => End::Ours(Close { code, reason: reason.to_owned() }),
                        gone => End::Theirs(gone),
                    });
                }
            }
        }
        Ok(true)
    }

    fn drain(&mut self) -> Result<(), End> {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Write(text) => {
                    if let Some(log) = &self.host.wire_log {
                        log.record(self.host.wall(), Way::Forth, &text);
                    }
                    self.socket.write(text).map_err(End::Theirs)?;
                }
                Output::WakeAt(at) => self.deadline = Some(at),
                Output::Close(close) => return Err(End::Ours(close)),
                Output::Event(event) => self.event(event),
            }
        }
        Ok(())
    }

    fn event(&mut self, event: DaemonEvent) {
        match event {
            DaemonEvent::Ready { host_id, org } => {
                tracing::info!(host_id, org, "connected to the Worker");
                self.ready_at = Some(self.host.now());
                self.host.with_link(|link| {
                    link.connected = true;
                    link.org = Some(org);
                    link.last_error = None;
                });
            }
            DaemonEvent::Refused { code } => tracing::error!(code, "the Worker refuses this host"),
            DaemonEvent::Deliver { id, agent, envelope } => {
                let redelivery = redelivery(&envelope);
                self.heard.push(Delivery { id, agent, envelope, redelivery });
            }
            DaemonEvent::SendAck { id } => {
                let stored = self.spool.outbox().sent(&id, "committed", self.host.wall());
                let is_stored = stored.is_ok();
                if is_stored && self.host.loops.is_round(&id) {
                    self.came_round(&id);
                }
                self.settled(&id, stored, SendOutcome::Committed);
            }
            DaemonEvent::SendNak { id, code } if code.is_permanent() => self.refused(&id, code),
            DaemonEvent::SendNak { id, code: NakCode::RateLimited } if self.held(&id) => {}
            DaemonEvent::SendNak { id, code } => {
                tracing::info!(id, code = code.as_str(), "the Worker does not take a message now");
                self.try_later(&id, code.as_str());
            }
            DaemonEvent::RpcResult { rid, result } => {
                // A delivery that came before its settlement is there to be taken out by it.
                self.store_heard();
                if let Some(answer) = self.calls.remove(&rid) {
                    // A caller that went away needs no answer.
                    let _ = answer.send(result);
                }
            }
        }
    }

    /// Takes the deliveries in with one commit, and wakes the sessions that they are for.
    fn store_heard(&mut self) {
        if self.heard.is_empty() {
            return;
        }
        let heard = std::mem::take(&mut self.heard);
        let untaken = &mut self.untaken;
        let (behind, heard): (Vec<_>, Vec<_>) =
            heard.into_iter().partition(|delivery| untaken.has_passed(delivery));
        for Delivery { id, agent, .. } in behind {
            self.machine.deliver_nak(&id, &agent, "behind_another", true);
        }
        if heard.is_empty() {
            return;
        }
        if let Err(err) = self.take_in(&heard) {
            tracing::error!(deliveries = heard.len(), %err, "could not take deliveries");
            for delivery in heard {
                self.untaken.note(&delivery);
                self.machine.deliver_nak(&delivery.id, &delivery.agent, "history_write_failed", true);
            }
        }
    }

    fn take_in(&mut self, heard: &[Delivery]) -> Result<(), StoreError> {
        let received = self.spool.receive(heard, self.host.wall())?;
        self.note_heard(heard, &received);
        let waiting = heard.iter().zip(received).filter(|(_, received)| *received != Received::Injected);
        let waiting: Vec<&Delivery> = waiting.map(|(delivery, _)| delivery).collect();
        let agents: BTreeSet<&str> = waiting.iter().map(|delivery| delivery.agent.as_str()).collect();
        for agent in agents {
            // First the row, then the look for a session: one that leaves in between gives the row back itself.
            if !self.host.registry.wake(agent) {
                let is_known = self.spool.knows_agent(agent)?;
                let code = if is_known { "adapter_unavailable" } else { "agent_not_found" };
                self.spool.give_back(agent, code, self.host.wall())?;
            } else if self.host.is_paused() {
                for Delivery { id, .. } in waiting.iter().filter(|delivery| delivery.agent == agent) {
                    self.spool.refused(id, agent, PAUSED, true, self.host.wall())?;
                }
            }
        }
        Ok(())
    }

    /// Everything that is due to the Worker.
    fn say(&mut self) {
        self.look_at = None;
        self.say_roster();
        for RpcCall { method, params, answer } in self.host.take_calls() {
            self.call_count += 1;
            let rid = format!("rpc_{}", self.call_count);
            self.calls.insert(rid.clone(), answer);
            self.machine.rpc(rid, &method, params, self.host.now());
        }
        match self.say_answers().and_then(|()| self.say_messages()) {
            Ok(()) if self.trouble.is_over() => tracing::info!("the spool can be used again"),
            Ok(()) => {}
            Err(err) => {
                if let Some(untold) = self.trouble.seen(self.host.now()) {
                    tracing::error!(%err, untold, "could not use the spool; trying again");
                }
                self.look_by(self.host.now() + SPOOL_FAILED);
            }
        }
    }

    /// There is something to look for then.
    fn look_by(&mut self, at: Mono) {
        self.look_at = Some(self.look_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn say_roster(&mut self) {
        let registry = &self.host.registry;
        let under_way = self.sends.values().map(|sending| sending.sender.as_str());
        if let Some(agents) = self.roster.due(registry, self.host.now(), under_way) {
            self.machine.roster(agents);
        }
        self.roster.next(registry).into_iter().for_each(|at| self.look_by(at));
    }

    fn say_answers(&mut self) -> Result<(), StoreError> {
        loop {
            let answers = self.spool.unanswered(BATCH)?;
            if answers.is_empty() {
                return Ok(());
            }
            for answer in &answers {
                match &answer.outcome {
                    Outcome::Injected => self.machine.deliver_ack(&answer.id, &answer.agent),
                    Outcome::Seen => self.machine.deliver_seen(&answer.id, &answer.agent),
                    Outcome::Refused { code, retryable } => {
                        self.machine.deliver_nak(&answer.id, &answer.agent, code, *retryable);
                    }
                }
            }
            // One that is lost on its way is asked for again, and answered from history.
            self.spool.answered(&answers)?;
        }
    }

    fn say_messages(&mut self) -> Result<(), StoreError> {
        let (now, wall) = (self.host.now(), self.host.wall());
        let late: Vec<String> =
            self.sends.iter().filter(|(_, sending)| now >= sending.until).map(|(id, _)| id.clone()).collect();
        for id in late {
            self.try_later(&id, "the Worker did not answer");
        }
        if let Some(until) = self.sends.values().map(|sending| sending.until).min() {
            self.look_by(until);
        }
        let room = SENDS.saturating_sub(self.sends.len());
        if room == 0 || self.stop.is_triggered() {
            return Ok(());
        }
        match self.spool.outbox().next_message_due(wall)? {
            Some(at) if at <= wall => {}
            at => {
                let wait = at.map(|at| Duration::from_millis(at.0.abs_diff(wall.0)));
                wait.into_iter().for_each(|wait| self.look_by(now + wait));
                return Ok(());
            }
        }
        let entries = self.spool.outbox().claim_messages(self.me, wall, room)?;
        let senders = entries.iter().map(sender);
        let under_way = self.sends.values().map(|sending| sending.sender.as_str());
        if let Some(agents) = self.roster.with(senders, under_way, &self.host.registry, now) {
            self.machine.roster(agents);
        }
        for entry in entries {
            let (id, attempts) = (entry.id.clone(), entry.attempts);
            let sender = sender(&entry).to_owned();
            match frame(entry) {
                Ok(frame) => {
                    self.sends.insert(id, Sending { sender, attempts, until: now + SEND_WAIT });
                    self.machine.send(frame);
                }
                Err(why) => self.spool.outbox().dead(&id, why, wall)?,
            }
        }
        Ok(())
    }

    /// The Worker has answered for good. Until that is stored the message counts as under way, and is sent again.
    fn settled(&mut self, id: &str, stored: Result<(), StoreError>, outcome: SendOutcome) -> bool {
        match stored {
            Ok(()) => {
                self.sends.remove(id);
                self.host.tell_sender(id, outcome)
            }
            Err(err) => {
                tracing::error!(id, %err, "could not note an answer; the message is sent again");
                true
            }
        }
    }

    fn refused(&mut self, id: &str, code: NakCode) {
        tracing::info!(id, code = code.as_str(), "the Worker has refused a message");
        self.host.loops.came_round(id);
        if self.is_here(id) {
            // It is a message between two agents of this host, and has arrived; only the ledger does not have it.
            let stored = self.spool.outbox().dead(id, code.as_str(), self.host.wall());
            self.settled(id, stored, SendOutcome::Injected);
            return;
        }
        let is_awaited = self.host.has_waiter(id);
        let stored = self.bury(id, code, !is_awaited);
        // Whoever has gone away just now is told as well.
        if !self.settled(id, stored, SendOutcome::Refused(code.as_str()))
            && is_awaited
            && let Err(err) = self.bury(id, code, true)
        {
            tracing::error!(id, %err, "could not tell the sender");
        }
    }

    /// A message is not tried again. A sender that does not wait gets an envelope from the system, once; no crash comes
    /// between the two.
    fn bury(&mut self, id: &str, code: NakCode, has_bounce: bool) -> Result<(), StoreError> {
        let wall = self.host.wall();
        let entry = if has_bounce { self.spool.outbox().get(id, wall)? } else { None };
        let bounce = entry.and_then(|entry| {
            let from = entry.from.as_deref().unwrap_or_default();
            near::bounce(self.host, (id, from, &entry.dest), code.as_str())
        });
        self.spool.refuse(id, code.as_str(), bounce.as_ref(), wall)?;
        if let Some(bounce) = bounce {
            self.host.registry.wake(&bounce.agent);
        }
        Ok(())
    }

    /// Whether a message is in a session of this host without the Worker's doing; else it is taken back from there.
    fn is_here(&mut self, id: &str) -> bool {
        let wall = self.host.wall();
        let here = self.spool.outbox().get(id, wall).and_then(|entry| {
            match entry.and_then(|entry| entry.dest.parse::<AgentAddr>().ok()) {
                Some(to) if to.host == self.host.name() => {
                    let is_here = self.spool.withdraw(id, to.name.as_str());
                    // The next ones of its sender have waited for it.
                    self.host.registry.wake(to.name.as_str());
                    is_here
                }
                _ => Ok(false),
            }
        });
        here.unwrap_or_else(|err| {
            tracing::error!(id, %err, "could not take a delivery back");
            false
        })
    }

    fn try_later(&mut self, id: &str, why: &str) {
        let attempts = self.sends.get(id).map_or(0, |sending| sending.attempts);
        let wait = Backoff::MESSAGE.after(attempts.saturating_add(1));
        match self.spool.outbox().retry_later(id, self.me, wait, why, self.host.wall()) {
            Ok(_) => drop(self.sends.remove(id)),
            Err(err) => {
                tracing::error!(id, %err, "could not use the spool; trying again");
                let until = self.host.now() + SEND_WAIT;
                if let Some(sending) = self.sends.get_mut(id) {
                    sending.until = until;
                }
            }
        }
    }

    /// The daemon stops: what is due is answered, for a while, and nothing new begins.
    fn stop(&mut self) {
        let now = self.host.now();
        let until = *self.stop_at.get_or_insert(now + STOP_WAIT);
        let is_done = !self.machine.is_ready() || (self.sends.is_empty() && self.calls.is_empty());
        if is_done || now >= until {
            self.machine.close(close::GOING_AWAY, "the daemon stops");
        }
    }

    /// The connection is over: what was under way is due again.
    fn let_go(&mut self) {
        for id in std::mem::take(&mut self.sends).into_keys() {
            if let Err(err) = self.spool.outbox().release(&id, self.me) {
                tracing::error!(id, %err, "could not note a message; it waits for the next start");
            }
        }
    }
}

/// How often a channel delivery was shown before. An envelope of another version counts as a first one.
fn redelivery(text: &str) -> u32 {
    match envelope::parse(text).map(|parsed| parsed.envelope.kind) {
        Ok(Kind::Channel { redelivery, .. }) => redelivery,
        _ => 0,
    }
}

/// The name of the agent that has sent an entry.
fn sender(entry: &Entry) -> &str {
    entry.from.as_deref().and_then(|from| from.split('@').next()).unwrap_or_default()
}

fn frame(entry: Entry) -> Result<SendFrame, &'static str> {
    Ok(SendFrame {
        id: entry.id,
        from: entry.from.ok_or("it has no sender")?,
        to: entry.dest,
        body: String::from_utf8(entry.body).map_err(|_| "its body is no text")?,
        reply_to: entry.reply_to,
        ts: entry.created_at.to_string(),
    })
}
