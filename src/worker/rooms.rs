//! Rooms as agents use them: saying something there, and who is in.

use serde_json::{Value, json};

use super::app::App;
use super::links::{Grown, Owner};
use super::notes::Tell;
use super::route;
use super::rpc::failed;
use crate::addr::Name;
use crate::proto::guard::Counted;
use crate::proto::wire::{RpcError, SendFrame};
use crate::store::StoreError;
use crate::store::ledger::messages::{self, Place, Posted, Queue};
use crate::store::ledger::rooms::{self, By, Policy};

/// Takes a message to a room. One commit takes it and its deliveries; then all members' links hear of it.
pub(super) fn send(
    app: &App,
    owner: &Owner,
    frame: SendFrame,
    room: Name,
    counted: Option<Counted>,
    tell: &Tell,
) {
    let name = frame.from.split_once('@').map_or(frame.from.as_str(), |(name, _)| name);
    let (sender, now) = (owner.queue(name), app.wall());
    let (id, bucket) = (frame.id.clone(), route::bucket(owner, &frame));
    let (places, hints, tell) = (app.clone(), app.clone(), tell.clone());
    let host = owner.host.clone();
    app.db.submit(
        move |tx| {
            let has_place = |queue: &Queue| places.places.take(queue);
            messages::post(tx, &sender, &room, &frame, &has_place, now)
        },
        move |outcome| {
            if let (Some(counted), false) = (counted, matches!(outcome, Ok(Posted::Stored(_)))) {
                hints.loops.give_back(counted);
            }
            match outcome {
                Ok(Posted::Stored(recipients)) => {
                    // Its sender hears of it first, for others of its host may be members.
                    route::note(&tell, id, None);
                    for Place { queue, free } in recipients {
                        free.into_iter().for_each(|free| hints.places.counted(&queue, free));
                        hints.links.wake(&queue, Grown::Messages);
                    }
                }
                Ok(Posted::Before(nak)) => {
                    // What was taken before costs no rate.
                    hints.senders.give_back(&bucket);
                    route::note(&tell, id, nak);
                }
                Ok(Posted::Refused(code)) => {
                    tracing::info!(host, id, code = code.as_str(), "a message to a room was refused");
                    route::note(&tell, id, Some(code));
                }
                Err(err) => route::not_now(&tell, id, &err),
            }
        },
    );
}

/// The loop guard's limit of a room that has its own. One that cannot be read has the Worker's; the ledger says the
/// rest when it is to take the message.
pub(super) fn loop_limit(app: &App, owner: &Owner, room: &Name) -> Option<u32> {
    let found = app.db.read(|tx| rooms::find(tx, &owner.org_id, room));
    found.ok().flatten().and_then(|room| room.loop_limit)
}

/// The rooms of the caller's organisation, and in which of them it is.
pub(super) fn list(app: &App, caller: &Queue) -> Result<Value, RpcError> {
    let listed = app.db.read(|tx| {
        let with_caller = |room| Ok((rooms::is_member(tx, &room, caller)?, room));
        rooms::list(tx, &caller.org_id)?.into_iter().map(with_caller).collect::<Result<Vec<_>, _>>()
    });
    let listed = listed.map_err(failed)?.into_iter().map(|(joined, room)| {
        json!({
            "name": room.name,
            "policy": room.policy.as_str(),
            "created_at": room.created_at.to_string(),
            "members": room.members,
            "joined": joined,
        })
    });
    Ok(listed.collect())
}

/// Makes a room with the caller in it.
pub(super) async fn create(app: &App, caller: Queue, params: &Value) -> Result<Value, RpcError> {
    let name = room(params)?;
    own_address(&caller, params)?;
    let policy = match params.get("policy") {
        None | Some(Value::Null) => Policy::default(),
        Some(Value::String(word)) => word.parse().map_err(|err: &str| RpcError::new("bad_params", err))?,
        Some(_) => return Err(RpcError::new("bad_params", "policy is a string")),
    };
    let (now, member, named) = (app.wall(), caller.clone(), name.clone());
    let found = app.write(move |tx| rooms::found(tx, &named, policy, &member, now)).await.map_err(refused)?;
    wake(app, &caller, found);
    Ok(json!({ "room": name, "joined": true }))
}

/// Puts the caller into a room; again, it stays.
pub(super) async fn join(app: &App, caller: Queue, params: &Value) -> Result<Value, RpcError> {
    let name = room(params)?;
    own_address(&caller, params)?;
    let (now, member, named) = (app.wall(), caller.clone(), name.clone());
    let joined =
        app.write(move |tx| rooms::join(tx, &named, &member, By::Itself, now)).await.map_err(refused)?;
    wake(app, &caller, joined);
    Ok(json!({ "room": name, "joined": true }))
}

/// Takes the caller out of a room; again, it stays out.
pub(super) async fn leave(app: &App, caller: Queue, params: &Value) -> Result<Value, RpcError> {
    let name = room(params)?;
    own_address(&caller, params)?;
    let (now, named) = (app.wall(), name.clone());
    let heirs = app.write(move |tx| rooms::leave(tx, &named, &caller, now)).await.map_err(refused)?;
    heirs.iter().for_each(|heir| wake(app, heir, true));
    Ok(json!({ "room": name, "left": true }))
}

/// Older deliveries are new to this agent.
fn wake(app: &App, queue: &Queue, has_adopted: bool) {
    if has_adopted {
        app.links.wake_for_all(queue);
    }
}

/// The room that is asked for, with or without its `#`.
fn room(params: &Value) -> Result<Name, RpcError> {
    let named = params.get("room").and_then(Value::as_str).filter(|name| !name.is_empty());
    let named = named.ok_or_else(|| RpcError::new("bad_params", "room is required"))?;
    named
        .strip_prefix('#')
        .unwrap_or(named)
        .parse()
        .map_err(|err| RpcError::new("bad_params", format!("{err}")))
}

/// Daemons of other makes say who is to join; nobody joins or leaves in another's name.
fn own_address(caller: &Queue, params: &Value) -> Result<(), RpcError> {
    match params.get("address") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(address)) if *address == caller.address() => Ok(()),
        Some(_) => Err(RpcError::new("invalid_caller", "address is not the caller's")),
    }
}

fn refused(err: StoreError) -> RpcError {
    match err {
        StoreError::Refused(refusal) => RpcError::new(refusal.code(), refusal.to_string()),
        err => failed(err),
    }
}
