//! `transit-agent run`: one COMMAND for every envelope.

mod command;
mod queue;
pub(super) mod warden;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::PollFlags;

use super::session::{Answer, Next, Session};
use super::{Identity, NAME};
use crate::cli::duration;
use crate::cli::output::{self, Exit, Failure};
use crate::clock::Mono;
use crate::limits;
use command::{Outcome, Running};
use queue::{Delivery, Queue};

/// The daemon waits 30 s for a sign of life; this is well within.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// How long a COMMAND has between being asked to end and being killed.
const GRACE: Duration = Duration::from_secs(5);
/// Handled envelopes that are remembered, so that one whose answer was lost is not handled again.
const REMEMBERED: usize = 256;

/// What to run, and as whom.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    identity: Identity,
    /// Run up to N COMMANDs at a time, at most 16; what has an order keeps it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = jobs)]
    jobs: usize,
    /// End a COMMAND that takes longer, and all that it started: SIGTERM, and SIGKILL 5 s later.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    timeout: Duration,
    /// The program to run, and its arguments.
    #[arg(value_name = "COMMAND", required = true, num_args = 1.., trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// The envelopes in hand.
struct Work {
    args: Args,
    waiting: Queue,
    running: Vec<Running>,
    /// Envelopes that were handled, the newest last.
    handled: VecDeque<u64>,
    next_sign: Mono,
}

/// Runs COMMAND for what comes until somebody wants this process to end.
///
/// # Errors
/// When there is no such COMMAND, the daemon refuses the session for good, or it cannot be used.
pub(super) fn run(args: Args) -> Result<Exit, Failure> {
    let program = &args.command[0];
    command::look_for(program).map_err(|err| {
        Failure::new(Exit::Usage, format_args!("run {}", program.display()), err)
            .hint("COMMAND is a program of PATH, or a path to one that may be run: chmod +x FILE")
    })?;
    let title: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let mut session = Session::new(args.identity.register(&title.join(" "))?)?;
    let (waiting, running, handled) = (Queue::default(), Vec::new(), VecDeque::new());
    let mut work = Work { args, waiting, running, handled, next_sign: Mono::default() };
    loop {
        work.start(&mut session)?;
        let until = work.next_time();
        let watched: Vec<_> = work.running.iter().map(|job| (job.as_fd(), PollFlags::IN)).collect();
        match session.next(&watched, until)? {
            Next::Stop => break,
            Next::Registered { address, .. } => {
                output::say(format_args!("{NAME}: registered as {address}"));
            }
            Next::Deliver { id, envelope } => work.take(Delivery::new(id, envelope), &mut session)?,
            Next::Ready(ready) => work.settle(&ready, &mut session)?,
            Next::Due => work.look_at_the_time(&mut session)?,
        }
    }
    work.stop(&mut session)
}

impl Work {
    /// Takes an envelope on. One in hand is not taken twice, and one that was handled is only answered again.
    fn take(&mut self, delivery: Delivery, session: &mut Session) -> Result<(), Failure> {
        if self.handled.contains(&fingerprint(&delivery)) {
            return session.say(Answer::Ack { id: delivery.id });
        }
        let runs = self.running.iter().any(|job| job.delivery.id == delivery.id);
        if runs || self.waiting.contains(&delivery.id) {
            return Ok(());
        }
        self.waiting.push(delivery).map_or(Ok(()), |id| give_back(id, session))
    }

    /// Starts what can be started.
    fn start(&mut self, session: &mut Session) -> Result<(), Failure> {
        while self.running.len() < self.args.jobs {
            let Some(delivery) = self.waiting.next(self.running.iter().map(|job| &job.delivery)) else {
                break;
            };
            let deadline = session.now() + self.args.timeout;
            match Running::start(&self.args.command, delivery, deadline) {
                Ok(job) => {
                    self.running.push(job);
                    self.sign_of_life("working", session)?;
                }
                Err((delivery, err)) => {
                    let shown = self.args.command[0].to_string_lossy();
                    output::warn(NAME, format_args!("{}: could not start {shown}: {err}", delivery.id));
                    self.answer(delivery, &Outcome::NOT_STARTED, session)?;
                }
            }
        }
        Ok(())
    }

    /// Settles the jobs that have ended.
    fn settle(&mut self, ready: &[bool], session: &mut Session) -> Result<(), Failure> {
        for at in (0..self.running.len()).rev().filter(|at| ready.get(*at) == Some(&true)) {
            let mut job = self.running.swap_remove(at);
            let outcome = job.outcome();
            if let Some(why) = &outcome.why {
                output::warn(NAME, format_args!("{}: {why}", job.delivery.id));
            }
            self.answer(job.delivery, &outcome, session)?;
        }
        let resting = self.running.is_empty() && self.waiting.is_empty();
        if resting { session.say(Answer::Status("idle".to_owned())) } else { Ok(()) }
    }

    fn answer(
        &mut self,
        delivery: Delivery,
        outcome: &Outcome,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let id = delivery.id.clone();
        let Some(code) = outcome.code else {
            self.handled.push_back(fingerprint(&delivery));
            self.handled.drain(..self.handled.len().saturating_sub(REMEMBERED));
            return session.say(Answer::Ack { id });
        };
        session.say(Answer::Nak { id, code: code.to_owned(), retryable: outcome.retryable })?;
        if !outcome.retryable {
            return Ok(());
        }
        // A message that comes back later is not to be passed by the next ones of its sender.
        self.waiting.hold_back(&delivery).into_iter().try_for_each(|id| give_back(id, session))
    }

    /// When something is to be done by time alone.
    fn next_time(&self) -> Option<Mono> {
        let sign = (!self.running.is_empty()).then_some(self.next_sign);
        self.running.iter().filter_map(Running::deadline).chain(sign).min()
    }

    fn look_at_the_time(&mut self, session: &mut Session) -> Result<(), Failure> {
        let now = session.now();
        self.running.iter_mut().for_each(|job| job.look_at_the_time(now, GRACE));
        if now >= self.next_sign { self.sign_of_life("working", session) } else { Ok(()) }
    }

    fn sign_of_life(&mut self, status: &str, session: &mut Session) -> Result<(), Failure> {
        self.next_sign = session.now() + SIGN_OF_LIFE;
        session.say(Answer::Status(status.to_owned()))
    }

    /// Ends in order: what runs is asked to end, and settled by how it ended; what waits goes back.
    fn stop(&mut self, session: &mut Session) -> Result<Exit, Failure> {
        while let Some(delivery) = self.waiting.pop() {
            self.answer(delivery, &Outcome::STOPPED, session)?;
        }
        self.running.iter_mut().for_each(|job| job.ask_to_end(session.now() + GRACE));
        while let Some(job) = self.running.first_mut() {
            job.wait(GRACE);
            self.settle(&[true], session)?;
        }
        Ok(Exit::Ok)
    }
}

/// One that was not begun comes again after the one before it.
fn give_back(id: String, session: &mut Session) -> Result<(), Failure> {
    session.say(Answer::Nak { id, code: "behind_another".to_owned(), retryable: true })
}

fn fingerprint(delivery: &Delivery) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&delivery.id, &delivery.envelope).hash(&mut hasher);
    hasher.finish()
}

/// No more than the daemon hands over at a time.
fn jobs(text: &str) -> Result<usize, String> {
    let most = limits::AGENT_WINDOW;
    text.parse()
        .ok()
        .filter(|jobs| (1..=most).contains(jobs))
        .ok_or(format!("it is no number from 1 to {most}"))
}
