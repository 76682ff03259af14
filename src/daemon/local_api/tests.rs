//! The API on a real socket, in front of a gateway whose runs are what each message says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown as Half;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use serde_json::{Value, json};

use super::super::gateway::{Actor, Sink};
use super::*;
use crate::limits;
use crate::proto::local::{LocalEvent, SessionId};

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// A run that waits for the test to speak for it.
type Run = (SessionId, Arc<dyn Sink>);

/// A gateway that runs nothing: `lines N` tells N lines, `wait` waits for the test, `refuse X` is refused.
struct Stand {
    limits: Limits,
    is_gone: AtomicBool,
    /// Where `wait` leaves its sink.
    waiting: Mutex<Sender<Run>>,
    actors: Mutex<Vec<Actor>>,
    runs: Mutex<Vec<JoinHandle<()>>>,
}

fn narrate(session: SessionId, text: &str, sink: &Arc<dyn Sink>) {
    let lines = text.strip_prefix("lines ").and_then(|n| n.parse().ok()).unwrap_or(0);
    sink.event(LocalEvent::Typing { session: session.clone() });
    for n in 0..lines {
        if !sink.event(LocalEvent::ReplyDelta { session: session.clone(), line: format!("line {n}") }) {
            return;
        }
    }
    sink.event(LocalEvent::Reply { session, text: format!("did: {text}") });
}

impl Front for Stand {
    fn submit(&self, trigger: Trigger) -> Result<(), Refusal> {
        let Trigger { source, session, text, actor, sink } = trigger;
        assert_eq!(source, "local");
        locked(&self.actors).push(actor);
        match text.strip_prefix("refuse ") {
            Some("rate") => return Err(Refusal::RateLimited),
            Some("cap") => return Err(Refusal::SessionCap),
            Some("queue") => return Err(Refusal::QueueFull),
            Some(_) => return Err(Refusal::Unavailable),
            None => {}
        }
        assert!(sink.event(LocalEvent::RunStarted { session: session.clone(), agent: "tiny".into() }));
        if text == "wait" {
            locked(&self.waiting).send((session, sink)).unwrap();
        } else if text == "drop" {
            drop(sink);
        } else {
            // It begins to talk at once, long before the answer is there.
            locked(&self.runs).push(std::thread::spawn(move || narrate(session, &text, &sink)));
        }
        Ok(())
    }

    fn catalog(&self) -> Vec<CatalogEntry> {
        vec![CatalogEntry {
            name: "standup".into(),
            telegram_name: "standup".into(),
            description: "Post a standup".into(),
            argument_hint: None,
        }]
    }

    fn dispatcher(&self) -> &str {
        "tiny"
    }

