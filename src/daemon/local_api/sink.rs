//! Where a run tells its client something.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::gateway::Sink;
use super::locked;
use crate::clock::{Clock, SystemClock};
use crate::net::wake::Wake;
use crate::proto::local::{EventFrame, LocalEvent, Server, Ticket, Unsent};

/// Longest time that a run waits for room before it looks again by itself. It is told of room; this is for a
/// connection whose thread has failed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// One connection, as its own thread and the runs share it.
pub(super) struct Client {
    machine: Mutex<Server>,
    /// The client has taken something, or will take nothing any more.
    room: Condvar,
    /// Wakes the thread of the connection.
    wake: Wake,
    clock: SystemClock,
}

impl Client {
    pub(super) fn new(machine: Server, wake: Wake, clock: SystemClock) -> Self {
        Self { machine: Mutex::new(machine), room: Condvar::new(), wake, clock }
    }

    /// The machine, for a moment: nobody waits for anything with it in hand.
    pub(super) fn machine(&self) -> MutexGuard<'_, Server> {
        locked(&self.machine)
    }

    /// Lets the runs look again that wait for room.
    pub(super) fn tell_runs(&self) {
        self.room.notify_all();
    }

    /// Changes the machine from another thread, and lets the connection's own act on it.
    pub(super) fn change(&self, change: impl FnOnce(&mut Server)) {
        change(&mut self.machine());
        self.room.notify_all();
        self.wake.wake();
    }

    pub(super) fn wake(&self) -> &Wake {
        &self.wake
    }

    pub(super) fn clock(&self) -> SystemClock {
        self.clock
    }
}

/// The way back of one message.
pub(super) struct ClientSink {
    client: Arc<Client>,
    ticket: Ticket,
}

impl ClientSink {
    pub(super) fn new(client: Arc<Client>, ticket: Ticket) -> Self {
        Self { client, ticket }
    }
}

impl Sink for ClientSink {
    fn event(&self, event: LocalEvent) -> bool {
        let Client { machine, room, wake, clock } = &*self.client;
        let mut frame = EventFrame::new(&event);
        let mut machine = locked(machine);
        loop {
            let was_idle = machine.is_drained();
            match machine.offer(self.ticket, frame, clock.mono()) {
                Ok(()) => {
                    drop(machine);
                    // The thread of the connection empties the machine whenever it is awake.
                    if was_idle {
                        wake.wake();
                    }
                    return true;
                }
                Err(Unsent::Gone) => return false,
                Err(Unsent::Full(back)) => {
                    frame = back;
                    machine =
                        room.wait_timeout(machine, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

impl Drop for ClientSink {
    fn drop(&mut self) {
        let now = self.client.clock.mono();
        self.client.change(|machine| machine.abandon(self.ticket, now));
    }
}
