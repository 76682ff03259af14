//! A look at a spool that changes nothing and makes nothing, also where nothing can be written.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::outbox::row::{FIELD_COUNT, FIELDS, decode};
use super::outbox::{COLUMNS, Entry, EntryKind, Fault, Row, State, read_entry, read_kind, read_state};
use super::{BUSY_WAIT, KNOWN, SPOOL_DB, Spool, version, with_suffix};
use crate::clock::Wall;
use crate::store::StoreError;

/// Findings of the engine about a file that are told.
const MOST_FINDINGS: u32 = 100;

/// Which entries are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// Those that wait or are being tried.
    Pending,
    /// Those that the other side has.
    Sent,
    /// Those that were refused or grew too old.
    Dead,
}

impl Which {
    /// Whether an entry in this state is one of them.
    pub fn holds(self, state: State) -> bool {
        match self {
            Self::All => true,
            Self::Pending => matches!(state, State::Pending | State::Claimed),
            Self::Sent => state == State::Sent,
            Self::Dead => state == State::Dead,
        }
    }

    fn sql(self) -> &'static str {
        match self {
            Self::All => "1",
            Self::Pending => "state IN ('pending', 'claimed')",
            Self::Sent => "state = 'sent'",
            Self::Dead => "state = 'dead'",
        }
    }
}

/// An entry in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its place, after which the next page begins.
    pub seq: i64,
    /// The entry; its body is left where it is, and empty here.
    pub entry: Entry,
    /// How long its body is, in bytes.
    pub bytes: u64,
}

/// How much there is of one kind in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Which kind.
    pub kind: EntryKind,
    /// Which state. What a process that is gone had claimed counts as pending.
    pub state: State,
    /// Entries.
    pub entries: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Attempts that they have cost.
    pub attempts: u64,
    /// When the oldest of them was added.
    pub oldest: Wall,
    /// When the first of them is due.
    pub next: Wall,
}

/// An open look.
#[derive(Debug)]
pub struct Look {
    db: Connection,
    path: PathBuf,
}

impl Look {
    /// Opens the spool of this data directory for looking. `None` when there is none. An older one is brought up to
    /// date where it can be written.
    ///
    /// # Errors
    /// When it belongs to somebody else, is damaged, or newer than this program.
    pub fn open(data_dir: &Path) -> Result<Option<Self>, StoreError> {
        let path = data_dir.join(SPOOL_DB);
        if !is_there(&path)? {
            return Ok(None);
        }
        let failed = |err| StoreError::sql(&path, err);
        let db = connect(&path).map_err(failed)?;
        match version(&db).map_err(failed)? {
            found if found > KNOWN => return Err(StoreError::Newer { path, found, known: KNOWN }),
            KNOWN => return Ok(Some(Self { db, path })),
            found => {
                drop(db);
                match Spool::open(data_dir) {
                    // The columns that are read here have been there from the first version on.
                    Err(StoreError::ReadOnly { .. } | StoreError::Io { .. } | StoreError::Full { .. })
                        if found > 0 => {}
                    Err(err) => return Err(err),
                    Ok(_) => {}
                }
            }
        }
        let db = connect(&path).map_err(failed)?;
        Ok(Some(Self { db, path }))
    }

