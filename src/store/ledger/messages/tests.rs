use std::time::Duration;

use super::*;
use crate::clock::{Backoff, Wall};
use crate::limits::{DELIVERY_ATTEMPTS, DELIVERY_TTL, QUEUE_MAX};
use crate::proto::wire::{NakCode, SendFrame};
use crate::store::ledger::roster::tests::{agent, enrol};
use crate::store::ledger::{Db, directory};

const START: Wall = Wall(1_700_000_000_000);

struct World {
    _dir: tempfile::TempDir,
    db: Db,
    org_id: String,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&dir.path().join("w.db")).unwrap();
    let enrolled = db.write(|tx| {
        let org_id = directory::org(tx, "default")?.unwrap().id;
        enrol(tx, &org_id, "beta", &[agent("bob", "idle")], START)?;
        Ok(org_id)
    });
    let org_id = enrolled.unwrap();
    World { _dir: dir, db, org_id }
}

impl World {
    fn queue(&self, agent: &str, host: &str) -> Queue {
        Queue { org_id: self.org_id.clone(), host: host.into(), agent: agent.into() }
    }

    fn take(&self, n: u32, from: &str, now: Wall) -> Taken {
        let frame = SendFrame {
            id: format!("tx_{n:012}"),
            from: from.into(),
            to: "bob@beta".into(),
            body: format!("body {n}"),
            reply_to: None,
            ts: now.to_string(),
        };
        let (queue, host) = (self.queue("bob", "beta"), from.split_once('@').unwrap().1.to_owned());
        self.db.write(move |tx| take(tx, &queue, &host, &frame, false, now)).unwrap()
    }

    /// The numbers of the messages that may go to bob.
    fn due(&self, after: i64, now: Wall) -> Vec<u32> {
        let queue = self.queue("bob", "beta");
        let due = self.db.read(|tx| due(tx, &queue, after, now, 128)).unwrap();
        due.iter().map(|due| due.id[3..].parse().unwrap()).collect()
    }

    fn attempt(&self, seq: i64, again_at: Wall, now: Wall) {
        let org_id = self.org_id.clone();
        self.db.write(move |tx| attempted(tx, &org_id, seq, again_at, now)).unwrap();
    }

    fn refuse(&self, n: u32, code: &'static str, retryable: bool, now: Wall) -> Option<(String, Refused)> {
        let (org_id, id) = (self.org_id.clone(), format!("tx_{n:012}"));
        self.db
            .write(move |tx| refused(tx, (&org_id, "beta"), &id, Some("bob"), (code, retryable), now))
            .unwrap()
    }

