use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::frame::{Frame, FrameHeader};
use tungstenite::{Bytes, Message, WebSocket};

use super::sender::Sender;
use super::{Dump, NAME, assert_clean, scripted, words};
use crate::rig::Rig;
use crate::support::{Background, Home, LONG, Nobody, Sink, eventually, text};

const REQUEST: &[u8] =
    b"GET /api/daemon/ws?x HTTP/1.1\r\nhost: elsewhere\r\nAUTHORIZATION:  Bearer s3cret-token\r\n\
      Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
      Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";

#[test]
fn a_compressed_conversation_passes_byte_for_byte_and_its_dump_is_clean() {
    let envelope = "to be or not to be ".repeat(50);
    let mut daemon = Sender::new(REQUEST, Some([7, 77, 177, 0]));
    daemon.say(&json!({"t": "hello", "proto": 1, "daemon_ver": "1", "host": "titan"}));
    let mut worker = Sender::new(ANSWER, None);
    worker.say(&json!({"t": "hello_ok", "host_id": "hst_0123456789ab", "org": "default"}));
    for n in 0..20 {
        let id = format!("tx_{n:012x}");
        worker.say(&json!({"t": "deliver", "id": id, "agent": "bob", "envelope": envelope}));
    }
    worker.close(1001, "going away — bye");
    let said_first = std::mem::take(&mut daemon.bytes);
    for n in 0..20 {
        daemon.say(&json!({"t": "deliver_ack", "id": format!("tx_{n:012x}"), "agent": "bob"}));
    }
    daemon.close(1001, "");

    let home = Home::new();
    let (at, served) = scripted(worker.bytes.clone());
    let dump = Dump::proxy(&home, at);
    let mut client = dump.connect();
    client.write_all(&said_first).unwrap();
    let mut heard = vec![0; worker.bytes.len()];
    client.read_exact(&mut heard).unwrap();
    client.write_all(&daemon.bytes).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "the server's end passes too");
    assert!(heard == worker.bytes);
    assert!(served.join().unwrap() == [said_first, daemon.bytes].concat());

    let file = dump.file.clone();
    let records = dump.stop();
    assert_clean(&home, "wire.ndjson");
    assert!(!std::fs::read_to_string(file).unwrap().contains("s3cret-token"));
    let said = words(&records);
    let count = |word: &str| said.iter().filter(|said| *said == word).count();
    assert_eq!(count(">deliver_ack") + count("<deliver"), 40, "{said:?}");
    assert_eq!((count(">ping"), count("<ping"), count(">close"), count("<close")), (21, 21, 1, 1));
    assert_eq!((count(">end"), count("<end")), (1, 1));
    assert_eq!(said[..2], [">open", "<answer"]);
    let deliver = records.iter().find(|record| record["frame"]["t"] == "deliver").unwrap();
    assert_eq!(deliver["frame"]["envelope"], envelope);
    let close = records.iter().find(|record| record["note"] == "close" && record["dir"] == "worker>daemon");
    assert_eq!(
        (&close.unwrap()["code"], &close.unwrap()["reason"]),
        (&json!(1001), &json!("going away — bye"))
    );
}

