//! One event: its options, its bytes, and the rules that it must keep.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::json;
use transit::proto::ingest::{Signer, parse_event};
use transit::secret::Secret;

use super::{PROGRAM, Server, code, home, reports, send, status};
use crate::support::text;

#[test]
fn an_event_is_signed_over_its_exact_bytes() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let options = ["--user", "Zoë", "--trigger", "alert", "--meta", "a=b=c", "--event-key", "k1"];
    let output = send(&home, &server.url(), &options);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let report = &reports(&output)[0];
    assert_eq!(
        (&report["outcome"], &report["state"], &report["attempts"]),
        (&json!("queued"), &json!("sent"), &json!(1))
    );
    assert_eq!(
        (&report["kind"], &report["dest"], &report["event_key"]),
        (&json!("event"), &json!(server.url()), &json!("k1"))
    );
    assert_eq!(status(&home, report["id"].as_str().unwrap())["outcome"], "queued");
    let (head, body) = server.request();
    let field = |name: &str| {
        head.lines()
            .find_map(|line| line.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name)))
            .unwrap()
            .1
    };
    assert!(head.starts_with("POST /ingest/ci HTTP/1.1\r\n"), "{head}");
    let signer = Signer::new(&Secret::new("s3cret").unwrap());
    assert!(signer.verify(field("Transit-Timestamp"), &body, field("Transit-Signature")));
    let event = parse_event(&body).unwrap();
    assert_eq!((event.content.as_str(), event.conversation_id.as_str()), ("hi", "c"));
    assert_eq!((event.user.as_deref(), event.trigger.as_deref()), (Some("Zoë"), Some("alert")));
    assert_eq!(event.meta["a"], "b=c");
}

#[test]
fn nothing_is_sent_that_breaks_a_rule() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let url = server.url();
    home.file("latin1", b"caf\xe9");
    home.file("large", "x".repeat(65_537));
    home.file("larger", "x".repeat(262_145));
    home.file("raw.json", r#"{"schema":"transit.ingest/1","event_key":"k","content":"x"}"#);
    let options: [(&[&str], i32); 16] = [
        (&["--conversation", "", "-m", "x"], 65),
        (&["--conversation", "c", "-m", ""], 65),
        (&["--conversation", &"c".repeat(201), "-m", "x"], 65),
        (&["--conversation", "c", "-m", "x", "--trigger", &"t".repeat(33)], 65),
        (&["--conversation", "c", "-m", "x", "--reply-url", "ftp://h/"], 65),
        (&["--conversation", "c", "-m", "x", "--meta", "trigger=x"], 65),
        (&["--conversation", "c", "-m", "x", "--meta", "a=1", "--meta", "a=2"], 65),
        (&["--conversation", "c", "latin1"], 65),
        (&["--conversation", "c", "large"], 65),
        (&["--raw", "larger"], 65),
        (&["--raw", "raw.json"], 65),
        (&["--conversation", "c", "missing"], 66),
        (&["--conversation", "c", "."], 66),
        (&["-m", "x"], 2),
        (&["--conversation", "c", "-m", "x", "latin1"], 2),
        (&["--conversation", "c", "-m", "x", "--meta", "novalue"], 2),
    ];
    for (options, exit) in options {
        let usual = [url.as_str(), "--secret-file", "secret"];
        let output = home.run(PROGRAM, usual.iter().chain(options), b"");
        assert_eq!((code(&output), text(&output.stdout)), (exit, ""), "{options:?}");
        assert!(text(&output.stderr).lines().count() > 0 && !text(&output.stderr).contains("panicked"));
    }
    // A body that must be text is told so also where it is an option's value.
    let latin1 = OsStr::from_bytes(b"caf\xe9");
    let usual = [&url, "--secret-file", "secret", "--conversation", "c", "-m"].map(OsStr::new);
    let output = home.run(PROGRAM, usual.iter().chain(&[latin1]), b"");
    assert_eq!((code(&output), text(&output.stdout)), (65, ""), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("not UTF-8 at byte 3"), "{}", text(&output.stderr));
    assert_eq!(server.requests.try_iter().count(), 0);
    assert!(!home.data().exists(), "nothing was spooled either");
}

