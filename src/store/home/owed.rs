//! Replies that this host's agents owe the Worker: kept until it has taken them, so that no run is done twice for one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::{StoreError, files};
use super::component;
use crate::clock::Wall;

/// Longest record, in bytes.
const LONGEST: u64 = 1 << 20;

/// The reply to a channel delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The address of the agent that says it.
    pub caller: String,
    /// The delivery.
    pub delivery_id: String,
    /// Its conversation.
    pub conversation_id: String,
    /// What the agent says; `None` when it has handled the delivery and has nothing to say.
    pub message: Option<String>,
    /// Since when it is owed, in milliseconds since 1970.
    pub since: i64,
}

/// The replies that one daemon's agents owe.
#[derive(Debug, Clone)]
pub struct Owed {
    dir: PathBuf,
}

impl Owed {
    /// Those of the daemon whose data directory this is.
    pub fn of(data: &Path) -> Self {
        Self { dir: data.join("owed") }
    }

    /// Keeps a reply; it is on the disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, reply: &Reply) -> Result<(), StoreError> {
        files::private_dir(&self.dir)?;
        let text = serde_json::to_vec(reply).expect("strings and numbers are JSON");
        files::write_private(&self.path(&reply.delivery_id, &reply.caller), &text)
    }

    /// Whether a reply of this agent to a delivery is owed.
    pub fn holds(&self, delivery_id: &str, caller: &str) -> bool {
        self.path(delivery_id, caller).exists()
    }

    /// All of them, the oldest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn all(&self) -> Result<Vec<Reply>, StoreError> {
        let entries = match fs::read_dir(&self.dir) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(|err| StoreError::io("read", &self.dir, err))?,
        };
        let mut found = Vec::new();
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        for path in paths.filter(|path| path.extension().is_some_and(|ending| ending == "json")) {
            match serde_json::from_slice(&files::read_small(&path, LONGEST)?) {
                Ok(reply) => found.push(reply),
                Err(err) => {
                    tracing::error!(path = %path.display(), %err, "a reply that is owed makes no sense")
                }
            }
        }
        found.sort_by_key(|reply: &Reply| reply.since);
        Ok(found)
    }

    /// A reply is not owed any more.
    ///
    /// # Errors
    /// When that cannot be noted.
    pub fn done(&self, reply: &Reply) -> Result<(), StoreError> {
        let path = self.path(&reply.delivery_id, &reply.caller);
        fs::remove_file(&path).map_err(|err| StoreError::io("remove", &path, err))
    }

    fn path(&self, delivery_id: &str, caller: &str) -> PathBuf {
        self.dir.join(format!("{}-{}.json", component(delivery_id), component(caller)))
    }
}

impl Reply {
    /// How long it has been owed, in milliseconds.
    pub fn age(&self, now: Wall) -> i64 {
        now.0.saturating_sub(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_owed_until_it_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let owed = Owed::of(dir.path());
        assert_eq!(owed.all().unwrap(), []);
        let reply = |id: &str, since| Reply {
            caller: "tiny@titan".into(),
            delivery_id: id.into(),
            conversation_id: "c/1".into(),
            message: Some("yes".into()),
            since,
        };
        let (first, second) = (reply("dlv_00000000000b", 1), reply("../x", 2));
        owed.keep(&second).unwrap();
        owed.keep(&first).unwrap();
        owed.keep(&first).unwrap();
        assert_eq!(owed.all().unwrap(), [first.clone(), second.clone()]);
        assert!(
            owed.holds("dlv_00000000000b", "tiny@titan") && !owed.holds("dlv_00000000000b", "other@titan")
        );
        owed.done(&first).unwrap();
        assert_eq!(Owed::of(dir.path()).all().unwrap(), [second]);
        assert!(owed.done(&first).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no name leaves the directory");
    }
}
