//! Connections: frames arrive whole, in order and late, or not at all once the connection was cut. One side may
//! learn of a cut long after the other.

use std::time::Duration;

use transit::clock::Mono;

use super::agenda::{Agenda, Due, Side};

/// One direction of a connection.
#[derive(Default)]
struct Way {
    last: Mono,
    cut: Option<Mono>,
    sent: Vec<String>,
}

struct Conn {
    host: usize,
    latency_ms: usize,
    up: Way,
    down: Way,
}

#[derive(Default)]
pub(super) struct Net {
    conns: Vec<Conn>,
}

impl Net {
    /// A new connection of a host to the Worker.
    pub(super) fn open(&mut self, agenda: &mut Agenda, host: usize) -> usize {
        let latency_ms = if agenda.rng.chance(20) { 3_000 } else { 50 };
        self.conns.push(Conn { host, latency_ms, up: Way::default(), down: Way::default() });
        self.conns.len() - 1
    }

    pub(super) fn host(&self, conn: usize) -> usize {
        self.conns[conn].host
    }

    /// The end that is not `side`.
    fn other(&self, conn: usize, side: Side) -> Side {
        if side == Side::Hub { Side::Host(self.conns[conn].host) } else { Side::Hub }
    }

    fn way(&mut self, conn: usize, to: Side) -> &mut Way {
        let conn = &mut self.conns[conn];
        if to == Side::Hub { &mut conn.up } else { &mut conn.down }
    }

    /// Sends a frame from one end to the other.
    pub(super) fn send(&mut self, agenda: &mut Agenda, conn: usize, from: Side, text: String) {
        let to = self.other(conn, from);
        let sooner = agenda.now + agenda.rng.wait(self.conns[conn].latency_ms);
        let way = self.way(conn, to);
        let time = sooner.max(way.last);
        way.last = time;
        way.sent.push(text.clone());
        agenda.at(time, Due::Arrive { conn, at: to, text });
    }

    /// Whether what arrives here now is lost.
    pub(super) fn is_cut(&mut self, conn: usize, to: Side, now: Mono) -> bool {
        self.way(conn, to).cut.is_some_and(|cut| now >= cut)
    }

    /// Ends a connection as `from` sees it: it says nothing more, and the other end may learn of it late or never.
    pub(super) fn hang_up(&mut self, agenda: &mut Agenda, conn: usize, from: Side) {
        let to = self.other(conn, from);
        let now = agenda.now;
        self.cut_way(conn, from, now);
        let last = self.way(conn, to).last.max(now) + Duration::from_millis(1);
        self.cut_way(conn, to, last);
        if agenda.rng.chance(70) {
            let late = agenda.rng.wait(2_000);
            agenda.at(last + late, Due::Eof { conn, at: to });
        }
    }

    /// Cuts both ways of a connection, each within 3 s; each end learns of it soon, or by silence.
    pub(super) fn cut(&mut self, agenda: &mut Agenda, conn: usize) {
        for to in [Side::Hub, Side::Host(self.conns[conn].host)] {
            let time = agenda.now + agenda.rng.wait(3_000);
            self.cut_way(conn, to, time);
            if agenda.rng.chance(60) {
                agenda.soon(5_000, Due::Eof { conn, at: to });
            }
        }
    }

    fn cut_way(&mut self, conn: usize, to: Side, time: Mono) {
        let cut = &mut self.way(conn, to).cut;
        *cut = Some(cut.map_or(time, |cut| cut.min(time)));
    }

    /// Lets a frame of any connection of a host arrive once more, at the newest one.
    pub(super) fn replay(&mut self, agenda: &mut Agenda, host: usize) {
        let own: Vec<usize> = (0..self.conns.len()).filter(|&conn| self.conns[conn].host == host).collect();
        let Some(&newest) = own.last() else { return };
        let to = if agenda.rng.chance(50) { Side::Hub } else { Side::Host(host) };
        let old = *agenda.rng.one(&own);
        let sent = &self.way(old, to).sent;
        if sent.is_empty() {
            return;
        }
        let text = agenda.rng.one(sent).clone();
        if !text.contains("\"hello") {
            agenda.soon(1_000, Due::Replay { conn: newest, at: to, text });
        }
    }
}
