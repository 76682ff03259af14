//! Senders and flushes that are killed at any moment: what was accepted arrives, under one key, and nobody who is
//! gone has a claim on it.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::support::eventually;

/// Senders that are at work at once.
const SENDERS: usize = 32;

/// How often something is killed; a release tries 200 with `TRANSIT_KILL_ROUNDS`.
fn rounds() -> u32 {
    std::env::var("TRANSIT_KILL_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(6)
}

/// A server that outlives clients that are cut off at any byte. It records every body that came whole, and tells
/// every third client to come back.
struct Server {
    url: String,
    bodies: Receiver<Vec<u8>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/ingest/ci", listener.local_addr().unwrap());
        let (tell, bodies) = channel();
        std::thread::spawn(move || {
            for (n, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let tell = tell.clone();
                std::thread::spawn(move || {
                    let Some(body) = body(&stream) else { return };
                    // It has it from here on, whether the client hears of it or not.
                    let _ = if n % 3 == 0 { Ok(()) } else { tell.send(body) };
                    let status = if n % 3 == 0 { "503 Busy" } else { "202 Accepted" };
                    let answer =
                        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                    (&stream).write_all(answer.as_bytes()).unwrap_or_default();
                });
            }
        });
        Self { url, bodies }
    }
}

/// The body of a request, if all of it comes.
fn body(stream: &TcpStream) -> Option<Vec<u8>> {
    let mut from = BufReader::new(stream);
    let mut length = None;
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.trim_end() {
            "" => break,
            line => {
                let line = line.to_ascii_lowercase();
                length = line.strip_prefix("content-length: ").map_or(length, |n| n.parse::<usize>().ok());
            }
        }
    }
    let mut body = vec![0; length?];
    from.read_exact(&mut body).ok().map(|()| body)
}

/// A sender that was told to send under this key.
struct Sender {
    key: String,
    child: Child,
}

fn start_sender(home: &Home, url: &str, key: &str) -> Sender {
    let mut command = home.command(SEND);
    command.args([url, "--secret-file", "secret", "--conversation", "c", "--event-key", key, "-m", key]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    Sender { key: key.to_owned(), child }
}

/// Waits for the end of a sender; whether it accepted its event.
fn ended(sender: Sender, accepted: &Mutex<Vec<String>>) {
    let output = sender.child.wait_with_output().unwrap();
    // It may say so and be killed before it ends; then it has said so.
    let has_said = BufReader::new(&output.stdout[..]).lines().any(|line| line.unwrap().contains(&sender.key));
    if output.status.success() || has_said {
        accepted.lock().unwrap().push(sender.key);
    }
}

#[test]
fn what_was_accepted_arrives_whoever_is_killed() {
    let home = home();
    let server = Server::start();
    let url = server.url.as_str();
    let accepted = Mutex::new(Vec::new());
    let mut random = rounds();
    let mut next = |below: u32| {
        // Any moments will do, and the same ones each time are easier to follow.
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % below
    };
    let mut senders: Vec<Sender> = Vec::new();
    for round in 0..rounds() {
        while senders.len() < SENDERS {
            senders.push(start_sender(&home, url, &format!("k-{round}-{}", senders.len())));
        }
        let mut command = home.command(SPOOL);
        command.args(["flush", "--quiet", "--jobs", "4"]);
        let mut flush =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // As many looks at a file as it takes to get to another moment.
        for _ in 0..next(400) {
            let _ = std::fs::metadata(home.data());
            std::thread::yield_now();
        }
        for sender in &mut senders {
            if next(3) == 0 {
                sender.child.kill().unwrap();
            }
        }
        flush.kill().unwrap();
        flush.wait().unwrap();
        let (gone, at_work) = senders.into_iter().partition(|_| next(2) == 0);
        senders = at_work;
        let gone: Vec<Sender> = gone;
        gone.into_iter().for_each(|sender| ended(sender, &accepted));
    }
    senders.into_iter().for_each(|sender| ended(sender, &accepted));
    let accepted = accepted.into_inner().unwrap();
    assert!(accepted.len() > SENDERS, "{}", accepted.len());
    drain(&home);
    assert_all_arrived(&home, &server, &accepted);
}

/// Flushes until nothing waits.
fn drain(home: &Home) {
    eventually(|| {
        let waiting = list(home, &["--state", "pending"]);
        for entry in &waiting {
            assert_eq!(
                entry["state"], "pending",
                "every process that had claimed something is gone: {entry}"
            );
        }
        let ids: Vec<&str> = waiting.iter().map(|entry| entry["id"].as_str().unwrap()).collect();
        if ids.is_empty() {
            return Some(());
        }
        spool_to(home, &[&["retry"], &ids[..]].concat(), 0);
        spool(home, &["flush", "--jobs", "8"]);
        None
    });
}

fn assert_all_arrived(home: &Home, server: &Server, accepted: &[String]) {
    let mut bodies: HashMap<String, HashSet<Vec<u8>>> = HashMap::new();
    for body in server.bodies.try_iter() {
        let event: Value = serde_json::from_slice(&body).unwrap();
        bodies.entry(event["event_key"].as_str().unwrap().to_owned()).or_default().insert(body);
    }
    for key in accepted {
        assert!(bodies.contains_key(key), "{key} was accepted and never arrived");
    }
    assert!(bodies.values().all(|bodies| bodies.len() == 1), "one key is one event");
    let entries = list(home, &[]);
    let states: HashSet<&str> = entries.iter().map(|entry| entry["state"].as_str().unwrap()).collect();
    assert_eq!(states, HashSet::from(["sent"]));
    let keys: HashSet<&str> = entries.iter().map(|entry| entry["event_key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), entries.len(), "no event is in the spool twice");
    let claims = rusqlite::Connection::open(database(home)).unwrap();
    let claimed: i64 = claims
        .query_row("SELECT count(*) FROM outbox WHERE claim_pid IS NOT NULL", [], |row| row.get(0))
        .unwrap();
    assert_eq!(claimed, 0);
    spool_to(home, &["check"], 0);
}