/// Passes one connection on to `to`, and keeps what passed each way.
fn recording(to: SocketAddr) -> (SocketAddr, thread::JoinHandle<[Vec<u8>; 2]>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let pump = |mut from: TcpStream, mut to: TcpStream| {
        thread::spawn(move || {
            let (mut all, mut bytes) = (Vec::new(), [0; 8192]);
            while let Ok(n @ 1..) = from.read(&mut bytes) {
                all.extend_from_slice(&bytes[..n]);
                if to.write_all(&bytes[..n]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Write);
            all
        })
    };
    let recorded = thread::spawn(move || {
        let client = listener.accept().unwrap().0;
        let server = TcpStream::connect(to).unwrap();
        let forth = pump(client.try_clone().unwrap(), server.try_clone().unwrap());
        let back = pump(server, client);
        [forth.join().unwrap(), back.join().unwrap()]
    });
    (at, recorded)
}

#[test]
fn the_ends_of_a_websocket_library_notice_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (behind, inner) = recording(listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let mut ws = tungstenite::accept(listener.accept().unwrap().0).unwrap();
        loop {
            match ws.read() {
                Ok(Message::Text(text)) if text.as_str() == "close" => {
                    let reason = "replaced ✓".into();
                    ws.close(Some(CloseFrame { code: CloseCode::from(4000), reason })).unwrap();
                }
                Ok(message @ (Message::Text(_) | Message::Binary(_))) => ws.send(message).unwrap(),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    });
    let home = Home::new();
    let dump = Dump::proxy(&home, behind);
    let (front, outer) = recording(dump.port());
    let stream = TcpStream::connect(front).unwrap();
    let (mut ws, _) = tungstenite::client(format!("ws://{front}/api/daemon/ws"), stream).unwrap();
    let part = |content: &str, opcode, is_final| {
        Message::Frame(Frame::message(
            Bytes::copy_from_slice(content.as_bytes()),
            OpCode::Data(opcode),
            is_final,
        ))
    };
    ws.send(part("one ", Data::Text, false)).unwrap();
    ws.send(Message::Ping("still there?".into())).unwrap();
    ws.send(part("and ", Data::Continue, false)).unwrap();
    ws.send(part("two", Data::Continue, true)).unwrap();
    assert_eq!(next(&mut ws), Message::Pong("still there?".into()));
    assert_eq!(next(&mut ws), Message::text("one and two"));
    let long = "é".repeat(500_000);
    for message in [Message::text(&*long), Message::binary(vec![0, 159, 146, 150]), Message::text("")] {
        ws.send(message.clone()).unwrap();
        assert_eq!(next(&mut ws), message);
    }
    ws.send(Message::text("close")).unwrap();
    let Message::Close(Some(close)) = next(&mut ws) else { panic!("it closes") };
    assert_eq!((u16::from(close.code), close.reason.as_str()), (4000, "replaced ✓"));
    while ws.read().is_ok() {}
    drop(ws);
    server.join().unwrap();
    assert!(inner.join().unwrap() == outer.join().unwrap());
    let records = dump.stop();
    let said: Vec<_> =
        words(&records).into_iter().map(|word| word.chars().take(12).collect::<String>()).collect();
    let expected = [
        ">open",
        "<answer",
        ">ping",
        ">one and two",
        "<pong",
        "<one and two",
        ">ééééééééééé",
        "<ééééééééééé",
        ">binary",
        "<binary",
        ">",
        "<",
        ">close",
        "<close",
        ">close",
    ];
    assert_eq!(said[..expected.len()], expected);
    assert!(records.iter().any(|record| record["frame"] == json!(long)));
}

fn next(ws: &mut WebSocket<TcpStream>) -> Message {
    ws.read().unwrap()
}

/// Bytes that repeat nowhere near, so that a shift shows.
fn noise(length: u32) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn what_is_not_understood_passes_all_the_same_in_flat_memory() {
    let mut endless = Sender::new(ANSWER, None);
    let header = FrameHeader { opcode: OpCode::Data(Data::Text), ..FrameHeader::default() };
    header.format(10 << 30, &mut endless.bytes).unwrap();
    endless.bytes.extend(noise(24 << 20));
    let sent = [REQUEST, &noise(24 << 20)].concat();
    let (at, served) = scripted(endless.bytes.clone());
    let home = Home::new();
    let dump = Dump::proxy(&home, at);
    let client = dump.connect();
    let mut writer = client.try_clone().unwrap();
    let expected = sent.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut heard = Vec::new();
    (&client).read_to_end(&mut heard).unwrap();
    writing.join().unwrap();
    assert!(served.join().unwrap() == expected && heard == endless.bytes);
    let status = std::fs::read_to_string(format!("/proc/{}/status", dump.program.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 48 * 1024, "{kib} KiB");
    let said = words(&dump.stop());
    assert!(
        said.contains(&"<too_long".to_owned()) && said.iter().filter(|word| *word == "<end").count() == 1
    );
}

#[test]
fn without_a_server_the_client_is_turned_away_and_the_proxy_goes_on() {
    let server = Nobody::new();
    let at = server.at;
    let home = Home::new();
    let dump = Dump::proxy(&home, at);
    let mut client = dump.connect();
    assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    let said = dump.program.error();
    let expected = format!("{NAME}: connection 1: the way to the server broke: could not connect to {at}: ");
    assert!(said.starts_with(&expected), "{said}");

    let listener = server.listen();
    let mut client = dump.connect();
    client.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    listener.accept().unwrap().0.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    let records = dump.stop();
    assert_eq!((&records[0]["note"], &records[0]["conn"]), (&json!("broken"), &Value::Null));
    assert_eq!(records.last().unwrap()["conn"], 2);
}

#[test]
fn a_reader_who_takes_his_time_slows_nothing_down() {
    let body = "x".repeat(100_000);
    let mut sender = Sender::new(ANSWER, None);
    for n in 0..300 {
        let frame = json!({"t": "future", "n": n, "body": body}).to_string();
        sender.frame(OpCode::Data(Data::Text), frame.as_bytes(), |_| ());
    }
    let (at, served) = scripted(sender.bytes.clone());
    let home = Home::new();
    let file = home.path("wire.ndjson");
    let mut command = home.command(NAME);
    command.args(["--json", "--proxy", "127.0.0.1:0", "--write"]).arg(&file);
    command.arg("--to").arg(format!("http://{at}"));
    let mut program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let unread = program.stdout.take().unwrap();
    let mut errors = std::io::BufReader::new(program.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut errors, &mut line).unwrap();
    let port = line.split_once(" at ").unwrap().1.split(',').next().unwrap();
    let mut client = TcpStream::connect(port).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client.write_all(REQUEST).unwrap();
    let mut heard = vec![0; sender.bytes.len()];
    client.read_exact(&mut heard).unwrap();
    drop(client);
    served.join().unwrap();
    let is_whole = || std::fs::read_to_string(&file).unwrap().matches("\"future\"").count() == 300;
    eventually(|| is_whole().then_some(()));
    let pid = rustix::process::Pid::from_raw(program.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(program.wait().unwrap().success());
    let mut said = String::new();
    errors.read_to_string(&mut said).unwrap();
    assert!(said.contains("records were not printed, because nobody took them in time"), "{said}");
    drop(unread);
}

#[test]
fn a_full_disk_is_told_once_and_stops_nothing() {
    let mut sender = Sender::new(ANSWER, None);
    (0..10)
        .for_each(|n| sender.frame(OpCode::Data(Data::Text), json!({"t": n}).to_string().as_bytes(), |_| ()));
    let (at, served) = scripted(sender.bytes.clone());
    let home = Home::new();
    let mut command = home.command(NAME);
    let to = format!("ws://{at}");
    command.args(["--proxy", "127.0.0.1:0", "--to", &to, "--write", "/dev/full", "--quiet"]);
    let mut program = Background::start(&mut command);
    let line = program.error();
    let mut client =
        TcpStream::connect(line.split_once(" at ").unwrap().1.split(',').next().unwrap()).unwrap();
    client.write_all(REQUEST).unwrap();
    let mut heard = vec![0; sender.bytes.len()];
    client.read_exact(&mut heard).unwrap();
    drop(client);
    served.join().unwrap();
    let said = program.error();
    assert!(said.contains("could not write /dev/full") && said.contains("goes on"), "{said}");
    program.signal(Signal::INT);
    assert!(program.wait().success());
    assert_eq!(program.last_error(), None);
    assert!(program.pending_lines().is_empty(), "--quiet");
}

#[test]
fn what_passes_is_printed_and_filtered_until_nobody_reads() {
    let mut sender = Sender::new(ANSWER, None);
    sender.say(&json!({"t": "hello_ok", "host_id": "hst_0", "org": "default"}));
    sender.say(&json!({"t": "deliver", "id": "tx_000000000000", "agent": "bob", "envelope": "\u{1b}[31m"}));
    let (at, _served) = scripted(sender.bytes);
    let home = Home::new();
    let mut command = home.command(NAME);
    let to = format!("ws://{at}/ignored");
    command.args(["--proxy", "127.0.0.1:0", "--to", &to, "--filter", "t=deliver", "--filter", "note=open"]);
    let mut program = Background::start(&mut command);
    let (path, listening) = (program.error(), program.error());
    assert!(path.contains("the path of ws://") && path.contains("is not used"), "{path}");
    let port = listening.split_once(" at ").unwrap().1.split(',').next().unwrap();
    let mut client = TcpStream::connect(port).unwrap();
    client.write_all(REQUEST).unwrap();
    let line = program.line();
    assert!(line.ends_with("daemon -> worker (open)      path=/api/daemon/ws"), "{line}");
    let line = program.line();
    assert!(
        line.contains("daemon <- worker deliver     tx_000000000000 agent=bob") && !line.contains('\u{1b}')
    );
    program.signal(Signal::INT);
    assert!(program.wait().success());

    // `| head -1`: with nobody to tell and no file, it ends.
    let (at, _served) = scripted(ANSWER.to_vec());
    let mut shell = home.foreign("sh");
    let script = format!("{NAME} --proxy 127.0.0.1:0 --to ws://{at} | head -n 1");
    let shell = Background::start(shell.args(["-c", &script]));
    let port = shell.error().split_once(" at ").unwrap().1.split(',').next().unwrap().to_owned();
    let mut client = TcpStream::connect(port).unwrap();
    client.write_all(REQUEST).unwrap();
    assert!(shell.line().contains("(open)"));
    assert_eq!(shell.last_error(), None, "it ends quietly");
}

#[test]
fn what_cannot_be_begun_has_its_exit_code() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let held = TcpListener::bind(taken).unwrap();
    let taken = taken.to_string();
    let proxy = ["--proxy", "127.0.0.1:0"];
    for (args, code, why) in [
        (&["--proxy", &taken, "--to", "ws://h"][..], 69, "listen at"),
        (&[proxy[0], proxy[1], "--to", "ws://h", "--write", "no/such/file"], 73, "write no/such/file"),
        (&proxy, 2, "--to"),
        (&["--to", "ws://h"], 2, "--proxy"),
        (&[proxy[0], proxy[1], "--to", "ftp://h"], 2, "scheme"),
        (&[proxy[0], proxy[1], "--to", "ws://u:p@h"], 2, "user or password"),
        (&["--proxy", "nowhere", "--to", "ws://h"], 2, "address"),
        (&[proxy[0], proxy[1], "--to", "ws://h", "--connect", "ws://h"], 2, "cannot be used with"),
        (&[proxy[0], proxy[1], "--to", "ws://h", "--stats"], 2, "cannot be used with"),
        (&[proxy[0], proxy[1], "--to", "ws://h", "--quiet"], 2, "--write"),
        (&["--write", "f"], 2, "required"),
        (&["--connect", "ws://h", "--host", "Titan"], 2, "host"),
        (&["--socket", "s"], 2, "--proxy-socket"),
    ] {
        let run = home.run(NAME, args, b"");
        let said = text(&run.stderr);
        assert_eq!(run.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(why) && run.stdout.is_empty(), "{args:?}: {said}");
    }
    drop(held);
}

#[test]
fn a_whole_system_talks_through_the_proxy_and_outlives_crashes() {
    let sink = Sink::start(&[200]);
    let door = Arc::new(Mutex::new(None));
    let opened = Arc::clone(&door);
    let mut rig = Rig::start_through(&format!("http://{}/reply/", sink.at), move |home, worker| {
        let dump = Dump::proxy(home, worker);
        let at = dump.port();
        *opened.lock().unwrap() = Some(dump);
        at
    });
    let mut agent = rig.listen("bob");
    let mut settle = |rig: &Rig, key: &str| {
        let accepted = rig.post(key, "the build broke");
        let id = accepted.json()["delivery_id"].as_str().unwrap().to_owned();
        while agent.delivered()["id"] != json!(id) {}
        agent.ack(&id);
        let reply = json!({"delivery_id": id, "conversation_id": "main", "message": "on it"});
        assert!(rig.call("bob", "chat_reply", &reply).contains("handled"));
        assert!(rig.verify_callback(&sink.next()).status.success());
    };
    settle(&rig, "build-1");
    rig.kill_worker();
    rig.start_worker();
    settle(&rig, "build-2");
    rig.kill_daemon();
    rig.start_daemon();
    settle(&rig, "build-3");

    let dump = door.lock().unwrap().take().unwrap();
    let records = dump.stop();
    assert_clean(&rig.home, "wire.ndjson");
    let said = words(&records);
    let has = |word: &str| said.iter().any(|said| said == word);
    for word in [">hello", "<hello_ok", ">roster", "<deliver", ">deliver_ack", ">rpc", "<rpc_result"] {
        assert!(has(word), "{word} in {said:?}");
    }
    let connections = records.iter().filter_map(|record| record["conn"].as_u64()).max();
    assert!(connections >= Some(3), "{connections:?}");
    let stats = rig.home.run(NAME, ["--stats", "wire.ndjson"], b"");
    assert!(stats.status.success(), "{}", text(&stats.stderr));
}
