use tokio::sync::watch;

use super::*;
use crate::proto::wire::{SendFrame, WorkerConfig};
use crate::proto::{Input, Output};
use crate::store::ledger::roster::tests::{agent, enrol};
use crate::store::ledger::{Db, directory, roster};
use crate::store::seal::MasterKey;
use crate::worker::Limits;
use crate::worker::app::Shared;

struct World {
    _dir: tempfile::TempDir,
    app: App,
    dispatch: Dispatch,
    end: WorkerEnd,
}

/// The link of host `beta`, on which `bob` lives.
fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&dir.path().join("w.db")).unwrap();
    let key = MasterKey::from_file_or_new(&dir.path().join("key")).unwrap();
    let enrolled = db.write(|tx| {
        let org_id = directory::org(tx, "default")?.unwrap().id;
        enrol(tx, &org_id, "beta", &[agent("bob", "idle")], Wall(0))?;
        Ok(org_id)
    });
    let org_id = enrolled.unwrap();
    let app = Arc::new(Shared::new(db, key, Limits::default(), watch::channel(false).1));
    let owner = Owner {
        org_id,
        org: "default".into(),
        host_id: "hst_00000000000a".into(),
        host: "beta".into(),
        token_hash: String::new(),
    };
    let config =
        WorkerConfig { host: owner.host.clone(), host_id: owner.host_id.clone(), org: owner.org.clone() };
    let mut end = WorkerEnd::new(config, app.mono());
    let hello = r#"{"t":"hello","proto":1,"daemon_ver":"1","host":"beta"}"#;
    end.handle(Input::Text(hello), app.mono());
    let mut dispatch = Dispatch::new(app.clone(), Handle::new(Arc::new(owner)));
    dispatch.present(BTreeSet::from(["bob".to_owned()]));
    World { _dir: dir, app, dispatch, end }
}

impl World {
    fn take(&mut self, n: u32) {
        self.take_from("amy@alpha", n);
    }

    fn take_from(&mut self, sender: &str, n: u32) {
        let frame = SendFrame {
            id: format!("tx_{n:012}"),
            from: sender.into(),
            to: "bob@beta".into(),
            body: "x".into(),
            reply_to: None,
            ts: "2026-01-01T00:00:00.000Z".into(),
        };
        let (queue, now) = (self.dispatch.owner.queue("bob"), self.app.wall());
        self.app.db.write(move |tx| messages::take(tx, &queue, "alpha", &frame, false, now)).unwrap();
        self.dispatch.grown("bob".into(), Grown::Messages);
    }

    /// The ledger hears that a message was refused for now.
    fn refuse(&self, n: u32) {
        let (org_id, now) = (self.dispatch.owner.org_id.clone(), self.app.wall());
        let id = format!("tx_{n:012}");
        let refused =
            move |tx: &Tx<'_>| messages::refused(tx, (&org_id, "beta"), &id, None, ("busy", true), now);
        self.app.db.write(refused).unwrap();
    }

    /// The ledger hears that a message has arrived.
    fn inject(&self, n: u32) {
        let (org_id, now) = (self.dispatch.owner.org_id.clone(), self.app.wall());
        let id = format!("tx_{n:012}");
        self.app
            .db
            .write(move |tx| {
                messages::arrived(tx, &org_id, "beta", &id, Some("bob"), messages::Arrival::Injected, now)
            })
            .unwrap();
    }

    /// The numbers of the messages that go out now.
    fn sent(&mut self) -> Vec<u32> {
        self.dispatch.send(&mut self.end);
        let mut sent = Vec::new();
        while let Some(output) = self.end.poll() {
            if let Output::Write(text) = output {
                let frame: serde_json::Value = serde_json::from_str(&text).unwrap();
                let id = frame["id"].as_str().filter(|_| frame["t"] == "deliver");
                sent.extend(id.map(|id| id[3..].parse::<u32>().unwrap()));
            }
        }
        sent
    }
}

#[test]
fn nothing_passes_a_refused_message_while_its_refusal_is_on_its_way_to_the_ledger() {
    let mut world = world();
    world.take(1);
    assert_eq!(world.sent(), [1]);
    let waiting = world.dispatch.refused("tx_000000000001", None).unwrap();
    world.take(2);
    assert!(world.sent().is_empty());
    world.refuse(1);
    world.dispatch.recorded(waiting);
    assert!(world.sent().is_empty(), "now the ledger holds it");
}

