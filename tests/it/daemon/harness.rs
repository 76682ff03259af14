//! An adapter that is a child of its harness: whose session it registers, and when that is over.

use std::os::unix::process::CommandExt;

use serde_json::json;

use super::world::{Adapter, outcome, registration, start, status_until};
use crate::support::{Background, Home, eventually};

/// A shell that stands for a harness. Its child, through which a test speaks, is the adapter; the shell then calls
/// `whoami` for every line of its stdin.
const HARNESS: &str = "transit-wire-dump --socket data/agent.sock --proxy-socket adapter.sock >/dev/null & \
    echo $! >adapter.pid; while read -r _; do transit-agent call whoami; done";

fn harness(home: &Home) -> Background {
    let mut command = home.foreign("sh");
    // The adapter outlives its harness here, so that it is not the end of its socket that tells.
    let harness = Background::start(command.args(["-c", HARNESS]).process_group(0));
    eventually(|| home.path("adapter.sock").exists().then_some(()));
    harness
}

/// Ends what the killed shell has left.
fn end_adapter(home: &Home) {
    let pid = std::fs::read_to_string(home.path("adapter.pid")).unwrap().trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

#[test]
fn a_session_belongs_to_the_harness_that_its_adapter_is_a_child_of_and_ends_with_it() {
    let home = Home::new();
    let _daemon = start(&home);
    let mut harness = harness(&home);
    let mut frame = registration("s1", Some("jess"));
    frame["pid"] = harness.pid().into();
    let mut adapter = Adapter::through(&home.path("adapter.sock"));
    adapter.send(&frame);
    assert_eq!(adapter.next().unwrap()["agent"], "jess");
    let status = status_until(&home, |status| status["agents"] != json!([]));
    assert_eq!(status["agents"][0]["pid"], harness.pid());
    harness.write("\n");
    assert!(harness.line().contains("jess@"), "what else the harness starts is in the session too");
    let (code, ..) = outcome(home.command("transit-agent").args(["call", "whoami"]));
    assert_eq!(code, 77, "nobody else is");

    harness.signal(rustix::process::Signal::KILL);
    harness.wait();
    assert_eq!(adapter.next(), None, "the adapter is told by the end of its connection");
    status_until(&home, |status| status["agents"] == json!([]));
    // The pid is nobody's any more.
    let mut again = Adapter::through(&home.path("adapter.sock"));
    again.send(&frame);
    assert_eq!(again.next().unwrap()["code"], "pid_mismatch");
    end_adapter(&home);
}

#[test]
fn nobody_registers_for_a_process_that_it_does_not_descend_from() {
    let home = Home::new();
    let _daemon = start(&home);
    let mut harness = harness(&home);
    let mut other = Background::start(&mut home.foreign("cat"));
    for pid in [other.pid(), 1, 0, u32::MAX] {
        let mut frame = registration("s1", Some("jess"));
        frame["pid"] = pid.into();
        let mut adapter = Adapter::through(&home.path("adapter.sock"));
        adapter.send(&frame);
        assert_eq!(adapter.next().unwrap()["code"], "pid_mismatch", "{pid}");
    }
    // A child does not lend its name upwards: the harness registers for itself, not for its adapter.
    let mut frame = registration("s1", Some("jess"));
    frame["pid"] = harness.pid().into();
    let mut outside = Adapter::connect(&home);
    outside.send(&frame);
    assert_eq!(outside.next().unwrap()["code"], "pid_mismatch");
    end_adapter(&home);
    harness.close_stdin();
    assert!(harness.wait().success());
    other.wait();
}
