//! What agents have said to each other lately, and what came between: what a Worker that starts anew needs to know.

use super::messages::OPERATOR;
use super::{Row, StoreError, Tx, values};
use crate::clock::Wall;

/// Something that was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// When it was stored.
    pub at: Wall,
    /// Its organisation.
    pub org_id: String,
    /// To whom: an agent's address, or `#room`.
    pub to: String,
    /// The message; `None` for an event.
    pub message: Option<SaidMessage>,
}

/// A message that was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaidMessage {
    /// Its id.
    pub id: String,
    /// The sender's address.
    pub from: String,
    /// What it answers.
    pub reply_to: Option<String>,
}

/// Rows that are read at once.
const PAGE: i64 = 1_000;

/// Everything that was taken after `since`, in its order; of more than `most` messages, or events, the last ones.
///
/// # Errors
/// When the ledger cannot be read.
pub fn since(tx: &Tx<'_>, since: Wall, most: usize) -> Result<Vec<Said>, StoreError> {
    let messages = "SELECT seq, created_at, org_id, recipient, id, sender, reply_to, nak IS NULL FROM message
                    WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";
    let mut said = last_of(tx, messages, since, most, |row| {
        let message = SaidMessage { id: row.get(4)?, from: row.get(5)?, reply_to: row.get(6)? };
        let said = Said { at: row.get(1)?, org_id: row.get(2)?, to: row.get(3)?, message: Some(message) };
        Ok((said, row.get(7)?))
    })?;
    let events = "SELECT seq, created_at, org_id, agent || '@' || host FROM delivery
                  WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";
    said.extend(last_of(tx, events, since, most, |row| {
        Ok((Said { at: row.get(1)?, org_id: row.get(2)?, to: row.get(3)?, message: None }, true))
    })?);
    said.sort_by_key(|said| said.at);
    Ok(said)
}

/// To whom operators have written after the message `after`: each with its organisation, the rooms and the agents in
/// them.
///
/// # Errors
/// When the ledger cannot be read.
pub fn by_operators(tx: &Tx<'_>, after: i64) -> Result<Vec<(String, String)>, StoreError> {
    let posts = "SELECT seq, org_id, recipient FROM message WHERE seq > ?1 AND sender = ?2";
    let read = |row: &Row<'_>| Ok((row.get::<i64>(0)?, row.get::<String>(1)?, row.get::<String>(2)?));
    let mut written = Vec::new();
    for (seq, org_id, recipient) in tx.all(posts, values![after, OPERATOR], read)? {
        let agents =
            "SELECT agent || '@' || host FROM message_delivery WHERE org_id = ?1 AND message_seq = ?2";
        let agents: Vec<String> = tx.all(agents, values![&org_id, seq], |row| row.get(0))?;
        written.extend([recipient].into_iter().chain(agents).map(|address| (org_id.clone(), address)));
    }
    Ok(written)
}

/// The place of the last message of all.
///
/// # Errors
/// When the ledger cannot be read.
pub fn last(tx: &Tx<'_>) -> Result<i64, StoreError> {
    let last = tx.one("SELECT MAX(seq) FROM message", &[], |row| row.get::<Option<i64>>(0))?;
    Ok(last.flatten().unwrap_or(0))
}

/// The last rows of a table, walked backwards along `seq`, which grows with time: there is no index over the time.
fn last_of(
    tx: &Tx<'_>,
    sql: &str,
    since: Wall,
    most: usize,
    read: impl Fn(&Row<'_>) -> Result<(Said, bool), StoreError>,
) -> Result<Vec<Said>, StoreError> {
    let (mut found, mut before) = (Vec::new(), i64::MAX);
    loop {
        let page = tx.all(sql, values![before, PAGE], |row| Ok((row.get::<i64>(0)?, read(row)?)))?;
        let Some(&(last, _)) = page.last() else { break };
        before = last;
        let is_end = page.iter().any(|(_, (said, _))| said.at <= since);
        let wanted = page.into_iter().filter(|(_, (said, counts))| *counts && said.at > since);
        found.extend(wanted.map(|(_, (said, _))| said));
        if is_end || found.len() >= most {
            break;
        }
    }
    found.truncate(most);
    // Of the same moment, in the order in which they came.
    found.reverse();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DELIVERY_TTL;
    use crate::proto::wire::{NakCode, SendFrame};
    use crate::store::ledger::messages::{self, Queue, SYSTEM};
    use crate::store::ledger::roster::tests::{agent, enrol};
    use crate::store::ledger::tests::with_org;

    fn frame(n: i64, reply_to: Option<&str>) -> SendFrame {
        SendFrame {
            id: format!("tx_{n:012}"),
            from: "amy@alpha".into(),
            to: "bob@beta".into(),
            body: String::new(),
            reply_to: reply_to.map(str::to_owned),
            ts: String::new(),
        }
    }

    #[test]
    fn what_was_taken_lately_is_told_in_its_order_and_what_was_refused_is_not() {
        with_org(|tx, org| {
            enrol(tx, &org.id, "beta", &[agent("bob", "idle")], Wall(0)).unwrap();
            let queue = Queue { org_id: org.id.clone(), host: "beta".into(), agent: "bob".into() };
            for n in 1..=5 {
                let answered = (n == 5).then_some("tx_000000000004");
                messages::take(tx, &queue, "alpha", &frame(n, answered), false, Wall(n * 10)).unwrap();
            }
            let refused = frame(6, None);
            messages::refuse(tx, &org.id, "alpha", &refused, NakCode::NotMember, Wall(60)).unwrap();
            let told = since(tx, Wall(20), 10).unwrap();
            assert_eq!(told.iter().map(|said| said.at.0).collect::<Vec<_>>(), [30, 40, 50]);
            let Said { org_id, to, message, .. } = &told[2];
            let message = message.as_ref().unwrap();
            assert_eq!((org_id, to.as_str()), (&org.id, "bob@beta"));
            assert_eq!((message.from.as_str(), message.id.as_str()), ("amy@alpha", "tx_000000000005"));
            assert_eq!(message.reply_to.as_deref(), Some("tx_000000000004"));
            let last = since(tx, Wall(0), 2).unwrap();
            assert_eq!(last.iter().map(|said| said.at.0).collect::<Vec<_>>(), [40, 50]);

            messages::expire(tx, Wall(20) + DELIVERY_TTL).unwrap();
            let bounces = since(tx, Wall(60), 10).unwrap();
            let senders: Vec<_> =
                bounces.iter().map(|said| said.message.as_ref().unwrap().from.as_str()).collect();
            assert_eq!(senders, [SYSTEM, SYSTEM]);
        });
    }
}
