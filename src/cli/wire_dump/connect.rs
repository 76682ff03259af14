//! `--connect`: a WebSocket client that prints what comes and sends what it is given.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use url::Url;

use super::NAME;
use super::live::{Live, LiveArgs, Passing};
use crate::cli::output::{self, Exit, Failure};
use crate::cli::secret::SecretArgs;
use crate::limits;
use crate::net::dial::{DialError, Interrupt, Stream, dial};
use crate::net::proxy::proxy_for;
use crate::net::relay::Observer;
use crate::net::tap::{Tapped, WebTap};
use crate::net::wake::Wake;
use crate::net::ws::{self, Gone, Heard};
use crate::proto::dump::Way;
use crate::proto::lines::{Line, Lines};
use crate::proto::wire::{DaemonFrame, PROTO, close};
use crate::text;

/// Where the Worker's WebSocket is.
const PATH: &str = "/api/daemon/ws";
/// Silence of the server after the end of stdin before the connection is half-closed. Many servers take that for the
/// end of everything, so that an answer on its way would be lost.
const SILENCE: Duration = Duration::from_secs(1);
/// Messages that are read before anything else is done.
const BATCH: usize = 128;
/// Longest line that is sent. Over [`limits::FRAME_BYTES`] it is the server's to refuse.
const LINE: usize = 8 * limits::FRAME_BYTES;
/// Longest wait without anything to do.
const LONG: Duration = Duration::from_secs(3600);

type Web = Passing<WebTap>;

/// A piece of stdin.
enum Given {
    Line(String),
    /// A line that cannot be sent, and why.
    Wrong(&'static str),
    End,
}

/// Talks until either side closes, or it is told to stop.
///
/// # Errors
/// When the server cannot be reached or does not take us, and when it closes for any reason that is not a good one.
pub(super) fn run(live: &Live, url: &Url, args: &LiveArgs) -> Result<Exit, Failure> {
    let mut url = url.clone();
    if url.path() == "/" {
        url.set_path(PATH);
    }
    let secret_file = |file: &Path| SecretArgs { secret_file: Some(file.to_owned()), secret_env: None };
    let token = args.token_file.as_deref().map(|file| secret_file(file).read(NAME)).transpose()?;
    let via = proxy_for(&url, |name| std::env::var(name).ok())
        .map_err(|err| Failure::new(Exit::Config, format_args!("reach {url}"), err))?;
    let wake = Wake::new().map_err(|err| Failure::new(Exit::Unavailable, "connect", err))?;
    let stopped = wake.clone();
    live.stop.on_trigger(move || stopped.wake());
    let interrupt = Interrupt { wake: &wake, stop: &live.stop };
    let passing = Passing::new(WebTap::default(), live, live.recorder.connection());
    let passing = Arc::new(Mutex::new(passing));
    let opened = dial(&url, via.as_ref(), interrupt).and_then(|stream| {
        ws::open_over(Tapped::new(stream, Arc::clone(&passing)), &url, token.as_ref(), interrupt)
    });
    let socket = match opened {
        Ok(socket) => socket,
        Err(DialError::Stopped) => return Ok(Exit::Ok),
        Err(err) => return Err(not_connected(&url, &err, token.is_some())),
    };
    if live.is_verbose {
        output::say(format_args!("{NAME}: connected to {url}"));
    }
    let given = read_stdin(wake.clone())?;
    let now = Instant::now();
    let talk = Talk {
        live,
        socket,
        passing: &passing,
        given,
        wake: &wake,
        heard: now,
        ended: None,
        is_half_closed: false,
        beat: None,
    };
    let outcome = talk.run(args);
    passing.lock().unwrap_or_else(PoisonError::into_inner).ended(Way::Back, None);
    outcome
}

fn not_connected(url: &Url, err: &DialError, has_token: bool) -> Failure {
    let exit = match err {
        DialError::Unauthorized { .. } => Exit::NoPermission,
        DialError::Status { status: 408 | 425 | 429 | 500.. } => Exit::TryLater,
        DialError::Status { .. } | DialError::Garbage { .. } => Exit::Protocol,
        DialError::NoHost { .. } => Exit::Usage,
        _ => Exit::Unavailable,
    };
    let failure = Failure::new(exit, format_args!("connect to {url}"), err);
    match err {
        DialError::Unauthorized { .. } if !has_token => {
            failure.hint("name a file that holds one with --token-file")
        }
        _ => failure,
    }
}

/// One conversation.
struct Talk<'a> {
    live: &'a Live,
    socket: ws::Socket<Tapped<Stream, Web>>,
    /// What is understood of it.
    passing: &'a Mutex<Web>,
    given: Receiver<Given>,
    wake: &'a Wake,
    /// When something came last.
    heard: Instant,
    /// When stdin ended.
    ended: Option<Instant>,
    is_half_closed: bool,
    /// When the next heartbeat is due, if there is one.
    beat: Option<Instant>,
}

