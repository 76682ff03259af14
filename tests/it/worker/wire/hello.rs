//! The first frame, what is no frame, the roster, and the heartbeat.

use serde_json::{Value, json};
use tungstenite::Message;

use super::super::{Daemon, Worker};
use super::{Peer, two_hosts};
use transit::limits::{FRAME_BURST, FRAME_BYTES};

/// What a fresh connection hears of its first frames: the answers' codes, and how it is closed.
fn first(worker: &Worker, token: &str, frames: &[&str]) -> (Vec<String>, u16, String) {
    let daemon = Daemon::connect(worker.at, token).unwrap();
    let mut peer = Peer { daemon, host: "titan".into(), waiting: Default::default() };
    for frame in frames {
        peer.daemon.socket.send(Message::text(*frame)).unwrap();
    }
    let (code, reason) = peer.closed();
    let told = peer.waiting.iter().map(|frame| frame["code"].as_str().unwrap_or("none").to_owned());
    (told.collect(), code, reason)
}

#[test]
fn a_first_frame_that_is_no_good_hello_is_told_so_and_closed() {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    let told = |word: &str| vec![word.to_owned()];
    for known in [
        r#"{"t":"roster","agents":[]}"#,
        r#"{"t":"send","id":"tx_000000000001","from":"a@titan","to":"b@titan","body":"x","ts":"now"}"#,
        r#"{"t":"deliver_ack","id":"tx_000000000001"}"#,
        r#"{"t":"deliver_nak","id":"tx_000000000001","code":"x","retryable":true}"#,
        r#"{"t":"rpc","rid":"1","method":"list_rooms","params":{}}"#,
        r#"{"t":"pong"}"#,
    ] {
        // What is not known yet is passed over, also before the hello.
        let (words, code, _) = first(&worker, &token, &[r#"{"t":"greeting"}"#, known]);
        assert_eq!((words, code), (told("hello_required"), 4002), "{known}");
    }
    let (words, code, reason) =
        first(&worker, &token, &[r#"{"t":"hello","proto":1,"daemon_ver":"1","host":"Titan"}"#]);
    assert_eq!((words, code, reason.as_str()), (told("host_mismatch"), 4003, "host mismatch"));
    for proto in ["0", "2", "18446744073709551615"] {
        let hello = format!(r#"{{"t":"hello","proto":{proto},"daemon_ver":"1","host":"titan"}}"#);
        let bare = format!(r#"{{"t":"hello","proto":{proto}}}"#);
        for hello in [&hello, &bare] {
            let (words, code, _) = first(&worker, &token, &[hello]);
            assert_eq!((words, code), (told("unsupported_proto"), 4002), "{hello}");
        }
    }
    for malformed in [
        r#"{"t":"hello","daemon_ver":"1","host":"titan"}"#,
        r#"{"t":"hello","proto":"1","daemon_ver":"1","host":"titan"}"#,
        r#"{"t":"hello","proto":1,"daemon_ver":1,"host":"titan"}"#,
        r#"{"t":"hello","proto":1,"daemon_ver":"1","host":null}"#,
        r#"{"t":"hello","proto":-1,"daemon_ver":"1","host":"titan"}"#,
        r#"{"t":"hello","proto":1.5,"daemon_ver":"1","host":"titan"}"#,
    ] {
        let (words, code, reason) = first(&worker, &token, &[malformed]);
        assert_eq!((words.len(), code), (0, 4002), "{malformed}");
        assert!(reason.starts_with("invalid_frame"), "{malformed}: {reason}");
    }
}

#[test]
fn a_connection_without_a_hello_is_closed_after_a_while() {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    let (words, code, _) = first(&worker, &token, &[]);
    assert_eq!((words, code), (vec!["hello_required".to_owned()], 4002));
}

#[test]
fn a_good_hello_names_host_and_organisation_and_may_be_said_again() {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    let mut daemon = Daemon::connect(worker.at, &token).unwrap();
    let hello = json!({ "t": "hello", "proto": 1, "daemon_ver": "", "host": "titan", "features": ["x"], "since": null });
    daemon.say(&hello);
    let answer = daemon.next();
    assert!(answer["host_id"].as_str().unwrap().starts_with("hst_"), "{answer}");
    assert_eq!((&answer["t"], &answer["org"]), (&json!("hello_ok"), &json!("default")));
    daemon.say(&hello);
    assert_eq!(daemon.next(), answer, "the socket is not replaced by itself");
    daemon.say(&json!({ "t": "pong", "at": 1 }));
    assert_eq!(daemon.next(), json!({ "t": "ping" }));
}

#[test]
fn a_known_frame_that_is_malformed_closes_and_says_why() {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    let agent =
        json!({ "name": "jess", "kind": "k", "pane_id": "p", "status": "idle", "cwd": "/", "title": "" });
    let mut without_title = agent.clone();
    without_title.as_object_mut().unwrap().remove("title");
    let mut numbered = agent.clone();
    numbered["pane_id"] = 7.into();
    let send = json!({ "t": "send", "id": "tx_000000000001", "from": "a@titan", "to": "b@titan", "body": "x",
                       "ts": "2026-01-01T00:00:00Z" });
    let but = |frame: &Value, field: &str, value: Option<Value>| {
        let mut frame = frame.clone();
        match value {
            Some(value) => frame[field] = value,
            None => drop(frame.as_object_mut().unwrap().remove(field)),
        }
        frame
    };
    let nak = json!({ "t": "deliver_nak", "id": "x", "code": "c", "retryable": true });
    let rpc = json!({ "t": "rpc", "rid": "1", "method": "list_rooms", "params": {} });
    let frames = [
        json!({ "t": "roster", "agents": "none" }),
        json!({ "t": "roster", "agents": {} }),
        json!({ "t": "roster", "agents": [without_title] }),
        json!({ "t": "roster", "agents": [numbered] }),
        json!({ "t": "roster", "agents": ["jess"] }),
        but(&send, "id", None),
        but(&send, "body", Some(Value::Null)),
        but(&send, "to", Some(json!(["b@titan"]))),
        but(&send, "ts", Some(json!(1))),
        but(&send, "reply_to", Some(json!(1))),
        json!({ "t": "deliver_ack" }),
        json!({ "t": "deliver_ack", "id": "x", "agent": 1 }),
        but(&nak, "retryable", None),
        but(&nak, "retryable", Some(json!("true"))),
        but(&nak, "code", None),
        but(&rpc, "rid", Some(json!(1))),
        but(&rpc, "method", None),
        json!([]),
        json!("pong"),
        json!({}),
        json!({ "t": 1 }),
        json!({ "t": null }),
    ];
    for frame in frames {
        let mut peer = Peer::greeted(&worker, "titan", &token);
        peer.say(&frame);
        let (code, reason) = peer.closed();
        assert_eq!(code, 4002, "{frame}");
        assert!(reason.starts_with("invalid_frame"), "{frame}: {reason}");
        assert!(reason.len() <= 123, "{reason}");
    }
    for text in ["", "{", "{\"t\":\"pong\"}{}", "{\"t\":\"pong\"} x", "\u{feff}{\"t\":\"pong\"}", "NaN"] {
        let mut peer = Peer::greeted(&worker, "titan", &token);
        peer.daemon.socket.send(Message::text(text)).unwrap();
        let (code, reason) = peer.closed();
        assert_eq!((code, reason.starts_with("invalid_json")), (4002, true), "{text}: {reason}");
    }
}

#[test]
fn a_roster_is_taken_leniently_and_replaces_the_one_before() {
    let (_worker, mut alpha, mut beta, _) = two_hosts();
    let agent = |name: &str, named_by: Value| {
        json!({ "name": name, "kind": "some-thing", "pane_id": "", "status": "dancing", "cwd": "", "title": "",
                "named_by": named_by, "later": { "x": [] } })
    };
    let mut listed = |alpha: &mut Peer| -> Vec<(String, String)> {
        alpha.settled("amy");
        beta.settled("bob");
        let all = beta.call("bob", "list_agents", json!({ "host": "alpha" })).unwrap();
        let word = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
        all.as_array().unwrap().iter().map(|row| (word(row, "name"), word(row, "named_by"))).collect()
    };
    let pair = |name: &str, by: &str| (name.to_owned(), by.to_owned());
    let twice = agent("amy", "auto".into());
    let agents = [
        agent("amy", "user".into()),
        twice,
        agent("ann", "robot".into()),
        agent("art", Value::Null),
        agent("ash", 7.into()),
        agent("Upper", "user".into()),
        agent("transit", "user".into()),
        agent("operator", "user".into()),
        agent("", "user".into()),
        agent("with space", "user".into()),
        agent(&"x".repeat(33), "user".into()),
    ];
    alpha.say(&json!({ "t": "roster", "agents": agents, "dead": 3 }));
    let found = listed(&mut alpha);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["amy", "ann", "art", "ash"]);
    assert_eq!(found[1..], [pair("ann", "user"), pair("art", "user"), pair("ash", "user")]);
    alpha.say(&json!({ "t": "roster", "agents": null }));
    assert_eq!(listed(&mut alpha), []);
    alpha.daemon.roster(&["amy"]);
    assert_eq!(listed(&mut alpha), [pair("amy", "user")]);
    alpha.say(&json!({ "t": "roster" }));
    assert_eq!(listed(&mut alpha), []);
}

#[test]
fn as_many_frames_as_the_burst_are_answered() {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    let mut peer = Peer::greeted(&worker, "titan", &token);
    for _ in 1..FRAME_BURST {
        peer.say(&json!({ "t": "pong" }));
    }
    for _ in 1..FRAME_BURST {
        peer.next("ping");
    }
}

#[test]
fn a_frame_of_exactly_the_limit_is_taken_and_its_bytes_are_counted() {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    let mut peer = Peer::greeted(&worker, "titan", &token);
    let frame = |bytes: usize| {
        let bare = r#"{"t":"later","x":""}"#;
        let odd = "x".repeat((bytes - bare.len()) % 2);
        bare.replace(r#""""#, &format!("\"{}{odd}\"", "é".repeat((bytes - bare.len()) / 2)))
    };
    assert_eq!(frame(FRAME_BYTES).len(), FRAME_BYTES);
    peer.daemon.socket.send(Message::text(frame(FRAME_BYTES))).unwrap();
    peer.say(&json!({ "t": "pong" }));
    peer.next("ping");
    peer.daemon.socket.send(Message::text(frame(FRAME_BYTES + 1))).unwrap();
    assert_eq!(peer.closed(), (1009, "frame_too_large".to_owned()));
}
