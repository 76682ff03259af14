//! What the integration tests share: a home of their own, programs in the background, one raw HTTP exchange, and
//! a server that takes callbacks.
//!
//! This is the only file here that may sleep: [`eventually`] looks again and again until a deadline. A test that
//! waits for something waits with it, or on a channel, a pipe or a process.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketType};

/// Far longer than anything here takes; a test that reaches it has failed.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A temporary home directory, with all that Transit reads pointing into it.
pub(crate) struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The data directory, where the sockets are.
    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// Writes a file that is its owner's alone, and answers with its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// One of our programs, in this home and with nothing else of the environment but PATH.
    pub(crate) fn command(&self, program: &str) -> Command {
        self.foreign(programs().join(program))
    }

    /// Any program, in this home; ours are found by their names alone.
    pub(crate) fn foreign(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::iter::once(programs().to_owned()).chain(std::env::split_paths(&path));
        command.env_clear().current_dir(self.dir.path()).env("PATH", std::env::join_paths(dirs).unwrap());
        command.env("HOME", self.dir.path());
        command.env("TRANSIT_DATA_DIR", self.data()).env("TRANSIT_CONFIG", self.path("config.json"));
        command
    }

    /// Runs one of our programs to its end, with `input` as its stdin.
    pub(crate) fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        args: impl IntoIterator<Item = A>,
        input: &[u8],
    ) -> Output {
        let mut command = self.command(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // A program that does not read its stdin closes the pipe, which is no failure.
            scope.spawn(move || stdin.write_all(input).ok());
            child.wait_with_output().unwrap()
        })
    }
}

/// Where Cargo put the programs.
pub(crate) fn programs() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_transitd")).parent().unwrap()
}

/// What a program wrote, as text.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A program that runs beside the test, and ends with it.
pub(crate) struct Background {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

impl Background {
    /// Starts it with its stdin open.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::start_with(command, Stdio::piped())
    }

    /// Starts it with this stdin.
    pub(crate) fn start_with(command: &mut Command, stdin: Stdio) -> Self {
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = read_lines(child.stdout.take().unwrap());
        let errors = read_lines(child.stderr.take().unwrap());
        Self { child, lines, errors }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its stdout.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(LONG).unwrap_or_else(|why| {
            let said: Vec<String> = self.errors.try_iter().collect();
            panic!("no line comes on stdout, {why}; stderr: {said:#?}")
        })
    }

    /// The next line of its stderr.
    pub(crate) fn error(&self) -> String {
        self.errors.recv_timeout(LONG).expect("a line comes on stderr")
    }

    /// The next line of the stderr of a program that has ended; `None` after the last one.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.errors.recv().ok()
    }

    /// Writes to its stdin.
    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(bytes.as_ref()).unwrap();
        stdin.flush().unwrap();
    }

    /// Ends its stdin.
    pub(crate) fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    /// Waits for the file that it writes once it serves.
    pub(crate) fn ready(&mut self, path: &Path) -> serde_json::Value {
        self.ready_or_end(path).unwrap_or_else(|| {
            let said: Vec<String> = self.errors.iter().collect();
            panic!("it ended before it was ready: {}", said.join("\n"));
        })
    }

    /// The same, but it may end before.
    pub(crate) fn ready_or_end(&mut self, path: &Path) -> Option<serde_json::Value> {
        eventually(|| {
            let has_ended = self.child.try_wait().unwrap().is_some();
            let ready = std::fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok());
            (ready.is_some() || has_ended).then_some(ready)
        })
    }

    /// Whether it has ended.
    #[allow(dead_code)] // of the two test programs that share this file, only interop asks
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// The lines of its stdout that came and were not taken yet.
    pub(crate) fn pending_lines(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.close_stdin();
        eventually(|| self.child.try_wait().unwrap())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                break;
            }
        }
    });
    told
}

/// The memory that a process has in use, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Says, past the test harness, which would swallow it, that a part of a test cannot be run here.
pub(crate) fn left_out(why: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "\nLEFT OUT of {test}: {why}");
}

/// Looks until there is something, and fails when it takes longer than [`LONG`].
pub(crate) fn eventually<T>(look: impl FnMut() -> Option<T>) -> T {
    eventually_within(LONG, look)
}

/// The same for what takes its time.
pub(crate) fn eventually_within<T>(longest: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + longest;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it did not come about within {longest:?}");
        std::thread::sleep(longest / 6_000);
    }
}

