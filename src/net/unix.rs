//! Unix sockets of one user: where they are, who may stand behind them, and how they are bound without taking
//! anything that is not ours.
//!
//! A socket lives in the data directory. Where that is too deep for the address of a socket, it lives in a short
//! run directory of this user instead, which every command finds by the same rule: [`socket_path`] looks only at
//! the machine, never at variables, because a cron job and a login shell do not share those.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use sha2::{Digest, Sha256};

use super::wake::Wake;
use crate::limits;
use crate::store::config::Paths;

/// The daemon's socket for commands: one request, one response.
pub const TRANSIT_SOCK: &str = "transit.sock";
/// The daemon's socket for harness adapters (transit-agent/1).
pub const AGENT_SOCK: &str = "agent.sock";
/// The daemon's socket for clients of the local API, in the home of the agents.
pub const API_SOCK: &str = "api.sock";

const NO_SOCKET: &str = "no socket";
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// How often the lock of a directory is tried for.
const LOCK_TRIES: u32 = 100;
const LOCK_AGAIN: Duration = Duration::from_millis(10);

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

/// Where the socket `name` of this data directory is.
///
/// # Errors
/// When the directory is too deep and no run directory can be trusted.
pub fn socket_path(paths: &Paths, name: &str) -> Result<PathBuf, SocketError> {
    socket_in(&paths.data, name)
}

/// Where the socket `name` of any directory of this user is, by the same rule.
///
/// # Errors
/// When the directory is too deep and no run directory can be trusted.
pub fn socket_in(dir: &Path, name: &str) -> Result<PathBuf, SocketError> {
    let data = absolute(dir)?;
    let direct = data.join(name);
    if fits(&direct) {
        return Ok(direct);
    }
    let short = run_dirs(&data, &run_bases());
    for dir in &short {
        if dir.join(name).symlink_metadata().is_ok() {
            check_run_dir(dir)?;
            return Ok(dir.join(name));
        }
    }
    let dir = short.into_iter().next().expect("/tmp is always among the bases");
    match check_run_dir(&dir) {
        Err(SocketError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        checked => checked?,
    }
    Ok(dir.join(name))
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

/// A socket that this process listens on. Dropping it removes the socket file, if it is still the same one.
#[derive(Debug)]
pub struct Bound {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file that goes with it; none when it is somebody else's to remove.
    file: Option<(u64, u64)>,
}

impl Bound {
    /// Listens on the socket `name`: 0600, in a directory that is 0700. The remains of our own earlier socket are
    /// replaced; a live one, a foreign one and anything that is no socket are left alone. The caller holds the
    /// daemon's lock, so that nobody else of this data directory binds at the same time.
    ///
    /// # Errors
    /// When the place is taken, cannot be trusted, or cannot be bound.
    pub fn bind(paths: &Paths, name: &str) -> Result<Self, SocketError> {
        Self::bind_in(&paths.data, name)
    }

    /// Listens on the socket `name` of any directory of this user in the same way.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_in(dir: &Path, name: &str) -> Result<Self, SocketError> {
        let path = socket_in(dir, name)?;
        if !path.starts_with(absolute(dir)?) {
            let dir = path.parent().expect("a socket path has its file name");
            make_run_dir(dir)?;
        }
        Self::bind_at(path)
    }

    /// Listens on the socket `name` that the service manager has opened for this process, which stays when it ends. It
    /// must be where commands look.
    ///
    /// # Errors
    /// When it is another socket, or belongs to somebody else.
    pub fn adopt(paths: &Paths, name: &str, listener: UnixListener) -> Result<Self, SocketError> {
        let path = socket_path(paths, name)?;
        let failed = |err| SocketError::io("take over", &path, err);
        let at = listener.local_addr().map_err(failed)?;
        let is_it = at.as_pathname().is_some_and(|at| {
            at == path
                || fs::canonicalize(at).is_ok_and(|at| fs::canonicalize(&path).is_ok_and(|path| at == path))
        });
        if !is_it {
            let at = at.as_pathname().map_or("no path".into(), |at| at.display().to_string());
            return Err(SocketError::Elsewhere { path, at });
        }
        let found = fs::symlink_metadata(&path).map_err(failed)?;
        if found.uid() != our_uid() {
            return Err(SocketError::Denied { path, why: "it belongs to another user".into() });
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        // The kernel tells those who connect who listened last; until now that was the service manager.
        rustix::net::listen(&listener, BACKLOG).map_err(|err| failed(err.into()))?;
        Ok(Self { listener, path, file: None })
    }

    /// Listens on the socket at `path` in the same way, whatever its directory is.
    ///
    /// # Errors
    /// When the place is taken or cannot be bound.
    pub fn bind_at(path: PathBuf) -> Result<Self, SocketError> {
        let _alone = alone_in(&path);
        make_room(&path)?;
        let failed = |err| SocketError::io("bind", &path, err);
        let listener = listen(&path).map_err(failed)?;
        let found = fs::symlink_metadata(&path).map_err(failed)?;
        Ok(Self { listener, path, file: Some((found.dev(), found.ino())) })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection, or `None` once `wake` is given. Connections of other users are closed unanswered.
    ///
    /// # Errors
    /// When the system has no descriptors left, or the listener is broken.
    pub fn accept(&self, wake: &Wake) -> io::Result<Option<(UnixStream, Peer)>> {
        loop {
            let Some(stream) = self.accept_any(wake)? else { return Ok(None) };
            let peer = Peer::of(&stream)?;
            if peer.is_ours() {
                return Ok(Some((stream, peer)));
            }
        }
    }

    /// The next connection, whoever's it is, or `None` once `wake` is given.
    ///
    /// # Errors
    /// When the system has no descriptors left, or the listener is broken.
    pub fn accept_any(&self, wake: &Wake) -> io::Result<Option<UnixStream>> {
        loop {
            let mut fds = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                polled => polled?,
            };
            if !fds[1].revents().is_empty() {
                return Ok(None);
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(err) if is_passing(&err) => continue,
                Err(err) => return Err(err),
            };
            stream.set_nonblocking(false)?;
            return Ok(Some(stream));
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let still_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|now| Some((now.dev(), now.ino())) == self.file);
        if still_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_passing(err: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(err.kind(), WouldBlock | Interrupted | ConnectionAborted)
}

/// Keeps others of our kind from binding in the same directory for as long as it is held: two that start together
/// would each take the other's new socket, which does not listen yet, for the remains of an old one. Somebody else may
/// hold this lock for ever, and is not waited for.
fn alone_in(path: &Path) -> Option<File> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let dir = File::open(dir).ok()?;
    for _ in 0..LOCK_TRIES {
        match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_AGAIN),
            locked => return locked.ok().map(|()| dir),
        }
    }
    None
}

/// A listener that does not block. The file is its owner's alone before anybody can connect to it, whatever the umask.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Removes what is left of an earlier socket of ours, and nothing else.
fn make_room(path: &Path) -> Result<(), SocketError> {
    let found = match fs::symlink_metadata(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|err| SocketError::io("look at", path, err))?,
    };
    if !found.file_type().is_socket() {
        return Err(SocketError::InTheWay { path: path.to_owned(), what: NO_SOCKET });
    }
    if found.uid() != our_uid() {
        return Err(SocketError::Denied { path: path.to_owned(), why: "it belongs to another user".into() });
    }
    match UnixStream::connect(path) {
        Err(err) if err.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        // Connected, or too busy to take a connection: somebody is there.
        _ => return Err(SocketError::Live { path: path.to_owned() }),
    }
    fs::remove_file(path).map_err(|err| SocketError::io("remove the stale socket", path, err))
}

