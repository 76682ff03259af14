//! What goes with an agent that gets another name: its inbox with the history of it, and what it has written and the
//! Worker has not taken. The Worker does the same with what waits there.

use rusqlite::types::Value;
use rusqlite::{Transaction, params};

use super::outbox::row::{self, FIELD_COUNT, FIELDS};
use crate::addr::Name;

/// Moves everything from one name to another. Where both have had a delivery, the new name's own stays.
pub(super) fn take_along(tx: &Transaction<'_>, old: &Name, new: &Name) -> rusqlite::Result<()> {
    tx.prepare_cached("UPDATE OR IGNORE inbox SET agent = ?2 WHERE agent = ?1")?
        .execute((old.as_str(), new.as_str()))?;
    speak_as(tx, old, new)
}

/// Who is not on its host's roster any more has nothing taken, so that what waits gets its sender's new name.
fn speak_as(tx: &Transaction<'_>, old: &Name, new: &Name) -> rusqlite::Result<()> {
    let sql = format!(
        "SELECT {FIELDS} FROM outbox
         WHERE kind = 'message' AND state IN ('pending', 'claimed') AND sender LIKE ?1 || '@%'"
    );
    let mut query = tx.prepare_cached(&sql)?;
    let values = |row: &rusqlite::Row<'_>| (0..FIELD_COUNT).map(|n| row.get::<_, Value>(n)).collect();
    let rows: Vec<Vec<Value>> = query.query_map([old.as_str()], values)?.collect::<rusqlite::Result<_>>()?;
    // A row that is damaged stays as it is, for whoever looks at damage.
    for mut entry in rows.into_iter().filter_map(|values| row::decode(values).ok()).map(|row| row.entry) {
        let host = entry.from.as_deref().and_then(|from| from.split_once('@')).map(|(_, host)| host);
        entry.from = host.map(|host| format!("{new}@{host}"));
        tx.prepare_cached("UPDATE outbox SET sender = ?2, digest = ?3 WHERE id = ?1")?.execute(params![
            entry.id,
            entry.from,
            row::digest(&entry)
        ])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Wall;
    use crate::store::spool::Spool;
    use crate::store::spool::agents::Identity;
    use crate::store::spool::inbox::{Delivery, Received};
    use crate::store::spool::outbox::{EntryKind, NewEntry};

    const NOW: Wall = Wall(1_000);

    fn delivery(id: &str, agent: &str) -> Delivery {
        Delivery { id: id.into(), agent: agent.into(), envelope: "<transit>".into(), redelivery: 0 }
    }

    #[test]
    fn mail_both_ways_and_its_history_go_with_a_new_name() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        let who = Identity { harness: "pi".parse().unwrap(), session_id: "1".into() };
        let name = |text: &str| text.parse::<Name>().unwrap();
        spool.remember(&who, Some(&name("jess")), |_| false, |_| name("a"), NOW).unwrap();
        let (seen, waits) = ("tx_000000000001", "tx_000000000002");
        spool.receive(&[delivery(seen, "jess"), delivery(waits, "jess")], NOW).unwrap();
        spool.injected(seen, "jess", NOW).unwrap();
        let mut add = |id, from| {
            let entry = NewEntry {
                id,
                kind: EntryKind::Message,
                dest: "omar@titan",
                from: Some(from),
                reply_to: None,
                event_key: None,
                body: b"hi",
                secret: None,
            };
            spool.outbox().add(&entry, NOW).unwrap();
        };
        add("tx_000000000003", "jess@titan");
        add("tx_000000000004", "jessica@titan");
        add("tx_000000000005", "jess@titan");
        spool.outbox().sent("tx_000000000005", "committed", NOW).unwrap();

        spool.rename(&who, &name("ops"), NOW).unwrap();
        let due = spool.due("ops", NOW, 9).unwrap();
        assert_eq!(due.iter().map(|due| due.id.as_str()).collect::<Vec<_>>(), [waits]);
        assert!(spool.due("jess", NOW, 9).unwrap().is_empty());
        assert_eq!(spool.receive(&[delivery(seen, "ops")], NOW).unwrap(), [Received::Injected]);
        let mut from = |id| spool.outbox().get(id, NOW).unwrap().unwrap().from.unwrap();
        assert_eq!(from("tx_000000000003"), "ops@titan");
        assert_eq!(from("tx_000000000004"), "jessica@titan");
        assert_eq!(from("tx_000000000005"), "jess@titan", "the Worker has it under that name");
        let look = crate::store::spool::look::Look::open(dir.path()).unwrap().unwrap();
        assert!(look.rows(0, 9).unwrap().iter().all(Result::is_ok), "their digests are right");
    }
}
