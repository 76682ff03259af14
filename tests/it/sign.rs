//! `transit-sign`: what it prints, what it refuses, and with which exit code.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use crate::support::{Background, Home, text};

const BODY: &[u8] = b"{\"a\":1}\n";
const RIGHT: &str = "v1=eac365a53cd85d00e88716246d8e08175abad40e8a30e95418816eabe90b0428";
const STAMP: &str = "1700000000";

/// A home with a secret in the file `k`.
fn home() -> Home {
    let home = Home::new();
    secret(&home, b"s3cret\n");
    home
}

fn secret(home: &Home, content: &[u8]) {
    let path = home.file("k", content);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Runs it with the secret of `k`.
fn sign(home: &Home, args: &[&str], input: &[u8]) -> Output {
    home.run("transit-sign", ["--secret-file", "k"].iter().chain(args), input)
}

/// The exit code, stdout and stderr.
fn told(output: &Output) -> (i32, &str, &str) {
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn prints(output: &Output, stdout: &str) {
    assert_eq!(told(output), (0, stdout, ""));
}

#[track_caller]
fn fails(output: &Output, exit: i32, stderr: &str) {
    assert_eq!(told(output), (exit, "", stderr));
}

#[test]
fn each_form_of_output() {
    let home = home();
    let headers = format!("Transit-Timestamp: {STAMP}\nTransit-Signature: {RIGHT}\n");
    prints(&sign(&home, &["--timestamp", STAMP], BODY), &headers);
    prints(&sign(&home, &["--timestamp", STAMP, "--output", "headers", "-"], BODY), &headers);
    prints(&sign(&home, &["--timestamp", STAMP, "--output", "signature"], BODY), &format!("{RIGHT}\n"));
    home.file("é.json", BODY);
    for json in [&["--json"][..], &["--output", "json"]] {
        prints(
            &sign(&home, &[json, &["--timestamp", STAMP, "é.json", "-"]].concat(), b""),
            &format!(
                "{{\"file\":\"é.json\",\"timestamp\":\"{STAMP}\",\"signature\":\"{RIGHT}\",\"bytes\":8}}\n\
                 {{\"file\":\"-\",\"timestamp\":\"{STAMP}\",\"signature\":\
                 \"v1=21948100f1d7a89f3338f6b1106fc4f7a702fbe1493b833a3382f80193bde3fe\",\"bytes\":0}}\n"
            ),
        );
    }
}

#[test]
fn the_timestamp_is_signed_as_it_is_written_and_is_now_by_default() {
    let home = home();
    let zeros = sign(&home, &["--timestamp", "001700000000"], BODY);
    assert!(text(&zeros.stdout).starts_with("Transit-Timestamp: 001700000000\n"));
    assert!(!text(&zeros.stdout).contains(RIGHT));
    let headers = home.path("headers");
    std::fs::write(&headers, sign(&home, &[], BODY).stdout).unwrap();
    prints(&sign(&home, &["--verify", "--headers", "headers"], BODY), "");
}

#[test]
fn a_secret_loses_one_newline_and_nothing_else() {
    let home = home();
    let run = |content: &[u8]| {
        secret(&home, content);
        sign(&home, &["--timestamp", STAMP, "--output", "signature"], BODY)
    };
    for content in [&b"s3cret"[..], b"s3cret\n", b"s3cret\r\n"] {
        prints(&run(content), &format!("{RIGHT}\n"));
    }
    let warned = run(b"s3cret\n\n");
    let (exit, stdout, stderr) = told(&warned);
    assert_eq!(exit, 0);
    assert_eq!(stdout, "v1=71bc2c8539346ed6161d5261dc57ad46651ce531bb2e4363eec10e4bab6d7998\n");
    assert_eq!(
        stderr,
        "transit-sign: warning: the secret file k: it ends with a blank or newline, which is kept as part of it\n"
    );
    for content in [&b"s3cret "[..], b" s3cret", b"\xef\xbb\xbfs3cret"] {
        let output = run(content);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stderr).contains("warning") && !text(&output.stderr).contains("s3cret"));
    }
    for content in [&b""[..], b"\n", b"\r\n"] {
        fails(&run(content), 78, "transit-sign: use the secret file k: it is empty\n");
    }
    fails(&run(b"a\xff"), 65, "transit-sign: use the secret file k: it is not UTF-8 at byte 1\n");
}

