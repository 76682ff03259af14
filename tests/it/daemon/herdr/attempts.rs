//! With a real Worker: waiting for a person costs no attempt, however long it takes.

use serde_json::{Value, json};

use super::super::world::ask;
use super::Fake;
use super::fake::Prompt;
use crate::rig::Rig;
use crate::support::{eventually, text};

fn send(rig: &Rig) -> String {
    let out =
        rig.home.run("transit-send", ["bob@demo", "--as", "alice", "--json", "-m", "are you there?"], b"");
    assert!(out.status.success(), "{}", text(&out.stderr));
    let line: Value = serde_json::from_slice(&out.stdout).unwrap();
    line["id"].as_str().unwrap().to_owned()
}

/// The state and the attempts of a message, once the Worker has it.
fn state(rig: &Rig, id: &str) -> Option<(String, u64)> {
    let out = rig.home.run("transit-worker", ["message", "list", "--json"], b"");
    let lines = text(&out.stdout).lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found = lines.into_iter().find(|line| line["id"] == id)?;
    Some((found["state"].as_str()?.to_owned(), found["attempts"].as_u64()?))
}

#[test]
fn a_blocked_agent_costs_no_attempt_and_gets_the_message_once() {
    let rig = Rig::start("http://127.0.0.1:9/replies");
    let herdr = Fake::start(&rig.home.path(""));
    herdr.open("w1:p1", Some("bob"));
    herdr.with("w1:p1", |pane| pane.status = "blocked".into());
    let _alice = rig.listen("alice");
    eventually(|| {
        let status = ask(&rig.home, &json!({ "op": "status" }));
        let agents = status["agents"].as_array().unwrap();
        agents.iter().any(|agent| agent["name"] == "bob").then_some(())
    });
    let id = send(&rig);
    eventually(|| {
        let status = ask(&rig.home, &json!({ "op": "status" }));
        (status["draft_holds"][0]["reason"] == "blocked").then_some(())
    });
    // One that is under way counts until it is answered.
    let has_cost_none =
        || eventually(|| state(&rig, &id).filter(|(state, attempts)| state == "queued" && *attempts == 0));
    has_cost_none();
    herdr.wait_for_more("agent.get", 3);
    has_cost_none();
    assert_eq!(herdr.count("agent.prompt"), 0);
    // It becomes free, and asks something new just when it is prompted; then it is really free.
    herdr.with("w1:p1", |pane| {
        pane.status = "idle".into();
        pane.prompt = Prompt::Blocks;
    });
    eventually(|| (herdr.count("agent.prompt") == 1).then_some(()));
    herdr.wait_for_more("agent.get", 2);
    has_cost_none();
    herdr.with("w1:p1", |pane| {
        pane.status = "idle".into();
        pane.prompt = Prompt::Takes;
    });
    eventually(|| state(&rig, &id).filter(|(state, _)| state == "injected"));
    assert_eq!(herdr.count("agent.prompt"), 2);
    assert_eq!(herdr.with("w1:p1", |pane| pane.log.len()), 1);
}
