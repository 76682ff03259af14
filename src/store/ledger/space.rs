//! Room on the disk of the ledger: watched, kept back, and given up last.
//!
//! A full disk would stop everything, settling included, for that has to be written as well. So a server takes no new
//! work once less than [`FREE_FLOOR`] is free, and keeps a file beside the database, the ballast, whose room it gives
//! up when the disk is full all the same. The log is moved into the database at every turn then, so that its own
//! room is used again. When there is room, the ballast is taken anew, and work with it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};

use super::connection::beside;
use crate::store::files;

/// Bytes that have to be free for new work to be taken: more than the part of the log that is not in the database yet.
pub const FREE_FLOOR: u64 = 32 * 1024 * 1024;
/// Bytes of the ballast.
pub const BALLAST: u64 = 8 * 1024 * 1024;
/// So much more has to be free before new work is taken again.
const REGAIN: u64 = 4 * 1024 * 1024;
/// So long after the disk was found full, nothing is taken again: what the system tells of free room may not be ours.
const REGAIN_WAIT: Duration = Duration::from_secs(5);

/// The ballast of the ledger at `database`.
pub fn ballast_file(database: &Path) -> PathBuf {
    beside(database, ".ballast")
}

/// The room of one ledger.
pub(super) struct Space {
    database: PathBuf,
    ballast: PathBuf,
    /// Whether it is watched, as a server does.
    is_guarded: AtomicBool,
    is_tight: AtomicBool,
    full_at: Mutex<Option<Instant>>,
}

impl Space {
    pub(super) fn of(database: &Path) -> Self {
        Self {
            database: database.to_owned(),
            ballast: ballast_file(database),
            is_guarded: AtomicBool::new(false),
            is_tight: AtomicBool::new(false),
            full_at: Mutex::default(),
        }
    }

    /// Watches the room from now on, and takes the ballast.
    pub(super) fn guard(&self) {
        self.is_guarded.store(true, Ordering::Relaxed);
        self.watch();
        if self.is_tight() {
            return;
        }
        if let Err(err) = self.take_ballast() {
            tracing::warn!(file = %self.ballast.display(), %err, "cannot keep room back on the disk");
        }
        self.watch();
    }

    /// Whether new work is to be refused.
    pub(super) fn is_tight(&self) -> bool {
        self.is_tight.load(Ordering::Relaxed)
    }

    /// Whoever simulates a disk says how it is.
    #[cfg(feature = "simulation")]
    pub(super) fn set_tight(&self, is_tight: bool) {
        self.is_tight.store(is_tight, Ordering::Relaxed);
    }

    /// Looks whether there is too little room. Cheap enough for every commit.
    pub(super) fn watch(&self) {
        if !self.is_guarded.load(Ordering::Relaxed) || self.is_tight() {
            return;
        }
        if let Some(free) = files::free_bytes(&self.database).filter(|free| *free < FREE_FLOOR) {
            self.tighten(free);
        }
    }

    fn tighten(&self, free: u64) {
        if !self.is_tight.swap(true, Ordering::Relaxed) {
            let (database, needed) = (self.database.display(), FREE_FLOOR);
            tracing::error!(%database, free, needed, "too little room on the disk: no new work is taken");
        }
    }

    /// Looks whether there is enough room again.
    pub(super) fn look_again(&self) {
        self.watch();
        let was_full = *self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_tight() || was_full.is_some_and(|at| at.elapsed() < REGAIN_WAIT) {
            return;
        }
        let lacking = BALLAST.saturating_sub(fs::metadata(&self.ballast).map_or(0, |found| found.len()));
        let enough =
            files::free_bytes(&self.database).is_some_and(|free| free >= FREE_FLOOR + REGAIN + lacking);
        if !enough {
            return;
        }
        if let Err(err) = self.take_ballast() {
            tracing::debug!(%err, "the ballast cannot be taken again yet");
            return;
        }
        self.is_tight.store(false, Ordering::Relaxed);
        tracing::info!(database = %self.database.display(), "there is room on the disk again: new work is taken");
    }

    /// The disk is full: gives up the ballast. Whether that has made room.
    pub(super) fn release(&self) -> bool {
        if !self.is_guarded.load(Ordering::Relaxed) {
            return false;
        }
        *self.full_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.tighten(files::free_bytes(&self.database).unwrap_or(0));
        let released = fs::remove_file(&self.ballast).is_ok();
        if released {
            tracing::error!(file = %self.ballast.display(), "the disk is full: gave up the room that was kept back");
        }
        released
    }

    fn take_ballast(&self) -> io::Result<()> {
        let file =
            File::options().write(true).create(true).truncate(false).mode(0o600).open(&self.ballast)?;
        let taken = match fallocate(&file, FallocateFlags::empty(), 0, BALLAST) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => fill(&file),
            done => done.map_err(Into::into),
        };
        if taken.is_err() {
            // Half a ballast would only take away the room that is left.
            let _ = fs::remove_file(&self.ballast);
        }
        taken
    }
}

/// Takes the room where the file system knows no other way.
fn fill(mut file: &File) -> io::Result<()> {
    let piece = vec![0; 64 * 1024];
    for _ in 0..BALLAST / piece.len() as u64 {
        file.write_all(&piece)?;
    }
    file.sync_data()
}

/// Gives up the ballast of a ledger that is not open, for it cannot be opened on a full disk. Whether there was one.
pub(super) fn give_up(database: &Path) -> bool {
    fs::remove_file(ballast_file(database)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_ballast_is_real_private_and_given_up_once() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("w.db");
        fs::write(&database, "").unwrap();
        let space = Space::of(&database);
        assert!(!space.release() && !space.is_tight(), "a command guards nothing");
        space.guard();
        if files::free_bytes(&database).unwrap() < FREE_FLOOR + BALLAST {
            return;
        }
        let found = fs::metadata(ballast_file(&database)).unwrap();
        assert_eq!((found.len(), found.mode() & 0o777), (BALLAST, 0o600));
        assert!(found.blocks() * 512 >= BALLAST, "its room is taken");
        assert!(!space.is_tight());
        assert!(space.release() && space.is_tight());
        assert!(!space.release(), "there is nothing more to give up");
        space.look_again();
        assert!(space.is_tight(), "not at once: what was full is not believed to be empty");
        *space.full_at.lock().unwrap() = None;
        space.look_again();
        assert!(!space.is_tight() && ballast_file(&database).exists());
    }
}
