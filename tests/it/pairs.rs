//! Two hosts and one Worker, all real processes, and pairs of agents across them that answer each other, while the
//! Worker and the daemons are killed at random: nothing that was accepted is lost, each agent gets what another one
//! says in its order, and nothing is shown twice unless the daemon that shows it was killed in between.
//!
//! `TRANSIT_ANSWERS` is the number of answers; a release sees 1,000 of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use transit::net::unix::Peer;
use transit::proto::envelope;

use crate::support::{Background, Home, LONG, eventually, eventually_within, text};

const HOSTS: [&str; 2] = ["alpha", "beta"];
/// Pairs of agents, one of each on each host.
const PAIRS: usize = 4;
/// Messages of each pair that are under way at once.
const BALLS: usize = 3;
/// Answers in an ordinary run.
const ANSWERS: usize = 200;
/// Answers between two kills, at most.
const UNTIL_KILL: usize = 40;
/// Time for the next answers to come, when everything was just killed.
const PATIENCE: Duration = Duration::from_secs(120);
/// A wait for a frame, after which it is looked whether all is done.
const LOOK: Duration = Duration::from_millis(50);

/// What one agent was shown, in its order: the message, its number among those of its sender, and the process of the
/// daemon that showed it.
type Shown = Vec<(String, usize, u32)>;

/// What all know together.
struct Books {
    wanted: usize,
    answers: AtomicUsize,
    is_over: AtomicBool,
    /// By host and pair: how many messages of its agent were accepted.
    accepted: Mutex<BTreeMap<(usize, usize), usize>>,
    shown: Mutex<BTreeMap<(usize, usize), Shown>>,
}

impl Books {
    /// Everything that was accepted was shown, and no answer is owed.
    fn is_done(&self) -> bool {
        let (accepted, shown) = (self.accepted.lock().unwrap(), self.shown.lock().unwrap());
        let came = |at: &(usize, usize)| {
            let shown = shown.get(&(1 - at.0, at.1));
            shown.into_iter().flatten().map(|(_, number, _)| number + 1).max().unwrap_or(0)
        };
        self.answers.load(Ordering::SeqCst) >= self.wanted
            && accepted.iter().all(|(at, sent)| came(at) == *sent)
    }

    fn check(&self) {
        let (accepted, shown) = (self.accepted.lock().unwrap(), self.shown.lock().unwrap());
        for (at, shown) in shown.iter() {
            let (mut first, mut each) = (Vec::new(), BTreeSet::new());
            for (id, number, daemon) in shown {
                assert!(each.insert((id, daemon)), "{at:?}: {id} was shown twice by the same process");
                if !first.contains(number) {
                    first.push(*number);
                }
            }
            let sent = accepted[&(1 - at.0, at.1)];
            assert_eq!(first, (0..sent).collect::<Vec<_>>(), "{at:?}: all of them, in their order");
        }
    }
}

/// One agent, and its connection to the daemon.
struct Agent<'a> {
    books: &'a Books,
    home: &'a Home,
    host: usize,
    pair: usize,
    /// Messages that it is to send, whether to begin or to answer.
    owed: usize,
    sent: usize,
    /// The numbers that it was shown.
    seen: usize,
}

/// A connection that breaks when the daemon is killed.
struct Link {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    unread: Vec<u8>,
    /// The daemon's process, as the kernel says.
    daemon: u32,
    capability: Value,
}

impl Link {
    /// The next frame: `Some(None)` when none has come for a while, `None` when the connection is over.
    fn next(&mut self) -> Option<Option<Value>> {
        match self.lines.read_until(b'\n', &mut self.unread) {
            Ok(0) => None,
            Ok(_) if self.unread.ends_with(b"\n") => {
                Some(serde_json::from_slice(&std::mem::take(&mut self.unread)).ok())
            }
            Ok(_) => None,
            Err(err) if matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Some(None),
            Err(_) => None,
        }
    }

    fn send(&mut self, frame: &Value) -> Option<()> {
        self.stream.write_all(format!("{frame}\n").as_bytes()).ok()
    }
}

