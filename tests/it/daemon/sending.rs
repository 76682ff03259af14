//! From a session to the Worker: messages through the spool, and tool calls.

use serde_json::{Value, json};
use transit::proto::wire::{NakCode, RpcError, SendFrame, WorkerEvent};

use super::world::{Adapter, Order, Worker, ask, enrolled, nobody, start, status_until};
use crate::support::{Home, Nobody, eventually};

/// Calls from a thread of its own, for calls that wait for what the test does.
fn ask_beside<'a>(
    scope: &'a std::thread::Scope<'a, '_>,
    home: &'a Home,
    call: Value,
) -> std::thread::ScopedJoinHandle<'a, Value> {
    scope.spawn(move || ask(home, &call))
}

fn sent(worker: &Worker) -> SendFrame {
    worker.wait(|event| match event {
        WorkerEvent::Send(frame) => Some(frame),
        _ => None,
    })
}

fn send(to: &str, body: &str) -> Value {
    json!({ "op": "send", "to": to, "body": body })
}

#[test]
fn a_message_is_committed_when_the_worker_says_so() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
    status_until(&home, |status| status["connected"] == true);
    std::thread::scope(|scope| {
        let mut call = send("omar@hermes", "hello\nthere");
        call["reply_to"] = "tx_00000000000f".into();
        let asked = ask_beside(scope, &home, call);
        let frame = sent(&worker);
        assert_eq!((frame.from.as_str(), frame.to.as_str()), ("jess@titan", "omar@hermes"));
        assert_eq!(
            (frame.body.as_str(), frame.reply_to.as_deref()),
            ("hello\nthere", Some("tx_00000000000f"))
        );
        worker.order(Order::SendAck(frame.id.clone()));
        let answer = asked.join().unwrap();
        assert_eq!((&answer["state"], &answer["id"]), (&json!("committed"), &json!(frame.id)));

        let asked = ask_beside(scope, &home, send("#ops", "hello"));
        worker.order(Order::SendNak(sent(&worker).id, NakCode::NotMember));
        assert_eq!(asked.join().unwrap()["code"], "not_member");
    });
    let status = status_until(&home, |status| status["outbox"] == 0);
    assert_eq!(status["dead"], 1, "what was refused for good is kept");
}

#[test]
fn a_message_outlives_the_absence_of_the_worker_and_a_killed_daemon() {
    let worker = Nobody::new();
    let home = enrolled(worker.at);
    let mut daemon = start(&home);
    let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
    let answer = ask(&home, &send("omar@hermes", "hello"));
    assert_eq!(answer["state"], "spooled");
    assert_eq!(ask(&home, &json!({ "op": "status" }))["outbox"], 1);
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let worker = Worker::on(worker.listen());
    let mut daemon = start(&home);
    let frame = sent(&worker);
    assert_eq!(json!(frame.id), answer["id"]);
    // A refusal that passes, a connection that breaks, a daemon that is killed: the message stays under its id.
    worker.order(Order::SendNak(frame.id.clone(), NakCode::RateLimited));
    assert_eq!(sent(&worker).id, frame.id);
    worker.order(Order::Cut);
    assert_eq!(sent(&worker).id, frame.id);
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let _daemon = start(&home);
    assert_eq!(sent(&worker).id, frame.id);
    worker.order(Order::SendAck(frame.id));
    status_until(&home, |status| status["outbox"] == 0 && status["dead"] == 0);
}

#[test]
fn a_sender_that_did_not_wait_hears_of_a_refusal_from_the_system() {
    let worker = Nobody::new();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    let answer = ask(&home, &send("omar@nowhere", "hello"));
    assert_eq!(answer["state"], "spooled", "{answer}");
    let worker = Worker::on(worker.listen());
    worker.order(Order::SendNak(answer["id"].as_str().unwrap().to_owned(), NakCode::NoRoute));
    let frame = jess.next().unwrap();
    let envelope = frame["envelope"].as_str().unwrap();
    assert!(envelope.starts_with("<transit from=\"transit\""), "{envelope}");
    assert!(envelope.contains("undeliverable to omar@nowhere: no_route"), "{envelope}");
    assert!(envelope.contains(&format!("reply_to={}", answer["id"])), "{envelope}");
}

#[test]
fn what_breaks_a_rule_is_refused_at_once_and_not_kept() {
    let home = enrolled(nobody());
    let _daemon = start(&home);
    assert_eq!(ask(&home, &send("omar@hermes", "hello"))["code"], "invalid_caller", "who is it?");
    let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
    assert_eq!(ask(&home, &send("Omar", "hello"))["code"], "bad_address");
    assert_eq!(ask(&home, &send("operator@hermes", "hello"))["code"], "bad_address");
    assert_eq!(ask(&home, &send("omar@hermes", ""))["code"], "bad_request");
    let answering = json!({ "op": "send", "to": "omar@hermes", "body": "hi", "reply_to": "the last one" });
    assert_eq!(ask(&home, &answering)["code"], "bad_request");
    assert_eq!(ask(&home, &send("omar@hermes", &"x".repeat(65_537)))["code"], "body_too_large");
    assert_eq!(ask(&home, &json!({ "op": "launch" }))["code"], "bad_request");
    assert_eq!(ask(&home, &json!({ "op": "status" }))["outbox"], 0);
    assert_eq!(ask(&home, &send("omar@hermes", &"x".repeat(65_536)))["state"], "spooled");
}

