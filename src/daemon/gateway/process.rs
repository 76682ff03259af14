//! One process of a run: begun in a group of its own, read while it works, and ended in time.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread::{Builder, Scope};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, pidfd_open, waitid,
};

use super::engine::{GRACE, Stop};
use crate::clock::{Clock, Mono, SystemClock};
use crate::net::wake::Wake;

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;
/// How long the output of a process that has ended must be silent to be over, if something else holds it open.
const QUIET: Duration = Duration::from_millis(100);
/// How long it is waited for in all then.
const QUIET_IN_ALL: Duration = Duration::from_secs(1);
/// How much is read then: more than a pipe holds.
const LAST_BYTES: usize = 1 << 20;
/// Longest time that a thread sleeps.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Takes what a process writes.
pub(super) trait Intake: Send {
    /// The next bytes. It may block, and the process feels that.
    fn bytes(&mut self, bytes: &[u8]);

    /// How often [`tick`](Self::tick) is called while the process works, from its beginning on.
    fn interval(&self) -> Option<Duration> {
        None
    }

    /// Some time has passed.
    fn tick(&mut self) {}
}

/// Why a process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It wanted to.
    Itself,
    /// It took too long.
    TimedOut,
    /// The daemon stops.
    Stopped,
}

/// A process that has ended. It was not waited for yet, so that its group still has its number.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) child: Child,
    /// The exit code, or the signal.
    pub(super) status: Result<i32, i32>,
    pub(super) why: Why,
}

impl Ended {
    /// The exit code; −1 for a death by signal.
    pub(super) fn code(&self) -> i32 {
        self.status.unwrap_or(-1)
    }
}

/// Runs a command until it ends; at its limit, or when the daemon stops, it is asked to, and killed after a while.
/// What it has started is not waited for. `begun` hears its pid.
///
/// # Errors
/// When it cannot be started.
pub(super) fn supervise(
    mut command: Command,
    limit: Duration,
    stop: &Stop,
    begun: impl FnOnce(u32),
    stdout: &mut dyn Intake,
    stderr: &mut dyn Intake,
) -> io::Result<Ended> {
    let over = Wake::new()?;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    begun(child.id());
    let group = Pid::from_child(&child);
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let why = std::thread::scope(|scope| {
        let watched = read_in(scope, "stdout", out, &over, stdout)
            .and_then(|()| read_in(scope, "stderr", err, &over, stderr))
            .and_then(|()| Ok(watch(group, &pidfd_open(group, PidfdFlags::empty())?, limit, stop)));
        if watched.is_err() {
            let _ = kill_process_group(group, Signal::KILL);
        }
        over.wake();
        watched
    });
    match why {
        Ok(why) => Ok(Ended { status: status(group), child, why }),
        Err(err) => {
            let _ = child.wait();
            Err(err)
        }
    }
}

/// Reads a pipe on a thread of its own.
fn read_in<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    pipe: Option<impl Read + AsFd + Send + 'scope>,
    over: &'scope Wake,
    intake: &'scope mut dyn Intake,
) -> io::Result<()> {
    let pipe = pipe.ok_or_else(|| io::Error::other("there is no pipe"))?;
    Builder::new().name(name.to_owned()).spawn_scoped(scope, move || pump(pipe, over, intake)).map(drop)
}

/// Waits for the end of a process, and brings it about when it is time. Answers why it has ended.
fn watch(group: Pid, ended: &OwnedFd, limit: Duration, stop: &Stop) -> Why {
    enum Stage {
        Working(Mono),
        Asked(Mono),
        Killed,
    }
    let clock = stop.clock;
    let mut stage = Stage::Working(clock.mono() + limit);
    let mut why = Why::Itself;
    let mut stop_at = None;
    loop {
        let now = clock.mono();
        stop_at = stop_at.or_else(|| stop.at());
        let next = match stage {
            Stage::Working(deadline) => Some(stop_at.map_or(deadline, |at| deadline.min(at))),
            Stage::Asked(at) => Some(at),
            Stage::Killed => None,
        };
        if next.is_some_and(|at| now >= at) {
            let signal = match stage {
                Stage::Working(deadline) => {
                    why = if now >= deadline { Why::TimedOut } else { Why::Stopped };
                    stage = Stage::Asked(now + GRACE);
                    Signal::TERM
                }
                Stage::Asked(_) | Stage::Killed => {
                    stage = Stage::Killed;
                    Signal::KILL
                }
            };
            let _ = kill_process_group(group, signal);
            continue;
        }
        let wait = next.map_or(LONGEST_WAIT, |at| at.since(now).min(LONGEST_WAIT));
        let mut watched = vec![PollFd::new(ended, PollFlags::IN)];
        if stop_at.is_none() {
            // Once the wish to stop is there, it would wake for ever.
            watched.push(PollFd::new(&stop.wake, PollFlags::IN));
        }
        if wait_for(&mut watched, wait)[0] {
            return why;
        }
    }
}

