//! What a peer may have of a Worker: connections, sockets, time, memory. One that wants more is told so, or cut off,
//! and nobody else notices.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use tungstenite::Message;

use super::{Daemon, Worker, event};
use crate::support::{LONG, eventually, eventually_within, http, request, resident_bytes};
use transit::limits::{DESCRIPTORS_KEPT, SOCKETS_OF_HOST, SOCKETS_UNGREETED};

/// A number of `/metrics`; 0 when it is not there.
pub(super) fn metric(worker: &Worker, sample: &str) -> u64 {
    let page = http(worker.at, &request("GET", "/metrics", &[], b""));
    let page = String::from_utf8(page.body).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap())
}

/// Reads until the other end closes.
fn rest(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(2 * LONG)).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn say(at: std::net::SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

#[test]
fn a_head_that_is_too_long_or_too_slow_and_a_connection_that_is_idle_are_cut_off() {
    let worker = Worker::start();
    let long = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "a".repeat(300_000));
    let mut long = say(worker.at, long.as_bytes());
    let mut slow = say(worker.at, b"GET /healthz HTTP/1.1\r\nHost: x\r\n");
    let mut idle = say(worker.at, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut silent = say(worker.at, b"");
    let told = rest(&mut long);
    assert!(told.starts_with("HTTP/1.1 431 "), "{told}");
    let answered = rest(&mut idle);
    assert!(answered.starts_with("HTTP/1.1 200 ") && answered.matches("HTTP/1.1").count() == 1, "{answered}");
    rest(&mut slow);
    assert_eq!(rest(&mut silent), "");
}

#[test]
fn connections_beyond_the_limit_are_told_to_come_again() {
    const MOST: u64 = 40;
    let worker = Worker::start_through(|command| {
        let mut limited = Command::new("sh");
        let limit = DESCRIPTORS_KEPT + MOST;
        limited.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]).arg(command.get_program());
        limited.args(command.get_args()).env_clear().current_dir(command.get_current_dir().unwrap());
        limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        limited
    });
    let token = worker.enrol("titan");
    let mut daemon = worker.daemon("titan", &token, &["jess"]);
    let mut held = Vec::new();
    let refused = loop {
        let mut stream = say(worker.at, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        if &first != b"HTTP/1.1 200" {
            break [&first[..], rest(&mut stream).as_bytes()].concat();
        }
        held.push(stream);
        assert!(held.len() as u64 <= MOST, "nobody is refused");
    };
    let refused = String::from_utf8(refused).unwrap();
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after: 5\r\n"), "{refused}");
    assert!(refused.ends_with("{\"error\":\"too_many_connections\"}"), "{refused}");
    // Who is in notices nothing.
    daemon.say(&json!({ "t": "pong" }));
    assert_eq!(daemon.next(), json!({ "t": "ping" }));
    drop(held);
    let served = eventually(|| {
        let mut stream = say(worker.at, &request("GET", "/metrics", &[], b""));
        Some(rest(&mut stream)).filter(|answer| answer.starts_with("HTTP/1.1 200 "))
    });
    assert!(served.contains(&format!("transit_worker_connections_max {MOST}\n")), "{served}");
    assert!(served.contains("refused_connections_total{why=\"connections\"} "), "{served}");
}

#[test]
fn a_host_has_some_sockets_and_no_more() {
    let worker = Worker::start();
    let (token, other) = (worker.enrol("titan"), worker.enrol("pluto"));
    let ungreeted: Vec<_> = (0..SOCKETS_UNGREETED).map(|_| Daemon::connect(worker.at, &token)).collect();
    assert!(ungreeted.iter().all(Result::is_ok));
    assert_eq!(Daemon::connect(worker.at, &token).err(), Some(429));
    assert!(Daemon::connect(worker.at, &other).is_ok(), "it is no other host's concern");
    assert_eq!(metric(&worker, "transit_worker_refused_connections_total{why=\"sockets_of_host\"}"), 1);
    drop(ungreeted);
    // Those that are replaced and do not read their goodbye count until they are gone.
    let mut greeted = Vec::new();
    for _ in 0..SOCKETS_OF_HOST {
        let mut daemon = eventually(|| Daemon::connect(worker.at, &token).ok());
        daemon.say(&json!({ "t": "hello", "proto": 1, "daemon_ver": "1", "host": "titan" }));
        assert_eq!(daemon.next()["t"], "hello_ok");
        greeted.push(daemon);
    }
    eventually(|| (metric(&worker, "transit_worker_hosts_connected") == 1).then_some(()));
}

