//! Which master key: the one in the variable, or that of the file beside the database.

use std::path::Path;

use super::{MASTER_KEY, NAME};
use crate::cli::output::{self, Exit, Failure};
use crate::store::ledger::{Look, sources};
use crate::store::seal::MasterKey;
use crate::store::{StoreError, files};

/// The way out for whoever has lost the key.
pub(super) const LOST: &str = "bring it back, or set TRANSIT_MASTER_KEY; when it is lost, give each source a new secret: \
                               transit-worker source rotate NAME --lost-key";

/// The master key, and where it is from. The file is made when it is absent, unless secrets are stored already: then it
/// was lost, and another one would open nothing.
pub(super) fn find(
    database: &Path,
    has_secrets: impl FnOnce() -> Result<bool, Failure>,
) -> Result<(MasterKey, String), Failure> {
    let file = MasterKey::file_beside(database);
    if std::env::var_os(MASTER_KEY).is_none() && !file.exists() && has_secrets()? {
        let why = format!("{} is not there, and secrets are stored under it", file.display());
        return Err(Failure::new(Exit::Config, "read the master key", why).hint(LOST));
    }
    find_or_make(database)
}

/// The same, also when secrets are stored that it does not open.
pub(super) fn find_or_make(database: &Path) -> Result<(MasterKey, String), Failure> {
    if let Some(value) = std::env::var_os(MASTER_KEY) {
        let key = value.to_str().and_then(MasterKey::from_base64).ok_or_else(|| {
            let why = "it is not base64 of exactly 32 bytes";
            Failure::new(Exit::Config, format_args!("read {MASTER_KEY}"), why)
                .hint("make one: openssl rand -base64 32")
        })?;
        return Ok((key, MASTER_KEY.to_owned()));
    }
    let file = MasterKey::file_beside(database);
    let key =
        MasterKey::from_file_or_new(&file).map_err(|err| Failure::store("read the master key", &err))?;
    if files::is_exposed(&file) {
        let shown = file.display();
        output::warn(
            NAME,
            format_args!("others can read the master key {shown}; mend it: chmod 600 {shown}"),
        );
    }
    Ok((key, file.display().to_string()))
}

/// Whether secrets are stored in a database that nobody has opened yet, and that need not be there.
pub(super) fn has_secrets(database: &Path) -> Result<bool, Failure> {
    if !database.exists() {
        return Ok(false);
    }
    let looked = Look::open(database).and_then(|look| match look.schema() {
        0 => Ok(false),
        _ => look.read(sources::any),
    });
    looked.map_err(|err: StoreError| Failure::store("open the database", &err))
}
