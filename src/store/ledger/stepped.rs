//! A ledger whose commits are made one by one, by whoever simulates a Worker: where each commit lies, and where the
//! process dies.
//!
//! It is the same writer with the same rules (groups, savepoints, a group that runs twice), on the calling thread.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::connection::{self, Turnstile};
use super::space::Space;
use super::writer::{Job, Queue, Writer};
use super::{COMMIT_GROUP, Db, Inner, StoreError, Through, Work, checkpoint, migrations};

/// Where in a commit the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The changes were made, and are undone: nothing is kept, nobody is answered.
    Before,
    /// The changes are kept, and nobody is answered.
    After,
}

/// How much room there is on the disk of a stepped ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Disk {
    /// Enough.
    #[default]
    Free,
    /// So little that nothing new is taken.
    Tight,
    /// None: a commit that needs a new page fails, but for those that the ballast makes room for.
    Full,
}

/// Pages that the ballast of a simulated disk makes room for.
const BALLAST_PAGES: u32 = 16;

/// The writer of a stepped ledger.
pub(super) struct Steps(Mutex<State>);

struct State {
    writer: Writer,
    jobs: Vec<Box<dyn Job>>,
    /// Commits until the process dies, and where.
    crash: Option<(u64, Crash)>,
    died: Option<Crash>,
    /// There is room to give up when the disk is full.
    has_ballast: bool,
}

impl Steps {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Db {
    /// Opens the ledger at `path` without any thread. What is submitted waits until [`step`](Self::step) commits it;
    /// [`write`](Self::write) does so by itself. Nothing is synced to the disk: processes die here, machines do not.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_stepped(path: &Path) -> Result<Self, StoreError> {
        let turnstile = Arc::new(Turnstile::open(path)?);
        let mut writer = connection::open(path)?;
        writer.pragma_update(None, "synchronous", "OFF").map_err(|err| StoreError::sql(path, err))?;
        migrations::run(&mut writer, path)?;
        let work = Arc::new(Work::new());
        let through = Arc::new(Through::new());
        let space = Arc::new(Space::of(path));
        let writer = Writer::new(
            (writer, path),
            COMMIT_GROUP,
            turnstile.clone(),
            space.clone(),
            checkpoint::Watch::unheard(space.clone()),
            (work.clone(), through.clone()),
        )?;
        let state = State { writer, jobs: Vec::new(), crash: None, died: None, has_ballast: false };
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            queue: Arc::new(Queue::default()),
            work,
            readers: Mutex::default(),
            stepped: Some(Steps(Mutex::new(state))),
            turnstile,
            space,
            checkpointer: None,
            writer: None,
            through,
        })))
    }

    /// How many changes wait for a commit, and whether somebody waits for one of them.
    pub fn waiting(&self) -> (usize, bool) {
        self.0.queue.waiting()
    }

    /// Lets the process die in its `n`th commit from now; the next one is the first.
    pub fn crash_at(&self, n: u64, place: Crash) {
        if let Some(steps) = &self.0.stepped {
            steps.lock().crash = Some((n.max(1), place));
        }
    }

    /// The room on the disk is another from now on.
    ///
    /// # Panics
    /// When the engine does not take a limit.
    pub fn set_disk(&self, disk: Disk) {
        let Some(steps) = &self.0.stepped else { return };
        let mut state = steps.lock();
        let limited = state.writer.limit_growth((disk == Disk::Full).then_some(0));
        limited.expect("a limit on pages is none on rows");
        state.has_ballast = disk == Disk::Full;
        self.0.space.set_tight(disk != Disk::Free);
    }

    /// Whether the process has died. What it does from now on does not count: no change is made any more.
    pub fn is_dead(&self) -> bool {
        self.died().is_some()
    }

    /// Where in a commit the process has died.
    pub fn died(&self) -> Option<Crash> {
        self.0.stepped.as_ref().and_then(|steps| steps.lock().died)
    }

    /// Makes one commit of what waits, as many changes as a group holds, and answers them. Answers how many were
    /// committed; of a ledger with a thread of its own, none.
    pub fn step(&self) -> usize {
        self.0.stepped.as_ref().map_or(0, |steps| steps.lock().step(&self.0.queue))
    }

    /// For a caller who waits for its change.
    pub(super) fn step_until_idle(&self) {
        while self.0.stepped.is_some() && self.waiting().0 > 0 {
            self.step();
        }
    }
}

