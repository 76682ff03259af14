//! The real Pi with its adapter: in rpc mode, in a terminal, and as an agent of a whole system.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::{
    BODY, Desk, Provider, Terminal, bob_answers, bob_has_answered, connected, event, install, message,
    package,
};
use crate::rig::Rig;
use crate::support::{Background, Home, Sink, eventually};

/// Where Pi keeps its files.
fn dir(home: &Home) -> PathBuf {
    home.path("pi")
}

/// Pi with its adapter and a model, in this home.
fn prepare(home: &Home, provider: &Provider) {
    std::fs::create_dir_all(dir(home)).unwrap();
    std::fs::create_dir_all(home.path("work")).unwrap();
    let model = json!({
        "baseUrl": format!("{}/v1", provider.url), "apiKey": "none", "api": "openai-completions",
        "models": [{ "id": "fake-1" }],
    });
    home.file("pi/models.json", json!({ "providers": { "fake": model } }).to_string());
    let mut command = home.command("transit-agent");
    command.env("PI_CODING_AGENT_DIR", dir(home));
    install(command, "pi");
}

fn pi(home: &Home, args: &[&str]) -> Command {
    let mut command = home.foreign(package("node/bin/node"));
    command.arg(package("@earendil-works/pi-coding-agent/dist/bundle/cli.js"));
    command.args(["--provider", "fake", "--model", "fake-1"]).args(args).current_dir(home.path("work"));
    command.env("PI_CODING_AGENT_DIR", dir(home)).env("PI_OFFLINE", "1").env("PI_TELEMETRY", "0");
    command
}

fn rpc(home: &Home, args: &[&str]) -> Background {
    Background::start(&mut pi(home, &[&["--mode", "rpc"], args].concat()))
}

/// The file of a session.
fn file_of(home: &Home, session_id: &str) -> Option<PathBuf> {
    let dirs = std::fs::read_dir(dir(home).join("sessions")).ok()?;
    let files = dirs.flat_map(|dir| std::fs::read_dir(dir.unwrap().path()).unwrap());
    let end = format!("_{session_id}.jsonl");
    files.map(|file| file.unwrap().path()).find(|path| path.to_str().unwrap().ends_with(&end))
}

