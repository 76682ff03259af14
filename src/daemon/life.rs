//! What the main thread does while the others serve: history that has outlived its use goes, a SIGHUP is obeyed, and
//! the service manager is told that the daemon lives, for as long as it does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::host::Host;
use super::{near, orders};
use crate::clock::{Ages, Mono};
use crate::limits;
use crate::net::dial::timespec;
use crate::net::service;
use crate::net::wake::Wake;
use crate::store::StoreError;
use crate::store::spool::Spool;

/// How often what has outlived its use is looked for, at least and at most.
const HOUSEKEEPING: Duration = Duration::from_secs(3600);
const HOUSEKEEPING_AGAIN: Duration = Duration::from_secs(60);

/// Does all this until the daemon stops.
pub(super) fn run(host: &Arc<Host>, mut spool: Spool, hangup: &Wake, wake: &Wake) {
    let (watchdog, ages) = (service::watchdog(), Ages::new());
    let (mut clean_at, mut pet_at) = (host.now(), watchdog.map(|_| host.now()));
    while !host.stop.is_triggered() {
        let now = host.now();
        if now >= clean_at {
            clean_at = now + clean(host, &mut spool, &ages);
        }
        if let (Some(at), Some(period)) = (pet_at, watchdog)
            && now >= at
        {
            pet(host, now);
            pet_at = Some(now + period);
        }
        let next = pet_at.map_or(clean_at, |at| at.min(clean_at));
        if is_hung_up(hangup, wake, next.since(host.now())) {
            // What is wrong with the configuration is logged there, and the old one stands.
            let _ = orders::reload(host);
        }
    }
}

/// Ends what has waited for too long, and forgets old history. Answers when to do it again.
fn clean(host: &Host, spool: &mut Spool, ages: &Ages) -> Duration {
    let mut cleaned = || -> Result<Duration, StoreError> {
        let now = host.wall();
        near::end_overdue(host, spool, ages.before(limits::DELIVERY_TTL, now))?;
        let settled = ages.before(limits::HISTORY_KEEP, now);
        spool.forget(settled, ages.before(limits::DELIVERY_TTL, now))?;
        spool.outbox().forget_sent(settled)?;
        let next = spool.next_overdue()?.map(|at| Duration::from_millis(at.0.abs_diff(now.0)));
        Ok(next.map_or(HOUSEKEEPING, |wait| wait.clamp(HOUSEKEEPING_AGAIN, HOUSEKEEPING)))
    };
    cleaned().unwrap_or_else(|err| {
        tracing::error!(%err, "could not forget old history");
        HOUSEKEEPING
    })
}

/// Tells the service manager that the daemon lives, if all of it does, and asks its threads for their next beat.
fn pet(host: &Host, now: Mono) {
    let silent = host.pulses.silent(now);
    if silent.is_empty() {
        service::notify_alive();
    } else {
        tracing::error!(threads = silent.join(", "), "a thread does not go round any more");
    }
    host.pulses.ask();
}

/// Waits; answers whether there was a SIGHUP.
fn is_hung_up(hangup: &Wake, wake: &Wake, longest: Duration) -> bool {
    let mut fds = [PollFd::new(hangup, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
    if poll(&mut fds, Some(&timespec(longest))).is_err() {
        return false;
    }
    let is_hung_up = !fds[0].revents().is_empty();
    hangup.clear();
    wake.clear();
    is_hung_up
}

/// The threads that must go round for the daemon to live.
#[derive(Debug, Default)]
pub(super) struct Pulses(Mutex<Vec<Arc<Pulse>>>);

/// The beat of one thread.
#[derive(Debug)]
pub(super) struct Pulse {
    name: &'static str,
    wake: Wake,
    has_beaten: AtomicBool,
    /// Until when it may be silent, in milliseconds of the monotonic clock.
    excused: AtomicU64,
}

impl Pulses {
    /// A thread that goes round whenever `wake` is given, at least.
    pub(super) fn add(&self, name: &'static str, wake: Wake) -> Arc<Pulse> {
        let (has_beaten, excused) = (AtomicBool::new(true), AtomicU64::new(0));
        let pulse = Arc::new(Pulse { name, wake, has_beaten, excused });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&pulse));
        pulse
    }

    fn all(&self) -> Vec<Arc<Pulse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks every thread for a beat.
    fn ask(&self) {
        for pulse in self.all() {
            pulse.has_beaten.store(false, Ordering::Release);
            pulse.wake.wake();
        }
    }

    /// Those that have not gone round since they were asked, and have no excuse.
    fn silent(&self, now: Mono) -> Vec<&'static str> {
        let is_silent = |pulse: &Arc<Pulse>| {
            !pulse.has_beaten.load(Ordering::Acquire) && pulse.excused.load(Ordering::Acquire) < millis(now)
        };
        self.all().iter().filter(|pulse| is_silent(pulse)).map(|pulse| pulse.name).collect()
    }
}

impl Pulse {
    /// The thread goes round.
    pub(super) fn beat(&self) {
        self.has_beaten.store(true, Ordering::Release);
    }

    /// What the thread begins now has a deadline of its own; it may be silent until then.
    pub(super) fn excuse(&self, until: Mono) {
        self.excused.store(millis(until), Ordering::Release);
    }
}

fn millis(at: Mono) -> u64 {
    u64::try_from(at.0.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_silent_that_was_asked_and_neither_beats_nor_has_an_excuse() {
        let at = |s| Mono(Duration::from_secs(s));
        let (pulses, wake) = (Pulses::default(), Wake::new().unwrap());
        let (one, two) = (pulses.add("one", wake.clone()), pulses.add("two", wake));
        assert!(pulses.silent(at(1)).is_empty(), "nobody was asked yet");
        pulses.ask();
        one.beat();
        assert_eq!(pulses.silent(at(2)), ["two"]);
        two.excuse(at(10));
        assert!(pulses.silent(at(9)).is_empty());
        assert_eq!(pulses.silent(at(11)), ["two"]);
        two.beat();
        assert!(pulses.silent(at(11)).is_empty());
        pulses.ask();
        assert_eq!(pulses.silent(at(11)), ["one", "two"]);
    }
}
