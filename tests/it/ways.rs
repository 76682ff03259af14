//! What the commands say besides what went wrong: the way out, and what somebody is about to miss.

use std::process::Output;

use rustix::process::Signal;
use serde_json::json;

use crate::rig::Rig;
use crate::support::{Background, Home, text};

/// How it ended, and the way out that it told.
fn way(output: &Output) -> (Option<i32>, &str) {
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 2, "what failed and the way out: {said}");
    (output.status.code(), said.lines().nth(1).unwrap().split_once(": ").unwrap().1)
}

#[test]
fn a_refusal_ends_with_what_to_do_about_it() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let _bob = rig.listen("bob");
    let _eve = rig.listen("eve");
    let call = |who: &str, method: &str, params: &str| {
        rig.home.run("transit-agent", ["call", method, params, "--as", who], b"")
    };
    let send =
        |to: &str| rig.home.run("transit-send", [to, "--as", "eve", "-m", "hi", "--wait", "settled"], b"");
    rig.call("bob", "create_room", &json!({ "name": "ops", "policy": "invite" }));
    for (output, exit, says) in [
        (call("eve", "create_room", r#"{"name":"ops"}"#), 1, "transit-agent call join_room"),
        (call("eve", "join_room", r#"{"room":"ops"}"#), 77, "transit-worker room add"),
        (call("eve", "join_room", r#"{"room":"dev"}"#), 67, "transit-agent call list_rooms"),
        (call("eve", "read_message", r#"{"id":"tx_000000000000"}"#), 1, "id of the envelope"),
        (call("eve", "send_message", r#"{"to":"transit","message":"x"}"#), 65, "nobody reads an answer"),
        (call("eve", "list_room", "{}"), 65, "list_rooms"),
        (call("omar", "whoami", "{}"), 67, "transitd status"),
        (send("omar@nowhere"), 67, "transit-agent call list_agents"),
        (send("#ops"), 77, "transit-agent call join_room"),
        (send("omar"), 67, "NAME@HOST"),
    ] {
        let (code, told) = way(&output);
        assert_eq!(code, Some(exit), "{told}");
        assert!(told.contains(says), "{told}");
    }
    // A program that speaks as nobody.
    let (code, told) = (rig.home.run("transit-send", ["bob@demo", "-m", "x"], b""), "--as NAME");
    assert_eq!(code.status.code(), Some(77));
    assert!(way(&code).1.contains(told), "{}", text(&code.stderr));
}

#[test]
fn a_daemon_that_runs_one_that_does_not_and_a_url_that_is_none_have_a_way_out() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let (code, told) = (rig.home.run("transitd", ["run"], b""), "transitd stop");
    assert_eq!(code.status.code(), Some(75));
    assert!(text(&code.stderr).contains("running already") && way(&code).1.contains(told));
    let home = Home::new();
    let none = home.run("transitd", ["stop"], b"");
    assert_eq!(none.status.code(), Some(69));
    assert!(way(&none).1.starts_with("nothing is to be stopped here"), "{}", text(&none.stderr));
    for url in ["localhost:8787", "t.example"] {
        let output = home.run("transitd", ["enroll", "--url", url, "--code", "ABCD-EFGH"], b"");
        assert_eq!(output.status.code(), Some(2), "{url}");
        assert!(way(&output).1.contains("--url https://"), "{}", text(&output.stderr));
    }
}

#[test]
fn a_session_that_is_taken_over_is_told_to_both() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let agent = || {
        let mut command = rig.home.command("transit-agent");
        Background::start(command.args(["run", "--name", "bob", "--", "true"]))
    };
    let mut first = agent();
    assert_eq!(first.error(), "transit-agent: registered as bob@demo");
    let mut second = agent();
    let lost = format!(
        "transit-agent: warning: bob@demo was process {}, which has lost it to this one",
        first.pid()
    );
    assert_eq!(second.error(), lost);
    assert_eq!(second.error(), "transit-agent: registered as bob@demo");
    assert!(first.error().ends_with("(replaced)"));
    assert!(first.error().contains("another --name"));
    assert_eq!(first.wait().code(), Some(77));
    second.signal(Signal::TERM);
    assert!(second.wait().success());
    let mut third = agent();
    assert_eq!(third.error(), "transit-agent: registered as bob@demo", "nobody loses anything");
    third.signal(Signal::TERM);
    assert!(third.wait().success());
}

#[test]
fn a_source_for_nobody_who_is_there_yet_says_so() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let _bob = rig.listen("bob");
    // Once the Worker takes its calls, it knows the agent.
    rig.call("bob", "list_agents", &json!({}));
    let source = |args: &[&str]| {
        let output = rig.home.run("transit-worker", ["source"].iter().chain(args), b"");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr).to_owned()
    };
    assert_eq!(source(&["create", "one", "--target", "bob@demo"]), "");
    let absent = "transit-worker: no host nowhere is enrolled yet, and events wait for it: transit-worker host enroll \
                  nowhere\n";
    assert_eq!(source(&["create", "two", "--target", "bob@nowhere", "--json"]), absent);
    let unknown = "transit-worker: host demo has not told of an agent omar yet, and events wait for it\n";
    assert_eq!(source(&["update", "one", "--target", "omar@demo"]), unknown);
    assert_eq!(source(&["update", "one", "--rate", "9"]), "", "it goes where it went");
    assert_eq!(source(&["update", "one", "--target", "bob@demo"]), "");
    rig.admin(&["host", "revoke", "demo"]);
    assert!(source(&["update", "one", "--target", "bob@demo"]).contains("no host demo is enrolled"));
}

#[test]
fn settings_that_are_no_json_are_to_be_mended_before_an_adapter_is_installed() {
    let home = Home::new();
    std::fs::create_dir(home.path(".claude")).unwrap();
    home.file(".claude/settings.json", "{ \"a\": 1, // mine\n}");
    let doctor = home.run("transitd", ["doctor", "--json"], b"");
    let found =
        text(&doctor.stdout).lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let found = found.filter(|found| found["check"] == "adapters" && found["level"] == "wrong");
    let found: Vec<_> = found.map(|found| found.to_string()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("mend it, or make the change by hand"), "{found:?}");
    assert!(found[0].contains("then transit-agent install claude"), "{found:?}");
    home.file(".claude/settings.json", json!({ "a": 1 }).to_string());
    let doctor = home.run("transitd", ["doctor", "--json"], b"");
    assert!(!text(&doctor.stdout).contains("mend it"));
}
