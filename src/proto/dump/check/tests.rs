use super::*;
use crate::proto::dump::Reader;
use crate::proto::dump::record::{Note, Record};

/// What is found in lines: the number of each line, and the rule.
fn found(lines: &[String]) -> Vec<(usize, &'static str)> {
    let (mut checker, mut reader) = (Checker::new(), Reader::new());
    let mut all = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let findings = checker.check(&reader.read(line.trim_end()).unwrap());
        all.extend(findings.map(|finding| (n, finding.rule)));
    }
    all
}

fn wire(way: Way, frame: &str) -> String {
    Record { at: Wall(0), proto: Proto::Wire, way, conn: None }.frame(frame)
}

fn forth(frame: &str) -> String {
    wire(Way::Forth, frame)
}

fn back(frame: &str) -> String {
    wire(Way::Back, frame)
}

const HELLO: &str = r#"{"t":"hello","proto":1,"daemon_ver":"1","host":"titan"}"#;
const HELLO_OK: &str = r#"{"t":"hello_ok","host_id":"hst_1","org":"default"}"#;
const SEND: &str = r#"{"t":"send","id":"tx_1","from":"a@titan","to":"b@rhea","body":"x","ts":"t"}"#;
const DELIVER: &str = r#"{"t":"deliver","id":"tx_1","agent":"a","envelope":"e"}"#;
const ACK: &str = r#"{"t":"deliver_ack","id":"tx_1","agent":"a"}"#;
const NAK: &str = r#"{"t":"deliver_nak","id":"tx_1","agent":"a","code":"c","retryable":true}"#;
const OLD_ACK: &str = r#"{"t":"deliver_ack","id":"tx_1"}"#;
const RPC: &str = r#"{"t":"rpc","rid":"1","method":"m","params":{}}"#;
const RESULT: &str = r#"{"t":"rpc_result","rid":"1","result":null}"#;

/// What is found in these lines after a good hello.
fn after_hello(lines: &[String]) -> Vec<(usize, &'static str)> {
    let all = [&[forth(HELLO), back(HELLO_OK)], lines].concat();
    found(&all).into_iter().map(|(n, rule)| (n - 2, rule)).collect()
}

