//! Agents of one host that answer each other without end.

use std::net::SocketAddr;

use serde_json::{Value, json};
use transit::proto::wire::{NakCode, WorkerEvent};

use super::world::{Adapter, Order, TOKEN, Worker, ask, start, status_until};
use crate::support::{Background, Home, text};

/// A host whose guard is this one.
fn guarded(guard: &Value, worker: Option<SocketAddr>) -> Home {
    let home = Home::new();
    let mut config = json!({ "host": "titan", "loop_guard": guard });
    if let Some(at) = worker {
        config["url"] = format!("http://{at}").into();
        std::fs::create_dir(home.data()).unwrap();
        home.file("data/token", TOKEN);
    }
    home.file("config.json", config.to_string());
    home
}

/// Another agent of this host, which takes whatever comes.
struct Bob(Background);

impl Bob {
    fn enter(home: &Home) -> Self {
        let bob =
            Background::start(home.command("transit-agent").args(["listen", "--name", "bob", "--auto-ack"]));
        assert!(bob.line().contains("\"registered\""));
        Self(bob)
    }

    /// The text of the next message that it gets.
    fn gets(&self) -> String {
        let frame: Value = serde_json::from_str(&self.0.line()).unwrap();
        let envelope = frame["envelope"].as_str().unwrap();
        envelope.lines().nth(1).unwrap().to_owned()
    }
}

/// A message of the session that this test is.
fn send(body: &str) -> Value {
    json!({ "op": "send", "to": "bob@titan", "body": body })
}

fn sent(worker: &Worker) -> String {
    worker.wait(|event| match event {
        WorkerEvent::Send(frame) => Some(frame.id),
        _ => None,
    })
}

/// Two messages that go straight, and are known to the Worker.
fn two_go_straight(home: &Home, bob: &Bob, worker: &Worker) {
    for body in ["one", "two"] {
        assert_eq!(ask(home, &send(body))["state"], "injected");
        assert_eq!(bob.gets(), body);
        worker.order(Order::SendAck(sent(worker)));
    }
    status_until(home, |status| status["outbox"] == 0);
}

#[test]
fn from_half_the_limit_on_the_worker_is_asked_and_its_no_is_the_sender_s() {
    let worker = Worker::start();
    let home = guarded(&json!({ "limit": 4 }), Some(worker.at));
    let _daemon = start(&home);
    let (_amy, _) = Adapter::register(&home, "s1", Some("amy"));
    let bob = Bob::enter(&home);
    status_until(&home, |status| status["connected"] == true);
    two_go_straight(&home, &bob, &worker);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| ask(&home, &send("three")));
        let id = sent(&worker);
        assert_eq!(ask(&home, &json!({ "op": "status" }))["inbox"], 0, "it is not handed over before");
        worker.order(Order::SendAck(id));
        assert_eq!(asked.join().unwrap()["ok"], true);
        assert_eq!(bob.gets(), "three", "the Worker has not even brought it");

        let asked = scope.spawn(|| ask(&home, &send("four")));
        worker.order(Order::SendNak(sent(&worker), NakCode::RateLimited));
        let refused = asked.join().unwrap();
        assert_eq!((&refused["code"], &refused["id"]), (&json!("loop_guard"), &Value::Null), "{refused}");
    });
    let status = ask(&home, &json!({ "op": "status" }));
    assert_eq!((&status["outbox"], &status["dead"]), (&json!(0), &json!(0)), "it is not kept");
    assert_eq!(status["inbox"], 1, "the notice");

    // Somebody from outside speaks to one of them.
    worker.deliver("dlv_00000000000a", "bob", "first line\nan event");
    assert_eq!(bob.gets(), "an event");
    assert_eq!(ask(&home, &send("five"))["state"], "injected");
    assert_eq!(bob.gets(), "five");
}

