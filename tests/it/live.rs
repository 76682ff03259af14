//! `transit-wire-dump` beside conversations that take place: as a proxy, as a client, and on a Unix socket.

mod connect;
mod proxy;
mod sender;
mod socket;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Background, Home, LONG, text};

const NAME: &str = "transit-wire-dump";

/// A `transit-wire-dump` that writes to `wire.ndjson`.
struct Dump {
    program: Background,
    file: PathBuf,
    /// Where it listens.
    at: String,
}

impl Dump {
    fn start(home: &Home, args: &[&str]) -> Self {
        let file = home.path("wire.ndjson");
        let mut command = home.command(NAME);
        let program = Background::start(command.args(args).arg("--write").arg(&file));
        let line = program.error();
        let listens = ["listening at ", "listening on "].into_iter().find_map(|word| line.split_once(word));
        let at = listens.unwrap_or_else(|| panic!("{line}")).1.split(',').next().unwrap().to_owned();
        Self { program, file, at }
    }

    /// A proxy on a free port.
    fn proxy(home: &Home, to: SocketAddr) -> Self {
        Self::start(home, &["--proxy", "127.0.0.1:0", "--to", &format!("ws://{to}")])
    }

    fn port(&self) -> SocketAddr {
        self.at.parse().unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.port()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Ends it as a service manager does, and hands on what it wrote.
    fn stop(mut self) -> Vec<Value> {
        self.program.signal(Signal::TERM);
        assert!(self.program.wait().success());
        assert_eq!(std::fs::metadata(&self.file).unwrap().permissions().mode() & 0o777, 0o600);
        let written = std::fs::read_to_string(&self.file).unwrap();
        assert!(written.ends_with('\n') || written.is_empty());
        written.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// What each record holds, in short: the frame's `t`, or the note.
fn words(records: &[Value]) -> Vec<String> {
    let word = |record: &Value| {
        let way = if record["dir"] == "daemon>worker" { '>' } else { '<' };
        let frame = &record["frame"];
        let what = [&frame["t"], &record["note"], frame].into_iter().find_map(Value::as_str);
        format!("{way}{}", what.unwrap_or("?"))
    };
    records.iter().map(word).collect()
}

/// Whether a dump keeps to its protocols, as the command itself says.
fn assert_clean(home: &Home, file: &str) {
    let checked = home.run(NAME, ["--check", file], b"");
    assert!(checked.status.success(), "{}{}", text(&checked.stdout), text(&checked.stderr));
}

/// Takes one connection, says `answer`, and hands on all that came.
fn scripted(answer: Vec<u8>) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        // An answer comes after its question.
        stream.peek(&mut [0]).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let writing = thread::spawn(move || writer.write_all(&answer).unwrap());
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        writing.join().unwrap();
        heard
    });
    (at, served)
}
