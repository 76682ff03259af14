//! `cargo bench --bench daemon`: what a daemon costs that has nothing to do, and how long a delivery takes through one
//! that has.
//!
//! The daemon is a process of its own, between a Worker's end and an adapter that this program plays. Idle, its memory
//! and every voluntary switch of its threads are counted for a minute: each is a wake-up. A delivery is timed from the
//! frame that the Worker writes to the frame that the adapter reads; in between it is committed to the spool, so that
//! it is told beside the disk's own fsync.

#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Running, fsyncs_per_second, micros, percentile, shipped, verdict_at_most, work_dir};
use tungstenite::{Message, WebSocket};

/// How long an idle daemon is watched.
const WATCHED: Duration = Duration::from_secs(60);
/// Deliveries, one after the other, that are timed.
const DELIVERIES: usize = 2_000;
/// Memory of an idle daemon, in MB.
const IDLE_MB: f64 = 15.0;
/// Wake-ups a minute: a look every 2 s, a heartbeat every 30 s with its answer, a ping of the adapter every 15 s and the
/// end of a wait, one roster, and one look a minute of each of two threads that have nothing to do.
const WAKE_UPS: f64 = 30.0 + 4.0 + 5.0 + 2.0 + 2.0;
/// Half of all deliveries are through by then, in microseconds.
const DELIVERED_US: f64 = 1_000.0;

fn main() {
    let dir = work_dir();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let daemon = daemon(dir.path(), &listener);
    let mut worker = worker(&listener);
    let mut adapter = Adapter::register(&dir.path().join("data/agent.sock"));
    idle(&daemon, &mut worker);
    let fsync = 1e6 / fsyncs_per_second(dir.path());
    deliver(&mut worker, &mut adapter, fsync);
}

fn daemon(dir: &Path, worker: &TcpListener) -> Running {
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    let url = format!("http://{}", worker.local_addr().expect("an address"));
    fs::write(dir.join("config.json"), json!({ "url": url, "host": "titan" }).to_string()).expect("a file");
    fs::write(data.join("token"), "t0ken\n").expect("a file");
    let mut command = Command::new(shipped("transitd"));
    command.arg("run").env_clear().env("HOME", dir).env("TRANSIT_LOG", "warn");
    Running::start(command.env("TRANSIT_DATA_DIR", &data).env("TRANSIT_CONFIG", dir.join("config.json")))
}

/// The Worker's end of the connection, after the hello.
fn worker(listener: &TcpListener) -> WebSocket<TcpStream> {
    let (stream, _) = listener.accept().expect("the daemon connects");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    let mut socket = tungstenite::accept(stream).expect("a WebSocket");
    while heard(&mut socket)["t"] != "hello" {}
    say(&mut socket, &json!({ "t": "hello_ok", "host_id": "hst_00000000000a", "org": "default" }));
    socket
}

fn say(socket: &mut WebSocket<TcpStream>, frame: &Value) {
    socket.send(Message::text(frame.to_string())).expect("the daemon reads");
}

fn heard(socket: &mut WebSocket<TcpStream>) -> Value {
    loop {
        if let Message::Text(text) = socket.read().expect("the daemon lives") {
            return serde_json::from_str(text.as_str()).expect("a frame");
        }
    }
}

struct Adapter {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    capability: String,
}

impl Adapter {
    fn register(at: &Path) -> Self {
        let stream = loop {
            match UnixStream::connect(at) {
                Ok(stream) => break stream,
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let lines = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut adapter = Self { stream, lines, capability: String::new() };
        adapter.say(&json!({
            "t": "register", "proto": 1, "harness": "bench", "session_id": "s1", "pid": std::process::id(),
            "cwd": "/", "title": "", "status": "idle", "name": "jess",
        }));
        adapter.capability = adapter.hear()["capability"].as_str().expect("it is registered").to_owned();
        adapter
    }

    fn say(&mut self, frame: &Value) {
        self.stream.write_all(format!("{frame}\n").as_bytes()).expect("the daemon reads");
    }

    /// The next frame that is no ping.
    fn hear(&mut self) -> Value {
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).expect("the daemon lives");
            let frame: Value = serde_json::from_str(&line).expect("a frame");
            if frame["t"] != "ping" {
                return frame;
            }
        }
    }
}

