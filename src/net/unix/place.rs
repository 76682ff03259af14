//! Where a socket is: in its own directory, or in a short run directory of this user where that is too deep.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{SocketError, our_uid};
use crate::limits;
use crate::store::config::Paths;

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

pub(super) fn fits(path: &Path) -> bool {
    path.as_os_str().len() <= limits::SOCKET_PATH_BYTES
}

/// The directory as every command sees it, whatever link or relative path it was given by.
pub(super) fn absolute(data: &Path) -> Result<PathBuf, SocketError> {
    fs::canonicalize(data)
        .or_else(|_| std::path::absolute(data))
        .map_err(|err| SocketError::io("find", data, err))
}

/// The directories in which a run directory may be made, the best first: the session's, if there is one, and
/// `/tmp`, which there always is.
pub(super) fn run_bases() -> Vec<PathBuf> {
    let session = PathBuf::from(format!("/run/user/{}", our_uid()));
    let usable = session.symlink_metadata().is_ok_and(|found| found.is_dir() && found.uid() == our_uid());
    usable.then_some(session).into_iter().chain([PathBuf::from("/tmp")]).collect()
}

pub(super) fn run_dirs(data: &Path, bases: &[PathBuf]) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let hash = hex::encode(&Sha256::digest(data.as_os_str().as_bytes())[..8]);
    bases.iter().map(|base| base.join(format!("transit-{}-{hash}", our_uid()))).collect()
}

/// Makes the run directory; one that is there already must pass [`check_run_dir`].
pub(super) fn make_run_dir(dir: &Path) -> Result<(), SocketError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(|err| SocketError::io("make the run directory", dir, err))?,
    }
    check_run_dir(dir)
}

/// In `/tmp` anybody can be there first: a link, another owner, or a directory that others can write is refused.
pub(super) fn check_run_dir(dir: &Path) -> Result<(), SocketError> {
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
