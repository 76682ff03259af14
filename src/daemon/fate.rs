//! What became of a message that this host has sent: what its rows say, and beyond them what the Worker says.
//!
//! The rows are the same user's as everybody's who may ask, so that the daemon asks the Worker in the sender's name
//! for any of them. The Worker answers the sender alone.

use serde::Deserialize;
use serde_json::{Value, json};

use super::host::Host;
use crate::addr::AgentAddr;
use crate::clock::Wall;
use crate::limits;
use crate::proto::control::{ControlError, MessageState, MessageStatus, RecipientStatus};
use crate::proto::envelope;
use crate::store::StoreError;
use crate::store::spool::Spool;
use crate::store::spool::local::{LocalDelivery, LocalState};
use crate::store::spool::outbox::{Entry, EntryKind, State};

/// What the rows of this host say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// How far it has come.
    pub status: MessageStatus,
    /// The sender's address.
    pub from: String,
}

/// What the rows of this host say of a message that was sent from it; `None` when they do not know it.
///
/// # Errors
/// When they cannot be read.
pub fn known_here(spool: &mut Spool, id: &str, now: Wall) -> Result<Option<Known>, StoreError> {
    let local = spool.local_deliveries(id)?;
    let entry = spool.outbox().get(id, now)?.filter(|entry| entry.kind == EntryKind::Message);
    Ok(match entry {
        Some(entry) => Some(kept(entry, &local)),
        // A host that is not enrolled keeps nothing for a Worker.
        None => local.iter().find_map(|row| never_left(id, row)),
    })
}

fn kept(entry: Entry, local: &[LocalDelivery]) -> Known {
    let from = entry.from.clone().unwrap_or_default();
    let host_of = |address: &str| address.parse::<AgentAddr>().ok().map(|address| address.host);
    let recipient =
        entry.dest.parse::<AgentAddr>().ok().filter(|to| Some(&to.host) == host_of(&from).as_ref());
    // What the recipient on this host has, it has, whatever becomes of the Worker's copy.
    let here = recipient.and_then(|to| local.iter().find(|row| row.agent == to.name.as_str()));
    let here = here.and_then(|row| match row.state {
        LocalState::Injected => Some(MessageState::Injected),
        LocalState::Seen => Some(MessageState::Shown),
        LocalState::Waiting | LocalState::Refused => None,
    });
    let is_here = here.is_some();
    let state = match (here, entry.state) {
        (Some(here), _) => here,
        (None, State::Pending | State::Claimed) => MessageState::Spooled,
        (None, State::Sent) => MessageState::Committed,
        (None, State::Dead) => MessageState::Dead,
    };
    let next = (state == MessageState::Spooled).then(|| entry.next_attempt_at.to_string());
    let status = MessageStatus {
        id: entry.id,
        dest: entry.dest,
        state,
        attempts: entry.attempts,
        next_attempt_at: next,
        error: entry.error.filter(|_| !is_here),
        recipients: Vec::new(),
        for_nobody: false,
        unknown: None,
    };
    Known { status, from }
}

fn never_left(id: &str, row: &LocalDelivery) -> Option<Known> {
    let from = envelope::parse(&row.envelope).ok()?.envelope.from;
    let host = from.parse::<AgentAddr>().ok().filter(|_| !row.from_worker)?.host;
    let state = match row.state {
        LocalState::Waiting => MessageState::Spooled,
        LocalState::Injected => MessageState::Injected,
        LocalState::Seen => MessageState::Shown,
        LocalState::Refused => MessageState::Dead,
    };
    let status = MessageStatus {
        id: id.to_owned(),
        dest: format!("{}@{host}", row.agent),
        state,
        attempts: 0,
        next_attempt_at: None,
        error: row.code.clone(),
        recipients: Vec::new(),
        for_nobody: false,
        unknown: None,
    };
    Some(Known { status, from })
}

