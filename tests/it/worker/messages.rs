//! Direct messages between two hosts.

use serde_json::{Value, json};

use super::{Daemon, Worker, event};
use transit::limits::QUEUE_BATCH;
use transit::proto::envelope::{self, Kind};

/// A Worker, with `amy@alpha` and `bob@beta` on it.
fn pair() -> (Worker, Daemon, Daemon, String) {
    let worker = Worker::start();
    let (alpha, beta) = (worker.enrol("alpha"), worker.enrol("beta"));
    let mut sender = worker.daemon("alpha", &alpha, &["amy"]);
    let mut recipient = worker.daemon("beta", &beta, &["bob"]);
    // A call is answered after the roster that came before it.
    for (daemon, caller) in [(&mut sender, "amy"), (&mut recipient, "bob")] {
        settled_roster(daemon, caller);
    }
    (worker, sender, recipient, beta)
}

fn settled_roster(daemon: &mut Daemon, caller: &str) {
    while daemon.call(caller, "list_agents", json!({})).is_err() {}
}

fn code(answer: &Value) -> &str {
    answer["code"].as_str().unwrap_or_default()
}

#[test]
fn a_message_reaches_its_agent_and_is_acknowledged_once_and_for_ever() {
    let (worker, mut amy, mut bob, beta) = pair();
    let answer = amy.send("tx_000000000001", "amy@alpha", "bob@beta", "hello\nthere");
    assert_eq!(answer, json!({ "t": "send_ack", "id": "tx_000000000001" }));
    let delivered = bob.delivered();
    assert_eq!((&delivered["id"], &delivered["agent"]), (&json!("tx_000000000001"), &json!("bob")));
    let parsed = envelope::parse(delivered["envelope"].as_str().unwrap()).unwrap().envelope;
    assert_eq!(
        (parsed.from.as_str(), parsed.body.as_str(), &parsed.kind),
        ("amy@alpha", "hello\nthere", &Kind::Dm)
    );
    assert_eq!(parsed.ts, "2026-01-01T00:00:00Z");
    bob.ack(&delivered);
    assert_eq!(amy.send("tx_000000000001", "amy@alpha", "bob@beta", "hello\nthere")["t"], "send_ack");
    let read = bob.call("bob", "read_message", json!({ "id": "tx_000000000001" })).unwrap();
    assert!(read.as_str().unwrap().contains("\nhello\nthere\n"), "{read}");
    assert_eq!(amy.call("amy", "read_message", json!({ "id": "tx_000000000001" })).unwrap_err(), "not_owner");
    drop(bob);
    let worker = worker.restart();
    let mut bob = worker.daemon("beta", &beta, &["bob"]);
    settled_roster(&mut bob, "bob");
    bob.say(&json!({ "t": "pong" }));
    assert_eq!(bob.next()["t"], "ping", "what was acknowledged is not delivered again");
}

#[test]
fn a_message_to_an_absent_host_waits_for_it_across_a_restart() {
    let (worker, mut amy, bob, beta) = pair();
    drop(bob);
    for n in 1..=3 {
        let id = format!("tx_00000000000{n}");
        assert_eq!(amy.send(&id, "amy@alpha", "bob@beta", &id)["t"], "send_ack");
    }
    let worker = worker.restart();
    let mut bob = worker.daemon("beta", &beta, &["bob"]);
    // The first one may have gone out before the Worker knew that nobody is there; then it comes alone, and again
    // until it is acknowledged.
    let mut ids: Vec<Value> = Vec::new();
    while ids.len() < 3 {
        let delivered = bob.delivered();
        bob.ack(&delivered);
        ids.extend((ids.last() != Some(&delivered["id"])).then(|| delivered["id"].clone()));
    }
    assert_eq!(ids, ["tx_000000000001", "tx_000000000002", "tx_000000000003"]);
}

