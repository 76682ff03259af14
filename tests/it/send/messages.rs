//! Messages, as the daemon is asked to take them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::process::Output;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{PROGRAM, code, home, reports};
use crate::support::{Background, Home, eventually, text};

/// A daemon that answers one call after the other as it is told.
struct Daemon(UnixListener);

impl Daemon {
    fn start(home: &Home) -> Self {
        std::fs::create_dir_all(home.data()).unwrap();
        Self(UnixListener::bind(home.data().join("transit.sock")).unwrap())
    }

    /// Gives these answers while `run` runs; answers the calls beside what came out.
    fn with<T>(&self, answers: &[&str], run: impl FnOnce() -> T) -> (T, Vec<Value>) {
        std::thread::scope(|scope| {
            let daemon = scope.spawn(|| answers.iter().map(|answer| self.answer(answer)).collect());
            let ran = run();
            (ran, daemon.join().unwrap())
        })
    }

    fn answer(&self, answer: &str) -> Value {
        self.answer_after(answer, || {})
    }

    /// Answers once this is done, while the command waits.
    fn answer_after(&self, answer: &str, done: impl FnOnce()) -> Value {
        let (mut stream, _) = self.0.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        done();
        // A command that has heard enough is gone by now.
        let _ = stream.write_all(answer.as_bytes());
        serde_json::from_str(&line).unwrap()
    }
}

#[test]
fn a_message_goes_to_the_daemon() {
    let home = home();
    let output = home.run(PROGRAM, ["jess@titan", "-m", "hi"], b"");
    assert_eq!((code(&output), text(&output.stdout)), (69, ""));
    assert!(text(&output.stderr).contains("no daemon listens"), "{}", text(&output.stderr));
    let daemon = Daemon::start(&home);
    let ask = |args: &[&str], answer: &'static str| {
        let (output, mut calls) = daemon.with(&[answer], || home.run(PROGRAM, args, b"from stdin\n"));
        (output, calls.remove(0))
    };
    let (output, call) = ask(
        &["jess@titan", "--as", "bob", "--reply-to", "tx_00112233445f", "--json"],
        "{\"ok\":true,\"id\":\"tx_1\",\"state\":\"committed\"}\n",
    );
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert_eq!(
        call,
        json!({"op": "send", "to": "jess@titan", "body": "from stdin\n", "reply_to": "tx_00112233445f", "as_agent": "bob"})
    );
    let report = &reports(&output)[0];
    assert_eq!(
        (&report["id"], &report["kind"], &report["outcome"]),
        (&json!("tx_1"), &json!("message"), &json!("committed"))
    );
    for (answer, exit) in [
        ("{\"ok\":false,\"code\":\"no_route\",\"error\":\"nobody\"}\n", 67),
        ("{\"ok\":false,\"code\":\"not_member\",\"error\":\"no\"}\n", 77),
        ("{\"ok\":false,\"code\":\"body_too_large\",\"error\":\"no\"}\n", 65),
        ("{\"ok\":false,\"code\":\"reserved_name\",\"error\":\"no\"}\n", 65),
        ("{\"ok\":false,\"code\":\"invalid_caller\",\"error\":\"no\"}\n", 77),
        ("{\"ok\":false,\"code\":\"rate_limited\",\"error\":\"no\"}\n", 75),
        ("{\"ok\":false,\"code\":\"spool_full\",\"error\":\"no\"}\n", 75),
        ("{\"ok\":false,\"code\":\"disk_full\",\"error\":\"no\"}\n", 73),
        ("{\"ok\":false,\"code\":\"store_error\",\"error\":\"no\"}\n", 74),
        ("{\"ok\":false,\"code\":\"not_enrolled\",\"error\":\"no\"}\n", 78),
        ("{\"ok\":true,\"id\":\"tx_1\",\"state\":\"read\"}\n", 76),
        ("{\"ok\":true}\n", 76),
        ("nonsense\n", 76),
        ("", 69),
    ] {
        let (output, _) = ask(&["#ops", "-m", "hi"], answer);
        assert_eq!((code(&output), text(&output.stdout)), (exit, ""), "{answer}");
    }
    for (args, exit) in [
        (&["jess@titan", "-m", "hi", "--conversation", "c"][..], 2),
        (&["jess@titan", "-m", ""], 65),
        (&["jess@titan", "-m", "hi", "--as", "Nope"], 65),
        (&["jess@titan", "-m", "hi", "--reply-to", "the last one"], 65),
        (&["jess@titan", "-m", &"x".repeat(65_537)], 65),
        (&["Jess@titan", "-m", "hi"], 65),
        (&["operator@titan", "-m", "hi"], 65),
        (&["#Ops", "-m", "hi"], 65),
        (&["jess@titan", "-m", "hi", "--wait", "read"], 2),
        (&["jess@titan", "-m", "hi", "--wait", "injected=soon"], 2),
        (&["jess@titan", "-m", "hi", "--wait", "injected", "--dry-run"], 2),
        (&["jess@titan", "-m", "hi", "--lines"], 2),
        (&["jess@titan", "-m", "hi", "--no-spool"], 2),
        (&["-m", "hi"], 2),
    ] {
        assert_eq!(code(&home.run(PROGRAM, args, b"")), exit, "{args:?}");
    }
}

