//! An event's way to its agent, and its reply's way back.

use std::net::TcpListener;
use std::sync::mpsc::RecvTimeoutError;

use serde_json::{Value, json};

use super::{Daemon, SECRET, Worker, event};
use crate::support::{LONG, Sink, eventually};
use transit::net::service::Shutdown;
use transit::proto::envelope::{self, Kind};
use transit::proto::ingest::Signer;
use transit::secret::Secret;

/// A Worker whose source `ci` writes to `jess@titan`, and that host's daemon.
fn world(reply_url: Option<&str>) -> (Worker, Daemon, String) {
    let worker = Worker::start();
    let token = worker.enrol("titan");
    let replies: Vec<&str> = match reply_url {
        Some(url) => vec!["--reply-url", url, "--reply-url-prefix", url],
        None => vec![],
    };
    worker.source("jess@titan", &replies);
    let daemon = worker.daemon("titan", &token, &["jess", "mel"]);
    (worker, daemon, token)
}

/// Posts an event and takes its delivery.
fn deliver(worker: &Worker, daemon: &mut Daemon, key: &str) -> String {
    let answer = worker.event(event(key).to_string().as_bytes());
    assert_eq!(answer.status(), 202);
    let delivered = daemon.delivered();
    assert_eq!(delivered["id"], answer.json()["delivery_id"]);
    daemon.ack(&delivered);
    delivered["id"].as_str().unwrap().to_owned()
}

fn reply(daemon: &mut Daemon, caller: &str, id: &str, message: &str) -> Result<Value, String> {
    let params = json!({ "delivery_id": id, "conversation_id": "c 1", "message": message });
    daemon.call(caller, "chat_reply", params)
}

fn state(worker: &Worker, id: &str) -> String {
    let shown = worker.admin(&["delivery", "show", id]);
    let delivery = shown.get("delivery").unwrap_or(&shown);
    delivery["state"].as_str().unwrap().to_owned()
}

#[test]
fn an_event_is_shown_read_and_answered_with_a_signed_callback() {
    let sink = Sink::start(&[204]);
    let (worker, mut daemon, _) = world(Some(&format!("http://{}/in/", sink.at)));
    let answer = worker.event(event("k1").to_string().as_bytes());
    let delivered = daemon.delivered();
    let id = delivered["id"].as_str().unwrap();
    assert_eq!((delivered["agent"].as_str(), &answer.json()["delivery_id"]), (Some("jess"), &json!(id)));
    let shown = envelope::parse(delivered["envelope"].as_str().unwrap()).unwrap().envelope;
    assert_eq!((shown.from.as_str(), shown.body.as_str()), ("ingest", "the build is red"));
    let Kind::Channel { conversation_id, connector, user, redelivery, trigger, .. } = shown.kind else {
        panic!("{shown:?}")
    };
    assert_eq!((conversation_id.as_str(), connector.as_str(), user.as_str()), ("c 1", "ingest", "Ada"));
    assert_eq!((redelivery, trigger.as_str()), (0, "alert"));
    daemon.ack(&delivered);

    let read = daemon.call("jess", "read_message", json!({ "id": id })).unwrap();
    assert!(read.as_str().unwrap().contains("read=\"first\""), "{read}");
    assert_eq!(state(&worker, id), "read");
    assert_eq!(reply(&mut daemon, "mel", id, "mine").unwrap_err(), "not_owner");
    let wrong = json!({ "delivery_id": id, "conversation_id": "c 2", "message": "x" });
    assert_eq!(daemon.call("jess", "chat_reply", wrong).unwrap_err(), "conversation_mismatch");

    let said = reply(&mut daemon, "jess", id, "fixed").unwrap();
    assert_eq!(said, json!({ "status": "handled", "duplicate": false, "message": "fixed" }));
    let callback = sink.next();
    assert_eq!(callback.first, "POST /in/ HTTP/1.1");
    assert_eq!(callback.field("content-type"), Some("application/json"));
    let (timestamp, signature) =
        (callback.field("transit-timestamp").unwrap(), callback.field("transit-signature").unwrap());
    let signer = Signer::new(&Secret::new(SECRET).unwrap());
    assert!(signer.verify(timestamp, &callback.body, signature));
    let expected = json!({
        "schema": "transit.ingest/1", "kind": "reply", "source": "ci", "conversation_id": "c 1", "event_key": "k1",
        "delivery_id": id, "agent": "jess@titan", "message": "fixed", "user": "Ada",
    });
    assert_eq!(callback.json(), expected);
    assert_eq!(state(&worker, id), "handled");

    let again = reply(&mut daemon, "jess", id, "another").unwrap();
    assert_eq!(again, json!({ "status": "handled", "duplicate": true, "message": "fixed" }));
    assert_eq!(reply(&mut daemon, "mel", id, "mine").unwrap_err(), "not_owner");
    assert_eq!(
        daemon.call("jess", "mark_handled", json!({ "delivery_id": id })).unwrap(),
        json!({ "duplicate": true })
    );
    assert!(sink.rest().is_empty());
}

