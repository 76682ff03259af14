//! Moves the write-ahead log into the database, off the thread that commits.
//!
//! A passive checkpoint takes nobody's lock, but while changes keep coming the log never starts anew and only
//! grows. So once it is long, the writer is kept out for the moment that the rest takes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, DEFAULT_NAME};

use super::StoreError;
use super::connection::{self, Turnstile};
use super::space::Space;

/// Pages (4 KiB) by which the log grows between two passive checkpoints: 4 MiB.
const PASSIVE_PAGES: i32 = 1024;
/// Pages at which the log is made to start anew: 16 MiB. What is written over costs the system less than what makes
/// the file grow, and stays in its cache.
const RESTART_PAGES: i32 = 4 * 1024;
/// Before that, the log is moved until so few pages came meanwhile, 1 MiB, or so often; the writer waits for the rest.
/// As often is it moved, and made to start anew, where there is too little room on the disk.
const LEFT_PAGES: i32 = 256;
const PASSES: u32 = 6;
/// How long the writer and the readers are asked to stay away for that.
const RESTART_WAIT: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Shared {
    /// Pages of the log that are in the database already.
    moved: AtomicI32,
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    due: bool,
    closed: bool,
}

/// The thread that checkpoints. Dropping it ends the thread.
pub(super) struct Checkpointer {
    shared: Arc<Shared>,
    space: Arc<Space>,
    thread: Option<JoinHandle<()>>,
}

/// Where the writer says how long the log is.
pub(super) struct Watch(Arc<Shared>, Arc<Space>);

impl Checkpointer {
    pub(super) fn start(path: &Path, space: Arc<Space>) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::default());
        let worker = Worker {
            connection: connection::open(path)?,
            turnstile: Turnstile::open(path)?,
            path: path.to_owned(),
            shared: shared.clone(),
            space: space.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("ledger-checkpoint".into())
            .spawn(move || worker.run())
            .map_err(|err| StoreError::io("start the checkpoints of", path, err))?;
        Ok(Self { shared, space, thread: Some(thread) })
    }

    pub(super) fn watch(&self) -> Watch {
        Watch(self.shared.clone(), self.space.clone())
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.shared.woken.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Watch {
    /// One that nobody listens to.
    #[cfg(feature = "simulation")]
    pub(super) fn unheard(space: Arc<Space>) -> Self {
        Self(Arc::default(), space)
    }

    /// After a commit: the log holds this many pages.
    pub(super) fn log_has(&self, pages: i32) {
        let mut moved = self.0.moved.load(Ordering::Relaxed);
        if pages < moved {
            // The log began anew.
            self.0.moved.store(0, Ordering::Relaxed);
            moved = 0;
        }
        // Where there is little room, the log is to use its own again.
        let enough = if self.1.is_tight() { LEFT_PAGES } else { PASSIVE_PAGES };
        if pages - moved >= enough {
            self.0.state.lock().unwrap_or_else(PoisonError::into_inner).due = true;
            self.0.woken.notify_one();
        }
    }
}

struct Worker {
    connection: Connection,
    turnstile: Turnstile,
    path: PathBuf,
    shared: Arc<Shared>,
    space: Arc<Space>,
}

impl Worker {
    fn run(self) {
        while self.wait() {
            if let Err(err) = self.checkpoint() {
                // The log keeps everything; it only stays longer than it should.
                tracing::warn!(%err, "checkpoint failed");
            }
        }
    }

    /// Waits until a checkpoint is due. `false` when the ledger is closed.
    fn wait(&self) -> bool {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self
            .shared
            .woken
            .wait_while(state, |state| !state.due && !state.closed)
            .unwrap_or_else(PoisonError::into_inner);
        state.due = false;
        !state.closed
    }

    fn checkpoint(&self) -> Result<(), StoreError> {
        let checkpoint = |mode| self.connection.wal_checkpoint_v2(DEFAULT_NAME, mode);
        let failed = |err| StoreError::sql(&self.path, err);
        let mut passes = 0;
        loop {
            let (log, moved) = checkpoint(CheckpointMode::PASSIVE).map_err(failed)?;
            self.shared.moved.store(moved, Ordering::Relaxed);
            if log < RESTART_PAGES && !self.space.is_tight() {
                return Ok(());
            }
            passes += 1;
            if log - moved <= LEFT_PAGES {
                break;
            }
            if passes == PASSES {
                if log - moved > PASSIVE_PAGES {
                    // A reader stays at its snapshot, such as a backup: the writer would be kept out for nothing.
                    return Ok(());
                }
                break;
            }
        }
        self.turnstile.pass(|| {
            self.connection.busy_timeout(RESTART_WAIT).map_err(failed)?;
            match checkpoint(CheckpointMode::RESTART).map_err(failed) {
                // A reader is still at its snapshot: next time.
                Err(StoreError::Locked { .. }) => Ok(()),
                done => done.map(drop),
            }
        })
    }
}
