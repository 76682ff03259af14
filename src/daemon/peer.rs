//! Who a process belongs to: the way from a caller's pid up to the session that it runs in.
//!
//! Pids are used again. A pid therefore only counts together with the time at which its process started, and a
//! parent that is younger than its child is somebody else.

use std::fs;

use crate::store::process::Process;

/// Most processes between a caller and its session, the caller included.
const MOST_HOPS: usize = 16;

struct Stat {
    process: Process,
    parent: u32,
}

fn stat(pid: u32) -> Option<Stat> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads `/proc/PID/stat`. The name of the program may hold anything, a closing parenthesis too.
fn parse(pid: u32, text: &str) -> Option<Stat> {
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let start_time = fields.nth(17)?.parse().ok()?;
    Some(Stat { process: Process { pid, start_time }, parent })
}

/// The process and its ancestors, the nearest first.
pub(super) fn lineage(pid: u32) -> Vec<Process> {
    walk(pid, stat)
}

fn walk(pid: u32, stat: impl Fn(u32) -> Option<Stat>) -> Vec<Process> {
    let mut line: Vec<Process> = Vec::new();
    let mut next = pid;
    while next != 0 && line.len() < MOST_HOPS {
        let Some(Stat { process, parent }) = stat(next) else { break };
        if line.last().is_some_and(|child| process.start_time > child.start_time) {
            break;
        }
        line.push(process);
        next = parent;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(of: &[(u32, u32, u64)]) -> impl Fn(u32) -> Option<Stat> + '_ {
        move |pid| {
            let &(pid, parent, start_time) = of.iter().find(|process| process.0 == pid)?;
            Some(Stat { process: Process { pid, start_time }, parent })
        }
    }

    fn pids(line: &[Process]) -> Vec<u32> {
        line.iter().map(|process| process.pid).collect()
    }

    #[test]
    fn the_walk_ends_at_the_first_process_that_cannot_be_an_ancestor() {
        let all = [(9, 8, 90), (8, 7, 80), (7, 1, 70), (1, 0, 1)];
        assert_eq!(pids(&walk(9, tree(&all))), [9, 8, 7, 1]);
        let reused = [(9, 8, 90), (8, 7, 95), (7, 1, 70), (1, 0, 1)];
        assert_eq!(pids(&walk(9, tree(&reused))), [9], "8 is younger than its child");
        assert_eq!(pids(&walk(9, tree(&all[..2]))), [9, 8], "7 is gone");
        assert!(walk(0, tree(&all)).is_empty());
        let circle = [(9, 8, 90), (8, 9, 90)];
        assert_eq!(walk(9, tree(&circle)).len(), MOST_HOPS);
    }

    #[test]
    fn a_program_may_have_any_name() {
        let rest = "S 41 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 7777 1 1";
        let stat = parse(42, &format!("42 (a) S 1 (b)) {rest}")).unwrap();
        assert_eq!((stat.process.start_time, stat.parent), (7777, 41));
        assert!(parse(42, "42 (short) S 1").is_none());
        let own = lineage(std::process::id());
        assert_eq!(own[0], Process::current());
        assert!(own.len() > 1);
    }
}
