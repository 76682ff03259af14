//! A running Worker, driven from outside: raw requests, raw frames, a sink for its callbacks.

mod desk;
mod ingest;
mod limits;
mod links;
mod loops;
mod messages;
mod rooms;
mod settle;
mod wire;

use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use serde_json::{Value, json};
use tungstenite::protocol::CloseFrame;
use tungstenite::{Message, WebSocket};

use crate::support::{Background, Home, Http, LONG, http, request, text};
use transit::clock::{Clock, SystemClock};
use transit::proto::ingest::Signer;
use transit::secret::Secret;
use transit::store::ledger::{Db, credentials, directory};

const SECRET: &str = "a secret of tests";

/// A Worker on a database of its own.
struct Worker {
    home: Home,
    process: Background,
    at: SocketAddr,
}

impl Worker {
    fn start() -> Self {
        Self::start_in(Home::new())
    }

    fn start_in(home: Home) -> Self {
        Self::start_with(home, &[])
    }

    /// The same with further options of `serve`.
    fn start_with(home: Home, options: &[&str]) -> Self {
        Self::start_as(home, |mut command| {
            command.args(options);
            command
        })
    }

    /// Starts it by another command that is made of the usual one.
    fn start_through(wrap: impl FnOnce(Command) -> Command) -> Self {
        Self::start_as(Home::new(), wrap)
    }

    fn start_as(home: Home, wrap: impl FnOnce(Command) -> Command) -> Self {
        let ready = home.path("worker-ready");
        let _ = std::fs::remove_file(&ready);
        let mut command = home.command("transit-worker");
        command.args(["serve", "--listen", "127.0.0.1:0", "--allow-private-callbacks", "--ready-file"]);
        command.arg(&ready);
        let mut process = Background::start(&mut wrap(command));
        let told = process.ready(&ready);
        let at = told["listen"].as_str().unwrap().parse().unwrap();
        Self { home, process, at }
    }

    /// Kills it as a power cut would, and starts it again on the same database.
    fn restart(self) -> Self {
        let Self { home, process, .. } = self;
        drop(process);
        Self::start_in(home)
    }

    /// An operator's command, with its answer.
    fn admin(&self, args: &[&str]) -> Value {
        let ran = self.home.run("transit-worker", [args, &["--json"]].concat(), b"");
        assert!(ran.status.success(), "{args:?}: {}", text(&ran.stderr));
        serde_json::from_slice(&ran.stdout).unwrap_or(Value::Null)
    }

    /// A host's device token.
    fn enrol(&self, host: &str) -> String {
        let code = self.admin(&["host", "enroll", host])["code"].as_str().unwrap().to_owned();
        let answer = self.post("/api/daemon/enroll", &json!({ "code": code, "daemon_ver": "1" }));
        assert_eq!(answer.status(), 200);
        let answer = answer.json();
        assert_eq!((&answer["host"], &answer["org"]), (&json!(host), &json!("default")));
        answer["device_token"].as_str().unwrap().to_owned()
    }

    /// Device tokens of so many hosts, `h0` and on, made by way of the ledger beside the server.
    fn enrol_many(&self, hosts: usize) -> Vec<String> {
        let db = Db::open(&self.home.data().join("worker.db")).unwrap();
        let tokens: Vec<String> = (0..hosts).map(|n| format!("token of h{n}")).collect();
        let made = tokens.clone();
        db.write(move |tx| {
            let (org, now) = (directory::org(tx, "default")?.unwrap(), SystemClock::new().wall());
            for (n, token) in made.iter().enumerate() {
                let (host, code) = (format!("h{n}").parse().unwrap(), credentials::code_hash(token));
                directory::issue_code(tx, &org.id, &host, &code, now)?;
                directory::redeem_code(tx, &code, &credentials::token_hash(token), "1", now)?.unwrap();
            }
            Ok(())
        })
        .unwrap();
        tokens
    }

    /// A source `ci` with [`SECRET`] whose events go to `target`.
    fn source(&self, target: &str, more: &[&str]) {
        let secret = self.home.file("secret", SECRET);
        std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let path = secret.to_str().unwrap();
        let args = ["source", "create", "ci", "--target", target, "--secret-file", path];
        self.admin(&[&args, more].concat());
    }

    fn post(&self, path: &str, body: &Value) -> Http {
        http(self.at, &request("POST", path, &[], body.to_string().as_bytes()))
    }

    /// A signed event.
    fn event(&self, body: &[u8]) -> Http {
        http(self.at, &signed(body))
    }

    /// A daemon whose hello was good, with these agents on its roster.
    fn daemon(&self, host: &str, token: &str, agents: &[&str]) -> Daemon {
        let mut daemon = Daemon::connect(self.at, token).unwrap();
        daemon.hello(host);
        daemon.roster(agents);
        // Whatever is asked after the roster is answered after it.
        daemon
    }
}

