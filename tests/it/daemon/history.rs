//! What the daemon forgets by itself, and what it does not.

use serde_json::json;
use transit::clock::{Clock, SystemClock};
use transit::limits::{DELIVERY_TTL, HISTORY_KEEP};
use transit::proto::envelope::{self, Envelope, Kind};
use transit::store::spool::Spool;
use transit::store::spool::inbox::Delivery;
use transit::store::spool::outbox::{EntryKind, NewEntry};

use super::world::{Adapter, ask, enrolled, nobody, start};
use crate::support::{Home, eventually};

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

#[test]
fn without_a_worker_the_sender_of_what_nobody_took_in_a_day_is_told_once() {
    let home = Home::new();
    std::fs::create_dir(home.data()).unwrap();
    home.file("config.json", json!({ "host": "titan" }).to_string());
    let mut spool = Spool::open(&home.data()).unwrap();
    let now = SystemClock::new().wall();
    let put = |spool: &mut Spool, id: &str, at| {
        let envelope = envelope::render(&Envelope {
            from: "amy@titan".into(),
            id: id.into(),
            ts: "2026-01-01T00:00:00.000Z".into(),
            reply_to: None,
            body: "are you there?".into(),
            kind: Kind::Dm,
        });
        let delivery = Delivery { id: id.into(), agent: "bob".into(), envelope, redelivery: 0 };
        spool.put_local(&delivery, at).unwrap();
    };
    let (old, fresh) = ("tx_000000000001", "tx_000000000002");
    put(&mut spool, old, now - DELIVERY_TTL);
    put(&mut spool, fresh, now);
    let daemon = start(&home);
    let (mut amy, _) = Adapter::register(&home, "1", Some("amy"));
    let bounce = amy.next().unwrap();
    let parsed = envelope::parse(bounce["envelope"].as_str().unwrap()).unwrap().envelope;
    assert_eq!(
        (parsed.from.as_str(), parsed.reply_to.as_deref(), parsed.body.as_str()),
        ("transit", Some(old), "undeliverable to bob@titan: it waited for 24 h")
    );
    amy.ack(&parsed.id);
    let status = |id: &str| ask(&home, &json!({ "op": "message_status", "id": id }));
    assert_eq!(
        (status(old)["state"].as_str(), status(old)["error"].as_str()),
        (Some("dead"), Some("expired"))
    );
    assert_eq!(status(fresh)["state"], "spooled");
    eventually(|| (spool.waiting(9).unwrap().1 == 1).then_some(()));
    drop(daemon);
    let _daemon = start(&home);
    let (mut bob, _) = Adapter::register(&home, "2", Some("bob"));
    assert_eq!(bob.delivery(), fresh, "what has ended is not shown any more");
    assert_eq!(spool.waiting(9).unwrap().1, 1, "nobody is told again");
}
