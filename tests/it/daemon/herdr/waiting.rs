//! When nothing is typed: a person types there, or is asked something.

use serde_json::json;

use super::super::world::status_until;
use super::fake::Prompt;
use super::{ONE, Scene, TWO, message};
use crate::support::eventually;

#[test]
fn an_agent_that_is_free_gets_one_prompt() {
    let scene = Scene::with_jess();
    let envelope = scene.deliver(ONE);
    scene.answers(ONE, "ack");
    assert_eq!(scene.log(), std::slice::from_ref(&envelope));
    let prompts = scene.herdr.calls("agent.prompt");
    assert_eq!(prompts.len(), 1);
    assert_eq!((&prompts[0]["target"], &prompts[0]["text"]), (&json!("w1:p1"), &json!(envelope)));
    scene.deliver(ONE);
    scene.answers(ONE, "ack");
    assert_eq!(scene.herdr.count("agent.prompt"), 1, "it is known");
}

#[test]
fn an_agent_that_asks_the_person_is_not_typed_to_until_it_has_its_answer() {
    let scene = Scene::with_jess();
    scene.herdr.with("w1:p1", |pane| pane.status = "blocked".into());
    scene.deliver(ONE);
    scene.answers(ONE, "draft_busy");
    let status = status_until(&scene.home, |status| status["draft_holds"] != json!([]));
    let hold = &status["draft_holds"][0];
    assert_eq!(
        (&hold["pane_id"], &hold["agent"], &hold["reason"]),
        (&json!("w1:p1"), &json!("jess"), &json!("blocked"))
    );
    // Another sender's: what comes after a message that waits does not pass it.
    scene.worker.deliver(TWO, "jess", &message(TWO).replace("omar@", "eve@"));
    scene.answers(TWO, "draft_busy");
    scene.herdr.wait_for_more("agent.get", 2);
    assert_eq!((scene.herdr.count("agent.prompt"), scene.herdr.count("pane.send_keys")), (0, 0));
    scene.herdr.with("w1:p1", |pane| pane.status = "idle".into());
    scene.answers(ONE, "ack");
    scene.answers(TWO, "ack");
    assert_eq!(scene.herdr.count("agent.prompt"), 2);
    status_until(&scene.home, |status| status["draft_holds"] == json!([]));
}

#[test]
fn an_agent_that_begins_to_ask_between_the_look_and_the_prompt_gets_it_later() {
    let scene = Scene::with_jess();
    scene.herdr.with("w1:p1", |pane| pane.prompt = Prompt::Blocks);
    scene.deliver(ONE);
    scene.answers(ONE, "draft_busy");
    scene.herdr.wait_for_more("agent.get", 2);
    assert_eq!(scene.herdr.count("agent.prompt"), 1, "no second one while it asks");
    scene.herdr.with("w1:p1", |pane| {
        pane.prompt = Prompt::Takes;
        pane.status = "idle".into();
    });
    scene.answers(ONE, "ack");
    assert_eq!(scene.log().len(), 1);
}

#[test]
fn a_half_typed_draft_survives_and_the_message_comes_after_it() {
    let scene = Scene::with_jess();
    scene.herdr.with("w1:p1", |pane| pane.draft = "half a thou".into());
    let envelope = scene.deliver(ONE);
    scene.answers(ONE, "draft_busy");
    status_until(&scene.home, |status| status["draft_holds"][0]["reason"] == "draft");
    scene.herdr.wait_for_more("pane.read", 2);
    scene.herdr.with("w1:p1", |pane| {
        assert_eq!(pane.draft, "half a thou");
        pane.log.push(std::mem::take(&mut pane.draft));
    });
    scene.answers(ONE, "ack");
    assert_eq!(scene.log(), ["half a thou".to_owned(), envelope]);
}

#[test]
fn the_guard_can_be_turned_off() {
    let mut scene = Scene::new();
    scene.herdr.open("w1:p1", Some("jess"));
    scene.herdr.with("w1:p1", |pane| pane.draft = "half ".into());
    scene.start(&[("TRANSIT_DRAFT_GUARD", "0")]);
    scene.roster_with("jess");
    let envelope = scene.deliver(ONE);
    scene.answers(ONE, "ack");
    assert_eq!(scene.log(), [format!("half {envelope}")]);
}

#[test]
fn with_adapters_required_no_pane_of_a_program_that_has_one_is_typed_into() {
    let mut scene = Scene::new();
    scene.herdr.open("w1:p1", Some("jess"));
    scene.herdr.open("w1:p2", Some("cody"));
    scene.herdr.with("w1:p2", |pane| pane.kind = "codex".into());
    scene.start(&[("TRANSIT_DELIVERY_MODE", "require")]);
    scene.roster_with("cody");
    scene.deliver(ONE);
    scene.answers(ONE, "adapter_unavailable");
    scene.worker.deliver(TWO, "cody", &message(TWO));
    assert_eq!(scene.worker.answer().2, "ack");
    let prompts = scene.herdr.calls("agent.prompt");
    assert_eq!(prompts.iter().map(|prompt| &prompt["target"]).collect::<Vec<_>>(), ["w1:p2"]);
}

#[test]
fn nothing_in_an_envelope_is_for_the_terminal() {
    let scene = Scene::with_jess();
    scene.worker.deliver(ONE, "jess", "a\x1b[201~\rrm -r /\u{9b}\x03");
    scene.answers(ONE, "ack");
    assert_eq!(scene.log(), ["a\u{fffd}[201~\nrm -r /\u{fffd}\u{fffd}"]);
}

#[test]
fn a_hold_outlives_a_daemon_that_is_killed() {
    let mut scene = Scene::with_jess();
    scene.herdr.with("w1:p1", |pane| pane.draft = "half".into());
    scene.deliver(ONE);
    scene.answers(ONE, "draft_busy");
    scene.daemon = None;
    scene.start(&[]);
    scene.roster_with("jess");
    status_until(&scene.home, |status| status["draft_holds"] != json!([]));
    assert_eq!(scene.herdr.count("agent.prompt"), 0);
    scene.herdr.with("w1:p1", |pane| pane.draft.clear());
    scene.answers(ONE, "ack");
    eventually(|| (scene.log().len() == 1).then_some(()));
}
