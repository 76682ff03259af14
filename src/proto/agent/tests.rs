//! The rules of both ends, one by one, and the two against each other.

use super::*;
use crate::limits;
use crate::proto::Input;
use crate::proto::testing::{Drained, at, drain};

const CAPABILITY: &str = "000102030405060708090a0b0c0d0e0f";

fn register() -> Register {
    Register {
        proto: 1,
        harness: "program".into(),
        session_id: "s-1".into(),
        pid: 7,
        cwd: "/".into(),
        title: "a title".into(),
        status: "idle".into(),
        name: None,
        pane_id: None,
    }
}

fn daemon() -> DaemonSide {
    DaemonSide::new(PeerProcess { pid: 7, own: 7 }, at(0))
}

fn registered() -> DaemonSide {
    let mut side = daemon();
    heard(&mut side, &AdapterFrame::Register(register()), 0);
    side.registered("jess", "jess@titan", 1, CAPABILITY.into(), at(0));
    drain(|| side.poll());
    side
}

/// A registered daemon's side with one delivery open since 0 s.
fn delivering() -> DaemonSide {
    let mut side = registered();
    side.deliver("tx_1", "e".into(), at(0));
    drain(|| side.poll());
    side
}

fn heard(side: &mut DaemonSide, frame: &AdapterFrame, now: u64) -> Drained<DaemonSideEvent> {
    side.handle(Input::Text(&frame.encode()), at(now));
    drain(|| side.poll())
}

fn ticked(side: &mut DaemonSide, now: u64) -> Drained<DaemonSideEvent> {
    side.handle(Input::Tick, at(now));
    drain(|| side.poll())
}

fn ack(id: &str, persisted: bool, capability: &str) -> AdapterFrame {
    AdapterFrame::DeliverAck { id: id.into(), persisted, via: None, capability: capability.into() }
}

fn nak(id: &str, code: Option<&str>, retryable: bool) -> AdapterFrame {
    let (id, code, capability) = (id.into(), code.map(Into::into), CAPABILITY.into());
    AdapterFrame::DeliverNak { id, code, retryable, capability }
}

fn pong() -> AdapterFrame {
    AdapterFrame::Pong { capability: CAPABILITY.into() }
}

fn refused(id: &str, code: &str, retryable: bool) -> DaemonSideEvent {
    DaemonSideEvent::Nak { id: id.into(), code: code.into(), retryable }
}

fn acked(id: &str) -> DaemonSideEvent {
    DaemonSideEvent::Ack { id: id.into(), is_only_seen: false }
}

fn told(side: &mut AdapterSide, frame: &HostFrame, now: u64) -> Drained<AdapterEvent> {
    side.handle(Input::Text(&frame.encode()), at(now));
    drain(|| side.poll())
}

#[test]
fn a_capability_is_32_hexadecimal_characters() {
    assert_eq!(capability(std::array::from_fn(|n| n as u8)), CAPABILITY);
}

