//! Opening: whose files, which version, whose turn.

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn the_spool_and_its_log_are_the_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("deep/data");
    let spool = Spool::open(&data).unwrap();
    assert_eq!(mode(&data), 0o700);
    for name in ["spool.db", "spool.db-wal", "spool.db-shm", "spool.lock"] {
        assert_eq!(mode(&data.join(name)), 0o600, "{name}");
    }
    drop(spool);
    fs::set_permissions(data.join("spool.db"), fs::Permissions::from_mode(0o644)).unwrap();
    Spool::open(&data).unwrap();
    assert_eq!(mode(&data.join("spool.db")), 0o600);
}

#[test]
fn every_commit_is_synced() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Spool::open(dir.path()).unwrap();
    let number =
        |pragma| spool.read(|db| db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0))).unwrap();
    assert_eq!((number("synchronous"), number("foreign_keys")), (2, 1));
    let journal: String =
        spool.read(|db| db.pragma_query_value(None, "journal_mode", |row| row.get(0))).unwrap();
    assert_eq!(journal, "wal");
}

#[test]
fn a_newer_database_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Spool::open(dir.path()).unwrap();
    spool.db.pragma_update(None, "user_version", 99).unwrap();
    drop(spool);
    match Spool::open(dir.path()) {
        Err(StoreError::Newer { found: 99, known: KNOWN, .. }) => {}
        other => panic!("{other:?}"),
    }
    let db = Connection::open(dir.path().join("spool.db")).unwrap();
    assert_eq!(version(&db).unwrap(), 99);
}

#[test]
fn what_is_no_database_of_ours_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("spool.db");
    fs::write(&path, "certainly not a database, and long enough to hold a header of one".repeat(99)).unwrap();
    assert!(matches!(Spool::open(dir.path()), Err(StoreError::Damaged { .. })));
    fs::remove_file(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE songs (title)").unwrap();
    assert!(matches!(Spool::open(dir.path()), Err(StoreError::InTheWay { .. })));
    let tables: i64 = other.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1, "nothing of it is touched");
    drop(other);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(Spool::open(dir.path()), Err(StoreError::InTheWay { .. })));
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(Spool::open(&file), Err(StoreError::InTheWay { .. })));
    assert!(matches!(Spool::open(&file.join("below")), Err(StoreError::InTheWay { .. })));
}

#[test]
fn another_user_s_spool_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(Spool::open(dir.path()).unwrap());
    let path = dir.path().join("spool.db");
    // Only root can give a file away; for everybody else there is nothing to see here.
    if std::os::unix::fs::chown(&path, Some(4711), None).is_ok() {
        assert!(matches!(Spool::open(dir.path()), Err(StoreError::Foreign { .. })));
    }
}

#[test]
fn a_failed_transaction_leaves_nothing_and_gives_the_turn_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path()).unwrap();
    let failed = spool.write(|tx| {
        tx.execute_batch("CREATE TABLE half (x)")?;
        tx.execute_batch("SELECT nothing FROM nowhere")
    });
    assert!(matches!(failed, Err(StoreError::Sql { .. })));
    let mut other = Spool::open(dir.path()).unwrap();
    other.write(|tx| tx.execute_batch("CREATE TABLE half (x)")).unwrap();
}

#[test]
fn writers_of_many_threads_all_get_their_turn() {
    let dir = tempfile::tempdir().unwrap();
    let count = |tx: &Transaction<'_>| tx.execute_batch("UPDATE counter SET n = n + 1");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut spool = Spool::open(dir.path()).unwrap();
                spool
                    .write(|tx| {
                        tx.execute_batch(
                            "CREATE TABLE IF NOT EXISTS counter (one INTEGER PRIMARY KEY, n);
                             INSERT OR IGNORE INTO counter VALUES (1, 0)",
                        )
                    })
                    .unwrap();
                for _ in 0..20 {
                    spool.write(count).unwrap();
                }
            });
        }
    });
    let spool = Spool::open(dir.path()).unwrap();
    let n: i64 = spool.read(|db| db.query_row("SELECT n FROM counter", [], |row| row.get(0))).unwrap();
    assert_eq!(n, 160);
}
