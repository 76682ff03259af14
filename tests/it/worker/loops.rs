//! Agents that answer each other without end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Daemon, Worker, event};
use crate::support::{Home, eventually};

/// A Worker with this limit, and `amy` and `bob` on one host with it.
fn world(options: &[&str]) -> (Worker, Daemon, String) {
    let worker = Worker::start_with(Home::new(), options);
    let token = worker.enrol("titan");
    let mut daemon = worker.daemon("titan", &token, &["amy", "bob"]);
    ready(&mut daemon);
    (worker, daemon, token)
}

/// The roster is stored once a call in an agent's name is answered.
fn ready(daemon: &mut Daemon) {
    loop {
        daemon
            .say(&json!({ "t": "rpc", "rid": "r", "method": "list_agents", "params": { "caller": "amy" } }));
        let answer = loop {
            let frame = daemon.next();
            match frame["t"].as_str() {
                Some("deliver") => daemon.ack(&frame),
                _ => break frame,
            }
        };
        if answer.get("error").is_none() {
            return;
        }
    }
}

/// Sends a message, takes what is delivered of it, and answers the code of its refusal.
fn send(daemon: &mut Daemon, n: u32, from: &str, to: &str, reply_to: Option<u32>) -> Option<String> {
    let id = |n: u32| format!("tx_{n:012}");
    let mut frame = json!({ "t": "send", "id": id(n), "from": from, "to": to, "body": "x",
                            "ts": "2026-01-01T00:00:00Z" });
    if let Some(n) = reply_to {
        frame["reply_to"] = id(n).into();
    }
    daemon.say(&frame);
    loop {
        let frame = daemon.next();
        match frame["t"].as_str() {
            Some("deliver") => daemon.ack(&frame),
            Some("send_ack") => return None,
            Some("send_nak") => return Some(frame["code"].as_str().unwrap().to_owned()),
            other => panic!("{other:?}"),
        }
    }
}

const LIMITED: Option<&str> = Some("rate_limited");

#[test]
fn a_pair_is_refused_at_its_limit_until_an_event_comes_and_a_known_id_is_answered_as_before() {
    let (worker, mut daemon, token) = world(&["--loop-limit", "3"]);
    worker.source("bob@titan", &[]);
    for n in 1..=3 {
        assert_eq!(send(&mut daemon, n, "amy@titan", "bob@titan", None), None);
        assert_eq!(send(&mut daemon, n, "amy@titan", "bob@titan", None), None, "a duplicate counts nothing");
    }
    assert_eq!(send(&mut daemon, 4, "amy@titan", "bob@titan", None).as_deref(), LIMITED);
    assert_eq!(send(&mut daemon, 5, "amy@titan", "bob@titan", None).as_deref(), LIMITED);
    assert_eq!(send(&mut daemon, 3, "amy@titan", "bob@titan", None), None, "it is known");
    assert_eq!(send(&mut daemon, 6, "bob@titan", "amy@titan", None), None, "another pair");

    // A server that starts anew has not forgotten.
    drop(daemon);
    let Worker { home, mut process, .. } = worker;
    process.signal(rustix::process::Signal::KILL);
    process.wait();
    let warned: Vec<String> = std::iter::from_fn(|| process.last_error())
        .filter(|line| line.contains("agents go round in a loop"))
        .collect();
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("amy@titan") && warned[0].contains("bob@titan"), "{warned:?}");
    let worker = Worker::start_with(home, &["--loop-limit", "3"]);
    let mut daemon = worker.daemon("titan", &token, &["amy", "bob"]);
    ready(&mut daemon);
    assert_eq!(send(&mut daemon, 4, "amy@titan", "bob@titan", None).as_deref(), LIMITED);
    assert_eq!(worker.event(event("k").to_string().as_bytes()).status(), 202);
    assert_eq!(send(&mut daemon, 4, "amy@titan", "bob@titan", None), None, "the refusal did not stick");
}

