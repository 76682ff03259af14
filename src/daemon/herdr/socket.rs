//! Herdr's socket: where it is, and one request over it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::shown;
use crate::id::fill_random;
use crate::net::line::LineSocket;
use crate::net::unix::{SocketError, connect_within};
use crate::net::wake::Wake;
use crate::proto::herdr::{Fault, Processes, Request, answer};
use crate::proto::lines::Line;
use crate::store::config::Config;
use crate::store::process::{Process, start_time};

/// Time for a connection to stand: a Herdr that hangs accepts nobody, and keeps whoever waits for it.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Where Herdr listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Socket {
    path: PathBuf,
    /// Somebody has said that it is there.
    is_named: bool,
}

impl Socket {
    /// The configured one, else that of the environment, else Herdr's own default; `None` when there is not even a
    /// home directory.
    pub(super) fn find(config: &Config, var: impl Fn(&str) -> Option<PathBuf>) -> Option<Self> {
        let set = |name: &str| var(name).filter(|path| !path.as_os_str().is_empty());
        let named = config
            .herdr_socket
            .clone()
            .or_else(|| set("TRANSIT_HERDR_SOCKET"))
            .or_else(|| set("HERDR_SOCKET_PATH"));
        if let Some(path) = named {
            return Some(Self { path, is_named: true });
        }
        let below = |base: PathBuf| base.join("herdr/herdr.sock");
        let xdg = set("XDG_CONFIG_HOME").filter(|base| base.is_absolute()).map(below);
        let home = set("HOME").filter(|home| home.is_absolute()).map(|home| below(home.join(".config")));
        let path = match (xdg, home) {
            (Some(xdg), Some(home)) => {
                if xdg.exists() {
                    xdg
                } else {
                    home
                }
            }
            (xdg, home) => xdg.or(home)?,
        };
        Some(Self { path, is_named: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nobody has promised a Herdr, and there is none.
    pub(super) fn is_absent(&self) -> bool {
        !self.is_named && !self.path.exists()
    }

    /// Makes one request, on a connection of its own. `wake` ends the wait early; when `is_over` holds then, there is
    /// no answer.
    pub(super) fn ask(
        &self,
        request: &Request,
        wake: &Wake,
        is_over: impl Fn() -> bool,
    ) -> Result<Value, Fault> {
        let started = std::time::Instant::now();
        let lost = |why: &dyn std::fmt::Display| Fault::Lost(format!("{}: {why}", request.method));
        let stream =
            connect_within(&self.path, request.wait.min(CONNECT_WAIT)).map_err(|err| unavailable(&err))?;
        let mut connection = LineSocket::new(stream).map_err(|err| Fault::Unavailable(err.to_string()))?;
        let mut random = [0; 6];
        fill_random(&mut random);
        let id = format!("transit_{}", hex::encode(random));
        connection.write(&request.encode(&id));
        loop {
            // What was not written yet goes out with the wait.
            match connection.read().map_err(|err| lost(&err))? {
                Some(Line::Text(line)) => return answer(&line, &id),
                Some(Line::NotUtf8) => return Err(lost(&"the answer is not UTF-8")),
                Some(Line::TooLong) => return Err(lost(&"the answer has no end")),
                None => {}
            }
            let left = request.wait.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(lost(&format!("no answer in {} s", request.wait.as_secs())));
            }
            if is_over() {
                return Err(lost(&"the daemon stops"));
            }
            connection.wait(wake, left).map_err(|err| lost(&err))?;
        }
    }
}

fn unavailable(err: &SocketError) -> Fault {
    Fault::Unavailable(match err {
        SocketError::NoDaemon { path } => format!("no Herdr listens on {}", shown(path)),
        err => crate::text::visible(&err.to_string()).into_owned(),
    })
}

/// The processes of a pane that still run, as nobody else can be.
pub(super) fn running(processes: &Processes) -> Vec<Process> {
    let pids = processes.shell.iter().chain(&processes.foreground);
    pids.filter_map(|&pid| Some(Process { pid, start_time: start_time(pid)? })).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn find(config: &Config, vars: &[(&str, &str)]) -> Option<(PathBuf, bool)> {
        let var = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| PathBuf::from(v));
        Socket::find(config, var).map(|socket| (socket.path, socket.is_named))
    }

    #[test]
    fn the_socket_is_where_it_is_said_to_be_and_else_where_herdr_has_it() {
        let all = [
            ("TRANSIT_HERDR_SOCKET", "/t"),
            ("HERDR_SOCKET_PATH", "/h"),
            ("XDG_CONFIG_HOME", "/nowhere/x"),
            ("HOME", "/nowhere/home"),
        ];
        let config = Config { herdr_socket: Some("/c".into()), ..Config::default() };
        assert_eq!(find(&config, &all), Some(("/c".into(), true)));
        assert_eq!(find(&Config::default(), &all), Some(("/t".into(), true)));
        assert_eq!(find(&Config::default(), &all[1..]), Some(("/h".into(), true)));
        let home = PathBuf::from("/nowhere/home/.config/herdr/herdr.sock");
        assert_eq!(find(&Config::default(), &all[2..]), Some((home, false)));
        assert_eq!(find(&Config::default(), &[]), None);
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("herdr")).unwrap();
        std::fs::write(dir.path().join("herdr/herdr.sock"), "").unwrap();
        let xdg = [("XDG_CONFIG_HOME", dir.path().to_str().unwrap()), ("HOME", "/h")];
        assert_eq!(find(&Config::default(), &xdg), Some((dir.path().join("herdr/herdr.sock"), false)));
    }

