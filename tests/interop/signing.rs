//! transit-sign says what openssl and Python say.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::{Home, text};

const PYTHON: &str = r"
import hashlib, hmac, sys
key, data = sys.argv[1].encode(), sys.stdin.buffer.read()
for payload in data.split(b'\0')[:-1]:
    print('v1=' + hmac.new(key, sys.argv[2].encode() + b'.' + payload, hashlib.sha256).hexdigest())
";

/// Payloads of every shape: empty, newlines, bytes that are no text; never a NUL, which ends each.
fn payloads(count: usize) -> Vec<Vec<u8>> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    (0..count)
        .map(|n| {
            let length = usize::try_from(random() % 300).unwrap() * usize::from(n % 50 != 0);
            (0..length).map(|_| u8::try_from(random() % 255 + 1).unwrap()).collect()
        })
        .collect()
}

#[test]
fn ten_thousand_payloads_sign_as_python_signs_them() {
    let home = Home::new();
    let secret = "kéy with blanks";
    let file = home.file("secret", secret);
    let input: Vec<u8> = payloads(10_000)
        .into_iter()
        .flat_map(|mut p| {
            p.push(0);
            p
        })
        .collect();
    let args = [
        "--secret-file",
        file.to_str().unwrap(),
        "--timestamp",
        "1767225600",
        "--output",
        "signature",
        "--null",
    ];
    let ours = home.run("transit-sign", args, &input);
    assert!(ours.status.success());
    let mut python = Command::new("python3")
        .args(["-I", "-c", PYTHON, secret, "1767225600"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed");
    let mut stdin = python.stdin.take().unwrap();
    let theirs = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(&input).unwrap());
        python.wait_with_output().unwrap()
    });
    assert_eq!(ours.stdout.iter().filter(|&&b| b == b'\n').count(), 10_000);
    assert!(ours.stdout == theirs.stdout, "transit-sign and Python differ");
}

#[test]
fn openssl_makes_the_same_signature() {
    let home = Home::new();
    let secret = home.file("secret", "openssl-secret");
    for (n, payload) in payloads(60).into_iter().enumerate() {
        let file = home.file("payload", &payload);
        let signed = home.file("signed", [b"1767225600.", payload.as_slice()].concat());
        let ours = home.run(
            "transit-sign",
            [
                "--secret-file",
                secret.to_str().unwrap(),
                "--timestamp",
                "1767225600",
                "--output",
                "signature",
                file.to_str().unwrap(),
            ],
            b"",
        );
        let theirs = Command::new("openssl")
            .args(["dgst", "-sha256", "-hmac", "openssl-secret", "-r"])
            .arg(&signed)
            .output()
            .expect("openssl is installed");
        let theirs = text(&theirs.stdout).split(' ').next().unwrap();
        assert_eq!(text(&ours.stdout).trim_end(), format!("v1={theirs}"), "payload {n}");
    }
}
