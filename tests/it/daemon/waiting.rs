//! What became of a message: `transit-send` asks `transitd`, which asks the Worker for what it alone knows.

use serde_json::{Value, json};
use transit::proto::wire::{NakCode, RpcError, WorkerEvent};

use super::world::{Adapter, Order, Worker, ask, enrolled, nobody, start, status_until};
use crate::support::{Background, Home, eventually, text};

/// The next call for a message's status: its rid, after a look at who asks for what.
fn asked(worker: &Worker, id: &str) -> String {
    worker.wait(|event| match event {
        WorkerEvent::Rpc { rid, method, params } if method == "message_status" => {
            assert_eq!(params, json!({ "id": id, "caller": "jess@titan" }));
            Some(rid)
        }
        _ => None,
    })
}

fn told(id: &str, state: &str) -> Value {
    json!({ "id": id, "state": state, "recipients": [{ "agent": "omar@hermes", "state": state }] })
}

fn sender(home: &Home, to: &str, wait: &str) -> Background {
    let mut command = home.command("transit-send");
    Background::start(command.args([to, "--as", "jess", "--json", "-m", "hi", "--wait", wait]))
}

fn record(sender: &Background) -> Value {
    serde_json::from_str(&sender.line()).unwrap()
}

#[test]
fn a_message_to_another_host_is_injected_when_the_worker_says_so() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    // The adapter is the test's own process, so that no command of it runs inside a session.
    let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
    status_until(&home, |status| status["connected"] == true);
    let sent = |worker: &Worker| {
        worker.wait(|event| match event {
            WorkerEvent::Send(frame) => Some(frame.id),
            _ => None,
        })
    };
    let in_session = ask(&home, &json!({ "op": "whoami" }));
    assert_eq!(in_session["address"], "jess@titan", "the test itself is the session");

    let mut waiting = sender(&home, "omar@hermes", "injected=30s");
    let id = sent(&worker);
    worker.order(Order::SendAck(id.clone()));
    for state in ["queued", "injected"] {
        let rid = asked(&worker, &id);
        worker.order(Order::Answer(rid, Ok(told(&id, state))));
    }
    assert_eq!(waiting.wait().code(), Some(0));
    let record_of_it = record(&waiting);
    assert_eq!((&record_of_it["id"], &record_of_it["outcome"]), (&json!(id), &json!("injected")));

    let mut waiting = sender(&home, "omar@hermes", "settled=30s");
    let id = sent(&worker);
    worker.order(Order::SendAck(id.clone()));
    let mut dead = told(&id, "dead");
    dead["recipients"][0]["error"] = "no_thanks".into();
    worker.order(Order::Answer(asked(&worker, &id), Ok(dead)));
    assert_eq!(waiting.wait().code(), Some(1));
    let lost = record(&waiting);
    assert_eq!(
        (&lost["outcome"], &lost["state"], &lost["error"]),
        (&json!("dead"), &json!("dead"), &json!("no_thanks"))
    );

    // What the Worker does not tell is not made up.
    let id = std::thread::scope(|scope| {
        let asked = scope.spawn(|| ask(&home, &json!({ "op": "send", "to": "omar@hermes", "body": "hi" })));
        let id = sent(&worker);
        worker.order(Order::SendAck(id.clone()));
        assert_eq!(asked.join().unwrap()["state"], "committed");
        id
    });
    for answer in [Err(RpcError::new("not_owner", "it is another agent's")), Ok(json!("nonsense"))] {
        let status = std::thread::scope(|scope| {
            let status = scope.spawn(|| ask(&home, &json!({ "op": "message_status", "id": id })));
            worker.order(Order::Answer(asked(&worker, &id), answer));
            status.join().unwrap()
        });
        assert_eq!(
            (&status["state"], status["unknown"].is_string()),
            (&json!("committed"), true),
            "{status}"
        );
    }
}

