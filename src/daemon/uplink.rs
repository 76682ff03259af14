//! The one connection to the Worker: kept up, and fed from the spool.
//!
//! One thread owns it. Everything that it says is a row first: what it sends comes from the outbox, what it answers
//! from the inbox. What it hears becomes a row before anybody acts on it. So it may die at any moment.

mod talk;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use url::Url;

use self::talk::{Ended, Talk};
use super::host::Host;
use super::life::Pulse;
use crate::addr;
use crate::clock::Reconnect;
use crate::id::fill_random;
use crate::net::dial::{DialError, Interrupt, timespec};
use crate::net::proxy::proxy_for;
use crate::net::service::Shutdown;
use crate::net::ws;
use crate::proto::wire::close;
use crate::secret::{Secret, without_passwords};
use crate::store::config::{Config, Paths};
use crate::store::{StoreError, files};

/// Longest device token, in bytes.
const TOKEN_BYTES: u64 = 4_096;
/// Longer than looking up, connecting, TLS and the upgrade may take together.
const DIALLING: Duration = Duration::from_secs(60);
/// Wait before a configuration that cannot be read is read again.
const MISCONFIGURED: Duration = Duration::from_secs(30);

/// Where this host is enrolled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Enrolment {
    /// The Worker's base URL as it was given.
    pub(super) url: String,
    /// The WebSocket's URL.
    pub(super) socket: Url,
    /// The name that the Worker knows this host by.
    pub(super) host: addr::Host,
    /// What this host is known by.
    pub(super) token: Secret,
}

/// Why the enrolment cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolmentError {
    /// The configuration or the token cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The configuration names a Worker, and no host that it could know.
    #[error("the configuration has a url and no host: enrol this host again")]
    Half,
    /// The URL is none that a Worker can have.
    #[error("the Worker's url {url:?} is not usable: {why}")]
    Url {
        /// What is configured.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The token is empty, or holds what no token does and no header could carry.
    #[error("the device token is empty or garbage: enrol this host again")]
    Token,
}

impl Enrolment {
    /// The enrolment as the files say now; `None` when the host is not enrolled.
    ///
    /// # Errors
    /// When the files do not make sense.
    pub(super) fn load(paths: &Paths) -> Result<Option<Self>, EnrolmentError> {
        let config = Config::load(&paths.config)?;
        let (url, host) = match (config.url, config.host) {
            (None, _) => return Ok(None),
            (Some(_), None) => return Err(EnrolmentError::Half),
            (Some(url), Some(host)) => (url, host),
        };
        let token = match files::read_small(&paths.token(), TOKEN_BYTES) {
            Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            read => String::from_utf8(read?).map_err(|_| EnrolmentError::Token)?,
        };
        let token = token.trim();
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(EnrolmentError::Token);
        }
        let token = Secret::new(token).map_err(|_| EnrolmentError::Token)?;
        let socket = socket_url(&url)?;
        Ok(Some(Self { url, socket, host, token }))
    }
}

/// The name under which this host is enrolled, by files that make sense; `None` when it is not.
///
/// # Errors
/// When they make none.
pub fn configured(paths: &Paths) -> Result<Option<addr::Host>, EnrolmentError> {
    Ok(Enrolment::load(paths)?.map(|enrolment| enrolment.host))
}

/// `GET {url}/api/daemon/ws`, as `ws` or `wss`.
fn socket_url(base: &str) -> Result<Url, EnrolmentError> {
    let bad = |why: String| EnrolmentError::Url { url: without_passwords(base).into_owned(), why };
    let mut url = worker_url(base, "/api/daemon/ws").map_err(bad)?;
    let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
    url.set_scheme(scheme).map_err(|()| bad("it cannot carry a WebSocket".to_owned()))?;
    Ok(url)
}

/// A path below the URL that a Worker is reached at, or what is wrong with that.
pub(super) fn worker_url(base: &str, path: &str) -> Result<Url, String> {
    let mut url: Url = base.trim().parse().map_err(|err: url::ParseError| err.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("it begins with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a user or password".to_owned());
    }
    url.set_query(None);
    url.set_fragment(None);
    url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
    Ok(url)
}

/// Keeps the connection up until `stop`. Then what is still to be answered is answered, and the connection closed.
pub(super) fn run(host: &Arc<Host>, stop: &Shutdown) {
    let mut reconnect = Reconnect::default();
    let pulse = host.pulses.add("uplink", host.uplink.clone());
    while !stop.is_triggered() {
        pulse.beat();
        let wait = match Enrolment::load(&host.paths) {
            Ok(Some(enrolment)) => {
                let lasted = attempt(host, stop, &enrolment, &pulse);
                let mut random = [0; 4];
                fill_random(&mut random);
                Some(reconnect.next(lasted, u32::from_ne_bytes(random)))
            }
            Ok(None) => {
                host.enrolled(None);
                None
            }
            Err(err) => {
                note_failure(host, &err.to_string());
                Some(MISCONFIGURED)
            }
        };
        if !stop.is_triggered() && idle(host, stop, wait, &pulse) {
            reconnect.reset();
        }
    }
}

