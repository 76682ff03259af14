//! Rooms: frames and calls of daemons, and an operator beside them.

use serde_json::{Value, json};

use super::{Daemon, Worker, event};
use crate::support::{Sink, eventually, text};
use transit::proto::envelope::{self, Envelope, Kind};

/// A Worker with `amy@alpha`, and `bob@beta` and `cat@beta`.
fn world() -> (Worker, Daemon, Daemon, [String; 2]) {
    let worker = Worker::start();
    let tokens = [worker.enrol("alpha"), worker.enrol("beta")];
    let mut alpha = worker.daemon("alpha", &tokens[0], &["amy"]);
    let mut beta = worker.daemon("beta", &tokens[1], &["bob", "cat"]);
    for (daemon, caller) in [(&mut alpha, "amy"), (&mut beta, "bob")] {
        settled(daemon, caller);
    }
    (worker, alpha, beta, tokens)
}

/// Whatever was said before this is in the ledger.
fn settled(daemon: &mut Daemon, caller: &str) {
    while daemon.call(caller, "list_agents", json!({})).is_err() {}
}

/// All three are in `#ops`.
fn in_ops(alpha: &mut Daemon, beta: &mut Daemon) {
    let made = alpha.call("amy", "create_room", json!({ "room": "ops", "address": "amy@alpha" })).unwrap();
    assert_eq!(made, json!({ "room": "ops", "joined": true }));
    for agent in ["bob", "cat"] {
        beta.call(agent, "join_room", json!({ "room": "#ops" })).unwrap();
    }
}

fn shown(delivered: &Value) -> Envelope {
    envelope::parse(delivered["envelope"].as_str().unwrap()).unwrap().envelope
}

fn number(delivered: &Value) -> u64 {
    match shown(delivered).kind {
        Kind::Room { room, seq, .. } if room == "ops" => seq,
        other => panic!("{other:?}"),
    }
}

fn quiet(daemon: &mut Daemon) {
    daemon.say(&json!({ "t": "pong" }));
    assert_eq!(daemon.next()["t"], "ping");
}

#[test]
fn what_is_said_in_a_room_reaches_all_but_the_sender_and_each_settles_it_alone() {
    let (_worker, mut alpha, mut beta, _) = world();
    in_ops(&mut alpha, &mut beta);
    assert_eq!(alpha.send("tx_000000000001", "amy@alpha", "#ops", "hello")["t"], "send_ack");
    let (bob, cat) = (beta.delivered(), beta.delivered());
    let mut agents = [bob["agent"].as_str().unwrap(), cat["agent"].as_str().unwrap()];
    agents.sort_unstable();
    assert_eq!(agents, ["bob", "cat"]);
    let envelope = bob["envelope"].as_str().unwrap();
    assert!(
        envelope.contains("from=\"amy@alpha\" id=\"tx_000000000001\"")
            && envelope.contains(" kind=\"room\" room=\"ops\" seq=\"1\" ")
    );
    assert!(
        envelope.contains("[reply: send_message to=\"amy@alpha\" reply_to=\"tx_000000000001\"]"),
        "{envelope}"
    );
    beta.ack(&bob);
    beta.nak(&cat, "no_thanks", false);
    let bounce = shown(&alpha.delivered());
    assert_eq!((bounce.from.as_str(), bounce.reply_to.as_deref()), ("transit", Some("tx_000000000001")));
    let lost = format!("{}@beta", cat["agent"].as_str().unwrap());
    assert_eq!(bounce.body, format!("undeliverable to {lost} in #ops: no_thanks"));
    let told = alpha.call("amy", "message_status", json!({ "id": "tx_000000000001" })).unwrap();
    assert_eq!(
        (told["state"].as_str(), told["recipients"].as_array().map(Vec::len)),
        (Some("dead"), Some(2))
    );

    // The next number, in the other direction, to another agent of the sender's own host too.
    let frames = [beta.send("tx_000000000002", "bob@beta", "#ops", "yes"), beta.next()];
    let cat = frames.iter().find(|frame| frame["t"] == "deliver").unwrap();
    assert_eq!((cat["agent"].as_str(), number(cat)), (Some("cat"), 2));
    assert!(frames.iter().any(|frame| frame["t"] == "send_ack"), "{frames:?}");
    assert_eq!(number(&alpha.delivered()), 2);
}

