//! One envelope on its way into one pane, step by step.
//!
//! ```text
//! look ── blocked, gone ──────────────────────────► held, failed
//!  │
//! search the transcript ── it is there ───────────► shown
//!  │
//! guard: read the screen ── somebody's draft ─────► held
//!  │                     └─ our own text, unsent ─► Enter, then watch
//! prompt ── Herdr has seen the agent take it ─────► shown, once the transcript has it
//!  │     └─ blocked meanwhile ────────────────────► held
//! stalled, timed out, no answer: search again; look; read the screen;
//!        our own text still there ────────────────► Enter, then watch
//! watch the transcript, the agent's state and the screen ── nothing ─► failed, to be tried again
//! ```
//!
//! At most one prompt and one Enter ever leave this machine. A text that may have been typed is never typed again
//! while the screen or the transcript can show that it was.

use std::time::Duration;

use serde_json::Value;

use super::frames::{Agent, Fault, Request, Status, pane_text};
use super::needle::Needle;
use crate::proto::composer::{self, Composer, Kind};
use crate::text;

/// Wait between two looks at an agent that has been told something.
const POLL: Duration = Duration::from_secs(1);
/// Looks at an agent that does nothing.
const POLLS: u32 = 15;
/// Looks at an agent that works: what it was told may wait for the end of its turn.
const POLLS_WORKING: u32 = 15 * 60;

/// What is to be delivered, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The delivery.
    pub id: String,
    /// The rendered transit/1 text.
    pub envelope: String,
    /// The pane.
    pub pane_id: String,
    /// The terminal that was in it when the agent was found; empty when that is not known.
    pub terminal_id: String,
    /// The program that was in it.
    pub kind: String,
    /// Whether a draft keeps the envelope back.
    pub guard: bool,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Make this request; tell [`Told::Answer`].
    Ask(Request),
    /// Look for the envelope at the end of this file; tell [`Told::Searched`].
    Search(String),
    /// Wait so long; tell [`Told::Waited`].
    Wait(Duration),
    /// It is over.
    Done(Verdict),
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// Herdr's result, or why there is none.
    Answer(Result<Value, Fault>),
    /// What the transcript says.
    Searched(Searched),
    /// The time is over.
    Waited,
}

/// What the end of a transcript says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Searched {
    /// The envelope is there.
    Found,
    /// It is not.
    Absent,
    /// There is no transcript that can be read.
    Unreadable,
}

/// How a delivery ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The agent has it.
    Shown(Proof),
    /// Nothing was typed, because of the person at the pane. It costs no attempt.
    Held(Hold),
    /// It is not there as far as can be told.
    Failed {
        /// Why, as a stable word.
        code: String,
    },
}

/// How it is known that the agent has it, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Its transcript has it.
    Transcript,
    /// Herdr has seen the agent begin or end a turn with it, and there is no transcript to look into.
    State,
    /// The screen shows it, and no longer as something unsent; there is no transcript to look into.
    Screen,
}

/// What an envelope waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// A person is typing.
    Draft,
    /// The agent asks the person something, or is only being started.
    Blocked,
}

/// Why a step is made.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Look,
    SearchFirst,
    Guard,
    GuardStyled,
    /// Enter, for a text of ours that was found unsent: of this delivery, or of another one.
    EnterFound {
        is_this: bool,
    },
    Settle,
    Prompt,
    SearchStalled,
    LookStalled,
    ReadStalled,
    EnterStalled {
        with_draft: bool,
    },
    Notify,
    Watch,
    WatchSearch,
    WatchLook,
    ReadLast,
    /// The prompt was refused; the transcript has the last word.
    SearchLast,
    Done(Verdict),
}

/// The machine. Make each [`step`](Self::step) and tell it what came of it, until it is done.
#[derive(Debug)]
pub struct Delivery {
    job: Job,
    needle: Needle,
    stage: Stage,
    /// The agent as it was looked at last, and as it was before anything was typed.
    transcript: Option<String>,
    before: Option<(Status, u64)>,
    /// The transcript can be read, so that only it proves anything.
    has_transcript: bool,
    /// What went wrong with the prompt.
    code: String,
    /// Herdr has seen the agent take the prompt.
    is_taken: bool,
    has_entered: bool,
    /// A text of another delivery was found unsent and sent.
    has_cleared: bool,
    polls: u32,
    idle_polls: u32,
}

