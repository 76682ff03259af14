//! Time, chance, and what is to happen when.

use std::collections::BTreeMap;
use std::time::Duration;

use transit::clock::Mono;
use transit::proto::wire::NakCode;
use transit::worker::simulation::Conn;

/// A small random source (splitmix64): the same seed gives the same story everywhere.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True in `percent` of all cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Up to `ms` milliseconds, at least one.
    pub(crate) fn wait(&mut self, ms: usize) -> Duration {
        Duration::from_millis(1 + self.below(ms) as u64)
    }

    /// One of `from`, which is not empty.
    pub(crate) fn one<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Worker,
    Host,
}

/// What happens at a point in time. `life` is the incarnation of the process that is meant: a dead one's plans die
/// with it.
#[derive(Debug)]
pub(crate) enum Due {
    /// A frame reaches an end of a connection.
    Arrive { wire: usize, at: End, text: String },
    /// An end learns that the connection is gone.
    Eof { wire: usize, at: End },
    /// A link of the Worker looks at what there is for it.
    Turn { life: u32, conn: Conn },
    /// The Worker's writer commits.
    Commit { life: u32 },
    /// The Worker looks at the clock.
    Wake { life: u32 },
    /// Time alone does its work at the Worker.
    Sweep { life: u32 },
    /// The Worker looks for replies to post.
    Post { life: u32 },
    /// A host's machine looks at the clock.
    HostWake { wire: usize },
    /// A host dials.
    Connect { host: usize, life: u32 },
    /// A daemon looks through its spool for what is due.
    Pump { host: usize, life: u32 },
    /// A transaction of a host's spool is on the disk.
    HostCommit { host: usize, life: u32, op: HostOp },
    /// An adapter writes an envelope into its session, whether or not the daemon still lives.
    Show { host: usize, life: u32, id: String, agent: String },
    /// An agent does something about a delivery.
    Act { host: usize, agent: String, id: String },
    /// A daemon says who is there.
    Roster { host: usize, life: u32 },
    /// Operators put the first members into their rooms.
    Convene,
    /// An agent joins a room, or leaves it.
    Move { host: usize, agent: &'static str },
    /// An agent wants to send.
    Speak,
    /// Somebody outside has something to tell.
    Happens,
    /// A sender posts an event, once more if it has to.
    Deliver { event: usize },
    /// An operator changes something.
    Operate,
    /// Something goes wrong.
    Mishap,
    /// The disk of the ledger has room again.
    DiskFreed,
    /// The Worker is told to stop in order.
    Stop,
    /// So long it has for that.
    Stopped { life: u32 },
    /// What is settled for long enough is removed.
    Retain,
    /// The Worker is started again.
    Restart,
    /// A daemon is started again.
    HostRestart { host: usize },
    /// The morning after.
    Morning,
    /// From here on nothing goes wrong any more.
    Calm,
    /// Is there anything left to do?
    Look,
}

/// Transactions of a host's spool.
#[derive(Debug)]
pub(crate) enum HostOp {
    /// A delivery from the Worker.
    Receive { id: String, agent: String, envelope: String },
    /// The adapter's ack.
    Injected { id: String, agent: String, redelivery: u32 },
    /// The adapter's refusal.
    Refused { id: String, agent: String, code: &'static str, retryable: bool },
    /// The Worker's answer to a message.
    Answered { id: String, answer: Result<(), NakCode> },
}

/// What is to happen, in order of time; at one time, in order of planning.
pub(crate) struct Agenda {
    pub(crate) now: Mono,
    pub(crate) rng: Rng,
    planned: u64,
    queue: BTreeMap<(Mono, u64), Due>,
}

impl Agenda {
    pub(crate) fn new(seed: u64) -> Self {
        Self { now: Mono::default(), rng: Rng::new(seed), planned: 0, queue: BTreeMap::new() }
    }

    pub(crate) fn at(&mut self, time: Mono, due: Due) {
        self.planned += 1;
        self.queue.insert((time.max(self.now), self.planned), due);
    }

    pub(crate) fn after(&mut self, wait: Duration, due: Due) {
        self.at(self.now + wait, due);
    }

    /// Within `ms` milliseconds.
    pub(crate) fn soon(&mut self, ms: usize, due: Due) {
        let wait = self.rng.wait(ms);
        self.after(wait, due);
    }

    /// Moves the time on to what comes next.
    pub(crate) fn next(&mut self) -> Option<Due> {
        let ((time, _), due) = self.queue.pop_first()?;
        self.now = time;
        Some(due)
    }
}
