//! Where a message goes: the organisation is the token's, the sender must be one of its host's agents, and whatever
//! is refused is refused with the code that says why.

use std::collections::BTreeSet;

use super::app::App;
use super::link::Note;
use super::links::{Grown, Owner};
use super::notes::Tell;
use super::rooms;
use crate::addr::{Addr, AddrError, AgentAddr};
use crate::clock::Wall;
use crate::id::IdKind;
use crate::limits::{BODY_BYTES, WORD_BYTES};
use crate::proto::guard::{Counted, Held, Passing};
use crate::proto::wire::{NakCode, SendFrame};
use crate::store::StoreError;
use crate::store::ledger::messages::{self, Queue, Taken};
use crate::text;

/// Takes a message. The answer is noted once it may be given: after the commit that also made the delivery.
pub(super) fn send(app: &App, owner: &Owner, senders: &BTreeSet<String>, frame: SendFrame, tell: &Tell) {
    let checked = check(app, owner, senders, &frame);
    match checked.and_then(|to| Ok((pass(app, owner, &frame, &to)?, to))) {
        Ok((counted, Addr::Agent(to))) => store(app, owner, legible(app, frame), &to, counted, tell),
        Ok((counted, Addr::Room(room))) => rooms::send(app, owner, legible(app, frame), room, counted, tell),
        Err(code) => answer_known(app, owner, frame, code, tell),
    }
}

/// The checks that need no ledger, in the protocol's order. That the id is known comes before all of them, and that
/// there is no such recipient after: the ledger says so when it is to take the message.
fn check(app: &App, owner: &Owner, senders: &BTreeSet<String>, frame: &SendFrame) -> Result<Addr, NakCode> {
    if IdKind::of(&frame.id) != Some(IdKind::Message) {
        return Err(NakCode::ReservedName);
    }
    let from: AgentAddr = frame.from.parse().map_err(|err| code_of(&err))?;
    let to: Addr = frame.to.parse().map_err(|err| code_of(&err))?;
    if from.host.as_str() != owner.host || !senders.contains(from.name.as_str()) {
        return Err(NakCode::NoRoute);
    }
    let (rate, burst) = app.limits.sends;
    if app.senders.take(bucket(owner, frame), rate, burst, app.mono()).is_err() {
        return Err(NakCode::RateLimited);
    }
    if frame.body.len() > BODY_BYTES {
        return Err(NakCode::BodyTooLarge);
    }
    if !app.db.has_room() {
        return Err(NakCode::RateLimited);
    }
    Ok(to)
}

/// Time and reply_to stand in the envelope's tag: what is no time and no id has no business there.
fn legible(app: &App, mut frame: SendFrame) -> SendFrame {
    if Wall::parse(&frame.ts).is_none() || !frame.ts.contains('T') {
        frame.ts = app.wall().to_string();
    }
    frame.reply_to = frame.reply_to.filter(|id| IdKind::of(id).is_some());
    frame
}

/// The last check before the ledger: whether agents go on and on. A message that the ledger does not take is given back
/// to whoever counts them.
fn pass(app: &App, owner: &Owner, frame: &SendFrame, to: &Addr) -> Result<Option<Counted>, NakCode> {
    let of_room = match to {
        Addr::Room(room) => rooms::loop_limit(app, owner, room),
        Addr::Agent(_) => None,
    };
    let SendFrame { id, from, to, reply_to, .. } = frame;
    let message = Passing { org_id: &owner.org_id, from, to, id, reply_to: reply_to.as_deref() };
    let passed = app.loops.pass(message, of_room, app.mono()).or_else(|held| {
        // An operator may have written beside this server a moment ago.
        let _ = app.loops.hear_operators(&app.db, app.mono());
        let again = app.loops.pass(message, of_room, app.mono());
        again.map_err(|again| Held { is_first: held.is_first, ..again })
    });
    passed.map_err(|held| {
        if held.is_first {
            let (what, cools_in_s) = (held.what, held.cools_in.as_secs());
            tracing::warn!(
                org = owner.org,
                what,
                from,
                to,
                reply_to,
                cools_in_s,
                "agents go round in a loop"
            );
        }
        NakCode::RateLimited
    })
}

