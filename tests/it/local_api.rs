//! The local client API of a real daemon, with agents that are real processes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Background, Home, LONG, eventually, left_out, resident_bytes, text};

/// A user that is not ours, where there is one to become.
const NOBODY: u32 = 65_534;

/// A home with agents in it, and a daemon that serves them.
struct Rig {
    home: Home,
    daemon: Option<Background>,
}

impl Rig {
    /// One agent, `tiny`, that is this script for sh.
    fn new(script: &str) -> Self {
        let rig = Self::unstarted(script);
        rig.started()
    }

    fn unstarted(script: &str) -> Self {
        let home = Home::new();
        let dir = home.path("agents-home/agents/tiny");
        fs::create_dir_all(&dir).unwrap();
        let manifest = "[agent]\nname = \"tiny\"\ntimeout_seconds = 60\n[run]\ncommand = \"sh\"\nargs = [\"./agent.sh\"]\n";
        fs::write(dir.join("agent.toml"), manifest).unwrap();
        fs::write(dir.join("agent.sh"), script).unwrap();
        fs::write(home.path("agents-home/config.toml"), "[telegram]\ndispatcher_agent = \"tiny\"\n").unwrap();
        Self { home, daemon: None }
    }

    fn started(mut self) -> Self {
        assert_eq!(self.start()["api_sock"], self.socket().to_str().unwrap());
        self
    }

    /// Starts the daemon; what it says when it is ready.
    fn start(&mut self) -> Value {
        let mut command = self.home.command("transitd");
        command.args(["run", "--ready-file", "ready"]).env("DOTAGENT_HOME", self.home.path("agents-home"));
        self.start_as(&mut command)
    }

    fn start_as(&mut self, command: &mut std::process::Command) -> Value {
        let _ = fs::remove_file(self.home.path("ready"));
        let mut daemon = Background::start(command);
        let ready = daemon.ready(&self.home.path("ready"));
        self.daemon = Some(daemon);
        ready
    }

    fn daemon(&mut self) -> &mut Background {
        self.daemon.as_mut().unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.home.path("agents-home/api.sock").canonicalize().unwrap()
    }

    fn client(&self) -> Client {
        Client::new(UnixStream::connect(self.socket()).unwrap())
    }
}

struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Client {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(LONG)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }

    fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    fn send(&mut self, session: &str, text: &str) {
        let params = json!({ "session_id": session, "text": text });
        self.write(format!("{}\n", json!({ "id": "m", "method": "message.send", "params": params })));
    }

    fn frame(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).unwrap();
        (read > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    fn status(&mut self) -> Value {
        self.write("{\"id\":\"s\",\"method\":\"status.get\"}\n");
        loop {
            let frame = self.frame().unwrap();
            if frame["id"] == "s" {
                return frame["result"].clone();
            }
        }
    }

    /// The frames up to the reply, without `typing`.
    fn until_reply(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.frame().unwrap();
            if frame["event"] == "typing" {
                continue;
            }
            let is_last = frame["event"] == "reply";
            frames.push(frame);
            if is_last {
                return frames;
            }
        }
    }

    fn reply(&mut self) -> String {
        self.until_reply().pop().unwrap()["text"].as_str().unwrap().to_owned()
    }
}

