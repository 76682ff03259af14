//! What a doctor finds: one line each, and for every fault the way out.

use serde_json::{Value, json};

use super::output::{Exit, Failure, Out};
use crate::text;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// It is sound.
    Ok,
    /// Nothing is wrong, but somebody may want to know.
    Note,
    /// It is to be mended.
    Wrong,
    /// Data is damaged.
    Damaged,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Wrong => "wrong",
            Self::Damaged => "damaged",
        }
    }

    fn exit(self) -> Exit {
        match self {
            Self::Ok | Self::Note => Exit::Ok,
            Self::Wrong => Exit::No,
            Self::Damaged => Exit::Io,
        }
    }
}

/// Everything that was looked at, in its order.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

#[derive(Debug)]
struct Finding {
    check: &'static str,
    level: Level,
    text: String,
    hint: Option<String>,
}

impl Findings {
    /// `check` is sound, and what was seen.
    pub(super) fn ok(&mut self, check: &'static str, text: impl Into<String>) {
        self.0.push(Finding { check, level: Level::Ok, text: text.into(), hint: None });
    }

    /// Something else was seen, and what can be done about it.
    pub(super) fn add(
        &mut self,
        level: Level,
        check: &'static str,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.0.push(Finding { check, level, text: text.into(), hint: Some(hint.into()) });
    }

    /// A fault, and how it is mended.
    pub(super) fn wrong(&mut self, check: &'static str, text: impl Into<String>, hint: impl Into<String>) {
        self.add(Level::Wrong, check, text, hint);
    }

    /// No fault, and what can be done all the same.
    pub(super) fn note(&mut self, check: &'static str, text: impl Into<String>, hint: impl Into<String>) {
        self.add(Level::Note, check, text, hint);
    }

    /// Prints all of it; the exit is that of the worst.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn print(&self, json: bool) -> Result<Exit, Failure> {
        use std::io::Write;
        let mut out = Out::new();
        for finding in &self.0 {
            if json {
                out.json(&finding.record())?;
            } else {
                writeln!(out, "{}", text::visible(&finding.line()))?;
            }
        }
        out.finish()?;
        Ok(self.0.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok).exit())
    }
}

impl Finding {
    fn record(&self) -> Value {
        json!({ "check": self.check, "level": self.level.as_str(), "text": self.text, "hint": self.hint })
    }

    fn line(&self) -> String {
        let hint = self.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
        format!("{:<8} {:<9} {}{hint}", self.level.as_str(), self.check, self.text)
    }
}
