//! Time, chance and what is to happen: the simulated machine room.

use std::collections::BTreeMap;
use std::time::Duration;

use transit::clock::Mono;

/// A small random source (splitmix64): the same seed gives the same story everywhere.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True in `percent` of all cases.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Up to `ms` milliseconds, at least one.
    pub(super) fn wait(&mut self, ms: usize) -> Duration {
        Duration::from_millis(1 + self.below(ms) as u64)
    }
}

/// A machine of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The host of this index.
    Host(usize),
    /// The Worker.
    Hub,
}

/// What happens at a point in time. `life` is the incarnation of the process that is meant: a dead one's
/// plans die with it.
#[derive(Debug)]
pub(super) enum Due {
    /// A frame reaches an end of a connection.
    Arrive { conn: usize, at: Side, text: String },
    /// A frame of an older connection reaches an end of this one once more.
    Replay { conn: usize, at: Side, text: String },
    /// The time that an end's machine asked for.
    Wake { conn: usize, at: Side },
    /// An end learns that the connection is gone.
    Eof { conn: usize, at: Side },
    /// A host dials.
    Connect { host: usize, life: u32 },
    /// A process looks through its store for what is due.
    Pump { at: Side, life: u32 },
    /// A transaction of a host is on the disk.
    HostCommit { host: usize, life: u32, op: HostOp },
    /// A transaction of the Worker is on the disk; what it answers goes to `conn`.
    HubCommit { life: u32, conn: usize, op: HubOp },
    /// An adapter writes an envelope into its session, whether or not the daemon still lives.
    Show { host: usize, life: u32, id: String, agent: String, ack_after: Duration },
    /// An agent wants to send.
    Speak,
    /// Something goes wrong.
    Mishap,
    /// A crashed process is started again.
    Restart { at: Side },
}

/// Transactions of a host's spool.
#[derive(Debug)]
pub(super) enum HostOp {
    /// A delivery from the Worker.
    Receive { id: String, agent: String, envelope: String },
    /// The adapter's ack.
    Injected { id: String, agent: String },
    /// The adapter's refusal.
    Refused { id: String, agent: String, code: &'static str, retryable: bool },
    /// The Worker's answer to a message.
    Answered { id: String, answer: Result<(), transit::proto::wire::NakCode> },
}

/// Transactions of the Worker's ledger.
#[derive(Debug)]
pub(super) enum HubOp {
    /// A message with all its deliveries, or its refusal.
    Admit(transit::proto::wire::SendFrame),
    /// A delivery is in its session.
    Settle { id: String, agent: String },
    /// A delivery is not.
    Refuse { id: String, agent: String, code: String, retryable: bool },
}

/// What is to happen, in order of time; at one time, in order of planning.
pub(super) struct Agenda {
    pub(super) now: Mono,
    pub(super) rng: Rng,
    planned: u64,
    queue: BTreeMap<(Mono, u64), Due>,
}

impl Agenda {
    pub(super) fn new(seed: u64) -> Self {
        Self { now: Mono::default(), rng: Rng::new(seed), planned: 0, queue: BTreeMap::new() }
    }

    pub(super) fn at(&mut self, time: Mono, due: Due) {
        self.planned += 1;
        self.queue.insert((time.max(self.now), self.planned), due);
    }

    pub(super) fn after(&mut self, wait: Duration, due: Due) {
        self.at(self.now + wait, due);
    }

    /// Within `ms` milliseconds.
    pub(super) fn soon(&mut self, ms: usize, due: Due) {
        let wait = self.rng.wait(ms);
        self.after(wait, due);
    }

    /// The next thing, and the time is its time.
    pub(super) fn next(&mut self) -> Option<Due> {
        let ((time, _), due) = self.queue.pop_first()?;
        self.now = time;
        Some(due)
    }
}
