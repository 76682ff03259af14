//! transit.ingest/1 over raw requests.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::json;

use super::{Worker, event, headers, signed};
use crate::support::{LONG, http, request};

fn worker() -> Worker {
    let worker = Worker::start();
    worker.enrol("titan");
    worker.source("jess@titan", &["--rate", "1000", "--burst", "1000"]);
    worker
}

#[test]
fn an_event_is_queued_once_and_its_replay_is_a_duplicate() {
    let worker = worker();
    let body = event("k1").to_string();
    let first = worker.event(body.as_bytes());
    assert_eq!((first.status(), &first.json()["status"]), (202, &json!("queued")));
    let again = worker.event(body.as_bytes());
    assert_eq!((again.status(), &again.json()["status"]), (200, &json!("duplicate")));
    assert_eq!(again.json()["delivery_id"], first.json()["delivery_id"]);
    assert_eq!(again.json().get("same"), None);
    let mut other = event("k1");
    other["content"] = "something else".into();
    let other = worker.event(other.to_string().as_bytes());
    assert_eq!((other.status(), &other.json()["same"]), (200, &json!(false)));

    let worker = worker.restart();
    assert_eq!(worker.event(body.as_bytes()).json()["event_id"], first.json()["event_id"]);
}

#[test]
fn of_many_that_come_at_once_under_one_key_exactly_one_is_taken() {
    let worker = worker();
    let request = signed(event("k1").to_string().as_bytes());
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let posts: Vec<_> = (0..8).map(|_| scope.spawn(|| http(worker.at, &request).status())).collect();
        posts.into_iter().map(|post| post.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|&&status| status == 202).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|&&status| status == 200).count(), 7, "{statuses:?}");
}

#[test]
fn what_is_wrong_with_who_it_is_looks_the_same() {
    let worker = worker();
    let body = event("k1").to_string();
    let [(timestamp, now), (signature, right)] = headers(body.as_bytes());
    let wrong = format!("v1={}", "0".repeat(64));
    let post =
        |fields: &[(&str, &str)]| http(worker.at, &request("POST", "/ingest/ci", fields, body.as_bytes()));
    for fields in [
        vec![],
        vec![(timestamp, now.as_str())],
        vec![(timestamp, now.as_str()), (signature, wrong.as_str())],
        vec![(timestamp, "1"), (signature, right.as_str())],
        vec![(timestamp, now.as_str()), (signature, right.as_str()), (signature, right.as_str())],
        vec![(timestamp, now.as_str()), (timestamp, now.as_str()), (signature, right.as_str())],
        vec![(timestamp, now.as_str()), (signature, "v1=\u{e9}")],
    ] {
        let answer = post(&fields);
        assert_eq!(
            (answer.status(), answer.body.as_slice()),
            (401, &b"{\"error\":\"Unauthorized\"}"[..]),
            "{fields:?}"
        );
    }
    assert_eq!(post(&[(timestamp, now.as_str()), (signature, right.as_str())]).status(), 202);
}

#[test]
fn rules_paths_methods_and_lengths_have_their_own_answers() {
    let worker = worker();
    let bad = worker.event(b"{\"schema\":\"transit.ingest/1\",\"event_key\":7}");
    assert_eq!((bad.status(), &bad.json()["field"]), (400, &json!("event_key")));
    let mut elsewhere = event("k1");
    elsewhere["reply_url"] = "https://elsewhere.example/".into();
    assert_eq!(worker.event(elsewhere.to_string().as_bytes()).status(), 400);
    assert_eq!(worker.event(b"\xff").status(), 400);
    let ask = |method: &str, path: &str| http(worker.at, &request(method, path, &[], b"")).status();
    for (method, path, status) in [
        ("POST", "/ingest/nosuch", 404),
        ("POST", "/ingest/../ingest/ci", 404),
        ("POST", "/ingest/c%69", 404),
        ("POST", "/nowhere", 404),
        ("GET", "/ingest/ci", 405),
        ("POST", "/ingest/ci/health", 405),
        ("GET", "/ingest/ci/health", 200),
        ("GET", "/ingest/nosuch/health", 404),
        ("GET", "/api/daemon/enroll", 405),
        ("GET", "/api/daemon/ws", 426),
        ("POST", "/api/daemon/enroll", 401),
        ("GET", "/healthz", 200),
    ] {
        assert_eq!(ask(method, path), status, "{method} {path}");
    }
    worker.admin(&["source", "pause", "ci"]);
    assert_eq!(worker.event(event("k2").to_string().as_bytes()).status(), 404);
    assert_eq!(ask("GET", "/ingest/ci/health"), 404);
    worker.admin(&["source", "resume", "ci"]);
    assert_eq!(worker.event(event("k2").to_string().as_bytes()).status(), 202);
}

