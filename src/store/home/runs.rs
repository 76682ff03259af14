//! What runs now, written down, so that a daemon that was killed leaves nothing running behind.
//!
//! Each run has a directory of its own. It holds the run's own temporary directory, whose path is in the environment
//! of everything that the run starts, and a file that names its process group once there is one.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::super::process::{Process, all_pids, group_and_session, process_group, start_time};
use super::super::{StoreError, files};
use crate::id::IdKind;

/// What a run finds the path of its temporary directory in.
pub const TMPDIR_VARIABLE: &str = "AGENT_TMPDIR";
/// The kernel's name for the time since it started; pids of another one mean nothing.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The runs of one daemon.
#[derive(Debug, Clone)]
pub struct Runs {
    dir: PathBuf,
}

/// One run's directory. It goes when this is dropped.
#[derive(Debug)]
pub struct Run {
    dir: PathBuf,
}

/// A process group that a daemon left behind, and the processes of it that are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The group, if anything that is surely its own is in it.
    pub group: Option<u32>,
    /// Processes that the run has started, by their environment, and that have not left the group.
    pub others: Vec<u32>,
}

impl Runs {
    /// The runs of one part of the daemon whose data directory this is.
    pub fn of(data: &Path, part: &str) -> Self {
        Self { dir: data.join("runs").join(part) }
    }

    /// Makes the directory of a new run, before it is begun.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn begin(&self) -> Result<Run, StoreError> {
        files::private_dir(&self.dir)?;
        let dir = self.dir.join(IdKind::Task.fresh());
        let tmp = dir.join("tmp");
        let made = DirBuilder::new().mode(0o700).recursive(true).create(&tmp);
        made.map_err(|err| StoreError::io("make the directory", &tmp, err))?;
        Ok(Run { dir })
    }

    /// What an earlier daemon left running. The records stay until [`forget`](Self::forget).
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn orphans(&self) -> Result<Vec<Orphan>, StoreError> {
        let mut found = Vec::new();
        for dir in self.dirs()? {
            let record = recorded(&dir);
            let group = record.filter(Record::is_anybody_there).map(|record| record.process.pid);
            let others = of_this_run(&dir.join("tmp"), record.map(|record| record.process.pid));
            if group.is_some() || !others.is_empty() {
                found.push(Orphan { group, others });
            }
        }
        Ok(found)
    }

    /// Removes what earlier runs left behind. To be called before the first one is begun.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn forget(&self) -> Result<(), StoreError> {
        for dir in self.dirs()? {
            if let Err(err) = fs::remove_dir_all(&dir) {
                tracing::warn!(dir = %dir.display(), %err, "could not remove what a run left behind");
            }
        }
        Ok(())
    }

    fn dirs(&self) -> Result<Vec<PathBuf>, StoreError> {
        let entries = match fs::read_dir(&self.dir) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(|err| StoreError::io("read", &self.dir, err))?,
        };
        Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
    }
}

impl Run {
    /// A fresh directory for the run alone, which goes with it.
    pub fn tmp(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    /// Notes the process that the run is, which leads a group of its own. A crash of the machine takes the process
    /// along, so that the note need not be on the disk.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn is_process(&self, pid: u32) -> Result<(), StoreError> {
        let path = self.dir.join("process");
        let session = group_and_session(pid).map_or(0, |(_, session)| session);
        let text = format!("{pid} {} {session} {}\n", start_time(pid).unwrap_or(0), boot());
        fs::write(&path, text).map_err(|err| StoreError::io("write", &path, err))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Err(err) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %err, "could not remove what a run left behind");
        }
    }
}

fn boot() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// The process that a run is, and the session that it was begun in.
#[derive(Debug, Clone, Copy)]
struct Record {
    process: Process,
    session: u32,
}

