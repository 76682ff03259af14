//! Rooms: who may be in, what is said there, and the numbers of it.

use serde_json::{Value, json};

use super::super::Worker;
use super::{Peer, two_hosts, tx};
use crate::support::Home;
use transit::limits::ROOM_MEMBERS;
use transit::proto::envelope::{self, Kind};

/// The next delivery as (id, agent, sender, number in the room).
fn said(peer: &mut Peer) -> (String, String, String, u64) {
    let frame = peer.next("deliver");
    let text = frame["envelope"].as_str().unwrap();
    let shown = envelope::parse(text).unwrap().envelope;
    let Kind::Room { room, seq, .. } = shown.kind else { panic!("{text}") };
    assert_eq!(room.trim_start_matches('#'), "ops", "{text}");
    let word = |name: &str| frame[name].as_str().unwrap().to_owned();
    (word("id"), word("agent"), shown.from, seq)
}

#[test]
fn agents_make_join_and_leave_rooms_by_their_policies() {
    let (worker, mut alpha, mut beta, _) = two_hosts();
    let room = |name: &str| json!({ "room": name });
    assert_eq!(
        alpha.call("amy", "create_room", room("#ops")).unwrap(),
        json!({ "room": "ops", "joined": true })
    );
    assert_eq!(beta.call("bob", "create_room", room("ops")).unwrap_err(), "room_exists");
    let closed = json!({ "room": "board", "policy": "invite", "address": "amy@alpha" });
    alpha.call("amy", "create_room", closed).unwrap();
    assert_eq!(beta.call("bob", "join_room", room("board")).unwrap_err(), "invite_only");
    assert_eq!(alpha.call("amy", "join_room", room("board")).unwrap()["joined"], true, "it is in already");
    for _ in 0..2 {
        assert_eq!(
            beta.call("bob", "join_room", room("ops")).unwrap(),
            json!({ "room": "ops", "joined": true })
        );
    }
    let listed = beta.call("bob", "list_rooms", json!({})).unwrap();
    let rows: Vec<Vec<&Value>> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|row| ["name", "policy", "members", "joined"].iter().map(|field| &row[*field]).collect())
        .collect();
    assert_eq!(rows[0], [&json!("board"), &json!("invite"), &json!(1), &json!(false)]);
    assert_eq!(rows[1], [&json!("ops"), &json!("open"), &json!(2), &json!(true)]);
    worker.admin(&["room", "add", "board", "bob@beta"]);
    assert_eq!(beta.call("bob", "join_room", room("board")).unwrap()["joined"], true);
    worker.admin(&["room", "remove", "board", "bob@beta"]);
    assert_eq!(beta.call("bob", "join_room", room("board")).unwrap_err(), "invite_only");
    worker.admin(&["room", "update", "board", "--policy", "open"]);
    assert_eq!(beta.call("bob", "join_room", room("board")).unwrap()["joined"], true);
    for _ in 0..2 {
        assert_eq!(
            beta.call("bob", "leave_room", room("ops")).unwrap(),
            json!({ "room": "ops", "left": true })
        );
    }
    assert_eq!(beta.send(&tx(1), "bob", "#ops").unwrap(), "not_member");
    worker.admin(&["room", "delete", "ops"]);
    assert_eq!(alpha.call("amy", "join_room", room("ops")).unwrap_err(), "room_not_found");
    assert_eq!(alpha.send(&tx(2), "amy", "#ops").unwrap(), "no_route");
}

#[test]
fn what_is_said_gets_one_number_and_reaches_all_but_its_sender_in_order() {
    let (worker, mut alpha, mut beta, tokens) = two_hosts();
    alpha.call("amy", "create_room", json!({ "room": "ops" })).unwrap();
    alpha.call("abe", "join_room", json!({ "room": "ops" })).unwrap();
    for agent in ["bob", "ben"] {
        beta.call(agent, "join_room", json!({ "room": "ops" })).unwrap();
    }
    // A refused one, and one that comes twice, take no number.
    assert_eq!(alpha.send(&tx(1), "amy", "#ops"), None);
    assert_eq!(alpha.send(&tx(1), "amy", "#ops"), None);
    assert_eq!(alpha.send(&tx(2), "eve", "#ops").unwrap(), "no_route");
    assert_eq!(beta.send(&tx(3), "bob", "#ops"), None);
    let posted = worker.admin(&["room", "post", "ops", "--message", "to all"]);
    assert_eq!(posted["message"]["seq"], 3, "{posted}");
    assert_eq!(alpha.send(&tx(4), "abe", "#ops"), None);

    let by_agent = |peer: &mut Peer, count: usize| {
        let mut all: Vec<_> =
            (0..count).map(|_| said(peer)).map(|(_, agent, from, seq)| (agent, seq, from)).collect();
        all.sort();
        all
    };
    let heard = |agent: &str, seq, from: &str| (agent.to_owned(), seq, from.to_owned());
    assert_eq!(
        by_agent(&mut alpha, 6),
        [
            heard("abe", 1, "amy@alpha"),
            heard("abe", 2, "bob@beta"),
            heard("abe", 3, "operator@transit"),
            heard("amy", 2, "bob@beta"),
            heard("amy", 3, "operator@transit"),
            heard("amy", 4, "abe@alpha"),
        ]
    );
    assert_eq!(
        by_agent(&mut beta, 7),
        [
            heard("ben", 1, "amy@alpha"),
            heard("ben", 2, "bob@beta"),
            heard("ben", 3, "operator@transit"),
            heard("ben", 4, "abe@alpha"),
            heard("bob", 1, "amy@alpha"),
            heard("bob", 3, "operator@transit"),
            heard("bob", 4, "abe@alpha"),
        ]
    );
    alpha.nothing_delivered("amy");
    drop((alpha, beta));
    let worker = worker.restart();
    let mut alpha = Peer::enter(&worker, "alpha", &tokens[0], &["amy"]);
    assert_eq!(alpha.send(&tx(5), "amy", "#ops"), None);
    let mut beta = Peer::enter(&worker, "beta", &tokens[1], &["bob"]);
    let mut hear = || {
        let (id, agent, _, number) = said(&mut beta);
        beta.ack(&id, Some(&agent));
        number
    };
    let numbers: Vec<u64> = (0..4).map(|_| hear()).collect();
    assert_eq!(numbers, [1, 3, 4, 5], "a crash makes no gap, and what was not answered comes again in order");
}

