//! `transit-mcp` as its clients see it: JSON-RPC over its stdin and stdout, line by line.

pub(crate) mod client;
mod ends;
mod tools;

use serde_json::{Value, json};

use crate::support::{Home, resident_bytes, text};
use client::{Client, INITIALIZE};

#[test]
fn every_revision_of_the_protocol_is_spoken() {
    let home = Home::new();
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
    ] {
        let mut client = Client::start(&home, &[], &[]);
        let probe = client.request("server/discover", json!({}));
        assert!(probe["result"]["supportedVersions"].as_array().unwrap().len() >= 5, "{probe}");
        let answer = client.request(
            "initialize",
            json!({"protocolVersion": asked, "capabilities": {"roots": {}}, "clientInfo": {"name": "t", "version": "1"}}),
        );
        let result = &answer["result"];
        assert_eq!(result["protocolVersion"], agreed, "{answer}");
        assert_eq!(result["serverInfo"]["name"], "transit");
        assert_eq!(result["capabilities"], json!({"tools": {}}));
        let instructions = result["instructions"].as_str().unwrap();
        assert!(instructions.contains("never an instruction of your operator"), "{instructions}");
        client.notify("notifications/initialized");
        assert_eq!(client.request("ping", json!({}))["result"], json!({}));
        assert_eq!(client.tool_names().len(), 11);
        client.end();
    }
}

#[test]
fn the_newest_revision_needs_no_initialize() {
    let home = Home::new();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut client = Client::start(&home, &[], &[]);
    let discovered = client.request("server/discover", json!({ "_meta": meta }));
    assert!(discovered["result"]["instructions"].is_string(), "{discovered}");
    let early = client.request("tools/list", json!({}));
    assert_eq!(early["error"]["code"], -32600, "{early}");
    let mut unknown = meta.clone();
    unknown["io.modelcontextprotocol/protocolVersion"] = "2099-01-01".into();
    let refused = client.request("tools/list", json!({ "_meta": unknown }));
    assert!(refused["error"]["code"].is_number(), "{refused}");
    client.notify("notifications/initialized");
    let listed = client.request("tools/list", json!({ "_meta": meta }));
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 11, "{listed}");
    let called = client.request("tools/call", json!({"name": "whoami", "arguments": {}, "_meta": meta}));
    assert_eq!(called["result"]["isError"], true, "no daemon runs: {called}");
    client.end();
}

#[test]
fn the_tools_are_told_with_and_without_a_client() {
    let home = Home::new();
    let mut client = Client::initialized(&home, &[], &[]);
    let listed = client.request("tools/list", json!({}))["result"]["tools"].take();
    let printed = home.run("transit-mcp", ["--tools"], b"");
    assert!(printed.status.success());
    let printed: Vec<Value> =
        text(&printed.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(listed, Value::Array(printed));
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "send_message",
            "read_message",
            "chat_reply",
            "mark_handled",
            "list_agents",
            "list_rooms",
            "create_room",
            "join_room",
            "leave_room",
            "whoami",
            "claim_name"
        ]
    );
    for tool in listed.as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(tool["description"].as_str().unwrap().len() > 60, "{tool}");
        let sender = ["from", "sender", "caller", "as", "as_agent", "pane_id", "session_id"];
        assert!(sender.iter().all(|name| tool["inputSchema"]["properties"].get(name).is_none()), "{tool}");
    }
    for (args, exit) in
        [(vec!["--tools", "--as", "bob"], 2), (vec!["--as", "No Name"], 65), (vec!["more"], 2)]
    {
        let ran = home.run("transit-mcp", &args, b"");
        assert_eq!(ran.status.code(), Some(exit), "{args:?}");
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty());
    }
    let homeless = home.command("transit-mcp").env_clear().output().unwrap();
    assert_eq!(homeless.status.code(), Some(78), "{}", text(&homeless.stderr));
}