const SPOOLED: &str = "{\"ok\":true,\"id\":\"tx_1\",\"state\":\"spooled\"}\n";

/// The answer to a look, with these further fields.
fn told(state: &str, more: &str) -> String {
    format!(
        "{{\"ok\":true,\"id\":\"tx_1\",\"dest\":\"jess@titan\",\"state\":\"{state}\",\"attempts\":1{more}}}\n"
    )
}

fn outcome(output: &Output) -> (i32, Value) {
    (code(output), reports(output)[0]["outcome"].clone())
}

#[test]
fn a_message_is_waited_for_until_it_is_where_it_should_be() {
    let usual = ["jess@titan", "-m", "hi", "--json", "--wait"];
    let wait = |goal: &'static str, answers: &[&str]| {
        // Each has a daemon of its own: a sender that has heard enough may have asked once more.
        let home = home();
        let daemon = Daemon::start(&home);
        daemon.with(answers, || home.run(PROGRAM, usual.iter().chain(&[goal]), b""))
    };
    let (injected, committed) = (told("injected", ""), told("committed", ""));
    let (output, calls) = wait("injected=30s", &[SPOOLED, &told("spooled", ""), &committed, &injected]);
    assert_eq!((outcome(&output), text(&output.stderr)), ((0, json!("injected")), ""));
    assert_eq!(calls[0]["wait_ms"], 30_000, "the daemon does not wait for longer either");
    assert_eq!(calls[1], json!({"op": "message_status", "id": "tx_1"}));
    let (output, _) = wait("settled", &["{\"ok\":true,\"id\":\"tx_1\",\"state\":\"injected\"}\n"]);
    assert_eq!(outcome(&output), (0, json!("injected")), "nobody has to be asked");

    let dead = told("dead", ",\"error\":\"no\\u001b[2Jthanks\"");
    let (output, _) = wait("settled=30s", &[SPOOLED, &dead]);
    assert_eq!(outcome(&output), (1, json!("dead")));
    assert!(
        text(&output.stderr).contains("is settled: it is dead: no\\u{1b}[2Jthanks"),
        "{}",
        text(&output.stderr)
    );

    let lost = told(
        "committed",
        ",\"recipients\":[{\"agent\":\"a@b\",\"state\":\"dead\"},{\"agent\":\"c@d\",\"state\":\"queued\"}]",
    );
    let (output, _) = wait("injected=30s", &[SPOOLED, &lost]);
    assert_eq!(outcome(&output), (1, json!("committed")), "not all of them will ever have it");

    let (output, _) = wait("injected=0s", &[SPOOLED]);
    assert_eq!(outcome(&output), (75, json!("spooled")));
    let said = text(&output.stderr);
    assert!(said.contains("wait until tx_1 is injected: not within 0 s: it is in the spool"), "{said}");
    assert!(said.contains("ask later: transit-send --status tx_1"), "{said}");

    let (output, _) = wait("injected=30s", &[SPOOLED, "nonsense\n"]);
    assert_eq!(outcome(&output), (76, json!("spooled")));
    let (output, _) = wait("injected=30s", &[SPOOLED, "", &injected]);
    assert_eq!(outcome(&output), (0, json!("injected")), "a daemon that is gone for a while is waited for");
    let (output, _) =
        wait("injected=30s", &["{\"ok\":false,\"code\":\"no_route\",\"error\":\"no\",\"id\":\"tx_1\"}\n"]);
    assert_eq!((code(&output), text(&output.stdout)), (67, ""));
    assert!(text(&output.stderr).contains("kept as dead: transit-send --status tx_1"));
}