#[test]
fn a_message_goes_through_the_bridge_to_the_agent_and_back() {
    let rig = Rig::new("printf '%s\\n' \"$AGENT_TRIGGER_PAYLOAD\" \"$AGENT_TRIGGER_ACTOR\"");
    let mut command = rig.home.command("transit-api");
    command.env("DOTAGENT_HOME", rig.home.path("agents-home"));
    let mut bridge = Background::start(&mut command);
    // A byte at a time, so that characters straddle what is read.
    for byte in "{\"id\":1,\"method\":\"message.send\",\"params\":{\"text\":\"héé 😀\"}}\n".as_bytes() {
        bridge.write([*byte]);
    }
    bridge.close_stdin();
    let mut frames = Vec::new();
    while frames.last().is_none_or(|frame: &Value| frame["event"] != "reply") {
        frames.push(serde_json::from_str(&bridge.line()).unwrap());
    }
    frames.retain(|frame| frame["event"] != "typing");
    assert_eq!(frames[0], json!({ "id": "1", "result": { "accepted": true } }));
    assert_eq!(frames[1], json!({ "event": "run.started", "session_id": "default", "agent": "tiny" }));
    let payload = "{\"session_id\":\"default\",\"text\":\"héé 😀\"}";
    assert_eq!(frames[2], json!({ "event": "reply.delta", "session_id": "default", "line": payload }));
    let actor = format!("pid={} uid={}", bridge.pid(), rustix::process::geteuid().as_raw());
    assert_eq!(frames[4]["text"], format!("{payload}\n{actor}"), "the kernel says who asks");
    assert!(bridge.wait().success(), "the daemon has closed after the last reply");
}

#[test]
fn a_burst_arrives_whole_and_in_order() {
    let rig = Rig::new("seq 1 100000");
    let mut client = rig.client();
    client.send("s", "go");
    let frames = client.until_reply();
    let mut lines = frames.iter().filter_map(|frame| frame["line"].as_str());
    for n in 1..=100_000 {
        assert_eq!(lines.next(), Some(n.to_string().as_str()));
    }
    assert!(lines.next().is_none());
    let reply = frames.last().unwrap()["text"].as_str().unwrap();
    assert_eq!((reply.lines().count(), reply.lines().last()), (500, Some("100000")));
}

#[test]
fn who_does_not_read_is_cut_off_and_nobody_else_notices() {
    let mut rig = Rig::new(
        "[ \"$AGENT_SESSION_ID\" = deaf ] && yes \"$(printf %0200d 7)\" | head -c 100000000; exit 0",
    );
    let (mut deaf, mut other) = (rig.client(), rig.client());
    deaf.send("deaf", "go");
    other.status();
    other.send("other", "go");
    assert_eq!(other.reply(), "tiny finished with no output.");
    let used = resident_bytes(rig.daemon().pid());
    assert!(used < 40 << 20, "{used} bytes for a client that does not read");
    // It says nothing, and reads what was left for it once it is over.
    let ended = rustix::event::PollFlags::RDHUP;
    let mut fds = [rustix::event::PollFd::new(&deaf.stream, ended)];
    let wait = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut fds, Some(&wait)).unwrap(), 1);
    let mut rest = Vec::new();
    deaf.reader.read_to_end(&mut rest).unwrap();
    assert!(rest.len() < 2 << 20, "{}", rest.len());
    assert_eq!(other.status()["daemon"], "ok");
}

#[test]
fn a_line_of_any_length_leaves_memory_flat() {
    let mut rig = Rig::new("exit 0");
    let mut client = rig.client();
    client.write("{\"id\":7,\"method\":\"status.get\",\"x\":\"");
    let piece = vec![b'x'; 1 << 20];
    // Until the server has had enough, but far more than it may keep.
    let written = (0..1024).take_while(|_| client.stream.write_all(&piece).is_ok()).count();
    let used = resident_bytes(rig.daemon().pid());
    assert!(used < 40 << 20, "{used} bytes after {written} MiB");
    let refused = client.frame().unwrap();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("7"), &json!("invalid_request")));
    assert_eq!(rig.client().status()["daemon"], "ok");
}

