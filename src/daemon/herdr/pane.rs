//! One agent in one pane: a thread that hands over what is due to it, one envelope after the other.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use super::socket::Socket;
use super::{Health, Held, locked};
use crate::clock::Mono;
use crate::daemon::claim;
use crate::daemon::dispatch::{Carrier, Dispatch};
use crate::daemon::host::Host;
use crate::daemon::session::Session;
use crate::net::wake::Wake;
use crate::proto::herdr::{
    Agent, Delivery, Fault, Hold, Job, Proof, Request, Step, Told, Verdict, is_free, pane_text,
};
use crate::store::config::DeliveryMode;
use crate::store::spool::inbox::{DRAFT_BUSY as BUSY, Outcome};
use crate::store::transcript;

/// How often a pane is looked at in which somebody types, or is asked something.
const LOOK: Duration = Duration::from_secs(2);
/// Longest time that the thread sleeps.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Programs that have an adapter of their own.
const NATIVE: [&str; 4] = ["claude", "omp", "opencode", "pi"];

/// What the thread of a pane and the thread that asks Herdr share.
pub(super) struct Shared {
    /// The agent as it was found first: the pane, the terminal in it, and its program.
    pub(super) agent: Agent,
    pub(super) wake: Wake,
    /// The session is an adapter's, which only looks on.
    is_shadow: bool,
    over: AtomicBool,
    renamed: Mutex<Option<Session>>,
}

impl Shared {
    pub(super) fn new(agent: Agent, wake: Wake) -> Self {
        Self { agent, wake, is_shadow: false, over: AtomicBool::default(), renamed: Mutex::default() }
    }

    /// The same, for a session that an adapter has registered.
    pub(super) fn shadow(agent: Agent, wake: Wake) -> Self {
        Self { is_shadow: true, ..Self::new(agent, wake) }
    }

    /// The agent is not there any more, or is reached another way.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.wake.wake();
    }

    /// The agent goes by another name from now on; what is under way comes to its end first.
    pub(super) fn rename(&self, session: Session) {
        *locked(&self.renamed) = Some(session);
        self.wake.wake();
    }
}

/// What was handed over and has its turn to come.
#[derive(Default)]
struct Queue(VecDeque<(String, String)>);

impl Carrier for Queue {
    fn deliver(&mut self, id: &str, envelope: String, _: Mono) {
        self.0.push_back((id.to_owned(), envelope));
    }
}

struct Line<'a> {
    host: &'a Host,
    socket: &'a Socket,
    shared: &'a Shared,
    session: Session,
    dispatch: Dispatch,
    queue: Queue,
    /// When to look whether the person is done, while somebody types or is asked something.
    look_at: Option<Mono>,
}

/// Hands over until the agent is gone or the daemon stops.
pub(super) fn run(host: &Arc<Host>, socket: &Socket, shared: &Shared, session: Session, dispatch: Dispatch) {
    let mut line = Line { host, socket, shared, session, dispatch, queue: Queue::default(), look_at: None };
    while !line.is_over() {
        line.round();
    }
    line.forget_hold();
    let Line { session, mut dispatch, .. } = line;
    if shared.is_shadow {
        // The adapter takes over what is open. The mailbox is its own.
        dispatch.settle_last(host);
        locked(&host.herdr.shadowed).remove(&session.place.name);
        host.registry.wake(session.place.name.as_str());
        return;
    }
    session.mailbox.close();
    dispatch.end(host, &session);
    session.mailbox.over();
    tracing::info!(agent = %session.place.name, pane = shared.agent.pane_id, "the pane's agent is gone");
}

