//! Flushing: what is due, in what order of processes, and what it says.

use std::net::TcpListener;
use std::process::Output;

use rustix::process::Signal;
use serde_json::{Value, json};
use transit::store::spool::FlushLock;

use super::*;
use crate::support::{Background, Http, Sink, eventually};

fn url(sink: &Sink) -> String {
    format!("http://{}/ingest/ci", sink.at)
}

fn keys(requests: &[Http]) -> Vec<Value> {
    requests.iter().map(|request| request.json()["event_key"].clone()).collect()
}

fn flush(home: &Home, options: &[&str]) -> Output {
    spool(home, &[&["flush"], options].concat())
}

#[test]
fn what_is_due_is_tried_once_and_the_rest_waits() {
    let home = home();
    let sink = Sink::start(&[202, 503, 400, 202]);
    let ids: Vec<String> = (0..4).map(|n| add(&home, &url(&sink), &n.to_string())).collect();
    let output = flush(&home, &["--jobs", "1", "--max", "1", "--json"]);
    let tally: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(tally, json!({"sent": 1, "dead": 0, "failed": 0, "unnoted": 0, "waiting": 3}));
    assert_eq!((code(&output), text(&output.stderr)), (75, ""));
    let output = flush(&home, &["--jobs", "1", "-v"]);
    assert_eq!((code(&output), text(&output.stdout)), (75, "sent 1, dead 1, failed for now 1, waiting 1\n"));
    let errors = text(&output.stderr);
    assert!(
        errors.contains(&format!("{} to {} is dead: the answer was 400", ids[2], url(&sink))),
        "{errors}"
    );
    assert!(errors.contains(&format!("{} to {} waits until", ids[1], url(&sink))), "{errors}");
    assert!(errors.contains(&format!("{} to {}: queued", ids[3], url(&sink))), "{errors}");
    assert_eq!(code(&flush(&home, &[])), 75, "it waits for its next attempt");
    assert_eq!(sink.rest().len(), 4, "and is not tried before");
    spool_to(&home, &["retry", &ids[1]], 0);
    let output = flush(&home, &["--quiet"]);
    assert_eq!((code(&output), text(&output.stdout), text(&output.stderr)), (0, "", ""));
    assert_eq!(sink.rest().len(), 1);
    assert_eq!(list(&home, &["--state", "dead"]).len(), 1);
    assert_eq!(code(&flush(&home, &[])), 0, "what is dead does not wait");
}

#[test]
fn a_quiet_flush_speaks_only_of_the_dead() {
    let home = home();
    let sink = Sink::start(&[404]);
    let id = add(&home, &url(&sink), "x");
    let output = flush(&home, &["--quiet"]);
    assert_eq!((code(&output), text(&output.stdout)), (0, ""));
    assert_eq!(
        text(&output.stderr),
        format!(
            "transit-spool: {id} to {} is dead: the answer was 404: there is no such source\n",
            url(&sink)
        )
    );
}

#[test]
fn many_jobs_send_everything_once() {
    let home = home();
    let sink = Sink::start(&[202]);
    for n in 0..40 {
        add(&home, &url(&sink), &n.to_string());
    }
    assert_eq!(code(&flush(&home, &["--jobs", "8"])), 0);
    let mut keys: Vec<String> = keys(&sink.rest()).iter().map(ToString::to_string).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 40);
}

#[test]
fn a_second_flush_says_so_or_waits_for_its_turn() {
    let home = home();
    let sink = Sink::start(&[202]);
    add(&home, &url(&sink), "x");
    let lock = FlushLock::try_take(&home.data()).unwrap().unwrap();
    let output = flush(&home, &[]);
    assert_eq!((code(&output), text(&output.stdout)), (0, ""));
    assert!(text(&output.stderr).contains("another flush is at work"), "{}", text(&output.stderr));
    let output = flush(&home, &["--quiet"]);
    assert_eq!((code(&output), text(&output.stderr)), (0, ""));
    let output = flush(&home, &["--wait", "--deadline", "1s"]);
    assert_eq!((code(&output), sink.rest().len()), (75, 0), "its turn did not come");
    let mut command = home.command(SPOOL);
    let mut waiting = Background::start(command.args(["flush", "--wait"]));
    eventually(|| is_waiting_for_the_lock(waiting.pid()).then_some(()));
    drop(lock);
    assert_eq!(waiting.line(), "sent 1, dead 0, failed for now 0, waiting 0");
    assert!(waiting.wait().success());
}

