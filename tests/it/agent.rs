//! `transit-agent` against a daemon's end of `agent.sock` that each test scripts.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use serde_json::{Value, json};
use transit::clock::{Clock, Mono, SystemClock};
use transit::limits::AGENT_PING;
use transit::proto::agent::{DaemonSide, DaemonSideEvent as Event, PeerProcess, Register};
use transit::proto::envelope::{Envelope, Kind, render};
use transit::proto::lines::Lines;
use transit::proto::{Input, Output};

use crate::support::{Background, Home, LONG, text};

const CAPABILITY: &str = "00112233445566778899aabbccddeeff";

/// The daemon's end, one connection at a time.
struct Daemon {
    listener: UnixListener,
}

/// One connection, driven by the machine that the real daemon uses.
struct Connection {
    stream: UnixStream,
    machine: DaemonSide,
    lines: Lines,
    clock: SystemClock,
}

impl Daemon {
    fn start(home: &Home) -> Self {
        std::fs::create_dir_all(home.data()).unwrap();
        Self { listener: UnixListener::bind(home.data().join("agent.sock")).unwrap() }
    }

    /// Takes the next connection of `agent` and hears who it is.
    fn accept(&self, agent: &Background) -> (Connection, Register) {
        let stream = self.listener.accept().unwrap().0;
        stream.set_read_timeout(Some(LONG)).unwrap();
        let machine = DaemonSide::new(PeerProcess { pid: agent.pid(), own: agent.pid() }, Mono::default());
        let mut connection =
            Connection { stream, machine, lines: Lines::new(1 << 20), clock: SystemClock::new() };
        let Event::Register(register) = connection.next() else { panic!("register comes first") };
        (connection, register)
    }

    /// Takes the next connection and gives it its place.
    fn register(&self, agent: &Background, generation: u64) -> Connection {
        let (mut connection, register) = self.accept(agent);
        let name = register.name.unwrap();
        let address = format!("{name}@titan");
        connection.machine.registered(&name, &address, generation, CAPABILITY.into(), Mono::default());
        connection.drain();
        connection
    }
}

impl Connection {
    /// The next thing that the adapter says.
    fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.drain() {
                return event;
            }
            let mut bytes = [0; 4096];
            let read = self.stream.read(&mut bytes).unwrap();
            assert!(read > 0, "the agent closed the connection");
            self.lines.push(&bytes[..read]);
            while let Some(line) = self.lines.next() {
                self.machine.handle(line.as_input(), self.clock.mono());
            }
        }
    }

    /// The next answer to a delivery; what is said of the session is passed over.
    fn answer(&mut self) -> Event {
        loop {
            match self.next() {
                Event::Status(_) | Event::Alive => {}
                answer => return answer,
            }
        }
    }

    fn deliver(&mut self, id: &str, envelope: impl Into<String>) {
        self.machine.deliver(id, envelope.into(), self.clock.mono());
        self.drain();
    }

    /// Returns once the adapter has heard all that was said before.
    fn ping(&mut self) {
        self.machine.handle(Input::Tick, self.clock.mono() + AGENT_PING);
        while self.next() != Event::Alive {}
    }

    fn drain(&mut self) -> Option<Event> {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Write(line) => self.stream.write_all(format!("{line}\n").as_bytes()).unwrap(),
                Output::Event(event) => return Some(event),
                Output::WakeAt(_) | Output::Close(_) => {}
            }
        }
        None
    }
}

fn acked(id: &str) -> Event {
    Event::Ack { id: id.to_owned() }
}

fn refused(id: &str, code: &str, retryable: bool) -> Event {
    Event::Nak { id: id.to_owned(), code: code.to_owned(), retryable }
}

/// `transit-agent run --name bob` with this COMMAND.
fn run(home: &Home, options: &[&str], command: &[&str]) -> Background {
    let mut agent = home.command("transit-agent");
    agent.args(["run", "--name", "bob"]).args(options).arg("--").args(command);
    Background::start(&mut agent)
}

fn listen(home: &Home, options: &[&str]) -> Background {
    Background::start(home.command("transit-agent").args(["listen", "--name", "bob"]).args(options))
}

fn message(id: &str, kind: Kind, body: &str) -> Envelope {
    let (from, ts) = ("jess@titan".to_owned(), "2026-01-02T03:04:05.000Z".to_owned());
    Envelope { from, id: id.to_owned(), ts, reply_to: None, body: body.to_owned(), kind }
}