#[test]
fn a_room_that_there_is_not_is_named_and_the_message_kept_as_dead() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
    status_until(&home, |status| status["connected"] == true);
    for (code, exit) in [
        (NakCode::NoRoute, 67),
        (NakCode::NotMember, 77),
        (NakCode::BodyTooLarge, 65),
        (NakCode::ReservedName, 65),
    ] {
        let mut waiting = sender(&home, "#ops", "injected=30s");
        let id = worker.wait(|event| match event {
            WorkerEvent::Send(frame) => {
                assert_eq!(frame.to, "#ops");
                Some(frame.id)
            }
            _ => None,
        });
        worker.order(Order::SendNak(id.clone(), code));
        assert_eq!(waiting.wait().code(), Some(exit));
        assert!(waiting.error().contains(code.as_str()));
        assert!(waiting.error().contains(&format!("kept as dead: transit-send --status {id}")));
        assert!(waiting.pending_lines().is_empty());
        let status = home.run("transit-send", ["--status", &id, "--json"], b"");
        let status: Value = serde_json::from_slice(&status.stdout).unwrap();
        assert_eq!((&status["state"], &status["error"]), (&json!("dead"), &json!(code.as_str())));
    }
}

#[test]
fn a_host_without_a_connection_says_not_yet_and_why() {
    let home = enrolled(nobody());
    let _daemon = start(&home);
    let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
    status_until(&home, |status| status["last_error"].is_string());
    let mut waiting = sender(&home, "omar@hermes", "injected=1s");
    assert_eq!(waiting.wait().code(), Some(75));
    let said = waiting.error();
    assert!(said.contains("not within 1 s: it is in the spool; not connected to the Worker: "), "{said}");
    let kept = record(&waiting);
    assert_eq!((&kept["outcome"], &kept["state"]), (&json!("spooled"), &json!("pending")));
    assert_eq!(ask(&home, &json!({ "op": "status" }))["outbox"], 1);
    assert_eq!(ask(&home, &json!({ "op": "message_status", "id": "tx_00000000000f" }))["code"], "not_found");
}

#[test]
fn a_message_within_a_host_is_injected_by_its_session_s_word() {
    for is_enrolled in [true, false] {
        let home = if is_enrolled { enrolled(nobody()) } else { Home::new() };
        let _daemon = start(&home);
        let (mut jess, registered) = Adapter::register(&home, "s1", Some("jess"));
        let address = registered["address"].as_str().unwrap().to_owned();
        let mut waiting = sender(&home, &address, "injected=30s");
        let id = jess.delivery();
        let look = |state: &str| {
            let looked = home.run("transit-send", ["--status", &id, "--json"], b"");
            assert_eq!(looked.status.code(), Some(0), "{}", text(&looked.stderr));
            let record: Value = serde_json::from_slice(&looked.stdout).unwrap();
            (record["outcome"] == state).then_some(record)
        };
        look("spooled").unwrap();
        jess.ack(&id);
        assert_eq!(waiting.wait().code(), Some(0));
        assert_eq!(record(&waiting)["outcome"], "injected");
        let record = eventually(|| look("injected"));
        assert_eq!((&record["dest"], &record["kind"]), (&json!(address), &json!("message")));
    }
}

#[test]
fn inside_a_session_nobody_else_can_be_spoken_for() {
    let home = Home::new();
    let _daemon = start(&home);
    let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
    let mut bob = home.command("transit-agent");
    let mut bob = Background::start(bob.args(["listen", "--name", "bob"]));
    let registered: Value = serde_json::from_str(&bob.line()).unwrap();
    let to = registered["address"].as_str().unwrap();
    // The test is jess's session, and what it starts runs inside it.
    let output = home.run("transit-send", [to, "--as", "bob", "-m", "hi"], b"");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(77), ""));
    assert!(text(&output.stderr).contains("inside the session of jess@"), "{}", text(&output.stderr));
    for options in [&["--as", "jess", "-m", "hi"][..], &["-m", "hi"]] {
        let mut sender = home.command("transit-send");
        let mut sender = Background::start(sender.arg(to).args(options));
        let delivered: Value = serde_json::from_str(&bob.line()).unwrap();
        assert!(delivered["envelope"].as_str().unwrap().contains("from=\"jess@"), "{delivered}");
        bob.write(format!("{}\n", json!({ "t": "deliver_ack", "id": delivered["id"] })));
        sender.signal(rustix::process::Signal::TERM);
        sender.wait();
    }
}