impl Agent<'_> {
    fn name(&self) -> String {
        format!("p{}", self.pair)
    }

    fn run(&mut self) {
        let is_over = || self.books.is_over.load(Ordering::SeqCst);
        loop {
            let link =
                eventually_within(
                    PATIENCE,
                    || {
                        if is_over() { Some(None) } else { self.register().map(Some) }
                    },
                );
            let Some(mut link) = link else { return };
            // It ends when the daemon is killed.
            let _ = self.session(&mut link);
        }
    }

    fn register(&self) -> Option<Link> {
        let stream = UnixStream::connect(self.home.data().join("agent.sock")).ok()?;
        stream.set_read_timeout(Some(LONG)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        let daemon = Peer::of(&stream).unwrap().pid;
        let mut link = Link { stream, lines, unread: Vec::new(), daemon, capability: Value::Null };
        link.send(&json!({
            "t": "register", "proto": 1, "harness": "claude", "session_id": self.name(), "pid": std::process::id(),
            "cwd": "/", "title": "", "status": "idle", "name": self.name(),
        }))?;
        let told = link.next()??;
        assert_eq!(told["t"], "registered", "{told}");
        link.capability = told["capability"].clone();
        link.stream.set_read_timeout(Some(LOOK)).unwrap();
        Some(link)
    }

    fn session(&mut self, link: &mut Link) -> Option<()> {
        loop {
            while self.owed > 0 {
                self.say()?;
                self.owed -= 1;
            }
            match link.next()? {
                Some(frame) if frame["t"] == "deliver" => self.hear(link, &frame)?,
                Some(_) => {}
                None if self.books.is_over.load(Ordering::SeqCst) => return None,
                None => {}
            }
        }
    }

    /// Sends its next message. One whose answer was lost is sent again, and may come twice, as two messages.
    fn say(&mut self) -> Option<()> {
        let to = format!("{}@{}", self.name(), HOSTS[1 - self.host]);
        let call = json!({
            "op": "send", "to": to, "body": self.sent.to_string(), "wait_ms": 0,
            // Several sessions of a host are this process.
            "pane_id": format!("native:claude:{}", self.name()),
        });
        let answer = ask(self.home, &call)?;
        assert_eq!(answer["ok"], true, "{answer}");
        self.sent += 1;
        self.books.accepted.lock().unwrap().insert((self.host, self.pair), self.sent);
        Some(())
    }

    fn hear(&mut self, link: &mut Link, frame: &Value) -> Option<()> {
        let id = frame["id"].as_str().unwrap().to_owned();
        let message = envelope::parse(frame["envelope"].as_str().unwrap()).unwrap().envelope;
        let peer = format!("{}@{}", self.name(), HOSTS[1 - self.host]);
        assert_eq!(message.from, peer, "{}", message.body);
        let number: usize = message.body.parse().unwrap();
        let mut shown = self.books.shown.lock().unwrap();
        shown.entry((self.host, self.pair)).or_default().push((id.clone(), number, link.daemon));
        drop(shown);
        if number >= self.seen {
            self.seen = number + 1;
            if self.books.answers.fetch_add(1, Ordering::SeqCst) < self.books.wanted {
                self.owed += 1;
            }
        }
        let capability = link.capability.clone();
        link.send(&json!({ "t": "deliver_ack", "id": id, "persisted": true, "capability": capability }))
    }
}

