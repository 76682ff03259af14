//! One Worker process in the hands of whoever simulates the world around it.
//!
//! Everything is the real thing but what touches the machine: its clock is a [`FakeClock`], its ledger is
//! [stepped](crate::store::ledger::stepped), its connections are [`Conn`]s whose frames are handed over as text, and
//! its timers and tasks run when they are told to. One thread does all of it, so that a run can be told again.
//! Dropping a [`Process`] is its death.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use futures_util::FutureExt;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tower::ServiceExt;

use super::app::{App, Shared, lock, router};
use super::callback::{self, Post};
use super::clocks::Clocks;
use super::link::{Doing, Heard, Link};
use super::links::Owner;
use super::notes::Notes;
use super::sweep::{self, Round};
use super::{Limits, WorkerError, retain};
use crate::clock::{Clock, Mono, Wall};
use crate::net::fetch;
use crate::proto::Close;
use crate::proto::wire::close;
use crate::store::StoreError;
use crate::store::ledger::retention::Keep;
use crate::store::ledger::sources::check_key;
use crate::store::ledger::{Db, ServeLock};
use crate::store::seal::MasterKey;

/// A clock that stands still until it is moved. Clones are the same clock.
#[derive(Clone, Default)]
pub struct FakeClock(Arc<Mutex<Times>>);

#[derive(Default)]
struct Times {
    mono: Mono,
    wall: Wall,
    /// When something that waits wants to be looked at.
    timers: BTreeSet<Mono>,
}

impl FakeClock {
    /// A clock at this time.
    pub fn new(wall: Wall) -> Self {
        Self(Arc::new(Mutex::new(Times { wall, ..Times::default() })))
    }

    /// Lets time pass until `mono`. Time that was before passes not at all.
    pub fn pass(&self, mono: Mono) {
        let mut times = lock(&self.0);
        let passed = mono.since(times.mono);
        times.mono = times.mono + passed;
        times.wall = times.wall + passed;
    }

    /// Somebody sets the wall clock, by so many milliseconds.
    pub fn step_wall(&self, ms: i64) {
        let mut times = lock(&self.0);
        times.wall = Wall(times.wall.0 + ms);
    }

    /// When something wants to be looked at that waits by this clock, if it is still to come.
    fn next_timer(&self) -> Option<Mono> {
        let mut times = lock(&self.0);
        let now = times.mono;
        times.timers.retain(|&at| at > now);
        times.timers.first().copied()
    }

    pub(super) async fn within<T>(&self, longest: Duration, what: impl Future<Output = T>) -> Option<T> {
        let until = self.mono() + longest;
        let mut what = pin!(what);
        poll_fn(|cx| {
            if let Poll::Ready(done) = what.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            let mut times = lock(&self.0);
            if times.mono >= until {
                return Poll::Ready(None);
            }
            times.timers.insert(until);
            Poll::Pending
        })
        .await
    }
}

impl Clock for FakeClock {
    fn mono(&self) -> Mono {
        lock(&self.0).mono
    }

    fn wall(&self) -> Wall {
        lock(&self.0).wall
    }
}

/// A connection of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conn(u64);

/// A request over HTTP that is not answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked(u64);

/// What a link can be made to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// What the ledger and the calls have answered.
    Notes,
    /// What others have ordered.
    Orders,
    /// The clock.
    Time,
}

/// What came of letting a link speak.
#[derive(Debug, Default)]
pub struct Spoken {
    /// The frames that it wrote, in their order.
    pub frames: Vec<String>,
    /// How it wants its connection to end.
    pub end: Option<Close>,
}

/// An answer over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Which request it answers.
    pub asked: Asked,
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// One task; requests answer something, calls do not.
type Task = Pin<Box<dyn Future<Output = Option<Answered>>>>;

struct Open {
    link: Link,
    notes: Arc<Notes>,
}

/// A Worker.
pub struct Process {
    app: App,
    router: Router,
    clock: FakeClock,
    links: BTreeMap<Conn, Open>,
    tasks: Vec<Task>,
    /// The latest round of what time does.
    round: Option<Round>,
    /// Numbers connections and requests.
    count: u64,
    /// Gives library code that asks for one a runtime; nothing ever runs on it.
    runtime: Runtime,
    /// Nobody wishes it to stop.
    _stop: watch::Sender<bool>,
    _lock: ServeLock,
}

impl Process {
    /// Starts on the ledger at `database`, as `serve` does.
    ///
    /// # Errors
    /// When the ledger cannot be had.
    pub fn start(database: &Path, key: MasterKey, clock: &FakeClock) -> Result<Self, WorkerError> {
        let lock = ServeLock::take(database)?;
        let db = Db::open_stepped(database)?;
        db.read(|tx| check_key(tx, &key))?;
        let (stop, stopping) = watch::channel(false);
        let mut shared = Shared::new(db, key, Limits::default(), stopping);
        shared.clock = Clocks::Fake(clock.clone());
        let app = Arc::new(shared);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        Ok(Self {
            router: router(app.clone(), true),
            app,
            clock: clock.clone(),
            links: BTreeMap::new(),
            tasks: Vec::new(),
            round: None,
            count: 0,
            runtime: runtime.map_err(WorkerError::Runtime)?,
            _stop: stop,
            _lock: lock,
        })
    }

    /// Its ledger.
    pub fn db(&self) -> &Db {
        &self.app.db
    }

