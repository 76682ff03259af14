//! Spools that are damaged, cut, somebody else's, of another version, or cannot be written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use super::*;
use crate::support::left_out;

const PAGE: usize = 4096;

/// A spool of this many entries with everything in the database and no log; answers its bytes.
fn settled(home: &Home, entries: usize) -> Vec<u8> {
    for n in 0..entries {
        add(home, NOWHERE, &format!("{n} {}", "lorem ipsum ".repeat(n * 40 % 600)));
    }
    let db = rusqlite::Connection::open(database(home)).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(db);
    fs::read(database(home)).unwrap()
}

#[test]
fn damage_is_found_and_what_is_sound_is_rescued() {
    let home = home();
    let sound = settled(&home, 14);
    let exported = spool_to(&home, &["export"], 0);
    let all: Vec<&str> = exported.lines().collect();
    assert!(spool_to(&home, &["check"], 0).ends_with("is sound\n"));
    let mut rescued = 0;
    for page in 0..sound.len() / PAGE {
        let mut bytes = sound.clone();
        bytes[page * PAGE..(page + 1) * PAGE].fill(0xa5);
        fs::write(database(&home), &bytes).unwrap();
        let check = spool(&home, &["check", "--json"]);
        assert_eq!(code(&check), 74, "page {}: {}", page + 1, text(&check.stderr));
        assert!(
            !check.stdout.is_empty() && text(&check.stderr).contains("transit-spool export"),
            "page {}",
            page + 1
        );
        let export = spool(&home, &["export"]);
        assert_eq!(code(&export), 74, "page {}: {}", page + 1, text(&export.stderr));
        let lines: Vec<&str> = text(&export.stdout).lines().collect();
        assert!(lines.iter().all(|line| all.contains(line)), "page {}: a row that was never there", page + 1);
        let lost = text(&export.stderr).matches(": lost: evt_").count();
        assert_eq!(lines.len() + lost, all.len(), "page {}: {}", page + 1, text(&export.stderr));
        rescued += lines.len();
    }
    assert!(rescued > all.len() * (sound.len() / PAGE - 20), "{rescued}");
    for (args, exit) in [(&["show", "evt_000000000000"][..], 74), (&["flush"], 74), (&["import"], 0)] {
        fs::write(database(&home), vec![0x5a; sound.len()]).unwrap();
        let output = spool(&home, args);
        assert_eq!(code(&output), exit, "{args:?}");
        assert!(exit == 0 || text(&output.stderr).contains("rescue what can be read"), "{args:?}");
    }
    // And the way out that it names: out of the damaged file, and into a fresh one.
    let mut bytes = sound.clone();
    bytes[..PAGE].fill(0);
    fs::write(database(&home), &bytes).unwrap();
    let rescued = spool(&home, &["export"]).stdout;
    for file in ["spool.db", "spool.db-wal", "spool.db-shm"] {
        let _ = fs::remove_file(home.data().join(file));
    }
    let output = home.run(SPOOL, ["import"], &rescued);
    assert_eq!(text(&output.stdout), "14 imported, 0 known\n");
    assert_eq!(spool_to(&home, &["export"], 0), exported);
}

#[test]
fn a_file_that_is_cut_is_said_to_be_and_gives_what_is_left() {
    let home = home();
    let sound = settled(&home, 8);
    let exported = spool_to(&home, &["export"], 0);
    for length in [1, 99, PAGE - 1, PAGE, 3 * PAGE, sound.len() / 2, sound.len() - PAGE, sound.len() - 1] {
        fs::write(database(&home), &sound[..length]).unwrap();
        assert_eq!(code(&spool(&home, &["check"])), 74, "cut at {length}");
        let export = spool(&home, &["export"]);
        assert_eq!(code(&export), 74, "cut at {length}");
        assert!(text(&export.stdout).lines().all(|line| exported.contains(line)), "cut at {length}");
    }
    fs::write(database(&home), b"").unwrap();
    spool_to(&home, &["check"], 0);
    assert_eq!(spool_to(&home, &["list"], 0), "", "an empty file is a spool that was not begun");
}

