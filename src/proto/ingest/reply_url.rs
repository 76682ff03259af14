//! Where a reply may be posted: under a prefix that the operator declared, and in no way that a far server could
//! read as another place.
//!
//! The text is judged twice, as it is written and as it is understood. What two readers could understand
//! differently (dot segments, encoded dots, backslashes, blanks) is refused, whatever it would come to.

use std::fmt;
use std::str::FromStr;

use url::Url;

use super::RuleError;
use crate::limits;
use crate::text;

/// A literal beginning of permitted reply addresses: `http` or `https`, ending in `/`, with no query, fragment or
/// userinfo. The last slash keeps `https://h/in/` from permitting `https://h/in-evil`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyPrefix {
    written: String,
    normal: String,
}

impl ReplyPrefix {
    /// The prefix as the operator wrote it.
    pub fn as_str(&self) -> &str {
        &self.written
    }

    fn permits(&self, written: &str, normal: &Url) -> bool {
        written.starts_with(&self.written) && normal.as_str().starts_with(&self.normal)
    }
}

impl FromStr for ReplyPrefix {
    type Err = RuleError;

    fn from_str(written: &str) -> Result<Self, RuleError> {
        let broken = |rule: &str| Err(RuleError::of("reply_url_prefixes", rule));
        let url = parse_as(written, "reply_url_prefixes")?;
        if url.query().is_some() || url.fragment().is_some() {
            return broken("a reply prefix has no query and no fragment");
        }
        if !written.ends_with('/') {
            return broken("a reply prefix ends in /");
        }
        Ok(Self { written: written.to_owned(), normal: url.into() })
    }
}

impl fmt::Display for ReplyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

/// The address to post to, without its fragment, if one of the prefixes permits `written`. Asked when an event is
/// accepted and again when its reply is posted, because prefixes can be revoked.
///
/// # Errors
/// When it is no plain http or https URL, or no prefix permits it.
pub fn reply_url_allowed(written: &str, prefixes: &[ReplyPrefix]) -> Result<Url, RuleError> {
    let mut url = parse(written)?;
    url.set_fragment(None);
    if !prefixes.iter().any(|prefix| prefix.permits(written, &url)) {
        return Err(RuleError::of("reply_url", "reply_url begins with no prefix that the source permits"));
    }
    Ok(url)
}

/// Reads a reply address without asking whether a prefix permits it.
pub(super) fn parse(written: &str) -> Result<Url, RuleError> {
    parse_as(written, "reply_url")
}

fn parse_as(written: &str, field: &'static str) -> Result<Url, RuleError> {
    let broken = |rule: &str| RuleError::of(field, format!("{field}: {rule}"));
    if text::utf16_len(written) > limits::REPLY_URL_UNITS {
        return Err(broken(&format!("a URL is at most {} characters long", limits::REPLY_URL_UNITS)));
    }
    if written
        .contains(|c: char| c.is_whitespace() || c.is_control() || text::is_unsafe(c) || c == '\u{feff}')
    {
        return Err(broken("a URL holds no blanks and no control characters"));
    }
    if written.contains('\\') {
        return Err(broken("a URL holds no backslash"));
    }
    let (authority, path) = split(written).ok_or_else(|| broken("not an http:// or https:// URL"))?;
    if authority.contains('@') {
        return Err(broken("a URL holds no user and no password"));
    }
    if !authority.is_ascii() || authority.contains('%') {
        return Err(broken("a host is written in ASCII; use its xn-- form"));
    }
    let path = unnested(path);
    if hides_what_is_refused(&path) {
        return Err(broken("a path holds no encoded backslashes and no encoded control characters"));
    }
    if !path.split(['/', ';']).all(is_plain) {
        return Err(broken("a path holds no dot segments and no encoded dots"));
    }
    let url = Url::parse(written).map_err(|err| broken(&format!("not a URL: {err}")))?;
    let usable = matches!(url.scheme(), "http" | "https") && url.has_host();
    let named = !url.username().is_empty() || url.password().is_some();
    if !usable || named { Err(broken("not a plain http or https URL")) } else { Ok(url) }
}

/// The authority and the path of an http or https URL as it is written.
fn split(written: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = written.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let rest = &rest[..rest.find(['?', '#']).unwrap_or(rest.len())];
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    (!authority.is_empty()).then_some((authority, path))
}

/// A path in lower case, with everything in it encoded at most once, as who decodes again and again would see it.
fn unnested(path: &str) -> String {
    let mut path = path.to_ascii_lowercase();
    while path.contains("%25") {
        path = path.replace("%25", "%");
    }
    path
}

