//! Our Worker, as a child process of the bench: with other limits than a public one, and a group size of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use transit::clock::{Clock, SystemClock};
use transit::limits::LOOP_WINDOW;
use transit::net::service::Shutdown;
use transit::store::ledger::sources::NewSource;
use transit::store::ledger::{Db, credentials, directory, sources};
use transit::store::seal::MasterKey;
use transit::worker::{self, Config, Limits};

use super::Running;

const DIRECTORY: &str = "TRANSIT_BENCH_SERVER";
const GROUP: &str = "TRANSIT_BENCH_GROUP";
/// More than any run sends.
const ENDLESS: u32 = 10_000_000;

/// A Worker that serves until it is let go of.
pub struct Server {
    pub address: SocketAddr,
    process: Running,
}

impl Server {
    /// CPU time that it has used so far.
    pub fn cpu(&self) -> Duration {
        self.process.cpu()
    }

    /// Bytes of memory that it has in use.
    pub fn resident(&self) -> u64 {
        self.process.resident()
    }
}

/// What this process is to serve, when it was started as the server of a bench.
pub fn from_arguments() -> Option<(PathBuf, usize)> {
    let directory = std::env::var_os(DIRECTORY)?;
    let group = std::env::var(GROUP).ok()?.parse().ok()?;
    Some((directory.into(), group))
}

/// Serves until the process is killed.
pub fn run((dir, group): &(PathBuf, usize)) {
    let limits = Limits {
        frames: (ENDLESS, ENDLESS),
        sends: (ENDLESS, ENDLESS),
        loops: (0, LOOP_WINDOW),
        commit_group: *group,
        ..Limits::default()
    };
    let key = MasterKey::from_file_or_new(&dir.join("key")).expect("a master key");
    let config =
        Config { limits, ..Config::new(SocketAddr::from(([127, 0, 0, 1], 0)), dir.join("worker.db"), key) };
    let ready = |ready: &worker::Ready| {
        let beside = dir.join("ready.tmp");
        fs::write(&beside, ready.listen.to_string())
            .and_then(|()| fs::rename(&beside, dir.join("ready")))
            .expect("a ready file");
    };
    worker::serve(config, Shutdown::new(), ready).expect("the Worker serves");
}

/// Starts the server of a bench over a ledger that `prepare` has filled.
pub fn start(dir: &Path, group: usize, prepare: impl FnOnce(&Db)) -> Server {
    prepare(&Db::open(&dir.join("worker.db")).expect("a ledger"));
    let exe = std::env::current_exe().expect("our own file");
    let process = Running::start(Command::new(exe).env(DIRECTORY, dir).env(GROUP, group.to_string()));
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(address) = fs::read_to_string(dir.join("ready")).ok().and_then(|text| text.parse().ok()) {
            return Server { address, process };
        }
        assert!(Instant::now() < deadline, "the Worker does not become ready");
        std::thread::yield_now();
    }
}

/// Declares a source with this secret and no rate to speak of.
pub fn source(db: &Db, name: &str, secret: &str) {
    let key = MasterKey::from_file_or_new(&db.path().with_file_name("key")).expect("a master key");
    let new = NewSource {
        name: name.parse().expect("a name"),
        target_addr: "bench@bench".parse().expect("an address"),
        reply_url: None,
        prefixes: Vec::new(),
        secret: transit::secret::Secret::new(secret).expect("a secret"),
        rate: ENDLESS,
        burst: ENDLESS,
        instructions: None,
    };
    db.write(move |tx| {
        let org = directory::default_org(tx)?;
        sources::create(tx, &org.id, &new, &key, SystemClock::new().wall())
    })
    .expect("a source");
}

/// Enrols a host and answers its device token.
pub fn token(db: &Db, host: &str) -> String {
    enrol(db, vec![host.to_owned()]).remove(0)
}

/// Enrols so many hosts, `h0` and on, and answers their device tokens.
pub fn tokens(db: &Db, hosts: usize) -> Vec<String> {
    enrol(db, (0..hosts).map(|n| format!("h{n}")).collect())
}

fn enrol(db: &Db, hosts: Vec<String>) -> Vec<String> {
    let tokens: Vec<String> = hosts.iter().map(|_| credentials::fresh_secret().expose().to_owned()).collect();
    let (given, now) = (tokens.clone(), SystemClock::new().wall());
    db.write(move |tx| {
        let org = directory::default_org(tx)?;
        for (host, token) in hosts.iter().zip(&given) {
            let code_hash = credentials::code_hash(&credentials::fresh_code());
            directory::issue_code(tx, &org.id, &host.parse().expect("a host"), &code_hash, now)?;
            directory::redeem_code(tx, &code_hash, &credentials::token_hash(token), "bench", now)?;
        }
        Ok(())
    })
    .expect("enrolments");
    tokens
}
