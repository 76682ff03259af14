//! The one thread that changes the ledger: group commit.
//!
//! It takes every waiting change into one transaction, commits once, and only then answers them all. A change that
//! fails or panics is undone alone; a commit that fails is told to every change that was in it, and nothing is
//! promised.
//!
//! A savepoint a change would pay for that failure every time: the engine keeps a copy of each page that is touched.
//! Failures half way are rare, so a group first runs without. When one of its changes fails after it has changed
//! something, all is undone and the group runs once more, each change in its own savepoint. A group that a full disk
//! has undone runs once more as well, in the room that was kept back for that. That is why a change may run more than
//! once, and takes nothing out of what it captures.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ffi};

use super::checkpoint::Watch;
use super::connection::Turnstile;
use super::space::Space;
use super::{StoreError, Through, Tx, Work};

/// Answers that the writer gives by itself.
const FEW: usize = 4;
/// How long a change that nobody waits for may wait for one that somebody does.
const RIDE_ALONG: Duration = Duration::from_millis(20);

/// The changes that wait for the writer.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<Waiting>,
    woken: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: Vec<Box<dyn Job>>,
    /// Somebody waits for one of them.
    is_urgent: bool,
    closed: bool,
    /// Whether the writer sleeps; a push to a writer at work needs no system call.
    idle: bool,
}

impl Queue {
    /// Adds a change. One that nobody waits for rides along with the next that is urgent, for a moment at most.
    pub(super) fn push(&self, job: Box<dyn Job>, is_urgent: bool) {
        let mut waiting = self.lock();
        waiting.jobs.push(job);
        waiting.is_urgent |= is_urgent;
        // The first one wakes it in any case, so that the moment begins.
        let wake = waiting.idle && (is_urgent || waiting.jobs.len() == 1);
        drop(waiting);
        if wake {
            self.woken.notify_one();
        }
    }

