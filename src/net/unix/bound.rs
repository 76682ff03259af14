//! Listening on a socket, without taking anything that is not ours.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::place::{absolute, make_run_dir, socket_in, socket_path};
use super::{NO_SOCKET, Peer, SocketError, our_uid};
use crate::net::wake::Wake;
use crate::store::config::Paths;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// How often the lock of a directory is tried for.
const LOCK_TRIES: u32 = 100;
const LOCK_AGAIN: Duration = Duration::from_millis(10);

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
