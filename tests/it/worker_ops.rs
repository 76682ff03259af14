//! `transit-worker serve` as its operator meets it: probes and numbers, stopping and starting under load, what systemd
//! is told, and what stands in the log.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::rig::{Rig, SECRET, signed_event, until};
use crate::support::{Background, Home, LONG, Sink, eventually, http, request, text};

fn get(at: SocketAddr, path: &str) -> crate::support::Http {
    http(at, &request("GET", path, &[], b""))
}

fn serve(home: &Home, args: &[&str]) -> Command {
    let mut command = home.command("transit-worker");
    command.args(["serve", "--listen", "127.0.0.1:0", "--ready-file", "ready"]).args(args);
    command
}

fn address(ready: &Value, name: &str) -> SocketAddr {
    ready[name].as_str().unwrap().parse().unwrap()
}

/// Waits until the server has one connection in hand.
fn until_it_has_one(metrics: SocketAddr) {
    let has_one = || text(&get(metrics, "/metrics").body).contains("transit_worker_connections 1\n");
    eventually(|| has_one().then_some(()));
}

#[test]
fn probes_can_have_a_listener_of_their_own() {
    let home = Home::new();
    let mut beside = Background::start(&mut serve(&home, &[]));
    let at = address(&beside.ready(&home.path("ready")), "listen");
    assert_eq!(["/healthz", "/readyz", "/metrics"].map(|path| get(at, path).status()), [200; 3]);
    assert_eq!(http(at, &request("POST", "/metrics", &[], b"")).status(), 405);
    beside.signal(Signal::TERM);
    assert!(beside.wait().success());
    fs::remove_file(home.path("ready")).ok();
    let mut apart = Background::start(&mut serve(&home, &["--metrics-listen", "127.0.0.1:0"]));
    let ready = apart.ready(&home.path("ready"));
    let (at, own) = (address(&ready, "listen"), address(&ready, "metrics_listen"));
    while !apart.error().contains(&own.to_string()) {}
    assert_eq!(["/healthz", "/readyz", "/metrics"].map(|path| get(at, path).status()), [200, 404, 404]);
    assert_eq!(["/healthz", "/readyz", "/metrics"].map(|path| get(own, path).status()), [200; 3]);
    assert_eq!(get(own, "/api/daemon/ws").status(), 404);
    let page = get(own, "/metrics");
    assert_eq!(page.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(text(&page.body).contains("transit_worker_ready 1\n"));
}

#[test]
fn a_request_in_hand_is_answered_before_the_end_and_probes_say_that_it_comes() {
    let home = Home::new();
    let mut server = Background::start(&mut serve(&home, &["--metrics-listen", "127.0.0.1:0"]));
    let ready = server.ready(&home.path("ready"));
    let (at, own) = (address(&ready, "listen"), address(&ready, "metrics_listen"));
    assert!(home.run("transit-worker", ["source", "create", "ci", "--target", "a@b"], b"").status.success());
    let request = request("POST", "/ingest/ci", &[], b"0123456789");
    let request = text(&request).replace("Connection: close\r\n", "");
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(&request.as_bytes()[..request.len() - 5]).unwrap();
    until_it_has_one(own);
    server.signal(Signal::TERM);
    let told = eventually(|| Some(get(own, "/readyz")).filter(|told| told.status() == 503));
    assert_eq!(told.json(), json!({ "ready": false, "reason": "stopping" }));
    stream.write_all(&request.as_bytes()[request.len() - 5..]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("connection: close\r\n"), "{answer}");
    assert!(server.wait().success());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let home = Home::new();
    let mut server = Background::start(&mut serve(&home, &["--metrics-listen", "127.0.0.1:0"]));
    let ready = server.ready(&home.path("ready"));
    let (at, own) = (address(&ready, "listen"), address(&ready, "metrics_listen"));
    let mut slow = TcpStream::connect(at).unwrap();
    slow.write_all(b"POST /ingest/ci HTTP/1.1\r\n").unwrap();
    until_it_has_one(own);
    server.signal(Signal::TERM);
    eventually(|| TcpStream::connect(at).is_err().then_some(()));
    server.signal(Signal::TERM);
    assert!(!server.wait().success());
}

/// A server that is given its listening socket, as systemd does it.
fn serve_at(home: &Home, listener: &TcpListener) -> Background {
    let _ = fs::remove_file(home.path("ready"));
    let server = serve(home, &[]);
    let mut shell = home.foreign("sh");
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
    shell.args(["-c", script]).arg(server.get_program()).args(server.get_args());
    let passed = Stdio::from(OwnedFd::from(listener.try_clone().unwrap()));
    let mut server = Background::start_with(&mut shell, passed);
    let ready = server.ready(&home.path("ready"));
    assert_eq!(address(&ready, "listen"), listener.local_addr().unwrap());
    server
}

#[test]
fn nobody_is_refused_and_nothing_is_lost_when_it_is_restarted_under_load() {
    const RESTARTS: usize = 3;
    const SENDERS: usize = 4;
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let mut server = serve_at(&home, &listener);
    let secret = home.file("secret", SECRET);
    let args = ["source", "create", "ci", "--target", "bob@demo", "--rate", "100000", "--burst", "100000"];
    let made =
        home.run("transit-worker", args.iter().chain(&["--secret-file", secret.to_str().unwrap()]), b"");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let code = home.run("transit-worker", ["host", "enroll", "demo", "--json"], b"").stdout;
    let code: Value = serde_json::from_slice(&code).unwrap();
    let code = code["code"].as_str().unwrap();
    let enrolled = home.run("transitd", ["enroll", "--url", &format!("http://{at}"), "--code", code], b"");
    assert!(enrolled.status.success(), "{}", text(&enrolled.stderr));
    let mut daemon = Background::start(home.command("transitd").args(["run", "--ready-file", "daemon"]));
    daemon.ready(&home.path("daemon"));
    let is_connected = || {
        let waited = home.run("transitd", ["status", "--wait", "30s", "--json"], b"");
        assert!(waited.status.success(), "{}", text(&waited.stderr));
    };
    is_connected();
    let is_over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut sent = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let event = signed_event("ci", SECRET, &format!("{sender}-{sent}"), "under load");
                        // Neither a refused connection nor an answer that does not come would pass here.
                        assert_eq!(http(at, &event).status(), 202);
                        sent += 1;
                    }
                    sent
                })
            })
            .collect();
        for _ in 0..RESTARTS {
            server.signal(Signal::TERM);
            assert!(server.wait().success());
            server = serve_at(&home, &listener);
            is_connected();
        }
        is_over.store(true, Ordering::Relaxed);
        senders.into_iter().map(|sender| sender.join().unwrap()).sum::<usize>()
    });
    let listed = home.run("transit-worker", ["delivery", "list", "--json"], b"").stdout;
    assert_eq!(text(&listed).lines().count(), sent);
    assert!(sent > RESTARTS * SENDERS, "{sent} events are no load");
}

