//! `transitd enroll` against Workers that take the code, and others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use super::world::{Adapter, TOKEN, Worker, impostor, nobody, outcome, start, status_until};
use crate::support::{Background, Home, LONG};
use transit::clock::{Clock, SystemClock};
use transit::limits::ENROLL_TTL;
use transit::store::ledger::{Db, credentials, directory};

/// An HTTP server with one answer; it tells what it was asked.
fn desk(status: u16, answer: &Value) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (tell, told) = channel();
    let body = answer.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream: std::net::TcpStream = stream;
            let (mut request, mut bytes) = (String::new(), [0; 4096]);
            while !request.ends_with('}') {
                let read = stream.read(&mut bytes).unwrap();
                if read == 0 {
                    // Somebody whose server had this port before.
                    break;
                }
                request.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
            }
            if request.is_empty() {
                continue;
            }
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            )
            .unwrap();
            if tell.send(request).is_err() {
                return;
            }
        }
    });
    (at, told)
}

fn welcome() -> Value {
    json!({ "device_token": TOKEN, "host_id": "hst_00000000000a", "host": "titan", "org": "default" })
}

fn enroll(home: &Home, at: SocketAddr, more: &[&str]) -> (i32, String, String) {
    let mut command = home.command("transitd");
    command.args(["enroll", "--url", &format!("http://{at}/"), "--code", "abcd-efgh"]).args(more);
    outcome(&mut command)
}

