//! What waits for agents: order, answers with and without a name, what is shown again and what is not.

use serde_json::json;

use super::super::event;
use super::{Peer, two_hosts, tx};
use crate::support::eventually;
use transit::clock::{Clock, SystemClock};
use transit::limits::QUEUE_MAX;
use transit::proto::envelope::{self, Kind};
use transit::proto::wire::SendFrame;
use transit::store::ledger::messages::{self, Queue};
use transit::store::ledger::{Db, directory};

#[test]
fn answers_without_an_agent_settle_a_fan_out_one_by_one() {
    let (worker, mut alpha, mut beta, tokens) = two_hosts();
    beta.call("bob", "create_room", json!({ "room": "ops" })).unwrap();
    beta.call("ben", "join_room", json!({ "room": "ops" })).unwrap();
    alpha.call("amy", "join_room", json!({ "room": "ops" })).unwrap();
    let states = |alpha: &mut Peer, id: &str| -> Vec<(String, String)> {
        let told = alpha.call("amy", "message_status", json!({ "id": id })).unwrap();
        let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let recipients = told["recipients"].as_array().unwrap().clone();
        recipients.iter().map(|one| (word(&one["agent"]), word(&one["state"]))).collect()
    };
    let both = |ben: &str, bob: &str| {
        vec![("ben@beta".to_owned(), ben.to_owned()), ("bob@beta".to_owned(), bob.to_owned())]
    };
    for n in [1, 2] {
        assert_eq!(alpha.send(&tx(n), "amy", "#ops"), None);
        let agents = [beta.delivered(), beta.delivered()];
        assert!(agents.iter().all(|(id, _)| *id == tx(n)), "{agents:?}");
        // The older of the two goes first, whichever was made first.
        beta.ack(&tx(n), None);
        beta.settled("bob");
        let after_one = states(&mut alpha, &tx(n));
        let injected: Vec<_> = after_one.iter().filter(|(_, state)| state == "injected").collect();
        assert_eq!(injected.len(), 1, "{after_one:?}");
        assert_eq!(injected[0].0, format!("{}@beta", agents[0].1), "the one that went out first");
        if n == 1 {
            beta.ack(&tx(n), None);
            beta.settled("bob");
            assert_eq!(states(&mut alpha, &tx(n)), both("injected", "injected"));
            beta.ack(&tx(n), None);
            beta.settled("bob");
        }
    }
    // Of the second, one is left: the next connection is sent that one and no other.
    let left = states(&mut alpha, &tx(2)).into_iter().find(|(_, state)| state == "queued").unwrap().0;
    drop(beta);
    let mut beta = Peer::enter(&worker, "beta", &tokens[1], &["bob", "ben"]);
    let (id, agent) = beta.delivered();
    assert_eq!((id, format!("{agent}@beta")), (tx(2), left));
    // By name, the other one is not touched, and what is settled stays so.
    let other = if agent == "bob" { "ben" } else { "bob" };
    beta.ack(&tx(2), Some(other));
    beta.settled("bob");
    assert!(states(&mut alpha, &tx(2)).iter().any(|(_, state)| state == "queued"));
    beta.nak(&tx(2), &agent, "adapter_rejected", false);
    beta.settled("bob");
    assert!(states(&mut alpha, &tx(2)).iter().any(|(_, state)| state == "dead"));
}

#[test]
fn a_message_that_waits_for_its_retry_holds_its_pair_and_nobody_else() {
    let (_worker, mut alpha, mut beta, _) = two_hosts();
    assert_eq!(alpha.send(&tx(1), "amy", "bob@beta"), None);
    assert_eq!(beta.delivered().0, tx(1));
    beta.nak(&tx(1), "bob", "adapter_unavailable", true);
    beta.settled("bob");
    for (n, from, to) in
        [(2, "amy", "bob@beta"), (3, "abe", "bob@beta"), (4, "amy", "ben@beta"), (5, "abe", "bob@beta")]
    {
        assert_eq!(alpha.send(&tx(n), from, to), None);
    }
    let mut passed = [beta.delivered(), beta.delivered(), beta.delivered()];
    passed.sort();
    assert_eq!(passed, [(3, "bob"), (4, "ben"), (5, "bob")].map(|(n, agent)| (tx(n), agent.to_owned())));
    for (id, agent) in passed {
        beta.ack(&id, Some(&agent));
    }
    // Five seconds later.
    assert_eq!(beta.delivered(), (tx(1), "bob".to_owned()));
    beta.nothing_delivered("bob");
    beta.ack(&tx(1), Some("bob"));
    assert_eq!(beta.delivered(), (tx(2), "bob".to_owned()));
}

