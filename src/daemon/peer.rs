//! Who a process belongs to: the way from a caller's pid up to the session that it runs in.
//!
//! Pids are used again. A pid therefore only counts together with the time at which its process started, and a
//! parent that is younger than its child is somebody else.

use std::fs;

use crate::net::unix::Peer;
use crate::proto::agent::PeerProcess;
use crate::store::process::{Process, own_pid, user};

/// Most processes between a caller and its session, the caller included.
const MOST_HOPS: usize = 16;
/// The process to which the system gives every orphan. It is nobody's harness, and who registered for it would be
/// taken for the sender of whatever orphans say.
const INIT: u32 = 1;

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

/// The processes that the one at the other end of a socket may register for: itself, and those of its user that it
/// descends from, the nearest first. Empty when it has ended, or cannot be seen.
pub(super) fn registrable(peer: Peer) -> Vec<(PeerProcess, Process)> {
    let line = lineage(peer.pid);
    let is_its = |process: &Process| {
        process.pid == peer.pid || (process.pid != INIT && user(process.pid) == Some(peer.uid))
    };
    let its = line.into_iter().take_while(is_its);
    its.map(|process| (PeerProcess { pid: process.pid, own: own_pid(process.pid) }, process)).collect()
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
    fn a_process_may_register_for_those_that_it_descends_from_and_never_for_the_first() {
        let own = Peer { pid: std::process::id(), uid: rustix::process::geteuid().as_raw() };
        let line = registrable(own);
        assert_eq!(line[0].1, Process::current());
        assert!(line.iter().skip(1).all(|(seen, _)| seen.pid != INIT));
        assert_eq!(registrable(Peer { uid: own.uid + 1, ..own }).len(), 1, "the others are another user's");
        assert!(registrable(Peer { pid: 0, ..own }).is_empty());
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
