//! The Worker's side of the world: when its tasks run, when its writer commits, where it dies.

use std::time::Duration;

use serde_json::Value;
use transit::clock::Clock;
use transit::proto::wire::NakCode;
use transit::store::ledger::deliveries;
use transit::store::ledger::messages::{self, Queue};
use transit::store::ledger::stepped::{Crash, Disk};
use transit::worker::simulation::{Conn, Process};

use super::agenda::{Due, End};
use super::story::{Delivered, Promise};
use super::world::{Waiting, World};

/// A change that nobody waits for is committed after this, if nothing else is.
const RIDE_ALONG: Duration = Duration::from_millis(20);
/// Frames that a link hears at once.
const FRAMES_AT_ONCE: usize = 64;

impl World {
    pub(crate) fn start_worker(&mut self) {
        let process = Process::start(&self.database, self.key.clone(), &self.clock);
        let process = process.expect("the ledger can be opened after any crash");
        if let Some((n, place)) = self.plot.crash.filter(|_| self.life == 0) {
            process.db().crash_at(n, place);
        }
        self.process = Some(process);
        self.set_disk();
        let life = self.life;
        self.agenda.soon(1_000, Due::Sweep { life });
        self.post_at = Some(self.agenda.now);
        self.agenda.at(self.agenda.now, Due::Post { life });
    }

    /// Sees to it that the Worker does what there is to do, a moment later.
    pub(crate) fn settle_worker(&mut self) {
        let Some(process) = &mut self.process else { return };
        if process.db().is_dead() {
            return self.worker_dies("in a commit");
        }
        for answered in process.run_tasks() {
            self.answered(answered);
        }
        if self.has_stopped() {
            return self.worker_ends("in order");
        }
        let Some(process) = &mut self.process else { return };
        let life = self.life;
        for (conn, _) in process.stirred() {
            if self.turns.insert(conn) {
                let longest = if self.agenda.rng.chance(3) { 500 } else { 3 };
                self.agenda.soon(longest, Due::Turn { life, conn });
            }
        }
        let (count, is_urgent) = process.db().waiting();
        if count > 0 {
            let longest = if self.agenda.rng.chance(3) { 1_000 } else { 3 };
            let urgent = self.agenda.rng.wait(longest);
            let at = self.agenda.now + if is_urgent { urgent } else { RIDE_ALONG };
            if self.commit_at.is_none_or(|before| at < before) {
                self.commit_at = Some(at);
                self.agenda.at(at, Due::Commit { life });
            }
        }
        if process.is_poked() {
            let at = self.agenda.now + self.agenda.rng.wait(50);
            self.post_at = Some(at);
            self.agenda.at(at, Due::Post { life });
        }
        if let Some(at) = process.wake_at().map(|at| at.max(self.agenda.now + Duration::from_millis(1)))
            && self.wake_at.is_none_or(|before| at < before)
        {
            self.wake_at = Some(at);
            self.agenda.at(at, Due::Wake { life });
        }
    }

    pub(crate) fn worker_dies(&mut self, how: &str) {
        match self.process.as_ref().map(|process| process.db().died()) {
            Some(Some(Crash::Before)) => self.tally.crashes_before += 1,
            Some(Some(Crash::After)) => self.tally.crashes_after += 1,
            Some(None) => self.tally.kills += 1,
            None => return,
        }
        self.bury(how);
    }

    /// The Worker has stopped.
    pub(crate) fn worker_ends(&mut self, how: &str) {
        self.tally.stops += 1;
        self.bury(how);
    }

