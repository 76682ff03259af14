//! `cargo bench --bench ingest`: signed events a second, durable before the 202.
//!
//! Beside it, in the same run: the disk's own fsyncs, the same server with one commit a request, and
//! adnanh/webhook (which verifies an HMAC, runs `/bin/true` and stores nothing). Needs webhook.

#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use support::{
    Running, connect, free_port, fsyncs_per_second, micros, peer, percentile, verdict, verdict_at_most,
    work_dir,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CONNECTIONS: usize = 64;
const SECRET: &str = "bench-secret";

fn main() {
    if let Some(server) = support::server::from_arguments() {
        return support::server::run(&server);
    }
    let webhook = peer("webhook", "WEBHOOK", "webhook");
    let dir = work_dir();
    let before = fsyncs_per_second(dir.path());
    let grouped = ours(dir.path(), "grouped", 512, 60_000);
    let middle = fsyncs_per_second(dir.path());
    let single = ours(dir.path(), "single", 1, 12_000);
    let foreign = adnanh(dir.path(), &webhook, 12_000);
    let after = fsyncs_per_second(dir.path());
    let fsyncs = (before + middle + after) / 3.0;

    println!("{CONNECTIONS} connections, bodies of about 1 KiB, unique keys; the disk: {fsyncs:.0} fsyncs/s");
    for (name, run) in [
        ("transit-worker, group commit", &grouped),
        ("one commit a request", &single),
        ("adnanh/webhook", &foreign),
    ] {
        println!(
            "{name}: {:.0} requests/s, p50 {:.2} ms, p99 {:.2} ms, {:.0} us CPU each",
            run.rate,
            run.p50_us / 1e3,
            run.p99_us / 1e3,
            run.cpu_us
        );
    }
    verdict("requests beside fsyncs", grouped.rate / fsyncs, 4.0);
    verdict("requests beside one commit a request", grouped.rate / single.rate, 5.0);
    verdict("requests beside adnanh/webhook, which stores nothing", grouped.rate / foreign.rate, 2.0);
    verdict_at_most("p99 in fsync times", grouped.p99_us / (1e6 / fsyncs), 40.0);
}

struct Run {
    rate: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_us: f64,
}

fn ours(dir: &Path, name: &str, batch: usize, requests: usize) -> Run {
    let dir = dir.join(name);
    fs::create_dir(&dir).expect("a directory");
    let server = support::server::start(&dir, batch, |db| support::server::source(db, "bench", SECRET));
    let now = support::unix_seconds();
    let request = |n: usize| {
        let body = body(n);
        let signature = mac(format!("{now}.").as_bytes(), &body);
        head(
            "/ingest/bench",
            &format!("Transit-Timestamp: {now}\r\nTransit-Signature: v1={signature}\r\n"),
            body,
        )
    };
    let before = server.cpu();
    let run = load(server.address, "HTTP/1.1 202", requests, request);
    Run { cpu_us: micros(server.cpu() - before) / requests as f64, ..run }
}

fn adnanh(dir: &Path, webhook: &Path, requests: usize) -> Run {
    let port = free_port();
    let hooks = serde_json::json!([{
        "id": "bench", "execute-command": "/bin/true", "success-http-response-code": 200,
        "trigger-rule": {"match": {"type": "payload-hmac-sha256", "secret": SECRET,
            "parameter": {"source": "header", "name": "X-Signature"}}}
    }]);
    fs::write(dir.join("hooks.json"), hooks.to_string()).expect("a hooks file");
    let port_text = port.to_string();
    let server = Running::start(
        Command::new(webhook)
            .args(["-ip", "127.0.0.1", "-port", &port_text, "-hooks"])
            .arg(dir.join("hooks.json")),
    );
    let request = |n: usize| {
        let body = body(n);
        let signature = mac(b"", &body);
        head("/hooks/bench", &format!("X-Signature: sha256={signature}\r\n"), body)
    };
    let run = load(SocketAddr::from(([127, 0, 0, 1], port)), "HTTP/1.1 200", requests, request);
    Run { cpu_us: micros(server.cpu()) / requests as f64, ..run }
}

fn body(n: usize) -> Vec<u8> {
    let fill = "lorem ipsum ".repeat(70);
    format!(r#"{{"schema":"transit.ingest/1","event_key":"bench-{n}","conversation_id":"bench","user":"bench","trigger":"load","content":"{n} {fill}"}}"#).into_bytes()
}

fn mac(prefix: &[u8], body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any key");
    mac.update(prefix);
    mac.update(body);
    hex::encode(mac.finalize().into_bytes())
}

fn head(path: &str, headers: &str, body: Vec<u8>) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

/// Sends `requests` over all connections, each with one in flight, and expects every answer to begin as told.
fn load(to: SocketAddr, expected: &'static str, requests: usize, request: impl Fn(usize) -> Vec<u8>) -> Run {
    let mut shares: Vec<Vec<Vec<u8>>> = (0..CONNECTIONS).map(|_| Vec::new()).collect();
    for n in 0..requests {
        shares[n % CONNECTIONS].push(request(n));
    }
    drop(connect(to));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let start = Instant::now();
    let mut times: Vec<Duration> = runtime.block_on(async {
        let clients: Vec<_> =
            shares.into_iter().map(|share| tokio::spawn(client(to, expected, share))).collect();
        let mut all = Vec::with_capacity(requests);
        for client in clients {
            all.extend(client.await.expect("a client ends well"));
        }
        all
    });
    let rate = requests as f64 / start.elapsed().as_secs_f64();
    let mut at = |percent| micros(percentile(&mut times, percent));
    Run { rate, p50_us: at(50), p99_us: at(99), cpu_us: 0.0 }
}

async fn client(to: SocketAddr, expected: &'static str, share: Vec<Vec<u8>>) -> Vec<Duration> {
    let mut stream = tokio::net::TcpStream::connect(to).await.expect("the server answers");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    let mut times = Vec::with_capacity(share.len());
    let mut buffer = vec![0; 4096];
    for request in share {
        let sent = Instant::now();
        stream.write_all(&request).await.expect("a request is taken");
        let mut got = 0;
        while !is_whole(&buffer[..got]) {
            let more = stream.read(&mut buffer[got..]).await.expect("an answer");
            assert!(more > 0, "the server closed: {}", String::from_utf8_lossy(&buffer[..got]));
            got += more;
        }
        times.push(sent.elapsed());
        assert!(buffer.starts_with(expected.as_bytes()), "{}", String::from_utf8_lossy(&buffer[..got]));
    }
    times
}

/// Whether the head and as many bytes as it announces are there.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = memchr::memmem::find(answer, b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length =
        head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
    answer.len() >= end + 4 + length.unwrap_or(0)
}
