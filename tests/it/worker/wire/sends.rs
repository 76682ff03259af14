//! `send`: what is checked, in which order, and for how long the answer stands.

use serde_json::{Value, json};

use super::super::Daemon;
use super::{Peer, two_hosts, tx};
use crate::support::eventually;
use transit::limits::{BODY_BYTES, SEND_BURST};
use transit::proto::envelope;

fn frame(id: &str, from: &str, to: &str, body: &str) -> Value {
    json!({ "id": id, "from": from, "to": to, "body": body, "ts": "2026-01-01T00:00:00Z" })
}

#[test]
fn each_check_comes_before_the_next() {
    let (_worker, mut alpha, _beta, _) = two_hosts();
    let long = "x".repeat(BODY_BYTES + 1);
    let mut n = 0;
    let mut refused = |alpha: &mut Peer, from: &str, to: &str, body: &str| {
        n += 1;
        alpha.send_frame(frame(&tx(n), from, to, body)).unwrap_or_default()
    };
    // Names before routes.
    for (from, to) in [
        ("transit@alpha", "nobody@nowhere"),
        ("amy@operator", "bob@beta"),
        ("amy@alpha", "operator@beta"),
        ("amy@alpha", "bob@transit"),
        ("amy@alpha", "#transit"),
        ("eve@alpha", "#operator"),
    ] {
        assert_eq!(refused(&mut alpha, from, to, &long), "reserved_name", "{from} {to}");
    }
    // What is no address, and whoever may not send, before the body.
    for (from, to) in [
        ("amy", "bob@beta"),
        ("amy@alpha", ""),
        ("amy@alpha", "bob"),
        ("amy@alpha", "bob@beta@gamma"),
        ("amy@alpha", "Bob@beta"),
        ("amy@alpha", "#Ops"),
        ("amy@alpha", "#"),
        ("#ops", "bob@beta"),
        ("bob@beta", "bob@beta"),
        ("eve@alpha", "bob@beta"),
    ] {
        assert_eq!(refused(&mut alpha, from, to, &long), "no_route", "{from} {to}");
    }
    // The body before the recipient; its length is counted in bytes.
    assert_eq!(refused(&mut alpha, "amy@alpha", "nobody@nowhere", &long), "body_too_large");
    assert_eq!(
        refused(&mut alpha, "amy@alpha", "#nowhere", &"é".repeat(BODY_BYTES / 2 + 1)),
        "body_too_large"
    );
    assert_eq!(refused(&mut alpha, "amy@alpha", "nobody@nowhere", "x"), "no_route");
    assert_eq!(refused(&mut alpha, "amy@alpha", "#nowhere", "x"), "no_route");
    assert_eq!(refused(&mut alpha, "amy@alpha", "bob@beta", &"é".repeat(BODY_BYTES / 2)), "");
    assert_eq!(refused(&mut alpha, "amy@alpha", "amy@alpha", ""), "", "to itself, and nothing");
    // The rate before the body: none of these is remembered. All are sent before the first answer is waited for.
    let many = 200..200 + 3 * SEND_BURST;
    for n in many.clone() {
        alpha.begin(frame(&tx(n), "amy@alpha", "bob@beta", &long));
    }
    let codes: Vec<_> = many.clone().map(|n| alpha.answer(&tx(n).into()).unwrap()).collect();
    let limited = many.zip(codes).find(|(_, code)| code == "rate_limited").expect("more than the burst").0;
    assert_eq!(alpha.send_frame(frame(&tx(limited), "abe@alpha", "bob@beta", "x")), None, "another sender");
    // What the rate was empty for is remembered all the same when it was answered before.
    assert_eq!(alpha.send_frame(frame(&tx(1), "amy@alpha", "bob@beta", "x")).unwrap(), "reserved_name");
}

#[test]
fn an_id_of_no_message_is_refused_whatever_else_is_right() {
    let (_worker, mut alpha, _beta, _) = two_hosts();
    for id in [
        "",
        "tx_",
        "tx_00000000000",
        "tx_0000000000000",
        "tx_00000000000G",
        "TX_000000000001",
        "dlv_000000000001",
    ] {
        assert_eq!(alpha.send(id, "amy", "bob@beta").unwrap(), "reserved_name", "{id:?}");
    }
}

