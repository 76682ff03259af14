//! A file of records, one a line, that others may rotate meanwhile.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that is added to, and in which no half of a record stays. When it is renamed or removed, the next record
/// begins a new one in its place.
#[derive(Debug)]
pub struct RecordFile {
    file: File,
    path: PathBuf,
}

impl RecordFile {
    /// Adds to this file, which is made 0600 when it is not there.
    ///
    /// # Errors
    /// When it cannot be opened or made.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: open(path)?, path: path.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds whole records, all of them or none.
    ///
    /// # Errors
    /// When they do not get in.
    pub fn append(&mut self, records: &str) -> io::Result<()> {
        let found = self.follow()?;
        self.file.write_all(records.as_bytes()).inspect_err(|_| {
            if found.is_file() {
                self.take_back(found.len(), records.len() as u64);
            }
        })
    }

    /// Goes on in the file that stands in the place of ours, or makes one when there is none. What that one is.
    fn follow(&mut self) -> io::Result<Metadata> {
        let own = self.file.metadata()?;
        let has_moved = own.is_file()
            && match fs::metadata(&self.path) {
                Ok(there) => there.is_file() && (own.dev(), own.ino()) != (there.dev(), there.ino()),
                Err(err) => err.kind() == ErrorKind::NotFound,
            };
        // Where none can be had, the old one is better than nothing.
        match has_moved.then(|| open(&self.path)) {
            Some(Ok(file)) => {
                self.file = file;
                self.file.metadata()
            }
            _ => Ok(own),
        }
    }

    /// Takes records back that were written in part. What others may have added stays.
    fn take_back(&self, length: u64, most: u64) {
        let found = self.file.metadata().map_or(0, |found| found.len());
        if found > length && found - length < most {
            // If not even that works, the reader of the file is told of a broken line.
            let _ = self.file.set_len(length);
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_was_renamed_or_removed_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("log"), dir.path().join("log.1"));
        let mut file = RecordFile::open(&path).unwrap();
        file.append("a\n").unwrap();
        fs::rename(&path, &old).unwrap();
        file.append("b\n").unwrap();
        file.append("c\n").unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "a\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "b\nc\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_file(&path).unwrap();
        file.append("d\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "d\n");
        // One that another has made, and has begun, is gone on with.
        fs::rename(&path, &old).unwrap();
        fs::write(&path, "x\n").unwrap();
        file.append("e\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "x\ne\n");
        // One that was cut short is written from its beginning.
        File::create(&path).unwrap();
        file.append("f\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "f\n");
    }

    #[test]
    fn where_no_new_one_can_be_had_the_old_one_is_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("log"), dir.path().join("log.1"));
        let mut file = RecordFile::open(&path).unwrap();
        fs::rename(&path, &old).unwrap();
        fs::create_dir(&path).unwrap();
        file.append("a\n").unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "a\n");
    }
}
