//! A look at a ledger that changes nothing: neither its rows nor its schema. And a copy of it.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::connection::{self, beside};
use super::{StoreError, Tx, migrations};

/// Pages of a copy between two syncs: 4 MiB. One large sync at the end would hold up the commits of the server.
const PAGES_AT_ONCE: i32 = 1024;
/// Findings of the engine that are told.
const MOST_FINDINGS: u32 = 100;

/// A ledger that is looked at, whether or not a server has it.
pub struct Look {
    connection: Connection,
    path: PathBuf,
    schema: u32,
}

impl Look {
    /// Opens the ledger at `path`, which must be there.
    ///
    /// # Errors
    /// When it is not there, cannot be used, is damaged or no ledger, or was made by a newer version.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        // The engine would tell a missing file and a forbidden one by the same code.
        let found = fs::metadata(path).map_err(|err| StoreError::io("read", path, err))?;
        if !found.is_file() {
            return Err(StoreError::InTheWay { path: path.to_owned(), what: "not a file" });
        }
        let has_log = fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0);
        let connection = connection::open_reader(path)?;
        // Whoever closes a database last moves its log into it, which this look has to leave to others.
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)
            .map_err(|err| StoreError::sql(path, err))?;
        let schema = migrations::version(&connection, path)?;
        Ok(Self { connection, path: path.to_owned(), schema })
    }

    /// Its schema; 0 is an empty file.
    pub fn schema(&self) -> u32 {
        self.schema
    }

    /// Runs `look` over one snapshot.
    ///
    /// # Errors
    /// What `look` fails with, and failures of the engine.
    pub fn read<T>(&self, look: impl FnOnce(&Tx<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let tx = Tx { connection: &self.connection, path: &self.path, directory: &Cell::default() };
        tx.execute("BEGIN", &[])?;
        let seen = look(&tx);
        tx.execute("ROLLBACK", &[])?;
        seen
    }

    /// What the engine finds wrong with the file: whether its pages hang together or, `deep`, whether its indexes
    /// agree with its tables as well. Empty when it is sound.
    ///
    /// # Errors
    /// When the file is too damaged to be looked at, or cannot be read.
    pub fn damage(&self, deep: bool) -> Result<Vec<String>, StoreError> {
        let check = if deep { "integrity_check" } else { "quick_check" };
        let sql = format!("PRAGMA {check}({MOST_FINDINGS})");
        let findings = self.read(|tx| tx.all(&sql, &[], |row| row.get::<String>(0)))?;
        Ok(if findings == ["ok"] { Vec::new() } else { findings })
    }

    /// Rows that refer to others which are not there, by table.
    ///
    /// # Errors
    /// As [`damage`](Self::damage).
    pub fn dangling(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let mut found: Vec<(String, u64)> = Vec::new();
        let tables = self.read(|tx| tx.all("PRAGMA foreign_key_check", &[], |row| row.get::<String>(0)))?;
        for table in tables {
            match found.iter_mut().find(|(name, _)| *name == table) {
                Some((_, count)) => *count += 1,
                None => found.push((table, 1)),
            }
        }
        Ok(found)
    }

    /// Copies the ledger, as it is now, to the file `target`, which is 0600, whole, and on the disk when this
    /// returns. A server goes on meanwhile. `progress` is told how many bytes of how many are copied.
    ///
    /// # Errors
    /// When `target` is there and `replaces` is not, when it is a file of this ledger or the log of another database lies
    /// beside it, when reading or writing fails, and when what was copied is damaged; then there is no new file, and
    /// one that was to be replaced is as it was.
    pub fn copy_to(
        &self,
        target: &Path,
        replaces: bool,
        progress: impl FnMut(u64, u64),
    ) -> Result<u64, StoreError> {
        check_target(&self.path, target, replaces)?;
        let copy = beside(target, &format!(".{}.tmp", std::process::id()));
        let copied = self.copy_pages(&copy, progress).and_then(|bytes| {
            put_in_place(&copy, target, replaces)?;
            Ok(bytes)
        });
        if copied.is_err() {
            let _ = fs::remove_file(&copy);
        }
        copied
    }

    fn copy_pages(&self, copy: &Path, mut progress: impl FnMut(u64, u64)) -> Result<u64, StoreError> {
        let wrote = |err| StoreError::io("write", copy, err);
        let file = File::options().write(true).create_new(true).mode(0o600).open(copy).map_err(wrote)?;
        let mut to = Connection::open(copy).map_err(|err| StoreError::sql(copy, err))?;
        // The file is synced below, and is thrown away when anything fails.
        to.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF")
            .map_err(|err| StoreError::sql(copy, err))?;
        let bytes = self.read(|tx| {
            // From the first read on, the transaction sees one state; without it, every commit of the server would
            // make the copy begin anew.
            let size = tx.one("PRAGMA page_size", &[], |row| row.get::<u32>(0))?.unwrap_or(0);
            tx.one("SELECT COUNT(*) FROM sqlite_master", &[], |_| Ok(()))?;
            let failed = |err| StoreError::sql(copy, err);
            let backup = Backup::new(&self.connection, &mut to).map_err(failed)?;
            while backup.step(PAGES_AT_ONCE).map_err(failed)? != StepResult::Done {
                file.sync_data().map_err(wrote)?;
                let at = backup.progress();
                let of_pages = |pages: i32| u64::from(pages.unsigned_abs()) * u64::from(size);
                progress(of_pages(at.pagecount - at.remaining), of_pages(at.pagecount));
            }
            Ok(u64::from(backup.progress().pagecount.unsigned_abs()) * u64::from(size))
        })?;
        // Pages are copied unread. What is damaged must not take the place of an earlier, sound copy.
        let said = to.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        let why = said.map_err(|err| StoreError::sql(&self.path, err))?;
        if why != "ok" {
            // The first line of a finding only names the database.
            let why = why.lines().last().unwrap_or_default().to_owned();
            return Err(StoreError::Damaged { path: self.path.clone(), why });
        }
        to.close().map_err(|(_, err)| StoreError::sql(copy, err))?;
        file.sync_all().map_err(wrote)?;
        Ok(bytes)
    }
}