/// One connection; answers how long the Worker's side of it stood.
fn attempt(host: &Arc<Host>, stop: &Shutdown, enrolment: &Enrolment, pulse: &Pulse) -> Duration {
    host.enrolled(Some(enrolment));
    let interrupt = Interrupt { wake: &host.uplink, stop };
    let proxy = match proxy_for(&enrolment.socket, |name| std::env::var(name).ok()) {
        Ok(proxy) => proxy,
        Err(err) => {
            note_failure(host, &err.to_string());
            return Duration::ZERO;
        }
    };
    pulse.excuse(host.now() + DIALLING);
    let socket = match ws::open(&enrolment.socket, &enrolment.token, proxy.as_ref(), interrupt) {
        Ok(socket) => socket,
        Err(DialError::Stopped) => return Duration::ZERO,
        Err(err) => {
            note_failure(host, &with_way_out(&err, enrolment));
            return Duration::ZERO;
        }
    };
    let talk = match host.spool() {
        Ok(spool) => Talk::new(host, stop, spool, socket, enrolment, pulse),
        Err(err) => {
            note_failure(host, &err.to_string());
            return Duration::ZERO;
        }
    };
    let Ended { lasted, code, why } = talk.run();
    host.with_link(|link| link.connected = false);
    if !stop.is_triggered() {
        let way_out = code.and_then(|code| closed_for(code, enrolment)).unwrap_or_default();
        note_failure(host, &format!("{why}{way_out}"));
    }
    lasted
}

/// What keeps the connection from standing, and what a person can do about it.
fn with_way_out(err: &DialError, enrolment: &Enrolment) -> String {
    match err {
        DialError::Unauthorized { .. } => format!("{err}{}", enrol_again(enrolment)),
        _ => err.to_string(),
    }
}

/// What a person can do when the Worker has closed the connection with this code.
fn closed_for(code: u16, enrolment: &Enrolment) -> Option<String> {
    match code {
        close::REVOKED | close::HOST_MISMATCH => Some(enrol_again(enrolment)),
        close::REPLACED => {
            Some("; another transitd connects as this host: stop it, or enrol it under its own name".into())
        }
        _ => None,
    }
}

fn enrol_again(enrolment: &Enrolment) -> String {
    let Enrolment { url, host, .. } = enrolment;
    let url = without_passwords(url);
    format!(
        "; enrol this host again: transit-worker host enroll {host}, then transitd enroll --force --url {url} --code CODE"
    )
}

fn note_failure(host: &Host, why: &str) {
    tracing::warn!(why, "not connected to the Worker");
    host.with_link(|link| link.last_error = Some(why.to_owned()));
}

/// Waits, for as long as nothing is said when `longest` is `None`; answers whether a new attempt was asked for.
fn idle(host: &Host, stop: &Shutdown, longest: Option<Duration>, pulse: &Pulse) -> bool {
    let until = longest.map(|longest| Instant::now() + longest);
    loop {
        pulse.beat();
        if host.take_kick() {
            return true;
        }
        // Nobody else would answer them.
        host.refuse_calls();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if stop.is_triggered() || left.is_some_and(|left| left.is_zero()) {
            return false;
        }
        let _ = poll(&mut [PollFd::new(&host.uplink, PollFlags::IN)], left.map(timespec).as_ref());
        host.uplink.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_below_the_enrolled_url() {
        let url = |base| socket_url(base).map(|url| url.to_string());
        assert_eq!(url("http://127.0.0.1:8787/").unwrap(), "ws://127.0.0.1:8787/api/daemon/ws");
        assert_eq!(url("https://hub.example/t").unwrap(), "wss://hub.example/t/api/daemon/ws");
        for bad in ["", "ftp://x", "hub.example", "http://"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_host_without_a_token_is_not_enrolled() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths { config: dir.path().join("config.json"), data: dir.path().join("data") };
        assert!(Enrolment::load(&paths).unwrap().is_none());
        let config = Config {
            url: Some("http://127.0.0.1:1".into()),
            host: Some("titan".parse().unwrap()),
            ..Config::default()
        };
        config.save(&paths.config).unwrap();
        assert!(Enrolment::load(&paths).unwrap().is_none());
        files::private_dir(&paths.data).unwrap();
        files::write_private(&paths.token(), b"\n").unwrap();
        assert!(matches!(Enrolment::load(&paths), Err(EnrolmentError::Token)));
        files::write_private(&paths.token(), b"t0ken\n").unwrap();
        assert_eq!(Enrolment::load(&paths).unwrap().unwrap().token.expose(), "t0ken");
    }
}