#[test]
fn a_permanent_answer_stays_when_its_reason_is_gone() {
    let (_worker, mut alpha, mut beta, _) = two_hosts();
    assert_eq!(alpha.send(&tx(1), "amy", "new@beta").unwrap(), "no_route");
    assert_eq!(alpha.send(&tx(2), "new", "bob@beta").unwrap(), "no_route");
    beta.call("bob", "create_room", json!({ "room": "ops" })).unwrap();
    assert_eq!(alpha.send(&tx(3), "amy", "#ops").unwrap(), "not_member");
    assert_eq!(alpha.send(&tx(4), "amy", "#later").unwrap(), "no_route");
    let long = "x".repeat(BODY_BYTES + 1);
    assert_eq!(alpha.send_frame(frame(&tx(5), "amy@alpha", "bob@beta", &long)).unwrap(), "body_too_large");

    alpha.daemon.roster(&["amy", "new"]);
    beta.daemon.roster(&["bob", "ben", "new"]);
    alpha.settled("amy");
    beta.settled("bob");
    for room in ["ops", "later"] {
        let method = if room == "ops" { "join_room" } else { "create_room" };
        alpha.call("amy", method, json!({ "room": room })).unwrap();
    }
    for (id, from, to, code) in [
        (1, "amy", "new@beta", "no_route"),
        (2, "new", "bob@beta", "no_route"),
        (3, "amy", "#ops", "not_member"),
        (4, "amy", "#later", "no_route"),
        (5, "amy", "bob@beta", "body_too_large"),
    ] {
        assert_eq!(alpha.send(&tx(id), from, to).unwrap(), code);
        assert_eq!(beta.send(&tx(id), "bob", "amy@alpha").unwrap(), "reserved_name", "the id is alpha's");
        assert_eq!(alpha.send(&tx(100 + id), from, to), None, "a new id is looked at anew");
    }
    alpha.nothing_delivered("amy");
}

#[test]
fn an_id_that_was_taken_is_acknowledged_again_and_delivered_once() {
    let (worker, mut alpha, mut beta, tokens) = two_hosts();
    assert_eq!(alpha.send(&tx(1), "amy", "bob@beta"), None);
    for (from, to, body) in [
        ("amy@alpha", "bob@beta", "other words"),
        ("amy@alpha", "ben@beta", "x"),
        ("abe@alpha", "bob@beta", "x"),
        ("amy@alpha", "nobody@beta", "x"),
        ("amy@alpha", "operator@beta", "x"),
        ("eve@alpha", "bob@beta", "x"),
    ] {
        assert_eq!(alpha.send_frame(frame(&tx(1), from, to, body)), None, "{from} {to}");
    }
    assert_eq!(beta.delivered(), (tx(1), "bob".to_owned()));
    beta.ack(&tx(1), Some("bob"));
    beta.nothing_delivered("bob");
    drop((alpha, beta));
    let worker = worker.restart();
    let mut alpha = Peer::enter(&worker, "alpha", &tokens[0], &["amy"]);
    assert_eq!(alpha.send(&tx(1), "amy", "bob@beta"), None, "also after a crash");
}

#[test]
fn what_is_no_time_and_no_id_does_not_reach_the_envelope() {
    let (_worker, mut alpha, mut beta, _) = two_hosts();
    for (n, ts, reply_to, kept) in [
        (1, "2026-01-01T00:00:00.123456789Z", json!("tx_00000000000a"), Some("tx_00000000000a")),
        (2, "2026-01-01T02:00:00+02:00", Value::Null, None),
        (3, "yesterday\" onclick=\"", json!("<b>"), None),
        (4, "", json!("dlv_00000000000a"), Some("dlv_00000000000a")),
    ] {
        let mut sent = frame(&tx(n), "amy@alpha", "bob@beta", "x");
        (sent["ts"], sent["reply_to"]) = (ts.into(), reply_to);
        sent["of a later version"] = true.into();
        assert_eq!(alpha.send_frame(sent), None);
        let delivered = beta.next("deliver");
        let shown = envelope::parse(delivered["envelope"].as_str().unwrap()).unwrap().envelope;
        assert_eq!(shown.reply_to.as_deref(), kept, "{n}");
        assert_eq!(shown.ts == ts, n < 3, "{}", shown.ts);
    }
}

#[test]
fn a_message_that_was_refused_by_rate_is_taken_later_under_its_id() {
    let (_worker, mut alpha, mut beta, _) = two_hosts();
    let limited = (0..4 * SEND_BURST).find(|&n| alpha.send(&tx(n), "amy", "bob@beta").is_some());
    let id = tx(limited.expect("more than the burst"));
    eventually(|| alpha.send(&id, "amy", "bob@beta").is_none().then_some(()));
    beta.next_that(|frame| frame["t"] == "deliver" && frame["id"] == id.as_str());
}

#[test]
fn a_sender_is_of_the_host_s_own_roster_also_right_after_its_hello() {
    let (worker, mut alpha, mut beta, tokens) = two_hosts();
    alpha.settled("amy");
    let mut daemon = Daemon::connect(worker.at, &tokens[0]).unwrap();
    daemon.hello("alpha");
    // The roster of this connection has not come: the one of the connection before holds.
    assert_eq!(daemon.send(&tx(1), "amy@alpha", "bob@beta", "x")["t"], "send_ack");
    assert_eq!(daemon.send(&tx(2), "eve@alpha", "bob@beta", "x")["code"], "no_route");
    daemon.roster(&["eve"]);
    assert_eq!(daemon.send(&tx(3), "eve@alpha", "bob@beta", "x")["t"], "send_ack", "the roster came before");
    assert_eq!(daemon.send(&tx(4), "amy@alpha", "bob@beta", "x")["code"], "no_route");
    assert_eq!([beta.delivered().0, beta.delivered().0], [tx(1), tx(3)]);
}
