//! Ingest sources: who may post events, where these go, and where replies may go.

use std::time::Duration;

use super::{Refusal, Row, StoreError, Tx, rooms, values};
use crate::addr::{Addr, BUILT_IN_CONNECTORS, Source};
use crate::clock::Wall;
use crate::id::IdKind;
use crate::proto::ingest::{ReplyPrefix, reply_url_allowed};
use crate::secret::Secret;
use crate::store::seal::MasterKey;

/// An ingest source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRow {
    /// `int_…`; a deleted source's id never comes back.
    pub integration_id: String,
    /// Its organisation.
    pub org_id: String,
    /// Its name, unique in its organisation.
    pub name: Source,
    /// Where its events go: an agent or a room.
    pub target_addr: Addr,
    /// Where replies go when an event does not say.
    pub reply_url: Option<String>,
    /// What an event's `reply_url` must begin with, one of them.
    pub prefixes: Vec<ReplyPrefix>,
    secret: Vec<u8>,
    secret_no: i64,
    old_secret: Option<Vec<u8>>,
    /// Until when the secret before the last rotation is still good.
    pub old_valid_until: Option<Wall>,
    /// Whether it answers as if it did not exist.
    pub paused: bool,
    /// Events a second.
    pub rate: u32,
    /// Events at once.
    pub burst: u32,
    /// One line that an agent reads with every event.
    pub instructions: Option<String>,
    /// When it was made.
    pub created_at: Wall,
    /// When it was last changed.
    pub updated_at: Wall,
}

/// A secret of a source and its number, which an event keeps so that its reply is signed with the same one.
#[derive(Debug, Clone)]
pub struct NumberedSecret {
    /// Counts the secrets of the source, from 1.
    pub number: i64,
    /// The secret.
    pub secret: Secret,
    /// Until when it is good, if a rotation has replaced it.
    pub valid_until: Option<Wall>,
}

/// What a new source is made of.
#[derive(Debug, Clone)]
pub struct NewSource {
    /// Its name.
    pub name: Source,
    /// Where its events go.
    pub target_addr: Addr,
    /// Where replies go when an event does not say.
    pub reply_url: Option<String>,
    /// What an event's `reply_url` must begin with.
    pub prefixes: Vec<ReplyPrefix>,
    /// Its first secret.
    pub secret: Secret,
    /// Events a second.
    pub rate: u32,
    /// Events at once.
    pub burst: u32,
    /// One line that an agent reads with every event.
    pub instructions: Option<String>,
}

/// What changes at a source. `None` leaves a field as it is; `Some(None)` clears one that may be absent.
#[derive(Debug, Clone, Default)]
pub struct SourceChange {
    /// Where its events go.
    pub target_addr: Option<Addr>,
    /// Where replies go when an event does not say.
    pub reply_url: Option<Option<String>>,
    /// The whole list of what an event's `reply_url` must begin with.
    pub prefixes: Option<Vec<ReplyPrefix>>,
    /// Events a second.
    pub rate: Option<u32>,
    /// Events at once.
    pub burst: Option<u32>,
    /// One line that an agent reads with every event.
    pub instructions: Option<Option<String>>,
}

impl SourceRow {
    const COLUMNS: &str = "integration_id, org_id, name, target_addr, reply_url, prefixes, secret, \
         secret_no, old_secret, old_valid_until, paused, rate, burst, instructions, created_at, updated_at";

    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            integration_id: row.get(0)?,
            org_id: row.get(1)?,
            name: row.parsed(2)?,
            target_addr: row.parsed(3)?,
            reply_url: row.get(4)?,
            prefixes: row
                .get::<String>(5)?
                .lines()
                .map(str::parse)
                .collect::<Result<_, _>>()
                .map_err(|err| row.damaged(5, err))?,
            secret: row.get(6)?,
            secret_no: row.get(7)?,
            old_secret: row.get(8)?,
            old_valid_until: row.get(9)?,
            paused: row.get(10)?,
            rate: row.get(11)?,
            burst: row.get(12)?,
            instructions: row.get(13)?,
            created_at: row.get(14)?,
            updated_at: row.get(15)?,
        })
    }

    /// The secrets that a request may be signed with now, the current one first.
    ///
    /// # Errors
    /// [`StoreError::Sealed`] when the master key is another one.
    pub fn secrets(&self, key: &MasterKey, now: Wall) -> Result<Vec<NumberedSecret>, StoreError> {
        let current = self.open(key, &self.secret)?;
        let mut secrets = vec![NumberedSecret { number: self.secret_no, secret: current, valid_until: None }];
        if let (Some(sealed), Some(until)) = (&self.old_secret, self.old_valid_until)
            && now < until
        {
            let (number, secret) = (self.secret_no - 1, self.open(key, sealed)?);
            secrets.push(NumberedSecret { number, secret, valid_until: Some(until) });
        }
        Ok(secrets)
    }

    /// The secret that signs the reply to an event that came in under secret `number`: that one while it is
    /// good, else the current one.
    ///
    /// # Errors
    /// [`StoreError::Sealed`] when the master key is another one.
    pub fn reply_secret(&self, key: &MasterKey, number: i64, now: Wall) -> Result<Secret, StoreError> {
        let mut secrets = self.secrets(key, now)?;
        let at = secrets.iter().position(|secret| secret.number == number).unwrap_or(0);
        Ok(secrets.swap_remove(at).secret)
    }

    fn open(&self, key: &MasterKey, sealed: &[u8]) -> Result<Secret, StoreError> {
        key.open(sealed, &place(&self.integration_id))
    }
}

