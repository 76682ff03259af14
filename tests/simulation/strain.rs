//! What a Worker is put under besides deaths: a disk without room, stops in order, and the removal of what is settled.
//! And the laws that hold there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use transit::limits::{LOOP_LIMIT, LOOP_WINDOW};
use transit::proto::wire::close;
use transit::store::ledger::messages;
use transit::store::ledger::retention::Keep;
use transit::store::ledger::stepped::Disk;
use transit::worker::simulation::{Conn, Process};

use super::agenda::Due;
use super::host::Host;
use super::story::{DeliveryRow, Gone, MessageRow, Story};
use super::world::World;

/// Time that a Worker has for its stop.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// How long settled things stay: longer than anybody here still asks about them.
const KEEP: Keep =
    Keep { messages: Some(Duration::from_secs(600)), deliveries: Some(Duration::from_secs(3 * 3600)) };
/// An interruption counts from its commit on, which may come so much later than it is dated.
const COMMIT_MS: i64 = 10_000;

/// What is known of sends under way.
#[derive(Default)]
pub(crate) struct Strain {
    pub(crate) disk: Disk,
    /// The Worker was told to stop.
    pub(crate) is_stopping: bool,
    /// Sends that were read and not answered.
    unanswered: BTreeSet<(Conn, String)>,
    /// Those of them that came when there was no room.
    unwelcome: BTreeSet<(Conn, String)>,
}

impl World {
    /// The disk has no room for a while.
    pub(crate) fn fill_disk(&mut self) {
        self.strain.disk = if self.agenda.rng.chance(60) { Disk::Full } else { Disk::Tight };
        self.tally.full_disks += 1;
        self.set_disk();
        self.agenda.soon(40_000, Due::DiskFreed);
    }

    pub(crate) fn free_disk(&mut self) {
        self.strain.disk = Disk::Free;
        self.set_disk();
    }

    pub(crate) fn set_disk(&self) {
        if let Some(process) = &self.process {
            process.db().set_disk(self.strain.disk);
        }
    }

    /// The Worker is told to stop, and will be started again.
    pub(crate) fn stop_worker(&mut self) {
        let Some(process) = self.process.as_mut().filter(|_| !self.strain.is_stopping) else { return };
        process.stop();
        self.strain.is_stopping = true;
        self.agenda.after(STOP_WAIT, Due::Stopped { life: self.life });
    }

    /// Whether the Worker that was told to stop has ended.
    pub(crate) fn has_stopped(&self) -> bool {
        self.strain.is_stopping && self.process.as_ref().is_some_and(Process::is_done)
    }

    /// The Worker's process is no more.
    pub(crate) fn relax(&mut self) {
        let Strain { is_stopping, unanswered, unwelcome, .. } = &mut self.strain;
        *is_stopping = false;
        unanswered.clear();
        unwelcome.clear();
    }

    /// A link reads a frame.
    pub(crate) fn reads(&mut self, conn: Conn, wire: usize, text: &str) {
        let frame: Value = serde_json::from_str(text).unwrap_or_default();
        let (Some("send"), Some(id)) = (frame["t"].as_str(), frame["id"].as_str()) else { return };
        let key = (conn, id.to_owned());
        if !self.strain.unanswered.insert(key.clone()) {
            return;
        }
        let org_id = &self.orgs[self.hosts[self.wires.get(wire).host].org].id;
        let Some(db) = self.process.as_ref().map(Process::db) else { return };
        if self.strain.disk != Disk::Free && db.read(|tx| messages::known(tx, org_id, id)).unwrap().is_none()
        {
            self.strain.unwelcome.insert(key);
        }
    }

    /// A link answers a message.
    pub(crate) fn answers(&mut self, conn: Conn, id: &str, is_taken: bool) {
        let key = (conn, id.to_owned());
        self.strain.unanswered.remove(&key);
        match (self.strain.unwelcome.remove(&key), is_taken) {
            (true, true) => self.story.crammed.push(format!("message {id}")),
            (true, false) => self.story.without_room += 1,
            (false, _) => {}
        }
    }

    /// A link ends.
    pub(crate) fn ends(&mut self, conn: Conn, code: u16) {
        let left: Vec<String> =
            self.strain.unanswered.iter().filter(|one| one.0 == conn).map(|one| one.1.clone()).collect();
        self.strain.unanswered.retain(|one| one.0 != conn);
        self.strain.unwelcome.retain(|one| one.0 != conn);
        if self.strain.is_stopping && code == close::GOING_AWAY {
            match left.first() {
                Some(id) => self.story.cut_off.push(id.clone()),
                None => self.story.goodbyes += 1,
            }
        }
    }

