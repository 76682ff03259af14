//! transit-sign says what openssl and Python say.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::support::{Home, Sink, text};

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

#[test]
fn the_curl_command_posts_the_file_whatever_it_is_called() {
    let home = Home::new();
    home.file("k", "s3cret");
    let names: [&[u8]; 9] = [
        b"plain.json",
        b"-o",
        b"@x;type=text",
        b"it's \"$HOME\" `id` !! {a,b} [1-9]",
        b"new\nline\n",
        "\u{202e}\u{9b}😀".as_bytes(),
        b"\x1b[2J\x07\r\x7f",
        b"latin1-\xe9",
        b"?a=b#c&d",
    ];
    let sink = Sink::start(&[202]);
    for name in names {
        let body = [b"{\"a\":\r\n\0\xff", name, b"\n"].concat();
        std::fs::write(home.path(".").join(OsStr::from_bytes(name)), &body).unwrap();
        let url = format!("http://{}/ingest/a?b=[1-2]{{c,d}}&e='", sink.at);
        let mut sign = home.command("transit-sign");
        sign.args(["--secret-file", "k", "--output", "curl", "--url", &url, "--"])
            .arg(OsStr::from_bytes(name));
        let line = sign.output().unwrap().stdout;
        let ran = home.foreign("sh").arg("-c").arg(OsStr::from_bytes(&line)).output().unwrap();
        assert!(ran.status.success(), "{}: {}", String::from_utf8_lossy(&line), text(&ran.stderr));
        let request = sink.next();
        assert_eq!(request.first, "POST /ingest/a?b=[1-2]{c,d}&e=' HTTP/1.1");
        assert_eq!(request.field("content-type"), Some("application/json"));
        assert!(request.body == body, "{}", String::from_utf8_lossy(&line));
        home.file("body", &request.body);
        let (stamp, signature) =
            (request.field("transit-timestamp").unwrap(), request.field("transit-signature").unwrap());
        let args = ["--secret-file", "k", "--verify", "--timestamp", stamp, "--signature", signature, "body"];
        assert!(home.run("transit-sign", args, b"").status.success());
    }
}