impl Line<'_> {
    fn is_over(&self) -> bool {
        let mailbox = &self.session.mailbox;
        self.shared.over.load(Ordering::Acquire) || mailbox.is_replaced() || mailbox.is_ended()
    }

    fn round(&mut self) {
        // An adapter's session takes its claims itself.
        if !self.shared.is_shadow {
            self.claims();
        }
        if let Some(session) = locked(&self.shared.renamed).take() {
            self.take_name(session);
        }
        self.dispatch.advance(self.host, &mut self.queue);
        if let Some((id, envelope)) = self.queue.0.pop_front() {
            self.carry(id, envelope);
            return;
        }
        let now = self.host.now();
        let next = [self.dispatch.next(), self.look_at].into_iter().flatten().min();
        self.shared.wake.wait(next.map_or(LONGEST_WAIT, |at| at.since(now)).min(LONGEST_WAIT));
        let now = self.host.now();
        self.dispatch.look(now);
        if self.look_at.is_some_and(|at| now >= at) && !self.is_over() {
            self.look_again();
        }
    }

    /// Gives the agent the names that it has claimed: in Herdr first, which may refuse, and then here.
    fn claims(&mut self) {
        for claim in self.session.mailbox.take_claims() {
            let pane = &self.shared.agent.pane_id;
            let was = self.session.place.name.clone();
            let renamed = match self.ask(&Request::rename(pane, claim.name.as_str())) {
                Err(fault) => Err(fault.to_string()),
                Ok(_) => {
                    let renamed =
                        claim::rename(self.host, &mut self.session, &mut self.dispatch, &claim.name);
                    if renamed.is_err()
                        && let Err(fault) = self.ask(&Request::rename(pane, was.as_str()))
                    {
                        tracing::warn!(%fault, pane, "could not give an agent its name back in Herdr");
                    }
                    renamed
                }
            };
            claim.answer(renamed);
        }
    }

    /// Brings one envelope into the pane, or finds out why not.
    fn carry(&mut self, id: String, envelope: String) {
        let settings = &self.host.herdr.settings;
        let agent = &self.shared.agent;
        let failed = |code: &str| Verdict::Failed { code: code.to_owned() };
        let verdict = if settings.mode == DeliveryMode::Require && NATIVE.contains(&agent.kind.as_str()) {
            failed("adapter_unavailable")
        } else if !matches!(*locked(&self.host.herdr.health), Health::Connected { .. }) {
            failed("herdr_unavailable")
        } else {
            let job = Job {
                id: id.clone(),
                envelope,
                pane_id: agent.pane_id.clone(),
                terminal_id: agent.terminal_id.clone(),
                kind: agent.kind.clone(),
                guard: settings.guard,
            };
            match self.drive(Delivery::new(job)) {
                Some(verdict) => verdict,
                // It is over here; the row is given back with all others.
                None => return,
            }
        };
        self.settle(id, verdict);
    }

    fn settle(&mut self, id: String, verdict: Verdict) {
        let now = self.host.now();
        let pane = &self.shared.agent.pane_id;
        match verdict {
            Verdict::Shown(proof) => {
                tracing::debug!(id, pane, ?proof, "the agent has it");
                self.forget_hold();
                let is_only_seen = proof == Proof::Screen;
                let outcome = if is_only_seen { Outcome::Seen } else { Outcome::Injected };
                self.dispatch.answered(id, outcome, now);
            }
            Verdict::Failed { code } => {
                tracing::info!(id, pane, code, "a delivery to a pane failed; it is tried again");
                self.dispatch.answered(id, Outcome::Refused { code, retryable: true }, now);
            }
            Verdict::Held(hold) => {
                self.hold(hold);
                self.dispatch.held(id, BUSY, now);
                for (id, _) in std::mem::take(&mut self.queue.0) {
                    self.dispatch.held(id, BUSY, now);
                }
            }
        }
    }

    /// Makes the steps of a delivery; `None` when the agent or the daemon went away in the middle.
    fn drive(&self, mut delivery: Delivery) -> Option<Verdict> {
        loop {
            let told = match delivery.step() {
                Step::Done(verdict) => return Some(verdict),
                Step::Ask(request) => Told::Answer(self.ask(&request)),
                Step::Search(path) => Told::Searched(transcript::search(Path::new(&path), delivery.needle())),
                Step::Wait(wait) => {
                    self.rest(wait);
                    Told::Waited
                }
            };
            if self.is_over() {
                return None;
            }
            delivery.told(told);
        }
    }

    fn ask(&self, request: &Request) -> Result<Value, Fault> {
        self.socket.ask(request, &self.shared.wake, || self.is_over())
    }

    /// Lets time pass. Whoever wakes the thread for new rows does not shorten it.
    fn rest(&self, wait: Duration) {
        let until = self.host.now() + wait;
        while !self.is_over() {
            let left = until.since(self.host.now());
            if left.is_zero() {
                return;
            }
            self.shared.wake.wait(left);
        }
    }

    fn hold(&mut self, hold: Hold) {
        self.look_at = Some(self.host.now() + LOOK);
        let agent = self.session.place.name.to_string();
        let pane = self.shared.agent.pane_id.clone();
        let mut holds = locked(&self.host.herdr.holds);
        let is_new = !holds.contains_key(&pane);
        let held = holds.entry(pane.clone()).or_insert_with(|| Held {
            agent: agent.clone(),
            hold,
            since: self.host.wall(),
        });
        held.hold = hold;
        if is_new {
            let why = match hold {
                Hold::Draft => "somebody types there",
                Hold::Blocked => "it asks the person something",
            };
            tracing::info!(agent, pane, why, "an envelope waits until the pane is free");
        }
    }

    fn forget_hold(&mut self) {
        self.look_at = None;
        locked(&self.host.herdr.holds).remove(&self.shared.agent.pane_id);
    }

    /// Is the person done? Then everything that waits is due, here and at the Worker.
    fn look_again(&mut self) {
        if !self.is_free() {
            self.look_at = Some(self.host.now() + LOOK);
            return;
        }
        if let Err(err) = self.dispatch.release(self.host.now()) {
            tracing::error!(%err, "could not release what waits for a pane; trying again");
            self.look_at = Some(self.host.now() + LOOK);
            return;
        }
        self.forget_hold();
        self.host.registry.tell_again();
        self.host.uplink.wake();
    }

    fn is_free(&self) -> bool {
        let pane = &self.shared.agent.pane_id;
        match self.ask(&Request::agent(pane)).ok().and_then(|result| Agent::of(&result)) {
            Some(agent) if !agent.is_held() => {}
            _ => return false,
        }
        if !self.host.herdr.settings.guard {
            return true;
        }
        let screen = self.ask(&Request::read_styled(pane)).or_else(|_| self.ask(&Request::read(pane)));
        screen.is_ok_and(|result| is_free(&self.shared.agent.kind, pane_text(&result).unwrap_or_default()))
    }

    /// From now on this is the agent's name; what waits for it comes along.
    fn take_name(&mut self, session: Session) {
        // What the agent has must be noted before its rows go by another name, and what has its turn to come is handed
        // over anew: either would be typed a second time otherwise.
        self.dispatch.settle_last(self.host);
        self.queue.0.clear();
        let old = self.session.place.name.clone();
        let new = session.place.name.clone();
        let one_at_a_time = locked(&self.host.registering);
        self.host.registry.enter(session.clone());
        self.session.mailbox.close();
        self.session.mailbox.over();
        self.session = session;
        let moved = self.host.spool().and_then(|mut spool| {
            spool.readdress(&old, &new)?;
            Dispatch::new(spool, new.as_str(), self.host.now())
        });
        drop(one_at_a_time);
        match moved {
            Ok(dispatch) => self.dispatch = dispatch,
            Err(err) => {
                tracing::error!(%err, "could not take an agent's new name; it is looked for anew");
                self.shared.end();
            }
        }
        self.host.uplink.wake();
        tracing::info!(%old, %new, "an agent has another name");
    }
}