impl Talk<'_> {
    fn run(mut self, args: &LiveArgs) -> Result<Exit, Failure> {
        if let Some(host) = &args.host {
            let host = host.to_string();
            let hello =
                DaemonFrame::Hello { proto: PROTO, daemon_ver: env!("CARGO_PKG_VERSION").to_owned(), host };
            self.beat = Some(Instant::now() + limits::HEARTBEAT);
            if let Err(gone) = self.socket.write(hello.encode()) {
                return self.over(gone);
            }
        }
        loop {
            match self.round() {
                Ok(None) => {}
                Ok(Some(done)) => return self.close(done),
                Err(gone) => return self.over(gone),
            }
        }
    }

    /// Hears, says and waits once; answers why we close, if we do.
    fn round(&mut self) -> Result<Option<Done>, Gone> {
        let came = self.hear()?;
        if came == Came::TooLong {
            return Ok(Some(Done::TooLong));
        }
        if self.live.stop.is_triggered() {
            return Ok(Some(Done::Stopped));
        }
        if let Some(wrong) = self.say()? {
            return Ok(Some(Done::Wrong(wrong)));
        }
        let now = Instant::now();
        if self.beat.is_some_and(|at| at <= now) {
            self.socket.write(DaemonFrame::Pong.encode())?;
            self.beat = Some(now + limits::HEARTBEAT);
        }
        if self.half_close_at().is_some_and(|at| at <= now) && self.socket.flush()? {
            // When it would block, the next round tries again; when it is over, the next read says so.
            self.is_half_closed = self.socket.half_close().is_ok();
        }
        let due = self.beat.into_iter().chain(self.half_close_at()).min();
        let wait = due.map_or(LONG, |at| at.saturating_duration_since(Instant::now()));
        self.socket.wait(self.wake, if came == Came::More { Duration::ZERO } else { wait })?;
        Ok(None)
    }

    fn half_close_at(&self) -> Option<Instant> {
        self.ended.filter(|_| !self.is_half_closed).map(|ended| ended.max(self.heard) + SILENCE)
    }

    /// Reads what has come.
    fn hear(&mut self) -> Result<Came, Gone> {
        for _ in 0..BATCH {
            match self.socket.read()? {
                None => return Ok(Came::All),
                Some(Heard::TooLong) => return Ok(Came::TooLong),
                Some(_) => self.heard = Instant::now(),
            }
        }
        Ok(Came::More)
    }

    /// Sends what stdin gave, as fast as the server takes it; answers why it cannot be sent.
    fn say(&mut self) -> Result<Option<&'static str>, Gone> {
        while self.ended.is_none() && self.socket.flush()? {
            match self.given.try_recv() {
                Ok(Given::Line(line)) => self.socket.write(line)?,
                Ok(Given::Wrong(why)) => return Ok(Some(why)),
                Ok(Given::End) => self.ended = Some(Instant::now()),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        Ok(None)
    }

    /// We close.
    fn close(self, done: Done) -> Result<Exit, Failure> {
        match done {
            Done::Stopped => {
                self.socket.close(1000, "");
                Ok(Exit::Ok)
            }
            Done::Wrong(why) => {
                self.socket.close(1000, "");
                Err(Failure::new(Exit::Data, "send a line of stdin", why))
            }
            Done::TooLong => {
                self.socket.close(close::TOO_LONG, "over 1 MiB");
                Err(Failure::new(Exit::Protocol, "read what came", "a message is over 1 MiB"))
            }
        }
    }

    /// It is over: was that an end or a failure?
    fn over(&self, gone: Gone) -> Result<Exit, Failure> {
        let is_inside = || self.passing.lock().unwrap_or_else(PoisonError::into_inner).is_inside(Way::Back);
        if let Gone::Broken(why) = &gone
            && is_inside()
        {
            let why = format!("the connection broke in the middle of a frame: {why}");
            return Err(Failure::new(Exit::Protocol, "talk to the server", why));
        }
        let exit = match &gone {
            Gone::Closed { code: 1000 | 1001 | 1005, .. } => Exit::Ok,
            Gone::Closed { code: close::REVOKED, .. } => Exit::NoPermission,
            Gone::Closed { .. } | Gone::Fault { .. } => Exit::Protocol,
            Gone::Broken(_) if self.is_half_closed => Exit::Ok,
            Gone::Broken(_) => Exit::Unavailable,
        };
        match exit {
            Exit::Ok if self.is_half_closed && !matches!(gone, Gone::Closed { .. }) => Ok(exit),
            Exit::Ok => {
                output::say(format_args!("{NAME}: {}", text::visible(&gone.to_string())));
                Ok(exit)
            }
            exit => Err(Failure::new(exit, "talk to the server", gone)),
        }
    }
}