#[test]
fn a_secret_that_is_wrong_stops_everything() {
    let home = home();
    home.file("empty", "\n");
    home.file("binary", b"\xff\xfe");
    let url = "http://127.0.0.1:1/ingest/ci";
    for (options, exit) in [
        (&["--secret-file", "missing"][..], 66),
        (&["--secret-file", "empty"], 78),
        (&["--secret-file", "binary"], 65),
        (&["--secret-env", "NOT_SET"], 78),
        (&[], 78),
    ] {
        let usual = [url, "--conversation", "c", "-m", "x"];
        let output = home.run(PROGRAM, usual.iter().chain(options), b"");
        assert_eq!((code(&output), text(&output.stdout)), (exit, ""), "{options:?}");
    }
    assert!(!home.data().exists());
}

#[test]
fn a_dest_is_a_url_or_a_source_of_the_configuration() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let to = |dest: &str| {
        home.run(PROGRAM, [dest, "--conversation", "c", "-m", "x", "--secret-file", "secret"], b"")
    };
    for (dest, exit) in [("http://127.0.0.1:1/", 2), ("Nope", 2), ("ci", 67), ("http://u:p@h/ingest/ci", 2)] {
        assert_eq!(code(&to(dest)), exit, "{dest}");
    }
    home.file(
        "config.json",
        json!({"sources": {"ci": {"url": server.url(), "secret_file": "secret"}, "odd": {"url": "x"}}})
            .to_string(),
    );
    assert_eq!(code(&to("other")), 67);
    assert_eq!(code(&to("odd")), 78);
    let output = home.run(PROGRAM, ["ci", "--conversation", "c", "-m", "x"], b"");
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    server.request();
    home.file("config.json", "{ not json");
    assert_eq!(code(&to("ci")), 78);
}

#[test]
fn only_keeping_and_only_looking_send_nothing() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let output = send(&home, &server.url(), &["--dry-run"]);
    let request = reports(&output).remove(0);
    let (headers, body) = (&request["headers"], request["body"].as_str().unwrap());
    let signer = Signer::new(&Secret::new("s3cret").unwrap());
    let header = |name: &str| headers[name].as_str().unwrap();
    assert!(signer.verify(header("Transit-Timestamp"), body.as_bytes(), header("Transit-Signature")));
    assert!(!home.data().exists());
    let output = send(&home, &server.url(), &["--spool-only"]);
    let report = &reports(&output)[0];
    assert_eq!(
        (&report["outcome"], &report["state"], &report["attempts"]),
        (&json!("spooled"), &json!("pending"), &json!(0))
    );
    assert_eq!(status(&home, report["id"].as_str().unwrap())["attempts"], 0);
    let output = home.run(PROGRAM, ["--status", "evt_000000000000"], b"");
    assert_eq!((code(&output), text(&output.stdout)), (1, ""));
    assert_eq!(server.requests.try_iter().count(), 0);
    let database = std::fs::read(home.data().join("spool.db")).unwrap();
    let log = std::fs::read(home.data().join("spool.db-wal")).unwrap();
    let holds = |bytes: &[u8]| bytes.windows(6).any(|w| w == b"s3cret");
    assert!(!holds(&database) && !holds(&log), "the secret is never stored");
}

#[test]
fn a_raw_body_goes_out_byte_for_byte() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let body = b"\xef\xbb\xbf { \"schema\":\"transit.ingest/1\", \"event_key\":\"k\",\r\n\"conversation_id\":\"c\",\"content\":\"\\u00e9\",\"more\":[1] }\n";
    let output = home.run(PROGRAM, [&server.url(), "--secret-file", "secret", "--raw", "--json"], body);
    assert_eq!((code(&output), reports(&output)[0]["event_key"].as_str()), (0, Some("k")));
    assert_eq!(server.request().1, body);
}

#[test]
fn the_sources_of_the_configuration_are_listed() {
    let home = home();
    let list = |options: &[&str]| home.run(PROGRAM, ["--list-sources"].iter().chain(options), b"");
    assert_eq!((code(&list(&[])), text(&list(&[]).stdout)), (0, ""), "there is no configuration");
    let url = "http://127.0.0.1:1/ingest/ci";
    let sources =
        json!({"sources": {"nightly": {"url": "http://u:hush@h/ingest/nightly"}, "ci": {"url": url}}});
    home.file("config.json", sources.to_string());
    assert_eq!(text(&list(&[]).stdout), "ci\nnightly\n");
    let listed = list(&["--json"]);
    assert_eq!(reports(&listed)[0], json!({"name": "ci", "url": url}));
    assert!(!text(&listed.stdout).contains("hush"));
    assert_eq!(code(&list(&["ci"])), 2, "nothing is sent with it");
    home.file("config.json", "{ not json");
    assert_eq!((code(&list(&[])), text(&list(&[]).stdout)), (78, ""));
    assert!(!home.data().exists());
}