#[test]
fn a_conversation_that_no_envelope_can_show_is_answered_by_what_it_shows() {
    let sink = Sink::start(&[204]);
    let (worker, mut daemon, _) = world(Some(&format!("http://{}/", sink.at)));
    let mut posted = event("k1");
    posted["conversation_id"] = "a\tb\u{202e}\u{1b}[31m".into();
    assert_eq!(worker.event(posted.to_string().as_bytes()).status(), 202);
    let delivered = daemon.delivered();
    let shown = envelope::parse(delivered["envelope"].as_str().unwrap()).unwrap().envelope;
    let Kind::Channel { conversation_id, .. } = shown.kind else { panic!("{shown:?}") };
    assert_eq!(conversation_id, "a\u{fffd}b\u{fffd}\u{fffd}[31m");
    let params =
        json!({ "delivery_id": delivered["id"], "conversation_id": conversation_id, "message": "fixed" });
    assert_eq!(daemon.call("jess", "chat_reply", params).unwrap()["status"], "handled");
    assert_eq!(sink.next().json()["conversation_id"], posted["conversation_id"], "and comes back as it was");
}

#[test]
fn a_one_way_source_refuses_replies_and_handling_settles() {
    let (worker, mut daemon, _) = world(None);
    let id = deliver(&worker, &mut daemon, "k1");
    assert_eq!(reply(&mut daemon, "jess", &id, "x").unwrap_err(), "one_way");
    assert_eq!(daemon.call("mel", "mark_handled", json!({ "delivery_id": id })).unwrap_err(), "not_owner");
    let handled = daemon.call("jess", "mark_handled", json!({ "delivery_id": id })).unwrap();
    assert_eq!(handled, json!({ "duplicate": false }));
    let handled = daemon.call("jess", "mark_handled", json!({ "delivery_id": id })).unwrap();
    assert_eq!(handled, json!({ "duplicate": true }));
    assert_eq!(reply(&mut daemon, "jess", &id, "x").unwrap_err(), "already_handled");
    let read = daemon.call("jess", "read_message", json!({ "id": id })).unwrap();
    assert!(read.as_str().unwrap().contains("[already settled; history only]"), "{read}");
    for (id, code) in [("dlv_ffffffffffff", "not_found"), ("nonsense", "not_found"), ("", "bad_params")] {
        assert_eq!(daemon.call("jess", "read_message", json!({ "id": id })).unwrap_err(), code, "{id}");
    }
}

#[test]
fn a_reply_that_is_not_taken_stays_pending_and_is_posted_again_after_a_restart() {
    let sink = Sink::start(&[302, 503, 200]);
    let (worker, mut daemon, token) = world(Some(&format!("http://{}/", sink.at)));
    let id = deliver(&worker, &mut daemon, "k1");
    let said = reply(&mut daemon, "jess", &id, "fixed").unwrap();
    assert_eq!(
        (&said["status"], &said["postError"]),
        (&json!("post_pending"), &json!("callback failed (302)"))
    );
    assert_eq!(state(&worker, &id), "replied");
    let worker = worker.restart();
    let mut daemon = worker.daemon("titan", &token, &["jess"]);
    let again = eventually(|| reply(&mut daemon, "jess", &id, "another").ok());
    assert_eq!((&again["duplicate"], &again["message"]), (&json!(true), &json!("fixed")));
    worker.admin(&["delivery", "requeue", &id]);
    eventually(|| (!sink.rest().is_empty()).then_some(()));
    worker.admin(&["delivery", "requeue", &id]);
    eventually(|| (state(&worker, &id) == "handled").then_some(()));
}

#[test]
fn a_revoked_prefix_stops_a_queued_reply() {
    let sink = Sink::start(&[503]);
    let url = format!("http://{}/", sink.at);
    let (worker, mut daemon, _) = world(Some(&url));
    let id = deliver(&worker, &mut daemon, "k1");
    assert_eq!(reply(&mut daemon, "jess", &id, "fixed").unwrap()["status"], "post_pending");
    sink.next();
    worker.admin(&["source", "update", "ci", "--no-reply-url", "--no-reply-url-prefix"]);
    worker.admin(&["delivery", "requeue", &id]);
    eventually(|| {
        let shown = worker.admin(&["delivery", "show", &id]).to_string();
        shown.contains("ci has no permitted reply destination").then_some(())
    });
    assert!(sink.rest().is_empty());
}

