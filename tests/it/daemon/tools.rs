//! Who calls a tool of `transit-mcp`, and what it comes to when an agent claims a name. The sessions are this test's
//! own, so that every server that it starts runs in them.

use serde_json::{Value, json};
use transit::proto::wire::WorkerEvent;

use super::world::{Adapter, Worker, ask, enrolled, outcome, start, status_until};
use crate::mcp::client::Client;
use crate::support::{Home, text};

/// Another call of the daemon, as a person makes it from outside of every session.
fn inbox(home: &Home) -> Value {
    ask(home, &json!({ "op": "inbox" }))
}

fn whoami(home: &Home, session_id: Option<&str>) -> Result<String, String> {
    let env: Vec<(&str, &str)> = session_id.iter().map(|id| ("TRANSIT_SESSION_ID", *id)).collect();
    let mut client = Client::initialized(home, &[], &env);
    let answer =
        client.request("tools/call", json!({"name": "whoami", "arguments": {"as": "omar", "from": "omar"}}));
    client.end();
    let said = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    if answer["result"]["isError"] == false {
        return Ok(said.split('@').next().unwrap().to_owned());
    }
    assert!(said.contains("TRANSIT_SESSION_ID"), "it says the way out: {said}");
    Err(answer["result"]["structuredContent"]["code"].as_str().unwrap().to_owned())
}

#[test]
fn the_caller_is_the_session_of_its_process_tree_and_a_hint_only_chooses_among_several() {
    let home = Home::new();
    let _daemon = start(&home);
    assert_eq!(whoami(&home, None), Err("invalid_caller".into()), "there is no session");
    assert_eq!(whoami(&home, Some("s1")), Err("invalid_caller".into()));
    let (first, _) = Adapter::register(&home, "s1", Some("jess"));
    for hint in [None, Some("s1"), Some("old")] {
        assert_eq!(whoami(&home, hint), Ok("jess".into()), "{hint:?}");
    }
    let (_second, _) = Adapter::register(&home, "s2", Some("omar"));
    assert_eq!(whoami(&home, Some("s1")), Ok("jess".into()));
    assert_eq!(whoami(&home, Some("s2")), Ok("omar".into()));
    for hint in [None, Some("old"), Some("")] {
        assert_eq!(whoami(&home, hint), Err("invalid_caller".into()), "nobody guesses: {hint:?}");
    }
    drop(first);
    status_until(&home, |status| status["agents"].as_array().unwrap().len() == 1);
    assert_eq!(whoami(&home, Some("s1")), Ok("omar".into()), "there is one left");
}

#[test]
fn a_session_that_is_not_back_since_the_daemon_was_killed_is_taken_for_no_other() {
    let home = Home::new();
    home.file("config.json", json!({ "host": "titan" }).to_string());
    let mut daemon = start(&home);
    let first = Adapter::register(&home, "s1", Some("jess"));
    let second = Adapter::register(&home, "s2", Some("omar"));
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    drop((first, second));
    let _daemon = start(&home);
    let whoami = |id| ask(&home, &json!({ "op": "whoami", "session_id": id }));
    assert_eq!(
        (&whoami("s1")["code"], &whoami("old")["code"]),
        (&json!("session_absent"), &json!("invalid_caller"))
    );
    let (_second, _) = Adapter::register(&home, "s2", Some("omar"));
    assert_eq!(whoami("s1")["code"], "session_absent");
    let other = ask(&home, &json!({ "op": "whoami", "session_id": "s1", "as_agent": "omar" }));
    assert_eq!(other["code"], "session_absent", "it is not another one because somebody says so");
    assert_eq!(
        (&whoami("s2")["address"], &whoami("old")["address"]),
        (&json!("omar@titan"), &json!("omar@titan"))
    );
    let mut client = Client::initialized(&home, &[], &[("TRANSIT_SESSION_ID", "s1")]);
    let (said, code) = client.fails("whoami", json!({}));
    assert!(code == "session_absent" && said.contains("call again"), "{said}");
    client.end();
    let mut sends = home.command("transit-send");
    let (code, out, err) = outcome(sends.args(["omar@titan", "-m", "hi"]).env("TRANSIT_SESSION_ID", "s1"));
    assert_eq!((code, out.as_str()), (75, ""), "{err}");
    let (_first, _) = Adapter::register(&home, "s1", Some("jess"));
    assert_eq!(whoami("s1")["address"], "jess@titan");
}