#[test]
fn systemd_is_told_when_it_is_ready_alive_and_about_to_end() {
    let home = Home::new();
    let socket = home.path("notify");
    let told = UnixDatagram::bind(&socket).unwrap();
    told.set_read_timeout(Some(LONG)).unwrap();
    let (tell, words) = channel();
    // It is read all the time, as systemd does: who tells it waits for that.
    std::thread::spawn(move || {
        let mut bytes = [0; 200];
        while let Ok(length) = told.recv(&mut bytes) {
            let _ = tell.send(text(&bytes[..length]).trim().to_owned());
        }
    });
    let next = || words.recv_timeout(LONG).unwrap();
    let mut command = serve(&home, &[]);
    let mut server = Background::start(command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "20000"));
    let mut told = BTreeMap::new();
    eventually(|| {
        *told.entry(next()).or_insert(0) += 1;
        (told.contains_key("READY=1") && told.get("WATCHDOG=1").is_some_and(|&times| times >= 3))
            .then_some(())
    });
    // A request in hand keeps it for a while.
    let mut stream = TcpStream::connect(address(&server.ready(&home.path("ready")), "listen")).unwrap();
    let post = request("POST", "/api/daemon/enroll", &[("Expect", "100-continue")], b"x");
    stream.write_all(&post[..post.len() - 1]).unwrap();
    stream.read_exact(&mut [0; 25]).unwrap();
    server.signal(Signal::TERM);
    eventually(|| (next() == "STOPPING=1").then_some(()));
    stream.write_all(b"x").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "it is told at the beginning: {answer}");
    assert!(server.wait().success());
}

#[test]
fn too_few_descriptors_and_a_socket_that_is_none_are_told_before_it_begins() {
    let home = Home::new();
    let server = serve(&home, &[]);
    let run = |script: &str| {
        let mut shell = home.foreign("sh");
        shell.args(["-c", script]).arg(server.get_program()).args(server.get_args());
        let output = shell.stdin(Stdio::null()).output().unwrap();
        (output.status.code(), text(&output.stderr).to_owned())
    };
    let (code, said) = run("ulimit -n 200; exec \"$0\" \"$@\"");
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("200 open files are too few") && said.contains("ulimit -n"), "{said}");
    let (code, said) = run("exec 3</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"");
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("LISTEN_FDS"), "{said}");
}

