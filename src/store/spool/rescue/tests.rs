//! Real spools with one page after another destroyed: what stands on the others comes out, and nothing else does.

use std::collections::BTreeMap;
use std::fs;

use rusqlite::Connection;

use super::*;
use crate::clock::Wall;
use crate::store::process::Process;
use crate::store::spool::Spool;
use crate::store::spool::look::Look;
use crate::store::spool::outbox::{Entry, EntryKind, NewEntry, SecretRef};

const PAGE: usize = 4096;
const NOW: Wall = Wall(1_700_000_000_000);

/// A spool with bodies of every length, in every state, some of them removed again.
fn fill(dir: &Path, entries: u32) -> BTreeMap<i64, Row> {
    let mut spool = Spool::open(dir).unwrap();
    let secret = SecretRef::File("/run/secrets/ci".into());
    for n in 0..entries {
        let id = format!("evt_{n:012x}");
        let body: Vec<u8> = (0..[90, 900, 3000, 9000, 30_000][n as usize % 5])
            .map(|at| b'a' + ((at + n) % 23) as u8)
            .collect();
        let entry = NewEntry {
            id: &id,
            kind: EntryKind::Event,
            dest: "http://127.0.0.1:9/ingest/ci",
            from: None,
            reply_to: None,
            event_key: Some(&id),
            body: &body,
            secret: Some(&secret),
        };
        spool.outbox().add_claimed(&entry, Process::current(), NOW).unwrap();
        match n % 4 {
            0 => spool.outbox().sent(&id, "queued", Wall(NOW.0 + 5)).unwrap(),
            1 => spool.outbox().dead(&id, "the answer was 400", Wall(NOW.0 + 6)).unwrap(),
            2 => spool.outbox().release(&id, Process::current()).unwrap(),
            _ => {}
        }
        if n % 7 == 3 {
            spool.outbox().sent(&id, "queued", NOW).unwrap();
            spool.outbox().remove(&id).unwrap();
        }
    }
    drop(spool);
    rows(dir)
}

fn rows(dir: &Path) -> BTreeMap<i64, Row> {
    let look = Look::open(dir).unwrap().unwrap();
    look.rows(0, 100_000).unwrap().into_iter().map(|row| row.unwrap()).map(|row| (row.seq, row)).collect()
}

/// Everything into the database, and no log.
fn settle(dir: &Path) {
    let db = Connection::open(dir.join("spool.db")).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

/// The pages that each row stands on, as the engine tells it.
fn pages_of(dir: &Path) -> BTreeMap<i64, Vec<u32>> {
    let rescue = Rescue::open(dir).unwrap().unwrap();
    let mut pages = BTreeMap::new();
    for (seq, place) in &rescue.places {
        let page = rescue.pages.read(place.page).unwrap().unwrap();
        let cell = Cells::of(&page, PAGE).unwrap().get(place.cell).unwrap();
        let mut on = vec![place.page];
        let mut next = cell.overflow;
        while let Some(number) = next.filter(|number| *number > 0) {
            on.push(number);
            next = cells::be32(&rescue.pages.read(number).unwrap().unwrap(), 0);
        }
        pages.insert(*seq, on);
    }
    pages
}

/// What the rescue finds are rows as they were, all of `expected` among them, and it misses none that it should name.
fn assert_rescued(dir: &Path, all: &BTreeMap<i64, Row>, expected: impl Fn(i64) -> bool, said: &str) {
    let rescue = Rescue::open(dir).unwrap().unwrap();
    let found: BTreeMap<i64, Row> = rescue.rows().map(|row| (row.seq, row)).collect();
    for (seq, row) in &found {
        assert_eq!(Some(row), all.get(seq), "{said}: a row that was never there");
    }
    for seq in all.keys().filter(|seq| expected(**seq)) {
        assert!(found.contains_key(seq), "{said}: row {seq} stands on sound pages");
    }
}

#[test]
fn an_undamaged_spool_comes_out_whole() {
    let dir = tempfile::tempdir().unwrap();
    let all = fill(dir.path(), 60);
    assert!(all.len() > 45);
    assert_rescued(dir.path(), &all, |_| true, "with a log");
    settle(dir.path());
    assert_rescued(dir.path(), &all, |_| true, "without one");
    let rescue = Rescue::open(dir.path()).unwrap().unwrap();
    assert_eq!((rescue.count(), rescue.lost().len(), rescue.faults().len()), (all.len() as u64, 0, 0));
}

#[test]
fn one_page_after_another_is_destroyed_and_the_others_come_out() {
    let dir = tempfile::tempdir().unwrap();
    let all = fill(dir.path(), 25);
    settle(dir.path());
    let pages = pages_of(dir.path());
    let path = dir.path().join("spool.db");
    let sound = fs::read(&path).unwrap();
    for page in 1..=sound.len() / PAGE {
        for (what, byte) in [("zeros", Some(0)), ("ones", Some(0xff)), ("text", None)] {
            let mut bytes = sound.clone();
            let (from, to) = ((page - 1) * PAGE, page * PAGE);
            match byte {
                Some(byte) => bytes[from..to].fill(byte),
                // What a body may well be, and so the best of lies.
                None => bytes[from..to].fill(b'a'),
            }
            fs::write(&path, &bytes).unwrap();
            let number = u32::try_from(page).unwrap();
            let said = format!("page {page} is {what}");
            assert_rescued(dir.path(), &all, |seq| !pages[&seq].contains(&number), &said);
            let rescue = Rescue::open(dir.path()).unwrap().unwrap();
            let missing = all.len() as u64 - rescue.count();
            assert_eq!(rescue.lost().len() as u64, missing, "{said}: an index names what is lost");
        }
    }
}

#[test]
fn a_file_that_is_cut_gives_what_is_left_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let all = fill(dir.path(), 40);
    settle(dir.path());
    let pages = pages_of(dir.path());
    let path = dir.path().join("spool.db");
    let sound = fs::read(&path).unwrap();
    for length in (0..sound.len()).step_by(PAGE / 2 + 300) {
        fs::write(&path, &sound[..length]).unwrap();
        let last = u32::try_from(length / PAGE).unwrap();
        let is_left = |seq| pages[&seq].iter().all(|page| *page <= last);
        assert_rescued(dir.path(), &all, is_left, &format!("cut at {length}"));
    }
}