#[test]
fn a_message_that_was_promised_is_kept_through_the_worker_s_no_and_none_passes_it() {
    let worker = Worker::start();
    let home = guarded(&json!({ "limit": 4 }), Some(worker.at));
    let mut daemon = start(&home);
    let (amy, _) = Adapter::register(&home, "s1", Some("amy"));
    let bob = Bob::enter(&home);
    status_until(&home, |status| status["connected"] == true);
    two_go_straight(&home, &bob, &worker);
    let mut call = send("three");
    call["wait_ms"] = 0.into();
    assert_eq!(ask(&home, &call)["state"], "spooled");
    worker.order(Order::SendNak(sent(&worker), NakCode::RateLimited));
    worker.deliver("dlv_00000000000a", "bob", "first line\nan event");
    assert_eq!(bob.gets(), "an event");
    assert_eq!(worker.answer().2, "ack", "else it would come again after the kill");
    call["body"] = "four".into();
    assert_eq!(ask(&home, &call)["state"], "spooled", "it may go on, but not past the third");
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    drop((amy, bob));
    let _daemon = start(&home);
    let (_amy, _) = Adapter::register(&home, "s1", Some("amy"));
    let bob = Bob::enter(&home);
    call["body"] = "five".into();
    assert_eq!(ask(&home, &call)["state"], "spooled", "a daemon that starts anew knows of it");
    for _ in 0..3 {
        worker.order(Order::SendAck(sent(&worker)));
    }
    let mut got = [bob.gets(), bob.gets(), bob.gets()];
    // A refusal puts a message behind the next ones on its way to the Worker, as ever.
    got.sort();
    assert_eq!(got, ["five", "four", "three"]);
}

#[test]
fn without_a_worker_the_daemon_refuses_by_itself_and_says_when_it_is_over() {
    let home = guarded(&json!({ "limit": 1, "window": "3s" }), None);
    let _daemon = start(&home);
    let (mut amy, _) = Adapter::register(&home, "s1", Some("amy"));
    let bob = Bob::enter(&home);
    let mut passed = 0;
    let refused = loop {
        let answer = ask(&home, &send("on and on"));
        if answer["ok"] == false {
            break answer;
        }
        passed += 1;
    };
    assert!(passed > 0);
    assert_eq!(refused["code"], "loop_guard", "{refused}");
    let notice = amy.next().unwrap();
    let envelope = notice["envelope"].as_str().unwrap();
    assert!(envelope.starts_with("<transit from=\"transit\""), "{envelope}");
    assert!(envelope.contains("messages to bob@titan pass again"), "{envelope}");
    amy.ack(notice["id"].as_str().unwrap());
    assert_eq!(ask(&home, &send("again"))["state"], "injected");
    drop(bob);
}

#[test]
fn a_killed_daemon_has_not_forgotten_and_the_guard_can_be_turned_off() {
    let home = guarded(&json!({ "limit": 2, "window": "1h" }), None);
    let mut daemon = start(&home);
    let (amy, _) = Adapter::register(&home, "s1", Some("amy"));
    let bob = Bob::enter(&home);
    for _ in 0..2 {
        assert_eq!(ask(&home, &send("hi"))["state"], "injected");
    }
    let mut command = home.command("transit-send");
    let refused = command.args(["bob@titan", "-m", "hi"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(75));
    let words = text(&refused.stderr);
    assert!(words.contains("agents have written 2 times") && words.contains("(loop_guard)"), "{words}");
    assert_eq!(words.lines().count(), 2, "{words}");
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    drop((amy, bob));

    let mut daemon = start(&home);
    let (amy, _) = Adapter::register(&home, "s1", Some("amy"));
    let bob = Bob::enter(&home);
    assert_eq!(ask(&home, &send("hi"))["code"], "loop_guard");
    drop((amy, bob));
    daemon.signal(rustix::process::Signal::TERM);
    daemon.wait();

    home.file("config.json", json!({ "host": "titan", "loop_guard": { "limit": 0 } }).to_string());
    let _daemon = start(&home);
    let (_amy, _) = Adapter::register(&home, "s1", Some("amy"));
    let _bob = Bob::enter(&home);
    for _ in 0..5 {
        assert_eq!(ask(&home, &send("hi"))["state"], "injected");
    }
}

#[test]
fn a_guard_that_makes_no_sense_keeps_the_daemon_from_starting() {
    for (window, why) in [("soon", "is no duration"), ("0s", "a limit of 0 turns the guard off")] {
        let home = guarded(&json!({ "window": window }), None);
        let output = home.command("transitd").arg("run").output().unwrap();
        assert_eq!(output.status.code(), Some(78));
        let words = text(&output.stderr);
        assert!(words.contains("loop_guard.window: ") && words.contains(why), "{words}");
    }
}
