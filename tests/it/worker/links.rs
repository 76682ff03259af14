//! Who may be connected, and how a connection ends.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::json;
use tungstenite::Message;

use super::{Daemon, Worker, event};
use crate::support::{LONG, eventually, http, request, resident_bytes};
use transit::net::service::raise_descriptor_limit;
use transit::store::ledger::{Db, Tx};

#[test]
fn only_a_token_opens_a_socket_and_a_code_is_good_once() {
    let worker = Worker::start();
    assert_eq!(Daemon::connect(worker.at, "wrong").err(), Some(401));
    let code = worker.admin(&["host", "enroll", "titan"])["code"].clone();
    let redeem = |code: &str, ver: &str| {
        worker.post("/api/daemon/enroll", &json!({ "code": code, "daemon_ver": ver })).status()
    };
    assert_eq!(redeem("AAAA-AAAA", "1"), 401);
    assert_eq!(redeem(code.as_str().unwrap(), ""), 401);
    assert_eq!(redeem(&code.as_str().unwrap().to_lowercase(), "1"), 200);
    assert_eq!(redeem(code.as_str().unwrap(), "1"), 401);
    let plain = http(worker.at, &request("GET", "/api/daemon/ws", &[("Authorization", "Bearer x")], b""));
    assert_eq!((plain.status(), plain.field("upgrade")), (426, Some("websocket")));
}

#[test]
fn a_hello_that_is_none_closes_with_its_code() {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    let hello = |proto: u32, host: &str| {
        json!({ "t": "hello", "proto": proto, "daemon_ver": "1", "host": host }).to_string()
    };
    let try_first = |message: Message| {
        let mut daemon = Daemon::connect(worker.at, &token).unwrap();
        daemon.socket.send(message).unwrap();
        let (frames, code) = daemon.closed();
        (frames.first().map(|frame| frame["code"].as_str().unwrap_or_default().to_owned()), code)
    };
    let told = |word: &str| Some(word.to_owned());
    assert_eq!(try_first(Message::text(hello(1, "other"))), (told("host_mismatch"), 4003));
    assert_eq!(try_first(Message::text(hello(2, "titan"))), (told("unsupported_proto"), 4002));
    assert_eq!(try_first(Message::text("{\"t\":\"pong\"}")), (told("hello_required"), 4002));
    assert_eq!(try_first(Message::text("{\"t\":\"hello\"}")), (None, 4002));
    assert_eq!(try_first(Message::text("no json")), (None, 4002));
    assert_eq!(try_first(Message::binary(vec![1])), (None, 1003));
    assert_eq!(try_first(Message::text("x".repeat(1_048_577))), (None, 1009));
    assert_eq!(try_first(Message::text("x".repeat(3 << 20))), (None, 1009));
}

/// A frame of a client as it is on the wire, masked with zeros.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len();
    let head = match u8::try_from(length) {
        Ok(short @ ..126) => vec![first, 0x80 | short],
        _ => [&[first, 0x80 | 126][..], &u16::try_from(length).unwrap().to_be_bytes()].concat(),
    };
    [&head, &[0; 4][..], payload].concat()
}

#[test]
fn bytes_that_are_no_frame_close_with_the_code_that_says_so() {
    const TEXT: u8 = 0x81;
    let cases: [(&str, Vec<u8>, u16); 13] = [
        ("not masked", b"\x81\x02{}".to_vec(), 1002),
        ("reserved bit", masked(TEXT | 0x40, b"{}"), 1002),
        ("unknown data", masked(0x83, b"{}"), 1002),
        ("unknown control", masked(0x8b, b"{}"), 1002),
        ("oversize control", masked(0x89, &[b'x'; 126]), 1002),
        ("fragmented control", masked(0x09, b"x"), 1002),
        ("nothing to continue", masked(0x80, b"{}"), 1002),
        ("not continued", [masked(0x01, b"{"), masked(TEXT, b"}")].concat(), 1002),
        ("half a close code", masked(0x88, b"x"), 1002),
        ("a close code that is none", masked(0x88, &999_u16.to_be_bytes()), 1002),
        ("not UTF-8", masked(TEXT, b"\"\xff\""), 1007),
        ("not UTF-8 in fragments", [masked(0x01, b"\xf0\x9f"), masked(0x80, b"x")].concat(), 1007),
        ("not text", masked(0x82, b"{}"), 1003),
    ];
    let worker = Worker::start();
    let token = worker.enrol("titan");
    for (what, bytes, wanted) in cases {
        let mut daemon = Daemon::connect(worker.at, &token).unwrap();
        daemon.hello("titan");
        let stream = daemon.socket.get_mut();
        // What comes behind it makes closing at once a reset, which would destroy the close frame.
        stream.write_all(&[bytes, vec![b'x'; 100_000]].concat()).unwrap();
        assert_eq!(daemon.closed().1, wanted, "{what}");
    }
}