impl Delivery {
    /// A delivery that begins.
    pub fn new(job: Job) -> Self {
        let needle = Needle::of(&job.id, &job.envelope);
        Self {
            job,
            needle,
            stage: Stage::Look,
            transcript: None,
            before: None,
            has_transcript: false,
            code: String::new(),
            is_taken: false,
            has_entered: false,
            has_cleared: false,
            polls: 0,
            idle_polls: 0,
        }
    }

    /// What to look for in a transcript.
    pub fn needle(&self) -> &Needle {
        &self.needle
    }

    /// What is to be done now.
    pub fn step(&self) -> Step {
        let pane = &self.job.pane_id;
        match &self.stage {
            Stage::Look | Stage::LookStalled | Stage::WatchLook => Step::Ask(Request::agent(pane)),
            Stage::Guard | Stage::ReadStalled | Stage::ReadLast => Step::Ask(Request::read(pane)),
            Stage::GuardStyled => Step::Ask(Request::read_styled(pane)),
            Stage::EnterFound { .. } | Stage::EnterStalled { .. } => Step::Ask(Request::enter(pane)),
            // Whatever an envelope holds, nothing of it is for the terminal itself: no escape ends the paste.
            Stage::Prompt => Step::Ask(Request::prompt(pane, &text::body(&self.job.envelope))),
            Stage::Notify => Step::Ask(Request::notify(
                "A draft was sent along with a message",
                "A message for this agent had been typed into what you were writing. Both were submitted together.",
            )),
            Stage::SearchFirst | Stage::SearchStalled | Stage::WatchSearch | Stage::SearchLast => {
                Step::Search(self.transcript.clone().unwrap_or_default())
            }
            Stage::Settle | Stage::Watch => Step::Wait(POLL),
            Stage::Done(verdict) => Step::Done(verdict.clone()),
        }
    }

    /// Takes what came of the step.
    pub fn told(&mut self, told: Told) {
        let stage = std::mem::replace(&mut self.stage, Stage::Watch);
        self.stage = match (stage, told) {
            (Stage::Look, Told::Answer(answer)) => self.looked(answer),
            (Stage::SearchFirst, Told::Searched(searched)) => match self.searched(searched) {
                Searched::Found => shown(Proof::Transcript),
                _ => Stage::Guard,
            },
            (Stage::Guard, Told::Answer(answer)) => self.guarded(answer),
            (Stage::GuardStyled, Told::Answer(answer)) => self.guarded_styled(answer),
            (Stage::EnterFound { is_this }, Told::Answer(answer)) => self.entered_found(answer, is_this),
            (Stage::Settle, Told::Waited) => Stage::Look,
            (Stage::Prompt, Told::Answer(answer)) => self.prompted(answer),
            (Stage::SearchStalled, Told::Searched(searched)) => match self.searched(searched) {
                Searched::Found => shown(Proof::Transcript),
                _ => Stage::LookStalled,
            },
            (Stage::LookStalled, Told::Answer(answer)) => self.looked_stalled(answer),
            (Stage::ReadStalled, Told::Answer(answer)) => self.read_stalled(answer),
            (Stage::EnterStalled { with_draft }, Told::Answer(answer)) => self.entered(answer, with_draft),
            (Stage::Notify, Told::Answer(_)) => Stage::Watch,
            (Stage::Watch, Told::Waited) => self.search_or(Stage::WatchSearch, Stage::WatchLook),
            (Stage::WatchSearch, Told::Searched(searched)) => match self.searched(searched) {
                Searched::Found => shown(Proof::Transcript),
                Searched::Unreadable if self.is_taken => shown(Proof::State),
                _ => Stage::WatchLook,
            },
            (Stage::WatchLook, Told::Answer(answer)) => self.watched(answer),
            (Stage::ReadLast, Told::Answer(answer)) => self.read_last(answer),
            (Stage::SearchLast, Told::Searched(searched)) => match self.searched(searched) {
                Searched::Found => shown(Proof::Transcript),
                _ => failed(&self.code),
            },
            (stage, _) => stage,
        };
    }

    fn searched(&mut self, searched: Searched) -> Searched {
        self.has_transcript = searched != Searched::Unreadable;
        searched
    }

    fn search_or(&self, search: Stage, otherwise: Stage) -> Stage {
        if self.transcript.is_some() { search } else { otherwise }
    }