#[test]
fn a_session_cannot_name_an_agent_and_a_sender_is_no_argument() {
    let home = Home::new();
    let _daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    for name in ["omar", "jess"] {
        let ran = home.run("transit-mcp", ["--as", name], b"");
        assert_eq!(ran.status.code(), Some(77), "{name}");
        let said = text(&ran.stderr);
        assert!(said.starts_with(&format!("transit-mcp: speak as {name}: ")), "{said}");
        assert!(said.ends_with("\ntransit-mcp: leave --as out\n") && ran.stdout.is_empty(), "{said}");
    }
    let me = ask(&home, &json!({ "op": "whoami" }))["address"].as_str().unwrap().to_owned();
    let mut client = Client::initialized(&home, &[], &[]);
    let message =
        json!({"to": me, "message": "hi", "from": "omar@elsewhere", "sender": "omar", "as_agent": "omar"});
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "send_message", "arguments": message}});
    client.raw(format!("{request}\n").as_bytes());
    let frame = jess.next().unwrap();
    assert!(frame["envelope"].as_str().unwrap().contains(&format!("from=\"{me}\"")), "{frame}");
    let id = frame["id"].as_str().unwrap().to_owned();
    jess.ack(&id);
    let said = client.answer()["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(said, format!("Message {id} to {me}: injected"));
    client.end();
}

#[test]
fn a_claimed_name_is_told_to_everybody_and_takes_the_mail_along() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let mut daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    let (_omar, _) = Adapter::register(&home, "s2", Some("omar"));
    let roster = |worker: &Worker| {
        worker.wait(|event| match event {
            WorkerEvent::Roster(agents) => {
                Some(agents.into_iter().map(|agent| (agent.name, agent.pane_id)).collect::<Vec<_>>())
            }
            _ => None,
        })
    };
    while roster(&worker).len() < 2 {}
    let (waits, under_way) = ("tx_000000000001", "tx_000000000002");
    worker.deliver(waits, "jess", "<transit>");
    assert_eq!(jess.delivery(), waits);
    jess.nak(waits, "busy", true);
    worker.answer();
    worker.deliver(under_way, "jess", "<transit>");
    assert_eq!(jess.delivery(), under_way);

    let mut client = Client::initialized(&home, &[], &[("TRANSIT_SESSION_ID", "s1")]);
    for (name, why) in
        [("omar", "the name of another session"), ("Ops", "does not match"), ("operator", "is reserved")]
    {
        let (said, code) = client.fails("claim_name", json!({ "name": name }));
        assert!(code == "claim_failed" && said.contains(why), "{said}");
    }
    assert_eq!(client.call("claim_name", json!({"name": "ops"})), "Claimed name: ops@titan");
    assert_eq!(client.call("claim_name", json!({"name": "ops"})), "Claimed name: ops@titan", "it has it");
    assert!(client.call("whoami", json!({})).starts_with("ops@titan "));
    client.end();
    let told = jess.next().unwrap();
    assert_eq!(
        (&told["t"], &told["agent"], &told["generation"]),
        (&json!("registered"), &json!("ops"), &json!(2))
    );
    let now = roster(&worker);
    assert!(now.contains(&("ops".into(), "native:claude:s1".into())), "{now:?}");
    // What was under way is answered under the new name, with the capability that the adapter has.
    jess.ack(under_way);
    assert_eq!(worker.answer(), (under_way.into(), "ops".into(), "ack".into()));
    let held = inbox(&home)["held"].clone();
    assert_eq!(
        (&held[0]["id"], &held[0]["agent"], &held[0]["code"]),
        (&json!(waits), &json!("ops"), &json!("busy"))
    );

    // The name outlives the daemon, though the session declares what it declared before.
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    drop(jess);
    let _daemon = start(&home);
    let (mut jess, again) = Adapter::register(&home, "s1", Some("jess"));
    assert_eq!((&again["agent"], &again["address"]), (&json!("ops"), &json!("ops@titan")));
    assert_eq!(jess.delivery(), waits);
}

#[test]
fn what_waits_on_a_host_is_told() {
    let home = enrolled(super::world::nobody());
    let _daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    let sent = ask(
        &home,
        &json!({ "op": "send", "to": "omar@mars", "body": "größe", "reply_to": "tx_0123456789ab" }),
    );
    assert_eq!(sent["state"], "spooled");
    let told = inbox(&home);
    let entry = &told["outbox"][0];
    assert_eq!(
        (&entry["id"], &entry["from"], &entry["to"], &entry["bytes"], &entry["reply_to"]),
        (&sent["id"], &json!("jess@titan"), &json!("omar@mars"), &json!(7), &json!("tx_0123456789ab"))
    );
    assert_eq!(
        (&told["outbox_total"], &told["dead_total"], &told["held_total"]),
        (&json!(1), &json!(0), &json!(0))
    );
    // A message between agents of this host waits for its recipient, and for the Worker too.
    let own = ask(&home, &json!({ "op": "send", "to": "jess@titan", "body": "x", "wait_ms": 0 }));
    assert_eq!(jess.delivery(), own["id"].as_str().unwrap());
    let told = inbox(&home);
    assert_eq!((&told["held"][0]["id"], &told["held"][0]["agent"]), (&own["id"], &json!("jess")));
    assert_eq!(told["outbox_total"], 2);
    // What is written before a name is claimed goes out in the new name.
    ask(&home, &json!({ "op": "claim_name", "name": "ops" }));
    let told = inbox(&home);
    assert!(told["outbox"].as_array().unwrap().iter().all(|entry| entry["from"] == "ops@titan"), "{told}");
}
