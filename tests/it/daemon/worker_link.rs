//! Workers that are not there, say nonsense, say nothing, or go away.

use serde_json::json;

use super::world::{
    Adapter, Order, TOKEN, Worker, ask, enrolled, impostor, nobody, outcome, start, status_until,
};

#[test]
fn the_status_is_what_scripts_wait_for() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let daemon = start(&home);
    let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
    let (code, out, _) = outcome(home.command("transitd").args(["status", "--json", "--wait", "30s"]));
    assert_eq!(code, 0);
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status["host"], "titan");
    assert_eq!(status["worker_url"], format!("http://{}", worker.at));
    assert_eq!((&status["connected"], &status["paused"]), (&json!(true), &json!(false)));
    assert_eq!((&status["outbox"], &status["dead"]), (&json!(0), &json!(0)));
    assert_eq!(status["last_error"], json!(null));
    assert_eq!(status["pid"], daemon.pid());
    assert!(status["uptime_seconds"].is_u64() && status["version"].is_string());
    let agent = &status["agents"][0];
    assert_eq!(agent["address"], "jess@titan");
    assert_eq!((&agent["name"], &agent["harness"]), (&json!("jess"), &json!("claude")));
    assert_eq!((&agent["session_id"], &agent["status"]), (&json!("s1"), &json!("idle")));
    assert_eq!(agent["generation"], 1);
    let (code, out, _) = outcome(home.command("transitd").arg("status"));
    assert_eq!(code, 0);
    assert!(out.contains("connected      true") && out.contains("jess@titan"), "{out}");
}

#[test]
fn a_worker_that_is_none_is_told_and_everything_else_goes_on() {
    let cases = [
        (nobody(), "could not connect"),
        (impostor(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", false), ""),
        (impostor(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false), "404"),
        (impostor(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", false), "device token"),
        (impostor(b"", false), ""),
    ];
    for (at, told) in cases {
        let home = enrolled(at);
        let _daemon = start(&home);
        let status = status_until(&home, |status| status["last_error"].is_string());
        assert_eq!(status["connected"], false);
        let error = status["last_error"].as_str().unwrap();
        assert!(error.contains(told), "{error:?} does not say {told:?}");
        assert!(!error.contains(TOKEN));
        Adapter::register(&home, "s1", Some("jess"));
        let (code, out, err) = outcome(home.command("transitd").args(["status", "--wait", "0s"]));
        assert_eq!((code, out.as_str()), (69, ""), "{err}");
    }
}

#[test]
fn a_worker_that_says_nothing_does_not_hold_up_a_stop() {
    let home = enrolled(impostor(b"", true));
    let mut daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    assert_eq!(ask(&home, &json!({ "op": "send", "to": "a@b", "body": "x" }))["state"], "spooled");
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.wait().success());
    assert_eq!(jess.next(), None);
}

#[test]
fn a_connection_that_breaks_is_made_again_and_a_kick_does_not_wait() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    for _ in 0..2 {
        assert!(worker.roster().is_empty());
        worker.order(Order::Cut);
    }
    worker.roster();
    let (code, ..) = outcome(home.command("transitd").arg("kick"));
    assert_eq!(code, 0);
    worker.roster();
    status_until(&home, |status| status["connected"] == true);
}

#[test]
fn a_configuration_that_makes_no_sense_is_no_start() {
    for (config, token) in
        [("{\"host\":\"No Host\"}", "t"), ("{\"url\":\"ftp://x\",\"host\":\"titan\"}", "t")]
    {
        let home = enrolled(nobody());
        home.file("config.json", config);
        home.file("data/token", token);
        let (code, out, err) = outcome(home.command("transitd").arg("run"));
        assert_eq!((code, out.as_str()), (78, ""), "{err}");
    }
}
