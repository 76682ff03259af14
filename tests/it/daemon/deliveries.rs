//! From the Worker into a session, and the answer back; also through crashes.

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;
use transit::proto::envelope::{Envelope, Kind, render};

use super::world::{Adapter, Order, Worker, enrolled, start, start_with, status_until};

const ONE: &str = "tx_000000000001";
const TWO: &str = "tx_000000000002";
const DLV: &str = "dlv_000000000001";

fn answer(id: &str, agent: &str, what: &str) -> (String, String, String) {
    (id.to_owned(), agent.to_owned(), what.to_owned())
}

/// The roster once this agent is in it.
fn roster_with(worker: &Worker, name: &str) -> Vec<(String, String)> {
    loop {
        let roster = worker.roster();
        if roster.iter().any(|(agent, _)| agent == name) {
            return roster;
        }
    }
}

fn channel(redelivery: u32) -> String {
    render(&Envelope {
        from: "ingest".into(),
        id: DLV.into(),
        ts: "2026-01-01T00:00:00Z".into(),
        reply_to: None,
        body: "disk full".into(),
        kind: Kind::Channel {
            conversation_id: "c1".into(),
            connector: "ingest".into(),
            user: "ci".into(),
            redelivery,
            read: false,
            trigger: "alert".into(),
        },
    })
}

#[test]
fn a_delivery_reaches_its_session_and_its_ack_the_worker() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    assert!(worker.roster().is_empty(), "the first roster, before anybody is there");
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    assert_eq!(roster_with(&worker, "jess"), [("jess".to_owned(), "idle".to_owned())]);
    jess.status("working");
    while worker.roster() != [("jess".to_owned(), "working".to_owned())] {}
    worker.deliver(ONE, "jess", "an envelope");
    let frame = jess.next().unwrap();
    assert_eq!(frame, json!({ "t": "deliver", "id": ONE, "envelope": "an envelope" }));
    jess.ack(ONE);
    assert_eq!(worker.answer(), answer(ONE, "jess", "ack"));
    // A message that is known is answered from history, and the next one comes right after it.
    worker.deliver(ONE, "jess", "an envelope");
    assert_eq!(worker.answer(), answer(ONE, "jess", "ack"));
    worker.deliver(TWO, "jess", "another");
    assert_eq!(jess.delivery(), TWO);
    jess.ack(TWO);
    assert_eq!(worker.answer(), answer(TWO, "jess", "ack"));
}

#[test]
fn many_deliveries_keep_their_order_and_each_gets_its_own_answer() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    roster_with(&worker, "jess");
    let ids: Vec<String> = (0..40).map(|n| format!("tx_{n:012x}")).collect();
    for id in &ids {
        worker.deliver(id, "jess", id);
    }
    for id in &ids {
        assert_eq!(jess.delivery(), *id);
        jess.ack(id);
    }
    for id in &ids {
        assert_eq!(worker.answer(), answer(id, "jess", "ack"));
    }
}

#[test]
fn what_was_acknowledged_right_before_a_session_came_again_is_not_delivered_again() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    roster_with(&worker, "jess");
    for round in 0..10 {
        let ids: Vec<String> = (0..10).map(|n| format!("tx_{round:06x}{n:06x}")).collect();
        for id in &ids {
            worker.deliver(id, "jess", id);
        }
        for id in &ids {
            assert_eq!(jess.delivery(), *id);
        }
        ids.iter().for_each(|id| jess.ack(id));
        jess = Adapter::register(&home, "s1", Some("jess")).0;
    }
}

#[test]
fn refusals_are_told_as_they_are_and_a_late_ack_still_settles() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    roster_with(&worker, "jess");
    worker.deliver(ONE, "jess", "one");
    assert_eq!(jess.delivery(), ONE);
    jess.nak(ONE, "draft_busy", true);
    assert_eq!(worker.answer(), answer(ONE, "jess", "draft_busy"));
    worker.deliver(TWO, "jess", "two");
    assert_eq!(jess.delivery(), TWO, "the refused one waits for the Worker");
    jess.nak(TWO, "no_thanks", false);
    assert_eq!(worker.answer(), answer(TWO, "jess", "no_thanks!"));
    jess.ack(ONE);
    assert_eq!(worker.answer(), answer(ONE, "jess", "ack"));
}

/// A message of a sender, as the Worker renders it.
fn message(id: &str, from: &str) -> String {
    render(&Envelope {
        from: from.to_owned(),
        id: id.to_owned(),
        ts: "2026-01-02T03:04:05Z".into(),
        reply_to: None,
        body: "hello".into(),
        kind: Kind::Dm,
    })
}

#[test]
fn what_is_refused_for_now_is_not_passed_by_what_its_sender_sent_next() {
    const THREE: &str = "tx_000000000003";
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    roster_with(&worker, "jess");
    for (id, from) in [(ONE, "amy@alpha"), (TWO, "amy@alpha"), (THREE, "zoe@omega")] {
        worker.deliver(id, "jess", &message(id, from));
    }
    assert_eq!([jess.delivery(), jess.delivery()], [ONE, THREE], "another sender has an order of its own");
    jess.nak(ONE, "not_now", true);
    assert_eq!(worker.answer(), answer(ONE, "jess", "not_now"));
    jess.ack(THREE);
    assert_eq!(worker.answer(), answer(THREE, "jess", "ack"));
    // The Worker sends the first one again. The second comes once that has arrived.
    worker.deliver(ONE, "jess", &message(ONE, "amy@alpha"));
    assert_eq!(jess.delivery(), ONE);
    jess.ack(ONE);
    assert_eq!(jess.delivery(), TWO);
    jess.ack(TWO);
    assert_eq!(worker.answer(), answer(ONE, "jess", "ack"));
    assert_eq!(worker.answer(), answer(TWO, "jess", "ack"));
}

