use super::*;
use crate::addr::Addr;
use crate::proto::ingest::Event;
use crate::proto::wire::{NakCode, SendFrame};
use crate::secret::Secret;
use crate::store::ledger::messages::{self, Queue};
use crate::store::ledger::roster::tests::{agent, enrol};
use crate::store::ledger::sources::{self, NewSource, SourceRow};
use crate::store::ledger::{Db, deliveries, directory, events, inspect, replies};
use crate::store::seal::MasterKey;

const START: Wall = Wall(1_700_000_000_000);
const DAY: Duration = Duration::from_secs(24 * 3600);

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
        target_addr: "bob@beta".parse().unwrap(),
        reply_url: None,
        prefixes: vec![],
        secret: Secret::new("s").unwrap(),
        rate: 1,
        burst: 1,
        instructions: None,
    };
    let change = move |tx: &Tx<'_>| {
        let org = directory::org(tx, "default")?.unwrap();
        enrol(tx, &org.id, "beta", &[agent("bob", "idle")], START)?;
        sources::create(tx, &org.id, &new, &key, START)
    };
    let source = db.write(change).unwrap();
    World { _dir: dir, db, source }
}

fn frame(n: u32, now: Wall) -> SendFrame {
    SendFrame {
        id: format!("tx_{n:012}"),
        from: "amy@beta".into(),
        to: "bob@beta".into(),
        body: "x".repeat(500),
        reply_to: None,
        ts: now.to_string(),
    }
}

impl World {
    fn org(&self) -> String {
        self.source.org_id.clone()
    }

    /// Messages of these numbers, from amy to bob.
    fn messages(&self, numbers: std::ops::Range<u32>, now: Wall) {
        let queue = Queue { org_id: self.org(), host: "beta".into(), agent: "bob".into() };
        let change = move |tx: &Tx<'_>| {
            for n in numbers.clone() {
                messages::take(tx, &queue, "beta", &frame(n, now), true, now)?;
            }
            Ok(())
        };
        self.db.write(change).unwrap();
    }

    /// Messages of these numbers that were refused.
    fn refusals(&self, numbers: std::ops::Range<u32>, now: Wall) {
        let org = self.org();
        let change = move |tx: &Tx<'_>| {
            for n in numbers.clone() {
                messages::refuse(tx, &org, "beta", &frame(n, now), NakCode::NoRoute, now)?;
            }
            Ok(())
        };
        self.db.write(change).unwrap();
    }

    /// All that wait have arrived.
    fn inject_all(&self, now: Wall) {
        let sql = "UPDATE message_delivery SET state = 'injected', updated_at = ?1 WHERE state = 'queued'";
        self.db.write(move |tx| tx.execute(sql, values![now])).unwrap();
    }

    fn inject(&self, n: u32, now: Wall) {
        let (org, id) = (self.org(), format!("tx_{n:012}"));
        self.db
            .write(move |tx| messages::arrived(tx, &org, "beta", &id, None, messages::Arrival::Injected, now))
            .unwrap();
    }

    fn event(&self, key: &str, now: Wall) -> String {
        let event = Event { event_key: key.into(), conversation_id: "c".into(), ..Event::default() };
        let (source, target) = (self.source.clone(), "bob@beta".parse::<Addr>().unwrap());
        let digest = events::digest(&event);
        let change = move |tx: &Tx<'_>| events::accept(tx, &source, &event, &digest, 1, &target, now);
        self.db.write(change).unwrap().delivery_id
    }

    fn handle(&self, id: &str, now: Wall) {
        let (org, id) = (self.org(), id.to_owned());
        self.db.write(move |tx| inspect::handle(tx, &org, &id, now)).unwrap();
    }

    fn reply(&self, id: &str, now: Wall) {
        let (org, id) = (self.org(), id.to_owned());
        let bob = Queue { org_id: org.clone(), host: "beta".into(), agent: "bob".into() };
        let change = move |tx: &Tx<'_>| {
            let delivery = deliveries::get(tx, &bob, &id)?.unwrap();
            replies::record(tx, &org, &delivery, "done", now)
        };
        self.db.write(change).unwrap();
    }

    /// Walks a table to its end, and answers how many rows went.
    fn sweep(&self, table: Table, keep: Keep, now: Wall) -> u64 {
        let Some(cutoff) = table.cutoff(keep, now) else { return 0 };
        let (mut after, mut removed) = (Some(0), 0);
        while let Some(seq) = after {
            let page = self.db.read(|tx| look(tx, table, seq, cutoff, now)).unwrap();
            after = page.next;
            removed += self.db.write(move |tx| remove(tx, table, &page.over, cutoff)).unwrap();
        }
        removed
    }

    fn count(&self, table: &str) -> i64 {
        let sql = format!("SELECT COUNT(*) FROM {table}");
        self.db.read(|tx| tx.one(&sql, &[], |row| row.get(0))).unwrap().unwrap()
    }
}

