//! The manners of a service under systemd: what it is told, sockets that it has opened, and the unit itself.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::json;

use super::world::{Adapter, Worker, ask, enrolled, outcome, status_until};
use crate::support::{Background, Home, LONG, eventually, text};

/// A daemon that a service manager listens to, and the next word that it says.
fn managed(home: &Home, more: &[(&str, &str)]) -> (Background, impl Fn() -> String) {
    let socket = home.path("notify");
    let told = UnixDatagram::bind(&socket).unwrap();
    told.set_read_timeout(Some(LONG)).unwrap();
    let mut command = home.command("transitd");
    command.arg("run").env("NOTIFY_SOCKET", &socket).envs(more.iter().copied());
    let next = move || {
        let mut bytes = [0; 500];
        let length = told.recv(&mut bytes).unwrap();
        text(&bytes[..length]).trim().to_owned()
    };
    (Background::start(&mut command), next)
}

fn until(next: &impl Fn() -> String, wanted: &str) {
    eventually(|| next().starts_with(wanted).then_some(()));
}

#[test]
fn systemd_is_told_when_it_serves_how_it_is_and_that_it_lives() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let (mut daemon, next) = managed(&home, &[("WATCHDOG_USEC", "40000")]);
    // It may be connected before it serves all else.
    let mut awaited = vec!["READY=1".to_owned(), format!("STATUS=connected to http://{}", worker.at)];
    eventually(|| {
        let said = next();
        awaited.retain(|word| !said.starts_with(word));
        awaited.is_empty().then_some(())
    });
    for _ in 0..5 {
        until(&next, "WATCHDOG=1");
    }
    ask(&home, &json!({ "op": "pause", "paused": true }));
    until(&next, "STATUS=paused, connected");
    daemon.signal(Signal::HUP);
    let said = eventually(|| Some(next()).filter(|said| said.contains("RELOADING=1")));
    assert!(said.contains("MONOTONIC_USEC="), "{said}");
    until(&next, "READY=1");
    until(&next, "WATCHDOG=1");
    daemon.signal(Signal::TERM);
    until(&next, "STOPPING=1");
    assert!(daemon.wait().success());
}

#[test]
fn without_a_watchdog_it_is_quiet() {
    let home = Home::new();
    let (mut daemon, next) = managed(&home, &[]);
    until(&next, "READY=1");
    daemon.signal(Signal::TERM);
    let mut said = Vec::new();
    eventually(|| {
        said.push(next());
        (said.last().unwrap() == "STOPPING=1").then_some(())
    });
    assert!(said.iter().all(|word| word.starts_with("STATUS=") || word == "STOPPING=1"), "{said:?}");
    assert!(daemon.wait().success());
}

/// A daemon that is given its sockets; its stdin and its stdout are them.
fn passed(home: &Home, names: &str, sockets: [&UnixListener; 2]) -> std::process::Command {
    let mut shell = home.foreign("sh");
    let script = "exec 3<&0 4<&1 </dev/null >/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=$NAMES \
                  exec transitd run --ready-file ready.json";
    let [one, two] = sockets.map(|socket| Stdio::from(OwnedFd::from(socket.try_clone().unwrap())));
    shell.args(["-c", script]).env("NAMES", names).stdin(one).stdout(two).stderr(Stdio::piped());
    shell
}

#[test]
fn sockets_that_systemd_has_opened_are_used_and_left_open() {
    let home = Home::new();
    std::fs::create_dir(home.data()).unwrap();
    std::fs::set_permissions(home.data(), PermissionsExt::from_mode(0o700)).unwrap();
    let bind = |name: &str| UnixListener::bind(home.data().join(name)).unwrap();
    let (transit, agent) = (bind("transit.sock"), bind("agent.sock"));
    // The names may be those of the sockets, or of their unit, and in any order.
    for (names, order) in [
        ("transit.sock:agent.sock", [&transit, &agent]),
        ("transitd.socket:transitd.socket", [&agent, &transit]),
        ("", [&agent, &transit]),
    ] {
        let mut daemon = passed(&home, names, order).spawn().unwrap();
        let status = status_until(&home, |_| true);
        assert_eq!(status["pid"], daemon.id());
        let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
        // The kernel says who has opened the socket, which must not be who is stopped.
        let (code, _, err) = outcome(home.command("transitd").arg("stop"));
        assert_eq!(code, 0, "{err}");
        assert!(daemon.wait().unwrap().success());
        assert!(home.data().join("agent.sock").exists(), "the next one serves who comes meanwhile");
    }
}

#[test]
fn sockets_that_commands_would_not_find_are_refused() {
    let home = Home::new();
    std::fs::create_dir(home.data()).unwrap();
    let bind = |name: &str| UnixListener::bind(home.path(name)).unwrap();
    let (transit, agent) = (bind("transit.sock"), bind("data/agent.sock"));
    let ran = passed(&home, "", [&transit, &agent]).output().unwrap();
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(78), "{said}");
    assert!(said.contains("commands look at") && said.contains("data/transit.sock"), "{said}");
    let script = "exec 3</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec transitd run";
    let ran = home.foreign("sh").args(["-c", script]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(ran.status.code(), Some(78));
    assert!(text(&ran.stderr).contains("LISTEN_FDS"), "{}", text(&ran.stderr));
}

#[test]
fn the_units_of_the_daemon_start_what_there_is_and_forbid_what_nobody_needs() {
    let home = Home::new();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    let ours = format!("{}/", crate::support::programs().display());
    let mut files = Vec::new();
    for name in ["transitd.service", "transitd.socket"] {
        let unit = std::fs::read_to_string(folder.join(name)).unwrap();
        files.push(home.file(name, unit.replace("/usr/local/bin/", &ours)));
    }
    let service = std::fs::read_to_string(folder.join("transitd.service")).unwrap();
    for name in ["ExecStart=/usr/local/bin/", "ExecReload=/usr/local/bin/"] {
        let line = service.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let mut words = line.split(' ');
        let ran = home.command(words.next().unwrap()).args(words).arg("--help").output().unwrap();
        assert!(ran.status.success(), "{line}: {}", text(&ran.stderr));
    }
    for wanted in ["Type=notify", "WatchdogSec=30s", "NoNewPrivileges=yes", "RestartPreventExitStatus=2 78"] {
        assert!(service.lines().any(|line| line == wanted), "{wanted}");
    }
    // The sockets are those that the daemon looks for where nothing else is said.
    let socket = std::fs::read_to_string(folder.join("transitd.socket")).unwrap();
    let listens: Vec<&str> =
        socket.lines().filter_map(|line| line.strip_prefix("ListenStream=%h/")).collect();
    assert_eq!(listens, [".local/share/transit/transit.sock", ".local/share/transit/agent.sock"]);
    // A directory of its own: systemd wants one that belongs to the user.
    let runtime = home.path("run");
    std::fs::create_dir(&runtime).unwrap();
    let mut analyze = home.foreign("systemd-analyze");
    analyze.args(["--user", "verify", "--man=no"]).args(&files).env("XDG_RUNTIME_DIR", &runtime);
    match analyze.output() {
        Err(_) => crate::support::left_out("what needs systemd-analyze, which is not installed"),
        Ok(checked) => {
            let said = text(&checked.stderr);
            assert!(checked.status.success() && said.is_empty(), "{said}");
        }
    }
}
