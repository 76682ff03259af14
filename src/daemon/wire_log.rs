//! Every frame of transit-wire/1 as a record of a dump, in a file.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::clock::Wall;
use crate::proto::dump::{Proto, Record, Way};
use crate::store::records::RecordFile;

/// A file of frames.
#[derive(Debug)]
pub(super) struct WireLog(Mutex<RecordFile>);

impl WireLog {
    /// Adds to the file, which is made 0600 when it is not there, and anew when it was renamed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        RecordFile::open(path).map(|file| Self(Mutex::new(file)))
    }

    /// Writes one frame down. A frame that cannot be written is missing from the file, and from nothing else.
    pub(super) fn record(&self, at: Wall, way: Way, text: &str) {
        let line = Record { at, proto: Proto::Wire, way, conn: None }.frame(text);
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(err) = file.append(&line) {
            tracing::warn!(%err, "could not write the wire log");
        }
    }
}