#[test]
fn a_session_says_who_it_is_and_stays_the_same_one() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let agent = run(&home, &["--session-id", "s 1", "--harness", "mine"], &["echo", "a b"]);
    let (_, register) = daemon.accept(&agent);
    assert_eq!((register.harness.as_str(), register.session_id.as_str()), ("mine", "s 1"));
    assert_eq!((register.name.as_deref(), register.title.as_str()), (Some("bob"), "echo a b"));
    assert_eq!(register.pid, agent.pid());
    let agent = listen(&home, &[]);
    let (_, register) = daemon.accept(&agent);
    assert_eq!((register.harness.as_str(), register.session_id.as_str()), ("program", "bob"));
}

#[test]
fn command_gets_exactly_the_envelope_and_its_attributes() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let script = "cat >got; env | grep ^TRANSIT_ | grep -v _DATA_DIR= | grep -v _CONFIG= | sort >env";
    let mut command = home.command("transit-agent");
    command
        .args(["run", "--name", "bob", "--", "sh", "-c", script])
        .env("TRANSIT_ROOM", "of another envelope");
    let agent = Background::start(&mut command);
    let mut connection = daemon.register(&agent, 1);
    let kind = Kind::Channel {
        conversation_id: "t\"hread 1".into(),
        connector: "ingest".into(),
        user: "Ann <a@b>".into(),
        redelivery: 1,
        read: false,
        trigger: "mention".into(),
    };
    let envelope = render(&message("dlv_001122334455", kind, "é中😀"));
    connection.deliver("dlv_001122334455", &envelope);
    assert_eq!(connection.answer(), acked("dlv_001122334455"));
    assert_eq!(std::fs::read_to_string(home.path("got")).unwrap(), envelope);
    let expected = [
        "TRANSIT_CONNECTOR=ingest",
        "TRANSIT_CONVERSATION_ID=t\"hread 1",
        "TRANSIT_FROM=ingest",
        "TRANSIT_ID=dlv_001122334455",
        "TRANSIT_KIND=channel",
        "TRANSIT_REDELIVERY=1",
        "TRANSIT_TRIGGER=mention",
        "TRANSIT_TS=2026-01-02T03:04:05.000Z",
        "TRANSIT_USER=Ann <a@b>",
    ];
    let found = std::fs::read_to_string(home.path("env")).unwrap();
    let found: Vec<_> = found.lines().filter(|line| !line.starts_with("TRANSIT_FROM=")).collect();
    assert_eq!(
        found,
        expected.into_iter().filter(|line| !line.starts_with("TRANSIT_FROM=")).collect::<Vec<_>>()
    );
    let room = Kind::Room { room: "ops".into(), seq: 7, operator: false };
    let envelope =
        Envelope { reply_to: Some("tx_000000000001".into()), ..message("tx_000000000002", room, "x") };
    connection.deliver("tx_000000000002", render(&envelope));
    assert_eq!(connection.answer(), acked("tx_000000000002"));
    let found = std::fs::read_to_string(home.path("env")).unwrap();
    for line in
        ["TRANSIT_ROOM=ops", "TRANSIT_SEQ=7", "TRANSIT_REPLY_TO=tx_000000000001", "TRANSIT_FROM=jess@titan"]
    {
        assert!(found.lines().any(|found| found == line), "{line} in {found}");
    }
    assert!(!found.contains("TRANSIT_CONNECTOR"));
}

#[test]
fn an_envelope_larger_than_a_pipe_reaches_a_command_that_does_not_read() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let agent = run(&home, &[], &["true"]);
    let mut connection = daemon.register(&agent, 1);
    connection.deliver("tx_000000000001", "x".repeat(300_000));
    assert_eq!(connection.answer(), acked("tx_000000000001"));
}

#[test]
fn the_end_of_command_is_the_answer() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let agent = run(&home, &[], &["sh", "-c", "eval \"$(cat)\""]);
    let mut connection = daemon.register(&agent, 1);
    for (n, (script, code, retryable)) in [
        ("exit 75", "command_try_later", true),
        ("exit 126", "command_not_started", true),
        ("exit 127", "command_not_started", true),
        ("kill -9 $$", "command_killed", true),
        ("exit 1", "command_refused", false),
        ("exit 255", "command_refused", false),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("tx_00000000000{n}");
        connection.deliver(&id, script);
        assert_eq!(connection.answer(), refused(&id, code, retryable), "{script}");
        while !agent.error().contains(&id) {}
    }
    connection.deliver("tx_00000000000a", "exit 0");
    assert_eq!(connection.answer(), acked("tx_00000000000a"));
}

