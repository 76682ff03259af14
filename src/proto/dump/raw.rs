//! Values of a line as they are written in it, and how they are shown: without secrets, without blanks, and without
//! a character that a terminal would act on.

use std::borrow::Cow;

use super::record::is_secret;
use super::scan::{Scan, Specials, unsafe_length};
use crate::secret::REDACTED;
use crate::text::REPLACEMENT;

/// A JSON value as it stands in a line that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raw<'a>(pub(super) &'a str);

impl<'a> Raw<'a> {
    /// What stands for no value yet.
    pub const NULL: Self = Self("null");

    /// Its JSON.
    #[inline]
    pub fn json(self) -> &'a str {
        self.0
    }

    /// Whether it is an object.
    #[inline]
    pub fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    /// What stands between its quotes, escapes and all, if it is a string.
    #[inline]
    pub fn inner(self) -> Option<&'a str> {
        self.0.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))
    }

    /// Its text, if it is a string.
    pub fn text(self) -> Option<Cow<'a, str>> {
        self.inner().map(unescaped)
    }

    /// Whether it is this text, or is written like this and no string.
    pub fn is(self, text: &str) -> bool {
        match self.text() {
            Some(own) => own == text,
            None => self.0 == text,
        }
    }

    /// Its text, if that is a short word that needs neither quotes nor escapes.
    #[inline]
    pub fn word(self) -> Option<&'a str> {
        self.inner().filter(|inner| is_word(inner))
    }
}

/// Whether the inside of a JSON string is a short word that needs neither quotes nor escapes.
#[inline]
pub fn is_word(inner: &str) -> bool {
    match inner.len() {
        1..8 => inner.bytes().all(is_plain),
        8..16 => are_plain::<8>(inner.as_bytes()),
        16..=80 => are_plain::<16>(inner.as_bytes()),
        _ => false,
    }
}

#[inline]
fn is_plain(byte: u8) -> bool {
    (byte > b' ') & (byte < 0x7f) & (byte != b'"') & (byte != b'\\') & (byte != b'=')
}

/// Looks at `N` bytes in one go, and at the last `N` once more rather than at those that remain one by one.
#[inline]
fn are_plain<const N: usize>(bytes: &[u8]) -> bool {
    // Without a way out of the loop, which lets the compiler compare many bytes at once.
    let are_all = |part: &[u8; N]| part.iter().fold(true, |so_far, &byte| so_far & is_plain(byte));
    let (parts, _) = bytes.as_chunks();
    parts.iter().all(are_all) && bytes.last_chunk().is_none_or(are_all)
}

/// The text that the inside of a JSON string stands for. Half of a surrogate pair becomes U+FFFD.
pub(super) fn unescaped(inner: &str) -> Cow<'_, str> {
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let (c, length) = escaped(&rest.as_bytes()[at..]);
        text.push(c);
        rest = &rest[at + length..];
    }
    text.push_str(rest);
    Cow::Owned(text)
}

/// The character of the escape that `bytes` begin with, and the length of the escape.
fn escaped(bytes: &[u8]) -> (char, usize) {
    let simple = match bytes.get(1) {
        Some(b'u') => return unicode(bytes),
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(&other) => char::from(other),
        None => return (REPLACEMENT, 1),
    };
    (simple, 2)
}

fn unicode(bytes: &[u8]) -> (char, usize) {
    let unit = |at: usize| {
        let digits = bytes.get(at..at + 6).filter(|escape| escape.starts_with(b"\\u"))?;
        u32::from_str_radix(std::str::from_utf8(&digits[2..]).ok()?, 16).ok()
    };
    match (unit(0), unit(6)) {
        (Some(high @ 0xd800..=0xdbff), Some(low @ 0xdc00..=0xdfff)) => {
            let point = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            (char::from_u32(point).unwrap_or(REPLACEMENT), 12)
        }
        (Some(point), _) => (char::from_u32(point).unwrap_or(REPLACEMENT), 6),
        (None, _) => (REPLACEMENT, bytes.len().min(6)),
    }
}

/// Whether the name of a field, as it is written between its quotes, says that its value is a secret.
#[inline]
pub fn names_secret(name: &[u8]) -> bool {
    // No name of a secret is shorter, and escapes only make it longer.
    if name.len() < 5 || !name.contains(&b'\\') {
        return is_secret(name);
    }
    std::str::from_utf8(name).is_ok_and(|name| is_secret(unescaped(name).as_bytes()))
}

/// Whether secrets are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    /// `[redacted]` stands in their place.
    Redacted,
    /// They are shown.
    Shown,
}

