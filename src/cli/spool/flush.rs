//! `transit-spool flush`: what cron runs.

mod board;

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::json;

use self::board::{Board, Said};
use super::{NAME, Session, failed};
use crate::cli::duration;
use crate::cli::output::{self, Exit, Failure, Out};
use crate::cli::progress::Progress;
use crate::clock::{Clock, SystemClock};
use crate::daemon::events::{Flusher, Poster, Settled, Watch, flush_in_parallel};
use crate::limits;
use crate::net::service::Shutdown;
use crate::store::process::Process;
use crate::store::spool::outbox::EntryKind;
use crate::store::spool::{FlushLock, Spool};
use crate::text;

/// How often a pass is looked at while it runs.
const TICK: Duration = Duration::from_millis(100);
/// How long attempts that are under way may still take after a signal.
const GRACE: Duration = Duration::from_secs(1);
/// How soon is looked again where only other processes know when something will be due.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How much is tried, and for how long.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Try at most this many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
    /// Try this many at a time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Be done after this time; attempts that are under way then are cut [default: no deadline].
    #[arg(long, value_name = "TIME", value_parser = positive)]
    deadline: Option<Duration>,
    /// Wait for another flush to end; with --deadline also for what becomes due before it.
    #[arg(long)]
    wait: bool,
    /// Print only what has died, and failures.
    #[arg(short, long)]
    quiet: bool,
    /// Time for one attempt.
    #[arg(long, value_name = "TIME", value_parser = positive, default_value = "30s")]
    timeout: Duration,
}

fn positive(text: &str) -> Result<Duration, String> {
    duration::parse(text)
        .and_then(|time| if time.is_zero() { Err("no time at all".to_owned()) } else { Ok(time) })
}

/// What all passes of a flush came to.
#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    dead: u64,
    retried: u64,
    unnoted: u64,
}

pub(super) fn run(session: &Session, args: &Args) -> Result<Exit, Failure> {
    let system = |err| Failure::new(Exit::Io, "wait for signals", err);
    let stop = Shutdown::on_signals().map_err(system)?;
    let clock = SystemClock::new();
    let deadline = args.deadline.map(|deadline| clock.mono() + deadline);
    let Some(mut spool) = session.open()? else { return summary(session, args, &Tally::default(), 0) };
    let board = Arc::new(Board::new(clock, stop, args.timeout.min(limits::ATTEMPT_WAIT), deadline, args.max));
    let left = |spool: &mut Spool| {
        spool.outbox().waiting(EntryKind::Event).map_err(|err| failed("look into the spool", &err))
    };
    let Some(_lock) = take_lock(session, args, &board)? else {
        if args.wait {
            return summary(session, args, &Tally::default(), left(&mut spool)?);
        }
        if !args.quiet {
            output::say(format_args!("{NAME}: another flush is at work; it does what is to be done"));
        }
        return Ok(Exit::Ok);
    };
    let mut tally = Tally::default();
    let poster = Poster::new(args.timeout);
    loop {
        pass(session, args, &poster, &board, &mut spool, &mut tally)?;
        let wait = if args.wait && tally.unnoted == 0 {
            wait(&board, &spool_wait(&mut spool, clock)?)
        } else {
            None
        };
        let Some(wait) = wait else { break };
        if board.stop.wait(Some(wait)) {
            break;
        }
    }
    summary(session, args, &tally, left(&mut spool)?)
}

/// `None` when another flush has the lock and is not waited for, or not any longer.
fn take_lock(session: &Session, args: &Args, board: &Board) -> Result<Option<FlushLock>, Failure> {
    let locked = |err| failed("take the flush lock", &err);
    if let Some(lock) = FlushLock::try_take(&session.data).map_err(locked)? {
        return Ok(Some(lock));
    }
    if !args.wait {
        return Ok(None);
    }
    let (tell, told) = channel();
    let data = session.data.clone();
    // A thread of its own, because nothing but the end of the process takes the kernel out of this wait.
    let started = std::thread::Builder::new().name("flush-lock".into()).spawn(move || {
        // Nobody hears it any more who has given up.
        let _ = tell.send(FlushLock::take(&data));
    });
    started.map_err(|err| Failure::new(Exit::TryLater, "start a thread", err))?;
    loop {
        match told.recv_timeout(TICK) {
            Ok(lock) => return lock.map(Some).map_err(locked),
            Err(_) if board.is_over() => return Ok(None),
            Err(_) => {}
        }
    }
}

/// How long until an event is due; `None` when none waits.
fn spool_wait(spool: &mut Spool, clock: SystemClock) -> Result<Option<Duration>, Failure> {
    let looked = |err| failed("look into the spool", &err);
    if spool.outbox().waiting(EntryKind::Event).map_err(looked)? == 0 {
        return Ok(None);
    }
    let now = clock.wall();
    let next = spool.outbox().next_due(EntryKind::Event, now).map_err(looked)?;
    let until = |next: i64| Duration::from_millis(u64::try_from(next - now.0).unwrap_or(0));
    // Without a time, others are trying what there is.
    Ok(Some(next.map_or(LOOK_AGAIN, |next| until(next.0)).max(TICK)))
}

