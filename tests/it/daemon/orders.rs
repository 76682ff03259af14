//! What an operator asks of a daemon that runs: pause and resume, and a reload by command or by SIGHUP.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::world::{Adapter, Worker, ask, enrolled, nobody, outcome, start, status_until};
use crate::support::{Home, eventually};

const ONE: &str = "tx_000000000001";
const TWO: &str = "tx_000000000002";

fn answer(id: &str, agent: &str, what: &str) -> (String, String, String) {
    (id.to_owned(), agent.to_owned(), what.to_owned())
}

fn order(home: &Home, verb: &str) {
    let (code, out, err) = outcome(home.command("transitd").arg(verb));
    assert_eq!((code, out.as_str()), (0, ""), "{verb}: {err}");
}

fn roster_with(worker: &Worker, name: &str) {
    while !worker.roster().iter().any(|(agent, _)| agent == name) {}
}

#[test]
fn a_paused_daemon_hands_nothing_over_and_goes_on_where_it_stopped() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let mut daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    roster_with(&worker, "jess");
    order(&home, "pause");
    order(&home, "pause");
    assert_eq!(ask(&home, &json!({ "op": "status" }))["paused"], true);
    let (_, shown, _) = outcome(home.command("transitd").arg("status"));
    assert!(shown.contains("paused         true") && shown.contains("transitd resume"), "{shown}");
    worker.deliver(ONE, "jess", "one");
    assert_eq!(worker.answer(), answer(ONE, "jess", "paused"));
    // It lasts over a restart, and what agents send goes on.
    daemon.signal(Signal::KILL);
    daemon.wait();
    let _daemon = start(&home);
    assert_eq!(jess.next(), None);
    assert_eq!(ask(&home, &json!({ "op": "pause" }))["paused"], true, "without a wish it only tells");
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    roster_with(&worker, "jess");
    worker.deliver(ONE, "jess", "one");
    assert_eq!(worker.answer(), answer(ONE, "jess", "paused"));
    worker.deliver(TWO, "jess", "two");
    assert_eq!(worker.answer(), answer(TWO, "jess", "paused"));
    let sent = ask(&home, &json!({ "op": "send", "to": "omar@hermes", "body": "x", "wait_ms": 0 }));
    assert_eq!(sent["state"], "spooled");
    worker.wait(|event| matches!(event, transit::proto::wire::WorkerEvent::Send(_)).then_some(()));
    order(&home, "resume");
    assert_eq!(ask(&home, &json!({ "op": "status" }))["paused"], false);
    for id in [ONE, TWO] {
        assert_eq!(jess.delivery(), id, "what was kept comes by itself, in its order");
        jess.ack(id);
        assert_eq!(worker.answer(), answer(id, "jess", "ack"));
    }
    for paused in [true, false] {
        assert_eq!(ask(&home, &json!({ "op": "pause", "toggle": true }))["paused"], paused);
    }
    assert!(!home.data().join("paused").exists());
}

#[test]
fn a_message_within_a_paused_host_waits_too() {
    let home = Home::new();
    let _daemon = start(&home);
    let (mut jess, told) = Adapter::register(&home, "s1", Some("jess"));
    order(&home, "pause");
    let to = &told["address"];
    let sent = ask(&home, &json!({ "op": "send", "to": to, "body": "x", "wait_ms": 0 }));
    assert_eq!(sent["state"], "spooled", "{sent}");
    order(&home, "resume");
    assert_eq!(jess.delivery(), sent["id"].as_str().unwrap());
}

#[test]
fn a_reload_takes_a_new_configuration_and_refuses_one_that_makes_no_sense() {
    let (old, new) = (Worker::start(), Worker::start());
    let home = enrolled(old.at);
    let mut daemon = start(&home);
    old.roster();
    let config = |at: &str, host: &str| json!({ "url": at, "host": host }).to_string();
    let url = |worker: &Worker| format!("http://{}", worker.at);
    let connected =
        |at: &str| status_until(&home, |status| status["connected"] == true && status["worker_url"] == at);
    connected(&url(&old));
    order(&home, "reload");
    assert_eq!(ask(&home, &json!({ "op": "reload" }))["changed"], json!([]));
    connected(&url(&old));
    // By command, and by signal.
    home.file("config.json", config(&url(&new), "titan"));
    order(&home, "reload");
    new.roster();
    connected(&url(&new));
    home.file("config.json", config(&url(&old), "titan"));
    daemon.signal(Signal::HUP);
    old.roster();
    connected(&url(&old));
    // Nothing of these is used, and nothing ends.
    for broken in ["", "{\"url\":\"http://x\"}", "{\"url\":\"ftp://x\",\"host\":\"titan\"}", "[]"] {
        home.file("config.json", broken);
        let (code, out, err) = outcome(home.command("transitd").arg("reload"));
        assert_eq!((code, out.as_str()), (78, ""), "{broken}: {err}");
        assert!(err.contains("(bad_config)"), "{err}");
        daemon.signal(Signal::HUP);
        connected(&url(&old));
    }
    // What is looked at once is named.
    home.file(
        "config.json",
        json!({ "url": url(&old), "host": "titan", "loop_guard": { "limit": 9 } }).to_string(),
    );
    let (code, out, err) = outcome(home.command("transitd").arg("reload"));
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(err.starts_with("transitd: loop_guard: ") && err.lines().count() == 1, "{err}");
    connected(&url(&old));
    // The host is not enrolled any more, and has another name.
    home.file("config.json", "{\"host\":\"hermes\"}");
    order(&home, "reload");
    status_until(&home, |status| status["enrolled"] == false && status["host"] == "hermes");
    let (mut jess, told) = Adapter::register(&home, "s1", Some("jess"));
    assert_eq!(told["address"], "jess@hermes");
    home.file("config.json", "{\"host\":\"iris\"}");
    daemon.signal(Signal::HUP);
    assert_eq!(jess.next(), None, "a session that was told another address registers again");
    let told = eventually(|| {
        let (_, told) = Adapter::register(&home, "s1", Some("jess"));
        (told["address"] == "jess@iris").then_some(told)
    });
    assert_eq!(told["agent"], "jess");
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
}

#[test]
fn an_order_without_a_daemon_says_how_to_start_one() {
    let home = enrolled(nobody());
    for verb in ["pause", "resume", "reload", "kick"] {
        let (code, out, err) = outcome(home.command("transitd").arg(verb));
        assert_eq!((code, out.as_str()), (69, ""), "{verb}");
        assert!(err.contains("transitd run"), "{err}");
    }
}

#[test]
fn an_unknown_order_is_refused_and_so_is_a_wrong_wish() {
    let home = Home::new();
    let _daemon = start(&home);
    for call in [json!({ "op": "dance" }), json!({ "op": "pause", "paused": "yes" }), Value::Null] {
        assert_eq!(ask(&home, &call)["code"], "bad_request", "{call}");
    }
    assert_eq!(ask(&home, &json!({ "op": "status" }))["paused"], false);
}
