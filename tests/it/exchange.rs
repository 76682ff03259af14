//! Two hosts of fifty agents, most of them in one room, that write to each other while their connections break at
//! random: what was acknowledged arrives, at everybody it is for, once, and in its order.
//!
//! `TRANSIT_LOAD` is the number of messages. What a run does follows from its number but for the threads' own pace.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::{Value, json};
use transit::clock::{Clock, SystemClock};
use transit::limits::{LOOP_WINDOW, ROOM_MEMBERS};
use transit::net::service::Shutdown;
use transit::store::ledger::{Db, credentials, directory};
use transit::store::seal::MasterKey;
use transit::worker::{self, Config, Limits};
use tungstenite::client::IntoClientRequest;
use tungstenite::{Error, Message, WebSocket};

use crate::support::{Home, LONG};

const HOSTS: usize = 2;
const AGENTS: usize = 50;
/// Every so many messages, one is for the room.
const ROOM_EVERY: usize = 50;
/// More than any run sends.
const ENDLESS: u32 = 10_000_000;
/// A wait for a frame, after which it is looked whether all is done.
const LOOK: Duration = Duration::from_millis(50);

/// What agent `agent` of host `host` sends as its `nth` message: its id.
fn id(host: usize, agent: usize, nth: usize) -> String {
    format!("tx_{host:02x}{agent:02x}{nth:08x}")
}

/// Whose message this is, and which of its own.
fn parts(id: &str) -> (usize, usize, usize) {
    let number = |from: usize, to: usize| usize::from_str_radix(&id[from..to], 16).unwrap();
    (number(3, 5), number(5, 7), number(7, 15))
}

/// Whether an agent is in the room.
fn is_member(agent: usize) -> bool {
    agent < ROOM_MEMBERS / HOSTS
}

/// Whom a message is for: one agent, or none for the room.
fn recipient(host: usize, agent: usize, nth: usize) -> Option<(usize, usize)> {
    if is_member(agent) && nth % ROOM_EVERY == ROOM_EVERY - 1 {
        return None;
    }
    // Few recipients for each sender, so that each pair has many.
    let to = (agent * 7 + nth % 3 * 11 + 1) % AGENTS;
    Some(((host + nth % HOSTS) % HOSTS, to))
}

/// A host and one of its agents.
type Agent = (usize, usize);
/// The sender's host, the sender, and which of its messages.
type Sent = (usize, usize, usize);

/// What all hosts know together.
struct Books {
    each: usize,
    acked: AtomicUsize,
    cuts: AtomicUsize,
    repeated: AtomicUsize,
    /// By recipient: the messages in the order in which they came first.
    inbox: Mutex<BTreeMap<Agent, Vec<Sent>>>,
    arrived: AtomicUsize,
    expected: usize,
}

impl Books {
    fn new(messages: usize) -> Self {
        let each = messages / (HOSTS * AGENTS);
        let all = (0..HOSTS).flat_map(|host| (0..AGENTS).map(move |agent| (host, agent)));
        let mut expected = 0;
        for (host, agent) in all {
            expected += (0..each)
                .map(|nth| recipient(host, agent, nth).map_or(ROOM_MEMBERS - 1, |_| 1))
                .sum::<usize>();
        }
        Self {
            each,
            expected,
            acked: AtomicUsize::default(),
            cuts: AtomicUsize::default(),
            repeated: AtomicUsize::default(),
            inbox: Mutex::default(),
            arrived: AtomicUsize::default(),
        }
    }

    fn is_done(&self) -> bool {
        self.acked.load(Ordering::Relaxed) == self.each * HOSTS * AGENTS
            && self.arrived.load(Ordering::Relaxed) >= self.expected
    }

    /// Everything came to whom it was for, and each sender's in its order.
    fn check(&self) {
        let inbox = self.inbox.lock().unwrap();
        assert_eq!(self.arrived.load(Ordering::Relaxed), self.expected);
        for (to, came) in inbox.iter() {
            let mut last = BTreeMap::new();
            for &(host, agent, nth) in came {
                let wanted = recipient(host, agent, nth)
                    .map_or_else(|| is_member(to.1) && *to != (host, agent), |recipient| recipient == *to);
                assert!(wanted, "{to:?} was sent what is another's: {:?}", (host, agent, nth));
                let before = last.insert((host, agent), nth);
                assert!(before < Some(nth), "{to:?}: {nth} of {host}/{agent} after {before:?}");
            }
        }
        assert_eq!(inbox.values().map(Vec::len).sum::<usize>(), self.expected);
    }
}

