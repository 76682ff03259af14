//! The rules of both ends, one by one. `tests/it/sim.rs` runs the two against each other.

use serde_json::{Value, json};

use super::*;
use crate::limits;
use crate::proto::testing::{Drained, at, drain};
use crate::proto::{Input, Malformed};

const HELLO_OK: &str = r#"{"t":"hello_ok","host_id":"hst_001122334455","org":"default"}"#;
const HELLO: &str = r#"{"t":"hello","proto":1,"daemon_ver":"9","host":"titan"}"#;

fn daemon() -> DaemonEnd {
    DaemonEnd::new(DaemonConfig { host: "titan".into(), daemon_ver: "9".into() }, at(0))
}

/// A daemon's end whose hello was answered at once.
fn ready_daemon() -> DaemonEnd {
    let mut end = daemon();
    told(&mut end, HELLO_OK, 0);
    end
}

fn told(end: &mut DaemonEnd, text: &str, now: u64) -> Drained<DaemonEvent> {
    end.handle(Input::Text(text), at(now));
    drain(|| end.poll())
}

fn ticked(end: &mut DaemonEnd, now: u64) -> Drained<DaemonEvent> {
    end.handle(Input::Tick, at(now));
    drain(|| end.poll())
}

fn worker() -> WorkerEnd {
    let (host, host_id, org) = ("titan".into(), "hst_001122334455".into(), "default".into());
    WorkerEnd::new(WorkerConfig { host, host_id, org }, at(0))
}

/// A Worker's end that has heard a good hello.
fn ready_worker() -> WorkerEnd {
    let mut end = worker();
    heard(&mut end, HELLO, 0);
    end
}

fn heard(end: &mut WorkerEnd, text: &str, now: u64) -> Drained<WorkerEvent> {
    end.handle(Input::Text(text), at(now));
    drain(|| end.poll())
}

fn message(id: &str, body: &str) -> SendFrame {
    let (from, to, ts) = ("jess@titan".into(), "ada@rhea".into(), "2026-01-01T00:00:00.000Z".into());
    SendFrame { id: id.into(), from, to, body: body.into(), reply_to: None, ts }
}

fn agent(title: &str) -> AgentInfo {
    AgentInfo {
        name: "jess".into(),
        kind: "program".into(),
        pane_id: "p1".into(),
        status: "idle".into(),
        cwd: "/".into(),
        title: title.into(),
        named_by: NamedBy::Auto,
    }
}

fn kinds(writes: &[String]) -> Vec<String> {
    let kind = |text: &String| serde_json::from_str::<Value>(text).unwrap()["t"].as_str().unwrap().to_owned();
    writes.iter().map(kind).collect()
}

