//! `transit-agent run`: what COMMAND gets, and what its end means.

use std::os::unix::process::{CommandExt, ExitStatusExt};

use rustix::process::Signal;
use transit::proto::envelope::{Envelope, Kind, render};
use transit::store::process::{Process, start_time};

use super::{Daemon, Event, acked, message, refused, run};
use crate::support::{Background, Home, eventually, text};

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
    let script = home.file("later", "#!/bin/sh\ncat >got\n");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let agent = run(&home, &[], &["./later"]);
    let mut connection = daemon.register(&agent, 1);
    std::fs::rename(&script, home.path("elsewhere")).unwrap();
    connection.deliver("tx_000000000001", "one");
    assert_eq!(connection.answer(), refused("tx_000000000001", "command_not_started", true));
    std::fs::rename(home.path("elsewhere"), &script).unwrap();
    connection.deliver("tx_000000000001", "one");
    assert_eq!(connection.answer(), acked("tx_000000000001"));
    assert_eq!(std::fs::read_to_string(home.path("got")).unwrap(), "one");
}

#[test]
fn nothing_registers_for_a_command_that_nobody_can_run() {
    let home = Home::new();
    home.file("plain", "#!/bin/sh\n");
    for (command, why) in [
        ("./nosuch", "No such file"),
        ("nosuch", "No such file"),
        ("./plain", "Permission denied"),
        ("./", "is a directory"),
    ] {
        let output = home.run("transit-agent", ["run", "--name", "bob", "--", command], b"");
        assert_eq!(output.status.code(), Some(2), "{command}");
        let said = text(&output.stderr);
        assert!(said.starts_with(&format!("transit-agent: run {command}: ")) && said.contains(why), "{said}");
        assert!(said.ends_with("chmod +x FILE\n"), "{said}");
    }
}

#[test]
fn a_command_over_its_time_is_ended_with_all_that_it_started() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    // The pipe `up` is closed only when both processes are gone.
    let agent = run(&home, &["--timeout", "5s"], &["sh", "-c", "sleep 600 & echo up; sleep 600"]);
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
}

fn gate(home: &Home, name: &str) {
    rustix::fs::mkfifoat(rustix::fs::CWD, home.path(name), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
}

/// A direct message.
fn from(id: &str, sender: &str) -> String {
    render(&Envelope { from: format!("{sender}@titan"), ..message(id, Kind::Dm, "x") })
}

#[test]
fn several_at_a_time_but_those_of_one_sender_in_their_order() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let [one, two, other] = ["tx_000000000001", "tx_000000000002", "tx_000000000003"];
    [one, two, other].into_iter().for_each(|id| gate(&home, id));
    let agent = run(&home, &["--jobs", "3"], &["sh", "-c", "echo $TRANSIT_ID; read go <$TRANSIT_ID"]);
    let mut connection = daemon.register(&agent, 1);
    for (id, sender) in [(one, "amy"), (two, "amy"), (other, "zoe")] {
        connection.deliver(id, from(id, sender));
    }
    let mut begun = [agent.line(), agent.line()];
    begun.sort();
    assert_eq!(begun, [one, other], "at once");
    std::fs::write(home.path(other), "go\n").unwrap();
    assert_eq!(connection.answer(), acked(other));
    assert!(agent.pending_lines().is_empty(), "its turn has not come");
    std::fs::write(home.path(one), "go\n").unwrap();
    assert_eq!(connection.answer(), acked(one));
    assert_eq!(agent.line(), two);
    std::fs::write(home.path(two), "go\n").unwrap();
    assert_eq!(connection.answer(), acked(two));
}

#[test]
fn a_command_of_minutes_is_run_once() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    gate(&home, "gate");
    let agent = run(&home, &[], &["sh", "-c", "echo $TRANSIT_ID; read go <gate"]);
    let mut connection = daemon.register(&agent, 1);
    connection.deliver("tx_000000000001", "one");
    assert_eq!(agent.line(), "tx_000000000001");
    // The daemon hears a sign of life each time that it asks, and so gives nothing up for ten minutes.
    (0..40).for_each(|_| connection.ping());
    std::fs::write(home.path("gate"), "go\n").unwrap();
    assert_eq!(connection.answer(), acked("tx_000000000001"));
    assert!(agent.pending_lines().is_empty());
}

