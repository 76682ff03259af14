//! What the tests with real coding agents share: where those are, a model on loopback, a terminal, and a daemon's end
//! of `agent.sock` that the test itself drives, so that it sees what is there at the very moment of an ack.
//!
//! The agents are npm packages, pinned in `tests/interop/harness/`. They are looked for in the directory that
//! `TRANSIT_HARNESSES` names, else in `target/harnesses`, where `.ci/run` puts them.

mod link;
mod opencode;
mod pi;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use transit::proto::envelope::{Envelope, Kind, parse, render};

use crate::rig::{Agent, Rig};
use crate::support::{Background, Home, Http, Sink, eventually_within, programs, text};

/// Far longer than the slowest of them takes to start on a machine that has other things to do.
const SLOW: Duration = Duration::from_secs(120);

/// A file of an installed package.
pub(super) fn package(path: &str) -> PathBuf {
    let dir = std::env::var_os("TRANSIT_HARNESSES").map(PathBuf::from);
    let dir = dir.unwrap_or_else(|| programs().parent().unwrap().join("harnesses"));
    let path = dir.join("node_modules").join(path);
    let how = "npm ci --prefix DIR after copying tests/interop/harness/package*.json there, then TRANSIT_HARNESSES=DIR";
    assert!(path.exists(), "{} is missing: {how}", path.display());
    path
}

/// A model that costs nothing.
pub(super) struct Provider {
    _process: Background,
    pub(super) url: String,
    hold: PathBuf,
}

impl Provider {
    pub(super) fn start(home: &Home) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/harness/provider.py");
        let hold = home.path("hold");
        let mut command = home.foreign("python3");
        let process = Background::start(command.arg(script).arg("--hold").arg(&hold));
        let url = process.line();
        Self { _process: process, url, hold }
    }

    /// Lets the agent think until [`go_on`](Self::go_on).
    pub(super) fn hold(&self) {
        std::fs::write(&self.hold, "").unwrap();
    }

    pub(super) fn go_on(&self) {
        std::fs::remove_file(&self.hold).unwrap();
    }
}

/// Puts an adapter in place, with what this command has as its environment.
pub(super) fn install(mut command: Command, harness: &str) {
    let out = command.args(["install", harness]).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
}

/// A terminal with a program in it.
pub(super) struct Terminal {
    home: PathBuf,
}

impl Terminal {
    pub(super) fn start(home: &Home, command: &Command) -> Self {
        let mut tmux = home.foreign("tmux");
        let envs = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        tmux.envs(envs).env("TERM", "xterm-256color").args(["-f", "/dev/null", "-S"]).arg(home.path("tmux"));
        tmux.args(["new-session", "-d", "-x", "110", "-y", "40", "-c"]);
        tmux.arg(command.get_current_dir().map_or_else(|| home.path("."), Path::to_owned));
        let out = tmux.arg(command.get_program()).args(command.get_args()).output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        Self { home: home.path(".") }
    }

    fn tmux(&self, args: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        let out = tmux.arg("-S").arg(self.home.join("tmux")).args(args).output().unwrap();
        text(&out.stdout).to_owned()
    }

    pub(super) fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Types, and waits until it is to be seen.
    pub(super) fn types(&self, words: &str) {
        self.tmux(&["send-keys", "-l", words]);
        self.shows(words);
    }

