//! A daemon between a scripted Worker and scripted adapters.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use serde_json::{Value, json};
use transit::clock::{Clock, SystemClock};
use transit::proto::wire::{RpcError, WorkerConfig, WorkerEnd, WorkerEvent};
use transit::proto::{Input, Output};
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::{Message, WebSocket};

use crate::support::{Background, Home, LONG, Nobody, eventually};

pub(super) const TOKEN: &str = "t0ken-of-titan";
/// How long the scripted Worker listens before it looks for orders.
const LISTEN: Duration = Duration::from_millis(5);

/// A home in which `transitd` is enrolled as `titan` at this Worker.
pub(super) fn enrolled(at: SocketAddr) -> Home {
    let home = Home::new();
    std::fs::create_dir(home.data()).unwrap();
    home.file("config.json", json!({ "url": format!("http://{at}"), "host": "titan" }).to_string());
    home.file("data/token", format!("{TOKEN}\n"));
    home
}

/// Starts `transitd run` and waits until it serves.
pub(super) fn start(home: &Home) -> Background {
    start_with(home, &[])
}

pub(super) fn start_with(home: &Home, more: &[&str]) -> Background {
    let ready = home.path("ready.json");
    let _ = std::fs::remove_file(&ready);
    let mut command = home.command("transitd");
    command.args(["run", "--ready-file"]).arg(&ready).args(more);
    let mut daemon = Background::start(&mut command);
    daemon.ready(&ready);
    daemon
}

/// One call on `transit.sock`.
pub(super) fn ask(home: &Home, call: &Value) -> Value {
    let mut stream = UnixStream::connect(home.data().join("transit.sock")).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(format!("{call}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

/// Waits until the daemon's status is as wanted.
pub(super) fn status_until(home: &Home, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(|| Some(ask(home, &json!({ "op": "status" }))).filter(&wanted))
}

/// An adapter, frame by frame.
pub(super) struct Adapter {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    capability: String,
}

impl Adapter {
    pub(super) fn connect(home: &Home) -> Self {
        Self::through(&home.data().join("agent.sock"))
    }

    /// Connects to a socket that may be another process's, which passes everything on.
    pub(super) fn through(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        Self { stream, lines, capability: String::new() }
    }

    /// Registers, and answers with what the daemon said.
    pub(super) fn register(home: &Home, session: &str, name: Option<&str>) -> (Self, Value) {
        let mut adapter = Self::connect(home);
        adapter.send(&registration(session, name));
        let answer = adapter.next().unwrap();
        assert_eq!(answer["t"], "registered", "{answer}");
        adapter.capability = answer["capability"].as_str().unwrap().to_owned();
        (adapter, answer)
    }

    pub(super) fn send(&mut self, frame: &Value) {
        self.raw(&format!("{frame}\n"));
    }

    pub(super) fn raw(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// The next frame that is no ping; `None` when the daemon has closed the connection.
    pub(super) fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            let frame: Value = serde_json::from_str(&line).unwrap();
            if frame["t"] != "ping" {
                return Some(frame);
            }
        }
    }

    /// The id of the next delivery.
    pub(super) fn delivery(&mut self) -> String {
        let frame = self.next().expect("a delivery comes");
        assert_eq!(frame["t"], "deliver", "{frame}");
        frame["id"].as_str().unwrap().to_owned()
    }

    pub(super) fn ack(&mut self, id: &str) {
        let capability = self.capability.clone();
        self.send(&json!({ "t": "deliver_ack", "id": id, "persisted": true, "capability": capability }));
    }

    pub(super) fn nak(&mut self, id: &str, code: &str, retryable: bool) {
        let capability = self.capability.clone();
        self.send(&json!({
            "t": "deliver_nak", "id": id, "code": code, "retryable": retryable, "capability": capability,
        }));
    }

    pub(super) fn status(&mut self, status: &str) {
        let capability = self.capability.clone();
        self.send(&json!({ "t": "status", "status": status, "capability": capability }));
    }
}

pub(super) fn registration(session: &str, name: Option<&str>) -> Value {
    let mut frame = json!({
        "t": "register", "proto": 1, "harness": "claude", "session_id": session, "pid": std::process::id(),
        "cwd": "/src", "title": "a test", "status": "idle",
    });
    if let Some(name) = name {
        frame["name"] = name.into();
    }
    frame
}

/// What a test lets the Worker do.
pub(super) enum Order {
    Deliver(String, String, String),
    SendAck(String),
    SendNak(String, transit::proto::wire::NakCode),
    Answer(String, Result<Value, RpcError>),
    /// Say something that no Worker says.
    Say(String),
    /// Cut the connection, as a network does.
    Cut,
}

/// A Worker that does what the test says.
pub(super) struct Worker {
    pub(super) at: SocketAddr,
    orders: Sender<Order>,
    events: Receiver<WorkerEvent>,
}

impl Worker {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::on(listener)
    }

    pub(super) fn on(listener: TcpListener) -> Self {
        let at = listener.local_addr().unwrap();
        let (orders, to_do) = channel();
        let (tell, events) = channel();
        std::thread::spawn(move || serve(&listener, &to_do, &tell));
        Self { at, orders, events }
    }

    pub(super) fn order(&self, order: Order) {
        self.orders.send(order).unwrap();
    }

    pub(super) fn deliver(&self, id: &str, agent: &str, envelope: &str) {
        self.order(Order::Deliver(id.to_owned(), agent.to_owned(), envelope.to_owned()));
    }

    /// The next event that `pick` takes; others before it are of no interest.
    pub(super) fn wait<T>(&self, mut pick: impl FnMut(WorkerEvent) -> Option<T>) -> T {
        loop {
            let event = self.events.recv_timeout(LONG).expect("the Worker hears something");
            if let Some(picked) = pick(event) {
                return picked;
            }
        }
    }

    /// The next answer to a delivery: its id, its agent, and `ack` or the code, with a `!` when it is for good.
    pub(super) fn answer(&self) -> (String, String, String) {
        self.wait(|event| match event {
            WorkerEvent::DeliverAck { id, agent, is_only_seen } => {
                Some((id, agent.unwrap(), if is_only_seen { "seen" } else { "ack" }.to_owned()))
            }
            WorkerEvent::DeliverNak { id, agent, code, retryable } => {
                Some((id, agent.unwrap(), format!("{code}{}", if retryable { "" } else { "!" })))
            }
            _ => None,
        })
    }

    /// The names and states of the next roster.
    pub(super) fn roster(&self) -> Vec<(String, String)> {
        self.wait(|event| match event {
            WorkerEvent::Roster(agents) => {
                Some(agents.into_iter().map(|agent| (agent.name, agent.status)).collect())
            }
            _ => None,
        })
    }

    /// The answers to deliveries that came and were not taken yet.
    pub(super) fn rest(&self) -> Vec<WorkerEvent> {
        let is_answer = |event: &WorkerEvent| {
            matches!(event, WorkerEvent::DeliverAck { .. } | WorkerEvent::DeliverNak { .. })
        };
        self.events.try_iter().filter(is_answer).collect()
    }
}

fn serve(listener: &TcpListener, orders: &Receiver<Order>, tell: &Sender<WorkerEvent>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { return };
        // Whatever ends one connection, the next one is served.
        let _ = connection(stream, orders, tell);
    }
}

