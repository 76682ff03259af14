use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use super::{Dump, NAME, assert_clean};
use crate::rig::Rig;
use crate::support::{Home, LONG, text};

fn start(home: &Home) -> Dump {
    Dump::start(home, &["--socket", "real.sock", "--proxy-socket", "ours.sock"])
}

#[test]
fn lines_and_what_is_none_pass_unchanged() {
    let home = Home::new();
    let listener = UnixListener::bind(home.path("real.sock")).unwrap();
    let answer = b"{\"id\":\"1\",\"result\":{\"daemon\":\"ok\"}}\n{ broken\n{\"event\":\"typing\",\"session_id\":\"s\"}".to_vec();
    let said = answer.clone();
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        stream.write_all(&said).unwrap();
        heard
    });
    let dump = start(&home);
    assert_eq!(fs::metadata(home.path("ours.sock")).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = UnixStream::connect(home.path("ours.sock")).unwrap();
    let question = b"{\"id\":1,\"method\":\"status.get\"}\r\n\n\xff\xfe\nno json \x1b\n";
    client.write_all(question).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).unwrap();
    assert_eq!(served.join().unwrap(), question);
    assert_eq!(heard, answer);

    let records = dump.stop();
    let short: Vec<Value> = records
        .iter()
        .map(|record| {
            assert_eq!(record["proto"], "local-api");
            let what = if record["note"].is_null() { &record["frame"] } else { &record["note"] };
            json!([record["dir"], what])
        })
        .collect();
    let (forth, back) = ("client>server", "server>client");
    let expected = json!([
        [forth, {"id": 1, "method": "status.get"}],
        [forth, "not_utf8"],
        [forth, "no json \u{1b}"],
        [forth, "end"],
        [back, {"id": "1", "result": {"daemon": "ok"}}],
        [back, "{ broken"],
        [back, "cut"],
        [back, "end"],
    ]);
    assert_eq!(json!(short), expected);
    assert!(!home.path("ours.sock").exists(), "the socket is taken away");
}

#[test]
fn a_place_is_taken_only_when_it_is_free() {
    let home = Home::new();
    let run = || home.run(NAME, ["--socket", "real.sock", "--proxy-socket", "ours.sock"], b"");
    let live = UnixListener::bind(home.path("ours.sock")).unwrap();
    let refused = run();
    assert_eq!(refused.status.code(), Some(73));
    assert!(text(&refused.stderr).contains("another process listens on"), "{}", text(&refused.stderr));
    drop(live);
    let dump = start(&home);
    let mut client = UnixStream::connect(home.path("ours.sock")).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    let said = dump.program.error();
    assert!(
        said.contains("connection 1: the way to the server broke: no daemon listens on real.sock"),
        "{said}"
    );
    dump.stop();
    home.file("ours.sock", "a file");
    assert_eq!(run().status.code(), Some(73));
}

/// Sends a line and reads one.
fn exchange(stream: &UnixStream, line: &Value) -> Value {
    let mut writer = stream;
    writer.write_all(format!("{line}\n").as_bytes()).unwrap();
    next(stream)
}

/// The next line that is no ping.
fn next(mut stream: &UnixStream) -> Value {
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        let frame: Value = serde_json::from_slice(&line).unwrap();
        if frame["t"] != "ping" {
            return frame;
        }
    }
}

/// Takes the place of a socket of the daemon, as the manual says.
fn stand_between(rig: &Rig, name: &str) -> Dump {
    let (ours, real) = (rig.home.data().join(name), rig.home.data().join("real.sock"));
    fs::rename(&ours, &real).unwrap();
    let args = ["--socket", real.to_str().unwrap(), "--proxy-socket", ours.to_str().unwrap()];
    Dump::start(&rig.home, &args)
}

#[test]
fn an_adapter_and_its_daemon_talk_through_it() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let dump = stand_between(&rig, "agent.sock");
    let register = |pid: u32| {
        let stream = UnixStream::connect(rig.home.data().join("agent.sock")).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let frame = json!({"t": "register", "proto": 1, "harness": "program", "session_id": "s", "pid": pid, "cwd": "/",
            "title": "t", "status": "idle", "name": "bob"});
        let answer = exchange(&stream, &frame);
        (stream, answer)
    };
    // The daemon takes the kernel's word for who has connected, and that is the proxy, not a child of this process.
    let mut client = Command::new("sleep").arg("600").spawn().unwrap();
    assert_eq!(register(client.id()).1["code"], "pid_mismatch");
    client.kill().unwrap();
    client.wait().unwrap();
    let (stream, registered) = register(dump.program.pid());
    let capability = registered["capability"].as_str().unwrap();
    let id = rig.post("build-1", "the build broke").json()["delivery_id"].as_str().unwrap().to_owned();
    assert_eq!(next(&stream)["id"], json!(id));
    let ack = json!({"t": "deliver_ack", "id": id, "persisted": true, "capability": capability});
    (&stream).write_all(format!("{ack}\n").as_bytes()).unwrap();
    crate::rig::until(&rig, &["delivery", "show", &id], |row| row["state"] == "dispatched");
    drop(stream);

    let records = dump.stop();
    assert_clean(&rig.home, "wire.ndjson");
    let find = |t: &str| records.iter().rfind(|record| record["frame"]["t"] == t).unwrap();
    assert_eq!(find("register")["proto"], "transit-agent/1");
    assert_eq!((&find("register")["dir"], &find("register")["conn"]), (&json!("adapter>daemon"), &json!(2)));
    assert_eq!(find("registered")["frame"]["capability"], "[redacted]");
    assert_eq!(find("deliver_ack")["frame"]["capability"], "[redacted]");
}

#[test]
fn commands_ask_their_daemon_through_it() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let dump = stand_between(&rig, "transit.sock");
    let status = rig.home.run("transitd", ["status", "--json"], b"");
    assert!(status.status.success(), "{}", text(&status.stderr));
    let records = dump.stop();
    assert_clean(&rig.home, "wire.ndjson");
    assert_eq!(
        (&records[0]["proto"], &records[0]["frame"]["op"]),
        (&json!("transit.sock"), &json!("status"))
    );
    assert_eq!(records[1]["frame"]["host"], "demo");
}