/// How far what came was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    /// There is nothing more for now.
    All,
    /// There may be more.
    More,
    /// A message is too long, and nothing after it can be read.
    TooLong,
}

/// Why we close.
enum Done {
    Stopped,
    Wrong(&'static str),
    TooLong,
}

/// Reads stdin on a thread of its own, which wakes the one that talks.
fn read_stdin(wake: Wake) -> Result<Receiver<Given>, Failure> {
    let (give, given) = sync_channel(64);
    let read = move || {
        if !is_nothing() {
            // When nobody takes the lines any more, the conversation is over.
            let _ = pass_lines(&give, &wake);
            let _ = give.send(Given::End);
        }
        wake.wake();
    };
    let started = thread::Builder::new().name("stdin".into()).spawn(read);
    started.map_err(|err| Failure::new(Exit::Unavailable, "start a thread", err))?;
    Ok(given)
}

/// Whether stdin is `/dev/null`: whoever gives that has nothing to send, and so nothing that ends.
fn is_nothing() -> bool {
    let (Ok(null), Ok(given)) = (fs::metadata("/dev/null"), fs::metadata("/dev/stdin")) else { return false };
    given.file_type().is_char_device() && given.rdev() == null.rdev()
}

fn pass_lines(give: &SyncSender<Given>, wake: &Wake) -> Result<(), std::sync::mpsc::SendError<Given>> {
    let mut lines = Lines::new(LINE);
    let mut bytes = [0; 8 * 1024];
    let mut stdin = io::stdin().lock();
    loop {
        let end = match io::Read::read(&mut stdin, &mut bytes) {
            Ok(0) => true,
            Ok(n) => {
                lines.push(&bytes[..n]);
                false
            }
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => {
                give.send(Given::Wrong("stdin cannot be read"))?;
                return Ok(());
            }
        };
        while let Some(line) = lines.next().or_else(|| if end { lines.end() } else { None }) {
            match line {
                Line::Text(text) if text.trim().is_empty() => {}
                Line::Text(text) => give.send(Given::Line(text.trim_end_matches('\r').to_owned()))?,
                Line::NotUtf8 => give.send(Given::Wrong("it is not UTF-8"))?,
                Line::TooLong => give.send(Given::Wrong("it is over 8 MiB"))?,
            }
            wake.wake();
        }
        if end {
            return Ok(());
        }
    }
}
