//! Who is in the panes, what they are called, and who a caller is.

use serde_json::json;
use transit::proto::wire::NamedBy;

use super::super::world::{Adapter, ask, registration, status_until};
use super::fake::Odd;
use super::{ONE, Scene, TWO, message};
use crate::support::{eventually, text};

#[test]
fn names_of_herdr_become_ours_and_panes_keep_their_ids() {
    let mut scene = Scene::new();
    scene.herdr.open("w1:p1", Some("build_bot"));
    scene.herdr.open("w1:p2", None);
    scene.start(&[]);
    let roster = scene.roster_where(|agents| agents.len() == 2);
    let bot = roster.iter().find(|agent| agent.name == "build-bot").unwrap();
    assert_eq!((bot.pane_id.as_str(), bot.kind.as_str(), bot.named_by), ("w1:p1", "claude", NamedBy::User));
    assert_eq!((bot.status.as_str(), bot.cwd.as_str(), bot.title.as_str()), ("idle", "/src", "work"));
    let other = roster.iter().find(|agent| agent.name != "build-bot").unwrap();
    assert!(other.name.starts_with("claude-") && other.named_by == NamedBy::Auto, "{other:?}");
    eventually(|| scene.herdr.with("w1:p2", |pane| pane.name.clone()));
    assert_eq!(scene.herdr.calls("agent.rename"), [json!({ "target": "w1:p2", "name": other.name })]);
    // A daemon that starts again knows which names it has made up.
    scene.daemon = None;
    scene.start(&[]);
    assert_eq!(scene.roster_where(|agents| agents.len() == 2), roster);
    assert_eq!(scene.herdr.count("agent.rename"), 1, "a name that is there is not written again");
    assert_eq!(scene.herdr.with("w1:p1", |pane| pane.name.clone()).as_deref(), Some("build_bot"));
}

#[test]
fn an_agent_that_is_renamed_takes_its_mail_along() {
    let scene = Scene::with_jess();
    scene.herdr.with("w1:p1", |pane| pane.status = "blocked".into());
    scene.deliver(ONE);
    scene.answers(ONE, "draft_busy");
    scene.herdr.with("w1:p1", |pane| pane.name = Some("jo".into()));
    let roster = scene.roster_with("jo");
    assert_eq!((roster.len(), roster[0].pane_id.as_str()), (1, "w1:p1"));
    scene.herdr.with("w1:p1", |pane| pane.status = "idle".into());
    assert_eq!(scene.worker.answer(), (ONE.to_owned(), "jo".to_owned(), "ack".to_owned()));
    assert_eq!(scene.log(), [message(ONE)]);
}

#[test]
fn an_agent_that_is_renamed_while_it_is_typed_to_gets_nothing_twice() {
    let mut scene = Scene::new();
    scene.start(&[]);
    scene.worker.roster();
    let zoe = message(TWO).replace("omar@atlas", "zoe@atlas");
    for (id, envelope) in [(ONE, &message(ONE)), (TWO, &zoe)] {
        scene.worker.deliver(id, "jess", envelope);
        scene.answers(id, "agent_not_found");
    }
    let gate = scene.herdr.gate();
    scene.herdr.open("w1:p1", Some("jess"));
    eventually(|| (scene.herdr.count("waits") == 1).then_some(()));
    scene.herdr.with("w1:p1", |pane| pane.name = Some("jo".into()));
    // The new name is known, and is taken between two envelopes.
    scene.herdr.wait_for_more("agent.list", 3);
    gate.send(()).unwrap();
    // Whether the first one is answered for before or after the name is taken is all the same.
    let (id, _, what) = scene.worker.answer();
    assert_eq!((id.as_str(), what.as_str()), (ONE, "ack"));
    assert_eq!(scene.worker.answer(), (TWO.to_owned(), "jo".to_owned(), "ack".to_owned()));
    let three = "tx_000000000003";
    scene.worker.deliver(three, "jo", &message(three));
    assert_eq!(scene.worker.answer(), (three.to_owned(), "jo".to_owned(), "ack".to_owned()));
    assert_eq!(scene.log(), [message(ONE), zoe, message(three)]);
}

#[test]
fn changes_show_in_the_roster() {
    let scene = Scene::with_jess();
    scene.herdr.with("w1:p1", |pane| pane.status = "working".into());
    scene.roster_where(|agents| agents[0].status == "working");
    scene.herdr.close("w1:p1");
    scene.roster_where(<[_]>::is_empty);
}

