//! Group commit: what shares a commit, what fails alone, and what is promised when.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use super::directory::OrgRow;
use super::*;

/// Runs `test` in the writer of a fresh ledger, with its one organisation.
pub(super) fn with_org(test: impl Fn(&Tx<'_>, &OrgRow) + Send + 'static) {
    let (_dir, db) = open();
    let change = move |tx: &Tx<'_>| {
        test(tx, &directory::org(tx, "default")?.unwrap());
        Ok(())
    };
    db.write(change).unwrap();
}

/// The code with which something was refused.
#[track_caller]
pub(super) fn code<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> &'static str {
    match outcome.unwrap_err() {
        StoreError::Refused(refusal) => refusal.code(),
        other => panic!("{other}"),
    }
}

fn open() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&dir.path().join("w.db")).unwrap();
    (dir, db)
}

fn add(tx: &Tx<'_>, slug: &str) -> Result<(), StoreError> {
    directory::create_org(tx, &slug.parse().unwrap(), slug).map(drop)
}

fn slugs(db: &Db) -> Vec<String> {
    db.read(directory::list_orgs).unwrap().into_iter().map(|org| org.slug.to_string()).collect()
}

/// Keeps the writer at work until the answered sender is used, so that what is submitted meanwhile must wait.
fn hold(db: &Db) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    let change = move |_: &Tx<'_>| {
        begun.send(()).unwrap();
        let _ = released.recv();
        Ok(())
    };
    db.submit(change, |held| held.unwrap());
    has_begun.recv().unwrap();
    release
}

#[test]
fn changes_that_wait_share_one_commit_and_are_answered_after_it() {
    let (_dir, db) = open();
    let release = hold(&db);
    let (tell, told) = mpsc::channel();
    for n in 0..50 {
        let (tell, reader) = (tell.clone(), db.clone());
        db.submit(
            move |tx| add(tx, &format!("org-{n}")),
            move |outcome| {
                outcome.unwrap();
                tell.send(slugs(&reader).len()).unwrap();
            },
        );
    }
    assert_eq!(slugs(&db), ["default"]);
    release.send(()).unwrap();
    drop(tell);
    assert_eq!(told.iter().collect::<Vec<_>>(), [51; 50], "all were there before the first was answered");
    assert_eq!(db.stats(), Stats { commits: 2, changes: 51 });
}

#[test]
fn a_change_that_fails_or_panics_is_undone_alone() {
    let (_dir, db) = open();
    let release = hold(&db);
    let (tell, told) = mpsc::channel();
    let submit = |name: &'static str, end: fn() -> Result<(), StoreError>| {
        let tell = tell.clone();
        let change = move |tx: &Tx<'_>| add(tx, name).and_then(|()| end());
        db.submit(change, move |outcome| tell.send((name, outcome.map_err(|e| e.to_string()))).unwrap());
    };
    submit("first", || Ok(()));
    submit("fails", || Err(StoreError::Closed));
    submit("panics", || panic!("on purpose"));
    submit("last", || Ok(()));
    release.send(()).unwrap();
    drop(tell);
    let told: Vec<_> = told.iter().collect();
    assert_eq!(told[0], ("first", Ok(())));
    assert_eq!(told[1], ("fails", Err("the store is closed".into())));
    assert_eq!(told[2], ("panics", Err("a change to the ledger panicked: on purpose".into())));
    assert_eq!(told[3], ("last", Ok(())));
    assert_eq!(slugs(&db), ["default", "first", "last"]);
}

#[test]
fn a_change_is_made_again_only_beside_one_that_has_to_be_undone() {
    let (_dir, db) = open();
    let release = hold(&db);
    let (tell, told) = mpsc::channel();
    let (again, runs) = (tell.clone(), Arc::new(AtomicU64::new(0)));
    let counted = runs.clone();
    let change = move |tx: &Tx<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
        add(tx, "kept")
    };
    db.submit(change.clone(), move |outcome| tell.send(outcome.is_ok()).unwrap());
    db.submit(|_| Err::<(), _>(StoreError::Closed), move |outcome| again.send(outcome.is_ok()).unwrap());
    release.send(()).unwrap();
    assert_eq!(told.iter().collect::<Vec<_>>(), [true, false]);
    assert_eq!(runs.load(Ordering::Relaxed), 1, "a failure that has changed nothing needs no undoing");

    let release = hold(&db);
    db.submit(change, |outcome| assert_eq!(code(outcome), "org_exists"));
    db.submit(|tx| add(tx, "undone").and_then(|()| Err::<(), _>(StoreError::Closed)), drop);
    db.submit(|tx| add(tx, "other"), |outcome| outcome.unwrap());
    release.send(()).unwrap();
    db.write(|_| Ok(())).unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 3, "once, and again in a savepoint");
    assert_eq!(slugs(&db), ["default", "kept", "other"]);
}

