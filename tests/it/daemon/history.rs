//! What the daemon forgets by itself, and what it does not.

use transit::clock::{Clock, SystemClock};
use transit::limits::HISTORY_KEEP;
use transit::store::spool::Spool;
use transit::store::spool::outbox::{EntryKind, NewEntry};

use super::world::{enrolled, nobody, start};
use crate::support::eventually;

#[test]
fn what_was_sent_long_ago_is_forgotten_and_what_waits_or_is_dead_is_not() {
    let home = enrolled(nobody());
    let mut spool = Spool::open(&home.data()).unwrap();
    let now = SystemClock::new().wall();
    let long_ago = now - HISTORY_KEEP - HISTORY_KEEP;
    let entry = |id| NewEntry {
        id,
        kind: EntryKind::Message,
        dest: "bob@beta",
        from: Some("amy@titan"),
        reply_to: None,
        event_key: None,
        body: b"x",
        secret: None,
    };
    let [old, fresh, dead, waiting] =
        ["tx_000000000001", "tx_000000000002", "tx_000000000003", "tx_000000000004"];
    for id in [old, fresh, dead, waiting] {
        spool.outbox().add(&entry(id), long_ago).unwrap();
    }
    spool.outbox().sent(old, "committed", long_ago).unwrap();
    spool.outbox().sent(fresh, "committed", now).unwrap();
    spool.outbox().dead(dead, "no_route", long_ago).unwrap();
    let _daemon = start(&home);
    eventually(|| spool.outbox().get(old, now).unwrap().is_none().then_some(()));
    for id in [fresh, dead, waiting] {
        assert!(spool.outbox().get(id, now).unwrap().is_some(), "{id}");
    }
}
