//! The roster of each host: which agents there are, as its daemon said last.

use super::{Row, StoreError, Tx, values};
use crate::clock::Wall;
use crate::limits::DELIVERY_TTL;
use crate::proto::wire::{AgentInfo, NamedBy};

/// An agent of an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRow {
    /// Its host.
    pub host: String,
    /// What its daemon says of it.
    pub info: AgentInfo,
    /// When something about it changed last.
    pub updated_at: Wall,
}

impl AgentRow {
    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        let named_by = if row.get::<String>(7)? == "auto" { NamedBy::Auto } else { NamedBy::User };
        Ok(Self {
            host: row.get(0)?,
            info: AgentInfo {
                name: row.get(1)?,
                kind: row.get(2)?,
                pane_id: row.get(3)?,
                status: row.get(4)?,
                cwd: row.get(5)?,
                title: row.get(6)?,
                named_by,
            },
            updated_at: row.get(8)?,
        })
    }
}

/// Replaces the roster of a host. Agents that are not on it any more are remembered as absent for as long as a
/// message would wait for them.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn replace(
    tx: &Tx<'_>,
    org_id: &str,
    host: &str,
    agents: &[AgentInfo],
    now: Wall,
) -> Result<(), StoreError> {
    tx.execute("UPDATE agent SET present = 0 WHERE org_id = ?1 AND host = ?2", values![org_id, host])?;
    for agent in agents {
        tx.execute(
            "INSERT INTO agent (org_id, host, name, kind, pane_id, status, cwd, title, named_by, present,
                                updated_at, seen_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 1, ?10, ?10)
             ON CONFLICT (org_id, host, name) DO UPDATE
             SET present = 1, seen_at = excluded.seen_at,
                 updated_at = CASE
                     WHEN agent.kind = excluded.kind AND agent.pane_id = excluded.pane_id
                      AND agent.status = excluded.status AND agent.cwd = excluded.cwd
                      AND agent.title = excluded.title AND agent.named_by = excluded.named_by
                     THEN agent.updated_at ELSE excluded.updated_at END,
                 kind = excluded.kind, pane_id = excluded.pane_id, status = excluded.status,
                 cwd = excluded.cwd, title = excluded.title, named_by = excluded.named_by",
            values![
                org_id,
                host,
                &agent.name,
                &agent.kind,
                &agent.pane_id,
                &agent.status,
                &agent.cwd,
                &agent.title,
                if agent.named_by == NamedBy::Auto { "auto" } else { "user" },
                now,
            ],
        )?;
    }
    tx.execute(
        "DELETE FROM agent WHERE org_id = ?1 AND host = ?2 AND present = 0 AND seen_at <= ?3",
        values![org_id, host, now - DELIVERY_TTL],
    )?;
    Ok(())
}

/// The agents that are on the rosters of an organisation's hosts that are not revoked, by host and name; of one
/// host only, if one is named.
///
/// # Errors
/// When the ledger cannot be read.
pub fn list(tx: &Tx<'_>, org_id: &str, host: Option<&str>) -> Result<Vec<AgentRow>, StoreError> {
    tx.all(
        "SELECT a.host, a.name, a.kind, a.pane_id, a.status, a.cwd, a.title, a.named_by, a.updated_at
         FROM agent a JOIN host h ON h.org_id = a.org_id AND h.slug = a.host AND h.revoked_at IS NULL
         WHERE a.org_id = ?1 AND a.present = 1 AND a.host = COALESCE(?2, a.host)
         ORDER BY a.host, a.name",
        values![org_id, host],
        AgentRow::read,
    )
}

/// The names on the roster of one host, each with its pane.
///
/// # Errors
/// When the ledger cannot be read.
pub fn panes(tx: &Tx<'_>, org_id: &str, host: &str) -> Result<Vec<(String, String)>, StoreError> {
    tx.all(
        "SELECT name, pane_id FROM agent WHERE org_id = ?1 AND host = ?2 AND present = 1",
        values![org_id, host],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
}

/// Gives what waits for an agent, and its place in rooms, to the name that it has now. What was delivered stays with the
/// name that it had.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn rename(
    tx: &Tx<'_>,
    org_id: &str,
    host: &str,
    (old, new): (&str, &str),
    now: Wall,
) -> Result<(), StoreError> {
    // One that waits for both already is not moved: it would be there twice.
    tx.execute(
        "UPDATE message_delivery SET agent = ?4, updated_at = ?5
         WHERE org_id = ?1 AND host = ?2 AND agent = ?3 AND state = 'queued'
           AND NOT EXISTS (SELECT 1 FROM message_delivery o WHERE o.message_seq = message_delivery.message_seq
                             AND o.host = ?2 AND o.agent = ?4)",
        values![org_id, host, old, new, now],
    )?;
    tx.execute(
        "UPDATE delivery SET agent = ?4, updated_at = ?5
         WHERE org_id = ?1 AND host = ?2 AND agent = ?3 AND state IN ('pending', 'dispatched', 'read')
           AND NOT EXISTS (SELECT 1 FROM delivery o WHERE o.org_id = ?1 AND o.id = delivery.id AND o.host = ?2
                             AND o.agent = ?4)",
        values![org_id, host, old, new, now],
    )?;
    tx.execute(
        "UPDATE room_member SET agent = ?4
         WHERE org_id = ?1 AND host = ?2 AND agent = ?3
           AND NOT EXISTS (SELECT 1 FROM room_member o WHERE o.room_seq = room_member.room_seq AND o.host = ?2
                             AND o.agent = ?4)",
        values![org_id, host, old, new],
    )?;
    tx.execute(
        "DELETE FROM room_member WHERE org_id = ?1 AND host = ?2 AND agent = ?3",
        values![org_id, host, old],
    )?;
    Ok(())
}

/// Whether an agent can be written to: its host is enrolled, and it is on the roster or was within the time
/// that a message waits.
///
/// # Errors
/// When the ledger cannot be read.
pub fn is_known(tx: &Tx<'_>, org_id: &str, host: &str, agent: &str) -> Result<bool, StoreError> {
    let known = tx.one(
        "SELECT 1 FROM agent a JOIN host h ON h.org_id = a.org_id AND h.slug = a.host AND h.revoked_at IS NULL
         WHERE a.org_id = ?1 AND a.host = ?2 AND a.name = ?3",
        values![org_id, host, agent],
        |_| Ok(()),
    )?;
    Ok(known.is_some())
}

#[cfg(test)]
pub(crate) mod tests;
