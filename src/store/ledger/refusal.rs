//! What the ledger's own rules do not allow.

use crate::limits::{ROOM_MEMBERS, ROOMS};
use crate::proto::ingest::RuleError;

/// Why a change was refused. Nothing was changed then; [`Refusal::code`] is the stable word of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Another organisation has this slug.
    #[error("an organisation {slug} exists already")]
    OrganisationExists {
        /// The slug.
        slug: String,
    },
    /// A host of this name is enrolled and not revoked.
    #[error("a host {host} is enrolled already")]
    HostExists {
        /// The host.
        host: String,
    },
    /// The organisation has a source of this name.
    #[error("a source {name} exists already")]
    SourceExists {
        /// The source.
        name: String,
    },
    /// The name belongs to a connector that the Worker brings along.
    #[error("{name:?} is the name of a built-in connector")]
    BuiltInName {
        /// The name.
        name: String,
    },
    /// There is no room of this name.
    #[error("no such room: #{room}")]
    NoRoom {
        /// Its name, without `#`.
        room: String,
    },
    /// The organisation has a room of this name.
    #[error("a room #{room} exists already")]
    RoomExists {
        /// Its name, without `#`.
        room: String,
    },
    /// The room has as many members as it may have.
    #[error("room #{room} is full: it has {ROOM_MEMBERS} members")]
    RoomFull {
        /// Its name, without `#`.
        room: String,
    },
    /// Who is to be in the room is the operator's decision.
    #[error("room #{room} is joined by invitation only")]
    InviteOnly {
        /// Its name, without `#`.
        room: String,
    },
    /// Events still go to the room.
    #[error("room #{room} is where the events of source {source_name} go")]
    RoomInUse {
        /// Its name, without `#`.
        room: String,
        /// The source.
        source_name: String,
    },
    /// The organisation has as many rooms as it may have.
    #[error("there are {ROOMS} rooms already")]
    TooManyRooms,
    /// An agent has so much waiting for it that nothing more is taken.
    #[error("the queue of {agent} is full")]
    QueueFull {
        /// Its address.
        agent: String,
    },
    /// The source's own reply address is none, or no prefix of the source permits it.
    #[error(transparent)]
    ReplyUrl(#[from] RuleError),
    /// The delivery is settled and nothing of it waits.
    #[error("delivery {id} is settled already")]
    Settled {
        /// The delivery.
        id: String,
    },
    /// Nothing of the message is dead.
    #[error("message {id} is {state}: only what is dead can be queued again")]
    NotDead {
        /// The message.
        id: String,
        /// Where it stands.
        state: String,
    },
    /// Nothing of the message waits.
    #[error("message {id} is {state}: only what is queued can be cancelled")]
    NotQueued {
        /// The message.
        id: String,
        /// Where it stands.
        state: String,
    },
    /// Somebody has an account with this address.
    #[error("a user {email} exists already")]
    UserExists {
        /// The address.
        email: String,
    },
    /// There is no such thing in this organisation.
    #[error("no {what} {name}")]
    NotFound {
        /// What was looked for: `organisation`, `host`, `source`, …
        what: &'static str,
        /// Its name or id.
        name: String,
    },
}

impl Refusal {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::OrganisationExists { .. } => "org_exists",
            Self::HostExists { .. } => "host_exists",
            Self::SourceExists { .. } => "source_exists",
            Self::BuiltInName { .. } => "reserved_name",
            Self::NoRoom { .. } => "room_not_found",
            Self::RoomExists { .. } => "room_exists",
            Self::RoomFull { .. } => "room_full",
            Self::InviteOnly { .. } => "invite_only",
            Self::RoomInUse { .. } => "room_in_use",
            Self::TooManyRooms => "too_many",
            Self::QueueFull { .. } => "rate_limited",
            Self::ReplyUrl(_) => "bad_reply_url",
            Self::Settled { .. } => "already_handled",
            Self::NotDead { .. } => "not_dead",
            Self::NotQueued { .. } => "not_queued",
            Self::UserExists { .. } => "user_exists",
            Self::NotFound { .. } => "not_found",
        }
    }

    pub(super) fn not_found(what: &'static str, name: impl ToString) -> Self {
        Self::NotFound { what, name: name.to_string() }
    }
}
