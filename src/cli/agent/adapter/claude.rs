//! The adapter of Claude Code: a monitor of a plugin, which Claude Code starts with every session.
//!
//! It prints nothing: what a monitor prints becomes a message. Envelopes go to the inbox socket of the session, which
//! leaves alone what a person is typing, and are acknowledged once the transcript has them as a user's message. Which
//! session that is, Claude Code says in a file of its registry; after /clear it is another one.

mod inbox;
mod registry;
mod transcript;

use std::collections::VecDeque;
use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::agent::NAME;
use crate::cli::agent::session::{Answer, Next, Session};
use crate::cli::control;
use crate::cli::output::{self, Exit, Failure};
use crate::clock::Mono;
use crate::net::service::Shutdown;
use crate::proto::agent::{PROTO, Register};
use registry::{Claude, Running};
use transcript::{Key, Transcript};

/// How often the registry is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How often the transcript is looked at while an envelope is on its way into it.
const LOOK_CLOSELY: Duration = Duration::from_millis(50);
/// An envelope that is not there after so long in a session that does nothing was not taken.
const NOT_TAKEN: Duration = Duration::from_secs(15);

/// Why a session is not held any more.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// It is another one now, or Claude Code has ended, or this process is to end.
    Over,
    /// transitd does not take it.
    Refused,
}

/// Runs until Claude Code ends.
pub(super) fn run() -> Result<Exit, Failure> {
    let stop = Shutdown::on_signals().map_err(|err| Failure::new(Exit::Io, "get ready to wait", err))?;
    let dir = config_dir()?;
    let Some(claude) = Claude::find(&dir, env_text("CLAUDE_PID").and_then(|pid| pid.parse().ok())) else {
        let failure = Failure::new(Exit::Unavailable, "find Claude Code", "this process is no child of one");
        return Err(failure.hint("Claude Code starts it by itself: transit-agent install claude"));
    };
    while !stop.is_triggered() && claude.is_alive() {
        let Some(running) = claude.running() else {
            stop.wait(Some(LOOK));
            continue;
        };
        let mut place = Place::new(&dir, &claude, running, stop.clone())?;
        if place.hold(&claude) == End::Refused {
            rest(&claude, place.running, &stop);
        }
    }
    Ok(Exit::Ok)
}

/// Waits until a session that transitd did not take is worth another try: it begins to work, or is another one. So of
/// two that have the same session open, the one where somebody works gets its messages.
fn rest(claude: &Claude, mut last: Running, stop: &Shutdown) {
    while !stop.wait(Some(LOOK)) && claude.is_alive() {
        let Some(now) = claude.running() else { continue };
        if now.session_id != last.session_id || (now.status == "working" && last.status != "working") {
            return;
        }
        last = now;
    }
}

/// Where Claude Code keeps its files.
fn config_dir() -> Result<PathBuf, Failure> {
    let own = env::var_os("CLAUDE_CONFIG_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".claude"));
    own.or_else(home).ok_or_else(|| Failure::new(Exit::Config, "find Claude Code", "HOME is not set"))
}

fn env_text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}

/// A session of Claude Code and its place at transitd.
struct Place {
    running: Running,
    session: Session,
    transcript: Transcript,
    /// What was handed over and is not answered, in its order. Only the first one is on its way.
    open: VecDeque<Delivery>,
    look_at: Mono,
    /// When the session was last seen at work.
    worked_at: Mono,
}

struct Delivery {
    id: String,
    key: Key,
    envelope: String,
    sent_at: Option<Mono>,
}

impl Place {
    fn new(dir: &Path, claude: &Claude, running: Running, stop: Shutdown) -> Result<Self, Failure> {
        let register = Register {
            proto: PROTO,
            harness: "claude".to_owned(),
            session_id: running.session_id.clone(),
            pid: claude.pid(),
            cwd: running.cwd.clone(),
            title: running.name.clone(),
            status: running.status.clone(),
            name: env_text("TRANSIT_AGENT_NAME"),
            pane_id: control::pane_id(),
        };
        Ok(Self {
            session: Session::with(control::paths()?, register, stop)?,
            transcript: Transcript::new(dir, &running.session_id),
            running,
            open: VecDeque::new(),
            look_at: Mono::default(),
            worked_at: Mono::default(),
        })
    }

