//! The spool of one host: one SQLite file that outlives every process that uses it.
//!
//! Any number of processes use it at once. Writers queue at `spool.lock` before they ask SQLite for its write
//! lock, because the kernel serves that queue in order and SQLite's retries do not. A row is a promise once its
//! transaction is committed: write-ahead log, `synchronous=FULL`.

pub mod agents;
pub mod ending;
pub mod held;
pub mod inbox;
pub mod local;
pub mod look;
pub mod outbox;
pub mod passed;
mod renaming;
pub mod rescue;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use rustix::fs::FlockOperation;

use super::{StoreError, files};

/// The database's name in the data directory.
pub const SPOOL_DB: &str = "spool.db";
/// The name of the file at which writers queue.
const SPOOL_LOCK: &str = "spool.lock";
/// The name of the file that says who flushes.
const FLUSH_LOCK: &str = "flush.lock";

/// Every schema step, oldest first. A database's `user_version` is the number of steps it has been through; a
/// step that was released is never changed, only followed by another.
const MIGRATIONS: &[&str] = &[
    include_str!("../sql/spool_0001_outbox.sql"),
    include_str!("../sql/spool_0002_inbox.sql"),
    include_str!("../sql/spool_0003_order.sql"),
    include_str!("../sql/spool_0004_declared.sql"),
    include_str!("../sql/spool_0005_whole.sql"),
];

/// The newest schema that this program knows.
const KNOWN: u32 = MIGRATIONS.len() as u32;

/// Nobody keeps the database locked for long: writers queue elsewhere, and readers do not lock.
const BUSY_WAIT: Duration = Duration::from_secs(10);

/// Pages of the write-ahead log after which the writer puts them into the database. Small, so that a process
/// that opens the spool for one message has little to read.
const CHECKPOINT_PAGES: u32 = 250;

/// Room on the disk, in bytes, that new entries leave free: as much as the log and the database may still grow until
/// the log starts over. So what is in the spool already can be claimed and settled when the disk takes no more of it.
const SETTLING_ROOM: u64 = (CHECKPOINT_PAGES as u64 + 64) * 4096;

/// One connection to the spool. Every thread opens its own.
#[derive(Debug)]
pub struct Spool {
    db: Connection,
    lock: File,
    path: PathBuf,
}

impl Spool {
    /// Opens the spool of this data directory; makes both, or brings an older database up to date.
    ///
    /// # Errors
    /// When the directory or a file cannot be made or belongs to somebody else, and when the database is damaged
    /// or newer than this program.
    pub fn open(data_dir: &Path) -> Result<Self, StoreError> {
        files::private_dir(data_dir)?;
        let path = data_dir.join(SPOOL_DB);
        let lock = open_private(&data_dir.join(SPOOL_LOCK))?;
        let length =
            open_private(&path)?.metadata().map_err(|err| StoreError::io("look at", &path, err))?.len();
        look::refuse_cut(&path, length)?;
        let db = Connection::open(&path).map_err(|err| StoreError::sql(&path, err))?;
        let mut spool = Self { db, lock, path };
        spool.configure().map_err(|err| StoreError::sql(&spool.path, err))?;
        spool.migrate()?;
        spool.tighten()?;
        Ok(spool)
    }

