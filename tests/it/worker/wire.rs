//! Every rule of transit-wire/1, walked by a daemon that does nothing by itself.

mod calls;
mod guard;
mod hello;
mod orgs;
mod queue;
mod rooms;
mod sends;

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::protocol::CloseFrame;
use tungstenite::{Error, Message};

use super::{Daemon, Worker};
use crate::support::{eventually_within, request, text};

/// A daemon's end whose frames can be waited for in any order.
struct Peer {
    daemon: Daemon,
    host: String,
    /// Frames that came and were not asked for yet.
    waiting: VecDeque<Value>,
}

impl Peer {
    /// Connects and says hello; its roster is stored when this returns. One without agents cannot be waited for.
    fn enter(worker: &Worker, host: &str, token: &str, agents: &[&str]) -> Self {
        let mut peer = Self::greeted(worker, host, token);
        peer.daemon.roster(agents);
        if let Some(agent) = agents.first() {
            // No faster than frames may come, however slow the disk is.
            eventually_within(Duration::from_secs(120), || peer.call(agent, "list_rooms", json!({})).ok());
        }
        peer
    }

    /// The same without a roster.
    fn greeted(worker: &Worker, host: &str, token: &str) -> Self {
        let daemon = Daemon::connect(worker.at, token).unwrap();
        let mut peer = Self { daemon, host: host.to_owned(), waiting: VecDeque::new() };
        peer.say(&json!({ "t": "hello", "proto": 1, "daemon_ver": "1", "host": host }));
        peer.next("hello_ok");
        peer
    }

    fn say(&mut self, frame: &Value) {
        self.daemon.say(frame);
    }

    /// The next frame of this kind.
    fn next(&mut self, kind: &str) -> Value {
        self.next_that(|frame| frame["t"] == kind)
    }

    fn next_that(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.waiting.iter().position(&is_wanted) {
            return self.waiting.remove(place).unwrap();
        }
        loop {
            let frame = self.daemon.next();
            if is_wanted(&frame) {
                return frame;
            }
            self.waiting.push_back(frame);
        }
    }

    /// Sends a message; the code of its refusal.
    fn send(&mut self, id: &str, from: &str, to: &str) -> Option<String> {
        self.send_frame(json!({ "id": id, "from": format!("{from}@{}", self.host), "to": to, "body": "x",
                                "ts": "2026-01-01T00:00:00Z" }))
    }

    /// The same with all of the frame but its `t`.
    fn send_frame(&mut self, frame: Value) -> Option<String> {
        let id = self.begin(frame);
        self.answer(&id)
    }

    /// Sends a message and waits for nothing.
    fn begin(&mut self, mut frame: Value) -> Value {
        frame["t"] = "send".into();
        self.say(&frame);
        frame["id"].take()
    }

    /// The answer to a message: the code of its refusal.
    fn answer(&mut self, id: &Value) -> Option<String> {
        let answer = self.next_that(|answer| {
            (answer["t"] == "send_ack" || answer["t"] == "send_nak") && answer["id"] == *id
        });
        answer["code"].as_str().map(str::to_owned)
    }

    /// Calls a method in an agent's name: the result, or the whole error.
    fn ask(&mut self, caller: &str, method: &str, mut params: Value) -> Result<Value, Value> {
        params["caller"] = caller.into();
        self.say(&json!({ "t": "rpc", "rid": "walk", "method": method, "params": params }));
        let answer = self.next("rpc_result");
        assert_eq!(answer["rid"], "walk");
        match answer.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(answer["result"].clone()),
        }
    }

    /// The same with the error's code alone.
    fn call(&mut self, caller: &str, method: &str, params: Value) -> Result<Value, String> {
        self.ask(caller, method, params).map_err(|error| error["code"].as_str().unwrap().to_owned())
    }

    /// The next delivery: its id and its agent.
    fn delivered(&mut self) -> (String, String) {
        let frame = self.next("deliver");
        let word = |name: &str| frame[name].as_str().unwrap().to_owned();
        (word("id"), word("agent"))
    }

    fn ack(&mut self, id: &str, agent: Option<&str>) {
        self.say(&json!({ "t": "deliver_ack", "id": id, "agent": agent }));
    }

    fn nak(&mut self, id: &str, agent: &str, code: &str, retryable: bool) {
        self.say(
            &json!({ "t": "deliver_nak", "id": id, "agent": agent, "code": code, "retryable": retryable }),
        );
    }

    /// All that was said before is in the ledger, and what came of it has arrived.
    fn settled(&mut self, agent: &str) {
        let nothing = json!({ "delivery_id": "dlv_000000000000" });
        assert_eq!(self.call(agent, "mark_handled", nothing).unwrap_err(), "not_found");
        self.say(&json!({ "t": "pong" }));
        self.next("ping");
    }

    /// Nothing was delivered that was not asked for.
    #[track_caller]
    fn nothing_delivered(&mut self, agent: &str) {
        self.settled(agent);
        let delivered: Vec<_> = self.waiting.iter().filter(|frame| frame["t"] == "deliver").collect();
        assert!(delivered.is_empty(), "{delivered:?}");
    }

    /// Reads on until the Worker closes: the code and the reason.
    fn closed(&mut self) -> (u16, String) {
        let mut told = (0, String::new());
        loop {
            match self.daemon.socket.read() {
                Ok(Message::Close(Some(CloseFrame { code, reason }))) => {
                    told = (code.into(), reason.to_string())
                }
                Ok(Message::Text(text)) => {
                    self.waiting.push_back(serde_json::from_str(text.as_str()).unwrap())
                }
                Ok(_) => {}
                Err(Error::ConnectionClosed | Error::AlreadyClosed) => return told,
                Err(err) => panic!("the closing handshake does not end: {err}"),
            }
        }
    }
}

fn tx(n: u32) -> String {
    format!("tx_{n:012x}")
}

/// A Worker that lets agents talk without end, with `amy` and `abe` on alpha, `bob` and `ben` on beta.
fn two_hosts() -> (Worker, Peer, Peer, [String; 2]) {
    let worker = Worker::start_with(crate::support::Home::new(), &["--loop-limit", "0"]);
    let tokens = [worker.enrol("alpha"), worker.enrol("beta")];
    let alpha = Peer::enter(&worker, "alpha", &tokens[0], &["amy", "abe"]);
    let beta = Peer::enter(&worker, "beta", &tokens[1], &["bob", "ben"]);
    (worker, alpha, beta, tokens)
}

/// Enrols a host of another organisation than the first.
fn enrol_in(worker: &Worker, org: &str, host: &str) -> String {
    let code = worker.admin(&["host", "enroll", host, "--org", org])["code"].clone();
    let body = json!({ "code": code, "daemon_ver": "1" }).to_string();
    let answer =
        crate::support::http(worker.at, &request("POST", "/api/daemon/enroll", &[], body.as_bytes()));
    assert_eq!(answer.status(), 200, "{}", text(&answer.body));
    answer.json()["device_token"].as_str().unwrap().to_owned()
}