#[test]
fn rows_that_break_a_rule_are_named() {
    let home = home();
    for n in 0..3 {
        add(&home, NOWHERE, &n.to_string());
    }
    sql(&home, "UPDATE outbox SET id = 'odd', digest = NULL WHERE seq = 1");
    sql(&home, "UPDATE outbox SET dest = 'http://elsewhere/ingest/ci' WHERE seq = 2");
    sql(&home, "UPDATE outbox SET state = 'claimed', claim_pid = 1, claim_start = 0 WHERE seq = 3");
    let output = spool(&home, &["check", "--json"]);
    assert_eq!(code(&output), 74);
    let found: Vec<(String, String)> = records(text(&output.stdout))
        .iter()
        .map(|it| (it["finding"].as_str().unwrap().to_owned(), it["at"].as_str().unwrap().to_owned()))
        .collect();
    let expected = [("rule", "row 1 (odd)"), ("damage", "row 2 ("), ("info", "row 3 (")];
    for ((weight, at), (expected_weight, expected_at)) in found.iter().zip(expected) {
        assert!(weight == expected_weight && at.starts_with(expected_at), "{found:?}");
    }
    let output = spool(&home, &["export"]);
    assert_eq!(
        (code(&output), text(&output.stdout).lines().count()),
        (74, 2),
        "what was changed is no row of ours"
    );
    sql(&home, "DELETE FROM outbox WHERE seq IN (1, 2)");
    let sound = spool_to(&home, &["check"], 0);
    assert!(sound.contains("which is gone: it counts as pending"), "{sound}");
}

#[test]
fn one_row_that_nobody_wrote_keeps_no_other_from_being_rescued() {
    for (column, value) in [
        ("id", "CAST(x'6576745fff' AS TEXT)"),
        ("dest", "CAST(x'ff' AS TEXT)"),
        ("error", "CAST(x'61ff' AS TEXT)"),
        ("attempts", "-5"),
    ] {
        let home = home();
        for n in 0..5 {
            add(&home, NOWHERE, &n.to_string());
        }
        sql(&home, &format!("UPDATE outbox SET {column} = {value} WHERE seq = 3"));
        let export = spool(&home, &["export"]);
        let told = text(&export.stderr);
        assert_eq!((code(&export), text(&export.stdout).lines().count()), (74, 4), "{column}: {told}");
        assert!(told.contains("4 entries were rescued, 1 is lost"), "{column}: {told}");
        let check = spool(&home, &["check"]);
        assert!(text(&check.stdout).contains("damage: row 3"), "{column}: {}", text(&check.stdout));
        // What cannot go on says that it is the file, and what to do.
        for args in [&["list"][..], &["flush"]] {
            let output = spool(&home, args);
            let told = text(&output.stderr);
            assert!(told.contains("a row holds what was never stored"), "{column}: {args:?}: {told}");
            assert!(code(&output) == 74 && told.contains("transit-spool export >FILE"), "{column}: {told}");
        }
    }
}

#[test]
fn what_is_no_spool_of_ours_is_left_alone() {
    let home = home();
    add(&home, NOWHERE, "x");
    let verbs: [&[&str]; 6] =
        [&["list"], &["stats"], &["check"], &["export"], &["flush"], &["retry", "--all-dead"]];
    sql(&home, "PRAGMA user_version = 99");
    for verb in verbs {
        assert!(said(&home, verb, 78).contains("newer version"), "{verb:?}");
    }
    sql(&home, "PRAGMA user_version = 5");
    spool_to(&home, &["check"], 0);
    // Only root can give a file away; for everybody else there is nothing to see here.
    if std::os::unix::fs::chown(database(&home), Some(4711), None).is_ok() {
        for verb in verbs {
            assert!(said(&home, verb, 78).contains("belongs to another user"), "{verb:?}");
        }
    }
    let other = Home::new();
    fs::create_dir_all(other.data().join("spool.db")).unwrap();
    for verb in verbs {
        assert!(said(&other, verb, 73).contains("is not a file"), "{verb:?}");
    }
    let file = Home::new();
    fs::write(file.data(), "").unwrap();
    for verb in verbs {
        assert!(said(&file, verb, 73).contains("is not a directory"), "{verb:?}");
    }
}