/// What a sealed secret is bound to.
fn place(integration_id: &str) -> String {
    format!("source {integration_id}")
}

/// How prefixes are stored: a URL holds no newline, so one stands between two.
fn joined(prefixes: &[ReplyPrefix]) -> String {
    prefixes.iter().map(ReplyPrefix::as_str).collect::<Vec<_>>().join("\n")
}

fn check_reply_url(reply_url: Option<&str>, prefixes: &[ReplyPrefix]) -> Result<(), Refusal> {
    reply_url.map_or(Ok(()), |url| reply_url_allowed(url, prefixes).map(drop).map_err(Refusal::ReplyUrl))
}

/// An agent need not exist yet. A room must.
fn check_target(tx: &Tx<'_>, org_id: &str, target: &Addr) -> Result<(), StoreError> {
    match target {
        Addr::Agent(_) => Ok(()),
        Addr::Room(room) => rooms::get(tx, org_id, room).map(drop),
    }
}

/// Makes a source.
///
/// # Errors
/// [`Refusal::SourceExists`], [`Refusal::BuiltInName`] for a name that belongs to a connector,
/// [`Refusal::NoRoom`] for a room that does not exist, and [`Refusal::ReplyUrl`] for a reply address that no prefix
/// permits.
pub fn create(
    tx: &Tx<'_>,
    org_id: &str,
    new: &NewSource,
    key: &MasterKey,
    now: Wall,
) -> Result<SourceRow, StoreError> {
    let name = new.name.as_str();
    if BUILT_IN_CONNECTORS.contains(&name) {
        return Err(Refusal::BuiltInName { name: name.to_owned() }.into());
    }
    check_target(tx, org_id, &new.target_addr)?;
    check_reply_url(new.reply_url.as_deref(), &new.prefixes)?;
    let id = IdKind::Integration.fresh();
    let sealed = key.seal(&new.secret, &place(&id));
    let sql = format!(
        "INSERT INTO source (integration_id, org_id, name, target_addr, reply_url, prefixes, secret, secret_no,
                             paused, rate, burst, instructions, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, 0, ?8, ?9, ?10, ?11, ?11)
         ON CONFLICT (org_id, name) DO NOTHING RETURNING {}",
        SourceRow::COLUMNS
    );
    let values = values![
        id,
        org_id,
        name,
        new.target_addr.to_string(),
        new.reply_url.as_deref(),
        joined(&new.prefixes),
        sealed,
        new.rate,
        new.burst,
        new.instructions.as_deref(),
        now,
    ];
    tx.directory_changed();
    let made = tx.one(&sql, values, SourceRow::read)?;
    Ok(made.ok_or_else(|| Refusal::SourceExists { name: name.to_owned() })?)
}

/// Whether there is any source, and so a secret that is sealed.
///
/// # Errors
/// When the ledger cannot be read.
pub fn any(tx: &Tx<'_>) -> Result<bool, StoreError> {
    Ok(tx.one("SELECT name FROM source LIMIT 1", &[], |row| row.get::<String>(0))?.is_some())
}

/// Whether `key` is the master key of this ledger: it opens a secret that is stored, or none is.
///
/// # Errors
/// [`StoreError::Sealed`] when it is another one.
pub fn check_key(tx: &Tx<'_>, key: &MasterKey) -> Result<(), StoreError> {
    let sql = format!("SELECT {} FROM source ORDER BY integration_id LIMIT 1", SourceRow::COLUMNS);
    match tx.one(&sql, &[], SourceRow::read)? {
        Some(source) => source.open(key, &source.secret).map(drop),
        None => Ok(()),
    }
}

/// All sources of an organisation, by name.
///
/// # Errors
/// When the ledger cannot be read.
pub fn list(tx: &Tx<'_>, org_id: &str) -> Result<Vec<SourceRow>, StoreError> {
    let sql = format!("SELECT {} FROM source WHERE org_id = ?1 ORDER BY name", SourceRow::COLUMNS);
    tx.all(&sql, values![org_id], SourceRow::read)
}

/// The sources of this name that take events, of all organisations; the signature tells them apart.
///
/// # Errors
/// When the ledger cannot be read.
pub fn active_by_name(tx: &Tx<'_>, name: &str) -> Result<Vec<SourceRow>, StoreError> {
    let sql = format!(
        "SELECT {} FROM source WHERE name = ?1 AND paused = 0 ORDER BY created_at, integration_id",
        SourceRow::COLUMNS
    );
    tx.all(&sql, values![name], SourceRow::read)
}

