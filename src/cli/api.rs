//! `transit-api`: the bytes of stdin to the local client API, and what comes back to stdout.
//!
//! It knows nothing of the protocol: no frame is parsed, limited or changed. So it serves a script, and a front end that
//! would rather speak to a pipe than to a socket.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;

use clap::{CommandFactory, Parser};

use super::output::{Exit, Failure, Out};
use super::{Common, Page, Tool, control};
use crate::net::unix::{self, API_SOCK, SocketError};
use crate::store::home::Home;

const NAME: &str = "transit-api";
/// What is copied at once.
const COPY: usize = 64 * 1024;

/// Speak to the local client API by lines of JSON.
///
/// Copies stdin to the daemon's api.sock and what the daemon says to stdout, byte for byte. After the end of stdin it
/// goes on until the daemon closes the connection, which it does once every message has had its reply.
#[derive(Debug, Parser)]
#[command(name = NAME, version)]
pub struct Args {
    /// The socket [default: api.sock in the agents' home].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Does what was asked.
///
/// # Errors
/// When nobody listens, the socket may not be used, or copying fails.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let stream = match &args.socket {
        Some(path) => unix::connect_at(path),
        None => unix::connect_in(home()?.socket_dir(), API_SOCK),
    };
    let stream = stream.map_err(|err| unreachable(&err, args.socket.is_some()))?;
    let to = stream.try_clone().map_err(|err| Failure::new(Exit::Io, "share the connection", err))?;
    let (tell, told) = channel();
    // It may wait for stdin for ever; the process ends without it when the daemon has closed.
    let forth = Builder::new().name("stdin".into()).spawn(move || forth(to, &tell));
    forth.map_err(|err| Failure::new(Exit::Io, "start a thread", err))?;
    back(stream)?;
    match told.try_recv() {
        Ok(err) => Err(Failure::new(Exit::NoInput, "read stdin", err)),
        Err(_) => Ok(Exit::Ok),
    }
}

fn home() -> Result<Home, Failure> {
    control::agents_home().ok_or_else(|| {
        let why = "none of DOTAGENT_HOME, TRANSIT_AGENTS_HOME and HOME is set";
        Failure::new(Exit::Config, "find api.sock", why)
    })
}

fn unreachable(err: &SocketError, is_named: bool) -> Failure {
    const WHAT: &str = "reach the local client API";
    match err {
        SocketError::NoDaemon { .. } if is_named => {
            Failure::new(Exit::Unavailable, WHAT, err).hint("transitd status tells where its api.sock is")
        }
        SocketError::NoDaemon { path } => Failure::new(Exit::Unavailable, WHAT, err).hint(way_out(path)),
        SocketError::Denied { .. } => Failure::new(Exit::NoPermission, WHAT, err),
        SocketError::Untrusted { .. } => Failure::new(Exit::Config, WHAT, err),
        SocketError::InTheWay { .. } => Failure::new(Exit::CannotCreate, WHAT, err),
        SocketError::Io { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
            Failure::new(Exit::Config, WHAT, err)
        }
        _ => Failure::new(Exit::Io, WHAT, err),
    }
}

fn way_out(path: &Path) -> String {
    let dir = path.parent().unwrap_or(path).display();
    format!(
        "run transitd, with an agent in {dir}/agents that [telegram] dispatcher_agent in config.toml there names"
    )
}

/// Copies stdin to the daemon, and ends the writing at its end.
fn forth(mut to: UnixStream, tell: &Sender<io::Error>) {
    let mut from = io::stdin().lock();
    let mut bytes = vec![0; COPY];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => break,
            // Whoever does not take it any more has closed the connection, which the other direction notices.
            Ok(n) => {
                if to.write_all(&bytes[..n]).is_err() {
                    return;
                }
            }
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => {
                let _ = tell.send(err);
                break;
            }
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Copies what the daemon says to stdout, each piece as it comes, until the daemon closes.
fn back(mut from: UnixStream) -> Result<(), Failure> {
    let mut out = Out::new();
    let mut bytes = vec![0; COPY];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(n) => {
                out.write_all(&bytes[..n])?;
                out.flush()?;
            }
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            // The daemon has closed over something that it had not read.
            Err(err) if err.kind() == io::ErrorKind::ConnectionReset => break,
            Err(err) => return Err(Failure::new(Exit::Io, "read from the local client API", err)),
        }
    }
    Ok(out.finish()?)
}

/// The command and its page.
pub fn tool() -> Tool {
    Tool { command: Args::command(), page: PAGE }
}

const PAGE: Page = Page {
    section: "1",
    exits: &[
        Exit::Ok,
        Exit::Usage,
        Exit::NoInput,
        Exit::Unavailable,
        Exit::CannotCreate,
        Exit::Io,
        Exit::NoPermission,
        Exit::Config,
    ],
    environment: &[
        ("DOTAGENT_HOME", "Where api.sock is; ~/.config/dotagent by default."),
        ("TRANSIT_AGENTS_HOME", "The home of the agents, where api.sock is when DOTAGENT_HOME is not set."),
    ],
    files: &[
        ("$DOTAGENT_HOME/api.sock", "Where the daemon serves the local client API."),
        (
            "/run/user/UID/transit-UID-*, /tmp/transit-UID-*",
            "The socket of a home that is too deep for the address of a socket.",
        ),
    ],
    examples: &[
        ("Ask how the API is:", r#"printf '%s\n' '{"id":1,"method":"status.get"}' | transit-api"#),
        (
            "Send a message and wait for its reply:",
            r#"printf '%s\n' '{"id":1,"method":"message.send","params":{"text":"What changed today?"}}' |
  transit-api | jq -r 'select(.event == "reply").text'"#,
        ),
    ],
    see_also: &["transitd(8)", "transit-agent(1)", "transit(7)"],
};
