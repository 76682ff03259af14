//! What survives: the host's spool and the Worker's ledger, and the few files beside them.
//!
//! All SQL of the project is here. Programs meet only in these rows: a row that is committed is a promise, and
//! everything else is a hint.

pub mod config;
pub mod files;
pub mod home;
pub mod ledger;
pub mod password;
pub mod process;
pub mod records;
pub mod seal;
pub mod spool;
pub mod tally;
pub mod transcript;

use std::io;
use std::path::{Path, PathBuf};

/// Why something could not be stored or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file could not be made, read or written.
    #[error("could not {doing} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Something else stands where the file should be.
    #[error("{} is {what}", path.display())]
    InTheWay {
        /// Where.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// A file or directory of another user.
    #[error("{} belongs to another user", path.display())]
    Foreign {
        /// Which one.
        path: PathBuf,
    },
    /// The configuration is not what it should be.
    #[error("{} is no valid configuration: {why}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its place.
        why: String,
    },
    /// No space is left for the database.
    #[error("no space is left for {}", path.display())]
    Full {
        /// The database.
        path: PathBuf,
    },
    /// The file is no database, or a damaged one.
    #[error("{} is damaged or no database: {why}", path.display())]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What the engine says.
        why: String,
    },
    /// The database, or its directory, cannot be written to.
    #[error("{} cannot be written, or its directory cannot", path.display())]
    ReadOnly {
        /// The database.
        path: PathBuf,
    },
    /// Other processes kept the database for longer than anybody waits.
    #[error("{} is kept locked by another process", path.display())]
    Locked {
        /// The database.
        path: PathBuf,
    },
    /// The database was made by a newer version.
    #[error("{} was made by a newer version (schema {found}, this program knows {known})", path.display())]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest schema that this program knows.
        known: u32,
    },
    /// Another process has it.
    #[error("{} is in use by process {pid}", path.display())]
    Busy {
        /// What is in use.
        path: PathBuf,
        /// By whom.
        pid: u32,
    },
    /// Any other failure of the engine.
    #[error("database {}: {source}", path.display())]
    Sql {
        /// The database.
        path: PathBuf,
        /// What the engine says.
        source: rusqlite::Error,
    },
    /// A small file, such as a token or the configuration, is far larger than it can be.
    #[error("{} is longer than {longest} bytes, and so not what it should be", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// How long it may be, in bytes.
        longest: u64,
    },
    /// A limit of the store is reached.
    #[error("{what} is full ({limit} entries)")]
    LimitReached {
        /// What is full.
        what: &'static str,
        /// How many it holds.
        limit: u64,
    },
    /// A stored secret cannot be opened with this master key.
    #[error("a stored secret cannot be opened: the master key is another one, or the row is damaged")]
    Sealed,
    /// A rule of the ledger does not allow it; nothing was changed.
    #[error(transparent)]
    Refused(#[from] ledger::Refusal),
    /// A change to the ledger failed by a bug of ours; nothing of it was kept.
    #[error("a change to the ledger panicked: {what}")]
    Panicked {
        /// What it said.
        what: String,
    },
    /// The store's thread is gone; the process is stopping.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }

    /// The same failure of the engine, as its kind.
    pub(crate) fn sql(path: &Path, source: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{
            CannotOpen, DatabaseBusy, DatabaseCorrupt, DatabaseLocked, DiskFull, NotADatabase,
            PermissionDenied, ReadOnly, SystemIoFailure,
        };
        match source.sqlite_error_code() {
            Some(DiskFull) => Self::Full { path: path.to_owned() },
            // The engine's shared memory is a file as well, and it does not say why that could not grow.
            Some(SystemIoFailure) if files::is_disk_full(path) => Self::Full { path: path.to_owned() },
            Some(CannotOpen | PermissionDenied | ReadOnly) => Self::ReadOnly { path: path.to_owned() },
            Some(DatabaseBusy | DatabaseLocked) => Self::Locked { path: path.to_owned() },
            Some(DatabaseCorrupt | NotADatabase) => {
                Self::Damaged { path: path.to_owned(), why: source.to_string() }
            }
            None if is_of_a_value(&source) => Self::Damaged {
                path: path.to_owned(),
                why: format!("a row holds what was never stored: {source}"),
            },
            _ => Self::Sql { path: path.to_owned(), source },
        }
    }

    /// Whether it is the disk that takes no more: it may still be read, and everything is well once there is room.
    pub fn is_out_of_room(&self) -> bool {
        let code = match self {
            Self::Full { .. } => return true,
            Self::Sql { source, .. } => source.sqlite_error_code(),
            _ => None,
        };
        // A limit on the size of files is told like this.
        code == Some(rusqlite::ErrorCode::SystemIoFailure)
    }

    /// Whether the same call may succeed later without anybody doing something about it.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Locked { .. } | Self::LimitReached { .. } | Self::Closed)
    }
}

/// Whether the engine read a row well, and a value in it is of no kind that this program writes.
fn is_of_a_value(err: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    matches!(
        err,
        FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..)
    )
}
