//! The calls of agents, in their daemon's name: reading, settling, and who there is.
//!
//! `params.caller` is put there by the daemon and must be an agent of its host; whatever a call is about must be
//! that agent's own.

use std::time::Duration;

use serde_json::{Value, json};

use super::app::App;
use super::connection::raised;
use super::dispatch::INGEST;
use super::links::Owner;
use super::rooms;
use crate::addr::Host;
use crate::id::IdKind;
use crate::limits::BODY_BYTES;
use crate::proto::envelope::{Full, render_full};
use crate::proto::wire::{NamedBy, RpcError};
use crate::store::StoreError;
use crate::store::ledger::deliveries::{self, DeliveryRow, State};
use crate::store::ledger::messages::{self, Queue};
use crate::store::ledger::replies::{self, ReplyRow};
use crate::store::ledger::{Tx, roster, sources};

/// Time that a chat_reply waits for its callback, within the limit of a call.
const POST_WAIT: Duration = Duration::from_secs(8);

/// The same once the process stops: no attempt begins any more, and the answer has to be out before the connection ends.
const LAST_POST_WAIT: Duration = Duration::from_secs(1);

/// What can be called.
pub(super) const METHODS: [&str; 9] = [
    "read_message",
    "chat_reply",
    "mark_handled",
    "message_status",
    "list_agents",
    "list_rooms",
    "create_room",
    "join_room",
    "leave_room",
];

/// What the ledger says within a call: its own failure, or the call's.
type Found<T> = Result<Result<T, RpcError>, StoreError>;

/// Answers one call.
pub(super) async fn call(app: &App, owner: &Owner, method: &str, params: Value) -> Result<Value, RpcError> {
    if !METHODS.contains(&method) {
        return Err(RpcError::new("unknown_method", "unknown rpc method"));
    }
    let caller = caller(app, owner, &params)?;
    match method {
        "read_message" => read_message(app, caller, &params).await,
        "chat_reply" => chat_reply(app, caller, &params).await,
        "mark_handled" => mark_handled(app, caller, &params).await,
        "message_status" => message_status(app, &caller, &params),
        "list_rooms" => rooms::list(app, &caller),
        "create_room" => rooms::create(app, caller, &params).await,
        "join_room" => rooms::join(app, caller, &params).await,
        "leave_room" => rooms::leave(app, caller, &params).await,
        _ => list_agents(app, &caller.org_id, &params),
    }
}

/// The queue of the calling agent: it is who it is by its daemon's word, for its daemon's host only.
fn caller(app: &App, owner: &Owner, params: &Value) -> Result<Queue, RpcError> {
    let invalid = |text: &str| RpcError::new("invalid_caller", text);
    let named = params.get("caller").and_then(Value::as_str).ok_or_else(|| invalid("caller is required"))?;
    let name = match named.split_once('@') {
        Some((name, host)) if host == owner.host => name,
        Some(_) => return Err(invalid("the caller is of another host")),
        None => named,
    };
    let known = app.db.read(|tx| roster::is_known(tx, &owner.org_id, &owner.host, name)).map_err(failed)?;
    if known { Ok(owner.queue(name)) } else { Err(invalid("the caller is no agent of this host")) }
}

fn text<'a>(params: &'a Value, name: &str) -> Result<&'a str, RpcError> {
    let value = params.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    value.ok_or_else(|| RpcError::new("bad_params", format!("{name} is required")))
}

pub(super) fn failed(err: StoreError) -> RpcError {
    tracing::error!(%err, "a call failed");
    RpcError::new("rpc_error", "the ledger could not be used")
}

fn not_found(what: &str) -> RpcError {
    RpcError::new("not_found", format!("{what} not found"))
}

fn not_owner() -> RpcError {
    RpcError::new("not_owner", "delivery owner mismatch")
}

/// The caller's own delivery.
fn own(tx: &Tx<'_>, caller: &Queue, id: &str) -> Found<DeliveryRow> {
    let found = deliveries::get(tx, caller, id)?;
    Ok(match found {
        None => Err(not_found("delivery")),
        Some(row) if !row.is_of(caller) => Err(not_owner()),
        Some(row) => Ok(row),
    })
}

