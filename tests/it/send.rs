//! `transit-send` against servers that answer in every way there is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Output;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use transit::proto::ingest::{Signer, parse_event};
use transit::secret::Secret;
use transit::store::spool::outbox::EntryKind;

use crate::support::{Home, LONG, text};

const PROGRAM: &str = "transit-send";

/// A server that gives the same raw bytes to every connection and then closes it, and records the requests.
struct Server {
    at: SocketAddr,
    requests: Receiver<Vec<u8>>,
}

impl Server {
    fn start(answer: &str) -> Self {
        let (listener, answer) = (TcpListener::bind("127.0.0.1:0").unwrap(), answer.to_owned());
        let (at, (tell, requests)) = (listener.local_addr().unwrap(), channel());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let request = read_request(&mut stream);
                // A client that does not wait for the answer is the business of the test.
                let _ = stream.write_all(answer.as_bytes());
                if tell.send(request).is_err() {
                    return;
                }
            }
        });
        Self { at, requests }
    }

    fn status(line: &str) -> Self {
        Self::start(&format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
    }

    fn url(&self) -> String {
        format!("http://{}/ingest/ci", self.at)
    }

    fn request(&self) -> (String, Vec<u8>) {
        let request = self.requests.recv_timeout(LONG).unwrap();
        let end = request.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        (text(&request[..end]).to_owned(), request[end + 4..].to_vec())
    }
}

fn read_request(stream: &mut TcpStream) -> Vec<u8> {
    let (mut request, mut bytes) = (Vec::new(), [0; 65_536]);
    loop {
        let Ok(read @ 1..) = stream.read(&mut bytes) else { return request };
        request.extend_from_slice(&bytes[..read]);
        let head = String::from_utf8_lossy(&request).into_owned();
        let Some(end) = head.find("\r\n\r\n") else { continue };
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        if request.len() >= end + 4 + length.unwrap_or(0) {
            return request;
        }
    }
}