    fn bury(&mut self, how: &str) {
        let Some(process) = self.process.take() else { return };
        let stats = process.db().stats();
        self.tally.commits += stats.commits;
        self.tally.changes += stats.changes;
        self.relax();
        self.trace.line(self.agenda.now, format_args!("the Worker ends {how}"));
        drop(process);
        for wire in 0..self.wires.opened() {
            if self.wires.get(wire).life == self.life {
                self.wires.hang_up(&mut self.agenda, wire, End::Worker);
            }
        }
        self.life += 1;
        self.turns.clear();
        self.buffers.clear();
        (self.commit_at, self.wake_at, self.post_at) = (None, None, None);
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            self.unanswered(waiting);
        }
        self.agenda.soon(15_000, Due::Restart);
    }

    /// A frame has reached the Worker's system.
    pub(crate) fn heard(&mut self, wire: usize, text: String) {
        let wire = self.wires.get(wire);
        let (conn, life) = (wire.conn, wire.life);
        if life == self.life
            && let Some(buffer) = self.buffers.get_mut(&conn)
        {
            buffer.push(text);
            if self.turns.insert(conn) {
                self.agenda.soon(3, Due::Turn { life, conn });
            }
        }
    }

    /// The Worker learns that a connection is gone.
    pub(crate) fn lost(&mut self, wire: usize) {
        let wire = self.wires.get(wire);
        if wire.life == self.life
            && let Some(process) = &mut self.process
        {
            let conn = wire.conn;
            self.buffers.remove(&conn);
            process.gone(conn, None);
            self.ends(conn, 0);
        }
    }

    /// The task of a link runs: it takes what there is in any order, and says what it has to say.
    pub(crate) fn turn(&mut self, conn: Conn) {
        self.turns.remove(&conn);
        let Some(process) = &mut self.process else { return };
        let mut looks: Vec<_> =
            process.stirred().into_iter().filter(|one| one.0 == conn).map(|one| Some(one.1)).collect();
        looks.push(None);
        while !looks.is_empty() {
            let look = looks.swap_remove(self.agenda.rng.below(looks.len()));
            match look {
                Some(look) => {
                    if let Some(process) = &mut self.process {
                        process.look(conn, look);
                    }
                }
                // One that stops reads nothing more.
                None if self.strain.is_stopping => {}
                None => {
                    let Some(buffer) = self.buffers.get_mut(&conn) else { continue };
                    let taken = buffer.len().min(FRAMES_AT_ONCE);
                    let texts: Vec<String> = buffer.drain(..taken).collect();
                    for text in texts {
                        if let Some(wire) = self.wires.of(conn, self.life) {
                            self.reads(conn, wire, &text);
                        }
                        if let Some(process) = &mut self.process {
                            process.frame(conn, &text);
                        }
                    }
                }
            }
        }
        let Some(process) = &mut self.process else { return };
        let spoken = process.speak(conn);
        let Some(wire) = self.wires.of(conn, self.life) else { return };
        for text in spoken.frames {
            self.tally.frames += 1;
            self.check_promise(wire, &text);
            self.trace.line(self.agenda.now, format_args!("the Worker says on {wire}: {text}"));
            self.wires.send(&mut self.agenda, wire, End::Host, text);
        }
        if let Some(end) = spoken.end {
            self.trace.line(self.agenda.now, format_args!("the Worker closes {wire}: {end:?}"));
            self.buffers.remove(&conn);
            self.ends(conn, end.code);
            if let Some(process) = &mut self.process {
                process.gone(conn, Some(&end));
            }
            self.wires.hang_up(&mut self.agenda, wire, End::Worker);
        } else if self.buffers.get(&conn).is_some_and(|buffer| !buffer.is_empty()) && self.turns.insert(conn)
        {
            self.agenda.soon(3, Due::Turn { life: self.life, conn });
        }
    }

    /// Whether the ledger has what a frame says. Nothing is being committed now: what is read is what is kept.
    fn check_promise(&mut self, wire: usize, text: &str) {
        let frame: Value = serde_json::from_str(text).expect("the Worker writes JSON");
        let host = &self.hosts[self.wires.get(wire).host];
        let (org, name) = (host.org, host.name);
        let org_id = self.orgs[org].id.clone();
        let id = frame["id"].as_str().unwrap_or_default().to_owned();
        if let Some(word @ ("send_ack" | "send_nak")) = frame["t"].as_str() {
            self.answers(self.wires.get(wire).conn, &id, word == "send_ack");
        }
        let Some(db) = self.process.as_ref().map(Process::db) else { return };
        let known = || db.read(|tx| messages::known(tx, &org_id, &id)).unwrap();
        match frame["t"].as_str() {
            Some("send_ack") => {
                let is_kept = known().is_some_and(|known| known.nak.is_none() && known.host == name);
                self.story.promises.push(Promise { what: format!("org {org}: send_ack {id}"), is_kept });
            }
            Some("send_nak") => {
                let code = frame["code"].as_str().and_then(NakCode::of);
                let kept = match code {
                    Some(code) if code.is_permanent() => {
                        known().map(|known| known.nak == Some(code) || known.host != name).unwrap_or(false)
                    }
                    _ => return,
                };
                let what = format!("org {org}: send_nak {id} {code:?}");
                self.story.promises.push(Promise { what, is_kept: kept });
            }
            Some("deliver") => {
                let agent = format!("{}@{name}", frame["agent"].as_str().unwrap_or_default());
                let was_open = if id.starts_with("dlv_") {
                    let shown = frame["agent"].as_str().unwrap_or_default().to_owned();
                    let queue = Queue { org_id: org_id.clone(), host: name.to_owned(), agent: shown };
                    let row = db.read(|tx| deliveries::get(tx, &queue, &id)).unwrap();
                    row.is_some_and(|row| !row.state.is_settled())
                } else {
                    let fate = db.read(|tx| messages::fate(tx, &org_id, &id)).unwrap();
                    let recipients = fate.map(|fate| fate.recipients).unwrap_or_default();
                    recipients.iter().any(|one| one.agent == agent && one.state == "queued")
                };
                self.story.delivered.push(Delivered { org, id, agent, was_open });
            }
            _ => {}
        }
    }

    pub(crate) fn commit(&mut self) {
        if self.commit_at != Some(self.agenda.now) {
            return; // it came earlier
        }
        self.commit_at = None;
        if let Some(process) = &self.process {
            process.db().step();
        }
    }

    pub(crate) fn sweep(&mut self) {
        let Some(process) = &mut self.process else { return };
        // An error is that of a process that has died in a commit.
        let swept = process.sweep();
        let is_excused = process.db().is_dead() || self.strain.disk == Disk::Full;
        assert!(swept.is_ok() || is_excused, "sweeping failed: {swept:?}");
        let pause = match self.night {
            true => Duration::from_secs(600),
            false => Duration::from_secs(1) + self.agenda.rng.wait(3_000),
        };
        self.agenda.after(pause, Due::Sweep { life: self.life });
    }

    /// Posts what is due, one after another.
    pub(crate) fn post_replies(&mut self) {
        if self.post_at != Some(self.agenda.now) {
            return; // it is looked at another time
        }
        let Some(process) = &self.process else { return };
        let (due, look_again) = process.due_posts().unwrap();
        let life = self.life;
        for post in due {
            if self.process.as_ref().is_some_and(|process| process.db().is_dead()) {
                return;
            }
            self.post_reply(&post);
        }
        let pause = if self.night { Duration::from_secs(300) } else { look_again };
        let at = self.agenda.now + pause.max(Duration::from_millis(200));
        self.post_at = Some(at);
        self.agenda.at(at, Due::Post { life });
    }

    pub(crate) fn wall(&self) -> transit::clock::Wall {
        self.clock.wall()
    }

    /// Nobody will answer this any more.
    fn unanswered(&mut self, waiting: Waiting) {
        match waiting {
            Waiting::Event { event, .. } => self.deliver_later(event),
            Waiting::Enrolment { .. } => {} // the host tries again with its next connection
        }
    }
}
