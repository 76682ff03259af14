//! The real OpenCode with its adapter: as a server with several sessions, in a terminal, and as an agent of a whole
//! system.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::{
    BODY, Desk, Provider, SLOW, Terminal, bob_answers, bob_has_answered, connected, event, install, message,
    package,
};
use crate::rig::Rig;
use crate::support::{Background, Home, Sink, eventually_within, http, request};

/// Where OpenCode looks for what is ours.
fn prepare(home: &Home, provider: &Provider) {
    let dir = home.path("config/opencode");
    std::fs::create_dir_all(dir.join("node_modules")).unwrap();
    std::fs::create_dir_all(home.path("work")).unwrap();
    let model = json!({ "tool_call": true, "limit": { "context": 100_000, "output": 1_000 } });
    let fake = json!({
        "npm": "@ai-sdk/openai-compatible", "models": { "fake-1": model },
        "options": { "baseURL": format!("{}/v1", provider.url), "apiKey": "none" },
    });
    let config = json!({
        "provider": { "fake": fake }, "model": "fake/fake-1", "small_model": "fake/fake-1", "autoupdate": false,
        "share": "disabled", "permission": { "bash": "ask" },
    });
    home.file("config/opencode/opencode.json", config.to_string());
    // OpenCode fetches a library for plugins from npm; this one uses none, and the file says that it is there.
    let lock = json!({ "packages": { "": { "dependencies": { "@opencode-ai/plugin": "*" } } } });
    home.file("config/opencode/package-lock.json", lock.to_string());
    let mut command = home.command("transit-agent");
    command.env("XDG_CONFIG_HOME", home.path("config"));
    install(command, "opencode");
}

fn opencode(home: &Home, args: &[&str]) -> Command {
    let mut command = home.foreign(package("opencode-ai/bin/opencode.exe"));
    command.args(args).current_dir(home.path("work"));
    for name in ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS"] {
        command.env(format!("OPENCODE_DISABLE_{name}"), "1");
    }
    for name in ["CONFIG", "DATA", "STATE", "CACHE"] {
        command.env(format!("XDG_{name}_HOME"), home.path(&name.to_lowercase()));
    }
    command
}

/// `opencode serve`, and how to talk to it.
struct Server {
    process: Background,
    at: SocketAddr,
    work: PathBuf,
}

impl Server {
    fn start(home: &Home, command: &mut Command) -> Self {
        let process = Background::start(command);
        let at = eventually_within(SLOW, || {
            let lines = process.pending_lines();
            lines.iter().find_map(|line| Some(line.split_once("http://")?.1.trim().parse().unwrap()))
        });
        Self { process, at, work: home.path("work") }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("{path}?directory={}", self.work.display());
        let fields = [("Content-Type", "application/json")];
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let answer = http(self.at, &request(method, &path, &fields, body.as_bytes()));
        let shown = String::from_utf8_lossy(&answer.body);
        assert!(matches!(answer.status(), 200 | 204), "{method} {path}: {shown}");
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    }

    /// Makes a session, of a sub-agent if it has a parent.
    fn session(&self, parent: Option<&str>) -> String {
        let mut body = json!({ "title": "a test" });
        if let Some(parent) = parent {
            body["parentID"] = parent.into();
        }
        let made = self.ask("POST", "/session", &body);
        made["id"].as_str().unwrap().to_owned()
    }