/// One call of a daemon that may be killed at any time.
fn ask(home: &Home, call: &Value) -> Option<Value> {
    let mut stream = UnixStream::connect(home.data().join("transit.sock")).ok()?;
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(format!("{call}\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(&answer).ok()
}

fn start_daemon(home: &Home) -> Background {
    let ready = home.path("ready.json");
    let _ = std::fs::remove_file(&ready);
    let mut daemon = Background::start(home.command("transitd").args(["run", "--ready-file"]).arg(&ready));
    daemon.ready(&ready);
    daemon
}

fn start_worker(home: &Home, at: &str) -> (Background, String) {
    let ready = home.path("ready.json");
    let _ = std::fs::remove_file(&ready);
    let args = ["serve", "--loop-limit", "0", "--listen", at, "--ready-file"];
    let mut worker = Background::start(home.command("transit-worker").args(args).arg(&ready));
    let at = worker.ready(&ready)["listen"].as_str().unwrap().to_owned();
    (worker, at)
}

fn enrol(worker: &Home, at: &str, host: &Home, name: &str) {
    let issued = worker.run("transit-worker", ["host", "enroll", name, "--json"], b"");
    let issued: Value = serde_json::from_slice(&issued.stdout).unwrap();
    let url = format!("http://{at}");
    let args = ["enroll", "--url", &url, "--code", issued["code"].as_str().unwrap()];
    let enrolled = host.run("transitd", args, b"");
    assert!(enrolled.status.success(), "{}", text(&enrolled.stderr));
}

/// Kills one of them, or both daemons, whenever some more answers have come.
fn kill(
    books: &Books,
    homes: &[Home; 2],
    worker_home: &Home,
    at: &str,
    first: (Background, [Background; 2]),
) {
    let (mut worker, mut daemons) = first;
    let mut random: u64 = 7;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % below
    };
    let mut kills = 0;
    loop {
        let due = books.answers.load(Ordering::SeqCst) + 1 + next(UNTIL_KILL);
        if due >= books.wanted {
            break;
        }
        eventually_within(PATIENCE, || (books.answers.load(Ordering::SeqCst) >= due).then_some(()));
        let victim = next(4);
        if victim == 0 {
            worker.signal(Signal::KILL);
            worker.wait();
            worker = start_worker(worker_home, at).0;
            for home in homes {
                // Nobody waits here until a daemon tries again by itself.
                ask(home, &json!({ "op": "kick" }));
            }
        }
        for host in (0..2).filter(|host| victim == host + 1 || victim == 3) {
            daemons[host].signal(Signal::KILL);
            daemons[host].wait();
            daemons[host] = start_daemon(&homes[host]);
        }
        kills += 1;
    }
    eventually_within(PATIENCE, || books.is_done().then_some(()));
    books.is_over.store(true, Ordering::SeqCst);
    assert!(kills > 0, "something was killed");
}

/// Whoever is written to must have been there once.
fn become_known(agents: &[Agent<'_>]) {
    let links: Vec<Link> = agents.iter().map(|agent| eventually(|| agent.register())).collect();
    let call = json!({ "op": "rpc", "method": "list_agents", "pane_id": "native:claude:p0" });
    eventually(|| {
        let known = ask(agents[0].home, &call)?.to_string();
        let is_known = |agent: &Agent<'_>| known.contains(&format!("{}@{}", agent.name(), HOSTS[agent.host]));
        agents.iter().all(is_known).then_some(())
    });
    drop(links);
}

#[test]
fn agents_that_answer_each_other_lose_nothing_and_keep_their_order_whatever_is_killed() {
    let wanted = std::env::var("TRANSIT_ANSWERS").ok().map_or(ANSWERS, |text| text.parse().unwrap());
    let (worker_home, homes) = (Home::new(), [Home::new(), Home::new()]);
    let (worker, at) = start_worker(&worker_home, &SocketAddr::from(([127, 0, 0, 1], 0)).to_string());
    for (home, name) in homes.iter().zip(HOSTS) {
        enrol(&worker_home, &at, home, name);
    }
    let daemons = [start_daemon(&homes[0]), start_daemon(&homes[1])];
    let books = Books {
        wanted,
        answers: AtomicUsize::default(),
        is_over: AtomicBool::default(),
        accepted: Mutex::default(),
        shown: Mutex::default(),
    };
    let all = (0..2).flat_map(|host| (0..PAIRS).map(move |pair| (host, pair)));
    let agents: Vec<Agent<'_>> = all
        .map(|(host, pair)| {
            let owed = if host == 0 { BALLS } else { 0 };
            Agent { books: &books, home: &homes[host], host, pair, owed, sent: 0, seen: 0 }
        })
        .collect();
    become_known(&agents);
    std::thread::scope(|scope| {
        for mut agent in agents {
            scope.spawn(move || agent.run());
        }
        // Should anything fail, the others end too.
        let killing = scope.spawn(|| kill(&books, &homes, &worker_home, &at, (worker, daemons)));
        let killed = killing.join();
        books.is_over.store(true, Ordering::SeqCst);
        killed.unwrap();
    });
    books.check();
}
