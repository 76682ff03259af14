//! One server a ledger.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use rustix::fs::FlockOperation;

use super::StoreError;
use super::connection::{beside, open_lock};
use super::space::give_up;

/// How often the pid of the holder is looked for, a millisecond apart: it is written right after the lock is taken.
const PID_TRIES: u32 = 100;

/// The right to serve one ledger. It is a lock on a file beside it that holds the server's pid, and it ends with
/// the process whatever happens to that.
#[derive(Debug)]
pub struct ServeLock {
    file: File,
}

impl ServeLock {
    /// Takes the right to serve the ledger at `database`.
    ///
    /// # Errors
    /// [`StoreError::Busy`] with its pid when another process serves it.
    pub fn take(database: &Path) -> Result<Self, StoreError> {
        let path = beside(database, ".serve");
        let failed = |err| StoreError::io("lock", &path, err);
        let mut file = open_lock(&path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let pid = holder(&mut file).map_err(failed)?;
                return Err(StoreError::Busy { path: database.to_owned(), pid });
            }
            Err(err) => return Err(failed(err.into())),
        }
        file.set_len(0).map_err(failed)?;
        let pid = format!("{}\n", std::process::id());
        let mut written = file.write_all(pid.as_bytes());
        if written.as_ref().is_err_and(|err| err.kind() == ErrorKind::StorageFull) && give_up(database) {
            written = file.rewind().and_then(|()| file.write_all(pid.as_bytes()));
        }
        written.map_err(failed)?;
        Ok(Self { file })
    }
}

/// Who serves the ledger at `database`. Nobody is kept from serving by this.
pub fn server_of(database: &Path) -> Option<u32> {
    let mut file = File::open(beside(database, ".serve")).ok()?;
    let pid = holder_now(&mut file).ok().flatten()?;
    // A server that was killed has left its pid. Its lock is gone, and is only tried where it could be meant.
    let is_alive = Path::new("/proc").join(pid.to_string()).exists();
    let is_locked = || {
        matches!(
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared),
            Err(rustix::io::Errno::WOULDBLOCK)
        )
    };
    (is_alive && is_locked()).then_some(pid)
}

impl Drop for ServeLock {
    fn drop(&mut self) {
        // Nobody reads a pid that is not locked; an empty file only spares people a wrong guess.
        let _ = self.file.set_len(0);
    }
}

fn holder(file: &mut File) -> std::io::Result<u32> {
    for _ in 0..PID_TRIES {
        if let Some(pid) = holder_now(file)? {
            return Ok(pid);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(0)
}

fn holder_now(file: &mut File) -> std::io::Result<Option<u32>> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_is_told_the_pid_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.db");
        let first = ServeLock::take(&path).unwrap();
        let second = ServeLock::take(&path).unwrap_err();
        assert!(matches!(second, StoreError::Busy { pid, .. } if pid == std::process::id()));
        assert!(second.is_passing());
        assert_eq!(server_of(&path), Some(std::process::id()));
        drop(first);
        assert_eq!(server_of(&path), None);
        std::fs::write(beside(&path, ".serve"), format!("{}\n", std::process::id())).unwrap();
        assert_eq!(server_of(&path), None, "a pid without a lock serves nothing");
        ServeLock::take(&path).unwrap();
    }
}
