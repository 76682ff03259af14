//! What answers: the daemon on its sockets, and the Worker behind the network.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};
use url::Url;

use crate::cli::findings::Findings;
use crate::cli::{control, duration};
use crate::clock::Wall;
use crate::limits::{INGEST_SKEW_S, SOCKET_PATH_BYTES};
use crate::net::fetch::{AddressPolicy, Answer, Client};
use crate::net::proxy::proxy_for;
use crate::net::unix::{self, AGENT_SOCK, Peer, SocketError, TRANSIT_SOCK};
use crate::proto::agent::NOT_VISIBLE;
use crate::proto::control::Op;
use crate::proto::ingest::http_date;
use crate::secret::without_passwords;
use crate::store::config::{Config, Paths};

/// Time for the Worker to say that it is well.
const HEALTH_WAIT: Duration = Duration::from_secs(10);
/// A clock that is so far off will soon be too far off for signed requests, which have 300 seconds.
const SKEW_S: u64 = INGEST_SKEW_S / 5;
const START: &str = "start it: transitd run, or systemctl --user start transitd";

/// Asks the daemon how it is; answers with its status.
pub(super) fn daemon(paths: &Paths, found: &mut Findings) -> Option<Map<String, Value>> {
    let asked = control::ask(paths, &control::call_of(Op::Status, None));
    let status = match asked {
        Ok(Ok(status)) => status,
        Ok(Err(err)) => {
            found.wrong("daemon", err.to_string(), "see its log");
            return None;
        }
        Err(failure) => {
            found.wrong("daemon", failure.line, START);
            return None;
        }
    };
    let number = |name: &str| status.get(name).and_then(Value::as_u64).unwrap_or_default();
    let text = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let uptime = duration::words(Duration::from_secs(number("uptime_seconds")));
    found.ok("daemon", format!("process {} serves, for {uptime}", number("pid")));
    let version = text("version");
    if version != env!("CARGO_PKG_VERSION") {
        let text = format!("it is version {version}, and this program is {}", env!("CARGO_PKG_VERSION"));
        found.wrong("daemon", text, "restart it: systemctl --user restart transitd");
    }
    if status.get("paused") == Some(&Value::Bool(true)) {
        found.wrong("daemon", "it is paused: nothing is handed over to agents", "transitd resume");
    }
    let is_enrolled = status.get("enrolled") == Some(&Value::Bool(true));
    if is_enrolled && status.get("connected") == Some(&Value::Bool(true)) {
        found.ok("link", format!("it is connected to {}", text("worker_url")));
    } else if is_enrolled {
        let why = text("last_error");
        let why = if why.is_empty() { "it has only begun".to_owned() } else { why };
        found.wrong(
            "link",
            format!("not connected to the Worker: {why}"),
            "try again at once: transitd kick",
        );
    }
    let (api, trouble) = (text("api_sock"), text("api_error"));
    if !trouble.is_empty() {
        let text = format!("there is no local client API: {trouble}");
        found.wrong(
            "api",
            text,
            "mend that and restart transitd; a socket in the way is looked at again by itself",
        );
    } else if !api.is_empty() {
        found.ok("api", format!("local clients are served on {api}"));
    }
    Some(status)
}

/// Whether the sockets are where commands look, are this user's alone, and somebody listens.
pub(super) fn sockets(paths: &Paths, is_served: bool, found: &mut Findings) {
    for name in [TRANSIT_SOCK, AGENT_SOCK] {
        match unix::socket_path(paths, name) {
            Ok(path) => socket(paths, name, &path, is_served, found),
            Err(err) => return found.wrong("sockets", err.to_string(), way_out(&err)),
        }
    }
    if is_too_deep(paths)
        && let Ok(path) = unix::socket_path(paths, TRANSIT_SOCK)
    {
        let dir = path.parent().unwrap_or(&path).display();
        let text = format!(
            "the data directory is too deep for a socket's path, which has {SOCKET_PATH_BYTES} bytes: they are in {dir}"
        );
        found.note("sockets", text, "every command finds them there; nothing is to be done");
    }
    visible(paths, is_served, found);
}