#[test]
fn what_was_not_answered_comes_again_on_the_next_connection_in_its_order_unless_a_late_answer_comes() {
    let (worker, mut alpha, mut beta, tokens) = two_hosts();
    for n in 1..=4 {
        assert_eq!(alpha.send(&tx(n), "amy", "bob@beta"), None);
        assert_eq!(beta.delivered().0, tx(n));
    }
    beta.ack(&tx(2), Some("bob"));
    beta.settled("bob");
    drop(beta);
    let mut beta = Peer::greeted(&worker, "beta", &tokens[1]);
    beta.ack(&tx(3), Some("bob"));
    beta.daemon.roster(&["bob"]);
    // Each waits until the one before is answered: it may be lost again.
    for n in [1, 4] {
        assert_eq!(beta.delivered(), (tx(n), "bob".to_owned()));
        beta.ack(&tx(n), Some("bob"));
    }
    beta.nothing_delivered("bob");
}

#[test]
fn answers_to_what_was_never_sent_are_no_matter() {
    let (_worker, mut alpha, mut beta, _) = two_hosts();
    for id in ["tx_00000000000f", "dlv_00000000000f", "", "no id", "\u{0}"] {
        for agent in [None, Some("bob"), Some("nobody"), Some("No Name")] {
            beta.ack(id, agent);
        }
        beta.nak(id, "bob", "whatever", true);
        beta.nak(id, "nobody", "", false);
    }
    // A host answers for its own agents alone.
    assert_eq!(alpha.send(&tx(1), "amy", "bob@beta"), None);
    alpha.ack(&tx(1), None);
    alpha.ack(&tx(1), Some("bob"));
    alpha.nak(&tx(1), "bob", "x", false);
    alpha.settled("amy");
    assert_eq!(beta.delivered(), (tx(1), "bob".to_owned()));
    beta.settled("bob");
    let told = alpha.call("amy", "message_status", json!({ "id": tx(1) })).unwrap();
    assert_eq!(told["state"], "queued", "{told}");
}

#[test]
fn an_event_is_shown_again_with_its_number_and_its_note_until_it_is_settled() {
    let (worker, _alpha, mut beta, tokens) = two_hosts();
    worker.source("bob@beta", &[]);
    let id =
        worker.event(event("k1").to_string().as_bytes()).json()["delivery_id"].as_str().unwrap().to_owned();
    let shown = |beta: &mut Peer, redelivery: u32, note: Option<&str>| {
        let frame = beta.next("deliver");
        let text = frame["envelope"].as_str().unwrap().to_owned();
        let parsed = envelope::parse(&text).unwrap().envelope;
        let Kind::Channel { redelivery: told, .. } = parsed.kind else { panic!("{text}") };
        assert_eq!((frame["id"].as_str(), told), (Some(id.as_str()), redelivery), "{text}");
        let last = text.lines().rev().nth(1).unwrap().to_owned();
        match note {
            Some(note) => assert_eq!(last, note),
            None => assert_eq!(last, "[read_message, then settle: chat_reply or mark_handled]"),
        }
        beta.ack(&id, Some("bob"));
        beta.settled("bob");
    };
    let requeue = || worker.admin(&["delivery", "requeue", &id]);
    shown(&mut beta, 0, None);
    beta.nothing_delivered("bob");
    requeue();
    shown(
        &mut beta,
        1,
        Some("[redelivery 1, unread: already replied? mark_handled; otherwise read_message]"),
    );
    let text = beta.call("bob", "read_message", json!({ "id": id })).unwrap();
    assert!(text.as_str().unwrap().contains("read=\"first\""), "{text}");
    let text = beta.call("bob", "read_message", json!({ "id": id })).unwrap();
    assert!(text.as_str().unwrap().contains("read=\"again\""), "{text}");
    requeue();
    shown(
        &mut beta,
        2,
        Some("[redelivery 2, read/unsettled: do not reply twice; chat_reply or mark_handled]"),
    );
    beta.call("bob", "mark_handled", json!({ "delivery_id": id })).unwrap();
    drop(beta);
    let mut beta = Peer::enter(&worker, "beta", &tokens[1], &["bob", "ben"]);
    beta.nothing_delivered("bob");
}

