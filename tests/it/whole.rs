//! The whole way of one event, through the real programs: in by HTTP, to an agent, and its reply back, signed.

use serde_json::json;

use crate::rig::{Rig, SECRET, signed_event, until};
use crate::support::{Home, Sink, http, text};

#[test]
fn an_event_is_delivered_once_and_its_reply_comes_back_signed() {
    let sink = Sink::start(&[503, 200]);
    let rig = Rig::start(&format!("http://{}/reply/", sink.at));
    assert!(rig.endpoint().ends_with("/ingest/ci"));
    let mut agent = rig.listen("bob");

    let request = signed_event("ci", SECRET, "build-1", "the build broke");
    let accepted = http(rig.at, &request);
    assert_eq!((accepted.status(), &accepted.json()["status"]), (202, &json!("queued")));
    let id = accepted.json()["delivery_id"].as_str().unwrap().to_owned();
    let again = http(rig.at, &request);
    assert_eq!((again.status(), &again.json()["status"]), (200, &json!("duplicate")));
    assert_eq!(again.json()["delivery_id"], json!(id));
    let changed = String::from_utf8(request).unwrap().replace("broke", "brake");
    assert_eq!(http(rig.at, changed.as_bytes()).status(), 401);

    assert_eq!(agent.delivered()["id"], json!(id));
    agent.ack(&id);
    let full = rig.call("bob", "read_message", &json!({"id": id}));
    assert!(
        full.contains("the build broke") && full.contains("[settle: chat_reply or mark_handled]"),
        "{full}"
    );
    let reply = json!({"delivery_id": id, "conversation_id": "main", "message": "on it"});
    let answered = rig.call("bob", "chat_reply", &reply);
    assert!(answered.contains("post_pending"), "the first post was refused: {answered}");
    let (refused, posted) = (sink.next(), sink.next());
    assert_eq!(refused.body, posted.body, "the same reply, again");
    let verified = rig.verify_callback(&posted);
    assert!(verified.status.success(), "{}", text(&verified.stderr));
    until(&rig, &["delivery", "show", &id], |row| row["state"] == "handled");
    assert!(rig.call("bob", "chat_reply", &reply).contains("\"duplicate\":true"));
    assert!(agent.is_quiet(), "neither a duplicate nor a settled delivery reaches the agent");
}

#[test]
fn a_worker_that_was_killed_gets_its_daemon_back_by_itself() {
    let sink = Sink::start(&[200]);
    let mut rig = Rig::start(&format!("http://{}/reply/", sink.at));
    let mut agent = rig.listen("bob");
    assert_eq!(rig_status(&rig.home, "30s"), Some(0));
    rig.kill_worker();
    rig.start_worker_untold();
    let accepted = http(rig.at, &signed_event("ci", SECRET, "build-1", "while nobody was there"));
    assert_eq!(accepted.status(), 202);
    assert_eq!(agent.delivered()["id"], accepted.json()["delivery_id"]);
    // The first waits are short: a second, two, four.
    assert_eq!(rig_status(&rig.home, "10s"), Some(0));
}

fn rig_status(home: &Home, wait: &str) -> Option<i32> {
    home.run("transitd", ["status", "--wait", wait], b"").status.code()
}

#[test]
fn quickstart_makes_the_round_trip_and_leaves_nothing_behind() {
    let home = Home::new();
    let run = home.run("transitd", ["quickstart", "--once"], b"");
    let told = text(&run.stdout);
    assert!(run.status.success(), "{told}{}", text(&run.stderr));
    let steps = ["Worker", "Host", "Agent", "Source", "Event", "Frame", "Envelope", "Reply", "Callback"];
    let found: Vec<&str> = told.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert!(steps.iter().all(|step| found.contains(step)), "{told}");
    assert!(
        told.contains("202 queued")
            && told.contains("<transit from=\"ingest\"")
            && told.contains("signature verified")
    );
    let place = told.split_whitespace().find(|word| word.ends_with("/worker.db")).unwrap();
    assert!(!std::path::Path::new(place).parent().unwrap().exists());
}

#[test]
fn quickstart_finds_its_directory_again() {
    let home = Home::new();
    for _ in 0..2 {
        let run = home.run("transitd", ["quickstart", "--once", "--dir", "kept"], b"");
        assert!(run.status.success(), "{}{}", text(&run.stdout), text(&run.stderr));
    }
    assert!(home.path("kept/worker.db").exists());
}
