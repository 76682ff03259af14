//! Accepting connections on one socket: one named thread each, and all of them ended before the socket goes away.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::host::Host;
use super::trouble::Trouble;
use crate::net::unix::{Bound, Peer};
use crate::net::wake::Wake;

/// Connections of one socket at the same time; further ones are closed unanswered. Each takes three descriptors.
const MOST: usize = 2048;
/// Wait after the system would not give us another descriptor or thread.
const EXHAUSTED: Duration = Duration::from_millis(100);

struct Served {
    thread: JoinHandle<()>,
    wake: Wake,
}

/// Accepts until the daemon stops, and returns once every connection has ended. `serve` must return soon after its
/// wake-up is given and the daemon is stopping.
pub(super) fn accept(
    host: &Arc<Host>,
    bound: &Bound,
    wake: &Wake,
    thread_name: &str,
    serve: fn(&Arc<Host>, UnixStream, Peer, Wake),
) {
    let mut all: Vec<Served> = Vec::new();
    let (mut is_full, mut trouble) = (false, Trouble::default());
    let socket = bound.path().display();
    let pulse = host.pulses.add("accept", wake.clone());
    while !host.stop.is_triggered() {
        pulse.beat();
        let failed = match bound.accept(wake) {
            Ok(None) => {
                wake.clear();
                continue;
            }
            Ok(Some((stream, peer))) => {
                all.retain(|served| !served.thread.is_finished());
                if all.len() >= MOST {
                    if !std::mem::replace(&mut is_full, true) {
                        tracing::warn!(%socket, "too many connections; new ones are refused for now");
                    }
                    continue;
                }
                is_full = false;
                begin(host, stream, peer, thread_name, serve).map(|served| all.push(served)).err()
            }
            Err(err) => Some(err),
        };
        match failed {
            None if trouble.is_over() => tracing::info!(%socket, "connections are served again"),
            None => {}
            Some(err) => {
                if let Some(untold) = trouble.seen(host.now()) {
                    tracing::warn!(%socket, %err, untold, "could not serve a connection; trying again");
                }
                host.stop.wait(Some(EXHAUSTED));
            }
        }
    }
    for served in all {
        served.wake.wake();
        if served.thread.join().is_err() {
            tracing::error!("a connection's thread has panicked");
        }
    }
}

fn begin(
    host: &Arc<Host>,
    stream: UnixStream,
    peer: Peer,
    thread_name: &str,
    serve: fn(&Arc<Host>, UnixStream, Peer, Wake),
) -> std::io::Result<Served> {
    let (host, wake) = (Arc::clone(host), Wake::new()?);
    let its_wake = wake.clone();
    let thread =
        Builder::new().name(thread_name.to_owned()).spawn(move || serve(&host, stream, peer, its_wake))?;
    Ok(Served { thread, wake })
}
