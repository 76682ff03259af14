//! What the runs of an agent print, for people who look for what went wrong: `logs/agents/NAME/NAME.log`.
//!
//! It is bounded, and nothing depends on it: what cannot be written is told once, and the run goes on.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};

use super::super::files;
use super::{Home, component};

/// Longest file, in bytes. Then it is put aside, in the place of the one before.
const LONGEST: u64 = 8 << 20;
/// Bytes that are kept of one run.
const OF_A_RUN: usize = 4 << 20;
/// Bytes that are kept of the end in any case.
const OF_THE_END: usize = 1 << 20;
/// What stands for the rest.
const CUT: &[u8] = b"\n[the rest of this run is not kept]\n";

/// The log of an agent, for one of its runs.
#[derive(Debug)]
pub struct RunLog {
    path: PathBuf,
    room: usize,
}

impl Home {
    /// Where the output of a run of `agent` is kept.
    pub fn run_log(&self, agent: &str) -> RunLog {
        let name = component(agent);
        RunLog { path: self.dir.join("logs/agents").join(&name).join(format!("{name}.log")), room: OF_A_RUN }
    }
}

impl RunLog {
    /// Adds what was printed.
    pub fn add(&mut self, bytes: &[u8]) {
        if self.room == 0 || bytes.is_empty() {
            return;
        }
        let kept = &bytes[..bytes.len().min(self.room)];
        self.room -= kept.len();
        let mut written = self.append(kept);
        if written.is_ok() && self.room == 0 {
            written = self.append(CUT);
        }
        if let Err(err) = written {
            tracing::warn!(path = %self.path.display(), %err, "the output of a run is not kept");
            self.room = 0;
        }
    }

    /// Adds what stands at the end of a run, however much came before it.
    pub fn add_last(&mut self, bytes: &[u8]) {
        self.room = self.room.max(OF_THE_END);
        self.add(bytes);
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.open()?;
        if file.metadata()?.len() + bytes.len() as u64 > LONGEST {
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
            file = self.open()?;
        }
        file.write_all(bytes)
    }

    /// The file, and for as long as it is open, nobody else puts it aside.
    fn open(&self) -> io::Result<File> {
        files::make_parent(&self.path).map_err(io::Error::other)?;
        loop {
            let file = File::options().append(true).create(true).mode(0o600).open(&self.path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            // Another run may have put it aside before it was locked.
            if fs::metadata(&self.path)
                .is_ok_and(|now| now.ino() == file.metadata().map_or(0, |own| own.ino()))
            {
                return Ok(file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_output_of_runs_is_kept_within_its_bounds() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let path = dir.path().join("logs/agents/tiny/tiny.log");
        home.run_log("tiny").add(b"one\n");
        home.run_log("tiny").add(b"\xff two\n");
        assert_eq!(fs::read(&path).unwrap(), b"one\n\xff two\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for _ in 0..3 {
            let mut run = home.run_log("tiny");
            (0..6).for_each(|_| run.add(&vec![b'x'; 1 << 20]));
        }
        home.run_log("tiny").add_last(b"the end\n");
        let mut run = home.run_log("tiny");
        (0..6).for_each(|_| run.add(&vec![b'x'; 1 << 20]));
        run.add_last(b"the end\n");
        assert!(fs::read(&path).unwrap().ends_with(b"kept]\nthe end\n"));
        let aside = fs::read(path.with_extension("log.1")).unwrap();
        let now = fs::read(&path).unwrap();
        assert!(aside.len() as u64 <= LONGEST && now.len() as u64 <= LONGEST);
        assert!(aside.len() + now.len() < 4 * OF_A_RUN, "the oldest is gone");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
    }

    #[test]
    fn what_cannot_be_kept_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("logs"), "in the way").unwrap();
        let mut run = Home::at(dir.path()).run_log("../tiny");
        run.add(b"one\n");
        assert_eq!(run.room, 0);
    }
}
