//! Every system call on the stores fails once, and the process dies at each of them once.
//!
//! strace kills the program at the n-th call on one of the store's files, or makes that call fail with EIO or ENOSPC.
//! Whatever happens, success is told only for a row that is there, and the next run finds a store in order.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use transit::store::spool::Spool;

use crate::rig::{SECRET, signed_event};
use crate::support::{Background, Home, LONG, programs, text};

/// The calls that change a file, or make it durable.
const CALLS: [&str; 5] = ["pwrite64", "fsync", "fdatasync", "ftruncate", "openat"];
const FAULTS: [&str; 3] = ["signal=KILL", "error=EIO", "error=ENOSPC"];

/// How often `run` makes `call` on one of `files`.
fn count(home: &Home, files: &[PathBuf], call: &str, run: impl Fn(&mut Command)) -> usize {
    let log = home.path("strace.log");
    let mut command = strace(files, &format!("trace={call}"), &log);
    run(&mut command);
    fs::read_to_string(&log).unwrap().lines().filter(|line| line.contains(&format!("{call}("))).count()
}

fn strace(files: &[PathBuf], expression: &str, log: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(log).arg("-e").arg(expression);
    for file in files {
        command.arg("-P").arg(file);
    }
    command
}

fn inject(home: &Home, files: &[PathBuf], call: &str, fault: &str, n: usize) -> Command {
    strace(files, &format!("inject={call}:{fault}:when={n}"), &home.path("strace.log"))
}

/// The files of a SQLite database and what stands beside it.
fn store(database: &Path) -> Vec<PathBuf> {
    let beside = |suffix: &str| PathBuf::from(format!("{}{suffix}", database.display()));
    vec![database.to_owned(), beside("-wal"), beside("-shm"), beside("-journal")]
}

#[test]
fn transit_send_never_tells_success_without_the_row() {
    let home = Home::new();
    home.file("secret", SECRET);
    let files = store(&home.data().join("spool.db"));
    let mut points = 0;
    for fresh in [true, false] {
        for call in CALLS {
            prepare(&home, fresh);
            let calls =
                count(&home, &files, call, |strace| assert!(send(&home, strace, "count").status.success()));
            for (fault, n) in FAULTS.iter().flat_map(|fault| (1..=calls).map(move |n| (fault, n))) {
                prepare(&home, fresh);
                let before = if fresh { 0 } else { pending(&home) };
                let out = send(&home, &mut inject(&home, &files, call, fault, n), "event");
                let point = format!("{call} {n} {fault} fresh={fresh}: {out:?}");
                judge(&out, fault, &point);
                let after = pending(&home);
                assert!(after - before <= 1, "{point}");
                assert!(!out.status.success() || after == before + 1, "success without the row: {point}");
                assert!(
                    send(&home, &mut Command::new("env"), "next").status.success(),
                    "the next run works: {point}"
                );
                assert_eq!(pending(&home), after + 1, "{point}");
                points += 1;
            }
        }
    }
    assert!(points > 40, "only {points} points: strace saw too little");
}

fn judge(out: &Output, fault: &str, point: &str) {
    if out.status.success() {
        return;
    }
    assert!(out.stdout.is_empty(), "nothing on stdout when it fails: {point}");
    if fault != "signal=KILL" {
        let code = out.status.code().unwrap();
        assert!([73, 74].contains(&code), "exit {code}: {point}");
        let words = text(&out.stderr);
        assert!(words.starts_with("transit-send: ") && words.lines().count() <= 2, "{point}");
    }
}

/// An empty data directory, or one whose spool already holds an entry.
fn prepare(home: &Home, fresh: bool) {
    let _ = fs::remove_dir_all(home.data());
    if !fresh {
        assert!(send(home, &mut Command::new("env"), "first").status.success());
    }
}

/// Spools an event under `wrapper`.
fn send(home: &Home, wrapper: &mut Command, key: &str) -> Output {
    let secret = home.path("secret");
    let plain = home.command("transit-send");
    wrapper.env_clear().envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?)))).current_dir(home.path(""));
    wrapper.arg(programs().join("transit-send"));
    wrapper.args([
        "http://127.0.0.1:9/ingest/ci",
        "--spool-only",
        "--conversation",
        "c",
        "--event-key",
        key,
        "-m",
        "hello",
    ]);
    wrapper.arg("--secret-file").arg(secret).output().expect("strace is installed")
}

