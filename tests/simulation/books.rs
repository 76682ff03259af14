//! What the ledger says: whether anything is left to do, and at the end all of it.

use transit::store::StoreError;
use transit::store::ledger::{Db, Row, Value};

use super::story::{DeliveryRow, MessageRow, RoomPost};
use super::world::World;

impl World {
    fn look_at_ledger<T>(&self, look: impl FnOnce(&Db) -> Result<T, StoreError>) -> T {
        let looked = match &self.process {
            Some(process) => look(process.db()),
            None => Db::open_stepped(&self.database).and_then(|db| look(&db)),
        };
        looked.expect("the ledger can be read")
    }

    fn org_no(&self, id: &str) -> usize {
        self.orgs.iter().position(|org| org.id == id).expect("there are two organisations")
    }

    /// Something that is not done yet.
    pub(crate) fn unrest(&self) -> Option<String> {
        if self.process.is_none() {
            return Some("the Worker is dead".to_owned());
        }
        if let Some(host) = self.hosts.iter().find(|host| !host.up || !host.is_linked()) {
            return Some(format!("{} of org {} is not there", host.name, host.org));
        }
        if let Some(event) = self.story.events.iter().find(|event| event.taken.is_empty()) {
            return Some(format!("event {} of org {} was never taken", event.key, event.org));
        }
        let first = |sql: &'static str| {
            self.look_at_ledger(|db| db.read(|tx| tx.one(sql, &[], |row| row.get::<String>(0))))
        };
        self.hosts.iter().find_map(super::host::Host::unrest).or_else(|| {
            first(
                "SELECT m.id || ' is queued for ' || d.agent || '@' || d.host || ' until ' || d.next_attempt_at
                 FROM message_delivery d JOIN message m ON m.seq = d.message_seq WHERE d.state = 'queued'",
            )
            .or_else(|| {
                first(
                    "SELECT id || ' of ' || agent || ' is ' || state || ' until ' || next_attempt_at
                     FROM delivery WHERE state <> 'handled'",
                )
            })
            .or_else(|| {
                first("SELECT delivery_id || ' has a reply that is due' FROM reply WHERE state = 'due'")
            })
        })
    }

    /// What the ledger has now.
    pub(crate) fn books(&self) -> Books {
        let text = |row: &Row<'_>, at| row.get::<String>(at);
        let messages = self.look_at_ledger(|db| {
            db.read(|tx| {
                tx.all(
                    "SELECT m.org_id, m.id, m.sender, d.agent || '@' || d.host, d.state, m.reply_to, m.body,
                            d.last_error, m.created_at, d.updated_at
                     FROM message m JOIN message_delivery d ON d.message_seq = m.seq ORDER BY d.seq",
                    NOTHING,
                    |row| {
                        let org = self.org_no(&text(row, 0)?);
                        let (id, sender, agent) = (text(row, 1)?, text(row, 2)?, text(row, 3)?);
                        let (state, reply_to, body) = (text(row, 4)?, row.get(5)?, text(row, 6)?);
                        let (error, created_ms, moved_ms) = (row.get(7)?, row.get(8)?, row.get(9)?);
                        Ok(MessageRow {
                            org,
                            id,
                            sender,
                            agent,
                            state,
                            error,
                            reply_to,
                            body,
                            created_ms,
                            moved_ms,
                        })
                    },
                )
            })
        });
        let deliveries = self.look_at_ledger(|db| {
            db.read(|tx| {
                tx.all(
                    "SELECT d.org_id, d.id, e.event_key, d.state, r.state, d.agent || '@' || d.host, d.created_at,
                            d.updated_at
                     FROM delivery d JOIN event e ON e.org_id = d.org_id AND e.seq = d.event_seq
                     LEFT JOIN reply r ON r.org_id = d.org_id AND r.delivery_id = d.id ORDER BY d.seq",
                    NOTHING,
                    |row| {
                        let org = self.org_no(&text(row, 0)?);
                        let (id, key, state) = (text(row, 1)?, text(row, 2)?, text(row, 3)?);
                        let (agent, created_ms, moved_ms) = (text(row, 5)?, row.get(6)?, row.get(7)?);
                        Ok(DeliveryRow { org, id, key, state, reply: row.get(4)?, agent, created_ms, moved_ms })
                    },
                )
            })
        });
        let posts = self.look_at_ledger(|db| {
            db.read(|tx| {
                tx.all(
                    "SELECT org_id, id, sender, room_number, created_at FROM message
                     WHERE room_number IS NOT NULL ORDER BY org_id, room_number",
                    NOTHING,
                    |row| {
                        let org = self.org_no(&text(row, 0)?);
                        let number = row.get::<i64>(3)?.unsigned_abs();
                        let created_ms = row.get(4)?;
                        Ok(RoomPost { org, id: text(row, 1)?, sender: text(row, 2)?, number, created_ms })
                    },
                )
            })
        });
        Books { messages, deliveries, posts }
    }

    /// Writes down what the ledger has at the end, after what was removed from it before.
    pub(crate) fn close_the_books(&mut self) {
        let Books { messages, deliveries, posts } = self.books();
        self.story.messages.extend(messages);
        self.story.deliveries.extend(deliveries);
        self.story.posts.extend(posts);
        self.story.posts.sort_by_key(|post| (post.org, post.number));
        self.story.is_steady = self.tally.jumps == 0;
        self.tally.posted = self.story.posts.len() as u64;
        self.tally.bounces = self.story.messages.iter().filter(|row| row.sender == "transit").count() as u64;
        if let Some(process) = &self.process {
            let stats = process.db().stats();
            self.tally.commits += stats.commits;
            self.tally.changes += stats.changes;
        }
    }
}

/// What the ledger has.
pub(crate) struct Books {
    pub(crate) messages: Vec<MessageRow>,
    pub(crate) deliveries: Vec<DeliveryRow>,
    pub(crate) posts: Vec<RoomPost>,
}

const NOTHING: &[Value<'_>] = &[];
