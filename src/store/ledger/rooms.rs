//! Rooms: who is in them, and what was said there.
//!
//! A message to a room is one row of `message` with a number of its own and a delivery to each member; that is in
//! [`messages`](super::messages). An event that goes to a room is one delivery a member; see
//! [`deliveries`].

use std::str::FromStr;

use super::deliveries;
use super::messages::Queue;
use super::{Refusal, Row, StoreError, Tx, roster, values};
use crate::addr::{Addr, Name};
use crate::clock::Wall;
use crate::limits::{ROOM_MEMBERS, ROOMS};

/// Who may join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Every agent of the organisation.
    #[default]
    Open,
    /// Whom the operator adds.
    Invite,
}

impl Policy {
    /// The word that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Invite => "invite",
        }
    }
}

impl FromStr for Policy {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let known = [Self::Open, Self::Invite].into_iter().find(|policy| policy.as_str() == word);
        known.ok_or("room policy must be open or invite")
    }
}

/// A room that is not deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomRow {
    /// What its messages and members refer to.
    pub(super) seq: i64,
    /// Its name, without `#`, unique in its organisation.
    pub name: Name,
    /// Who may join.
    pub policy: Policy,
    /// Messages along one chain or pair before the loop guard refuses; 0 is never, `None` the Worker's own limit.
    pub loop_limit: Option<u32>,
    /// Members.
    pub members: u32,
    /// The number of its latest message; 0 when there was none.
    pub last_number: u64,
    /// When it was made.
    pub created_at: Wall,
}

/// Someone in a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The agent, whose queue it is.
    pub queue: Queue,
    /// Whether it can be written to: its host is enrolled, and it is on the roster or was a day ago.
    pub is_known: bool,
    /// Since when it is in the room.
    pub joined_at: Wall,
}

/// Something that was said in a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// `tx_…`.
    pub id: String,
    /// Its number in the room, from 1.
    pub number: u64,
    /// The sender's address.
    pub sender: String,
    /// The whole text.
    pub body: String,
    /// What it answers.
    pub reply_to: Option<String>,
    /// When it was taken.
    pub created_at: Wall,
}

/// Who puts an agent into a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The agent, which needs the room to be open.
    Itself,
    /// The operator.
    Operator,
}

impl RoomRow {
    const QUERY: &str = "SELECT r.seq, r.name, r.policy, r.loop_limit, \
         (SELECT COUNT(*) FROM room_member m WHERE m.org_id = r.org_id AND m.room_seq = r.seq), \
         r.last_number, r.created_at \
         FROM room r WHERE r.org_id = ?1 AND r.deleted_at IS NULL";

    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            seq: row.get(0)?,
            name: row.parsed(1)?,
            policy: row.parsed(2)?,
            loop_limit: row.get(3)?,
            members: row.get(4)?,
            last_number: row.get::<i64>(5)?.unsigned_abs(),
            created_at: row.get(6)?,
        })
    }
}

/// The room of this name.
///
/// # Errors
/// When the ledger cannot be read.
pub fn find(tx: &Tx<'_>, org_id: &str, name: &Name) -> Result<Option<RoomRow>, StoreError> {
    let sql = format!("{} AND r.name = ?2", RoomRow::QUERY);
    tx.one(&sql, values![org_id, name.as_str()], RoomRow::read)
}

/// The same, where there must be one.
///
/// # Errors
/// [`Refusal::NoRoom`] when there is none.
pub fn get(tx: &Tx<'_>, org_id: &str, name: &Name) -> Result<RoomRow, StoreError> {
    Ok(find(tx, org_id, name)?.ok_or_else(|| Refusal::NoRoom { room: name.to_string() })?)
}

/// The rooms of an organisation, by name.
///
/// # Errors
/// When the ledger cannot be read.
pub fn list(tx: &Tx<'_>, org_id: &str) -> Result<Vec<RoomRow>, StoreError> {
    tx.all(&format!("{} ORDER BY r.name", RoomRow::QUERY), values![org_id], RoomRow::read)
}

