//! What a host answers by itself when it has no Worker: who its agents are, and what they have written to each other.

use serde_json::{Map, Value, json};

use super::super::host::Host;
use super::super::session::Session;
use super::{Answer, store_error};
use crate::proto::control::ControlError;
use crate::proto::envelope::{self, Full, render_full};
use crate::store::StoreError;
use crate::store::spool::local::LocalState;

/// Answers a call for which there is nobody else.
pub(super) fn answer(host: &Host, caller: &Session, method: &str, params: &Map<String, Value>) -> Answer {
    match method {
        "list_agents" => Ok(json!({ "result": agents(host, params) })),
        "read_message" => read_message(host, caller, params),
        _ => {
            let text = format!("{method} needs a Worker, and this host is not enrolled");
            Err(ControlError::new("not_enrolled", text))
        }
    }
}

fn agents(host: &Host, params: &Map<String, Value>) -> Vec<Value> {
    let here = host.name();
    let wanted = params.get("host").and_then(Value::as_str).filter(|wanted| *wanted != here.as_str());
    let agents = if wanted.is_some() { Vec::new() } else { host.registry.roster().0 };
    let listed = agents.into_iter().map(|agent| {
        let address = format!("{}@{here}", agent.name);
        let mut told = json!(agent);
        told["host"] = json!(here);
        told["address"] = address.into();
        told
    });
    listed.collect()
}

/// The whole of a message, for whom it was.
fn read_message(host: &Host, caller: &Session, params: &Map<String, Value>) -> Answer {
    let Some(id) = params.get("id").and_then(Value::as_str) else {
        return Err(ControlError::new("bad_params", "id is no text"));
    };
    match full(host, caller, id).map_err(|err| store_error(&err))? {
        Some(full) => Ok(json!({ "result": render_full(&full) })),
        None => Err(ControlError::new("not_found", format!("there is no message {id} to this agent"))),
    }
}

fn full(host: &Host, caller: &Session, id: &str) -> Result<Option<Full>, StoreError> {
    let spool = host.spool()?;
    let rows = spool.local_deliveries(id)?;
    let Some(row) = rows.into_iter().find(|row| row.agent == caller.place.name.as_str()) else {
        return Ok(None);
    };
    let Ok(seen) = envelope::parse(&row.envelope) else { return Ok(None) };
    let body = match spool.whole(id, &row.agent)? {
        Some(whole) => whole,
        // The Worker had the rest when this host still had one.
        None if seen.truncated => return Ok(None),
        None => seen.envelope.body,
    };
    Ok(Some(Full {
        id: id.to_owned(),
        conversation_id: id.to_owned(),
        user: Some(seen.envelope.from),
        connector: "transit".to_owned(),
        status: status(row.state).to_owned(),
        first_read: false,
        settled: true,
        body,
        instructions: None,
    }))
}

/// How far it is, in the Worker's words.
fn status(state: LocalState) -> &'static str {
    match state {
        LocalState::Waiting => "queued",
        LocalState::Injected => "injected",
        LocalState::Seen => "shown",
        LocalState::Refused => "dead",
    }
}
