//! The power is cut: a file system on a file is shut down under the Worker without its journal being written, which
//! leaves on the disk only what was synced. The page cache survives a kill, so no test that kills can see a missing
//! sync; this one can, and a ledger that does not sync shows it.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use transit::store::ledger::{Db, directory};

use crate::load::{Acked, redeem};
use crate::rig::SECRET;
use crate::support::{Background, Home, eventually, text};

/// Cuts; a longer run has more with `TRANSIT_POWER_CUTS`.
fn cuts() -> usize {
    std::env::var("TRANSIT_POWER_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(10)
}

/// `FS_IOC_SHUTDOWN` with `NOLOGFLUSH`, which no safe call of ours can make.
const SHUT_DOWN: &str = "import fcntl, os, struct, sys
disk = os.open(sys.argv[1], os.O_RDONLY)
print('ready', flush=True)
sys.stdin.readline()
fcntl.ioctl(disk, 0x8004587d, struct.pack('I', 2))";

/// An ext4 of its own, mounted.
struct Disk {
    image: PathBuf,
    at: PathBuf,
}

impl Disk {
    fn new(home: &Home) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test mounts a file system: run it as root");
        let disk = Self { image: home.path("disk.img"), at: home.path("disk") };
        std::fs::File::create(&disk.image).unwrap().set_len(256 * 1024 * 1024).unwrap();
        std::fs::create_dir(&disk.at).unwrap();
        run(Command::new("mkfs.ext4").arg("-q").arg(&disk.image));
        disk.mount();
        disk
    }

    fn mount(&self) {
        run(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.at));
    }

    /// From now on nothing reaches the disk, and everything fails. `last` is what happens in the moment before.
    fn cut(&self, last: impl FnOnce()) {
        let mut cutter = Background::start(Command::new("python3").args(["-c", SHUT_DOWN]).arg(&self.at));
        assert_eq!(cutter.line(), "ready");
        last();
        cutter.write("\n");
        assert!(cutter.wait().success());
    }

    /// Power is back, and nobody has files open from before.
    fn restore(&self) {
        // The last file of a killed process is closed a moment after its end is known.
        eventually(|| Command::new("umount").arg(&self.at).status().unwrap().success().then_some(()));
        self.mount();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

fn run(command: &mut Command) {
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{command:?}: {}", text(&ran.stderr));
}

struct Worker<'a> {
    home: &'a Home,
    database: &'a Path,
    process: Option<Background>,
    at: std::net::SocketAddr,
}

impl Worker<'_> {
    fn start(&mut self) {
        let ready = self.home.path("ready");
        let _ = std::fs::remove_file(&ready);
        let mut command = self.home.command("transit-worker");
        command.args(["serve", "--listen", "127.0.0.1:0", "--database"]).arg(self.database);
        let mut process = Background::start(command.arg("--ready-file").arg(&ready));
        self.at = process.ready(&ready)["listen"].as_str().unwrap().parse().unwrap();
        self.process = Some(process);
    }

    fn admin(&self, args: &[&str]) -> serde_json::Value {
        let database = self.database.to_str().unwrap();
        let ran = self.home.run("transit-worker", [args, &["--json", "--database", database]].concat(), b"");
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        serde_json::from_slice(&ran.stdout).unwrap()
    }
}

#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged() {
    let home = Home::new();
    let disk = Disk::new(&home);
    let database = disk.at.join("w.db");
    let mut worker =
        Worker { home: &home, database: &database, process: None, at: ([127, 0, 0, 1], 0).into() };
    worker.start();
    let secret = home.file("secret", SECRET);
    let secret = secret.to_str().unwrap();
    let rate = ["--rate", "100000", "--burst", "100000"];
    let source = ["source", "create", "ci", "--target", "bob@demo", "--secret-file", secret];
    worker.admin(&[&source[..], &rate].concat());
    let hosts: Vec<_> = ["alpha", "beta"]
        .map(|host| {
            let code = worker.admin(&["host", "enroll", host])["code"].as_str().unwrap().to_owned();
            (host.to_owned(), redeem(worker.at, &code))
        })
        .into();
    let acked = Acked::default();
    for round in 0..cuts() {
        let process = worker.process.take();
        acked.load(worker.at, &hosts, round, || {
            acked.wait_for(100 + 13 * (round % 10));
            disk.cut(|| acked.close());
            drop(process);
        });
        disk.restore();
        worker.start();
        acked.check(&database);
    }
    drop(worker);
    let (events, sends) = acked.counts();
    tell(&format!("{} cuts: {events} events and {sends} messages acknowledged, none lost", cuts()));
    assert!(events > cuts() && sends > cuts(), "{events} events and {sends} messages are no load");
}