#[test]
fn what_could_not_be_stored_is_not_passed_by_what_its_sender_sent_next() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    roster_with(&worker, "jess");
    let pid = Pid::from_raw(daemon.pid().cast_signed());
    let largest_file = |size| prlimit(pid, Resource::Fsize, Rlimit { current: size, maximum: None }).unwrap();
    let deliver = |id| worker.deliver(id, "jess", &message(id, "amy@alpha"));
    largest_file(Some(0));
    deliver(ONE);
    assert_eq!(worker.answer(), answer(ONE, "jess", "history_write_failed"));
    largest_file(None);
    // The Worker sent it before it heard of that.
    deliver(TWO);
    assert_eq!(worker.answer(), answer(TWO, "jess", "behind_another"));
    for id in [ONE, TWO] {
        deliver(id);
        assert_eq!(jess.delivery(), id);
        jess.ack(id);
        assert_eq!(worker.answer(), answer(id, "jess", "ack"));
    }
}

#[test]
fn what_finds_no_session_waits_for_it() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    worker.roster();
    worker.deliver(ONE, "jess", "one");
    assert_eq!(worker.answer(), answer(ONE, "jess", "agent_not_found"));
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    assert_eq!(jess.delivery(), ONE, "the daemon hands over by itself what it kept");
    // It goes away without an answer, and comes back.
    drop(jess);
    status_until(&home, |status| status["agents"] == json!([]));
    worker.deliver(ONE, "jess", "one");
    assert_eq!(worker.answer(), answer(ONE, "jess", "adapter_unavailable"));
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    assert_eq!(jess.delivery(), ONE);
    jess.ack(ONE);
    assert_eq!(worker.answer(), answer(ONE, "jess", "ack"));
}

#[test]
fn a_session_that_goes_away_gives_back_what_it_did_not_answer() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    roster_with(&worker, "jess");
    worker.deliver(ONE, "jess", "one");
    assert_eq!(jess.delivery(), ONE);
    drop(jess);
    assert_eq!(worker.answer(), answer(ONE, "jess", "adapter_unavailable"));
}

#[test]
fn a_reminder_is_shown_again_only_when_it_is_a_later_one() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    roster_with(&worker, "jess");
    for (redelivery, is_shown) in [(0, true), (0, false), (2, true), (1, false), (3, true)] {
        worker.deliver(DLV, "jess", &channel(redelivery));
        if is_shown {
            let frame = jess.next().unwrap();
            assert!(frame["envelope"].as_str().unwrap().contains(&format!("redelivery=\"{redelivery}\"")));
            jess.ack(DLV);
        }
        assert_eq!(worker.answer(), answer(DLV, "jess", "ack"), "redelivery {redelivery}");
    }
}

#[test]
fn a_kill_between_deliver_and_ack_costs_a_repetition_and_nothing_else() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let mut daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    roster_with(&worker, "jess");
    worker.deliver(ONE, "jess", "one");
    assert_eq!(jess.delivery(), ONE);
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    assert_eq!(jess.next(), None);
    let _daemon = start(&home);
    let (mut jess, answer_) = Adapter::register(&home, "s1", Some("jess"));
    assert_eq!(answer_["generation"], 2);
    assert_eq!(jess.delivery(), ONE, "the same one, to the resumed session");
    jess.ack(ONE);
    assert_eq!(worker.answer(), answer(ONE, "jess", "ack"));
    worker.deliver(TWO, "jess", "two");
    assert_eq!(jess.delivery(), TWO);
    jess.ack(TWO);
    assert_eq!(worker.answer(), answer(TWO, "jess", "ack"));
    assert_eq!(worker.rest().len(), 0, "it was acknowledged once");
}

#[test]
fn an_ack_that_the_worker_did_not_hear_is_told_again() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let mut daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    roster_with(&worker, "jess");
    worker.deliver(ONE, "jess", "one");
    assert_eq!(jess.delivery(), ONE);
    worker.order(Order::Cut);
    jess.ack(ONE);
    // Whether or not it got out before the cut: the Worker asks again, and hears it.
    roster_with(&worker, "jess");
    worker.rest();
    worker.deliver(ONE, "jess", "one");
    assert_eq!(worker.answer(), answer(ONE, "jess", "ack"));
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let _daemon = start(&home);
    worker.deliver(ONE, "jess", "one");
    assert_eq!(worker.answer(), answer(ONE, "jess", "ack"), "history survives");
}

#[test]
fn an_orderly_stop_gives_back_what_is_open() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let wire_log = home.path("frames.ndjson");
    let mut daemon = start_with(&home, &["--wire-log", wire_log.to_str().unwrap()]);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    roster_with(&worker, "jess");
    worker.deliver(ONE, "jess", "one");
    assert_eq!(jess.delivery(), ONE);
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.answer(), answer(ONE, "jess", "adapter_unavailable"));
    assert!(daemon.wait().success());
    assert_eq!(jess.next(), None);
    let log = std::fs::read_to_string(wire_log).unwrap();
    let frames: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = frames.iter().map(|record| record["frame"]["t"].as_str().unwrap()).collect();
    assert_eq!(kinds[..2], ["hello", "hello_ok"]);
    // Jess has left by then, and a roster may say so.
    assert_eq!(kinds.iter().rfind(|t| **t != "roster"), Some(&"deliver_nak"));
    assert!(frames.iter().all(|record| record["proto"] == "transit-wire/1" && record["at"].is_string()));
}
