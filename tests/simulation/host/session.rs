//! From the inbox of a host into the sessions of its agents.

use transit::proto::envelope::{self, Kind};

use super::{Host, UNWELCOME};
use crate::agenda::{Agenda, Due};
use crate::spool::{HostOp, Turn};
use crate::story::Shown;

impl Host {
    pub(super) fn inject(&mut self, agenda: &mut Agenda, Turn { id, agent, envelope }: Turn) {
        let refusal = match agenda.rng.below(100) {
            _ if self.away.contains(agent.as_str()) => Some(("no_such_agent", true)),
            _ if envelope.contains(UNWELCOME) => Some(("adapter_rejected", false)),
            0..8 => Some(("draft_busy", true)),
            8..16 => Some(("adapter_unavailable", true)),
            _ => None,
        };
        match refusal {
            Some((code, retryable)) => self.commit(agenda, HostOp::Refused { id, agent, code, retryable }),
            None => {
                let (host, life) = (self.index, self.life);
                agenda.soon(800, Due::Show { host, life, id, agent });
            }
        }
    }

    /// The adapter has the envelope in its session, which a daemon's crash does not undo.
    pub(crate) fn show(&mut self, agenda: &mut Agenda, life: u32, id: &str, agent: &str) -> Option<Shown> {
        let (org, name, is_alive) = (self.org, self.name, self.up && self.life == life);
        let row = self.spool.row(id, agent)?;
        let parsed = envelope::parse(&row.envelope).expect("the Worker's envelopes can be read").envelope;
        let redelivery = row.redelivery;
        let (told, seq, conversation) = match parsed.kind {
            Kind::Channel { redelivery, conversation_id, .. } => (Some(redelivery), None, conversation_id),
            Kind::Room { seq, .. } => (None, Some(seq), String::new()),
            Kind::Dm => (None, None, String::new()),
        };
        if is_alive {
            let op = HostOp::Injected { id: id.to_owned(), agent: agent.to_owned(), redelivery };
            self.commit(agenda, op);
        }
        Some(Shown {
            org,
            agent: format!("{agent}@{name}"),
            id: id.to_owned(),
            from: parsed.from,
            body: parsed.body,
            conversation,
            redelivery: told,
            seq,
            life,
        })
    }
}