#[test]
fn hints_answer_the_sender_and_to_the_operator_the_room() {
    let (worker, mut alpha, mut beta, _) = two_hosts();
    alpha.call("amy", "create_room", json!({ "room": "ops" })).unwrap();
    beta.call("bob", "join_room", json!({ "room": "ops" })).unwrap();
    assert_eq!(alpha.send(&tx(1), "amy", "#ops"), None);
    let hint = |peer: &mut Peer| {
        let frame = peer.next("deliver");
        let text = frame["envelope"].as_str().unwrap().to_owned();
        (frame["id"].as_str().unwrap().to_owned(), text.lines().rev().nth(1).unwrap().to_owned())
    };
    let (id, line) = hint(&mut beta);
    assert_eq!(line, format!("[reply: send_message to=\"amy@alpha\" reply_to=\"{id}\"]"));
    worker.admin(&["room", "post", "ops", "--message", "to all"]);
    let (id, line) = hint(&mut beta);
    assert_eq!(line, format!("[reply: send_message to=\"#ops\" reply_to=\"{id}\"]"));
    // A member reads what was said, and so does who said it; nobody else.
    for (agent, expected) in [("bob", Ok(())), ("ben", Err("not_owner".to_owned()))] {
        assert_eq!(beta.call(agent, "read_message", json!({ "id": tx(1) })).map(drop), expected, "{agent}");
    }
    assert_eq!(alpha.call("amy", "read_message", json!({ "id": tx(1) })).map(drop), Ok(()));
    assert_eq!(
        alpha.call("abe", "read_message", json!({ "id": tx(1) })).map(drop),
        Err("not_owner".to_owned())
    );
}

#[test]
fn a_room_has_64_members_and_each_of_them_hears() {
    let worker = Worker::start_with(Home::new(), &["--loop-limit", "0"]);
    let token = worker.enrol("alpha");
    let names: Vec<String> = (0..=ROOM_MEMBERS).map(|n| format!("a{n}")).collect();
    let agents: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut alpha = Peer::enter(&worker, "alpha", &token, &agents);
    alpha.call("a0", "create_room", json!({ "room": "ops" })).unwrap();
    for agent in &agents[1..ROOM_MEMBERS] {
        alpha.call(agent, "join_room", json!({ "room": "ops" })).unwrap();
    }
    let last = agents[ROOM_MEMBERS];
    assert_eq!(alpha.call(last, "join_room", json!({ "room": "ops" })).unwrap_err(), "room_full");
    let added = worker.home.run("transit-worker", ["room", "add", "ops", "a64@alpha"], b"");
    assert!(!added.status.success() && crate::support::text(&added.stderr).contains("full"), "{added:?}");
    assert_eq!(alpha.send(&tx(1), "a0", "#ops"), None);
    let mut heard: Vec<_> = (1..ROOM_MEMBERS).map(|_| said(&mut alpha)).collect();
    assert!(heard.iter().all(|(id, _, _, seq)| (id, *seq) == (&tx(1), 1)));
    heard.sort();
    heard.dedup();
    assert_eq!(heard.len(), ROOM_MEMBERS - 1, "each its own");
    alpha.call("a1", "leave_room", json!({ "room": "ops" })).unwrap();
    assert_eq!(alpha.call(last, "join_room", json!({ "room": "ops" })).unwrap()["joined"], true);
    assert_eq!(alpha.send(&tx(2), "a1", "#ops").unwrap(), "not_member");
}
