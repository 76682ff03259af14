//! Across pid namespaces: who cannot be seen is told why, and nobody acts on a pid that is another process's.

use std::process::Command;

use super::world::{Worker, enrolled, outcome, start, status_until};
use crate::support::{Background, Home, left_out};

/// What a program is run with to live in a pid namespace of its own.
const APART: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];

fn can_unshare() -> bool {
    let can = Command::new("unshare").args(APART).arg("true").output().is_ok_and(|ran| ran.status.success());
    if !can {
        left_out("no pid namespace can be made here (unshare --pid needs root)");
    }
    can
}

fn apart(home: &Home, words: &[&str]) -> Command {
    let mut command = home.foreign("unshare");
    command.args(APART).args(words);
    command
}

#[test]
fn a_daemon_in_a_container_tells_those_outside_what_to_do() {
    if !can_unshare() {
        return;
    }
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let ready = home.path("ready.json");
    let mut command = apart(&home, &["transitd", "run", "--ready-file", "ready.json"]);
    let mut daemon = Background::start(&mut command);
    assert_eq!(daemon.ready(&ready)["pid"], 1, "it is the first process of its namespace");
    status_until(&home, |status| status["connected"] == true);
    for words in [
        &["transit-agent", "listen", "--name", "bob"][..],
        &["transit-agent", "call", "--as", "bob", "whoami"],
        &["transit-send", "x@titan", "--as", "bob", "-m", "x"],
    ] {
        let (code, out, err) = outcome(home.foreign(words[0]).args(&words[1..]));
        assert_eq!((code, out.as_str()), (77, ""), "{words:?}: {err}");
        assert!(err.contains("another pid namespace") && err.contains("(pid_not_visible)"), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    // From outside, the kernel knows the daemon's process: it is that one, and not process 1, which is ended.
    let (code, _, err) = outcome(home.command("transitd").arg("stop"));
    assert_eq!(code, 0, "{err}");
    daemon.wait();
    assert_eq!(outcome(home.command("transitd").arg("status")).0, 69);
}

#[test]
fn a_daemon_outside_serves_agents_in_a_container_and_is_not_stopped_from_there() {
    if !can_unshare() {
        return;
    }
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let mut daemon = start(&home);
    let agent = Background::start(&mut apart(&home, &["transit-agent", "listen", "--name", "bob"]));
    assert!(agent.line().contains("\"registered\""));
    let (code, out, err) = outcome(&mut apart(&home, &["transitd", "stop"]));
    assert_eq!((code, out.as_str()), (77, ""), "{err}");
    assert!(err.contains("another pid namespace"), "{err}");
    status_until(&home, |status| status["agents"][0]["name"] == "bob");
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.wait().success());
}
