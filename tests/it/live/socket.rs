use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
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
    assert!(said.contains("connection 1: no daemon listens on real.sock"), "{said}");
    dump.stop();
    home.file("ours.sock", "a file");
    assert_eq!(run().status.code(), Some(73));
}

#[test]
fn an_agent_and_its_daemon_talk_through_it() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let agent_sock = rig.home.data().join("agent.sock");
    let moved = rig.home.data().join("agent.real");
    fs::rename(&agent_sock, &moved).unwrap();
    let args = ["--socket", moved.to_str().unwrap(), "--proxy-socket", agent_sock.to_str().unwrap()];
    let dump = Dump::start(&rig.home, &args);
    let mut agent = rig.listen("bob");
    let id = rig.post("build-1", "the build broke").json()["delivery_id"].clone();
    assert_eq!(agent.delivered()["id"], id);
    agent.ack(id.as_str().unwrap());
    crate::rig::until(&rig, &["delivery", "show", id.as_str().unwrap()], |row| row["state"] == "dispatched");
    let records = dump.stop();
    assert_clean(&rig.home, "wire.ndjson");
    let find = |t: &str| records.iter().find(|record| record["frame"]["t"] == t).unwrap();
    assert_eq!(find("register")["proto"], "transit-agent/1");
    assert_eq!(find("register")["dir"], "adapter>daemon");
    assert_eq!(find("registered")["frame"]["capability"], "[redacted]");
    assert_eq!(find("deliver_ack")["frame"]["capability"], "[redacted]");
}
