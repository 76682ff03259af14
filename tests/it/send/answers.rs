//! Every answer that there is, and what becomes of an event then.

use std::net::TcpListener;

use serde_json::json;
use transit::clock::{Clock, SystemClock, Wall};

use super::{Server, code, dead_id, home, reports, send, status};
use crate::support::{Nobody, text};

/// What an answer must come to.
enum Then {
    /// Done, with this outcome.
    Done(&'static str),
    /// Kept for a next attempt, which is due after this many seconds.
    Later(i64),
    /// Dead, with this exit.
    Dead(i32),
}
use Then::{Dead, Done, Later};

/// The first wait of the backoff, in seconds.
const BACKOFF: i64 = 5;
/// The longest wait that another side can ask for, in seconds.
const HOUR: i64 = 3600;
/// What a slow machine adds to a wait before it is looked at, in seconds.
const SLACK: i64 = 60;

/// An answer with this first line and these fields, and a body.
fn answer(first: &str, body: &str) -> String {
    format!("HTTP/1.1 {first}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// The answer's first line (and fields), its body, what it comes to, and what is said of it.
fn whole_answers() -> Vec<(&'static str, &'static str, Then, &'static str)> {
    vec![
        (
            "202 Accepted",
            r#"{"status":"queued","event_id":"evt_1","delivery_id":"dlv_1"}"#,
            Done("queued"),
            "",
        ),
        ("202 Accepted", "", Done("queued"), ""),
        ("200 OK", r#"{"status":"duplicate","same":true}"#, Done("duplicate"), ""),
        ("200 OK", r#"{"status":"duplicate","same":false}"#, Done("duplicate"), ""),
        ("200 OK", "<html>not what was asked for</html>", Done("duplicate"), ""),
        ("204 Nothing", "", Done("queued"), ""),
        ("202 Accepted\r\nRetry-After: 60", "", Done("queued"), ""),
        ("400 Bad", r#"{"error":"is missing","field":"content"}"#, Dead(65), "400: content: is missing"),
        (
            "400 Bad",
            "{\"error\":\"odd\\u001b[2J\u{9b}\u{202e}\"}",
            Dead(65),
            "400: odd\\u{1b}[2J\\u{9b}\\u{202e}",
        ),
        ("400 Bad", "<html>", Dead(65), "the answer was 400"),
        ("401 Who", r#"{"error":"unauthorized"}"#, Dead(77), "401: unauthorized; is it the right secret"),
        ("403 No", "", Dead(77), "403"),
        ("404 None", r#"{"error":"no such source"}"#, Dead(67), "404: no such source"),
        ("405 Never", "", Dead(65), "405"),
        ("410 Gone", "", Dead(67), "410: there is no such source"),
        ("413 Large", "<html>", Dead(65), "413: the body is too large"),
        ("418 Tea", "", Dead(65), "418"),
        ("422 Odd", "", Dead(65), "422"),
        ("408 Slow", "", Later(BACKOFF), "408"),
        ("425 Early", "", Later(BACKOFF), "425"),
        ("429 Much", r#"{"error":"rate_limited"}"#, Later(BACKOFF), "429: rate_limited"),
        ("500 Oops", "", Later(BACKOFF), "500"),
        ("502 Bad", "<html>", Later(BACKOFF), "502"),
        ("503 Busy\r\nRetry-After: 60", "", Later(60), "503"),
        ("503 Busy", "", Later(BACKOFF), "503"),
        ("302 Found\r\nLocation: http://127.0.0.1:1/", "", Later(BACKOFF), "302; redirects are not followed"),
        ("307 Same\r\nLocation: /ingest/other", "", Later(BACKOFF), "307; redirects are not followed"),
        ("301 Moved\r\nLocation: \u{1b}]0;x\u{7}", "", Later(BACKOFF), ""),
        ("600 Odd", "", Later(BACKOFF), "600"),
        // What is asked for wins over the backoff in both directions, for an hour at most.
        ("429 Much\r\nRetry-After: 0", "", Later(1), "429"),
        ("429 Much\r\nRetry-After: 1", "", Later(1), "429"),
        ("429 Much\r\nretry-after:   600  ", "", Later(600), "429"),
        ("429 Much\r\nRetry-After: 86400", "", Later(HOUR), "429"),
        ("429 Much\r\nRetry-After: 99999999999999999999999999", "", Later(HOUR), "429"),
        ("429 Much\r\nRetry-After: -5", "", Later(BACKOFF), "429"),
        ("429 Much\r\nRetry-After: 1.5", "", Later(BACKOFF), "429"),
        ("429 Much\r\nRetry-After: soon", "", Later(BACKOFF), "429"),
        ("429 Much\r\nRetry-After:", "", Later(BACKOFF), "429"),
        ("429 Much\r\nRetry-After: Sun, 06 Nov 1994 08:49:37 GMT", "", Later(1), "429"),
        ("429 Much\r\nRetry-After: Sunday, 06-Nov-94 08:49:37 GMT", "", Later(1), "429"),
        ("429 Much\r\nRetry-After: Sun Nov  6 08:49:37 1994", "", Later(1), "429"),
        ("429 Much\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT", "", Later(HOUR), "429"),
        ("429 Much\r\nRetry-After: Mon, 32 Foo 2026 99:99:99 GMT", "", Later(BACKOFF), "429"),
        // Two of them are a list, which is no time.
        ("429 Much\r\nRetry-After: 600\r\nRetry-After: 900", "", Later(BACKOFF), "429"),
    ]
}

#[test]
fn every_answer_has_its_state_its_words_and_its_exit() {
    let home = home();
    for (first, body, then, says) in whole_answers() {
        check(&home, first, &Server::start(&answer(first, body)), &then, says);
    }
}

/// Sends once with the spool and once without, and looks at what is said and kept.
fn check(home: &crate::support::Home, case: &str, server: &Server, then: &Then, says: &str) {
    let before = SystemClock::new().wall();
    let kept = send(home, &server.url(), &["--timeout", "20s"]);
    let unkept = send(home, &server.url(), &["--timeout", "20s", "--no-spool"]);
    assert!(
        !text(&kept.stderr).contains("panicked") && !text(&unkept.stderr).contains("panicked"),
        "{case:?}"
    );
    assert_eq!(server.requests.try_iter().count(), 2, "one attempt each: {case:?}");
    let (said, id) = match then {
        Done(outcome) => {
            for output in [&kept, &unkept] {
                assert_eq!((code(output), text(&output.stderr)), (0, ""), "{case:?}");
                let report = &reports(output)[0];
                let expected = (&json!(outcome), &json!("sent"), &json!(1));
                assert_eq!((&report["outcome"], &report["state"], &report["attempts"]), expected, "{case:?}");
                assert!(report.get("next_attempt_at").is_none() && report.get("error").is_none(), "{case:?}");
            }
            (String::new(), reports(&kept)[0]["id"].clone())
        }
        Later(wait) => {
            assert_eq!((code(&kept), text(&kept.stderr)), (0, ""), "{case:?}");
            assert_eq!((code(&unkept), text(&unkept.stdout)), (75, ""), "{case:?}");
            assert!(text(&unkept.stderr).contains(says), "{case:?}: {}", text(&unkept.stderr));
            let report = reports(&kept).remove(0);
            assert_eq!(
                (&report["outcome"], &report["state"]),
                (&json!("spooled"), &json!("pending")),
                "{case:?}"
            );
            let next = Wall::parse(report["next_attempt_at"].as_str().unwrap()).unwrap();
            let waits = (next.0 - before.0) / 1000;
            assert!((*wait..wait + SLACK).contains(&waits), "{case:?}: due in {waits} s");
            (report["error"].as_str().unwrap().to_owned(), report["id"].clone())
        }
        Dead(exit) => {
            for output in [&kept, &unkept] {
                assert_eq!((code(output), text(&output.stdout)), (*exit, ""), "{case:?}");
            }
            let way = |output| text(output).lines().nth(1).unwrap_or_default();
            assert!(way(&kept.stderr).contains("; "), "{case:?}: {}", text(&kept.stderr));
            let unkept = way(&unkept.stderr);
            assert!(!unkept.is_empty(), "{case:?}: what to do about it");
            assert!(
                !unkept.contains("--status") && !unkept.contains("retry"),
                "{case:?}: nothing is kept to be looked at: {unkept}"
            );
            (text(&kept.stderr).to_owned(), dead_id(&kept).into())
        }
    };
    assert!(said.contains(says), "{case:?}: {said:?}");
    let entry = status(home, id.as_str().unwrap());
    let state = match then {
        Done(_) => "sent",
        Later(_) => "pending",
        Dead(_) => "dead",
    };
    assert_eq!((&entry["state"], &entry["attempts"]), (&json!(state), &json!(1)), "{case:?}");
}

#[test]
fn a_date_that_is_asked_for_is_waited_for_in_all_three_forms() {
    let home = home();
    for form in ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"] {
        let date = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(302);
        let first = format!("503 Busy\r\nRetry-After: {}", date.strftime(form));
        check(&home, &first, &Server::start(&answer(&first, "")), &Later(300), "503");
    }
}

#[test]
fn half_an_answer_counts_once_its_head_says_2xx() {
    let home = home();
    for (raw, then) in [
        ("", Later(BACKOFF)),
        ("garbage\r\n\r\n", Later(BACKOFF)),
        ("SSH-2.0-OpenSSH_9.6\r\n", Later(BACKOFF)),
        ("HTTP/1.1 202", Later(BACKOFF)),
        ("HTTP/1.1 202 Accepted\r\nContent-Le", Later(BACKOFF)),
        ("HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n", Later(BACKOFF)),
        ("HTTP/1.1 999999 Odd\r\n\r\n", Later(BACKOFF)),
        ("HTTP/1.1 400 Bad\r\nContent-Length: 100\r\n\r\n{\"err", Later(BACKOFF)),
        ("HTTP/1.1 404 None\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"st", Later(BACKOFF)),
        ("HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n{\"status\":\"que", Done("queued")),
        ("HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"st", Done("queued")),
        ("HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\nnonsense", Done("queued")),
        ("HTTP/1.1 202 Accepted\r\n\r\n", Done("queued")),
        ("HTTP/1.0 200 OK\r\n\r\n{\"status\":\"queued\"}", Done("queued")),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", Done("queued")),
    ] {
        check(&home, raw, &Server::start(raw), &then, "");
    }
}

#[test]
fn silence_and_nobody_are_passing_failures() {
    let home = home();
    let reserved = Nobody::new();
    let nobody = reserved.at;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let head_only = Server::stalled("HTTP/1.1 202 Accepted\r\nContent-Length: 9\r\n\r\n{");
    for (url, says) in [
        (format!("http://{nobody}/ingest/ci"), "could not connect"),
        (format!("http://{}/ingest/ci", silent.local_addr().unwrap()), "no answer: it took too long"),
    ] {
        let output = send(&home, &url, &["--timeout", "1s"]);
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        let report = &reports(&output)[0];
        assert_eq!(report["outcome"], "spooled", "{url}");
        assert!(report["error"].as_str().unwrap().contains(says), "{report}");
        let output = send(&home, &url, &["--timeout", "1s", "--no-spool"]);
        assert_eq!((code(&output), text(&output.stdout)), (75, ""), "{url}");
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
    let output = send(&home, &head_only.url(), &["--timeout", "1s"]);
    assert_eq!(reports(&output)[0]["outcome"], "queued", "a 2xx head is an answer");
}
