//! The schema, step by step. A step that was released is never changed; a new one is added at the end.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;
use crate::id::IdKind;

/// Step n of this list takes `user_version` from n to n + 1.
const STEPS: &[&str] =
    &[include_str!("../sql/ledger_0001_directory.sql"), include_str!("../sql/ledger_0002_messages.sql")];

/// The schema that this program knows.
pub const SCHEMA: u32 = STEPS.len() as u32;

/// Marks the file as a ledger of Transit: `TrLg`.
const APPLICATION_ID: i32 = 0x5472_4c67;

/// Brings the schema up to date, in one transaction.
pub(super) fn run(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    apply(connection, path, STEPS)
}

/// The version of the schema of a file that is only looked at.
pub(super) fn version(connection: &Connection, path: &Path) -> Result<u32, StoreError> {
    check(connection, path, STEPS.len()).map(|version| version as u32)
}

fn apply(connection: &mut Connection, path: &Path, steps: &[&str]) -> Result<(), StoreError> {
    let failed = |err| StoreError::sql(path, err);
    let version = check(connection, path, steps.len())?;
    if version == steps.len() {
        return Ok(());
    }
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let version = check(&tx, path, steps.len())?;
    for step in &steps[version..] {
        tx.execute_batch(step).map_err(failed)?;
    }
    if version == 0 {
        let id = IdKind::Organisation.fresh();
        tx.execute("INSERT INTO organisation (id, slug, name) VALUES (?1, 'default', 'Default')", [id])
            .map_err(failed)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    }
    tx.pragma_update(None, "user_version", steps.len() as u32).map_err(failed)?;
    tx.commit().map_err(failed)
}

/// The version of the schema, if the file is a ledger that this program knows, or is empty.
fn check(connection: &Connection, path: &Path, known: usize) -> Result<usize, StoreError> {
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, u32>(0));
    let ask = || {
        let id = connection.query_row("PRAGMA application_id", [], |row| row.get::<_, i32>(0))?;
        Ok((id, number("PRAGMA user_version")?, number("SELECT count(*) FROM sqlite_master")?))
    };
    let (id, version, objects) = ask().map_err(|err| StoreError::sql(path, err))?;
    if id != APPLICATION_ID && (version, objects) != (0, 0) {
        let why = "it is a database of another program".to_owned();
        return Err(StoreError::Damaged { path: path.to_owned(), why });
    }
    if version as usize > known {
        return Err(StoreError::Newer { path: path.to_owned(), found: version, known: known as u32 });
    }
    Ok(version as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(connection: &Connection) -> u32 {
        connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn steps_are_applied_once_and_later_ones_keep_what_is_there() {
        let path = Path::new("ledger");
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, path, STEPS).unwrap();
        apply(&mut connection, path, STEPS).unwrap();
        assert_eq!(version(&connection) as usize, STEPS.len());
        let more = [STEPS, &["CREATE TABLE more (id TEXT)"]].concat();
        apply(&mut connection, path, &more).unwrap();
        assert_eq!(version(&connection) as usize, more.len());
        let organisations: u32 =
            connection.query_row("SELECT count(*) FROM organisation", [], |row| row.get(0)).unwrap();
        assert_eq!(organisations, 1);
        let newer = apply(&mut connection, path, STEPS).unwrap_err();
        assert!(matches!(newer, StoreError::Newer { found, known, .. } if found == known + 1));
    }

    #[test]
    fn a_step_that_fails_leaves_nothing_behind_and_a_foreign_database_is_refused() {
        let path = Path::new("ledger");
        let mut connection = Connection::open_in_memory().unwrap();
        assert!(apply(&mut connection, path, &["CREATE TABLE a (b TEXT); CREATE TABLE"]).is_err());
        apply(&mut connection, path, STEPS).unwrap();
        let mut foreign = Connection::open_in_memory().unwrap();
        foreign.execute_batch("CREATE TABLE theirs (id TEXT)").unwrap();
        assert!(matches!(apply(&mut foreign, path, STEPS), Err(StoreError::Damaged { .. })));
    }
}
