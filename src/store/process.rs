//! Processes by what cannot be reused: a pid together with the time at which it started.

use std::fs;

/// A process that holds something. Two processes of one machine never have the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// When it started, in clock ticks since the machine did (field 22 of `/proc/PID/stat`).
    pub start_time: u64,
}

impl Process {
    /// This process. The start time is 0 where `/proc` cannot be read, and then nobody else can see it alive.
    pub fn current() -> Self {
        let pid = std::process::id();
        Self { pid, start_time: start_time(pid).unwrap_or(0) }
    }

    /// Whether it still runs.
    pub fn is_alive(self) -> bool {
        start_time(self.pid) == Some(self.start_time)
    }
}

/// When the process `pid` started, in clock ticks since the machine did; `None` when there is none, when it has
/// ended and only waits to be reaped, or when `/proc` does not show it.
pub fn start_time(pid: u32) -> Option<u64> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The pid that the process `pid` has in its own pid namespace, as a program in a container knows itself; `pid` when
/// it has no other, or when `/proc` does not tell.
pub fn own_pid(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    innermost(&status).unwrap_or(pid)
}

/// The process group of the process `pid`; `None` when there is none, or when `/proc` does not show it.
pub fn process_group(pid: u32) -> Option<u32> {
    group_and_session(pid).map(|(group, _)| group)
}

/// The process group of the process `pid`, and the session that it is in; `None` as above.
pub fn group_and_session(pid: u32) -> Option<(u32, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// All processes that `/proc` shows.
pub fn all_pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The user that the process `pid` acts as; `None` when there is no such process, or `/proc` does not show it.
pub fn user(pid: u32) -> Option<u32> {
    effective(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// The second number of the line `Uid:`, after the real one.
fn effective(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The last number of the line `NSpid:`, which lists the pids from our namespace inwards.
fn innermost(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

/// The start time in a line of `/proc/PID/stat`. The second field is the program's name in parentheses and may
/// itself hold anything, parentheses too; the last one closes it.
fn parse(stat: &str) -> Option<u64> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(start)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_has_the_pid_of_its_own_namespace_too() {
        assert_eq!(innermost("Name:\tx\nNSpid:\t8402\t17\t1\nNSsid:\t5\n"), Some(1));
        assert_eq!(innermost("Name:\tNSpid:\n"), None);
        assert_eq!(own_pid(std::process::id()), std::process::id());
        assert_eq!(own_pid(0), 0);
    }

    #[test]
    fn a_process_acts_as_its_effective_user() {
        assert_eq!(effective("Name:\tsu\nUid:\t1000\t0\t0\t0\n"), Some(0));
        assert_eq!(effective("Uid:\t1000\n"), None);
        assert_eq!(user(std::process::id()), Some(rustix::process::geteuid().as_raw()));
        assert_eq!(user(0), None);
    }

    #[test]
    fn a_process_is_known_by_its_start_until_it_ends() {
        assert!(Process::current().is_alive());
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let it = Process { pid: child.id(), start_time: start_time(child.id()).unwrap() };
        assert!(all_pids().contains(&it.pid) && process_group(it.pid) == process_group(std::process::id()));
        assert!(it.is_alive());
        assert!(!Process { start_time: it.start_time + 1, ..it }.is_alive(), "the pid of another one");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!it.is_alive());
    }

    #[test]
    fn a_name_may_hold_anything_and_a_zombie_is_gone() {
        let line = |state| format!("7 (a) b) Z (c) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4711 1 2");
        assert_eq!(parse(&line("S")), Some(4711));
        assert_eq!(parse(&line("Z")), None);
        assert_eq!(parse("7 (a"), None);
        assert_eq!(parse("7 (a) S 1"), None);
    }
}