fn idle(daemon: &Running, worker: &mut WebSocket<TcpStream>) {
    // The answers to its heartbeats are all that it hears.
    worker.get_ref().set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let settled = Instant::now() + Duration::from_secs(3);
    while Instant::now() < settled {
        heartbeat(worker);
    }
    let before = switches(daemon.id());
    let until = Instant::now() + WATCHED;
    while Instant::now() < until {
        heartbeat(worker);
    }
    let after = switches(daemon.id());
    for (thread, count) in &after {
        let woke = count - before.iter().find(|(name, _)| name == thread).map_or(0, |(_, count)| *count);
        if woke > 0 {
            println!("{thread}: {woke} wake-ups in {} s", WATCHED.as_secs());
        }
    }
    worker.get_ref().set_read_timeout(None).expect("no timeout");
    let all = |counts: &[(String, u64)]| counts.iter().map(|(_, count)| *count).sum::<u64>() as f64;
    let minutes = WATCHED.as_secs_f64() / 60.0;
    verdict_at_most("wake-ups of an idle daemon a minute", (all(&after) - all(&before)) / minutes, WAKE_UPS);
    verdict_at_most("MB of an idle daemon", daemon.resident() as f64 / 1e6, IDLE_MB);
}

fn heartbeat(worker: &mut WebSocket<TcpStream>) {
    if let Ok(Message::Text(text)) = worker.read()
        && text.as_str().contains("\"pong\"")
    {
        say(worker, &json!({ "t": "ping" }));
    }
}

/// Every thread of a process, and how often it gave the processor away to wait.
fn switches(pid: u32) -> Vec<(String, u64)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a running child");
    threads
        .filter_map(|thread| {
            let dir = thread.ok()?.path();
            let name = fs::read_to_string(dir.join("comm")).ok()?.trim().to_owned();
            let status = fs::read_to_string(dir.join("status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            let number = dir.file_name()?.to_str()?.to_owned();
            Some((format!("{name} ({number})"), line.trim().parse().ok()?))
        })
        .collect()
}

fn deliver(worker: &mut WebSocket<TcpStream>, adapter: &mut Adapter, fsync: f64) {
    let mut times = Vec::with_capacity(DELIVERIES);
    for n in 0..DELIVERIES {
        let id = format!("tx_{n:012x}");
        let envelope = format!(
            "<transit from=\"amy@hermes\" id=\"{id}\" ts=\"2026-01-01T00:00:00Z\" kind=\"dm\" schema=\"transit/1\">\n\
             {}\n[reply: send_message to=\"amy@hermes\" reply_to=\"{id}\"]\n</transit>",
            "x".repeat(1024)
        );
        let frame = json!({ "t": "deliver", "id": id, "agent": "jess", "envelope": envelope });
        let start = Instant::now();
        say(worker, &frame);
        let shown = adapter.hear();
        times.push(start.elapsed());
        assert_eq!(shown["id"], id.as_str(), "{shown}");
        let capability = adapter.capability.clone();
        adapter.say(&json!({ "t": "deliver_ack", "id": id, "persisted": true, "capability": capability }));
        loop {
            let answer = heard(worker);
            if answer["t"] == "deliver_ack" {
                break;
            }
            if answer["t"] == "pong" {
                say(worker, &json!({ "t": "ping" }));
            }
        }
    }
    let (p50, p99) = (micros(percentile(&mut times, 50)), micros(percentile(&mut times, 99)));
    println!(
        "from the Worker's frame to the adapter's: p50 {p50:.0} us, p99 {p99:.0} us; an fsync: {fsync:.0} us"
    );
    verdict_at_most("p50 of a delivery, in us", p50, DELIVERED_US);
}
