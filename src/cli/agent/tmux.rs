//! `transit-agent tmux`: a program in a tmux pane, which knows nothing of Transit, as an agent.
//!
//! The machine in [`crate::proto::tmux`] says what is done and when; `pane` asks tmux for it. One envelope is typed
//! at a time, and the next one when it is clear what became of it.

mod pane;

use std::collections::{HashSet, VecDeque};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::PollFlags;

use self::pane::{Gone, Tmux};
use super::session::{Answer, Next, Session};
use super::{Identity, NAME};
use crate::cli::output::{self, Exit, Failure};
use crate::clock::Mono;
use crate::proto::composer::Kind;
use crate::proto::herdr::Searched;
use crate::proto::tmux::{Hold, Job, Step, Told, Typing, Verdict, is_free};
use crate::store::transcript;

/// How often a pane is looked at in which a person is in the way.
const LOOK: Duration = Duration::from_secs(2);
/// The daemon waits 30 s for a sign of life; this is well within.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// What the Worker is told while a person is in the way: it costs no attempt.
const BUSY: &str = "draft_busy";
/// Deliveries whose typing is remembered.
const REMEMBERED: usize = 256;

/// Which pane, and as whom.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    identity: Identity,
    /// The pane, as tmux names it: %7, or SESSION:WINDOW.PANE [default: the one that this runs in].
    #[arg(long, value_name = "PANE", env = "TMUX_PANE", hide_env_values = true)]
    target: String,
    /// Type only while PROGRAM is in the foreground of the pane [default: the one that is there at the start].
    #[arg(long, value_name = "PROGRAM")]
    program: Option<String>,
    /// The file in which the program keeps its session: an envelope counts as arrived once its id stands there.
    #[arg(long, value_name = "FILE")]
    transcript: Option<PathBuf>,
    /// The socket of the tmux server [default: the one in TMUX].
    #[arg(long, value_name = "SOCKET")]
    tmux_socket: Option<PathBuf>,
}

/// What is under way.
struct Work {
    tmux: Tmux,
    kind: Option<Kind>,
    transcript: Option<PathBuf>,
    waiting: VecDeque<(String, String)>,
    current: Option<Typing>,
    /// When the current step's time is over.
    until: Option<Mono>,
    /// When to look whether the person is out of the way.
    look_at: Option<Mono>,
    next_sign: Mono,
    typed: HashSet<String>,
}

/// Types what comes until the pane is gone or somebody wants this process to end.
pub(super) fn run(args: Args) -> Result<Exit, Failure> {
    let Args { identity, target, program, transcript, tmux_socket } = args;
    let transcript = transcript
        .map(|path| {
            std::path::absolute(&path).map_err(|err| Failure::new(Exit::NoInput, path.display(), err))
        })
        .transpose()?;
    let tmux = Tmux::find(tmux_socket, &target, program)?;
    let mut register = identity.register(&format!("tmux {}: {}", tmux.pane_id(), tmux.program()))?;
    if let Some(pid) = tmux.pane_pid_above_us() {
        // Then whatever runs in the pane belongs to the session too.
        register.pid = pid;
    }
    let kind = Kind::of(&register.harness).or_else(|| Kind::of(tmux.program()));
    let mut session = Session::new(register)?;
    let mut work = Work {
        tmux,
        kind,
        transcript,
        waiting: VecDeque::new(),
        current: None,
        until: None,
        look_at: None,
        next_sign: Mono::default(),
        typed: HashSet::new(),
    };
    loop {
        match work.advance(&mut session) {
            Ok(()) => {}
            Err(Ended::Gone) => return Ok(gone()),
            Err(Ended::Failed(failure)) => return Err(failure),
        }
        let until = work.next_time();
        let ended = work.tmux.ended().map(|fd| fd.try_clone_to_owned());
        let ended = ended.transpose().map_err(|err| Failure::new(Exit::Io, "watch the pane", err))?;
        let watched: Vec<_> = ended.iter().map(|fd| (fd.as_fd(), PollFlags::IN)).collect();
        match session.next(&watched, until)? {
            Next::Stop => return Ok(Exit::Ok),
            Next::Registered { address, .. } => {
                output::say(format_args!("{NAME}: registered as {address} in pane {}", work.tmux.pane_id()));
            }
            Next::Deliver { id, envelope } => work.take(id, envelope),
            Next::Ready(_) => return Ok(gone()),
            Next::Due => {}
        }
    }
}

fn gone() -> Exit {
    output::say(format_args!("{NAME}: the pane is closed"));
    Exit::Ok
}

