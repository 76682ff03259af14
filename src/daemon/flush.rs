//! What other processes have left in the spool is found, and events that a sender could not get out are tried again,
//! while the daemon runs.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::events::{Flusher, Poster, Settled, Watch};
use super::host::Host;
use super::trouble::Trouble;
use super::{DaemonError, spawn};
use crate::clock::{SystemClock, Wall};
use crate::limits;
use crate::net::service::Shutdown;
use crate::store::StoreError;
use crate::store::spool::Spool;
use crate::store::spool::outbox::{Entry, EntryKind};

/// How often the spool is looked at: other processes put events into it, and make entries due again, without a hint.
const LOOK: Duration = Duration::from_secs(2);
/// Threads that help when there are events to be tried.
const HELPERS: usize = 3;
/// A machine that slept for longer than this has lost its connections, whether they know it or not.
const SLEPT: Duration = Duration::from_secs(10);

/// Starts the thread that looks for what is due, and its helpers. They are not waited for at the end: an attempt may
/// take long, and its claim goes with the process.
pub(super) fn start(host: &Arc<Host>) -> Result<(), DaemonError> {
    let mut helpers = Vec::with_capacity(HELPERS);
    for n in 1..=HELPERS {
        let (call, calls) = sync_channel(1);
        let host = Arc::clone(host);
        spawn(&format!("flush-{n}"), &host.stop.clone(), move || help(&host, &calls))?;
        helpers.push(call);
    }
    let host = Arc::clone(host);
    spawn("scout", &host.stop.clone(), move || scout(&host, &helpers)).map(drop)
}

/// Looks for what is due, whether the machine has slept, and whether Herdr was started, until the daemon stops.
fn scout(host: &Host, helpers: &[SyncSender<()>]) {
    let mut flusher = Flusher::new(Poster::new(limits::ATTEMPT_WAIT));
    let (mut spool, mut slept) = (None, host.suspended());
    let mut trouble = Trouble::default();
    while !host.stop.wait(Some(LOOK)) {
        let so_far = host.suspended();
        if so_far > slept + SLEPT {
            tracing::info!(seconds = (so_far - slept).as_secs(), "the machine has slept; connecting anew");
            host.kick();
        }
        slept = so_far;
        host.herdr.notice();
        note(host, &mut trouble, look(host, &mut spool, &mut flusher, helpers));
    }
}

/// Tells that the spool could not be flushed, or can be again, as often as is of use.
fn note(host: &Host, trouble: &mut Trouble, flushed: Result<(), StoreError>) {
    match flushed {
        Ok(()) if trouble.is_over() => tracing::info!("the spool is flushed again"),
        Ok(()) => {}
        Err(err) => {
            if let Some(untold) = trouble.seen(host.now()) {
                tracing::error!(%err, untold, "could not flush the spool; trying again");
            }
        }
    }
}

fn look(
    host: &Host,
    spool: &mut Option<Spool>,
    flusher: &mut Flusher,
    helpers: &[SyncSender<()>],
) -> Result<(), StoreError> {
    let opened = opened(host, spool)?;
    let now = host.wall();
    let is_due = |at: Option<Wall>| at.is_some_and(|at| at <= now);
    if is_due(opened.outbox().next_message_due(now)?) && host.link().connected {
        host.uplink.wake();
    }
    if is_due(opened.outbox().next_due(EntryKind::Event, now)?) {
        for helper in helpers {
            // One that is busy looks again by itself.
            let _ = helper.try_send(());
        }
        pass(host, spool, flusher)?;
    }
    Ok(())
}

fn opened<'a>(host: &Host, spool: &'a mut Option<Spool>) -> Result<&'a mut Spool, StoreError> {
    Ok(match spool {
        Some(spool) => spool,
        None => spool.insert(host.spool()?),
    })
}

/// Helps whenever it is called.
fn help(host: &Host, calls: &Receiver<()>) {
    let mut flusher = Flusher::new(Poster::new(limits::ATTEMPT_WAIT));
    let (mut spool, mut trouble) = (None, Trouble::default());
    for () in calls {
        note(host, &mut trouble, pass(host, &mut spool, &mut flusher));
    }
}

fn pass(host: &Host, spool: &mut Option<Spool>, flusher: &mut Flusher) -> Result<(), StoreError> {
    let spool = opened(host, spool)?;
    flusher.flush_due(spool, &SystemClock::new(), &UntilStopped(&host.stop)).map(drop)
}

/// A pass goes on until the daemon stops, and the log hears who died.
struct UntilStopped<'a>(&'a Shutdown);

impl Watch for UntilStopped<'_> {
    fn next(&self) -> Option<Duration> {
        (!self.0.is_triggered()).then_some(limits::ATTEMPT_WAIT)
    }

    fn ended(&self, entry: &Entry, settled: &Settled) {
        if let Settled::Dead { why, .. } = settled {
            tracing::warn!(id = entry.id, %why, "an event is dead");
        }
    }
}