#[test]
fn a_message_of_a_room_is_read_by_its_members_and_its_sender() {
    let (worker, mut alpha, mut beta, _) = world();
    alpha.call("amy", "create_room", json!({ "room": "ops" })).unwrap();
    beta.call("bob", "join_room", json!({ "room": "ops" })).unwrap();
    let long = "x".repeat(5_000);
    assert_eq!(alpha.send("tx_000000000001", "amy@alpha", "#ops", &long)["t"], "send_ack");
    let delivered = beta.delivered();
    assert!(delivered["envelope"].as_str().unwrap().contains("truncated=\"1\""));
    beta.ack(&delivered);
    let id = json!({ "id": "tx_000000000001" });
    for (daemon, agent) in [(&mut beta, "bob"), (&mut alpha, "amy")] {
        assert!(daemon.call(agent, "read_message", id.clone()).unwrap().as_str().unwrap().contains(&long));
    }
    assert_eq!(beta.call("cat", "read_message", id).unwrap_err(), "not_owner");
    drop(worker);
}

#[test]
fn refusals_of_rooms_have_their_codes() {
    let (worker, mut alpha, mut beta, _) = world();
    let code = |answer: Value| answer["code"].as_str().unwrap_or_default().to_owned();
    assert_eq!(code(alpha.send("tx_0000000000a1", "amy@alpha", "#ops", "x")), "no_route");
    assert_eq!(code(alpha.send("tx_0000000000a2", "amy@alpha", "#Ops!", "x")), "no_route");
    assert_eq!(code(alpha.send("tx_0000000000a3", "amy@alpha", "#operator", "x")), "reserved_name");
    beta.call("bob", "create_room", json!({ "room": "ops", "policy": "invite" })).unwrap();
    assert_eq!(code(alpha.send("tx_0000000000a4", "amy@alpha", "#ops", "x")), "not_member");
    assert_eq!(
        code(alpha.send("tx_0000000000a5", "amy@alpha", "#ops", &"x".repeat(65_537))),
        "body_too_large"
    );
    assert_eq!(code(alpha.send("tx_0000000000a6", "bob@beta", "#ops", "x")), "no_route");
    let call = |daemon: &mut Daemon, agent: &str, method: &str, params: Value| {
        daemon.call(agent, method, params).unwrap_err()
    };
    assert_eq!(call(&mut alpha, "amy", "join_room", json!({ "room": "ops" })), "invite_only");
    assert_eq!(call(&mut alpha, "amy", "join_room", json!({ "room": "none" })), "room_not_found");
    assert_eq!(call(&mut alpha, "amy", "leave_room", json!({ "room": "none" })), "room_not_found");
    assert_eq!(call(&mut alpha, "amy", "create_room", json!({ "room": "ops" })), "room_exists");
    assert_eq!(call(&mut alpha, "bob", "join_room", json!({ "room": "ops" })), "invalid_caller");
    let others = json!({ "room": "ops", "address": "bob@beta" });
    for method in ["create_room", "join_room", "leave_room"] {
        assert_eq!(call(&mut alpha, "amy", method, others.clone()), "invalid_caller");
        for params in [json!({}), json!({ "room": "" }), json!({ "room": 1 }), json!({ "room": "No!" })] {
            assert_eq!(call(&mut alpha, "amy", method, params), "bad_params");
        }
    }
    for policy in [json!("closed"), json!(1)] {
        let params = json!({ "room": "new", "policy": policy });
        assert_eq!(call(&mut alpha, "amy", "create_room", params), "bad_params");
    }
    // What the operator does is true at once, and what was refused for good stays so.
    worker.admin(&["room", "add", "ops", "amy@alpha"]);
    assert_eq!(code(alpha.send("tx_0000000000a4", "amy@alpha", "#ops", "x")), "not_member");
    assert_eq!(alpha.send("tx_0000000000b1", "amy@alpha", "#ops", "x")["t"], "send_ack");
    for _ in 0..2 {
        alpha.call("amy", "join_room", json!({ "room": "ops" })).unwrap();
    }
    let listed = alpha.call("amy", "list_rooms", json!({})).unwrap();
    let room = &listed.as_array().unwrap()[0];
    assert_eq!(
        (&room["name"], &room["policy"], &room["members"], &room["joined"]),
        (&json!("ops"), &json!("invite"), &json!(2), &json!(true))
    );
    for _ in 0..2 {
        let left = alpha.call("amy", "leave_room", json!({ "room": "ops" })).unwrap();
        assert_eq!(left, json!({ "room": "ops", "left": true }));
    }
    assert_eq!(code(alpha.send("tx_0000000000b2", "amy@alpha", "#ops", "x")), "not_member");
}

