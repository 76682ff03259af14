//! Passes over the spool: every event that is due is tried once, by one thread or by several, in one process or in
//! several. A claim is all that they share.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use super::{Poster, Settled, Verdict, record};
use crate::clock::{Clock, SystemClock};
use crate::store::StoreError;
use crate::store::process::Process;
use crate::store::spool::Spool;
use crate::store::spool::outbox::{Entry, EntryKind, State};

/// Entries that are read at once where none can be claimed.
const PAGE_ROWS: u32 = 16;

/// Who watches a pass: says how far it goes, and hears what comes of it.
pub trait Watch: Sync {
    /// Asked before each entry: how long its attempt may take at most. `None` ends the pass.
    fn next(&self) -> Option<Duration>;

    /// This entry is about to be tried.
    fn begins(&self, _entry: &Entry) {}

    /// What the attempt left it as.
    fn ended(&self, _entry: &Entry, _settled: &Settled) {}

    /// What the attempt came to could not be written down, which is tried again; until that succeeds the entry stays
    /// as it was.
    fn unnoted(&self, _entry: &Entry, _verdict: &Verdict) {}
}

/// What a pass over the spool came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flushed {
    /// Entries that the other side now has.
    pub sent: u64,
    /// Entries that died.
    pub dead: u64,
    /// Entries that were tried and wait on.
    pub waiting: u64,
    /// Entries that were tried, and of which that could not be written down.
    pub unnoted: u64,
}

/// Tries what is due, one after another.
#[derive(Debug)]
pub struct Flusher {
    poster: Poster,
    /// Results that could not be written down, as on a full disk; they are before anything is tried again. The
    /// entries have lost their bodies, which are not needed for it.
    unrecorded: Vec<(Entry, Verdict)>,
}

impl Flusher {
    /// A flusher that posts with `poster`.
    pub fn new(poster: Poster) -> Self {
        Self { poster, unrecorded: Vec::new() }
    }

    /// Tries every event that is due now, each once, in the order of their times, until `watch` says no.
    ///
    /// # Errors
    /// When the spool cannot be read or written. Nothing is lost by that.
    pub fn flush_due(
        &mut self,
        spool: &mut Spool,
        clock: &dyn Clock,
        watch: &dyn Watch,
    ) -> Result<Flushed, StoreError> {
        let mut flushed = Flushed::default();
        self.note(spool, clock, watch, &mut flushed)?;
        // What becomes due again meanwhile has its turn in the next pass.
        let began = clock.wall();
        while let Some(longest) = watch.next() {
            let (me, now) = (Process::current(), clock.wall());
            // A wait that began in this pass is told from an impossible one by the time that it is now.
            let claimed = spool.outbox().claim_due(EntryKind::Event, me, began.min(now), now, 1)?;
            let Some(entry) = claimed.into_iter().next() else { break };
            if let Some(error) = self.attempt(spool, entry, longest, clock, watch, &mut flushed) {
                return Err(error);
            }
        }
        Ok(flushed)
    }

    /// The same where no claim can be written, as on a full disk: what is sent may be sent once more by another
    /// process or later, under the same key. One thread alone may do this.
    ///
    /// # Errors
    /// When the spool cannot be read.
    pub fn flush_unclaimed(
        &mut self,
        spool: &mut Spool,
        clock: &dyn Clock,
        watch: &dyn Watch,
    ) -> Result<Flushed, StoreError> {
        let mut flushed = Flushed::default();
        let (began, mut after) = (clock.wall(), 0);
        loop {
            let page = spool.outbox().due_unclaimed(EntryKind::Event, began, after, PAGE_ROWS)?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            for (_, entry) in page.into_iter().filter(|(_, entry)| entry.state == State::Pending) {
                let Some(longest) = watch.next() else { return Ok(flushed) };
                self.attempt(spool, entry, longest, clock, watch, &mut flushed);
            }
        }
        // There may be room by now.
        let _ = self.note(spool, clock, watch, &mut flushed);
        Ok(flushed)
    }

    /// Makes one attempt. Answers why it could not be written down, if so.
    fn attempt(
        &mut self,
        spool: &mut Spool,
        mut entry: Entry,
        longest: Duration,
        clock: &dyn Clock,
        watch: &dyn Watch,
        flushed: &mut Flushed,
    ) -> Option<StoreError> {
        watch.begins(&entry);
        match self.poster.within(longest).attempt(spool, &entry, None, clock) {
            Ok(settled) => {
                flushed.count(&settled);
                watch.ended(&entry, &settled);
                None
            }
            Err(unrecorded) => {
                flushed.unnoted += 1;
                watch.unnoted(&entry, &unrecorded.verdict);
                entry.body = Vec::new();
                self.unrecorded.push((entry, unrecorded.verdict));
                Some(unrecorded.error)
            }
        }
    }

    /// Writes down what could not be written down before.
    fn note(
        &mut self,
        spool: &mut Spool,
        clock: &dyn Clock,
        watch: &dyn Watch,
        flushed: &mut Flushed,
    ) -> Result<(), StoreError> {
        while let Some((entry, verdict)) = self.unrecorded.last() {
            let now = clock.wall();
            let settled = record(spool, entry, verdict, self.poster.is_too_old(entry, now), now)?;
            flushed.count(&settled);
            flushed.unnoted = flushed.unnoted.saturating_sub(1);
            watch.ended(entry, &settled);
            self.unrecorded.pop();
        }
        Ok(())
    }
}

impl Flushed {
    fn count(&mut self, settled: &Settled) {
        match settled {
            Settled::Sent(_) => self.sent += 1,
            Settled::Waiting { .. } => self.waiting += 1,
            Settled::Dead { .. } => self.dead += 1,
        }
    }
}

/// One pass by `jobs` threads over the spool of this data directory. Every thread tells how its part ended, and the
/// channel closes after the last. They are not waited for: whoever has to end sooner may leave them behind, and
/// their claims lapse with the process.
///
/// # Errors
/// When a thread cannot be started.
pub fn flush_in_parallel(
    data_dir: &Path,
    jobs: usize,
    poster: &Poster,
    watch: &Arc<dyn Watch + Send>,
) -> std::io::Result<Receiver<Result<Flushed, StoreError>>> {
    let (tell, told) = channel();
    for n in 1..=jobs {
        let (dir, tell, watch) = (data_dir.to_owned(), tell.clone(), Arc::clone(watch));
        let mut flusher = Flusher::new(poster.clone());
        thread::Builder::new().name(format!("flush-{n}")).spawn(move || {
            let pass = Spool::open(&dir)
                .and_then(|mut spool| flusher.flush_due(&mut spool, &SystemClock::new(), watch.as_ref()));
            // Nobody hears it any more who has left.
            let _ = tell.send(pass);
        })?;
    }
    Ok(told)
}