fn socket(paths: &Paths, name: &str, path: &Path, is_served: bool, found: &mut Findings) {
    let shown = path.display();
    let mode = path.symlink_metadata().ok().map(|found| found.mode() & 0o777);
    match unix::connect(paths, name) {
        Ok(_) if mode.is_some_and(|mode| mode & 0o077 != 0) => {
            found.wrong("sockets", format!("others can use {shown}"), format!("chmod 600 {shown}"));
        }
        Ok(stream) if Peer::of(&stream).is_ok_and(|peer| peer.pid == 0) => {
            let text = "the daemon runs in another pid namespace (a container)";
            found.wrong("sockets", text, NOT_VISIBLE);
        }
        Ok(_) => found.ok("sockets", format!("somebody listens on {shown}")),
        // That no daemon runs was said.
        Err(SocketError::NoDaemon { .. }) if !is_served && mode.is_none() => {}
        Err(SocketError::NoDaemon { .. }) if is_served => {
            found.wrong("sockets", format!("nobody listens on {shown}"), START);
        }
        Err(SocketError::NoDaemon { .. }) => {
            let text = format!("{shown} is left of a daemon that was killed");
            found.note("sockets", text, "the next one replaces it");
        }
        Err(err) => found.wrong("sockets", err.to_string(), way_out(&err)),
    }
}

fn is_too_deep(paths: &Paths) -> bool {
    let data = std::fs::canonicalize(&paths.data).unwrap_or_else(|_| paths.data.clone());
    data.join(TRANSIT_SOCK).as_os_str().len() > SOCKET_PATH_BYTES
}

fn way_out(err: &SocketError) -> String {
    match err {
        SocketError::InTheWay { path, .. } => format!("move {} away", path.display()),
        SocketError::Untrusted { path, .. } => {
            format!("remove {}, or choose a shorter TRANSIT_DATA_DIR", path.display())
        }
        SocketError::Denied { .. } => {
            "run this as the user of the daemon, or choose another TRANSIT_DATA_DIR".into()
        }
        _ => "choose another TRANSIT_DATA_DIR".into(),
    }
}

/// Whether the daemon sees the processes of this pid namespace.
fn visible(paths: &Paths, is_served: bool, found: &mut Findings) {
    if !is_served {
        return;
    }
    match control::ask(paths, &control::call_of(Op::Whoami, None)) {
        Ok(Err(err)) if err.code == "pid_not_visible" => {
            found.wrong("processes", "the daemon does not see this process", NOT_VISIBLE);
        }
        _ => found.ok("processes", "the daemon sees who calls it"),
    }
}

/// What the environment says about proxies; that of the daemon may be another one.
pub(super) fn proxy(config: &Config, found: &mut Findings) {
    let Some(url) = config.url.as_deref().and_then(|url| Url::parse(url).ok()) else { return };
    match proxy_for(&url, |name| std::env::var(name).ok()) {
        Ok(None) => found.ok("proxy", "the Worker is reached directly"),
        Ok(Some(proxy)) => {
            let hint = "the daemon has the variables that it was started with";
            found.note("proxy", format!("the Worker is reached through {proxy}"), hint);
        }
        Err(err) => found.wrong("proxy", err.to_string(), "correct or unset the variable"),
    }
}

/// Whether the Worker answers, and whether its clock is ours.
pub(super) fn worker(config: &Config, found: &mut Findings) {
    let Some(base) = config.url.as_deref() else { return };
    let shown = without_passwords(base).into_owned();
    let Ok(url) = Url::parse(&format!("{}/healthz", base.trim_end_matches('/'))) else { return };
    let answer = match Client::new(AddressPolicy::Any).get(&url, HEALTH_WAIT) {
        Ok(answer) => answer,
        Err(err) => {
            let hint = "see that this machine reaches it: curl -v URL/healthz; and the proxy variables";
            return found.wrong("worker", format!("{shown}: {err}"), hint);
        }
    };
    match answer.status {
        200..=299 => found.ok("worker", format!("{shown} answers")),
        // Another implementation need not have this path, and a server that answers is there.
        404 => found.note("worker", format!("{shown} answers, but not at /healthz"), "nothing is to be done"),
        status => {
            found.wrong("worker", format!("{shown} answers {status}"), "see its log, and the proxy before it")
        }
    }
    clock(&answer, &shown, found);
}

fn clock(answer: &Answer, shown: &str, found: &mut Findings) {
    let now = super::super::wall();
    let told = serde_json::from_slice::<Value>(&answer.body).ok();
    let told = told.and_then(|told| Wall::parse(told.get("time")?.as_str()?));
    let Some(its) = told.or_else(|| http_date(answer.date.as_deref()?, now)) else {
        return found.note("clock", format!("{shown} does not tell its time"), "nothing is to be done");
    };
    let skew = now.0.abs_diff(its.0) / 1000;
    if skew >= SKEW_S {
        let text = format!("the clock of this machine is {skew} s off that of {shown}");
        let hint = format!("signed requests are refused at {INGEST_SKEW_S} s: set the clock, with NTP");
        found.wrong("clock", text, hint);
    } else {
        found.ok("clock", format!("it is that of {shown}"));
    }
}