    /// The agent in an answer, if it is still the one that was found; else what that means.
    fn agent(&mut self, answer: Result<Value, Fault>) -> Result<Agent, Stage> {
        let agent = match answer {
            Ok(result) => Agent::of(&result).ok_or_else(|| failed("herdr_unavailable"))?,
            Err(fault) => return Err(failed(&code_of(&fault))),
        };
        let is_same = |mine: &str, its: &str| mine.is_empty() || its.is_empty() || mine == its;
        if !is_same(&self.job.terminal_id, &agent.terminal_id) || !is_same(&self.job.kind, &agent.kind) {
            return Err(failed(GONE));
        }
        if agent.transcript.is_some() {
            self.transcript.clone_from(&agent.transcript);
        }
        Ok(agent)
    }

    fn looked(&mut self, answer: Result<Value, Fault>) -> Stage {
        let agent = match self.agent(answer) {
            Ok(agent) => agent,
            Err(stage) => return stage,
        };
        if agent.is_held() {
            return Stage::Done(Verdict::Held(Hold::Blocked));
        }
        self.before = Some((agent.status, agent.seq));
        self.search_or(Stage::SearchFirst, Stage::Guard)
    }

    fn composer(&self, screen: &str) -> Option<Composer> {
        composer::find(Kind::of(&self.job.kind)?, screen)
    }

    fn guarded(&mut self, answer: Result<Value, Fault>) -> Stage {
        let result = match answer {
            Err(fault) if fault.is_gone() => return failed(GONE),
            // Keeping everything back because a screen cannot be read would be worse than what the guard prevents.
            Err(_) => return Stage::Prompt,
            Ok(result) => result,
        };
        let screen = pane_text(&result).unwrap_or_default();
        let is_on = self.needle.is_on(screen);
        match self.composer(screen) {
            None if is_on => Stage::EnterFound { is_this: true },
            None => Stage::Prompt,
            Some(composer) if composer.is_empty() && is_on && !self.has_transcript => shown(Proof::Screen),
            Some(composer) if composer.is_empty() => Stage::Prompt,
            Some(composer) if composer.is_envelope() => {
                let is_this = composer.holds(&self.job.id);
                if self.has_cleared {
                    Stage::Done(Verdict::Held(Hold::Draft))
                } else {
                    Stage::EnterFound { is_this }
                }
            }
            Some(composer) if composer.is_end_of_envelope() && !self.has_cleared => {
                Stage::EnterFound { is_this: false }
            }
            // It is in there already, in the middle of what somebody writes: never a second time.
            Some(composer) if composer.holds(&self.job.id) => Stage::Done(Verdict::Held(Hold::Draft)),
            Some(_) if !self.job.guard => Stage::Prompt,
            Some(_) => Stage::GuardStyled,
        }
    }

    /// The text may be a suggestion of the program's that nobody has typed; with its colours that can be told.
    fn guarded_styled(&self, answer: Result<Value, Fault>) -> Stage {
        let composer = answer.ok().and_then(|result| self.composer(pane_text(&result)?));
        match composer {
            Some(composer) if composer.is_empty() => Stage::Prompt,
            _ => Stage::Done(Verdict::Held(Hold::Draft)),
        }
    }

    fn entered_found(&mut self, answer: Result<Value, Fault>, is_this: bool) -> Stage {
        if let Err(fault) = answer {
            return failed(&code_of(&fault));
        }
        if is_this {
            self.has_entered = true;
            STALLED.clone_into(&mut self.code);
            return Stage::Watch;
        }
        self.has_cleared = true;
        Stage::Settle
    }

    fn prompted(&mut self, answer: Result<Value, Fault>) -> Stage {
        let fault = match answer {
            Ok(result) => {
                if let Some(transcript) = Agent::of(&result).and_then(|agent| agent.transcript) {
                    self.transcript = Some(transcript);
                }
                self.is_taken = true;
                "transcript_timeout".clone_into(&mut self.code);
                return self.search_or(Stage::WatchSearch, shown(Proof::State));
            }
            Err(fault) => fault,
        };
        self.code = code_of(&fault);
        match &fault {
            // Nothing went out.
            Fault::Unavailable(_) => failed(&self.code),
            Fault::Lost(_) => self.search_or(Stage::SearchStalled, Stage::LookStalled),
            Fault::Refused { code, .. } => match code.as_str() {
                "agent_blocked" | "agent_launch_pending" => Stage::Done(Verdict::Held(Hold::Blocked)),
                STALLED | TIMEOUT | "agent_prompt_failed" | "agent_not_running" => {
                    self.search_or(Stage::SearchStalled, Stage::LookStalled)
                }
                _ => self.search_or(Stage::SearchLast, failed(&self.code)),
            },
        }
    }

    /// Whether the agent has begun something since before the prompt. One that was at work then begins other things
    /// of itself.
    fn has_moved(&self, agent: &Agent) -> bool {
        self.before.is_some_and(|(status, seq)| status != Status::Working && agent.seq != seq)
    }

