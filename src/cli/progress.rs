//! One line on a terminal's stderr about work that takes long: how much is done, how fast, and how long it will take.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// What takes less needs no line.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often the line changes.
const PACE: Duration = Duration::from_millis(200);

/// A line that is there only while there is something to say.
#[derive(Debug)]
pub(super) struct Progress {
    what: &'static str,
    total: Option<u64>,
    began: Instant,
    drawn: Option<Instant>,
    is_wanted: bool,
}

impl Progress {
    /// A line about `what`, of which `total` are to be done, if that is known. It is shown on a terminal only, and
    /// only when `is_wanted`.
    pub(super) fn new(what: &'static str, total: Option<u64>, is_wanted: bool) -> Self {
        let can_move = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        let is_wanted = is_wanted && can_move && io::stderr().is_terminal();
        Self { what, total, began: Instant::now(), drawn: None, is_wanted }
    }

    /// So many of so many are done.
    pub(super) fn of(&mut self, done: u64, total: u64) {
        self.total = Some(total);
        self.at(done);
    }

    /// So many are done.
    pub(super) fn at(&mut self, done: u64) {
        if !self.is_wanted {
            return;
        }
        let spent = self.began.elapsed();
        if spent < PATIENCE || self.drawn.is_some_and(|at| at.elapsed() < PACE) {
            return;
        }
        // Nothing can be done about a stderr that is closed.
        let _ = write!(io::stderr().lock(), "\r{}\x1b[K", line(self.what, done, self.total, spent));
        self.drawn = Some(Instant::now());
    }

    /// Takes the line away, so that something else can be said.
    pub(super) fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn line(what: &str, done: u64, total: Option<u64>, spent: Duration) -> String {
    // Precise enough for a glance.
    let rate = done as f64 / spent.as_secs_f64().max(0.001);
    let Some(total) = total else { return format!("{what}: {done}, {rate:.0}/s") };
    let left = total.saturating_sub(done) as f64 / rate.max(0.001);
    let left = if done == 0 || left > 359_999.0 { String::new() } else { format!(", {left:.0} s left") };
    format!("{what}: {done} of {total}, {rate:.0}/s{left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_how_fast_and_how_long() {
        let spent = Duration::from_secs(4);
        assert_eq!(line("sent", 8, Some(20), spent), "sent: 8 of 20, 2/s, 6 s left");
        assert_eq!(line("sent", 0, Some(20), spent), "sent: 0 of 20, 0/s");
        assert_eq!(line("exported", 400, None, spent), "exported: 400, 100/s");
        assert_eq!(line("sent", 30, Some(20), Duration::ZERO), "sent: 30 of 20, 30000/s, 0 s left");
    }
}