#[test]
fn a_command_that_is_not_there_is_tried_again_once_it_is() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let agent = run(&home, &[], &["./later"]);
    let mut connection = daemon.register(&agent, 1);
    connection.deliver("tx_000000000001", "one");
    assert_eq!(connection.answer(), refused("tx_000000000001", "command_not_started", true));
    let script = home.file("later", "#!/bin/sh\ncat >got\n");
    std::fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    connection.deliver("tx_000000000001", "one");
    assert_eq!(connection.answer(), acked("tx_000000000001"));
    assert_eq!(std::fs::read_to_string(home.path("got")).unwrap(), "one");
}

#[test]
fn a_command_over_its_time_is_ended_with_all_that_it_started() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    // The pipe `up` is closed only when both processes are gone.
    let agent = run(&home, &["--timeout", "1s"], &["sh", "-c", "sleep 600 & echo up; sleep 600"]);
    let mut connection = daemon.register(&agent, 1);
    connection.deliver("tx_000000000001", "one");
    assert_eq!(connection.next(), Event::Status("working".into()), "a sign of life");
    assert_eq!(agent.line(), "up");
    assert_eq!(connection.answer(), refused("tx_000000000001", "command_timeout", true));
}

#[test]
fn one_at_a_time_unless_told_and_the_same_one_never_twice() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let script = "echo $TRANSIT_ID; read go <gate; echo done $TRANSIT_ID";
    rustix::fs::mkfifoat(rustix::fs::CWD, home.path("gate"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let open_gate = || std::fs::write(home.path("gate"), "go\n").unwrap();
    let agent = run(&home, &[], &["sh", "-c", script]);
    let mut connection = daemon.register(&agent, 1);
    connection.deliver("tx_000000000001", "one");
    assert_eq!(agent.line(), "tx_000000000001");
    connection.deliver("tx_000000000002", "two");
    open_gate();
    assert_eq!(connection.answer(), acked("tx_000000000001"));
    assert_eq!(agent.line(), "done tx_000000000001");
    assert_eq!(agent.line(), "tx_000000000002");
    // The daemon gives it up, or loses the connection, and delivers it again: it joins the one at work.
    drop(connection);
    let mut connection = daemon.register(&agent, 2);
    connection.deliver("tx_000000000002", "two");
    open_gate();
    assert_eq!(connection.answer(), acked("tx_000000000002"));
    assert_eq!(agent.line(), "done tx_000000000002");
    // Its answer was lost: it is given again.
    connection.deliver("tx_000000000002", "two");
    assert_eq!(connection.answer(), acked("tx_000000000002"));
    drop(agent);

    let agent = run(&home, &["--jobs", "2"], &["sh", "-c", script]);
    let mut connection = daemon.register(&agent, 3);
    connection.deliver("tx_000000000003", "three");
    connection.deliver("tx_000000000004", "four");
    let mut both = [agent.line(), agent.line()];
    both.sort();
    assert_eq!(both, ["tx_000000000003", "tx_000000000004"]);
}

#[test]
fn an_answer_found_while_nobody_listens_is_given_to_the_next_connection() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    rustix::fs::mkfifoat(rustix::fs::CWD, home.path("gate"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let agent = run(&home, &[], &["sh", "-c", "echo up; read go <gate"]);
    let mut connection = daemon.register(&agent, 1);
    connection.deliver("tx_000000000001", "one");
    assert_eq!(agent.line(), "up");
    drop(connection);
    while !agent.error().contains("trying again") {}
    std::fs::write(home.path("gate"), "go\n").unwrap();
    let mut connection = daemon.register(&agent, 2);
    assert_eq!(connection.answer(), acked("tx_000000000001"));
}

#[test]
fn a_signal_ends_it_in_order() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut agent = run(&home, &[], &["sh", "-c", "echo up; read never <gate"]);
    rustix::fs::mkfifoat(rustix::fs::CWD, home.path("gate"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let mut connection = daemon.register(&agent, 1);
    connection.deliver("tx_000000000001", "one");
    connection.deliver("tx_000000000002", "two");
    assert_eq!(agent.line(), "up");
    connection.ping();
    agent.signal(Signal::TERM);
    assert_eq!(connection.answer(), refused("tx_000000000002", "agent_stopped", true));
    assert_eq!(connection.answer(), refused("tx_000000000001", "agent_stopped", true));
    assert!(agent.wait().success());
}

#[test]
fn listen_prints_and_is_answered_line_by_line() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut agent = listen(&home, &[]);
    let mut connection = daemon.register(&agent, 4);
    let line = |agent: &Background| serde_json::from_str::<Value>(&agent.line()).unwrap();
    let registered = json!({"t": "registered", "agent": "bob", "address": "bob@titan", "generation": 4});
    assert_eq!(line(&agent), registered, "and no capability");
    for (id, envelope) in [("tx_000000000001", "a\n\"é\u{1F600}\""), ("tx_000000000002", "two")] {
        connection.deliver(id, envelope);
        assert_eq!(line(&agent), json!({"t": "deliver", "id": id, "envelope": envelope}));
    }
    agent.write("{\"t\":\"status\",\"status\":\"busy\"}\n{\"t\":\"deliver_nak\",\"id\":\"tx_000000000002\"");
    assert_eq!(connection.next(), Event::Status("busy".into()));
    agent.write(",\"code\":\"no\",\"retryable\":false}\n");
    assert_eq!(connection.answer(), refused("tx_000000000002", "no", false));
    agent.write("garbage\n\n{\"t\":\"deliver_ack\"}\n\u{e9}");
    agent.write([0xff, b'\n']);
    for (n, why) in [(3, "JSON object"), (5, "id"), (6, "UTF-8")] {
        let error = agent.error();
        assert!(error.contains(&format!("line {n} ")) && error.contains(why), "{error}");
    }
    agent.write("{\"t\":\"deliver_ack\",\"id\":\"tx_000000000001\"}");
    agent.close_stdin();
    assert_eq!(connection.answer(), acked("tx_000000000001"), "the last line needs no newline");
    connection.deliver("tx_000000000003", "three");
    assert_eq!(line(&agent)["id"], "tx_000000000003", "after the end of stdin it goes on");
}

#[test]
fn listen_acks_by_itself_only_when_told_and_ends_with_its_reader() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let agent = listen(&home, &["--auto-ack"]);
    let mut connection = daemon.register(&agent, 1);
    connection.deliver("tx_000000000001", "one");
    assert_eq!(connection.answer(), acked("tx_000000000001"));
    assert_eq!([agent.line(), agent.line()].map(|line| line.contains("tx_000000000001")), [false, true]);

    let mut command = home.foreign("sh");
    command.args(["-c", "{ transit-agent listen --name bob; echo $? >status; } | head -n 1"]);
    let mut shell = Background::start(&mut command);
    let (stream, _) = daemon.listener.accept().unwrap();
    let mut first = String::new();
    BufReader::new(&stream).read_line(&mut first).unwrap();
    assert!(first.contains("\"register\""));
    let frame = json!({"t": "registered", "agent": "bob", "address": "bob@titan", "generation": 1, "capability": CAPABILITY});
    (&stream).write_all(format!("{frame}\n").as_bytes()).unwrap();
    assert!(shell.line().contains("registered"));
    assert!(shell.wait().success());
    assert_eq!(std::fs::read_to_string(home.path("status")).unwrap(), "0\n", "quietly");
}

#[test]
fn a_refused_registration_ends_with_one_line_and_its_code() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    for (code, exit) in
        [("name_taken", 77), ("pid_not_visible", 77), ("unsupported_proto", 76), ("invalid_session", 78)]
    {
        let mut agent = listen(&home, &[]);
        let (mut connection, _) = daemon.accept(&agent);
        connection.machine.refuse(code, "because \u{1b}[31m");
        connection.drain();
        assert_eq!(agent.error(), format!("transit-agent: register bob: because \\u{{1b}}[31m ({code})"));
        assert_eq!(agent.wait().code(), Some(exit), "{code}");
    }
    let mut agent = listen(&home, &[]);
    let (mut connection, _) = daemon.accept(&agent);
    connection.machine.refuse("name_persistence_failed", "no space is left");
    connection.drain();
    assert!(agent.error().contains("trying again"));
    daemon.register(&agent, 1);
    assert!(agent.line().contains("registered"));
    agent.signal(Signal::INT);
    assert_eq!(agent.wait().into_raw(), 0);
}

