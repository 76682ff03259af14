//! Secrets: held apart, wiped when dropped, never shown.
//!
//! A [`Secret`] is the text of a source's secret, a device token or a capability. Its `Debug` shows nothing, it
//! has no `Display`, and it is compared in constant time.

use std::borrow::Cow;
use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// What stands in the place of a secret wherever one would be shown.
pub const REDACTED: &str = "[redacted]";

/// `text` as it may be shown: the user and password of every URL in it are redacted, and the password of what may be
/// a URL without its scheme (`user:password@host`). Rather too much goes than too little.
pub fn without_passwords(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((start, at)) = find_password(rest) {
        shown.push_str(&rest[..start]);
        shown.push_str(REDACTED);
        // What was looked at is not looked at again: neither as a URL nor as one without its scheme.
        let host = rest[at..].find(|c: char| c.is_whitespace()).map_or(rest.len(), |end| at + end);
        shown.push_str(&rest[at..host]);
        rest = &rest[host..];
    }
    if shown.is_empty() {
        return Cow::Borrowed(text);
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// Where the first user and password begin, and where the `@` behind them is.
fn find_password(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    loop {
        let word = from + text[from..].find(|c: char| !c.is_whitespace())?;
        let end = text[word..].find(char::is_whitespace).map_or(text.len(), |end| word + end);
        let found = in_url(text, word, end).or_else(|| without_scheme(text, word, end));
        if found.is_some() {
            return found;
        }
        from = end;
    }
}

/// Between `://` and the last `@` before the path. What stands where a port should and is none is the beginning of a
/// password with a slash or blank in it.
fn in_url(text: &str, word: usize, end: usize) -> Option<(usize, usize)> {
    let start = word + text[word..end].find("://")? + "://".len();
    let authority = text[start..end].split(['/', '?', '#']).next().unwrap_or_default();
    if let Some(at) = authority.rfind('@') {
        return Some((start, start + at));
    }
    let (_, port) = authority.split_once(':').filter(|_| !authority.starts_with('['))?;
    let is_port = port.trim_end_matches(['"', '\'', ':', ',']).bytes().all(|byte| byte.is_ascii_digit());
    let at = text[start..].find('@').filter(|_| !is_port)?;
    Some((start, start + at))
}

fn without_scheme(text: &str, word: usize, end: usize) -> Option<(usize, usize)> {
    let colon = text[word..end].find(':').filter(|_| !text[word..end].contains("://"))?;
    let (start, at) = (word + colon + 1, word + text[word..end].rfind('@')?);
    // A path, perhaps behind a word like sqlite, is none.
    let is_path = text[word..].starts_with(['/', '.']) || text[start..].starts_with(['/', '.']);
    (start < at && !is_path).then_some((start, at))
}

/// A non-empty secret text. Its UTF-8 bytes are the key; they are never decoded (transit.ingest/1).
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

/// An empty secret, which would make a signature that anyone can compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the secret is empty")]
pub struct EmptySecret;

/// Why the content of a file or variable is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoSecret {
    /// Nothing, or only a newline.
    #[error("it is empty")]
    Empty,
    /// A secret is a text.
    #[error("it is not UTF-8 at byte {0}")]
    NotUtf8(usize),
}

impl Secret {
    /// Takes the content of a secret file or variable: one `\n` or `\r\n` at the end is dropped, nothing else.
    ///
    /// # Errors
    /// When nothing is left, or it is not UTF-8.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NoSecret> {
        let text = std::str::from_utf8(bytes).map_err(|err| NoSecret::NotUtf8(err.valid_up_to()))?;
        let text = text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(text);
        Self::new(text).map_err(|EmptySecret| NoSecret::Empty)
    }

    /// Takes the text as it is.
    ///
    /// # Errors
    /// An empty text is refused.
    pub fn new(text: impl Into<String>) -> Result<Self, EmptySecret> {
        let text = Zeroizing::new(text.into());
        if text.is_empty() { Err(EmptySecret) } else { Ok(Self(text)) }
    }

    /// The text, for the one place that sends, stores or signs with it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether both texts are equal, in time that depends only on their lengths.
    pub fn matches(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        use subtle::ConstantTimeEq;
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_of_a_url_is_shown() {
        for (text, shown) in [
            ("http://u:pw@h/x", "http://[redacted]@h/x"),
            ("'http://u:p@w@h:1': no", "'http://[redacted]@h:1': no"),
            ("http://u:p/w@h and ftp://pw@h", "http://[redacted]@h and ftp://[redacted]@h"),
            ("\"http://u:p w@h\" is none", "\"http://[redacted]@h\" is none"),
            (
                "to \"u:pw@h\": address \"u:pw@h\" is none",
                "to \"u:[redacted]@h\": address \"u:[redacted]@h\" is none",
            ),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
        for plain in [
            "",
            "send to bob@demo: no",
            "http://[::1]:80/@me, bob@demo",
            "http://h:80/a@b",
            "'http://h:80': bob@demo",
            "https://h/@me",
            "sqlite:/a@b",
            "/a:b@c",
        ] {
            assert!(matches!(without_passwords(plain), Cow::Borrowed(_)), "{plain}");
        }
    }

    #[test]
    fn a_secret_is_compared_whole_and_never_shown() {
        let secret = Secret::new("s3cret").unwrap();
        assert!(secret.matches("s3cret"));
        assert!(!secret.matches("s3cre") && !secret.matches("s3creT"));
        assert_eq!(format!("{secret:?}"), "[redacted]");
        assert_eq!(Secret::new("").unwrap_err(), EmptySecret);
    }
}