    fn looked_stalled(&mut self, answer: Result<Value, Fault>) -> Stage {
        let agent = match self.agent(answer) {
            Ok(agent) => agent,
            Err(stage) => return stage,
        };
        if self.has_moved(&agent) {
            return if self.has_transcript { Stage::Watch } else { shown(Proof::State) };
        }
        // Enter would answer the question.
        if agent.is_held() { Stage::Done(Verdict::Held(Hold::Blocked)) } else { Stage::ReadStalled }
    }

    fn read_stalled(&mut self, answer: Result<Value, Fault>) -> Stage {
        let result = match answer {
            Err(fault) if fault.is_gone() => return failed(GONE),
            Err(_) => return Stage::Watch,
            Ok(result) => result,
        };
        let screen = pane_text(&result).unwrap_or_default();
        let is_on = self.needle.is_on(screen);
        match self.composer(screen) {
            Some(composer) if composer.is_empty() && is_on && !self.has_transcript => shown(Proof::Screen),
            Some(composer) if composer.is_envelope() || composer.is_paste_mark() => {
                Stage::EnterStalled { with_draft: false }
            }
            // What was typed is among somebody's words, and cannot be taken out again.
            Some(composer) if composer.is_end_of_envelope() => Stage::EnterStalled { with_draft: false },
            Some(composer) if composer.holds(&self.job.id) => Stage::EnterStalled { with_draft: true },
            Some(_) => Stage::Watch,
            None if is_on => Stage::EnterStalled { with_draft: false },
            None => Stage::Watch,
        }
    }

    fn entered(&mut self, answer: Result<Value, Fault>, with_draft: bool) -> Stage {
        if let Err(fault) = answer {
            return failed(&code_of(&fault));
        }
        self.has_entered = true;
        if with_draft { Stage::Notify } else { Stage::Watch }
    }

    fn watched(&mut self, answer: Result<Value, Fault>) -> Stage {
        let agent = match self.agent(answer) {
            Ok(agent) => agent,
            Err(stage) => return stage,
        };
        if self.has_moved(&agent) && !self.has_transcript {
            return shown(Proof::State);
        }
        self.polls += 1;
        let is_at_work = matches!(agent.status, Status::Working | Status::Blocked);
        self.idle_polls += u32::from(!is_at_work);
        // Only a transcript is worth more patience: it has the envelope once the agent gets to it.
        let most = if self.has_transcript { POLLS_WORKING } else { POLLS };
        if self.idle_polls < POLLS && self.polls < most {
            return Stage::Watch;
        }
        if self.has_transcript { failed(&self.code) } else { Stage::ReadLast }
    }

    fn read_last(&mut self, answer: Result<Value, Fault>) -> Stage {
        let Ok(result) = answer else { return failed(&self.code) };
        let screen = pane_text(&result).unwrap_or_default();
        let is_on = self.needle.is_on(screen);
        let is_sent = match self.composer(screen) {
            // An agent whose turn has outlasted the wait shows much since.
            Some(composer) => composer.is_empty() && (is_on || self.has_entered || self.code == TIMEOUT),
            // Enter was pressed twice on what is there, and there is nothing else to ask.
            None => is_on && self.has_entered,
        };
        if is_sent { shown(Proof::Screen) } else { failed(&self.code) }
    }
}

/// The pane, or the agent in it, is not there any more.
const GONE: &str = "agent_gone";
/// Herdr has typed, and has seen nothing come of it.
const STALLED: &str = "agent_prompt_stalled";
/// Herdr has typed, and the agent has not come to an end of anything in time.
const TIMEOUT: &str = "timeout";

fn shown(proof: Proof) -> Stage {
    Stage::Done(Verdict::Shown(proof))
}

fn failed(code: &str) -> Stage {
    Stage::Done(Verdict::Failed { code: code.to_owned() })
}

/// A fault, as the sender's side may see it.
fn code_of(fault: &Fault) -> String {
    match fault {
        fault if fault.is_gone() => GONE.to_owned(),
        Fault::Refused { code, .. } => code.clone(),
        Fault::Unavailable(_) | Fault::Lost(_) => "herdr_unavailable".to_owned(),
    }
}

/// Whether a screen of this program shows nothing that a person is in the middle of.
pub fn is_free(kind: &str, screen: &str) -> bool {
    let found = Kind::of(kind).and_then(|kind| composer::find(kind, screen));
    found.is_none_or(|composer| composer.is_empty() || composer.is_envelope())
}