    /// No change comes any more; the writer ends when it has answered all that wait.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.woken.notify_one();
    }

    /// Moves all that waits into `jobs`, which is empty. `false` when there will never be more.
    fn take(&self, jobs: &mut Vec<Box<dyn Job>>) -> bool {
        let mut waiting = self.lock();
        waiting.idle = true;
        while !waiting.is_urgent && !waiting.closed {
            if waiting.jobs.is_empty() {
                waiting = self.woken.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.woken.wait_timeout(waiting, RIDE_ALONG).unwrap_or_else(PoisonError::into_inner);
            waiting = waited.0;
            if waited.1.timed_out() {
                break;
            }
        }
        waiting.idle = false;
        waiting.is_urgent = false;
        std::mem::swap(&mut waiting.jobs, jobs);
        !jobs.is_empty()
    }

    /// Moves all that waits into `jobs`, if anything does.
    #[cfg(feature = "simulation")]
    pub(super) fn take_now(&self, jobs: &mut Vec<Box<dyn Job>>) {
        let mut waiting = self.lock();
        waiting.is_urgent = false;
        jobs.append(&mut waiting.jobs);
    }

    /// How many changes wait, and whether somebody waits for one of them.
    #[cfg(feature = "simulation")]
    pub(super) fn waiting(&self) -> (usize, bool) {
        let waiting = self.lock();
        (waiting.jobs.len(), waiting.is_urgent)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change and whom to tell, with their types hidden.
pub(super) trait Job: Send {
    /// Makes the change. Answers whether it is to be kept; one that is not has to be undone.
    fn run(&mut self, tx: &Tx<'_>) -> bool;
    /// Tells the outcome: its own failure, else `broken`, else what the change answered.
    fn answer(self: Box<Self>, broken: Option<StoreError>);
}

/// One change that waits, was made, and is answered.
pub(super) struct Task<T, C, D> {
    change: C,
    outcome: Option<Result<T, StoreError>>,
    done: D,
}

impl<T, C, D> Task<T, C, D>
where
    T: Send + 'static,
    C: Fn(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    D: FnOnce(Result<T, StoreError>) + Send + 'static,
{
    pub(super) fn boxed(change: C, done: D) -> Box<dyn Job> {
        Box::new(Self { change, outcome: None, done })
    }
}

impl<T, C, D> Job for Task<T, C, D>
where
    T: Send,
    C: Fn(&Tx<'_>) -> Result<T, StoreError> + Send,
    D: FnOnce(Result<T, StoreError>) + Send,
{
    fn run(&mut self, tx: &Tx<'_>) -> bool {
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.change)(tx)))
            .unwrap_or_else(|payload| Err(StoreError::Panicked { what: panic_text(payload.as_ref()) }));
        self.outcome.insert(outcome).is_ok()
    }

    fn answer(self: Box<Self>, broken: Option<StoreError>) {
        let outcome = match (self.outcome, broken) {
            (Some(Err(own)), _) => Err(own),
            (_, Some(broken)) => Err(broken),
            (Some(made), None) => made,
            (None, None) => Err(StoreError::Closed),
        };
        (self.done)(outcome);
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text").to_owned()
}

/// The writer's connection and what it needs beside it.
pub(super) struct Writer {
    connection: Connection,
    path: PathBuf,
    /// Most changes of one transaction.
    group: usize,
    turnstile: Arc<Turnstile>,
    space: Arc<Space>,
    work: Arc<Work>,
    through: Arc<Through>,
    /// Commits whose answers were handed over and are not all given.
    handed_over: Arc<AtomicUsize>,
    /// Whether a change of the group changes the directory.
    directory: Cell<bool>,
}

impl Writer {
    pub(super) fn new(
        (mut connection, path): (Connection, &Path),
        group: usize,
        turnstile: Arc<Turnstile>,
        space: Arc<Space>,
        watch: Watch,
        (work, through): (Arc<Work>, Arc<Through>),
    ) -> Result<Self, StoreError> {
        let told = move |_: &mut rusqlite::hooks::Wal, pages| {
            watch.log_has(pages);
            Ok(())
        };
        connection.wal_hook(Some(told)).map_err(|err| StoreError::sql(path, err))?;
        let (path, group) = (path.to_owned(), group.max(1));
        let (handed_over, directory) = Default::default();
        Ok(Self { connection, path, group, turnstile, space, work, through, handed_over, directory })
    }

    pub(super) fn start(self, queue: Arc<Queue>) -> Result<JoinHandle<()>, StoreError> {
        let path = self.path.clone();
        std::thread::Builder::new()
            .name("ledger-writer".into())
            .spawn(move || self.run(&queue))
            .map_err(|err| StoreError::io("start the writer of", &path, err))
    }

    fn run(self, queue: &Queue) {
        let mut jobs = Vec::new();
        while queue.take(&mut jobs) {
            while !jobs.is_empty() {
                self.group(&mut jobs);
            }
        }
    }

    /// One transaction over the first of `jobs`; those are taken out and answered.
    fn group(&self, jobs: &mut Vec<Box<dyn Job>>) {
        let began = self.work.begin();
        let (mut ran, mut outcome) = self.attempt(jobs);
        if outcome.as_ref().is_err_and(|err| self.is_full(err)) && self.space.release() {
            (ran, outcome) = self.attempt(jobs);
        }
        self.work.end(began, outcome.is_ok());
        self.space.watch();
        self.answer(jobs, ran, outcome);
    }

    /// Answers how many of `jobs` ran, and whether that is committed.
    pub(super) fn attempt(&self, jobs: &mut [Box<dyn Job>]) -> (usize, rusqlite::Result<()>) {
        let (ran, made) = self.make(jobs);
        (ran, made.and_then(|()| self.commit(ran)))
    }

    /// Begins a transaction over the first of `jobs`. Answers how many ran in it.
    pub(super) fn make(&self, jobs: &mut [Box<dyn Job>]) -> (usize, rusqlite::Result<()>) {
        let size = jobs.len().min(self.group);
        let ran = self.begin().and_then(|()| self.run_all(&mut jobs[..size]));
        ran.map_or_else(|err| (size, Err(err)), |ran| (ran, Ok(())))
    }

    /// Takes the first `ran` of `jobs` out and tells each what came of their commit.
    pub(super) fn answer(&self, jobs: &mut Vec<Box<dyn Job>>, ran: usize, outcome: rusqlite::Result<()>) {
        if let Err(err) = &outcome {
            tracing::error!(changes = ran, err = %StoreError::sql(&self.path, again(err)), "commit failed");
        }
        if self.directory.take() {
            self.turnstile.directory_changed();
        }
        // To hand a few over takes longer than to give them; but none may come before those of an earlier commit.
        let is_short = ran <= FEW && self.handed_over.load(Ordering::Acquire) == 0;
        match self.through.get().filter(|_| !is_short) {
            None => answer(jobs.drain(..ran), &outcome, &self.path),
            Some(through) => {
                let (done, path): (Vec<_>, _) = (jobs.drain(..ran).collect(), self.path.clone());
                let handed_over = self.handed_over.clone();
                handed_over.fetch_add(1, Ordering::Relaxed);
                through(Box::new(move || {
                    answer(done, &outcome, &path);
                    handed_over.fetch_sub(1, Ordering::Release);
                }));
            }
        }
    }

    /// Lets the database grow by so many pages and no more, as a disk does that is nearly full; by any number again with
    /// `None`.
    #[cfg(feature = "simulation")]
    pub(super) fn limit_growth(&self, pages: Option<u32>) -> rusqlite::Result<()> {
        let has: u32 = self.connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
        let most = pages.map_or(u32::MAX - 1, |more| has + more);
        self.connection.query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(()))
    }

    pub(super) fn is_full(&self, err: &rusqlite::Error) -> bool {
        matches!(StoreError::sql(&self.path, again(err)), StoreError::Full { .. })
    }

    fn begin(&self) -> rusqlite::Result<()> {
        let mut begun = Ok(());
        let passed = self.turnstile.pass(|| {
            begun = self.statement("BEGIN IMMEDIATE");
            Ok(())
        });
        if let Err(err) = passed {
            // The turnstile is only manners: without it the engine's own locks still keep the file whole.
            tracing::warn!(%err, "cannot take turns at the ledger");
        }
        begun
    }

    /// Runs the changes one after another, and answers how many ran.
    fn run_all(&self, jobs: &mut [Box<dyn Job>]) -> rusqlite::Result<usize> {
        if self.run_unguarded(jobs) {
            return Ok(jobs.len());
        }
        self.roll_back();
        self.begin()?;
        Ok(self.run_guarded(jobs))
    }

    /// Runs all changes without a way to undo one. `false` when one would have to be undone.
    fn run_unguarded(&self, jobs: &mut [Box<dyn Job>]) -> bool {
        let tx = self.tx();
        jobs.iter_mut().all(|job| {
            let before = self.connection.total_changes();
            let kept = job.run(&tx);
            (kept || self.connection.total_changes() == before) && !self.connection.is_autocommit()
        })
    }

    /// Runs each change in its own savepoint. Stops early when the engine gave the whole transaction up, as it does
    /// on a full disk.
    fn run_guarded(&self, jobs: &mut [Box<dyn Job>]) -> usize {
        let tx = self.tx();
        for (before, job) in jobs.iter_mut().enumerate() {
            if self.statement("SAVEPOINT change").is_err() {
                self.roll_back();
                return before + 1;
            }
            let kept = job.run(&tx)
                || self.connection.is_autocommit()
                || self.statement("ROLLBACK TO change").is_ok();
            let released =
                kept && !self.connection.is_autocommit() && self.statement("RELEASE change").is_ok();
            if !released {
                self.roll_back();
                return before + 1;
            }
        }
        jobs.len()
    }

    /// Undoes the transaction, unless the engine has given it up already.
    pub(super) fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(err) = self.statement("ROLLBACK")
        {
            tracing::error!(err = %StoreError::sql(&self.path, err), "rollback failed");
        }
    }

    pub(super) fn commit(&self, changes: usize) -> rusqlite::Result<()> {
        if self.connection.is_autocommit() {
            return Err(failure("the engine gave the transaction up"));
        }
        let committed = self.statement("COMMIT");
        match committed {
            Ok(()) => self.work.sizes.add(changes as u64),
            Err(_) => self.roll_back(),
        }
        committed
    }

    fn tx(&self) -> Tx<'_> {
        Tx { connection: &self.connection, path: &self.path, directory: &self.directory }
    }

    fn statement(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }
}

/// Tells everybody what became of the commit that their change was in.
fn answer(jobs: impl IntoIterator<Item = Box<dyn Job>>, outcome: &rusqlite::Result<()>, path: &Path) {
    for job in jobs {
        let broken = outcome.as_ref().err().map(|err| StoreError::sql(path, again(err)));
        // A callback that panics is a bug of its caller, and no reason to lose the ledger.
        if catch_unwind(AssertUnwindSafe(|| job.answer(broken))).is_err() {
            tracing::error!("the answer to a change panicked");
        }
    }
}

fn failure(text: &str) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ABORT), Some(text.to_owned()))
}

/// The same failure once more, for the next of those who wait for it.
fn again(err: &rusqlite::Error) -> rusqlite::Error {
    match err {
        rusqlite::Error::SqliteFailure(code, text) => rusqlite::Error::SqliteFailure(*code, text.clone()),
        other => failure(&other.to_string()),
    }
}
