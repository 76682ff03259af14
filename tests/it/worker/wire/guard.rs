//! The loop guard with its own limit, and who ends a loop.

use std::time::Duration;

use serde_json::json;

use super::super::{Worker, event};
use super::{Peer, tx};
use crate::support::{Home, eventually_within};
use transit::limits::LOOP_LIMIT;

/// Looks ten times a second: each look costs a frame.
fn gently<T>(look: impl FnMut() -> Option<T>) -> T {
    eventually_within(Duration::from_secs(600), look)
}

fn names(count: u32) -> Vec<String> {
    (0..count).map(|n| format!("a{n}")).collect()
}

#[test]
fn thirty_pass_along_a_chain_of_whoever_answers_and_an_event_lets_it_go_on() {
    let worker = Worker::start();
    worker.source("a5@alpha", &[]);
    let token = worker.enrol("alpha");
    let names = names(LOOP_LIMIT + 4);
    let agents: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut alpha = Peer::enter(&worker, "alpha", &token, &agents);
    let answer = |alpha: &mut Peer, n: u32| {
        let mut frame = json!({ "id": tx(n), "from": format!("a{n}@alpha"), "to": format!("a{}@alpha", n + 1),
                                "body": "x", "ts": "2026-01-01T00:00:00Z" });
        if n > 0 {
            frame["reply_to"] = tx(n - 1).into();
        }
        alpha.send_frame(frame)
    };
    for n in 0..LOOP_LIMIT {
        assert_eq!(answer(&mut alpha, n), None, "{n}");
    }
    // Each has sent one: no rate is in the way.
    assert_eq!(answer(&mut alpha, LOOP_LIMIT).unwrap(), "rate_limited");
    assert_eq!(answer(&mut alpha, LOOP_LIMIT - 1), None, "what was taken is known");
    assert_eq!(alpha.send(&tx(900), "a30", "a31@alpha"), None, "a new matter");
    assert_eq!(worker.event(event("k1").to_string().as_bytes()).status(), 202);
    assert_eq!(answer(&mut alpha, LOOP_LIMIT), None, "somebody from outside has spoken to one of them");
}

#[test]
fn thirty_pass_along_an_ordered_pair() {
    let worker = Worker::start();
    let token = worker.enrol("alpha");
    let mut alpha = Peer::enter(&worker, "alpha", &token, &["amy", "bob", "eve"]);
    for n in 0..LOOP_LIMIT {
        gently(|| alpha.send(&tx(n), "amy", "bob@alpha").is_none().then_some(()));
    }
    // The same sender may write to another, so that it is not its rate.
    for n in 0..3 {
        assert_eq!(gently(|| alpha.send(&tx(100), "amy", "bob@alpha")), "rate_limited");
        gently(|| alpha.send(&tx(200 + n), "amy", "eve@alpha").is_none().then_some(()));
    }
    assert_eq!(alpha.send(&tx(300), "bob", "amy@alpha"), None, "the other way is another pair");
}

#[test]
fn a_room_has_one_count_for_all_its_own_limit_and_the_operator_s_word_begins_it_anew() {
    let worker = Worker::start_with(Home::new(), &["--loop-limit", "2"]);
    let token = worker.enrol("alpha");
    let mut alpha = Peer::enter(&worker, "alpha", &token, &["amy", "bob", "eve"]);
    worker.admin(&["room", "create", "ops"]);
    for agent in ["amy", "bob", "eve"] {
        worker.admin(&["room", "add", "ops", &format!("{agent}@alpha")]);
    }
    assert_eq!(alpha.send(&tx(1), "amy", "#ops"), None);
    assert_eq!(alpha.send(&tx(2), "bob", "#ops"), None, "a post counts once, however many hear it");
    assert_eq!(alpha.send(&tx(3), "eve", "#ops").unwrap(), "rate_limited");
    worker.admin(&["room", "post", "ops", "--message", "go on"]);
    gently(|| alpha.send(&tx(3), "eve", "#ops").is_none().then_some(()));
    worker.admin(&["room", "update", "ops", "--loop-limit", "0"]);
    for n in 4..9 {
        assert_eq!(alpha.send(&tx(n), "amy", "#ops"), None);
    }
    worker.admin(&["room", "update", "ops", "--loop-limit", "1"]);
    assert_eq!(alpha.send(&tx(9), "bob", "#ops").unwrap(), "rate_limited");
}
