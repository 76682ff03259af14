//! What the live modes share: their options, the observer of a conversation, and serving many connections.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use url::Url;

use super::recorder::{Recorder, tell};
use super::{NAME, connect, proxy, socket};
use crate::addr::Host;
use crate::cli::output::{self, Exit, Failure};
use crate::net::dial::Interrupt;
use crate::net::relay::Observer;
use crate::net::service::{self, Shutdown};
use crate::net::tap::{Seen, Tap, WebTap, What};
use crate::net::wake::Wake;
use crate::proto::dump::{Note, Proto, Way};
use crate::text;

/// Wait after the system would not give us another descriptor or thread.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Looking at conversations while they take place.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Live")]
pub(super) struct LiveArgs {
    /// Listen here, and pass each connection on to --to.
    ///
    /// Every byte passes unchanged, and is passed on before it is looked at; half-closes and resets pass too. Port 0
    /// takes a free one; stderr says which. Records say in conn which connection they belong to, once there was a
    /// second one. Compressed messages are recorded as what they say. What is no frame is told as a note: control
    /// frames, the close code, binary messages, texts over 1 MiB, and what is not understood. A reader of stdout who
    /// takes his time is not waited for; what he misses is counted. The file has it all.
    #[arg(long, value_name = "HOST:PORT", requires = "to", value_parser = parse_address, group = "live")]
    pub(super) proxy: Option<SocketAddr>,
    /// The server behind --proxy: ws, wss, http or https.
    ///
    /// Requests pass with the path and the headers that they have, Host too; wss adds TLS on the way.
    #[arg(long, value_name = "URL", requires = "proxy", value_parser = parse_url)]
    pub(super) to: Option<Url>,
    /// Open a WebSocket; print what comes, send the lines of stdin.
    ///
    /// A URL without a path means /api/daemon/ws. After the end of stdin, and once the server has been silent for a
    /// second, the connection is half-closed, and what still comes is read. With /dev/null as stdin there is nothing
    /// to send, and so nothing to end.
    #[arg(long, value_name = "URL", value_parser = parse_url, group = "live")]
    pub(super) connect: Option<Url>,
    /// Send the token in FILE with --connect.
    #[arg(long, value_name = "FILE", requires = "connect")]
    pub(super) token_file: Option<PathBuf>,
    /// Say hello as this host, and keep the connection alive.
    ///
    /// The Worker takes it for the host's daemon: stop that one first, or the two close each other's connection. What
    /// is delivered is not acknowledged, and is delivered again to the daemon that comes back.
    #[arg(long, value_name = "SLUG", requires = "connect")]
    pub(super) host: Option<Host>,
    /// The Unix socket behind --proxy-socket.
    ///
    /// The protocol is known by the first line: transit-agent/1, a call of transit.sock, or the local client API.
    /// The daemon takes the kernel's word for who has connected, and that is this process: it registers a session
    /// that this process was started from, refuses any other with pid_mismatch, and takes commands for this process's.
    #[arg(long, value_name = "REAL", requires = "proxy_socket", group = "live")]
    pub(super) socket: Option<PathBuf>,
    /// Listen on this Unix socket, and pass on to --socket.
    ///
    /// It is made 0600. What an earlier process left is replaced, a socket on which one listens never.
    #[arg(long, value_name = "OURS", requires = "socket")]
    pub(super) proxy_socket: Option<PathBuf>,
    /// Add every record to FILE, which is made 0600.
    ///
    /// Secrets are redacted, and --filter does not hold for it. When the disk is full that is told once, and all goes
    /// on passing.
    #[arg(long, value_name = "FILE", requires = "live")]
    pub(super) write: Option<PathBuf>,
    /// Print nothing, with --write.
    #[arg(long, requires = "write")]
    pub(super) quiet: bool,
}

/// What a live mode works with.
pub(super) struct Live {
    pub(super) recorder: Arc<Recorder>,
    pub(super) stop: Shutdown,
    /// Whether connections are told as they come and go.
    pub(super) is_verbose: bool,
}

impl LiveArgs {
    /// Whether a live mode is asked for.
    pub(super) fn is_asked_for(&self) -> bool {
        self.proxy.is_some() || self.connect.is_some() || self.socket.is_some()
    }
}

/// Does what was asked, until it is told to stop.
///
/// # Errors
/// When a file or socket cannot be made, the server does not talk to us, or stdout breaks.
pub(super) fn run(args: &LiveArgs, print: super::Printing, is_verbose: bool) -> Result<Exit, Failure> {
    let broken = |what| move |err: io::Error| Failure::new(Exit::Software, what, err);
    let stop = Shutdown::on_signals().map_err(broken("catch signals"))?;
    service::outlive_file_limit().map_err(broken("catch signals"))?;
    service::raise_descriptor_limit();
    let print = (!args.quiet).then_some(print);
    let shown = if args.connect.is_some() && !is_verbose { comes } else { |_: &Seen<'_>| true };
    let recorder = Arc::new(Recorder::open(args.write.as_deref(), print, shown, &stop)?);
    let live = Live { recorder: Arc::clone(&recorder), stop, is_verbose };
    let done = match (&args.proxy, &args.to, &args.connect, &args.socket, &args.proxy_socket) {
        (Some(at), Some(to), ..) => proxy::run(&live, *at, to),
        (_, _, Some(url), ..) => connect::run(&live, url, args),
        (.., Some(real), Some(ours)) => socket::run(&live, real, ours),
        _ => Ok(Exit::Ok),
    };
    // What went wrong with the conversation is told before what went wrong with telling.
    let told = recorder.finish();
    done.and_then(|exit| told.map(|()| exit))
}

/// What a client is shown of its own conversation: what comes, and not that it stands.
fn comes(seen: &Seen<'_>) -> bool {
    let is_news = !matches!(
        seen.what,
        What::Note(Note::Answer { .. } | Note::Ping { .. } | Note::Pong { .. } | Note::End)
    );
    seen.way == Way::Back && is_news
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|err| format!("no address to listen at: {err}"))?;
    found.next().ok_or_else(|| "no address to listen at".to_owned())
}