#[test]
fn a_session_that_another_process_has_taken_over_is_not_taken_back() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut agent = run(&home, &[], &["true"]);
    let mut connection = daemon.register(&agent, 1);
    connection.machine.refuse("replaced", "another process has taken the session over");
    connection.drain();
    while !agent.error().contains("(replaced)") {}
    assert_eq!(agent.wait().code(), Some(77));
}

#[test]
fn it_waits_for_a_daemon_that_is_not_there_yet_and_says_so_once() {
    let home = Home::new();
    let agent = listen(&home, &[]);
    assert!(agent.error().contains("no daemon listens"));
    let daemon = Daemon::start(&home);
    daemon.register(&agent, 1);
    assert!(agent.line().contains("registered"));
}

#[test]
fn names_are_checked_before_anybody_is_asked() {
    let home = Home::new();
    for options in [["--name", "Bob"], ["--name", "operator"], ["--name", "bob\u{e9}"]] {
        let ran = home.run("transit-agent", ["listen"].into_iter().chain(options), b"");
        assert_eq!(ran.status.code(), Some(65), "{options:?}: {}", text(&ran.stderr));
        assert!(ran.stdout.is_empty());
    }
    let ran = home.run("transit-agent", ["run", "--name", "bob"], b"");
    assert_eq!(ran.status.code(), Some(2), "no COMMAND");
}