#[test]
fn a_commit_that_fails_is_told_to_every_change_in_it() {
    let (_dir, db) = open();
    let release = hold(&db);
    let (tell, told) = mpsc::channel();
    let again = tell.clone();
    db.submit(|tx| add(tx, "good"), move |outcome| tell.send(outcome.is_ok()).unwrap());
    // A constraint that is only checked at the commit.
    let dangling = |tx: &Tx<'_>| {
        tx.execute("PRAGMA defer_foreign_keys = ON", &[])?;
        tx.execute("INSERT INTO enroll_code VALUES ('x', 'org_none', 'h', 1)", &[]).map(drop)
    };
    db.submit(dangling, move |outcome| again.send(outcome.is_ok()).unwrap());
    release.send(()).unwrap();
    assert_eq!(told.iter().collect::<Vec<_>>(), [false, false]);
    db.write(|tx| add(tx, "later")).unwrap();
    assert_eq!(slugs(&db), ["default", "later"]);
}

#[test]
fn a_transaction_that_the_engine_gave_up_fails_what_ran_and_keeps_what_waits() {
    let (_dir, db) = open();
    let release = hold(&db);
    let (tell, told) = mpsc::channel();
    let submit = |change: fn(&Tx<'_>) -> Result<(), StoreError>| {
        let tell = tell.clone();
        db.submit(change, move |outcome| tell.send(outcome.is_ok()).unwrap());
    };
    submit(|tx| add(tx, "before"));
    // What a full disk does to the engine.
    submit(|tx| tx.execute("ROLLBACK", &[]).map(drop));
    submit(|tx| add(tx, "after"));
    release.send(()).unwrap();
    drop(tell);
    assert_eq!(told.iter().collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(slugs(&db), ["after", "default"]);
}

#[test]
fn a_full_ledger_promises_nothing_and_goes_on_when_there_is_room() {
    let (_dir, db) = open();
    db.write(|tx| tx.one("PRAGMA max_page_count = 1", &[], |_| Ok(()))).unwrap();
    let long = "x".repeat(100_000);
    let full = db.write(move |tx| directory::create_org(tx, &"big".parse().unwrap(), &long));
    assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
    assert_eq!(slugs(&db), ["default"]);
    db.write(|tx| tx.one("PRAGMA max_page_count = 100000", &[], |_| Ok(()))).unwrap();
    db.write(|tx| add(tx, "later")).unwrap();
    assert_eq!(slugs(&db), ["default", "later"]);
}

#[test]
fn dropping_the_last_handle_answers_everything_first() {
    let (dir, db) = open();
    let release = hold(&db);
    let (tell, told) = mpsc::channel();
    for n in 0..600 {
        let tell = tell.clone();
        let done = move |outcome: Result<(), StoreError>| tell.send(outcome.is_ok()).unwrap();
        db.submit(move |tx| add(tx, &format!("o{n}")), done);
    }
    drop(tell);
    release.send(()).unwrap();
    drop(db);
    assert_eq!(told.try_iter().filter(|&ok| ok).count(), 600);
    assert!(!dir.path().join("w.db-wal").exists(), "the log is in the database");
}

#[test]
fn a_panicking_answer_and_a_handle_dropped_in_one_do_no_harm() {
    let (_dir, db) = open();
    db.submit(|tx| add(tx, "one"), |_| panic!("on purpose"));
    db.write(|tx| add(tx, "two")).unwrap();
    let (tell, told) = mpsc::channel::<()>();
    let last = db.clone();
    db.submit(
        |_| Ok(()),
        move |_| {
            told.recv().unwrap_err();
            drop(last);
        },
    );
    drop(db);
    drop(tell);
}

#[test]
fn two_handles_on_one_file_take_turns_and_see_each_other_at_once() {
    let (dir, db) = open();
    let other = Db::open(&dir.path().join("w.db")).unwrap();
    std::thread::scope(|scope| {
        for (handle, letter) in [(&db, 'a'), (&other, 'b')] {
            scope.spawn(move || {
                for n in 0..50 {
                    handle.write(move |tx| add(tx, &format!("{letter}{n}"))).unwrap();
                }
            });
        }
    });
    assert_eq!(slugs(&db).len(), 101);
    assert_eq!(slugs(&db), slugs(&other));
}

#[test]
fn a_read_cannot_change_anything_and_its_connection_is_used_again() {
    let (_dir, db) = open();
    assert!(db.read(|tx| add(tx, "no")).is_err());
    assert_eq!(slugs(&db), ["default"]);
    assert_eq!(db.readers().len(), 1);
}

#[test]
fn a_file_that_is_no_ledger_is_told_apart_and_the_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, db) = open();
    db.write(|tx| add(tx, "x")).unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
    }
    let garbage = dir.path().join("garbage");
    std::fs::write(&garbage, "no database at all, but long enough to be looked at as one".repeat(40))
        .unwrap();
    assert!(matches!(Db::open(&garbage), Err(StoreError::Damaged { .. })));
    assert!(matches!(Db::open(dir.path()), Err(StoreError::InTheWay { .. })));
    assert!(matches!(Db::open(&garbage.join("below")), Err(StoreError::Io { .. })));
}