#[test]
fn a_pong_is_answered_with_a_ping_and_a_ping_of_the_socket_with_its_pong() {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    let mut daemon = worker.daemon("titan", &token, &[]);
    daemon.say(&json!({ "t": "pong" }));
    assert_eq!(daemon.next(), json!({ "t": "ping" }));
    daemon.say(&json!({ "t": "of a later version" }));
    daemon.socket.send(Message::Ping(vec![7].into())).unwrap();
    assert_eq!(daemon.socket.read().unwrap(), Message::Pong(vec![7].into()));
}

#[test]
fn a_newer_hello_replaces_the_older_socket_and_an_upgrade_alone_does_not() {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    let mut older = worker.daemon("titan", &token, &["jess"]);
    let mut newer = Daemon::connect(worker.at, &token).unwrap();
    older.say(&json!({ "t": "pong" }));
    assert_eq!(older.next()["t"], "ping");
    newer.hello("titan");
    assert_eq!(older.closed().1, 4000);
    newer.say(&json!({ "t": "pong" }));
    assert_eq!(newer.next()["t"], "ping");
}

#[test]
fn a_revoked_host_is_cut_off_and_does_not_come_back() {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    let mut daemon = worker.daemon("titan", &token, &[]);
    worker.admin(&["host", "revoke", "titan"]);
    assert_eq!(daemon.closed().1, 4001);
    assert_eq!(Daemon::connect(worker.at, &token).err(), Some(401));
    let again = worker.enrol("titan");
    assert_ne!(again, token);
    worker.daemon("titan", &again, &[]);
}

#[test]
fn a_host_that_was_revoked_before_its_hello_takes_nobodys_place() {
    let worker = Worker::start();
    let old = worker.enrol("titan");
    let mut upgraded = Daemon::connect(worker.at, &old).unwrap();
    worker.admin(&["host", "revoke", "titan"]);
    let mut daemon = worker.daemon("titan", &worker.enrol("titan"), &["jess"]);
    let all_at_once = [
        json!({ "t": "hello", "proto": 1, "daemon_ver": "1", "host": "titan" }),
        json!({ "t": "send", "id": "tx_000000000001", "from": "jess@titan", "to": "jess@titan", "body": "x", "ts": "" }),
    ];
    let all_at_once: Vec<u8> =
        all_at_once.iter().flat_map(|frame| masked(0x81, frame.to_string().as_bytes())).collect();
    upgraded.socket.get_mut().write_all(&all_at_once).unwrap();
    let (frames, code) = upgraded.closed();
    assert_eq!((frames.len(), &frames[0]["t"], code), (1, &json!("hello_ok"), 4001));
    assert_eq!(worker.admin(&["message", "list"]), json!(null), "and says nothing");
    daemon.say(&json!({ "t": "pong" }));
    assert_eq!(daemon.next()["t"], "ping", "it has its place");
}

#[test]
fn too_many_frames_close_the_socket() {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    let mut daemon = worker.daemon("titan", &token, &[]);
    for _ in 0..1_000 {
        // The Worker may have closed already.
        if daemon.socket.send(Message::text("{\"t\":\"unknown\"}")).is_err() {
            break;
        }
    }
    assert_eq!(daemon.closed().1, 4008);
}