/// Whether the kernel has a thread of this process in the queue of a lock.
fn is_waiting_for_the_lock(pid: u32) -> bool {
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let named =
        threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).ok());
    let has_thread = named.into_iter().any(|name| name.trim() == "flush-lock");
    has_thread && (locks.contains("-> FLOCK") || !locks.contains("FLOCK"))
}

#[test]
fn with_a_deadline_it_waits_for_what_becomes_due_before_it() {
    let home = home();
    let sink = Sink::start(&[503, 202]);
    let id = add(&home, &url(&sink), "x");
    let output = flush(&home, &["--wait", "--deadline", "60s"]);
    assert_eq!((code(&output), text(&output.stdout)), (0, "sent 1, dead 0, failed for now 1, waiting 0\n"));
    assert_eq!(list(&home, &[])[0]["attempts"], 2);
    assert_eq!(keys(&sink.rest()).len(), 2);
    sql(
        &home,
        &format!(
            "UPDATE outbox SET state = 'pending', next_attempt_at = updated_at + 500000 WHERE id = '{id}'"
        ),
    );
    let output = flush(&home, &["--wait", "--deadline", "50s"]);
    assert_eq!(code(&output), 75, "what is due after it is not waited for");
    assert_eq!(sink.rest().len(), 0);
}

#[test]
fn a_time_from_a_wrong_clock_is_due_now() {
    let home = home();
    let sink = Sink::start(&[202]);
    add(&home, &url(&sink), "x");
    sql(
        &home,
        "UPDATE outbox SET next_attempt_at = next_attempt_at + 7205000, updated_at = updated_at + 7200000, attempts = 1",
    );
    let next = &list(&home, &[])[0]["next_attempt_at"];
    let next: jiff::Timestamp = next.as_str().unwrap().parse().unwrap();
    assert!(next.as_second() - jiff::Timestamp::now().as_second() <= 600, "{next}");
    assert_eq!(code(&flush(&home, &["--wait", "--deadline", "50s"])), 0);
    assert_eq!(sink.rest().len(), 1);
}

#[test]
fn a_deadline_cuts_the_attempt_that_is_under_way() {
    let home = home();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for n in 0..3 {
        add(&home, &format!("http://{}/ingest/ci", silent.local_addr().unwrap()), &n.to_string());
    }
    let output = flush(&home, &["--jobs", "1", "--deadline", "1s"]);
    assert_eq!((code(&output), text(&output.stdout)), (75, "sent 0, dead 0, failed for now 1, waiting 3\n"));
    let states = list(&home, &[]);
    assert!(states.iter().all(|entry| entry["state"] == "pending"), "{states:?}");
}

#[test]
fn a_signal_gives_back_what_is_being_tried() {
    let home = home();
    for signal in [Signal::TERM, Signal::INT] {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let id = add(&home, &format!("http://{}/ingest/ci", silent.local_addr().unwrap()), "x");
        let mut command = home.command(SPOOL);
        let mut running = Background::start(command.args(["flush"]));
        let (_stream, _) = silent.accept().unwrap();
        running.signal(signal);
        assert_eq!(running.line(), "sent 0, dead 0, failed for now 0, waiting 1");
        assert_eq!(running.wait().code(), Some(75));
        let entry = &list(&home, &["--state", "pending"])[0];
        assert_eq!((&entry["state"], &entry["attempts"]), (&json!("pending"), &json!(0)));
        spool_to(&home, &["rm", &id], 0);
    }
}

#[test]
fn an_event_whose_secret_is_gone_waits_and_says_so() {
    let home = home();
    let sink = Sink::start(&[202]);
    add(&home, &url(&sink), "x");
    std::fs::remove_file(home.path("secret")).unwrap();
    assert_eq!(code(&flush(&home, &[])), 75);
    let error = list(&home, &[])[0]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("the secret cannot be read") && sink.rest().is_empty(), "{error}");
}

#[test]
fn progress_is_for_terminals_alone() {
    let home = home();
    let sink = Sink::start(&[202]);
    for n in 0..4 {
        add(&home, &url(&sink), &n.to_string());
    }
    let mut command = home.command(SPOOL);
    let output = command.env("TERM", "xterm").args(["flush", "--color", "always"]).output().unwrap();
    assert_eq!(text(&output.stderr), "");
    let mut closed = home.command(SPOOL);
    let mut child = closed.arg("list").stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success(), "a closed pipe ends it quietly");
}
