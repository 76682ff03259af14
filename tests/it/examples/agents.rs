//! The agents of docs/cookbook.md, and the script that asks one.

use super::*;
use crate::support::Background;

/// Asks an agent as cron does, and waits so many seconds.
fn ask(rig: &Rig, agent: &str, question: &str, patience: &str) -> Output {
    run(&mut script(&rig.home, "ask-agent.sh", &[agent, question, patience]), "")
}

/// `transit-agent run --name bob -- agent-disk.sh`.
fn disk(rig: &Rig) -> Background {
    let mut agent = rig.home.command("transit-agent");
    agent.args(["run", "--name", "bob", "--jobs", "2", "--"]).arg(examples().join("agent-disk.sh"));
    let agent = Background::start(&mut agent);
    assert!(agent.error().contains("registered as bob@demo"));
    agent
}

#[test]
fn a_shell_script_answers_people_and_sources() {
    if !have(&["jq", "timeout"]) {
        return;
    }
    let sink = Sink::start(&[200]);
    let rig = Rig::start(&format!("http://{}/reply/", sink.at));
    let _agent = disk(&rig);
    let answer = ask(&rig, "bob@demo", "/", "60");
    assert!(answer.status.success() && text(&answer.stdout).contains('%'), "{}", said(&answer));
    let answer = ask(&rig, "bob@demo", "$(touch pwned) -h", "60");
    assert_eq!(text(&answer.stdout), "Name a directory, like /home.\n", "{}", said(&answer));
    assert_eq!(rig.post("k", "/proc").status(), 202);
    let reply = sink.next().json();
    assert!(reply["message"].as_str().unwrap().contains("/proc"), "{reply}");

    let unknown = ask(&rig, "nobody@demo", "/", "60");
    assert_eq!(unknown.status.code(), Some(67), "at once: {}", said(&unknown));
    assert!(unknown.stdout.is_empty());
}

#[test]
fn an_answer_that_is_late_is_printed_by_the_next_run() {
    if !have(&["jq", "timeout"]) {
        return;
    }
    let rig = Rig::start("http://127.0.0.1:9/reply/");
    let mut slow = rig.listen("slow");
    let asked = ask(&rig, "slow@demo", "still there?", "1");
    assert_eq!(asked.status.code(), Some(75), "{}", said(&asked));
    assert!(text(&asked.stderr).contains("slow@demo has not answered within 1 s"), "{}", said(&asked));
    let id = slow.delivered()["id"].as_str().unwrap().to_owned();
    slow.ack(&id);
    let args = ["cron@demo", "--as", "slow", "--reply-to", &id, "-m", "yes"];
    let sent = rig.home.run("transit-send", args, b"");
    assert!(sent.status.success(), "{}", said(&sent));
    let _agent = disk(&rig);
    let answers = ask(&rig, "bob@demo", "home", "60");
    assert!(answers.status.success(), "{}", said(&answers));
    assert_eq!(text(&answers.stdout), "yes\nName a directory, like /home.\n");
}

#[test]
fn python_keeps_each_text_whole_and_once() {
    if !have(&["jq", "timeout", "python3"]) {
        return;
    }
    let rig = Rig::start("http://127.0.0.1:9/reply/");
    let start = || {
        let agent = Background::start(&mut script(&rig.home, "agent-notes.py", &["notes.db"]));
        assert_eq!(agent.error(), "listening as notes@demo");
        agent
    };
    let mut agent = start();
    let answer = ask(&rig, "notes@demo", "milk", "60");
    assert_eq!(text(&answer.stdout), "That makes 1.\n", "{}", said(&answer));
    let notes = rusqlite::Connection::open(rig.home.path("notes.db")).unwrap();
    // It notes that it has answered after it has; killed in between, it would answer again.
    let is_noted = || notes.query_row("SELECT answered FROM notes", [], |row| row.get::<_, bool>(0)).unwrap();
    eventually(|| is_noted().then_some(()));
    agent.signal(rustix::process::Signal::KILL);
    agent.wait();
    let _agent = start();
    let answer = ask(&rig, "notes@demo", &"[x]\n".repeat(3000), "60");
    assert_eq!(text(&answer.stdout), "That makes 2.\n", "{}", said(&answer));
    let mut notes = notes.prepare("SELECT sender, text, answered FROM notes ORDER BY rowid").unwrap();
    let kept: Vec<(String, String, bool)> = notes
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let cron = || "cron@demo".to_owned();
    assert_eq!(kept, [(cron(), "milk".to_owned(), true), (cron(), "[x]\n".repeat(3000), true)]);
}