    /// Removes what is settled for long enough, unless somebody may still ask for an answer to it.
    pub(crate) fn retain(&mut self) {
        let pause = Duration::from_secs(300) + self.agenda.rng.wait(60_000);
        self.agenda.after(pause, Due::Retain);
        let is_quiet = self.strain.disk == Disk::Free && !self.strain.is_stopping && !self.night;
        if !is_quiet || self.process.is_none() || !self.hosts.iter().all(Host::has_sent_everything) {
            return;
        }
        let (before, now) = (self.books(), self.wall().0);
        // An error is that of a process that has died in a commit.
        let _ = self.process.as_ref().map(|process| process.retain(KEEP));
        let after = self.books();
        let ms = |keep: Option<Duration>| keep.map_or(0, |keep| i64::try_from(keep.as_millis()).unwrap());
        let has: BTreeSet<_> = after.messages.iter().map(|row| (row.org, &row.id, &row.agent)).collect();
        for row in before.messages.into_iter().filter(|row| !has.contains(&(row.org, &row.id, &row.agent))) {
            let MessageRow { org, id, state, moved_ms, .. } = &row;
            self.story.gone.push(Gone {
                what: format!("message {id}"),
                is_settled: state != "queued",
                age_ms: now - moved_ms,
                keep_ms: ms(KEEP.messages),
            });
            self.story.gone_ids.insert((*org, id.clone()));
            self.story.messages.push(row);
        }
        let has: BTreeSet<_> = after.posts.iter().map(|row| (row.org, &row.id)).collect();
        self.story.posts.extend(before.posts.into_iter().filter(|row| !has.contains(&(row.org, &row.id))));
        let has: BTreeSet<_> = after.deliveries.iter().map(|row| (row.org, &row.id, &row.agent)).collect();
        for row in before.deliveries.into_iter().filter(|row| !has.contains(&(row.org, &row.id, &row.agent)))
        {
            let DeliveryRow { org, id, state, reply, moved_ms, .. } = &row;
            self.story.gone.push(Gone {
                what: format!("delivery {id}"),
                is_settled: state == "handled" && reply.as_deref() != Some("due"),
                age_ms: now - moved_ms,
                keep_ms: ms(KEEP.deliveries),
            });
            self.story.gone_ids.insert((*org, id.clone()));
            self.story.deliveries.push(row);
        }
        self.tally.removed = self.story.gone.len() as u64;
    }
}

/// Agents that answer each other for ever are stopped: of a pair, or in a room, no more than the limit pass with nobody
/// between. By the times of the ledger, which is why a story whose clock was set says nothing of it.
pub(crate) fn loops(story: &Story) -> Result<u64, String> {
    if !story.is_steady {
        return Ok(0);
    }
    let mut passed: BTreeMap<(usize, &str, &str), Vec<i64>> = BTreeMap::new();
    let is_post = |org, id: &str| story.posts.iter().any(|post| post.org == org && post.id == id);
    for row in story.messages.iter().filter(|row| row.sender != "transit" && !is_post(row.org, &row.id)) {
        passed.entry((row.org, &row.sender, &row.agent)).or_default().push(row.created_ms);
    }
    for post in &story.posts {
        passed.entry((post.org, "", "#")).or_default().push(post.created_ms);
    }
    let (limit, window) = (LOOP_LIMIT as usize, i64::try_from(LOOP_WINDOW.as_millis()).unwrap());
    for ((org, from, to), mut times) in passed {
        times.sort_unstable();
        // What came to the room may have come to anybody.
        let concerns =
            |row: &&DeliveryRow| row.key.starts_with("siren") || row.agent == from || row.agent == to;
        let between: Vec<i64> = story
            .deliveries
            .iter()
            .filter(|row| row.org == org)
            .filter(concerns)
            .map(|row| row.created_ms)
            .collect();
        for many in times.windows(limit + 1) {
            let (first, last) = (many[0], many[limit]);
            let is_between = between.iter().any(|at| (first - COMMIT_MS..=last).contains(at));
            if last - first < window && !is_between {
                return Err(format!("{} of {from} to {to} passed within {} ms", limit + 1, last - first));
            }
        }
    }
    Ok(story.messages.len() as u64)
}

/// Without room on the disk nothing new is taken.
pub(crate) fn room_on_disk(story: &Story) -> Result<u64, String> {
    match story.crammed.first() {
        Some(what) => Err(format!("{what} was taken although there was no room for it")),
        None => Ok(story.without_room),
    }
}

/// A stop answers what was read before it closes.
pub(crate) fn goodbye(story: &Story) -> Result<u64, String> {
    match story.cut_off.first() {
        Some(id) => Err(format!("{id} was read, and not answered before the goodbye")),
        None => Ok(story.goodbyes),
    }
}

/// What is removed was settled for long enough.
pub(crate) fn kept(story: &Story) -> Result<u64, String> {
    let early = story.gone.iter().find(|gone| !gone.is_settled || gone.age_ms < gone.keep_ms);
    match early {
        Some(gone) => {
            Err(format!("{} was removed after {} ms, settled: {}", gone.what, gone.age_ms, gone.is_settled))
        }
        None => Ok(story.gone.len() as u64),
    }
}