fn fits(path: &Path) -> bool {
    path.as_os_str().len() <= limits::SOCKET_PATH_BYTES
}

/// The directory as every command sees it, whatever link or relative path it was given by.
fn absolute(data: &Path) -> Result<PathBuf, SocketError> {
    fs::canonicalize(data)
        .or_else(|_| std::path::absolute(data))
        .map_err(|err| SocketError::io("find", data, err))
}

/// The directories in which a run directory may be made, the best first: the session's, if there is one, and
/// `/tmp`, which there always is.
fn run_bases() -> Vec<PathBuf> {
    let session = PathBuf::from(format!("/run/user/{}", our_uid()));
    let usable = session.symlink_metadata().is_ok_and(|found| found.is_dir() && found.uid() == our_uid());
    usable.then_some(session).into_iter().chain([PathBuf::from("/tmp")]).collect()
}

fn run_dirs(data: &Path, bases: &[PathBuf]) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let hash = hex::encode(&Sha256::digest(data.as_os_str().as_bytes())[..8]);
    bases.iter().map(|base| base.join(format!("transit-{}-{hash}", our_uid()))).collect()
}

/// Makes the run directory; one that is there already must pass [`check_run_dir`].
fn make_run_dir(dir: &Path) -> Result<(), SocketError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(|err| SocketError::io("make the run directory", dir, err))?,
    }
    check_run_dir(dir)
}

/// In `/tmp` anybody can be there first: a link, another owner, or a directory that others can write is refused.
fn check_run_dir(dir: &Path) -> Result<(), SocketError> {
    let found = fs::symlink_metadata(dir).map_err(|err| SocketError::io("look at", dir, err))?;
    let untrusted = |what| Err(SocketError::Untrusted { path: dir.to_owned(), what });
    if found.file_type().is_symlink() {
        return untrusted("is a symbolic link");
    }
    if !found.is_dir() {
        return untrusted("is no directory");
    }
    if found.uid() != our_uid() {
        return untrusted("belongs to another user");
    }
    if found.mode() & 0o077 != 0 {
        return untrusted("is open to other users");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
