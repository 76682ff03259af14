//! Time: the wall for people and signatures, the monotonic clock for waiting, and how long to wait.
//!
//! Protocols never ask what time it is; they are told. Only [`SystemClock`] reads the machine's clocks.

pub mod calendar;

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use calendar::Civil;

/// A point on the monotonic clock, as time since an origin that one process shares. Never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(pub Duration);

impl Mono {
    /// The time from `earlier` to here; zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Mono {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }
}

/// A point on the wall clock, in milliseconds since 1970-01-01T00:00:00Z. Stored, shown and signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Wall(pub i64);

impl Wall {
    /// Whole seconds since the epoch, as `Transit-Timestamp` has them.
    pub fn unix_seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Reads an RFC 3339 time, or Unix seconds.
    pub fn parse(text: &str) -> Option<Self> {
        if !text.is_empty() && text.len() <= 12 && text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse::<i64>().ok()?.checked_mul(1000).map(Self);
        }
        calendar::rfc3339(text)
    }

    /// Whether `text` is a time in the form of RFC 3339, date, `T`, time and offset, and in the calendar.
    pub fn is_rfc3339(text: &str) -> bool {
        let digits = |part: &str, pattern: &str| {
            part.len() == pattern.len()
                && part.bytes().zip(pattern.bytes()).all(|(b, want)| match want {
                    b'0' => b.is_ascii_digit(),
                    want => b.eq_ignore_ascii_case(&want),
                })
        };
        let Some((start, rest)) = text.split_at_checked("0000-00-00T00:00:00".len()) else { return false };
        let zone = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
        let (fraction, zone) = rest.split_at(zone);
        let fraction = fraction.is_empty()
            || fraction
                .strip_prefix('.')
                .is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
        digits(start, "0000-00-00T00:00:00")
            && fraction
            && (digits(zone, "Z") || digits(zone, "+00:00") || digits(zone, "-00:00"))
            && Self::parse(text).is_some()
    }
}

impl fmt::Display for Wall {
    /// RFC 3339 in UTC with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Civil { year, month, day, hour, minute, second, milli }) = Civil::of(*self) else {
            return write!(f, "{} ms", self.0);
        };
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

fn millis(wait: Duration) -> i64 {
    i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Wall {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(millis(wait)))
    }
}

impl Sub<Duration> for Wall {
    type Output = Self;

    fn sub(self, wait: Duration) -> Self {
        Self(self.0.saturating_sub(millis(wait)))
    }
}

/// The two clocks of a machine.
pub trait Clock: Send + Sync {
    /// The monotonic clock.
    fn mono(&self) -> Mono;
    /// The wall clock.
    fn wall(&self) -> Wall;
}

/// The clocks of this machine.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock whose monotonic origin is now.
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// How long the machine has been suspended since it was started. The monotonic clock stands still meanwhile.
    pub fn suspended(&self) -> Duration {
        use rustix::time::{ClockId, Timespec, clock_gettime};
        let read = |clock| {
            let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
            Duration::new(tv_sec.try_into().unwrap_or(0), tv_nsec.try_into().unwrap_or(0))
        };
        read(ClockId::Boottime).saturating_sub(read(ClockId::Monotonic))
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn mono(&self) -> Mono {
        Mono(self.origin.elapsed())
    }

    #[allow(clippy::disallowed_methods)] // the one place that reads the wall clock
    fn wall(&self) -> Wall {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => Wall(millis(after)),
            Err(before) => Wall(-millis(before.duration())),
        }
    }
}

/// The age of what was stamped with the wall clock, for a process during whose life that clock may be stepped.
#[derive(Debug, Clone, Copy)]
pub struct Ages {
    clock: SystemClock,
    /// The wall clock when this process began to look.
    began: Wall,
    /// How long the machine had been suspended by then.
    suspended: Duration,
}

impl Ages {
    /// Begins to look now.
    pub fn new() -> Self {
        let clock = SystemClock::new();
        Self { began: clock.wall(), suspended: clock.suspended(), clock }
    }

    /// The latest stamp that is at least this old at `now`. The machine ages while it is suspended, too.
    pub fn before(&self, age: Duration, now: Wall) -> Wall {
        let suspended = self.clock.suspended().saturating_sub(self.suspended);
        before(self.began, self.clock.mono().0 + suspended, age, now)
    }

    /// How old `stamp` is by now; `None` when it is from a clock that was ahead of the one at `now`.
    pub fn of(&self, stamp: Wall, now: Wall) -> Option<Duration> {
        age(stamp, self.began, self.clock.mono().0, now)
    }
}

