//! Who gets a place: the connections, and those that are turned away.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::gateway::Actor;
use super::super::trouble::Trouble;
use super::connection::Connection;
use super::sink::Client;
use super::{Limits, Shared, Standing, locked};
use crate::clock::{Clock, Mono};
use crate::net::unix::{API_SOCK, Bound, Peer};
use crate::net::wake::Wake;
use crate::proto::local::{Code, Server, ServerConfig, WireError, error_line};

/// Wait after the system would not give us another descriptor or thread.
const EXHAUSTED: Duration = Duration::from_millis(100);
/// How often a socket that could not be bound is tried again.
const BIND_AGAIN: Duration = Duration::from_secs(2);

/// The connections that there are.
#[derive(Default)]
pub(super) struct Places {
    /// Those that count.
    taken: Vec<Place>,
    /// Those whose client is gone or was told to go; their threads end by themselves.
    left: Vec<Place>,
}

struct Place {
    client: Arc<Client>,
    /// The connection, to see whether somebody is at its other end.
    stream: UnixStream,
    thread: JoinHandle<()>,
}

impl Place {
    /// Whether the client has closed its socket: it will never hear of anything again.
    fn is_deserted(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.stream, PollFlags::empty())];
        poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }
}

impl Places {
    /// Whether there is a place for one more; one of somebody who does not need it is freed, if there is no other.
    fn has_one(&mut self, most: usize, idle: Option<Duration>, now: Mono) -> bool {
        self.left.retain(|place| !place.thread.is_finished());
        self.taken.retain(|place| !place.thread.is_finished());
        if self.taken.len() < most {
            return true;
        }
        let all = std::mem::take(&mut self.taken).into_iter();
        let (deserted, taken): (Vec<_>, _) = all.partition(Place::is_deserted);
        self.left.extend(deserted);
        self.taken = taken;
        self.taken.len() < most || idle.is_some_and(|idle| self.dismiss_silent(idle, now))
    }

    /// Takes the place of whoever has been silent for the longest time, if that was long.
    fn dismiss_silent(&mut self, idle: Duration, now: Mono) -> bool {
        let silence = |place: &Place| Some(now.since(place.client.machine().silent_since()?));
        let all = self.taken.iter().map(silence).enumerate();
        let Some((at, silence)) =
            all.filter_map(|(at, silence)| Some((at, silence?))).max_by_key(|one| one.1)
        else {
            return false;
        };
        if silence < idle {
            return false;
        }
        let place = self.taken.swap_remove(at);
        let why = format!("silent for {} s; the place was needed", silence.as_secs());
        let err = WireError::new(Code::TooManyConnections, why);
        place.client.change(|machine| machine.dismiss(&err, now));
        self.left.push(place);
        true
    }

    /// Other limits hold for everybody who is there.
    pub(super) fn set_config(&self, config: ServerConfig) {
        for place in self.taken.iter().chain(&self.left) {
            place.client.change(|machine| machine.set_config(config));
        }
    }

    /// No further requests are taken.
    fn stop(&mut self, now: Mono) {
        for place in self.taken.iter().chain(&self.left) {
            place.client.change(|machine| machine.stop(now));
        }
    }

    /// Ends all connections, by `by` at the latest.
    pub(super) fn finish(&mut self, by: Mono, now: Mono) {
        let all = std::mem::take(&mut self.taken).into_iter().chain(std::mem::take(&mut self.left));
        let all: Vec<_> = all.collect();
        for place in &all {
            place.client.change(|machine| machine.finish(by, now));
        }
        for place in all {
            if place.thread.join().is_err() {
                tracing::error!("the thread of a local client has panicked");
            }
        }
    }
}

/// The thread that accepts.
pub(super) struct Listener {
    shared: Arc<Shared>,
    dir: PathBuf,
    wake: Wake,
    tell: Box<dyn Fn(Standing) + Send>,
    bound: Option<Bound>,
    /// Why the socket could not be bound the last time.
    trouble: Option<String>,
}

