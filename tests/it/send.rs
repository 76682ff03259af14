//! `transit-send` against servers that answer in every way there is.

mod answers;
mod crash;
mod events;
mod keeping;
mod lines;
mod messages;
mod proxies;
mod secrets;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use crate::support::{Home, LONG, text};

const PROGRAM: &str = "transit-send";

/// A server that gives the same raw bytes to every connection and then closes it, and records the requests.
struct Server {
    at: SocketAddr,
    requests: Receiver<Vec<u8>>,
}

impl Server {
    fn start(answer: &str) -> Self {
        let (listener, answer) = (TcpListener::bind("127.0.0.1:0").unwrap(), answer.to_owned());
        let (at, (tell, requests)) = (listener.local_addr().unwrap(), channel());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                // Told before it is answered, so that a client that has ended was told of.
                if tell.send(read_request(&mut stream)).is_err() {
                    return;
                }
                // A client that does not wait for the answer is the business of the test.
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { at, requests }
    }

    /// A server that says this to everybody, and then nothing more while the test runs.
    fn stalled(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, (tell, requests)) = (listener.local_addr().unwrap(), channel());
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                if tell.send(read_request(&mut stream)).is_err() {
                    return;
                }
                let _ = stream.write_all(answer.as_bytes());
                held.push(stream);
            }
        });
        Self { at, requests }
    }

    fn status(line: &str) -> Self {
        Self::start(&format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
    }

    fn url(&self) -> String {
        format!("http://{}/ingest/ci", self.at)
    }

    fn request(&self) -> (String, Vec<u8>) {
        let request = self.requests.recv_timeout(LONG).unwrap();
        let end = request.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        (text(&request[..end]).to_owned(), request[end + 4..].to_vec())
    }
}

fn read_request(stream: &mut TcpStream) -> Vec<u8> {
    let (mut request, mut bytes) = (Vec::new(), [0; 65_536]);
    loop {
        let Ok(read @ 1..) = stream.read(&mut bytes) else { return request };
        request.extend_from_slice(&bytes[..read]);
        let head = String::from_utf8_lossy(&request).into_owned();
        let Some(end) = head.find("\r\n\r\n") else { continue };
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        if request.len() >= end + 4 + length.unwrap_or(0) {
            return request;
        }
    }
}

/// A home with a secret in `secret`.
fn home() -> Home {
    let home = Home::new();
    let path = home.file("secret", "s3cret\n");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    home
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// Sends one event to `url` with the usual options and these.
fn send(home: &Home, url: &str, options: &[&str]) -> Output {
    let usual = [url, "--secret-file", "secret", "--conversation", "c", "--json", "-m", "hi"];
    home.run(PROGRAM, usual.iter().chain(options), b"")
}

fn reports(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What the spool says of the entry of this report.
fn status(home: &Home, id: &str) -> Value {
    let output = home.run(PROGRAM, ["--json", "--status", id], b"");
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    reports(&output).remove(0)
}

/// The id that a refusal names in its hint.
fn dead_id(output: &Output) -> String {
    text(&output.stderr).split("--status ").nth(1).unwrap().trim().to_owned()
}