impl State {
    fn step(&mut self, queue: &Queue) -> usize {
        queue.take_now(&mut self.jobs);
        if self.died.is_some() {
            self.jobs.clear();
        }
        if self.jobs.is_empty() {
            return 0;
        }
        let (ran, made) = self.writer.make(&mut self.jobs);
        let crash = self.crash.as_mut().and_then(|(left, place)| {
            *left -= 1;
            (*left == 0).then_some(*place)
        });
        if crash == Some(Crash::Before) {
            self.writer.roll_back();
            return self.die(Crash::Before, 0);
        }
        let mut outcome = made.and_then(|()| self.writer.commit(ran));
        let mut ran = ran;
        if outcome.as_ref().is_err_and(|err| self.writer.is_full(err)) && self.give_up_ballast() {
            (ran, outcome) = self.writer.attempt(&mut self.jobs);
        }
        let committed = if outcome.is_ok() { ran } else { 0 };
        if crash == Some(Crash::After) {
            return self.die(Crash::After, committed);
        }
        self.writer.answer(&mut self.jobs, ran, outcome);
        committed
    }

    /// Whether that has made room.
    fn give_up_ballast(&mut self) -> bool {
        std::mem::take(&mut self.has_ballast) && self.writer.limit_growth(Some(BALLAST_PAGES)).is_ok()
    }

    fn die(&mut self, place: Crash, committed: usize) -> usize {
        self.died = Some(place);
        self.jobs.clear();
        committed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::store::ledger::directory;

    #[test]
    fn a_full_disk_takes_what_the_ballast_has_room_for_and_then_nothing_until_it_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open_stepped(&dir.path().join("w.db")).unwrap();
        let name = "x".repeat(3_000);
        let found = |db: &Db, n: u32| {
            let (slug, name) = (format!("o{n}").parse().unwrap(), name.clone());
            db.write(move |tx| directory::create_org(tx, &slug, &name)).map(drop)
        };
        assert!(db.has_room());
        db.set_disk(Disk::Full);
        assert!(!db.has_room());
        let taken = (0..1_000).find(|n| found(&db, *n).is_err()).unwrap();
        assert!((1..=u32::from(u8::MAX)).contains(&taken), "{taken}");
        assert!(matches!(found(&db, taken), Err(StoreError::Full { .. })));
        db.set_disk(Disk::Free);
        assert!(db.has_room() && found(&db, taken).is_ok());
    }

    #[test]
    fn a_crash_keeps_all_of_a_group_or_nothing_and_answers_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.db");
        for (place, url, kept) in
            [(Crash::Before, "http://a", None), (Crash::After, "http://b", Some("http://b"))]
        {
            let db = Db::open_stepped(&path).unwrap();
            let (tell, told) = mpsc::channel();
            for done in [tell.clone(), tell] {
                db.submit(move |tx| directory::set_public_url(tx, url), move |_| done.send(()).unwrap());
            }
            db.crash_at(1, place);
            assert_eq!((db.waiting(), db.is_dead()), ((2, true), false));
            assert_eq!(db.step(), if kept.is_some() { 2 } else { 0 });
            assert!(db.is_dead() && told.recv().is_err());
            assert!(matches!(db.write(|_| Ok(())), Err(StoreError::Closed)));
            drop(db);
            let after = Db::open_stepped(&path).unwrap();
            assert_eq!(after.read(directory::public_url).unwrap().as_deref(), kept);
        }
    }
}