/// One host's daemon, and its agents.
struct Daemon<'a> {
    books: &'a Books,
    at: SocketAddr,
    host: usize,
    token: String,
    /// How many of its messages each agent has had acknowledged, and whether the next one is under way.
    agents: Vec<(usize, bool)>,
    /// What has been shown to an agent.
    seen: BTreeSet<(usize, String)>,
    /// Frames until the connection breaks.
    until_cut: usize,
    mean_until_cut: usize,
    random: u64,
}

impl Daemon<'_> {
    fn run(&mut self) {
        while !self.books.is_done() {
            let mut socket = self.connect();
            self.agents.iter_mut().for_each(|(_, is_under_way)| *is_under_way = false);
            self.until_cut = self.random(2 * self.mean_until_cut) + 1;
            if self.session(&mut socket).is_some() {
                return;
            }
            self.books.cuts.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn connect(&self) -> WebSocket<TcpStream> {
        let mut request = format!("ws://{}/api/daemon/ws", self.at).into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {}", self.token).parse().unwrap());
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut socket = tungstenite::client(request, stream).unwrap().0;
        socket.get_ref().set_read_timeout(Some(LOOK)).unwrap();
        let agents: Vec<Value> = (0..AGENTS)
            .map(|n| {
                json!({ "name": format!("a{n}"), "kind": "program", "pane_id": "p", "status": "idle", "cwd": "/",
                        "title": "" })
            })
            .collect();
        let hello = json!({ "t": "hello", "proto": 1, "host": format!("h{}", self.host), "daemon_ver": "1" });
        for frame in [hello, json!({ "t": "roster", "agents": agents })] {
            socket.send(Message::text(frame.to_string())).unwrap();
        }
        socket
    }

    /// Sends and takes what there is. `None`: the connection broke.
    fn session(&mut self, socket: &mut WebSocket<TcpStream>) -> Option<()> {
        let mut silent = Duration::ZERO;
        loop {
            self.send(socket)?;
            match socket.read() {
                Ok(Message::Text(text)) => {
                    silent = Duration::ZERO;
                    self.until_cut -= 1;
                    if self.until_cut == 0 {
                        return None;
                    }
                    self.hear(socket, &serde_json::from_str(text.as_str()).unwrap())?;
                }
                Ok(_) => {}
                Err(Error::Io(err)) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&err.kind()) => {
                    if self.books.is_done() {
                        return Some(());
                    }
                    silent += LOOK;
                    assert!(silent < LONG, "h{} hears nothing any more", self.host);
                }
                Err(_) => return None,
            }
        }
    }

    /// Every agent has one message under way, until all of its own are taken.
    fn send(&mut self, socket: &mut WebSocket<TcpStream>) -> Option<()> {
        for agent in 0..AGENTS {
            let (nth, is_under_way) = self.agents[agent];
            if is_under_way || nth == self.books.each {
                continue;
            }
            self.agents[agent].1 = true;
            let to = recipient(self.host, agent, nth)
                .map_or_else(|| "#ops".to_owned(), |(host, agent)| format!("a{agent}@h{host}"));
            let frame = json!({ "t": "send", "id": id(self.host, agent, nth), "from": format!("a{agent}@h{}", self.host),
                                "to": to, "body": "under load", "ts": "2026-01-01T00:00:00Z" });
            socket.write(Message::text(frame.to_string())).ok()?;
        }
        socket.flush().ok()
    }

    fn hear(&mut self, socket: &mut WebSocket<TcpStream>, frame: &Value) -> Option<()> {
        let named = || frame["id"].as_str().unwrap();
        match frame["t"].as_str().unwrap() {
            "send_ack" => {
                let (_, agent, nth) = parts(named());
                // An earlier connection's answer may come as well as this one's.
                if self.agents[agent].0 == nth {
                    self.agents[agent] = (nth + 1, false);
                    self.books.acked.fetch_add(1, Ordering::Relaxed);
                }
            }
            "send_nak" => {
                assert_eq!(frame["code"], "rate_limited", "{frame}");
                self.agents[parts(named()).1].1 = false;
            }
            "deliver" => {
                let agent: usize = frame["agent"].as_str().unwrap()[1..].parse().unwrap();
                if self.seen.insert((agent, named().to_owned())) {
                    self.books
                        .inbox
                        .lock()
                        .unwrap()
                        .entry((self.host, agent))
                        .or_default()
                        .push(parts(named()));
                    self.books.arrived.fetch_add(1, Ordering::Relaxed);
                } else {
                    self.books.repeated.fetch_add(1, Ordering::Relaxed);
                }
                let ack = json!({ "t": "deliver_ack", "id": named(), "agent": frame["agent"] });
                socket.write(Message::text(ack.to_string())).ok()?;
            }
            "hello_ok" | "ping" => {}
            _ => panic!("{frame}"),
        }
        Some(())
    }

    fn random(&mut self, below: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).unwrap() % below
    }
}