/// Whose bucket a message takes from.
pub(super) fn bucket(owner: &Owner, frame: &SendFrame) -> (String, String) {
    let name = frame.from.split_once('@').map_or(frame.from.as_str(), |(name, _)| name);
    (owner.host_id.clone(), name.to_owned())
}

/// A message that is not to be taken: when its id was used before, the answer is the one that was given then.
fn answer_known(app: &App, owner: &Owner, frame: SendFrame, code: NakCode, tell: &Tell) {
    if IdKind::of(&frame.id) != Some(IdKind::Message) {
        return note(tell, frame.id, Some(code));
    }
    match app.db.read(|tx| messages::known(tx, &owner.org_id, &frame.id)) {
        Ok(Some(known)) => {
            let ours = known.host == owner.host;
            note(tell, frame.id, if ours { known.nak } else { Some(NakCode::ReservedName) });
        }
        Ok(None) => refuse(app, owner, frame, code, tell),
        Err(err) => not_now(tell, frame.id, &err),
    }
}

fn code_of(err: &AddrError) -> NakCode {
    match err {
        AddrError::Reserved { .. } => NakCode::ReservedName,
        _ => NakCode::NoRoute,
    }
}

fn store(app: &App, owner: &Owner, frame: SendFrame, to: &AgentAddr, counted: Option<Counted>, tell: &Tell) {
    let now = app.wall();
    let queue = Queue { org_id: owner.org_id.clone(), host: to.host.to_string(), agent: to.name.to_string() };
    let (id, from_host, recipient) = (frame.id.clone(), owner.host.clone(), queue.clone());
    let (host, has_place) = (from_host.clone(), app.places.take(&queue));
    let (hints, tell, bucket) = (app.clone(), tell.clone(), bucket(owner, &frame));
    app.db.submit(
        move |tx| messages::take(tx, &queue, &from_host, &frame, has_place, now),
        move |outcome| {
            if let (Some(counted), false) = (counted, matches!(outcome, Ok(Taken::Stored { .. }))) {
                hints.loops.give_back(counted);
            }
            match outcome {
                Ok(Taken::Stored { free }) => {
                    free.into_iter().for_each(|free| hints.places.counted(&recipient, free));
                    // Its sender hears of it first, for it may be of the host that it goes to.
                    note(&tell, id, None);
                    hints.links.wake(&recipient, Grown::Messages);
                }
                Ok(Taken::Before(nak)) => {
                    // What was taken before costs no rate.
                    hints.senders.give_back(&bucket);
                    note(&tell, id, nak);
                }
                Ok(Taken::Refused(code)) => {
                    tracing::info!(host, id, code = code.as_str(), "a message was refused");
                    note(&tell, id, Some(code));
                }
                Err(err) => not_now(&tell, id, &err),
            }
        },
    );
}

/// A refusal for good is remembered before it is told, so that the answer to this id stays the same.
fn refuse(app: &App, owner: &Owner, frame: SendFrame, code: NakCode, tell: &Tell) {
    tracing::info!(host = owner.host, id = frame.id, code = code.as_str(), "a message was refused");
    if !code.is_permanent() {
        return note(tell, frame.id, Some(code));
    }
    let (org_id, host, now) = (owner.org_id.clone(), owner.host.clone(), app.wall());
    let (id, tell) = (frame.id.clone(), tell.clone());
    // What is kept of it is its answer. The rest is for people, and has no length that could be relied on.
    let kept = |text: &str| text::clip(text, WORD_BYTES).to_owned();
    let frame = SendFrame {
        from: kept(&frame.from),
        to: kept(&frame.to),
        ts: kept(&frame.ts),
        reply_to: None,
        body: String::new(),
        ..frame
    };
    app.db.submit(
        move |tx| messages::refuse(tx, &org_id, &host, &frame, code, now),
        move |outcome| match outcome {
            Ok(()) => note(&tell, id, Some(code)),
            Err(err) => not_now(&tell, id, &err),
        },
    );
}

/// The ledger could not take it: the daemon keeps the message and tries again.
pub(super) fn not_now(tell: &Tell, id: String, err: &StoreError) {
    tracing::error!(id, %err, "taking a message failed");
    note(tell, id, Some(NakCode::RateLimited));
}

pub(super) fn note(tell: &Tell, id: String, nak: Option<NakCode>) {
    // The link may be gone; the daemon asks again on its next one.
    tell.send(Note::Sent { id, nak });
}