    fn is_dispatcher_there(&self) -> bool {
        !self.is_gone.load(Ordering::Relaxed)
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

struct Rig {
    dir: tempfile::TempDir,
    stand: Arc<Stand>,
    stop: Shutdown,
    api: Option<LocalApi>,
    waiting: Receiver<Run>,
    standing: Receiver<Standing>,
}

impl Rig {
    fn new() -> Self {
        Self::with(16, None)
    }

    fn with(connections: usize, idle: Option<Duration>) -> Self {
        Self::in_dir(tempfile::tempdir().unwrap(), connections, idle)
    }

    fn in_dir(dir: tempfile::TempDir, connections: usize, idle: Option<Duration>) -> Self {
        let (tell, waiting) = channel();
        let stand = Arc::new(Stand {
            limits: Limits { connections, idle, server: ServerConfig::default() },
            is_gone: AtomicBool::default(),
            waiting: Mutex::new(tell),
            actors: Mutex::default(),
            runs: Mutex::default(),
        });
        let stop = Shutdown::new();
        let (told, standing) = channel();
        let tell = move |standing| told.send(standing).unwrap();
        let front = Arc::clone(&stand) as _;
        let api = LocalApi::start(dir.path().to_owned(), front, stop.clone(), tell).unwrap();
        Self { dir, stand, stop, api: Some(api), waiting, standing }
    }

    fn client(&self) -> Client {
        Client::new(&self.dir.path().join(API_SOCK))
    }

    fn wait_for_run(&self) -> Run {
        self.waiting.recv_timeout(LONG).unwrap()
    }

    fn end(&mut self) {
        self.stop.trigger();
        for run in std::mem::take(&mut *locked(&self.stand.runs)) {
            run.join().unwrap();
        }
        self.api.take().unwrap().finish();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.trigger();
    }
}

struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Client {
    fn new(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }

    fn write(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    fn ask(&mut self, id: &str, method: &str) -> &mut Self {
        self.write(format!("{}\n", json!({ "id": id, "method": method })))
    }

    fn send(&mut self, id: &str, session: &str, text: &str) -> &mut Self {
        let params = json!({ "session_id": session, "text": text });
        self.write(format!("{}\n", json!({ "id": id, "method": "message.send", "params": params })))
    }

    /// The next frame; `None` at the end of the connection.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).unwrap();
        (read > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    fn frame(&mut self) -> Value {
        self.next().expect("a frame comes")
    }

    fn until_reply(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            all.push(self.frame());
            if all.last().unwrap()["event"] == "reply" {
                return all;
            }
        }
    }

    fn code(&mut self) -> String {
        self.frame()["error"]["code"].as_str().unwrap().to_owned()
    }
}

fn kinds(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["event"].as_str().unwrap_or("answer")).collect()
}

#[test]
fn the_methods_answer_and_the_message_is_narrated_after_its_answer() {
    let rig = Rig::new();
    let mut client = rig.client();
    for n in 0..8 {
        client.send("m", "s-1", "lines 2");
        let frames = client.until_reply();
        let order = ["answer", "run.started", "typing", "reply.delta", "reply.delta", "reply"];
        assert_eq!(kinds(&frames), order, "round {n}");
        assert_eq!(frames[0], json!({ "id": "m", "result": { "accepted": true } }));
        assert_eq!(frames[1], json!({ "event": "run.started", "session_id": "s-1", "agent": "tiny" }));
        assert_eq!(frames[5], json!({ "event": "reply", "session_id": "s-1", "text": "did: lines 2" }));
    }
    let ours = Actor { pid: Some(std::process::id()), uid: Some(rustix::process::geteuid().as_raw()) };
    assert_eq!(locked(&rig.stand.actors)[0], ours);
    client.ask("c", "commands.list");
    assert_eq!(client.frame()["result"][0]["name"], "standup");
    client.ask("s", "status.get");
    let ok = json!({ "daemon": "ok", "gateway": "ok", "dispatcher_agent": "tiny" });
    assert_eq!(client.frame()["result"], ok);
    rig.stand.is_gone.store(true, Ordering::Relaxed);
    client.ask("s", "status.get");
    assert_eq!(client.frame()["result"]["gateway"], "dispatcher_missing", "the truth");
}

#[test]
fn the_gateways_refusals_have_their_codes() {
    let rig = Rig::new();
    let mut client = rig.client();
    for (why, code, message) in [
        ("rate", "rate_limited", "rate limit exceeded"),
        ("cap", "internal", "session cap reached"),
        ("queue", "internal", "conversation queue full"),
        ("it", "internal", "gateway unavailable"),
    ] {
        client.send("r", "default", &format!("refuse {why}"));
        assert_eq!(client.frame(), json!({ "id": "r", "error": { "code": code, "message": message } }));
    }
    client.send("ok", "default", "lines 0");
    assert_eq!(client.until_reply().len(), 4);
}

#[test]
fn sixteen_are_served_and_the_seventeenth_is_told_at_once() {
    let rig = Rig::new();
    let mut all: Vec<Client> = (0..16).map(|_| rig.client()).collect();
    for client in &mut all {
        client.ask("a", "status.get");
        client.frame();
    }
    let mut late = rig.client();
    let expected = json!({ "id": "", "error": {
        "code": "too_many_connections", "message": "connection limit (16) reached; try again later",
    } });
    assert_eq!((late.next(), late.next()), (Some(expected), None));
    for _ in 0..30 {
        // Whoever is gone takes no place, not even for a moment.
        drop(all.pop());
        let mut next = rig.client();
        next.ask("n", "status.get");
        assert_eq!(next.frame()["id"], "n");
        all.push(next);
    }
    for client in &mut all {
        client.ask("b", "status.get");
        assert_eq!(client.frame()["id"], "b", "nobody else has noticed");
    }
}

#[test]
fn the_one_who_was_silent_longest_makes_room_and_nobody_who_waits_does() {
    let rig = Rig::with(2, Some(Duration::ZERO));
    let (mut first, mut second) = (rig.client(), rig.client());
    first.send("m", "s", "wait");
    assert_eq!(kinds(&[first.frame(), first.frame()]), ["answer", "run.started"]);
    let (session, sink) = rig.wait_for_run();
    // Which has asked nothing, so that it is silent whatever its thread has got to.
    let mut third = rig.client();
    assert_eq!(second.code(), "too_many_connections");
    assert!(second.next().is_none());
    third.ask("y", "status.get");
    assert_eq!(third.frame()["id"], "y");
    assert!(sink.event(LocalEvent::Reply { session, text: "still there".into() }));
    assert_eq!(first.frame()["text"], "still there");

    let rig = Rig::with(1, Some(LONG));
    let mut first = rig.client();
    first.ask("x", "status.get");
    first.frame();
    assert_eq!(rig.client().code(), "too_many_connections", "nobody has been silent for so long");
    first.ask("x", "status.get");
    first.frame();
}

#[test]
fn a_line_of_any_length_costs_the_client_its_connection_but_not_the_answer() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.write(r#"{"id":"big","method":"status.get","params":{"p":""#);
    let mut stream = client.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let piece = vec![b'x'; 1 << 20];
        let mut written = 0;
        // It goes on until the server has had enough, as a client does that does not look.
        while written < 1 << 30 {
            match stream.write(&piece) {
                Ok(n) => written += n,
                Err(_) => break,
            }
        }
    });
    let frame = client.frame();
    assert_eq!(
        (frame["id"].as_str(), frame["error"]["code"].as_str()),
        (Some("big"), Some("invalid_request"))
    );
    assert!(client.next().is_none());
    writer.join().unwrap();
    let mut next = rig.client();
    next.ask("n", "status.get");
    assert_eq!(next.frame()["id"], "n");
}