#[test]
fn an_overlong_body_is_refused_by_its_length_and_while_it_comes() {
    let worker = worker();
    let long = vec![b'x'; 262_145];
    assert_eq!(worker.event(&long).status(), 413);
    // The length alone is enough: nothing of this body is ever sent.
    let head =
        "POST /ingest/ci HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 900000000\r\n\r\n";
    assert_eq!(http(worker.at, head.as_bytes()).status(), 413);
    let chunked =
        "POST /ingest/ci HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let piece = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
    // It never ends, and is answered all the same.
    let request = [chunked.as_bytes(), &piece, &piece, &piece, &piece, b"1\r\nx\r\n"].concat();
    assert_eq!(http(worker.at, &request).status(), 413);
    let body = event("k1").to_string();
    let [(timestamp, now), (signature, right)] = headers(body.as_bytes());
    let mut request = format!(
        "POST /ingest/ci HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\
         {timestamp}: {now}\r\n{signature}: {right}\r\n\r\n"
    );
    for piece in body.as_bytes().chunks(7) {
        request.push_str(&format!("{:x}\r\n{}\r\n", piece.len(), str::from_utf8(piece).unwrap()));
    }
    request.push_str("0\r\n\r\n");
    assert_eq!(http(worker.at, request.as_bytes()).status(), 202, "a chunked body is as good as another");
}

#[test]
fn a_source_that_is_too_fast_is_told_when_to_come_back_and_a_duplicate_costs_nothing() {
    let worker = Worker::start();
    worker.enrol("titan");
    worker.source("jess@titan", &["--rate", "1", "--burst", "2"]);
    let post = |key: &str| worker.event(event(key).to_string().as_bytes());
    let first = post("k1");
    assert_eq!(first.status(), 202);
    for _ in 0..5 {
        assert_eq!(post("k1").status(), 200);
    }
    let mut limited = None;
    for n in 2..20 {
        let answer = post(&format!("k{n}"));
        if answer.status() == 429 {
            limited = Some(answer);
            break;
        }
    }
    let limited = limited.expect("18 events in a moment are more than 2 and one a second");
    assert_eq!(limited.field("retry-after"), Some("1"));
    assert_eq!(post("k1").status(), 200, "with an empty bucket too");
}

#[test]
fn a_head_that_does_not_end_is_cut_off() {
    let worker = worker();
    let mut stream = TcpStream::connect(worker.at).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"POST /ingest/ci HTTP/1.1\r\nHost: x\r\n").unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(!rest.starts_with(b"HTTP/1.1 2"), "{rest:?}");
}

#[test]
fn a_rotated_secret_is_good_for_its_overlap() {
    let worker = worker();
    worker.admin(&["source", "rotate", "ci", "--overlap", "1h"]);
    assert_eq!(worker.event(event("k1").to_string().as_bytes()).status(), 202);
    worker.admin(&["source", "rotate", "ci", "--overlap", "1h"]);
    assert_eq!(worker.event(event("k2").to_string().as_bytes()).status(), 401, "only the one before is kept");
}

#[test]
fn a_body_that_takes_its_time_is_judged_by_what_the_source_is_when_it_has_come() {
    let worker = worker();
    let begin = |key: &str| {
        let body = event(key).to_string();
        let [(timestamp, now), (signature, right)] = headers(body.as_bytes());
        let fields = [(timestamp, now.as_str()), (signature, right.as_str()), ("Expect", "100-continue")];
        let request = request("POST", "/ingest/ci", &fields, body.as_bytes());
        let head = request.len() - body.len();
        let mut stream = TcpStream::connect(worker.at).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(&request[..head]).unwrap();
        // Asked for the body by now, it has found the source.
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        (stream, body)
    };
    let end = |(mut stream, body): (TcpStream, String)| {
        stream.write_all(body.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        String::from_utf8_lossy(&status[9..]).into_owned()
    };
    let begun = begin("k1");
    assert_eq!(end(begun), "202");
    let begun = begin("k2");
    worker.admin(&["source", "rotate", "ci", "--overlap", "0s"]);
    assert_eq!(end(begun), "401", "the secret is gone");
    let begun = begin("k3");
    worker.admin(&["source", "pause", "ci"]);
    assert_eq!(end(begun), "404");
}

#[test]
fn a_sender_that_closes_its_half_behind_its_event_is_answered() {
    let worker = worker();
    for key in ["k1", "k2", "k3"] {
        let mut stream = TcpStream::connect(worker.at).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(&signed(event(key).to_string().as_bytes())).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    }
}
