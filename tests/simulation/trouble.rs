//! What goes wrong, and when it stops.

use std::time::Duration;

use transit::store::ledger::stepped::Crash;

use super::agenda::Due;
use super::world::{TROUBLE, World};

/// Time after that in which everything must have come to rest.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);

impl World {
    pub(crate) fn mishap(&mut self) {
        if self.calm || self.night {
            return;
        }
        let victim = self.agenda.rng.below(self.hosts.len());
        match self.agenda.rng.below(100) {
            0..30 => {
                if let Some(wire) = self.hosts[victim].wire() {
                    self.tally.cuts += 1;
                    self.wires.cut(&mut self.agenda, wire);
                }
            }
            30..40 if self.hosts[victim].up => self.crash_host(victim, 20_000),
            40..68 => {
                let (n, place) = (1 + self.agenda.rng.below(20), self.agenda.rng.chance(50));
                let place = if place { Crash::Before } else { Crash::After };
                if let Some(process) = &self.process {
                    process.db().crash_at(n as u64, place);
                }
            }
            68..71 => self.worker_dies("killed"),
            71..76 => self.stop_worker(),
            76..80 => self.fill_disk(),
            80..86 => {
                let jump = (self.agenda.rng.below(172_800_000) as i64 - 86_400_000)
                    / [1, 1_000][self.agenda.rng.below(2)];
                self.tally.jumps += 1;
                if self.agenda.rng.chance(50) {
                    self.clock.step_wall(jump);
                } else {
                    self.hosts[victim].wall += jump;
                }
            }
            86..96 => {
                let host = &mut self.hosts[victim];
                let agent = host.agents[self.agenda.rng.below(host.agents.len())];
                if !host.away.remove(agent) {
                    host.away.insert(agent);
                }
                let agent = *self.agenda.rng.one(&["bob", "dan"]);
                self.agenda.soon(1_000, Due::Move { host: victim, agent });
                let host = &mut self.hosts[victim];
                host.roster();
            }
            96..98 if self.tally.nights == 0 => return self.nightfall(),
            _ => self.lose_the_peer(victim),
        }
        self.agenda.soon(8_000, Due::Mishap);
    }

    /// A wire of which neither end hears that it is gone.
    fn lose_the_peer(&mut self, host: usize) {
        if let Some(wire) = self.hosts[host].wire() {
            self.tally.cuts += 1;
            self.wires.silence(self.agenda.now, wire);
        }
    }

    pub(crate) fn crash_host(&mut self, host: usize, longest_ms: usize) {
        self.tally.host_crashes += 1;
        self.hosts[host].crash(&mut self.agenda, &mut self.wires);
        self.agenda.soon(longest_ms, Due::HostRestart { host });
    }

    /// All hosts are switched off for a day or two.
    fn nightfall(&mut self) {
        self.night = true;
        self.tally.nights += 1;
        for host in 0..self.hosts.len() {
            if self.hosts[host].up {
                self.hosts[host].crash(&mut self.agenda, &mut self.wires);
            }
        }
        let hours = 10 + self.agenda.rng.below(50);
        self.agenda.after(Duration::from_secs(hours as u64 * 3600), Due::Morning);
    }

    pub(crate) fn morning(&mut self) {
        self.night = false;
        for host in 0..self.hosts.len() {
            self.agenda.soon(5_000, Due::HostRestart { host });
        }
        for due in [Due::Convene, Due::Mishap, Due::Speak, Due::Happens, Due::Operate] {
            self.agenda.soon(10_000, due);
        }
        self.agenda.after(TROUBLE / 2, Due::Calm);
    }

    /// From here on everybody does what they should.
    pub(crate) fn calm(&mut self) {
        if self.night || self.calm {
            return; // there is another day
        }
        self.calm = true;
        self.free_disk();
        self.resume_everything();
        for host in &mut self.hosts {
            host.away.clear();
            host.roster();
        }
        self.agenda.after(Duration::from_secs(30), Due::Look);
        self.tally.calm_at = self.agenda.now.0;
    }

    pub(crate) fn look(&mut self) {
        let unrest = self.unrest();
        let waited = self.agenda.now.0.saturating_sub(self.tally.calm_at);
        self.done = unrest.is_none() || waited > PATIENCE;
        if self.done {
            self.story.restless.extend(unrest);
        } else {
            let pause = if waited > Duration::from_secs(1800) { 600 } else { 20 };
            self.agenda.after(Duration::from_secs(pause), Due::Look);
        }
    }
}