/// How long to wait for the next pass; `None` when there will be none.
fn wait(board: &Board, next: &Option<Duration>) -> Option<Duration> {
    let (next, left) = ((*next)?, board.left()?);
    (next < left && !board.is_over()).then_some(next)
}

/// Tries what is due now, each once.
fn pass(
    session: &Session,
    args: &Args,
    poster: &Poster,
    board: &Arc<Board>,
    spool: &mut Spool,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let due = spool.outbox().due_count(EntryKind::Event, board.clock.wall());
    let due = due.map_err(|err| failed("look into the spool", &err))?;
    if due == 0 {
        return Ok(());
    }
    let mut progress = Progress::new("tried", Some(args.max.map_or(due, |max| max.min(due))), !args.quiet);
    board.open();
    let watch: Arc<dyn Watch + Send> = board.clone();
    let jobs = usize::from(args.jobs).min(usize::try_from(due).unwrap_or(usize::MAX));
    let told = flush_in_parallel(&session.data, jobs, poster, &watch)
        .map_err(|err| Failure::new(Exit::TryLater, "start a thread", err))?;
    let (mut failure, mut stopped_at) = (None, None);
    loop {
        match told.recv_timeout(TICK) {
            Ok(Ok(_)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Err(err)) => failure = failure.or(Some(err)),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        hear(session, board, tally, &mut progress);
        if board.stop.is_triggered() {
            let since = *stopped_at.get_or_insert_with(|| board.clock.mono());
            if board.clock.mono().since(since) >= GRACE {
                break;
            }
        }
    }
    give_back(board, spool);
    match failure {
        Some(err) if err.is_out_of_room() => full(board, poster, spool)?,
        Some(err) => return Err(failed("flush the spool", &err)),
        None => {}
    }
    hear(session, board, tally, &mut progress);
    Ok(())
}

/// Gives back what is still being tried when nobody waits for it any more. What cannot be given back is free as soon
/// as this process has ended.
fn give_back(board: &Board, spool: &mut Spool) {
    for id in board.close() {
        let _ = spool.outbox().release(&id, Process::current());
    }
}

/// Sends what is due although the disk takes no claims and no outcomes.
fn full(board: &Arc<Board>, poster: &Poster, spool: &mut Spool) -> Result<(), Failure> {
    board.open();
    let flushed = Flusher::new(poster.clone()).flush_unclaimed(spool, &board.clock, board.as_ref());
    flushed.map_err(|err| failed("flush the spool", &err))?;
    output::warn(
        NAME,
        "no space is left to note what came of this; free some, and what was sent is sent again under the same key",
    );
    Ok(())
}

/// Says and counts what has come about since it was last asked.
fn hear(session: &Session, board: &Board, tally: &mut Tally, progress: &mut Progress) {
    for Said { id, dest, settled, is_late } in board.heard() {
        tally.unnoted -= u64::from(is_late);
        let (id, dest) = (text::visible(&id), text::visible(&dest));
        match settled {
            None => tally.unnoted += 1,
            Some(Settled::Sent(outcome)) => {
                tally.sent += 1;
                if session.verbose {
                    progress.clear();
                    output::say(format_args!("{NAME}: {id} to {dest}: {}", outcome.as_str()));
                }
            }
            Some(Settled::Waiting { next, why }) => {
                tally.retried += 1;
                if session.verbose {
                    progress.clear();
                    output::say(format_args!(
                        "{NAME}: {id} to {dest} waits until {next}: {}",
                        text::visible(&why)
                    ));
                }
            }
            Some(Settled::Dead { why, .. }) => {
                tally.dead += 1;
                progress.clear();
                output::say(format_args!("{NAME}: {id} to {dest} is dead: {}", text::visible(&why)));
            }
        }
    }
    progress.at(tally.sent + tally.dead + tally.retried + tally.unnoted);
}

fn summary(session: &Session, args: &Args, tally: &Tally, left: u64) -> Result<Exit, Failure> {
    let Tally { sent, dead, retried, unnoted } = tally;
    if !args.quiet {
        let mut out = Out::new();
        if session.json {
            let tally = json!({
                "sent": sent, "dead": dead, "failed": retried, "unnoted": unnoted, "waiting": left,
            });
            writeln!(out, "{tally}")?;
        } else {
            write!(out, "sent {sent}, dead {dead}, failed for now {retried}, waiting {left}")?;
            if *unnoted > 0 {
                write!(out, ", not noted {unnoted}")?;
            }
            writeln!(out)?;
        }
        out.finish()?;
    }
    Ok(if left > 0 { Exit::TryLater } else { Exit::Ok })
}