/// Why there is nothing more to do.
enum Ended {
    Gone,
    Failed(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Gone> for Ended {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl Work {
    /// Takes an envelope on. One in hand is not taken twice.
    fn take(&mut self, id: String, envelope: String) {
        let is_current = self.current.as_ref().is_some_and(|typing| typing.id() == id);
        if !is_current && self.waiting.iter().all(|(waiting, _)| *waiting != id) {
            self.waiting.push_back((id, envelope));
        }
    }

    fn next_time(&self) -> Option<Mono> {
        let sign = self.current.is_some().then_some(self.next_sign);
        [self.until, self.look_at, sign].into_iter().flatten().min()
    }

    /// Does all that can be done now.
    fn advance(&mut self, session: &mut Session) -> Result<(), Ended> {
        loop {
            let now = session.now();
            if self.current.is_some() && now >= self.next_sign {
                self.next_sign = now + SIGN_OF_LIFE;
                session.say(Answer::Status("idle".to_owned()))?;
            }
            if self.look_at.is_some_and(|at| now >= at) {
                self.look_again(session)?;
            }
            if self.current.is_none() {
                let Some((id, envelope)) = self.waiting.pop_front() else { return Ok(()) };
                self.begin(id, envelope);
                self.next_sign = now + SIGN_OF_LIFE;
            }
            if self.until.is_some_and(|until| now < until) {
                return Ok(());
            }
            self.step(session)?;
        }
    }

    fn begin(&mut self, id: String, envelope: String) {
        let was_typed = self.typed.contains(&id);
        let has_transcript = self.transcript.is_some();
        self.current = Some(Typing::new(Job { id, envelope, kind: self.kind, has_transcript, was_typed }));
        self.until = None;
    }

    /// Makes one step of the current delivery.
    fn step(&mut self, session: &mut Session) -> Result<(), Ended> {
        let Some(typing) = &mut self.current else { return Ok(()) };
        let told = match typing.step() {
            Step::Look => Told::Pane(self.tmux.look()?),
            Step::Read => Told::Screen(self.tmux.read()?),
            Step::Paste(text) => Told::Done(self.tmux.paste(&text)?),
            Step::Enter => Told::Done(self.tmux.enter()?),
            Step::Search => Told::Searched(match &self.transcript {
                Some(path) => transcript::search(path, typing.needle()),
                None => Searched::Unreadable,
            }),
            Step::Wait(wait) => match self.until.take() {
                Some(_) => Told::Waited,
                None => {
                    self.until = Some(session.now() + wait);
                    return Ok(());
                }
            },
            Step::Over(verdict) => return Ok(self.settle(verdict, session)?),
        };
        typing.told(told);
        Ok(())
    }

    fn settle(&mut self, verdict: Verdict, session: &mut Session) -> Result<(), Failure> {
        let Some(typing) = self.current.take() else { return Ok(()) };
        self.until = None;
        let id = typing.id().to_owned();
        if typing.has_typed() {
            if self.typed.len() >= REMEMBERED {
                self.typed.clear();
            }
            self.typed.insert(id.clone());
        }
        match verdict {
            Verdict::Kept => session.say(Answer::Ack { id }),
            Verdict::Seen => session.say(Answer::Seen { id }),
            Verdict::Refused { code, retryable } => {
                output::warn(NAME, format_args!("{id} did not arrive in the pane: {code}"));
                session.say(Answer::Nak { id, code: code.to_owned(), retryable })
            }
            Verdict::Held(hold) => self.hold(id, hold, session),
        }
    }

    /// Gives everything back until the person is out of the way.
    fn hold(&mut self, id: String, hold: Hold, session: &mut Session) -> Result<(), Failure> {
        if self.look_at.is_none() {
            let why = match hold {
                Hold::Draft => "somebody types there",
                Hold::Mode => "it is in a mode of tmux's",
                Hold::Program => "another program is in its foreground",
            };
            output::say(format_args!("{NAME}: nothing is typed into the pane for now: {why}"));
            session.say(Answer::Status("blocked".to_owned()))?;
        }
        self.look_at = Some(session.now() + LOOK);
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(id, _)| id);
        for id in std::iter::once(id).chain(waiting) {
            session.say(Answer::Nak { id, code: BUSY.to_owned(), retryable: true })?;
        }
        Ok(())
    }

    /// Is the person out of the way? A new state in the roster lets the Worker send again what waits.
    fn look_again(&mut self, session: &mut Session) -> Result<(), Ended> {
        let pane = self.tmux.look()?;
        if is_free(self.kind, &pane, &self.tmux.read()?) {
            self.look_at = None;
            session.say(Answer::Status("idle".to_owned()))?;
        } else {
            self.look_at = Some(session.now() + LOOK);
        }
        Ok(())
    }
}
