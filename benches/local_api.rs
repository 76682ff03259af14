//! `cargo bench --bench local_api`: what the local client API costs, beside an echo over the same kind of socket, with
//! an fsync and without, and beside itself while nobody else is there.
//!
//! The echo is a process of its own, as the daemon is: a thread that reads a line and writes it back. The agent is a
//! shell that prints nothing, so that a message costs its audit, a process, and a reply. What is measured beside the echo
//! is measured on one processor: which one a process is woken on differs from start to start, and can cost more than
//! all the rest.

#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Running, micros, peer, percentile, shipped, verdict_at_most, work_dir};

/// Requests of one measurement, and how often it is made, in turns with its peer.
const REQUESTS: usize = 2_000;
const TURNS: usize = 7;
/// Messages whose answer is waited for.
const MESSAGES: usize = 120;
/// Bytes of a line of the audit.
const AUDIT_BYTES: usize = 300;
/// What the implementation that clients were written for has resident when idle, in MB.
const IDLE_MB: f64 = 12.9;
const STATUS: &str = "{\"id\":\"s\",\"method\":\"status.get\"}\n";

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("echo") {
        let at = arguments.next().expect("where the echo listens");
        return echo(Path::new(&at), arguments.next().as_ref().map(Path::new));
    }
    let all = format!("0-{}", std::thread::available_parallelism().map_or(0, |all| all.get() - 1));
    pin("0");
    let dir = work_dir();
    let home = dir.path().join("home");
    agent(&home, "quiet", "exit 0");
    agent(&home, "flood", "yes \"$(printf %0100d 7)\" | head -c 200000000");
    let echo_at = dir.path().join("echo.sock");
    let itself = std::env::current_exe().expect("this program");
    let _echo = Running::start(Command::new(&itself).arg("echo").arg(&echo_at));
    let keeper_at = dir.path().join("keeper.sock");
    let log = dir.path().join("log");
    let _keeper = Running::start(Command::new(&itself).arg("echo").arg(&keeper_at).arg(log));

    let daemon = daemon(dir.path(), &home, "quiet");
    let api = home.join("api.sock");
    idle(&daemon, &api);
    status(&api, &echo_at);
    message(&api, &keeper_at);
    drop(daemon);
    pin(&all);

    let _daemon = self::daemon(dir.path(), &home, "flood");
    beside_a_deaf_one(&api);
}

/// Keeps this process, and those that it starts from now on, on these processors.
fn pin(processors: &str) {
    let mut command = Command::new(peer("taskset", "TASKSET", "util-linux"));
    let command = command.args(["--cpu-list", "--pid", processors, &std::process::id().to_string()]);
    assert!(
        command.stdout(Stdio::null()).status().expect("taskset").success(),
        "not on processors {processors}"
    );
}

/// Says back every line, once a line of its own is on the disk if `log` is named.
fn echo(at: &Path, log: Option<&Path>) {
    let listener = UnixListener::bind(at).expect("a socket");
    for stream in listener.incoming() {
        let mut stream = stream.expect("a client");
        let log = log.map(Path::to_owned);
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
            let mut line = Vec::new();
            let mut log = log.map(|path| File::create(path).expect("a file"));
            while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                if let Some(log) = &mut log {
                    let kept = log.write_all(&[b'x'; AUDIT_BYTES]).and_then(|()| log.sync_data());
                    kept.expect("the disk takes it");
                }
                if stream.write_all(&line).is_err() {
                    return;
                }
                line.clear();
            }
        });
    }
}

fn agent(home: &Path, name: &str, script: &str) {
    let dir = home.join("agents").join(name);
    fs::create_dir_all(&dir).expect("a directory");
    let manifest = format!("[agent]\nname = \"{name}\"\n[run]\ncommand = \"sh\"\nargs = [\"./agent.sh\"]\n");
    fs::write(dir.join("agent.toml"), manifest).expect("a manifest");
    fs::write(dir.join("agent.sh"), script).expect("an agent");
}

/// A daemon that is not enrolled, with an API that asks nobody to slow down.
fn daemon(dir: &Path, home: &Path, dispatcher: &str) -> Running {
    fs::write(home.join("config.toml"), format!("[telegram]\ndispatcher_agent = \"{dispatcher}\"\n"))
        .expect("a configuration");
    let mut command = Command::new(shipped("transitd"));
    command.arg("run").env("HOME", dir).env("DOTAGENT_HOME", home).env("TRANSIT_API_RATE", "100000000");
    command.env("TRANSIT_CONFIG", dir.join("config.json")).env("TRANSIT_DATA_DIR", dir.join("data"));
    command.env("TRANSIT_LOG", "error");
    Running::start(&mut command)
}

/// Connects to a server that is still starting.
fn connect(at: &Path) -> BufReader<UnixStream> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match UnixStream::connect(at) {
            Ok(stream) => return BufReader::new(stream),
            Err(err) if Instant::now() > deadline => panic!("{}: {err}", at.display()),
            Err(_) => std::thread::yield_now(),
        }
    }
}