#[test]
fn the_owner_decides_about_a_registration_of_the_right_form() {
    let mut side = daemon();
    let drained = heard(&mut side, &AdapterFrame::Register(register()), 1);
    assert_eq!(drained.events, [DaemonSideEvent::Register(register())]);
    assert_eq!(drained.writes, [""; 0]);
    assert_eq!(ticked(&mut side, 100).close, None, "the owner may take its time");
    side.refuse("name_taken", "somebody has it");
    let drained = drain(|| side.poll());
    assert_eq!(drained.writes, [r#"{"t":"register_err","code":"name_taken","error":"somebody has it"}"#]);
    assert!(drained.close.is_some());
}

#[test]
fn an_adapter_may_register_for_the_harness_that_it_is_a_child_of() {
    let side =
        || daemon().with_ancestors(vec![PeerProcess { pid: 5, own: 2 }, PeerProcess { pid: 4, own: 4 }]);
    for pid in [7, 5, 2, 4] {
        let drained = heard(&mut side(), &AdapterFrame::Register(Register { pid, ..register() }), 1);
        assert!(matches!(&drained.events[..], [DaemonSideEvent::Register(_)]), "{pid}");
    }
    let drained = heard(&mut side(), &AdapterFrame::Register(Register { pid: 3, ..register() }), 1);
    assert!(drained.writes[0].contains("pid_mismatch"), "{:?}", drained.writes);
}

#[test]
fn every_harness_has_the_same_words_for_its_state() {
    for (said, is) in
        [("busy", "working"), ("retry", "working"), ("shell", "idle"), ("blocked", "blocked"), ("Zen", "Zen")]
    {
        let status = AdapterFrame::Status { status: said.into(), capability: CAPABILITY.into() };
        assert_eq!(heard(&mut registered(), &status, 1).events, [DaemonSideEvent::Status(is.into())]);
    }
}

/// The registration was refused with this code, and that is all.
#[track_caller]
fn code(drained: Drained<DaemonSideEvent>, code: &str) {
    assert!(drained.writes[0].contains(&format!("\"code\":\"{code}\"")), "{}", drained.writes[0]);
    assert!(drained.close.is_some() && drained.events.is_empty());
}

#[test]
fn a_register_of_another_version_may_look_as_it_likes() {
    for rest in ["", r#","session_id":7"#, r#","pid":"x","harness":null"#] {
        let mut side = daemon();
        side.handle(Input::Text(&format!(r#"{{"t":"register","proto":2{rest}}}"#)), at(0));
        code(drain(|| side.poll()), "unsupported_proto");
    }
    for proto in ["1", "\"2\"", "-1", "2.0", "null"] {
        let mut side = daemon();
        side.handle(Input::Text(&format!(r#"{{"t":"register","proto":{proto}}}"#)), at(0));
        code(drain(|| side.poll()), "bad_request");
    }
}

#[test]
fn a_registration_of_the_wrong_form_is_refused_at_once() {
    type Change = fn(&mut Register);
    let cases: [(Change, &str); 8] = [
        (|r| r.proto = 2, "unsupported_proto"),
        (|r| r.pid = 8, "pid_mismatch"),
        (|r| r.harness = "Program".into(), "unsupported_harness"),
        (|r| r.session_id = String::new(), "invalid_session"),
        (|r| r.session_id = "a\nb".into(), "invalid_session"),
        (|r| r.session_id = "x".repeat(513), "invalid_session"),
        (|r| r.name = Some("operator".into()), "invalid_name"),
        (|r| r.name = Some("Jess".into()), "invalid_name"),
    ];
    for (change, code) in cases {
        let mut wrong = register();
        change(&mut wrong);
        let drained = heard(&mut daemon(), &AdapterFrame::Register(wrong), 1);
        assert!(drained.writes[0].contains(&format!("\"code\":\"{code}\"")), "{}", drained.writes[0]);
        assert!(drained.close.is_some() && drained.events.is_empty());
    }
    let own = register().pid;
    let mut side = DaemonSide::new(PeerProcess { pid: own + 8_000, own }, at(0));
    let drained = heard(&mut side, &AdapterFrame::Register(register()), 1);
    assert_eq!(drained.events.len(), 1, "in a container it knows itself by another pid");
    let mut side = DaemonSide::new(PeerProcess { pid: 0, own: 0 }, at(0));
    let drained = heard(&mut side, &AdapterFrame::Register(register()), 1);
    assert!(drained.writes[0].contains("pid_not_visible") && drained.writes[0].contains("namespace"));
}

#[test]
fn the_first_frame_is_register_and_comes_within_10_s() {
    code(heard(&mut daemon(), &pong(), 1), "register_required");
    code(ticked(&mut daemon(), 10), "register_required");
    let mut side = daemon();
    assert_eq!(drain(|| side.poll()).wake, Some(at(10)));
    for input in
        [Input::Text("{"), Input::Text(r#"{"t":"register","proto":1}"#), Input::Binary, Input::TooLong]
    {
        let mut side = daemon();
        side.handle(input, at(1));
        code(drain(|| side.poll()), "bad_request");
    }
    let mut side = daemon();
    side.handle(Input::Text(r#"{"t":"later"}"#), at(1));
    assert_eq!(drain(|| side.poll()).close, None);
    let mut side = registered();
    code(heard(&mut side, &AdapterFrame::Register(register()), 1), "bad_request");
}

#[test]
fn a_frame_without_the_right_capability_is_ignored() {
    let mut side = delivering();
    assert_eq!(heard(&mut side, &ack("tx_1", true, "0"), 1).events, []);
    assert_eq!(heard(&mut side, &ack("tx_1", true, &CAPABILITY.to_uppercase()), 1).events, []);
    for rest in ["", r#","capability":null"#, r#","capability":7"#, r#","capability":"0""#] {
        for frame in
            [r#""deliver_ack","id":"tx_1""#, r#""deliver_nak","id":"tx_1""#, r#""pong""#, r#""status""#]
        {
            side.handle(Input::Text(&format!(r#"{{"t":{frame}{rest}}}"#)), at(1));
            let drained = drain(|| side.poll());
            assert_eq!((drained.events, drained.close.is_none()), (vec![], true), "{frame}{rest}");
        }
    }
    assert_eq!(heard(&mut side, &ack("tx_1", true, CAPABILITY), 1).events, [acked("tx_1")]);
    let malformed = format!(r#"{{"t":"deliver_nak","id":"tx_1","capability":"{CAPABILITY}"}}"#);
    side.handle(Input::Text(&malformed), at(1));
    assert!(drain(|| side.poll()).close.is_some(), "whose capability is right has to say what it means");
    let mut side = daemon();
    heard(&mut side, &AdapterFrame::Register(register()), 0);
    assert_eq!(heard(&mut side, &ack("tx_1", true, ""), 1).events, [], "none was given yet");
}

#[test]
fn a_delivery_has_one_outcome() {
    let mut side = registered();
    side.deliver("tx_1", "e".into(), at(0));
    side.deliver("tx_1", "e".into(), at(0));
    side.deliver("tx_2", "f".into(), at(0));
    side.deliver("tx_3", "g".into(), at(0));
    side.deliver("tx_4", "h".into(), at(0));
    side.deliver("tx_5", "i".into(), at(0));
    let writes = drain(|| side.poll()).writes;
    assert_eq!(writes.len(), 5, "what is open is not handed over again");
    assert_eq!(writes[0], r#"{"t":"deliver","id":"tx_1","envelope":"e"}"#);
    assert_eq!(
        heard(&mut side, &ack("tx_1", false, CAPABILITY), 1).events,
        [refused("tx_1", "adapter_ack_invalid", true)]
    );
    let bare = format!(r#"{{"t":"deliver_ack","id":"tx_5","capability":"{CAPABILITY}"}}"#);
    side.handle(Input::Text(&bare), at(1));
    assert_eq!(drain(|| side.poll()).events, [refused("tx_5", "adapter_ack_invalid", true)]);
    for (id, persisted) in [("tx_6", "null"), ("tx_7", "1"), ("tx_8", "\"true\"")] {
        side.deliver(id, "j".into(), at(1));
        let line = format!(
            r#"{{"t":"deliver_ack","id":"{id}","persisted":{persisted},"capability":"{CAPABILITY}"}}"#
        );
        side.handle(Input::Text(&line), at(1));
        assert_eq!(drain(|| side.poll()).events, [refused(id, "adapter_ack_invalid", true)], "{persisted}");
    }
    assert_eq!(
        heard(&mut side, &nak("tx_2", None, true), 1).events,
        [refused("tx_2", "adapter_rejected", true)]
    );
    assert_eq!(
        heard(&mut side, &nak("tx_3", Some("no_screen"), false), 1).events,
        [refused("tx_3", "no_screen", false)]
    );
    assert_eq!(heard(&mut side, &nak("tx_3", Some("no_screen"), false), 1).events, [], "it had its outcome");
    side.close();
    let drained = drain(|| side.poll());
    assert_eq!(drained.events, [refused("tx_4", "adapter_unavailable", true)]);
    assert!(drained.close.is_some());
}

#[test]
fn every_delivery_waits_30_s_from_the_last_sign_of_life_and_15_min_at_most() {
    let mut side = delivering();
    assert_eq!(ticked(&mut side, 29).events, []);
    side.deliver("tx_2", "f".into(), at(20));
    assert_eq!(ticked(&mut side, 30).events, [refused("tx_1", "adapter_timeout", true)]);
    assert_eq!(ticked(&mut side, 50).events, [refused("tx_2", "adapter_timeout", true)]);
    assert_eq!(
        heard(&mut side, &ack("tx_1", true, CAPABILITY), 60).events,
        [acked("tx_1")],
        "late, and it counts"
    );

    let mut side = delivering();
    for now in (20..900).step_by(20) {
        let sign = if now % 40 == 0 {
            pong()
        } else {
            AdapterFrame::Status { status: "working".into(), capability: CAPABILITY.into() }
        };
        let events = heard(&mut side, &sign, now).events;
        assert!(
            matches!(events[..], [DaemonSideEvent::Alive | DaemonSideEvent::Status(_)]),
            "{now}: {events:?}"
        );
    }
    assert_eq!(ticked(&mut side, 900).events, [refused("tx_1", "adapter_timeout", true)]);
}

#[test]
fn a_cancelled_delivery_has_no_outcome_but_its_ack() {
    let mut side = delivering();
    side.cancel("tx_1");
    assert_eq!(ticked(&mut side, 100).events, []);
    assert_eq!(heard(&mut side, &nak("tx_1", None, true), 100).events, []);
    assert_eq!(heard(&mut side, &ack("tx_1", true, CAPABILITY), 100).events, [acked("tx_1")]);
}

#[test]
fn the_daemon_pings_every_15_s_and_needs_no_answer() {
    let mut side = registered();
    let mut pings = Vec::new();
    for now in 1..=200 {
        let drained = ticked(&mut side, now);
        assert_eq!(drained.close, None);
        if drained.writes == [r#"{"t":"ping"}"#] {
            pings.push(now);
        }
    }
    assert_eq!(pings, (1..=13).map(|n| n * 15).collect::<Vec<u64>>());
}

#[test]
fn what_cannot_be_delivered_is_refused_at_once() {
    let mut side = daemon();
    side.deliver("tx_1", "e".into(), at(0));
    assert_eq!(drain(|| side.poll()).events, [refused("tx_1", "adapter_unavailable", true)]);
    let mut side = registered();
    side.deliver("tx_1", "x".repeat(limits::LINE_BYTES), at(0));
    let drained = drain(|| side.poll());
    assert_eq!((drained.events, drained.writes.len()), (vec![refused("tx_1", "frame_too_large", false)], 0));
    let mut side = delivering();
    let long = heard(&mut side, &nak("tx_1", Some(&"c".repeat(10_000)), true), 1).events;
    assert_eq!(long, [refused("tx_1", &"c".repeat(64), true)]);
}

#[test]
fn an_adapter_registers_and_then_every_frame_carries_its_capability() {
    let mut side = AdapterSide::new(register(), at(0));
    side.alive();
    side.ack("tx_0");
    assert_eq!(drain(|| side.poll()).writes, [AdapterFrame::Register(register()).encode()]);
    let (agent, address) = ("jess".to_owned(), "jess@titan".to_owned());
    let frame = HostFrame::Registered {
        agent: agent.clone(),
        address: address.clone(),
        generation: 2,
        capability: CAPABILITY.into(),
    };
    let drained = told(&mut side, &frame, 1);
    assert_eq!(drained.events, [AdapterEvent::Registered { agent, address, generation: 2 }]);
    assert_eq!(drained.writes, [ack("tx_0", true, CAPABILITY).encode()]);
    side.nak("tx_1", "no_screen", true);
    side.status("working");
    let status = AdapterFrame::Status { status: "working".into(), capability: CAPABILITY.into() };
    assert_eq!(
        drain(|| side.poll()).writes,
        [nak("tx_1", Some("no_screen"), true).encode(), status.encode()]
    );
    let renamed = told(&mut side, &frame, 2);
    assert_eq!(
        (renamed.events.len(), renamed.writes.len()),
        (1, 0),
        "a new name is news, what was said is not"
    );
    assert_eq!(told(&mut side, &HostFrame::Ping, 2).writes, [pong().encode()]);
    let deliver = HostFrame::Deliver { id: "tx_1".into(), envelope: "e".into() };
    let (id, envelope) = ("tx_1".into(), "e".into());
    assert_eq!(told(&mut side, &deliver, 500).events, [AdapterEvent::Deliver { id, envelope }]);
}

#[test]
fn an_adapter_that_is_refused_or_not_answered_closes() {
    let mut side = AdapterSide::new(register(), at(0));
    let (code, error) = ("name_taken".to_owned(), "e".to_owned());
    let drained = told(&mut side, &HostFrame::RegisterErr { code: code.clone(), error: error.clone() }, 1);
    assert_eq!(drained.events, [AdapterEvent::Refused { code, error }]);
    assert!(drained.close.is_some());

    let mut side = AdapterSide::new(register(), at(0));
    assert_eq!(drain(|| side.poll()).wake, Some(at(30)));
    side.handle(Input::Tick, at(30));
    assert!(drain(|| side.poll()).close.is_some());

    let mut side = AdapterSide::new(register(), at(0));
    let early = HostFrame::Deliver { id: "tx_1".into(), envelope: "e".into() };
    assert!(told(&mut side, &early, 1).close.is_some());

    for input in [Input::Binary, Input::TooLong, Input::Text("7")] {
        let mut side = AdapterSide::new(register(), at(0));
        side.handle(input, at(1));
        assert!(drain(|| side.poll()).close.is_some());
    }
}