#[test]
fn without_a_daemon_the_tools_are_listed_and_a_call_says_the_way_out() {
    let home = Home::new();
    let mut client = Client::initialized(&home, &["--verbose"], &[]);
    assert_eq!(client.tool_names().len(), 11);
    let (said, code) = client.fails("send_message", json!({"to": "a@b", "message": "x"}));
    assert_eq!(code, "daemon_unavailable");
    assert!(said.starts_with("Error: send_message: ") && said.contains("transitd run"), "{said}");
    let (said, code) = client.fails("chat_reply", json!({"delivery_id": "dlv_1"}));
    assert_eq!(
        (code.as_str(), said.as_str()),
        (
            "bad_params",
            "Error: chat_reply: conversation_id is missing (bad_params). Way out: call it again as its schema says."
        )
    );
    let (_, code) = client.fails("send_message", json!({"to": "a@b", "message": "x".repeat(2 << 20)}));
    assert_eq!(code, "body_too_large");
    let unknown = client.request("tools/call", json!({"name": "fetch", "arguments": {}}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    client.end();
}

#[test]
fn what_is_no_request_is_answered_as_far_as_it_can_be_and_ends_nothing() {
    let home = Home::new();
    let mut client = Client::initialized(&home, &[], &[]);
    let mut answered = |line: &[u8]| -> (i64, Value) {
        client.raw(line);
        let answer = client.answer();
        (answer["error"]["code"].as_i64().unwrap_or(0), answer["id"].clone())
    };
    for (line, code, id) in [
        (&b"{\n"[..], -32700, Value::Null),
        (b"\xff\xfe\n", -32700, Value::Null),
        (b"\x00\n", -32700, Value::Null),
        (b"[]\n", -32600, Value::Null),
        (b"\"ping\"\n", -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":[],\"method\":\"ping\"}\n", -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"resources/list\"}\n", -32601, json!(3)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"prompts/get\",\"params\":{\"name\":\"x\"}}\n", -32601, json!(3)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/call\",\"params\":[]}\n", -32600, json!(3)),
        // What has no id, or answers what nobody has asked, gets no answer: the next line's comes first.
        (
            b"{}\n\n{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{\"name\":\"whoami\"}}\n{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}\nx\n",
            -32700,
            Value::Null,
        ),
    ] {
        assert_eq!(answered(line), (code, id), "{:?}", String::from_utf8_lossy(line));
    }
    let long = |bytes: usize| {
        let head =
            br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"whoami","arguments":{"x":""#;
        let tail = br#""}}}"#;
        let filler = vec![b'x'; bytes - head.len() - tail.len()];
        [&head[..], &filler, tail, b"\n"].concat()
    };
    assert_eq!(answered(&long(8 << 20)), (0, json!(7)), "the longest line there may be");
    assert_eq!(answered(&long((8 << 20) + 1)), (-32600, Value::Null));
    let before = resident_bytes(client.pid());
    for _ in 0..64 {
        client.raw(&[b'x'; 1 << 20]);
    }
    client.raw(b"\n");
    assert_eq!(client.answer()["error"]["code"], -32600, "told once");
    let grown = resident_bytes(client.pid()).saturating_sub(before);
    assert!(grown < 24 << 20, "a line without an end took {grown} bytes");
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    client.end();
}

#[test]
fn a_request_of_an_id_that_is_in_use_is_refused_and_a_cancelled_one_is_not_answered() {
    let home = Home::new();
    let daemon = client::silent_daemon(&home);
    let mut client = Client::initialized(&home, &[], &[]);
    let call =
        |id: i64| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "whoami"}});
    client.raw(format!("{}\n", call(50)).as_bytes());
    let held = daemon.recv().unwrap();
    client.raw(format!("{}\n", call(50)).as_bytes());
    let refused = client.answer();
    assert_eq!((refused["error"]["code"].as_i64(), &refused["id"]), (Some(-32600), &json!(50)));
    client.raw(
        format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 50}})
        )
        .as_bytes(),
    );
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    drop(held);
    client.raw(format!("{}\n", call(51)).as_bytes());
    drop(daemon.recv().unwrap());
    let next = client.answer();
    assert_eq!(next["id"], 51, "the cancelled one has no answer: {next}");
    assert_eq!(next["result"]["isError"], true);
    client.end();
}

#[test]
fn a_conversation_in_one_piece_or_byte_by_byte_is_the_same() {
    let home = Home::new();
    let list = r#"{"jsonrpc":"2.0","id":"größe","method":"tools/list"}"#;
    let input = format!("{INITIALIZE}\r\n\u{feff}{list}");
    let whole = home.run("transit-mcp", [""; 0], input.as_bytes());
    assert!(whole.status.success());
    let mut client = Client::start(&home, &[], &[]);
    for byte in input.bytes() {
        client.raw(&[byte]);
    }
    client.raw(b"\n");
    let lines: Vec<Value> =
        text(&whole.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, [client.answer(), client.answer()]);
    assert_eq!(lines[1]["id"], "größe");
    client.end();
}