#[test]
fn the_daemon_says_hello_and_then_nothing_until_it_is_answered() {
    let mut end = daemon();
    end.send(message("tx_1", "a"));
    end.deliver_ack("dlv_1", "jess");
    end.rpc("r1".into(), "list_rooms", Value::Null, at(0));
    end.roster(vec![agent("old")]);
    end.roster(vec![agent("new")]);
    let first = drain(|| end.poll());
    assert_eq!(first.writes, [r#"{"t":"hello","proto":1,"daemon_ver":"9","host":"titan"}"#]);
    assert_eq!((end.is_ready(), end.backlog()), (false, 3));

    let then = told(&mut end, HELLO_OK, 1);
    assert_eq!(
        then.events,
        [DaemonEvent::Ready { host_id: "hst_001122334455".into(), org: "default".into() }]
    );
    assert_eq!(kinds(&then.writes), ["roster", "send", "deliver_ack", "rpc"]);
    assert!(then.writes[0].contains("\"new\""), "only the newest roster: {}", then.writes[0]);
    assert_eq!((end.is_ready(), end.backlog()), (true, 0));
}

#[test]
fn a_refused_daemon_is_told_why_and_closes() {
    let mut end = daemon();
    let refused = told(&mut end, r#"{"t":"hello_err","code":"host_mismatch"}"#, 1);
    assert_eq!(refused.events, [DaemonEvent::Refused { code: "host_mismatch".into() }]);
    assert!(refused.close.is_some());
    assert_eq!(told(&mut end, HELLO_OK, 1).events, [], "a closed end is deaf");
    let long = told(&mut daemon(), &format!(r#"{{"t":"hello_err","code":"{}"}}"#, "é".repeat(100_000)), 1);
    assert_eq!(long.events, [DaemonEvent::Refused { code: "é".repeat(64) }]);
    assert!(long.close.unwrap().reason.len() < 200, "nor is it what the log is told of the end");
}

#[test]
fn the_answer_to_hello_comes_first_and_within_two_heartbeats() {
    for text in [r#"{"t":"ping"}"#, r#"{"t":"deliver","id":"tx_1","agent":"jess","envelope":"e"}"#] {
        let drained = told(&mut daemon(), text, 1);
        assert_eq!((drained.events.len(), drained.close_code()), (0, Some(close::INVALID)), "{text}");
    }
    assert_eq!(told(&mut daemon(), r#"{"t":"later"}"#, 1).close, None, "an unknown t is ignored here too");
    let mut end = daemon();
    assert_eq!(drain(|| end.poll()).wake, Some(at(60)));
    assert_eq!(ticked(&mut end, 59).close, None);
    end.handle(Input::Sound, at(59));
    assert_eq!(ticked(&mut end, 60).close_code(), Some(close::SILENT));
}

#[test]
fn the_daemon_sends_a_pong_every_30_s_and_answers_no_ping() {
    let mut end = ready_daemon();
    let mut pongs = Vec::new();
    for now in 1..=300 {
        let drained = ticked(&mut end, now);
        if drained.writes == [r#"{"t":"pong"}"#] {
            pongs.push(now);
            assert_eq!(told(&mut end, r#"{"t":"ping"}"#, now).writes, [""; 0]);
        }
        assert_eq!(drained.close, None);
    }
    assert_eq!(pongs, (1..=10).map(|n| n * 30).collect::<Vec<u64>>());
}

#[test]
fn two_unanswered_heartbeats_end_the_connection_whatever_else_is_heard() {
    let mut end = ready_daemon();
    for now in 1..90 {
        end.handle(Input::Sound, at(now));
        assert_eq!(ticked(&mut end, now).close, None, "{now}");
    }
    assert_eq!(ticked(&mut end, 90).close_code(), Some(close::SILENT));
}

#[test]
fn silence_ends_the_connection_at_both_ends_and_any_sound_breaks_it() {
    let mut end = ready_daemon();
    assert_eq!(ticked(&mut end, 91).close_code(), Some(close::SILENT));
    let mut end = ready_worker();
    end.handle(Input::Sound, at(80));
    end.handle(Input::Tick, at(169));
    assert_eq!(drain(|| end.poll()).close, None);
    end.handle(Input::Tick, at(170));
    assert_eq!(drain(|| end.poll()).close_code(), Some(close::SILENT));
    let mut end = ready_worker();
    assert_eq!(heard(&mut end, r#"{"t":"pong"}"#, 500).close, None, "what comes late has come");
}

#[test]
fn what_is_no_frame_closes_with_its_code() {
    let long = format!("{{\"t\":\"later\",\"x\":\"{}\"}}", "x".repeat(limits::FRAME_BYTES));
    let cases: [(Input<'_>, u16, &str); 7] = [
        (Input::Text("{"), 4002, "invalid_json"),
        (Input::Text("[]"), 4002, "invalid_frame"),
        (Input::Text("{}"), 4002, "invalid_frame"),
        (Input::Text(r#"{"t":"rpc_result","rid":1}"#), 4002, "invalid_frame"),
        (Input::Binary, 1003, "text frames required"),
        (Input::TooLong, 1009, "frame_too_large"),
        (Input::Text(&long), 1009, "frame_too_large"),
    ];
    for (input, code, reason) in cases {
        let mut end = ready_daemon();
        end.handle(input, at(1));
        let close = drain(|| end.poll()).close.unwrap();
        assert_eq!(close.code, code, "{reason}");
        assert!(close.reason.starts_with(reason), "{}", close.reason);
    }
    for (input, code, reason) in cases {
        let mut end = ready_worker();
        let input = match input {
            Input::Text(text) if text.contains("rpc_result") => Input::Text(r#"{"t":"rpc","rid":1}"#),
            input => input,
        };
        end.handle(input, at(1));
        let close = drain(|| end.poll()).close.unwrap();
        assert_eq!(close.code, code, "{reason}");
        assert!(close.reason.starts_with(reason), "{}", close.reason);
    }
    assert_eq!(Malformed::TooLong.close_code(), close::TOO_LONG);
}

#[test]
fn the_worker_s_frames_become_events() {
    let mut end = ready_daemon();
    let drained = told(&mut end, r#"{"t":"deliver","id":"tx_1","agent":"jess","envelope":"e","more":1}"#, 1);
    let (id, agent, envelope) = ("tx_1".into(), "jess".into(), "e".into());
    assert_eq!(drained.events, [DaemonEvent::Deliver { id, agent, envelope }]);
    let drained = told(&mut end, r#"{"t":"send_ack","id":"tx_1"}"#, 1);
    assert_eq!(drained.events, [DaemonEvent::SendAck { id: "tx_1".into() }]);
    let drained = told(&mut end, r#"{"t":"send_nak","id":"tx_1","code":"plan_limit"}"#, 1);
    assert_eq!(drained.events, [DaemonEvent::SendNak { id: "tx_1".into(), code: NakCode::PlanLimit }]);
    assert_eq!(told(&mut end, HELLO_OK, 1).events, [], "once is enough");
}

#[test]
fn a_call_gets_one_answer() {
    let mut end = ready_daemon();
    for rid in ["r1", "r2", "r3", "r4"] {
        end.rpc(rid.into(), "list_rooms", json!({}), at(0));
    }
    let drained = told(&mut end, r#"{"t":"rpc_result","rid":"r1","result":[1]}"#, 1);
    assert_eq!(drained.events, [DaemonEvent::RpcResult { rid: "r1".into(), result: Ok(json!([1])) }]);
    assert_eq!(drained.wake, Some(at(10)));
    let text = r#"{"t":"rpc_result","rid":"r2","error":{"code":"not_found","message":"m"}}"#;
    let result = Err(RpcError::new("not_found", "m"));
    assert_eq!(told(&mut end, text, 1).events, [DaemonEvent::RpcResult { rid: "r2".into(), result }]);
    assert_eq!(told(&mut end, text, 1).events, [], "again, and never asked");

    end.rpc("r5".into(), "list_rooms", json!({}), at(5));
    let late = ticked(&mut end, 10).events;
    assert_eq!(rpc_codes(&late), [("r3", "rpc_error"), ("r4", "rpc_error")]);
    assert_eq!(told(&mut end, r#"{"t":"rpc_result","rid":"r3","result":1}"#, 11).events, []);
    end.close(close::GOING_AWAY, "bye");
    assert_eq!(rpc_codes(&drain(|| end.poll()).events), [("r5", "rpc_error")]);
}

fn rpc_codes(events: &[DaemonEvent]) -> Vec<(&str, &str)> {
    let code = |event| match event {
        &DaemonEvent::RpcResult { ref rid, result: Err(ref error) } => (rid.as_str(), error.code.as_str()),
        other => panic!("{other:?}"),
    };
    events.iter().map(code).collect()
}

#[test]
fn a_65th_call_and_one_given_up_while_it_waited_are_not_made() {
    let mut end = daemon();
    for n in 0..limits::RPC_OUTSTANDING {
        end.rpc(format!("r{n}"), "list_rooms", Value::Null, at(0));
    }
    end.rpc("more".into(), "list_rooms", Value::Null, at(1));
    assert_eq!(rpc_codes(&drain(|| end.poll()).events), [("more", "too_many")]);
    assert_eq!(ticked(&mut end, 10).events.len(), limits::RPC_OUTSTANDING);
    assert_eq!(told(&mut end, HELLO_OK, 11).writes, [""; 0]);
}

#[test]
fn the_daemon_writes_no_frame_over_the_limit() {
    let mut end = ready_daemon();
    let long = "x".repeat(limits::FRAME_BYTES);
    end.send(message("tx_1", &long));
    end.rpc("r1".into(), "list_rooms", json!(long), at(0));
    end.deliver_nak("dlv_1", "jess", &long, true);
    end.deliver_ack(&long, "jess");
    end.roster(vec![agent(&long), agent("short")]);
    let drained = drain(|| end.poll());
    assert_eq!(drained.events[0], DaemonEvent::SendNak { id: "tx_1".into(), code: NakCode::BodyTooLarge });
    assert_eq!(rpc_codes(&drained.events[1..]), [("r1", "bad_params")]);
    assert_eq!(kinds(&drained.writes), ["deliver_nak", "roster"]);
    assert!(drained.writes[1].contains("short"), "the list is whole, its texts are shorter");
    end.roster(vec![agent(&"y".repeat(300)); 10_000]);
    assert!(drain(|| end.poll()).writes[0].len() <= limits::FRAME_BYTES);
}

#[test]
fn the_daemon_keeps_to_a_pace_that_the_worker_allows_and_to_its_order() {
    let (mut end, mut hub) = (ready_daemon(), ready_worker());
    for n in 0..500 {
        end.deliver_ack(&format!("tx_{n}"), "jess");
    }
    let (mut now, mut ids) = (at(0), Vec::new());
    loop {
        let drained = drain(|| end.poll());
        for text in drained.writes {
            hub.handle(Input::Text(&text), now);
        }
        let heard = drain(|| hub.poll());
        assert_eq!(heard.close, None, "{now:?}");
        ids.extend(heard.events.into_iter().filter_map(|event| match event {
            WorkerEvent::DeliverAck { id, .. } => Some(id),
            _ => None,
        }));
        if end.backlog() == 0 {
            break;
        }
        now = drained.wake.unwrap_or(now);
        end.handle(Input::Tick, now);
    }
    assert_eq!(ids, (0..500).map(|n| format!("tx_{n}")).collect::<Vec<_>>());
    assert!(now > at(10) && now < at(12), "{now:?}");
}

#[test]
fn a_good_hello_is_answered_before_all_else() {
    let mut end = worker();
    end.deliver("tx_1", "jess", "e".into());
    assert_eq!(drain(|| end.poll()).writes, [""; 0]);
    let drained = heard(&mut end, HELLO, 1);
    assert_eq!(kinds(&drained.writes), ["hello_ok", "deliver"]);
    assert_eq!(drained.writes[0], HELLO_OK);
    assert_eq!(drained.events, [WorkerEvent::Hello { daemon_ver: "9".into() }]);
    let again = heard(&mut end, HELLO, 2);
    assert_eq!((again.writes, again.events), (vec![HELLO_OK.to_owned()], vec![]));
}

#[test]
fn a_bad_hello_is_refused_with_its_code() {
    let cases = [
        (r#"{"t":"hello","proto":1,"daemon_ver":"9","host":"rhea"}"#, "host_mismatch", 4003),
        (r#"{"t":"hello","proto":2,"daemon_ver":"9","host":"titan"}"#, "unsupported_proto", 4002),
        (r#"{"t":"hello","proto":2}"#, "unsupported_proto", 4002),
        (r#"{"t":"hello","proto":3,"daemon_ver":9,"host":"titan"}"#, "unsupported_proto", 4002),
        (r#"{"t":"roster"}"#, "hello_required", 4002),
        (r#"{"t":"pong"}"#, "hello_required", 4002),
    ];
    for (text, code, close) in cases {
        let drained = heard(&mut worker(), text, 1);
        assert_eq!(drained.writes, [format!(r#"{{"t":"hello_err","code":"{code}"}}"#)]);
        assert_eq!((drained.events, drained.close.unwrap().code), (vec![], close), "{text}");
    }
    assert_eq!(heard(&mut worker(), "{\"t\":\"later\"}", 1).close, None);
    for text in [r#"{"t":"hello","proto":"1"}"#, r#"{"t":"hello","proto":1}"#, r#"{"t":"hello"}"#] {
        let drained = heard(&mut worker(), text, 1);
        assert_eq!((drained.writes.len(), drained.close_code()), (0, Some(4002)), "{text}");
    }
}

#[test]
fn a_hello_comes_within_10_s() {
    let mut end = worker();
    assert_eq!(drain(|| end.poll()).wake, Some(at(10)));
    end.handle(Input::Tick, at(10));
    let drained = drain(|| end.poll());
    assert_eq!(kinds(&drained.writes), ["hello_err"]);
    assert_eq!(drained.close_code(), Some(4002));
}

#[test]
fn the_daemon_s_frames_become_events_and_a_pong_is_answered() {
    let mut end = ready_worker();
    let roster = heard(&mut end, r#"{"t":"roster","agents":null}"#, 1);
    assert_eq!(roster.events, [WorkerEvent::Roster(vec![])]);
    let text = DaemonFrame::Send(message("tx_1", "a")).encode();
    assert_eq!(heard(&mut end, &text, 1).events, [WorkerEvent::Send(message("tx_1", "a"))]);
    let ack = heard(&mut end, r#"{"t":"deliver_ack","id":"tx_1"}"#, 1);
    assert_eq!(ack.events, [WorkerEvent::DeliverAck { id: "tx_1".into(), agent: None, is_only_seen: false }]);
    let seen = heard(&mut end, r#"{"t":"deliver_ack","id":"tx_1","agent":"a","via":"screen"}"#, 1);
    let agent = Some("a".to_owned());
    assert_eq!(seen.events, [WorkerEvent::DeliverAck { id: "tx_1".into(), agent, is_only_seen: true }]);
    let text = r#"{"t":"deliver_nak","id":"tx_1","agent":"jess","code":"draft_busy","retryable":true}"#;
    let (id, agent, code) = ("tx_1".into(), Some("jess".into()), "draft_busy".into());
    assert_eq!(
        heard(&mut end, text, 1).events,
        [WorkerEvent::DeliverNak { id, agent, code, retryable: true }]
    );
    assert_eq!(heard(&mut end, r#"{"t":"pong"}"#, 1).writes, [r#"{"t":"ping"}"#]);
}

#[test]
fn more_than_the_burst_at_once_closes_unknown_frames_too() {
    let mut end = worker();
    heard(&mut end, HELLO, 0);
    for n in 1..limits::FRAME_BURST {
        assert_eq!(heard(&mut end, r#"{"t":"later"}"#, 0).close, None, "{n}");
    }
    let close = heard(&mut end, "not even json", 0).close.unwrap();
    assert_eq!((close.code, close.reason.as_str()), (4008, "rate_limited"));

    let mut end = ready_worker();
    for second in 1..100 {
        for _ in 0..limits::FRAME_RATE {
            assert_eq!(heard(&mut end, r#"{"t":"later"}"#, second).close, None);
        }
    }
}

#[test]
fn the_worker_holds_no_endless_name_of_a_call() {
    let call = |bytes| DaemonFrame::Rpc { rid: "r".repeat(bytes), method: "m".into(), params: json!({}) };
    assert_eq!(heard(&mut ready_worker(), &call(limits::RID_BYTES).encode(), 0).events.len(), 1);
    let ended = heard(&mut ready_worker(), &call(limits::RID_BYTES + 1).encode(), 0);
    assert_eq!((ended.events.len(), ended.close_code()), (0, Some(close::INVALID)));
}

#[test]
fn the_worker_answers_calls_at_most_64_at_a_time_and_within_10_s() {
    let mut end = ready_worker();
    let call = |n: usize| DaemonFrame::Rpc { rid: format!("r{n}"), method: "m".into(), params: json!({}) };
    for n in 0..limits::RPC_OUTSTANDING {
        assert_eq!(heard(&mut end, &call(n).encode(), 0).events.len(), 1);
    }
    assert_eq!(heard(&mut end, &call(0).encode(), 0).events, [], "it is being answered");
    let refused = heard(&mut end, &call(64).encode(), 0);
    assert_eq!(refused.events, []);
    assert!(refused.writes[0].contains("too_many"), "{}", refused.writes[0]);

    end.rpc_result("r0", Ok(json!(1)));
    end.rpc_result("r1", Err(RpcError::new("not_found", "m")));
    end.rpc_result("r0", Ok(json!(2)));
    let answers = drain(|| end.poll()).writes;
    assert_eq!(
        answers,
        [
            r#"{"t":"rpc_result","rid":"r0","result":1}"#,
            r#"{"t":"rpc_result","rid":"r1","error":{"code":"not_found","message":"m"}}"#
        ]
    );
    assert_eq!(heard(&mut end, &call(64).encode(), 1).events.len(), 1);
    end.handle(Input::Tick, at(10));
    assert_eq!(drain(|| end.poll()).writes.len(), limits::RPC_OUTSTANDING - 2);
}

#[test]
fn the_worker_writes_no_frame_over_the_limit() {
    let mut end = ready_worker();
    let long = "x".repeat(limits::FRAME_BYTES);
    end.deliver("tx_1", "jess", long.clone());
    let (id, agent, code) = ("tx_1".into(), Some("jess".into()), "frame_too_large".into());
    let drained = drain(|| end.poll());
    assert_eq!(drained.events, [WorkerEvent::DeliverNak { id, agent, code, retryable: false }]);
    heard(&mut end, r#"{"t":"rpc","rid":"r1","method":"m","params":{}}"#, 1);
    end.rpc_result("r1", Ok(json!(long)));
    let answer = drain(|| end.poll()).writes.concat();
    assert!(answer.contains("rpc_error") && answer.len() < 200, "{answer}");
}

#[test]
fn a_close_of_the_owner_is_the_last_word() {
    let mut end = ready_worker();
    end.send_ack("tx_1");
    end.close(close::REPLACED, "replaced by a new daemon connection");
    end.send_nak("tx_2", NakCode::NoRoute);
    let drained = drain(|| end.poll());
    assert_eq!(drained.writes, [r#"{"t":"send_ack","id":"tx_1"}"#]);
    assert_eq!(drained.close_code(), Some(4000));
    assert!(!end.is_ready());
}

#[test]
fn after_its_end_a_worker_hears_answers_to_deliveries_and_nothing_else() {
    let mut end = ready_worker();
    end.close(close::GOING_AWAY, "");
    let ack = r#"{"t":"deliver_ack","id":"tx_1","agent":"bob"}"#;
    let (id, agent) = ("tx_1".to_owned(), Some("bob".to_owned()));
    let heard = WorkerEvent::DeliverAck { id, agent, is_only_seen: false };
    assert_eq!(end.late(ack, at(1)), Some(heard));
    assert_eq!(end.late(r#"{"t":"roster"}"#, at(1)), None);
    assert_eq!(end.late("no json", at(1)), None);
    let flood = (0..1_000).filter(|_| end.late(ack, at(1)).is_some()).count();
    assert!(flood < 100, "{flood}: the rate is the connection's");
    assert_eq!(worker().late(ack, at(1)), None, "who has not said hello answers nothing");
}