/// A URL of a WebSocket; http and https mean the same.
fn parse_url(text: &str) -> Result<Url, String> {
    let mut url = Url::parse(text).map_err(|err| format!("no URL: {err}"))?;
    let scheme = match url.scheme() {
        "ws" | "http" => "ws",
        "wss" | "https" => "wss",
        other => return Err(format!("its scheme is {other}, not ws, wss, http or https")),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a user or password, which everybody on this machine can read".to_owned());
    }
    url.set_scheme(scheme).map_err(|()| "it cannot be a WebSocket".to_owned())?;
    Ok(url)
}

/// Records what a tap understands of one connection.
pub(super) struct Passing<T> {
    /// Gone once it has failed, which ends no conversation.
    tap: Option<T>,
    recorder: Arc<Recorder>,
    stop: Shutdown,
    conn: u64,
}

impl<T: Tap> Passing<T> {
    pub(super) fn new(tap: T, live: &Live, conn: u64) -> Self {
        Self { tap: Some(tap), recorder: Arc::clone(&live.recorder), stop: live.stop.clone(), conn }
    }

    fn look(&mut self, way: Way, with: impl FnOnce(&mut T, &mut dyn FnMut(Seen<'_>))) {
        let (recorder, conn) = (&self.recorder, self.conn);
        let Some(tap) = &mut self.tap else { return };
        let looked = catch_unwind(AssertUnwindSafe(|| with(tap, &mut |seen| recorder.record(conn, &seen))));
        if looked.is_err() {
            self.tap = None;
            let what = What::Note(Note::Blind { why: "looking at it failed" });
            recorder.record(conn, &Seen { proto: Proto::Wire, way, what });
        }
    }
}

impl Passing<WebTap> {
    /// Whether a frame or a message has begun this way that has not ended.
    pub(super) fn is_inside(&self, way: Way) -> bool {
        self.tap.as_ref().is_some_and(|tap| tap.is_inside(way))
    }
}

impl<T: Tap> Observer for Passing<T> {
    fn saw(&mut self, way: Way, bytes: &[u8]) {
        self.look(way, |tap, out| tap.saw(way, bytes, out));
    }

    fn ended(&mut self, way: Way, broken: Option<&io::Error>) {
        let why = broken.map(|err| text::visible(&err.to_string()).into_owned());
        if let Some(why) = why.as_ref().filter(|_| !self.stop.is_triggered()) {
            let to = if way == Way::Forth { "server" } else { "client" };
            tell(self.conn, format_args!("the way to the {to} broke: {why}"));
        }
        self.look(way, |tap, out| tap.ended(way, why.as_deref(), out));
    }
}

/// Serves every connection that `accept` gives on a thread of its own, until it is time to stop. `each` must return
/// soon after its wake-up is given and the process is stopping.
///
/// # Errors
/// When the process has no descriptors left at the very beginning.
pub(super) fn serve<C: Send>(
    live: &Live,
    accept: &dyn Fn(&Wake) -> io::Result<Option<C>>,
    each: &(dyn Fn(C, u64, Interrupt<'_>) + Sync),
) -> Result<(), Failure> {
    let stop = &live.stop;
    let wake = Wake::new().map_err(|err| Failure::new(Exit::Unavailable, "listen", err))?;
    let stopped = wake.clone();
    stop.on_trigger(move || stopped.wake());
    let wakes = Mutex::new(HashMap::new());
    let held = || wakes.lock().unwrap_or_else(PoisonError::into_inner);
    let mut is_exhausted = false;
    thread::scope(|scope| {
        while !stop.is_triggered() {
            let begun = accept(&wake).and_then(|accepted| {
                let Some(connection) = accepted else { return Ok(()) };
                let number = live.recorder.connection();
                let its_wake = Wake::new()?;
                held().insert(number, its_wake.clone());
                let serve = move || {
                    each(connection, number, Interrupt { wake: &its_wake, stop });
                    held().remove(&number);
                };
                let begun =
                    thread::Builder::new().name(format!("connection {number}")).spawn_scoped(scope, serve);
                begun.map(drop).inspect_err(|_| drop(held().remove(&number)))
            });
            match begun {
                Ok(()) => is_exhausted = false,
                Err(err) => {
                    if !std::mem::replace(&mut is_exhausted, true) {
                        output::warn(NAME, format_args!("could not take a connection: {err}"));
                    }
                    stop.wait(Some(EXHAUSTED));
                }
            }
        }
        held().values().for_each(Wake::wake);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_websocket_and_holds_no_secret() {
        let parsed = |text: &str| parse_url(text).map(String::from);
        assert_eq!(parsed("http://127.0.0.1:8787").unwrap(), "ws://127.0.0.1:8787/");
        assert_eq!(parsed("https://h/x").unwrap(), "wss://h/x");
        assert_eq!(parsed("wss://h").unwrap(), "wss://h/");
        for wrong in ["", "127.0.0.1:8787", "ftp://h", "ws://u:p@h", "ws://u@h"] {
            assert!(parse_url(wrong).is_err(), "{wrong}");
        }
    }
}
