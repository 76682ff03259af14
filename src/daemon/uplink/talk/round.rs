//! Messages between agents of this host that go round by the Worker, and what the loop guard of this host hears.

use super::Talk;
use crate::daemon::host::SendOutcome;
use crate::daemon::near;
use crate::store::spool::inbox::{Delivery, Received};

impl Talk<'_> {
    /// Lets the loop guard hear what has come for agents of this host, each thing once.
    pub(super) fn note_heard(&self, heard: &[Delivery], received: &[Received]) {
        let (host, now) = (self.host.name(), self.host.now());
        let new = heard.iter().zip(received).filter(|(_, received)| **received == Received::New);
        for (Delivery { id, agent, envelope, .. }, _) in new {
            self.host.loops.hear(id, &format!("{agent}@{host}"), envelope, now);
        }
    }

    /// The Worker has taken a message between agents of this host that it was asked about.
    pub(super) fn came_round(&mut self, id: &str) {
        let entry = self.spool.outbox().get(id, self.host.wall());
        let put = entry.and_then(|entry| {
            entry.map_or(Ok(()), |entry| near::put_taken(self.host, &mut self.spool, &entry))
        });
        match put {
            Ok(()) => self.host.loops.came_round(id),
            Err(err) => tracing::error!(id, %err, "could not hand a message over; the Worker brings it"),
        }
    }

    /// The Worker does not take a message that it was asked about: the agents go round in a loop. A sender that waits
    /// is told, and nothing is kept; otherwise the message was promised, and goes when that is over.
    pub(super) fn held(&mut self, id: &str) -> bool {
        let Some(asker) = self.host.loops.is_round(id).then(|| self.host.take_waiter(id)).flatten() else {
            return false;
        };
        match self.spool.outbox().drop_claimed(id, self.me) {
            Ok(true) => {
                self.sends.remove(id);
                // It waits for this for as long as we have its address.
                let _ = asker.send(SendOutcome::Held);
                true
            }
            Ok(false) => false,
            Err(err) => {
                tracing::error!(id, %err, "could not drop a message; it goes later");
                false
            }
        }
    }
}
