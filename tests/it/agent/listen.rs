//! `transit-agent listen`: lines of JSON out and in.

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};

use super::{CAPABILITY, Daemon, Event, acked, listen, refused};
use crate::support::{Background, Home};

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
fn what_was_said_before_the_end_counts() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    for (n, end) in ["exec 4<&-", "kill $!"].into_iter().enumerate() {
        let script = format!(
            "mkfifo in out; transit-agent listen --name bob <in >out & exec 3>in 4<out; read registered <&4
             read deliver <&4; echo '{{\"t\":\"deliver_ack\",\"id\":\"tx_000000000001\"}}' >&3; {end}; wait $!; rm in out"
        );
        let mut shell = Background::start(home.foreign("sh").args(["-c", &script]));
        let mut connection = daemon.register_any(n as u64 + 1);
        connection.deliver("tx_000000000001", "one");
        assert_eq!(connection.answer(), acked("tx_000000000001"), "{end}");
        assert!(shell.wait().success(), "{end}");
    }
}
