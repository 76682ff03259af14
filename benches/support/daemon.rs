//! A daemon's end of a socket: host `hN` with its one agent `a`, as quick as a client that waits for everything can be.

use std::collections::VecDeque;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::connect;

pub struct Daemon {
    stream: BufReader<TcpStream>,
    host: usize,
    sent: u64,
    /// Frames that came and were not waited for yet.
    waiting: VecDeque<String>,
}

/// Opens a WebSocket and says nothing.
pub fn upgrade(at: SocketAddr, token: &str) -> TcpStream {
    let mut stream = connect(at);
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    let request = format!(
        "GET /api/daemon/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("a request is taken");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    stream
}

impl Daemon {
    /// Host `hN`, whose hello was good and whose agent is known.
    pub fn greeted(at: SocketAddr, host: usize, token: &str) -> Self {
        let stream = BufReader::with_capacity(4096, upgrade(at, token));
        let mut daemon = Self { stream, host, sent: 0, waiting: VecDeque::new() };
        daemon.say(&format!(r#"{{"t":"hello","proto":1,"daemon_ver":"bench","host":"h{host}"}}"#));
        daemon.until("hello_ok");
        daemon.say(
            r#"{"t":"roster","agents":[{"name":"a","kind":"bench","pane_id":"p","status":"idle","cwd":"/home/a","title":"","named_by":"user"}]}"#,
        );
        // Its agent is known once a call in its name is answered.
        loop {
            daemon.say(r#"{"t":"rpc","rid":"1","method":"list_rooms","params":{"caller":"a"}}"#);
            if !daemon.until("rpc_result").contains("invalid_caller") {
                return daemon;
            }
        }
    }

    /// The socket alone; what has been read is lost.
    pub fn into_stream(self) -> TcpStream {
        self.stream.into_inner()
    }

    /// Sends a message under an id that no other run of this ledger has.
    pub fn send(&mut self, to: &str, body: &str) {
        if self.sent == 0 {
            let mut random = [0; 3];
            getrandom::fill(&mut random).expect("the system's random source");
            self.sent = u64::from(u32::from_be_bytes([0, random[0], random[1], random[2]])) << 24;
        }
        self.sent += 1;
        let (id, host) = (self.sent, self.host);
        self.say(&format!(
            r#"{{"t":"send","id":"tx_{id:012x}","from":"a@h{host}","to":"{to}","body":"{body}","ts":"2026-01-01T00:00:00Z"}}"#
        ));
    }

    /// Acknowledges what a deliver frame brought.
    pub fn ack(&mut self, frame: &str) {
        let id = frame.split(r#""id":""#).nth(1).and_then(|rest| rest.split('"').next()).expect("an id");
        self.say(&format!(r#"{{"t":"deliver_ack","id":"{id}","agent":"a"}}"#));
    }

    /// Writes a text frame, masked with zeros.
    pub fn say(&mut self, text: &str) {
        let mut frame = vec![0x81];
        match text.len() {
            short @ ..126 => frame.push(0x80 | u8::try_from(short).expect("a short one")),
            long => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(long).expect("a frame of the benches").to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.stream.get_mut().write_all(&frame).expect("a frame is taken");
    }

    /// The next frame of this kind; others wait until they are asked for.
    pub fn until(&mut self, kind: &str) -> String {
        let tag = format!(r#""t":"{kind}""#);
        if let Some(place) = self.waiting.iter().position(|text| text.contains(&tag)) {
            return self.waiting.remove(place).expect("it was found there");
        }
        loop {
            let text = self.next();
            if text.contains(&tag) {
                return text;
            }
            self.waiting.push_back(text);
        }
    }

    fn next(&mut self) -> String {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).expect("a frame");
        let length = match head[1] {
            126 => {
                let mut long = [0; 2];
                self.stream.read_exact(&mut long).expect("a length");
                usize::from(u16::from_be_bytes(long))
            }
            short => usize::from(short),
        };
        let mut text = vec![0; length];
        self.stream.read_exact(&mut text).expect("a payload");
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(head[0], 0x81, "{text}");
        text
    }
}