/// The source of this name.
///
/// # Errors
/// When the ledger cannot be read.
pub fn get(tx: &Tx<'_>, org_id: &str, name: &str) -> Result<Option<SourceRow>, StoreError> {
    let sql = format!("SELECT {} FROM source WHERE org_id = ?1 AND name = ?2", SourceRow::COLUMNS);
    tx.one(&sql, values![org_id, name], SourceRow::read)
}

/// The source with this id.
///
/// # Errors
/// When the ledger cannot be read.
pub fn by_id(tx: &Tx<'_>, org_id: &str, integration_id: &str) -> Result<Option<SourceRow>, StoreError> {
    let sql = format!("SELECT {} FROM source WHERE org_id = ?1 AND integration_id = ?2", SourceRow::COLUMNS);
    tx.one(&sql, values![org_id, integration_id], SourceRow::read)
}

fn found(row: Option<SourceRow>, name: &Source) -> Result<SourceRow, StoreError> {
    Ok(row.ok_or_else(|| Refusal::not_found("source", name))?)
}

/// Changes a source; what its change does not name stays as it is.
///
/// # Errors
/// [`Refusal::NotFound`] when there is no such source, [`Refusal::NoRoom`] when its target would be a room that
/// does not exist, and [`Refusal::ReplyUrl`] when no prefix permits the reply address that it would have then.
pub fn update(
    tx: &Tx<'_>,
    org_id: &str,
    name: &Source,
    change: &SourceChange,
    now: Wall,
) -> Result<SourceRow, StoreError> {
    let old = found(get(tx, org_id, name.as_str())?, name)?;
    change.target_addr.as_ref().map_or(Ok(()), |target| check_target(tx, org_id, target))?;
    let reply_url = change.reply_url.as_ref().unwrap_or(&old.reply_url).as_deref();
    let prefixes = change.prefixes.as_ref().unwrap_or(&old.prefixes);
    check_reply_url(reply_url, prefixes)?;
    let sql = format!(
        "UPDATE source SET target_addr = ?3, reply_url = ?4, prefixes = ?5, rate = ?6, burst = ?7,
                           instructions = ?8, updated_at = ?9
         WHERE org_id = ?1 AND name = ?2 RETURNING {}",
        SourceRow::COLUMNS
    );
    let values = values![
        org_id,
        name.as_str(),
        change.target_addr.as_ref().unwrap_or(&old.target_addr).to_string(),
        reply_url,
        joined(prefixes),
        change.rate.unwrap_or(old.rate),
        change.burst.unwrap_or(old.burst),
        change.instructions.as_ref().unwrap_or(&old.instructions).as_deref(),
        now,
    ];
    tx.directory_changed();
    found(tx.one(&sql, values, SourceRow::read)?, name)
}

/// Gives a source a new secret. The one it had stays good for `overlap`; the one before that is gone.
///
/// # Errors
/// [`Refusal::NotFound`] when there is no such source.
pub fn rotate(
    tx: &Tx<'_>,
    org_id: &str,
    name: &Source,
    new: (&MasterKey, &Secret),
    overlap: Duration,
    now: Wall,
) -> Result<SourceRow, StoreError> {
    let old = found(get(tx, org_id, name.as_str())?, name)?;
    let sealed = new.0.seal(new.1, &place(&old.integration_id));
    let sql = format!(
        "UPDATE source SET old_secret = secret, old_valid_until = ?4, secret = ?3, secret_no = secret_no + 1,
                           updated_at = ?5
         WHERE org_id = ?1 AND name = ?2 RETURNING {}",
        SourceRow::COLUMNS
    );
    tx.directory_changed();
    let row = tx.one(&sql, values![org_id, name.as_str(), sealed, now + overlap, now], SourceRow::read)?;
    found(row, name)
}

/// Pauses or resumes a source. While it is paused it answers as if it did not exist.
///
/// # Errors
/// [`Refusal::NotFound`] when there is no such source.
pub fn set_paused(
    tx: &Tx<'_>,
    org_id: &str,
    name: &Source,
    paused: bool,
    now: Wall,
) -> Result<SourceRow, StoreError> {
    let sql = format!(
        "UPDATE source SET paused = ?3, updated_at = ?4 WHERE org_id = ?1 AND name = ?2 RETURNING {}",
        SourceRow::COLUMNS
    );
    tx.directory_changed();
    found(tx.one(&sql, values![org_id, name.as_str(), paused, now], SourceRow::read)?, name)
}

/// Deletes a source; replies that still wait for it are never posted.
///
/// # Errors
/// [`Refusal::NotFound`] when there is no such source.
pub fn delete(tx: &Tx<'_>, org_id: &str, name: &Source) -> Result<SourceRow, StoreError> {
    let sql = format!("DELETE FROM source WHERE org_id = ?1 AND name = ?2 RETURNING {}", SourceRow::COLUMNS);
    tx.directory_changed();
    let row = found(tx.one(&sql, values![org_id, name.as_str()], SourceRow::read)?, name)?;
    tx.execute(
        "UPDATE reply SET state = 'dropped' WHERE org_id = ?1 AND integration_id = ?2 AND state = 'due'",
        values![org_id, &row.integration_id],
    )?;
    Ok(row)
}

#[cfg(test)]
mod tests;