impl Default for Ages {
    fn default() -> Self {
        Self::new()
    }
}

/// A step ahead makes nothing older: by the monotonic clock, what was stamped since `began` is no older than the
/// process has been `running`, and what was stamped before is older by no more than that.
fn age(stamp: Wall, began: Wall, running: Duration, now: Wall) -> Option<Duration> {
    let between =
        |from: Wall, to: Wall| u64::try_from(to.0.saturating_sub(from.0)).ok().map(Duration::from_millis);
    let at_most = between(stamp, began).unwrap_or_default() + running;
    between(stamp, now).map(|age| age.min(at_most))
}

/// The latest stamp that is of this [`age`] at least.
fn before(began: Wall, running: Duration, of_age: Duration, now: Wall) -> Wall {
    let latest = if running >= of_age { now } else { now.min(began + running) };
    latest - of_age
}

/// A wait that doubles from `first` to `cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first attempt.
    pub first: Duration,
    /// The longest wait.
    pub cap: Duration,
}

impl Backoff {
    /// Messages of the spool: 1 s doubling to 30 s.
    pub const MESSAGE: Self = Self::of(1, 30);
    /// Events of the spool: 5 s doubling to 10 min.
    pub const EVENT: Self = Self::of(5, 600);
    /// Reply callbacks: 5 s doubling to 10 min.
    pub const CALLBACK: Self = Self::of(5, 600);
    /// Deliveries that were refused or not answered: 5 s doubling to 5 min.
    pub const DELIVERY: Self = Self::of(5, 300);
    /// Connections to the Worker and to `agent.sock`: 1 s doubling to 30 s.
    pub const RECONNECT: Self = Self::of(1, 30);

    const fn of(first_s: u64, cap_s: u64) -> Self {
        Self { first: Duration::from_secs(first_s), cap: Duration::from_secs(cap_s) }
    }

    /// The wait after `attempts` attempts; none counts as one.
    pub fn after(self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.cap)
    }
}

/// The wait before an unsettled channel delivery is shown again: 5 min, four times that once it was read,
/// doubling with each attempt, at most 30 min. It never ends by itself.
pub fn channel_redelivery(attempts: u32, read: bool) -> Duration {
    let first = Duration::from_secs(if read { 1200 } else { 300 });
    Backoff { first, cap: Duration::from_secs(1800) }.after(attempts)
}

/// Reconnecting: [`Backoff::RECONNECT`] with a jitter of 0.8 to 1.2, begun anew after a good session.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reconnect {
    failures: u32,
}

/// A session that lasted this long was a good one.
const GOOD_SESSION: Duration = Duration::from_secs(60);

impl Reconnect {
    /// The wait after a session that lasted for `session` (zero when the connection never stood). `random` is
    /// uniform over all of `u32`.
    pub fn next(&mut self, session: Duration, random: u32) -> Duration {
        self.failures = if session >= GOOD_SESSION { 1 } else { self.failures.saturating_add(1) };
        let jitter = 0.8 + 0.4 * f64::from(random) / f64::from(u32::MAX);
        Backoff::RECONNECT.after(self.failures).mul_f64(jitter)
    }

    /// Forgets past failures, as an operator's `kick` asks for.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A token bucket: `rate` a second, at most `burst` at once. Time goes only forward in it.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    at: Mono,
}

impl Bucket {
    /// A full bucket.
    pub fn new(rate: u32, burst: u32, now: Mono) -> Self {
        Self { rate: f64::from(rate), burst: f64::from(burst), tokens: f64::from(burst), at: now }
    }

    /// Takes one token, or says how long it takes until there is one.
    ///
    /// # Errors
    /// The wait until a token is there.
    pub fn take(&mut self, now: Mono) -> Result<(), Duration> {
        self.tokens = (self.tokens + now.since(self.at).as_secs_f64() * self.rate).min(self.burst);
        self.at = self.at.max(now);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        let wait = if self.rate > 0.0 { (1.0 - self.tokens) / self.rate } else { 3600.0 };
        Err(Duration::from_secs_f64(wait))
    }