#[test]
fn a_chain_is_refused_through_all_who_answer_in_it() {
    let (_worker, mut daemon, _) = world(&["--loop-limit", "4"]);
    let (amy, bob) = ("amy@titan", "bob@titan");
    for n in 1..=4 {
        let (from, to) = if n % 2 == 0 { (bob, amy) } else { (amy, bob) };
        assert_eq!(send(&mut daemon, n, from, to, (n > 1).then(|| n - 1)), None);
    }
    assert_eq!(send(&mut daemon, 5, amy, bob, Some(4)).as_deref(), LIMITED);
    assert_eq!(send(&mut daemon, 6, bob, amy, Some(1)).as_deref(), LIMITED);
    assert_eq!(send(&mut daemon, 7, amy, bob, None), None, "a new matter");
}

#[test]
fn what_is_refused_for_another_reason_counts_nothing_and_the_guard_cools() {
    let (_worker, mut daemon, _) = world(&["--loop-limit", "1", "--loop-window", "5s"]);
    for n in 1..=3 {
        let refused = send(&mut daemon, n, "amy@titan", "nobody@titan", None);
        assert_eq!(refused.as_deref(), Some("no_route"), "an agent that is none is no loop");
    }
    assert_eq!(send(&mut daemon, 4, "amy@titan", "bob@titan", None), None);
    assert_eq!(send(&mut daemon, 5, "amy@titan", "bob@titan", None).as_deref(), LIMITED);
    let refused_at = Instant::now();
    eventually(|| (refused_at.elapsed() > Duration::from_secs(5)).then_some(()));
    assert_eq!(send(&mut daemon, 5, "amy@titan", "bob@titan", None), None);
}

#[test]
fn the_limit_comes_from_the_configuration_too_and_can_be_none() {
    let home = Home::new();
    let write = |config: &Value| home.file("config.json", config.to_string());
    write(&json!({ "loop_guard": { "limit": 1, "window": "soon" } }));
    let refused = home.command("transit-worker").args(["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(78));
    assert!(crate::support::text(&refused.stderr).contains("loop_guard.window: \"soon\" is no duration"));

    write(&json!({ "loop_guard": { "limit": 1, "window": "5m" } }));
    let worker = Worker::start_in(home);
    let token = worker.enrol("titan");
    let mut daemon = worker.daemon("titan", &token, &["amy", "bob"]);
    ready(&mut daemon);
    assert_eq!(send(&mut daemon, 1, "amy@titan", "bob@titan", None), None);
    assert_eq!(send(&mut daemon, 2, "amy@titan", "bob@titan", None).as_deref(), LIMITED);

    drop(daemon);
    let Worker { home, process, .. } = worker;
    drop(process);
    let worker = Worker::start_with(home, &["--loop-limit", "0"]);
    let mut daemon = worker.daemon("titan", &token, &["amy", "bob"]);
    ready(&mut daemon);
    for n in 2..9 {
        assert_eq!(send(&mut daemon, n, "amy@titan", "bob@titan", Some(1)), None);
    }
}

#[test]
fn a_room_is_counted_once_a_post_with_its_own_limit_and_an_operator_makes_room_again() {
    let (worker, mut daemon, _) = world(&["--loop-limit", "100"]);
    worker.admin(&["room", "create", "ops", "--loop-limit", "2"]);
    worker.admin(&["room", "add", "ops", "amy@titan"]);
    worker.admin(&["room", "add", "ops", "bob@titan"]);
    assert_eq!(send(&mut daemon, 1, "amy@titan", "#ops", None), None);
    assert_eq!(send(&mut daemon, 2, "bob@titan", "#ops", None), None);
    assert_eq!(send(&mut daemon, 3, "amy@titan", "#ops", None).as_deref(), LIMITED);
    worker.admin(&["room", "post", "ops", "-m", "enough"]);
    eventually(|| send(&mut daemon, 3, "amy@titan", "#ops", None).is_none().then_some(()));
    // Not amy, whose every try counted for how many messages one may send a second.
    assert_eq!(send(&mut daemon, 4, "bob@titan", "#ops", None), None);
    assert_eq!(send(&mut daemon, 5, "bob@titan", "#ops", None).as_deref(), LIMITED);
    worker.admin(&["room", "update", "ops", "--loop-limit", "0"]);
    assert_eq!(send(&mut daemon, 5, "bob@titan", "#ops", None), None);
}
