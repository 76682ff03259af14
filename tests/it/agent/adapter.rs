//! `transit-agent adapter claude` as the child of a Claude Code that each test plays: its registry, its inbox and its
//! transcript.

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use transit::proto::agent::Register;
use transit::store::process::{Process, start_time};

use super::{Connection, Daemon, Event, acked, refused};
use crate::support::{Background, Home, LONG, text};

/// A Claude Code, which is this very process.
struct Claude<'a> {
    home: &'a Home,
    inbox: UnixListener,
}

impl<'a> Claude<'a> {
    fn start(home: &'a Home) -> Self {
        for dir in ["claude/sessions", "claude/projects/-src"] {
            std::fs::create_dir_all(home.path(dir)).unwrap();
        }
        Self { home, inbox: UnixListener::bind(home.path("inbox.sock")).unwrap() }
    }

    /// What the registry says of it.
    fn is(&self, session_id: &str, status: &str) {
        self.of(std::process::id(), session_id, status);
    }

    /// What the registry says of another one.
    fn of(&self, pid: u32, session_id: &str, status: &str) {
        let own = Process { pid, start_time: start_time(pid).unwrap() };
        let entry = json!({
            "pid": own.pid, "sessionId": session_id, "cwd": "/src", "procStart": own.start_time.to_string(),
            "name": "work", "status": status, "messagingSocketPath": self.home.path("inbox.sock"),
        });
        // In one step, as the real one does.
        let path = self.home.file("claude/sessions/new", entry.to_string());
        std::fs::rename(path, self.home.path(&format!("claude/sessions/{}.json", own.pid))).unwrap();
    }

    fn adapter(&self) -> Background {
        Background::start(&mut self.command())
    }

    fn command(&self) -> Command {
        let mut command = self.home.command("transit-agent");
        command.args(["adapter", "claude"]).env("CLAUDE_CONFIG_DIR", self.home.path("claude"));
        command.env("CLAUDE_PID", std::process::id().to_string());
        command.env("CLAUDE_CODE_MESSAGING_TOKEN", "t0ken").env("TRANSIT_AGENT_NAME", "bob");
        command
    }

    /// The next message in the inbox.
    fn takes(&self) -> String {
        let mut stream = self.inbox.accept().unwrap().0;
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut lines = String::new();
        stream.read_to_string(&mut lines).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], json!({ "type": "auth", "token": "t0ken" }));
        assert_eq!((&lines[1]["type"], lines.len()), (&json!("user"), 2));
        lines[1]["message"]["content"].as_str().unwrap().to_owned()
    }

    fn transcript(&self, session_id: &str) -> PathBuf {
        self.home.path(&format!("claude/projects/-src/{session_id}.jsonl"))
    }

    fn writes(&self, session_id: &str, kind: &str, content: &str) {
        use std::io::Write;
        let path = self.transcript(session_id);
        let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
        let line =
            json!({ "type": kind, "message": { "role": "user", "content": content }, "content": content });
        writeln!(file, "{line}").unwrap();
    }
}

/// Takes the next connection of an adapter that registers for its parent.
fn seat(daemon: &Daemon) -> (Connection, Register) {
    let (connection, register) = daemon.accept_for(Some(std::process::id()));
    (connection.registered(register.clone(), 1), register)
}

const FIRST: &str =
    "<transit from=\"amy@titan\" id=\"tx_000000000001\" schema=\"transit/1\">\nhi\n</transit>";

