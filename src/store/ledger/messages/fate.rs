//! What became of a message, for the one that has sent it.

use super::super::{StoreError, Tx, values};
use crate::proto::wire::NakCode;

/// A message and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// The sender's address.
    pub sender: String,
    /// The permanent refusal; such a message has no recipients.
    pub nak: Option<NakCode>,
    /// Whom it is for, by their addresses.
    pub recipients: Vec<Recipient>,
}

/// One delivery of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// The agent's address.
    pub agent: String,
    /// `queued`, `injected`, `shown` or `dead`.
    pub state: String,
    /// Why the last attempt failed, or why it is dead.
    pub error: Option<String>,
}

impl Fate {
    /// `queued` while a delivery can still succeed; then `dead` if one of them did not; `shown` if of one no more is
    /// known than that a terminal has shown it; else `injected`. `committed` when it was for nobody: a post to a room
    /// with nobody else in it.
    pub fn state(&self) -> &'static str {
        let has = |state: &str| self.recipients.iter().any(|recipient| recipient.state == state);
        match self.nak {
            Some(_) => "dead",
            None if has("queued") => "queued",
            None if has("dead") => "dead",
            None if has("shown") => "shown",
            None if self.recipients.is_empty() => "committed",
            None => "injected",
        }
    }
}

/// What became of the message with this id.
///
/// # Errors
/// When the ledger cannot be read.
pub fn fate(tx: &Tx<'_>, org_id: &str, id: &str) -> Result<Option<Fate>, StoreError> {
    let found = tx.one(
        "SELECT sender, nak, seq FROM message WHERE org_id = ?1 AND id = ?2",
        values![org_id, id],
        |row| {
            let nak: Option<String> = row.get(1)?;
            Ok((row.get::<String>(0)?, nak.as_deref().and_then(NakCode::of), row.get::<i64>(2)?))
        },
    )?;
    let Some((sender, nak, seq)) = found else { return Ok(None) };
    let recipients = tx.all(
        "SELECT agent, host, state, last_error FROM message_delivery
         WHERE org_id = ?1 AND message_seq = ?2 ORDER BY host, agent",
        values![org_id, seq],
        |row| {
            Ok(Recipient {
                agent: format!("{}@{}", row.get::<String>(0)?, row.get::<String>(1)?),
                state: row.get(2)?,
                error: row.get(3)?,
            })
        },
    )?;
    Ok(Some(Fate { sender, nak, recipients }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(nak: Option<NakCode>, states: &[&str]) -> &'static str {
        let recipient =
            |state: &&str| Recipient { agent: "bob@beta".into(), state: (*state).to_owned(), error: None };
        Fate { sender: "amy@alpha".into(), nak, recipients: states.iter().map(recipient).collect() }.state()
    }

    #[test]
    fn a_message_is_as_far_as_its_last_recipient() {
        assert_eq!(state(None, &["injected", "queued", "dead"]), "queued");
        assert_eq!(state(None, &["injected", "dead"]), "dead");
        assert_eq!(state(None, &["injected", "injected"]), "injected");
        assert_eq!(state(None, &["injected", "shown"]), "shown", "no more than is known of all");
        assert_eq!(state(None, &["shown", "dead"]), "dead");
        assert_eq!(state(Some(NakCode::NoRoute), &[]), "dead");
        assert_eq!(state(None, &[]), "committed", "nobody has it");
    }
}
