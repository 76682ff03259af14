//! Rooms through the real programs: a Worker, two hosts, and agents on both.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::rig::Rig;
use crate::support::{Background, Home, eventually, text};

/// A second host of a rig, with its daemon.
struct Host {
    home: Home,
    _daemon: Background,
}

impl Host {
    fn join(rig: &Rig, name: &str) -> Self {
        let home = Home::new();
        let code = rig.admin(&["host", "enroll", name])["code"].as_str().unwrap().to_owned();
        let url = format!("http://{}", rig.at);
        let enrolled = home.run("transitd", ["enroll", "--url", &url, "--code", &code], b"");
        assert!(enrolled.status.success(), "{}", text(&enrolled.stderr));
        let ready = home.path("daemon.ready");
        let mut daemon =
            Background::start(home.command("transitd").args(["run", "--ready-file"]).arg(&ready));
        daemon.ready(&ready);
        Self { home, _daemon: daemon }
    }
}

/// An agent that takes everything.
struct Agent(Background);

impl Agent {
    fn start(home: &Home, name: &str) -> Self {
        let process =
            Background::start(home.command("transit-agent").args(["listen", "--auto-ack", "--name", name]));
        let registered: Value = serde_json::from_str(&process.line()).unwrap();
        assert_eq!(registered["t"], "registered", "{registered}");
        Self(process)
    }

    /// The next envelope.
    fn next(&self) -> (String, String) {
        let line: Value = serde_json::from_str(&self.0.line()).unwrap();
        assert_eq!(line["t"], "deliver", "{line}");
        (line["id"].as_str().unwrap().to_owned(), line["envelope"].as_str().unwrap().to_owned())
    }

    fn is_quiet(&self) -> bool {
        self.0.pending_lines().is_empty()
    }
}

/// A call in an agent's name, made again until the Worker knows the agent.
fn call(home: &Home, agent: &str, method: &str, params: &Value) -> Value {
    let out = eventually(|| {
        let out = home.run("transit-agent", ["call", method, &params.to_string(), "--as", agent], b"");
        let said = text(&out.stderr);
        let is_early = ["invalid_caller", "rpc_failed"].iter().any(|code| said.contains(code));
        (!is_early).then_some(out)
    });
    assert!(out.status.success(), "{method}: {}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn post(home: &Home, agent: &str, body: &str, more: &[&str]) -> (Option<i32>, Value) {
    let args = [&["#ops", "--as", agent, "-m", body, "--json"], more].concat();
    let out = home.run("transit-send", args, b"");
    (out.status.code(), serde_json::from_slice(&out.stdout).unwrap_or(Value::Null))
}

fn in_ops(home: &Home, agents: &[&str]) {
    for agent in agents {
        call(home, agent, "join_room", &json!({ "room": "ops" }));
    }
}

#[test]
fn a_room_spans_hosts_and_its_sender_is_told_who_has_what() {
    let rig = Rig::start("http://127.0.0.1:1/");
    let far = Host::join(&rig, "far");
    let [amy, bob, eve] = ["amy", "bob", "eve"].map(|name| Agent::start(&rig.home, name));
    let cat = Agent::start(&far.home, "cat");
    call(&rig.home, "amy", "create_room", &json!({ "room": "ops" }));
    in_ops(&rig.home, &["bob"]);
    in_ops(&far.home, &["cat"]);

    call(&rig.home, "eve", "create_room", &json!({ "room": "den" }));
    let alone = |goal: &str| {
        let out =
            rig.home.run("transit-send", ["#den", "--as", "eve", "-m", "x", "--json", "--wait", goal], b"");
        let record: Value = serde_json::from_slice(&out.stdout).unwrap();
        (out.status.code(), record["outcome"].as_str().unwrap().to_owned(), text(&out.stderr).to_owned())
    };
    let (code, outcome, words) = alone("injected");
    assert_eq!((code, outcome.as_str()), (Some(75), "committed"), "nobody has it");
    assert!(words.contains("nobody else was in #den") && words.lines().count() == 2, "{words}");
    assert_eq!(alone("settled"), (Some(0), "committed".to_owned(), String::new()));

    let (code, told) = post(&rig.home, "amy", "hello", &["--wait", "injected"]);
    assert_eq!((code, &told["outcome"]), (Some(0), &json!("injected")), "{told}");
    for agent in [&bob, &cat] {
        let (id, envelope) = agent.next();
        assert_eq!(told["id"], id.as_str());
        assert!(
            envelope.contains("from=\"amy@demo\"")
                && envelope.contains("kind=\"room\" room=\"ops\" seq=\"1\"")
        );
    }
    let status = rig.home.run("transit-send", ["--status", told["id"].as_str().unwrap(), "--json"], b"");
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["outcome"], "injected", "{status}");

    let (code, told) = post(&far.home, "cat", "and back", &["--wait", "settled"]);
    assert_eq!((code, &told["outcome"]), (Some(0), &json!("injected")), "{told}");
    assert!(amy.next().1.contains("seq=\"2\"") && bob.next().1.contains("from=\"cat@far\""));

    // Who is not in it may not speak there, and there is only what there is.
    let (code, _) = post(&rig.home, "eve", "let me in", &[]);
    assert_eq!(code, Some(77));
    let nowhere = rig.home.run("transit-send", ["#none", "--as", "amy", "-m", "x"], b"");
    assert_eq!(nowhere.status.code(), Some(67), "{}", text(&nowhere.stderr));
    assert!(text(&nowhere.stderr).contains("no_route"));

    // The operator reaches everybody, and one that has left hears nothing more.
    call(&rig.home, "bob", "leave_room", &json!({ "room": "ops" }));
    rig.admin(&["room", "post", "ops", "-m", "closing"]);
    for agent in [&amy, &cat] {
        let (_, envelope) = agent.next();
        assert!(
            envelope.contains("from=\"operator@transit\"") && envelope.contains("to=\"#ops\""),
            "{envelope}"
        );
    }
    assert!(bob.is_quiet() && eve.is_quiet());
}

