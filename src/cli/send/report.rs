//! What became of one event or message, and how a command ends after it.

use crate::cli::output::{Exit, Failure};
pub(super) use crate::cli::report::Report;
use crate::cli::ways;
use crate::daemon::events::{Outcome, Refusal, Settled, Verdict};
use crate::store::spool::outbox::State;

fn done(mut report: Report, outcome: Outcome) -> Report {
    (report.outcome, report.state, report.attempts) = (outcome.as_str().to_owned(), State::Sent.as_str(), 1);
    report
}

fn failed(mut report: Report, outcome: &str, state: &'static str, why: &str) -> Report {
    (report.outcome, report.state, report.attempts) = (outcome.to_owned(), state, 1);
    report.error = Some(why.to_owned());
    report
}

/// What became of an event, and how a command that sent only this one ends.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) report: Report,
    /// `None` is success.
    pub(super) failure: Option<Failure>,
}

impl Ended {
    /// It is safe, or taken.
    pub(super) fn well(report: Report) -> Self {
        Self { report, failure: None }
    }

    /// After an attempt at an entry of the spool.
    pub(super) fn settled(report: Report, settled: Settled) -> Self {
        match settled {
            Settled::Sent(outcome) => Self::well(done(report, outcome)),
            Settled::Waiting { next, why } => {
                let next = Some(next.to_string());
                Self::well(Report { next_attempt_at: next, ..failed(report, "spooled", "pending", &why) })
            }
            Settled::Dead { kind, why } => {
                let exit = kind.map_or(Exit::TryLater, exit_of);
                let way = match kind {
                    None => String::new(),
                    // The same bytes are refused again.
                    Some(Refusal::Rule) => format!("{}; ", ways::out_of_event(Refusal::Rule)),
                    Some(kind) => format!("{}; then transit-spool retry; ", ways::out_of_event(kind)),
                };
                let failure = Failure::new(exit, format_args!("send to {}", report.dest), &why)
                    .hint(format_args!("{way}it is kept as dead: transit-send --status {}", report.id));
                Self { report: failed(report, "dead", "dead", &why), failure: Some(failure) }
            }
        }
    }

    /// After an attempt at what nobody keeps.
    pub(super) fn unkept(report: Report, verdict: Verdict) -> Self {
        let (exit, why, way) = match verdict {
            Verdict::Done(outcome) => return Self::well(done(report, outcome)),
            Verdict::Refused { kind, why } => (exit_of(kind), why, Some(ways::out_of_event(kind))),
            Verdict::Later { why, .. } => (Exit::TryLater, why, None),
            Verdict::Misconfigured { why } => (Exit::Config, why, None),
        };
        let failure = Failure::new(exit, format_args!("send to {}", report.dest), &why).way(way);
        Self { report: failed(report, "failed", "none", &why), failure: Some(failure) }
    }
}

fn exit_of(kind: Refusal) -> Exit {
    match kind {
        Refusal::Rule => Exit::Data,
        Refusal::NoSource => Exit::NoRecipient,
        Refusal::Denied => Exit::NoPermission,
    }
}
