//! What comes back to a link from the ledger and from calls, between its frames.
//!
//! A list under a lock, because it is empty most of the time: a channel keeps room for 32 notes in each of thousands
//! of links that wait for none.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::app::lock;
use super::link::Note;

/// Where the notes for one link come.
#[derive(Default)]
pub(super) struct Notes {
    /// In the order in which they were told.
    told: Mutex<Vec<Note>>,
    given: Notify,
}

/// Tells one link. When that is gone, nobody hears it: the next one reads the rows.
#[derive(Clone)]
pub(super) struct Tell(Arc<Notes>);

impl Tell {
    /// Tells what is heard through the answered notes.
    pub(super) fn new() -> (Self, Arc<Notes>) {
        let notes = Arc::<Notes>::default();
        (Self(notes.clone()), notes)
    }

    pub(super) fn send(&self, note: Note) {
        lock(&self.0.told).push(note);
        self.0.given.notify_one();
    }
}

impl Notes {
    /// Ends once there may be some.
    pub(super) async fn given(&self) {
        self.given.notified().await;
    }

    /// Those that were told since this was asked last.
    pub(super) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *lock(&self.told))
    }

    #[cfg(feature = "simulation")]
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.told).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn notes_are_heard_in_their_order_and_wake_whoever_waits() {
        let (tell, notes) = Tell::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let waits =
            |longest| runtime.block_on(async { tokio::time::timeout(longest, notes.given()).await.is_err() });
        assert!(waits(Duration::ZERO));
        for agent in ["amy", "bob"] {
            tell.clone().send(Note::Moved(agent.to_owned()));
        }
        assert!(!waits(Duration::from_secs(30)), "what was told before is not missed");
        let heard: Vec<String> = notes
            .take()
            .into_iter()
            .map(|note| match note {
                Note::Moved(agent) => agent,
                _ => panic!("another note"),
            })
            .collect();
        assert_eq!(heard, ["amy", "bob"]);
        assert!(notes.take().is_empty());
    }
}
