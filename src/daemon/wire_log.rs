//! Every frame of transit-wire/1 as a record of a dump, in a file.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::clock::Wall;
use crate::proto::dump::{Proto, Record, Way};

/// A file of frames.
#[derive(Debug)]
pub(super) struct WireLog(Mutex<File>);

impl WireLog {
    /// Adds to the file, which is made 0600 when it is not there.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self(Mutex::new(file)))
    }

    /// Writes one frame down. A frame that cannot be written is missing from the file, and from nothing else.
    pub(super) fn record(&self, at: Wall, way: Way, text: &str) {
        let line = Record { at, proto: Proto::Wire, way, conn: None }.frame(text);
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(err) = file.write_all(line.as_bytes()) {
            tracing::warn!("could not write the wire log: {err}");
        }
    }
}