#[test]
fn two_agents_of_one_name_have_two() {
    let mut scene = Scene::new();
    scene.herdr.open("w1:p1", Some("a_b"));
    scene.herdr.open("w1:p2", Some("a-b"));
    scene.herdr.open("w1:p3", Some("operator"));
    scene.start(&[]);
    let roster = scene.roster_where(|agents| agents.len() == 3);
    let name = |pane_id: &str| roster.iter().find(|agent| agent.pane_id == pane_id).unwrap().name.clone();
    assert_eq!(name("w1:p1"), "a-b");
    assert!(name("w1:p2").starts_with("claude-") && name("w1:p3").starts_with("claude-"));
    assert_eq!(scene.herdr.count("agent.rename"), 0, "a person's name is never overwritten");
}

#[test]
fn an_adapter_of_the_same_agent_hides_its_pane() {
    let scene = Scene::with_jess();
    let mut adapter = Adapter::connect(&scene.home);
    let mut frame = registration("s1", Some("native"));
    frame["pane_id"] = "w1:p1".into();
    adapter.send(&frame);
    assert_eq!(adapter.next().unwrap()["t"], "registered");
    scene.roster_where(|agents| agents.len() == 1 && agents[0].name == "native");
    drop(adapter);
    scene.roster_where(|agents| agents.len() == 1 && agents[0].name == "jess");
    // One that does not say so, below the shell of the pane.
    scene.herdr.with("w1:p1", |pane| {
        pane.shell = std::process::id();
        pane.seq += 1;
    });
    let (_adapter, _) = Adapter::register(&scene.home, "s2", Some("native"));
    scene.roster_where(|agents| agents.len() == 1 && agents[0].name == "native");
}

#[test]
fn an_adapter_that_is_shadowed_looks_on_while_its_pane_delivers() {
    let mut scene = Scene::new();
    scene.herdr.open("w1:p1", Some("jess"));
    scene.start(&[("TRANSIT_DELIVERY_MODE", "shadow")]);
    scene.roster_with("jess");
    let mut adapter = Adapter::connect(&scene.home);
    let mut frame = registration("s1", Some("native"));
    frame["pane_id"] = "w1:p1".into();
    adapter.send(&frame);
    assert_eq!(adapter.next().unwrap()["t"], "registered");
    scene.roster_where(|agents| agents.len() == 1 && agents[0].name == "native");
    // It is known by now that the pane is the adapter's.
    scene.herdr.wait_for_more("agent.list", 1);
    scene.worker.deliver(ONE, "native", &message(ONE));
    assert_eq!(scene.worker.answer(), (ONE.to_owned(), "native".to_owned(), "ack".to_owned()));
    assert_eq!(scene.log(), [message(ONE)]);
    // Without the pane the adapter delivers.
    scene.herdr.close("w1:p1");
    scene.herdr.wait_for_more("agent.list", 2);
    scene.worker.deliver(TWO, "native", &message(TWO));
    assert_eq!(adapter.delivery(), TWO);
    adapter.ack(TWO);
    // And it takes names, which are its own business.
    let claim = json!({ "op": "claim_name", "name": "other", "pane_id": "native:claude:s1" });
    assert_eq!(ask(&scene.home, &claim)["address"], "other@titan");
}

#[test]
fn an_agent_in_a_pane_claims_a_name_in_herdr_and_here() {
    let scene = Scene::with_jess();
    scene.herdr.open("w1:p2", Some("omar"));
    scene.roster_with("omar");
    scene.herdr.with("w1:p1", |pane| pane.shell = std::process::id());
    let claim =
        |name: &str| ask(&scene.home, &json!({ "op": "claim_name", "name": name, "pane_id": "w1:p1" }));
    assert_eq!(claim("jo")["address"], "jo@titan");
    assert_eq!(scene.herdr.with("w1:p1", |pane| pane.name.clone()).as_deref(), Some("jo"));
    scene.roster_with("jo");
    assert_eq!(claim("omar")["code"], "claim_failed");
    assert_eq!(scene.herdr.with("w1:p1", |pane| pane.name.clone()).as_deref(), Some("jo"));
    scene.herdr.wait_for_more("agent.list", 2);
    scene.worker.deliver(ONE, "jo", &message(ONE));
    assert_eq!(scene.worker.answer(), (ONE.to_owned(), "jo".to_owned(), "ack".to_owned()));
}

