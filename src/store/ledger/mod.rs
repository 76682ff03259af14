//! The Worker's ledger: every organisation, host, source, message and delivery, in one SQLite file.
//!
//! [`Db`] is how the rest of the Worker sees it: `read` a closure on the calling thread, `write` or `submit` a
//! closure to the one writer thread. Writes are grouped: all that wait are one transaction with one sync of the
//! disk, one that fails is undone alone, and each is answered only after the commit that makes it true. The functions
//! of the other modules here take a [`Tx`], so that a caller decides what is one transaction.
//!
//! The SQL keeps to what PostgreSQL takes as well: numbered parameters, integers for times and flags,
//! `ON CONFLICT`, `RETURNING`.

mod checkpoint;
mod connection;
pub mod credentials;
pub mod deliveries;
pub mod depths;
pub mod desk;
pub mod directory;
pub mod events;
pub mod health;
pub mod inspect;
mod look;
pub mod messages;
mod migrations;
pub mod passed;
mod refusal;
pub mod replies;
pub mod retention;
pub mod rooms;
pub mod roster;
mod serve_lock;
pub mod set_back;
pub mod sources;
pub mod space;
#[cfg(feature = "simulation")]
pub mod stepped;
pub mod users;
mod value;
mod work;
mod writer;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;

use rusqlite::{Connection, params_from_iter};

use super::StoreError;
use checkpoint::Checkpointer;
use connection::Turnstile;
pub use look::Look;
pub use migrations::SCHEMA;
pub use refusal::Refusal;
pub use serve_lock::{ServeLock, server_of};
use space::Space;
pub(crate) use value::values;
pub use value::{Row, Value};
pub use work::Work;
use writer::{Queue, Task};

/// Most changes of one transaction: what a burst costs its first change in waiting is bounded.
pub const COMMIT_GROUP: usize = 512;
/// Reader connections that are kept open between reads.
const READERS_KEPT: usize = 8;

/// The ledger of one Worker. Clones are the same ledger; dropping the last one ends its threads after everything
/// that was submitted has been answered.
#[derive(Clone)]
pub struct Db(Arc<Inner>);

/// The answers to the changes of one commit, to be given in one go.
pub type Answers = Box<dyn FnOnce() + Send>;

/// How answers are given, if not by the writer itself.
type Through = OnceLock<Box<dyn Fn(Answers) + Send + Sync>>;

struct Inner {
    path: PathBuf,
    queue: Arc<Queue>,
    work: Arc<Work>,
    readers: Mutex<Vec<Connection>>,
    /// The writer, when nothing but a simulation runs it. It outlives the readers, whose closing then is cheap.
    #[cfg(feature = "simulation")]
    stepped: Option<stepped::Steps>,
    turnstile: Arc<Turnstile>,
    space: Arc<Space>,
    checkpointer: Option<Checkpointer>,
    writer: Option<JoinHandle<()>>,
    through: Arc<Through>,
}

/// What the writer has done since the ledger was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Transactions that were committed; each is one sync of the disk.
    pub commits: u64,
    /// Changes that those transactions held.
    pub changes: u64,
}