#[test]
fn an_interrupted_wait_says_where_the_message_is() {
    for signal in [Signal::INT, Signal::TERM] {
        let home = home();
        let daemon = Daemon::start(&home);
        let mut command = home.command(PROGRAM);
        let mut sender =
            Background::start(command.args(["jess@titan", "-m", "hi", "--wait", "injected=30s"]));
        // It looks once it waits, and by then it hears signals.
        daemon.with(&[SPOOLED, &told("committed", "")], || {});
        sender.signal(signal);
        assert_eq!(sender.wait().code(), Some(75));
        assert!(sender.line().contains("tx_1 jess@titan"));
        let said = sender.error();
        assert!(said.contains("wait until tx_1 is injected: interrupted: it is"), "{said}");
    }
}

#[test]
fn a_command_that_is_stopped_and_goes_on_hears_the_answer() {
    let home = home();
    let daemon = Daemon::start(&home);
    let mut sender = Background::start(home.command(PROGRAM).args(["jess@titan", "-m", "hi"]));
    let until = |state| {
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", sender.pid())).unwrap();
        eventually(|| stat().contains(&format!(") {state} ")).then_some(()));
    };
    daemon.answer_after("{\"ok\":true,\"id\":\"tx_1\",\"state\":\"committed\"}\n", || {
        until('S');
        sender.signal(Signal::STOP);
        until('T');
        sender.signal(Signal::CONT);
    });
    assert!(sender.wait().success(), "{}", sender.error());
}

#[test]
fn a_status_is_as_good_as_who_can_be_asked() {
    use transit::clock::{Clock, SystemClock};
    use transit::store::spool::Spool;
    use transit::store::spool::outbox::{EntryKind, NewEntry};
    let home = home();
    let (id, now) = ("tx_00000000000a", SystemClock::new().wall());
    let mut spool = Spool::open(&home.data()).unwrap();
    let entry = NewEntry {
        id,
        kind: EntryKind::Message,
        dest: "jess@hermes",
        from: Some("bob@titan"),
        reply_to: None,
        event_key: None,
        body: b"hi",
        secret: None,
    };
    spool.outbox().add(&entry, now).unwrap();
    let look = |id: &str| home.run(PROGRAM, ["--status", id, "--json"], b"");
    let output = look(id);
    assert_eq!(outcome(&output), (0, json!("spooled")));
    assert!(text(&output.stderr).contains("only the spool was asked"), "{}", text(&output.stderr));
    spool.outbox().sent(id, "committed", now).unwrap();
    assert_eq!(outcome(&look(id)), (0, json!("committed")));
    assert_eq!(code(&look("tx_00000000000b")), 1);
    let daemon = Daemon::start(&home);
    let answer = format!(
        "{{\"ok\":true,\"id\":\"{id}\",\"dest\":\"jess@hermes\",\"state\":\"injected\",\"attempts\":1}}\n"
    );
    let (output, _) = daemon.with(&[&answer], || look(id));
    assert_eq!((outcome(&output), text(&output.stderr)), ((0, json!("injected")), ""));
    let answer = answer.replace("injected\"", "committed\",\"unknown\":\"not connected\"");
    let (output, _) = daemon.with(&[&answer], || look(id));
    assert_eq!(outcome(&output), (0, json!("committed")));
    assert!(text(&output.stderr).contains("nothing more is known"), "{}", text(&output.stderr));
    for (answer, exit) in [
        ("{\"ok\":false,\"code\":\"not_found\",\"error\":\"no\"}\n", 1),
        ("{\"ok\":false,\"code\":\"store_error\",\"error\":\"no\"}\n", 74),
        ("{\"ok\":true}\n", 76),
    ] {
        let (output, _) = daemon.with(&[answer], || look(id));
        assert_eq!((code(&output), text(&output.stdout)), (exit, ""), "{answer}");
    }
}

#[test]
fn an_event_is_not_waited_for() {
    let home = home();
    let usual =
        ["http://127.0.0.1:1/ingest/ci", "--secret-file", "secret", "--conversation", "c", "-m", "hi"];
    let output = home.run(PROGRAM, usual.iter().chain(&["--wait", "settled"]), b"");
    assert_eq!((code(&output), text(&output.stdout)), (2, ""));
    assert!(text(&output.stderr).contains("--wait goes with a message"), "{}", text(&output.stderr));
    assert!(!home.data().exists());
    let kept = home.run(PROGRAM, usual.iter().chain(&["--spool-only", "--json"]), b"");
    let id = reports(&kept)[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(code(&home.run(PROGRAM, ["--status", &id, "--wait", "injected"], b"")), 2);
}
