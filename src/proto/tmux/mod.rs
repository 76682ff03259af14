//! One envelope on its way into a program in a tmux pane, step by step.
//!
//! ```text
//! look ── copy mode, another program ─────────────► held
//!  │   └─ a line that its terminal cannot take ───► refused, before a byte is typed
//! read the screen ── somebody's draft ────────────► held
//!  │               └─ our own text, unsent ───────► Enter, then watch
//! paste, wait a little, Enter (again, if it did nothing)
//!  │
//! watch the transcript, or the screen if there is none ── nothing ─► refused, to be tried once more
//! ```
//!
//! tmux brackets the paste when the program has asked for that. Nothing here asks the program anything: what is known
//! in the end is what stands on its screen or in its transcript, and the verdict says which.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::proto::composer::{self, Composer, Kind};
use crate::proto::herdr::{Needle, Searched};
use crate::text;

/// Wait between a paste and Enter: a program that is still reading takes the Enter for a part of the paste.
const SETTLE: Duration = Duration::from_millis(300);
/// Wait between two looks at the screen.
const POLL: Duration = Duration::from_millis(500);
/// Looks at a program that shows nothing of it.
const POLLS: u32 = 30;
/// Looks after which Enter is pressed once more on a text that still stands in the composer.
const POLLS_BEFORE_ENTER: u32 = 4;
/// Looks into a transcript, which is often written at the end of a turn.
const POLLS_OF_TRANSCRIPT: u32 = 240;
/// Longest line that a terminal takes whose program reads line by line, in bytes without the newline; the kernel
/// drops the rest.
pub const CANONICAL_BYTES: usize = 4_095;

/// A pane as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pane {
    /// The person scrolls, or is in another mode of tmux's.
    pub in_mode: bool,
    /// The program in the foreground is the one that envelopes are for.
    pub is_program: bool,
    /// Its terminal hands over line by line, and cuts long ones.
    pub is_canonical: bool,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Look at the pane; tell [`Told::Pane`].
    Look,
    /// Read the screen, with its colours; tell [`Told::Screen`].
    Read,
    /// Look for the envelope in the transcript; tell [`Told::Searched`].
    Search,
    /// Paste this text, unless the person is in a mode; tell [`Told::Done`].
    Paste(String),
    /// Press Enter, unless the person is in a mode; tell [`Told::Done`].
    Enter,
    /// Wait so long; tell [`Told::Waited`].
    Wait(Duration),
    /// It is over.
    Over(Verdict),
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The pane.
    Pane(Pane),
    /// What it shows.
    Screen(String),
    /// What the transcript says.
    Searched(Searched),
    /// Whether it was done; not, when the person went into a mode just before.
    Done(bool),
    /// The time is over.
    Waited,
}

/// How it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is in the program's transcript.
    Kept,
    /// It was typed, and the screen shows it or that it was taken.
    Seen,
    /// Nothing was typed, because of the person at the pane or of the program in it.
    Held(Hold),
    /// It did not arrive as far as can be told.
    Refused {
        /// Why, as a stable word.
        code: &'static str,
        /// Whether another attempt can succeed.
        retryable: bool,
    },
}

/// What an envelope waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// A person is typing.
    Draft,
    /// A person scrolls.
    Mode,
    /// Another program is in the foreground: what is typed would go to that.
    Program,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Look,
    SearchFirst,
    Guard,
    Paste,
    Settle,
    Enter,
    Watch,
    WatchSearch,
    WatchRead,
    Over(Verdict),
}

/// What is to be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The delivery.
    pub id: String,
    /// The rendered transit/1 text.
    pub envelope: String,
    /// The program, if its composer is known.
    pub kind: Option<Kind>,
    /// There is a transcript, so that only it proves anything.
    pub has_transcript: bool,
    /// It was typed before, and not seen.
    pub was_typed: bool,
}

/// The machine. Make each [`step`](Self::step) and tell it what came of it, until it is over.
#[derive(Debug)]
pub struct Typing {
    job: Job,
    needle: Needle,
    text: String,
    stage: Stage,
    has_typed: bool,
    enters: u32,
    polls: u32,
}

impl Typing {
    /// An envelope that is due.
    pub fn new(job: Job) -> Self {
        let needle = Needle::of(&job.id, &job.envelope);
        // Whatever an envelope holds, nothing of it is for the terminal itself: no escape ends the paste.
        let text = text::body(&job.envelope).into_owned();
        Self { job, needle, text, stage: Stage::Look, has_typed: false, enters: 0, polls: 0 }
    }

    /// What to look for in a transcript.
    pub fn needle(&self) -> &Needle {
        &self.needle
    }

    /// The delivery.
    pub fn id(&self) -> &str {
        &self.job.id
    }

    /// Whether anything was typed.
    pub fn has_typed(&self) -> bool {
        self.has_typed
    }