/// Hands `json`, which is JSON, to `put` in pieces: without blanks, with `[redacted]` for the values of secret names
/// at any depth, and with an escape for every character that a terminal would act on.
///
/// # Errors
/// What `put` fails with.
pub fn shown<E>(json: &str, secrets: Secrets, mut put: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    let bytes = json.as_bytes();
    let (mut at, mut kept) = (0, 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let end = string_end(bytes, at + 1, |from, length| {
                    put(&json[kept..from])?;
                    kept = from + length;
                    put(&escape(&json[from..]))
                })?;
                let value = after_colon(bytes, end);
                if secrets == Secrets::Redacted
                    && let Some(value) = value
                    && names_secret(&bytes[at + 1..end - 1])
                {
                    put(&json[kept..end])?;
                    put(":\"")?;
                    put(REDACTED)?;
                    put("\"")?;
                    at = Scan::after_value(bytes, value);
                    kept = at;
                } else {
                    at = end;
                }
            }
            b' ' | b'\t' | b'\r' | b'\n' => {
                put(&json[kept..at])?;
                at += 1;
                kept = at;
            }
            _ => at += 1,
        }
    }
    put(&json[kept..])
}

/// The same for what stands between the quotes of a string.
///
/// # Errors
/// What `put` fails with.
pub fn shown_inside<E>(inner: &str, mut put: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    let mut kept = 0;
    string_end(inner.as_bytes(), 0, |from, length| {
        put(&inner[kept..from])?;
        kept = from + length;
        put(&escape(&inner[from..]))
    })?;
    put(&inner[kept..])
}

/// The escape of the first character.
fn escape(text: &str) -> String {
    let first = text.chars().next().unwrap_or(REPLACEMENT);
    format!("\\u{:04x}", u32::from(first))
}

/// The end of the string whose text begins at `at`; `found` hears of the characters in it that need an escape.
fn string_end<E>(
    bytes: &[u8],
    mut at: usize,
    mut found: impl FnMut(usize, usize) -> Result<(), E>,
) -> Result<usize, E> {
    let mut specials = Specials::default();
    loop {
        at = specials.next(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at += 2,
            Some(_) => match unsafe_length(&bytes[at..]) {
                0 => at += 1,
                length => {
                    found(at, length)?;
                    at += length;
                }
            },
            None => return Ok(bytes.len()),
        }
    }
}

/// Where the value begins, if a colon comes next.
fn after_colon(bytes: &[u8], at: usize) -> Option<usize> {
    let blanks = |at: usize| at + bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let colon = blanks(at);
    (bytes.get(colon) == Some(&b':')).then(|| blanks(colon + 1))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn seen(json: &str, secrets: Secrets) -> String {
        let mut text = String::new();
        let Ok(()) = shown(json, secrets, |piece| {
            text.push_str(piece);
            Ok::<_, Infallible>(())
        });
        text
    }

    #[test]
    fn secrets_are_redacted_by_name_at_any_depth_and_however_the_name_is_written() {
        let json =
            r#" {"token" : {"a":[1,"}"]} ,"x":[{"\u0073ecret":"s"},"secret"],"Authorization":1,"tokens":2} "#;
        assert_eq!(
            seen(json, Secrets::Redacted),
            r#"{"token":"[redacted]","x":[{"\u0073ecret":"[redacted]"},"secret"],"Authorization":"[redacted]","tokens":2}"#
        );
        assert_eq!(
            seen(json, Secrets::Shown),
            r#"{"token":{"a":[1,"}"]},"x":[{"\u0073ecret":"s"},"secret"],"Authorization":1,"tokens":2}"#
        );
    }

    #[test]
    fn what_a_terminal_would_act_on_is_escaped() {
        let json = "{\"a\u{7f}\":\"\u{9b}31m \u{202e}\u{2069} é 😀 \\u001b\"}";
        let safe = seen(json, Secrets::Redacted);
        assert_eq!(safe, "{\"a\\u007f\":\"\\u009b31m \\u202e\\u2069 é 😀 \\u001b\"}");
        let value = |json: &str| serde_json::from_str::<Value>(json).unwrap();
        assert_eq!(value(&safe), value(json), "it is the same data");
    }

    #[test]
    fn escapes_are_read() {
        let inner = r#"a\n\t\r\b\f\/\\\" é \u00e9 \ud83d\ude00 \ud800x \udc00"#;
        assert_eq!(unescaped(inner), "a\n\t\r\u{8}\u{c}/\\\" é é 😀 \u{fffd}x \u{fffd}");
        assert!(Raw(r#""\u0061b""#).is("ab") && Raw("true").is("true") && !Raw("true").is("truely"));
        assert_eq!(Raw("\"tx_1@a\"").word(), Some("tx_1@a"));
        assert_eq!((Raw("\"a b\"").word(), Raw("\"\"").word(), Raw("7").word()), (None, None, None));
    }

    proptest! {
        #[test]
        fn a_string_is_read_as_serde_reads_it(text in "\\PC*|[\\x00-\\x7f\\u{80}-\\u{9f}\\u{202a}-\\u{202e}]{0,40}") {
            let json = serde_json::to_string(&text).unwrap();
            let safe = seen(&json, Secrets::Redacted);
            prop_assert!(!safe.contains(crate::text::is_unsafe));
            let inner = &safe[1..safe.len() - 1];
            prop_assert_eq!(unescaped(inner), text.as_str());
            prop_assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), text);
        }
    }
}
