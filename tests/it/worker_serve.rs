//! `transit-worker serve` as a service: when it is ready, what it refuses to begin, how it ends, and what it
//! notices of the commands beside it.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Background, Home, eventually, http, request, text};

struct Server {
    process: Background,
    ready: Value,
}

impl Server {
    fn start(home: &Home, args: &[&str]) -> Self {
        let mut command = serve(home);
        let mut process = Background::start(command.args(["--ready-file", "ready"]).args(args));
        // The file of a server that was killed may be there for a moment yet.
        let ready = eventually(|| {
            let ready = process.ready(&home.path("ready"));
            (ready["pid"] == process.pid()).then_some(ready)
        });
        Self { process, ready }
    }

    fn at(&self) -> SocketAddr {
        self.ready["listen"].as_str().unwrap().parse().unwrap()
    }

    /// Ends it in order, and answers with what it said.
    fn stop(mut self) -> Vec<String> {
        self.process.signal(Signal::TERM);
        assert!(self.process.wait().success());
        std::iter::from_fn(|| self.process.last_error()).collect()
    }
}

fn serve(home: &Home) -> Command {
    let mut command = home.command("transit-worker");
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    command
}

/// Runs it; it must end by itself, with this exit code and a line on stderr that holds `said`.
#[track_caller]
fn refused(command: &mut Command, code: i32, said: &str) {
    let output = command.output().unwrap();
    let words = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words}");
    assert!(words.lines().any(|line| line.starts_with("transit-worker: ") && line.contains(said)), "{words}");
}

#[test]
fn it_says_where_it_is_and_ends_in_order() {
    let home = Home::new();
    let server = Server::start(&home, &[]);
    assert_eq!(server.ready["pid"], server.process.pid());
    assert_eq!(server.ready["url"], format!("http://{}", server.at()));
    assert_eq!(http(server.at(), &request("GET", "/healthz", &[], b"")).status(), 200);
    let said = server.stop().join("\n");
    let key = home.data().join("worker.db.key");
    assert!(said.contains(key.to_str().unwrap()), "it says which master key it uses: {said}");
    assert!(!home.data().join("worker.db-wal").exists(), "the log is in the database");
    assert!(!home.path("ready").exists(), "nobody waits for a server that has stopped");
}

#[test]
fn one_server_a_database() {
    let home = Home::new();
    let server = Server::start(&home, &[]);
    let in_use = format!("in use by process {}", server.process.pid());
    refused(serve(&home).args(["--ready-file", "ready"]), 75, &in_use);
    refused(&mut serve(&home), 75, "stop that one first");
    assert!(home.path("ready").exists(), "it is the first one's");
    server.process.signal(Signal::KILL);
    drop(server);
    Server::start(&home, &[]).stop();
}

#[test]
fn a_ready_file_that_the_next_server_has_written_stays() {
    let home = Home::new();
    let server = Server::start(&home, &[]);
    let next = home.file("ready", "{\"pid\":1}\n");
    server.stop();
    assert!(next.exists());
}

#[test]
fn what_it_needs_must_be_right_before_it_begins() {
    let home = Home::new();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    refused(serve(&home).env("TRANSIT_MASTER_KEY", "short"), 78, "32 bytes");
    refused(serve(&home).args(["--database", "postgres://h/db"]), 78, "knows sqlite");
    refused(serve(&home).env("TRANSIT_LOG", "transit=loud"), 78, "TRANSIT_LOG");
    refused(serve(&home).args(["--ready-file", "none/ready"]), 73, "none/ready");
    let source = ["source", "create", "ci", "--target", "a@b"];
    assert!(home.run("transit-worker", source, b"").status.success());
    refused(serve(&home).env("TRANSIT_MASTER_KEY", key), 78, "master key");
    home.file("garbage.db", "no database at all ".repeat(500));
    refused(serve(&home).args(["--database", "garbage.db"]), 74, "damaged");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = home.command("transit-worker");
    refused(command.args(["serve", "--listen", &taken.local_addr().unwrap().to_string()]), 69, "listen");
    let mut command = home.command("transit-worker");
    assert_eq!(command.args(["serve", "--listen", "nowhere"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn it_notices_what_the_commands_beside_it_change() {
    let home = Home::new();
    let server = Server::start(&home, &["--public-url", "https://t.example/"]);
    assert_eq!(server.ready["url"], "https://t.example");
    let health = || http(server.at(), &request("GET", "/ingest/ci/health", &[], b"")).status();
    let run = |args: &str| {
        let output = home.run("transit-worker", args.split(' '), b"");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    assert_eq!(health(), 404);
    let made = run("source create ci --target bob@demo --json");
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made["source"]["endpoint"], "https://t.example/ingest/ci", "the address is the server's");
    assert_eq!(health(), 200);
    run("source pause ci");
    assert_eq!(health(), 404);
    run("source resume ci");
    assert_eq!(health(), 200);
    run("source delete ci");
    assert_eq!(health(), 404);
    server.stop();
}

#[test]
fn its_log_can_be_json_and_quieter() {
    let home = Home::new();
    let said = Server::start(&home, &["--log-format", "json"]).stop();
    let lines: Vec<Value> = said.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["level"] == "INFO" && line["message"] == "serving"), "{said:?}");
    let mut quiet =
        Background::start(serve(&home).args(["--ready-file", "quiet"]).env("TRANSIT_LOG", "warn"));
    quiet.ready(&home.path("quiet"));
    quiet.signal(Signal::INT);
    assert!(quiet.wait().success());
    assert_eq!(quiet.last_error(), None);
}
