//! `cargo bench --bench spool`: one spool, one process beside thirty-two that write to it at once.
//!
//! Every entry is 1 KiB and its own commit, on the disk before the next one. Beside it, in the same run: the disk's
//! own fsyncs. Needs nothing.

#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::{fsyncs_per_second, verdict, verdict_at_most, work_dir};
use transit::clock::{Clock, SystemClock};
use transit::id::IdKind;
use transit::store::spool::Spool;
use transit::store::spool::outbox::{Added, EntryKind, NewEntry};

const DIRECTORY: &str = "TRANSIT_BENCH_SPOOL";
const COUNT: &str = "TRANSIT_BENCH_COUNT";
const PROCESSES: usize = 32;
/// Entries of one run, fewer than may wait in a spool.
const ENTRIES: usize = 6_400;
const ROUNDS: usize = 3;

fn main() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return write(Path::new(&directory));
    }
    let dir = work_dir();
    let before = fsyncs_per_second(dir.path());
    let mut rounds: Vec<(Run, Run)> = (0..ROUNDS)
        .map(|round| {
            let run = |processes| measure(&dir.path().join(format!("{round}-{processes}")), processes);
            (run(1), run(PROCESSES))
        })
        .collect();
    let fsyncs = f64::midpoint(before, fsyncs_per_second(dir.path()));
    println!("1 KiB entries, each its own commit; the disk: {fsyncs:.0} fsyncs/s");
    for (one, many) in &rounds {
        println!(
            "1 process: {:.0}/s, longest wait {:.1} ms; {PROCESSES} processes: {:.0}/s, longest wait {:.1} ms",
            one.rate,
            one.longest.as_secs_f64() * 1e3,
            many.rate,
            many.longest.as_secs_f64() * 1e3
        );
    }
    rounds.sort_by(|(one, many), (other_one, other_many)| {
        (many.rate / one.rate).total_cmp(&(other_many.rate / other_one.rate))
    });
    let (one, many) = &rounds[ROUNDS / 2];
    let mut longest: Vec<Duration> = rounds.iter().map(|(_, many)| many.longest).collect();
    longest.sort_unstable();
    verdict("32 processes beside one (median round)", many.rate / one.rate, 0.7);
    verdict_at_most("longest wait, in ms (median round)", longest[ROUNDS / 2].as_secs_f64() * 1e3, 250.0);
}

struct Run {
    rate: f64,
    longest: Duration,
}

fn measure(dir: &Path, processes: usize) -> Run {
    drop(Spool::open(dir).expect("a spool"));
    let exe = std::env::current_exe().expect("our own file");
    let count = (ENTRIES / processes).to_string();
    let mut children: Vec<Child> = (0..processes)
        .map(|_| {
            let mut command = Command::new(&exe);
            command.env(DIRECTORY, dir).env(COUNT, &count).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().expect("a child starts")
        })
        .collect();
    for child in &mut children {
        let mut ready = [0];
        child.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("it is ready");
    }
    let start = Instant::now();
    // The end of its stdin is the sign to begin.
    children.iter_mut().for_each(|child| drop(child.stdin.take()));
    let mut longest = Duration::ZERO;
    for child in children {
        let output = child.wait_with_output().expect("a child ends");
        assert!(output.status.success(), "a child failed");
        let micros = String::from_utf8_lossy(&output.stdout).trim().parse().expect("its longest wait");
        longest = longest.max(Duration::from_micros(micros));
    }
    Run { rate: (ENTRIES / processes * processes) as f64 / start.elapsed().as_secs_f64(), longest }
}

/// Adds entries, and prints the longest time that one took, in microseconds.
fn write(dir: &Path) {
    let count: usize = std::env::var(COUNT).ok().and_then(|n| n.parse().ok()).expect("a count");
    let mut spool = Spool::open(dir).expect("the spool");
    println!();
    std::io::stdin().read_to_end(&mut Vec::new()).expect("a sign");
    let (body, clock) = (vec![b'x'; 1024], SystemClock::new());
    let mut longest = Duration::ZERO;
    for _ in 0..count {
        let (id, begun) = (IdKind::Event.fresh(), Instant::now());
        let entry = NewEntry {
            id: &id,
            kind: EntryKind::Event,
            dest: "http://127.0.0.1:9/ingest/ci",
            from: None,
            reply_to: None,
            event_key: Some(&id),
            body: &body,
            secret: None,
        };
        let added = spool.outbox().add(&entry, clock.wall()).expect("it is kept");
        assert_eq!(added, Added::New);
        longest = longest.max(begun.elapsed());
    }
    println!("{}", longest.as_micros());
}
