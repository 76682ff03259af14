//! What the benches share: the disk's own speed, peers that must be there, children that end with the bench.
//!
//! A figure means nothing without what it ran beside. Every bench measures its peers in the same run, prints the
//! ratio last, and fails loudly when a peer is missing.

#![allow(dead_code, clippy::print_stdout, missing_docs, unreachable_pub)] // each bench uses its own part, and talks

use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A directory on the disk that is measured, removed at the end.
pub fn work_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory in the target directory")
}

/// How often a second the disk takes one more KiB durably.
pub fn fsyncs_per_second(dir: &Path) -> f64 {
    let mut file = File::create(dir.join("fsync-probe")).expect("a file to probe the disk with");
    let block = [0x5a; 1024];
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < Duration::from_millis(1500) {
        file.write_all(&block).and_then(|()| file.sync_data()).expect("the disk takes a block");
        count += 1;
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

/// A program that the bench runs beside ours; `variable` names another path for it.
pub fn peer(program: &str, variable: &str, package: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        return path.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("{program} is missing: install {package}, or name it in {variable}"))
}

/// A program of ours as it is shipped, which `scripts/dist` has built.
pub fn shipped(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
    let program = target.join("shipped").join(name);
    assert!(program.is_file(), "{} is missing: scripts/dist makes it", program.display());
    program
}

/// A child process that is killed and reaped when the bench lets go of it.
pub struct Running(Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap_or_else(|err| panic!("{command:?} does not start: {err}")))
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// CPU time that it has used so far.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("a running child");
        let fields = stat.rsplit(')').next().expect("the fields behind the name").split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().expect("ticks")).sum();
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }
}

impl Running {
    /// Bytes of memory that it has in use.
    pub fn resident(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("a running child");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        1024 * line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that was free a moment ago, for peers that cannot choose one themselves.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port()
}

/// Connects to a server that is still starting.
pub fn connect(to: SocketAddr) -> TcpStream {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match TcpStream::connect(to) {
            Ok(stream) => {
                stream.set_nodelay(true).expect("TCP_NODELAY");
                return stream;
            }
            Err(err) if Instant::now() > deadline => panic!("{to} does not answer: {err}"),
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// The value below which `percent` of the sorted `values` lie.
pub fn percentile(values: &mut [Duration], percent: usize) -> Duration {
    values.sort_unstable();
    values[(values.len() * percent / 100).min(values.len() - 1)]
}

pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// One line of the result: what, the ratio, the budget, and whether it is met.
pub fn verdict(what: &str, ratio: f64, at_least: f64) {
    let word = if ratio >= at_least { "met" } else { "MISSED" };
    println!("{what}: {ratio:.2} (budget: at least {at_least}) {word}");
}

/// The same for a ratio that must not be exceeded.
pub fn verdict_at_most(what: &str, ratio: f64, at_most: f64) {
    let word = if ratio <= at_most { "met" } else { "MISSED" };
    println!("{what}: {ratio:.2} (budget: at most {at_most}) {word}");
}

/// Unix seconds, for signatures.
pub fn unix_seconds() -> i64 {
    use transit::clock::{Clock, SystemClock};
    SystemClock::new().wall().unix_seconds()
}

pub mod daemon;
pub mod server;