#[test]
fn replies_of_runs_that_end_while_the_daemon_stops_are_delivered() {
    let mut rig = Rig::new("echo up; while [ ! -e go ]; do sleep 0.02; done; echo done");
    let mut client = rig.client();
    client.send("s", "go");
    while client.frame().unwrap()["line"] != "up" {}
    let mut idle = rig.client();
    idle.status();
    rig.daemon().signal(Signal::TERM);
    assert!(idle.frame().is_none(), "who waits for nothing is let go");
    assert!(!rig.home.path("agents-home/api.sock").exists());
    fs::write(rig.home.path("agents-home/agents/tiny/go"), "").unwrap();
    assert_eq!(client.reply(), "up\ndone");
    assert!(client.frame().is_none());
    assert!(rig.daemon().wait().success());
}

#[test]
fn the_socket_of_a_daemon_that_was_killed_is_replaced() {
    let mut rig = Rig::new("exit 0");
    rig.daemon().signal(Signal::KILL);
    rig.daemon().wait();
    assert!(rig.socket().exists());
    let rig = rig.started();
    assert_eq!(rig.client().status()["dispatcher_agent"], "tiny");
    let mode = fs::metadata(rig.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_is_in_the_way_of_the_socket_costs_the_api_alone() {
    let mut rig = Rig::unstarted("exit 0");
    let socket = rig.home.path("agents-home/api.sock");
    let live = UnixListener::bind(&socket).unwrap();
    assert_eq!(rig.start()["api_sock"], Value::Null);
    assert!(rig.home.run("transitd", ["status"], b"").status.success());
    rig.daemon().signal(Signal::TERM);
    assert!(rig.daemon().wait().success());
    assert!(UnixStream::connect(&socket).is_ok(), "a live listener is never replaced");
    drop(live);
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "mine").unwrap();
    assert_eq!(rig.start()["api_sock"], Value::Null);
    rig.daemon().signal(Signal::TERM);
    assert!(rig.daemon().wait().success());
    assert_eq!(fs::read(&socket).unwrap(), b"mine");
}

#[test]
fn without_a_dispatcher_there_is_no_socket_and_one_that_goes_is_told() {
    let mut rig = Rig::unstarted("exit 0");
    let agent = rig.home.path("agents-home/agents/tiny");
    fs::rename(&agent, rig.home.path("agents-home/away")).unwrap();
    assert_eq!(rig.start()["api_sock"], Value::Null);
    assert!(!rig.home.path("agents-home/api.sock").exists());
    let told = rig.home.run("transitd", ["status"], b"");
    assert!(text(&told.stdout).contains("no agent is called \"tiny\""), "{}", text(&told.stdout));
    rig.daemon().signal(Signal::TERM);
    assert!(rig.daemon().wait().success());
    fs::rename(rig.home.path("agents-home/away"), &agent).unwrap();
    let rig = rig.started();
    let mut client = rig.client();
    assert_eq!(client.status(), json!({ "daemon": "ok", "gateway": "ok", "dispatcher_agent": "tiny" }));
    fs::remove_dir_all(&agent).unwrap();
    let gone = json!({ "daemon": "ok", "gateway": "dispatcher_missing", "dispatcher_agent": "tiny" });
    eventually(|| (client.status() == gone).then_some(()));
    client.send("s", "anybody?");
    assert!(client.reply().starts_with("Could not run tiny: "));
}

#[test]
fn a_reload_changes_the_limits_of_everybody_and_a_broken_file_those_of_nobody() {
    let rig = Rig::new("exit 0");
    let limits = |api: &str| {
        let config = format!("[telegram]\ndispatcher_agent = \"tiny\"\n[api]\n{api}\n");
        fs::write(rig.home.path("agents-home/config.toml"), config).unwrap();
        let done = rig.home.run("transitd", ["reload"], b"");
        (done.status.code(), text(&done.stderr).to_owned())
    };
    let (mut early, mut other) = (rig.client(), rig.client());
    early.status();
    other.status();
    assert_eq!(limits("rate_per_minute = 2\nconnections = 2"), (Some(0), String::new()));
    early.status();
    early.write("{\"id\":\"s\",\"method\":\"status.get\"}\n");
    assert_eq!(early.frame().unwrap()["error"]["code"], "rate_limited", "who was there is held to it");
    assert_eq!(rig.client().frame().unwrap()["error"]["code"], "too_many_connections");
    other.status();
    let (code, told) = limits("rate_per_minute = 50\nconnections = \"many\"");
    assert!(code == Some(78) && told.contains("line 5") && told.lines().count() == 1, "{told}");
    other.write("{\"id\":\"s\",\"method\":\"status.get\"}\n");
    assert_eq!(other.frame().unwrap()["error"]["code"], "rate_limited", "that changed nothing");
    assert_eq!(limits("rate_per_minute = 50").0, Some(0));
    other.status();
    rig.client().status();
    let another = "[telegram]\ndispatcher_agent = \"another\"\n";
    fs::write(rig.home.path("agents-home/config.toml"), another).unwrap();
    let done = rig.home.run("transitd", ["reload"], b"");
    assert!(done.status.success() && text(&done.stderr).contains("dispatcher_agent: what the daemon"));
}

#[test]
fn another_user_is_told_and_turned_away() {
    if !rustix::process::geteuid().is_root() {
        return left_out("a client of another user, which takes root");
    }
    let mut rig = Rig::unstarted("exit 0");
    let own = |path: &std::path::Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    let agents = rig.home.path("agents-home");
    for path in [rig.home.path(""), agents.clone(), agents.join("agents"), agents.join("agents/tiny")] {
        own(&path);
    }
    let mut command = rig.home.command("transitd");
    command.args(["run", "--ready-file", "ready"]).env("DOTAGENT_HOME", &agents).uid(NOBODY).gid(NOBODY);
    rig.start_as(&mut command);
    let mut client = rig.client();
    let why = "peer credentials do not match the daemon uid";
    let refused = json!({ "id": "", "error": { "code": "internal", "message": why } });
    assert_eq!(client.frame(), Some(refused), "not even root is somebody else");
    assert_eq!(client.frame(), None);
}

#[test]
fn a_client_that_asks_and_leaves_has_asked() {
    let rig = Rig::new("cat >/dev/null; echo \"$AGENT_SESSION_ID\" >>ran");
    let ran = rig.home.path("agents-home/agents/tiny/ran");
    let mut client = rig.client();
    client.send("one", "x");
    client.send("two", "x");
    drop(client);
    eventually(|| {
        let ran = fs::read_to_string(&ran).unwrap_or_default();
        (ran.contains("one") && ran.contains("two")).then_some(())
    });
}

#[test]
fn the_agent_of_the_documentation_does_what_is_shown() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|dir| dir.join("jq").is_file()) {
        return left_out("what needs jq, which is not installed");
    }
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/local-api.md")).unwrap();
    let block = |begins: &str| page.split(begins).nth(1).unwrap().split("```").next().unwrap().to_owned();
    let mut rig = Rig::unstarted("");
    let home = rig.home.path("agents-home");
    fs::write(home.join("config.toml"), block("```toml\n[telegram]").replacen('\n', "[telegram]\n", 1))
        .unwrap();
    fs::create_dir(home.join("agents/counter")).unwrap();
    fs::write(home.join("agents/counter/agent.toml"), format!("[agent]{}", block("```toml\n[agent]")))
        .unwrap();
    let script = block("```sh\n");
    assert!(script.lines().count() <= 10, "ten lines");
    fs::write(home.join("agents/counter/agent.sh"), script).unwrap();
    rig.start();
    let shown = block("```console\n");
    let (command, expected) = shown.split_once('\n').unwrap();
    let mut shell = rig.home.foreign("sh");
    shell.args(["-c", command.strip_prefix("$ ").unwrap()]).env("DOTAGENT_HOME", &home);
    let output = shell.output().unwrap();
    assert_eq!(text(&output.stdout), expected);
    let mut client = rig.client();
    client.send("ann", "forget");
    assert_eq!(client.reply(), "Forgotten.");
}
