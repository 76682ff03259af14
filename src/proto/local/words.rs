//! Words of the local client API that the server and the gateway share (dotagent local API, "Events", "Methods").

use serde::Serialize;

/// The session of a conversation: `^[A-Za-z0-9_-]{1,64}$`. What it means is the agent's business.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct SessionId(String);

/// The text is no session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("session_id must match ^[A-Za-z0-9_-]{{1,64}}$")]
pub struct BadSessionId;

impl SessionId {
    /// The session of a message that names none.
    pub const DEFAULT: &'static str = "default";

    /// The text of it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for SessionId {
    type Err = BadSessionId;

    fn from_str(text: &str) -> Result<Self, BadSessionId> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(is_good);
        if fits { Ok(Self(text.to_owned())) } else { Err(BadSessionId) }
    }
}

/// What the server tells a client without being asked, about one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalEvent {
    /// The dispatcher's run is in progress.
    Typing {
        /// Whose.
        session: SessionId,
    },
    /// The gateway has admitted a run.
    RunStarted {
        /// Whose.
        session: SessionId,
        /// The agent that runs.
        agent: String,
    },
    /// One line of the agent's output, as it came.
    ReplyDelta {
        /// Whose.
        session: SessionId,
        /// Without its line ending.
        line: String,
    },
    /// The shaped reply; nothing follows for this trigger.
    Reply {
        /// Whose.
        session: SessionId,
        /// The whole text.
        text: String,
    },
}

/// One entry of `commands.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CatalogEntry {
    /// The command's name.
    pub name: String,
    /// The same in the letters that Telegram takes.
    pub telegram_name: String,
    /// `<hint> — <description>` when there is a hint.
    pub description: String,
    /// What stands behind the command, if its file says so.
    pub argument_hint: Option<String>,
}