fn event(key: &str) -> Value {
    json!({ "schema": "transit.ingest/1", "event_key": key, "conversation_id": "c 1", "content": "the build is red",
            "user": "Ada", "trigger": "alert" })
}

fn headers(body: &[u8]) -> [(&'static str, String); 2] {
    let timestamp = SystemClock::new().wall().unix_seconds().to_string();
    let signature = Signer::new(&Secret::new(SECRET).unwrap()).sign(&timestamp, body);
    [("Transit-Timestamp", timestamp), ("Transit-Signature", signature)]
}

fn signed(body: &[u8]) -> Vec<u8> {
    let headers = headers(body);
    let fields: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    request("POST", "/ingest/ci", &fields, body)
}

/// A daemon's end of a socket, without its rules.
struct Daemon {
    socket: WebSocket<TcpStream>,
}

impl Daemon {
    /// Upgrades; the status when that is refused.
    fn connect(at: SocketAddr, token: &str) -> Result<Self, u16> {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let upgrade = tungstenite::http::Request::get(format!("ws://{at}/api/daemon/ws"))
            .header("Host", at.to_string())
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", tungstenite::handshake::client::generate_key())
            .header("Authorization", format!("Bearer {token}"));
        match tungstenite::client(upgrade.body(()).unwrap(), stream) {
            Ok((socket, _)) => Ok(Self { socket }),
            Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
                Err(answer.status().as_u16())
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn say(&mut self, frame: &Value) {
        self.socket.send(Message::text(frame.to_string())).unwrap();
    }

    fn hello(&mut self, host: &str) {
        self.say(&json!({ "t": "hello", "proto": 1, "daemon_ver": "1", "host": host }));
        let answer = self.next();
        assert_eq!((answer["t"].as_str(), answer["org"].as_str()), (Some("hello_ok"), Some("default")));
    }

    fn roster(&mut self, agents: &[&str]) {
        let agents: Vec<Value> = agents
            .iter()
            .map(|name| {
                json!({ "name": name, "kind": "program", "pane_id": "p", "status": "idle", "cwd": "/", "title": "",
                        "named_by": "user" })
            })
            .collect();
        self.say(&json!({ "t": "roster", "agents": agents }));
    }

    /// The next frame.
    fn next(&mut self) -> Value {
        match self.socket.read().unwrap() {
            Message::Text(text) => serde_json::from_str(text.as_str()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// The next frame, which is a deliver.
    fn delivered(&mut self) -> Value {
        let frame = self.next();
        assert_eq!(frame["t"], "deliver", "{frame}");
        frame
    }

    fn ack(&mut self, delivered: &Value) {
        self.say(&json!({ "t": "deliver_ack", "id": delivered["id"], "agent": delivered["agent"] }));
    }

    fn nak(&mut self, delivered: &Value, code: &str, retryable: bool) {
        self.say(
            &json!({ "t": "deliver_nak", "id": delivered["id"], "agent": delivered["agent"], "code": code,
                          "retryable": retryable }),
        );
    }

    /// Sends a message and answers the frame that answers it.
    fn send(&mut self, id: &str, from: &str, to: &str, body: &str) -> Value {
        self.say(&json!({ "t": "send", "id": id, "from": from, "to": to, "body": body,
                          "ts": "2026-01-01T00:00:00Z" }));
        self.next()
    }

    /// Calls a method in an agent's name: the result, or the error's code.
    fn call(&mut self, caller: &str, method: &str, mut params: Value) -> Result<Value, String> {
        params["caller"] = caller.into();
        self.say(&json!({ "t": "rpc", "rid": "r1", "method": method, "params": params }));
        let answer = self.next();
        assert_eq!(
            (answer["t"].as_str(), answer["rid"].as_str()),
            (Some("rpc_result"), Some("r1")),
            "{answer}"
        );
        match answer.get("error") {
            Some(error) => Err(error["code"].as_str().unwrap().to_owned()),
            None => Ok(answer["result"].clone()),
        }
    }

    /// Reads on until the Worker closes: the frames before, and the code.
    fn closed(&mut self) -> (Vec<Value>, u16) {
        let (mut frames, mut code) = (Vec::new(), 0);
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => frames.push(serde_json::from_str(text.as_str()).unwrap()),
                Ok(Message::Close(Some(CloseFrame { code: told, .. }))) => code = told.into(),
                Ok(_) => {}
                Err(tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed) => {
                    return (frames, code);
                }
                Err(err) => panic!("the closing handshake does not end: {err}"),
            }
        }
    }
}
