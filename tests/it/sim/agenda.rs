//! What is to happen: the simulated machine room.

use std::time::Duration;

use super::clockwork;
use super::spool::HostOp;

/// What is to happen here, in order of time.
pub(super) type Agenda = clockwork::Agenda<Due>;

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