    /// What users have said in a session.
    fn said(&self, session: &str) -> Vec<String> {
        let messages = self.ask("GET", &format!("/session/{session}/message"), &Value::Null);
        let users = messages.as_array().unwrap().iter().filter(|message| message["info"]["role"] == "user");
        users.map(|message| message["parts"][0]["text"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn opencode_has_an_envelope_byte_for_byte_when_it_is_acknowledged_and_has_it_once() {
    let home = Home::new();
    let provider = Provider::start(&home);
    prepare(&home, &provider);
    let desk = Desk::open(&home);
    let serve = ["serve", "--port", "0"];
    let mut server = Server::start(&home, &mut opencode(&home, &serve));
    let session = server.session(None);
    let mut seat = desk.seat();
    assert_eq!((seat.session_id(), &seat.register["harness"]), (session.clone(), &json!("opencode")));
    assert_eq!(seat.register["pid"], server.process.pid());

    let first = message("tx_000000000001", BODY);
    seat.takes("tx_000000000001", &first);
    assert_eq!(server.said(&session), std::slice::from_ref(&first), "at the moment of the ack");
    seat.takes("tx_000000000001", &first);

    // The daemon has gone away before it could keep the ack, and asks again.
    drop(seat);
    let mut seat = desk.seat();
    seat.takes("tx_000000000001", &first);

    // A session that is at work takes a message into what it does.
    provider.hold();
    let (second, third) = (message("tx_000000000002", "two"), message("tx_000000000003", "three"));
    seat.takes("tx_000000000002", &second);
    seat.does("working");
    seat.takes("tx_000000000003", &third);
    provider.go_on();
    seat.does("idle");
    assert_eq!(server.said(&session), [first.clone(), second, third]);

    // Another session has a connection of its own, one of a sub-agent has none.
    server.session(Some(&session));
    let other = server.session(None);
    let mut beside = desk.seat();
    assert_eq!(beside.session_id(), other);
    beside.takes("tx_000000000001", &first);
    assert_eq!(server.said(&other), std::slice::from_ref(&first));

    // So has a copy of the session, which has read what the session had.
    let copy = server.ask("POST", &format!("/session/{session}/fork"), &json!({}));
    let mut forked = desk.seat();
    assert_eq!(copy["id"], forked.session_id());
    forked.takes("tx_000000000001", &first);
    assert_eq!(server.said(&forked.session_id()).iter().filter(|text| **text == first).count(), 1);

    // The same session in another process tells nothing of itself until it is touched.
    server.process.signal(rustix::process::Signal::KILL);
    server.process.wait();
    drop((seat, beside, forked));
    server = Server::start(&home, &mut opencode(&home, &serve));
    server.ask("PATCH", &format!("/session/{session}"), &json!({ "title": "resumed" }));
    let mut seat = desk.seat();
    assert_eq!(seat.session_id(), session);
    assert_eq!(seat.register["title"], "resumed");
    seat.takes("tx_000000000001", &first);
    assert_eq!(server.said(&session).iter().filter(|text| **text == first).count(), 1, "shown once in all");
}

#[test]
fn opencode_has_a_reminder_once_and_says_when_it_asks_its_user() {
    let home = Home::new();
    let provider = Provider::start(&home);
    prepare(&home, &provider);
    let desk = Desk::open(&home);
    let server = Server::start(&home, &mut opencode(&home, &["serve", "--port", "0"]));
    let session = server.session(None);
    let mut seat = desk.seat();
    let id = "dlv_000000000001";
    let (first, again) = (event(id, 0), event(id, 1));
    for envelope in [&first, &first, &again, &again] {
        seat.takes(id, envelope);
    }
    seat.does("idle");
    assert_eq!(server.said(&session), [first.clone(), again.clone()]);

    let prompt = json!({ "parts": [{ "type": "text", "text": "run echo it" }] });
    server.ask("POST", &format!("/session/{session}/prompt_async"), &prompt);
    seat.does("blocked");
    // What comes meanwhile is kept, and answers no question.
    let envelope = message("tx_000000000001", "hello");
    seat.takes("tx_000000000001", &envelope);
    assert_eq!(server.said(&session).last(), Some(&envelope));
    let asked = server.ask("GET", "/permission", &Value::Null);
    assert_eq!(asked[0]["patterns"], json!(["echo it"]), "still to be answered");
    let reply = format!("/permission/{}/reply", asked[0]["id"].as_str().unwrap());
    server.ask("POST", &reply, &json!({ "reply": "once" }));
    seat.does("idle");
}

#[test]
fn what_opencode_begins_and_ends_before_it_has_its_place_is_told_then() {
    let home = Home::new();
    let provider = Provider::start(&home);
    prepare(&home, &provider);
    let desk = Desk::open(&home);
    let server = Server::start(&home, &mut opencode(&home, &["serve", "--port", "0"]));
    let session = server.session(None);
    let mut seat = desk.caller();
    assert_eq!(seat.register["status"], "idle");
    provider.hold();
    let prompt = json!({ "parts": [{ "type": "text", "text": "good morning" }] });
    server.ask("POST", &format!("/session/{session}/prompt_async"), &prompt);
    let is_at_work = || server.ask("GET", "/session/status", &Value::Null)[&session]["type"] == "busy";
    eventually_within(SLOW, || is_at_work().then_some(()));
    seat.admit();
    seat.does("working");

    drop(seat);
    let mut seat = desk.caller();
    assert_eq!(seat.register["status"], "working");
    provider.go_on();
    eventually_within(SLOW, || (!is_at_work()).then_some(()));
    seat.admit();
    seat.does("idle");
}

#[test]
fn what_a_person_types_into_opencode_stays_while_an_envelope_comes() {
    let home = Home::new();
    let provider = Provider::start(&home);
    prepare(&home, &provider);
    let desk = Desk::open(&home);
    let terminal = Terminal::start(&home, &opencode(&home, &[]));
    terminal.shows("fake-1");
    terminal.types("good morning");
    terminal.key("Enter");
    let mut seat = desk.seat();
    seat.does("idle");
    terminal.types("half a dra");
    let envelope = message("tx_000000000001", "hello");
    seat.takes("tx_000000000001", &envelope);
    seat.does("idle");
    terminal.shows("id=\"tx_000000000001\"");
    terminal.types("ft of mine");
    terminal.shows("half a draft of mine");
}

#[test]
fn opencode_answers_an_event_through_transit_and_keeps_its_address_and_its_mail() {
    let sink = Sink::start(&[200]);
    let mut rig = Rig::start(&format!("http://{}/reply/", sink.at));
    let provider = Provider::start(&rig.home);
    prepare(&rig.home, &provider);
    let mut serve = opencode(&rig.home, &["serve", "--port", "0"]);
    let mut server = Server::start(&rig.home, serve.env("TRANSIT_AGENT_NAME", "bob"));
    let session = server.session(None);
    assert_eq!(connected(&rig.home, "bob")["session_id"], json!(session));
    // A second session in the process, which must not be taken for the one that answers.
    let other = server.session(None);
    assert_eq!(rig.post("build-1", "the build is red").status(), 202);
    let posted = bob_has_answered(&sink, "build-1");
    assert!(posted.json()["message"].as_str().unwrap().starts_with("the model answers dlv_"));
    assert_eq!(server.said(&other), [""; 0]);
    let mut amy = rig.listen("amy");
    bob_answers(&rig, &mut amy);

    rig.kill_daemon();
    assert_eq!(rig.post("build-2", "while the daemon is away").status(), 202);
    rig.start_daemon();
    bob_has_answered(&sink, "build-2");

    server.process.signal(rustix::process::Signal::KILL);
    server.process.wait();
    assert_eq!(rig.post("build-3", "while OpenCode is away").status(), 202);
    server = Server::start(&rig.home, &mut opencode(&rig.home, &["serve", "--port", "0"]));
    server.ask("PATCH", &format!("/session/{session}"), &json!({ "title": "resumed" }));
    bob_has_answered(&sink, "build-3");
    assert_eq!(connected(&rig.home, "bob")["address"], "bob@demo");
    bob_answers(&rig, &mut amy);
    let events = server.said(&session).iter().filter(|text| text.contains(" id=\"dlv_")).count();
    assert_eq!(events, 3, "each was shown once");
}