    /// Puts back a token that was taken and not used.
    pub fn give_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(self.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_doubles_to_its_cap() {
        let seconds: Vec<u64> = (0..9).map(|n| Backoff::MESSAGE.after(n).as_secs()).collect();
        assert_eq!(seconds, [1, 1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(Backoff::DELIVERY.after(u32::MAX), Duration::from_secs(300));
        assert_eq!(channel_redelivery(2, false), Duration::from_secs(600));
        assert_eq!(channel_redelivery(1, true), Duration::from_secs(1200));
        assert_eq!(channel_redelivery(9, true), Duration::from_secs(1800));
    }

    #[test]
    fn what_is_old_enough_is_told_by_the_wall_clock_as_far_as_it_was_not_stepped() {
        let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(86_400));
        let began = Wall(1_700_000_000_000);
        let old = |running, now| before(began, running, day, now);
        assert_eq!(old(hour, began + hour), began + hour - day);
        assert_eq!(old(hour, began + day * 365), began + hour - day, "a step ahead");
        assert_eq!(old(day, began + day * 365), began + day * 364, "it runs for as long as that by now");
        assert_eq!(old(day, began - hour), began - hour - day, "a step back");
    }

    #[test]
    fn a_step_of_the_wall_clock_makes_nothing_old() {
        let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(86_400));
        let began = Wall(1_700_000_000_000);
        let old = |stamp, running, now| age(stamp, began, running, now);
        assert_eq!(old(began - day, hour, began + hour), Some(day + hour));
        assert_eq!(old(began - day, hour, began + day * 9), Some(day + hour), "a step ahead");
        assert_eq!(
            old(began + hour, hour * 3, began + day * 9),
            Some(hour * 3),
            "the same, for a younger one"
        );
        assert_eq!(old(began + hour, hour * 3, began + hour * 3), Some(hour * 2));
        assert_eq!(old(began - day, day * 3, began - hour), Some(day - hour), "a step back");
        assert_eq!(old(began + hour, day * 3, began), None, "stamped by a clock that was ahead");
    }

    #[test]
    fn a_good_session_resets_the_reconnect_backoff() {
        let mut reconnect = Reconnect::default();
        let wait = |r: &mut Reconnect, session| {
            r.next(Duration::from_secs(session), u32::MAX / 2).as_secs_f64().round()
        };
        assert_eq!(
            [wait(&mut reconnect, 0), wait(&mut reconnect, 0), wait(&mut reconnect, 59)],
            [1.0, 2.0, 4.0]
        );
        assert_eq!(wait(&mut reconnect, 60), 1.0);
        assert_eq!(reconnect.next(Duration::ZERO, 0), Duration::from_millis(1600));
        assert_eq!(reconnect.next(Duration::ZERO, u32::MAX), Duration::from_millis(4800));
    }

    #[test]
    fn a_bucket_refills_with_time_and_never_beyond_its_burst() {
        let at = |ms| Mono(Duration::from_millis(ms));
        let mut bucket = Bucket::new(5, 2, at(0));
        assert!(bucket.take(at(0)).is_ok() && bucket.take(at(0)).is_ok());
        assert_eq!(bucket.take(at(0)), Err(Duration::from_millis(200)));
        assert!(bucket.take(at(200)).is_ok());
        assert!(bucket.take(at(100)).is_err(), "a clock that steps back gives nothing");
        assert!(bucket.take(at(60_000)).is_ok() && bucket.take(at(60_000)).is_ok());
        assert!(bucket.take(at(60_000)).is_err());
        bucket.give_back();
        assert!(bucket.take(at(60_000)).is_ok());
    }

    #[test]
    fn times_are_printed_as_rfc_3339_and_read_in_both_forms() {
        assert_eq!(Wall(1_767_225_600_123).to_string(), "2026-01-01T00:00:00.123Z");
        assert_eq!(Wall::parse("2026-01-01T01:00:00+01:00"), Some(Wall(1_767_225_600_000)));
        assert_eq!(Wall::parse("1767225600"), Some(Wall(1_767_225_600_000)));
        assert_eq!(Wall::parse("soon"), None);
        assert_eq!(Wall(-1).unix_seconds(), -1);
    }

    #[test]
    fn the_form_of_rfc_3339_is_told_from_others() {
        for text in [
            "2026-03-01T10:20:30Z",
            "2026-03-01t10:20:30.123456789z",
            "2026-03-01T10:20:30+05:30",
            "2024-02-29T23:59:59-00:00",
        ] {
            assert!(Wall::is_rfc3339(text), "{text}");
        }
        for text in [
            "",
            "1767225600",
            "2026-03-01",
            "2026-03-01 10:20:30Z",
            "2026-03-01T10:20Z",
            "2026-03-01T10:20:30",
            "2026-03-01T10:20:30.Z",
            "2026-03-01T10:20:30+0530",
            "2026-03-01T10:20:30Z[UTC]",
            "2026-02-29T10:20:30Z",
            "2026-03-01T25:20:30Z",
            "2026-03-01T10:20:3éZ",
        ] {
            assert!(!Wall::is_rfc3339(text), "{text}");
        }
    }
}
