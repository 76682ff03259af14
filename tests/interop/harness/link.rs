//! The adapters in JavaScript alone in a Node.js, at the worst moments: what they share, which is a connection, and what
//! OpenCode's does while it is let go of.

use std::path::Path;

use serde_json::json;

use super::{Desk, Seat};
use crate::support::{Background, Home, text};

/// Runs what comes on stdin, a line at a time, and prints what each line is. A timer is told and never runs out; what
/// is handed over stays in hand for as long as the session is open.
const SCRIPT: &str = r#"
globalThis.setTimeout = () => (console.log("timer"), { unref() {} });
const { Link, Refused } = await import(process.env.LINK);
const { createInterface } = await import("node:readline");
const tick = () => new Promise((resolve) => setImmediate(resolve));
const link = new Link({
  register: () => ({ harness: "pi", session_id: "s-1", cwd: "/", title: "" }),
  deliver: async (id) => {
    console.log(id);
    while (link.isOpen) await tick();
    console.log("over");
    throw new Refused("session_gone");
  },
});
const until = async (is) => { while (!is()) await tick(); return "it is so"; };
for await (const line of createInterface({ input: process.stdin })) console.log(await eval(line));
"#;

/// A link that finds its daemon's socket once the gate is open.
fn start(home: &Home) -> Background {
    let script = home.file("script.mjs", SCRIPT);
    std::fs::create_dir(home.path("bin")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, home.path("gate"), mode).unwrap();
    let fake = format!(
        "#!/bin/sh\nread go <'{}'\necho '{}'\n",
        gate(home),
        home.data().join("agent.sock").display()
    );
    let fake = home.file("bin/transit-agent", fake);
    std::fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let path = format!("{}:{}", home.path("bin").display(), std::env::var("PATH").unwrap());
    let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("adapters/link.js");
    let mut node = home.foreign("node");
    Background::start(node.arg(script).env("LINK", link).env("PATH", path))
}

fn gate(home: &Home) -> String {
    home.path("gate").display().to_string()
}

fn open(home: &Home) {
    std::fs::write(gate(home), "go\n").unwrap();
}

/// Has a line run, and answers what it is.
fn run(node: &mut Background, line: &str) -> String {
    node.write(format!("{line}\n"));
    node.line()
}

fn seat(home: &Home, desk: &Desk, node: &mut Background) -> Seat {
    open(home);
    let seat = desk.seat();
    assert_eq!(run(node, "until(() => link.capability)"), "it is so");
    seat
}

#[test]
fn who_works_again_in_a_session_that_was_open_elsewhere_connects_once() {
    let home = Home::new();
    let desk = Desk::open(&home);
    let mut node = start(&home);
    assert_eq!(run(&mut node, "link.start(), 1"), "1");
    let mut first = seat(&home, &desk, &mut node);
    first.say(&json!({ "t": "register_err", "code": "replaced", "error": "elsewhere" }));
    assert_eq!(run(&mut node, "until(() => link.isReplaced)"), "it is so");
    // The new connection is on its way when the end of the old one is heard.
    assert_eq!(run(&mut node, "link.status(\"working\"), 1"), "1");
    drop(first);
    assert_eq!(run(&mut node, "until(() => !link.capability)"), "it is so");
    let second = seat(&home, &desk, &mut node);
    assert_eq!(second.register["status"], "working");
    assert_eq!(run(&mut node, "\"done\""), "done", "no other attempt was waiting");
    drop(second);
    assert_eq!(node.line(), "timer", "this one is to be replaced");
}

#[test]
fn what_is_in_hand_is_let_go_when_the_session_is_open_elsewhere() {
    let home = Home::new();
    let desk = Desk::open(&home);
    let mut node = start(&home);
    assert_eq!(run(&mut node, "link.start(), 1"), "1");
    let mut seat = seat(&home, &desk, &mut node);
    seat.say(&json!({ "t": "deliver", "id": "tx_000000000001", "envelope": "one" }));
    seat.say(&json!({ "t": "deliver", "id": "tx_000000000002", "envelope": "two" }));
    assert_eq!(node.line(), "tx_000000000001");
    seat.say(&json!({ "t": "register_err", "code": "replaced", "error": "elsewhere" }));
    assert_eq!(node.line(), "over", "whoever has the session gets it too");
    assert_eq!(run(&mut node, "link.queue.then(() => 1)"), "1", "and the next one is not begun");
}

/// OpenCode's plugin in an OpenCode that answers what it has of a session when it is told to. What the plugin starts is
/// told.
const PLUGIN: &str = r#"
import child from "node:child_process";
import { syncBuiltinESMExports } from "node:module";
child.execFile = (program, args, options, done) => {
  console.log(args.join(" "));
  done(new Error("there is none"), "", "");
  return { stdin: { on() {}, end() {} } };
};
syncBuiltinESMExports();
globalThis.setTimeout = () => ({ unref() {} });
const { Transit } = await import(process.env.LINK);
let answer;
const asked = new Promise((resolve) => (answer = resolve));
const tui = { showToast: async () => {} };
const plugin = await Transit({ client: { session: { get: () => asked }, tui }, directory: "/" });
const properties = { sessionID: "s-1", status: { type: "busy" } };
const told = plugin.event({ event: { type: "session.status", properties } });
if (process.env.DISPOSED) await plugin.dispose();
answer({ data: { id: "s-1", title: "work" } });
await told;
console.log("over");
"#;

#[test]
fn a_session_that_was_looked_up_while_the_plugin_is_let_go_of_is_not_its_own_any_more() {
    let home = Home::new();
    let script = home.file("script.mjs", PLUGIN);
    let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("adapters/opencode/transit.js");
    let run = |disposed: &str| {
        let out =
            home.foreign("node").arg(&script).env("LINK", &link).env("DISPOSED", disposed).output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout).to_owned()
    };
    assert_eq!(run(""), "--tools\nsocket\nover\n", "it connects for one that it has found");
    assert_eq!(run("1"), "--tools\nover\n");
}