#[test]
fn a_secret_comes_from_a_variable_too() {
    let home = home();
    let run = |args: &[&str], name: &str, value: &str| {
        let mut command = home.command("transit-sign");
        command.args(["--timestamp", STAMP, "--output", "signature"]).args(args).env(name, value);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let right = run(&[], "TRANSIT_SECRET", "s3cret");
    assert_eq!(right.status.code(), Some(0));
    prints(&run(&["--secret-env", "OTHER"], "OTHER", "s3cret"), text(&right.stdout));
    fails(
        &run(&[], "TRANSIT_SECRET", ""),
        78,
        "transit-sign: use the secret in the variable TRANSIT_SECRET: it is empty\n",
    );
    fails(
        &run(&["--secret-env", "NOSUCH"], "OTHER", "s3cret"),
        78,
        "transit-sign: read the secret: the variable NOSUCH is not set\n\
         transit-sign: name a file with --secret-file, or another variable with --secret-env\n",
    );
}

#[test]
fn a_secret_that_others_can_read_is_warned_of() {
    let home = home();
    std::fs::set_permissions(home.path("k"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = sign(&home, &["--timestamp", STAMP, "--output", "signature"], BODY);
    assert_eq!(
        told(&output),
        (
            0,
            &*format!("{RIGHT}\n"),
            "transit-sign: warning: others can read the secret file k; mend it: chmod 600 k\n"
        )
    );
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let home = home();
    fails(
        &sign(&home, &["--timestamp", "abc"], b""),
        65,
        "transit-sign: use --timestamp abc: the timestamp is not 1 to 12 digits of Unix seconds\n",
    );
    fails(
        &sign(&home, &["--timestamp", "-5"], b""),
        65,
        "transit-sign: use --timestamp -5: the timestamp is not 1 to 12 digits of Unix seconds\n",
    );
    fails(
        &sign(&home, &["no\nsuch"], b""),
        66,
        "transit-sign: open no\\nsuch: No such file or directory (os error 2)\n",
    );
    fails(&sign(&home, &["."], b""), 66, "transit-sign: read .: Is a directory (os error 21)\n");
    fails(
        &home.run("transit-sign", ["--secret-file", "nosuch"], b""),
        66,
        "transit-sign: read the secret: could not read nosuch: No such file or directory (os error 2)\n",
    );
    fails(
        &sign(&home, &["--output", "curl"], b""),
        2,
        "transit-sign: print a curl command: --output curl needs --url URL\n",
    );
    fails(
        &sign(&home, &["--url", "http://h/"], b""),
        2,
        "transit-sign: print a curl command: --url goes with --output curl\n",
    );
    fails(
        &sign(&home, &["--output", "curl", "--url", "http://h/", "--lines"], b""),
        2,
        "transit-sign: print a curl command: curl posts whole files, not --lines or --null\n",
    );
    for args in [
        &["--lines", "--null"][..],
        &["--secret-env", "X"],
        &["--verify", "--lines"],
        &["--explain"],
        &["--verify", "--headers", "h", "--signature", RIGHT],
        &["--verify", "--tolerance", "5"],
        &["--output", "curl", "--url", "file:///x"],
        &["--nosuch"],
    ] {
        let output = sign(&home, args, b"");
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{args:?}");
        assert!(text(&output.stderr).starts_with("transit-sign: read the arguments: "), "{args:?}");
    }
}

#[test]
fn records_are_signed_one_by_one() {
    let home = home();
    let one = |payload: &[u8]| sign(&home, &["--timestamp", STAMP, "--output", "signature"], payload).stdout;
    let all = |payloads: &[&[u8]]| payloads.iter().flat_map(|payload| one(payload)).collect::<Vec<u8>>();
    let run =
        |how: &str, input: &[u8]| sign(&home, &["--timestamp", STAMP, "--output", "signature", how], input);
    let long = vec![b'x'; 200_000];
    let lines = [&b"a\r"[..], b"", &long, b"\x00b", b"last"];
    assert_eq!(run("--lines", &lines.join(&b'\n')).stdout, all(&lines));
    assert_eq!(run("--lines", b"a\nb\n").stdout, all(&[b"a", b"b"]));
    assert_eq!(run("--null", b"a\nb\0\0c").stdout, all(&[b"a\nb", b"", b"c"]));
    prints(&run("--lines", b""), "");
    home.file("one", "a\nb");
    home.file("two", "c\n");
    let both = sign(&home, &["--timestamp", STAMP, "--output", "signature", "--lines", "one", "two"], b"");
    assert_eq!(both.stdout, all(&[b"a", b"b", b"c"]));
}

#[test]
fn a_slow_writer_sees_each_signature_before_its_next_line() {
    let home = home();
    let mut command = home.command("transit-sign");
    let mut running =
        Background::start(command.args(["--secret-file", "k", "--lines", "--output", "signature"]));
    for line in ["one\n", "two\n"] {
        running.write(line);
        assert!(running.line().starts_with("v1="));
    }
    assert!(running.wait().success());
}

#[test]
fn good_and_fresh_is_0_and_everything_else_says_why() {
    let home = home();
    let verify = |stamp: &str, signature: &str, now: &str, more: &[&str]| {
        let args = ["--verify", "--timestamp", stamp, "--signature", signature, "--now", now];
        sign(&home, &[&args[..], more].concat(), BODY)
    };
    for now in [STAMP, "1700000300", "1699999700", "2023-11-14T22:13:20Z"] {
        prints(&verify(STAMP, RIGHT, now, &[]), "");
    }
    prints(&verify(STAMP, RIGHT, "1700003600", &["--tolerance", "1h"]), "");
    fails(
        &verify(STAMP, RIGHT, "1700000301", &[]),
        1,
        "transit-sign: verify standard input: the timestamp is 301 s old, more than the 300 s allowed\n",
    );
    fails(
        &verify(STAMP, RIGHT, "1699999999", &["--tolerance", "0s"]),
        1,
        "transit-sign: verify standard input: the timestamp is 1 s in the future, more than the 0 s allowed\n",
    );
    fails(
        &verify("1700000001", RIGHT, STAMP, &[]),
        1,
        "transit-sign: verify standard input: the signature does not match\n",
    );
    let upper = RIGHT.to_uppercase();
    for signature in ["", "v1=abc", &RIGHT[3..], &upper, &format!("{RIGHT} ")] {
        fails(
            &verify(STAMP, signature, STAMP, &[]),
            65,
            "transit-sign: verify: the signature is not v1= and 64 lowercase hexadecimal digits\n",
        );
    }
    for stamp in ["", "1.5", "+1", "1700000000000"] {
        fails(
            &verify(stamp, RIGHT, STAMP, &[]),
            65,
            "transit-sign: verify: the timestamp is not 1 to 12 digits of Unix seconds\n",
        );
    }
    fails(
        &sign(&home, &["--verify", "--signature", RIGHT], BODY),
        2,
        "transit-sign: verify: --timestamp and --signature, or --headers FILE, are needed\n",
    );
    fails(
        &sign(&home, &["--verify", "--headers", "k", "a", "b"], b""),
        2,
        "transit-sign: verify: one FILE at a time\n",
    );
    let json = verify(STAMP, RIGHT, "1700000301", &["--json"]);
    assert_eq!(json.status.code(), Some(1));
    assert!(text(&json.stdout).starts_with("{\"file\":\"-\",\"verified\":false,\"bytes\":8,\"reason\":\""));
}

#[test]
fn headers_are_found_in_the_head_of_a_request() {
    let home = home();
    home.file("body", BODY);
    let verify = |head: &str| {
        home.file("head", head);
        sign(&home, &["--verify", "--headers", "head", "--now", STAMP, "body"], b"")
    };
    let (stamp, signature) = (format!("Transit-Timestamp: {STAMP}"), format!("Transit-Signature: {RIGHT}"));
    prints(&verify(&format!("{stamp}\n{signature}\n")), "");
    let request = format!(
        "POST http://h/ingest/ci HTTP/1.1\r\nHost: h\r\ntransit-SIGNATURE:\t{RIGHT} \r\n{stamp}\r\n\r\n{signature}"
    );
    prints(&verify(&request), "");
    fails(&verify(&signature), 65, "transit-sign: verify: there is no Transit-Timestamp\n");
    fails(&verify(&stamp), 65, "transit-sign: verify: there is no Transit-Signature\n");
    fails(
        &verify(&format!("{stamp}\n{signature}\n{stamp}\n")),
        65,
        "transit-sign: verify: Transit-Timestamp is there more than once\n",
    );
    let stdin = format!("{stamp}\n{signature}\n");
    let args = ["--verify", "--now", STAMP, "--headers", "-"];
    prints(&sign(&home, &[&args[..], &["body"]].concat(), stdin.as_bytes()), "");
    fails(
        &sign(&home, &args, stdin.as_bytes()),
        2,
        "transit-sign: verify: stdin cannot be both the headers and the payload\n",
    );
    fails(
        &sign(&home, &["--verify", "--headers", "nosuch", "body"], b""),
        66,
        "transit-sign: open nosuch: No such file or directory (os error 2)\n",
    );
}

#[test]
fn the_mistake_that_fits_is_explained() {
    let home = home();
    let explain = |stamp: &str, signature: &str, body: &[u8]| {
        let args = ["--verify", "--explain", "--timestamp", stamp, "--signature", signature, "--now", STAMP];
        sign(&home, &args, body)
    };
    prints(&explain(STAMP, RIGHT, BODY), "");
    fails(
        &explain(STAMP, RIGHT, &BODY[..7]),
        1,
        "transit-sign: verify standard input: the signature does not match\n\
         transit-sign: a final newline was signed, but is not in the body\n",
    );
    fails(
        &explain(STAMP, RIGHT, b"other"),
        1,
        "transit-sign: verify standard input: the signature does not match\n\
         transit-sign: no usual mistake fits: the secret is another one, or the bytes were changed on their way\n",
    );
    fails(
        &explain(STAMP, RIGHT, &vec![b'x'; 17 << 20]),
        1,
        "transit-sign: verify standard input: the signature does not match\n\
         transit-sign: the payload is over 16 MiB, too long to try the usual mistakes on\n",
    );
    fails(
        &explain(STAMP, &RIGHT[3..], BODY),
        65,
        "transit-sign: verify: the signature is not v1= and 64 lowercase hexadecimal digits\n\
         transit-sign: the HMAC is right, but its form is not: write v1= and 64 lowercase hexadecimal digits, and \
         digits alone for the timestamp\n",
    );
}

#[test]
fn a_curl_command_is_safe_for_sh_whatever_the_file_is_called() {
    let home = home();
    // A curl that prints its words, each with a NUL after it.
    let bin = home.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let curl = home.file("bin/curl", "#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done\n");
    std::fs::set_permissions(curl, std::fs::Permissions::from_mode(0o700)).unwrap();
    let names: [&[u8]; 9] = [
        b"plain.json",
        b"-a b",
        b"@a;type=x",
        b"it's $(>x) `>x`\\",
        b"new\nline\"",
        b"ends with one\n",
        b"latin1-\xe9\x9b",
        b"\x1b]0;x\x07\x7f\r\x08",
        "\u{202e}😀\u{9b}2J\u{2066}'".as_bytes(),
    ];
    for name in names {
        let name = OsString::from_vec(name.to_vec());
        std::fs::write(home.path(".").join(&name), BODY).unwrap();
        let mut command = home.command("transit-sign");
        command.args(["--secret-file", "k", "--timestamp", STAMP, "--output", "curl"]);
        let line = command.args(["--url", "http://h/ingest/a?[b]'c", "--"]).arg(&name).output().unwrap();
        assert_eq!(line.status.code(), Some(0));
        let shown = text(&line.stdout);
        assert!(!shown.contains(|c| transit::text::is_unsafe(c) && c != '\n'), "{shown:?}");
        let mut sh = Command::new("/bin/sh");
        sh.arg("-c")
            .arg(OsString::from_vec(line.stdout))
            .env_clear()
            .env("PATH", &bin)
            .current_dir(home.path("."));
        let words = sh.output().unwrap().stdout;
        let words: Vec<&[u8]> = words.split(|&b| b == 0).collect();
        let data = [b"@", &name.into_vec()[..]].concat();
        let (stamp, signature) =
            (format!("Transit-Timestamp: {STAMP}"), format!("Transit-Signature: {RIGHT}"));
        let expected: [&[u8]; 12] = [
            b"--globoff",
            b"-H",
            b"Content-Type: application/json",
            b"-H",
            stamp.as_bytes(),
            b"-H",
            signature.as_bytes(),
            b"--data-binary",
            &data,
            b"--url",
            b"http://h/ingest/a?[b]'c",
            b"",
        ];
        assert_eq!(words, expected);
    }
    assert!(!home.path("x").exists());
}

#[test]
fn output_that_nobody_takes_is_quiet_and_output_that_fits_nowhere_is_74() {
    let home = home();
    let run = |line: &str| {
        let mut sh = home.foreign("sh");
        sh.args(["-c", line]).output().unwrap()
    };
    let full = run("transit-sign --secret-file k --timestamp 1 k >/dev/full");
    fails(&full, 74, "transit-sign: write the output: No space left on device (os error 28)\n");
    let cut = run("yes | head -n 50000 | { transit-sign --secret-file k --lines; echo $? >rc; } | head -n 1");
    assert_eq!(text(&cut.stderr), "");
    assert_eq!(std::fs::read_to_string(home.path("rc")).unwrap(), "0\n");
}

#[test]
fn a_large_file_is_signed_as_the_bytes_it_is() {
    let home = home();
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    home.file("large", &large);
    let whole = sign(&home, &["--timestamp", STAMP, "large"], b"");
    prints(&sign(&home, &["--timestamp", STAMP], &large), text(&whole.stdout));
    home.file("headers", &whole.stdout);
    prints(&sign(&home, &["--verify", "--now", STAMP, "--headers", "headers", "large"], b""), "");
}

#[test]
fn help_has_colour_only_where_it_is_asked_for() {
    let home = home();
    for (args, colour) in [
        (&["--help"][..], false),
        (&["--color", "always", "--help"], true),
        (&["-h", "--color=always"], true),
        (&["--color=never", "--help"], false),
    ] {
        let output = home.run("transit-sign", args, b"");
        assert_eq!(
            (output.status.code(), text(&output.stdout).contains('\u{1b}')),
            (Some(0), colour),
            "{args:?}"
        );
    }
}