#[test]
fn a_delivery_waits_until_its_agent_is_on_the_roster() {
    let (_worker, mut amy, mut bob, _beta) = pair();
    bob.roster(&[]);
    bob.say(&json!({ "t": "rpc", "rid": "r1", "method": "list_agents", "params": { "caller": "bob" } }));
    assert_eq!(bob.next()["t"], "rpc_result");
    assert_eq!(amy.send("tx_000000000001", "amy@alpha", "bob@beta", "x")["t"], "send_ack");
    bob.say(&json!({ "t": "pong" }));
    assert_eq!(bob.next()["t"], "ping");
    bob.roster(&["bob"]);
    assert_eq!(bob.delivered()["id"], "tx_000000000001");
}

#[test]
fn refusals_have_their_codes_and_permanent_ones_stay() {
    let (_worker, mut amy, mut bob, _beta) = pair();
    let mut refused = |id: &str, from: &str, to: &str, body: &str| {
        let answer = amy.send(id, from, to, body);
        assert_eq!(answer["t"], "send_nak", "{answer}");
        code(&answer).to_owned()
    };
    assert_eq!(refused("tx_0000000000a1", "amy@alpha", "nobody@beta", "x"), "no_route");
    assert_eq!(refused("tx_0000000000a2", "amy@alpha", "bob@nowhere", "x"), "no_route");
    assert_eq!(refused("tx_0000000000a3", "bob@beta", "amy@alpha", "x"), "no_route");
    assert_eq!(refused("tx_0000000000a4", "eve@alpha", "bob@beta", "x"), "no_route");
    assert_eq!(refused("tx_0000000000a5", "amy@alpha", "#ops", "x"), "no_route");
    assert_eq!(refused("tx_0000000000a6", "amy@alpha", "operator@beta", "x"), "reserved_name");
    assert_eq!(refused("tx_0000000000a7", "amy@alpha", "bob@beta", &"x".repeat(65_537)), "body_too_large");
    assert_eq!(
        refused("tx_0000000000a1", "amy@alpha", "bob@beta", "x"),
        "no_route",
        "the answer to an id stays"
    );
    assert_eq!(amy.send("tx_0000000000b1", "amy@alpha", "bob@beta", "x")["t"], "send_ack");
    assert_eq!(bob.delivered()["id"], "tx_0000000000b1");
    let taken = bob.send("tx_0000000000b1", "bob@beta", "amy@alpha", "x");
    assert_eq!(code(&taken), "reserved_name", "an id belongs to the host that used it first");
}

#[test]
fn a_sender_that_is_too_fast_is_told_and_may_send_the_same_id_later() {
    let (_worker, mut amy, _bob, _beta) = pair();
    let limited = (0..40).find_map(|n| {
        let id = format!("tx_0000000000{n:02}");
        let answer = amy.send(&id, "amy@alpha", "bob@beta", "x");
        (answer["t"] == "send_nak").then(|| {
            assert_eq!(code(&answer), "rate_limited");
            id
        })
    });
    let id = limited.expect("40 messages at once are more than 10 and 10 a second");
    crate::support::eventually(|| {
        (amy.send(&id, "amy@alpha", "bob@beta", "x")["t"] == "send_ack").then_some(())
    });
}

#[test]
fn a_permanent_refusal_bounces_to_the_sender_once() {
    let (_worker, mut amy, mut bob, _beta) = pair();
    assert_eq!(amy.send("tx_000000000001", "amy@alpha", "bob@beta", "x")["t"], "send_ack");
    let delivered = bob.delivered();
    bob.nak(&delivered, "adapter_rejected", false);
    let bounce = amy.delivered();
    let parsed = envelope::parse(bounce["envelope"].as_str().unwrap()).unwrap().envelope;
    assert_eq!((parsed.from.as_str(), parsed.reply_to.as_deref()), ("transit", Some("tx_000000000001")));
    assert_eq!(parsed.body, "undeliverable to bob@beta: adapter_rejected");
    amy.nak(&bounce, "adapter_rejected", false);
    amy.say(&json!({ "t": "pong" }));
    assert_eq!(amy.next()["t"], "ping", "a bounce is not bounced");
}

