//! What `transit-worker doctor` finds.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::{good, refused, run, serve, source};
use crate::support::{Home, text};

fn findings(home: &Home, more: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = run(home, &[&["doctor", "--json"], more].concat());
    let lines = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code(), lines)
}

/// The level and the text of a check's first finding that is not in order.
fn finding(found: &[Value], check: &str) -> Option<(String, String)> {
    let is_it = |found: &&Value| found["check"] == check && found["level"] != "ok";
    let words = |found: &Value| {
        assert!(found["hint"].is_string(), "a finding has a way out: {found}");
        (found["level"].as_str().unwrap().to_owned(), found["text"].as_str().unwrap().to_owned())
    };
    found.iter().find(is_it).map(words)
}

#[test]
fn a_sound_worker_is_told_so_and_nothing_is_made() {
    let home = Home::new();
    refused(&run(&home, &["doctor"]), 66, "worker.db");
    good(&home, &["migrate"]);
    let (code, found) = findings(&home, &[]);
    assert_eq!(code, Some(0), "{found:?}");
    assert_eq!(finding(&found, "server").unwrap().0, "note");
    assert!(!home.data().join("worker.db.key").exists(), "no key is made by looking");
    let (process, _) = serve(&home, &[]);
    let (code, found) = findings(&home, &["--deep"]);
    assert_eq!(code, Some(0), "{found:?}");
    assert!(found.iter().all(|found| found["level"] == "ok"), "{found:?}");
    let server = found.iter().find(|found| found["check"] == "server").unwrap();
    assert!(server["text"].as_str().unwrap().contains(&process.pid().to_string()));
    let words = good(&home, &["doctor"]);
    assert!(words.lines().all(|line| line.starts_with("ok ")), "{words}");
}

#[test]
fn what_is_wrong_is_a_line_with_the_way_out() {
    let home = Home::new();
    source(&home);
    good(&home, &["host", "enroll", "titan"]);
    std::fs::set_permissions(home.data().join("worker.db.key"), PermissionsExt::from_mode(0o644)).unwrap();
    let (code, found) = findings(&home, &[]);
    assert_eq!(code, Some(1));
    assert!(finding(&found, "files").unwrap().1.contains("worker.db.key"));
    std::fs::set_permissions(home.data().join("worker.db.key"), PermissionsExt::from_mode(0o600)).unwrap();

    let other = "BAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let mut command = home.command("transit-worker");
    let output = command.args(["doctor"]).env("TRANSIT_MASTER_KEY", other).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let line = text(&output.stdout).lines().find(|line| line.starts_with("wrong")).unwrap().to_owned();
    assert!(line.contains("TRANSIT_MASTER_KEY does not open the secrets of ci; "), "{line}");
    std::fs::remove_file(home.data().join("worker.db.key")).unwrap();
    let (code, found) = findings(&home, &[]);
    assert_eq!((code, finding(&found, "key").unwrap().0.as_str()), (Some(1), "wrong"));
    assert!(!home.data().join("worker.db.key").exists());
}

#[test]
fn an_older_schema_and_a_host_that_never_came_are_told() {
    let home = Home::new();
    let code = good(&home, &["host", "enroll", "titan", "--json"]);
    let code: Value = serde_json::from_str(&code).unwrap();
    let (process, at) = serve(&home, &[]);
    crate::load::redeem(at, code["code"].as_str().unwrap());
    let (code, found) = findings(&home, &[]);
    assert_eq!(code, Some(0), "it may come yet: {found:?}");
    assert!(finding(&found, "hosts").unwrap().1.contains("titan"));
    drop(process);
    good(&home, &["org", "list"]);
    let path = home.data().join("worker.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[60..64].copy_from_slice(&1_u32.to_be_bytes());
    std::fs::write(&path, bytes).unwrap();
    let (code, found) = findings(&home, &[]);
    let (level, words) = finding(&found, "schema").unwrap();
    assert_eq!((code, level.as_str()), (Some(1), "wrong"));
    assert!(words.contains("the schema is 1"), "{words}");
}

#[test]
fn an_address_where_nobody_answers_is_wrong() {
    let home = Home::new();
    let (_process, _) = serve(&home, &["--public-url", "http://127.0.0.1:9"]);
    let (code, found) = findings(&home, &[]);
    assert_eq!(code, Some(1));
    assert!(finding(&found, "reached").unwrap().1.contains("127.0.0.1:9"), "{found:?}");
}