#[test]
fn who_runs_in_a_pane_is_its_agent_and_a_variable_alone_proves_nothing() {
    let scene = Scene::with_jess();
    let whoami = json!({ "op": "whoami", "pane_id": "w1:p1" });
    let answer = ask(&scene.home, &whoami);
    assert_eq!(answer["code"], "invalid_caller", "{answer}");
    scene.herdr.with("w1:p1", |pane| pane.shell = std::process::id());
    let answer = ask(&scene.home, &whoami);
    assert_eq!(answer["address"], "jess@titan", "{answer}");
    // Once Herdr was asked again, the variable is not needed.
    scene.herdr.with("w1:p1", |pane| pane.seq += 1);
    eventually(|| (ask(&scene.home, &json!({ "op": "whoami" }))["address"] == "jess@titan").then_some(()));
    let out = scene.home.run("transit-send", ["jess@titan", "--as", "omar", "-m", "x"], b"");
    assert_eq!(out.status.code(), Some(77), "{}", text(&out.stderr));
}

#[test]
fn without_a_herdr_everything_else_works() {
    let mut scene = Scene::new();
    scene.herdr.open("w1:p1", Some("jess"));
    scene.start(&[]);
    scene.roster_with("jess");
    for odd in [Odd::OtherProduct, Odd::Garbage, Odd::Endless] {
        scene.herdr.be(odd);
        status_until(&scene.home, |status| status["herdr"]["state"] == "unavailable");
        scene.roster_where(<[_]>::is_empty);
        let (mut adapter, _) = Adapter::register(&scene.home, "s1", Some("native"));
        let id = format!("tx_00000000001{}", odd as u8);
        scene.worker.deliver(&id, "native", "an envelope");
        assert_eq!(adapter.delivery(), id);
        adapter.ack(&id);
        assert_eq!(scene.worker.answer().2, "ack");
        drop(adapter);
        scene.herdr.be(Odd::No);
        scene.roster_with("jess");
    }
    let status = ask(&scene.home, &json!({ "op": "status" }));
    assert_eq!((&status["herdr"]["state"], &status["herdr"]["protocol"]), (&json!("connected"), &json!(20)));
}

#[test]
fn only_a_protocol_that_is_known_or_allowed_is_spoken() {
    let mut scene = Scene::new();
    scene.herdr.open("w1:p1", Some("jess"));
    scene.herdr.be(Odd::Newer);
    scene.start(&[]);
    let status = status_until(&scene.home, |status| status["herdr"]["state"] == "unavailable");
    assert!(status["herdr"]["error"].as_str().unwrap().contains("protocol 99"), "{status}");
    scene.daemon = None;
    scene.start(&[("TRANSIT_HERDR_PROTOCOL_ALLOW", "20,99")]);
    scene.roster_with("jess");
}

#[test]
fn a_herdr_may_come_and_go() {
    let mut scene = Scene::new();
    drop(std::mem::replace(&mut scene.herdr, super::Fake::start(&scene.home.path("elsewhere"))));
    scene.start(&[]);
    for name in ["jess", "ann"] {
        status_until(&scene.home, |status| status["herdr"]["state"] == "absent");
        scene.herdr = super::Fake::start(&scene.home.path(""));
        scene.herdr.open("w1:p1", Some(name));
        scene.roster_with(name);
        drop(std::mem::replace(&mut scene.herdr, super::Fake::start(&scene.home.path("elsewhere"))));
        scene.roster_where(<[_]>::is_empty);
    }
}

#[test]
fn a_herdr_that_is_not_there_is_no_fault_and_one_that_was_promised_is() {
    let mut scene = Scene::new();
    drop(std::mem::replace(&mut scene.herdr, super::Fake::start(&scene.home.path("elsewhere"))));
    scene.start(&[]);
    let status = ask(&scene.home, &json!({ "op": "status" }));
    assert_eq!((&status["herdr"]["state"], &status["draft_holds"]), (&json!("absent"), &json!([])));
    scene.daemon = None;
    scene.start(&[("HERDR_SOCKET_PATH", "/nowhere/herdr.sock")]);
    status_until(&scene.home, |status| status["herdr"]["state"] == "unavailable");
    scene.daemon = None;
    let mut command = scene.home.command("transitd");
    let out = command.arg("run").env("TRANSIT_DELIVERY_MODE", "both").output().unwrap();
    assert_eq!(out.status.code(), Some(78), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("TRANSIT_DELIVERY_MODE"), "{}", text(&out.stderr));
}