/// Hands on what comes out of a pipe, until it is closed, or silent after the end of the process.
fn pump(mut pipe: impl Read + AsFd, over: &Wake, intake: &mut dyn Intake) {
    let clock = SystemClock::new();
    let mut buffer = vec![0; CHUNK];
    let (mut is_open, mut is_over) = (true, false);
    let (mut last_bytes, mut waited) = (0, Duration::ZERO);
    let mut tick_at = intake.interval().map(|_| clock.mono());
    while is_open || !is_over {
        let now = clock.mono();
        if tick_at.is_some_and(|at| now >= at) {
            intake.tick();
            tick_at = intake.interval().map(|interval| now + interval);
        }
        let until_tick = tick_at.map_or(LONGEST_WAIT, |at| at.since(clock.mono()));
        let began = clock.mono();
        let (has_bytes, has_ended) = wait_for_either(
            is_open.then_some(&pipe),
            (!is_over).then_some(over),
            if is_over { QUIET } else { until_tick },
        );
        // What is waited for between the bytes of something that goes on writing counts too, the intake's time not.
        waited += if is_over { clock.mono().since(began) } else { Duration::ZERO };
        if has_bytes {
            let n = read(&mut pipe, &mut buffer);
            is_open = n > 0;
            intake.bytes(&buffer[..n]);
            last_bytes += if is_over { n } else { 0 };
        } else if is_over {
            is_open = false;
        }
        is_open &= waited < QUIET_IN_ALL && last_bytes < LAST_BYTES;
        is_over |= has_ended;
    }
}

/// Reads what is there; nothing when the pipe is closed, or broken.
fn read(pipe: &mut impl Read, buffer: &mut [u8]) -> usize {
    loop {
        match pipe.read(buffer) {
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Ok(n) => return n,
            Err(err) => {
                tracing::warn!(%err, "the output of a process could not be read");
                return 0;
            }
        }
    }
}

fn wait_for_either(pipe: Option<&impl AsFd>, over: Option<&Wake>, wait: Duration) -> (bool, bool) {
    let mut fds: Vec<_> = pipe.iter().map(|pipe| PollFd::new(*pipe, PollFlags::IN)).collect();
    fds.extend(over.iter().map(|over| PollFd::new(*over, PollFlags::IN)));
    let ready = wait_for(&mut fds, wait);
    let at = usize::from(pipe.is_some());
    (pipe.is_some() && ready[0], over.is_some() && ready[at])
}

/// Waits until a descriptor can be read or is closed; answers which.
fn wait_for(fds: &mut [PollFd<'_>], wait: Duration) -> Vec<bool> {
    let wait = Timespec::try_from(wait).ok();
    match poll(fds, wait.as_ref()) {
        Ok(_) => fds.iter().map(|fd| !fd.revents().is_empty()).collect(),
        // Interrupted by a signal; whoever waits looks again.
        Err(_) => vec![false; fds.len()],
    }
}

/// How a process has ended that was not waited for.
fn status(pid: Pid) -> Result<i32, i32> {
    let ended = loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(rustix::io::Errno::INTR) => {}
            waited => break waited,
        }
    };
    let ended = ended.ok().flatten();
    let signal = ended.as_ref().and_then(WaitIdStatus::terminating_signal).unwrap_or_default();
    ended.and_then(|ended| ended.exit_status()).ok_or(signal)
}
