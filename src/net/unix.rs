//! Unix sockets of one user: where they are, who may stand behind them, and how they are bound without taking
//! anything that is not ours.
//!
//! A socket lives in the data directory. Where that is too deep for the address of a socket, it lives in a short
//! run directory of this user instead, which every command finds by the same rule: [`socket_path`] looks only at
//! the machine, never at variables, because a cron job and a login shell do not share those.

mod bound;
mod place;

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::store::config::Paths;

pub use self::bound::Bound;
pub use self::place::{socket_in, socket_path};

/// The daemon's socket for commands: one request, one response.
pub const TRANSIT_SOCK: &str = "transit.sock";
/// The daemon's socket for harness adapters (transit-agent/1).
pub const AGENT_SOCK: &str = "agent.sock";
/// The daemon's socket for clients of the local API, in the home of the agents.
pub const API_SOCK: &str = "api.sock";

const NO_SOCKET: &str = "no socket";

/// Why a socket cannot be bound or reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Nobody listens: there is no socket, or only the remains of one.
    #[error("no daemon listens on {}", path.display())]
    NoDaemon {
        /// Where one would listen.
        path: PathBuf,
    },
    /// The socket or its directory belongs to somebody else, or may not be used.
    #[error("not allowed to use {}: {why}", path.display())]
    Denied {
        /// Which one.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A run directory that another user could have planted or can change.
    #[error("the run directory {} cannot be trusted: it {what}", path.display())]
    Untrusted {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Something else stands where the socket, or a directory on the way to it, should be.
    #[error("{} is in the way: it is {what}", path.display())]
    InTheWay {
        /// Where.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Another process listens there.
    #[error("another process listens on {}", path.display())]
    Live {
        /// Where.
        path: PathBuf,
    },
    /// The service manager has opened another socket than the one at which commands look.
    #[error("the socket unit listens on {at}, but commands look at {}", path.display())]
    Elsewhere {
        /// Where commands look.
        path: PathBuf,
        /// Where the unit listens.
        at: String,
    },
    /// Any other failure.
    #[error("could not {doing} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl SocketError {
    fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }
}

/// The process at the other end of a socket, as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its pid; 0 when it lives in a pid namespace that this process cannot see into.
    pub pid: u32,
    /// Its effective user when it connected.
    pub uid: u32,
}

impl Peer {
    /// Who is at the other end of `stream`.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn of(stream: &UnixStream) -> io::Result<Self> {
        // Not rustix: its `UCred` holds a pid that is never zero, and the kernel's may be.
        let seen = nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerCredentials)?;
        Ok(Self { pid: u32::try_from(seen.pid()).unwrap_or(0), uid: seen.uid() })
    }

    /// Whether it is a process of our own user.
    pub fn is_ours(self) -> bool {
        self.uid == our_uid()
    }
}

fn our_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Connects to the socket `name` of this data directory, for a command.
///
/// # Errors
/// [`SocketError::NoDaemon`] when nobody listens, though somebody may later; [`SocketError::Denied`] when somebody
/// else does, or the directory is somebody else's; [`SocketError::InTheWay`] when nobody ever can.
pub fn connect(paths: &Paths, name: &str) -> Result<UnixStream, SocketError> {
    connect_in(&paths.data, name)
}

/// Connects to the socket `name` of any directory of this user in the same way.
///
/// # Errors
/// As [`connect`].
pub fn connect_in(dir: &Path, name: &str) -> Result<UnixStream, SocketError> {
    let path = socket_in(dir, name)?;
    connect_at(&path).map_err(|err| match err {
        SocketError::NoDaemon { path } => nobody(dir, &path),
        other => other,
    })
}

/// Connects to the socket at `path`, behind which a process of our own user must be.
///
/// # Errors
/// [`SocketError::NoDaemon`] when nobody listens, [`SocketError::Denied`] when somebody else does.
pub fn connect_at(path: &Path) -> Result<UnixStream, SocketError> {
    let stream = UnixStream::connect(path).map_err(|err| match err.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory => {
            SocketError::NoDaemon { path: path.to_owned() }
        }
        io::ErrorKind::PermissionDenied => {
            SocketError::Denied { path: path.to_owned(), why: err.to_string() }
        }
        _ => SocketError::io("connect to", path, err),
    })?;
    only_ours(stream, path)
}

/// The connection, if a process of our own user is at its other end.
fn only_ours(stream: UnixStream, path: &Path) -> Result<UnixStream, SocketError> {
    let peer = Peer::of(&stream).map_err(|err| SocketError::io("ask who listens on", path, err))?;
    if !peer.is_ours() {
        let why = format!("user {} listens there", peer.uid);
        return Err(SocketError::Denied { path: path.to_owned(), why });
    }
    Ok(stream)
}

/// Connects to the socket that another program of our own user has at `path`, within `wait`: one that hangs and
/// accepts nobody would otherwise keep us for ever once its queue is full.
///
/// # Errors
/// As [`connect_at`]; [`SocketError::InTheWay`] when there is something else than a socket, [`SocketError::Denied`]
/// when it is somebody else's.
pub fn connect_within(path: &Path, wait: Duration) -> Result<UnixStream, SocketError> {
    let none = || SocketError::NoDaemon { path: path.to_owned() };
    let found = match fs::metadata(path) {
        Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(none());
        }
        found => found.map_err(|err| SocketError::io("look at", path, err))?,
    };
    if !found.file_type().is_socket() {
        return Err(SocketError::InTheWay { path: path.to_owned(), what: NO_SOCKET });
    }
    if found.uid() != our_uid() {
        return Err(SocketError::Denied { path: path.to_owned(), why: "it belongs to another user".into() });
    }
    let connected = || -> rustix::io::Result<UnixStream> {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};
        let address = SocketAddrUnix::new(path)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(wait))?;
        rustix::net::connect(&socket, &address)?;
        Ok(UnixStream::from(socket))
    };
    let stream = connected().map_err(|err| match err {
        rustix::io::Errno::NOENT | rustix::io::Errno::CONNREFUSED => none(),
        err => SocketError::io("connect to", path, err.into()),
    })?;
    only_ours(stream, path)
}

/// Why nobody listens on `path`.
fn nobody(data: &Path, path: &Path) -> SocketError {
    let found = data.ancestors().find_map(|dir| Some((dir, fs::metadata(dir).ok()?)));
    if let Some((dir, found)) = found {
        if !found.is_dir() {
            return SocketError::InTheWay { path: dir.to_owned(), what: "not a directory" };
        }
        if dir == data && found.uid() != our_uid() {
            return SocketError::Denied { path: dir.to_owned(), why: "it belongs to another user".into() };
        }
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            SocketError::InTheWay { path: path.to_owned(), what: NO_SOCKET }
        }
        _ => SocketError::NoDaemon { path: path.to_owned() },
    }
}

#[cfg(test)]
mod tests;
