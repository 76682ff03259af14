//! What is kept, where that can be, and what happens where it cannot.

use std::net::TcpListener;

use transit::store::spool::outbox::EntryKind;

use super::{PROGRAM, Server, code, home, read_request, send};
use crate::support::{Home, text};

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

/// Makes 10,000 entries of the one that waits; they are due in an hour, so that nobody tries them.
pub(super) fn fill(home: &Home) {
    let db = rusqlite::Connection::open(home.data().join("spool.db")).unwrap();
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
                INSERT INTO outbox (id, kind, dest, body, created_at, updated_at, next_attempt_at, longest_wait)
                SELECT 'evt_' || i, kind, dest, body, created_at, updated_at, next_attempt_at + 3600000, 3600000
                FROM outbox, n";
    assert_eq!(db.execute(fill, []).unwrap(), 9999);
}

#[test]
fn a_full_spool_asks_to_come_back_later() {
    let (home, server) = (home(), Server::status("202 Accepted"));
    send(&home, &server.url(), &["--spool-only"]);
    fill(&home);
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
    let mut due = || spool.outbox().claim_due(EntryKind::Event, Process::current(), now, now, 9).unwrap();
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
fn a_full_disk_behind_the_daemon_is_told_as_it_is_for_an_event() {
    let home = home();
    std::fs::create_dir(home.data()).unwrap();
    home.file("config.json", r#"{"url":"http://127.0.0.1:1","host":"titan"}"#);
    home.file("data/token", "t0ken\n");
    let ready = home.path("ready");
    let mut daemon = home.foreign("sh");
    // A limit on file sizes is the full disk that needs no rights.
    let script = "ulimit -f 1500; exec transitd run --ready-file \"$0\"";
    let mut daemon = crate::support::Background::start(daemon.args(["-c", script]).arg(&ready));
    daemon.ready(&ready);
    let mut agent = home.command("transit-agent");
    let agent = crate::support::Background::start(agent.args(["listen", "--name", "bob"]));
    assert!(agent.line().contains("registered"));
    let body = "x".repeat(60_000);
    let say = || home.run(PROGRAM, ["omar@hermes", "--as", "bob", "-m", &body], b"");
    let kept = std::iter::repeat_with(say).take(20).position(|output| code(&output) != 0).unwrap();
    assert!(kept > 0, "some of them found room");
    let output = say();
    assert!(matches!(code(&output), 73 | 74), "{output:?}");
    assert_eq!((text(&output.stdout), text(&output.stderr).contains("panicked")), ("", false));
    let status = home.run("transitd", ["status", "--json"], b"");
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["outbox"], kept, "what was accepted is there");
}

#[test]
fn a_full_spool_is_told_to_the_sender_of_a_message_too() {
    let home = home();
    send(&home, "http://127.0.0.1:1/ingest/ci", &["--spool-only"]);
    fill(&home);
    home.file("config.json", r#"{"url":"http://127.0.0.1:1","host":"titan"}"#);
    home.file("data/token", "t0ken\n");
    let ready = home.path("ready");
    let mut daemon = home.command("transitd");
    let mut daemon = crate::support::Background::start(daemon.args(["run", "--ready-file"]).arg(&ready));
    daemon.ready(&ready);
    let mut agent = home.command("transit-agent");
    let agent = crate::support::Background::start(agent.args(["listen", "--name", "bob"]));
    assert!(agent.line().contains("registered"));
    let output = home.run(PROGRAM, ["omar@hermes", "--as", "bob", "-m", "hi"], b"");
    assert_eq!((code(&output), text(&output.stdout)), (75, ""), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("spool_full"), "{}", text(&output.stderr));
}

#[test]
fn a_spool_that_takes_no_more_names_the_way_out() {
    let home = home();
    let kept = || send(&home, "http://127.0.0.1:1/ingest/ci", &["--spool-only"]);
    assert_eq!(code(&kept()), 0);
    fill(&home);
    let full = kept();
    assert_eq!((code(&full), text(&full.stdout)), (75, ""));
    assert!(text(&full.stderr).contains("transit-spool flush"), "{}", text(&full.stderr));
    home.file("data/spool.db", "no database at all");
    let damaged = kept();
    assert_eq!((code(&damaged), text(&damaged.stdout)), (74, ""));
    assert!(text(&damaged.stderr).contains("transit-spool export"), "{}", text(&damaged.stderr));
}