    /// Takes what comes for the session, until it is another one.
    fn hold(&mut self, claude: &Claude) -> End {
        loop {
            let wait = if self.open.is_empty() { LOOK } else { LOOK_CLOSELY };
            match self.session.next(&[], Some(self.session.now() + wait)) {
                Err(failure) => {
                    output::tell(NAME, &failure);
                    return End::Refused;
                }
                Ok(Next::Stop) => return End::Over,
                Ok(Next::Deliver { id, envelope }) => self.take(id, envelope),
                Ok(Next::Registered { .. } | Next::Ready(_) | Next::Due) => {}
            }
            let is_it = if self.session.now() >= self.look_at { self.look(claude) } else { Ok(true) };
            match is_it.and_then(|is_it| Ok(is_it && self.advance(claude)?)) {
                Ok(true) => {}
                Ok(false) => return End::Over,
                Err(_) => return End::Refused,
            }
        }
    }

    /// Looks at the registry; answers whether the session is still the one that Claude Code has open.
    fn look(&mut self, claude: &Claude) -> Result<bool, Failure> {
        self.look_at = self.session.now() + LOOK;
        match claude.running() {
            Some(now) if now.session_id == self.running.session_id => self.follow(now).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Takes an envelope on, unless it is in hand: it comes again when a connection broke.
    fn take(&mut self, id: String, envelope: String) {
        let key = Key::of(&envelope, &id);
        if !self.open.iter().any(|open| open.key == key) {
            self.open.push_back(Delivery { id, key, envelope, sent_at: None });
        }
    }

    /// Says what the session is doing, if that is news.
    fn follow(&mut self, now: Running) -> Result<(), Failure> {
        if now.status == "working" {
            self.worked_at = self.session.now();
        }
        let is_news = now.status != self.running.status;
        self.running = now;
        if is_news { self.session.say(Answer::Status(self.running.status.clone())) } else { Ok(()) }
    }

    /// Brings the first envelope further, and answers it once it is known what became of it. Answers whether the session
    /// is still the same one, as far as it has looked.
    fn advance(&mut self, claude: &Claude) -> Result<bool, Failure> {
        while let Some(delivery) = self.open.front() {
            let id = delivery.id.clone();
            let answer = match (self.transcript.has(&delivery.key), delivery.sent_at) {
                (Ok(true), _) => Answer::Ack { id },
                (Err(_), _) => refused(id, "transcript_unreadable"),
                (Ok(false), None) => {
                    // The inbox is that of the process: what is sent just after a /clear would be another session's.
                    if !self.look(claude)? {
                        return Ok(false);
                    }
                    match self.send() {
                        Ok(()) => return Ok(true),
                        Err(_) => refused(id, "inbox_unavailable"),
                    }
                }
                (Ok(false), Some(at)) => {
                    // One that is at work takes it at its next step, whenever that is.
                    let since = at.max(self.worked_at);
                    let is_resting = self.running.status == "idle";
                    if !is_resting || self.session.now().since(since) < NOT_TAKEN {
                        return Ok(true);
                    }
                    refused(id, "not_taken")
                }
            };
            self.open.pop_front();
            self.session.say(answer)?;
        }
        Ok(true)
    }

    /// Puts the first envelope into the inbox.
    fn send(&mut self) -> io::Result<()> {
        let Some(delivery) = self.open.front_mut() else { return Ok(()) };
        inbox::send(&self.running, &delivery.envelope)?;
        delivery.sent_at = Some(self.session.now());
        Ok(())
    }
}

fn refused(id: String, code: &str) -> Answer {
    Answer::Nak { id, code: code.to_owned(), retryable: true }
}