#[test]
fn without_a_worker_the_agents_of_a_host_still_reach_each_other() {
    let home = Home::new();
    let _daemon = start(&home);
    let (mut jess, registered) = Adapter::register(&home, "s1", Some("jess"));
    let address = registered["address"].as_str().unwrap();
    std::thread::scope(|scope| {
        let asked = ask_beside(scope, &home, send(address, "note to self"));
        let frame = jess.next().unwrap();
        assert!(frame["envelope"].as_str().unwrap().contains("note to self"));
        jess.ack(frame["id"].as_str().unwrap());
        assert_eq!(asked.join().unwrap()["state"], "injected");
    });
    let host = address.split('@').nth(1).unwrap();
    assert_eq!(ask(&home, &send(&format!("nobody@{host}"), "hello"))["code"], "agent_not_found");
    assert_eq!(ask(&home, &send("omar@hermes", "hello"))["code"], "not_enrolled");
}

#[test]
fn without_a_worker_a_message_that_was_cut_is_read_whole_by_whom_it_was_for() {
    let home = Home::new();
    let _daemon = start(&home);
    let (mut jess, registered) = Adapter::register(&home, "s1", Some("jess"));
    let (mut omar, _) = Adapter::register(&home, "s2", Some("omar"));
    let long = format!("{}the end", "x".repeat(5_000));
    let to = registered["address"].as_str().unwrap();
    let read = |id: &str, session: &str| {
        let pane = format!("native:claude:{session}");
        ask(&home, &json!({ "op": "rpc", "method": "read_message", "params": { "id": id }, "pane_id": pane }))
    };
    let call = json!({ "op": "send", "to": to, "body": long, "wait_ms": 0, "pane_id": "native:claude:s2" });
    let sent = ask(&home, &call);
    let frame = jess.next().unwrap();
    assert!(frame["envelope"].as_str().unwrap().contains("truncated=\"1\""), "{frame}");
    let id = sent["id"].as_str().unwrap();
    jess.nak(id, "no_thanks", false);
    let full = read(id, "s1");
    let full = full["result"].as_str().unwrap_or_else(|| panic!("{full}"));
    assert!(full.starts_with("<transit_full") && full.contains("the end\n"), "{full}");
    assert_eq!(read(id, "s2")["code"], "not_found", "it was not for its sender");
    assert_eq!(read("tx_000000000000", "s1")["code"], "not_found");
    // A word of the system has no sender that would keep it.
    let bounce = omar.next().unwrap();
    let told = read(bounce["id"].as_str().unwrap(), "s2");
    assert!(told["result"].as_str().unwrap_or_default().contains("no_thanks"), "{told}");
}

#[test]
fn without_a_worker_the_sender_hears_once_that_its_message_was_refused() {
    let home = Home::new();
    let _daemon = start(&home);
    let (mut jess, registered) = Adapter::register(&home, "s1", Some("jess"));
    let (mut omar, _) = Adapter::register(&home, "s2", Some("omar"));
    let to = registered["address"].as_str().unwrap();
    let call = json!({
        "op": "send", "to": to, "body": "hello", "wait_ms": 0, "pane_id": "native:claude:s2",
    });
    let sent = ask(&home, &call);
    assert_eq!(sent["state"], "spooled", "{sent}");
    let id = jess.delivery();
    jess.nak(&id, "no_thanks", false);
    let bounce = omar.next().unwrap();
    let envelope = bounce["envelope"].as_str().unwrap();
    assert!(
        envelope.contains("from=\"transit\"") && envelope.contains(&format!("reply_to=\"{id}\"")),
        "{envelope}"
    );
    assert!(envelope.contains(&format!("undeliverable to {to}: no_thanks")), "{envelope}");
    // Nobody is told that a word of the system was refused.
    omar.nak(bounce["id"].as_str().unwrap(), "no_thanks", false);
    let sent = ask(&home, &call);
    assert_eq!(jess.delivery(), sent["id"].as_str().unwrap());
    jess.ack(sent["id"].as_str().unwrap());
    // One that waits is told in the answer, and not only when its time is over.
    let mut call = call;
    call["wait_ms"] = json!(60_000);
    let sent = std::thread::scope(|scope| {
        let asked = scope.spawn(|| ask(&home, &call));
        let id = jess.delivery();
        jess.nak(&id, "no_thanks", false);
        asked.join().unwrap()
    });
    assert_eq!(sent["warning"], format!("{to} has refused it: no_thanks"), "{sent}");
    let bounce = omar.delivery();
    omar.ack(&bounce);
    status_until(&home, |status| status["inbox"] == 0);
}