    fn inject(&self, n: u32, agent: Option<&'static str>, now: Wall) -> Option<String> {
        let (org_id, id) = (self.org_id.clone(), format!("tx_{n:012}"));
        self.db.write(move |tx| arrived(tx, &org_id, "beta", &id, agent, Arrival::Injected, now)).unwrap()
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn an_id_is_taken_once_and_belongs_to_its_host() {
    let world = world();
    assert_eq!(world.take(1, "amy@alpha", START), Taken::Stored { free: Some(999) });
    assert_eq!(world.take(1, "amy@alpha", START), Taken::Before(None));
    assert_eq!(world.take(1, "zoe@omega", START), Taken::Refused(NakCode::ReservedName));
    assert_eq!(world.due(0, START), [1]);
}

#[test]
fn a_full_queue_takes_nothing_more() {
    let world = world();
    for n in 0..u32::try_from(QUEUE_MAX).unwrap() {
        let free = Some(QUEUE_MAX - 1 - u64::from(n));
        assert_eq!(world.take(n, "amy@alpha", START), Taken::Stored { free });
    }
    assert_eq!(world.take(9_999, "amy@alpha", START), Taken::Refused(NakCode::RateLimited));
    world.inject(0, None, START);
    assert_eq!(
        world.take(9_999, "amy@alpha", START),
        Taken::Stored { free: Some(0) },
        "the refusal is not remembered"
    );
}

#[test]
fn a_held_message_is_not_passed_by_the_next_of_its_pair_only() {
    let world = world();
    for (n, from) in [(1, "amy@alpha"), (2, "amy@alpha"), (3, "zoe@omega")] {
        world.take(n, from, START);
    }
    world.attempt(1, START + seconds(5), START);
    assert_eq!(world.due(0, START), [2, 3], "an unanswered one holds nobody up");
    let refusal = world.refuse(1, "adapter_timeout", true, START).unwrap();
    assert_eq!(refusal, ("bob".into(), Refused::Later(START + seconds(5))));
    assert_eq!(world.due(0, START), [3]);
    assert_eq!(world.due(0, START + seconds(5)), [1, 3]);
    assert_eq!(world.inject(1, None, START).as_deref(), Some("bob"), "the queue moves on");
    assert_eq!(world.due(0, START), [2, 3]);
    assert_eq!(world.inject(2, Some("other"), START), None);
    assert_eq!(world.inject(2, Some("bob"), START), None, "nobody waited behind it");
    assert_eq!(world.due(0, START), [3]);
}

#[test]
fn forty_attempts_end_a_delivery_and_what_a_person_holds_back_costs_none() {
    let world = world();
    world.take(1, "amy@alpha", START);
    let mut now = START;
    for attempt in 1..=DELIVERY_ATTEMPTS {
        world.attempt(1, now + seconds(300), now);
        for free in [DRAFT_BUSY, PAUSED] {
            let busy = world.refuse(1, free, true, now).unwrap().1;
            assert_eq!(busy, Refused::Later(now + seconds(300)));
            world.attempt(1, now + seconds(300), now);
        }
        let refusal = world.refuse(1, "adapter_timeout", true, now).unwrap().1;
        if attempt < DELIVERY_ATTEMPTS {
            let next = now + Backoff::DELIVERY.after(attempt);
            assert_eq!(refusal, Refused::Later(next));
            now = next;
        } else {
            assert_eq!(refusal, Refused::Dead(Some(world.queue("amy", "alpha"))));
        }
    }
    assert!(world.due(0, now + seconds(3600)).is_empty());
}

#[test]
fn a_day_ends_a_delivery_and_its_sender_is_told_once() {
    let world = world();
    world.take(1, "amy@alpha", START);
    let late = START + DELIVERY_TTL;
    assert!(world.due(0, late).is_empty());
    let amy = world.queue("amy", "alpha");
    let expire_at = |now| world.db.write(move |tx| expire(tx, now)).unwrap();
    assert_eq!(expire_at(late), std::slice::from_ref(&amy));
    assert!(expire_at(late).is_empty());
    let bounce = world.db.read(|tx| due(tx, &amy, 0, late, 9)).unwrap();
    assert_eq!((bounce.len(), bounce[0].sender.as_str()), (1, SYSTEM));
    assert_eq!(bounce[0].body, "undeliverable to bob@beta: it waited for 24 h");
    assert!(expire_at(late + DELIVERY_TTL).is_empty(), "a bounce is not bounced");
}

#[test]
fn what_was_not_answered_is_due_soon_on_the_next_connection_and_holds_its_pair() {
    let world = world();
    world.take(1, "amy@alpha", START);
    world.take(2, "amy@alpha", START);
    world.attempt(1, START + seconds(300), START);
    let org_id = world.org_id.clone();
    world.db.write(move |tx| reconnected(tx, &org_id, "beta", START + seconds(1))).unwrap();
    assert!(world.due(0, START).is_empty());
    assert_eq!(world.due(0, START + seconds(1)), [1]);
    assert_eq!(
        world.db.read(|tx| next_due(tx, &world.org_id, "beta", START)).unwrap(),
        Some(START + seconds(1))
    );
    assert_eq!(world.db.read(|tx| overdue(tx, START)).unwrap(), [world.queue("bob", "beta")]);
}

#[test]
fn a_returned_agent_and_a_free_composer_release_what_waits() {
    let world = world();
    for (n, from) in [(1, "amy@alpha"), (2, "zoe@omega")] {
        world.take(n, from, START);
        world.attempt(n.into(), START + seconds(300), START);
    }
    world.refuse(1, DRAFT_BUSY, true, START);
    world.refuse(2, "adapter_unavailable", true, START);
    let now = START + seconds(1);
    let release_for = |returned: Vec<String>| {
        let org_id = world.org_id.clone();
        world.db.write(move |tx| release(tx, &org_id, "beta", &returned, now)).unwrap();
    };
    release_for(vec![]);
    assert_eq!(world.due(0, now), [1]);
    release_for(vec!["bob".into()]);
    assert_eq!(world.due(0, now), [1, 2]);
}

#[test]
fn another_organisation_sees_nothing() {
    let world = world();
    world.take(1, "amy@alpha", START);
    let other = world
        .db
        .write(|tx| {
            let other = directory::create_org(tx, &"other".parse().unwrap(), "Other")?;
            enrol(tx, &other.id, "beta", &[agent("bob", "idle")], START)?;
            Ok(other.id)
        })
        .unwrap();
    let theirs = Queue { org_id: other.clone(), ..world.queue("bob", "beta") };
    world
        .db
        .read(|tx| {
            assert_eq!(known(tx, &other, "tx_000000000001")?, None);
            assert_eq!(text(tx, &theirs, "tx_000000000001")?, None);
            assert!(due(tx, &theirs, 0, START, 9)?.is_empty());
            assert!(text(tx, &world.queue("bob", "beta"), "tx_000000000001")?.unwrap().state.is_some());
            assert!(text(tx, &world.queue("amy", "alpha"), "tx_000000000001")?.unwrap().state.is_none());
            Ok(())
        })
        .unwrap();
}
