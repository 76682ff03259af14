//! `transit-agent call`: one tool call, asked on `transit.sock`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;

use serde_json::{Value, json};

use crate::support::{Home, text};

/// One call of `transit.sock` that is answered with `answer`; what was asked comes back.
fn asked(home: &Home, args: &[&str], input: &[u8], answer: &str) -> (Value, std::process::Output) {
    let _ = std::fs::remove_file(home.data().join("transit.sock"));
    std::fs::create_dir_all(home.data()).unwrap();
    let listener = UnixListener::bind(home.data().join("transit.sock")).unwrap();
    std::thread::scope(|scope| {
        let daemon = scope.spawn(move || {
            let stream = listener.accept().unwrap().0;
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
            serde_json::from_str(&line).unwrap()
        });
        let ran = home.run("transit-agent", ["call"].iter().chain(args), input);
        (daemon.join().unwrap(), ran)
    })
}

#[test]
fn call_asks_one_tool_and_prints_what_it_says() {
    let home = Home::new();
    let full = "<transit_full id=\\\"dlv_1\\\">\\nhi\\n</transit_full>";
    let answer = format!("{{\"ok\":true,\"result\":\"{full}\"}}\n");
    let (call, ran) = asked(&home, &["read_message", r#"{"id":"dlv_1"}"#], b"", &answer);
    assert_eq!(call, json!({"op": "rpc", "method": "read_message", "params": {"id": "dlv_1"}}));
    assert_eq!(text(&ran.stdout), "<transit_full id=\"dlv_1\">\nhi\n</transit_full>\n");
    let (call, ran) = asked(
        &home,
        &["chat_reply", "-", "--as", "bob"],
        b"{\"delivery_id\":\"dlv_1\",\"conversation_id\":\"c\",\"message\":\"\xc3\xa9\"}",
        "{\"ok\":true,\"result\":{\"status\":\"handled\"}}\n",
    );
    assert_eq!((&call["params"]["message"], &call["as_agent"]), (&json!("é"), &json!("bob")));
    assert_eq!(text(&ran.stdout), "{\"status\":\"handled\"}\n");
    let (call, ran) =
        asked(&home, &["whoami"], b"", "{\"ok\":true,\"address\":\"bob@titan\",\"connected\":false}\n");
    assert_eq!(call, json!({"op": "whoami"}));
    assert_eq!(text(&ran.stdout), "{\"address\":\"bob@titan\",\"connected\":false}\n");
    let (_, ran) = asked(&home, &["x", "--json"], b"", "{\"ok\":true,\"result\":\"a\\nb\"}\n");
    assert_eq!(text(&ran.stdout), "\"a\\nb\"\n");
}

#[test]
fn a_call_that_fails_says_why_and_prints_nothing() {
    let home = Home::new();
    let ran = home.run("transit-agent", ["call", "whoami"], b"");
    assert_eq!(ran.status.code(), Some(69));
    assert!(text(&ran.stderr).contains("transitd run"));
    let ran = home.run("transit-agent", ["call", "read_message", "[1]"], b"");
    assert_eq!(ran.status.code(), Some(65));
    for (answer, exit) in [
        ("{\"ok\":false,\"code\":\"already_handled\",\"error\":\"it is settled\"}\n", 1),
        ("{\"ok\":false,\"code\":\"not_owner\",\"error\":\"delivery owner mismatch\"}\n", 77),
        ("{\"ok\":false,\"code\":\"rpc_failed\",\"error\":\"not connected\"}\n", 69),
        ("{\"ok\":false,\"code\":\"too_many\",\"error\":\"wait\"}\n", 75),
        ("what?\n", 76),
        ("{\"ok\":tr", 69),
        ("", 69),
    ] {
        let (_, ran) = asked(&home, &["mark_handled", r#"{"delivery_id":"dlv_1"}"#], b"", answer);
        assert_eq!(ran.status.code(), Some(exit), "{answer}");
        assert!(ran.stdout.is_empty());
        let said = text(&ran.stderr);
        // What became of a call whose answer is lost, nobody knows.
        let is_lost = !answer.ends_with('\n');
        assert_eq!(said.contains("may have been done"), is_lost, "{said}");
        // An answer that is none leaves nothing to be said; all else has its way out.
        assert_eq!(said.lines().count(), if exit == 76 { 1 } else { 2 }, "{said}");
        if let Some(code) = answer.split('"').nth(5).filter(|code| code.contains('_')) {
            assert!(said.starts_with("transit-agent: mark_handled: ") && said.contains(code), "{said}");
        }
    }
}