impl Listener {
    pub(super) fn new(
        shared: Arc<Shared>,
        dir: PathBuf,
        wake: Wake,
        tell: Box<dyn Fn(Standing) + Send>,
    ) -> Self {
        Self { shared, dir, wake, tell, bound: None, trouble: None }
    }

    /// Tries to bind the socket, and tells what came of it if that is news.
    pub(super) fn bind(&mut self) {
        match Bound::bind_in(&self.dir, API_SOCK) {
            Ok(bound) => {
                tracing::info!(socket = %bound.path().display(), "the local client API is there");
                (self.tell)(Standing::Listening(bound.path().to_owned()));
                self.bound = Some(bound);
            }
            Err(err) => {
                let why = err.to_string();
                if self.trouble.as_ref() != Some(&why) {
                    tracing::warn!(%err, "there is no local client API; trying again until there is");
                    (self.tell)(Standing::Waiting(why.clone()));
                    self.trouble = Some(why);
                }
            }
        }
    }

    /// Accepts until the daemon stops; then the socket goes away.
    pub(super) fn run(mut self) {
        let mut refused = Trouble::default();
        while !self.shared.stop.is_triggered() {
            let served = match &self.bound {
                None => {
                    if !self.shared.stop.wait(Some(BIND_AGAIN)) {
                        self.bind();
                    }
                    continue;
                }
                Some(bound) => match bound.accept_any(&self.wake) {
                    Ok(None) => continue,
                    Ok(Some(stream)) => self.place(stream),
                    Err(err) => Err(err),
                },
            };
            match served {
                Ok(()) if refused.is_over() => tracing::info!("clients of the local API are served again"),
                Ok(()) => {}
                Err(err) => {
                    if let Some(untold) = refused.seen(self.shared.clock.mono()) {
                        tracing::warn!(%err, untold, "could not take a client of the local API; trying again");
                    }
                    self.shared.stop.wait(Some(EXHAUSTED));
                }
            }
        }
        drop(self.bound);
        locked(&self.shared.places).stop(self.shared.clock.mono());
    }

    fn place(&self, stream: UnixStream) -> std::io::Result<()> {
        let Shared { front, clock, places, .. } = &*self.shared;
        let limits = front.limits();
        let peer = Peer::of(&stream).ok();
        if peer.is_some_and(|peer| !peer.is_ours()) {
            let why = "peer credentials do not match the daemon uid";
            turn_away(stream, &WireError::new(Code::Internal, why));
            return Ok(());
        }
        let mut places = locked(places);
        if !places.has_one(limits.connections, limits.idle, clock.mono()) {
            let why = format!("connection limit ({}) reached; try again later", limits.connections);
            turn_away(stream, &WireError::new(Code::TooManyConnections, why));
            return Ok(());
        }
        places.taken.push(self.begin(stream, peer, limits)?);
        Ok(())
    }

    fn begin(&self, stream: UnixStream, peer: Option<Peer>, limits: Limits) -> std::io::Result<Place> {
        let Shared { front, clock, .. } = &*self.shared;
        let machine = Server::new(limits.server, clock.mono());
        let client = Arc::new(Client::new(machine, Wake::new()?, *clock));
        let actor =
            Actor { pid: peer.map(|peer| peer.pid).filter(|pid| *pid != 0), uid: peer.map(|peer| peer.uid) };
        let other = stream.try_clone()?;
        let connection = Connection { stream, client: Arc::clone(&client), front: Arc::clone(front), actor };
        let thread = Builder::new().name("api-client".into()).spawn(move || connection.run())?;
        Ok(Place { client, stream: other, thread })
    }
}

/// Tells a client why it is not served. What it has sent already is read first: closing over it would cost it the
/// answer.
fn turn_away(mut stream: UnixStream, err: &WireError) {
    let line = format!("{}\n", error_line("", err));
    if stream.set_nonblocking(true).is_ok() && stream.write_all(line.as_bytes()).is_ok() {
        let mut bytes = [0; 4096];
        for _ in 0..32 {
            if !stream.read(&mut bytes).is_ok_and(|n| n > 0) {
                break;
            }
        }
    }
}
