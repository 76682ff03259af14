//! The host's own agents as agents of the mesh: whole systems of real programs, and agents that are scripts.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::rig::{Rig, until};
use crate::support::{Sink, eventually, text};

/// A system whose source is for `bob@demo`, a program.
fn rig(sink: &Sink, script: &str) -> Rig {
    let rig = Rig::start(&format!("http://{}/reply/", sink.at));
    let dir = place(&rig, "");
    fs::create_dir_all(&dir).unwrap();
    let manifest = "[agent]\nname = \"bob\"\n[run]\ncommand = \"sh\"\nargs = [\"./agent.sh\"]\n";
    fs::write(dir.join("agent.sh"), script).unwrap();
    fs::write(dir.join("agent.toml"), manifest).unwrap();
    let reloaded = rig.home.run("transitd", ["reload"], b"");
    assert!(reloaded.status.success(), "{}", text(&reloaded.stderr));
    assert_eq!(agent(&rig)["harness"], "program");
    rig
}

fn place(rig: &Rig, file: &str) -> PathBuf {
    rig.home.path(".config/dotagent/agents/bob").join(file)
}

/// The program, once it can be reached.
fn agent(rig: &Rig) -> Value {
    eventually(|| {
        let out = rig.home.run("transitd", ["status", "--json"], b"");
        let status: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        status["agents"].as_array()?.iter().find(|agent| agent["address"] == "bob@demo").cloned()
    })
}

fn trail(rig: &Rig) -> Vec<Value> {
    let text = fs::read_to_string(rig.home.path(".config/dotagent/audit.log")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].take()).collect()
}

#[test]
fn an_event_runs_a_program_and_its_reply_comes_back_signed() {
    let sink = Sink::start(&[200]);
    let rig = rig(&sink, "printf '%s' \"$AGENT_TRIGGER_PAYLOAD\" | grep -q 'build broke' && echo on it");
    let accepted = rig.post("build-1", "the build broke");
    assert_eq!(accepted.status(), 202);
    let posted = sink.next();
    assert!(rig.verify_callback(&posted).status.success());
    assert_eq!(posted.json()["message"], "on it", "{}", posted.json());
    let id = accepted.json()["delivery_id"].as_str().unwrap().to_owned();
    until(&rig, &["delivery", "show", &id], |row| row["state"] == "handled");
    let trail = trail(&rig);
    let received = trail.iter().find(|entry| entry["event_type"] == "trigger_received").unwrap();
    assert_eq!((&received["source"], &received["reply_to"]), (&json!("transit"), &json!(id)));
    assert!(!trail.iter().any(|entry| entry.to_string().contains("broke")));
}

#[test]
fn a_program_that_has_nothing_to_say_settles_the_event() {
    let sink = Sink::start(&[]);
    let rig = rig(&sink, "exit 0");
    let id = rig.post("build-1", "the build broke").json()["delivery_id"].as_str().unwrap().to_owned();
    until(&rig, &["delivery", "show", &id], |row| row["state"] == "handled");
}

#[test]
fn an_event_that_a_program_refuses_is_run_again_only_for_the_operator() {
    let sink = Sink::start(&[200]);
    let rig = rig(&sink, "echo x >> runs; if test -e mended; then echo done; else exit 3; fi");
    let id = rig.post("build-1", "the build broke").json()["delivery_id"].as_str().unwrap().to_owned();
    until(&rig, &["delivery", "show", &id], |row| {
        row["state"] == "dead" && row["last_error"] == "agent_refused"
    });
    let listed = rig.admin(&["delivery", "list", "--state", "dead"]);
    assert_eq!(listed["id"], json!(id));
    let told = rig.home.run("transit-worker", ["doctor", "--json"], b"");
    assert!(text(&told.stdout).contains("1 events were refused by their agents for good"), "{told:?}");

    // A later one is run, and the refused one is not.
    fs::write(place(&rig, "mended"), "").unwrap();
    let later = rig.post("build-2", "again").json()["delivery_id"].as_str().unwrap().to_owned();
    assert_eq!(sink.next().json()["message"], "done");
    until(&rig, &["delivery", "show", &later], |row| row["state"] == "handled");
    let runs = || fs::read_to_string(place(&rig, "runs")).unwrap().lines().count();
    assert_eq!(runs(), 2);

    rig.admin(&["delivery", "requeue", &id]);
    assert_eq!(sink.next().json()["message"], "done");
    until(&rig, &["delivery", "show", &id], |row| row["state"] == "handled");
    assert_eq!(runs(), 3);
}

#[test]
fn a_message_to_a_program_is_answered_to_its_sender() {
    let sink = Sink::start(&[]);
    let rig = rig(&sink, "echo \"you are $AGENT_TRIGGER_ACTOR\"");
    let mut alice = rig.listen("alice");
    let sent = rig.home.run("transit-send", ["bob@demo", "-m", "hello", "--as", "alice", "--json"], b"");
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    let sent: Value = serde_json::from_slice(&sent.stdout).unwrap();
    let answer = alice.delivered();
    alice.ack(answer["id"].as_str().unwrap());
    let envelope = answer["envelope"].as_str().unwrap();
    assert!(envelope.contains("from=\"bob@demo\"") && envelope.contains("you are alice@demo"), "{envelope}");
    assert!(envelope.contains(&format!("reply_to={}", sent["id"])), "{envelope}");
}

#[test]
fn a_daemon_that_is_killed_during_a_run_leaves_nothing_running_and_answers_once() {
    let sink = Sink::start(&[200]);
    let script = "echo $$ >> pids; if test ! -e again; then touch again; sleep 600 & wait; fi; echo done";
    let mut rig = rig(&sink, script);
    let id = rig.post("build-1", "the build broke").json()["delivery_id"].as_str().unwrap().to_owned();
    let pids = || -> Vec<u32> {
        let text = fs::read_to_string(place(&rig, "pids")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    };
    let first = eventually(|| {
        let is_running = place(&rig, "again").exists();
        pids().first().copied().filter(|_| is_running)
    });
    rig.kill_daemon();
    rig.start_daemon();
    eventually(|| (transit::store::process::start_time(first).is_none()).then_some(()));
    assert_eq!(sink.next().json()["message"], "done");
    until(&rig, &["delivery", "show", &id], |row| row["state"] == "handled");
    let received: Vec<_> =
        trail(&rig).into_iter().filter(|entry| entry["event_type"] == "trigger_received").collect();
    assert_eq!(received.len(), 2, "each run is on the trail: {received:?}");
    assert!(received.iter().all(|entry| entry["id"] == json!(id)));
}