fn pending(home: &Home) -> u64 {
    Spool::open(&home.data()).unwrap().outbox().counts().unwrap().pending
}

#[test]
fn the_worker_never_answers_202_without_the_row() {
    let home = Home::new();
    let secret = home.file("secret", SECRET);
    let template = home.path("template");
    fs::create_dir(&template).unwrap();
    let database = format!("sqlite:{}", template.join("w.db").display());
    let create = [
        "source",
        "create",
        "ci",
        "--target",
        "bob@demo",
        "--database",
        &database,
        "--secret-file",
        secret.to_str().unwrap(),
    ];
    assert!(home.run("transit-worker", create, b"").status.success());

    let dir = home.path("live");
    let files = store(&dir.join("w.db"));
    let mut points = 0;
    for call in ["pwrite64", "fsync", "fdatasync"] {
        restore(&template, &dir);
        let calls = count(&home, &files, call, |strace| {
            assert_eq!(post_under(&home, strace, &dir), Some(202));
        });
        for (fault, n) in FAULTS.iter().flat_map(|fault| (1..=calls).map(move |n| (fault, n))) {
            restore(&template, &dir);
            let told = post_under(&home, &mut inject(&home, &files, call, fault, n), &dir);
            let again = post_under(&home, &mut Command::new("env"), &dir);
            let point = format!("{call} {n} {fault}: first {told:?}, then {again:?}");
            assert!(matches!(told, None | Some(202 | 500 | 503)), "{point}");
            let expected: &[Option<u16>] =
                if told == Some(202) { &[Some(200)] } else { &[Some(200), Some(202)] };
            assert!(expected.contains(&again), "{point}");
            points += 1;
        }
    }
    assert!(points > 5, "only {points} points: strace saw too little");
}

fn restore(template: &Path, dir: &Path) {
    let _ = fs::remove_dir_all(dir);
    fs::create_dir(dir).unwrap();
    for entry in fs::read_dir(template).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
    }
}

/// Starts a Worker under `wrapper`, posts one event, and kills it. `None` when there was no whole answer.
fn post_under(home: &Home, wrapper: &mut Command, dir: &Path) -> Option<u16> {
    let ready = dir.join("ready");
    let _ = fs::remove_file(&ready);
    let plain = home.command("transit-worker");
    wrapper.env_clear().envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?)))).current_dir(dir);
    wrapper.arg(programs().join("transit-worker"));
    wrapper
        .args(["serve", "--listen", "127.0.0.1:0", "--database"])
        .arg(format!("sqlite:{}", dir.join("w.db").display()));
    let mut worker = Background::start(wrapper.arg("--ready-file").arg(&ready));
    let ready: Value = worker.ready_or_end(&ready)?;
    let status = post(ready["listen"].as_str().unwrap());
    let pid = Pid::from_raw(i32::try_from(ready["pid"].as_u64().unwrap()).unwrap()).unwrap();
    // It may have been killed already; then there is nothing to do.
    let _ = kill_process(pid, Signal::KILL);
    worker.wait();
    status
}

fn post(to: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(&signed_event("ci", SECRET, "the-one", "hello")).ok()?;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()
}

#[test]
fn a_full_disk_is_told_and_nothing_accepted_is_lost() {
    assert!(rustix::process::geteuid().is_root(), "this test mounts a small file system: run it as root");
    let home = Home::new();
    home.file("secret", SECRET);
    fs::create_dir(home.data()).unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2m", "none"])
        .arg(home.data())
        .status()
        .unwrap();
    assert!(mount.success());
    let mut kept = 0;
    let body = home.file("body", "b".repeat(60_000));
    let full = loop {
        let out = home.run(
            "transit-send",
            [
                "http://127.0.0.1:9/ingest/ci",
                "--spool-only",
                "--conversation",
                "c",
                "--secret-file",
                home.path("secret").to_str().unwrap(),
                body.to_str().unwrap(),
            ],
            b"",
        );
        if !out.status.success() {
            break out;
        }
        kept += 1;
        assert!(kept < 200, "the disk never fills");
    };
    let found = pending(&home);
    let unmount = Command::new("umount").arg("-l").arg(home.data()).status().unwrap();
    assert!(unmount.success());
    assert!(matches!(full.status.code(), Some(73 | 74)), "{full:?}");
    assert!(full.stdout.is_empty() && text(&full.stderr).lines().count() <= 2, "{full:?}");
    assert_eq!(found, kept, "all that was accepted is there");
}
