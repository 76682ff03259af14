//! The file that says that a service is ready, for whoever waits for it. It is this process's for as long as its pid
//! stands in it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::output::{Exit, Failure};

/// Removes the file of a process that was killed, so that nobody takes it for ours.
pub(super) fn forget_the_dead(file: &Path) -> Result<(), Failure> {
    match pid_in(file) {
        Some(pid) if !Path::new("/proc").join(pid.to_string()).exists() => fs::remove_file(file)
            .map_err(|err| Failure::new(Exit::CannotCreate, format_args!("replace {}", file.display()), err)),
        _ => Ok(()),
    }
}

/// Removes our file: whoever looks for it learns that nobody serves any more. The next process may have written its own
/// by now.
pub(super) fn take_away(file: &Path) {
    if pid_in(file) == Some(std::process::id().into()) {
        // One that stays is read by nobody who looks at its pid.
        let _ = fs::remove_file(file);
    }
}

fn pid_in(file: &Path) -> Option<u64> {
    serde_json::from_slice::<Value>(&fs::read(file).ok()?).ok()?["pid"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_removed_when_it_is_ours_or_nobodys() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ready");
        let left = |pid: u32| {
            fs::write(&file, format!("{{\"pid\":{pid}}}\n")).unwrap();
            forget_the_dead(&file).unwrap();
            let is_anybodys = file.exists();
            take_away(&file);
            (is_anybodys, file.exists())
        };
        assert_eq!(left(std::process::id()), (true, false));
        assert_eq!(left(1), (true, true), "it is another's by now");
        assert_eq!(left(u32::MAX), (false, false), "there is no such process");
        fs::write(&file, "no record").unwrap();
        forget_the_dead(&file).unwrap();
        take_away(&file);
        assert!(file.exists(), "whatever it is");
    }
}
