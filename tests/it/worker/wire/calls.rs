//! `rpc`: codes, ownership, and how many may wait.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;

use serde_json::{Value, json};

use super::super::event;
use super::{two_hosts, tx};
use transit::limits::RPC_OUTSTANDING;
use transit::store::ledger::Db;

#[test]
fn a_call_is_of_an_agent_of_the_host_and_of_a_known_method() {
    let (_worker, mut alpha, _beta, _) = two_hosts();
    const METHODS: [&str; 9] = [
        "read_message",
        "chat_reply",
        "mark_handled",
        "message_status",
        "list_agents",
        "list_rooms",
        "create_room",
        "join_room",
        "leave_room",
    ];
    for caller in [
        json!("eve"),
        json!("eve@alpha"),
        json!("bob@beta"),
        json!("amy@beta"),
        json!(""),
        json!(7),
        Value::Null,
    ] {
        let frame =
            json!({ "t": "rpc", "rid": "walk", "method": "list_rooms", "params": { "caller": caller } });
        alpha.say(&frame);
        assert_eq!(alpha.next("rpc_result")["error"]["code"], "invalid_caller", "{caller}");
    }
    for method in METHODS {
        assert_eq!(alpha.call("eve", method, json!({})).unwrap_err(), "invalid_caller", "{method}");
    }
    for params in [json!([]), json!("amy"), Value::Null, json!(1)] {
        alpha.say(&json!({ "t": "rpc", "rid": "walk", "method": "list_rooms", "params": params }));
        assert_eq!(alpha.next("rpc_result")["error"]["code"], "invalid_caller", "{params}");
    }
    for method in ["", "Read_message", "read_message ", "eval", "rpc_error"] {
        assert_eq!(alpha.call("amy", method, json!({})).unwrap_err(), "unknown_method", "{method:?}");
    }
    for (method, params) in [
        ("read_message", json!({})),
        ("read_message", json!({ "id": 7 })),
        ("message_status", json!({ "id": null })),
        ("mark_handled", json!({ "id": "dlv_000000000001" })),
        ("chat_reply", json!({ "delivery_id": "dlv_000000000001", "conversation_id": "c" })),
        ("chat_reply", json!({ "delivery_id": "dlv_000000000001", "message": "m" })),
        ("chat_reply", json!({ "conversation_id": "c", "message": "m" })),
        (
            "chat_reply",
            json!({ "delivery_id": "dlv_000000000001", "conversation_id": "c", "message": "x".repeat(65_537) }),
        ),
        ("list_agents", json!({ "host": 7 })),
        ("create_room", json!({})),
        ("create_room", json!({ "room": "Ops" })),
        ("create_room", json!({ "room": "ops", "policy": "secret" })),
        ("create_room", json!({ "room": "ops", "policy": 1 })),
        ("join_room", json!({ "room": 7 })),
        ("leave_room", json!({ "room": "" })),
    ] {
        assert_eq!(alpha.call("amy", method, params.clone()).unwrap_err(), "bad_params", "{method} {params}");
    }
    for (method, params, code) in [
        ("read_message", json!({ "id": "tx_0000000000ff" }), "not_found"),
        ("read_message", json!({ "id": "dlv_0000000000ff" }), "not_found"),
        ("read_message", json!({ "id": "evt_0000000000ff" }), "not_found"),
        ("message_status", json!({ "id": "tx_0000000000ff" }), "not_found"),
        ("mark_handled", json!({ "delivery_id": "dlv_0000000000ff" }), "not_found"),
        (
            "chat_reply",
            json!({ "delivery_id": "dlv_0000000000ff", "conversation_id": "c", "message": "m" }),
            "not_found",
        ),
        ("join_room", json!({ "room": "nowhere" }), "room_not_found"),
        ("leave_room", json!({ "room": "nowhere" }), "room_not_found"),
        ("join_room", json!({ "room": "nowhere", "address": "abe@alpha" }), "invalid_caller"),
    ] {
        assert_eq!(alpha.call("amy", method, params.clone()).unwrap_err(), code, "{method} {params}");
    }
    let agents = alpha.call("amy@alpha", "list_agents", json!({ "later": true, "host": null })).unwrap();
    assert_eq!(agents.as_array().unwrap().len(), 4);
}