    /// A daemon connects with this token. `None`: it is not let in.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn connect(&mut self, token: &str) -> Result<Option<Conn>, StoreError> {
        let Some(owner) = Owner::of_token(&self.app, token)? else { return Ok(None) };
        let (link, notes) = Link::new(self.app.clone(), owner);
        self.count += 1;
        let conn = Conn(self.count);
        self.links.insert(conn, Open { link, notes });
        Ok(Some(conn))
    }

    /// A text frame of the daemon has arrived.
    pub fn frame(&mut self, conn: Conn, text: &str) {
        if let Some(open) = self.links.get_mut(&conn) {
            open.link.hear(Heard::Text(text));
        }
    }

    /// The daemon's goodbye has arrived.
    pub fn goodbye(&mut self, conn: Conn) {
        if let Some(open) = self.links.get_mut(&conn) {
            open.link.hear(Heard::Fault(close::GOING_AWAY, ""));
        }
    }

    /// The connection is gone, by its end or by an error.
    pub fn gone(&mut self, conn: Conn, end: Option<&Close>) {
        if let Some(open) = self.links.remove(&conn) {
            open.link.gone(end);
        }
    }

    /// The connections for which there is something to look at, and what.
    pub fn stirred(&self) -> Vec<(Conn, Look)> {
        let now = self.clock.mono();
        let mut stirred = Vec::new();
        for (&conn, open) in &self.links {
            stirred.extend((!open.notes.is_empty()).then_some((conn, Look::Notes)));
            stirred.extend(open.link.handle().has_orders().then_some((conn, Look::Orders)));
            stirred.extend((open.link.wake_at() <= now).then_some((conn, Look::Time)));
        }
        stirred
    }

    /// It is to stop in order: nothing more is read, and every link ends once what it has read is answered.
    pub fn stop(&mut self) {
        self.links.values_mut().for_each(|open| open.link.stop());
    }

    /// Whether every link has ended and every request is answered.
    pub fn is_done(&self) -> bool {
        self.links.is_empty() && self.tasks.is_empty()
    }

    /// Removes what is settled for long enough, as a server does from time to time. Answers how many rows are gone.
    ///
    /// # Errors
    /// When the ledger cannot be used.
    pub fn retain(&self, keep: Keep) -> Result<u64, StoreError> {
        retain::sweep_now(&self.app, keep)
    }

    /// Lets a link look at something.
    pub fn look(&mut self, conn: Conn, look: Look) {
        let Some(open) = self.links.get_mut(&conn) else { return };
        match look {
            Look::Notes => {
                open.notes.take().into_iter().for_each(|note| open.link.note(note));
            }
            Look::Orders => open.link.obey(),
            Look::Time => open.link.time(),
        }
    }

    /// Lets a link do and say what it has to.
    pub fn speak(&mut self, conn: Conn) -> Spoken {
        let mut spoken = Spoken::default();
        let Some(open) = self.links.get_mut(&conn) else { return spoken };
        while let Some(doing) = open.link.next() {
            match doing {
                Doing::Write(text) => spoken.frames.push(text),
                Doing::Answer(call) => self.tasks.push(Box::pin(call.answer().map(|()| None))),
                Doing::End(end) => {
                    spoken.end = Some(end);
                    return spoken;
                }
            }
        }
        open.link.written();
        spoken
    }

    /// Posts to a path of this Worker.
    ///
    /// # Panics
    /// When path or headers are none that HTTP knows.
    pub fn post(&mut self, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Asked {
        self.count += 1;
        let asked = Asked(self.count);
        let request =
            headers.iter().fold(Request::post(path), |head, (name, value)| head.header(*name, *value));
        let request = request.body(Body::from(body)).expect("whoever simulates posts what can be posted");
        let answer = self.router.clone().oneshot(request);
        self.tasks.push(Box::pin(async move {
            let Ok(answer) = answer.await;
            let status = answer.status().as_u16();
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.ok()?.to_vec();
            Some(Answered { asked, status, body })
        }));
        asked
    }

    /// Lets requests and calls go on, and takes the answers that there are.
    pub fn run_tasks(&mut self) -> Vec<Answered> {
        let _entered = self.runtime.enter();
        let mut answers = Vec::new();
        self.tasks.retain_mut(|task| match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => true,
            Poll::Ready(answer) => {
                answers.extend(answer);
                false
            }
        });
        answers
    }

    /// When the first link or call wants to look at the clock.
    pub fn wake_at(&self) -> Option<Mono> {
        let links = self.links.values().map(|open| open.link.wake_at());
        links.chain(self.clock.next_timer()).min()
    }

    /// Does what time alone does, in a round of its own.
    ///
    /// # Errors
    /// When the ledger cannot be used.
    pub fn sweep(&mut self) -> Result<(), StoreError> {
        let round = match self.round {
            Some(before) => before.next(&self.app, false),
            None => Round::first(&self.app),
        };
        self.round = Some(round);
        sweep::sweep(&self.app, round)
    }

    /// Whether there may be replies to post.
    pub fn is_poked(&self) -> bool {
        self.app.callbacks.poked().now_or_never().is_some()
    }

    /// The replies that are due, and when to look for more.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn due_posts(&self) -> Result<(Vec<DuePost>, Duration), StoreError> {
        let (due, look_again) = callback::due(&self.app)?;
        Ok((due.into_iter().map(DuePost).collect(), look_again))
    }

    /// Posts a reply to where `through` takes it, and records what came of it.
    pub fn post_reply(
        &self,
        post: &DuePost,
        through: impl FnOnce(&fetch::Request<'_>) -> Result<fetch::Answer, fetch::FetchError>,
    ) {
        post.0.attempt(&self.app, through);
    }
}

/// A reply that is to be posted.
pub struct DuePost(Post);

impl DuePost {
    /// The organisation and the delivery that it answers.
    pub fn key(&self) -> (String, String) {
        self.0.key()
    }
}
