//! kill -9 at the worst moments: what was acknowledged is there afterwards, and arrives with the same id.

use serde_json::{Value, json};

use crate::load::{Acked, redeem};
use crate::rig::{Rig, until};
use crate::support::Sink;

/// Rounds of each kind; QUALITY of a release runs more with `TRANSIT_CRASH_ROUNDS`.
pub(crate) fn rounds() -> usize {
    std::env::var("TRANSIT_CRASH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20)
}

#[test]
fn an_accepted_event_survives_every_crash_and_keeps_its_id() {
    let sink = Sink::start(&[200]);
    let mut rig = Rig::start(&format!("http://{}/reply/", sink.at));
    let mut agent = rig.listen("bob");
    for round in 0..rounds() {
        let key = format!("round-{round}");
        let accepted = rig.post(&key, &format!("round {round}"));
        assert_eq!(accepted.status(), 202, "{accepted:?}");
        let id = accepted.json()["delivery_id"].clone();
        match round % 3 {
            0 => rig.kill_worker(),
            1 => {
                assert_eq!(agent.delivered()["id"], id, "round {round}");
                rig.kill_daemon();
            }
            _ => {
                rig.kill_worker();
                rig.kill_daemon();
            }
        }
        if round % 3 != 1 {
            rig.start_worker();
        }
        if round % 3 != 0 {
            rig.start_daemon();
        }
        let again = rig.post(&key, &format!("round {round}"));
        assert_eq!(
            (again.status(), &again.json()["delivery_id"]),
            (200, &id),
            "round {round}: the event is there once"
        );
        let delivered = loop {
            let delivered = agent.delivered();
            if delivered["id"] == id {
                break delivered;
            }
        };
        assert!(delivered["envelope"].as_str().unwrap().contains(&format!("round {round}")));
        agent.ack(id.as_str().unwrap());
        let reply = json!({"delivery_id": id, "conversation_id": "main", "message": format!("done {round}")});
        rig.call("bob", "chat_reply", &reply);
        until(&rig, &["delivery", "show", id.as_str().unwrap()], |row| row["state"] == "handled");
    }
    let messages: Vec<Value> = (0..rounds()).map(|_| sink.next().json()["message"].clone()).collect();
    let expected: Vec<Value> = (0..rounds()).map(|round| json!(format!("done {round}"))).collect();
    assert_eq!(messages, expected, "every reply is posted, once, in order");
}

#[test]
fn what_many_senders_were_promised_at_once_survives_every_crash_and_is_there_once() {
    let mut rig = Rig::start("http://127.0.0.1:9/reply/");
    rig.kill_daemon();
    let hosts: Vec<_> = ["alpha", "beta"]
        .map(|host| {
            let code = rig.admin(&["host", "enroll", host])["code"].as_str().unwrap().to_owned();
            (host.to_owned(), redeem(rig.at, &code))
        })
        .into();
    let acked = Acked::default();
    for round in 0..rounds() {
        acked.load(rig.at, &hosts, round, || {
            acked.wait_for(50 + round * 7);
            rig.kill_worker();
        });
        rig.start_worker();
    }
    acked.check(&rig.home.data().join("worker.db"));
    let (events, sends) = acked.counts();
    assert!(events > rounds() && sends > rounds(), "{events} events and {sends} messages are no load");
}
