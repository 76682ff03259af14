use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::thread::{self, JoinHandle};

use rustix::process::Signal;
use serde_json::Value;
use tungstenite::handshake::server::{Request, Response};
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, WebSocket};

use super::{Dump, NAME, scripted};
use crate::rig::Rig;
use crate::support::{Background, Home, LONG, Nobody, text};

/// Takes one WebSocket and does with it what `serve` says; hands on its request.
fn server<T: Send + 'static>(
    serve: impl FnOnce(WebSocket<TcpStream>, Request) -> T + Send + 'static,
) -> (SocketAddr, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let served = thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut asked = None;
        #[allow(clippy::result_large_err)] // it is the library's
        let look = |request: &Request, response: Response| {
            asked = Some(request.clone());
            Ok(response)
        };
        let ws = tungstenite::accept_hdr(stream, look).unwrap();
        serve(ws, asked.unwrap())
    });
    (at, served)
}

fn close(ws: &mut WebSocket<TcpStream>, code: u16, reason: &'static str) {
    ws.close(Some(CloseFrame { code: CloseCode::from(code), reason: reason.into() })).unwrap();
    while ws.read().is_ok() {}
}

fn connect(home: &Home, at: SocketAddr, args: &[&str], input: &[u8]) -> Output {
    let url = format!("http://{at}");
    home.run(NAME, ["--connect", &url].iter().chain(args), input)
}

