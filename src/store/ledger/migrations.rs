//! The schema, step by step. A step that was released is never changed; a new one is added at the end.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;
use crate::id::IdKind;

/// Step n of this list takes `user_version` from n to n + 1.
const STEPS: &[&str] = &[
    include_str!("../sql/ledger_0001_directory.sql"),
    include_str!("../sql/ledger_0002_messages.sql"),
    include_str!("../sql/ledger_0003_rooms.sql"),
    include_str!("../sql/ledger_0004_users.sql"),
];

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
    fn the_deliveries_and_replies_of_schema_2_are_still_there() {
        let path = Path::new("ledger");
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("PRAGMA foreign_keys = ON").unwrap();
        apply(&mut connection, path, &STEPS[..2]).unwrap();
        connection
            .execute_batch(
                "INSERT INTO organisation VALUES ('org_1', 'one', 'One');
                 INSERT INTO message VALUES (7, 'org_1', 'tx_1', 'alpha', 'amy@alpha', 'bob@beta', 'hi', NULL, 't', NULL, 1);
                 INSERT INTO message_delivery
                 VALUES (3, 'org_1', 7, 'beta', 'bob', 'amy@alpha', 'queued', 1, 2, 30, 40, 'paused', 1, 2);
                 INSERT INTO event VALUES (1, 'evt_1', 'dlv_1', 'org_1', 'int_1', 'k', 'c', NULL, NULL, 'x', NULL, '{}', 'd', 1, 5);
                 INSERT INTO delivery
                 VALUES (9, 'org_1', 'dlv_1', 1, 'int_1', 'beta', 'bob', 'replied', 3, 2, 1, 6, 7, 'paused', 5, 8);
                 INSERT INTO reply VALUES ('org_1', 'dlv_1', 'int_1', 'bob@beta', 'done', 'due', 4, 11, '500', 10, NULL);
                 INSERT INTO reply_attempt VALUES ('org_1', 'dlv_1', 4, 10, '500');",
            )
            .unwrap();
        apply(&mut connection, path, STEPS).unwrap();
        let whole: String = connection
            .query_row(
                "SELECT seq || id || event_seq || host || agent || state || attempts || shown || misses || read_at
                        || next_attempt_at || last_error || created_at || updated_at FROM delivery
                 WHERE room IS NULL",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(whole, "9dlv_11betabobreplied32167paused58");
        let reply: String = connection
            .query_row(
                "SELECT agent || message || state || attempts || next_attempt_at || last_error FROM reply",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(reply, "bob@betadonedue411500");
        let message: String = connection
            .query_row(
                "SELECT m.id || d.state || d.last_error FROM message m JOIN message_delivery d ON d.message_seq = m.seq
                 WHERE m.room_seq IS NULL AND m.room_number IS NULL",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(message, "tx_1queuedpaused");
        let broken: u32 = connection
            .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(broken, 0);
        let again = "INSERT INTO delivery (org_id, id, event_seq, integration_id, host, agent, state, attempts, shown,
                                           misses, next_attempt_at, created_at, updated_at)
                     VALUES ('org_1', 'dlv_1', 1, 'int_1', 'beta', ?1, 'pending', 0, 0, 0, 1, 1, 1)";
        assert!(connection.execute(again, ["bob"]).is_err());
        assert_eq!(connection.execute(again, ["cat"]).unwrap(), 1);
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