/// What users have said in a session, as its file has it now.
fn said(home: &Home, session_id: &str) -> Vec<String> {
    let Some(path) = file_of(home, session_id) else { return Vec::new() };
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let users = lines.filter(|line| line["message"]["role"] == "user");
    users.map(|line| line["message"]["content"][0]["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn pi_has_an_envelope_byte_for_byte_when_it_is_acknowledged_and_has_it_once() {
    let home = Home::new();
    let provider = Provider::start(&home);
    prepare(&home, &provider);
    let desk = Desk::open(&home);
    let mut pi = rpc(&home, &[]);
    let mut seat = desk.seat();
    let session = seat.session_id();
    assert_eq!(seat.register["harness"], "pi");
    assert_eq!(seat.register["pid"], pi.pid());
    assert_eq!(seat.register["cwd"], home.path("work").to_str().unwrap());

    let first = message("tx_000000000001", BODY);
    seat.takes("tx_000000000001", &first);
    assert_eq!(said(&home, &session), std::slice::from_ref(&first), "at the moment of the ack");
    seat.takes("tx_000000000001", &first);

    // The daemon has gone away before it could keep the ack, and asks again.
    drop(seat);
    let mut seat = desk.seat();
    assert_eq!(seat.session_id(), session);
    seat.takes("tx_000000000001", &first);

    // While Pi is at work it is left alone, and messages keep their order.
    provider.hold();
    let (second, third) = (message("tx_000000000002", "two"), message("tx_000000000003", "three"));
    seat.takes("tx_000000000002", &second);
    seat.deliver("tx_000000000003", &third);
    assert!(!said(&home, &session).contains(&third));
    provider.go_on();
    seat.acked("tx_000000000003");
    assert_eq!(said(&home, &session), [first.clone(), second, third], "at the moment of the ack");
    seat.does("idle");

    // The same session in another process.
    pi.signal(rustix::process::Signal::KILL);
    pi.wait();
    drop(seat);
    let path = file_of(&home, &session).unwrap();
    let mut pi = rpc(&home, &["--session", path.to_str().unwrap()]);
    let mut seat = desk.seat();
    assert_eq!(seat.session_id(), session);
    seat.takes("tx_000000000001", &first);
    assert_eq!(said(&home, &session).iter().filter(|text| **text == first).count(), 1, "shown once in all");

    // A copy of the session is another agent, which has read what the session had.
    pi.write("{\"id\":\"0\",\"type\":\"clone\"}\n");
    let mut seat = desk.seat();
    let copy = seat.session_id();
    assert_ne!(copy, session);
    seat.takes("tx_000000000001", &first);
    assert_eq!(said(&home, &copy).iter().filter(|text| **text == first).count(), 1);

    // Another session in the same process.
    pi.write("{\"id\":\"1\",\"type\":\"new_session\"}\n");
    let mut seat = desk.seat();
    assert_ne!(seat.session_id(), session);
    seat.takes("tx_000000000001", &first);
    assert_eq!(said(&home, &seat.session_id()), [first]);
}

#[test]
fn what_a_person_types_into_pi_stays_while_an_envelope_comes() {
    let home = Home::new();
    let provider = Provider::start(&home);
    prepare(&home, &provider);
    let desk = Desk::open(&home);
    let terminal = Terminal::start(&home, &pi(&home, &[]));
    let mut seat = desk.seat();
    terminal.types("half a dra");
    let envelope = message("tx_000000000001", "hello");
    seat.takes("tx_000000000001", &envelope);
    seat.does("idle");
    terminal.types("ft of mine");
    terminal.shows("half a draft of mine");
    assert_eq!(said(&home, &seat.session_id()), [envelope], "{}", terminal.screen());
    terminal.key("Enter");
    eventually(|| said(&home, &seat.session_id()).contains(&"half a draft of mine".to_owned()).then_some(()));
}

#[test]
fn pi_has_a_reminder_once_and_says_when_it_asks_its_user() {
    let home = Home::new();
    let provider = Provider::start(&home);
    prepare(&home, &provider);
    let ask = r#"export default (pi) => pi.registerCommand("ask", {
        description: "asks", handler: async (_args, ctx) => { await ctx.ui.confirm("A question", "So?"); },
    });"#;
    home.file("pi/extensions/ask.js", ask);
    let desk = Desk::open(&home);
    let mut pi = rpc(&home, &[]);
    let mut seat = desk.seat();
    let id = "dlv_000000000001";
    let (first, again) = (event(id, 0), event(id, 1));
    for envelope in [&first, &first, &again, &again] {
        seat.takes(id, envelope);
    }
    seat.does("idle");
    assert_eq!(said(&home, &seat.session_id()), [first, again]);

    pi.write("{\"id\":\"1\",\"type\":\"prompt\",\"message\":\"/ask\"}\n");
    seat.does("blocked");
    let asked = eventually(|| {
        let lines = pi.pending_lines();
        let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.into_iter().find(|line| line["method"] == "confirm")
    });
    let answer = json!({ "type": "extension_ui_response", "id": asked["id"], "confirmed": true });
    pi.write(format!("{answer}\n"));
    seat.does("idle");
}

#[test]
fn pi_answers_an_event_through_transit_and_keeps_its_address_and_its_mail() {
    let sink = Sink::start(&[200]);
    let mut rig = Rig::start(&format!("http://{}/reply/", sink.at));
    let provider = Provider::start(&rig.home);
    prepare(&rig.home, &provider);
    let mut first = pi(&rig.home, &["--mode", "rpc"]);
    let mut running = Background::start(first.env("TRANSIT_AGENT_NAME", "bob"));
    assert_eq!(rig.post("build-1", "the build is red").status(), 202);
    let posted = bob_has_answered(&sink, "build-1");
    assert!(posted.json()["message"].as_str().unwrap().starts_with("the model answers dlv_"));
    assert!(rig.verify_callback(&posted).status.success());

    let mut amy = rig.listen("amy");
    bob_answers(&rig, &mut amy);

    // The daemon goes away and comes back; the agent is there again by itself.
    rig.kill_daemon();
    assert_eq!(rig.post("build-2", "while the daemon is away").status(), 202);
    rig.start_daemon();
    bob_has_answered(&sink, "build-2");

    // Pi goes away and its session is resumed: under the same name, though nothing tells it.
    let session = connected(&rig.home, "bob")["session_id"].as_str().unwrap().to_owned();
    running.signal(rustix::process::Signal::KILL);
    running.wait();
    assert_eq!(rig.post("build-3", "while Pi is away").status(), 202);
    let path = file_of(&rig.home, &session).unwrap();
    let _running = rpc(&rig.home, &["--session", path.to_str().unwrap()]);
    bob_has_answered(&sink, "build-3");
    assert_eq!(connected(&rig.home, "bob")["address"], "bob@demo");
    bob_answers(&rig, &mut amy);
    let events = said(&rig.home, &session).iter().filter(|text| text.contains(" id=\"dlv_")).count();
    assert_eq!(events, 3, "each was shown once");
}