/// A port of this machine at which nobody listens, and which nobody else gets meanwhile.
#[allow(dead_code)] // of the two test programs that share this file, only it keeps some free
pub(crate) struct Nobody {
    socket: OwnedFd,
    pub(crate) at: SocketAddr,
}

#[allow(dead_code)]
impl Nobody {
    pub(crate) fn new() -> Self {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let at = net::getsockname(&socket).unwrap().try_into().unwrap();
        Self { socket, at }
    }

    /// From now on somebody does.
    pub(crate) fn listen(self) -> TcpListener {
        net::listen(&self.socket, 128).unwrap();
        self.socket.into()
    }
}

/// An HTTP message: its first line, its fields as they were written, and its body.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    pub(crate) first: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Http {
    /// The status of an answer.
    pub(crate) fn status(&self) -> u16 {
        self.first.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// A field, by its name in any case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Reads one; a body without a length goes on until the end.
    fn read(from: impl Read) -> Self {
        let mut from = BufReader::new(from);
        let mut next = || {
            let mut line = String::new();
            from.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        let first = next();
        let fields: Vec<_> = std::iter::from_fn(|| Some(next()).filter(|line| !line.is_empty()))
            .map(|line| line.split_once(':').map(|(n, v)| (n.to_owned(), v.trim().to_owned())).unwrap())
            .collect();
        let mut http = Self { first, fields, body: Vec::new() };
        let length = http.field("content-length").map(|length| length.parse().unwrap());
        from.take(length.unwrap_or(u64::MAX)).read_to_end(&mut http.body).unwrap();
        http
    }
}

/// One exchange over a connection of its own: these exact bytes out, one answer back.
pub(crate) fn http(at: SocketAddr, request: &[u8]) -> Http {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(request).unwrap();
    Http::read(stream)
}

/// A request with a body, as bytes for [`http`].
pub(crate) fn request(method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in fields {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    [request.as_bytes(), body].concat()
}

/// An HTTP server that records every request and answers with a script of statuses; the last one stays.
pub(crate) struct Sink {
    /// Where it listens.
    pub(crate) at: SocketAddr,
    requests: Receiver<Http>,
}

impl Sink {
    pub(crate) fn start(statuses: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (tell, requests) = channel();
        let statuses = statuses.to_vec();
        std::thread::spawn(move || answer(&listener, &statuses, &tell));
        Self { at, requests }
    }

    /// The next request.
    pub(crate) fn next(&self) -> Http {
        self.requests.recv_timeout(LONG).expect("a request comes")
    }

    /// The requests that came and were not taken yet.
    pub(crate) fn rest(&self) -> Vec<Http> {
        self.requests.try_iter().collect()
    }
}

fn answer(listener: &TcpListener, statuses: &[u16], tell: &Sender<Http>) {
    for (n, stream) in listener.incoming().enumerate() {
        let Ok(mut stream) = stream else { return };
        let status = statuses.get(n).or(statuses.last()).copied().unwrap_or(200);
        if tell.send(Http::read(&stream)).is_err() {
            return;
        }
        // A client that has gone away is the business of the test.
        let _ =
            write!(stream, "HTTP/1.1 {status} Said\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
    }
}

#[test]
fn the_sink_records_what_was_sent_and_follows_its_script() {
    let sink = Sink::start(&[503, 200]);
    let request = request("POST", "/reply", &[("X-One", "two")], b"{\"a\":1}");
    let statuses = [(); 3].map(|()| http(sink.at, &request).status());
    assert_eq!(statuses, [503, 200, 200]);
    let first = sink.next();
    assert_eq!((first.first.as_str(), first.field("x-one")), ("POST /reply HTTP/1.1", Some("two")));
    assert_eq!(first.json()["a"], 1);
    assert_eq!(sink.rest().len(), 2);
}

#[test]
fn a_program_in_the_background_is_heard_and_ended() {
    let home = Home::new();
    let ready = home.file("ready", "{\"pid\":1}");
    let mut cat = Background::start(Command::new("sh").args(["-c", "echo up >&2; exec cat"]));
    assert_eq!(cat.error(), "up");
    assert_eq!(cat.ready(&ready)["pid"], 1);
    cat.write("one\n");
    assert_eq!(cat.line(), "one");
    assert!(Path::new(&format!("/proc/{}", cat.pid())).exists());
    cat.signal(rustix::process::Signal::TERM);
    assert!(!cat.wait().success());
}
