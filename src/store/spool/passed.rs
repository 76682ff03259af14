//! What was said on this host lately, and what is still on its way through the Worker: what a daemon that starts anew
//! needs to know.

use super::Spool;
use crate::clock::Wall;
use crate::limits;
use crate::store::StoreError;

/// Something that was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// When it came here.
    pub at: Wall,
    /// What it is.
    pub what: What,
}

/// What was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// An agent of this host has sent it.
    Sent {
        /// Its id.
        id: String,
        /// The sender's address.
        from: String,
        /// An agent's address, or `#room`.
        to: String,
        /// What it answers.
        reply_to: Option<String>,
    },
    /// An agent of this host has got it.
    Got {
        /// Its id.
        id: String,
        /// The agent's name.
        agent: String,
        /// The rendered transit/1 text.
        envelope: String,
    },
}

/// A message between two agents of this host that has not come back from the Worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// Its id.
    pub id: String,
    /// The sender's address.
    pub from: String,
    /// The recipient's address.
    pub to: String,
}

impl Spool {
    /// Everything that was said after `since`, in its order; of more than `most` that were sent, or got, the last ones.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn said_since(&self, since: Wall, most: usize) -> Result<Vec<Said>, StoreError> {
        let mut said = self.read(|db| {
            // Backwards along the order in which they came: there is no index over the time.
            let mut sent = db.prepare_cached(
                "SELECT created_at, id, sender, dest, reply_to FROM outbox NOT INDEXED
                 WHERE kind = 'message' AND sender IS NOT NULL ORDER BY seq DESC",
            )?;
            let sent = sent.query_map([], |row| {
                let (id, from, to, reply_to) = (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
                Ok(Said { at: Wall(row.get(0)?), what: What::Sent { id, from, to, reply_to } })
            })?;
            let mut got = db.prepare_cached(
                "SELECT received_at, id, agent, envelope FROM inbox NOT INDEXED ORDER BY seq DESC",
            )?;
            let got = got.query_map([], |row| {
                let what = What::Got { id: row.get(1)?, agent: row.get(2)?, envelope: row.get(3)? };
                Ok(Said { at: Wall(row.get(0)?), what })
            })?;
            let is_late = |said: &rusqlite::Result<Said>| said.as_ref().map_or(true, |said| said.at > since);
            let mut said = sent.take_while(is_late).take(most).collect::<rusqlite::Result<Vec<_>>>()?;
            said.extend(got.take_while(is_late).take(most).collect::<rusqlite::Result<Vec<_>>>()?);
            Ok(said)
        })?;
        said.reverse();
        // What an agent of this host gets from another one was sent first.
        said.sort_by_key(|said| (said.at, matches!(said.what, What::Got { .. })));
        Ok(said)
    }

    /// Messages to agents of `host`, which is this one, that no inbox has, although the Worker may bring them.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn away(&self, host: &str, now: Wall) -> Result<Vec<Away>, StoreError> {
        self.read(|db| {
            let mut query = db.prepare_cached(
                "SELECT id, sender, dest FROM outbox AS sent
                 WHERE kind = 'message' AND sender IS NOT NULL AND state IN ('pending', 'claimed', 'sent')
                   AND created_at > ?2 AND substr(dest, instr(dest, '@') + 1) = ?1
                   AND NOT EXISTS (SELECT 1 FROM inbox
                                   WHERE inbox.id = sent.id AND agent = substr(dest, 1, instr(dest, '@') - 1))
                 ORDER BY seq",
            )?;
            query
                .query_map((host, (now - limits::DELIVERY_TTL).0), |row| {
                    Ok(Away { id: row.get(0)?, from: row.get(1)?, to: row.get(2)? })
                })?
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::spool::inbox::Delivery;
    use crate::store::spool::outbox::{EntryKind, NewEntry};

    fn spool() -> (tempfile::TempDir, Spool) {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        (dir, spool)
    }

    fn send(spool: &mut Spool, id: &str, dest: &str, at: i64) {
        let entry = NewEntry {
            id,
            kind: EntryKind::Message,
            dest,
            from: Some("amy@titan"),
            reply_to: None,
            event_key: None,
            body: b"hi",
            secret: None,
        };
        spool.outbox().add(&entry, Wall(at)).unwrap();
    }

    fn put(spool: &mut Spool, id: &str, at: i64) {
        let delivery =
            Delivery { id: id.into(), agent: "bob".into(), envelope: id.to_owned(), redelivery: 0 };
        spool.put_local(&delivery, Wall(at)).unwrap();
    }

    #[test]
    fn what_was_said_lately_is_told_in_its_order_from_both_sides() {
        let (_dir, mut spool) = spool();
        send(&mut spool, "tx_1", "bob@titan", 10);
        put(&mut spool, "tx_1", 10);
        send(&mut spool, "tx_2", "#ops", 20);
        put(&mut spool, "tx_9", 15);
        send(&mut spool, "tx_3", "bob@titan", 30);
        let told = |since, most| -> Vec<String> {
            let said = spool.said_since(Wall(since), most).unwrap().into_iter();
            said.map(|said| match said.what {
                What::Sent { id, .. } => format!("sent {id}"),
                What::Got { id, .. } => format!("got {id}"),
            })
            .collect()
        };
        assert_eq!(told(0, 9), ["sent tx_1", "got tx_1", "got tx_9", "sent tx_2", "sent tx_3"]);
        assert_eq!(told(10, 9), ["got tx_9", "sent tx_2", "sent tx_3"]);
        assert_eq!(told(0, 1), ["got tx_9", "sent tx_3"]);
    }

    #[test]
    fn what_is_away_is_for_this_host_and_in_no_inbox_yet() {
        let (_dir, mut spool) = spool();
        for (id, dest) in [
            ("tx_1", "bob@titan"),
            ("tx_2", "bob@titan"),
            ("tx_3", "bob@hermes"),
            ("tx_4", "#titan"),
            ("tx_5", "bob@titan"),
            ("tx_6", "bob@titan"),
        ] {
            send(&mut spool, id, dest, 10);
        }
        put(&mut spool, "tx_1", 10);
        spool.outbox().dead("tx_5", "no_route", Wall(11)).unwrap();
        spool.outbox().sent("tx_6", "committed", Wall(11)).unwrap();
        let ids = |now: Wall| -> Vec<String> {
            spool.away("titan", now).unwrap().into_iter().map(|away| away.id).collect()
        };
        assert_eq!(ids(Wall(20)), ["tx_2", "tx_6"]);
        assert!(ids(Wall(20) + limits::DELIVERY_TTL).is_empty(), "the Worker has given them up");
    }
}
