//! What an operator asks for on `transit.sock`; the orders themselves are in `daemon/orders`.

use serde_json::json;

use super::{Answer, store_error};
use crate::daemon::host::Host;
use crate::daemon::orders::{self, Reloaded};
use crate::proto::control::ControlError;
use crate::store::StoreError;
use crate::store::spool::local::LocalState;
use crate::store::spool::outbox::State;

/// Pauses, resumes, or tells which of the two is the case.
pub(super) fn pause(host: &Host, paused: Option<bool>, toggle: bool) -> Answer {
    let wanted = paused.or_else(|| toggle.then(|| !host.is_paused()));
    if let Some(wanted) = wanted {
        orders::pause(host, wanted).map_err(|err| store_error(&err))?;
    }
    Ok(json!({ "paused": host.is_paused() }))
}

/// How far a message is on its way through this host, by its rows.
pub(super) fn trace(host: &Host, id: &str) -> Answer {
    let read = || -> Result<_, StoreError> {
        let mut spool = host.spool()?;
        Ok((spool.outbox().get(id, host.wall())?, spool.local_deliveries(id)?))
    };
    let (entry, rows) = read().map_err(|err| store_error(&err))?;
    if entry.is_none() && rows.is_empty() {
        return Err(ControlError::new("not_found", "the spool has no such message"));
    }
    let is = |wanted| entry.as_ref().is_some_and(|entry| entry.state == wanted);
    let error = || entry.as_ref().and_then(|entry| entry.error.clone());
    let row = |wanted| rows.iter().find(move |row| row.state == wanted);
    let refused = row(LocalState::Refused).map(|row| row.code.clone().unwrap_or_default());
    let waits = row(LocalState::Waiting).and_then(|row| row.code.clone());
    Ok(json!({
        "committed": is(State::Sent),
        "handed": !rows.is_empty(),
        "injected": row(LocalState::Injected).is_some(),
        "code": waits.or_else(|| error().filter(|_| is(State::Pending))),
        "dead": refused.or_else(|| error().filter(|_| is(State::Dead))),
    }))
}

/// Reads the configuration anew.
pub(super) fn reload(host: &Host) -> Answer {
    match orders::reload(host) {
        Ok(Reloaded { changed, restart, wrong }) => {
            Ok(json!({ "reloaded": true, "changed": changed, "needs_restart": restart, "not_used": wrong }))
        }
        Err(err) => Err(ControlError::new("bad_config", err.to_string())),
    }
}
