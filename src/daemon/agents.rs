//! `agent.sock`: one thread a connection, driving the daemon's side of transit-agent/1.
//!
//! A session belongs to the process that registered it or, where the adapter is a child of its harness, to that
//! ancestor of it. When that process ends the session is over, whoever holds the socket.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::claim;
use super::dispatch::Dispatch;
use super::host::Host;
use super::peer::registrable;
use super::session::{Mailbox, Session, Way};
use crate::addr::Name;
use crate::clock::Mono;
use crate::id::fill_random;
use crate::net::line::LineSocket;
use crate::net::unix::Peer;
use crate::net::wake::Wake;
use crate::proto::agent::{DaemonSide, DaemonSideEvent, PeerProcess, Register, status_word};
use crate::proto::{Input, Output};
use crate::store::process::{Process, own_pid};
use crate::store::spool::agents::{Identity, PlaceError};
use crate::store::spool::inbox::Outcome;
use crate::text;

/// Longest time that a connection's thread sleeps.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Time for a session to answer what is open when the daemon stops.
const STOP_WAIT: Duration = Duration::from_secs(2);
/// Code points of an agent's texts that are kept.
const TEXT_RUNES: usize = 1_024;
/// The letters of made-up names: none that is mistaken for another.
const LETTERS: &[u8; 30] = b"abcdefghjkmnpqrstvwxyz23456789";
/// Longest beginning of a made-up name.
const STEM_BYTES: usize = 26;

/// Serves one adapter until it goes away, another connection takes its session over, or the daemon stops.
pub(super) fn serve(host: &Arc<Host>, stream: UnixStream, peer: Peer, wake: Wake) {
    let socket = match LineSocket::new(stream) {
        Ok(socket) => socket,
        Err(err) => return tracing::warn!(%err, "could not serve an adapter"),
    };
    let processes = registrable(peer);
    let ancestors = processes.iter().skip(1).map(|(seen, _)| *seen).collect();
    let seen = PeerProcess { pid: peer.pid, own: own_pid(peer.pid) };
    let machine = DaemonSide::new(seen, host.now()).with_ancestors(ancestors);
    let mut connection =
        Connection { host, socket, machine, processes, wake, deadline: None, session: None, is_over: false };
    connection.run();
    if let Some((session, dispatch)) = connection.session {
        session.mailbox.close();
        dispatch.end(host, &session);
        session.mailbox.over();
        tracing::info!(agent = %session.place.name, "the session is gone");
    }
}

struct Connection<'a> {
    host: &'a Arc<Host>,
    socket: LineSocket,
    machine: DaemonSide,
    /// The adapter's process, and its ancestors that it may register for.
    processes: Vec<(PeerProcess, Process)>,
    wake: Wake,
    deadline: Option<Mono>,
    session: Option<(Session, Dispatch)>,
    is_over: bool,
}