/// One call of `transit.sock` that is answered with `answer`; what was asked comes back.
fn asked(home: &Home, args: &[&str], input: &[u8], answer: &str) -> (Value, std::process::Output) {
    let _ = std::fs::remove_file(home.data().join("transit.sock"));
    std::fs::create_dir_all(home.data()).unwrap();
    let listener = UnixListener::bind(home.data().join("transit.sock")).unwrap();
    std::thread::scope(|scope| {
        let daemon = scope.spawn(move || {
            let stream = listener.accept().unwrap().0;
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
            serde_json::from_str(&line).unwrap()
        });
        let ran = home.run("transit-agent", ["call"].iter().chain(args), input);
        (daemon.join().unwrap(), ran)
    })
}

#[test]
fn call_asks_one_tool_and_prints_what_it_says() {
    let home = Home::new();
    let full = "<transit_full id=\\\"dlv_1\\\">\\nhi\\n</transit_full>";
    let answer = format!("{{\"ok\":true,\"result\":\"{full}\"}}\n");
    let (call, ran) = asked(&home, &["read_message", r#"{"id":"dlv_1"}"#], b"", &answer);
    assert_eq!(call, json!({"op": "rpc", "method": "read_message", "params": {"id": "dlv_1"}}));
    assert_eq!(text(&ran.stdout), "<transit_full id=\"dlv_1\">\nhi\n</transit_full>\n");
    let (call, ran) = asked(
        &home,
        &["chat_reply", "-", "--as", "bob"],
        b"{\"message\":\"\xc3\xa9\"}",
        "{\"ok\":true,\"result\":{\"status\":\"handled\"}}\n",
    );
    assert_eq!((&call["params"]["message"], &call["as_agent"]), (&json!("é"), &json!("bob")));
    assert_eq!(text(&ran.stdout), "{\"status\":\"handled\"}\n");
    let (call, ran) =
        asked(&home, &["whoami"], b"", "{\"ok\":true,\"address\":\"bob@titan\",\"connected\":false}\n");
    assert_eq!(call, json!({"op": "whoami"}));
    assert_eq!(text(&ran.stdout), "{\"address\":\"bob@titan\",\"connected\":false}\n");
    let (_, ran) = asked(&home, &["x", "--json"], b"", "{\"ok\":true,\"result\":\"a\\nb\"}\n");
    assert_eq!(text(&ran.stdout), "\"a\\nb\"\n");
}

#[test]
fn a_call_that_fails_says_why_and_prints_nothing() {
    let home = Home::new();
    let ran = home.run("transit-agent", ["call", "whoami"], b"");
    assert_eq!(ran.status.code(), Some(69));
    assert!(text(&ran.stderr).contains("transitd run"));
    let ran = home.run("transit-agent", ["call", "read_message", "[1]"], b"");
    assert_eq!(ran.status.code(), Some(65));
    for (answer, exit) in [
        ("{\"ok\":false,\"code\":\"already_handled\",\"error\":\"it is settled\"}\n", 1),
        ("{\"ok\":false,\"code\":\"not_owner\",\"error\":\"delivery owner mismatch\"}\n", 77),
        ("{\"ok\":false,\"code\":\"rpc_failed\",\"error\":\"not connected\"}\n", 69),
        ("{\"ok\":false,\"code\":\"too_many\",\"error\":\"wait\"}\n", 75),
        ("what?\n", 76),
        ("{\"ok\":tr", 69),
        ("", 69),
    ] {
        let (_, ran) = asked(&home, &["mark_handled", r#"{"delivery_id":"dlv_1"}"#], b"", answer);
        assert_eq!(ran.status.code(), Some(exit), "{answer}");
        assert!(ran.stdout.is_empty());
        let said = text(&ran.stderr);
        assert_eq!(said.lines().count(), 1, "{said}");
        if let Some(code) = answer.split('"').nth(5).filter(|code| code.contains('_')) {
            assert!(said.starts_with("transit-agent: mark_handled: ") && said.contains(code), "{said}");
        }
    }
}
