//! Sources as requests need them: read, with their secrets opened and keyed, and remembered.
//!
//! What is remembered is asked for again as soon as the ledger says that its directory changed, so that a source that
//! was paused or whose secret was replaced a moment ago takes no event more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::app::lock;
use crate::addr::Source;
use crate::clock::{Mono, Wall};
use crate::proto::ingest::Signer;
use crate::store::StoreError;
use crate::store::ledger::sources::{self, SourceRow};
use crate::store::ledger::{Db, Tx};
use crate::store::seal::MasterKey;

/// How long anything is remembered. A process that was killed between its change and its notice of it costs this.
const REMEMBERED: Duration = Duration::from_secs(1);
/// Names that are remembered; beyond, all are forgotten.
const NAMES: usize = 10_000;

/// The sources of one name, one an organisation.
pub(super) type Named = Arc<[Known]>;

/// A source that takes events.
pub(super) struct Known {
    pub(super) row: SourceRow,
    /// What makes the signatures of its secrets; `None` when the master key does not open them.
    signers: Option<Vec<NumberedSigner>>,
}

struct NumberedSigner {
    number: i64,
    valid_until: Option<Wall>,
    signer: Signer,
}

impl Known {
    fn new(row: SourceRow, key: &MasterKey, now: Wall) -> Self {
        let keyed = |secret: &sources::NumberedSecret| NumberedSigner {
            number: secret.number,
            valid_until: secret.valid_until,
            signer: Signer::new(&secret.secret),
        };
        let signers = row.secrets(key, now).ok().map(|secrets| secrets.iter().map(keyed).collect());
        Self { row, signers }
    }

    /// The number of the secret that made `signature`. Every secret is tried, so that nothing tells which fitted.
    ///
    /// # Errors
    /// [`StoreError::Sealed`] when its secrets cannot be opened.
    pub(super) fn verify(
        &self,
        timestamp: &str,
        body: &[u8],
        signature: &str,
        now: Wall,
    ) -> Result<Option<i64>, StoreError> {
        let signers = self.signers.as_ref().ok_or(StoreError::Sealed)?;
        let good = |signer: &&NumberedSigner| signer.valid_until.is_none_or(|until| now < until);
        let fits = |signer: &NumberedSigner| signer.signer.verify(timestamp, body, signature);
        Ok(signers.iter().filter(good).fold(None, |found, signer| match fits(signer) {
            true => Some(signer.number),
            false => found,
        }))
    }
}

/// The sources that were asked for lately.
#[derive(Default)]
pub(super) struct Sources(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    state: Option<u64>,
    since: Option<Mono>,
    named: HashMap<Source, Named>,
}

impl Sources {
    /// The sources of this name that take events, of all organisations.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) fn named(
        &self,
        db: &Db,
        key: &MasterKey,
        name: &Source,
        now: (Mono, Wall),
    ) -> Result<Named, StoreError> {
        // Asked before the ledger is read: a change in between makes what is read here too old at once.
        let state = db.directory_state();
        if let Some(named) = lock(&self.0).get(name, state, now.0) {
            return Ok(named);
        }
        let read = |tx: &Tx<'_>| sources::active_by_name(tx, name.as_str());
        let known = db.read(read)?.into_iter().map(|row| Known::new(row, key, now.1));
        let named: Named = known.collect();
        lock(&self.0).keep(name, state, now.0, named.clone());
        Ok(named)
    }
}

impl Remembered {
    fn get(&self, name: &Source, state: Option<u64>, now: Mono) -> Option<Named> {
        let is_good = self.is_of(state) && self.since.is_some_and(|since| now.since(since) < REMEMBERED);
        is_good.then(|| self.named.get(name).cloned()).flatten()
    }

    fn keep(&mut self, name: &Source, state: Option<u64>, now: Mono, named: Named) {
        let is_old = self.since.is_none_or(|since| now.since(since) >= REMEMBERED);
        if is_old || !self.is_of(state) || self.named.len() >= NAMES {
            *self = Self { state, since: Some(now), named: HashMap::new() };
        }
        self.named.insert(name.clone(), named);
    }

    fn is_of(&self, state: Option<u64>) -> bool {
        state.is_some() && self.state == state
    }
}