#[test]
fn an_agent_that_is_renamed_while_a_refusal_is_on_its_way_to_the_ledger_still_gets_its_mail() {
    let mut world = world();
    world.take(1);
    assert_eq!(world.sent(), [1]);
    let waiting = world.dispatch.refused("tx_000000000001", None).unwrap();
    world.take_from("abe@alpha", 2);
    world.dispatch.renamed("bob", "rob");
    world.refuse(1);
    let (org_id, now) = (world.dispatch.owner.org_id.clone(), world.app.wall());
    world.app.db.write(move |tx| roster::rename(tx, &org_id, "beta", ("bob", "rob"), now)).unwrap();
    world.dispatch.present(BTreeSet::from(["rob".to_owned()]));
    assert!(world.sent().is_empty(), "the link has not heard that it is in the ledger");
    world.dispatch.recorded(waiting);
    assert_eq!(world.sent(), [2], "another pair");
}

#[test]
fn nothing_passes_what_an_older_link_has_sent_last_and_recorded_too_late() {
    let mut world = world();
    let (app, older) = (world.app.clone(), world.dispatch.handle.clone());
    app.links.claim(&older);
    world.take(1);
    assert_eq!(world.sent(), [1]);
    // Before that is recorded, the host is there again; its hello finds nothing lost.
    let newer = Handle::new(older.owner.clone());
    app.links.claim(&newer);
    let (owner, due_at) = (newer.owner.clone(), app.wall() + LATE_ANSWERS);
    app.db.write(move |tx| lost(tx, &owner, due_at)).unwrap();
    world.dispatch.record();
    world.dispatch = Dispatch::new(app, newer);
    world.take(2);
    world.dispatch.present(BTreeSet::from(["bob".to_owned()]));
    assert!(!world.sent().contains(&2), "the first is not on this link");
}

#[test]
fn what_waited_behind_a_held_message_is_not_passed_when_that_is_settled() {
    let mut world = world();
    world.take(1);
    assert_eq!(world.sent(), [1]);
    world.refuse(1);
    world.take(2);
    world.take_from("abe@alpha", 3);
    assert_eq!(world.sent(), [3], "another pair");
    // It is settled, which the link has not heard of yet.
    world.inject(1);
    world.take(4);
    assert_eq!(world.sent(), [2, 4]);
}

#[test]
fn a_link_that_was_replaced_sends_nothing_more() {
    let mut world = world();
    let handle = world.dispatch.handle.clone();
    world.app.links.claim(&handle);
    world.app.links.claim(&Handle::new(handle.owner.clone()));
    world.take(1);
    assert!(world.sent().is_empty());
}

#[test]
fn a_refusal_that_does_not_reach_the_ledger_holds_nobody_up_for_ever() {
    let mut world = world();
    world.take(1);
    assert_eq!(world.sent(), [1]);
    let waiting = world.dispatch.refused("tx_000000000001", Some("bob")).unwrap();
    world.take(2);
    world.dispatch.recorded(waiting);
    assert_eq!(world.sent(), [2]);
    assert_eq!(world.dispatch.refused("tx_000000000009", Some("eve")), None, "nobody's");
}

#[test]
fn what_was_acknowledged_does_not_go_out_again_before_the_ledger_knows() {
    let mut world = world();
    world.take(1);
    world.take(2);
    assert_eq!(world.sent(), [1, 2]);
    world.dispatch.acknowledged("tx_000000000001", Some("bob"));
    world.dispatch.acknowledged("tx_000000000002", None);
    world.dispatch.moved("bob".into());
    assert!(world.sent().is_empty());
}

#[test]
fn what_is_new_passes_none_of_many_that_waited_behind_a_held_message() {
    let mut world = world();
    let many = u32::try_from(QUEUE_BATCH).unwrap() + 10;
    world.take(1);
    assert_eq!(world.sent(), [1]);
    world.refuse(1);
    world.dispatch.acknowledged("tx_000000000001", None);
    (2..=many).for_each(|n| world.take(n));
    world.take_from("abe@alpha", many + 1);
    assert_eq!(world.sent(), [many + 1], "another pair, and the last one of all");
    world.inject(1);
    world.dispatch.moved("bob".into());
    let first = world.sent();
    assert!(first.len() < usize::try_from(many).unwrap() - 1, "not all of them at once");
    world.dispatch.acknowledged(&format!("tx_{:012}", first[0]), None);
    world.take(many + 2);
    let next = first.last().unwrap() + 1;
    assert_eq!(world.sent(), [next], "one has room now, and it is the oldest");
}