impl Db {
    /// Opens the ledger at `path`, which is made when it is absent, and brings its schema up to date.
    ///
    /// # Errors
    /// When it cannot be made or written, is damaged or no ledger, or was made by a newer version.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_grouping(path, COMMIT_GROUP)
    }

    /// The same, with at most `group` changes in one commit.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn open_grouping(path: &Path, group: usize) -> Result<Self, StoreError> {
        Self::open_with(path, group, |_| Ok(()))
    }

    /// The same, but nothing is synced to the disk before it is answered. A power cut loses what was promised: this is
    /// what the test of power cuts is compared with.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[cfg(feature = "interop")]
    pub fn open_unsynced(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, COMMIT_GROUP, |writer| writer.execute_batch("PRAGMA synchronous = NORMAL"))
    }

    fn open_with(
        path: &Path,
        group: usize,
        prepare: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<Self, StoreError> {
        let turnstile = Arc::new(Turnstile::open(path)?);
        let writer = turnstile.pass(|| {
            let mut writer = connection::open(path)?;
            migrations::run(&mut writer, path)?;
            prepare(&writer).map_err(|err| StoreError::sql(path, err))?;
            Ok(writer)
        })?;
        let space = Arc::new(Space::of(path));
        let checkpointer = Checkpointer::start(path, space.clone())?;
        let queue = Arc::new(Queue::default());
        let work = Arc::new(Work::new());
        let through = Arc::new(Through::new());
        let writer = writer::Writer::new(
            (writer, path),
            group,
            turnstile.clone(),
            space.clone(),
            checkpointer.watch(),
            (work.clone(), through.clone()),
        )?;
        let thread = writer.start(queue.clone())?;
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            queue,
            work,
            readers: Mutex::default(),
            #[cfg(feature = "simulation")]
            stepped: None,
            turnstile,
            space,
            checkpointer: Some(checkpointer),
            writer: Some(thread),
            through,
        })))
    }

    /// Opens the ledger to serve it: room on its disk is kept back and watched from now on, and a full disk is
    /// opened with the room that was kept back before.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_guarded(path: &Path, group: usize) -> Result<Self, StoreError> {
        let opened = match Self::open_grouping(path, group) {
            Err(err) if err.is_out_of_room() && space::give_up(path) => Self::open_grouping(path, group),
            opened => opened,
        }?;
        opened.0.space.guard();
        Ok(opened)
    }

    /// Whether there is room on the disk for new work. What settles what is there is done in any case.
    pub fn has_room(&self) -> bool {
        !self.0.space.is_tight()
    }

    /// Looks at the room on the disk, as a server does from time to time.
    pub fn watch_room(&self) {
        self.0.space.look_again();
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Runs `look` on the calling thread over one snapshot of the ledger. It cannot change anything.
    ///
    /// # Errors
    /// What `look` fails with, and failures of the engine.
    pub fn read<T>(&self, look: impl FnOnce(&Tx<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let path = &self.0.path;
        let kept = self.readers().pop();
        let connection = match kept {
            Some(connection) => connection,
            None => connection::open_reader(path)?,
        };
        let tx = Tx { connection: &connection, path, directory: &Cell::default() };
        tx.execute("BEGIN", &[])?;
        let seen = look(&tx);
        // A connection that cannot end its transaction is not used again.
        if tx.execute("ROLLBACK", &[]).is_ok() {
            let mut readers = self.readers();
            if readers.len() < READERS_KEPT {
                readers.push(connection);
            }
        }
        seen
    }

    fn readers(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.0.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `change` in the writer and waits until it is committed. It may run twice, of which only the last time
    /// counts. Must not be called from a `done` of [`submit`](Self::submit), which runs in the writer itself.
    ///
    /// # Errors
    /// What `change` fails with (nothing of it is kept then), and a commit that failed.
    pub fn write<T: Send + 'static>(
        &self,
        change: impl Fn(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (tell, told) = mpsc::sync_channel(1);
        self.submit(change, move |outcome| {
            // The caller waits below; if its thread is gone, nobody is left to tell.
            let _ = tell.send(outcome);
        });
        #[cfg(feature = "simulation")]
        self.step_until_idle();
        told.recv().unwrap_or(Err(StoreError::Closed))
    }

    /// Hands `change` to the writer and returns at once. `done` runs after the commit or the failure, on the writer's
    /// thread or where [`answer_through`](Self::answer_through) has it run; it must be quick and must not wait for the
    /// ledger.
    pub fn submit<T: Send + 'static>(
        &self,
        change: impl Fn(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
        done: impl FnOnce(Result<T, StoreError>) + Send + 'static,
    ) {
        self.0.queue.push(Task::boxed(change, done), true);
    }

    /// The same for a change that nobody waits for, and whose loss in a crash does no harm: it shares the commit of
    /// the next change that is waited for.
    pub fn submit_lazily<T: Send + 'static>(
        &self,
        change: impl Fn(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
        done: impl FnOnce(Result<T, StoreError>) + Send + 'static,
    ) {
        self.0.queue.push(Task::boxed(change, done), false);
    }

    /// The number of the state that organisations, hosts and sources are in, and what operators have done to queues.
    /// It is another one before anybody is told that they were changed, by this process or another. `None` when it
    /// cannot be told.
    pub fn directory_state(&self) -> Option<u64> {
        self.0.turnstile.directory_state()
    }

    /// From now on the writer hands the answers of each commit to `through`, which has them given, one commit's after
    /// the other's, on a thread that waits for no change; the writer goes on meanwhile. Only the first call counts.
    pub fn answer_through(&self, through: impl Fn(Answers) + Send + Sync + 'static) {
        let _ = self.0.through.set(Box::new(through));
    }

    /// What the writer has done so far.
    pub fn stats(&self) -> Stats {
        let sizes = self.0.work.sizes.read();
        Stats { commits: sizes.count, changes: sizes.sum }
    }

    /// The same in full, and how it is doing.
    pub fn work(&self) -> &Work {
        &self.0.work
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(writer) = self.writer.take() {
            // The last handle may go away inside a `done`, on the writer's own thread, which then ends by itself.
            if writer.thread().id() != std::thread::current().id() {
                let _ = writer.join();
            }
        }
        drop(self.checkpointer.take());
    }
}

/// One transaction, or one savepoint of it.
pub struct Tx<'a> {
    connection: &'a Connection,
    path: &'a Path,
    /// Whether the directory was changed.
    directory: &'a Cell<bool>,
}

impl Tx<'_> {
    /// Runs a statement that answers no rows; answers how many rows it changed.
    ///
    /// # Errors
    /// What the engine says.
    pub fn execute(&self, sql: &str, values: &[Value<'_>]) -> Result<usize, StoreError> {
        let run = || self.connection.prepare_cached(sql)?.execute(params_from_iter(values));
        run().map_err(|err| StoreError::sql(self.path, err))
    }

    /// What a Worker remembers of the directory, or believes to be waiting, is not true any more once this is
    /// committed. Whoever changes what may be remembered, or changes a queue beside the Worker, says so.
    pub(super) fn directory_changed(&self) {
        self.directory.set(true);
    }

    /// Inserts one row into a table whose key is `seq` and answers the row's; `None` when `ON CONFLICT` kept it out.
    /// Dearer for an engine than this is `RETURNING`, which makes a table of its answer first.
    ///
    /// # Errors
    /// What the engine says.
    pub fn insert(&self, sql: &str, values: &[Value<'_>]) -> Result<Option<i64>, StoreError> {
        let inserted = self.execute(sql, values)? == 1;
        Ok(inserted.then(|| self.connection.last_insert_rowid()))
    }

    /// The first row of a query (or of a change with `RETURNING`), if there is one.
    ///
    /// # Errors
    /// What the engine or `read` says.
    pub fn one<T>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        read: impl FnOnce(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let failed = |err| StoreError::sql(self.path, err);
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let mut rows = statement.query(params_from_iter(values)).map_err(failed)?;
        let Some(row) = rows.next().map_err(failed)? else { return Ok(None) };
        read(&Row { row, path: self.path }).map(Some)
    }

    /// All rows of a query, in its order.
    ///
    /// # Errors
    /// What the engine or `read` says.
    pub fn all<T>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        mut read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let failed = |err| StoreError::sql(self.path, err);
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let mut rows = statement.query(params_from_iter(values)).map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            found.push(read(&Row { row, path: self.path })?);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