#[test]
fn a_spool_that_another_user_keeps_shut_is_said_to_be_his() {
    if !rustix::process::geteuid().is_root() {
        return left_out("only root can be somebody else");
    }
    let home = home();
    add(&home, NOWHERE, "x");
    let root = home.data().parent().unwrap().to_owned();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    for verb in ["list", "check", "flush"] {
        let output = match home.command(SPOOL).arg(verb).uid(4711).gid(4711).output() {
            Err(err) if err.kind() == std::io::ErrorKind::PermissionDenied => {
                return left_out("another user cannot run what was built here");
            }
            output => output.unwrap(),
        };
        let told = text(&output.stderr);
        assert!(code(&output) == 78 && told.contains("belongs to another user"), "{verb}: {told}");
        assert!(told.contains("run this as its owner"), "{verb}: {told}");
    }
}

#[test]
fn an_older_spool_is_brought_up_to_date_with_all_that_it_holds() {
    let home = home();
    fs::create_dir_all(home.data()).unwrap();
    let db = rusqlite::Connection::open(database(&home)).unwrap();
    for step in ["spool_0001_outbox.sql", "spool_0002_inbox.sql"] {
        let sql = fs::read_to_string(format!("{}/src/store/sql/{step}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        db.execute_batch(&sql).unwrap();
    }
    db.execute_batch(
        "PRAGMA user_version = 2;
         INSERT INTO outbox (id, kind, dest, event_key, body, state, attempts, created_at, updated_at,
             next_attempt_at, longest_wait, outcome)
         VALUES ('evt_00000000000a', 'event', 'http://127.0.0.1:1/ingest/ci', 'k', x'7b7d', 'sent', 4, 1, 2, 3, 600000, 'queued'),
             ('evt_00000000000b', 'event', 'http://127.0.0.1:1/ingest/ci', 'l', x'7b7d', 'pending', 0, 1, 2, 3, 600000, NULL);
         INSERT INTO inbox (id, agent, envelope, redelivery, state, from_worker, asked, received_at, updated_at)
         VALUES ('tx_00000000000c', 'bob', 'x', 0, 'waiting', 1, 1, 1, 1)",
    )
    .unwrap();
    drop(db);
    let entries = list(&home, &[]);
    assert_eq!(
        (entries[0]["outcome"].as_str(), entries[1]["state"].as_str()),
        (Some("queued"), Some("pending"))
    );
    let id = add(&home, NOWHERE, "x");
    assert_eq!(list(&home, &[])[2]["id"], id.as_str());
    spool_to(&home, &["check"], 0);
    let db = rusqlite::Connection::open(database(&home)).unwrap();
    let inbox: String = db.query_row("SELECT agent FROM inbox", [], |row| row.get(0)).unwrap();
    assert_eq!(inbox, "bob");
}

#[test]
fn a_limit_on_files_lets_everything_be_read_and_be_sent() {
    let home = home();
    let sink = crate::support::Sink::start(&[202]);
    let url = format!("http://{}/ingest/ci", sink.at);
    for n in 0..3 {
        add(&home, &url, &n.to_string());
    }
    let run = |command: &str| {
        let mut shell = home.foreign("sh");
        shell.args(["-c", &format!("ulimit -f {command}")]).output().unwrap()
    };
    // Not a block may be written any more, as on a full disk.
    assert_eq!(text(&run("0; exec transit-spool list --json").stdout).lines().count(), 3);
    assert_eq!(code(&run("0; exec transit-spool check")), 0);
    // There is room for what the engine shares between processes, and none for its log.
    let output = run("64; exec transit-spool flush");
    assert_eq!(code(&output), 75, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no space is left to note"), "{}", text(&output.stderr));
    assert_eq!(sink.rest().len(), 3);
    let output = run("64; exec transit-spool purge --older-than 0s --state pending");
    assert!(matches!(code(&output), 73 | 74), "{}", text(&output.stderr));
    assert_eq!(code(&spool(&home, &["flush"])), 0, "and everything is well when there is room again");
    assert_eq!((sink.rest().len(), list(&home, &["--state", "sent"]).len()), (3, 3));
}
