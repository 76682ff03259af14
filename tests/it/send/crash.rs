//! Many senders at once, killed at random points, beside a daemon and a flush that is killed as well: what was accepted reaches
//! the server, under one event key.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use transit::proto::ingest::parse_event;
use transit::store::spool::Spool;

use super::{PROGRAM, home, read_request};
use crate::support::{Background, Home, eventually, text};

const SENDERS: usize = 32;

/// The contents that came under each key.
type Seen = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// A server that asks every third sender to come back, and records what it has heard from each.
fn serve(seen: Seen) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let count = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (seen, count) = (&seen, &count);
                scope.spawn(move || {
                    let request = read_request(&mut stream);
                    let Some(end) = request.windows(4).position(|w| w == b"\r\n\r\n") else { return };
                    // A sender that was killed may leave half a request, which nobody takes.
                    let Ok(event) = parse_event(&request[end + 4..]) else { return };
                    let status = if count.fetch_add(1, Ordering::Relaxed) % 3 == 0 {
                        "503 Busy\r\nRetry-After: 0"
                    } else {
                        seen.lock().unwrap().entry(event.event_key).or_default().insert(event.content);
                        "202 Accepted"
                    };
                    let _ =
                        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                });
            }
        });
    });
    at
}

fn start(home: &Home, url: &str, key: &str) -> Child {
    let mut command = home.command(PROGRAM);
    command.args([url, "--secret-file", "secret", "--conversation", "c", "--event-key", key, "-m", key]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Whether the sender has promised something: by its exit, or by a whole line before it was killed.
fn has_accepted(mut child: Child) -> bool {
    let mut said = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut said).unwrap();
    let mut words = Vec::new();
    child.stderr.take().unwrap().read_to_end(&mut words).unwrap();
    assert_eq!(text(&words), "");
    child.wait().unwrap().code() == Some(0) || said.ends_with(b"\n")
}

#[test]
fn what_killed_senders_have_accepted_arrives_under_one_key() {
    let home = home();
    let seen = Seen::default();
    let url = format!("http://{}/ingest/ci", serve(seen.clone()));
    let mut daemon = home.command("transitd");
    let ready = home.path("ready");
    let mut daemon = Background::start(daemon.args(["run", "--ready-file"]).arg(&ready));
    daemon.ready(&ready);
    let mut accepted = BTreeSet::new();
    let (mut random, mut killed) = (4711u32, 0);
    for round in 0..crate::crash::rounds().div_ceil(5) {
        let mut flush = home.command("transit-spool");
        let mut flush = Background::start(flush.args(["flush", "--wait", "--jobs", "4"]));
        let mut running: Vec<(String, Child)> = Vec::new();
        for n in 0..SENDERS {
            let key = format!("key-{round}-{n}");
            let child = start(&home, &url, &key);
            running.push((key, child));
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Those that are a few starts old are at any point of their lives.
            if random >> 30 == 0 {
                let victim = running.len() - 1 - ((random >> 16) as usize % running.len().min(12));
                running[victim].1.kill().unwrap();
                killed += 1;
            }
        }
        flush.signal(Signal::KILL);
        flush.wait();
        let kept = running.into_iter().filter_map(|(key, child)| has_accepted(child).then_some(key));
        accepted.extend(kept);
    }
    let mut spool = Spool::open(&home.data()).unwrap();
    eventually(|| (spool.outbox().counts().unwrap().pending == 0).then_some(()));
    let seen = seen.lock().unwrap();
    let lost: Vec<_> = accepted.iter().filter(|key| !seen.contains_key(*key)).collect();
    assert!(lost.is_empty(), "{} of {} accepted are lost: {lost:?}", lost.len(), accepted.len());
    assert!(seen.iter().all(|(key, contents)| contents.len() == 1 && contents.contains(key)));
    assert!(
        killed > SENDERS / 8 && accepted.len() > SENDERS / 2,
        "{killed} killed, {} accepted",
        accepted.len()
    );
}
