//! Messages to a room: one number, and one delivery a member.
//!
//! What is taken is taken for every member: when the queue of one is full, nothing is, and the sender tries again. A
//! member that cannot be written to, because its host was revoked or it has been gone for a day, holds nobody up: its
//! delivery is dead from the start, and nobody is told but who asks.

use super::super::rooms::{self, Member, Post, RoomRow};
use super::super::{Refusal, StoreError, Tx, values};
use super::take::{deliver, insert, known, refuse, waiting};
use super::{OPERATOR, Queue, SYSTEM};
use crate::addr::Name;
use crate::clock::Wall;
use crate::id::IdKind;
use crate::limits::QUEUE_MAX;
use crate::proto::wire::{NakCode, SendFrame};

/// What became of a message to a room that was handed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// Stored now, with a delivery in each of these queues.
    Stored(Vec<Place>),
    /// The id was known: the answer is the one that was given before.
    Before(Option<NakCode>),
    /// Not taken; permanent refusals are remembered.
    Refused(NakCode),
}

/// A queue that has a message more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The queue of a member.
    pub queue: Queue,
    /// Places that are left in it, if they were counted.
    pub free: Option<u64>,
}

/// Stores a message of `sender` to a room, unless its id is known, there is no such room, the sender is no member, or a
/// member's queue is full. Everything that can be refused without the ledger was refused before. `has_place` says of a
/// queue that it is known not to be full.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn post(
    tx: &Tx<'_>,
    sender: &Queue,
    room: &Name,
    frame: &SendFrame,
    has_place: &dyn Fn(&Queue) -> bool,
    now: Wall,
) -> Result<Posted, StoreError> {
    let (org_id, from_host) = (&sender.org_id, &sender.host);
    if let Some(known) = known(tx, org_id, &frame.id)? {
        let ours = known.host == *from_host;
        return Ok(if ours { Posted::Before(known.nak) } else { Posted::Refused(NakCode::ReservedName) });
    }
    let refused = |code| {
        refuse(tx, org_id, from_host, frame, code, now)?;
        Ok(Posted::Refused(code))
    };
    let Some(room) = rooms::find(tx, org_id, room)? else { return refused(NakCode::NoRoute) };
    if !rooms::is_member(tx, &room, sender)? {
        return refused(NakCode::NotMember);
    }
    let mut members = rooms::members(tx, org_id, &room)?;
    members.retain(|member| member.queue != *sender);
    match places(tx, &members, has_place)? {
        Ok(places) => {
            fan_out(tx, &room, (org_id, from_host), &members, frame, now)?;
            Ok(Posted::Stored(places))
        }
        Err(_) => Ok(Posted::Refused(NakCode::RateLimited)),
    }
}

/// Stores a message of the operator to a room, which needs no member.
///
/// # Errors
/// [`Refusal::NoRoom`], and [`Refusal::QueueFull`] when a member's queue takes nothing more.
pub fn post_as_operator(
    tx: &Tx<'_>,
    org_id: &str,
    room: &Name,
    body: &str,
    reply_to: Option<&str>,
    now: Wall,
) -> Result<Post, StoreError> {
    let room = rooms::get(tx, org_id, room)?;
    let members = rooms::members(tx, org_id, &room)?;
    if let Err(full) = places(tx, &members, &|_| false)? {
        return Err(Refusal::QueueFull { agent: full.address() }.into());
    }
    let frame = SendFrame {
        id: IdKind::Message.fresh(),
        from: OPERATOR.to_owned(),
        to: format!("#{}", room.name),
        body: body.to_owned(),
        reply_to: reply_to.map(str::to_owned),
        ts: now.to_string(),
    };
    let number = fan_out(tx, &room, (org_id, SYSTEM), &members, &frame, now)?;
    // A server beside this process looks at its queues.
    tx.directory_changed();
    let SendFrame { id, from: sender, body, reply_to, .. } = frame;
    Ok(Post { id, number, sender, body, reply_to, created_at: now })
}

/// The queues of all members that can be written to, or the first that is full.
fn places(
    tx: &Tx<'_>,
    members: &[Member],
    has_place: &dyn Fn(&Queue) -> bool,
) -> Result<Result<Vec<Place>, Queue>, StoreError> {
    let mut places = Vec::with_capacity(members.len());
    for Member { queue, .. } in members.iter().filter(|member| member.is_known) {
        let free = if has_place(queue) { None } else { Some(QUEUE_MAX.saturating_sub(waiting(tx, queue)?)) };
        if free == Some(0) {
            return Ok(Err(queue.clone()));
        }
        places.push(Place { queue: queue.clone(), free: free.map(|free| free - 1) });
    }
    Ok(Ok(places))
}

/// Stores the message under the room's next number, and a delivery for each of `members`. Its time is ours: it is read
/// beside those of others.
fn fan_out(
    tx: &Tx<'_>,
    room: &RoomRow,
    (org_id, from_host): (&str, &str),
    members: &[Member],
    frame: &SendFrame,
    now: Wall,
) -> Result<u64, StoreError> {
    let number = room.last_number + 1;
    let stored = i64::try_from(number).unwrap_or(i64::MAX);
    tx.execute(
        "UPDATE room SET last_number = ?3 WHERE org_id = ?1 AND seq = ?2",
        values![org_id, room.seq, stored],
    )?;
    let frame = SendFrame { ts: now.to_string(), ..frame.clone() };
    let message_seq = insert(tx, org_id, from_host, &frame, Some((room.seq, stored)), now)?;
    for Member { queue, is_known, .. } in members {
        deliver(tx, message_seq, queue, &frame.from, now)?;
        if !is_known {
            tx.execute(
                "UPDATE message_delivery SET state = 'dead', last_error = ?5
                 WHERE org_id = ?1 AND message_seq = ?2 AND host = ?3 AND agent = ?4",
                values![org_id, message_seq, &queue.host, &queue.agent, NakCode::NoRoute.as_str()],
            )?;
        }
    }
    Ok(number)
}
