//! Events that a sender could not get out are tried again while the daemon runs.

use std::sync::Arc;
use std::time::Duration;

use super::events::{Flusher, Poster, Settled, Watch};
use super::host::Host;
use crate::clock::SystemClock;
use crate::limits;
use crate::net::service::Shutdown;
use crate::store::StoreError;
use crate::store::spool::Spool;
use crate::store::spool::outbox::{Entry, EntryKind};

/// How often the spool is looked at; senders give no hint, because they try first themselves.
const LOOK: Duration = Duration::from_secs(2);

/// Tries what is due until the daemon stops.
pub(super) fn run(host: &Arc<Host>) {
    let mut flusher = Flusher::new(Poster::new(limits::ATTEMPT_WAIT));
    let mut spool = None;
    while !host.stop.wait(Some(LOOK)) {
        if let Err(err) = pass(host, &mut spool, &mut flusher) {
            tracing::error!(%err, "could not flush the spool");
        }
    }
}

fn pass(host: &Host, spool: &mut Option<Spool>, flusher: &mut Flusher) -> Result<(), StoreError> {
    let spool = match spool {
        Some(spool) => spool,
        None => spool.insert(host.spool()?),
    };
    let now = host.wall();
    if spool.outbox().next_due(EntryKind::Event, now)?.is_none_or(|at| at > now) {
        return Ok(());
    }
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
