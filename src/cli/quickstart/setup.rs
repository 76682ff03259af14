//! What an operator does once: a Worker, its sources, an enrolled host, its daemon.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Deserialize;
use url::Url;

use super::{Names, STEP_WAIT, Sources};
use crate::addr::{Addr, AgentAddr, Source};
use crate::cli::control;
use crate::cli::output::{Exit, Failure};
use crate::clock::{Clock, SystemClock, Wall};
use crate::daemon::enroll::{Enrolled, enroll};
use crate::daemon::{self, Settings};
use crate::id::fill_random;
use crate::limits;
use crate::net::fetch::{AddressPolicy, Client, Request};
use crate::net::service::Shutdown;
use crate::proto::control::Op;
use crate::proto::ingest::{Event, ReplyPrefix, SIGNATURE_HEADER, Signer, TIMESTAMP_HEADER};
use crate::secret::Secret;
use crate::store::config::Paths;
use crate::store::ledger::sources::NewSource;
use crate::store::ledger::{Db, Tx, credentials, directory, sources};
use crate::store::seal::MasterKey;
use crate::store::{StoreError, files};
use crate::worker::{self, Config, ReceivedReply};

/// The directory of a quickstart; a temporary one is removed at the end.
pub(super) struct Place {
    dir: PathBuf,
    is_temporary: bool,
}

impl Place {
    /// Takes `dir`, or a temporary directory of its own.
    pub(super) fn take(dir: Option<PathBuf>) -> Result<Self, Failure> {
        let is_temporary = dir.is_none();
        let dir = dir.unwrap_or_else(|| {
            let mut random = [0; 6];
            fill_random(&mut random);
            std::env::temp_dir().join(format!("transit-quickstart-{}", hex::encode(random)))
        });
        files::private_dir(&dir)
            .map_err(|err| Failure::store("make the directory of the quickstart", &err))?;
        let dir = dir.canonicalize().map_err(|err| Failure::new(Exit::Io, "find the directory", err))?;
        Ok(Self { dir, is_temporary })
    }

    /// The Worker's ledger.
    pub(super) fn database(&self) -> PathBuf {
        self.dir.join("worker.db")
    }

    /// The host's files.
    pub(super) fn paths(&self) -> Paths {
        Paths { config: self.dir.join("host/config.json"), data: self.dir.join("host") }
    }

    /// The file with a source's secret.
    pub(super) fn secret_file(&self, source: &str) -> PathBuf {
        self.dir.join(format!("{source}.secret"))
    }