async fn read_message(app: &App, caller: Queue, params: &Value) -> Result<Value, RpcError> {
    let id = text(params, "id")?.to_owned();
    let now = app.wall();
    let full = match IdKind::of(&id) {
        Some(IdKind::Message) => app.db.read(|tx| direct(tx, &caller, &id)),
        Some(IdKind::Delivery) => {
            let read = move |tx: &Tx<'_>| {
                let row = match own(tx, &caller, &id)? {
                    Ok(row) => row,
                    Err(err) => return Ok(Err(err)),
                };
                let state = deliveries::read(tx, &caller.org_id, &row, now)?;
                let source = sources::by_id(tx, &caller.org_id, &row.integration_id)?;
                Ok(Ok(channel(row, state, source.and_then(|source| source.instructions))))
            };
            app.write(read).await
        }
        _ => return Err(not_found("message")),
    };
    full.map_err(failed)?.map(|full| Value::String(render_full(&full)))
}

fn channel(row: DeliveryRow, state: State, instructions: Option<String>) -> Full {
    Full {
        id: row.id,
        conversation_id: row.conversation_id,
        user: row.user,
        connector: INGEST.to_owned(),
        status: state.as_str().to_owned(),
        first_read: row.read_at.is_none(),
        settled: state.is_settled(),
        body: row.content,
        instructions,
    }
}

/// A message has nothing to settle; it can be read by whom it was for, and in a room by its sender too.
fn direct(tx: &Tx<'_>, caller: &Queue, id: &str) -> Found<Full> {
    let Some(found) = messages::text(tx, caller, id)? else { return Ok(Err(not_found("message"))) };
    let is_own = || found.is_of_room && found.sender == caller.address();
    let state = match found.state {
        Some(state) => state,
        None if is_own() => {
            let fate = messages::fate(tx, &caller.org_id, id)?;
            fate.map_or("injected", |fate| fate.state()).to_owned()
        }
        None => return Ok(Err(not_owner())),
    };
    Ok(Ok(Full {
        id: id.to_owned(),
        conversation_id: id.to_owned(),
        user: Some(found.sender),
        connector: "transit".to_owned(),
        status: state,
        first_read: false,
        settled: true,
        body: found.body,
        instructions: None,
    }))
}

async fn chat_reply(app: &App, caller: Queue, params: &Value) -> Result<Value, RpcError> {
    let id = text(params, "delivery_id")?.to_owned();
    let conversation_id = text(params, "conversation_id")?.to_owned();
    let message = text(params, "message")?.to_owned();
    if message.len() > BODY_BYTES {
        return Err(RpcError::new("bad_params", format!("message is over {BODY_BYTES} bytes long")));
    }
    let outcome = app.callbacks.outcome(&caller.org_id, &id);
    let (said, now) = (message.clone(), app.wall());
    let before = app
        .write(move |tx| record(tx, &caller, &id, &conversation_id, &said, now))
        .await
        .map_err(failed)??;
    if let Some(before) = before {
        let outcome = if before.posted { Some(Ok(())) } else { before.last_error.map(Err) };
        return Ok(replied(&before.message, true, outcome));
    }
    app.callbacks.poke();
    let outcome = tokio::select! {
        outcome = app.clock.within(POST_WAIT, outcome) => outcome.and_then(Result::ok),
        () = stopped_for(app, LAST_POST_WAIT) => None,
    };
    Ok(replied(&message, false, outcome))
}

/// Ends once the process has been stopping for so long.
async fn stopped_for(app: &App, time: Duration) {
    raised(&mut app.stopping.clone()).await;
    app.clock.within(time, std::future::pending::<()>()).await;
}

