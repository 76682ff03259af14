//! Connections to the ledger's file, and taking turns at it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::FlockOperation;

use crate::id::fill_random;
use crate::store::{StoreError, files};

/// Statements that a connection keeps prepared; the ledger has fewer than this.
const STATEMENTS_KEPT: usize = 256;
/// How often the file is tried again while another process has it, a millisecond apart.
const BUSY_TRIES: i32 = 30_000;

/// `path` with `suffix` after its whole name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Opens, or makes, a file 0600 that processes lock. It comes before the database itself, so that it is also what
/// makes a directory that is missing.
pub(super) fn open_lock(path: &Path) -> Result<File, StoreError> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists()) {
        files::private_dir(dir)?;
    }
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|err| StoreError::io("open", path, err))
}

/// Makes the processes that write take turns. SQLite lets whoever tries in the right moment have the file, so a
/// busy server would keep an operator's command waiting; whoever stands in the turnstile is next.
///
/// Its file also says which state the directory (organisations, hosts, sources) is in, as a number that never comes
/// again: what a Worker remembers of the directory is good as long as the number stands, and asking costs far less
/// than a look into a database that changes all the time.
pub(super) struct Turnstile {
    file: File,
    path: PathBuf,
}

impl Turnstile {
    pub(super) fn open(database: &Path) -> Result<Self, StoreError> {
        let path = beside(database, ".turn");
        Ok(Self { file: open_lock(&path)?, path })
    }

    /// The number of the directory's state; `None` when it cannot be read, and then nothing may be remembered.
    pub(super) fn directory_state(&self) -> Option<u64> {
        let mut number = [0; 8];
        // A file that is shorter was never written to, which is a state as well.
        self.file.read_at(&mut number, 0).ok()?;
        Some(u64::from_le_bytes(number))
    }

    /// The directory is another one now.
    pub(super) fn directory_changed(&self) {
        let mut number = [0; 8];
        fill_random(&mut number);
        if let Err(err) = self.file.write_all_at(&number, 0) {
            // What is remembered grows too old by itself.
            tracing::warn!(%err, path = %self.path.display(), "cannot tell that the directory changed");
        }
    }

    /// Does `step` when it is this one's turn.
    pub(super) fn pass<T>(&self, step: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let lock = |operation| loop {
            match rustix::fs::flock(&self.file, operation) {
                Err(rustix::io::Errno::INTR) => {}
                locked => return locked.map_err(|err| StoreError::io("lock", &self.path, err.into())),
            }
        };
        lock(FlockOperation::LockExclusive)?;
        let outcome = step();
        lock(FlockOperation::Unlock)?;
        outcome
    }
}

/// A connection that may write. The file is made, 0600, when it is absent.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    make_private(path)?;
    let connection = prepare(path)?;
    // The answer is the mode that the file has now; a file system without shared memory answers another one.
    let set = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
    let mode = set.map_err(|err| StoreError::sql(path, err))?;
    if mode != "wal" {
        return Err(StoreError::InTheWay {
            path: path.to_owned(),
            what: "on a file system that cannot hold a database with a write-ahead log",
        });
    }
    // The page cache stays small: after nearly every commit the engine walks through all of its slots, which costs
    // more than reading the pages that it does not hold back from the system.
    connection
        .execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA wal_autocheckpoint = 0")
        .map_err(|err| StoreError::sql(path, err))?;
    Ok(connection)
}

/// A connection that only reads.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let connection = prepare(path)?;
    connection.execute_batch("PRAGMA query_only = ON").map_err(|err| StoreError::sql(path, err))?;
    Ok(connection)
}

fn prepare(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let failed = |err| StoreError::sql(path, err);
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    // The engine opens what it may not write for reading only, and says so at the first change.
    if connection.is_readonly("main").map_err(failed)? {
        return Err(StoreError::ReadOnly { path: path.to_owned() });
    }
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    // Plans do not depend on the values that are bound. Otherwise a prepared statement is parsed anew for every
    // value, which was a quarter of the time that taking an event took.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(failed)?;
    let wait = |tried: i32| {
        std::thread::sleep(Duration::from_millis(1));
        tried < BUSY_TRIES
    };
    connection.busy_handler(Some(wait)).map_err(failed)?;
    Ok(connection)
}

/// The file is never opened here when it exists: closing it would drop the locks that another connection of this
/// process has on it.
fn make_private(path: &Path) -> Result<(), StoreError> {
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::metadata(path).map_err(|err| StoreError::io("open", path, err))?;
            if !found.is_file() {
                return Err(StoreError::InTheWay { path: path.to_owned(), what: "not a file" });
            }
            if found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 != 0 {
                fs::set_permissions(path, Permissions::from_mode(0o600))
                    .map_err(|err| StoreError::io("make private", path, err))?;
            }
            Ok(())
        }
        Err(err) => Err(StoreError::io("make", path, err)),
    }
}
