//! The ledger kept well: what is over is removed, copies, what the doctor finds, and a store that is damaged.

mod damage;
mod doctor;

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use transit::store::ledger::Look;

use crate::load::{Acked, redeem};
use crate::rig::{Rig, SECRET};
use crate::support::{Background, Home, eventually, http, text};

fn run(home: &Home, args: &[&str]) -> Output {
    home.run("transit-worker", args, b"")
}

#[track_caller]
fn good(home: &Home, args: &[&str]) -> String {
    let output = run(home, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

/// Nothing on stdout, this exit code, a first line on stderr that holds `said`, and at most one more, the way out.
#[track_caller]
fn refused(output: &Output, code: i32, said: &str) {
    let words = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words}");
    assert_eq!(text(&output.stdout), "");
    assert!(words.starts_with("transit-worker: ") && words.contains(said), "{words}");
    assert!(words.lines().count() <= 2, "{words}");
}

fn count(database: &Path, table: &str) -> i64 {
    let sql = format!("SELECT COUNT(*) FROM {table}");
    Look::open(database).unwrap().read(|tx| tx.one(&sql, &[], |row| row.get(0))).unwrap().unwrap()
}

/// A server of the home's database, with these options.
fn serve(home: &Home, options: &[&str]) -> (Background, std::net::SocketAddr) {
    let ready = home.path("ready");
    let _ = std::fs::remove_file(&ready);
    let mut command = home.command("transit-worker");
    command.args(["serve", "--listen", "127.0.0.1:0", "--ready-file", "ready"]).args(options);
    let mut process = Background::start(&mut command);
    let at = process.ready(&ready)["listen"].as_str().unwrap().parse().unwrap();
    (process, at)
}

fn source(home: &Home) {
    let secret = home.file("secret", SECRET);
    good(
        home,
        &["source", "create", "ci", "--target", "bob@demo", "--secret-file", secret.to_str().unwrap()],
    );
}

#[test]
fn a_server_removes_what_is_over_and_keeps_what_waits() {
    let home = Home::new();
    source(&home);
    let database = home.data().join("worker.db");
    let (process, at) = serve(&home, &["--keep-deliveries", "1s"]);
    let post = |key: &str| {
        let answer = http(at, &crate::rig::signed_event("ci", SECRET, key, "x"));
        answer.json()["delivery_id"].as_str().unwrap().to_owned()
    };
    let (settled, waits) = (post("settled"), post("waits"));
    good(&home, &["delivery", "handle", &settled]);
    eventually(|| (count(&database, "delivery") == 1).then_some(()));
    assert!(good(&home, &["delivery", "show", &waits]).contains("pending"));
    assert_eq!(run(&home, &["delivery", "show", &settled]).status.code(), Some(1));
    assert_eq!(post("settled"), settled, "its key is known for longer");
    eventually(|| process.error().contains("removed what was settled").then_some(()));
    drop(process);
    for wrong in ["soon", "-1d", "1"] {
        let option = format!("--keep-messages={wrong}");
        assert_eq!(run(&home, &["serve", &option]).status.code(), Some(2), "{wrong}");
    }
    let (_process, _) = serve(&home, &["--keep-deliveries", "0", "--keep-messages", "0"]);
}

#[test]
fn a_backup_under_load_holds_what_was_promised_before_it_and_serves_again() {
    let mut rig = Rig::start("http://127.0.0.1:9/reply/");
    let code = rig.admin(&["host", "enroll", "alpha"])["code"].as_str().unwrap().to_owned();
    let hosts = [("alpha".to_owned(), redeem(rig.at, &code))];
    let (before, during) = (Acked::default(), Acked::default());
    let copy = rig.home.path("copy.db");
    // What nobody was there to take, and is delivered from the copy.
    assert_eq!(rig.post("queued", "to be delivered from the copy").status(), 202);
    let at = rig.at;
    during.load(at, &hosts, 0, || {
        during.wait_for(50);
        before.take_over(&during);
        let told = rig.admin(&["backup", copy.to_str().unwrap()]);
        assert_eq!(told["backup"]["file"], copy.to_str().unwrap());
        assert_eq!(told["backup"]["bytes"], std::fs::metadata(&copy).unwrap().len());
        assert!(told["backup"]["master_key"].as_str().unwrap().ends_with("worker.db.key"));
        during.wait_for(20);
        rig.kill_worker();
    });
    before.check(&copy);
    assert!(before.count() >= 50);
    for beside in ["worker.db", "worker.db-wal", "worker.db-shm"] {
        let _ = std::fs::remove_file(rig.home.data().join(beside));
    }
    std::fs::rename(&copy, rig.home.data().join("worker.db")).unwrap();
    rig.start_worker();
    let mut agent = rig.listen("bob");
    let delivered = agent.delivered();
    assert!(delivered["envelope"].as_str().unwrap().contains("to be delivered from the copy"), "{delivered}");
    agent.ack(delivered["id"].as_str().unwrap());
}

#[test]
fn a_backup_replaces_only_what_it_is_told_to_and_names_the_key() {
    let home = Home::new();
    refused(&run(&home, &["backup", "copy.db"]), 66, "worker.db");
    source(&home);
    let said = good(&home, &["backup", "copy.db"]);
    assert!(said.contains("copy.db holds ") && said.contains("worker.db.key"), "{said}");
    let again = run(&home, &["backup", "copy.db"]);
    refused(&again, 73, "copy.db is there already");
    assert!(text(&again.stderr).contains("--force"));
    good(&home, &["backup", "--force", "copy.db"]);
    refused(&run(&home, &["backup", "--force", "data/worker.db"]), 73, "the database itself");
    refused(&run(&home, &["backup", "none/copy.db"]), 73, "none/copy.db");
    refused(&run(&home, &["backup", "data"]), 73, "a directory");
    assert_eq!(run(&home, &["backup"]).status.code(), Some(2));
    let alone = run(&home, &["doctor", "--database", "copy.db"]);
    assert_eq!(alone.status.code(), Some(1), "without its key it opens nothing: {alone:?}");
    std::fs::copy(home.data().join("worker.db.key"), home.path("copy.db.key")).unwrap();
    let sound = good(&home, &["doctor", "--deep", "--json", "--database", "copy.db"]);
    let schema: Value = serde_json::from_str(sound.lines().next().unwrap()).unwrap();
    assert_eq!((&schema["check"], &schema["level"]), (&"schema".into(), &"ok".into()));
}
