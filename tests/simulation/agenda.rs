//! What is to happen when.

use transit::worker::simulation::Conn;

use super::clockwork;
use super::spool::HostOp;

/// What is to happen here, in order of time.
pub(crate) type Agenda = clockwork::Agenda<Due>;

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