#[test]
fn a_command_that_does_not_listen_is_killed_with_all_that_it_started() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    for (n, script) in [
        "trap '' TERM; echo up; exec 3>held; while :; do sleep 600; done",
        // The first process ends, and leaves one that does not.
        "exec 3>held; (trap '' TERM; echo up; while :; do sleep 600; done) & sleep 600",
    ]
    .into_iter()
    .enumerate()
    {
        gate(&home, "held");
        let agent = run(&home, &["--timeout", "5s"], &["sh", "-c", script]);
        let mut connection = daemon.register(&agent, n as u64 + 1);
        connection.deliver("tx_000000000001", script);
        // Ends when nobody has it open for writing any more.
        assert_eq!(std::fs::read(home.path("held")).unwrap(), b"");
        assert_eq!(connection.answer(), refused("tx_000000000001", "command_timeout", true));
        std::fs::remove_file(home.path("held")).unwrap();
    }
}

#[test]
fn a_command_ends_with_its_agent_however_that_ends() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let script = "sh -c 'trap \"\" TERM HUP; echo $$; sleep 600' & echo $$; sleep 600";
    let mut agent = run(&home, &[], &["sh", "-c", script]);
    let mut connection = daemon.register(&agent, 1);
    connection.deliver("tx_000000000001", "one");
    let pids = [agent.line(), agent.line()].map(|pid| pid.parse::<u32>().unwrap());
    let processes = pids.map(|pid| Process { pid, start_time: start_time(pid).unwrap() });
    agent.signal(Signal::KILL);
    agent.wait();
    for process in processes {
        eventually(|| (!process.is_alive()).then_some(()));
    }
}

#[test]
fn a_command_whose_agent_is_gone_before_it_is_not_begun() {
    let home = Home::new();
    let keep = |parent: u32, command: &[&str]| {
        let mut warden = home.command("transit-agent");
        warden.arg0("transit-agent-warden").arg(parent.to_string()).args(command);
        warden.process_group(0).output().unwrap()
    };
    // Its parent is this test.
    let own = std::process::id();
    let out = keep(own + 1, &["touch", "begun"]);
    assert!(!out.status.success() && !home.path("begun").exists());
    let out = keep(own, &["sh", "-c", "touch begun; exit 7"]);
    assert_eq!(out.status.code(), Some(7));
    assert!(home.path("begun").exists());
    for (script, signal) in [("kill -9 $$", 9), ("kill -15 $$", 15), ("kill -11 $$", 11)] {
        let out = keep(own, &["sh", "-c", script]);
        assert_eq!(out.status.signal(), Some(signal), "it ends as the command does");
    }
}

#[test]
fn a_message_that_comes_back_later_takes_those_behind_it_along() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    rustix::fs::mkfifoat(rustix::fs::CWD, home.path("gate"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let agent = run(&home, &[], &["sh", "-c", "echo $TRANSIT_ID; read exit <gate; exit $exit"]);
    let mut connection = daemon.register(&agent, 1);
    for (id, sender) in [("tx_000000000001", "amy"), ("tx_000000000002", "amy"), ("tx_000000000003", "zoe")] {
        connection.deliver(id, from(id, sender));
    }
    assert_eq!(agent.line(), "tx_000000000001");
    connection.ping();
    std::fs::write(home.path("gate"), "75\n").unwrap();
    assert_eq!(connection.answer(), refused("tx_000000000001", "command_try_later", true));
    assert_eq!(connection.answer(), refused("tx_000000000002", "behind_another", true), "it was not begun");
    assert_eq!(agent.line(), "tx_000000000003", "another sender's is worked on");
    std::fs::write(home.path("gate"), "1\n").unwrap();
    assert_eq!(connection.answer(), refused("tx_000000000003", "command_refused", false));
    // One that the daemon had sent on its way before it knew.
    connection.deliver("tx_000000000004", from("tx_000000000004", "amy"));
    assert_eq!(connection.answer(), refused("tx_000000000004", "behind_another", true));
    for n in [1, 2, 4] {
        let id = format!("tx_00000000000{n}");
        connection.deliver(&id, from(&id, "amy"));
        assert_eq!(agent.line(), id, "they come again in their order");
        std::fs::write(home.path("gate"), "0\n").unwrap();
        assert_eq!(connection.answer(), acked(&id));
    }
}
