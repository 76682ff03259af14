//! `cargo bench --bench sign`: transit-sign beside `openssl dgst` and a Python loop.
//!
//! Needs openssl, python3 and hyperfine (which measures the CPU time of whole processes).

#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use transit::proto::ingest::Signer;
use transit::secret::Secret;

use support::{peer, shipped, verdict, verdict_at_most, work_dir};

/// Bytes of a large file.
const LARGE: usize = 512 << 20;
/// Bytes of a large body in memory.
const BODY: usize = 64 << 10;
const PYTHON_LOOP: &str = "import hmac,hashlib,sys\nk=open(sys.argv[1],'rb').read()\nw=sys.stdout.write\nfor l in open(sys.argv[2],'rb'):\n    w('v1='+hmac.new(k,b'1767225600.'+l[:-1],hashlib.sha256).hexdigest()+'\\n')\n";

fn main() {
    let openssl = peer("openssl", "OPENSSL", "openssl");
    let python = peer("python3", "PYTHON", "python3");
    let hyperfine = peer("hyperfine", "HYPERFINE", "hyperfine");
    let dir = work_dir();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("secret"), "bench-secret").expect("a secret file");
    fs::write(at("one"), vec![b'x'; 1024]).expect("a payload");
    fs::write(at("lines"), format!("{}\n", "y".repeat(1023)).repeat(10_000)).expect("payloads");
    fs::write(at("loop.py"), PYTHON_LOOP).expect("a script");
    private(&at("secret"));
    let (secret, one, lines) = (shown(&at("secret")), shown(&at("one")), shown(&at("lines")));
    let sign = shipped("transit-sign");
    let sign = sign.to_str().expect("a path of UTF-8");
    let sign = format!("{sign} --secret-file {secret} --timestamp 1767225600 --output signature");

    let cpu = |command: String, runs: u32| cpu_seconds(&hyperfine, &at("result.json"), &command, runs);
    let single = cpu(format!("{sign} {one}"), 60);
    let openssl_single = cpu(format!("{} dgst -sha256 -hmac bench-secret {one}", openssl.display()), 60);
    let batch = cpu(format!("{sign} --lines {lines}"), 60);
    let python_batch = cpu(format!("{} -I {} {secret} {lines}", python.display(), shown(&at("loop.py"))), 60);
    println!(
        "one payload of 1 KiB, CPU of the whole process: transit-sign {:.2} ms, openssl dgst {:.2} ms",
        single * 1e3,
        openssl_single * 1e3
    );
    println!(
        "10,000 payloads, CPU: transit-sign --lines {:.1} ms, Python {:.1} ms",
        batch * 1e3,
        python_batch * 1e3
    );

    fs::write(at("large"), vec![0x7b; LARGE]).expect("a large payload");
    let large = shown(&at("large"));
    let whole = cpu(format!("{sign} {large}"), 5);
    let openssl_whole = cpu(format!("{} dgst -sha256 -hmac bench-secret {large}", openssl.display()), 5);
    println!(
        "a file of {} MiB, CPU of the whole process: transit-sign {:.0} ms, openssl dgst {:.0} ms",
        LARGE >> 20,
        whole * 1e3,
        openssl_whole * 1e3
    );
    let (ours, theirs) = in_memory(&openssl);
    println!("bodies of 64 KiB in memory: our signer {ours:.0} MB/s, openssl speed {theirs:.0} MB/s");

    verdict_at_most("one payload, CPU beside openssl dgst", single / openssl_single, 0.5);
    verdict_at_most("10,000 payloads, CPU beside a Python loop", batch / python_batch, 0.25);
    verdict("large bodies, throughput in memory beside openssl speed", ours / theirs, 0.9);
    println!("a large file, CPU beside openssl dgst on the same file: {:.2} x", whole / openssl_whole);
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("0600");
}

/// Median user and system time of a command.
fn cpu_seconds(hyperfine: &Path, result: &Path, command: &str, runs: u32) -> f64 {
    let run = Command::new(hyperfine)
        .args(["-N", "--style=none", "--warmup=2", &format!("--runs={runs}"), "--export-json"])
        .arg(result)
        .arg(command)
        .output()
        .expect("hyperfine runs");
    assert!(run.status.success(), "{command}: {}", String::from_utf8_lossy(&run.stderr));
    let json: serde_json::Value = serde_json::from_slice(&fs::read(result).expect("a result")).expect("JSON");
    let of = |name: &str| json["results"][0][name].as_f64().expect("a time");
    of("user") + of("system")
}

/// Bytes of signed bodies a second of CPU, in MB: ours and openssl's, the best of three turns each.
///
/// `openssl speed` signs one buffer over and over and counts seconds of CPU. So do we: a process that reads a file pays
/// for copying it as well, which says nothing about signing (see the comparison of whole processes for that).
fn in_memory(openssl: &Path) -> (f64, f64) {
    (0..3).fold((0.0, 0.0), |(ours, theirs), _| {
        (f64::max(ours, our_speed()), f64::max(theirs, openssl_speed(openssl)))
    })
}

fn our_speed() -> f64 {
    let secret = Secret::new("bench-secret".to_owned()).expect("a secret");
    let signer = Signer::new(&secret);
    let body = vec![0x7b; BODY];
    let (begun, mut signed) = (cpu_now(), 0_u64);
    loop {
        for _ in 0..256 {
            black_box(signer.sign("1767225600", black_box(&body)));
        }
        signed += 256 * BODY as u64;
        let taken = cpu_now() - begun;
        if taken >= 2.0 {
            return signed as f64 / 1e6 / taken;
        }
    }
}

/// Seconds that this thread has been on a CPU.
fn cpu_now() -> f64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").expect("the scheduler's figures");
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect("nanoseconds") / 1e9
}

/// `openssl speed` prints thousands of bytes a second in its last column.
fn openssl_speed(openssl: &Path) -> f64 {
    let run = Command::new(openssl)
        .args(["speed", "-mr", "-seconds", "2", "-bytes", &BODY.to_string(), "-hmac", "sha256"])
        .output()
        .expect("openssl runs");
    let text = String::from_utf8_lossy(&run.stdout);
    let last = text.lines().rev().find(|line| line.starts_with("+F:")).expect("a result of openssl speed");
    last.rsplit(':').next().and_then(|n| n.parse::<f64>().ok()).expect("bytes a second") / 1e6
}