/// One line to transitd, and its answer.
fn ask(home: &Home, call: &Value) -> Value {
    let mut stream = UnixStream::connect(home.data().join("transit.sock")).unwrap();
    stream.write_all(format!("{call}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn a_daemon_makes_joins_and_leaves_rooms_for_its_agents() {
    let rig = Rig::start("http://127.0.0.1:1/");
    let _agents = ["amy", "bob"].map(|name| Agent::start(&rig.home, name));
    call(&rig.home, "bob", "list_rooms", &json!({}));
    call(&rig.home, "amy", "list_rooms", &json!({}));
    let room = |agent: &str, action: &str, more: Value| {
        let mut call = json!({ "op": "room", "action": action, "room": "#ops", "as_agent": agent });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ask(&rig.home, &call)
    };
    let made = room("amy", "create", json!({ "policy": "invite" }));
    assert_eq!(made, json!({ "ok": true, "result": { "room": "ops", "joined": true } }));
    assert_eq!(room("bob", "create", json!({}))["code"], "room_exists");
    assert_eq!(room("bob", "join", json!({}))["code"], "invite_only");
    assert_eq!(room("bob", "burn", json!({}))["code"], "bad_request");
    assert_eq!(room("eve", "join", json!({}))["code"], "agent_not_found");
    assert_eq!(room("amy", "leave", json!({}))["result"], json!({ "room": "ops", "left": true }));
    assert_eq!(rig.admin(&["room", "show", "ops"])["members"], json!([]));
}

#[test]
fn a_worker_that_is_killed_again_and_again_loses_nothing_and_numbers_everything_once() {
    const POSTS: u64 = 24;
    let mut rig = Rig::start("http://127.0.0.1:1/");
    let far = Host::join(&rig, "far");
    let _amy = Agent::start(&rig.home, "amy");
    let members = [Agent::start(&rig.home, "bob"), Agent::start(&far.home, "cat")];
    call(&rig.home, "amy", "create_room", &json!({ "room": "ops" }));
    in_ops(&rig.home, &["bob"]);
    in_ops(&far.home, &["cat"]);
    for n in 1..=POSTS {
        let (code, told) = post(&rig.home, "amy", &format!("post {n}"), &["--wait", "injected=0s"]);
        assert!(matches!(code, Some(0 | 75)), "{told}");
        if n % 6 == 0 {
            rig.kill_worker();
            rig.start_worker();
            assert!(far.home.run("transitd", ["kick"], b"").status.success());
        }
    }
    for member in &members {
        let mut told = BTreeMap::new();
        while told.len() < usize::try_from(POSTS).unwrap() {
            let (id, envelope) = member.next();
            let number: u64 =
                envelope.split("seq=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
            assert_eq!(told.insert(number, id), None, "one envelope a number");
        }
        let numbers: Vec<u64> = told.into_keys().collect();
        assert_eq!(numbers, (1..=POSTS).collect::<Vec<_>>());
        assert!(member.is_quiet());
    }
}
