//! What an operator does to messages beside the server, which takes effect at once.

use serde_json::{Value, json};

use super::{Daemon, Worker, event};
use crate::support::{Sink, eventually};

/// A Worker with `amy@alpha` and `bob@beta`.
fn world() -> (Worker, Daemon, Daemon) {
    let worker = Worker::start();
    let (alpha, beta) = (worker.enrol("alpha"), worker.enrol("beta"));
    let mut amy = worker.daemon("alpha", &alpha, &["amy"]);
    let mut bob = worker.daemon("beta", &beta, &["bob"]);
    settled(&mut amy, "amy");
    settled(&mut bob, "bob");
    (worker, amy, bob)
}

/// What was said before is stored once a call is answered.
fn settled(daemon: &mut Daemon, caller: &str) {
    while daemon.call(caller, "list_agents", json!({})).is_err() {}
}

fn send(amy: &mut Daemon, n: u32) -> String {
    let id = format!("tx_{n:012}");
    assert_eq!(amy.send(&id, "amy@alpha", "bob@beta", "hello")["t"], "send_ack");
    id
}

#[test]
fn a_message_that_is_cancelled_holds_nobody_up_and_one_that_is_queued_again_comes_at_once() {
    let (worker, mut amy, mut bob) = world();
    let first = send(&mut amy, 1);
    let delivered = bob.delivered();
    bob.nak(&delivered, "draft_busy", true);
    bob.call("bob", "mark_handled", json!({ "delivery_id": "dlv_000000000000" })).unwrap_err();
    let second = send(&mut amy, 2);
    bob.say(&json!({ "t": "pong" }));
    assert_eq!(bob.next()["t"], "ping", "the second waits behind the first");

    let cancelled = worker.admin(&["message", "cancel", &first])["message"].clone();
    assert_eq!(
        (&cancelled["state"], &cancelled["last_error"]),
        (&json!("dead"), &json!("cancelled_by_operator"))
    );
    let delivered = bob.delivered();
    assert_eq!(delivered["id"], second.as_str());
    bob.ack(&delivered);
    let told = amy.call("amy", "message_status", json!({ "id": first })).unwrap();
    assert_eq!(told["recipients"][0]["error"], "cancelled_by_operator", "the sender sees it when it asks");

    assert_eq!(worker.admin(&["message", "requeue", &first])["message"]["state"], "queued");
    let again = bob.delivered();
    assert_eq!(again["id"], first.as_str());
    bob.ack(&again);
    eventually(|| (worker.admin(&["message", "show", &first])["state"] == "injected").then_some(()));
    amy.say(&json!({ "t": "pong" }));
    assert_eq!(amy.next()["t"], "ping", "no bounce was sent");
}

#[test]
fn messages_are_listed_and_shown_with_what_became_of_them() {
    let (worker, mut amy, mut bob) = world();
    let ids = [1, 2, 3].map(|n| send(&mut amy, n));
    let delivered = [(); 3].map(|()| bob.delivered());
    bob.ack(&delivered[0]);
    bob.nak(&delivered[1], "adapter_rejected", false);
    assert_eq!(amy.delivered()["t"], "deliver", "the bounce");
    settled(&mut bob, "bob");
    let listed = |args: &[&str]| {
        let args = [&["message", "list", "--json"], args].concat();
        let ran = worker.home.run("transit-worker", args, b"");
        let lines = crate::support::text(&ran.stdout).lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    assert_eq!(listed(&[]).len(), 4);
    assert_eq!(listed(&["--state", "injected"])[0]["id"], ids[0].as_str());
    assert_eq!(listed(&["--state", "dead"])[0]["id"], ids[1].as_str());
    assert_eq!(listed(&["--state", "queued"])[0]["id"], ids[2].as_str());
    let latest = listed(&["--limit", "2"]);
    assert_eq!((latest.len(), &latest[0]["id"]), (2, &json!(ids[2])));
    assert_eq!(latest[1]["from"], "transit");
    let shown = worker.admin(&["message", "show", &ids[1]]);
    assert_eq!(
        (&shown["body"], &shown["to"], &shown["bytes"]),
        (&json!("hello"), &json!("bob@beta"), &json!(5))
    );
    assert_eq!(
        shown["recipients"],
        json!([{ "agent": "bob@beta", "state": "dead", "last_error": "adapter_rejected" }])
    );
}

#[test]
fn a_delivery_that_is_handled_ends_the_retries_of_its_callback() {
    let sink = Sink::start(&[503]);
    let worker = Worker::start();
    let url = format!("http://{}/", sink.at);
    worker.source("jess@titan", &["--reply-url", &url, "--reply-url-prefix", &url]);
    let token = worker.enrol("titan");
    let mut daemon = worker.daemon("titan", &token, &["jess"]);
    assert_eq!(worker.event(event("k").to_string().as_bytes()).status(), 202);
    let delivered = daemon.delivered();
    daemon.ack(&delivered);
    let id = delivered["id"].as_str().unwrap();
    let reply = json!({ "delivery_id": id, "conversation_id": "c 1", "message": "done" });
    assert_eq!(daemon.call("jess", "chat_reply", reply).unwrap()["status"], "post_pending");
    sink.next();
    worker.admin(&["delivery", "requeue", id]);
    sink.next();
    assert_eq!(worker.admin(&["delivery", "handle", id])["delivery"]["state"], "handled");
    let refused = worker.home.run("transit-worker", ["delivery", "requeue", id], b"");
    assert_eq!(refused.status.code(), Some(1));
    assert!(crate::support::text(&refused.stderr).contains("is settled already"));
    // The next attempt would have been made within this restart.
    let worker = worker.restart();
    assert_eq!(worker.admin(&["delivery", "show", id])["reply"]["state"], "dropped");
    assert!(sink.rest().is_empty());
}
