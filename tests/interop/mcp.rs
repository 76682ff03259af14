//! `transit-mcp` and the official clients: the Python and the two TypeScript ones, and the Inspector. Each lists and
//! calls every tool, through a real daemon and Worker.
//!
//! They are packages, pinned in `tests/interop/mcp/`, and are looked for in the directory that `TRANSIT_MCP_CLIENTS`
//! names, else in `target/mcp-clients`, where `.ci/run` puts them. The Inspector wants a newer Node than Debian's, which
//! comes with the coding agents (`harness`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness;
use crate::rig::Rig;
use crate::support::{Sink, eventually, programs, text};

const TOOLS: [&str; 11] = [
    "send_message",
    "read_message",
    "chat_reply",
    "mark_handled",
    "list_agents",
    "list_rooms",
    "create_room",
    "join_room",
    "leave_room",
    "whoami",
    "claim_name",
];
/// Calls that a client makes at the same time.
const PARALLEL: u64 = 300;

/// A file of the installed clients.
fn installed(path: &str) -> PathBuf {
    let dir = std::env::var_os("TRANSIT_MCP_CLIENTS").map(PathBuf::from);
    let path = dir.unwrap_or_else(|| programs().parent().unwrap().join("mcp-clients")).join(path);
    let how = "copy tests/interop/mcp/* to DIR, npm ci --prefix DIR, python3 -m venv DIR/venv, \
               DIR/venv/bin/pip install -r DIR/requirements.txt, then TRANSIT_MCP_CLIENTS=DIR";
    assert!(path.exists(), "{} is missing: {how}", path.display());
    path
}

/// A Node that all of them run on.
fn node(rig: &Rig) -> Command {
    rig.home.foreign(harness::package("node/bin/node"))
}

/// A system with an agent bob, two events for it, and a sink for its reply.
struct Scene {
    rig: Rig,
    sink: Sink,
    _bob: crate::rig::Agent,
    deliveries: [String; 2],
}

impl Scene {
    fn new() -> Self {
        let sink = Sink::start(&[200]);
        let rig = Rig::start(&format!("http://{}/reply/", sink.at));
        let bob = rig.listen("bob");
        // Until the Worker knows bob.
        rig.call("bob", "list_rooms", &json!({}));
        let known = || rig.call("bob", "list_agents", &json!({})).contains("bob@demo").then_some(());
        eventually(known);
        let deliver =
            |key| rig.post(key, "the build broke").json()["delivery_id"].as_str().unwrap().to_owned();
        let deliveries = ["build-1", "build-2"].map(deliver);
        Self { rig, sink, _bob: bob, deliveries }
    }

    /// Every tool once, and what its result begins with.
    fn calls(&self) -> Vec<(&'static str, Value, String)> {
        let [first, second] = &self.deliveries;
        let said = |text: &str| text.to_owned();
        vec![
            ("whoami", json!({}), said("bob@demo (connected: true)")),
            ("create_room", json!({"name": "ops", "policy": "open"}), said("Created and joined room: #ops")),
            ("leave_room", json!({"room": "#ops"}), said("Left room: #ops")),
            ("join_room", json!({"room": "ops"}), said("Joined room: #ops")),
            ("list_rooms", json!({}), said("[\n")),
            ("list_agents", json!({"host": "demo"}), said("[\n")),
            ("send_message", json!({"to": "#ops", "message": "größe 7 ≠ 8"}), said("Message tx_")),
            ("read_message", json!({ "id": first }), format!("<transit_full id=\"{first}\" ")),
            (
                "chat_reply",
                json!({"delivery_id": first, "conversation_id": "main", "message": "on it"}),
                said("{\"duplicate\":false"),
            ),
            ("mark_handled", json!({ "delivery_id": second }), said("{\"duplicate\":false}")),
            ("claim_name", json!({"name": "robert"}), said("Claimed name: robert@demo")),
        ]
    }

    /// Has a client's script make the calls, and looks at what the client made of them.
    fn run(&self, mut script: Command) {
        let calls = self.calls();
        let asked = json!({
            "command": programs().join("transit-mcp"), "args": ["--as", "bob"], "parallel": PARALLEL,
            "calls": calls.iter().map(|(tool, given, _)| json!([tool, given])).collect::<Vec<_>>(),
        });
        let ran = script.arg(asked.to_string()).stdin(Stdio::null()).output().unwrap();
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(told["tools"], json!(TOOLS));
        for ((tool, _, begins), result) in calls.iter().zip(told["results"].as_array().unwrap()) {
            check(tool, begins, result);
        }
        assert_eq!(told["parallel"], PARALLEL);
        self.is_answered();
    }

    fn is_answered(&self) {
        assert_eq!(self.sink.next().json()["message"], "on it");
    }
}

fn check(tool: &str, begins: &str, result: &Value) {
    let said = result["content"][0]["text"].as_str();
    assert!(said.is_some_and(|said| said.starts_with(begins)), "{tool}: {result}");
    assert!(result["isError"] != true, "{tool}: {result}");
}

fn scripts() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/mcp"))
}

#[test]
fn the_python_client_calls_every_tool() {
    let scene = Scene::new();
    let mut script = scene.rig.home.foreign(installed("venv/bin/python"));
    script.arg(scripts().join("client.py"));
    scene.run(script);
}

/// A script is looked for its packages where it lies.
fn typescript(which: &str) {
    let scene = Scene::new();
    let mut script = node(&scene.rig);
    script.arg(installed("client.mjs")).arg(which);
    scene.run(script);
}

#[test]
fn the_typescript_sdk_calls_every_tool() {
    typescript("sdk");
}

#[test]
fn the_newer_typescript_client_calls_every_tool() {
    typescript("client");
}

#[test]
fn the_inspector_calls_every_tool() {
    let scene = Scene::new();
    let inspect = |more: &[String]| -> Value {
        let mut inspector = node(&scene.rig);
        inspector.arg(installed("node_modules/.bin/mcp-inspector")).arg("--cli");
        // It hands on nothing but the plainest variables.
        for (name, value) in [
            ("TRANSIT_DATA_DIR", scene.rig.home.data()),
            ("TRANSIT_CONFIG", scene.rig.home.path("config.json")),
        ] {
            inspector.arg("-e").arg(format!("{name}={}", value.display()));
        }
        inspector.arg(programs().join("transit-mcp")).args(["--as", "bob"]).args(more);
        let ran = inspector.stdin(Stdio::null()).output().unwrap();
        assert!(ran.status.success(), "{more:?}: {}{}", text(&ran.stdout), text(&ran.stderr));
        serde_json::from_slice(&ran.stdout).unwrap()
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let listed = inspect(&words(&["--method", "tools/list"]));
    let names: Vec<&Value> = listed["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(json!(names), json!(TOOLS));
    for (tool, given, begins) in scene.calls() {
        let mut call = words(&["--method", "tools/call", "--tool-name", tool]);
        for (name, value) in given.as_object().unwrap() {
            call.push("--tool-arg".to_owned());
            call.push(format!("{name}={}", value.as_str().unwrap()));
        }
        check(tool, &begins, &inspect(&call));
    }
    scene.is_answered();
}