/// A ledger with the hosts enrolled and their agents known, and the room with its members; the hosts' tokens.
fn prepare(home: &Home) -> Vec<String> {
    use transit::proto::wire::{AgentInfo, NamedBy};
    use transit::store::ledger::messages::Queue;
    use transit::store::ledger::rooms::{self, By, Policy};
    use transit::store::ledger::roster;
    let db = Db::open(&home.path("worker.db")).unwrap();
    let tokens: Vec<String> = (0..HOSTS).map(|_| credentials::fresh_secret().expose().to_owned()).collect();
    let given = tokens.clone();
    db.write(move |tx| {
        let (org_id, now) = (directory::default_org(tx)?.id, SystemClock::new().wall());
        let room = "ops".parse().unwrap();
        rooms::create(tx, &org_id, &room, Policy::Open, None, now)?;
        for (n, token) in given.iter().enumerate() {
            let (host, code) = (format!("h{n}"), credentials::code_hash(token));
            directory::issue_code(tx, &org_id, &host.parse().unwrap(), &code, now)?;
            directory::redeem_code(tx, &code, &credentials::token_hash(token), "1", now)?.unwrap();
            let agent = |n: usize| AgentInfo {
                name: format!("a{n}"),
                kind: "program".into(),
                pane_id: "p".into(),
                status: "idle".into(),
                cwd: "/".into(),
                title: String::new(),
                named_by: NamedBy::User,
            };
            roster::replace(tx, &org_id, &host, &(0..AGENTS).map(agent).collect::<Vec<_>>(), now)?;
            for agent in (0..AGENTS).filter(|&agent| is_member(agent)) {
                let queue = Queue { org_id: org_id.clone(), host: host.clone(), agent: format!("a{agent}") };
                rooms::join(tx, &room, &queue, By::Operator, now)?;
            }
        }
        Ok(())
    })
    .unwrap();
    tokens
}

#[test]
fn what_two_hosts_say_through_breaking_connections_arrives_once_and_in_order() {
    let wanted: Option<usize> = std::env::var("TRANSIT_LOAD").ok().map(|text| text.parse().unwrap());
    let messages = wanted.unwrap_or(2_000);
    let (home, books) = (Home::new(), Books::new(messages));
    let tokens = prepare(&home);
    let key = MasterKey::from_file_or_new(&home.path("key")).unwrap();
    let limits = Limits {
        frames: (ENDLESS, ENDLESS),
        sends: (ENDLESS, ENDLESS),
        loops: (0, LOOP_WINDOW),
        ..Limits::default()
    };
    let config =
        Config { limits, ..Config::new(SocketAddr::from(([127, 0, 0, 1], 0)), home.path("worker.db"), key) };
    let (stop, (tell, told)) = (Shutdown::new(), channel());
    std::thread::scope(|scope| {
        let serving = scope.spawn({
            let stop = stop.clone();
            move || worker::serve(config, stop, |ready| tell.send(ready.listen).unwrap())
        });
        let at = told.recv_timeout(LONG).unwrap();
        let cuts_of_host = 5 + messages / 2_500;
        let daemons: VecDeque<_> = tokens
            .into_iter()
            .enumerate()
            .map(|(host, token)| {
                let mut daemon = Daemon {
                    books: &books,
                    at,
                    host,
                    token,
                    agents: vec![(0, false); AGENTS],
                    seen: BTreeSet::new(),
                    until_cut: 0,
                    mean_until_cut: (messages + books.expected) / HOSTS / cuts_of_host,
                    random: host as u64 + 1,
                };
                scope.spawn(move || daemon.run())
            })
            .collect();
        let ended: Vec<_> = daemons.into_iter().map(|daemon| daemon.join()).collect();
        stop.trigger();
        serving.join().unwrap().unwrap();
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    books.check();
    let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    if wanted.is_some() {
        // Past the test harness, which would swallow it.
        let _ = writeln!(
            std::io::stderr(),
            "{} messages, {} deliveries, {} broken connections, {} deliveries repeated",
            of(&books.acked),
            books.expected,
            of(&books.cuts),
            of(&books.repeated)
        );
    }
    assert!(of(&books.cuts) >= HOSTS, "connections broke");
    let db = Db::open(&home.path("worker.db")).unwrap();
    let count = |sql: &str| db.read(|tx| tx.one(sql, &[], |row| row.get::<i64>(0))).unwrap().unwrap();
    assert_eq!(count("SELECT COUNT(*) FROM message"), of(&books.acked) as i64);
    assert_eq!(count("SELECT COUNT(*) FROM message_delivery"), books.expected as i64);
}
