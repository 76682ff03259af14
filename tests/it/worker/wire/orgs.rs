//! Organisations: what is another's is what is not.

use serde_json::{Value, json};

use super::super::{Daemon, Worker, event};
use super::{Peer, enrol_in, tx};
use crate::support::Home;

#[test]
fn what_is_another_organisation_s_is_answered_as_what_nobody_has() {
    let worker = Worker::start_with(Home::new(), &["--loop-limit", "0"]);
    let ours = worker.enrol("titan");
    worker.source("jess@titan", &[]);
    let mut home = Peer::enter(&worker, "titan", &ours, &["jess", "mel"]);
    home.call("jess", "create_room", json!({ "room": "ops" })).unwrap();
    home.call("mel", "join_room", json!({ "room": "ops" })).unwrap();
    let delivery =
        worker.event(event("k1").to_string().as_bytes()).json()["delivery_id"].as_str().unwrap().to_owned();
    assert_eq!(home.delivered().0, delivery);
    assert_eq!(home.send(&tx(1), "jess", "mel@titan"), None);
    assert_eq!(home.delivered().0, tx(1));
    assert_eq!(home.send(&tx(2), "jess", "#ops"), None);
    assert_eq!(home.delivered().0, tx(2));
    assert_eq!(home.send(&tx(3), "jess", "nobody@titan").unwrap(), "no_route");

    worker.admin(&["org", "create", "Other"]);
    let theirs = enrol_in(&worker, "other", "titan");
    let pluto = enrol_in(&worker, "other", "pluto");
    // The same host and the same names, elsewhere.
    let mut away = Peer::enter(&worker, "titan", &theirs, &["jess", "mel"]);
    let mut far = Peer::enter(&worker, "pluto", &pluto, &["pip"]);
    home.settled("jess");

    let unknown_delivery = "dlv_0000000000ee";
    for (method, foreign, unknown) in [
        ("read_message", json!({ "id": tx(1) }), json!({ "id": tx(77) })),
        ("read_message", json!({ "id": tx(2) }), json!({ "id": tx(77) })),
        ("read_message", json!({ "id": tx(3) }), json!({ "id": tx(77) })),
        ("read_message", json!({ "id": delivery }), json!({ "id": unknown_delivery })),
        ("message_status", json!({ "id": tx(1) }), json!({ "id": tx(77) })),
        ("message_status", json!({ "id": tx(3) }), json!({ "id": tx(77) })),
        ("mark_handled", json!({ "delivery_id": delivery }), json!({ "delivery_id": unknown_delivery })),
        (
            "chat_reply",
            json!({ "delivery_id": delivery, "conversation_id": "c 1", "message": "m" }),
            json!({ "delivery_id": unknown_delivery, "conversation_id": "c 1", "message": "m" }),
        ),
        ("list_agents", json!({ "host": "nowhere" }), json!({ "host": "nothing" })),
    ] {
        for (peer, agent) in [(&mut away, "jess"), (&mut far, "pip")] {
            let answers = [foreign.clone(), unknown.clone()].map(|params| peer.ask(agent, method, params));
            assert_eq!(answers[0], answers[1], "{method} {foreign}");
        }
    }
    for method in ["join_room", "leave_room"] {
        let answers = ["ops", "spo"].map(|room| {
            let answer = far.ask("pip", method, json!({ "room": room })).unwrap_err();
            answer.to_string().replace(room, "ROOM")
        });
        assert_eq!(answers[0], answers[1], "{method}");
    }
    assert_eq!(far.call("pip", "list_rooms", json!({})).unwrap(), json!([]));
    let listed = far.call("pip", "list_agents", json!({})).unwrap();
    let listed: Vec<&Value> = listed.as_array().unwrap().iter().map(|row| &row["address"]).collect();
    assert_eq!(listed, ["pip@pluto", "jess@titan", "mel@titan"]);
    assert_eq!(home.call("jess", "list_agents", json!({})).unwrap().as_array().unwrap().len(), 2);

    // Ids, rooms and names of one are free in the other.
    for n in 1..=3 {
        assert_eq!(far.send(&tx(n), "pip", "jess@titan"), None, "{n}");
        assert_eq!(away.delivered(), (tx(n), "jess".to_owned()));
    }
    far.call("pip", "create_room", json!({ "room": "ops" })).unwrap();
    assert_eq!(far.send(&tx(4), "pip", "#ops"), None);
    assert_eq!(home.send(&tx(5), "jess", "pip@pluto").unwrap(), "no_route");

    // Answers of one settle nothing of the other.
    for (id, agent) in [(tx(1), "mel"), (tx(2), "mel"), (delivery.clone(), "jess")] {
        away.ack(&id, Some(agent));
        away.nak(&id, agent, "x", false);
        away.ack(&id, None);
    }
    away.settled("jess");
    let told = home.call("jess", "message_status", json!({ "id": tx(1) })).unwrap();
    assert_eq!(told["state"], "queued", "{told}");
    home.nothing_delivered("jess");
    away.nothing_delivered("jess");

    // A token of one opens no door of the other, and revoking one leaves the other in.
    worker.admin(&["host", "revoke", "titan", "--org", "other"]);
    assert_eq!(away.closed().0, 4001);
    assert_eq!(Daemon::connect(worker.at, &theirs).err(), Some(401));
    home.settled("jess");
}