#[test]
fn a_log_that_is_damaged_or_cut_costs_only_what_stood_there() {
    let dir = tempfile::tempdir().unwrap();
    {
        // A reader keeps the log from being put into the database.
        let spool = Spool::open(dir.path()).unwrap();
        drop(spool);
    }
    let reader = Connection::open(dir.path().join("spool.db")).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM outbox", [], |_| Ok(())).unwrap();
    let all = fill(dir.path(), 15);
    let files = ["spool.db", "spool.db-wal"].map(|name| (name, fs::read(dir.path().join(name)).unwrap()));
    drop(reader);
    let copy = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(copy.path().join(name), bytes).unwrap();
    write("spool.db", &files[0].1);
    write("spool.db-wal", &files[1].1);
    assert_rescued(copy.path(), &all, |_| true, "whole");
    let log = &files[1].1;
    let frames = (log.len() - 32) / (PAGE + 24);
    assert!(frames > 60, "{frames}");
    let known: BTreeMap<&str, &Row> = all.values().map(|row| (row.entry.id.as_str(), row)).collect();
    for frame in 0..frames {
        let mut bytes = log.clone();
        let from = 32 + frame * (PAGE + 24);
        bytes[from + 24..from + 24 + PAGE].fill(0x61);
        write("spool.db-wal", &bytes);
        let rescue = Rescue::open(copy.path()).unwrap().unwrap();
        assert!(rescue.count() + 6 >= all.len() as u64, "frame {frame}: {} of {}", rescue.count(), all.len());
        // An older version of a page may bring a row as it was before, and its content is the same.
        for row in rescue.rows() {
            if let Some(known) = known.get(row.entry.id.as_str()) {
                assert_eq!((row.seq, &row.entry.body), (known.seq, &known.entry.body), "frame {frame}");
            }
        }
    }
    for length in (0..log.len()).step_by(log.len() / 40) {
        write("spool.db-wal", &log[..length]);
        let rescue = Rescue::open(copy.path()).unwrap().unwrap();
        rescue.rows().for_each(drop);
    }
    write("spool.db", b"");
    write("spool.db-wal", log);
    assert_rescued(copy.path(), &all, |_| true, "the database is empty, and all is in the log");
    assert!(matches!(Look::open(copy.path()), Err(StoreError::Damaged { .. })));
    assert!(matches!(Spool::open(copy.path()), Err(StoreError::Damaged { .. })));
    assert_rescued(copy.path(), &all, |_| true, "and nobody has removed it");
}

#[test]
fn a_changed_byte_in_what_never_changes_is_a_fault() {
    let dir = tempfile::tempdir().unwrap();
    let all = fill(dir.path(), 3);
    settle(dir.path());
    let path = dir.path().join("spool.db");
    let mut bytes = fs::read(&path).unwrap();
    let at = memchr::memmem::find(&bytes, &crate::store::spool::outbox::row::digest(&all[&2].entry)).unwrap();
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let rescue = Rescue::open(dir.path()).unwrap().unwrap();
    assert_eq!(rescue.rows().map(|row| row.seq).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(rescue.lost().collect::<Vec<_>>(), ["evt_000000000001"]);
    assert_eq!((rescue.faults()[0].seq, rescue.faults()[0].id.as_deref()), (2, Some("evt_000000000001")));
    let row = Look::open(dir.path()).unwrap().unwrap().rows(1, 1).unwrap().remove(0);
    assert_eq!(row.as_ref().unwrap_err(), &rescue.faults()[0]);
}

#[test]
fn rows_of_the_first_version_are_known_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("spool.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(include_str!("../../sql/spool_0001_outbox.sql")).unwrap();
    db.pragma_update(None, "user_version", 1).unwrap();
    db.execute(
        "INSERT INTO outbox (id, kind, dest, event_key, body, secret_env, attempts, created_at, updated_at,
         next_attempt_at, longest_wait, error) VALUES ('evt_00000000000a', 'event', 'http://h/ingest/ci', 'k',
         x'7b7d', 'TRANSIT_SECRET', 2, 10, 20, 30, 600000, 'no answer')",
        [],
    )
    .unwrap();
    drop(db);
    let rescued: Vec<Row> = Rescue::open(dir.path()).unwrap().unwrap().rows().collect();
    let Entry { id, body, secret, attempts, error, .. } = &rescued[0].entry;
    assert_eq!((id.as_str(), body.as_slice(), *attempts), ("evt_00000000000a", &b"{}"[..], 2));
    assert_eq!(
        (secret, error.as_deref()),
        (&Some(SecretRef::Env("TRANSIT_SECRET".into())), Some("no answer"))
    );
    // And it is the same row once the engine has brought the file up to date.
    drop(Spool::open(dir.path()).unwrap());
    assert_eq!(rows(dir.path()).into_values().collect::<Vec<_>>(), rescued);
}
