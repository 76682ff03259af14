//! How much was done.

use std::time::Duration;

#[derive(Debug, Default, Clone)]
pub(crate) struct Tally {
    pub(crate) messages: u64,
    pub(crate) posted: u64,
    pub(crate) events: u64,
    pub(crate) shown: u64,
    pub(crate) redelivered: u64,
    pub(crate) frames: u64,
    pub(crate) calls: u64,
    pub(crate) posts: u64,
    pub(crate) commits: u64,
    pub(crate) changes: u64,
    pub(crate) crashes_before: u64,
    pub(crate) crashes_after: u64,
    pub(crate) kills: u64,
    pub(crate) stops: u64,
    pub(crate) full_disks: u64,
    pub(crate) removed: u64,
    pub(crate) host_crashes: u64,
    pub(crate) cuts: u64,
    pub(crate) wires: u64,
    pub(crate) jumps: u64,
    pub(crate) nights: u64,
    pub(crate) operations: u64,
    pub(crate) enrolments: u64,
    pub(crate) bounces: u64,
    pub(crate) time: Duration,
    /// When things stopped going wrong.
    pub(crate) calm_at: Duration,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        for ((_, mine), (_, theirs)) in self.fields().into_iter().zip(other.clone().fields()) {
            *mine += *theirs;
        }
        self.time += other.time;
    }

    fn fields(&mut self) -> Vec<(&'static str, &mut u64)> {
        vec![
            ("messages accepted", &mut self.messages),
            ("of these posted to rooms", &mut self.posted),
            ("events told", &mut self.events),
            ("envelopes shown", &mut self.shown),
            ("of these again, with a note", &mut self.redelivered),
            ("frames written", &mut self.frames),
            ("calls answered", &mut self.calls),
            ("replies received", &mut self.posts),
            ("commits", &mut self.commits),
            ("changes in them", &mut self.changes),
            ("crashes before a commit", &mut self.crashes_before),
            ("crashes after a commit", &mut self.crashes_after),
            ("kills between commits", &mut self.kills),
            ("stops in order", &mut self.stops),
            ("disks without room", &mut self.full_disks),
            ("rows removed", &mut self.removed),
            ("daemons crashed", &mut self.host_crashes),
            ("connections made", &mut self.wires),
            ("connections cut", &mut self.cuts),
            ("wall clocks set", &mut self.jumps),
            ("nights", &mut self.nights),
            ("changes by operators", &mut self.operations),
            ("enrolments", &mut self.enrolments),
            ("bounces", &mut self.bounces),
        ]
    }

    /// Words and figures.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let mut copy = self.clone();
        let mut rows: Vec<_> =
            copy.fields().into_iter().map(|(name, count)| (name, count.to_string())).collect();
        rows.push(("days of fake time", format!("{:.1}", self.time.as_secs_f64() / 86_400.0)));
        rows
    }
}