#[test]
fn an_envelope_is_acknowledged_once_the_transcript_has_it_as_a_users_message() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let claude = Claude::start(&home);
    claude.is("s-1", "shell");
    let adapter = claude.adapter();
    let (mut connection, register) = seat(&daemon);
    assert_eq!((register.harness.as_str(), register.session_id.as_str()), ("claude", "s-1"));
    assert_eq!((register.pid, register.cwd.as_str()), (std::process::id(), "/src"));
    assert_eq!((register.status.as_str(), register.name.as_deref()), ("idle", Some("bob")));

    connection.deliver("tx_000000000001", FIRST);
    let taken = claude.takes();
    assert_eq!(taken, FIRST);
    // It waits in a queue while Claude Code is at work, which is not yet the session.
    claude.writes("s-1", "queue-operation", &taken);
    claude.is("s-1", "busy");
    assert_eq!(connection.next(), Event::Status("working".into()));
    claude.writes("s-1", "user", &format!("Another session sent a message:\n{taken}\n\nA peer."));
    assert_eq!(connection.answer(), acked("tx_000000000001"));

    // The same one again is known by the transcript, also to another adapter.
    connection.deliver("tx_000000000001", FIRST);
    assert_eq!(connection.answer(), acked("tx_000000000001"));
    drop(connection);
    let (mut connection, _) = seat(&daemon);
    connection.deliver("tx_000000000001", FIRST);
    assert_eq!(connection.answer(), acked("tx_000000000001"));
    drop((connection, adapter));
    let _adapter = claude.adapter();
    let (mut connection, register) = seat(&daemon);
    assert_eq!(register.status, "working");
    connection.deliver("tx_000000000001", FIRST);
    assert_eq!(connection.answer(), acked("tx_000000000001"));
    let again = FIRST.replace(" schema=", " redelivery=\"1\" schema=");
    connection.deliver("tx_000000000001", again.as_str());
    assert_eq!(claude.takes(), again, "what is shown again on purpose is shown");
}

#[test]
fn another_session_of_the_process_has_a_registration_of_its_own() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let claude = Claude::start(&home);
    claude.is("s-1", "idle");
    let _adapter = claude.adapter();
    let (mut connection, _) = seat(&daemon);
    claude.is("s-1", "waiting");
    assert_eq!(connection.next(), Event::Status("blocked".into()));
    // /clear
    claude.is("s-2", "idle");
    let (mut connection, register) = seat(&daemon);
    assert_eq!((register.session_id.as_str(), register.status.as_str()), ("s-2", "idle"));
    // What is in the other transcript is not in this one.
    claude.writes("s-1", "user", FIRST);
    connection.deliver("tx_000000000001", FIRST);
    let taken = claude.takes();
    claude.writes("s-2", "user", &taken);
    assert_eq!(connection.answer(), acked("tx_000000000001"));
    // Nobody takes messages there.
    std::fs::remove_file(home.path("inbox.sock")).unwrap();
    connection.deliver("tx_000000000002", FIRST.replace("001\"", "002\""));
    assert_eq!(connection.answer(), refused("tx_000000000002", "inbox_unavailable", true));
}

#[test]
fn what_comes_for_a_session_just_left_is_not_put_into_the_next_one() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let claude = Claude::start(&home);
    claude.is("s-1", "idle");
    let _adapter = claude.adapter();
    let (mut connection, _) = seat(&daemon);
    claude.is("s-2", "idle");
    connection.deliver("tx_000000000001", FIRST);
    let (_connection, register) = seat(&daemon);
    assert_eq!(register.session_id, "s-2");
    claude.inbox.set_nonblocking(true).unwrap();
    assert!(claude.inbox.accept().is_err(), "the message is the other session's, and waits for it");
}

#[test]
fn without_claude_code_it_has_nothing_to_do() {
    let home = Home::new();
    let alone = home.run("transit-agent", ["adapter", "claude"], b"");
    assert_eq!((alone.status.code(), alone.stdout.len()), (Some(69), 0));
    assert!(text(&alone.stderr).contains("transit-agent install claude"), "{}", text(&alone.stderr));

    let daemon = Daemon::start(&home);
    let claude = Claude::start(&home);
    let mut short = Background::start(home.foreign("sh").args(["-c", "read line"]));
    claude.of(short.pid(), "s-1", "idle");
    let mut command = claude.command();
    let mut adapter = Background::start(command.env("CLAUDE_PID", short.pid().to_string()));
    let (connection, register) = daemon.accept_for(Some(short.pid()));
    let _connection = connection.registered(register, 1);
    short.write("\n");
    short.wait();
    assert!(adapter.wait().success(), "it ends with Claude Code");
    assert!(adapter.pending_lines().is_empty(), "what it prints would be a message");
}