/// Records the reply, or finds the one that was there before. Whose delivery it is comes before everything else.
fn record(
    tx: &Tx<'_>,
    caller: &Queue,
    id: &str,
    conversation_id: &str,
    message: &str,
    now: crate::clock::Wall,
) -> Found<Option<ReplyRow>> {
    let row = match own(tx, caller, id)? {
        Ok(row) => row,
        Err(err) => return Ok(Err(err)),
    };
    let refuse = |code: &str, text: String| Ok(Err(RpcError::new(code, text)));
    // The agent knows it from its envelope, where what would command a terminal is replaced.
    let of_envelope = crate::text::attribute(&row.conversation_id);
    if conversation_id != row.conversation_id && conversation_id != of_envelope {
        return refuse("conversation_mismatch", "conversation_id mismatch".to_owned());
    }
    if let Some(before) = replies::get(tx, &caller.org_id, id)? {
        return Ok(Ok(Some(before)));
    }
    if row.state.is_settled() {
        return refuse("already_handled", "the delivery is settled without a reply".to_owned());
    }
    let source = sources::by_id(tx, &caller.org_id, &row.integration_id)?;
    let Some(source) = source else {
        return refuse(
            "one_way",
            "the source is deleted, nothing is posted any more; use mark_handled".to_owned(),
        );
    };
    if row.reply_url.is_none() && source.reply_url.is_none() {
        return refuse("one_way", format!("{} is one-way; use mark_handled", source.name));
    }
    replies::record(tx, &caller.org_id, &row, message, now)?;
    Ok(Ok(None))
}

/// `handled` is said only once the receiver has taken it.
fn replied(message: &str, duplicate: bool, outcome: Option<Result<(), String>>) -> Value {
    let status = if outcome == Some(Ok(())) { "handled" } else { "post_pending" };
    let mut answer = json!({ "status": status, "duplicate": duplicate, "message": message });
    if let Some(Err(error)) = outcome {
        answer["postError"] = error.into();
    }
    answer
}

async fn mark_handled(app: &App, caller: Queue, params: &Value) -> Result<Value, RpcError> {
    let id = text(params, "delivery_id")?.to_owned();
    let now = app.wall();
    let handle = move |tx: &Tx<'_>| {
        let row = match own(tx, &caller, &id)? {
            Ok(row) => row,
            Err(err) => return Ok(Err(err)),
        };
        let duplicate = row.state.is_settled();
        if !duplicate {
            deliveries::settle(tx, &caller.org_id, &id, State::Handled, now)?;
        }
        Ok(Ok(duplicate))
    };
    let duplicate = app.write(handle).await.map_err(failed)??;
    Ok(json!({ "duplicate": duplicate }))
}

/// What became of a message; only its sender may ask.
fn message_status(app: &App, caller: &Queue, params: &Value) -> Result<Value, RpcError> {
    let id = text(params, "id")?;
    let fate = app.db.read(|tx| messages::fate(tx, &caller.org_id, id)).map_err(failed)?;
    let fate = fate.ok_or_else(|| not_found("message"))?;
    if fate.sender != caller.address() {
        return Err(RpcError::new("not_owner", "the message is another agent's"));
    }
    let recipients: Vec<Value> = fate
        .recipients
        .iter()
        .map(|recipient| {
            let mut told = json!({ "agent": recipient.agent, "state": recipient.state });
            if let Some(error) = &recipient.error {
                told["error"] = error.as_str().into();
            }
            told
        })
        .collect();
    let mut told = json!({ "id": id, "state": fate.state(), "recipients": recipients });
    if let Some(nak) = fate.nak {
        told["code"] = nak.as_str().into();
    }
    Ok(told)
}

fn list_agents(app: &App, org_id: &str, params: &Value) -> Result<Value, RpcError> {
    let host = match params.get("host") {
        None | Some(Value::Null) => None,
        Some(Value::String(host)) => {
            let host: Host = host.parse().map_err(|err| RpcError::new("bad_params", format!("{err}")))?;
            Some(host.to_string())
        }
        Some(_) => return Err(RpcError::new("bad_params", "host is a string")),
    };
    let agents = app.db.read(|tx| roster::list(tx, org_id, host.as_deref())).map_err(failed)?;
    let listed = agents.into_iter().map(|row| {
        let named_by = if row.info.named_by == NamedBy::Auto { "auto" } else { "user" };
        json!({
            "name": row.info.name,
            "kind": row.info.kind,
            "pane_id": row.info.pane_id,
            "status": row.info.status,
            "named_by": named_by,
            "title": row.info.title,
            "cwd": row.info.cwd,
            "updated_at": row.updated_at.to_string(),
            "host": row.host,
            "address": format!("{}@{}", row.info.name, row.host),
        })
    });
    Ok(listed.collect())
}