#[test]
fn a_call_right_behind_a_roster_is_answered_with_that_roster() {
    let worker = Worker::start();
    let mut daemon = worker.daemon("titan", &worker.enrol("titan"), &[]);
    for n in 0..20 {
        let agents = [format!("jess{n}"), "bob".to_owned()];
        daemon.roster(&[&agents[0], &agents[1]]);
        let found = daemon.call(&agents[0], "list_agents", json!({})).unwrap();
        let names: Vec<&str> =
            found.as_array().unwrap().iter().map(|agent| agent["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["bob", &agents[0]]);
    }
}

#[test]
fn a_worker_that_stops_says_goodbye() {
    let mut worker = Worker::start();
    let token = worker.enrol("titan");
    let mut daemon = worker.daemon("titan", &token, &[]);
    worker.process.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.closed().1, 1001);
    assert!(worker.process.wait().success());
}

#[test]
fn a_worker_that_stops_waits_for_the_answer_to_its_goodbye() {
    let mut worker = Worker::start();
    let token = worker.enrol("titan");
    let mut daemon = worker.daemon("titan", &token, &[]);
    worker.process.signal(rustix::process::Signal::TERM);
    assert!(matches!(daemon.socket.read(), Ok(Message::Close(Some(_)))));
    // The answer is written with the next read, and met a reset if the connection had ended before.
    let stream = daemon.socket.get_ref();
    stream.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
    let early = stream.peek(&mut [0]);
    assert_eq!(early.map_err(|err| err.kind()), Err(ErrorKind::WouldBlock));
    stream.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(daemon.closed().1, 0, "a second close code");
    assert!(worker.process.wait().success());
}

#[test]
fn what_a_daemon_has_acknowledged_before_it_saw_the_goodbye_counts() {
    let mut worker = Worker::start();
    let token = worker.enrol("titan");
    worker.source("jess@titan", &[]);
    let mut daemon = worker.daemon("titan", &token, &["jess", "bob"]);
    assert_eq!(worker.event(event("k").to_string().as_bytes()).status(), 202);
    let event = daemon.delivered();
    assert_eq!(daemon.send("tx_000000000001", "jess@titan", "bob@titan", "hello")["t"], "send_ack");
    let message = daemon.delivered();
    worker.process.signal(rustix::process::Signal::TERM);
    // The peer's half of the handshake is still to come: it is written with the next read.
    assert!(matches!(daemon.socket.read(), Ok(Message::Close(Some(_)))));
    let answer = |to: &serde_json::Value| {
        let ack = json!({ "t": "deliver_ack", "id": to["id"], "agent": to["agent"] }).to_string();
        masked(0x81, ack.as_bytes())
    };
    daemon.socket.get_mut().write_all(&[answer(&event), answer(&message)].concat()).unwrap();
    daemon.closed();
    assert!(worker.process.wait().success());
    let id = |frame: &serde_json::Value| frame["id"].as_str().unwrap().to_owned();
    assert_eq!(worker.admin(&["delivery", "show", &id(&event)])["state"], "dispatched");
    assert_eq!(worker.admin(&["message", "show", &id(&message)])["state"], "injected");
}

#[test]
fn what_a_daemon_has_acknowledged_before_its_connection_broke_counts() {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    worker.source("jess@titan", &[]);
    let mut daemon = worker.daemon("titan", &token, &["jess"]);
    assert_eq!(worker.event(event("k").to_string().as_bytes()).status(), 202);
    let delivered = daemon.delivered();
    // Both have come before the Worker looks again.
    worker.process.signal(rustix::process::Signal::STOP);
    daemon.ack(&delivered);
    drop(daemon);
    worker.process.signal(rustix::process::Signal::CONT);
    let shown = || worker.admin(&["delivery", "show", delivered["id"].as_str().unwrap()]);
    eventually(|| (shown()["state"] == "dispatched").then_some(()));
}

#[test]
fn what_a_daemon_has_acknowledged_is_in_the_ledger_before_the_worker_ends() {
    let mut worker = Worker::start();
    let token = worker.enrol("titan");
    worker.source("jess@titan", &[]);
    let mut daemon = worker.daemon("titan", &token, &["jess"]);
    assert_eq!(worker.event(event("k").to_string().as_bytes()).status(), 202);
    let delivered = daemon.delivered();
    // A command beside it has the ledger, and takes its time.
    let db = Db::open(&worker.home.data().join("worker.db")).unwrap();
    let (has_it, begun) = channel();
    let (let_go, told) = channel::<()>();
    let told = Mutex::new(told);
    let hold = move |_: &Tx<'_>| {
        let _ = has_it.send(());
        let _ = told.lock().unwrap().recv();
        Ok(())
    };
    db.submit(hold, drop);
    begun.recv_timeout(LONG).unwrap();
    daemon.ack(&delivered);
    daemon.say(&json!({ "t": "pong" }));
    assert_eq!(daemon.next()["t"], "ping");
    worker.process.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.closed().1, 1001);
    // A Worker that did not wait for its ledger would end meanwhile.
    let (_nobody, nothing) = channel::<()>();
    let _ = nothing.recv_timeout(Duration::from_millis(700));
    drop(let_go);
    assert!(worker.process.wait().success());
    assert_eq!(worker.admin(&["delivery", "show", delivered["id"].as_str().unwrap()])["state"], "dispatched");
}

#[test]
fn a_thousand_idle_connections_keep_nobody_out() {
    const CROWD: usize = 1_000;
    raise_descriptor_limit();
    let worker = Worker::start();
    worker.source("jess@titan", &[]);
    let token = worker.enrol("titan");
    let before = resident_bytes(worker.process.pid());
    let silent: Vec<TcpStream> = (0..CROWD).map(|_| TcpStream::connect(worker.at).unwrap()).collect();
    let tokens = worker.enrol_many(CROWD);
    let idle: Vec<Daemon> = tokens.iter().map(|token| Daemon::connect(worker.at, token).unwrap()).collect();
    let mut daemon = worker.daemon("titan", &token, &["jess"]);
    let accepted = worker.event(event("k").to_string().as_bytes());
    assert_eq!(accepted.status(), 202);
    assert_eq!(daemon.delivered()["id"], accepted.json()["delivery_id"]);
    let grown = resident_bytes(worker.process.pid()).saturating_sub(before);
    assert!(grown < 2 * CROWD as u64 * 32 * 1024, "{grown} bytes for {CROWD} of each kind");
    drop((silent, idle));
}
