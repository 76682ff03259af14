//! The disk under a Worker fills up: new work is refused before it is full, what is there is settled even then, and
//! everything goes on by itself when there is room again.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use transit::id::IdKind;
use transit::store::ledger::Look;

use crate::load::{Host, redeem};
use crate::rig::{SECRET, signed_event};
use crate::support::{Background, Home, Http, eventually, http, request, text};

const MIB: u64 = 1024 * 1024;

/// A small disk in memory.
struct Disk(PathBuf);

impl Disk {
    fn new(home: &Home) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test mounts a file system: run it as root");
        let at = home.path("disk");
        fs::create_dir(&at).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "none"]).arg(&at).status();
        assert!(mount.unwrap().success());
        Self(at)
    }

    fn free(&self) -> u64 {
        let disk = rustix::fs::statvfs(&self.0).unwrap();
        disk.f_bavail * disk.f_frsize
    }

    /// Takes room until only so much is free.
    fn fill(&self, left: u64) {
        let mut file = File::options().create(true).append(true).open(self.0.join("fill")).unwrap();
        while self.free() > left {
            let piece = vec![0; usize::try_from((self.free() - left).min(MIB)).unwrap()];
            if file.write_all(&piece).is_err() {
                return;
            }
        }
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("fill")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_doctor_names_a_full_disk_and_one_that_is_read_only() {
    let home = Home::new();
    let disk = Disk::new(&home);
    let data = disk.0.join("data");
    fs::create_dir(&data).unwrap();
    let doctor = || {
        let mut command = home.command("transitd");
        let out = command.args(["doctor", "--json"]).env("TRANSIT_DATA_DIR", &data).output().unwrap();
        let found = text(&out.stdout).lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        found.into_iter().find(|finding| finding["check"] == "data").unwrap()
    };
    assert_eq!(doctor()["level"], "ok");
    disk.fill(0);
    let full = doctor();
    assert_eq!(full["level"], "wrong");
    assert!(full["hint"].as_str().unwrap().contains("free some space"), "{full}");
    disk.empty();
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0).status();
    assert!(remount.unwrap().success());
    let read_only = doctor();
    assert_eq!(read_only["level"], "wrong");
    assert!(read_only["hint"].as_str().unwrap().contains("mount it"), "{read_only}");
}

struct Worker {
    process: Background,
    at: SocketAddr,
    database: PathBuf,
}

impl Worker {
    fn start(home: &Home, disk: &Disk) -> Self {
        let (ready, database) = (home.path("ready"), disk.0.join("w.db"));
        let _ = fs::remove_file(&ready);
        let mut command = home.command("transit-worker");
        command.args(["serve", "--listen", "127.0.0.1:0", "--database"]).arg(&database);
        let mut process = Background::start(command.arg("--ready-file").arg(&ready));
        let at = process.ready(&ready)["listen"].as_str().unwrap().parse().unwrap();
        Self { process, at, database }
    }

    fn admin(&self, home: &Home, args: &[&str]) -> Value {
        let database = self.database.to_str().unwrap();
        let ran = home.run("transit-worker", [args, &["--json", "--database", database]].concat(), b"");
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        serde_json::from_slice(&ran.stdout).unwrap()
    }

    fn post(&self, key: &str) -> Http {
        http(self.at, &signed_event("ci", SECRET, key, &"content ".repeat(500)))
    }

    fn count(&self, sql: &str) -> i64 {
        let look = Look::open(&self.database).unwrap();
        look.read(|tx| tx.one(sql, &[], |row| row.get(0))).unwrap().unwrap()
    }

    fn ballast(&self) -> bool {
        Path::new(&format!("{}.ballast", self.database.display())).exists()
    }
}

/// Calls a method in the name of a0, and answers the frame that answers it.
fn call(daemon: &mut Host, rid: &str, method: &str, mut params: Value) -> Value {
    params["caller"] = "a0@demo".into();
    daemon.say(&json!({ "t": "rpc", "rid": rid, "method": method, "params": params })).unwrap();
    answer(daemon, |frame| frame["rid"] == rid)
}

fn answer(daemon: &mut Host, is_it: impl Fn(&Value) -> bool) -> Value {
    loop {
        let frame = daemon.next().expect("the connection stands");
        if is_it(&frame) {
            return frame;
        }
    }
}

fn send(daemon: &mut Host, id: &str) -> Value {
    daemon.send(id, "a1@demo", "a2@demo").unwrap();
    answer(daemon, |frame| frame["id"] == id && frame["t"] != "deliver")
}