#[test]
fn a_message_within_a_host_is_there_at_once_and_its_echo_is_not_shown() {
    let worker = Nobody::new();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    assert_eq!(ask(&home, &send("nobody@titan", "hello"))["code"], "agent_not_found");
    let id = std::thread::scope(|scope| {
        let asked = ask_beside(scope, &home, send("jess@titan", "note to self"));
        let frame = jess.next().unwrap();
        assert!(frame["envelope"].as_str().unwrap().contains("note to self"));
        jess.ack(frame["id"].as_str().unwrap());
        let answer = asked.join().unwrap();
        assert_eq!(answer["state"], "injected", "without a Worker");
        answer["id"].as_str().unwrap().to_owned()
    });
    let worker = Worker::on(worker.listen());
    assert_eq!(sent(&worker).id, id, "the ledger gets it all the same");
    worker.order(Order::SendAck(id.clone()));
    worker.deliver(&id, "jess", "the echo");
    assert_eq!(worker.answer(), (id, "jess".to_owned(), "ack".to_owned()));
    let next = "tx_000000000001";
    worker.deliver(next, "jess", "next");
    assert_eq!(jess.delivery(), next, "the echo was not shown");
}

#[test]
fn a_tool_call_carries_the_caller_that_the_daemon_knows() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
    status_until(&home, |status| status["connected"] == true);
    let rpc =
        json!({ "op": "rpc", "method": "read_message", "params": { "id": "tx_1", "caller": "omar@titan" } });
    std::thread::scope(|scope| {
        for answer in [Ok(json!("the text")), Err(RpcError::new("not_owner", "it is another agent's"))] {
            let asked = ask_beside(scope, &home, rpc.clone());
            let rid = worker.wait(|event| match event {
                WorkerEvent::Rpc { rid, method, params } => {
                    assert_eq!(method, "read_message");
                    assert_eq!(params, json!({ "id": "tx_1", "caller": "jess@titan" }));
                    Some(rid)
                }
                _ => None,
            });
            worker.order(Order::Answer(rid, answer.clone()));
            match answer {
                Ok(result) => assert_eq!(asked.join().unwrap()["result"], result),
                Err(err) => assert_eq!(asked.join().unwrap()["code"], json!(err.code)),
            }
        }
        let asked = ask_beside(scope, &home, rpc.clone());
        worker.wait(|event| matches!(event, WorkerEvent::Rpc { .. }).then_some(()));
        worker.order(Order::Cut);
        let answer = asked.join().unwrap();
        assert_eq!(answer["code"], "rpc_error", "whether it was done is not known: {answer}");
    });
}

#[test]
fn a_call_that_was_not_made_is_said_to_be_none() {
    let home = enrolled(nobody());
    let _daemon = start(&home);
    let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
    let answer = ask(&home, &json!({ "op": "rpc", "method": "list_rooms", "params": {} }));
    assert_eq!(answer["code"], "rpc_failed", "{answer}");
}

#[test]
fn a_sender_that_has_left_is_on_the_roster_until_its_messages_have_got_out() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let (mut bob, _) = Adapter::register(&home, "s1", Some("bob"));
    status_until(&home, |status| status["connected"] == true);
    // Answers enough that what comes after them has to wait for its turn.
    for n in 0..2 * transit::limits::FRAME_BURST {
        worker.deliver(&format!("tx_{n:012}"), "bob", "<transit>");
    }
    for _ in 0..2 * transit::limits::FRAME_BURST {
        let id = bob.delivery();
        bob.ack(&id);
    }
    drop(bob);
    let (amy, _) = Adapter::register(&home, "s2", Some("amy"));
    let mut call = send("omar@hermes", "hello");
    call["wait_ms"] = 0.into();
    status_until(&home, |status| status["agents"].as_array().is_some_and(|agents| agents.len() == 1));
    assert_eq!(ask(&home, &call)["state"], "spooled");
    let state = || ask(&home, &json!({ "op": "inbox" }))["outbox"][0]["state"].clone();
    eventually(|| (state() == "claimed").then_some(()));
    drop(amy);
    status_until(&home, |status| status["agents"].as_array().is_some_and(Vec::is_empty));
    let mut told = Vec::new();
    worker.wait(|event| match event {
        WorkerEvent::Roster(agents) => {
            told = agents.into_iter().map(|agent| agent.name).collect();
            None
        }
        WorkerEvent::Send(_) => Some(()),
        _ => None,
    });
    assert_eq!(told, ["amy"], "the Worker takes nothing of one that is not there");
}