/// The answer to a caller: the rows, and the Worker's word for what it alone knows.
pub(super) fn status(host: &Host, id: &str) -> Result<MessageStatus, ControlError> {
    let known = host.spool().and_then(|mut spool| known_here(&mut spool, id, host.wall()));
    let known = known.map_err(|err| super::control::store_error(&err))?;
    let Known { mut status, from } =
        known.ok_or_else(|| ControlError::new("not_found", "the spool has no such message"))?;
    match status.state {
        MessageState::Spooled => status.unknown = offline(host),
        MessageState::Committed => match ask(host, &from, id) {
            Ok(told) => hear(&mut status, told),
            Err(why) => status.unknown = Some(why),
        },
        MessageState::Injected | MessageState::Shown | MessageState::Dead => {}
    }
    Ok(status)
}

/// Why the Worker cannot be asked; nothing is wrong with a host that has none.
fn offline(host: &Host) -> Option<String> {
    let link = host.link();
    let why = link.last_error.unwrap_or_else(|| "no connection has come about yet".to_owned());
    (link.url.is_some() && !link.connected).then(|| format!("not connected to the Worker: {why}"))
}

/// What the Worker says of a message.
#[derive(Debug, Default, Deserialize)]
struct Told {
    state: String,
    #[serde(default)]
    recipients: Vec<RecipientStatus>,
    #[serde(default)]
    code: Option<String>,
}

fn ask(host: &Host, from: &str, id: &str) -> Result<Told, String> {
    if let Some(why) = offline(host) {
        return Err(why);
    }
    let answered = host.call("message_status".to_owned(), json!({ "caller": from, "id": id }));
    match answered.recv_timeout(limits::RPC_WAIT) {
        Ok(Ok(told)) => read(told),
        Ok(Err(err)) => Err(format!("the Worker does not tell: {} ({})", err.message, err.code)),
        Err(_) => Err("the Worker did not answer".to_owned()),
    }
}

fn read(told: Value) -> Result<Told, String> {
    serde_json::from_value(told).map_err(|err| format!("the Worker's answer makes no sense: {err}"))
}

