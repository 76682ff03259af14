//! The session that `run` and `listen` have alike: its registration, its end, and its coming back.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use super::{Daemon, Event, acked, listen, refused, run};
use crate::support::{Home, text};

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
    let agent = run(&home, &[], &["curl", "http://u:pw@h/"]);
    assert_eq!(daemon.accept(&agent).1.title, "curl http://[redacted]@h/", "everybody may read a title");
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
fn what_a_session_does_is_said_with_its_registration_and_made_up_for_after_it() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut agent = listen(&home, &[]);
    let (connection, register) = daemon.accept(&agent);
    assert_eq!(register.status, "idle");
    // Said before the registration is answered.
    agent.write("{\"t\":\"status\",\"status\":\"blocked\"}\nnonsense\n");
    while !agent.error().contains("line 2") {}
    let mut connection = connection.registered(register, 1);
    assert_eq!(connection.next(), Event::Status("blocked".into()));
    agent.write("{\"t\":\"status\",\"status\":\"working\"}\n");
    assert_eq!(connection.next(), Event::Status("working".into()));
    drop(connection);
    assert_eq!(daemon.accept(&agent).1.status, "working", "not what it was at first");
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
    for jobs in ["0", "17", "x", "-1"] {
        let ran = home.run("transit-agent", ["run", "--name", "bob", "--jobs", jobs, "--", "true"], b"");
        assert_eq!(ran.status.code(), Some(2), "{jobs}: {}", text(&ran.stderr));
    }
}
