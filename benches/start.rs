//! `cargo bench --bench start`: how long the small commands take to start, beside `true`, and how large they are.
//!
//! What is measured is what is shipped: `scripts/dist` comes first.

#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{peer, shipped, verdict_at_most};

/// Turns, in each of which every program is started [`STARTS`] times, so that what else the machine does meets all.
const TURNS: usize = 15;
const STARTS: u32 = 60;
/// Size of a small command, in MB.
const LARGEST: f64 = 3.0;
/// Start of a small command, beside `true`.
const SLOWEST: f64 = 2.0;
/// Commands of section 1 that are no small ones: they hold a connection, and start once.
const NOT_SMALL: [&str; 2] = ["transit-agent", "transit-mcp"];

/// What starting a program once takes.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

fn main() {
    let truth = peer("true", "TRUE", "coreutils");
    let tools = transit::cli::tools();
    let names = tools.iter().filter(|tool| tool.page.section == "1").map(|tool| tool.command.get_name());
    let names: Vec<&str> = names.filter(|name| !NOT_SMALL.contains(name)).collect();
    let programs: Vec<PathBuf> =
        std::iter::once(truth).chain(names.iter().map(|name| shipped(name))).collect();
    for program in &programs {
        // So that the first turn finds them all in memory.
        start(program, STARTS);
    }
    let mut turns = vec![Vec::new(); programs.len()];
    for _ in 0..TURNS {
        for (program, costs) in programs.iter().zip(&mut turns) {
            costs.push(start(program, STARTS));
        }
    }
    let costs: Vec<Cost> = turns.into_iter().map(median).collect();
    for (program, cost) in programs.iter().zip(&costs) {
        println!("{}: {:.3} ms, {:.3} ms of CPU", program.display(), millis(cost.wall), millis(cost.cpu));
    }
    for (name, program) in names.iter().zip(&programs[1..]) {
        let bytes = fs::metadata(program).expect("a program").len();
        verdict_at_most(&format!("{name}, size in MB"), bytes as f64 / 1e6, LARGEST);
    }
    for (name, cost) in names.iter().zip(&costs[1..]) {
        let (wall, cpu) = (ratio(cost.wall, costs[0].wall), ratio(cost.cpu, costs[0].cpu));
        verdict_at_most(&format!("{name} --version, CPU beside true"), cpu, SLOWEST);
        verdict_at_most(&format!("{name} --version, time beside true"), wall, SLOWEST);
    }
}

/// Starts a program many times, one after the other, and tells what one start takes.
fn start(program: &Path, times: u32) -> Cost {
    let (begin, before) = (Instant::now(), cpu_of_children());
    for _ in 0..times {
        let mut command = Command::new(program);
        let status = command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).status();
        assert!(status.expect("a program").success(), "{} --version fails", program.display());
    }
    Cost { wall: begin.elapsed() / times, cpu: (cpu_of_children() - before) / times }
}

/// User and system time of all children that have ended. The kernel counts nanoseconds and tells hundredths of a
/// second, which is why many starts are measured at once.
fn cpu_of_children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("/proc is there");
    let fields = stat.rsplit(')').next().expect("a line").split_ascii_whitespace();
    let ticks: u64 = fields.skip(13).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

/// By CPU and by time, each for itself.
fn median(mut costs: Vec<Cost>) -> Cost {
    let middle = costs.len() / 2;
    costs.sort_by_key(|cost| cost.wall);
    let wall = costs[middle].wall;
    costs.sort_by_key(|cost| cost.cpu);
    Cost { wall, cpu: costs[middle].cpu }
}

fn ratio(ours: Duration, theirs: Duration) -> f64 {
    ours.as_secs_f64() / theirs.as_secs_f64()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