/// Makes a room that nobody is in.
///
/// # Errors
/// [`Refusal::RoomExists`], and [`Refusal::TooManyRooms`] at the limit of [`ROOMS`].
pub fn create(
    tx: &Tx<'_>,
    org_id: &str,
    name: &Name,
    policy: Policy,
    loop_limit: Option<u32>,
    now: Wall,
) -> Result<RoomRow, StoreError> {
    if find(tx, org_id, name)?.is_some() {
        return Err(Refusal::RoomExists { room: name.to_string() }.into());
    }
    let count = "SELECT COUNT(*) FROM room WHERE org_id = ?1 AND deleted_at IS NULL";
    let rooms = tx.one(count, values![org_id], |row| row.get::<i64>(0))?.unwrap_or(0);
    if rooms.unsigned_abs() >= ROOMS as u64 {
        return Err(Refusal::TooManyRooms.into());
    }
    tx.execute(
        "INSERT INTO room (org_id, name, policy, loop_limit, last_number, created_at)
         VALUES (?1, ?2, ?3, ?4, 0, ?5)",
        values![org_id, name.as_str(), policy.as_str(), loop_limit, now],
    )?;
    get(tx, org_id, name)
}

/// Changes a room; `None` leaves a field as it is, and `Some(None)` gives the loop guard's limit back to the Worker.
///
/// # Errors
/// [`Refusal::NoRoom`] when there is none of this name.
pub fn update(
    tx: &Tx<'_>,
    org_id: &str,
    name: &Name,
    policy: Option<Policy>,
    loop_limit: Option<Option<u32>>,
) -> Result<RoomRow, StoreError> {
    let old = get(tx, org_id, name)?;
    tx.execute(
        "UPDATE room SET policy = ?3, loop_limit = ?4 WHERE org_id = ?1 AND seq = ?2",
        values![org_id, old.seq, policy.unwrap_or(old.policy).as_str(), loop_limit.unwrap_or(old.loop_limit)],
    )?;
    get(tx, org_id, name)
}

/// Deletes a room: nothing can be said in it any more, and its name is free. What was said before still reaches whoever
/// was a member then, events too. Those that wait for a first member are settled: a room that gets the name is another one.
///
/// # Errors
/// [`Refusal::NoRoom`], and [`Refusal::RoomInUse`] while a source sends its events there.
pub fn delete(tx: &Tx<'_>, org_id: &str, name: &Name, now: Wall) -> Result<RoomRow, StoreError> {
    let room = get(tx, org_id, name)?;
    let target = Addr::Room(name.clone()).to_string();
    let source = tx.one(
        "SELECT name FROM source WHERE org_id = ?1 AND target_addr = ?2 ORDER BY name",
        values![org_id, target],
        |row| row.get::<String>(0),
    )?;
    if let Some(source_name) = source {
        return Err(Refusal::RoomInUse { room: name.to_string(), source_name }.into());
    }
    let members: Vec<Queue> = members(tx, org_id, &room)?.into_iter().map(|member| member.queue).collect();
    tx.execute("DELETE FROM room_member WHERE org_id = ?1 AND room_seq = ?2", values![org_id, room.seq])?;
    tx.execute(
        "UPDATE room SET deleted_at = ?3 WHERE org_id = ?1 AND seq = ?2",
        values![org_id, room.seq, now],
    )?;
    deliveries::abandon(tx, org_id, name, &members, now)?;
    Ok(room)
}

/// Who is in a room, by host and name.
///
/// # Errors
/// When the ledger cannot be read.
pub fn members(tx: &Tx<'_>, org_id: &str, room: &RoomRow) -> Result<Vec<Member>, StoreError> {
    tx.all(
        "SELECT m.org_id, m.host, m.agent, a.name IS NOT NULL AND h.id IS NOT NULL, m.joined_at
         FROM room_member m
         LEFT JOIN agent a ON a.org_id = m.org_id AND a.host = m.host AND a.name = m.agent
         LEFT JOIN host h ON h.org_id = m.org_id AND h.slug = m.host AND h.revoked_at IS NULL
         WHERE m.org_id = ?1 AND m.room_seq = ?2 ORDER BY m.host, m.agent",
        values![org_id, room.seq],
        |row| Ok(Member { queue: Queue::read(row)?, is_known: row.get(3)?, joined_at: row.get(4)? }),
    )
}