#[test]
fn on_a_full_disk_nothing_is_promised_what_is_there_is_settled_and_it_recovers() {
    let home = Home::new();
    let disk = Disk::new(&home);
    let worker = Worker::start(&home, &disk);
    let secret = home.file("secret", SECRET);
    let source = ["source", "create", "ci", "--target", "a0@demo", "--secret-file", secret.to_str().unwrap()];
    worker.admin(&home, &[&source[..], &["--rate", "1000", "--burst", "1000"]].concat());
    let code = worker.admin(&home, &["host", "enroll", "demo"])["code"].as_str().unwrap().to_owned();
    let mut daemon = Host::connect(worker.at, "demo", &redeem(worker.at, &code)).unwrap();
    let known = IdKind::Message.fresh();
    assert_eq!(send(&mut daemon, &known)["t"], "send_ack");
    let mut deliveries = Vec::new();
    // Two frames will settle each; more than these at once would be more than a host may say.
    for n in 0..40 {
        let accepted = worker.post(&format!("before-{n}"));
        assert_eq!(accepted.status(), 202);
        deliveries.push(accepted.json()["delivery_id"].as_str().unwrap().to_owned());
    }
    assert!(worker.ballast());

    disk.fill(20 * MIB);
    let mut n = 0;
    let refused = eventually(|| {
        n += 1;
        Some(worker.post(&format!("during-{n}"))).filter(|answer| answer.status() != 202)
    });
    assert_eq!((refused.status(), refused.field("retry-after")), (503, Some("30")), "{refused:?}");
    let before = worker.post("before-0");
    assert_eq!(
        (before.status(), &before.json()["delivery_id"]),
        (200, &json!(deliveries[0])),
        "history is answered"
    );
    let refused = send(&mut daemon, &IdKind::Message.fresh());
    assert_eq!((&refused["t"], &refused["code"]), (&json!("send_nak"), &json!("rate_limited")));
    assert_eq!(send(&mut daemon, &known)["t"], "send_ack", "what was taken stays taken");
    let accepted = worker.count("SELECT COUNT(*) FROM event");

    disk.fill(0);
    for (n, delivery) in deliveries.iter().enumerate() {
        daemon.say(&json!({ "t": "deliver_ack", "id": delivery, "agent": "a0" })).unwrap();
        let params = json!({ "delivery_id": delivery, "conversation_id": "main" });
        let handled = call(&mut daemon, &format!("h{n}"), "mark_handled", params);
        assert!(handled["error"].is_null(), "{n}: {handled}");
        assert_eq!(worker.post(&format!("full-{n}")).status(), 503);
    }
    let settled = "SELECT COUNT(*) FROM delivery WHERE state = 'handled'";
    assert_eq!(worker.count(settled), deliveries.len() as i64);
    assert_eq!(
        worker.count("SELECT COUNT(*) FROM event"),
        accepted,
        "nothing was taken, and nothing promised"
    );
    assert_eq!(http(worker.at, &request("GET", "/healthz", &[], b"")).status(), 200);

    disk.empty();
    eventually(|| (worker.post("after").status() == 202).then_some(()));
    assert!(worker.ballast());
    assert_eq!(send(&mut daemon, &IdKind::Message.fresh())["t"], "send_ack");
    let said = stop(worker);
    let times = |what: &str| said.iter().filter(|line| line.contains(what)).count();
    assert_eq!(times("no new work is taken"), 1, "{said:?}");
    assert!(times("gave up the room") <= 1, "the log's own room may do: {said:?}");
    assert_eq!(times("new work is taken") - 1, 1, "{said:?}");
}

#[test]
fn a_worker_starts_on_a_full_disk_and_settles() {
    let home = Home::new();
    let disk = Disk::new(&home);
    let worker = Worker::start(&home, &disk);
    let secret = home.file("secret", SECRET);
    let source = ["source", "create", "ci", "--target", "a0@demo", "--secret-file", secret.to_str().unwrap()];
    worker.admin(&home, &source);
    assert_eq!(worker.post("before").status(), 202);
    stop(worker);
    disk.fill(0);
    let worker = Worker::start(&home, &disk);
    assert!(!worker.ballast(), "its room was given up, or it could not have begun");
    assert_eq!(worker.post("during").status(), 503);
    assert_eq!(worker.post("before").status(), 200);
    disk.empty();
    eventually(|| (worker.post("during").status() == 202).then_some(()));
    assert!(worker.ballast());
}

fn stop(mut worker: Worker) -> Vec<String> {
    worker.process.signal(rustix::process::Signal::TERM);
    assert!(worker.process.wait().success());
    std::iter::from_fn(|| worker.process.last_error()).collect()
}

#[test]
fn a_disk_that_is_read_only_is_told_like_a_full_disk() {
    let home = Home::new();
    let disk = Disk::new(&home);
    let database = disk.0.join("w.db");
    let database = database.to_str().unwrap();
    assert!(home.run("transit-worker", ["migrate", "--database", database], b"").status.success());
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0).status();
    assert!(remount.unwrap().success());
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["migrate"], &["org", "list"], &["doctor"]] {
        let ran = home.run("transit-worker", [command, &["--database", database]].concat(), b"");
        let words = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(73), "{command:?}: {words}");
        assert!(ran.stdout.is_empty() && words.contains("w.db"), "{command:?}: {words}");
    }
}