fn say(to: &mut BufReader<UnixStream>, line: &str) {
    to.get_mut().write_all(line.as_bytes()).expect("it is taken");
}

fn hear<'a>(from: &mut BufReader<UnixStream>, line: &'a mut String) -> &'a str {
    line.clear();
    assert!(from.read_line(line).expect("it answers") > 0, "the connection has ended");
    line
}

/// The times of so many requests, one after the other.
fn times(to: &mut BufReader<UnixStream>, count: usize) -> Vec<Duration> {
    let mut line = String::new();
    let mut once = || {
        let start = Instant::now();
        say(to, STATUS);
        hear(to, &mut line);
        start.elapsed()
    };
    (0..count).map(|_| once()).collect()
}

fn idle(daemon: &Running, api: &Path) {
    let mut client = connect(api);
    let mut line = String::new();
    say(&mut client, STATUS);
    assert!(hear(&mut client, &mut line).contains("\"gateway\":\"ok\""), "{line}");
    let resident = daemon.resident() as f64 / 1e6;
    println!("resident with the API: {resident:.1} MB");
    verdict_at_most("idle memory beside 12.9 MB", resident / IDLE_MB, 1.0);
}

fn status(api: &Path, echo: &Path) {
    let (mut ours, mut theirs) = (connect(api), connect(echo));
    times(&mut ours, 200);
    times(&mut theirs, 200);
    let mut turns: Vec<(f64, f64)> = (0..TURNS)
        .map(|_| {
            let p50 = |to: &mut _| micros(percentile(&mut times(to, REQUESTS), 50));
            (p50(&mut ours), p50(&mut theirs))
        })
        .collect();
    turns.sort_by(|one, other| (one.0 / one.1).total_cmp(&(other.0 / other.1)));
    let (ours, theirs) = turns[TURNS / 2];
    println!("status.get, warm connection: p50 {ours:.1} us; the echo: p50 {theirs:.1} us");
    verdict_at_most("status.get beside an echo", ours / theirs, 2.0);
}

fn message(api: &Path, keeper: &Path) {
    let (mut client, mut keeper) = (connect(api), connect(keeper));
    let (mut line, mut accepted, mut kept) = (String::new(), Vec::new(), Vec::new());
    for _ in 0..MESSAGES {
        let start = Instant::now();
        say(&mut keeper, STATUS);
        hear(&mut keeper, &mut line);
        kept.push(start.elapsed());
        let start = Instant::now();
        say(&mut client, "{\"id\":\"m\",\"method\":\"message.send\",\"params\":{\"text\":\"hi\"}}\n");
        assert!(hear(&mut client, &mut line).contains("\"accepted\":true"), "{line}");
        accepted.push(start.elapsed());
        while !hear(&mut client, &mut line).contains("\"event\":\"reply\"") {}
    }
    let (accepted, kept) = (micros(percentile(&mut accepted, 50)), micros(percentile(&mut kept, 50)));
    println!("message.send to accepted: p50 {accepted:.0} us; an echo after one fsync: p50 {kept:.0} us");
    verdict_at_most("message.send to accepted beside an echo after one fsync", accepted / kept, 1.25);
}

/// A client whose run has 200 MB to say, and that reads nothing of it.
fn beside_a_deaf_one(api: &Path) {
    let mut client = connect(api);
    times(&mut client, 200);
    let mut turns: Vec<(f64, f64)> = (0..3)
        .map(|_| {
            let p50 = |client: &mut _| micros(percentile(&mut times(client, REQUESTS), 50));
            let alone = p50(&mut client);
            let mut deaf = connect(api);
            say(&mut deaf, "{\"id\":1,\"method\":\"message.send\",\"params\":{\"session_id\":\"flood\",\"text\":\"x\"}}\n");
            let mut line = String::new();
            hear(&mut deaf, &mut line);
            let beside = p50(&mut client);
            until_cut_off(deaf);
            (alone, beside)
        })
        .collect();
    turns.sort_by(|one, other| (one.1 / one.0).total_cmp(&(other.1 / other.0)));
    let (alone, beside) = turns[1];
    println!("status.get: p50 alone {alone:.1} us, beside a client that does not read {beside:.1} us");
    verdict_at_most("latency beside a client that does not read", beside / alone, 2.0);
}

/// Waits until the daemon has given the client up, which nothing but time brings about.
fn until_cut_off(deaf: BufReader<UnixStream>) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let start = Instant::now();
    let mut fds = [PollFd::new(deaf.get_ref(), PollFlags::RDHUP)];
    let wait = Timespec { tv_sec: 30, tv_nsec: 0 };
    assert_eq!(poll(&mut fds, Some(&wait)).expect("poll"), 1, "it is cut off");
    println!("a client that does not read is cut off after {:.1} s", start.elapsed().as_secs_f64());
}