#[test]
fn an_operator_s_post_reaches_who_is_connected_and_asks_for_answers_to_the_room() {
    let (worker, mut alpha, mut beta, _) = world();
    in_ops(&mut alpha, &mut beta);
    let posted = worker.admin(&["room", "post", "ops", "-m", "the freeze begins at noon"]);
    let id = posted["message"]["id"].as_str().unwrap();
    let delivered = alpha.delivered();
    let told = delivered["envelope"].as_str().unwrap();
    assert!(told.contains("from=\"operator@transit\"") && told.contains("to=\"#ops\" reply_to="), "{told}");
    assert_eq!((&delivered["id"], number(&delivered)), (&json!(id), 1));
    alpha.nak(&delivered, "no_thanks", false);
    for delivered in [beta.delivered(), beta.delivered()] {
        beta.ack(&delivered);
    }
    settled(&mut alpha, "amy");
    quiet(&mut alpha);
    let history = worker.home.run("transit-worker", ["room", "history", "ops", "--json"], b"");
    assert!(text(&history.stdout).contains("\"body\":\"the freeze begins at noon\""));
}

#[test]
fn a_worker_that_is_killed_after_its_commit_delivers_to_every_member() {
    let (worker, mut alpha, mut beta, [amys, token]) = world();
    in_ops(&mut alpha, &mut beta);
    drop(beta);
    for n in 1..=5 {
        let id = format!("tx_00000000000{n}");
        assert_eq!(alpha.send(&id, "amy@alpha", "#ops", "x")["t"], "send_ack");
    }
    let worker = worker.restart();
    let mut beta = worker.daemon("beta", &token, &["bob", "cat"]);
    let (mut bob, mut cat) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let delivered = beta.delivered();
        if delivered["agent"] == "bob" { &mut bob } else { &mut cat }.push(number(&delivered));
        beta.ack(&delivered);
    }
    assert_eq!((bob, cat), (vec![1, 2, 3, 4, 5], vec![1, 2, 3, 4, 5]));
    // A daemon that did not hear the answer asks again, and gets the one that it would have got.
    let mut alpha = worker.daemon("alpha", &amys, &["amy"]);
    settled(&mut alpha, "amy");
    assert_eq!(alpha.send("tx_000000000005", "amy@alpha", "#ops", "x")["t"], "send_ack");
    settled(&mut beta, "bob");
    quiet(&mut beta);
    assert_eq!(worker.admin(&["room", "show", "ops"])["last_seq"], 5);
}

#[test]
fn what_waits_in_a_room_survives_leaving_and_deleting() {
    let (worker, mut alpha, mut beta, [_, token]) = world();
    in_ops(&mut alpha, &mut beta);
    drop(beta);
    assert_eq!(alpha.send("tx_000000000001", "amy@alpha", "#ops", "x")["t"], "send_ack");
    worker.admin(&["room", "remove", "ops", "bob@beta"]);
    assert_eq!(alpha.send("tx_000000000002", "amy@alpha", "#ops", "x")["t"], "send_ack");
    worker.admin(&["room", "delete", "ops"]);
    assert_eq!(alpha.send("tx_000000000003", "amy@alpha", "#ops", "x")["code"], "no_route");
    let mut beta = worker.daemon("beta", &token, &["bob", "cat"]);
    let mut told: Vec<(String, u64)> = (0..3)
        .map(|_| beta.delivered())
        .map(|frame| (frame["agent"].as_str().unwrap().to_owned(), number(&frame)))
        .collect();
    told.sort();
    assert_eq!(told, [("bob".into(), 1), ("cat".into(), 1), ("cat".into(), 2)]);
    settled(&mut beta, "bob");
    quiet(&mut beta);
}

