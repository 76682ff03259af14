use std::time::Duration;

use super::*;
use crate::proto::ingest::Event;
use crate::secret::Secret;
use crate::store::ledger::depths::depths;
use crate::store::ledger::sources::{self, NewSource, SourceRow};
use crate::store::ledger::{Db, directory, events, inspect, replies};
use crate::store::seal::MasterKey;

const START: Wall = Wall(1_700_000_000_000);

struct World {
    _dir: tempfile::TempDir,
    db: Db,
    source: SourceRow,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&dir.path().join("w.db")).unwrap();
    let key = MasterKey::from_file_or_new(&dir.path().join("key")).unwrap();
    let new = NewSource {
        name: "ci".parse().unwrap(),
        target_addr: "jess@titan".parse().unwrap(),
        reply_url: None,
        prefixes: vec![],
        secret: Secret::new("s").unwrap(),
        rate: 1,
        burst: 1,
        instructions: None,
    };
    let source = db
        .write(move |tx| {
            let org = directory::org(tx, "default")?.unwrap();
            sources::create(tx, &org.id, &new, &key, START)
        })
        .unwrap();
    World { _dir: dir, db, source }
}

impl World {
    fn accept(&self, key: &str, content: &str) -> events::Accepted {
        let event = Event {
            event_key: key.into(),
            conversation_id: "c".into(),
            content: content.into(),
            ..Event::default()
        };
        let (source, target) = (self.source.clone(), "jess@titan".parse().unwrap());
        let digest = events::digest(&event);
        self.db.write(move |tx| events::accept(tx, &source, &event, &digest, 1, &target, START)).unwrap()
    }

    fn queue(&self) -> Queue {
        Queue { org_id: self.source.org_id.clone(), host: "titan".into(), agent: "jess".into() }
    }

    fn row(&self, id: &str) -> DeliveryRow {
        self.db.read(|tx| get(tx, &self.queue(), id)).unwrap().unwrap()
    }

    fn is_due(&self, now: Wall) -> bool {
        !self.db.read(|tx| due(tx, &self.queue(), 0, now, 9)).unwrap().is_empty()
    }

    fn change<T: Send + 'static>(
        &self,
        change: impl Fn(&Tx<'_>, &str) -> Result<T, StoreError> + Send + 'static,
    ) -> T {
        let org_id = self.source.org_id.clone();
        self.db.write(move |tx| change(tx, &org_id)).unwrap()
    }

