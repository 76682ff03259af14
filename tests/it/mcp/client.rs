//! A client that speaks lines.

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::support::{Background, Home};

/// The first request of a session.
pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

/// A `transit-mcp`, and the client that has started it.
pub(crate) struct Client {
    server: Background,
    next_id: i64,
}

impl Client {
    /// Starts a server with these arguments and variables.
    pub(crate) fn start(home: &Home, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = home.command("transit-mcp");
        command.args(args).envs(env.iter().copied());
        Self { server: Background::start(&mut command), next_id: 1 }
    }

    /// The same, with its session begun.
    pub(crate) fn initialized(home: &Home, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut client = Self::start(home, args, env);
        client.raw(format!("{INITIALIZE}\n").as_bytes());
        assert!(client.answer()["result"].is_object());
        client.notify("notifications/initialized");
        client
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(crate) fn server(&mut self) -> &mut Background {
        &mut self.server
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.server.write(bytes);
    }

    /// The next line that the server writes; each is a message.
    pub(crate) fn answer(&self) -> Value {
        let line = self.server.line();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|err| panic!("{err}: {line}"));
        assert_eq!(answer["jsonrpc"], "2.0", "{line}");
        answer
    }

    pub(crate) fn notify(&mut self, method: &str) {
        self.raw(format!("{}\n", json!({ "jsonrpc": "2.0", "method": method })).as_bytes());
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.raw(format!("{request}\n").as_bytes());
        let answer = self.answer();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub(crate) fn tool_names(&mut self) -> Vec<String> {
        let answer = self.request("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Calls a tool that does what it says; answers with its text.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.request("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Calls a tool that refuses; answers with its text and the stable code.
    pub(crate) fn fails(&mut self, tool: &str, arguments: Value) -> (String, String) {
        let answer = self.request("tools/call", json!({ "name": tool, "arguments": arguments }));
        let result = &answer["result"];
        assert_eq!(result["isError"], true, "{answer}");
        let said = result["content"][0]["text"].as_str().unwrap().to_owned();
        assert!(said.starts_with(&format!("Error: {tool}: ")), "{said}");
        (said, result["structuredContent"]["code"].as_str().unwrap().to_owned())
    }

    /// Ends the server's stdin; the server ends well, and has said nothing more.
    pub(crate) fn end(mut self) {
        assert!(self.server.wait().success());
        assert_eq!(self.server.pending_lines(), [""; 0]);
    }
}

/// A daemon that takes calls and never answers; the connections are handed out.
pub(crate) fn silent_daemon(home: &Home) -> Receiver<UnixStream> {
    std::fs::create_dir_all(home.data()).unwrap();
    let listener = UnixListener::bind(home.data().join("transit.sock")).unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if tell.send(stream).is_err() {
                break;
            }
        }
    });
    told
}