/// Whether an agent is in a room.
///
/// # Errors
/// When the ledger cannot be read.
pub fn is_member(tx: &Tx<'_>, room: &RoomRow, agent: &Queue) -> Result<bool, StoreError> {
    let found = tx.one(
        "SELECT 1 FROM room_member WHERE org_id = ?1 AND room_seq = ?2 AND host = ?3 AND agent = ?4",
        values![&agent.org_id, room.seq, &agent.host, &agent.agent],
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

/// Puts an agent into a room; one that is in it stays. Events that came while the room was empty are its own then.
/// Answers whether there were any.
///
/// # Errors
/// [`Refusal::NoRoom`], [`Refusal::InviteOnly`] when the agent may not do so itself, [`Refusal::RoomFull`], and
/// [`Refusal::NotFound`] when there is no such host or agent.
pub fn join(tx: &Tx<'_>, name: &Name, agent: &Queue, by: By, now: Wall) -> Result<bool, StoreError> {
    let room = get(tx, &agent.org_id, name)?;
    if is_member(tx, &room, agent)? {
        return Ok(false);
    }
    if by == By::Itself && room.policy == Policy::Invite {
        return Err(Refusal::InviteOnly { room: name.to_string() }.into());
    }
    if !roster::is_known(tx, &agent.org_id, &agent.host, &agent.agent)? {
        return Err(Refusal::not_found("agent", agent.address()).into());
    }
    if room.members as usize >= ROOM_MEMBERS {
        return Err(Refusal::RoomFull { room: name.to_string() }.into());
    }
    enter(tx, &room, agent, now)?;
    deliveries::adopt(tx, name, std::slice::from_ref(agent), now)
}

/// Makes a room with its first member.
///
/// # Errors
/// As [`create`].
pub fn found(tx: &Tx<'_>, name: &Name, policy: Policy, agent: &Queue, now: Wall) -> Result<bool, StoreError> {
    let room = create(tx, &agent.org_id, name, policy, None, now)?;
    enter(tx, &room, agent, now)?;
    deliveries::adopt(tx, name, std::slice::from_ref(agent), now)
}

fn enter(tx: &Tx<'_>, room: &RoomRow, agent: &Queue, now: Wall) -> Result<(), StoreError> {
    tx.execute(
        "INSERT INTO room_member (org_id, room_seq, host, agent, joined_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        values![&agent.org_id, room.seq, &agent.host, &agent.agent, now],
    )?;
    Ok(())
}

/// Takes an agent out of a room; one that is not in it stays out. Messages that wait for it still reach it. Events do
/// not: they are the other members', all of whom are answered when an event was this one's alone.
///
/// # Errors
/// [`Refusal::NoRoom`] when there is none of this name.
pub fn leave(tx: &Tx<'_>, name: &Name, agent: &Queue, now: Wall) -> Result<Vec<Queue>, StoreError> {
    let room = get(tx, &agent.org_id, name)?;
    tx.execute(
        "DELETE FROM room_member WHERE org_id = ?1 AND room_seq = ?2 AND host = ?3 AND agent = ?4",
        values![&agent.org_id, room.seq, &agent.host, &agent.agent],
    )?;
    deliveries::give_up(tx, name, agent, now)?;
    let left: Vec<Queue> =
        members(tx, &agent.org_id, &room)?.into_iter().map(|member| member.queue).collect();
    Ok(if deliveries::adopt(tx, name, &left, now)? { left } else { Vec::new() })
}

/// The latest messages of a room, oldest first.
///
/// # Errors
/// When the ledger cannot be read.
pub fn history(tx: &Tx<'_>, org_id: &str, room: &RoomRow, limit: u32) -> Result<Vec<Post>, StoreError> {
    let mut latest = tx.all(
        "SELECT id, room_number, sender, body, reply_to, created_at FROM message
         WHERE org_id = ?1 AND room_seq = ?2 ORDER BY room_number DESC LIMIT ?3",
        values![org_id, room.seq, limit],
        |row| {
            Ok(Post {
                id: row.get(0)?,
                number: row.get::<i64>(1)?.unsigned_abs(),
                sender: row.get(2)?,
                body: row.get(3)?,
                reply_to: row.get(4)?,
                created_at: row.get(5)?,
            })
        },
    )?;
    latest.reverse();
    Ok(latest)
}

#[cfg(test)]
mod tests;