#[test]
fn a_code_becomes_a_token_that_only_the_owner_reads() {
    let home = Home::new();
    let (at, asked) = desk(200, &welcome());
    let (code, out, err) = enroll(&home, at, &["--host", "titan"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, "Enrolled host titan (hst_00000000000a) in default.\n");
    let request = asked.recv_timeout(LONG).unwrap();
    assert!(request.starts_with("POST /api/daemon/enroll HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\"code\":\"ABCD-EFGH\"") && request.contains("\"daemon_ver\":"), "{request}");
    let token = home.data().join("token");
    assert_eq!(std::fs::read_to_string(&token).unwrap(), format!("{TOKEN}\n"));
    for path in [token, home.path("config.json")] {
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let (code, out, err) = enroll(&home, at, &[]);
    assert_eq!((code, out.as_str()), (73, ""));
    assert!(err.contains("--force"), "{err}");
    let (code, out, _) = enroll(&home, at, &["--force", "--json"]);
    assert_eq!(code, 0);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["host_id"], "hst_00000000000a");
}

#[test]
fn a_failed_enrolment_has_its_code_and_leaves_nothing() {
    let cases: [(SocketAddr, &[&str], i32); 12] = [
        (desk(401, &json!({ "error": "Unauthorized" })).0, &[], 77),
        (desk(403, &json!({})).0, &[], 77),
        (desk(429, &json!({})).0, &[], 75),
        (desk(302, &json!({})).0, &[], 76),
        (desk(500, &json!({})).0, &[], 69),
        (desk(404, &json!({})).0, &[], 76),
        (desk(200, &json!({ "host": "titan" })).0, &[], 76),
        (desk(200, &json!({ "device_token": "", "host_id": "h", "host": "titan", "org": "o" })).0, &[], 76),
        (desk(200, &json!({ "device_token": TOKEN, "host_id": "h", "host": "No!", "org": "o" })).0, &[], 76),
        (desk(200, &welcome()).0, &["--host", "hermes"], 78),
        (impostor(b"SSH-2.0-OpenSSH_9.2\r\n", true), &[], 76),
        (nobody(), &[], 69),
    ];
    for (at, more, wanted) in cases {
        let home = Home::new();
        let (code, out, err) = enroll(&home, at, more);
        assert_eq!((code, out.as_str()), (wanted, ""), "{err}");
        assert!(err.starts_with("transitd: ") && !err.contains(TOKEN), "{err}");
        assert!(!home.data().join("token").exists() && !home.path("config.json").exists());
    }
}

#[test]
fn a_code_is_not_used_up_when_its_token_could_not_be_kept() {
    let (at, asked) = desk(200, &welcome());
    let in_the_way = |path: &str| {
        let home = Home::new();
        std::fs::create_dir_all(home.path(path)).unwrap();
        let (code, out, err) = enroll(&home, at, &["--force"]);
        assert_eq!(out, "", "{path}");
        assert!(err.starts_with("transitd: enrol this host: "), "{err}");
        code
    };
    assert_eq!((in_the_way("config.json"), in_the_way("data/token")), (66, 73));
    // Where nobody can make a file, not even root.
    for config in ["/proc/none/config.json", "/proc/config.json"] {
        let home = Home::new();
        let mut command = home.command("transitd");
        command.args(["enroll", "--url", &format!("http://{at}/"), "--code", "abcd-efgh"]);
        let (code, _, err) = outcome(command.env("TRANSIT_CONFIG", config));
        assert_eq!(code, 73, "{err}");
    }
    assert!(asked.try_recv().is_err(), "nobody was asked");
}

#[test]
fn a_code_that_is_wrong_used_or_too_old_is_no_longer_one() {
    let home = Home::new();
    let ready = home.path("worker.ready");
    let mut command = home.command("transit-worker");
    command.args(["serve", "--listen", "127.0.0.1:0", "--ready-file"]);
    let mut worker = Background::start(command.arg(&ready));
    let url = worker.ready(&ready)["url"].as_str().unwrap().to_owned();
    let redeem = |code: &str| {
        let mut command = home.command("transitd");
        outcome(command.args(["enroll", "--force", "--url", &url, "--code", code]))
    };
    let issued = home.run("transit-worker", ["host", "enroll", "titan", "--json"], b"");
    let issued: Value = serde_json::from_slice(&issued.stdout).unwrap();
    let code = issued["code"].as_str().unwrap();
    let old = "AAAA-BBBB";
    let db = Db::open(&home.data().join("worker.db")).unwrap();
    db.write(|tx| {
        let (org, long_ago) =
            (directory::org(tx, "default")?.unwrap(), SystemClock::new().wall() - ENROLL_TTL);
        let hash = credentials::code_hash("AAAA-BBBB");
        directory::issue_code(tx, &org.id, &"hermes".parse().unwrap(), &hash, long_ago)
    })
    .unwrap();
    assert_eq!(redeem(code).0, 0);
    for code in [code, old, "ZZZZ-ZZZZ", ""] {
        let (exit, out, err) = redeem(code);
        assert_eq!((exit, out.as_str()), (77, ""), "{code}: {err}");
        assert!(err.contains("transit-worker host enroll"), "the way out: {err}");
    }
    drop(worker);
    assert_eq!(redeem(old).0, 69);
}

#[test]
fn a_daemon_that_runs_connects_as_soon_as_its_host_is_enrolled() {
    let worker = Worker::start();
    let home = Home::new();
    let _daemon = start(&home);
    let status = status_until(&home, |_| true);
    assert_eq!((&status["last_error"], &status["enrolled"]), (&json!("not enrolled"), &json!(false)));
    let (mut jess, told) = Adapter::register(&home, "s1", Some("jess"));
    assert!(told["address"] != "jess@titan", "{told}");
    // The desk gives the token, the scripted Worker takes it: the configuration is pointed at the latter.
    let (at, _asked) = desk(200, &welcome());
    assert_eq!(enroll(&home, at, &[]).0, 0);
    home.file("config.json", json!({ "url": format!("http://{}", worker.at), "host": "titan" }).to_string());
    assert_eq!(outcome(home.command("transitd").arg("kick")).0, 0);
    let status = status_until(&home, |status| status["connected"] == true);
    assert_eq!((&status["host"], &status["org"]), (&json!("titan"), &json!("default")));
    assert_eq!(jess.next(), None, "a session that was told another address registers again");
    assert_eq!(Adapter::register(&home, "s1", Some("jess")).1["address"], "jess@titan");
}
