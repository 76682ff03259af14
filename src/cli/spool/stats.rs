//! `transit-spool stats`.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;

use clap::ValueEnum;
use serde_json::{Value, json};

use super::{Session, failed};
use crate::cli::output::{Exit, Failure, Out};
use crate::clock::Wall;
use crate::store::spool::look::Group;
use crate::store::spool::outbox::{EntryKind, State};

/// How the figures look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// A few lines for people.
    Text,
    /// One object.
    Json,
    /// The text format of Prometheus.
    Prometheus,
}

/// What is in the spool, now.
struct Figures {
    groups: Vec<Group>,
    now: Wall,
    file_bytes: u64,
}

pub(super) fn run(session: &Session, form: Option<Form>) -> Result<Exit, Failure> {
    let form = form.unwrap_or(if session.json { Form::Json } else { Form::Text });
    let look = session.look()?;
    let groups = look.as_ref().map(|look| look.groups(session.now)).transpose();
    let groups = groups.map_err(|err| failed("count the entries", &err))?.unwrap_or_default();
    let size = |look: &crate::store::spool::look::Look| {
        let mut log = look.path().as_os_str().to_owned();
        log.push("-wal");
        [look.path().as_os_str(), &log]
            .iter()
            .filter_map(|path| fs::metadata(path).ok())
            .map(|file| file.len())
            .sum()
    };
    let figures = Figures { groups, now: session.now, file_bytes: look.as_ref().map_or(0, size) };
    let text = match form {
        Form::Text => figures.text(),
        Form::Json => format!("{}\n", figures.json()),
        Form::Prometheus => figures.prometheus(),
    };
    let mut out = Out::new();
    out.write_all(text.as_bytes())?;
    out.finish()?;
    Ok(Exit::Ok)
}

impl Figures {
    fn group(&self, kind: EntryKind, state: State) -> Option<&Group> {
        self.groups.iter().find(|group| (group.kind, group.state) == (kind, state))
    }

    fn count(&self, kind: EntryKind, state: State) -> u64 {
        self.group(kind, state).map_or(0, |group| group.entries)
    }

    fn sum(&self, of: impl Fn(&Group) -> u64) -> u64 {
        self.groups.iter().map(of).sum()
    }

    /// When the oldest entry was added that waits or is being tried.
    fn oldest(&self, kind: Option<EntryKind>) -> Option<Wall> {
        self.waiting(kind).map(|group| group.oldest).min()
    }

    /// When the next entry is due that waits.
    fn next(&self, kind: Option<EntryKind>) -> Option<Wall> {
        self.waiting(kind).filter(|group| group.state == State::Pending).map(|group| group.next).min()
    }

    fn waiting(&self, kind: Option<EntryKind>) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(move |group| {
            matches!(group.state, State::Pending | State::Claimed)
                && kind.is_none_or(|kind| kind == group.kind)
        })
    }

    /// Seconds since the oldest waiting entry was added; a clock that was set back makes it no younger than now.
    fn age(&self, kind: Option<EntryKind>) -> Option<i64> {
        self.oldest(kind).map(|oldest| (self.now.0 - oldest.0).max(0) / 1000)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for kind in EntryKind::ALL {
            let counts = State::ALL.map(|state| format!("{} {}", self.count(kind, state), state.as_str()));
            line(&mut text, &format!("{}s", kind.as_str()), &counts.join(", "));
        }
        if let (Some(oldest), Some(age)) = (self.oldest(None), self.age(None)) {
            line(&mut text, "oldest waiting", &format!("{oldest} ({age} s ago)"));
        }
        if let Some(next) = self.next(None) {
            let due = if next <= self.now { " (due)" } else { "" };
            line(&mut text, "next attempt", &format!("{next}{due}"));
        }
        line(&mut text, "attempts", &self.sum(|group| group.attempts).to_string());
        line(&mut text, "bodies", &format!("{} bytes", self.sum(|group| group.bytes)));
        line(&mut text, "file", &format!("{} bytes", self.file_bytes));
        text
    }

    fn json(&self) -> Value {
        let counts = |kind| {
            let of = |state: State| (state.as_str().to_owned(), json!(self.count(kind, state)));
            Value::Object(State::ALL.into_iter().map(of).collect())
        };
        json!({
            "events": counts(EntryKind::Event),
            "messages": counts(EntryKind::Message),
            "oldest_pending_at": self.oldest(None).map(|at| at.to_string()),
            "oldest_pending_age_seconds": self.age(None),
            "next_attempt_at": self.next(None).map(|at| at.to_string()),
            "attempts": self.sum(|group| group.attempts),
            "bytes": self.sum(|group| group.bytes),
            "file_bytes": self.file_bytes,
        })
    }

    fn prometheus(&self) -> String {
        let mut text = String::new();
        let of_all = |name: &str, help: &str, text: &mut String, value: fn(&Group) -> u64| {
            head(text, name, help);
            for (kind, state) in
                EntryKind::ALL.into_iter().flat_map(|kind| State::ALL.map(|state| (kind, state)))
            {
                let value = self.group(kind, state).map_or(0, value);
                let labels = format!("state=\"{}\",kind=\"{}\"", state.as_str(), kind.as_str());
                sample(text, name, &labels, value);
            }
        };
        of_all("transit_spool_entries", "Entries in the spool.", &mut text, |group| group.entries);
        of_all("transit_spool_body_bytes", "Bytes of their bodies.", &mut text, |group| group.bytes);
        of_all("transit_spool_attempts", "Attempts that they have cost.", &mut text, |group| group.attempts);
        let name = "transit_spool_oldest_pending_age_seconds";
        head(&mut text, name, "Age of the oldest entry that waits or is being tried; 0 without one.");
        for kind in EntryKind::ALL {
            let age = self.age(Some(kind)).unwrap_or(0);
            sample(&mut text, name, &format!("kind=\"{}\"", kind.as_str()), age);
        }
        let name = "transit_spool_next_attempt_timestamp_seconds";
        head(&mut text, name, "When the next pending entry is due; no sample without one.");
        for (kind, next) in EntryKind::ALL.into_iter().filter_map(|kind| Some((kind, self.next(Some(kind))?)))
        {
            sample(&mut text, name, &format!("kind=\"{}\"", kind.as_str()), next.unix_seconds());
        }
        head(&mut text, "transit_spool_file_bytes", "Size of the database and its log.");
        sample(&mut text, "transit_spool_file_bytes", "", self.file_bytes);
        text
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    put(text, format_args!("{name:<15} {value}"));
}

fn head(text: &mut String, name: &str, help: &str) {
    put(text, format_args!("# HELP {name} {help}\n# TYPE {name} gauge"));
}

fn sample(text: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    match labels {
        "" => put(text, format_args!("{name} {value}")),
        labels => put(text, format_args!("{name}{{{labels}}} {value}")),
    }
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    // A String takes everything.
    let _ = writeln!(text, "{what}");
}