#[test]
fn a_good_conversation_is_clean() {
    let good = [
        forth(r#"{"t":"roster","agents":[]}"#),
        forth(SEND),
        back(r#"{"t":"send_nak","id":"tx_1","code":"rate_limited"}"#),
        forth(SEND),
        back(r#"{"t":"send_ack","id":"tx_1"}"#),
        back(DELIVER),
        forth(NAK),
        back(DELIVER),
        forth(ACK),
        forth(RPC),
        back(RESULT),
        forth(RPC),
        forth(r#"{"t":"pong"}"#),
        back(r#"{"t":"ping"}"#),
        forth(HELLO),
        back(HELLO_OK),
        forth(ACK),
        forth(RPC),
    ];
    assert_eq!(after_hello(&good), []);
}

#[test]
fn each_frame_is_held_against_its_protocol() {
    let too_long = format!(r#"{{"t":"send_ack","id":"{}"}}"#, "x".repeat(crate::limits::FRAME_BYTES));
    for (line, rule) in [
        (forth(r#"{"t":"send","id":"tx_1"}"#), "invalid_frame"),
        (forth(r#"{"t":"roster","agents":"alice"}"#), "invalid_frame"),
        (back(r#"{"t":"send_nak","id":"x","code":"future"}"#), "invalid_frame"),
        (forth(r#"{"t":7}"#), "invalid_frame"),
        (forth(r#"{"id":"x"}"#), "invalid_frame"),
        (forth("[1]"), "invalid_frame"),
        (forth("{no json"), "invalid_json"),
        (back(&too_long), "frame_too_large"),
        (forth(DELIVER), "wrong_direction"),
        (back(ACK), "wrong_direction"),
        (forth(r#"{"t":"future"}"#), "unknown_t"),
        (forth(&HELLO.replace("1,", "2,")), "unsupported_proto"),
    ] {
        assert_eq!(after_hello(std::slice::from_ref(&line)), [(0, rule)], "{line}");
    }
}

#[test]
fn each_frame_has_its_place_among_the_others() {
    assert_eq!(after_hello(&[forth(ACK)]), [(0, "ack_without_deliver")]);
    assert_eq!(after_hello(&[forth(NAK)]), [(0, "nak_without_deliver")]);
    assert_eq!(after_hello(&[back(DELIVER), forth(ACK), forth(ACK)]), [(2, "duplicate_ack")]);
    assert_eq!(after_hello(&[back(DELIVER), forth(NAK), forth(ACK)]), [], "a late ack still settles");
    assert_eq!(after_hello(&[back(DELIVER), forth(OLD_ACK), forth(OLD_ACK)]), [(2, "duplicate_ack")]);
    assert_eq!(after_hello(&[back(DELIVER), forth(ACK), forth(OLD_ACK)]), [(2, "duplicate_ack")]);
    assert_eq!(after_hello(&[back(DELIVER), forth(OLD_ACK), forth(ACK)]), [(2, "duplicate_ack")]);
    assert_eq!(
        after_hello(&[back(DELIVER), forth(NAK), forth(OLD_ACK), forth(OLD_ACK)]),
        [(3, "duplicate_ack")]
    );
    let other = back(&DELIVER.replace("\"a\"", "\"b\""));
    assert_eq!(after_hello(&[back(DELIVER), other.clone(), forth(OLD_ACK), forth(ACK)]), []);
    assert_eq!(after_hello(&[back(DELIVER), other, forth(ACK), forth(OLD_ACK)]), []);
    assert_eq!(after_hello(&[back(DELIVER), forth(OLD_ACK), back(DELIVER), forth(ACK)]), []);
    assert_eq!(after_hello(&[back(DELIVER), back(DELIVER), forth(ACK), forth(ACK)]), []);
    assert_eq!(after_hello(&[back(r#"{"t":"send_ack","id":"tx_9"}"#)]), [(0, "answer_without_send")]);
    let sent =
        [forth(SEND), back(r#"{"t":"send_ack","id":"tx_1"}"#), back(r#"{"t":"send_ack","id":"tx_1"}"#)];
    assert_eq!(after_hello(&sent), [(2, "duplicate_ack")]);
    assert_eq!(after_hello(&[back(RESULT)]), [(0, "unknown_rid")]);
    assert_eq!(after_hello(&[forth(RPC), back(RESULT), back(RESULT)]), [(2, "unknown_rid")]);
    assert_eq!(after_hello(&[forth(RPC), forth(RPC)]), [(1, "rid_in_use")]);
    let cut = [forth(RPC), forth(HELLO), back(HELLO_OK), back(RESULT)];
    assert_eq!(after_hello(&cut), [(3, "unknown_rid")], "calls end with their connection");
    assert_eq!(after_hello(&[back(r#"{"t":"ping"}"#)]), [(0, "ping_without_pong")]);
}

#[test]
fn the_hello_comes_first_and_that_it_did_not_is_told_once() {
    assert_eq!(found(&[forth(SEND), forth(SEND)]), [(0, "hello_required")]);
    assert_eq!(found(&[back(DELIVER), forth(ACK)]), [(0, "hello_required")]);
    assert_eq!(found(&[forth(HELLO), back(DELIVER)]), [(1, "hello_required")]);
    assert_eq!(found(&[back(HELLO_OK)]), [(0, "hello_required")]);
    let refused = [forth(HELLO), back(r#"{"t":"hello_err","code":"host_mismatch"}"#), forth(SEND)];
    assert_eq!(found(&refused), [(2, "hello_required")]);
}

#[test]
fn a_dump_may_begin_in_the_middle_of_a_connection() {
    let level = |lines: &[String]| {
        let (mut checker, mut reader) = (Checker::new(), Reader::new());
        let mut levels = Vec::new();
        for line in lines {
            let findings = checker.check(&reader.read(line.trim_end()).unwrap());
            levels.extend(findings.map(|finding| (finding.rule, finding.level)));
        }
        levels
    };
    let open = Record { at: Wall(0), proto: Proto::Wire, way: Way::Forth, conn: None }
        .note(&Note::Open { path: "/api/daemon/ws" });
    assert_eq!(level(&[back(DELIVER), forth(ACK)]), [("hello_required", Level::Info)]);
    assert_eq!(
        level(&[back(DELIVER), forth(ACK), forth(ACK)]),
        [("hello_required", Level::Info), ("duplicate_ack", Level::Fault)]
    );
    assert_eq!(level(&[open.clone(), back(DELIVER), forth(ACK)]), [("hello_required", Level::Fault)]);
    assert_eq!(level(&[forth(HELLO), back(DELIVER)]), [("hello_required", Level::Fault)]);
    assert_eq!(
        level(&[back(DELIVER), open, forth(HELLO), back(HELLO_OK)]),
        [("hello_required", Level::Info)]
    );
    assert_eq!(
        level(&[agent(Way::Forth, 1, r#"{"t":"pong","capability":"c"}"#)]),
        [("register_required", Level::Info)]
    );
}

fn agent(way: Way, conn: u64, frame: &str) -> String {
    Record { at: Wall(0), proto: Proto::Agent, way, conn: Some(conn) }.frame(frame)
}

#[test]
fn an_adapter_is_checked_on_each_connection_of_its_own() {
    let register = |proto| {
        format!(
            r#"{{"t":"register","proto":{proto},"harness":"omp","session_id":"s","pid":1,"cwd":"/","title":"","status":"idle"}}"#
        )
    };
    let registered = r#"{"t":"registered","agent":"a","address":"a@t","generation":1,"capability":"c"}"#;
    let deliver = r#"{"t":"deliver","id":"tx_1","envelope":"e"}"#;
    let ack =
        |persisted| format!(r#"{{"t":"deliver_ack","id":"tx_1","persisted":{persisted},"capability":"c"}}"#);
    let good = [
        agent(Way::Forth, 1, &register(1)),
        agent(Way::Forth, 2, &register(1)),
        agent(Way::Back, 1, registered),
        agent(Way::Back, 2, registered),
        agent(Way::Back, 1, deliver),
        agent(Way::Forth, 1, &ack(true)),
    ];
    assert_eq!(found(&good), []);
    let with = |line: String| found(&[&good[..], &[line]].concat());
    assert_eq!(with(agent(Way::Forth, 1, &ack(true))), [(6, "duplicate_ack")]);
    assert_eq!(with(agent(Way::Forth, 2, &ack(false))), [(6, "not_persisted")]);
    assert_eq!(with(agent(Way::Forth, 1, &register(1))), [(6, "registered_twice")]);
    assert_eq!(with(agent(Way::Back, 3, deliver)), [(6, "register_required")]);
    assert_eq!(with(agent(Way::Forth, 3, &register(2))), [(6, "unsupported_proto")]);
    assert_eq!(with(agent(Way::Back, 1, r#"{"t":"status","status":"x"}"#)), [(6, "wrong_direction")]);
    assert_eq!(with(agent(Way::Forth, 1, r#"{"t":"pong"}"#)), [(6, "invalid_frame")], "no capability");
}

#[test]
fn a_record_says_when_what_and_whither() {
    let frame = r#"{"t":"future"}"#;
    for (record, rules) in [
        (
            format!(r#"{{"proto":"transit-wire/1","dir":"daemon>worker","frame":{frame}}}"#),
            &["bad_record", "unknown_t"][..],
        ),
        (
            format!(r#"{{"at":"soon","proto":"transit-wire/1","dir":"daemon>worker","frame":{frame}}}"#),
            &["bad_record", "unknown_t"],
        ),
        (
            format!(r#"{{"at":"2026-01-01T00:00:00Z","proto":"transit-wire/1","dir":"up","frame":{frame}}}"#),
            &["bad_record"],
        ),
        (
            format!(r#"{{"at":"2026-01-01T00:00:00Z","proto":"other/1","dir":"up","frame":{frame}}}"#),
            &["unknown_proto"],
        ),
        (frame.to_owned(), &["unknown_t"]),
        (r#"{"x":1}"#.to_owned(), &["invalid_frame"]),
    ] {
        let all = found(std::slice::from_ref(&record));
        assert_eq!(all.iter().map(|(_, rule)| *rule).collect::<Vec<_>>(), rules, "{record}");
    }
}

#[test]
fn a_bare_frame_belongs_to_the_protocol_that_is_spoken() {
    let bare = |frames: &[&str]| found(&frames.iter().map(|frame| (*frame).to_owned()).collect::<Vec<_>>());
    let deliver = r#"{"t":"deliver","id":"tx_1","envelope":"e"}"#;
    assert_eq!(bare(&[HELLO, HELLO_OK, DELIVER, ACK]), []);
    assert_eq!(bare(&[HELLO, HELLO_OK, deliver]), [(2, "invalid_frame")], "on the wire it has an agent");
    assert_eq!(bare(&[deliver]), [(0, "register_required")]);
    assert_eq!(bare(&[r#"{"op":"status"}"#, r#"{"ok":true}"#]), []);
    assert_eq!(bare(&[r#"{"op":"launch"}"#]), [(0, "bad_request")]);
    assert_eq!(bare(&[r#"{"ok":"yes"}"#]), [(0, "bad_answer"), (0, "answer_without_call")]);
    assert_eq!(bare(&[r#"{"id":1,"method":"status.get"}"#, r#"{"id":"1","result":{}}"#]), []);
    assert_eq!(bare(&[r#"{"id":1,"method":2}"#]), [(0, "invalid_frame")]);
}

#[test]
fn notes_tell_what_was_no_frame() {
    let note =
        |note: &Note<'_>| Record { at: Wall(0), proto: Proto::Wire, way: Way::Back, conn: None }.note(note);
    for (line, rules) in [
        (note(&Note::Binary { bytes: 3 }), &["not_text"][..]),
        (note(&Note::NotUtf8), &["not_text"]),
        (note(&Note::TooLong { bytes: 3 }), &["frame_too_large"]),
        (note(&Note::Lost { records: 3 }), &["lost"]),
        (note(&Note::Close { code: Some(4000), reason: "replaced" }), &[]),
        (note(&Note::Ping { bytes: 0 }), &[]),
    ] {
        let all = after_hello(std::slice::from_ref(&line));
        assert_eq!(all.iter().map(|(_, rule)| *rule).collect::<Vec<_>>(), rules, "{line}");
    }
    assert_eq!(after_hello(&[note(&Note::Lost { records: 1 }), forth(ACK)]), [(0, "lost")]);
}

#[test]
fn connections_are_bounded() {
    let mut checker = Checker::new();
    let mut reader = Reader::new();
    for conn in 0..3 * CONNECTIONS as u64 {
        let line = agent(Way::Back, conn, r#"{"t":"ping"}"#);
        checker.check(&reader.read(line.trim_end()).unwrap()).for_each(drop);
    }
    assert!(checker.connections.len() <= CONNECTIONS);
}
