//! When it is not clear what became of a prompt.

use super::fake::Prompt;
use super::{ONE, Scene};
use crate::support::eventually;

#[test]
fn a_stall_that_is_none_costs_no_second_prompt() {
    let scene = Scene::with_jess();
    scene.herdr.with("w1:p1", |pane| pane.prompt = Prompt::SeemsStalled);
    let envelope = scene.deliver(ONE);
    // Only the screen tells of it, and so no more is said to the Worker.
    scene.answers(ONE, "seen");
    assert_eq!(scene.log(), [envelope]);
    assert_eq!((scene.herdr.count("agent.prompt"), scene.herdr.count("pane.send_keys")), (1, 0));
}

#[test]
fn a_true_stall_gets_one_enter() {
    let scene = Scene::with_jess();
    scene.herdr.with("w1:p1", |pane| pane.prompt = Prompt::Stalls);
    let envelope = scene.deliver(ONE);
    scene.answers(ONE, "ack");
    assert_eq!(scene.log(), [envelope]);
    assert_eq!((scene.herdr.count("agent.prompt"), scene.herdr.count("pane.send_keys")), (1, 1));
}

#[test]
fn an_answer_that_is_lost_is_looked_for_in_the_transcript() {
    let scene = Scene::with_jess();
    let transcript = scene.home.file("session.jsonl", "");
    scene.herdr.with("w1:p1", |pane| {
        pane.transcript = Some(transcript);
        pane.prompt = Prompt::Silent;
    });
    let envelope = scene.deliver(ONE);
    scene.answers(ONE, "ack");
    assert_eq!(scene.log(), [envelope]);
    assert_eq!((scene.herdr.count("agent.prompt"), scene.herdr.count("pane.send_keys")), (1, 0));
}

#[test]
fn what_the_transcript_has_is_not_typed() {
    let scene = Scene::with_jess();
    let transcript =
        scene.home.file("session.jsonl", format!("{{\"text\":\"<transit id=\\\"{ONE}\\\"\"}}\n"));
    scene.herdr.with("w1:p1", |pane| pane.transcript = Some(transcript));
    scene.deliver(ONE);
    scene.answers(ONE, "ack");
    assert_eq!(scene.herdr.count("agent.prompt"), 0);
}

#[test]
fn a_pane_that_vanishes_in_the_middle_gets_it_to_nobody_else() {
    let scene = Scene::with_jess();
    scene.herdr.open("w1:p2", Some("omar"));
    scene.roster_with("omar");
    scene.herdr.with("w1:p1", |pane| pane.prompt = Prompt::Vanishes);
    scene.deliver(ONE);
    let (id, agent, what) = scene.worker.answer();
    assert_eq!((id.as_str(), agent.as_str()), (ONE, "jess"));
    assert!(matches!(what.as_str(), "agent_gone" | "adapter_unavailable"), "{what}");
    scene.roster_where(|agents| agents.iter().all(|agent| agent.name != "jess"));
    assert_eq!((scene.herdr.count("agent.prompt"), scene.herdr.count("pane.send_keys")), (1, 0));
    assert!(scene.herdr.with("w1:p2", |pane| pane.log.is_empty() && pane.draft.is_empty()));
    // It comes back under its name, and its mail is there.
    scene.herdr.open("w1:p3", Some("jess"));
    scene.roster_with("jess");
    eventually(|| scene.herdr.with("w1:p3", |pane| (pane.log.len() == 1).then_some(())));
}

#[test]
fn what_a_killed_daemon_has_typed_is_not_typed_again() {
    let mut scene = Scene::with_jess();
    let transcript = scene.home.file("session.jsonl", "");
    scene.herdr.with("w1:p1", |pane| {
        pane.transcript = Some(transcript);
        pane.prompt = Prompt::Stalls;
    });
    // Nobody presses Enter: the prompt stands in the composer when the daemon is killed.
    scene.deliver(ONE);
    eventually(|| (scene.herdr.count("agent.prompt") == 1).then_some(()));
    scene.daemon = None;
    scene.start(&[]);
    scene.answers(ONE, "ack");
    assert_eq!(scene.herdr.count("agent.prompt"), 1);
    assert_eq!(scene.log().len(), 1);
}