#[test]
fn a_refused_message_is_tried_again_before_the_next_of_its_pair() {
    let (_worker, mut amy, mut bob, _beta) = pair();
    assert_eq!(amy.send("tx_000000000001", "amy@alpha", "bob@beta", "1")["t"], "send_ack");
    let first = bob.delivered();
    bob.nak(&first, "draft_busy", true);
    // The refusal is stored before the call after it is answered.
    bob.call("bob", "mark_handled", json!({ "delivery_id": "dlv_000000000000" })).unwrap_err();
    assert_eq!(amy.send("tx_000000000002", "amy@alpha", "bob@beta", "2")["t"], "send_ack");
    bob.say(&json!({ "t": "pong" }));
    assert_eq!(bob.next()["t"], "ping", "the second waits behind the first");
    // The composer is free again.
    bob.roster(&["bob"]);
    let again = bob.delivered();
    assert_eq!(again["id"], "tx_000000000001");
    bob.ack(&again);
    assert_eq!(bob.delivered()["id"], "tx_000000000002");
}

#[test]
fn the_agents_of_all_hosts_are_listed() {
    let (_worker, mut amy, _bob, _beta) = pair();
    let listed = amy.call("amy", "list_agents", json!({})).unwrap();
    let addresses: Vec<&str> =
        listed.as_array().unwrap().iter().map(|a| a["address"].as_str().unwrap()).collect();
    assert_eq!(addresses, ["amy@alpha", "bob@beta"]);
    let beta = amy.call("amy", "list_agents", json!({ "host": "beta" })).unwrap();
    assert_eq!(beta.as_array().unwrap().len(), 1);
    assert_eq!(amy.call("amy", "list_agents", json!({ "host": "No!" })).unwrap_err(), "bad_params");
    assert_eq!(amy.call("bob", "list_agents", json!({})).unwrap_err(), "invalid_caller");
    assert_eq!(amy.call("amy", "no_such", json!({})).unwrap_err(), "unknown_method");
}

#[test]
fn an_event_that_comes_in_does_not_pass_those_that_wait_for_room() {
    let worker = Worker::start();
    worker.source("jess@titan", &["--rate", "1000", "--burst", "1000"]);
    let token = worker.enrol("titan");
    let post = |n: usize| {
        let answer = worker.event(event(&format!("k{n}")).to_string().as_bytes()).json();
        answer["delivery_id"].as_str().unwrap().to_owned()
    };
    let ids: Vec<String> = (0..QUEUE_BATCH + 2).map(post).collect();
    let mut daemon = worker.daemon("titan", &token, &["jess"]);
    let delivered: Vec<Value> = (0..QUEUE_BATCH).map(|_| daemon.delivered()).collect();
    assert!(delivered.iter().zip(&ids).all(|(frame, id)| frame["id"] == id.as_str()));
    daemon.ack(&delivered[0]);
    daemon.say(&json!({ "t": "pong" }));
    assert_eq!(daemon.next()["t"], "ping", "the ack was heard");
    post(ids.len());
    assert_eq!(daemon.delivered()["id"], ids[QUEUE_BATCH].as_str());
}

