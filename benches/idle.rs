//! `cargo bench --bench idle`: what sockets cost that say nothing, and what bad peers cost those that do.
//!
//! 5,000 daemons say hello, have one agent each, and are silent: the Worker's memory between the first 1,000 and all of
//! them is what each costs. Then two daemons exchange messages one by one, first alone and then beside peers that read
//! nothing, say nothing, or begin a head, a body or a frame and never end it.

#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Instant;

use support::daemon::{Daemon, upgrade};
use support::server::{self, Server};
use support::{micros, percentile, verdict_at_most, work_dir};
use transit::net::service::raise_descriptor_limit;

const FIRST: usize = 1_000;
const ALL: usize = 5_000;
/// Bytes of the Worker's memory for one idle socket.
const BUDGET: f64 = 8192.0;
/// Messages of one measurement of latency, and how often it is made.
const MESSAGES: usize = 1_500;
const TURNS: usize = 5;
/// Bad peers of each kind.
const BAD: usize = 50;

fn main() {
    raise_descriptor_limit();
    if let Some(server) = server::from_arguments() {
        return server::run(&server);
    }
    let dir = work_dir();
    idle(dir.path());
    beside_bad_peers(dir.path());
}

fn idle(dir: &Path) {
    let (server, tokens) = worker(&dir.join("idle"), ALL);
    let mut held = Vec::with_capacity(ALL);
    let mut grow = |to: usize| {
        for (n, token) in tokens.iter().enumerate().take(to).skip(held.len()) {
            held.push(Daemon::greeted(server.address, n, token));
        }
        server.resident()
    };
    let (first, all) = (grow(FIRST), grow(ALL));
    let each = (all - first) as f64 / (ALL - FIRST) as f64;
    println!("resident with {FIRST} idle sockets: {first} bytes; with {ALL}: {all} bytes");
    verdict_at_most("bytes of an idle socket", each, BUDGET);
}

fn beside_bad_peers(dir: &Path) {
    let (server, tokens) = worker(&dir.join("bad"), 2 + 3 * BAD);
    let mut sender = Daemon::greeted(server.address, 0, &tokens[0]);
    let mut recipient = Daemon::greeted(server.address, 1, &tokens[1]);
    exchange(&mut sender, &mut recipient, MESSAGES);
    // In turns, because the disk and the machine change their minds.
    let mut turns: Vec<(f64, f64)> = (0..TURNS)
        .map(|turn| {
            let alone = exchange(&mut sender, &mut recipient, MESSAGES);
            let bad = bad_peers(server.address, &tokens[2..], &mut sender);
            let beside = exchange(&mut sender, &mut recipient, MESSAGES);
            drop(bad);
            println!(
                "turn {turn}: send to deliver, p99: alone {alone:.0} us, beside bad peers {beside:.0} us"
            );
            (alone, beside)
        })
        .collect();
    turns.sort_by(|one, other| (one.1 / one.0).total_cmp(&(other.1 / other.0)));
    let (alone, beside) = turns[TURNS / 2];
    verdict_at_most("p99 beside bad peers, in the middle turn", beside / alone, 2.0);
}

/// Peers that behave as none should: deaf ones with much to read, silent ones, and those that never end what they begin.
fn bad_peers(at: SocketAddr, tokens: &[String], sender: &mut Daemon) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for (n, token) in tokens.iter().take(BAD).enumerate() {
        // Deaf: it has an agent, and reads nothing of what that one is sent.
        let deaf = Daemon::greeted(at, n + 2, token).into_stream();
        rustix::net::sockopt::set_socket_recv_buffer_size(&deaf, 4096).expect("a small buffer");
        held.push(deaf);
        for _ in 0..20 {
            sender.send(&format!("a@h{}", n + 2), &"x".repeat(60_000));
            sender.until("send_ack");
        }
    }
    for token in &tokens[BAD..2 * BAD] {
        // Half open: upgraded, and never a hello.
        held.push(upgrade(at, token));
    }
    for (n, token) in tokens.iter().enumerate().skip(2 * BAD) {
        // Half a frame, of a megabyte that never comes.
        let mut slow = Daemon::greeted(at, n + 2, token).into_stream();
        slow.write_all(&[0x81, 0xff, 0, 0, 0, 0, 0, 0x0f, 0, 0, 0, 0, 0, 0, b'{']).expect("half a frame");
        held.push(slow);
    }
    for _ in 0..BAD {
        for half in [
            &b""[..],
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n",
            b"POST /ingest/ci HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
        ] {
            let mut stream = support::connect(at);
            stream.write_all(half).expect("half a request");
            held.push(stream);
        }
    }
    held
}

/// Sends messages one by one, each after the one before was delivered; the 99th percentile in microseconds.
fn exchange(sender: &mut Daemon, recipient: &mut Daemon, count: usize) -> f64 {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        sender.send("a@h1", "x");
        let frame = recipient.until("deliver");
        times.push(start.elapsed());
        recipient.ack(&frame);
        sender.until("send_ack");
    }
    micros(percentile(&mut times, 99))
}

/// A Worker with this many hosts, `h0` and on, and their tokens.
fn worker(dir: &Path, hosts: usize) -> (Server, Vec<String>) {
    std::fs::create_dir(dir).expect("a directory");
    let mut tokens = Vec::new();
    let server = server::start(dir, 512, |db| tokens = server::tokens(db, hosts));
    (server, tokens)
}