#[test]
fn an_event_to_a_room_is_everybody_s_until_somebody_has_settled_it() {
    let sink = Sink::start(&[204]);
    let (worker, mut alpha, mut beta, _) = world();
    in_ops(&mut alpha, &mut beta);
    let url = format!("http://{}/in/", sink.at);
    worker.source("#ops", &["--reply-url", &url, "--reply-url-prefix", &url]);
    let id = worker.event(event("k1").to_string().as_bytes()).json()["delivery_id"].clone();
    let amy = alpha.delivered();
    let others = [beta.delivered(), beta.delivered()];
    assert!([&amy, &others[0], &others[1]].iter().all(|frame| frame["id"] == id));
    alpha.ack(&amy);
    others.iter().for_each(|frame| beta.ack(frame));
    let read = beta.call("cat", "read_message", json!({ "id": id })).unwrap();
    assert!(read.as_str().unwrap().contains("the build is red"));
    let reply = json!({ "delivery_id": id, "conversation_id": "c 1", "message": "on it" });
    let answered = beta.call("bob", "chat_reply", reply.clone()).unwrap();
    assert_eq!((&answered["status"], &answered["duplicate"]), (&json!("handled"), &json!(false)));
    let body: Value = serde_json::from_slice(&sink.next().body).unwrap();
    assert_eq!((&body["agent"], &body["delivery_id"]), (&json!("bob@beta"), &id));
    let again = alpha.call("amy", "chat_reply", reply).unwrap();
    assert_eq!((&again["duplicate"], &again["message"]), (&json!(true), &json!("on it")));
    assert_eq!(
        alpha.call("amy", "mark_handled", json!({ "delivery_id": id })).unwrap(),
        json!({ "duplicate": true })
    );
    let shown = worker.admin(&["delivery", "show", id.as_str().unwrap()]);
    assert_eq!(
        (&shown["room"], &shown["state"], &shown["reply"]["agent"]),
        (&json!("ops"), &json!("handled"), &json!("bob@beta"))
    );
    assert_eq!(shown["recipients"].as_array().unwrap().len(), 3);
    assert!(sink.rest().is_empty(), "one reply");
}

#[test]
fn an_event_to_an_empty_room_waits_for_the_first_member() {
    let (worker, mut alpha, mut beta, _) = world();
    worker.admin(&["room", "create", "ops"]);
    worker.source("#ops", &[]);
    let id = worker.event(event("k1").to_string().as_bytes()).json()["delivery_id"].clone();
    let shown = worker.admin(&["delivery", "show", id.as_str().unwrap()]);
    assert_eq!((&shown["agent"], &shown["state"]), (&json!("#ops"), &json!("pending")));
    alpha.say(&json!({ "t": "rpc", "rid": "r1", "method": "join_room", "params": { "caller": "amy", "room": "ops" } }));
    let frames = [alpha.next(), alpha.next()];
    assert!(frames.iter().any(|frame| frame["t"] == "deliver" && frame["id"] == id), "{frames:?}");
    // Who leaves gives it to who is left, who may be put in by the operator.
    alpha.ack(frames.iter().find(|frame| frame["t"] == "deliver").unwrap());
    alpha.call("amy", "leave_room", json!({ "room": "ops" })).unwrap();
    assert_eq!(alpha.call("amy", "mark_handled", json!({ "delivery_id": id })).unwrap_err(), "not_owner");
    worker.admin(&["room", "add", "ops", "cat@beta"]);
    let delivered = beta.delivered();
    assert_eq!((&delivered["id"], &delivered["agent"]), (&id, &json!("cat")));
    beta.call("cat", "mark_handled", json!({ "delivery_id": id })).unwrap();
    eventually(|| {
        (worker.admin(&["delivery", "show", id.as_str().unwrap()])["state"] == "handled").then_some(())
    });
}

#[test]
fn a_room_of_64_takes_no_65th_and_tells_everybody() {
    let worker = Worker::start();
    let token = worker.enrol("alpha");
    let names: Vec<String> = (0..65).map(|n| format!("a{n}")).collect();
    let agents: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut alpha = worker.daemon("alpha", &token, &agents);
    settled(&mut alpha, "a0");
    alpha.call("a0", "create_room", json!({ "room": "ops" })).unwrap();
    for name in &names[1..64] {
        worker.admin(&["room", "add", "ops", &format!("{name}@alpha")]);
    }
    assert_eq!(alpha.call("a64", "join_room", json!({ "room": "ops" })).unwrap_err(), "room_full");
    let refused = worker.home.run("transit-worker", ["room", "add", "ops", "a64@alpha"], b"");
    assert_eq!(refused.status.code(), Some(65));
    alpha.say(&json!({ "t": "send", "id": "tx_000000000001", "from": "a0@alpha", "to": "#ops", "body": "x", "ts": "2026-01-01T00:00:00Z" }));
    let frames: Vec<Value> = (0..64).map(|_| alpha.next()).collect();
    let mut to: Vec<&str> = frames.iter().filter_map(|frame| frame["agent"].as_str()).collect();
    to.sort_unstable();
    let mut expected: Vec<&str> = agents[1..64].to_vec();
    expected.sort_unstable();
    assert_eq!(to, expected);
}
