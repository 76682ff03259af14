//! What waits on this host: what it has written, what was given up, and what no session has taken yet.

use serde_json::{Value, json};

use super::{Answer, store_error};
use crate::daemon::host::Host;
use crate::proto::control::ControlError;
use crate::store::spool::local::Held;
use crate::store::spool::look::{Listed, Look, Which};

/// Entries of each kind that are told; the newest ones. An answer is one line, and has room for no more of them.
const MOST: usize = 200;
/// Entries that are read at once.
const PAGE: u32 = 500;

/// The newest entries, oldest first, without their bodies, and how many there are of each kind.
pub(super) fn inbox(host: &Host) -> Answer {
    let failed = |err| store_error(&err);
    let spool = host.spool().map_err(failed)?;
    let (held, held_total) = spool.waiting(MOST).map_err(failed)?;
    let look = Look::open(&host.paths.data).map_err(failed)?;
    let (outbox, outbox_total) = newest(host, look.as_ref(), Which::Pending)?;
    let (dead, dead_total) = newest(host, look.as_ref(), Which::Dead)?;
    Ok(json!({
        "outbox": outbox.iter().map(entry).collect::<Vec<_>>(),
        "outbox_total": outbox_total,
        "dead": dead.iter().map(grave).collect::<Vec<_>>(),
        "dead_total": dead_total,
        "held": held.iter().map(waiting).collect::<Vec<_>>(),
        "held_total": held_total,
    }))
}

fn newest(host: &Host, look: Option<&Look>, which: Which) -> Result<(Vec<Listed>, usize), ControlError> {
    let (mut newest, mut total, mut after) = (Vec::new(), 0, 0);
    while let Some(look) = look {
        let page = look.page(which, after, PAGE, host.wall()).map_err(|err| store_error(&err))?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        total += page.len();
        newest.extend(page);
        newest.drain(..newest.len().saturating_sub(MOST));
    }
    Ok((newest, total))
}

fn entry(listed: &Listed) -> Value {
    let entry = &listed.entry;
    let mut told = json!({
        "id": entry.id,
        "kind": entry.kind.as_str(),
        "from": entry.from,
        "to": entry.dest,
        "ts": entry.created_at.to_string(),
        "bytes": listed.bytes,
        "state": entry.state.as_str(),
        "attempts": entry.attempts,
        "next_attempt_at": entry.next_attempt_at.to_string(),
    });
    if let Some(reply_to) = &entry.reply_to {
        told["reply_to"] = reply_to.as_str().into();
    }
    if let Some(error) = &entry.error {
        told["last_error"] = error.as_str().into();
    }
    told
}

fn grave(listed: &Listed) -> Value {
    let Listed { entry: row, .. } = listed;
    json!({ "message": entry(listed), "reason": row.error, "at": row.updated_at.to_string() })
}

fn waiting(held: &Held) -> Value {
    let mut told = json!({
        "id": held.id,
        "agent": held.agent,
        "at": held.received_at.to_string(),
        "attempts": held.attempts,
    });
    if let Some(code) = &held.code {
        told["code"] = code.as_str().into();
    }
    told
}