#[test]
fn a_power_cut_loses_what_a_ledger_without_syncs_has_acknowledged() {
    let home = Home::new();
    let disk = Disk::new(&home);
    let database = disk.at.join("w.db");
    let (mut acked, mut lost) = (0, 0);
    for round in 0..cuts() {
        let db = Db::open_unsynced(&database).unwrap();
        let promised = promise(&db, round, |last| disk.cut(last));
        drop(db);
        disk.restore();
        let db = Db::open(&database).unwrap();
        let kept: BTreeSet<_> =
            db.read(directory::list_orgs).unwrap().into_iter().map(|org| org.slug.to_string()).collect();
        acked += promised.len();
        lost += promised.iter().filter(|slug| !kept.contains(*slug)).count();
        if lost > 0 {
            break;
        }
    }
    tell(&format!("without syncs {lost} of {acked} are lost"));
    assert!(lost > 0, "the test cannot see a missing sync: nothing of {acked} was lost");
}

/// Says, past the test harness, what was proved.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "\n{line}");
}

/// Adds rows until the power is cut; those that were answered.
fn promise(db: &Db, round: usize, cut: impl FnOnce(&dyn Fn())) -> BTreeSet<String> {
    let (promised, is_cut) = (Mutex::new(BTreeSet::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (promised, is_cut) = (&promised, &is_cut);
            scope.spawn(move || {
                for n in 0.. {
                    let slug = format!("r{round}-t{thread}-{n}");
                    let name = slug.clone();
                    let added = db.write(move |tx| directory::create_org(tx, &name.parse().unwrap(), "x"));
                    if added.is_err() || is_cut.load(Ordering::SeqCst) {
                        return;
                    }
                    promised.lock().unwrap().insert(slug);
                }
            });
        }
        eventually(|| (promised.lock().unwrap().len() > 500).then_some(()));
        cut(&|| is_cut.store(true, Ordering::SeqCst));
    });
    promised.into_inner().unwrap()
}

#[test]
fn a_power_cut_loses_nothing_that_was_spooled() {
    let home = Home::new();
    let disk = Disk::new(&home);
    let data = disk.at.join("data");
    let secret = home.file("secret", SECRET);
    let spool = |key: &str| {
        let mut command = home.command("transit-send");
        command.args(["http://127.0.0.1:9/ingest/ci", "--spool-only", "--conversation", "c", "-m", "hello"]);
        command.args(["--event-key", key, "--secret-file"]).arg(&secret).env("TRANSIT_DATA_DIR", &data);
        command.output().unwrap().status.success()
    };
    let (promised, is_cut) = (Mutex::new(BTreeSet::new()), AtomicBool::new(false));
    for round in 0..cuts() {
        is_cut.store(false, Ordering::SeqCst);
        let before = promised.lock().unwrap().len();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (promised, is_cut, spool) = (&promised, &is_cut, &spool);
                scope.spawn(move || {
                    let keys = (0..).map(|n| format!("r{round}-t{thread}-{n}"));
                    for key in keys.take_while(|key| spool(key) && !is_cut.load(Ordering::SeqCst)) {
                        promised.lock().unwrap().insert(key);
                    }
                });
            }
            eventually(|| (promised.lock().unwrap().len() >= before + 20 + round % 7).then_some(()));
            disk.cut(|| is_cut.store(true, Ordering::SeqCst));
        });
        disk.restore();
        let mut list = home.command("transit-spool");
        let listed = list.args(["list", "--json"]).env("TRANSIT_DATA_DIR", &data).output().unwrap();
        assert!(listed.status.success(), "{}", text(&listed.stderr));
        let key_of =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["event_key"].clone();
        let kept: BTreeSet<_> =
            text(&listed.stdout).lines().map(|line| key_of(line).as_str().unwrap().to_owned()).collect();
        let promised = promised.lock().unwrap();
        let lost: Vec<_> = promised.difference(&kept).collect();
        assert!(lost.is_empty(), "{} of {} entries are lost: {lost:?}", lost.len(), promised.len());
    }
    tell(&format!("{} cuts: {} entries spooled, none lost", cuts(), promised.lock().unwrap().len()));
}
