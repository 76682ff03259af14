//! Settling at the Worker what an event has brought: the reply that its run said, or that it has nothing to say.

use std::time::Duration;

use serde_json::{Value, json};

use crate::daemon::host::Host;
use crate::limits;
use crate::proto::wire::RpcError;
use crate::store::StoreError;
use crate::store::home::owed::{Owed, Reply};

/// What the Worker says of a settlement that will never be taken: it was settled, or is nobody's.
const FOR_GOOD: [&str; 5] =
    ["already_handled", "bad_params", "conversation_mismatch", "not_found", "not_owner"];

/// Whether anything is owed.
pub(super) fn is_anything(host: &Host) -> bool {
    Owed::of(&host.paths.data).all().is_ok_and(|all| !all.is_empty())
}

/// Offers the Worker everything that is owed, the oldest first, until it takes no more.
pub(super) fn offer(host: &Host) {
    let owed = Owed::of(&host.paths.data);
    let all = match owed.all() {
        Ok(all) => all,
        Err(err) => return tracing::error!(%err, "could not read what is owed to the Worker"),
    };
    for reply in all {
        match offer_one(host, &owed, &reply) {
            Ok(true) => {}
            Ok(false) => return,
            Err(err) => {
                return tracing::error!(%err, "could not note that a reply was taken; it is offered again");
            }
        }
    }
}

/// Offers one; answers whether to go on with the next.
fn offer_one(host: &Host, owed: &Owed, reply: &Reply) -> Result<bool, StoreError> {
    let id = &reply.delivery_id;
    let settled = match &reply.message {
        Some(message) => match call(host, "chat_reply", reply, Some(message)) {
            // Nobody waits for a reply; that the event was handled is all there is to say.
            Some(Err(err)) if err.code == "one_way" => call(host, "mark_handled", reply, None),
            answer => answer,
        },
        None => call(host, "mark_handled", reply, None),
    };
    match settled {
        Some(Ok(_)) => tracing::debug!(id, "a delivery is settled"),
        Some(Err(err)) if FOR_GOOD.contains(&err.code.as_str()) => {
            tracing::warn!(id, code = err.code, "the Worker does not take a reply");
        }
        _ if reply.age(host.wall()) > age_limit() => {
            tracing::error!(id, "the Worker has not taken a reply for very long; it is dropped");
        }
        _ => return Ok(false),
    }
    owed.done(reply)?;
    Ok(true)
}

fn age_limit() -> i64 {
    i64::try_from(limits::HISTORY_KEEP.as_millis()).unwrap_or(i64::MAX)
}

/// `None` when the Worker does not answer.
fn call(
    host: &Host,
    method: &str,
    reply: &Reply,
    message: Option<&String>,
) -> Option<Result<Value, RpcError>> {
    let mut params = json!({ "caller": reply.caller, "delivery_id": reply.delivery_id });
    if let Some(message) = message {
        params["conversation_id"] = reply.conversation_id.as_str().into();
        params["message"] = message.as_str().into();
    }
    let answered = host.call(method.to_owned(), params);
    answered.recv_timeout(limits::RPC_WAIT + Duration::from_secs(1)).ok()
}