/// A file that is there may be replaced, but never one of the ledger itself.
fn check_target(database: &Path, target: &Path, replaces: bool) -> Result<(), StoreError> {
    let in_the_way = |path: &Path, what| Err(StoreError::InTheWay { path: path.to_owned(), what });
    let same = |a: &Path, b: &Path| {
        matches!((fs::metadata(a), fs::metadata(b)),
                 (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()))
    };
    if target.is_dir() {
        return in_the_way(target, "a directory");
    }
    let own = ["", "-wal", "-shm", ".key", ".turn", ".serve", ".ballast"];
    if own.iter().any(|suffix| same(&beside(database, suffix), target)) {
        return in_the_way(target, "a file of the database itself");
    }
    if !replaces && target.symlink_metadata().is_ok() {
        return in_the_way(target, "there already");
    }
    // The engine would take it for the log of the copy, and spoil that with it.
    let log = beside(target, "-wal");
    if fs::metadata(&log).is_ok_and(|found| found.len() > 0) {
        return in_the_way(&log, "the log of another database, which would spoil the copy");
    }
    Ok(())
}

fn put_in_place(copy: &Path, target: &Path, replaces: bool) -> Result<(), StoreError> {
    let rename = || {
        let flags = if replaces { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match renameat_with(CWD, copy, CWD, target, flags) {
            // A file system that cannot tell; it was looked at before.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => fs::rename(copy, target)?,
            done => done?,
        }
        let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()
    };
    rename().map_err(|err: io::Error| match err.kind() {
        io::ErrorKind::AlreadyExists => {
            StoreError::InTheWay { path: target.to_owned(), what: "there already" }
        }
        _ => StoreError::io("write", target, err),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::store::ledger::{Db, directory};

    fn orgs(path: &Path) -> usize {
        Look::open(path).unwrap().read(directory::list_orgs).unwrap().len()
    }

    #[test]
    fn a_copy_holds_what_was_committed_before_it_and_goes_on_beside_a_writer() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("w.db"), dir.path().join("copy.db"));
        let db = Db::open(&path).unwrap();
        let add = |n: u32| {
            let name = "n".repeat(4000);
            db.write(move |tx| directory::create_org(tx, &format!("o{n}").parse().unwrap(), &name)).unwrap();
        };
        for n in 0..20 {
            add(n);
        }
        let look = Look::open(&path).unwrap();
        let mut told = Vec::new();
        let bytes = look.copy_to(&copy, false, |done, of| told.push((done, of))).unwrap();
        assert_eq!(bytes, fs::metadata(&copy).unwrap().len());
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
        add(20);
        assert_eq!((orgs(&copy), orgs(&path)), (21, 22));
        assert!(Look::open(&copy).unwrap().damage(true).unwrap().is_empty());
        let again = look.copy_to(&copy, false, |_, _| {}).unwrap_err();
        assert!(again.to_string().ends_with("is there already"), "{again}");
        look.copy_to(&copy, true, |_, _| {}).unwrap();
        assert_eq!(orgs(&copy), 22);
        for own in [path.clone(), beside(&path, "-wal"), beside(&path, ".turn")] {
            assert!(matches!(look.copy_to(&own, true, |_, _| {}), Err(StoreError::InTheWay { .. })));
        }
        fs::write(beside(&copy, "-wal"), "frames of another").unwrap();
        let spoilt = look.copy_to(&copy, true, |_, _| {}).unwrap_err();
        assert!(spoilt.to_string().contains("log of another"), "{spoilt}");
        assert!(look.copy_to(&dir.path().join("none/copy"), true, |_, _| {}).is_err());
        assert!(
            !fs::read_dir(dir.path())
                .unwrap()
                .any(|file| { file.unwrap().file_name().to_string_lossy().ends_with(".tmp") })
        );
    }

    #[test]
    fn damage_is_found_and_a_missing_file_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.db");
        assert!(matches!(Look::open(&path), Err(StoreError::Io { .. })));
        assert!(!path.exists());
        drop(Db::open(&path).unwrap());
        let look = Look::open(&path).unwrap();
        assert!(look.damage(true).unwrap().is_empty() && look.dangling().unwrap().is_empty());
        drop(look);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2 / 4096 * 4096;
        bytes[middle..middle + 4096].fill(0x5a);
        fs::write(&path, bytes).unwrap();
        let found = Look::open(&path).and_then(|look| look.damage(true));
        assert!(matches!(&found, Err(StoreError::Damaged { .. })) || !found.unwrap().is_empty());
    }

    #[test]
    fn a_damaged_ledger_does_not_replace_a_sound_copy() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("w.db"), dir.path().join("copy.db"));
        let db = Db::open(&path).unwrap();
        for n in 0..20 {
            let name = "n".repeat(4000);
            db.write(move |tx| directory::create_org(tx, &format!("o{n}").parse().unwrap(), &name)).unwrap();
        }
        drop(db);
        Look::open(&path).unwrap().copy_to(&copy, false, |_, _| {}).unwrap();
        let sound = fs::read(&copy).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 4096;
        bytes[last..].fill(0x5a);
        fs::write(&path, bytes).unwrap();
        let refused = Look::open(&path).unwrap().copy_to(&copy, true, |_, _| {}).unwrap_err();
        assert!(matches!(&refused, StoreError::Damaged { path: told, .. } if *told == path), "{refused}");
        assert!(!refused.to_string().contains('\n'), "{refused}");
        assert_eq!(fs::read(&copy).unwrap(), sound);
        let names = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name());
        assert!(names.into_iter().all(|name| !name.to_string_lossy().contains(".tmp")));
    }
}