    /// Where the database is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The entry of this id.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn get(&self, id: &str, now: Wall) -> Result<Option<Entry>, StoreError> {
        self.read(|db| {
            let sql = format!("SELECT {COLUMNS} FROM outbox WHERE id = ?1");
            db.prepare_cached(&sql)?.query_row([id], |row| read_entry(row, now)).optional()
        })
    }

    /// The next entries after the place `after`, at most `most`, in the order in which they were added.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn page(&self, which: Which, after: i64, most: u32, now: Wall) -> Result<Vec<Listed>, StoreError> {
        self.read(|db| {
            let columns = COLUMNS.replace(" body,", " x'',");
            let sql = format!(
                "SELECT {columns}, seq, length(body) FROM outbox NOT INDEXED
                 WHERE seq > ?1 AND {} ORDER BY seq LIMIT ?2",
                which.sql()
            );
            let mut query = db.prepare_cached(&sql)?;
            let listed = query.query_map((after, most), |row| {
                let bytes = row.get::<_, i64>(20)?.cast_unsigned();
                Ok(Listed { seq: row.get(19)?, entry: read_entry(row, now)?, bytes })
            })?;
            listed.collect()
        })
    }

    /// The next rows after the place `after`, at most `most`, each as it stands in the file or with what is wrong
    /// with it.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn rows(&self, after: i64, most: u32) -> Result<Vec<Result<Row, Fault>>, StoreError> {
        self.read(|db| {
            let fields =
                if version(db)? < KNOWN { FIELDS.replace(" digest,", " NULL,") } else { FIELDS.to_owned() };
            let sql = format!("SELECT {fields} FROM outbox NOT INDEXED WHERE seq > ?1 ORDER BY seq LIMIT ?2");
            let mut query = db.prepare_cached(&sql)?;
            let rows = query.query_map((after, most), |row| {
                let values = (0..FIELD_COUNT).map(|column| stored(row, column));
                Ok(decode(values.collect::<rusqlite::Result<_>>()?))
            })?;
            rows.collect()
        })
    }

    /// What the engine finds wrong with the file, at most a hundred findings; none in a sound one. `thorough` also
    /// compares every index with its table.
    ///
    /// # Errors
    /// When the engine cannot even look.
    pub fn structure(&self, thorough: bool) -> Result<Vec<String>, StoreError> {
        let check = if thorough { "integrity_check" } else { "quick_check" };
        self.read(|db| {
            let mut query = db.prepare(&format!("PRAGMA {check}({MOST_FINDINGS})"))?;
            let found = query.query_map([], |row| row.get::<_, String>(0))?;
            Ok(found.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().filter(|line| line != "ok").collect())
        })
    }

    /// How much there is of each kind in each state.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn groups(&self, now: Wall) -> Result<Vec<Group>, StoreError> {
        let mut groups: Vec<Group> = Vec::new();
        let rows = self.read(|db| {
            // What is claimed is looked at one by one, because only the kernel knows who is gone.
            let mut query = db.prepare(
                "SELECT kind, state, COUNT(*), SUM(length(body)), SUM(attempts), MIN(created_at),
                 MIN(CASE WHEN next_attempt_at > ?1 + longest_wait THEN ?1 ELSE next_attempt_at END),
                 claim_pid, claim_start
                 FROM outbox GROUP BY kind, state, claim_pid, claim_start",
            )?;
            let rows = query.query_map([now.0], |row| {
                let count = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
                let stored = read_state(row, 1)?;
                let is_lapsed = stored == State::Claimed && !super::outbox::read_claim(row, 7)?.is_alive();
                Ok(Group {
                    kind: read_kind(row, 0)?,
                    state: if is_lapsed { State::Pending } else { stored },
                    entries: count(2)?,
                    bytes: count(3)?,
                    attempts: count(4)?,
                    oldest: Wall(row.get(5)?),
                    next: Wall(row.get(6)?),
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        for row in rows {
            match groups.iter_mut().find(|group| (group.kind, group.state) == (row.kind, row.state)) {
                None => groups.push(row),
                Some(group) => {
                    group.entries += row.entries;
                    group.bytes += row.bytes;
                    group.attempts += row.attempts;
                    (group.oldest, group.next) = (group.oldest.min(row.oldest), group.next.min(row.next));
                }
            }
        }
        Ok(groups)
    }

    fn read<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        f(&self.db).map_err(|err| StoreError::sql(&self.path, err))
    }
}

/// A value as it stands in the file. Text that is no UTF-8 is none, and comes as the bytes that it is.
fn stored(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Value> {
    match row.get_ref(column)? {
        ValueRef::Text(bytes) if std::str::from_utf8(bytes).is_err() => Ok(Value::Blob(bytes.to_owned())),
        _ => row.get(column),
    }
}

/// Whether there is a spool that this user may look at.
pub(super) fn is_there(path: &Path) -> Result<bool, StoreError> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            Err(StoreError::InTheWay { path: path.to_owned(), what: "not a file" })
        }
        Ok(found) if found.uid() != rustix::process::geteuid().as_raw() => {
            Err(StoreError::Foreign { path: path.to_owned() })
        }
        Ok(found) => {
            refuse_cut(path, found.len())?;
            Ok(true)
        }
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(err) if err.kind() == io::ErrorKind::NotADirectory => Err(StoreError::InTheWay {
            path: path.parent().unwrap_or(path).to_owned(),
            what: "not a directory",
        }),
        Err(err) => Err(closed_by_another(path).unwrap_or_else(|| StoreError::io("read", path, err))),
    }
}

/// A directory of somebody else, which lets nobody look into it: the usual reason why a spool cannot be seen.
fn closed_by_another(path: &Path) -> Option<StoreError> {
    let directory = path.parent()?;
    let owner = fs::metadata(directory).ok()?.uid();
    (owner != rustix::process::geteuid().as_raw()).then(|| StoreError::Foreign { path: directory.to_owned() })
}

/// The engine takes an empty database for a new one, and removes the log beside it. But a log with rows in it says
/// that there was something. It takes one that is shorter than any page for a new one too.
pub(super) fn refuse_cut(path: &Path, length: u64) -> Result<(), StoreError> {
    const SHORTEST_PAGE: u64 = 512;
    let has_log = || fs::metadata(with_suffix(path, "-wal")).is_ok_and(|log| log.len() > 0);
    let why = match length {
        0 if has_log() => "it is empty, and its log is not",
        1..SHORTEST_PAGE => "it is cut off",
        _ => return Ok(()),
    };
    Err(StoreError::Damaged { path: path.to_owned(), why: why.to_owned() })
}

/// Opens the database for reading alone.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    use rusqlite::ErrorCode::{CannotOpen, DiskFull, ReadOnly, SystemIoFailure};
    let first = match try_connect(path, "") {
        Err(err)
            if matches!(
                err.sqlite_error_code(),
                Some(CannotOpen | DiskFull | ReadOnly | SystemIoFailure)
            ) =>
        {
            err
        }
        done => return done,
    };
    // Its directory, or its disk, takes nothing. Then what readers share is made in memory from the log; and without
    // a log nobody is changing the database.
    let has_log = fs::metadata(with_suffix(path, "-wal")).is_ok_and(|log| log.len() > 0);
    try_connect(path, if has_log { "?readonly_shm=1" } else { "?immutable=1" }).map_err(|_| first)
}

fn try_connect(path: &Path, how: &str) -> rusqlite::Result<Connection> {
    use rusqlite::config::DbConfig::{SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, SQLITE_DBCONFIG_TRUSTED_SCHEMA};
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = match url::Url::from_file_path(path) {
        Ok(url) if !how.is_empty() => {
            Connection::open_with_flags(format!("{url}{how}"), flags | OpenFlags::SQLITE_OPEN_URI)?
        }
        _ => Connection::open_with_flags(path, flags)?,
    };
    db.busy_timeout(BUSY_WAIT)?;
    db.set_db_config(SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    db.set_db_config(SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Only a read finds out whether the log beside it can be used.
    version(&db)?;
    Ok(db)
}
