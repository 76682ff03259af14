//! Many events, one a line.

use super::{PROGRAM, Server, code, home, reports};
use crate::support::{Background, text};

#[test]
fn lines_come_out_in_their_order() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let lines: String = (0..60)
        .map(|n| {
            format!(
                "{{\"event_key\":\"k{n}\",\"content\":\"{n}\",\"more\":1}}\n{}",
                if n % 7 == 0 { "\n" } else { "" }
            )
        })
        .collect();
    let url = server.url();
    let usual = [url.as_str(), "--secret-file", "secret", "--conversation", "c", "--json", "--lines"];
    let output = home.run(PROGRAM, usual, lines.trim_end().as_bytes());
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let keys: Vec<_> =
        reports(&output).iter().map(|report| report["event_key"].as_str().unwrap().to_owned()).collect();
    assert_eq!(keys, (0..60).map(|n| format!("k{n}")).collect::<Vec<_>>());
    assert_eq!(server.requests.try_iter().count(), 60);
    for (broken, number) in [
        ("{\"content\":\"\"}", 2),
        ("[]", 2),
        ("{\"content\":1}", 2),
        ("nonsense", 2),
        ("{\"content\":\"x\",\"user\":null}", 2),
        ("{\"content\":\"x\",\"content\":\"y\"}", 2),
        ("{\"content\":\"x\",\"more\":{\"a\":1,\"\\u0061\":2}}", 2),
    ] {
        let input = format!("{{\"content\":\"good\"}}\n{broken}\n{{\"content\":\"never\"}}\n");
        let output = home.run(PROGRAM, usual, input.as_bytes());
        assert_eq!((code(&output), reports(&output).len()), (65, 1), "{broken}");
        assert!(
            text(&output.stderr).contains(&format!("line {number} of stdin")),
            "{}",
            text(&output.stderr)
        );
        assert_eq!(server.requests.try_iter().count(), 1, "{broken}");
    }
}

#[test]
fn refused_lines_are_told_in_their_place() {
    let (home, server) = (home(), Server::status("401 Who"));
    let url = server.url();
    let options = [url.as_str(), "--secret-file", "secret", "--conversation", "c", "--json", "--lines"];
    let output = home.run(PROGRAM, options, b"{\"content\":\"a\"}\n{\"content\":\"b\"}\n");
    assert_eq!(code(&output), 77);
    let outcomes: Vec<_> = reports(&output).iter().map(|report| report["outcome"].clone()).collect();
    assert_eq!(outcomes, ["dead", "dead"]);
}

#[test]
fn fields_that_a_line_does_not_have_come_from_the_options() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let url = server.url();
    let options = [
        &url,
        "--secret-file",
        "secret",
        "--lines",
        "--jobs",
        "1",
        "--conversation",
        "c",
        "--user",
        "Ada",
        "--trigger",
        "alert",
        "--meta",
        "a=b",
        "--reply-url",
        "http://127.0.0.1:1/r",
    ];
    let input = "{\"content\":\"one\"}\n{\"content\":\"two\",\"conversation_id\":\"d\",\"user\":\"Bo\",\"meta\":{\"x\":\"y\"}}";
    let output = home.run(PROGRAM, options, input.as_bytes());
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let event = || transit::proto::ingest::parse_event(&server.request().1).unwrap();
    let one = event();
    assert_eq!(
        (one.content.as_str(), one.conversation_id.as_str(), one.user.as_deref()),
        ("one", "c", Some("Ada"))
    );
    assert_eq!(
        (one.trigger.as_deref(), one.reply_url.as_deref()),
        (Some("alert"), Some("http://127.0.0.1:1/r"))
    );
    assert_eq!(one.meta["a"], "b");
    let two = event();
    assert_eq!(
        (two.conversation_id.as_str(), two.user.as_deref(), two.trigger.as_deref()),
        ("d", Some("Bo"), Some("alert"))
    );
    assert_eq!((two.meta.len(), two.meta["x"].as_str()), (1, "y"));
    assert!(one.event_key != two.event_key && !one.event_key.is_empty());
}

