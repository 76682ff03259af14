//! Files of one owner: written whole or not at all, readable by nobody else.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::StoreError;

/// Makes `dir` and what is missing above it. The directory itself is 0700, also when it was there and was ours.
///
/// # Errors
/// When it cannot be made, is not a directory, or belongs to somebody else.
pub fn private_dir(dir: &Path) -> Result<(), StoreError> {
    let failed = |err| not_made(dir, err);
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return Ok(()),
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
        Err(err) => return Err(failed(err)),
    }
    let found = fs::metadata(dir).map_err(failed)?;
    if !found.is_dir() {
        return Err(StoreError::InTheWay { path: dir.to_owned(), what: "not a directory" });
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(StoreError::Foreign { path: dir.to_owned() });
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Makes the directory that `path` is to be in, 0700, and what is missing above it. One that is there stays as it
/// is: it may be everybody's.
///
/// # Errors
/// When it cannot be made, or a file is in the way.
pub fn make_parent(path: &Path) -> Result<(), StoreError> {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => {
            DirBuilder::new().mode(0o700).recursive(true).create(dir).map_err(|err| not_made(dir, err))
        }
        _ => Ok(()),
    }
}

/// What the system says of a file on the way depends on how far on the way it is.
fn not_made(dir: &Path, err: io::Error) -> StoreError {
    let file = dir.ancestors().find(|above| above.symlink_metadata().is_ok() && !above.is_dir());
    match file {
        Some(path) => StoreError::InTheWay { path: path.to_owned(), what: "not a directory" },
        None => StoreError::io("make the directory", dir, err),
    }
}

/// Whether a file can be made in this directory, written and removed again, by trying it; it is synced, since some file
/// systems find out only then that there is no room.
///
/// # Errors
/// When it cannot.
pub fn try_out(dir: &Path) -> io::Result<()> {
    let path = dir.join(format!("writable.{}.tmp", std::process::id()));
    let write = || {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(&[0; 4096])?;
        file.sync_all()
    };
    let written = write();
    match fs::remove_file(&path) {
        Err(err) if written.is_ok() => Err(err),
        _ => written,
    }
}

/// Replaces `path` by a file 0600 that holds `content`: a temporary file beside it, synced, renamed, and the
/// directory synced.
///
/// # Errors
/// When any step fails; the old file, if there was one, is then still whole.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    write_beside(path, content, |beside| fs::rename(beside, path))
}

/// Replaces somebody's file as [`write_private`] does, but one that is there keeps its mode, and a link stays a link to
/// it.
///
/// # Errors
/// When any step fails; the old file, if there was one, is then still whole.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let Ok(real) = fs::canonicalize(path) else { return write_private(path, content) };
    let mode = fs::metadata(&real).map_err(|err| StoreError::io("read", path, err))?.permissions();
    write_beside(&real, content, |beside| {
        fs::set_permissions(beside, mode.clone())?;
        fs::rename(beside, &real)
    })
}

/// Like [`write_private`], but a file that is already there stays as it is: whoever is first wins.
///
/// # Errors
/// When any step fails.
pub fn create_private(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    write_beside(path, content, |beside| {
        match fs::hard_link(beside, path) {
            Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err),
            _ => {}
        }
        fs::remove_file(beside)
    })
}

fn write_beside(
    path: &Path,
    content: &[u8],
    put_in_place: impl Fn(&Path) -> io::Result<()>,
) -> Result<(), StoreError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = PathBuf::from(beside);
    let write = || {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        put_in_place(&beside)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|err| {
        let _ = fs::remove_file(&beside);
        StoreError::io("write", path, err)
    })
}

/// Removes a file for good, over a loss of power too. One that is not there is removed already.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(path: &Path) -> Result<(), StoreError> {
    let failed = |err| StoreError::io("remove", path, err);
    match fs::remove_file(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        removed => removed.map_err(failed)?,
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)
}

/// Whether `path` could be written now: whatever can be tried before something that cannot be taken back.
///
/// # Errors
/// When the directory is not there or takes no file, or a directory is in the way.
pub fn try_write(path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Err(StoreError::InTheWay { path: path.to_owned(), what: "a directory" });
    }
    write_beside(path, b"", |beside| fs::remove_file(beside))
}

/// Reads a file of at most `longest` bytes.
///
/// # Errors
/// When it cannot be read or is longer.
pub fn read_small(path: &Path, longest: u64) -> Result<Vec<u8>, StoreError> {
    use io::Read;
    let mut content = Vec::new();
    let file = File::open(path).map_err(|err| StoreError::io("read", path, err))?;
    file.take(longest + 1).read_to_end(&mut content).map_err(|err| StoreError::io("read", path, err))?;
    if content.len() as u64 > longest {
        return Err(StoreError::TooLong { path: path.to_owned(), longest });
    }
    Ok(content)
}

/// Whether others than the owner can read the file. `false` when that cannot be told.
pub fn is_exposed(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o044 != 0)
}

/// Whether the disk of `path` has no room for another page or two. `false` when that cannot be told.
pub fn is_disk_full(path: &Path) -> bool {
    const NEXT_TO_NOTHING: u64 = 64 * 1024;
    !has_room(path, NEXT_TO_NOTHING)
}

/// Whether the disk of `path` has room for so many bytes. `true` when that cannot be told.
pub fn has_room(path: &Path, bytes: u64) -> bool {
    free_bytes(path).is_none_or(|free| free >= bytes)
}

/// Bytes that are free on the disk of `path`, for those who are not root. `None` when that cannot be told.
pub fn free_bytes(path: &Path) -> Option<u64> {
    rustix::fs::statvfs(path).ok().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_file_is_replaced_whole_and_is_the_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/token");
        private_dir(path.parent().unwrap()).unwrap();
        write_private(&path, b"one").unwrap();
        write_private(&path, b"two").unwrap();
        assert_eq!(read_small(&path, 3).unwrap(), b"two");
        assert!(read_small(&path, 2).is_err());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file stays");
        assert!(!is_exposed(&path));
        let passing = path.with_file_name("passing");
        write_private(&passing, b"").unwrap();
        remove(&passing).unwrap();
        remove(&passing).unwrap();
        for dir in [&path, &path.join("below"), &path.join("far/below")] {
            assert!(
                matches!(private_dir(dir), Err(StoreError::InTheWay { path: found, .. }) if found == path)
            );
        }
        assert!(try_write(&path).is_ok() && try_write(&path.join("below")).is_err());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "and nothing stays");
        assert_eq!(read_small(&path, 3).unwrap(), b"two");
    }

    #[test]
    fn somebodys_file_keeps_its_mode_and_its_links() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        replace(&real, b"one").unwrap();
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        replace(&link, b"two").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"two");
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary file stays");
    }

    #[test]
    fn a_directory_that_is_there_already_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        make_parent(&dir.path().join("new/config.json")).unwrap();
        make_parent(&dir.path().join("config.json")).unwrap();
        make_parent(Path::new("config.json")).unwrap();
        assert_eq!((mode(dir.path()), mode(&dir.path().join("new"))), (0o755, 0o700));
    }
}