#[test]
fn the_units_of_the_worker_start_what_there_is_and_let_it_do_nothing_else() {
    let home = Home::new();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    let ours = format!("{}/", crate::support::programs().display());
    let mut units = Vec::new();
    for name in ["transit-worker.service", "transit-worker.socket"] {
        let unit = fs::read_to_string(folder.join(name)).unwrap();
        units.push((home.file(name, unit.replace("/usr/local/bin/", &ours)), unit));
    }
    let service = &units[0].1;
    let of = |name: &str| service.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let mut words = of("ExecStart=/usr/local/bin/").split(' ');
    let ran = home.command(words.next().unwrap()).args(words).arg("--help").output().unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let user = fs::read_to_string(folder.join("transit-worker.sysusers")).unwrap();
    assert_eq!(user.split_whitespace().nth(1), Some(of("User=")));
    let database = of("Environment=TRANSIT_DATABASE=sqlite:/var/lib/");
    assert!(database.starts_with(of("StateDirectory=")), "{database}");
    for hardened in [
        "ProtectSystem=strict",
        "NoNewPrivileges=yes",
        "MemoryDenyWriteExecute=yes",
        "CapabilityBoundingSet=",
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
        "SystemCallFilter=@system-service",
        "WatchdogSec=30s",
        "Type=notify",
    ] {
        assert!(service.lines().any(|line| line == hardened), "{hardened}");
    }
    let analyze = |args: &[&str], files: &[&std::path::PathBuf]| {
        home.foreign("systemd-analyze").args(args).args(files).output()
    };
    let files: Vec<_> = units.iter().map(|(file, _)| file).collect();
    match analyze(&["verify", "--man=no"], &files) {
        Err(_) => crate::support::left_out("what needs systemd-analyze, which is not installed"),
        Ok(checked) => {
            let said = text(&checked.stderr);
            assert!(checked.status.success() && said.is_empty(), "{said}");
            // Ten times what it calls the exposure, of 100.
            let secure = analyze(&["security", "--offline=yes", "--threshold=20"], &files[..1]).unwrap();
            assert!(secure.status.success(), "{}{}", text(&secure.stdout), text(&secure.stderr));
        }
    }
}

#[test]
fn no_secret_token_body_or_query_of_a_reply_address_is_in_any_log() {
    const BODY: &str = "marker-of-a-body";
    const ANSWER: &str = "marker-of-an-answer";
    const QUERY: &str = "marker-of-a-query";
    let sink = Sink::start(&[500, 200]);
    let mut rig = Rig::start(&format!("http://{}/reply/a?token={QUERY}", sink.at));
    rig.kill_daemon();
    rig.kill_worker();
    // Both once more, with all that they can say.
    let mut servers = Vec::new();
    for (program, ready, args) in [
        ("transit-worker", "w", vec!["serve", "--allow-private-callbacks", "--listen"]),
        ("transitd", "d", vec!["run"]),
    ] {
        let mut command = rig.home.command(program);
        command.args(args);
        if program == "transit-worker" {
            command.arg(rig.at.to_string());
        }
        command.args(["-vv", "--log-format", "json", "--ready-file", ready]).env("TRANSIT_LOG", "trace");
        let mut server = Background::start(&mut command);
        server.ready(&rig.home.path(ready));
        servers.push(server);
    }
    let mut bob = rig.listen("bob");
    let posted = rig.post("k1", BODY);
    assert_eq!(posted.status(), 202);
    assert_eq!(http(rig.at, &signed_event("ci", "another-marker-secret", "k", BODY)).status(), 401);
    let delivered = bob.delivered();
    let id = delivered["id"].as_str().unwrap().to_owned();
    bob.ack(&id);
    rig.call("bob", "read_message", &json!({ "id": id }));
    rig.call(
        "bob",
        "chat_reply",
        &json!({ "delivery_id": id, "conversation_id": "main", "message": ANSWER }),
    );
    let sent = rig.home.run("transit-send", ["nobody@nowhere", "--as", "bob", "-m", BODY], b"");
    assert!(!sent.stderr.is_empty());
    // The first attempt fails, which is logged; the second one is taken.
    until(&rig, &["delivery", "show", &id], |shown| shown["state"] == "handled");
    let token = fs::read_to_string(rig.home.data().join("token")).unwrap();
    let mut lines = Vec::new();
    for mut server in servers.into_iter().rev() {
        server.signal(Signal::TERM);
        assert!(server.wait().success());
        lines.extend(std::iter::from_fn(|| server.last_error()));
    }
    assert!(lines.iter().any(|line| line.contains("a reply could not be posted")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("a message was refused")), "{lines:#?}");
    for line in &lines {
        let line: Value = serde_json::from_str(line).unwrap();
        let (level, message) = (line["level"].as_str(), line["message"].as_str());
        assert!(level.is_some() && message.is_some(), "{line}");
    }
    let all = lines.join("\n");
    for secret in [SECRET, token.trim(), BODY, ANSWER, QUERY, "marker", "v1="] {
        assert!(!all.contains(secret), "{secret} is in the log:\n{all}");
    }
}
