//! `--stats`: the dump in numbers.

use std::io::{self, Write};

use super::filter::Filter;
use super::input::{Place, Sink};
use super::{NAME, json_line};
use crate::cli::output::{self, Exit, Failure, Out};
use crate::proto::dump::Line;
use crate::proto::dump::tally::{Report, Tally, TimeReport, WAITING};
use crate::text::visible;

/// Ids without an answer that are named to people.
const NAMED: usize = 10;

/// Counts what the filter takes.
pub(super) struct Stats<'a> {
    tally: Tally,
    filter: Filter<'a>,
    json: bool,
    bad: u64,
    out: Out,
}

impl<'a> Stats<'a> {
    pub(super) fn new(out: Out, filter: Filter<'a>, json: bool) -> Self {
        Self { tally: Tally::new(), filter, json, bad: 0, out }
    }
}

impl Sink for Stats<'_> {
    fn line(&mut self, _: Place<'_>, line: &Line<'_>) -> Result<(), Failure> {
        self.tally.take(line, self.filter.takes(line));
        Ok(())
    }

    fn bad(&mut self, place: Place<'_>, _: &'static str, why: &str) -> Result<(), Failure> {
        self.bad += 1;
        super::say_bad(place, why);
        Ok(())
    }

    fn idle(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn finish(&mut self) -> Result<Exit, Failure> {
        let report = self.tally.report();
        let out = &mut self.out;
        if self.json {
            writeln!(out, "{}", json_line(&report))?;
        } else {
            print(out, &report)?;
        }
        out.flush()?;
        if report.forgotten > 0 {
            output::warn(
                NAME,
                format_args!(
                    "{} questions were forgotten: more than {WAITING} waited at once",
                    report.forgotten
                ),
            );
        }
        Ok(match () {
            () if self.bad > 0 => Exit::Data,
            () if report.frames + report.notes == 0 && !self.filter.is_open() => Exit::No,
            () => Exit::Ok,
        })
    }
}

fn print(out: &mut impl Write, report: &Report) -> io::Result<()> {
    write!(out, "{} frames, {} bytes", report.frames, report.bytes)?;
    if let Some(seconds) = report.seconds {
        write!(out, ", {seconds:.3} s")?;
    }
    if let Some(rate) = report.frames_per_second {
        write!(out, ", {rate:.1} frames/s")?;
    }
    if report.notes > 0 {
        write!(out, ", {} notes", report.notes)?;
    }
    writeln!(out)?;
    if let (Some(first), Some(last)) = (&report.first, &report.last) {
        writeln!(out, "{first} to {last}")?;
    }
    if !report.kinds.is_empty() {
        writeln!(out, "\n{:>10} {:>14}  {:<16} T", "FRAMES", "BYTES", "DIRECTION")?;
    }
    for kind in &report.kinds {
        let dir = if kind.dir.is_empty() { "-" } else { &kind.dir };
        let t = if kind.t.is_empty() { "-" } else { &kind.t };
        writeln!(out, "{:>10} {:>14}  {:<16} {}", kind.frames, kind.bytes, visible(dir), visible(t))?;
    }
    if !report.times.is_empty() {
        writeln!(
            out,
            "\n{:<24} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}",
            "ANSWERS (ms)", "ANSWERED", "MIN", "P50", "P99", "MAX", "REFUSED", "UNANSWERED"
        )?;
    }
    report.times.iter().try_for_each(|time| print_time(out, time))?;
    report.times.iter().try_for_each(|time| print_waiting(out, time))
}

fn print_time(out: &mut impl Write, time: &TimeReport) -> io::Result<()> {
    let ms = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string());
    let whose = if time.proto == "transit-agent/1" { " (agent)" } else { "" };
    writeln!(
        out,
        "{:<24} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}",
        format!("{} > {}{whose}", time.from, time.to),
        time.answered,
        ms(time.min_ms),
        ms(time.p50_ms),
        ms(time.p99_ms),
        ms(time.max_ms),
        time.refused,
        time.unanswered
    )
}

fn print_waiting(out: &mut impl Write, time: &TimeReport) -> io::Result<()> {
    if time.unanswered == 0 {
        return Ok(());
    }
    writeln!(out, "\n{} without {}:", time.from, time.to)?;
    for name in time.waiting.iter().take(NAMED) {
        writeln!(out, "  {}", visible(name))?;
    }
    match time.unanswered.saturating_sub(NAMED as u64) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
}
