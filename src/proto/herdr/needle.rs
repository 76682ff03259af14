//! What proves that an envelope is in a session: its id where an envelope has it, and for a reminder the number of the
//! reminder. That somebody mentions an id proves nothing.

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
        let mut found = self.attributes(bytes);
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

    /// Where the id is an attribute `id`, whose quotes may be escaped.
    fn attributes<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        memmem::find_iter(bytes, self.id.as_bytes()).filter(|&at| {
            let before = bytes[..at].strip_suffix(b"\"").map(without_backslashes);
            let name = before.and_then(|before| before.strip_suffix(b"id="));
            let is_name = |name: &[u8]| name.last().is_none_or(|c| !c.is_ascii_alphanumeric() && *c != b'_');
            name.is_some_and(is_name)
        })
    }

    /// Whether the id stands in the hint of an envelope whose beginning is not to be seen.
    fn is_in_hint(&self, screen: &str) -> bool {
        self.redelivery == 0 && screen.contains(&format!("reply_to=\"{}\"]", self.id))
    }

    /// Whether a screen shows it, however its rows are broken.
    pub fn is_on(&self, screen: &str) -> bool {
        // Boxes stand at the ends of rows, and are no part of any id.
        let is_text = |c: &char| !c.is_whitespace() && !matches!(c, '\u{2500}'..='\u{257f}');
        let whole: String = screen.chars().filter(is_text).collect();
        self.is_in(whole.as_bytes()) || self.is_in_hint(&whole)
    }
}

fn without_backslashes(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != b'\\').map_or(0, |last| last + 1);
    &bytes[..end]
}
