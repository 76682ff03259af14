//! A store that is damaged, foreign or gone: told plainly, and never taken for an empty one.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{good, refused, run, serve, source};
use crate::load::{Host, redeem};
use crate::rig::{SECRET, signed_event};
use crate::support::{Home, eventually, http, request, text};

const PAGE: usize = 4096;

/// A database with some rows in it, and its bytes.
fn made(home: &Home) -> (PathBuf, Vec<u8>) {
    source(home);
    let (mut process, at) = serve(home, &[]);
    for n in 0..15 {
        let event = signed_event("ci", SECRET, &format!("k{n}"), &"content ".repeat(800));
        assert_eq!(http(at, &event).status(), 202);
    }
    process.signal(rustix::process::Signal::TERM);
    assert!(process.wait().success());
    let path = home.data().join("worker.db");
    // What a log still holds would hide the damage. Whoever closes the database last moves it.
    eventually(|| {
        good(home, &["migrate"]);
        (!home.data().join("worker.db-wal").exists()).then_some(())
    });
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

#[test]
fn every_kind_of_damage_is_told_with_a_way_out_and_nothing_is_written_over() {
    let home = Home::new();
    let (path, sound) = made(&home);
    type Spoil = fn(&mut Vec<u8>);
    let cases: [(&str, Spoil, i32, &str); 6] = [
        ("the header", |bytes| bytes[..100].fill(b'x'), 74, "damaged or no database"),
        ("the first table", |bytes| bytes[100..PAGE].fill(0x5a), 74, "damaged or no database"),
        ("a file that ends early", |bytes| bytes.truncate(bytes.len() / 3), 74, "damaged or no database"),
        ("another program's", |bytes| bytes[68..72].fill(7), 74, "another program"),
        (
            "a newer schema",
            |bytes| bytes[60..64].copy_from_slice(&900_u32.to_be_bytes()),
            78,
            "newer version",
        ),
        ("text", |bytes| *bytes = b"no database, whatever its name says\n".repeat(300), 74, "damaged"),
    ];
    for (what, spoil, code, said) in cases {
        let mut bytes = sound.clone();
        spoil(&mut bytes);
        fs::write(&path, &bytes).unwrap();
        for command in [
            &["serve", "--listen", "127.0.0.1:0"][..],
            &["migrate"],
            &["doctor", "--deep"],
            &["org", "list"],
            &["source", "list"],
            &["delivery", "list"],
        ] {
            let output = run(&home, command);
            let words = format!("{}{}", text(&output.stdout), text(&output.stderr));
            assert_eq!(output.status.code(), Some(code), "{what}, {command:?}: {words}");
            assert!(words.contains(said) || command[0] == "doctor", "{what}, {command:?}: {words}");
            if command[0] != "doctor" {
                refused(&quiet(output), code, said);
            }
        }
        assert_eq!(fs::read(&path).unwrap(), bytes, "{what}: the file is as it was");
    }
}

/// What `serve` logs before it gives up is not what is looked at here.
fn quiet(mut output: std::process::Output) -> std::process::Output {
    let words = text(&output.stderr);
    output.stderr = words
        .lines()
        .filter(|line| line.starts_with("transit-worker: "))
        .collect::<Vec<_>>()
        .join("\n")
        .into();
    output
}

#[test]
fn a_damaged_page_in_the_middle_is_found_by_the_doctor_and_by_whoever_reads_it() {
    let home = Home::new();
    let (path, sound) = made(&home);
    let mut bytes = sound.clone();
    for page in bytes.chunks_mut(PAGE) {
        // What the tables are stays readable; what is in them does not.
        if !page.windows(7).any(|text| text == b"CREATE ") {
            page.fill(0x5a);
        }
    }
    fs::write(&path, &bytes).unwrap();
    let output = run(&home, &["doctor"]);
    assert_eq!(output.status.code(), Some(74), "{output:?}");
    let damaged = text(&output.stdout).lines().find(|line| line.starts_with("damaged ")).unwrap();
    assert!(damaged.contains("transit-worker backup"), "{damaged}");
    let listed = run(&home, &["delivery", "list"]);
    assert_eq!(listed.status.code(), Some(74), "{listed:?}");
    assert!(text(&listed.stderr).contains("doctor --deep"), "{listed:?}");
}

#[test]
fn the_log_of_another_database_is_not_taken_for_its_own_without_a_word() {
    let home = Home::new();
    let (path, sound) = made(&home);
    let other = Home::new();
    source(&other);
    let (process, at) = serve(&other, &[]);
    for n in 0..5 {
        assert_eq!(http(at, &signed_event("ci", SECRET, &format!("o{n}"), "theirs")).status(), 202);
    }
    drop(process);
    fs::copy(other.data().join("worker.db-wal"), home.data().join("worker.db-wal")).unwrap();
    fs::write(&path, &sound).unwrap();
    let output = run(&home, &["doctor", "--deep"]);
    assert_eq!(output.status.code(), Some(74), "{output:?}");
}

#[test]
fn a_store_that_breaks_while_it_is_served_is_an_error_and_never_an_empty_answer() {
    let home = Home::new();
    let (path, sound) = made(&home);
    let code = good(&home, &["host", "enroll", "demo", "--json"]);
    let code: Value = serde_json::from_str(&code).unwrap();
    let waiting = good(&home, &["delivery", "list", "--json"]);
    let delivery: Value = serde_json::from_str(waiting.lines().next().unwrap()).unwrap();
    let (_process, at) = serve(&home, &[]);
    let token = redeem(at, code["code"].as_str().unwrap());
    // The agent that calls is there before; it is not the one that the deliveries are for, so that none is read.
    let mut daemon = Host::connect(at, "demo", &token).unwrap();
    let mut call = |rid: &str, method: &str, params: Value| {
        daemon.say(&json!({ "t": "rpc", "rid": rid, "method": method, "params": params })).unwrap();
        std::iter::from_fn(|| daemon.next()).find(|frame| frame["rid"] == rid).unwrap()
    };
    eventually(|| {
        call("r0", "list_agents", json!({ "caller": "a0@demo" }))["result"].is_array().then_some(())
    });
    // Whatever it knows by now it has read; what comes is read from pages that make no sense.
    let mut bytes = sound.clone();
    bytes[PAGE..].fill(0x5a);
    fs::write(&path, &bytes).unwrap();
    let health = http(at, &request("GET", "/ingest/other/health", &[], b""));
    assert_eq!(health.status(), 500, "a source that cannot be looked up is not one that is not there");
    eventually(|| {
        let answer = http(at, &signed_event("ci", SECRET, "new", "x"));
        assert_ne!(answer.status(), 202);
        (answer.status() == 500).then_some(())
    });
    let told = call("r1", "read_message", json!({ "id": delivery["id"], "caller": "a0@demo" }));
    assert_eq!(told["error"]["code"], "rpc_error", "{told}");
    assert_eq!(http(at, &request("GET", "/healthz", &[], b"")).status(), 200);
}

#[test]
fn what_may_not_be_written_is_told() {
    let home = Home::new();
    good(&home, &["migrate"]);
    // Root may write to everything but what the kernel shows.
    for place in ["/proc/self/w.db", "/sys/w.db"] {
        refused(&run(&home, &["migrate", "--database", place]), 73, place);
    }
}