#[test]
fn hello_is_said_with_the_token_which_is_shown_nowhere() {
    let (at, served) = server(|mut ws, request| {
        let hello = ws.read().unwrap().into_text().unwrap();
        ws.send(Message::text(r#"{"t":"hello_ok","host_id":"hst_0","org":"default"}"#)).unwrap();
        ws.send(Message::text(r#"{"t":"future","token":"s3cret-token"}"#)).unwrap();
        ws.send(Message::Ping("x".into())).unwrap();
        assert_eq!(ws.read().unwrap(), Message::Pong("x".into()));
        close(&mut ws, 1000, "bye");
        let header = request.headers()["authorization"].to_str().unwrap().to_owned();
        (request.uri().to_string(), header, hello.as_str().to_owned())
    });
    let home = Home::new();
    let token = home.file("token", "s3cret-token\n");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = home.command(NAME);
    command.args(["--json", "--host", "titan", "--token-file", "token", "--write", "wire.ndjson"]);
    let mut client = Background::start(command.arg("--connect").arg(format!("ws://{at}")));
    let lines = [client.line(), client.line(), client.line()];
    assert!(client.wait().success());
    let (path, header, hello) = served.join().unwrap();
    assert_eq!((path.as_str(), header.as_str()), ("/api/daemon/ws", "Bearer s3cret-token"));
    let hello: Value = serde_json::from_str(&hello).unwrap();
    assert_eq!((&hello["t"], &hello["host"], &hello["proto"]), (&"hello".into(), &"titan".into(), &1.into()));
    let records = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    assert_eq!(records[0]["frame"]["t"], "hello_ok");
    assert_eq!(records[1]["frame"]["token"], "[redacted]");
    assert_eq!((&records[2]["note"], &records[2]["reason"]), (&"close".into(), &"bye".into()));
    let warned = client.error();
    assert!(warned.contains("others can read the secret file token"), "{warned}");
    assert!(client.error().ends_with("the server closed the connection (1000 bye)"));
    let written = std::fs::read_to_string(home.path("wire.ndjson")).unwrap();
    assert!(written.contains(r#""dir":"daemon>worker","frame":{"t":"hello""#) && !written.contains("s3cret"));
}

#[test]
fn how_the_server_ends_it_is_the_exit_code() {
    let home = Home::new();
    for (code, exit) in [(1000, 0), (1001, 0), (4001, 77), (4000, 76), (4002, 76), (1002, 76), (1011, 76)] {
        let (at, served) = server(move |mut ws, _| close(&mut ws, code, "why \u{1b}"));
        let run = connect(&home, at, &[], b"");
        served.join().unwrap();
        let said = text(&run.stderr);
        assert_eq!(run.status.code(), Some(exit), "{code}: {said}");
        assert!(said.contains(&format!("({code} why \\u{{1b}})")), "{said}");
        assert!(text(&run.stdout).contains(&format!("(close)     code={code} reason=\"why \\u001b\"")));
    }
    let (at, served) = server(|ws, _| drop(ws));
    assert_eq!(connect(&home, at, &[], b"").status.code(), Some(69));
    served.join().unwrap();
    let (at, served) = server(|mut ws, _| {
        ws.send(Message::text("x".repeat((1 << 20) + 1))).unwrap();
        let Message::Close(Some(close)) = ws.read().unwrap() else { panic!("it closes") };
        u16::from(close.code)
    });
    assert_eq!(connect(&home, at, &[], b"").status.code(), Some(76));
    assert_eq!(served.join().unwrap(), 1009);
}

#[test]
fn what_is_no_websocket_is_told_apart() {
    let home = Home::new();
    for (status, exit) in
        [(401, 77), (403, 77), (404, 76), (200, 76), (426, 76), (429, 75), (500, 75), (503, 75)]
    {
        let answer = format!("HTTP/1.1 {status} Said\r\nContent-Length: 2\r\n\r\n{{}}");
        let run = connect(&home, scripted(answer.into()).0, &[], b"");
        assert_eq!(run.status.code(), Some(exit), "{status}: {}", text(&run.stderr));
        assert!(text(&run.stderr).contains(&status.to_string()));
        assert_eq!(text(&run.stderr).contains("--token-file"), exit == 77);
    }
    let nobody = Nobody::new();
    let free = nobody.at;
    assert_eq!(connect(&home, free, &[], b"").status.code(), Some(69));
    assert_eq!(connect(&home, free, &["--token-file", "missing"], b"").status.code(), Some(66));
    home.file("empty", "\n");
    assert_eq!(connect(&home, free, &["--token-file", "empty"], b"").status.code(), Some(78));
    let rig = Rig::start("http://127.0.0.1:9/");
    rig.home.file("wrong", "no token of this Worker");
    let run = connect(&rig.home, rig.at, &["--token-file", "wrong", "--host", "demo"], b"");
    assert_eq!(run.status.code(), Some(77), "{}", text(&run.stderr));
}

#[test]
fn lines_are_sent_and_what_comes_after_their_end_is_read() {
    let (at, served) = server(|mut ws, _| {
        let first = ws.read().unwrap().into_text().unwrap();
        let second = ws.read().unwrap().into_text().unwrap();
        // The end of stdin is the end of what comes from here.
        let mut stream = ws.get_ref().try_clone().unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        ws.send(Message::text(r#"{"t":"late"}"#)).unwrap();
        stream.write_all(&[0x89, 0]).unwrap();
        ws.send(Message::text(r#"{"t":"later"}"#)).unwrap();
        [first.as_str().to_owned(), second.as_str().to_owned()]
    });
    let home = Home::new();
    let run = connect(&home, at, &[], b"{\"t\":\"one\"}\r\n\n  \nno json");
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert_eq!(served.join().unwrap(), [r#"{"t":"one"}"#, "no json"]);
    let out = text(&run.stdout);
    assert!(out.contains("late") && out.contains("later") && out.lines().count() == 2, "{out}");
}

#[test]
fn a_frame_that_is_cut_is_told_whether_or_not_stdin_has_ended() {
    let home = Home::new();
    // A message that is not whole, a header that is not, and a part of a message without the last one.
    for piece in [&b"\x81\x0a{\"t\":"[..], b"\x81", b"\x01\x02{\""] {
        let (at, served) = server(move |mut ws, _| {
            ws.get_mut().write_all(b"\x81\x0d{\"t\":\"whole\"}").unwrap();
            ws.get_mut().write_all(piece).unwrap();
            let input_ends = piece.len() > 1;
            if input_ends {
                assert_eq!(ws.get_mut().read(&mut [0]).unwrap(), 0);
            }
        });
        let run = connect(&home, at, &["--write", "wire.ndjson"], b"");
        served.join().unwrap();
        let said = text(&run.stderr);
        assert_eq!(run.status.code(), Some(76), "{said}");
        let expected =
            "transit-wire-dump: talk to the server: the connection broke in the middle of a frame: ";
        assert!(said.starts_with(expected) && said.lines().count() == 1, "{said}");
        assert!(text(&run.stdout).contains("whole") && text(&run.stdout).contains("(cut)"));
    }
}

#[test]
fn a_line_that_is_no_text_is_not_sent() {
    let (at, served) = server(|mut ws, _| {
        let first = ws.read().unwrap();
        (first, ws.read().unwrap())
    });
    let run = connect(&Home::new(), at, &[], b"good\n\xff\nnever\n");
    assert_eq!(run.status.code(), Some(65));
    assert!(text(&run.stderr).contains("not UTF-8"));
    let (first, second) = served.join().unwrap();
    assert_eq!(first, Message::text("good"));
    assert!(second.is_close());
}

#[test]
fn a_signal_closes_properly() {
    let (at, served) = server(|mut ws, _| {
        ws.send(Message::text(r#"{"t":"ready"}"#)).unwrap();
        let closed = ws.read().unwrap();
        while ws.read().is_ok() {}
        closed
    });
    let home = Home::new();
    let mut command = home.command(NAME);
    let mut client = Background::start(command.arg("--connect").arg(format!("ws://{at}/other")));
    assert!(client.line().contains("ready"));
    client.signal(Signal::INT);
    let Message::Close(Some(close)) = served.join().unwrap() else { panic!("it closes") };
    assert_eq!(u16::from(close.code), 1000);
    assert!(client.wait().success());
}

#[test]
fn a_client_and_a_proxy_go_together() {
    let (at, served) = server(|mut ws, _| {
        let heard = ws.read().unwrap();
        close(&mut ws, 4001, "revoked");
        heard
    });
    let home = Home::new();
    let dump = Dump::proxy(&home, at);
    let run = connect(&home, dump.port(), &["--host", "titan"], b"");
    assert_eq!(run.status.code(), Some(77));
    assert!(served.join().unwrap().is_text());
    let said = super::words(&dump.stop());
    assert_eq!(said[..5], [">open", "<answer", ">hello", "<close", ">close"]);
}