#[test]
fn what_a_daemon_says_of_itself_is_kept_only_so_far() {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    let mut daemon = Daemon::connect(worker.at, &token).unwrap();
    let long = "ü".repeat(10_000);
    daemon.say(&json!({ "t": "hello", "proto": 1, "daemon_ver": long, "host": "titan" }));
    assert_eq!(daemon.next()["t"], "hello_ok");
    let agents: Vec<Value> = (0..3)
        .map(|n| {
            json!({ "name": format!("a{n}"), "kind": long, "pane_id": "p", "status": "idle", "cwd": long,
                    "title": long, "named_by": "user" })
        })
        .collect();
    daemon.say(&json!({ "t": "roster", "agents": agents }));
    // The roster is there once it is committed.
    let listed = eventually(|| daemon.call("a0", "list_agents", json!({})).ok());
    for agent in listed.as_array().unwrap() {
        for field in ["kind", "cwd", "title"] {
            assert!(agent[field].as_str().unwrap().len() <= 1_024, "{field}");
        }
    }
    let hosts = worker.admin(&["host", "list"]);
    assert!(hosts["daemon_ver"].as_str().unwrap().len() <= 100, "{hosts}");
}

#[test]
fn a_daemon_that_reads_nothing_is_cut_off_and_nobody_else_waits_for_it() {
    let worker = Worker::start();
    let (slow, quick) = (worker.enrol("slow"), worker.enrol("quick"));
    let names: Vec<String> = (0..30).map(|n| format!("a{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut deaf = worker.daemon("slow", &slow, &names);
    rustix::net::sockopt::set_socket_recv_buffer_size(deaf.socket.get_ref(), 4_096).unwrap();
    let mut sender = worker.daemon("quick", &quick, &names);
    // Asked after the roster, so that it is there.
    deaf.say(&json!({ "t": "pong" }));
    assert_eq!(deaf.next(), json!({ "t": "ping" }));
    let before = resident_bytes(worker.process.pid());
    let body = "x".repeat(60_000);
    for (round, name) in (0..2).flat_map(|round| names.iter().map(move |name| (round, name))) {
        let id = format!("tx_{:012x}", round * 1_000 + name[1..].parse::<u32>().unwrap());
        let answer = sender.send(&id, &format!("{name}@quick"), &format!("{name}@slow"), &body);
        assert_eq!(answer["t"], "send_ack", "{answer}");
    }
    // It calls, and reads no answer either.
    for n in 0..60 {
        let call = json!({ "t": "rpc", "rid": n.to_string(), "method": "read_message",
                           "params": { "caller": "a0", "id": "tx_000000000000" } });
        let _ = deaf.socket.send(Message::text(call.to_string()));
    }
    let id = "tx_ffffffffffff";
    assert_eq!(sender.send(id, "a0@quick", "a1@quick", "hello")["t"], "send_ack");
    let delivered = sender.delivered();
    assert_eq!(delivered["id"], id);
    sender.ack(&delivered);
    let grown = resident_bytes(worker.process.pid()).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
    let broken = "transit_worker_closed_sockets_total{code=\"broken\"}";
    eventually_within(3 * LONG, || (metric(&worker, broken) == 1).then_some(()));
    sender.say(&json!({ "t": "pong" }));
    assert_eq!(sender.next(), json!({ "t": "ping" }), "the other one is still there");
}

#[test]
fn a_ledger_that_takes_nothing_is_told_and_found_again() {
    let worker = Worker::start();
    worker.source("jess@titan", &["--rate", "1000", "--burst", "1000"]);
    let ready = || http(worker.at, &request("GET", "/readyz", &[], b""));
    assert_eq!((ready().status(), ready().json()), (200, json!({ "ready": true })));
    let pid = Pid::from_raw(worker.process.pid().cast_signed());
    let limit = |most| {
        let set = Rlimit { current: most, maximum: None };
        prlimit(pid, Resource::Fsize, set).unwrap();
    };
    limit(Some(0));
    assert_eq!(ready().status(), 200, "nothing is tried as long as nothing has failed");
    // To the ledger it is a disk that fails, or one that is full.
    let failed = worker.event(event("k1").to_string().as_bytes()).status();
    assert!([500, 503].contains(&failed), "{failed}");
    let told = ready();
    assert_eq!((told.status(), &told.json()["ready"]), (503, &json!(false)));
    assert!(["disk", "ledger"].contains(&told.json()["reason"].as_str().unwrap()), "{:?}", told.json());
    assert!(metric(&worker, "transit_worker_commit_failures_total") > 0);
    limit(None);
    eventually_within(3 * LONG, || (ready().status() == 200).then_some(()));
    assert_eq!(worker.event(event("k1").to_string().as_bytes()).status(), 202);
    assert_eq!(metric(&worker, &format!("transit_worker_ingest_total{{status=\"{failed}\"}}")), 1);
    assert_eq!(metric(&worker, "transit_worker_ingest_total{status=\"202\"}"), 1);
}
