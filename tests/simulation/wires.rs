//! Connections: frames arrive whole, in order and late, or not at all once the connection was cut. One end may learn
//! of a cut long after the other, or never.

use std::time::Duration;

use transit::clock::Mono;
use transit::worker::simulation::Conn;

use super::agenda::{Agenda, Due, End};

/// One direction.
#[derive(Default)]
struct Way {
    last: Mono,
    cut: Option<Mono>,
}

pub(crate) struct Wire {
    pub(crate) host: usize,
    /// The Worker's end, and the life of the Worker that has it.
    pub(crate) conn: Conn,
    pub(crate) life: u32,
    latency_ms: usize,
    up: Way,
    down: Way,
}

#[derive(Default)]
pub(crate) struct Wires(Vec<Wire>);

impl Wires {
    pub(crate) fn open(&mut self, agenda: &mut Agenda, host: usize, conn: Conn, life: u32) -> usize {
        let latency_ms = if agenda.rng.chance(15) { 2_000 } else { 30 };
        self.0.push(Wire { host, conn, life, latency_ms, up: Way::default(), down: Way::default() });
        self.0.len() - 1
    }

    pub(crate) fn get(&self, wire: usize) -> &Wire {
        &self.0[wire]
    }

    pub(crate) fn opened(&self) -> usize {
        self.0.len()
    }

    /// The wire whose end at the Worker this is.
    pub(crate) fn of(&self, conn: Conn, life: u32) -> Option<usize> {
        self.0.iter().rposition(|wire| wire.conn == conn && wire.life == life)
    }

    fn way(&mut self, wire: usize, to: End) -> &mut Way {
        match to {
            End::Worker => &mut self.0[wire].up,
            End::Host => &mut self.0[wire].down,
        }
    }

    /// Sends a frame towards `to`.
    pub(crate) fn send(&mut self, agenda: &mut Agenda, wire: usize, to: End, text: String) {
        let sooner = agenda.now + agenda.rng.wait(self.0[wire].latency_ms);
        let way = self.way(wire, to);
        way.last = sooner.max(way.last);
        let time = way.last;
        agenda.at(time, Due::Arrive { wire, at: to, text });
    }

    /// Whether what arrives there now is lost.
    pub(crate) fn is_cut(&mut self, wire: usize, to: End, now: Mono) -> bool {
        self.way(wire, to).cut.is_some_and(|cut| now >= cut)
    }

    /// One end says nothing more and hears nothing more; the other may learn of it late, or never.
    pub(crate) fn hang_up(&mut self, agenda: &mut Agenda, wire: usize, from: End) {
        let to = if from == End::Worker { End::Host } else { End::Worker };
        let now = agenda.now;
        self.cut_way(wire, from, now);
        let last = self.way(wire, to).last.max(now) + Duration::from_millis(1);
        self.cut_way(wire, to, last);
        if agenda.rng.chance(80) {
            let late = agenda.rng.wait(2_000);
            agenda.at(last + late, Due::Eof { wire, at: to });
        }
    }

    /// Cuts both ways, each within 3 s; each end learns of it soon, or by silence.
    pub(crate) fn cut(&mut self, agenda: &mut Agenda, wire: usize) {
        for to in [End::Worker, End::Host] {
            let time = agenda.now + agenda.rng.wait(3_000);
            self.cut_way(wire, to, time);
            if agenda.rng.chance(60) {
                agenda.soon(5_000, Due::Eof { wire, at: to });
            }
        }
    }

    /// Cuts both ways, and nobody is told: each end finds out by the silence.
    pub(crate) fn silence(&mut self, now: Mono, wire: usize) {
        self.cut_way(wire, End::Worker, now);
        self.cut_way(wire, End::Host, now);
    }

    fn cut_way(&mut self, wire: usize, to: End, time: Mono) {
        let cut = &mut self.way(wire, to).cut;
        *cut = Some(cut.map_or(time, |cut| cut.min(time)));
    }
}