#[test]
fn messages_go_a_week_after_they_moved_last_and_those_that_wait_stay() {
    let world = world();
    world.messages(0..3, START);
    world.refusals(3..4, START);
    world.inject(0, START);
    world.inject(1, START + DAY);
    world.messages(4..5, START);
    let sweep = |now| world.sweep(Table::Messages, Keep::default(), now);
    assert_eq!(sweep(START + 7 * DAY), 0, "exactly seven days are still kept");
    assert_eq!(sweep(START + 7 * DAY + Duration::from_millis(1)), 2, "the settled one and the refusal");
    assert_eq!(sweep(START + 9 * DAY), 1);
    assert_eq!(sweep(START + 99 * DAY), 0, "what waits stays, however old it is");
    assert_eq!((world.count("message"), world.count("message_delivery")), (2, 2));
    let for_ever = Keep { messages: None, ..Keep::default() };
    world.inject(2, START);
    assert_eq!(world.sweep(Table::Messages, for_ever, START + 999 * DAY), 0);
}

#[test]
fn a_walk_passes_what_waits_and_what_a_wrong_clock_wrote_and_ends_where_rows_are_young() {
    let world = world();
    world.messages(0..1, START);
    world.messages(1..2, START + 5000 * DAY);
    world.refusals(2..1200, START);
    world.refusals(1200..2400, START + 20 * DAY);
    let now = START + 21 * DAY;
    assert_eq!(world.sweep(Table::Messages, Keep::default(), now), 1198);
    let cutoff = Table::Messages.cutoff(Keep::default(), now).unwrap();
    let page = world.db.read(|tx| look(tx, Table::Messages, 0, cutoff, now)).unwrap();
    assert_eq!(page, Page { over: vec![], next: None }, "young rows are not walked through");
}

#[test]
fn the_number_of_a_removed_row_is_never_given_again() {
    let world = world();
    let newest = || {
        let sql = "SELECT (SELECT MAX(seq) FROM message), (SELECT MAX(seq) FROM message_delivery),
                          (SELECT MAX(seq) FROM delivery)";
        let read = |row: &Row<'_>| Ok([row.get::<i64>(0)?, row.get(1)?, row.get(2)?]);
        world.db.read(|tx| tx.one(sql, &[], read)).unwrap().unwrap()
    };
    world.messages(0..3, START);
    world.inject_all(START);
    world.refusals(3..5, START);
    for key in ["a", "b"] {
        world.handle(&world.event(key, START), START);
    }
    let before = newest();
    let later = START + 99 * DAY;
    assert_eq!(world.sweep(Table::Messages, Keep::default(), later), 3, "a refusal and two messages");
    assert_eq!(world.sweep(Table::Deliveries, Keep::default(), later), 1);
    assert_eq!(newest(), before);
    world.messages(5..6, later);
    world.event("c", later);
    assert!(newest().iter().zip(before).all(|(now, before)| *now == before + 1));
}