#[test]
fn a_delivery_whose_answer_was_lost_is_shown_again_with_its_count() {
    let (worker, mut daemon, token) = world(None);
    worker.event(event("k1").to_string().as_bytes());
    let first = daemon.delivered();
    // The attempt is stored before what comes after it.
    daemon.call("jess", "mark_handled", json!({ "delivery_id": "dlv_000000000000" })).unwrap_err();
    drop(daemon);
    let worker = worker.restart();
    let mut daemon = worker.daemon("titan", &token, &["jess"]);
    let again = daemon.delivered();
    assert_eq!(again["id"], first["id"]);
    let shown = envelope::parse(again["envelope"].as_str().unwrap()).unwrap().envelope;
    assert!(matches!(shown.kind, Kind::Channel { redelivery: 1, .. }), "{shown:?}");
    daemon.nak(&again, "adapter_unavailable", true);
    daemon.call("jess", "mark_handled", json!({ "delivery_id": "dlv_000000000000" })).unwrap_err();
    worker.admin(&["delivery", "requeue", again["id"].as_str().unwrap()]);
    let third = daemon.delivered();
    let shown = envelope::parse(third["envelope"].as_str().unwrap()).unwrap().envelope;
    assert!(
        matches!(shown.kind, Kind::Channel { redelivery: 1, .. }),
        "a refused one was not shown: {shown:?}"
    );
}

#[test]
fn the_small_receiver_takes_a_signed_reply_and_nothing_else() {
    let stop = Shutdown::new();
    let listen = "127.0.0.1:0".parse().unwrap();
    let (url, replies) = transit::worker::receive(listen, &Secret::new(SECRET).unwrap(), &stop).unwrap();
    let (worker, mut daemon, _) = world(Some(&url));
    let at = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    let forged = crate::support::request("POST", "/", &[], b"{}");
    assert_eq!(crate::support::http(at, &forged).status(), 401);
    let id = deliver(&worker, &mut daemon, "k1");
    assert_eq!(reply(&mut daemon, "jess", &id, "fixed").unwrap()["status"], "handled");
    let received = replies.recv_timeout(LONG).unwrap();
    assert_eq!((received.delivery_id, received.message), (id, "fixed".to_owned()));
    stop.trigger();
    assert_eq!(replies.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn a_delivery_that_nobody_answers_is_sent_again_as_it_was_on_the_same_socket() {
    let (worker, mut daemon, _) = world(None);
    worker.event(event("k1").to_string().as_bytes());
    let ids = [(); 2].map(|()| {
        let delivered = daemon.delivered();
        let shown = envelope::parse(delivered["envelope"].as_str().unwrap()).unwrap().envelope;
        assert!(matches!(shown.kind, Kind::Channel { redelivery: 0, .. }), "{shown:?}");
        delivered["id"].clone()
    });
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn a_reply_to_a_deleted_source_is_refused_and_not_recorded() {
    let sink = Sink::start(&[204]);
    let (worker, mut daemon, _) = world(Some(&format!("http://{}/in/", sink.at)));
    let id = deliver(&worker, &mut daemon, "k1");
    worker.admin(&["source", "delete", "ci"]);
    let refused = reply(&mut daemon, "jess@titan", &id, "too late").unwrap_err();
    assert!(refused.contains("one_way"), "{refused}");
    daemon.call("jess@titan", "mark_handled", json!({ "delivery_id": id })).unwrap();
    assert_eq!(state(&worker, &id), "handled");
}

#[test]
fn a_reply_that_is_not_posted_yet_is_answered_before_a_worker_stops() {
    // It takes the reply and says nothing.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut worker, mut daemon, _) = world(Some(&format!("http://{}/", mute.local_addr().unwrap())));
    let id = deliver(&worker, &mut daemon, "k1");
    let params = json!({ "delivery_id": id, "conversation_id": "c 1", "message": "on it", "caller": "jess" });
    daemon.say(&json!({ "t": "rpc", "rid": "r1", "method": "chat_reply", "params": params }));
    let _under_way = mute.accept().unwrap();
    worker.process.signal(rustix::process::Signal::TERM);
    let (frames, code) = daemon.closed();
    assert_eq!((frames.len(), code), (1, 1001));
    assert_eq!(frames[0]["result"]["status"], "post_pending", "{}", frames[0]);
    assert!(worker.process.wait().success());
    assert_eq!(state(&worker, &id), "replied", "it is posted by the next one");
}