    fn frames(&self) -> PathBuf {
        self.dir.join("frames.ndjson")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_temporary {
            // What cannot be removed is small, private, and in the directory for such things.
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// A Worker that serves.
pub(super) struct Started {
    pub(super) worker: JoinHandle<()>,
    pub(super) url: String,
}

/// Starts a service on a thread of its own and waits for what it says once it is ready.
fn start<T: Send + 'static>(
    name: &'static str,
    service: impl FnOnce(&mpsc::Sender<Result<T, String>>) -> Result<(), String> + Send + 'static,
) -> Result<(JoinHandle<()>, T), Failure> {
    let (tell, told) = mpsc::channel();
    let run = move || {
        if let Err(why) = service(&tell) {
            // Nobody waits any more when it had been ready; the steps that need it then fail by themselves.
            let _ = tell.send(Err(why));
        }
    };
    let what = format!("start the {name}");
    let thread = std::thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .map_err(|err| Failure::new(Exit::Io, &what, err))?;
    match told.recv_timeout(STEP_WAIT) {
        Ok(Ok(ready)) => Ok((thread, ready)),
        Ok(Err(why)) => Err(Failure::new(Exit::Unavailable, &what, why)),
        Err(_) => Err(Failure::new(Exit::Unavailable, &what, "it does not become ready")),
    }
}

/// Starts the Worker on loopback.
pub(super) fn start_worker(place: &Place, port: u16, stop: &Shutdown) -> Result<Started, Failure> {
    let config = Config {
        allow_private_callbacks: true,
        ..Config::new(loopback(port), place.database(), master_key(place)?)
    };
    let stop = stop.clone();
    let (worker, url) = start("Worker", move |tell| {
        let ready = |ready: &worker::Ready| {
            let _ = tell.send(Ok(ready.url.clone()));
        };
        worker::serve(config, stop, ready).map_err(|err| err.to_string())
    })?;
    Ok(Started { worker, url })
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn master_key(place: &Place) -> Result<MasterKey, Failure> {
    MasterKey::from_file_or_new(&MasterKey::file_beside(&place.database()))
        .map_err(|err| Failure::store("make the Worker's master key", &err))
}

fn now() -> Wall {
    SystemClock::new().wall()
}

const DECLARE: &str = "declare the sources";

/// Declares both sources anew, each with a fresh secret in a file, and starts what receives their replies.
pub(super) fn sources(place: &Place, names: &Names, stop: &Shutdown) -> Result<Sources, Failure> {
    let key = master_key(place)?;
    let (for_robin, of_robin) = source(&names.build, &names.robin, stop)?;
    let (for_you, of_you) = source(&names.hello, &names.you, stop)?;
    let build = for_robin.secret.clone();
    for new in [&for_robin, &for_you] {
        files::write_private(&place.secret_file(new.name.as_str()), new.secret.expose().as_bytes())
            .map_err(|err| Failure::store(DECLARE, &err))?;
    }
    let declare = move |tx: &Tx<'_>| {
        let org = directory::default_org(tx)?;
        for new in [&for_robin, &for_you] {
            if sources::get(tx, &org.id, new.name.as_str())?.is_some() {
                sources::delete(tx, &org.id, &new.name)?;
            }
            sources::create(tx, &org.id, new, &key, now())?;
        }
        Ok(())
    };
    ledger(place)?.write(declare).map_err(|err| Failure::store(DECLARE, &err))?;
    Ok(Sources { build, replies: of_robin, more_replies: of_you })
}

/// A source with a fresh secret, and what receives its replies.
fn source(
    name: &Source,
    target: &AgentAddr,
    stop: &Shutdown,
) -> Result<(NewSource, Receiver<ReceivedReply>), Failure> {
    let secret = credentials::fresh_secret();
    let (reply_url, replies) = worker::receive(loopback(0), &secret, stop)
        .map_err(|err| Failure::new(Exit::Unavailable, DECLARE, err))?;
    let prefix: ReplyPrefix = reply_url.parse().map_err(|err| Failure::new(Exit::Software, DECLARE, err))?;
    let new = NewSource {
        name: name.clone(),
        target_addr: Addr::Agent(target.clone()),
        reply_url: Some(reply_url),
        prefixes: vec![prefix],
        secret,
        rate: limits::INGEST_RATE,
        burst: limits::INGEST_BURST,
        instructions: None,
    };
    Ok((new, replies))
}

/// The ledger, as an administrator's command opens it beside the running server.
fn ledger(place: &Place) -> Result<Db, Failure> {
    Db::open(&place.database()).map_err(|err| Failure::store("open the ledger", &err))
}

/// Issues a code and redeems it over HTTP, as a host on another machine would.
pub(super) fn enrol(place: &Place, names: &Names, url: &str) -> Result<Enrolled, Failure> {
    let code = credentials::fresh_code();
    let (hash, host) = (credentials::code_hash(&code), names.robin.host.clone());
    let issue = move |tx: &Tx<'_>| {
        let org = directory::default_org(tx)?;
        if directory::host(tx, &org.id, &host)?.is_some_and(|row| row.revoked_at.is_none()) {
            directory::revoke_host(tx, &org.id, &host, now())?;
        }
        directory::issue_code(tx, &org.id, &host, &hash, now())
    };
    ledger(place)?.write(issue).map_err(|err| Failure::store("issue an enrolment code", &err))?;
    enroll(url, &code, Some(&names.robin.host), &place.paths(), true)
        .map_err(|err| Failure::new(Exit::Unavailable, "enrol the host", err))
}

/// Starts the daemon.
pub(super) fn start_daemon(place: &Place, stop: &Shutdown) -> Result<JoinHandle<()>, Failure> {
    // A log of an earlier run would show its frames instead of ours.
    let _ = std::fs::remove_file(place.frames());
    let settings = Settings {
        paths: place.paths(),
        home: None,
        wire_log: Some(place.frames()),
        loops: (limits::LOOP_LIMIT, limits::LOOP_WINDOW),
    };
    let stop = stop.clone();
    let (thread, ()) = start("daemon", move |tell| {
        let ready = |_: &daemon::Ready| {
            let _ = tell.send(Ok(()));
        };
        daemon::run(settings, stop, ready).map_err(|err| err.to_string())
    })?;
    Ok(thread)
}

/// Asks the daemon until it is connected.
pub(super) fn wait_until_connected(place: &Place) -> Result<(), Failure> {
    const ASK_AGAIN: Duration = Duration::from_millis(10);
    let until = Instant::now() + STEP_WAIT;
    loop {
        let status = control::ask(&place.paths(), &control::call_of(Op::Status, None))?
            .map_err(|err| control::refused("ask the daemon", &err))?;
        if status.get("connected").and_then(serde_json::Value::as_bool) == Some(true) {
            return Ok(());
        }
        if Instant::now() > until {
            let why =
                status.get("last_error").and_then(serde_json::Value::as_str).unwrap_or("it takes too long");
            return Err(Failure::new(Exit::No, "connect the daemon to the Worker", why));
        }
        std::thread::sleep(ASK_AGAIN);
    }
}

/// An event that the Worker has accepted.
pub(super) struct Sent {
    pub(super) event_key: String,
    pub(super) delivery_id: String,
}

/// Signs an event and posts it to the public endpoint, as any sender would.
pub(super) fn post_event(url: &str, names: &Names, secret: &Secret) -> Result<Sent, Failure> {
    const WHAT: &str = "post the event";
    #[derive(Deserialize)]
    struct Accepted {
        delivery_id: String,
    }
    let event_key = format!("quickstart-{}", now().0);
    let event = Event {
        event_key: event_key.clone(),
        conversation_id: "build 4711".into(),
        content: "Build 4711 on main is broken: 3 of 212 tests fail. Can you have a look?".into(),
        user: Some("CI".into()),
        trigger: Some("alert".into()),
        ..Event::default()
    };
    let body = event.checked_body().map_err(|err| Failure::new(Exit::Software, WHAT, err))?;
    let timestamp = now().unix_seconds().to_string();
    let signature = Signer::new(secret).sign(&timestamp, &body);
    let url = Url::parse(&format!("{url}/ingest/{}", names.build))
        .map_err(|err| Failure::new(Exit::Software, WHAT, err))?;
    let headers = [
        ("Content-Type", "application/json"),
        (TIMESTAMP_HEADER, timestamp.as_str()),
        (SIGNATURE_HEADER, signature.as_str()),
    ];
    let request = Request {
        url: &url,
        headers: &headers,
        body: &body,
        timeout: STEP_WAIT,
        connect_timeout: limits::CONNECT_WAIT,
    };
    let answer =
        Client::new(AddressPolicy::Any).post(&request).map_err(|err| Failure::new(Exit::No, WHAT, err))?;
    if answer.status != 202 {
        let said = String::from_utf8_lossy(&answer.body);
        return Err(Failure::new(Exit::No, WHAT, format_args!("the answer is {}: {said}", answer.status)));
    }
    let accepted: Accepted =
        serde_json::from_slice(&answer.body).map_err(|err| Failure::new(Exit::No, WHAT, err))?;
    Ok(Sent { event_key, delivery_id: accepted.delivery_id })
}

/// The frame that brought a delivery, from the daemon's own log of its frames.
pub(super) fn deliver_frame(place: &Place, id: &str) -> Result<String, Failure> {
    let path: &Path = &place.frames();
    let failed = |err| Failure::store("read the frames", &StoreError::io("read", path, err));
    let log = std::fs::read_to_string(path).map_err(failed)?;
    let mut frames = log.lines().rev().filter_map(|line| {
        let record: serde_json::Value = serde_json::from_str(line).ok()?;
        let frame = &record["frame"];
        (frame["t"] == "deliver" && frame["id"] == id).then(|| {
            let length = frame["envelope"].as_str().map_or(0, str::len);
            format!(
                "deliver {id} for {}, an envelope of {length} bytes",
                frame["agent"].as_str().unwrap_or("?")
            )
        })
    });
    frames.next().ok_or_else(|| Failure::new(Exit::No, "find the frame", "the log of frames has none"))
}
