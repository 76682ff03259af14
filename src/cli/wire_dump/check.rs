//! `--check`: what is found about the frames, one line each.

use std::collections::BTreeSet;
use std::io::Write;

use serde::Serialize;

use super::filter::Filter;
use super::input::{Place, Sink};
use super::{NAME, json_line};
use crate::cli::output::{self, Exit, Failure, Out};
use crate::proto::dump::Line;
use crate::proto::dump::check::{Checker, Finding, Level, REMEMBERED};
use crate::text;

/// Informations that are told apart; each is told once.
const INFORMATIONS: usize = 1024;

/// Checks every line, and tells what it finds about those that are meant.
pub(super) struct Check<'a> {
    checker: Checker,
    filter: Filter<'a>,
    out: Out,
    json: bool,
    verbose: bool,
    told: BTreeSet<String>,
    frames: u64,
    matched: u64,
    faults: u64,
}

#[derive(Serialize)]
struct Found<'a> {
    file: &'a str,
    line: u64,
    level: &'static str,
    rule: &'static str,
    text: &'a str,
}

impl<'a> Check<'a> {
    pub(super) fn new(out: Out, filter: Filter<'a>, json: bool, verbose: bool) -> Self {
        let (checker, told) = (Checker::new(), BTreeSet::new());
        Self { checker, filter, out, json, verbose, told, frames: 0, matched: 0, faults: 0 }
    }

    fn tell(&mut self, place: Place<'_>, finding: &Finding) -> Result<(), Failure> {
        let Finding { level, rule, text } = finding;
        let level = match level {
            Level::Fault => {
                self.faults += 1;
                "fault"
            }
            Level::Info => {
                let is_new = self.told.len() < INFORMATIONS && self.told.insert(format!("{rule} {text}"));
                if !is_new {
                    return Ok(());
                }
                "info"
            }
        };
        if self.json {
            let found = Found { file: place.file, line: place.line, level, rule, text };
            return Ok(writeln!(self.out, "{}", json_line(&found))?);
        }
        let mark = if level == "info" { "info: " } else { "" };
        let line = format!("{place}: {mark}{rule}: {text}");
        Ok(writeln!(self.out, "{}", text::visible(&line))?)
    }
}

impl Sink for Check<'_> {
    fn line(&mut self, place: Place<'_>, line: &Line<'_>) -> Result<(), Failure> {
        self.frames += 1;
        let is_meant = self.filter.takes(line);
        self.matched += u64::from(is_meant);
        let found: Vec<Finding> = self.checker.check(line).collect();
        for finding in found.iter().filter(|_| is_meant) {
            self.tell(place, finding)?;
        }
        Ok(())
    }

    fn bad(&mut self, place: Place<'_>, rule: &'static str, why: &str) -> Result<(), Failure> {
        let finding = Finding { level: Level::Fault, rule, text: why.to_owned() };
        self.tell(place, &finding)
    }

    fn idle(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }

    fn finish(&mut self) -> Result<Exit, Failure> {
        self.out.flush()?;
        let unjudged = self.checker.unjudged();
        if unjudged > 0 {
            output::warn(
                NAME,
                format_args!(
                    "{unjudged} answers were not judged: their frames are missing or more than {REMEMBERED} back"
                ),
            );
        }
        if self.verbose {
            output::say(format_args!("{NAME}: checked {} lines, found {} faults", self.frames, self.faults));
        }
        let is_no = self.faults > 0 || self.matched == 0 && !self.filter.is_open();
        Ok(if is_no { Exit::No } else { Exit::Ok })
    }
}
