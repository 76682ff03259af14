//! `cargo bench --bench sign`: transit-sign beside `openssl dgst` and a Python loop.
//!
//! Needs openssl, python3 and hyperfine (which measures the CPU time of whole processes).

#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::{peer, verdict, verdict_at_most, work_dir};

const SIGN: &str = env!("CARGO_BIN_EXE_transit-sign");
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
    let sign = format!("{SIGN} --secret-file {secret} --timestamp 1767225600 --output signature");

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

    let bytes = 512 << 20;
    fs::write(at("large"), vec![0x7b; bytes]).expect("a large payload");
    // openssl speed counts seconds of CPU, not of the wall; so do we, with all that reading the file costs.
    let ours = bytes as f64 / 1e6 / cpu(format!("{sign} {}", shown(&at("large"))), 5);
    let theirs = openssl_speed(&openssl);
    println!(
        "large bodies: transit-sign {ours:.0} MB/s with reading the file, openssl speed {theirs:.0} MB/s in memory"
    );

    verdict_at_most("one payload, CPU beside openssl dgst", single / openssl_single, 0.5);
    verdict_at_most("10,000 payloads, CPU beside a Python loop", batch / python_batch, 0.25);
    verdict("large bodies, throughput beside openssl speed", ours / theirs, 0.9);
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

/// `openssl speed` prints thousands of bytes a second in its last column.
fn openssl_speed(openssl: &Path) -> f64 {
    let run = Command::new(openssl)
        .args(["speed", "-mr", "-seconds", "2", "-bytes", "65536", "-hmac", "sha256"])
        .output()
        .expect("openssl runs");
    let text = String::from_utf8_lossy(&run.stdout);
    let last = text.lines().rev().find(|line| line.starts_with("+F:")).expect("a result of openssl speed");
    last.rsplit(':').next().and_then(|n| n.parse::<f64>().ok()).expect("bytes a second") / 1e6
}