#[test]
fn a_dry_run_shows_the_bytes_and_json_is_safe_for_terminals() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let content = "caf\u{e9} \u{1b}[2J \u{9b} \u{202e} \u{7f}";
    let url = server.url();
    let usual = [&url, "--secret-file", "secret", "--conversation", "c", "--event-key", "k", "-m", content];
    let shown = home.run(PROGRAM, usual.iter().chain(&["--dry-run"]), b"");
    assert_eq!((code(&shown), text(&shown.stderr)), (0, ""));
    let (head, body) = text(&shown.stdout).split_once("\n\n").unwrap();
    assert!(head.starts_with("POST /ingest/ci HTTP/1.1\nHost: 127.0.0.1:"), "{head}");
    let body = body.strip_suffix('\n').unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert_eq!(parse_event(body.as_bytes()).unwrap().content, content);
    let shown = home.run(PROGRAM, usual.iter().chain(&["--dry-run", "--json"]), b"");
    assert!(
        !text(&shown.stdout).contains(['\u{1b}', '\u{9b}', '\u{202e}', '\u{7f}']),
        "{:?}",
        text(&shown.stdout)
    );
    assert_eq!(reports(&shown)[0]["body"], body);
    let sent = home.run(PROGRAM, usual.iter().chain(&["--json"]), b"");
    assert_eq!(code(&sent), 0);
    assert_eq!(server.request().1, body.as_bytes(), "it was the request that goes out");
    let message = home.run(PROGRAM, ["jess@titan", "--dry-run", "--as", "bob", "-m", content], b"");
    assert!(!text(&message.stdout).contains(['\u{1b}', '\u{9b}', '\u{202e}', '\u{7f}']));
    assert_eq!(
        reports(&message)[0],
        json!({"op": "send", "to": "jess@titan", "body": content, "as_agent": "bob"})
    );
    for broken in [&["--conversation", "", "--dry-run"][..], &["--event-key", "", "--dry-run"]] {
        let usual = [&url, "--secret-file", "secret", "-m", "hi"];
        let more = if broken[0] == "--event-key" { &["--conversation", "c"][..] } else { &[] };
        let output = home.run(PROGRAM, usual.iter().chain(broken).chain(more), b"");
        assert_eq!((code(&output), text(&output.stdout)), (65, ""), "{broken:?}");
    }
}

#[test]
fn what_is_human_is_safe_for_terminals() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let key = "k\u{1b}[31m\u{9b}\u{2066}";
    let url = server.url();
    let output = home.run(
        PROGRAM,
        [&url, "--secret-file", "secret", "--conversation", "c", "--event-key", key, "-m", "x"],
        b"",
    );
    assert!(
        text(&output.stdout).contains("event_key=k\\u{1b}[31m\\u{9b}\\u{2066}\n"),
        "{:?}",
        text(&output.stdout)
    );
    for args in [&["\u{1b}[2J"][..], &["http://h/\u{9b}"], &["--status", "\u{1b}x"], &["ci", "\u{202e}"]] {
        let output = home.run(PROGRAM, args, b"");
        assert_ne!(code(&output), 0);
        let said = text(&output.stderr);
        assert!(!said.contains(['\u{1b}', '\u{9b}', '\u{202e}']) && !said.is_empty(), "{said:?}");
    }
}

#[test]
fn more_is_said_when_more_is_asked_for() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let output = send(&home, &server.url(), &["-v"]);
    let said = text(&output.stderr);
    assert!(
        said.starts_with("transit-send: evt_") && said.ends_with("ms, kept in the spool and tried once\n"),
        "{said}"
    );
    let output = send(&home, &server.url(), &["-v", "--spool-only"]);
    assert!(text(&output.stderr).ends_with("ms, kept in the spool and not tried\n"));
    let url = server.url();
    let lines = [&url, "--secret-file", "secret", "--conversation", "c", "--lines", "--no-spool", "-v"];
    let output = home.run(PROGRAM, lines, b"{\"content\":\"x\"}\n");
    assert_eq!(text(&output.stderr), "transit-send: 1 of 1 events were taken\n");
    let output = home.run(PROGRAM, ["jess@titan", "-m", "hi", "-v"], b"");
    assert!(text(&output.stderr).starts_with("transit-send: 2 bytes to the transitd of "));
    assert!(!text(&output.stderr).contains("s3cret"));
}
