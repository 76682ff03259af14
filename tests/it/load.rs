//! A Worker under load: senders of signed events and daemons that send messages, which note what was acknowledged, and
//! what the ledger holds of it afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use transit::id::IdKind;
use transit::store::ledger::Look;
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

use crate::rig::{SECRET, signed_event};
use crate::support::{LONG, eventually, http, request};

/// Agents of each host; each may send ten messages at once.
const AGENTS: usize = 20;
/// Messages of one daemon that wait for their answers.
const WINDOW: usize = 16;

/// What was acknowledged, by everybody and in all rounds.
#[derive(Default)]
pub(crate) struct Acked {
    /// The delivery of each event, by its key.
    events: Mutex<BTreeMap<String, String>>,
    /// The ids of messages.
    sends: Mutex<BTreeSet<String>>,
    count: AtomicUsize,
    /// What comes now is no promise any more.
    closed: AtomicBool,
}

impl Acked {
    /// How many promises there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// How many events and messages.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.events.lock().unwrap().len(), self.sends.lock().unwrap().len())
    }

    /// Notes what the other one knows by now.
    pub(crate) fn take_over(&self, other: &Self) {
        let events = other.events.lock().unwrap().clone();
        let sends = other.sends.lock().unwrap().clone();
        self.count.store(events.len() + sends.len(), Ordering::Relaxed);
        *self.events.lock().unwrap() = events;
        *self.sends.lock().unwrap() = sends;
    }

    /// Loads the Worker until `end` returns, which has ended it.
    pub(crate) fn load(&self, at: SocketAddr, hosts: &[(String, String)], round: usize, end: impl FnOnce()) {
        self.closed.store(false, Ordering::SeqCst);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || self.post_events(at, &format!("r{round}-t{thread}")));
            }
            for (host, token) in hosts {
                scope.spawn(move || self.send_messages(at, host, token));
            }
            end();
        });
    }

    /// From now on nothing counts: the power is about to go, and what is answered while it goes is answered by a kernel
    /// that does not tell every failure.
    #[allow(dead_code)] // of the two test binaries that share this, only one cuts the power
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    fn is_open(&self) -> bool {
        !self.closed.load(Ordering::SeqCst)
    }

    /// Waits until so many more promises were made.
    pub(crate) fn wait_for(&self, more: usize) {
        let wanted = self.count() + more;
        eventually(|| (self.count() >= wanted).then_some(()));
    }

    /// Posts until nobody listens any more.
    fn post_events(&self, at: SocketAddr, prefix: &str) {
        for n in 0.. {
            let key = format!("{prefix}-{n}");
            match try_post(at, &key) {
                Some((202, delivery)) if self.is_open() => {
                    self.events.lock().unwrap().insert(key, delivery);
                    self.count.fetch_add(1, Ordering::Relaxed);
                }
                // The disk is gone, and the Worker says so.
                Some(_) => {}
                None => return,
            }
        }
    }

    /// Sends until nobody listens any more. What was sent stays in the queues of its agents.
    fn send_messages(&self, at: SocketAddr, host: &str, token: &str) {
        let mut n = 0;
        // A socket that sends faster than it may is closed, which is what a new one is for.
        while let Some(mut daemon) = Host::connect(at, host, token) {
            while self.send_window(&mut daemon, host, &mut n).is_some() {}
        }
    }

    /// Sends some messages, and hears what came of them; `None` when the connection has ended.
    fn send_window(&self, daemon: &mut Host, host: &str, n: &mut usize) -> Option<()> {
        for _ in 0..WINDOW {
            let (from, to) = (*n % AGENTS, (*n + 1) % AGENTS);
            *n += 1;
            daemon.send(&IdKind::Message.fresh(), &format!("a{from}@{host}"), &format!("a{to}@{host}"))?;
        }
        let mut answers = 0;
        while answers < WINDOW {
            let frame = daemon.next()?;
            if frame["t"] == "send_ack" && self.is_open() {
                self.sends.lock().unwrap().insert(frame["id"].as_str()?.to_owned());
                self.count.fetch_add(1, Ordering::Relaxed);
            }
            answers += usize::from(frame["t"] == "send_ack" || frame["t"] == "send_nak");
        }
        Some(())
    }

    /// Everything that was promised is in the ledger, once, with its delivery.
    #[track_caller]
    pub(crate) fn check(&self, database: &Path) {
        let stored = Stored::read(database);
        let events = self.events.lock().unwrap();
        let lost: Vec<_> =
            events.iter().filter(|(key, delivery)| stored.events.get(*key) != Some(delivery)).collect();
        assert!(lost.is_empty(), "{} of {} events are lost: {lost:?}", lost.len(), events.len());
        let sends = self.sends.lock().unwrap();
        let lost: Vec<_> = sends.iter().filter(|id| !stored.messages.contains(*id)).collect();
        assert!(lost.is_empty(), "{} of {} messages are lost: {lost:?}", lost.len(), sends.len());
    }
}