    fn attempt(&self, now: Wall) {
        self.change(move |tx, org_id| attempted(tx, org_id, 1, false, now + seconds(5), now));
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn an_event_key_is_taken_once_and_what_comes_later_is_told_apart() {
    let world = world();
    let first = world.accept("k", "one");
    let kinds = ["one", "two"].map(|content| world.accept("k", content)).map(|accepted| {
        assert_eq!((&accepted.event_id, &accepted.delivery_id), (&first.event_id, &first.delivery_id));
        accepted.kind
    });
    assert_eq!(kinds, [events::AcceptedKind::Same, events::AcceptedKind::Different]);
    assert_eq!(world.row(&first.delivery_id).content, "one");
    assert_eq!(world.accept("K", "one").kind, events::AcceptedKind::New);
}

#[test]
fn every_showing_counts_but_a_refused_one_does_not() {
    let world = world();
    let id = world.accept("k", "one").delivery_id;
    assert!(world.is_due(START));
    world.attempt(START);
    assert_eq!((world.row(&id).shown, world.row(&id).misses), (1, 1));
    assert!(!world.is_due(START) && world.is_due(START + seconds(5)), "no answer");
    world.attempt(START + seconds(5));
    let again = id.clone();
    let refusal = world.change(move |tx, org_id| {
        refused(tx, (org_id, "titan"), &again, None, ("adapter_timeout", true), START + seconds(5))
    });
    assert_eq!(
        refusal,
        Some(("jess".into(), Some(START + seconds(15)))),
        "the second miss waits for twice as long"
    );
    assert_eq!((world.row(&id).shown, world.row(&id).misses), (1, 2));
    world.attempt(START + seconds(15));
    let again = id.clone();
    world.change(move |tx, org_id| {
        refused(tx, (org_id, "titan"), &again, Some("jess"), (DRAFT_BUSY, true), START + seconds(15))
    });
    assert_eq!((world.row(&id).shown, world.row(&id).misses), (1, 2), "a busy composer costs nothing");
}

#[test]
fn what_its_agent_refuses_for_good_is_shown_again_only_when_the_operator_says_so() {
    let world = world();
    let id = world.accept("k", "one").delivery_id;
    world.attempt(START);
    let refused_ = id.clone();
    let refusal = world.change(move |tx, org_id| {
        refused(tx, (org_id, "titan"), &refused_, Some("jess"), ("agent_refused", false), START)
    });
    assert_eq!(refusal, Some(("jess".into(), None)));
    let far = START + seconds(365 * 86_400);
    assert!(world.row(&id).state == State::Dead && !world.is_due(far));
    let late = id.clone();
    assert_eq!(world.change(move |tx, org_id| dispatched(tx, org_id, "titan", &late, None, START)), None);
    let found = world.row(&id);
    assert_eq!(world.change(move |tx, org_id| read(tx, org_id, &found, START)), State::Dead);
    assert!(!world.is_due(far), "who looks at it has not changed their mind");

    let again = id.clone();
    world.change(move |tx, org_id| inspect::requeue(tx, org_id, &again, START).map(drop));
    let found = world.row(&id);
    assert_eq!((found.state, found.shown, found.misses), (State::Pending, 0, 0));
    assert!(world.is_due(START));
    world.attempt(START);
    let (other, handled) = (id.clone(), id.clone());
    world.change(move |tx, org_id| refused(tx, (org_id, "titan"), &other, None, ("no", false), START));
    world.change(move |tx, org_id| settle(tx, org_id, &handled, State::Handled, START));
    assert_eq!(world.row(&id).state, State::Handled, "its agent can still settle it");
}

#[test]
fn an_unsettled_delivery_comes_back_later_and_later() {
    let world = world();
    let id = world.accept("k", "one").delivery_id;
    let mut now = START;
    for minutes in [5, 10, 20, 30, 30] {
        world.attempt(now);
        let (again, at) = (id.clone(), now);
        world.change(move |tx, org_id| dispatched(tx, org_id, "titan", &again, None, at));
        let next = now + seconds(minutes * 60);
        assert!(!world.is_due(next - Duration::from_millis(1)) && world.is_due(next), "{minutes} min");
        now = next;
    }
    assert_eq!(world.row(&id).state, State::Dispatched);
    let (row, at) = (world.row(&id), now);
    assert_eq!(world.change(move |tx, org_id| read(tx, org_id, &row, at)), State::Read);
    assert!(!world.is_due(now + seconds(1799)) && world.is_due(now + seconds(1800)));
    let settled = id.clone();
    world.change(move |tx, org_id| settle(tx, org_id, &settled, State::Handled, now));
    assert!(!world.is_due(now + seconds(9_000_000)));
    let row = world.row(&id);
    assert_eq!(world.change(move |tx, org_id| read(tx, org_id, &row, now)), State::Handled);
    let late = id.clone();
    assert_eq!(
        world.change(move |tx, org_id| dispatched(tx, org_id, "titan", &late, Some("jess"), now)),
        None
    );
}

#[test]
fn a_reply_is_due_until_it_is_posted_or_its_source_is_gone() {
    let world = world();
    let id = world.accept("k", "one").delivery_id;
    let row = world.row(&id);
    world.change(move |tx, org_id| replies::record(tx, org_id, &row, "done", START));
    assert_eq!(world.row(&id).state, State::Replied);
    let due = |now| {
        let SourceRow { org_id, integration_id, .. } = &world.source;
        world.db.read(|tx| replies::due(tx, org_id, integration_id, now, 9)).unwrap()
    };
    let reply = due(START).remove(0);
    assert_eq!((reply.agent.as_str(), reply.message.as_str(), reply.secret_no), ("jess@titan", "done", 1));
    let failing = reply.clone();
    let next = world.change(move |tx, _| replies::failed(tx, &failing, "callback failed (500)", START));
    assert_eq!(next, START + seconds(5));
    assert!(due(START).is_empty());
    assert_eq!(world.db.read(|tx| replies::next_due(tx, START)).unwrap(), Some(next));
    let sources = world.db.read(|tx| replies::due_sources(tx, next)).unwrap();
    assert_eq!(sources, [(world.source.org_id.clone(), world.source.integration_id.clone())]);
    let reply = due(next).remove(0);
    assert_eq!(reply.attempts, 1);
    world.change(move |tx, _| replies::posted(tx, &reply, next));
    let found = world.db.read(|tx| replies::get(tx, &world.source.org_id, &id)).unwrap().unwrap();
    assert_eq!((found.posted, found.last_error), (true, None));
    assert_eq!(world.row(&id).state, State::Handled);

    let row = world.row(&world.accept("k2", "two").delivery_id);
    world.change(move |tx, org_id| replies::record(tx, org_id, &row, "done", START));
    world.change(|tx, org_id| sources::delete(tx, org_id, &"ci".parse().unwrap()));
    assert!(world.db.read(|tx| replies::due_sources(tx, next)).unwrap().is_empty());
    assert_eq!(world.db.read(|tx| depths(tx, 9)).unwrap().replies, 0, "nor does it wait");
}
