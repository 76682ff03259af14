//! What proves that an envelope is in a session: its id, and for a reminder the number of the reminder.

use memchr::memmem;

/// Longest opening tag that is looked through for the number of a reminder, in bytes; in a transcript its quotes are
/// escaped.
const TAG_BYTES: usize = 8 * 1024;

/// One envelope, as it is looked for in what others have written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needle {
    id: String,
    /// Shown so often before; a reminder is another showing of the same id.
    redelivery: u32,
}

impl Needle {
    /// What to look for in order to find this envelope.
    pub fn of(id: &str, envelope: &str) -> Self {
        // No attribute can hold a quote or a `>` as it is, so that this is no other's value. Not parsed: whoever
        // renders envelopes of a later kind has reminders too.
        let tag = envelope.split('>').next().unwrap_or_default();
        let number = tag.split(" redelivery=\"").nth(1).and_then(|rest| rest.split('"').next());
        Self { id: id.to_owned(), redelivery: number.and_then(|number| number.parse().ok()).unwrap_or(0) }
    }

    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether the envelope is in `bytes`, as it is or inside a JSON string.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        let mut found = memmem::find_iter(bytes, self.id.as_bytes());
        if self.redelivery == 0 {
            return found.next().is_some();
        }
        let plain = format!("redelivery=\"{}\"", self.redelivery);
        let escaped = format!("redelivery=\\\"{}\\\"", self.redelivery);
        found.any(|at| {
            let end = (at + TAG_BYTES).min(bytes.len());
            let tag = &bytes[at..end];
            let tag = memchr::memchr(b'>', tag).map_or(tag, |close| &tag[..close]);
            memmem::find(tag, plain.as_bytes()).is_some() || memmem::find(tag, escaped.as_bytes()).is_some()
        })
    }

    /// Whether a screen shows it, however its rows are broken.
    pub fn is_on(&self, screen: &str) -> bool {
        // Boxes stand at the ends of rows, and are no part of any id.
        let is_text = |c: &char| !c.is_whitespace() && !matches!(c, '\u{2500}'..='\u{257f}');
        let whole: String = screen.chars().filter(is_text).collect();
        self.is_in(whole.as_bytes())
    }
}
