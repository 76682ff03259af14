//! The inbox of a session: a socket on which Claude Code takes messages, as lines of JSON, and answers nothing.

use std::env;
use std::io::{self, Write};
use std::net::Shutdown;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::registry::Running;
use crate::net::unix;

/// A session that takes nothing for so long is stuck.
const WAIT: Duration = Duration::from_secs(5);

/// Puts a text into the session's inbox. What becomes of it, only the transcript tells.
///
/// # Errors
/// When nobody of ours listens there, or takes it.
pub(super) fn send(running: &Running, text: &str) -> io::Result<()> {
    let socket =
        running.inbox.clone().or_else(|| env::var_os("CLAUDE_CODE_MESSAGING_SOCKET").map(PathBuf::from));
    let socket = socket.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let mut stream = unix::connect_at(&socket).map_err(io::Error::other)?;
    stream.set_write_timeout(Some(WAIT))?;
    stream.write_all(lines(env::var("CLAUDE_CODE_MESSAGING_TOKEN").ok().as_deref(), text).as_bytes())?;
    stream.shutdown(Shutdown::Write)
}

/// With the token, which only children of that Claude Code have, the message counts as one of its own process tree
/// and is let in whatever the permission mode.
fn lines(token: Option<&str>, text: &str) -> String {
    let auth = token.filter(|token| !token.is_empty()).map(|token| {
        let auth = json!({ "type": "auth", "token": token });
        format!("{auth}\n")
    });
    let message = json!({ "type": "user", "message": { "role": "user", "content": text } });
    format!("{}{message}\n", auth.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_after_its_token() {
        let with = lines(Some("t0"), "a\n\"b\"");
        let lines: Vec<serde_json::Value> =
            with.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], json!({ "type": "auth", "token": "t0" }));
        assert_eq!(lines[1]["message"]["content"], "a\n\"b\"");
        assert_eq!(lines.len(), 2);
        for none in [None, Some("")] {
            assert_eq!(super::lines(none, "x").lines().count(), 1);
        }
    }
}