    /// What is to be done now.
    pub fn step(&self) -> Step {
        match &self.stage {
            Stage::Look => Step::Look,
            Stage::SearchFirst | Stage::WatchSearch => Step::Search,
            Stage::Guard | Stage::WatchRead => Step::Read,
            Stage::Paste => Step::Paste(self.text.clone()),
            Stage::Settle => Step::Wait(SETTLE),
            Stage::Enter => Step::Enter,
            Stage::Watch => Step::Wait(POLL),
            Stage::Over(verdict) => Step::Over(*verdict),
        }
    }

    /// Takes what came of the step.
    pub fn told(&mut self, told: Told) {
        let stage = std::mem::replace(&mut self.stage, Stage::Watch);
        self.stage = match (stage, told) {
            (Stage::Look, Told::Pane(pane)) => self.looked(&pane),
            (Stage::SearchFirst, Told::Searched(Searched::Found)) => Stage::Over(Verdict::Kept),
            (Stage::SearchFirst, Told::Searched(_)) => Stage::Guard,
            (Stage::Guard, Told::Screen(screen)) => self.guarded(&screen),
            (Stage::Paste, Told::Done(true)) => {
                self.has_typed = true;
                Stage::Settle
            }
            (Stage::Paste, Told::Done(false)) => Stage::Over(Verdict::Held(Hold::Mode)),
            (Stage::Settle, Told::Waited) => Stage::Enter,
            (Stage::Enter, Told::Done(is_done)) => {
                self.enters += u32::from(is_done);
                Stage::Watch
            }
            (Stage::Watch, Told::Waited) => self.watch(),
            (Stage::WatchSearch, Told::Searched(Searched::Found)) => Stage::Over(Verdict::Kept),
            (Stage::WatchSearch, Told::Searched(_)) => self.again(POLLS_OF_TRANSCRIPT, "transcript_timeout"),
            (Stage::WatchRead, Told::Screen(screen)) => self.watched(&screen),
            (stage, _) => stage,
        };
    }

    fn looked(&self, pane: &Pane) -> Stage {
        let longest = self.text.split('\n').map(str::len).max().unwrap_or(0);
        if pane.in_mode {
            Stage::Over(Verdict::Held(Hold::Mode))
        } else if !pane.is_program {
            Stage::Over(Verdict::Held(Hold::Program))
        } else if pane.is_canonical && longest > CANONICAL_BYTES {
            Stage::Over(Verdict::Refused { code: "line_too_long", retryable: false })
        } else if self.job.has_transcript {
            Stage::SearchFirst
        } else {
            Stage::Guard
        }
    }

    fn composer(&self, screen: &str) -> Option<Composer> {
        match self.job.kind {
            Some(kind) => composer::find(kind, screen),
            None => composer::find_any(screen),
        }
    }

    fn guarded(&mut self, screen: &str) -> Stage {
        let is_on = self.needle.is_on(&composer::plain(screen));
        match self.composer(screen) {
            Some(composer) if composer.is_envelope() && composer.holds(&self.job.id) => {
                self.has_typed = true;
                Stage::Enter
            }
            Some(composer) if !composer.is_empty() => Stage::Over(Verdict::Held(Hold::Draft)),
            // It was typed before this program was started anew, or before its ack was lost.
            _ if is_on && !self.job.has_transcript => Stage::Over(Verdict::Seen),
            _ => Stage::Paste,
        }
    }

    fn watch(&mut self) -> Stage {
        if self.enters == 0 {
            return Stage::Enter;
        }
        if self.job.has_transcript { Stage::WatchSearch } else { Stage::WatchRead }
    }

    fn watched(&mut self, screen: &str) -> Stage {
        let is_on = self.needle.is_on(&composer::plain(screen));
        match self.composer(screen) {
            Some(composer) if composer.is_empty() => return Stage::Over(Verdict::Seen),
            Some(composer) if composer.holds(&self.job.id) || composer.is_paste_mark() => {
                if self.polls >= POLLS_BEFORE_ENTER && self.enters < 2 {
                    self.polls += 1;
                    return Stage::Enter;
                }
            }
            _ if is_on => return Stage::Over(Verdict::Seen),
            _ => {}
        }
        self.again(POLLS, "not_seen")
    }

    fn again(&mut self, most: u32, code: &'static str) -> Stage {
        self.polls += 1;
        if self.polls < most {
            return Stage::Watch;
        }
        // Typed twice and never seen: a third time would do no better.
        Stage::Over(Verdict::Refused { code, retryable: !self.job.was_typed })
    }
}

/// Whether nothing of a person's is in the way any more.
pub fn is_free(kind: Option<Kind>, pane: &Pane, screen: &str) -> bool {
    let found = match kind {
        Some(kind) => composer::find(kind, screen),
        None => composer::find_any(screen),
    };
    !pane.in_mode
        && pane.is_program
        && found.is_none_or(|composer| composer.is_empty() || composer.is_envelope())
}