#[test]
fn only_its_own_agent_reads_settles_and_answers() {
    let (worker, mut alpha, mut beta, _) = two_hosts();
    worker.source(
        "bob@beta",
        &["--reply-url", "http://127.0.0.1:9/", "--reply-url-prefix", "http://127.0.0.1:9/"],
    );
    let id = worker.event(event("k1").to_string().as_bytes()).json()["delivery_id"].clone();
    beta.delivered();
    assert_eq!(alpha.send(&tx(1), "amy", "bob@beta"), None);
    beta.delivered();
    let reply = json!({ "delivery_id": id, "conversation_id": "c 1", "message": "m" });
    let wrong = json!({ "delivery_id": id, "conversation_id": "c 2", "message": "m" });
    for (method, params) in [
        ("read_message", json!({ "id": id })),
        ("read_message", json!({ "id": tx(1) })),
        ("mark_handled", json!({ "delivery_id": id })),
        ("chat_reply", reply.clone()),
        // Whose it is comes before what is said of it.
        ("chat_reply", wrong.clone()),
    ] {
        assert_eq!(beta.call("ben", method, params.clone()).unwrap_err(), "not_owner", "{method} {params}");
        assert_eq!(alpha.call("amy", method, params.clone()).unwrap_err(), "not_owner", "{method} {params}");
    }
    assert_eq!(beta.call("bob", "message_status", json!({ "id": tx(1) })).unwrap_err(), "not_owner");
    assert_eq!(alpha.call("abe", "message_status", json!({ "id": tx(1) })).unwrap_err(), "not_owner");
    assert_eq!(beta.call("bob", "chat_reply", wrong).unwrap_err(), "conversation_mismatch");
    let read = beta.call("bob", "read_message", json!({ "id": tx(1) })).unwrap();
    assert!(read.as_str().unwrap().starts_with(&format!("<transit_full id=\"{}\" ", tx(1))), "{read}");
    assert_eq!(beta.call("bob", "mark_handled", json!({ "delivery_id": tx(1) })).unwrap_err(), "not_found");
    assert_eq!(beta.call("bob", "mark_handled", json!({ "delivery_id": id })).unwrap()["duplicate"], false);
    assert_eq!(beta.call("bob", "chat_reply", reply.clone()).unwrap_err(), "already_handled");
    assert_eq!(beta.call("ben", "chat_reply", reply).unwrap_err(), "not_owner", "also afterwards");
}

#[test]
fn a_call_is_answered_under_its_own_name_and_a_65th_beside_64_is_not_made() {
    let (worker, mut alpha, _beta, _) = two_hosts();
    let rids = [
        "",
        "0",
        "ü \" \\ \n",
        "a rid that is rather long and means nothing to anybody but to whom it is echoed",
    ];
    for rid in rids {
        alpha.say(&json!({ "t": "rpc", "rid": rid, "method": "list_rooms", "params": { "caller": "amy" } }));
        assert_eq!(alpha.next("rpc_result")["rid"], rid);
    }
    // Nobody can write to the ledger until this is over; the calls wait.
    let db = Db::open(&worker.home.data().join("worker.db")).unwrap();
    let (held, is_held) = channel();
    let (release, released) = channel::<()>();
    let released = std::sync::Mutex::new(released);
    let holding = std::thread::spawn(move || {
        db.write(move |_| {
            held.send(()).unwrap();
            // Ends also when the test does.
            let _ = released.lock().unwrap().recv();
            Ok(())
        })
    });
    is_held.recv().unwrap();
    let ask = |n: usize| {
        json!({ "t": "rpc", "rid": format!("r{n}"), "method": "mark_handled",
                "params": { "caller": "amy", "delivery_id": "dlv_0000000000ff" } })
    };
    for n in 0..RPC_OUTSTANDING {
        alpha.say(&ask(n));
    }
    alpha.say(&ask(3));
    alpha.say(&ask(RPC_OUTSTANDING));
    let refused = alpha.next("rpc_result");
    assert_eq!(
        (&refused["rid"], &refused["error"]["code"]),
        (&json!("r64"), &json!("too_many")),
        "{refused}"
    );
    release.send(()).unwrap();
    holding.join().unwrap().unwrap();
    let answered: BTreeSet<String> = (0..RPC_OUTSTANDING)
        .map(|_| {
            let answer = alpha.next("rpc_result");
            assert_eq!(answer["error"]["code"], "not_found", "{answer}");
            answer["rid"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(answered.len(), RPC_OUTSTANDING, "each once");
    alpha.settled("amy");
    assert!(alpha.waiting.is_empty(), "{:?}", alpha.waiting);
}
