//! The loop guard of a running Worker: fed from what is sent, from the ledger, and from what operators write beside the
//! server.

use std::collections::hash_map::RandomState;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::app::lock;
use crate::clock::{Mono, Wall};
use crate::proto::guard::{Counted, Guard, Held, LIMIT_MAX, MESSAGES, Passing};
use crate::store::StoreError;
use crate::store::ledger::Db;
use crate::store::ledger::messages::{OPERATOR, SYSTEM};
use crate::store::ledger::passed::{self, Said};

/// The guard of a running Worker.
pub(super) struct Loops {
    guard: Mutex<Guard>,
    /// The last message that was looked at for being an operator's.
    looked: AtomicI64,
    /// The guard's clock is ahead of the process's by this much, so that it has a time for what was before.
    ahead: Duration,
}

impl Loops {
    pub(super) fn new((limit, span): (u32, Duration)) -> Self {
        Self {
            guard: Mutex::new(Guard::new(limit, span, RandomState::new())),
            looked: AtomicI64::new(0),
            ahead: span,
        }
    }

    /// Takes from the ledger what happened in the time that the guard looks at, before this process began.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) fn recall(&self, db: &Db, now: Wall) -> Result<(), StoreError> {
        let (said, last) =
            db.read(|tx| Ok((passed::since(tx, now - self.ahead, MESSAGES)?, passed::last(tx)?)))?;
        self.looked.store(last, Ordering::Relaxed);
        let mut guard = lock(&self.guard);
        for said in said {
            let age = Duration::from_millis(now.0.saturating_sub(said.at.0).max(0).unsigned_abs());
            replay(&mut guard, &said, Mono(self.ahead.saturating_sub(age)));
        }
        Ok(())
    }

    /// Hears what operators have written since this was asked last, from beside the server.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) fn hear_operators(&self, db: &Db, now: Mono) -> Result<(), StoreError> {
        let after = self.looked.load(Ordering::Relaxed);
        let (said, last) = db.read(|tx| Ok((passed::by_operators(tx, after)?, passed::last(tx)?)))?;
        self.looked.store(last, Ordering::Relaxed);
        for (org_id, address) in said {
            self.interrupt(&org_id, &address, now);
        }
        Ok(())
    }

    /// As [`Guard::pass`].
    pub(super) fn pass(
        &self,
        message: Passing<'_>,
        of_room: Option<u32>,
        now: Mono,
    ) -> Result<Option<Counted>, Held> {
        lock(&self.guard).pass(message, of_room, now + self.ahead)
    }

    /// As [`Guard::give_back`].
    pub(super) fn give_back(&self, counted: Counted) {
        lock(&self.guard).give_back(counted);
    }

    /// As [`Guard::interrupt`].
    pub(super) fn interrupt(&self, org_id: &str, address: &str, now: Mono) {
        lock(&self.guard).interrupt(org_id, address, now + self.ahead);
    }
}

/// Tells the machine what the ledger says has happened.
fn replay(guard: &mut Guard, said: &Said, at: Mono) {
    let Said { org_id, to, message, .. } = said;
    match message {
        Some(message) if message.from == SYSTEM => {}
        Some(message) if message.from != OPERATOR => {
            let (from, id, reply_to) = (&message.from, &message.id, message.reply_to.as_deref());
            let passing = Passing { org_id, from, to, id, reply_to };
            // A room's own limit is known when the next post comes; until then everything is kept.
            let of_room = passing.is_post().then_some(LIMIT_MAX);
            // What was taken although it would be refused now was taken all the same.
            let _ = guard.pass(passing, of_room, at);
        }
        Some(_) | None => guard.interrupt(org_id, to, at),
    }
}

#[cfg(test)]
mod tests;