#[test]
fn an_event_that_was_settled_before_it_went_out_never_does() {
    let (worker, _alpha, mut beta, tokens) = two_hosts();
    worker.source("bob@beta", &[]);
    beta.daemon.roster(&["ben"]);
    beta.settled("ben");
    let [by_operator, by_agent] = ["k1", "k2"].map(|key| {
        let answer = worker.event(event(key).to_string().as_bytes()).json();
        answer["delivery_id"].as_str().unwrap().to_owned()
    });
    worker.admin(&["delivery", "handle", &by_operator]);
    beta.call("bob", "mark_handled", json!({ "delivery_id": by_agent })).unwrap();
    beta.daemon.roster(&["bob", "ben"]);
    beta.nothing_delivered("bob");
    drop(beta);
    let mut beta = Peer::enter(&worker, "beta", &tokens[1], &["bob", "ben"]);
    beta.nothing_delivered("bob");
}

#[test]
fn a_full_queue_refuses_until_one_place_is_free() {
    let (worker, mut alpha, mut beta, _) = two_hosts();
    beta.daemon.roster(&["ben"]);
    beta.settled("ben");
    let db = Db::open(&worker.home.data().join("worker.db")).unwrap();
    db.write(|tx| {
        let org_id = directory::default_org(tx)?.id;
        let queue = Queue { org_id, host: "beta".into(), agent: "bob".into() };
        for n in 1..QUEUE_MAX {
            let frame = SendFrame {
                id: format!("tx_{n:012x}"),
                from: "abe@alpha".into(),
                to: "bob@beta".into(),
                body: "x".into(),
                reply_to: None,
                ts: "2026-01-01T00:00:00Z".into(),
            };
            messages::take(tx, &queue, "alpha", &frame, true, SystemClock::new().wall())?;
        }
        Ok(())
    })
    .unwrap();
    drop(db);
    let (last, beyond) = (tx(5_000), tx(5_001));
    assert_eq!(alpha.send(&last, "amy", "bob@beta"), None, "the thousandth");
    assert_eq!(alpha.send(&beyond, "amy", "bob@beta").unwrap(), "rate_limited");
    assert_eq!(alpha.send(&last, "amy", "bob@beta"), None, "what is in stays in");
    assert_eq!(alpha.send(&tx(5_002), "amy", "ben@beta"), None, "nobody else's queue is full");
    assert_eq!(beta.delivered(), (tx(5_002), "ben".to_owned()));
    // A room takes it for all members or for none.
    beta.daemon.roster(&["bob", "ben"]);
    for (agent, method) in [("ben", "create_room"), ("bob", "join_room")] {
        beta.call(agent, method, json!({ "room": "ops" })).unwrap();
    }
    assert_eq!(beta.send(&tx(5_003), "ben", "#ops").unwrap(), "rate_limited");
    let (first, _) = beta.delivered();
    assert_eq!(first, tx(1), "the oldest first");
    beta.ack(&first, Some("bob"));
    beta.settled("bob");
    eventually(|| alpha.send(&beyond, "amy", "bob@beta").is_none().then_some(()));
}

#[test]
fn a_bounce_comes_once_and_names_what_it_is_about() {
    let (worker, mut alpha, mut beta, tokens) = two_hosts();
    assert_eq!(alpha.send(&tx(1), "amy", "bob@beta"), None);
    assert_eq!(beta.delivered().0, tx(1));
    beta.nak(&tx(1), "bob", "agent_stopped", false);
    let bounce = alpha.next("deliver");
    let shown = envelope::parse(bounce["envelope"].as_str().unwrap()).unwrap().envelope;
    assert_eq!((shown.from.as_str(), shown.reply_to), ("transit", Some(tx(1))));
    assert_eq!(bounce["agent"], "amy");
    beta.nak(&tx(1), "bob", "agent_stopped", false);
    beta.ack(&tx(1), Some("bob"));
    beta.settled("bob");
    alpha.ack(bounce["id"].as_str().unwrap(), Some("amy"));
    alpha.nothing_delivered("amy");
    let told = alpha.call("amy", "message_status", json!({ "id": tx(1) })).unwrap();
    assert_eq!(told["state"], "dead", "a late ack does not bring it back: {told}");
    drop((alpha, beta));
    let worker = worker.restart();
    let mut alpha = Peer::enter(&worker, "alpha", &tokens[0], &["amy", "abe"]);
    alpha.nothing_delivered("amy");
}
