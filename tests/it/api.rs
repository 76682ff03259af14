//! `transit-api`, against a server of the test's: every byte, every end, every exit code.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Output;
use std::thread::JoinHandle;

use crate::support::{Background, Home, LONG, resident_bytes, text};

/// Everything that a client sends, and then this as the answer.
fn serve(socket: &Path, answer: Vec<u8>) -> JoinHandle<Vec<u8>> {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).unwrap();
        client.write_all(&answer).unwrap();
        heard
    })
}

fn run(home: &Home, args: &[&str], input: &[u8]) -> Output {
    home.run("transit-api", args, input)
}

fn failed(output: &Output, code: i32, line: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.starts_with(&format!("transit-api: {line}")), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn bytes_pass_unchanged_both_ways_whatever_they_are() {
    let home = Home::new();
    let long = "x".repeat(300_000);
    let requests = format!("{{\"id\": 1 }}\r\n\n\0\u{1b}[31m{long}\nno newline");
    let answers = [b"\xff\xfe {\"a\":\t1}\r\n\r\n".as_slice(), long.as_bytes(), b"\n\nlast"].concat();
    std::fs::create_dir_all(home.path(".config/dotagent")).unwrap();
    let server = serve(&home.path(".config/dotagent/api.sock"), answers.clone());
    let output = run(&home, &[], requests.as_bytes());
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(output.stdout == answers);
    assert!(server.join().unwrap() == requests.as_bytes());
}

#[test]
fn nothing_on_stdin_is_an_exchange_too() {
    let home = Home::new();
    let socket = home.path("s.sock");
    let server = serve(&socket, b"bye\n".to_vec());
    let output = run(&home, &["--socket", socket.to_str().unwrap()], b"");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "bye\n"));
    assert!(server.join().unwrap().is_empty());
}

#[test]
fn each_piece_is_passed_on_as_it_comes_and_the_server_has_the_last_word() {
    let home = Home::new();
    let listener = UnixListener::bind(home.path("api.sock")).unwrap();
    let mut bridge = Background::start(home.command("transit-api").env("DOTAGENT_HOME", home.path("")));
    let (mut server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(LONG)).unwrap();
    bridge.write("half a li");
    let mut heard = [0; 9];
    server.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"half a li");
    server.write_all(b"early\n").unwrap();
    assert_eq!(bridge.line(), "early");
    bridge.close_stdin();
    assert_eq!(server.read(&mut heard).unwrap(), 0, "its writing has ended");
    server.write_all(b"late\n").unwrap();
    assert_eq!(bridge.line(), "late");
    drop(server);
    assert!(bridge.wait().success());
}

#[test]
fn it_ends_when_the_server_does_though_stdin_stays_open() {
    let home = Home::new();
    let socket = home.path("s.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (open, ours) = UnixStream::pair().unwrap();
    let mut command = home.command("transit-api");
    command.args(["--socket".as_ref(), socket.as_os_str()]);
    let bridge = Background::start_with(&mut command, std::os::fd::OwnedFd::from(ours).into());
    drop(command);
    let (server, _) = listener.accept().unwrap();
    (&open).write_all(b"unread\n").unwrap();
    // Closed over what it has not read, and without a word.
    let mut peek = [0; 1];
    (&server).read_exact(&mut peek).unwrap();
    drop(server);
    let mut bridge = bridge;
    assert!(bridge.wait().success());
    assert_eq!(bridge.last_error(), None);
}

#[test]
fn memory_stays_flat_however_much_passes() {
    let home = Home::new();
    let socket = home.path("s.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut command = home.command("transit-api");
    command.args(["--socket".as_ref(), socket.as_os_str()]);
    let mut bridge = Background::start(&mut command);
    let (server, _) = listener.accept().unwrap();
    let back = server.try_clone().unwrap();
    let reader = std::thread::spawn(move || std::io::copy(&mut &server, &mut std::io::sink()).unwrap());
    let mebibyte = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        bridge.write(&mebibyte);
    }
    let used = resident_bytes(bridge.pid());
    assert!(used < 16 << 20, "{used} bytes for a line of 64 MiB");
    bridge.close_stdin();
    assert_eq!(reader.join().unwrap(), 64 << 20);
    (&back).write_all(b"done\n").unwrap();
    assert_eq!(bridge.line(), "done");
    back.shutdown(Shutdown::Both).unwrap();
    assert!(bridge.wait().success());
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let home = Home::new();
    let socket = home.path("s.sock");
    let server = serve(&socket, b"unheard\n".to_vec());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = home.command("transit-api");
    command.args(["--socket".as_ref(), socket.as_os_str()]).stdin(std::process::Stdio::null());
    let output = command.stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    server.join().unwrap();
}

#[test]
fn nobody_there_is_69_with_the_way_out() {
    let home = Home::new();
    let output = run(&home, &[], b"");
    let at = home.path(".config/dotagent/api.sock");
    failed(&output, 69, &format!("reach the local client API: no daemon listens on {}", at.display()));
    assert!(text(&output.stderr).contains("\ntransit-api: run transitd, with an agent in "));
    let socket = home.path("stale");
    drop(UnixListener::bind(&socket).unwrap());
    failed(
        &run(&home, &["--socket", socket.to_str().unwrap()], b""),
        69,
        "reach the local client API: no daemon",
    );
}

#[test]
fn what_can_never_be_reached_says_why() {
    let home = Home::new();
    std::fs::create_dir_all(home.path(".config/dotagent")).unwrap();
    home.file(".config/dotagent/api.sock", "");
    failed(&run(&home, &[], b""), 73, "reach the local client API: ");
    let deep = format!("/{}", "d".repeat(200));
    failed(&run(&home, &["--socket", &deep], b""), 78, "reach the local client API: ");
    let output = home.command("transit-api").env_remove("HOME").output().unwrap();
    failed(&output, 78, "find api.sock: none of DOTAGENT_HOME, TRANSIT_AGENTS_HOME and HOME is set");
    failed(&run(&home, &["--sock"], b""), 2, "read the arguments");
}

#[test]
fn stdin_that_cannot_be_read_is_66_after_the_exchange() {
    let home = Home::new();
    let socket = home.path("s.sock");
    let server = serve(&socket, b"bye\n".to_vec());
    let mut command = home.command("transit-api");
    command.args(["--socket".as_ref(), socket.as_os_str()]);
    let output = command.stdin(std::fs::File::open(home.path("")).unwrap()).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(66), "bye\n"));
    assert!(text(&output.stderr).starts_with("transit-api: read stdin: "));
    server.join().unwrap();
}
