//! `transit-spool`, every verb of it, on spools in every condition.

mod damage;
mod flush;
mod kill;

use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::{Home, text};

const SEND: &str = "transit-send";
const SPOOL: &str = "transit-spool";
/// Where nobody listens.
const NOWHERE: &str = "http://127.0.0.1:1/ingest/ci";

fn home() -> Home {
    let home = Home::new();
    home.file("secret", "s3cret\n");
    home
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn spool(home: &Home, args: &[&str]) -> Output {
    home.run(SPOOL, args, b"")
}

/// Runs it, and expects this exit status.
fn spool_to(home: &Home, args: &[&str], exit: i32) -> String {
    let output = spool(home, args);
    assert_eq!(code(&output), exit, "{args:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

fn said(home: &Home, args: &[&str], exit: i32) -> String {
    let output = spool(home, args);
    assert_eq!(code(&output), exit, "{args:?}: {}", text(&output.stderr));
    text(&output.stderr).to_owned()
}

fn records(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn list(home: &Home, options: &[&str]) -> Vec<Value> {
    records(&spool_to(home, &[&["list", "--json"], options].concat(), 0))
}

/// Spools an event to `url`; answers its id.
fn add(home: &Home, url: &str, content: &str) -> String {
    let args =
        [url, "--secret-file", "secret", "--conversation", "c", "--spool-only", "--json", "-m", content];
    let output = home.run(SEND, args, b"");
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    records(text(&output.stdout))[0]["id"].as_str().unwrap().to_owned()
}

fn database(home: &Home) -> PathBuf {
    home.data().join("spool.db")
}

fn sql(home: &Home, statements: &str) {
    rusqlite::Connection::open(database(home)).unwrap().execute_batch(statements).unwrap();
}

#[test]
fn a_spool_that_is_not_there_is_empty_and_is_not_made() {
    let home = home();
    for (args, exit) in [
        (&["list"][..], 0),
        (&["list", "--json", "--state", "dead"], 0),
        (&["show", "evt_000000000000"], 1),
        (&["flush"], 0),
        (&["flush", "--wait", "--deadline", "50s"], 0),
        (&["retry", "--all-dead"], 0),
        (&["retry", "evt_000000000000"], 1),
        (&["rm", "evt_000000000000"], 1),
        (&["purge", "--older-than", "7d"], 0),
        (&["stats", "--format", "prometheus"], 0),
        (&["export"], 0),
        (&["import"], 0),
        (&["check"], 0),
    ] {
        spool_to(&home, args, exit);
        assert!(!home.data().exists(), "{args:?}");
    }
    assert_eq!(spool_to(&home, &["list"], 0), "");
    for args in [
        &["list", "--state", "lost"][..],
        &["purge"],
        &["purge", "--older-than", "7"],
        &["flush", "--jobs", "0"],
        &["flush", "--deadline", "0s"],
        &["flush", "--max", "0"],
        &["retry"],
        &["retry", "--all-dead", "evt_1"],
        &["rm"],
        &["stats", "--format", "xml"],
        &[],
    ] {
        spool_to(&home, args, 2);
    }
}

#[test]
fn entries_are_listed_in_their_order_and_shown_whole() {
    let home = home();
    let ids: Vec<String> =
        ["one", "two\u{1b}[31m", "three"].map(|content| add(&home, NOWHERE, content)).into();
    add(&home, "https://other.example/ingest/alerts", "four");
    sql(
        &home,
        &format!("UPDATE outbox SET state = 'dead', error = 'no {}[2J' WHERE id = '{}'", '\u{1b}', ids[1]),
    );
    sql(&home, "INSERT INTO outbox (id, kind, dest, sender, body, created_at, updated_at, next_attempt_at,
                longest_wait) VALUES ('tx_00000000000a', 'message', '#ops', 'bob@titan', x'ff00', 1, 2, 3, 9)");
    let all = list(&home, &[]);
    assert_eq!(all.iter().map(|it| it["id"].as_str().unwrap()).take(3).collect::<Vec<_>>(), ids);
    assert_eq!((all.len(), list(&home, &["--state", "pending"]).len()), (5, 4));
    assert_eq!(list(&home, &["--state", "dead"])[0]["id"], ids[1].as_str());
    assert_eq!(list(&home, &["--state", "sent"]).len(), 0);
    assert_eq!(list(&home, &["--dest", "*/ingest/ci"]).len(), 3);
    assert_eq!(list(&home, &["--dest", "#*", "--state", "all"])[0]["kind"], "message");
    let first = &all[0];
    assert_eq!(
        (&first["kind"], &first["outcome"], &first["state"]),
        (&json!("event"), &json!("spooled"), &json!("pending"))
    );
    for name in ["event_key", "dest", "attempts", "created_at", "updated_at", "next_attempt_at", "bytes"] {
        assert!(!first[name].is_null(), "{name}: {first}");
    }
    assert!(first["body"].is_null() && first["error"].is_null());
    let human = spool_to(&home, &["list"], 0);
    assert_eq!((human.lines().count(), human.contains('\u{1b}')), (5, false), "{human:?}");
    let shown = records(&spool_to(&home, &["show", "--json", &ids[1], "tx_00000000000a"], 0));
    let body: Value = serde_json::from_str(shown[0]["body"].as_str().unwrap()).unwrap();
    assert_eq!((&body["content"], &shown[0]["error"]), (&json!("two\u{1b}[31m"), &json!("no \u{1b}[2J")));
    assert_eq!((&shown[1]["body_base64"], &shown[1]["from"]), (&json!("/wA="), &json!("bob@titan")));
    let human = spool_to(&home, &["show", &ids[1]], 0);
    assert!(
        human.contains("secret_file: ") && !human.contains('\u{1b}') && !human.contains("s3cret"),
        "{human}"
    );
    let output = spool(&home, &["show", "evt_00000000000f", &ids[0]]);
    assert_eq!((code(&output), text(&output.stdout).contains(&ids[0])), (1, true));
    assert!(text(&output.stderr).contains("evt_00000000000f: the spool has no such entry"));
}

#[test]
fn no_terminal_acts_on_what_is_printed_and_json_holds_the_same_data() {
    let home = home();
    let hostile = "x\u{1b}[2J\u{7f}\u{9b}31m\u{202e}\u{2066}";
    let id = add(&home, NOWHERE, hostile);
    sql(&home, &format!("UPDATE outbox SET state = 'dead', error = '{hostile}'"));
    for args in [
        &["list"][..],
        &["list", "--json"],
        &["show", &id],
        &["show", "--json", &id],
        &["export"],
        &["stats", "--json"],
        &["check", "--json"],
    ] {
        let printed = spool_to(&home, args, 0);
        assert_eq!(printed.replace('\n', "").find(transit::text::is_unsafe), None, "{args:?}: {printed:?}");
    }
    for verb in [&["list", "--json"][..], &["show", "--json", &id], &["export"]] {
        assert_eq!(records(&spool_to(&home, verb, 0))[0]["error"], hostile, "{verb:?}");
    }
}

#[test]
fn entries_are_retried_and_removed_one_by_one() {
    let home = home();
    let ids: Vec<String> = (0..5).map(|n| add(&home, NOWHERE, &n.to_string())).collect();
    sql(
        &home,
        &format!("UPDATE outbox SET next_attempt_at = next_attempt_at + 500000 WHERE id = '{}'", ids[0]),
    );
    sql(
        &home,
        &format!("UPDATE outbox SET state = 'dead', attempts = 7 WHERE id IN ('{}', '{}')", ids[1], ids[4]),
    );
    sql(&home, &format!("UPDATE outbox SET state = 'sent' WHERE id = '{}'", ids[2]));
    let me = transit::store::process::Process::current();
    let claim = format!("state = 'claimed', claim_pid = {}, claim_start = {}", me.pid, me.start_time);
    sql(&home, &format!("UPDATE outbox SET {claim} WHERE id = '{}'", ids[3]));
    let all: Vec<&str> = ids[..4].iter().map(String::as_str).chain(["evt_00000000000f"]).collect();
    let output = spool(&home, &[&["retry"], &all[..]].concat());
    assert_eq!((code(&output), text(&output.stdout).lines().count()), (1, 2), "{}", text(&output.stderr));
    let errors = text(&output.stderr);
    assert!(errors.contains("it was sent already") && errors.contains("is trying it right now"), "{errors}");
    let due = list(&home, &["--state", "pending"]);
    assert_eq!((due.len(), &due[1]["attempts"]), (3, &json!(7)), "it is not sent by that");
    let retried = spool_to(&home, &["retry", "--all-dead", "--json"], 0);
    assert_eq!(records(&retried), [json!({"retried": 1})]);
    let output = spool(&home, &["rm", &ids[3]]);
    assert_eq!((code(&output), text(&output.stdout)), (75, ""));
    assert!(text(&output.stderr).contains(&format!("process {} is trying it", me.pid)));
    let output = spool(&home, &["rm", "--json", "evt_00000000000f\u{1b}", &ids[0], &ids[2]]);
    assert_eq!((code(&output), text(&output.stdout).lines().count()), (1, 2));
    assert!(!text(&output.stderr).contains('\u{1b}'));
    assert_eq!(list(&home, &[]).len(), 3);
    // The claim of a process that is gone holds nothing up.
    sql(&home, "UPDATE outbox SET claim_start = claim_start + 1 WHERE state = 'claimed'");
    assert_eq!(list(&home, &["--state", "pending"])[0]["state"], "pending");
    spool_to(&home, &["rm", &ids[3]], 0);
}

#[test]
fn a_purge_takes_what_is_old_and_pending_only_when_told() {
    let home = home();
    for n in 0..8 {
        add(&home, NOWHERE, &n.to_string());
    }
    let days = 86_400_000;
    sql(
        &home,
        "UPDATE outbox SET state = 'sent' WHERE seq IN (1, 2); UPDATE outbox SET state = 'dead' WHERE seq IN (3, 4)",
    );
    sql(&home, &format!("UPDATE outbox SET updated_at = updated_at - {} WHERE seq IN (1, 3, 5)", 8 * days));
    sql(&home, &format!("UPDATE outbox SET created_at = created_at - {} WHERE seq IN (5, 6)", 8 * days));
    let purge = |options: &[&str]| spool_to(&home, &[&["purge", "--older-than", "7d"], options].concat(), 0);
    assert_eq!(purge(&["--state", "dead"]), "1 entry is removed\n");
    assert_eq!(purge(&["--state", "all"]), "1 entry is removed\n");
    assert_eq!(purge(&[]), "0 entries are removed\n");
    assert_eq!(purge(&["--state", "pending", "--json"]), "{\"removed\":2}\n");
    assert_eq!(list(&home, &[]).len(), 4);
    spool_to(&home, &["purge", "--older-than", "0s"], 0);
    assert_eq!(list(&home, &[]).len(), 2);
}

#[test]
fn figures_come_in_three_forms() {
    let home = home();
    let ids: Vec<String> = (0..4).map(|n| add(&home, NOWHERE, &n.to_string())).collect();
    sql(&home, &format!("UPDATE outbox SET state = 'sent', attempts = 2 WHERE id = '{}'", ids[0]));
    sql(&home, &format!("UPDATE outbox SET created_at = created_at - 90000 WHERE id = '{}'", ids[1]));
    sql(
        &home,
        &format!(
            "UPDATE outbox SET state = 'claimed', claim_pid = 1, claim_start = 0 WHERE id = '{}'",
            ids[2]
        ),
    );
    let figures = &records(&spool_to(&home, &["stats", "--json"], 0))[0];
    assert_eq!(figures["events"], json!({"pending": 3, "claimed": 0, "sent": 1, "dead": 0}));
    assert_eq!(figures["messages"]["pending"], 0);
    assert_eq!((&figures["attempts"], figures["bytes"].as_u64().unwrap() > 100), (&json!(2), true));
    assert!((90..120).contains(&figures["oldest_pending_age_seconds"].as_i64().unwrap()), "{figures}");
    assert!(figures["next_attempt_at"].is_string());
    let text = spool_to(&home, &["stats", "--format", "text"], 0);
    assert!(text.contains("events          3 pending, 0 claimed, 1 sent, 0 dead"), "{text}");
    assert!(text.contains("next attempt") && text.contains("(due)"), "{text}");
    let metrics = spool_to(&home, &["stats", "--format", "prometheus"], 0);
    assert!(metrics.contains("\ntransit_spool_entries{state=\"pending\",kind=\"event\"} 3\n"), "{metrics}");
    // Every sample has its help and its type before it, and is a name, labels and a number.
    let mut known = Vec::new();
    for line in metrics.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(typed) => known.push(typed.split(' ').next().unwrap()),
            None if line.starts_with("# HELP transit_spool_") => {}
            None => {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(known.contains(&name.split('{').next().unwrap()), "{line}");
                value.parse::<f64>().unwrap();
            }
        }
    }
    assert_eq!(known.len(), 6);
}

#[test]
fn what_is_exported_comes_back_the_same_and_only_once() {
    let (home, other) = (home(), Home::new());
    let ids: Vec<String> = (0..6).map(|n| add(&home, NOWHERE, &format!("é\u{1b}{n}"))).collect();
    sql(
        &home,
        &format!(
            "UPDATE outbox SET state = 'sent', outcome = 'duplicate', attempts = 3 WHERE id = '{}'",
            ids[0]
        ),
    );
    sql(&home, &format!("UPDATE outbox SET state = 'dead', error = 'no' WHERE id = '{}'", ids[1]));
    sql(
        &home,
        &format!(
            "UPDATE outbox SET state = 'claimed', claim_pid = 1, claim_start = 0 WHERE id = '{}'",
            ids[2]
        ),
    );
    sql(
        &home,
        &format!(
            "UPDATE outbox SET next_attempt_at = next_attempt_at + 3600000, longest_wait = 3600000 WHERE id = '{}'",
            ids[3]
        ),
    );
    let exported = spool_to(&home, &["export"], 0);
    assert_eq!((exported.lines().count(), exported.contains("s3cret")), (6, false));
    assert_eq!(spool_to(&home, &["export", "--state", "dead"], 0).lines().count(), 1);
    assert_eq!(records(&exported)[2]["state"], "pending", "its process is gone");
    let file = other.file("spool.ndjson", &exported);
    let import = |exit| spool_to(&other, &["import", file.to_str().unwrap(), "--json"], exit);
    assert_eq!(import(0), "{\"imported\":6,\"known\":0}\n");
    assert_eq!(import(0), "{\"imported\":0,\"known\":6}\n");
    assert_eq!(spool_to(&other, &["export"], 0), exported);
    let waits = list(&other, &["--state", "pending"]);
    assert_eq!(waits[1]["next_attempt_at"], list(&home, &["--state", "pending"])[1]["next_attempt_at"]);
    // A state that says somebody is trying it is pending for everybody else.
    let claimed = exported.lines().last().unwrap().replace("\"state\":\"pending\"", "\"state\":\"claimed\"");
    let third = Home::new();
    let output = third.run(SPOOL, ["import", "-"], format!("\n{claimed}").as_bytes());
    assert_eq!((code(&output), text(&output.stdout)), (0, "1 imported, 0 known\n"));
    assert_eq!(list(&third, &[])[0]["state"], "pending");
}

#[test]
fn an_import_ends_at_the_first_record_that_cannot_be_used() {
    let (home, other) = (home(), Home::new());
    for n in 0..3 {
        add(&home, NOWHERE, &n.to_string());
    }
    let exported = spool_to(&home, &["export"], 0);
    let lines: Vec<&str> = exported.lines().collect();
    for bad in [
        "{",
        "[]",
        "null",
        "\u{fffd}",
        &lines[2].replace("evt_", "evt-"),
        &lines[2].replace("\"pending\"", "7"),
    ] {
        let other = Home::new();
        let input = [lines[0], lines[1], bad, lines[2]].join("\n");
        let output = other.run(SPOOL, ["import"], input.as_bytes());
        assert_eq!((code(&output), text(&output.stdout)), (65, ""), "{bad}");
        let errors = text(&output.stderr);
        assert!(errors.contains("import line 3 of stdin: "), "{bad}: {errors}");
        assert!(errors.contains("2 imported and 0 known before that"), "{errors}");
        assert_eq!(list(&other, &[]).len(), 2);
    }
    let mut latin1 = lines[0].as_bytes().to_vec();
    latin1.extend(b"\n\xff\n");
    assert_eq!(code(&other.run(SPOOL, ["import"], &latin1)), 65);
    let long = format!("{{\"id\":\"{}\"}}\n", "x".repeat(3 << 20));
    assert_eq!(code(&other.run(SPOOL, ["import"], long.as_bytes())), 65);
    assert_eq!(code(&other.run(SPOOL, ["import", "missing"], b"")), 66);
    assert_eq!(list(&other, &[]).len(), 1);
}

/// Entries of the long spool; a release tries it with 200,000 in `TRANSIT_SPOOL_ENTRIES`.
fn many() -> u32 {
    std::env::var("TRANSIT_SPOOL_ENTRIES").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000)
}

#[test]
fn a_long_spool_takes_no_more_memory_than_a_short_one() {
    let home = home();
    add(&home, NOWHERE, "hi");
    let grow = |to: u32| {
        let columns =
            "kind, dest, event_key, body, secret_file, created_at, updated_at, next_attempt_at, longest_wait";
        let numbers = format!(
            "WITH RECURSIVE n(i) AS (SELECT (SELECT max(seq) FROM outbox) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {to})"
        );
        sql(
            &home,
            &format!(
                "{numbers} INSERT INTO outbox (id, {columns}) SELECT printf('evt_%012x', i), {columns} FROM n, outbox WHERE seq = 1"
            ),
        );
    };
    let commands = ["list --json", "list --state dead", "stats", "export", "flush --max 3 --quiet", "check"];
    let peaks = || commands.map(|args| peak_memory(&home, &args.split(' ').collect::<Vec<_>>()));
    grow(1_000);
    // What ends before it can be asked tells nothing; the largest of them stands for all.
    let few = peaks().into_iter().max().unwrap();
    grow(many());
    assert_eq!(spool_to(&home, &["list", "--json"], 0).lines().count(), many() as usize);
    for (command, all) in commands.iter().zip(peaks()) {
        assert!(
            few > 1_000 && all < few + 4 * 1024,
            "{command}: {all} KiB, and {few} KiB with 1,000 entries"
        );
    }
}

/// The largest part of a command's memory that was in use at once, in KiB.
fn peak_memory(home: &Home, args: &[&str]) -> u64 {
    let mut command = home.command(SPOOL);
    let null = std::process::Stdio::null;
    let mut child = command.args(args).stdin(null()).stdout(null()).stderr(null()).spawn().unwrap();
    let (status, mut peak) = (format!("/proc/{}/status", child.id()), 0);
    // It only grows, and a process that has ended does not tell it any more.
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        // For a moment the process is still a copy of this one.
        if !status.starts_with(&format!("Name:\t{SPOOL}\n")) {
            continue;
        }
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        peak = line.trim().trim_end_matches(" kB").parse().unwrap_or(0).max(peak);
        std::thread::yield_now();
    }
    peak
}
