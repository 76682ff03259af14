//! Every tool, through a real daemon and Worker.

use serde_json::{Value, json};

use super::client::Client;
use crate::rig::Rig;
use crate::support::{Sink, eventually};

/// A call that may come before the Worker knows the agent.
fn call(client: &mut Client, tool: &str, arguments: &Value) -> String {
    eventually(|| {
        let answer = client.request("tools/call", json!({ "name": tool, "arguments": arguments }));
        let result = &answer["result"];
        let is_early =
            ["invalid_caller", "rpc_failed"].iter().any(|code| result["structuredContent"]["code"] == *code);
        (!is_early).then(|| {
            assert_eq!(result["isError"], false, "{tool}: {answer}");
            result["content"][0]["text"].as_str().unwrap().to_owned()
        })
    })
}

#[test]
fn every_tool_does_what_it_says() {
    let sink = Sink::start(&[200]);
    let rig = Rig::start(&format!("http://{}/reply/", sink.at));
    let (mut bob, _eve) = (rig.listen("bob"), rig.listen("eve"));
    let mut client = Client::initialized(&rig.home, &["--as", "bob"], &[]);

    assert_eq!(call(&mut client, "create_room", &json!({"name": "ops"})), "Created and joined room: #ops");
    let (said, code) = client.fails("create_room", json!({"name": "ops", "policy": "invite"}));
    assert!(code == "room_exists" && said.contains("join_room"), "{said}");
    assert_eq!(call(&mut client, "leave_room", &json!({"room": "#ops"})), "Left room: #ops");
    assert_eq!(client.fails("send_message", json!({"to": "#ops", "message": "hi"})).1, "not_member");
    assert_eq!(call(&mut client, "join_room", &json!({"room": "ops"})), "Joined room: #ops");
    let rooms: Value = serde_json::from_str(&call(&mut client, "list_rooms", &json!({}))).unwrap();
    assert_eq!(rooms[0]["name"], "ops");
    let agents = call(&mut client, "list_agents", &json!({"host": "demo"}));
    assert!(agents.contains("\n") && agents.contains("\"eve@demo\""), "it is indented: {agents}");
    assert_eq!(client.fails("list_agents", json!({"host": "No Host"})).1, "bad_params");
    assert_eq!(client.call("whoami", json!({})), "bob@demo (connected: true)");

    let sent = client.call("send_message", json!({"to": "bob@demo", "message": "n".repeat(20_000)}));
    let own = bob.delivered()["id"].as_str().unwrap().to_owned();
    assert!(sent.starts_with(&format!("Message {own} to bob@demo: ")), "{sent}");
    bob.ack(&own);
    let full = client.call("read_message", json!({"id": own}));
    assert!(full.starts_with("<transit_full ") && full.contains(&"n".repeat(20_000)), "{}", full.len());
    assert_eq!(
        client.fails("send_message", json!({"to": "nobody@demo", "message": "x"})).1,
        "agent_not_found"
    );
    assert_eq!(client.fails("send_message", json!({"to": "x@mars", "message": "x"})).1, "no_route");
    assert_eq!(client.fails("send_message", json!({"to": "bob", "message": "x"})).1, "bad_address");
    assert_eq!(
        client.fails("send_message", json!({"to": "bob@demo", "message": "x".repeat(65_537)})).1,
        "body_too_large"
    );

    for (event, settles) in [("build-1", "chat_reply"), ("build-2", "mark_handled")] {
        let id = rig.post(event, "the build broke").json()["delivery_id"].as_str().unwrap().to_owned();
        assert_eq!(bob.delivered()["id"], json!(id));
        bob.ack(&id);
        let full = client.call("read_message", json!({"id": id}));
        assert!(full.contains("the build broke") && full.contains("[settle: "), "{full}");
        let mut given = json!({"delivery_id": id});
        if settles == "chat_reply" {
            given["conversation_id"] = "other".into();
            given["message"] = "on it".into();
            assert_eq!(client.fails("chat_reply", given.clone()).1, "conversation_mismatch");
            given["conversation_id"] = "main".into();
        }
        let settled: Value = serde_json::from_str(&client.call(settles, given.clone())).unwrap();
        assert_eq!(settled["duplicate"], false, "{settled}");
        let again: Value = serde_json::from_str(&client.call(settles, given)).unwrap();
        assert_eq!(again["duplicate"], true, "{again}");
    }
    assert_eq!(sink.next().json()["message"], "on it");

    assert_eq!(client.call("claim_name", json!({"name": "robert"})), "Claimed name: robert@demo");
    assert_eq!(client.call("whoami", json!({})), "robert@demo (connected: true)");
    assert_eq!(client.fails("claim_name", json!({"name": "eve"})).1, "claim_failed");
    // The Worker knows it as soon as it has the roster, and its room goes with it.
    let posted = eventually(|| {
        let answer = client.request(
            "tools/call",
            json!({"name": "send_message", "arguments": {"to": "#ops", "message": "x"}}),
        );
        let said = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        said.ends_with("committed").then_some(said)
    });
    assert!(posted.contains(" to #ops: "), "{posted}");
    client.end();
}

#[test]
fn three_hundred_calls_at_the_same_time_are_all_answered() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let mut bob = rig.listen("bob");
    let mut client = Client::initialized(&rig.home, &["--as", "bob"], &[]);
    call(&mut client, "list_agents", &json!({}));
    for id in 0..300 {
        // Of one sender no more are taken at once.
        let (tool, arguments) = match id % 30 {
            0 => ("send_message", json!({"to": "bob@demo", "message": format!("message {id}")})),
            1..15 => ("list_agents", json!({})),
            _ => ("whoami", json!({})),
        };
        let request = json!({
            "jsonrpc": "2.0", "id": format!("call-{id}"), "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        });
        client.raw(format!("{request}\n").as_bytes());
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut delivered = 0;
    while seen.len() < 300 {
        if delivered < 10 {
            let id = bob.delivered()["id"].as_str().unwrap().to_owned();
            bob.ack(&id);
            delivered += 1;
            continue;
        }
        let answer = client.answer();
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        assert!(seen.insert(answer["id"].to_string()), "one answer each: {answer}");
    }
    client.end();
}
