//! One session that can be reached: who it is, the way to it, and the thread that serves it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::claim::{Claim, Claims};
use crate::addr::Name;
use crate::net::wake::Wake;
use crate::proto::wire::{AgentInfo, NamedBy};
use crate::store::process::Process;
use crate::store::spool::agents::{Identity, Place};
use crate::text;

/// The thread that serves one session, as others see it.
#[derive(Debug, Clone)]
pub(super) struct Mailbox {
    /// Wakes it: it looks whether rows are due, or whether it is to end.
    pub(super) wake: Wake,
    replaced: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    claims: Arc<Claims>,
    over: Arc<Mutex<Over>>,
}

/// Whether a thread has settled the last of its session, and who waits for that.
#[derive(Debug, Default)]
struct Over {
    is_over: bool,
    successors: Vec<Wake>,
}

impl Mailbox {
    pub(super) fn new(wake: Wake) -> Self {
        let (replaced, ended, claims, over) = Default::default();
        Self { wake, replaced, ended, claims, over }
    }

    /// Asks the thread to give its session another name; nothing is answered once the session is over.
    pub(super) fn claim(&self, name: Name) -> Receiver<Result<Place, String>> {
        let answered = self.claims.put(name);
        self.wake.wake();
        answered
    }

    /// The names that were claimed since the last time.
    pub(super) fn take_claims(&self) -> Vec<Claim> {
        self.claims.take()
    }

    /// The thread ends: whoever still claims a name is let go.
    pub(super) fn close(&self) {
        self.claims.close();
    }

    /// Whether a newer connection has taken the session over.
    pub(super) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }

    /// Whether the session has to register again.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// A newer connection takes the session over.
    pub(super) fn replace(&self, successor: &Self) {
        self.lock_over().successors.push(successor.wake.clone());
        self.replaced.store(true, Ordering::Release);
        self.wake.wake();
    }

    /// All that the session has said is in the spool: whoever took it over can go on.
    pub(super) fn over(&self) {
        let mut over = self.lock_over();
        over.is_over = true;
        over.successors.drain(..).for_each(|successor| successor.wake());
    }

    /// Whether that is so.
    pub(super) fn is_over(&self) -> bool {
        self.lock_over().is_over
    }

    fn lock_over(&self) -> MutexGuard<'_, Over> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session has to register again.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake.wake();
    }
}

/// How a session is reached. Whatever the way is, the session's own thread drives its
/// [`Dispatch`](super::dispatch::Dispatch) with a carrier for it.
#[derive(Debug, Clone)]
pub(super) enum Way {
    /// Through the adapter that has registered it on `agent.sock`.
    Adapter {
        /// Its process, as the kernel gave it.
        process: Process,
        /// The terminal pane that it says it runs in.
        pane_id: Option<String>,
    },
    /// Through the terminal pane that its program runs in.
    Pane {
        /// The pane.
        pane_id: String,
        /// The processes that were found in it.
        processes: Vec<Process>,
    },
    /// By running the program of its manifest, once for each message. Whoever has its name besides wins.
    Program {
        /// The processes that run now.
        processes: Arc<Mutex<Vec<Process>>>,
    },
}

impl Way {
    /// The process to look at for people, if the session has one of its own.
    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Self::Adapter { process, .. } => Some(process.pid),
            Self::Pane { .. } | Self::Program { .. } => None,
        }
    }

    /// Whether another session of the same name takes its place.
    pub(super) fn gives_way(&self) -> bool {
        matches!(self, Self::Program { .. })
    }

    /// Whether what this process calls, the session calls.
    pub(super) fn owns(&self, process: &Process) -> bool {
        match self {
            Self::Adapter { process: own, .. } => own == process,
            Self::Pane { processes, .. } => processes.contains(process),
            Self::Program { processes } => {
                processes.lock().unwrap_or_else(PoisonError::into_inner).contains(process)
            }
        }
    }
}

/// One session that can be reached.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) who: Identity,
    pub(super) place: Place,
    pub(super) address: String,
    pub(super) way: Way,
    pub(super) status: String,
    pub(super) cwd: String,
    pub(super) title: String,
    pub(super) mailbox: Mailbox,
}

/// Code points of a session id in a synthetic pane id, of its beginning and where need be of its end.
const PANE_ID_RUNES: usize = 8;

impl Session {
    /// The pane that it is reached through; a made-up one for a session that runs in none.
    pub(super) fn pane_id(&self) -> String {
        if let Way::Pane { pane_id, .. } = &self.way {
            return pane_id.clone();
        }
        let begin = text::clip(&self.who.session_id, PANE_ID_RUNES);
        format!("native:{}:{begin}", self.who.harness)
    }

    /// The same with the end of the session's id, for sessions whose ids begin alike: with a time, as some do.
    pub(super) fn long_pane_id(&self) -> String {
        let rest = &self.who.session_id[text::clip(&self.who.session_id, PANE_ID_RUNES).len()..];
        let end = rest.char_indices().rev().nth(PANE_ID_RUNES - 1).map_or(rest, |(at, _)| &rest[at..]);
        self.pane_id() + end
    }

    /// Whether it is the same session, and of the same registration.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.who == other.who && self.place.generation == other.place.generation
    }

    /// What the roster says of it.
    pub(super) fn info(&self) -> AgentInfo {
        AgentInfo {
            name: self.place.name.to_string(),
            kind: self.who.harness.to_string(),
            pane_id: self.pane_id(),
            status: self.status.clone(),
            cwd: self.cwd.clone(),
            title: self.title.clone(),
            named_by: if self.place.is_auto { NamedBy::Auto } else { NamedBy::User },
        }
    }
}
