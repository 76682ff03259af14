//! Workers that are not there, say nonsense, say nothing, or go away.

use std::io::Write;

use serde_json::json;
use tungstenite::Message;

use super::world::{
    Adapter, Order, TOKEN, Worker, ask, enrolled, impostor, nobody, outcome, start, status_until,
};
use crate::support::LONG;

#[test]
fn the_status_is_what_scripts_wait_for() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let daemon = start(&home);
    let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
    let (code, out, _) = outcome(home.command("transitd").args(["status", "--json", "--wait", "30s"]));
    assert_eq!(code, 0);
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status["host"], "titan");
    assert_eq!(status["worker_url"], format!("http://{}", worker.at));
    assert_eq!((&status["connected"], &status["paused"]), (&json!(true), &json!(false)));
    assert_eq!((&status["outbox"], &status["dead"]), (&json!(0), &json!(0)));
    assert_eq!(status["last_error"], json!(null));
    assert_eq!(status["pid"], daemon.pid());
    assert!(status["uptime_seconds"].is_u64() && status["version"].is_string());
    let agent = &status["agents"][0];
    assert_eq!(agent["address"], "jess@titan");
    assert_eq!((&agent["name"], &agent["harness"]), (&json!("jess"), &json!("claude")));
    assert_eq!((&agent["session_id"], &agent["status"]), (&json!("s1"), &json!("idle")));
    assert_eq!(agent["generation"], 1);
    let (code, out, _) = outcome(home.command("transitd").arg("status"));
    assert_eq!(code, 0);
    assert!(out.contains("connected      true") && out.contains("jess@titan"), "{out}");
}

#[test]
fn a_worker_that_is_none_is_told_and_everything_else_goes_on() {
    let cases = [
        (nobody(), "could not connect"),
        (impostor(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", false), ""),
        (impostor(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false), "404"),
        (impostor(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", false), "device token"),
        (impostor(b"", false), ""),
    ];
    for (at, told) in cases {
        let home = enrolled(at);
        let _daemon = start(&home);
        let status = status_until(&home, |status| status["last_error"].is_string());
        assert_eq!(status["connected"], false);
        let error = status["last_error"].as_str().unwrap();
        assert!(error.contains(told), "{error:?} does not say {told:?}");
        assert!(!error.contains(TOKEN));
        Adapter::register(&home, "s1", Some("jess"));
        let (code, out, err) = outcome(home.command("transitd").args(["status", "--wait", "0s"]));
        assert_eq!((code, out.as_str()), (69, ""), "{err}");
    }
}

#[test]
fn a_worker_that_says_nothing_does_not_hold_up_a_stop() {
    let home = enrolled(impostor(b"", true));
    let mut daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    assert_eq!(ask(&home, &json!({ "op": "send", "to": "a@b", "body": "x" }))["state"], "spooled");
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.wait().success());
    assert_eq!(jess.next(), None);
}

#[test]
fn a_connection_that_breaks_is_made_again_and_a_kick_does_not_wait() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    for _ in 0..2 {
        assert!(worker.roster().is_empty());
        worker.order(Order::Cut);
    }
    worker.roster();
    let (code, ..) = outcome(home.command("transitd").arg("kick"));
    assert_eq!(code, 0);
    worker.roster();
    status_until(&home, |status| status["connected"] == true);
}

#[test]
fn a_configuration_that_makes_no_sense_is_no_start() {
    let good = "{\"url\":\"http://127.0.0.1:1\",\"host\":\"titan\"}";
    for (config, token) in [
        ("{\"host\":\"No Host\"}", "t"),
        ("{\"url\":\"ftp://x\",\"host\":\"titan\"}", "t"),
        (good, ""),
        (good, "one\ntwo"),
        (good, "t\u{1b}[31m"),
        (good, &"t".repeat(5000)),
    ] {
        let home = enrolled(nobody());
        home.file("config.json", config);
        home.file("data/token", token);
        let (code, out, err) = outcome(home.command("transitd").arg("run"));
        assert_eq!((code, out.as_str()), (78, ""), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    let home = enrolled(nobody());
    std::fs::remove_file(home.path("config.json")).unwrap();
    std::fs::create_dir(home.path("config.json")).unwrap();
    let (code, _, err) = outcome(home.command("transitd").arg("run"));
    assert_eq!(code, 66, "{err}");
}

#[test]
fn a_message_over_the_limit_ends_the_connection_and_not_the_daemon() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let mut daemon = start(&home);
    worker.roster();
    worker.order(Order::Say("x".repeat(transit::limits::FRAME_BYTES + 1)));
    worker.roster();
    status_until(&home, |status| status["connected"] == true);
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.wait().success());
}

#[test]
fn a_worker_that_sends_no_frames_is_told_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for (bytes, code) in [
        (&b"\x81\x82\0\0\0\0{}"[..], 1002), // masked
        (b"\xc1\x02{}", 1002),              // a reserved bit
        (b"\x83\x02{}", 1002),              // an unknown kind
        (b"\x89\x7e\0\x7e", 1002),          // a ping of 126 bytes
        (b"\x81\x01\xff", 1007),            // a text that is none
        (b"\x82\x01x", 1003),               // a binary message
    ] {
        let home = enrolled(listener.local_addr().unwrap());
        let _daemon = start(&home);
        let mut socket = tungstenite::accept(listener.accept().unwrap().0).unwrap();
        let stream = socket.get_mut();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(&[bytes, &[b'x'; 4096]].concat()).unwrap();
        let told = loop {
            if let Message::Close(told) = socket.read().unwrap() {
                break told;
            }
        };
        assert_eq!(told.map(|frame| u16::from(frame.code)), Some(code), "{bytes:?}");
        drop(socket);
        status_until(&home, |status| status["last_error"].as_str().is_some_and(|why| !why.is_empty()));
    }
}

#[test]
fn a_stderr_that_takes_nothing_costs_log_lines_and_nothing_else() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut daemon = home.command("transitd").args(["run", "-vv"]).stderr(full).spawn().unwrap();
    worker.roster();
    assert_eq!(outcome(home.command("transitd").args(["status", "--wait", "30s"])).0, 0);
    assert_eq!(outcome(home.command("transitd").arg("stop")).0, 0);
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}

#[test]
fn a_ready_file_that_cannot_be_written_is_a_failure() {
    let home = enrolled(nobody());
    for place in ["nowhere/ready.json", "data"] {
        let (code, out, err) = outcome(home.command("transitd").args(["run", "--ready-file", place]));
        assert_eq!((code, out.as_str()), (73, ""), "{err}");
        assert!(err.lines().last().is_some_and(|line| line.starts_with("transitd: write the ready file")));
    }
    assert!(home.data().is_dir());
}
