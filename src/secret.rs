//! Secrets: held apart, wiped when dropped, never shown.
//!
//! A [`Secret`] is the text of a source's secret, a device token or a capability. Its `Debug` shows nothing, it
//! has no `Display`, and it is compared in constant time.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// What stands in the place of a secret wherever one would be shown.
pub const REDACTED: &str = "[redacted]";

/// A URL as it may be shown: whatever stands between its scheme and an `@` is redacted.
pub fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}{REDACTED}{}", &url[..scheme + 3], &url[at..]),
        _ => url.to_owned(),
    }
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

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_compared_whole_and_never_shown() {
        let secret = Secret::new("s3cret").unwrap();
        assert!(secret.matches("s3cret"));
        assert!(!secret.matches("s3cre") && !secret.matches("s3creT"));
        assert_eq!(format!("{secret:?}"), "[redacted]");
        assert_eq!(Secret::new("").unwrap_err(), EmptySecret);
    }
}