    /// The same, but a spool that is not there is not made either: `None`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_existing(data_dir: &Path) -> Result<Option<Self>, StoreError> {
        if look::is_there(&data_dir.join(SPOOL_DB))? { Self::open(data_dir).map(Some) } else { Ok(None) }
    }

    /// Where the database is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `f` in one transaction that is on the disk when this returns. Waits for its turn behind the writers
    /// that came before, of whatever process.
    ///
    /// # Errors
    /// When `f` fails, or the transaction cannot be committed; nothing of it has then happened.
    fn write<T>(&mut self, f: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let _turn = Turn::take(&self.lock, &self.path)?;
        let run = || {
            let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = f(&tx)?;
            tx.commit()?;
            Ok(value)
        };
        run().map_err(|err| StoreError::sql(&self.path, err))
    }

    /// Refuses to take an entry of so many bytes while the disk has too little room for it.
    fn need_room(&self, bytes: usize) -> Result<(), StoreError> {
        // It stands in the log first and then in the database.
        if files::has_room(&self.path, SETTLING_ROOM + 2 * bytes as u64) {
            return Ok(());
        }
        Err(StoreError::Full { path: self.path.clone() })
    }

    /// Runs `f` on the rows as they are, without waiting for writers.
    ///
    /// # Errors
    /// When `f` fails.
    fn read<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        f(&self.db).map_err(|err| StoreError::sql(&self.path, err))
    }

    fn configure(&self) -> rusqlite::Result<()> {
        self.db.busy_timeout(BUSY_WAIT)?;
        self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // The last process to leave would otherwise move the whole log at its end: three more syncs a message.
        self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        self.db.pragma_update(None, "synchronous", "FULL")?;
        self.db.pragma_update(None, "foreign_keys", true)?;
        // What was removed is gone from the file too; so a rescue, which reads pages and not tables, finds only rows
        // that are there.
        self.db.pragma_update(None, "secure_delete", true)?;
        self.db.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)
    }

    fn migrate(&mut self) -> Result<(), StoreError> {
        let found = self.read(version)?;
        self.refuse_newer(found)?;
        if found == KNOWN {
            return Ok(());
        }
        if found == 0 && self.read(is_anothers)? {
            return Err(StoreError::InTheWay { path: self.path.clone(), what: "another program's database" });
        }
        {
            // It is made with the spool, because a full disk may have no room for it later.
            open_private(&self.path.with_file_name(FLUSH_LOCK))?;
            // Changing the journal mode does not wait for other connections, so it has its turn like a writer.
            let _turn = Turn::take(&self.lock, &self.path)?;
            self.db
                .pragma_update(None, "journal_mode", "WAL")
                .map_err(|err| StoreError::sql(&self.path, err))?;
        }
        let found = self.write(|tx| {
            let found = version(tx)?;
            for (step, sql) in (1..=KNOWN).zip(MIGRATIONS).skip(found as usize) {
                tx.execute_batch(sql)?;
                tx.pragma_update(None, "user_version", step)?;
            }
            Ok(found)
        })?;
        self.refuse_newer(found)
    }

    fn refuse_newer(&self, found: u32) -> Result<(), StoreError> {
        if found <= KNOWN {
            return Ok(());
        }
        Err(StoreError::Newer { path: self.path.clone(), found, known: KNOWN })
    }

    /// SQLite gives its log the mode that the database has; a database from a careless copy is mended here.
    fn tighten(&self) -> Result<(), StoreError> {
        for suffix in ["", "-wal", "-shm"] {
            let path = with_suffix(&self.path, suffix);
            match fs::metadata(&path) {
                Ok(found) if found.mode() & 0o077 != 0 => {
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
                        .map_err(|err| StoreError::io("make private", &path, err))?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn version(db: &Connection) -> rusqlite::Result<u32> {
    // It is a signed number in the file's head; a negative one is nothing that any version wrote.
    let found: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(u32::try_from(found).unwrap_or(u32::MAX))
}

/// Whether another program has made tables in a database: our first step makes its tables and its version at once.
fn is_anothers(db: &Connection) -> rusqlite::Result<bool> {
    // One look at both, because that step may be under way.
    let tx = db.unchecked_transaction()?;
    let has_tables = tx.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))?;
    Ok(has_tables && version(&tx)? == 0)
}

/// The name of a file that stands beside another.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Opens a file of ours, or makes it, 0600.
fn open_private(path: &Path) -> Result<File, StoreError> {
    let failed = |err| StoreError::io("open", path, err);
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            return Err(StoreError::InTheWay { path: path.to_owned(), what: "not a file" });
        }
        Ok(found) if found.uid() != rustix::process::geteuid().as_raw() => {
            return Err(StoreError::Foreign { path: path.to_owned() });
        }
        _ => {}
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(failed)
}

/// The right to flush, which one command at a time has. It ends with its process, in whatever way that ends.
#[derive(Debug)]
pub struct FlushLock(#[allow(dead_code)] File); // held, never read

impl FlushLock {
    /// Takes it. `None` when another process has it.
    ///
    /// # Errors
    /// When its file cannot be opened or locked.
    pub fn try_take(data_dir: &Path) -> Result<Option<Self>, StoreError> {
        let path = data_dir.join(FLUSH_LOCK);
        let file = open_private(&path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(err) => Err(StoreError::io("lock", &path, err.into())),
        }
    }

    /// Waits for it.
    ///
    /// # Errors
    /// As [`try_take`](Self::try_take).
    pub fn take(data_dir: &Path) -> Result<Self, StoreError> {
        let path = data_dir.join(FLUSH_LOCK);
        let file = open_private(&path)?;
        lock(&file, &path)?;
        Ok(Self(file))
    }
}

/// Waits for a lock that the kernel hands on in order.
fn lock(file: &File, path: &Path) -> Result<(), StoreError> {
    loop {
        match rustix::fs::flock(file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(err) => return Err(StoreError::io("lock", path, err.into())),
        }
    }
}

/// A writer's turn, given back when dropped and when the process ends in whatever way.
struct Turn<'a>(&'a File);

impl<'a> Turn<'a> {
    fn take(file: &'a File, path: &Path) -> Result<Self, StoreError> {
        lock(file, path)?;
        Ok(Self(file))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // It can only fail for a descriptor that is none; and then there is nothing to give back.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests;
