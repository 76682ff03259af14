//! Where a message goes: the organisation is the token's, the sender must be one of its host's agents, and whatever
//! is refused is refused with the code that says why.

use std::collections::HashSet;

use tokio::sync::mpsc::UnboundedSender;

use super::app::App;
use super::link::Note;
use super::links::Owner;
use crate::addr::{Addr, AddrError, AgentAddr};
use crate::clock::Wall;
use crate::id::IdKind;
use crate::limits::BODY_BYTES;
use crate::proto::wire::{NakCode, SendFrame};
use crate::store::StoreError;
use crate::store::ledger::messages::{self, Queue, Taken};
use crate::store::ledger::roster;

/// Takes a message. The answer is noted once it may be given: after the commit that also made the delivery.
pub(super) fn send(
    app: &App,
    owner: &Owner,
    senders: &HashSet<String>,
    frame: SendFrame,
    tell: &UnboundedSender<Note>,
) {
    match check(app, owner, senders, &frame) {
        Ok(Checked::Known(nak)) => note(tell, frame.id, nak),
        Ok(Checked::Refused(code)) => refuse(app, owner, frame, code, tell),
        Ok(Checked::To(recipient)) => store(app, owner, frame, &recipient, tell),
        Err(err) => not_now(tell, frame.id, &err),
    }
}

enum Checked {
    /// The id was used before: the answer is the same.
    Known(Option<NakCode>),
    Refused(NakCode),
    To(AgentAddr),
}

/// The checks, in the protocol's order.
fn check(
    app: &App,
    owner: &Owner,
    senders: &HashSet<String>,
    frame: &SendFrame,
) -> Result<Checked, StoreError> {
    use Checked::{Known, Refused, To};
    if IdKind::of(&frame.id) != Some(IdKind::Message) {
        return Ok(Known(Some(NakCode::ReservedName)));
    }
    if let Some(known) = app.db.read(|tx| messages::known(tx, &owner.org_id, &frame.id))? {
        let ours = known.host == owner.host;
        return Ok(Known(if ours { known.nak } else { Some(NakCode::ReservedName) }));
    }
    let (from, to) = match (frame.from.parse::<AgentAddr>(), frame.to.parse::<Addr>()) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(err), _) | (_, Err(err)) => return Ok(Refused(code_of(&err))),
    };
    if from.host.as_str() != owner.host || !senders.contains(from.name.as_str()) {
        return Ok(Refused(NakCode::NoRoute));
    }
    let bucket = (owner.host_id.clone(), from.name.to_string());
    let (rate, burst) = app.limits.sends;
    if app.senders.take(bucket, rate, burst, app.mono()).is_err() {
        return Ok(Refused(NakCode::RateLimited));
    }
    if frame.body.len() > BODY_BYTES {
        return Ok(Refused(NakCode::BodyTooLarge));
    }
    let Addr::Agent(to) = to else { return Ok(Refused(NakCode::NoRoute)) };
    let known = app.db.read(|tx| roster::is_known(tx, &owner.org_id, to.host.as_str(), to.name.as_str()))?;
    Ok(if known { To(to) } else { Refused(NakCode::NoRoute) })
}

fn code_of(err: &AddrError) -> NakCode {
    match err {
        AddrError::Reserved { .. } => NakCode::ReservedName,
        _ => NakCode::NoRoute,
    }
}

fn store(app: &App, owner: &Owner, mut frame: SendFrame, to: &AgentAddr, tell: &UnboundedSender<Note>) {
    let now = app.wall();
    // Both stand in the envelope's tag: what is no time and no id has no business there.
    if Wall::parse(&frame.ts).is_none() || !frame.ts.contains('T') {
        frame.ts = now.to_string();
    }
    frame.reply_to = frame.reply_to.filter(|id| IdKind::of(id).is_some());
    let queue = Queue { org_id: owner.org_id.clone(), host: to.host.to_string(), agent: to.name.to_string() };
    let (id, from_host, recipient) = (frame.id.clone(), owner.host.clone(), queue.clone());
    let (hints, tell) = (app.clone(), tell.clone());
    app.db.submit(
        move |tx| messages::take(tx, &queue, &from_host, &frame, now),
        move |outcome| match outcome {
            Ok(Taken::Stored) => {
                hints.links.wake(&recipient);
                note(&tell, id, None);
            }
            Ok(Taken::Before(nak)) => note(&tell, id, nak),
            Ok(Taken::Refused(code)) => note(&tell, id, Some(code)),
            Err(err) => not_now(&tell, id, &err),
        },
    );
}

/// A refusal for good is remembered before it is told, so that the answer to this id stays the same.
fn refuse(app: &App, owner: &Owner, frame: SendFrame, code: NakCode, tell: &UnboundedSender<Note>) {
    tracing::info!(host = owner.host, id = frame.id, code = code.as_str(), "a message was refused");
    if !code.is_permanent() {
        return note(tell, frame.id, Some(code));
    }
    let (org_id, host, now) = (owner.org_id.clone(), owner.host.clone(), app.wall());
    let (id, tell) = (frame.id.clone(), tell.clone());
    let frame = SendFrame { body: String::new(), ..frame };
    app.db.submit(
        move |tx| messages::refuse(tx, &org_id, &host, &frame, code, now),
        move |outcome| match outcome {
            Ok(()) => note(&tell, id, Some(code)),
            Err(err) => not_now(&tell, id, &err),
        },
    );
}

/// The ledger could not take it: the daemon keeps the message and tries again.
fn not_now(tell: &UnboundedSender<Note>, id: String, err: &StoreError) {
    tracing::error!(id, %err, "taking a message failed");
    note(tell, id, Some(NakCode::RateLimited));
}

fn note(tell: &UnboundedSender<Note>, id: String, nak: Option<NakCode>) {
    // The link may be gone; the daemon asks again on its next one.
    let _ = tell.send(Note::Sent { id, nak });
}