impl Connection<'_> {
    fn run(&mut self) {
        let mut stop_at = None;
        loop {
            if let Some((session, dispatch)) = &mut self.session
                && stop_at.is_none()
                && !self.host.herdr.delivers_for(&session.place.name)
            {
                dispatch.advance(self.host, &mut self.machine);
            }
            self.drain();
            if self.is_over {
                let _ = self.socket.flush();
                return;
            }
            if self.host.stop.is_triggered() {
                let until = *stop_at.get_or_insert(self.host.now() + STOP_WAIT);
                if self.settle_before_stop(until) {
                    self.machine.close();
                    continue;
                }
            }
            if let Err(err) = self.socket.wait(&self.wake, self.longest_wait(stop_at)) {
                tracing::debug!(%err, "the adapter's connection broke");
                return;
            }
            self.hear();
        }
    }

    /// Whether nothing is left to wait for before the daemon stops.
    fn settle_before_stop(&mut self, until: Mono) -> bool {
        let now = self.host.now();
        self.session.as_mut().is_none_or(|(_, dispatch)| dispatch.settle_last(self.host)) || now >= until
    }

    fn longest_wait(&self, stop_at: Option<Mono>) -> Duration {
        let session = self.session.as_ref().filter(|_| stop_at.is_none());
        let look_at = session.and_then(|(_, dispatch)| dispatch.next());
        let next = [self.deadline, look_at, stop_at].into_iter().flatten().min();
        next.map_or(LONGEST_WAIT, |at| at.since(self.host.now()).min(LONGEST_WAIT))
    }

    /// Takes everything that has happened since the last wait.
    fn hear(&mut self) {
        // Asked before the last line is read: what was said before the session was taken over counts.
        let over = self.session.as_ref().map(|(session, _)| &session.mailbox);
        let (is_replaced, is_ended) = over.map_or((false, false), |it| (it.is_replaced(), it.is_ended()));
        loop {
            let now = self.host.now();
            match self.socket.read() {
                Ok(Some(line)) => self.machine.handle(line.as_input(), now),
                Ok(None) => break,
                Err(_) => {
                    self.is_over = true;
                    break;
                }
            }
            self.drain();
        }
        let now = self.host.now();
        if self.deadline.is_some_and(|at| now >= at) {
            self.deadline = None;
            self.machine.handle(Input::Tick, now);
        }
        self.claims();
        if let Some((_, dispatch)) = &mut self.session {
            if is_replaced {
                // With a word to it: an adapter that reconnects by itself would take the session back at once.
                self.machine.refuse("replaced", "another process has taken the session over");
            } else if is_ended {
                self.machine.close();
            }
            dispatch.look(now);
        }
    }

    /// Gives the session the names that it has claimed, and tells its adapter.
    fn claims(&mut self) {
        let Some((session, dispatch)) = &mut self.session else { return };
        for claim in session.mailbox.take_claims() {
            let renamed = claim::rename(self.host, session, dispatch, &claim.name);
            if renamed.is_ok() {
                self.machine.renamed(session.place.name.as_str(), &session.address, session.place.generation);
            }
            claim.answer(renamed);
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Write(line) => self.socket.write(&line),
                Output::WakeAt(at) => self.deadline = Some(at),
                Output::Close(close) => {
                    tracing::debug!(reason = close.reason, "closing an adapter's connection");
                    self.is_over = true;
                }
                Output::Event(event) => self.event(event),
            }
        }
    }

    fn event(&mut self, event: DaemonSideEvent) {
        let now = self.host.now();
        if let DaemonSideEvent::Register(register) = event {
            return self.register(register);
        }
        let Some((session, dispatch)) = &mut self.session else { return };
        match event {
            DaemonSideEvent::Ack { id, is_only_seen: false } => dispatch.answered(id, Outcome::Injected, now),
            DaemonSideEvent::Ack { id, is_only_seen: true } => dispatch.answered(id, Outcome::Seen, now),
            // A connection that ends answers for what is open; the rows are given back together then.
            DaemonSideEvent::Nak { .. } if self.is_over || session.mailbox.is_replaced() => {}
            DaemonSideEvent::Nak { id, code, retryable } => {
                dispatch.answered(id, Outcome::Refused { code, retryable }, now);
            }
            DaemonSideEvent::Status(status) => {
                if self.host.registry.set_status(session, text::clip(&status, TEXT_RUNES)) {
                    self.host.uplink.wake();
                }
            }
            DaemonSideEvent::Alive | DaemonSideEvent::Register(_) => {}
        }
    }

    fn register(&mut self, register: Register) {
        match self.place(&register) {
            Ok((session, dispatch)) => {
                let capability = capability();
                let Session { place, address, .. } = &session;
                tracing::info!(agent = %place.name, harness = register.harness, "a session has registered");
                let now = self.host.now();
                self.machine.registered(place.name.as_str(), address, place.generation, capability, now);
                self.session = Some((session, dispatch));
                self.host.uplink.wake();
            }
            Err((code, why)) => {
                tracing::info!(code, harness = register.harness, %why, "a registration was refused");
                self.machine.refuse(code, &why);
            }
        }
    }

    /// Finds the process that registers, and sees to it that the session ends with it. It may have ended already, and
    /// its pid be another's by now.
    fn watch(&mut self, pid: u32) -> Result<Process, (&'static str, String)> {
        let gone = || ("pid_mismatch", format!("process {pid} is not there any more"));
        let (_, process) = *self.processes.iter().find(|(seen, _)| seen.is_called(pid)).ok_or_else(gone)?;
        let its = Pid::from_raw(process.pid.cast_signed()).ok_or_else(gone)?;
        let opened = pidfd_open(its, PidfdFlags::empty());
        // Whichever process was opened is the right one if that one is there still.
        if !process.is_alive() {
            return Err(gone());
        }
        // Where the system has no pidfds, the end of the connection tells enough.
        if let Ok(pidfd) = opened {
            self.socket.end_with(pidfd);
        }
        Ok(process)
    }

    /// Finds the session's place and enters it, or says why there is none.
    fn place(&mut self, register: &Register) -> Result<(Session, Dispatch), (&'static str, String)> {
        let failed = |code, err: &dyn std::fmt::Display| (code, err.to_string());
        let process = self.watch(register.pid)?;
        let harness = register.harness.parse().map_err(|err| failed("unsupported_harness", &err))?;
        let who = Identity { harness, session_id: register.session_id.clone() };
        let declared = register.name.as_deref().map(str::parse::<Name>).transpose();
        let declared = declared.map_err(|err| failed("invalid_name", &err))?;
        let _one_at_a_time = self.host.registering.lock().unwrap_or_else(PoisonError::into_inner);
        let mut spool = self.host.spool().map_err(|err| failed("name_persistence_failed", &err))?;
        let is_live = |name: &Name| {
            self.host.registry.get(name).is_some_and(|holder| holder.who != who && !holder.way.gives_way())
        };
        let place = spool
            .remember(&who, declared.as_ref(), is_live, || made_up(&register.harness), self.host.wall())
            .map_err(|err| {
                let code = match err {
                    PlaceError::Taken { .. } | PlaceError::Kept { .. } => "name_taken",
                    PlaceError::NoName => "name_allocation_failed",
                    PlaceError::Store(_) => "name_persistence_failed",
                };
                failed(code, &err)
            })?;
        let address = format!("{}@{}", place.name, self.host.name());
        let kept = |text: &str| text::clip(text, TEXT_RUNES).to_owned();
        let session = Session {
            who,
            address,
            way: Way::Adapter { process, pane_id: register.pane_id.as_deref().map(kept) },
            status: kept(status_word(&register.status)),
            cwd: kept(&register.cwd),
            title: kept(&register.title),
            mailbox: Mailbox::new(self.wake.clone()),
            place,
        };
        let now = self.host.now();
        let mut dispatch = Dispatch::new(spool, session.place.name.as_str(), now)
            .map_err(|err| failed("name_persistence_failed", &err))?;
        dispatch.follow(self.host.registry.enter(session.clone()), now);
        Ok((session, dispatch))
    }
}

/// A name for a session that declares none: what its harness is called, and four letters.
pub(super) fn made_up(harness: &str) -> Name {
    let stem = harness.get(..STEM_BYTES).unwrap_or(harness).trim_end_matches('-');
    let mut random = [0; 4];
    fill_random(&mut random);
    let letters = random.map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()]));
    let name = format!("{stem}-{}", letters.iter().collect::<String>());
    name.parse().expect("a harness begins with a letter and leaves room for five characters")
}

fn capability() -> String {
    let mut random = [0; 16];
    fill_random(&mut random);
    hex::encode(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_up_name_is_a_name() {
        for harness in ["claude", "a", &format!("b{}", "-".repeat(31)), &"c".repeat(32)] {
            for _ in 0..100 {
                let name = made_up(harness);
                assert!(name.as_str().len() <= 31 && name.as_str().contains('-'), "{name}");
            }
        }
    }
}
