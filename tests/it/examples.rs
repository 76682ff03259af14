//! The scripts of `examples/`, each run as it is, by the programs that it names.

mod agents;
mod pages;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::rig::{Rig, SECRET};
use crate::support::{Home, Http, Sink, eventually, left_out, programs, text};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// Whether the programs are installed; one that is not is told.
fn have(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_missing = |name: &&&str| !std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let missing: Vec<_> = programs.iter().filter(is_missing).collect();
    missing.iter().for_each(|name| left_out(&format!("what needs {name}, which is not installed")));
    missing.is_empty()
}

/// A script, with its arguments, in this home.
fn script(home: &Home, name: &str, args: &[&str]) -> Command {
    let mut command = home.foreign(examples().join(name));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it to its end.
fn run(command: &mut Command, input: &str) -> Output {
    let mut child = command.spawn().unwrap();
    // A script that does not read its stdin closes the pipe, which is no failure.
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{:?}\n{}{}", output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A home with a source `ci` in its configuration.
fn home_with_source(sink: &Sink) -> Home {
    let home = Home::new();
    let secret = home.file("secret", SECRET);
    let source = json!({ "url": format!("http://{}/ingest/ci", sink.at), "secret_file": secret });
    home.file("config.json", json!({ "sources": { "ci": source } }).to_string());
    home
}

fn spool_event(home: &Home, body: &str) -> String {
    let args = ["ci", "--conversation", "c", "-m", body, "--spool-only", "--json"];
    let sent: Value = serde_json::from_slice(&home.run("transit-send", args, b"").stdout).unwrap();
    sent["id"].as_str().unwrap().to_owned()
}

#[test]
fn every_example_is_run_here() {
    let names = |dir: PathBuf| {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap())
    };
    let found: BTreeSet<String> = names(examples()).chain(names(examples().join("systemd"))).collect();
    let source = concat!(include_str!("examples.rs"), include_str!("examples/agents.rs"));
    let unheard: Vec<_> = found.iter().filter(|name| !source.contains(&format!("\"{name}\""))).collect();
    assert!(unheard.is_empty(), "{unheard:?} are run by no test");
}

#[test]
fn an_example_without_its_arguments_says_what_they_are() {
    let home = Home::new();
    for name in [
        "agent-disk.sh",
        "agent-notes.py",
        "ask-agent.sh",
        "cron-flush.sh",
        "log-to-agent.sh",
        "sign-in-ci.sh",
        "verify-reply.sh",
    ] {
        let output = run(&mut script(&home, name, &[]), "");
        assert_eq!(output.status.code(), Some(64), "{}", said(&output));
        let usage = text(&output.stderr);
        assert!(
            usage.starts_with("usage: ") && usage.contains(name) && usage.lines().count() == 1,
            "{usage}"
        );
    }
}

#[test]
fn a_build_is_told_seen_on_the_wire_answered_and_the_answer_verified() {
    if !have(&["curl", "jq"]) {
        return;
    }
    let sink = Sink::start(&[200]);
    let mut rig = Rig::start(&format!("http://{}/reply/", sink.at));
    rig.kill_daemon();
    let dump = rig.home.path("frames.ndjson").display().to_string();
    rig.start_daemon_with(&["--wire-log", &dump]);
    let mut agent = rig.listen("bob");

    let tell = |secret: &str| {
        let endpoint = rig.endpoint();
        let args = [endpoint.as_str(), "17", "failed"];
        run(
            script(&rig.home, "sign-in-ci.sh", &args).env("TRANSIT_SECRET", secret),
            "one\n\"two\" \\ \u{1b}[31m\n",
        )
    };
    let told = tell(SECRET);
    assert!(told.status.success() && text(&told.stdout).contains("queued"), "{}", said(&told));
    let again = tell(SECRET);
    assert!(again.status.success() && text(&again.stdout).contains("duplicate"), "{}", said(&again));
    assert!(!tell("another").status.success());

    let delivered = agent.delivered();
    let id = delivered["id"].as_str().unwrap();
    let unanswered = || run(&mut script(&rig.home, "unanswered.sh", &[&dump]), "");
    let waits = unanswered();
    assert_eq!(waits.status.code(), Some(1), "{}", said(&waits));
    assert_eq!(text(&waits.stdout), format!("1 deliver without deliver_ack: {id} bob\n"));
    agent.ack(id);
    eventually(|| unanswered().status.success().then_some(()));

    let saw = run(&mut script(&rig.home, "what-agents-saw.sh", &[&dump]), "");
    let shown = text(&saw.stdout);
    assert!(shown.contains(id) && shown.contains("Build 17 failed."), "{}", said(&saw));
    // One line each time that it was delivered, which may be again while nobody has answered.
    assert!(!shown.contains('\u{1b}') && shown.lines().all(|line| line.contains(id)), "{shown:?}");

    let reply = json!({"delivery_id": id, "conversation_id": "build-17", "message": "on it"});
    rig.call("bob", "chat_reply", &reply);
    check_reply(&rig.home, &sink.next());
}

fn check_reply(home: &Home, posted: &Http) {
    let fields: String = posted.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    home.file("head", format!("{}\r\n{fields}\r\n", posted.first));
    home.file("body", &posted.body);
    let verify = |secret: &str| {
        run(script(home, "verify-reply.sh", &["head", "body"]).env("TRANSIT_SECRET", secret), "")
    };
    let good = verify(SECRET);
    assert!(good.status.success(), "{}", said(&good));
    assert_eq!(text(&good.stdout), "bob@demo: on it\n");
    let bad = verify("another");
    assert_eq!((bad.status.code(), text(&bad.stdout)), (Some(1), ""), "{}", said(&bad));
}

#[test]
fn cron_mails_what_has_died_once_and_nothing_else() {
    let sink = Sink::start(&[503, 400, 200]);
    let home = home_with_source(&sink);
    let mailed = home.path("mailed");
    let mail =
        home.file("mail", format!("#!/bin/sh\n(printf '%s\\n' \"$@\"; cat) >>'{}'\n", mailed.display()));
    fs::set_permissions(&mail, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let path = format!("{}:{}", home.path("").display(), programs().display());
    let path = format!("{path}:{}", std::env::var("PATH").unwrap());
    let flush = || run(script(&home, "cron-flush.sh", &["ann@example.org"]).env("PATH", &path), "");

    let id = spool_event(&home, "refused later");
    let passing = flush();
    assert!(
        passing.status.success() && passing.stdout.is_empty() && passing.stderr.is_empty(),
        "{}",
        said(&passing)
    );
    assert!(!mailed.exists(), "what will be tried again is nobody's concern");
    assert!(home.run("transit-spool", ["retry", &id], b"").status.success());
    let refused = flush();
    assert!(
        refused.status.success() && refused.stdout.is_empty() && refused.stderr.is_empty(),
        "{}",
        said(&refused)
    );
    let mail = fs::read_to_string(&mailed).unwrap();
    assert!(mail.contains("ann@example.org") && mail.matches(&id).count() == 2, "{mail}");
    assert!(mail.contains("is dead: "), "{mail}");
    spool_event(&home, "taken");
    assert!(flush().status.success());
    assert_eq!(fs::read_to_string(&mailed).unwrap(), mail, "it is mailed once");
    home.file("data/spool.db", "no database");
    let broken = flush();
    assert_eq!(broken.status.code(), Some(74), "{}", said(&broken));
}

#[test]
fn the_units_of_systemd_are_well_formed_and_start_what_there_is() {
    let home = Home::new();
    let mut verified = Vec::new();
    for name in ["transit-flush.service", "transit-flush.timer"] {
        let unit = fs::read_to_string(examples().join("systemd").join(name)).unwrap();
        let ours = format!("{}/", programs().display());
        let unit = unit.replace("/usr/local/bin/", &ours);
        verified.push(home.file(name, &unit));
        let Some(start) = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")) else { continue };
        let mut words = start.split(' ');
        let mut command = home.foreign(words.next().unwrap());
        // What it starts is there and takes these words.
        let ran = command.args(words).arg("--help").output().unwrap();
        assert!(ran.status.success(), "{start}: {}", said(&ran));
    }
    let flushed = home.run("transit-spool", ["flush", "--deadline", "50s"], b"");
    assert!(flushed.status.success(), "{}", said(&flushed));
    if have(&["systemd-analyze"]) {
        let checked =
            home.foreign("systemd-analyze").args(["verify", "--man=no"]).args(verified).output().unwrap();
        assert!(checked.status.success() && checked.stderr.is_empty(), "{}", said(&checked));
    }
}

#[test]
fn lines_of_a_log_become_events() {
    if !have(&["jq"]) {
        return;
    }
    let sink = Sink::start(&[202]);
    let home = home_with_source(&sink);
    let log =
        "12:00 INFO up\n12:01 ERROR \"one\" \u{1b}[31m\n12:02 INFO ok\n12:03 FATAL two\n12:03 FATAL two\n";
    let ran = run(&mut script(&home, "log-to-agent.sh", &["ci", " (ERROR|FATAL) "]), log);
    assert!(ran.status.success(), "{}", said(&ran));
    assert_eq!(
        text(&ran.stdout).lines().filter(|line| line.starts_with("queued evt_")).count(),
        3,
        "{}",
        said(&ran)
    );
    let mut contents: Vec<String> =
        sink.rest().iter().map(|post| post.json()["content"].as_str().unwrap().to_owned()).collect();
    contents.sort();
    assert_eq!(contents, ["12:01 ERROR \"one\" \u{1b}[31m", "12:03 FATAL two", "12:03 FATAL two"]);
}

#[test]
fn a_damaged_spool_is_replaced_by_what_was_sound_in_it() {
    let home = home_with_source(&Sink::start(&[200]));
    let ids: Vec<String> = (0..20).map(|n| spool_event(&home, &format!("{n} {}", "x".repeat(600)))).collect();
    let rescue = || run(&mut script(&home, "rescue-spool.sh", &[]), "");
    let sound = rescue();
    assert!(sound.status.success() && !text(&sound.stdout).contains("damaged"), "{}", said(&sound));
    let db = rusqlite::Connection::open(home.data().join("spool.db")).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(db);
    let mut bytes = fs::read(home.data().join("spool.db")).unwrap();
    bytes[..4096].fill(0);
    fs::write(home.data().join("spool.db"), bytes).unwrap();
    let rescued = rescue();
    assert!(rescued.status.success() && text(&rescued.stdout).contains("damaged."), "{}", said(&rescued));
    let list = home.run("transit-spool", ["list"], b"");
    let list = text(&list.stdout);
    assert!(ids.iter().all(|id| list.contains(id)), "{list}");
    assert!(home.run("transit-spool", ["check"], b"").status.success());
}