/// Whether a path has encoded what may not be in it as it is, or bytes that only an overlong form of such begins with.
fn hides_what_is_refused(path: &str) -> bool {
    let codes = path.match_indices('%').filter_map(|(at, _)| path.as_bytes().get(at + 1..at + 3));
    codes
        .filter_map(|code| hex::decode(code).ok())
        .any(|byte| matches!(byte[0], b'\\' | 0xc0 | 0xc1) || byte[0].is_ascii_control())
}

/// Whether nobody can read a piece of a path as a dot segment: not plainly, not with its dots encoded, and not behind
/// an encoded slash.
fn is_plain(piece: &str) -> bool {
    !piece.contains("%2e") && piece.split("%2f").all(|part| part != "." && part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(written: &str) -> Result<Url, RuleError> {
        let prefix = "https://hooks.example.org/in/".parse().unwrap();
        reply_url_allowed(written, &[prefix])
    }

    #[test]
    fn what_begins_with_a_prefix_is_allowed() {
        for rest in [
            "",
            "a",
            "a/b?x=..&y=%2e%2e%0a",
            "group%2Fproject",
            "a..b/...",
            "a%20b",
            "100%25",
            "%C3%BC",
            "%+5",
            "ü",
            "%",
        ] {
            assert!(allowed(&format!("https://hooks.example.org/in/{rest}")).is_ok(), "{rest}");
        }
        assert_eq!(
            allowed("https://hooks.example.org/in/a#top").unwrap().as_str(),
            "https://hooks.example.org/in/a"
        );
    }

    #[test]
    fn what_could_be_read_as_another_place_is_refused() {
        for rest in [
            "../x",
            "a/../../x",
            "..",
            ".",
            "./a",
            "%2e%2e/x",
            "%2E./x",
            ".%2e/x",
            "%252e%252e/x",
            "%2525252e./x",
            "%25252e%25252e%25252fx",
            "%c0%ae%c0%ae/x",
            "%5cx",
            "%255Cx",
            "a%0ab",
            "a%0D%0Ab",
            "a%00b",
            "a%7Fb",
            "a%2e",
            "..%2fx",
            "..%5cx",
            "a%2f..%2fx",
            "..;/x",
            "..\\x",
            "a\\..\\x",
            "a\tb",
            " a",
            "a ",
            "a\nb",
            "a\u{a0}b",
            "a\u{202e}b",
            "a\u{85}b",
            "\u{feff}",
            "a\0b",
        ] {
            assert!(allowed(&format!("https://hooks.example.org/in/{rest}")).is_err(), "{rest:?}");
        }
    }

    #[test]
    fn another_place_is_refused() {
        for url in [
            "",
            "hooks.example.org/in/a",
            "//hooks.example.org/in/a",
            "https://hooks.example.org/in",
            "https://hooks.example.org/in-evil/a",
            "http://hooks.example.org/in/a",
            "HTTPS://hooks.example.org/in/a",
            "https://HOOKS.example.org/in/a",
            "https://hooks.example.org:443/in/a",
            "https://me@hooks.example.org/in/a",
            "https://hooks.example.org@evil.example/in/a",
            "https://hooks.example.org/in/@x\u{2028}",
            "https:/hooks.example.org/in/a",
            "https:///hooks.example.org/in/a",
            "javascript:alert(1)",
            "ftp://hooks.example.org/in/a",
            "https://hooks.example.org%2fin/a",
            "https://hööks.example.org/in/a",
            "https://hooks。example.org/in/a",
        ] {
            assert!(allowed(url).is_err(), "{url:?}");
        }
    }

    #[test]
    fn length_is_counted_in_utf16_units() {
        let start = "https://hooks.example.org/in/";
        let fits = format!("{start}{}", "😀".repeat((limits::REPLY_URL_UNITS - start.len()) / 2));
        assert!(allowed(&fits).is_ok());
        assert!(allowed(&format!("{fits}aa")).is_err());
    }

    #[test]
    fn a_prefix_is_plain_and_ends_in_a_slash() {
        for prefix in ["https://h.example/", "http://127.0.0.1:8080/in/", "https://h.example/a/b/"] {
            assert_eq!(prefix.parse::<ReplyPrefix>().unwrap().to_string(), prefix);
        }
        for prefix in [
            "",
            "https://h.example",
            "https://h.example/in",
            "https://h.example/in/?",
            "https://h.example/in/#",
            "https://h.example/?a=/",
            "https://h.example/#/",
            "https://me@h.example/",
            "https://me:pw@h.example/",
            "ftp://h.example/",
            "https://",
            "https:///",
            "https://h.example/../",
            "https://h.example/%2e/",
        ] {
            assert!(prefix.parse::<ReplyPrefix>().is_err(), "{prefix:?}");
        }
    }

    #[test]
    fn no_prefix_permits_nothing() {
        assert!(reply_url_allowed("https://hooks.example.org/in/a", &[]).is_err());
    }
}