#[allow(clippy::result_large_err)] // the signature is tungstenite's
fn authorised(request: &Request, response: Response) -> Result<Response, ErrorResponse> {
    assert_eq!(request.uri().path(), "/api/daemon/ws");
    let wanted = format!("Bearer {TOKEN}");
    if request.headers().get("authorization").is_some_and(|value| value == wanted.as_str()) {
        return Ok(response);
    }
    Err(tungstenite::http::Response::builder().status(401).body(None).unwrap())
}

fn connection(stream: TcpStream, orders: &Receiver<Order>, tell: &Sender<WorkerEvent>) -> Option<()> {
    let mut socket = tungstenite::accept_hdr(stream, authorised).ok()?;
    socket.get_ref().set_read_timeout(Some(LISTEN)).ok()?;
    let clock = SystemClock::new();
    let config =
        WorkerConfig { host: "titan".into(), host_id: "hst_00000000000a".into(), org: "default".into() };
    let mut end = WorkerEnd::new(config, clock.mono());
    loop {
        match socket.read() {
            Ok(Message::Text(text)) => end.handle(Input::Text(&text), clock.mono()),
            Ok(_) => end.handle(Input::Sound, clock.mono()),
            Err(tungstenite::Error::Io(err)) if err.kind() == std::io::ErrorKind::WouldBlock => {
                end.handle(Input::Tick, clock.mono());
            }
            Err(_) => return None,
        }
        match orders.try_recv() {
            Ok(Order::Say(text)) => socket.send(Message::text(text)).ok()?,
            Ok(order) => obey(&mut end, order)?,
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return None,
        }
        drain(&mut end, &mut socket, tell)?;
    }
}

fn obey(end: &mut WorkerEnd, order: Order) -> Option<()> {
    match order {
        Order::Deliver(id, agent, envelope) => end.deliver(&id, &agent, envelope),
        Order::SendAck(id) => end.send_ack(&id),
        Order::SendNak(id, code) => end.send_nak(&id, code),
        Order::Answer(rid, result) => end.rpc_result(&rid, result),
        Order::Say(_) | Order::Cut => return None,
    }
    Some(())
}

fn drain(end: &mut WorkerEnd, socket: &mut WebSocket<TcpStream>, tell: &Sender<WorkerEvent>) -> Option<()> {
    while let Some(output) = end.poll() {
        match output {
            Output::Write(text) => socket.send(Message::text(text)).ok()?,
            Output::Event(event) => tell.send(event).ok()?,
            Output::WakeAt(_) => {}
            Output::Close(_) => return None,
        }
    }
    Some(())
}

/// A server that says something else than a Worker to everybody who comes.
pub(super) fn impostor(says: &'static [u8], holds_on: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream: TcpStream = stream;
            let _ = stream.write_all(says);
            if holds_on {
                held.push(stream);
            }
        }
    });
    at
}

/// An address at which nobody will ever listen.
pub(super) fn nobody() -> SocketAddr {
    let nobody = Nobody::new();
    let at = nobody.at;
    // The port is kept for as long as this test program runs.
    std::mem::forget(nobody);
    at
}

/// Runs a program to its end: its exit code, stdout and stderr.
pub(super) fn outcome(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}
