//! What the inbox knows of a message that may never have left this host.

use rusqlite::OptionalExtension;

use super::Spool;
use super::inbox::SEEN;
use crate::clock::Wall;
use crate::store::StoreError;

/// One inbox row of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalDelivery {
    /// The recipient's name.
    pub agent: String,
    /// The rendered transit/1 text, which names the sender.
    pub envelope: String,
    /// How far it is.
    pub state: LocalState,
    /// Why it was refused, as a stable word.
    pub code: Option<String>,
    /// The Worker has delivered it, too.
    pub from_worker: bool,
}

/// How far a message is on its way into a session of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalState {
    /// It waits for the session, or for its answer.
    Waiting,
    /// The session has it durably.
    Injected,
    /// Its terminal has shown it.
    Seen,
    /// The session has refused it.
    Refused,
}

/// A delivery that no session has taken yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// `tx_…` or `dlv_…`.
    pub id: String,
    /// The recipient's name.
    pub agent: String,
    /// When it came.
    pub received_at: Wall,
    /// Refusals that have passed.
    pub attempts: u32,
    /// Why it was not taken the last time, as a stable word.
    pub code: Option<String>,
}

impl Spool {
    /// The newest deliveries that wait, at most `most`, oldest first; and how many wait.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn waiting(&self, most: usize) -> Result<(Vec<Held>, u64), StoreError> {
        self.read(|db| {
            let mut query = db.prepare_cached(
                "SELECT id, agent, received_at, attempts, code FROM inbox WHERE state = 'waiting'
                 ORDER BY seq DESC LIMIT ?1",
            )?;
            let held = query.query_map([i64::try_from(most).unwrap_or(i64::MAX)], |row| {
                Ok(Held {
                    id: row.get("id")?,
                    agent: row.get("agent")?,
                    received_at: Wall(row.get("received_at")?),
                    attempts: row.get("attempts")?,
                    code: row.get("code")?,
                })
            })?;
            let mut held: Vec<Held> = held.collect::<rusqlite::Result<_>>()?;
            held.reverse();
            let total = "SELECT count(*) FROM inbox WHERE state = 'waiting'";
            let total = db.query_row(total, [], |row| row.get::<_, i64>(0))?;
            Ok((held, total.cast_unsigned()))
        })
    }

    /// All that a message says whose envelope was clipped, if that is kept here.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn whole(&self, id: &str, agent: &str) -> Result<Option<String>, StoreError> {
        self.read(|db| {
            let body = db
                .prepare_cached("SELECT body FROM inbox WHERE id = ?1 AND agent = ?2")?
                .query_row((id, agent), |row| row.get("body"))
                .optional()?;
            Ok(body.flatten())
        })
    }

    /// The inbox rows of this id, one an agent.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn local_deliveries(&self, id: &str) -> Result<Vec<LocalDelivery>, StoreError> {
        self.read(|db| {
            db.prepare_cached(
                "SELECT agent, envelope, state, code, from_worker FROM inbox WHERE id = ?1 ORDER BY seq",
            )?
            .query_map([id], |row| {
                let code: Option<String> = row.get("code")?;
                let state = match row.get_ref("state")?.as_str()? {
                    "injected" if code.as_deref() == Some(SEEN) => LocalState::Seen,
                    "injected" => LocalState::Injected,
                    "refused" => LocalState::Refused,
                    _ => LocalState::Waiting,
                };
                Ok(LocalDelivery {
                    agent: row.get("agent")?,
                    envelope: row.get("envelope")?,
                    state,
                    code: code.filter(|_| state == LocalState::Refused || state == LocalState::Waiting),
                    from_worker: row.get("from_worker")?,
                })
            })?
            .collect()
        })
    }
}