#[test]
fn a_byte_at_a_time_and_no_newline_at_the_end_are_fine() {
    let rig = Rig::new();
    let mut client = rig.client();
    for byte in "{\"id\":\"é\",\"method\":\"status.get\"}\r\n".as_bytes() {
        client.write([*byte]);
    }
    assert_eq!(client.frame()["id"], "é");
    client.write(r#"{"id":"last","method":"message.send","params":{"text":"lines 1"}}"#);
    client.stream.shutdown(Half::Write).unwrap();
    assert_eq!(client.until_reply()[0]["id"], "last");
    assert!(client.next().is_none());
}

#[test]
fn a_half_closed_client_waits_for_its_reply_however_late() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.send("m", "s", "wait").send("n", "s", "drop");
    client.stream.shutdown(Half::Write).unwrap();
    let (session, sink) = rig.wait_for_run();
    for _ in 0..4 {
        client.frame();
    }
    sink.event(LocalEvent::Reply { session, text: "late".into() });
    assert_eq!(client.frame()["text"], "late");
    assert!(client.next().is_none());
}

#[test]
fn who_asks_and_leaves_is_served_and_its_run_learns_that_nobody_hears() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.send("m", "s", "wait").send("n", "s", "wait");
    drop(client);
    let (session, sink) = rig.wait_for_run();
    rig.wait_for_run();
    let until = Instant::now() + LONG;
    while sink.event(LocalEvent::ReplyDelta { session: session.clone(), line: "x".into() }) {
        assert!(Instant::now() < until);
    }
}

#[test]
fn a_client_that_pipelines_and_reads_later_gets_every_answer() {
    let rig = Rig::new();
    let mut client = rig.client();
    let mut stream = client.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let all: String =
            (0..20_000).map(|n| format!("{{\"id\":{n},\"method\":\"status.get\"}}\n")).collect();
        stream.write_all(all.as_bytes()).unwrap();
    });
    for n in 0..20_000 {
        let frame = client.frame();
        assert_eq!(frame["id"], n.to_string());
        assert_eq!(frame.get("result").is_some(), n < limits::API_RATE);
    }
    writer.join().unwrap();
}

#[test]
fn a_burst_arrives_whole_and_in_order_at_whoever_reads() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.send("m", "s", "lines 100000");
    let frames = client.until_reply();
    let mut lines = frames.iter().filter_map(|frame| frame["line"].as_str());
    for n in 0..100_000 {
        assert_eq!(lines.next(), Some(format!("line {n}").as_str()));
    }
    assert!(lines.next().is_none());
}

#[test]
fn a_burst_leaves_room_for_answers() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.send("m", "s", "lines 1000000");
    let mut stream = client.stream.try_clone().unwrap();
    stream.write_all(b"{\"id\":\"q\",\"method\":\"status.get\"}\n").unwrap();
    let at = (0..).position(|_| client.frame()["id"] == "q").unwrap();
    assert!(at < 900_000, "{at}");
}

#[test]
fn shutdown_takes_the_socket_away_and_lets_replies_through() {
    let mut rig = Rig::new();
    let (mut client, mut idle) = (rig.client(), rig.client());
    client.send("m", "s", "wait").frame();
    client.frame();
    let (session, sink) = rig.wait_for_run();
    let path = rig.dir.path().join(API_SOCK);
    rig.stop.trigger();
    assert!(idle.next().is_none(), "who waits for nothing is let go at once");
    assert!(!path.exists());
    client.send("late", "s", "lines 1");
    assert!(sink.event(LocalEvent::Reply { session, text: "done".into() }));
    assert_eq!(client.frame()["text"], "done");
    drop(sink);
    rig.end();
    let mut rest = Vec::new();
    client.reader.read_to_end(&mut rest).ok();
    assert!(rest.is_empty());
}

#[test]
fn a_live_listener_is_never_replaced_and_its_place_is_taken_once_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().canonicalize().unwrap().join(API_SOCK);
    let live = UnixListener::bind(&socket).unwrap();
    let rig = Rig::in_dir(dir, 16, None);
    let why = format!("another process listens on {}", socket.display());
    assert_eq!(rig.standing.recv().unwrap(), Standing::Waiting(why));
    assert!(UnixStream::connect(&socket).is_ok() && live.accept().is_ok());
    drop(live);
    assert_eq!(rig.standing.recv_timeout(LONG).unwrap(), Standing::Listening(socket));
    let mut client = rig.client();
    client.ask("a", "status.get");
    assert_eq!(client.frame()["id"], "a");
}

#[test]
fn what_is_no_socket_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(API_SOCK);
    std::fs::write(&path, "mine").unwrap();
    let mut rig = Rig::in_dir(dir, 16, None);
    assert!(matches!(rig.standing.recv().unwrap(), Standing::Waiting(_)));
    rig.end();
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}