#[test]
fn a_dry_run_of_lines_checks_every_one_and_sends_none() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let url = server.url();
    let options = [&url, "--secret-file", "secret", "--conversation", "c", "--lines", "--dry-run", "--json"];
    let output =
        home.run(PROGRAM, options, b"{\"content\":\"one\"}\n\n{\"content\":\"two\"}\n{\"content\":\"\"}\n");
    assert_eq!((code(&output), reports(&output).len()), (65, 2));
    assert!(text(&output.stderr).contains("line 4 of stdin: content"), "{}", text(&output.stderr));
    assert_eq!(server.requests.try_iter().count(), 0);
    assert!(!home.data().exists());
}

#[test]
fn refusals_among_the_lines_are_counted_at_the_end() {
    let (home, server) = (home(), Server::status("404 None"));
    let url = server.url();
    let options = [&url, "--secret-file", "secret", "--conversation", "c", "--json", "--lines"];
    let output = home.run(PROGRAM, options, b"{\"content\":\"a\"}\n{\"content\":\"b\"}\n");
    assert_eq!((code(&output), reports(&output).len()), (67, 2));
    assert!(text(&output.stderr).contains("2 of 2 events were not taken"), "{}", text(&output.stderr));
    let output = home.run(PROGRAM, options.iter().chain(&["--no-spool"]), b"{\"content\":\"a\"}\n");
    assert_eq!((code(&output), reports(&output)[0]["outcome"].as_str()), (67, Some("failed")));
    let output = home.run(PROGRAM, options, b"");
    assert_eq!((code(&output), text(&output.stdout)), (0, ""), "no line is no event");
}

#[test]
fn many_lines_take_no_more_memory_than_few() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let mut command = home.command(PROGRAM);
    command.args([&server.url(), "--secret-file", "secret", "--conversation", "c", "--lines", "--no-spool"]);
    let mut sender = Background::start(&mut command);
    let line = format!("{{\"content\":\"{}\"}}\n", "x".repeat(10_000));
    let mut peak_after = |count: usize| {
        for _ in 0..count {
            sender.write(&line);
        }
        for _ in 0..count {
            assert!(sender.line().starts_with("queued "));
            server.request();
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", sender.pid())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
    };
    let (few, many) = (peak_after(600), peak_after(3000));
    assert!(
        many < few + 8_000,
        "{few} kB grew to {many} kB, and {} kB went through",
        3000 * line.len() / 1000
    );
}

#[test]
fn a_spool_that_fills_up_between_two_lines_names_the_line() {
    let home = home();
    super::send(&home, "http://127.0.0.1:1/ingest/ci", &["--spool-only"]);
    super::keeping::fill(&home);
    let db = rusqlite::Connection::open(home.data().join("spool.db")).unwrap();
    assert_eq!(db.execute("DELETE FROM outbox WHERE id IN ('evt_1', 'evt_2')", []).unwrap(), 2);
    let options =
        ["http://127.0.0.1:1/ingest/ci", "--secret-file", "secret", "--conversation", "c", "--lines"];
    let mut command = home.command(PROGRAM);
    let mut sender = Background::start(command.args(options).args(["--jobs", "1", "--spool-only"]));
    // The input stays open: it ends because it cannot go on, and not because there is no more.
    sender.write("{\"content\":\"a\"}\n{\"content\":\"b\"}\n\n{\"content\":\"c\"}\n{\"content\":\"d\"}\n");
    let said = sender.error();
    assert!(said.contains("line 4 of stdin: keep the event: the spool"), "{said}");
    assert_eq!(sender.wait().code(), Some(75));
    let outcomes = [sender.line(), sender.line()];
    assert!(outcomes.iter().all(|line| line.starts_with("spooled ")), "{outcomes:?}");
    assert!(sender.pending_lines().is_empty());
}

#[test]
fn a_server_that_closes_after_each_answer_gets_every_line_all_the_same() {
    let home = home();
    let server = Server::start("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
    let url = server.url();
    let options = [url.as_str(), "--secret-file", "secret", "--conversation", "c", "--json", "--lines"];
    let lines = "{\"content\":\"x\"}\n".repeat(200);
    let output = home.run(PROGRAM, options.iter().chain(&["--no-spool", "--jobs", "2"]), lines.as_bytes());
    assert_eq!((code(&output), text(&output.stderr)), (0, ""));
    assert!(reports(&output).iter().all(|report| report["outcome"] == "queued"));
}
