//! Who gets a place on `agent.sock`, and which.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::world::{Adapter, Worker, ask, enrolled, nobody, outcome, registration, start, status_until};
use crate::support::{Home, LONG};

fn refused(home: &Home, frame: &Value) -> String {
    let mut adapter = Adapter::connect(home);
    adapter.send(frame);
    let answer = adapter.next().unwrap();
    assert_eq!(answer["t"], "register_err", "{answer}");
    assert!(!answer["error"].as_str().unwrap().is_empty());
    assert_eq!(adapter.next(), None, "the connection closes after it");
    answer["code"].as_str().unwrap().to_owned()
}

#[test]
fn every_broken_registration_has_its_code() {
    let home = Home::new();
    let _daemon = start(&home);
    let with = |field: &str, value: Value| {
        let mut frame = registration("s1", None);
        frame[field] = value;
        frame
    };
    assert_eq!(refused(&home, &json!({ "t": "pong", "capability": "" })), "register_required");
    assert_eq!(refused(&home, &json!({ "t": "register" })), "bad_request");
    assert_eq!(refused(&home, &json!("register")), "bad_request");
    assert_eq!(refused(&home, &with("proto", 2.into())), "unsupported_proto");
    assert_eq!(refused(&home, &with("pid", 1.into())), "pid_mismatch");
    assert_eq!(refused(&home, &with("harness", "Vim".into())), "unsupported_harness");
    assert_eq!(refused(&home, &with("session_id", "".into())), "invalid_session");
    assert_eq!(refused(&home, &with("name", "Jess".into())), "invalid_name");
    assert_eq!(refused(&home, &with("name", "operator".into())), "invalid_name");
    let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
    let mut other = registration("s2", Some("jess"));
    assert_eq!(refused(&home, &other), "name_taken");
    other["name"] = "omar".into();
    Adapter::connect(&home).send(&other);
    status_until(&home, |status| status["agents"].as_array().unwrap().len() == 1);
}

#[test]
fn a_resumed_session_keeps_its_address_and_ends_its_older_connection() {
    let home = Home::new();
    let mut daemon = start(&home);
    let (mut older, first) = Adapter::register(&home, "s1", None);
    let name = first["agent"].as_str().unwrap().to_owned();
    assert!(name.starts_with("claude-") && name.len() == "claude-".len() + 4, "{name}");
    assert_eq!(first["generation"], 1);
    assert_eq!(first["capability"].as_str().unwrap().len(), 32);
    let (newer, second) = Adapter::register(&home, "s1", None);
    assert_eq!(older.next().unwrap()["code"], "replaced");
    assert_eq!(older.next(), None);
    assert_eq!((&second["agent"], &second["generation"]), (&first["agent"], &json!(2)));
    assert!(second["capability"] != first["capability"]);
    drop(newer);
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let _daemon = start(&home);
    let (_again, third) = Adapter::register(&home, "s1", None);
    assert_eq!((&third["agent"], &third["generation"]), (&first["agent"], &json!(3)));
    let (_fork, fork) = Adapter::register(&home, "s2", None);
    assert!(fork["agent"] != first["agent"]);
    let (_renamed, renamed) = Adapter::register(&home, "s1", Some("jess"));
    assert_eq!((&renamed["agent"], &renamed["generation"]), (&json!("jess"), &json!(4)));
}

#[test]
fn the_caller_is_who_the_kernel_says() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let whoami = |call: &Value| {
        let mut call = call.clone();
        call["op"] = "whoami".into();
        ask(&home, &call)
    };
    assert_eq!(whoami(&json!({}))["code"], "invalid_caller");
    let (_jess, _) = Adapter::register(&home, "session-of-jess", Some("jess"));
    assert_eq!(whoami(&json!({ "pid": 1 }))["address"], "jess@titan");
    assert_eq!(whoami(&json!({ "as_agent": "jess" }))["address"], "jess@titan");
    assert_eq!(whoami(&json!({ "as_agent": "omar" }))["code"], "invalid_caller");
    let (_omar, _) = Adapter::register(&home, "different-session", Some("omar"));
    assert_eq!(whoami(&json!({}))["code"], "invalid_caller", "two sessions share this process");
    assert_eq!(whoami(&json!({ "pane_id": "native:claude:differen" }))["address"], "omar@titan");
}

#[test]
fn there_is_one_daemon_for_a_data_directory() {
    let home = Home::new();
    let mut daemon = start(&home);
    let (code, out, err) = outcome(home.command("transitd").arg("run"));
    assert_eq!((code, out.as_str()), (75, ""));
    assert!(err.contains(&format!("process {}", daemon.pid())), "{err}");
    assert_eq!(ask(&home, &json!({ "op": "status" }))["ok"], true, "the first one is not disturbed");
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    assert!(home.data().join("agent.sock").exists(), "a killed daemon leaves its sockets");
    let mut daemon = start(&home);
    let (code, ..) = outcome(home.command("transitd").arg("stop"));
    assert_eq!(code, 0);
    assert!(daemon.wait().success());
    for name in ["agent.sock", "transit.sock"] {
        assert!(!home.data().join(name).exists(), "{name} goes with its daemon");
    }
    assert!(!home.path("ready.json").exists());
    let (code, out, err) = outcome(home.command("transitd").args(["status", "--json"]));
    assert_eq!((code, out.as_str()), (69, ""));
    assert!(err.contains("transitd run"), "{err}");
}

#[test]
fn a_socket_s_place_that_is_taken_is_not_cleared() {
    let home = Home::new();
    std::fs::create_dir(home.data()).unwrap();
    home.file("data/agent.sock", "precious");
    let (code, _, err) = outcome(home.command("transitd").arg("run"));
    assert_eq!(code, 73);
    assert!(err.contains("agent.sock"), "{err}");
    assert_eq!(std::fs::read(home.data().join("agent.sock")).unwrap(), b"precious");
}

#[test]
fn a_call_ends_with_its_newline_or_with_what_the_caller_writes() {
    let home = enrolled(nobody());
    let _daemon = start(&home);
    for (call, is_answered) in [("{\"op\":\"status\"}", true), ("{\"op\":\"sta", false)] {
        let mut stream = UnixStream::connect(home.data().join("transit.sock")).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(call.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["ok"], is_answered, "{answer}");
    }
}