#[test]
fn only_its_sender_is_told_what_became_of_a_message() {
    let (_worker, mut amy, mut bob, _beta) = pair();
    let id = "tx_000000000001";
    let status = |daemon: &mut Daemon, caller: &str, id: &str| {
        daemon.call(caller, "message_status", json!({ "id": id }))
    };
    assert_eq!(amy.send(id, "amy@alpha", "bob@beta", "x")["t"], "send_ack");
    let delivered = bob.delivered();
    let queued =
        json!({ "id": id, "state": "queued", "recipients": [{ "agent": "bob@beta", "state": "queued" }] });
    assert_eq!(status(&mut amy, "amy", id).unwrap(), queued);
    assert_eq!(status(&mut bob, "bob", id).unwrap_err(), "not_owner", "the recipient is not the sender");
    bob.ack(&delivered);
    // The ack is recorded with the next change that somebody waits for.
    let next = bob.call("bob", "mark_handled", json!({ "delivery_id": "dlv_000000000001" }));
    assert_eq!(next.unwrap_err(), "not_found");
    let told = status(&mut amy, "amy", id).unwrap();
    assert_eq!((&told["state"], &told["recipients"][0]["state"]), (&json!("injected"), &json!("injected")));

    assert_eq!(amy.send("tx_000000000002", "amy@alpha", "bob@beta", "x")["t"], "send_ack");
    let delivered = bob.delivered();
    bob.nak(&delivered, "adapter_rejected", false);
    assert_eq!(amy.delivered()["t"], "deliver", "the bounce");
    let told = status(&mut amy, "amy", "tx_000000000002").unwrap();
    assert_eq!(
        (&told["state"], &told["recipients"][0]["error"]),
        (&json!("dead"), &json!("adapter_rejected"))
    );

    assert_eq!(code(&amy.send("tx_000000000003", "amy@alpha", "nobody@beta", "x")), "no_route");
    let told = status(&mut amy, "amy", "tx_000000000003").unwrap();
    assert_eq!(
        told,
        json!({ "id": "tx_000000000003", "state": "dead", "code": "no_route", "recipients": [] })
    );
    assert_eq!(status(&mut amy, "amy", "tx_00000000000f").unwrap_err(), "not_found");
    assert_eq!(status(&mut amy, "eve", id).unwrap_err(), "invalid_caller");
    assert_eq!(amy.call("amy", "message_status", json!({})).unwrap_err(), "bad_params");
}

#[test]
fn what_a_terminal_has_only_shown_is_not_said_to_be_injected() {
    let (worker, mut amy, mut bob, _beta) = pair();
    let id = "tx_000000000001";
    assert_eq!(amy.send(id, "amy@alpha", "bob@beta", "x")["t"], "send_ack");
    let delivered = bob.delivered();
    bob.say(&json!({ "t": "deliver_ack", "id": id, "agent": delivered["agent"], "via": "screen" }));
    crate::support::eventually(|| {
        let told = amy.call("amy", "message_status", json!({ "id": id })).unwrap();
        (told["state"] == "shown" && told["recipients"][0]["state"] == "shown").then_some(())
    });
    assert_eq!(worker.admin(&["message", "show", id])["state"], "shown");
    assert_eq!(worker.admin(&["message", "list", "--state", "shown"])["id"], id);
    // It is settled all the same: the next one goes out, and it comes no more.
    assert_eq!(amy.send("tx_000000000002", "amy@alpha", "bob@beta", "y")["t"], "send_ack");
    assert_eq!(bob.delivered()["id"], "tx_000000000002");
}

#[test]
fn what_waits_for_an_agent_follows_it_to_its_new_name() {
    let (_worker, mut amy, mut bob, _beta) = pair();
    let roster = |names: &[(&str, &str)]| {
        let agents: Vec<Value> = names
            .iter()
            .map(|(name, pane)| {
                json!({ "name": name, "kind": "program", "pane_id": pane, "status": "idle", "cwd": "/",
                        "title": "", "named_by": "user" })
            })
            .collect();
        json!({ "t": "roster", "agents": agents })
    };
    bob.say(&roster(&[("bob", "p1"), ("eve", "p2")]));
    settled_roster(&mut bob, "eve");
    for n in 1..=2 {
        assert_eq!(amy.send(&format!("tx_00000000000{n}"), "amy@alpha", "bob@beta", "x")["t"], "send_ack");
    }
    let (first, second) = (bob.delivered(), bob.delivered());
    assert_eq!(second["agent"], "bob");
    bob.nak(&second, "draft_busy", true);
    bob.say(&roster(&[("rob", "p1"), ("eve", "p2")]));
    // The first one may be sent again as well, when this takes long.
    let again =
        std::iter::from_fn(|| Some(bob.delivered())).find(|frame| frame["id"] == second["id"]).unwrap();
    assert_eq!(again["agent"], "rob");
    bob.ack(&again);
    // An answer to what was sent under the old name counts.
    bob.ack(&first);
    let injected = json!([{ "agent": "rob@beta", "state": "injected" }]);
    crate::support::eventually(|| {
        let told = amy.call("amy", "message_status", json!({ "id": first["id"] })).unwrap();
        (told["recipients"] == injected).then_some(())
    });
}
