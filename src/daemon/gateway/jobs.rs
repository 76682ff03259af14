//! The jobs of one conversation, one after the other, on a thread of its own while there are some.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use serde_json::json;

use super::super::{DaemonError, spawn};
use super::environment::Call;
use super::stdout::Watch;
use super::{Gateway, Sink, locked};
use crate::proto::admission::Key;
use crate::proto::assistant::{Outcome, shape};
use crate::proto::local::{LocalEvent, SessionId};
use crate::store::home::assistant::Conversation;

/// What a message asks for.
#[derive(Debug)]
pub(super) enum Task {
    /// A run of the dispatcher, with this text.
    Run(String),
    /// A new session of the dispatcher.
    NewSession,
    /// A command of the operating system.
    Command(Vec<String>),
    /// The command that was parked.
    Confirm,
}

impl Task {
    /// Whether it is about a command of the operating system.
    pub(super) fn is_command(&self) -> bool {
        matches!(self, Self::Command(_) | Self::Confirm)
    }
}

/// A trigger that was taken.
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) session: SessionId,
    pub(super) source: &'static str,
    pub(super) actor: String,
    pub(super) sink: Arc<dyn Sink>,
    /// Ends when its client was told that it was taken.
    pub(super) is_announced: Receiver<()>,
}

impl Job {
    fn reply(&self, text: String) {
        let _ = self.is_announced.recv();
        self.sink.event(LocalEvent::Reply { session: self.session.clone(), text });
    }
}

impl Watch for Client<'_> {
    fn typing(&self) {
        self.sink.event(LocalEvent::Typing { session: self.session.clone() });
    }

    fn line(&self, line: &str) {
        self.sink.event(LocalEvent::ReplyDelta { session: self.session.clone(), line: line.to_owned() });
    }
}

/// Whoever waits for a run.
struct Client<'a> {
    sink: &'a dyn Sink,
    session: &'a SessionId,
}

impl Gateway {
    /// Begins conversations as they are told, for as long as this gateway is there.
    ///
    /// # Errors
    /// When there is no thread for that.
    pub(super) fn begin_all(&self, to_begin: Receiver<Key>) -> Result<(), DaemonError> {
        let me = self.me.clone();
        let work = move || {
            for key in to_begin {
                let Some(gateway) = me.upgrade() else { return };
                if let Err(err) = Arc::clone(&gateway).begin(key.clone()) {
                    gateway.give_up(&key, &err.to_string());
                }
            }
        };
        spawn("gateway", &self.engine.host.stop.clone(), work).map(drop)
    }

    /// Begins to work for a conversation. Its end is not waited for by its handle, but by that of the conversation.
    fn begin(self: Arc<Self>, key: Key) -> Result<(), DaemonError> {
        let stop = self.engine.host.stop.clone();
        spawn("run", &stop, move || self.work(&key)).map(drop)
    }

    fn work(&self, key: &Key) {
        loop {
            let next = {
                let mut admission = locked(&self.admission);
                let next = admission.next(key);
                if next.is_none() {
                    self.idle.notify_all();
                }
                next
            };
            match next {
                Some(job) => self.serve(job),
                None => return,
            }
        }
    }

    fn serve(&self, mut job: Job) {
        if self.is_closed.load(Ordering::Acquire) {
            return self.too_late(job);
        }
        let text = match std::mem::replace(&mut job.task, Task::NewSession) {
            Task::Run(text) => self.run(&job, &text),
            Task::NewSession => self.new_session(&job),
            Task::Command(words) => self.command(&job, words),
            Task::Confirm => self.confirm(&job),
        };
        job.reply(text);
    }

    fn run(&self, job: &Job, text: &str) -> String {
        // What it says comes behind what its client was told first.
        let _ = job.is_announced.recv();
        let session = job.session.as_str();
        let payload = json!({ "session_id": session, "text": text }).to_string();
        let call =
            Call { source: job.source, session, actor: &job.actor, reply_to: session, payload: &payload };
        let client = Client { sink: &*job.sink, session: &job.session };
        self.engine.run(&self.dispatcher, &call, &client).reply
    }

    fn new_session(&self, job: &Job) -> String {
        let of = Conversation { source: job.source, session: job.session.as_str() };
        match self.engine.home.begin_anew(of, self.engine.host.wall()) {
            Ok(()) => "A new session begins with the next message.".to_owned(),
            Err(err) => {
                tracing::error!(%err, "could not begin a new session");
                format!("Could not begin a new session: {err}")
            }
        }
    }

    /// A trigger that was taken, and is not begun any more.
    fn too_late(&self, job: Job) {
        let why = "the daemon is stopping";
        let text = match &job.task {
            Task::Command(words) => super::bang::not_started(words, &why),
            _ => self.not_run(why),
        };
        job.reply(text);
    }

    fn not_run(&self, why: &str) -> String {
        shape(&self.dispatcher, &Outcome::NotRun(why.to_owned()), self.engine.limits().reply_bytes())
    }

    /// Answers for a conversation that nobody can work for.
    fn give_up(&self, key: &Key, why: &str) {
        tracing::error!(why, "could not begin a conversation");
        while let Some(job) = { locked(&self.admission).next(key) } {
            let text = self.not_run(why);
            job.reply(text);
        }
        self.idle.notify_all();
    }
}