impl Record {
    /// Whether the group has somebody in it. Once the process is gone, its number may have become another's, whose
    /// group it is then; what is in a group of this number and in the same session is the run's.
    fn is_anybody_there(&self) -> bool {
        let Process { pid, start_time: started } = self.process;
        match start_time(pid) {
            Some(now) => now == started,
            None => all_pids().into_iter().any(|other| {
                group_and_session(other) == Some((pid, self.session)) && start_time(other).is_some()
            }),
        }
    }
}

/// What stands in a run's record, if the machine has not been started anew since.
fn recorded(dir: &Path) -> Option<Record> {
    let text = fs::read_to_string(dir.join("process")).ok()?;
    let mut words = text.split_ascii_whitespace();
    let process = Process { pid: words.next()?.parse().ok()?, start_time: words.next()?.parse().ok()? };
    let session = words.next()?.parse().ok()?;
    (words.next().unwrap_or_default() == boot()).then_some(Record { process, session })
}

/// The processes that have the run's temporary directory in their environment and are in its group; in any group, if
/// the daemon was killed before it had noted which one that is. One that has left the group is meant to live on.
fn of_this_run(tmp: &Path, group: Option<u32>) -> Vec<u32> {
    let variable = [TMPDIR_VARIABLE.as_bytes(), b"=", tmp.as_os_str().as_encoded_bytes()].concat();
    let pids = all_pids().into_iter();
    pids.filter(|pid| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry == variable)
            && group.is_none_or(|group| process_group(*pid) == Some(group))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn start(run: &Run) -> Child {
        let mut command = Command::new("cat");
        command.env(TMPDIR_VARIABLE, run.tmp()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn what_a_killed_daemon_left_running_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let runs = Runs::of(dir.path(), "local");
        assert_eq!(runs.orphans().unwrap(), []);
        let (noted, unnoted, over) = (runs.begin().unwrap(), runs.begin().unwrap(), runs.begin().unwrap());
        let (mut first, mut second, mut third) = (start(&noted), start(&unnoted), start(&over));
        noted.is_process(first.id()).unwrap();
        over.is_process(third.id()).unwrap();
        third.kill().unwrap();
        third.wait().unwrap();
        let mut found = runs.orphans().unwrap();
        found.sort_by_key(|orphan| orphan.group.is_none());
        let want = [
            Orphan { group: Some(first.id()), others: vec![first.id()] },
            Orphan { group: None, others: vec![second.id()] },
        ];
        assert_eq!(found, want);
        for child in [&mut first, &mut second] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(runs.orphans().unwrap(), []);
        std::mem::forget((noted, unnoted));
        runs.forget().unwrap();
        assert_eq!(fs::read_dir(dir.path().join("runs/local")).unwrap().count(), 0);
    }

    #[test]
    fn a_group_without_its_leader_is_found_whatever_is_in_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let runs = Runs::of(dir.path(), "local");
        let run = runs.begin().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "env -i sh -c 'echo ready; exec sleep 600' & read x"]);
        shell.env(TMPDIR_VARIABLE, run.tmp()).process_group(0);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        run.is_process(shell.id()).unwrap();
        shell.stdout.take().unwrap().read_exact(&mut [0; 5]).unwrap();
        drop(shell.stdin.take());
        shell.wait().unwrap();
        let group = shell.id();
        assert_eq!(runs.orphans().unwrap(), [Orphan { group: Some(group), others: Vec::new() }]);
        let pid = rustix::process::Pid::from_raw(group.cast_signed()).unwrap();
        rustix::process::kill_process_group(pid, rustix::process::Signal::KILL).unwrap();
        while !runs.orphans().unwrap().is_empty() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_pid_of_another_process_is_not_the_runs() {
        let dir = tempfile::tempdir().unwrap();
        let run = Runs::of(dir.path(), "local").begin().unwrap();
        for record in ["1 5 1 elsewhere", &format!("{} 1 1 {}", std::process::id(), boot()), "x", ""] {
            fs::write(
                dir.path().join("runs/local").join(run.dir.file_name().unwrap()).join("process"),
                record,
            )
            .unwrap();
            assert_eq!(Runs::of(dir.path(), "local").orphans().unwrap(), [], "{record}");
        }
    }
}