    /// Asks a server that answers its one connection with these bytes.
    fn ask(bytes: Vec<u8>) -> Result<Value, Fault> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("herdr.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            // The client may have had enough of it.
            let _ = stream.write_all(&bytes);
        });
        let request = Request { wait: Duration::from_millis(300), ..Request::ping() };
        let answer = Socket { path, is_named: true }.ask(&request, &Wake::new().unwrap(), || false);
        server.join().unwrap();
        answer
    }

    #[test]
    fn no_answer_keeps_us_or_grows_without_end() {
        assert!(matches!(ask(Vec::new()), Err(Fault::Lost(_))));
        assert!(matches!(ask(b"{\"id\":".to_vec()), Err(Fault::Lost(_))));
        assert!(matches!(ask(vec![0xff, b'\n']), Err(Fault::Lost(_))));
        assert!(matches!(ask(vec![b'x'; 3 << 20]), Err(Fault::Lost(_))));
        let code = br#"{"id":"","error":{"code":"invalid_request","message":"x"}}"#;
        assert!(matches!(ask([code.as_slice(), b"\n"].concat()), Err(Fault::Refused { .. })));
    }

    #[test]
    fn what_is_no_socket_of_ours_is_not_connected_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("herdr.sock");
        let wake = Wake::new().unwrap();
        let ask = |path: &Path| {
            Socket { path: path.to_owned(), is_named: true }.ask(&Request::ping(), &wake, || false)
        };
        assert!(matches!(ask(&path), Err(Fault::Unavailable(_))));
        std::fs::write(&path, "").unwrap();
        assert!(matches!(ask(&path), Err(Fault::Unavailable(_))));
        let deep = dir.path().join("x".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        assert!(matches!(ask(&deep.join("herdr.sock")), Err(Fault::Unavailable(_))));
    }

    #[test]
    fn a_server_that_never_answers_is_given_up_or_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("herdr.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let socket = Socket { path, is_named: true };
        let wake = Wake::new().unwrap();
        let request = Request { wait: Duration::from_millis(20), ..Request::ping() };
        assert!(matches!(socket.ask(&request, &wake, || false), Err(Fault::Lost(_))));
        wake.wake();
        assert!(matches!(socket.ask(&Request::ping(), &wake, || true), Err(Fault::Lost(_))));
    }

    #[test]
    fn only_processes_that_run_are_a_panes() {
        let own = Process::current();
        let found = running(&Processes { shell: Some(own.pid), foreground: vec![u32::MAX - 1] });
        assert_eq!(found, [own]);
    }
}