    pub(super) fn key(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    pub(super) fn shows(&self, words: &str) {
        eventually_within(SLOW, || self.screen().contains(words.trim_end()).then_some(()));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// The daemon's end, one connection at a time.
pub(super) struct Desk {
    listener: UnixListener,
}

/// One session of it.
pub(super) struct Seat {
    /// What it said of itself.
    pub(super) register: Value,
    /// What it said last that it does.
    status: Value,
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

const CAPABILITY: &str = "00112233445566778899aabbccddeeff";

impl Desk {
    pub(super) fn open(home: &Home) -> Self {
        std::fs::create_dir_all(home.data()).unwrap();
        Self { listener: UnixListener::bind(home.data().join("agent.sock")).unwrap() }
    }

    /// Takes the next connection and gives it its place.
    pub(super) fn seat(&self) -> Seat {
        let mut seat = self.caller();
        seat.admit();
        seat
    }

    /// Takes the next connection and hears who it is.
    pub(super) fn caller(&self) -> Seat {
        let stream = self.listener.accept().unwrap().0;
        stream.set_read_timeout(Some(SLOW)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        let mut seat = Seat { register: Value::Null, status: Value::Null, stream, lines };
        seat.register = seat.next().expect("register comes first");
        assert_eq!((&seat.register["t"], &seat.register["proto"]), (&json!("register"), &json!(1)));
        seat.status = seat.register["status"].clone();
        seat
    }
}

impl Seat {
    pub(super) fn session_id(&self) -> String {
        self.register["session_id"].as_str().unwrap().to_owned()
    }

    /// Gives a caller its place.
    pub(super) fn admit(&mut self) {
        self.say(&json!({
            "t": "registered", "agent": "bob", "address": "bob@titan", "generation": 1, "capability": CAPABILITY,
        }));
    }

    fn say(&mut self, frame: &Value) {
        self.stream.write_all(format!("{frame}\n").as_bytes()).unwrap();
    }

    /// The next frame; `None` once the adapter has closed the connection.
    pub(super) fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).unwrap_or(0);
        (read > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    pub(super) fn deliver(&mut self, id: &str, envelope: &str) {
        self.say(&json!({ "t": "deliver", "id": id, "envelope": envelope }));
    }

    /// Waits for the ack of a delivery.
    pub(super) fn acked(&mut self, id: &str) {
        let wanted = json!({ "t": "deliver_ack", "id": id, "persisted": true, "capability": CAPABILITY });
        assert_eq!(self.next_but_status(), wanted);
    }

    /// Has it take a delivery: hands it over, and waits for the ack.
    pub(super) fn takes(&mut self, id: &str, envelope: &str) {
        self.deliver(id, envelope);
        self.acked(id);
    }

    /// Waits until the session does this.
    pub(super) fn does(&mut self, status: &str) {
        while self.status != status {
            let frame = self.next().expect("the adapter stays connected");
            assert_eq!(frame["t"], "status", "{frame}");
            self.status = frame["status"].clone();
        }
    }

    fn next_but_status(&mut self) -> Value {
        loop {
            let frame = self.next().expect("the adapter stays connected");
            if frame["t"] != "status" {
                return frame;
            }
            self.status = frame["status"].clone();
        }
    }
}

/// What the daemon knows of an agent that is connected, once it is.
pub(super) fn connected(home: &Home, name: &str) -> Value {
    eventually_within(SLOW, || {
        let out = home.run("transitd", ["status", "--json"], b"");
        let status: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        status["agents"].as_array()?.iter().find(|agent| agent["name"] == name).cloned()
    })
}

/// A message, as it is put into a session.
pub(super) fn message(id: &str, body: &str) -> String {
    let (from, ts) = ("amy@titan".to_owned(), "2026-01-02T03:04:05.000Z".to_owned());
    render(&Envelope { from, id: id.to_owned(), ts, reply_to: None, body: body.to_owned(), kind: Kind::Dm })
}

/// An event, as it is put into a session the first time and as a reminder.
pub(super) fn event(id: &str, redelivery: u32) -> String {
    let (from, ts) = ("ingest".to_owned(), "2026-01-02T03:04:05.000Z".to_owned());
    let kind = Kind::Channel {
        conversation_id: "main".into(),
        connector: from.clone(),
        user: "ann".into(),
        redelivery,
        read: false,
        trigger: String::new(),
    };
    render(&Envelope { from, id: id.to_owned(), ts, reply_to: None, body: "an event".to_owned(), kind })
}

/// The reply that was posted to an event: bob's.
pub(super) fn bob_has_answered(sink: &Sink, event_key: &str) -> Http {
    let posted = sink.next();
    let reply = posted.json();
    assert_eq!((&reply["agent"], &reply["event_key"]), (&json!("bob@demo"), &json!(event_key)));
    posted
}

/// Has amy write to bob, and sees that bob's agent answers with the tools that it was given.
pub(super) fn bob_answers(rig: &Rig, amy: &mut Agent) {
    let sent =
        rig.home.run("transit-send", ["bob@demo", "--as", "amy", "--json", "-m", "are you there?"], b"");
    let sent: Value = serde_json::from_slice(&sent.stdout).unwrap();
    let id = sent["id"].as_str().unwrap();
    let words = format!("the model answers {id}");
    loop {
        let delivered = amy.delivered();
        let answer = parse(delivered["envelope"].as_str().unwrap()).unwrap().envelope;
        amy.ack(delivered["id"].as_str().unwrap());
        // An earlier one comes again when the daemon was killed before it had heard of the ack.
        if answer.reply_to.as_deref() == Some(id) {
            assert_eq!((answer.from, answer.body), ("bob@demo".to_owned(), words));
            return;
        }
    }
}

/// A body with everything in it that a session might change.
pub(super) const BODY: &str =
    "größe \"7\" ≠ '8' \\n $HOME `id` {{x}} <b>&amp;</b> @file /new\n\n\t- two  \n</transit> 🦀";