#[test]
fn what_moved_between_the_look_and_the_removal_stays() {
    let world = world();
    world.messages(0..1, START);
    world.inject(0, START);
    let id = world.event("k", START);
    world.handle(&id, START);
    world.messages(1..2, START);
    world.event("newest", START);
    for table in [Table::Messages, Table::Deliveries] {
        let now = START + 40 * DAY;
        let cutoff = table.cutoff(Keep::default(), now).unwrap();
        let page = world.db.read(|tx| look(tx, table, 0, cutoff, now)).unwrap();
        assert_eq!(page.over.len(), 1);
        let back = match table {
            Table::Messages => "UPDATE message_delivery SET state = 'queued'",
            _ => "UPDATE delivery SET state = 'pending'",
        };
        world.db.write(move |tx| tx.execute(back, &[])).unwrap();
        assert_eq!(world.db.write(move |tx| remove(tx, table, &page.over, cutoff)).unwrap(), 0);
    }
    assert_eq!((world.count("message"), world.count("delivery")), (2, 2));
}

#[test]
fn settled_deliveries_go_with_their_replies_and_one_whose_reply_waits_does_not() {
    let world = world();
    let ids: Vec<_> = ["a", "b", "c", "d"].iter().map(|key| world.event(key, START)).collect();
    world.handle(&ids[0], START);
    world.reply(&ids[1], START);
    world.reply(&ids[2], START);
    world.handle(&ids[2], START);
    let keep = Keep::default();
    let later = START + 31 * DAY;
    assert_eq!(world.sweep(Table::Deliveries, keep, START + 30 * DAY), 0);
    assert_eq!(world.sweep(Table::Deliveries, keep, later), 2);
    assert_eq!(world.sweep(Table::Events, keep, later), 2);
    assert_eq!((world.count("delivery"), world.count("event"), world.count("reply")), (2, 2, 1));
    let org = world.org();
    world.db.write(move |tx| sources::delete(tx, &org, &"ci".parse().unwrap())).unwrap();
    assert_eq!(world.sweep(Table::Deliveries, keep, later), 1, "nobody posts the reply of a deleted source");
    assert_eq!(world.sweep(Table::Events, keep, later), 1);
    assert_eq!((world.count("reply"), world.count("delivery")), (0, 1));
}

#[test]
fn an_event_is_known_by_its_key_for_thirty_days_whatever_is_kept() {
    let world = world();
    let id = world.event("k", START);
    world.handle(&id, START);
    world.event("newest", START);
    let keep = Keep { deliveries: Some(Duration::from_secs(1)), ..Keep::default() };
    let soon = START + DAY;
    assert_eq!(world.sweep(Table::Deliveries, keep, soon), 1);
    assert_eq!(world.sweep(Table::Events, keep, soon), 0);
    assert_eq!(world.event("k", soon), id, "the answer is the one that was given before");
    assert_eq!(world.sweep(Table::Events, keep, START + 31 * DAY), 1);
    assert_ne!(world.event("k", START + 31 * DAY), id);
}

#[test]
fn expired_codes_go_and_the_room_of_what_went_is_used_again() {
    let world = world();
    let org = world.org();
    let issue = move |tx: &Tx<'_>| directory::issue_code(tx, &org, &"new".parse().unwrap(), "hash", START);
    let expires_at = world.db.write(issue).unwrap();
    assert_eq!(world.db.write(move |tx| remove_codes(tx, expires_at - DAY)).unwrap(), 0);
    assert_eq!(world.db.write(move |tx| remove_codes(tx, expires_at)).unwrap(), 1);
    let mut pages = vec![];
    for round in 0..4 {
        let now = START + round * 8 * DAY;
        world.messages(round * 600..(round + 1) * 600, now);
        world.inject_all(now);
        pages.push(world.db.read(|tx| tx.one("PRAGMA page_count", &[], |row| row.get::<i64>(0))).unwrap());
        let newest = u64::from(round == 0);
        assert_eq!(world.sweep(Table::Messages, Keep::default(), now + 8 * DAY), 600 - newest);
    }
    let pages: Vec<_> = pages.into_iter().flatten().collect();
    assert!(pages[3] <= pages[0] * 11 / 10, "{pages:?}");
}