fn hear(status: &mut MessageStatus, told: Told) {
    status.state = match told.state.as_str() {
        "injected" => MessageState::Injected,
        "shown" => MessageState::Shown,
        "dead" => MessageState::Dead,
        _ => MessageState::Committed,
    };
    let why = |recipient: &RecipientStatus| {
        let error = recipient.error.as_deref()?;
        Some(if recipient.agent == status.dest {
            error.to_owned()
        } else {
            format!("{}: {error}", recipient.agent)
        })
    };
    let reasons: Vec<String> = told.recipients.iter().filter_map(why).collect();
    status.error = told.code.or((!reasons.is_empty()).then(|| reasons.join(", ")));
    status.for_nobody = told.state == "committed" && told.recipients.is_empty();
    status.recipients = told.recipients;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::spool::inbox::Delivery;
    use crate::store::spool::outbox::NewEntry;

    const ID: &str = "tx_00000000000a";
    const NOW: Wall = Wall(1_700_000_000_000);

    fn spool() -> (tempfile::TempDir, Spool) {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        (dir, spool)
    }

    fn keep(spool: &mut Spool, dest: &str) {
        let entry = NewEntry {
            id: ID,
            kind: EntryKind::Message,
            dest,
            from: Some("bob@titan"),
            reply_to: None,
            event_key: None,
            body: b"hi",
            secret: None,
        };
        spool.outbox().add(&entry, NOW).unwrap();
    }

    fn put(spool: &mut Spool, agent: &str) {
        let envelope = format!(
            "<transit from=\"bob@titan\" id=\"{ID}\" ts=\"2026-01-01T00:00:00Z\" kind=\"dm\" schema=\"transit/1\">\nhi\n\
             [reply: send_message to=\"bob@titan\" reply_to=\"{ID}\"]\n</transit>"
        );
        let delivery = Delivery { id: ID.into(), agent: agent.into(), envelope, redelivery: 0 };
        spool.put_local(&delivery, NOW).unwrap();
    }

    fn state(spool: &mut Spool) -> MessageState {
        known_here(spool, ID, NOW).unwrap().unwrap().status.state
    }

    #[test]
    fn the_outbox_tells_how_far_a_message_is() {
        let (_dir, mut spool) = spool();
        assert_eq!(known_here(&mut spool, ID, NOW).unwrap(), None);
        keep(&mut spool, "jess@hermes");
        assert_eq!(state(&mut spool), MessageState::Spooled);
        spool.outbox().sent(ID, "committed", NOW).unwrap();
        assert_eq!(state(&mut spool), MessageState::Committed);
    }

    #[test]
    fn what_a_session_of_this_host_has_is_injected_whatever_the_worker_says() {
        let (_dir, mut spool) = spool();
        keep(&mut spool, "jess@titan");
        put(&mut spool, "jess");
        assert_eq!(state(&mut spool), MessageState::Spooled);
        spool.injected(ID, "jess", NOW).unwrap();
        spool.outbox().dead(ID, "no_route", NOW).unwrap();
        let known = known_here(&mut spool, ID, NOW).unwrap().unwrap();
        assert_eq!((known.status.state, known.status.error), (MessageState::Injected, None));
    }

    #[test]
    fn without_a_worker_the_inbox_alone_knows() {
        let (_dir, mut spool) = spool();
        put(&mut spool, "jess");
        let known = known_here(&mut spool, ID, NOW).unwrap().unwrap();
        assert_eq!((known.from.as_str(), known.status.dest.as_str()), ("bob@titan", "jess@titan"));
        assert_eq!(known.status.state, MessageState::Spooled);
        spool.refused(ID, "jess", "no_thanks", false, NOW).unwrap();
        let known = known_here(&mut spool, ID, NOW).unwrap().unwrap();
        assert_eq!(
            (known.status.state, known.status.error.as_deref()),
            (MessageState::Dead, Some("no_thanks"))
        );
    }

    #[test]
    fn what_the_worker_has_delivered_here_was_not_sent_from_here() {
        let (_dir, mut spool) = spool();
        put(&mut spool, "jess");
        let rows = spool.local_deliveries(ID).unwrap();
        let delivery = Delivery {
            id: "tx_00000000000b".into(),
            agent: "jess".into(),
            envelope: rows[0].envelope.clone(),
            redelivery: 0,
        };
        spool.receive(&[delivery], NOW).unwrap();
        assert_eq!(known_here(&mut spool, "tx_00000000000b", NOW).unwrap(), None);
    }

    #[test]
    fn the_worker_s_word_is_taken_as_far_as_it_goes() {
        let (_dir, mut spool) = spool();
        keep(&mut spool, "#ops");
        let mut status = known_here(&mut spool, ID, NOW).unwrap().unwrap().status;
        let told = json!({"id": ID, "state": "dead", "recipients": [
            {"agent": "jess@titan", "state": "injected"}, {"agent": "omar@hermes", "state": "dead", "error": "no_thanks"}]});
        hear(&mut status, read(told).unwrap());
        assert_eq!(
            (status.state, status.error.as_deref()),
            (MessageState::Dead, Some("omar@hermes: no_thanks"))
        );
        hear(&mut status, read(json!({"state": "shown"})).unwrap());
        assert_eq!(status.state, MessageState::Shown, "and no further");
        hear(&mut status, read(json!({"state": "unheard of"})).unwrap());
        assert_eq!((status.state, status.error.as_deref()), (MessageState::Committed, None));
        assert!(!status.for_nobody);
        hear(&mut status, read(json!({"state": "committed", "recipients": []})).unwrap());
        assert_eq!((status.state, status.for_nobody), (MessageState::Committed, true));
        assert!(read(json!([])).is_err());
    }
}