/// A home with a secret in `secret`.
fn home() -> Home {
    let home = Home::new();
    let path = home.file("secret", "s3cret\n");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    home
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// Sends one event to `url` with the usual options and these.
fn send(home: &Home, url: &str, options: &[&str]) -> Output {
    let usual = [url, "--secret-file", "secret", "--conversation", "c", "--json", "-m", "hi"];
    home.run(PROGRAM, usual.iter().chain(options), b"")
}

fn reports(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What the spool says of the entry of this report.
fn status(home: &Home, id: &str) -> Value {
    let output = home.run(PROGRAM, ["--json", "--status", id], b"");
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    reports(&output).remove(0)
}

/// The id that a refusal names in its hint.
fn dead_id(output: &Output) -> String {
    text(&output.stderr).split("--status ").nth(1).unwrap().trim().to_owned()
}

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
fn what_may_be_taken_later_is_kept_and_that_is_success() {
    let home = home();
    for answer in [
        "408 Slow",
        "425 Early",
        "429 Much",
        "500 Oops",
        "503 Busy",
        "302 Found\r\nLocation: http://127.0.0.1:1/",
        "307 Same\r\nLocation: http://127.0.0.1:1/",
    ] {
        let server = Server::status(answer);
        let output = send(&home, &server.url(), &[]);
        assert_eq!(code(&output), 0, "{answer}: {}", text(&output.stderr));
        let report = &reports(&output)[0];
        assert_eq!(
            (&report["outcome"], &report["state"]),
            (&json!("spooled"), &json!("pending")),
            "{answer}"
        );
        assert!(report["error"].as_str().unwrap().contains(&answer[..3]), "{answer}");
        assert_eq!(status(&home, report["id"].as_str().unwrap())["attempts"], 1);
        assert_eq!(server.requests.try_iter().count(), 1, "one attempt: {answer}");
        let output = send(&home, &server.url(), &["--no-spool"]);
        assert_eq!((code(&output), text(&output.stdout)), (75, ""), "{answer}");
    }
}

#[test]
fn an_answer_that_is_none_is_a_passing_failure() {
    let home = home();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let broken = [
        Server::start("garbage\r\n\r\n"),
        Server::start(""),
        Server::start("HTTP/1.1 202"),
        Server::start("HTTP/1.1 400 Bad\r\nContent-Length: 100\r\n\r\n{\"err"),
    ];
    let mut urls: Vec<String> = broken.iter().map(Server::url).collect();
    urls.push(format!("http://{closed}/ingest/ci"));
    urls.push(format!("http://{}/ingest/ci", silent.local_addr().unwrap()));
    for url in &urls {
        let output = send(&home, url, &["--timeout", "1s"]);
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        assert_eq!(reports(&output)[0]["outcome"], "spooled", "{url}");
        let output = send(&home, url, &["--timeout", "1s", "--no-spool"]);
        assert_eq!((code(&output), text(&output.stdout)), (75, ""), "{url}");
    }
}

#[test]
fn an_answer_that_is_cut_after_its_2xx_head_is_done() {
    let home = home();
    for answer in [
        "HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n{\"status\":\"que",
        "HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"st",
        "HTTP/1.1 202 Accepted\r\n\r\n",
    ] {
        let output = send(&home, &Server::start(answer).url(), &[]);
        assert_eq!((code(&output), reports(&output)[0]["outcome"].as_str()), (0, Some("queued")), "{answer}");
    }
    let said = "HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{\"status\":\"duplicate\"}";
    assert_eq!(reports(&send(&home, &Server::start(said).url(), &[]))[0]["outcome"], "duplicate");
}

#[test]
fn a_refusal_is_told_and_kept_as_dead() {
    let home = home();
    for (answer, exit) in [
        ("400 Bad", 65),
        ("413 Large", 65),
        ("422 Odd", 65),
        ("418 Tea", 65),
        ("401 Who", 77),
        ("403 No", 77),
        ("404 None", 67),
        ("410 Gone", 67),
    ] {
        let server = Server::status(answer);
        let output = send(&home, &server.url(), &[]);
        assert_eq!((code(&output), text(&output.stdout)), (exit, ""), "{answer}");
        let entry = status(&home, &dead_id(&output));
        assert_eq!((&entry["state"], &entry["outcome"]), (&json!("dead"), &json!("dead")), "{answer}");
        let output = send(&home, &server.url(), &["--no-spool"]);
        assert_eq!((code(&output), text(&output.stdout)), (exit, ""), "{answer}");
    }
    let rule = "HTTP/1.1 400 Bad\r\nContent-Length: 44\r\n\r\n{\"error\":\"is too odd\\u001b[2J\",\"field\":\"meta\"}";
    let output = send(&home, &Server::start(&rule.replace("44", "46")).url(), &[]);
    let said = text(&output.stderr);
    assert!(said.contains("400: meta: is too odd\\u{1b}[2J"), "{said:?}");
}

#[test]
fn retry_after_wins_over_the_backoff_in_both_directions() {
    use transit::clock::{Clock, SystemClock, Wall};
    let home = home();
    let wait = |retry_after: &str| {
        let before = SystemClock::new().wall();
        let server = Server::status(&format!("429 Much\r\nRetry-After: {retry_after}"));
        let output = send(&home, &server.url(), &[]);
        let report = reports(&output).remove(0);
        let next = Wall::parse(report["next_attempt_at"].as_str().unwrap()).unwrap();
        (next.0 - before.0) / 1000
    };
    // The upper ends leave room for a slow machine.
    assert!((1..5).contains(&wait("1")));
    assert!((600..630).contains(&wait("600")));
    assert!((3600..3630).contains(&wait("86400")));
    assert!((5..35).contains(&wait("soon")));
    let date = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(300);
    let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    assert!((298..330).contains(&wait(&date)));
}

#[test]
fn nothing_is_sent_that_breaks_a_rule() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let url = server.url();
    home.file("latin1", b"caf\xe9");
    home.file("large", "x".repeat(65_537));
    home.file("larger", "x".repeat(262_145));
    home.file("raw.json", r#"{"schema":"transit.ingest/1","event_key":"k","content":"x"}"#);
    let options: [(&[&str], i32); 15] = [
        (&["--conversation", "", "-m", "x"], 65),
        (&["--conversation", "c", "-m", ""], 65),
        (&["--conversation", &"c".repeat(201), "-m", "x"], 65),
        (&["--conversation", "c", "-m", "x", "--trigger", &"t".repeat(33)], 65),
        (&["--conversation", "c", "-m", "x", "--reply-url", "ftp://h/"], 65),
        (&["--conversation", "c", "-m", "x", "--meta", "trigger=x"], 65),
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
fn a_place_that_cannot_be_used_is_named_and_nothing_goes_out() {
    let server = Server::status("202 Accepted");
    let try_with = |prepare: &dyn Fn(&Home)| {
        let home = home();
        prepare(&home);
        let output = send(&home, &server.url(), &[]);
        assert_eq!(text(&output.stdout), "");
        assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
        code(&output)
    };
    let in_data = |home: &Home, name: &str, content: &[u8]| {
        std::fs::create_dir_all(home.data()).unwrap();
        std::fs::write(home.data().join(name), content).unwrap();
    };
    assert_eq!(try_with(&|home| in_data(home, "spool.db", &[b'x'; 8192])), 74, "no database");
    assert_eq!(try_with(&|home| std::fs::create_dir_all(home.data().join("spool.db")).unwrap()), 73);
    assert_eq!(try_with(&|home| drop(home.file("data", ""))), 73, "a file in the way");
    let newer = |home: &Home| {
        send(home, &server.url(), &["--spool-only"]);
        // The version of the schema stands in the head of the file once the log is in it.
        let db = rusqlite::Connection::open(home.data().join("spool.db")).unwrap();
        db.pragma_update(None, "user_version", 4711).unwrap();
    };
    assert_eq!(try_with(&newer), 78);
    let truncated = |home: &Home| {
        send(home, &server.url(), &["--spool-only"]);
        let path = home.data().join("spool.db");
        rusqlite::Connection::open(&path).unwrap().pragma_update(None, "journal_mode", "DELETE").unwrap();
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(5000).unwrap();
    };
    assert_eq!(try_with(&truncated), 74);
    assert_eq!(server.requests.try_iter().count(), 0);
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let home = home();
    let mut command = home.command(PROGRAM);
    command.env("TRANSIT_DATA_DIR", "/proc/self/nothing");
    let to = ["http://127.0.0.1:1/ingest/ci", "--secret-file", "secret", "--conversation", "c", "-m", "hi"];
    let output = command.args(to).output().unwrap();
    assert_eq!((code(&output), text(&output.stdout)), (73, ""));
    assert!(text(&output.stderr).contains("/proc/self/nothing"), "{}", text(&output.stderr));
}

#[test]
fn a_full_spool_asks_to_come_back_later() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    send(&home, &server.url(), &["--spool-only"]);
    let db = rusqlite::Connection::open(home.data().join("spool.db")).unwrap();
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
                INSERT INTO outbox (id, kind, dest, body, created_at, updated_at, next_attempt_at, longest_wait)
                SELECT 'evt_' || i, kind, dest, body, created_at, updated_at, next_attempt_at, longest_wait
                FROM outbox, n";
    assert_eq!(db.execute(fill, []).unwrap(), 9999);
    let output = send(&home, &server.url(), &[]);
    assert_eq!((code(&output), text(&output.stdout)), (75, ""), "{}", text(&output.stderr));
    assert_eq!(server.requests.try_iter().count(), 0);
    assert_eq!(code(&send(&home, &server.url(), &["--no-spool"])), 0);
}

#[test]
fn a_sender_that_is_killed_leaves_its_event_to_others() {
    use transit::clock::{Clock, SystemClock};
    use transit::store::process::Process;
    use transit::store::spool::Spool;
    let home = home();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/ingest/ci", listener.local_addr().unwrap());
    let mut command = home.command(PROGRAM);
    command.args([&url, "--secret-file", "secret", "--conversation", "c", "--event-key", "k", "-m", "hi"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    assert!(!read_request(&mut stream).is_empty(), "it is in the middle of its attempt");
    let now = SystemClock::new().wall();
    let mut spool = Spool::open(&home.data()).unwrap();
    let mut due = || spool.outbox().claim_due(EntryKind::Event, Process::current(), now, 9).unwrap();
    assert!(due().is_empty(), "nobody else takes it meanwhile");
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "", "nothing was said of it");
    let free = due();
    assert_eq!((free.len(), free[0].event_key.as_deref(), free[0].attempts), (1, Some("k"), 0));
}

#[test]
fn a_disk_that_fills_up_ends_it_with_one_line() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    let mut command = home.foreign("sh");
    // A limit on file sizes is the full disk that needs no rights.
    let script = "ulimit -f 8; exec transit-send \"$0\" --secret-file secret --conversation c --json -m hi";
    let output = command.args(["-c", script, &server.url()]).output().unwrap();
    assert!(matches!(code(&output), 73 | 74), "{output:?}");
    assert_eq!((text(&output.stdout), text(&output.stderr).contains("panicked")), ("", false));
    assert_eq!(server.requests.try_iter().count(), 0, "what is not kept is not sent");
    assert_eq!(code(&send(&home, &server.url(), &[])), 0, "it recovers by itself");
}

#[test]
fn a_message_goes_to_the_daemon() {
    let home = home();
    let output = home.run(PROGRAM, ["jess@titan", "-m", "hi"], b"");
    assert_eq!((code(&output), text(&output.stdout)), (69, ""));
    assert!(text(&output.stderr).contains("no daemon listens"), "{}", text(&output.stderr));
    std::fs::create_dir_all(home.data()).unwrap();
    let listener = UnixListener::bind(home.data().join("transit.sock")).unwrap();
    let ask = |args: &[&str], answer: &'static str| {
        std::thread::scope(|scope| {
            let daemon = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut line = String::new();
                std::io::BufRead::read_line(&mut std::io::BufReader::new(&stream), &mut line).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                serde_json::from_str::<Value>(&line).unwrap()
            });
            let output = home.run(PROGRAM, args, b"from stdin\n");
            (output, daemon.join().unwrap())
        })
    };
    let (output, call) = ask(
        &["jess@titan", "--as", "bob", "--reply-to", "tx_00112233445f", "--json"],
        "{\"ok\":true,\"id\":\"tx_1\",\"state\":\"committed\"}\n",
    );
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert_eq!(
        call,
        json!({"op": "send", "to": "jess@titan", "body": "from stdin\n", "reply_to": "tx_00112233445f", "as_agent": "bob"})
    );
    let report = &reports(&output)[0];
    assert_eq!(
        (&report["id"], &report["kind"], &report["outcome"]),
        (&json!("tx_1"), &json!("message"), &json!("committed"))
    );
    for (answer, exit) in [
        ("{\"ok\":false,\"code\":\"no_route\",\"error\":\"nobody\"}\n", 67),
        ("{\"ok\":false,\"code\":\"not_member\",\"error\":\"no\"}\n", 77),
        ("{\"ok\":false,\"code\":\"rate_limited\",\"error\":\"no\"}\n", 75),
        ("{\"ok\":true}\n", 76),
        ("nonsense\n", 76),
        ("", 69),
    ] {
        let (output, _) = ask(&["#ops", "-m", "hi"], answer);
        assert_eq!((code(&output), text(&output.stdout)), (exit, ""), "{answer}");
    }
    for (args, exit) in [
        (&["jess@titan", "-m", "hi", "--conversation", "c"][..], 2),
        (&["jess@titan", "-m", ""], 65),
        (&["jess@titan", "-m", "hi", "--as", "Nope"], 65),
    ] {
        assert_eq!(code(&home.run(PROGRAM, args, b"")), exit, "{args:?}");
    }
}

#[test]
fn a_proxy_is_gone_through_and_its_password_is_not_shown() {
    let home = home();
    let proxy = Server::start("HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n");
    let run = |no_proxy: &str| {
        let mut command = home.command(PROGRAM);
        command.env("HTTP_PROXY", format!("http://u:hush@{}", proxy.at)).env("NO_PROXY", no_proxy);
        let to = ["http://worker.invalid:8787/ingest/ci", "--secret-file", "secret", "--conversation", "c"];
        command.args(to).args(["-m", "hi", "--json", "--timeout", "5s"]).output().unwrap()
    };
    let output = run("");
    let (head, _) = proxy.request();
    assert!(head.starts_with("CONNECT worker.invalid:8787 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nHost: worker.invalid:8787"), "{head}");
    let report = &reports(&output)[0];
    assert_eq!(report["outcome"], "spooled");
    assert!(report["error"].as_str().unwrap().contains("407"), "{report}");
    assert!(!format!("{output:?}").contains("hush"));
    assert_eq!(reports(&run("invalid"))[0]["outcome"], "spooled");
    assert_eq!(proxy.requests.try_iter().count(), 0);
}