/// What a ledger holds.
struct Stored {
    events: BTreeMap<String, String>,
    messages: BTreeSet<String>,
}

impl Stored {
    /// Reads it, and fails when anything is there twice, or without its delivery.
    fn read(database: &Path) -> Self {
        let look = Look::open(database).unwrap();
        let damage = look.damage(true).unwrap();
        assert!(damage.is_empty(), "{damage:?}");
        assert_eq!(look.dangling().unwrap(), []);
        let pairs = |sql: &str| -> Vec<(String, String)> {
            look.read(|tx| tx.all(sql, &[], |row| Ok((row.get(0)?, row.get(1)?)))).unwrap()
        };
        let events = pairs("SELECT e.event_key, d.id FROM event e JOIN delivery d ON d.event_seq = e.seq");
        let messages =
            pairs("SELECT m.id, d.agent FROM message m JOIN message_delivery d ON d.message_seq = m.seq");
        let count =
            |sql: &str| look.read(|tx| tx.one(sql, &[], |row| row.get::<i64>(0))).unwrap().unwrap() as usize;
        let found = Self {
            events: events.iter().cloned().collect(),
            messages: messages.iter().map(|(id, _)| id.clone()).collect(),
        };
        let both = (events.len(), found.events.len());
        assert_eq!(both, (found.events.len(), count("SELECT COUNT(*) FROM event")), "events and deliveries");
        let both = (messages.len(), found.messages.len());
        let stored = count("SELECT COUNT(*) FROM message WHERE nak IS NULL");
        assert_eq!(both, (found.messages.len(), stored), "messages and their deliveries");
        found
    }
}

/// Posts one event: the status and the delivery. `None` when there was no whole answer.
fn try_post(at: SocketAddr, key: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(LONG)).ok()?;
    stream.write_all(&signed_event("ci", SECRET, key, "under load")).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = std::str::from_utf8(&answer).ok()?;
    let status = answer.get(9..12)?.parse().ok()?;
    let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
    Some((status, body["delivery_id"].as_str().unwrap_or_default().to_owned()))
}

/// Lets a host in with a code; its token.
pub(crate) fn redeem(at: SocketAddr, code: &str) -> String {
    let body = json!({ "code": code, "daemon_ver": "1" }).to_string();
    let answer = http(at, &request("POST", "/api/daemon/enroll", &[], body.as_bytes()));
    answer.json()["device_token"].as_str().unwrap().to_owned()
}

/// A daemon's end of a socket, as far as it is needed to send; its agents are a0, a1, ….
pub(crate) struct Host(WebSocket<TcpStream>);

impl Host {
    /// Connects, and is welcome; `None` when nobody is there.
    pub(crate) fn connect(at: SocketAddr, host: &str, token: &str) -> Option<Self> {
        let mut request = format!("ws://{at}/api/daemon/ws").into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let stream = TcpStream::connect(at).ok()?;
        stream.set_read_timeout(Some(LONG)).ok()?;
        let mut daemon = Self(tungstenite::client(request, stream).ok()?.0);
        daemon.say(&json!({ "t": "hello", "proto": 1, "host": host, "daemon_ver": "1" }))?;
        daemon.next().filter(|frame| frame["t"] == "hello_ok")?;
        let agent = |n: usize| {
            json!({ "name": format!("a{n}"), "kind": "program", "pane_id": "p", "status": "idle", "cwd": "/",
                    "title": "", "named_by": "user" })
        };
        let agents: Vec<_> = (0..AGENTS).map(agent).collect();
        daemon.say(&json!({ "t": "roster", "agents": agents }))?;
        Some(daemon)
    }

    pub(crate) fn say(&mut self, frame: &Value) -> Option<()> {
        self.0.send(Message::text(frame.to_string())).ok()
    }

    pub(crate) fn send(&mut self, id: &str, from: &str, to: &str) -> Option<()> {
        let ts = "2026-01-01T00:00:00Z";
        self.say(&json!({ "t": "send", "id": id, "from": from, "to": to, "body": "under load", "ts": ts }))
    }

    /// The next frame; `None` when the connection has ended.
    pub(crate) fn next(&mut self) -> Option<Value> {
        loop {
            match self.0.read() {
                Ok(Message::Text(text)) => return serde_json::from_str(text.as_str()).ok(),
                Ok(Message::Close(_)) => return None,
                Ok(_) => {}
                Err(tungstenite::Error::Io(err)) if err.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}
