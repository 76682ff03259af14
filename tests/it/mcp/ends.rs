//! How it ends: always with its client, and never for anything that the client says.

use std::io::Write;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::client::{Client, INITIALIZE, silent_daemon};
use crate::support::{Background, Home, eventually, text};

#[test]
fn it_ends_with_its_stdin_wherever_that_ends() {
    let home = Home::new();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami"}}"#;
    let conversation = format!("{INITIALIZE}\n{call}\n");
    for end in (0..=conversation.len()).step_by(11).chain([conversation.len()]) {
        let ran = home.run("transit-mcp", [""; 0], &conversation.as_bytes()[..end]);
        assert!(ran.status.success(), "after {end} bytes");
        assert!(ran.stderr.is_empty(), "{}", text(&ran.stderr));
        let lines: Vec<Value> =
            text(&ran.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let ids: Vec<&Value> = lines.iter().map(|line| &line["id"]).collect();
        match end {
            0 => assert!(ids.is_empty()),
            _ if end == conversation.len() => assert_eq!(ids, [&json!(0), &json!(1)]),
            _ => assert!(!ids.is_empty(), "the last line counts without its newline"),
        }
    }
}

#[test]
fn calls_under_way_do_not_hold_it_up() {
    let home = Home::new();
    let daemon = silent_daemon(&home);
    let mut client = Client::initialized(&home, &[], &[]);
    for id in 0..40 {
        let call =
            json!({"jsonrpc": "2.0", "id": id + 100, "method": "tools/call", "params": {"name": "whoami"}});
        client.raw(format!("{call}\n").as_bytes());
    }
    // The daemon has them, and would be waited for longer than this test waits for anything.
    let held: Vec<_> = (0..40).map(|_| daemon.recv().unwrap()).collect();
    client.end();
    drop(held);
}

#[test]
fn a_signal_ends_it_well() {
    let home = Home::new();
    for signal in [Signal::TERM, Signal::INT] {
        let mut client = Client::initialized(&home, &[], &[]);
        client.server().signal(signal);
        // Its stdin stays open until it has ended.
        eventually(|| client.server().has_ended().then_some(()));
        client.end();
    }
}

/// Runs a server whose stdout is read no further than its first line, and whose stdin stays open.
#[test]
fn a_client_that_reads_no_more_ends_it_quietly() {
    let home = Home::new();
    for says_more in [false, true] {
        let mut command = home.command("transit-mcp");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut stdin = server.stdin.take().unwrap();
        writeln!(stdin, "{INITIALIZE}").unwrap();
        let mut first = [0; 1];
        std::io::Read::read_exact(server.stdout.as_mut().unwrap(), &mut first).unwrap();
        drop(server.stdout.take());
        if says_more {
            // It may be gone by now.
            let _ = writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
        }
        let ran = server.wait_with_output().unwrap();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{}", text(&ran.stderr));
        drop(stdin);
    }
}

#[test]
fn a_stdout_that_fails_is_told() {
    let home = Home::new();
    let mut command = home.command("transit-mcp");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    command.stdin(Stdio::piped()).stdout(full).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut stdin = server.stdin.take().unwrap();
    writeln!(stdin, "{INITIALIZE}").unwrap();
    let ran = server.wait_with_output().unwrap();
    assert_eq!(ran.status.code(), Some(74));
    assert!(text(&ran.stderr).starts_with("transit-mcp: write the output: "), "{}", text(&ran.stderr));
}

/// The shell is killed; its server's stdin and stdout stay open, in this test.
#[test]
fn it_ends_with_the_process_that_has_started_it() {
    let home = Home::new();
    let mut shell = home.foreign("sh");
    // A shell gives what it starts in the background another stdin, unless it is told.
    let mut shell = Background::start(shell.args(["-c", "exec 3<&0; transit-mcp <&3 & echo $! >&2; wait"]));
    let server: u32 = shell.error().parse().unwrap();
    shell.write(format!("{INITIALIZE}\n"));
    assert!(shell.line().contains("protocolVersion"));
    shell.signal(Signal::KILL);
    eventually(|| (!is_running(server)).then_some(()));
}

/// Whether a process runs: one that has ended and was not waited for does not.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[test]
fn it_waits_without_working() {
    let home = Home::new();
    let mut client = Client::initialized(&home, &[], &[]);
    let switches = |pid: u32| {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let count = |path: std::path::PathBuf| {
            let status = std::fs::read_to_string(path.join("status")).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        threads.map(|thread| count(thread.unwrap().path())).sum::<u64>()
    };
    let pid = client.pid();
    // Until it has gone to sleep for good, and then for as long as another process takes to begin and end ten times.
    let (mut before, mut still) = (switches(pid), 0);
    eventually(|| {
        let now = switches(pid);
        still = if std::mem::replace(&mut before, now) == now { still + 1 } else { 0 };
        (still > 20).then_some(())
    });
    for _ in 0..10 {
        assert!(home.run("transit-mcp", ["--tools"], b"").status.success());
    }
    let woken = switches(pid) - before;
    assert!(woken <= 2, "it woke up {woken} times with nothing to do");
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    client.end();
}
