//! Runes and neutralising: what may be said to a terminal.
//!
//! Text from peers is data. Before it reaches a terminal it passes through one of these functions; none of them
//! looks at what the text means.

use std::borrow::Cow;

/// The replacement of a character that must not reach a terminal.
pub const REPLACEMENT: char = '\u{FFFD}';

/// Whether a terminal would act on `c` instead of showing it: C0, DEL, C1, and the bidirectional embeddings,
/// overrides and isolates that reorder what is read.
pub fn is_unsafe(c: char) -> bool {
    matches!(c, '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` fit for one attribute value: every unsafe character replaced.
pub fn attribute(text: &str) -> Cow<'_, str> {
    replace(text, is_unsafe)
}

/// `text` fit for a body: CRLF and CR become LF, then every unsafe character but tab and newline is replaced.
pub fn body(text: &str) -> Cow<'_, str> {
    let unsafe_in_body = |c| is_unsafe(c) && !matches!(c, '\t' | '\n');
    if !text.contains('\r') {
        return replace(text, unsafe_in_body);
    }
    let lines = text.replace("\r\n", "\n").replace('\r', "\n");
    Cow::Owned(replace(&lines, unsafe_in_body).into_owned())
}

/// `text` fit for one line on a person's terminal: unsafe characters are shown as escapes, so that they can be
/// seen for what they are.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// JSON that holds the same data and that no terminal acts on: what JSON lets stand as it is (DEL, C1, the
/// bidirectional controls) becomes an escape. `json` is a text without line breaks of its own, so that whatever is
/// unsafe in it stands inside a string.
pub fn visible_json(json: &str) -> Cow<'_, str> {
    if !json.contains(is_unsafe) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_unsafe(c) { out.push_str(&format!("\\u{:04x}", u32::from(c))) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// `unwanted` holds for characters of [`is_unsafe`] at most.
fn replace(text: &str, unwanted: impl Fn(char) -> bool + Copy) -> Cow<'_, str> {
    if is_surely_safe(text) || !text.contains(unwanted) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if unwanted(c) { REPLACEMENT } else { c }).collect())
}

/// `true` for most texts without an unsafe character, and for none with one: no byte may be one of the first 32, DEL,
/// or the first byte of C1 or of a bidirectional control. Whole blocks are looked at, which is far faster than one
/// character after the other.
fn is_surely_safe(text: &str) -> bool {
    let may_begin_one = |byte: u8| matches!(byte, 0..=0x1f | 0x7f | 0xc2 | 0xe2);
    text.as_bytes()
        .chunks(64)
        .all(|block| !block.iter().fold(false, |found, &byte| found | may_begin_one(byte)))
}

/// The first `runes` code points of `text`.
pub fn clip(text: &str, runes: usize) -> &str {
    // A code point has a byte at least.
    if text.len() <= runes {
        return text;
    }
    match text.char_indices().nth(runes) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// The length of `text` in UTF-16 code units, which is what transit.ingest/1 calls characters.
pub fn utf16_len(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// Whether `c` is white space as JavaScript's `\s` has it: U+FEFF is, U+0085 is not.
pub fn is_js_space(c: char) -> bool {
    matches!(
        c,
        '\t' | '\n' | '\x0b' | '\x0c' | '\r' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'
            ..='\u{200a}' | '\u{2028}' | '\u{2029}' | '\u{202f}' | '\u{205f}' | '\u{3000}' | '\u{feff}'
    )
}

/// `&`, `<`, `>` and `"` as the entities that transit/1 uses in attribute values.
pub fn escape_attribute(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The value that [`escape_attribute`] was given; `None` when the text could not have come from it.
pub fn unescape_attribute(text: &str) -> Option<Cow<'_, str>> {
    if text.contains(['<', '>', '"']) {
        return None;
    }
    if !text.contains('&') {
        return Some(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (entity, c) = [("&amp;", '&'), ("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"')]
            .into_iter()
            .find(|(e, _)| rest.starts_with(e))?;
        out.push(c);
        rest = &rest[entity.len()..];
    }
    out.push_str(rest);
    Some(Cow::Owned(out))
}

/// Replaces every `</tag` in `text`, in any case, by `&lt;/tag`, so that no body can close the element it stands
/// in. The long s counts as an s, as it does in case-insensitive matching elsewhere. A prefix is enough:
/// `</tagX` is replaced too.
pub fn neutralise_closing<'a>(text: &'a str, tag: &str) -> Cow<'a, str> {
    let Some(first) = find_closing(text, tag) else { return Cow::Borrowed(text) };
    let mut out = String::with_capacity(text.len() + 16);
    let (mut rest, mut found) = (text, first);
    loop {
        out.push_str(&rest[..found.0]);
        out.push_str("&lt;/");
        out.push_str(tag);
        rest = &rest[found.0 + found.1..];
        match find_closing(rest, tag) {
            Some(next) => found = next,
            None => break,
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The place and the length of the first `</tag`.
fn find_closing(text: &str, tag: &str) -> Option<(usize, usize)> {
    for start in memchr::memmem::find_iter(text.as_bytes(), "</") {
        let name = &text[start + 2..];
        let mut chars = name.char_indices();
        let same = tag.chars().all(|want| {
            chars
                .next()
                .is_some_and(|(_, got)| got.eq_ignore_ascii_case(&want) || (want == 's' && got == 'ſ'))
        });
        if same {
            let end = chars.next().map_or(name.len(), |(end, _)| end);
            return Some((start, 2 + end));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_replaced_or_shown() {
        assert_eq!(attribute("a\x1b[31m\u{9b}\u{202e}\tb"), "a\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}b");
        assert_eq!(body("a\r\nb\rc\td\x07"), "a\nb\nc\td\u{fffd}");
        assert_eq!(visible("a\x1b\u{2066}b\n"), "a\\u{1b}\\u{2066}b\\n");
        assert!(matches!(body("plain\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn every_unsafe_character_is_found_wherever_it_stands() {
        for c in ('\0'..=char::MAX).filter(|&c| is_unsafe(c)) {
            for before in [0, 1, 63, 64, 100] {
                let text = format!("{}{c}z", "a".repeat(before));
                assert_eq!(attribute(&text), text.replace(c, "\u{fffd}"), "{c:?}");
            }
        }
        assert!(matches!(attribute("é €…"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_is_shown_as_the_same_data() {
        let data = "a\x1b\x7f\u{9b}\u{202e}\u{2069}é😀";
        let json = serde_json::to_string(data).unwrap();
        let shown = visible_json(&json);
        assert!(!shown.contains(is_unsafe), "{shown:?}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), data);
        assert!(matches!(visible_json(r#"{"a":"é"}"#), Cow::Borrowed(_)));
    }

    #[test]
    fn clipping_counts_code_points() {
        assert_eq!(clip("añ😀z", 3), "añ😀");
        assert_eq!(clip("añ😀z", 4), "añ😀z");
        assert_eq!(clip("", 0), "");
        assert_eq!(utf16_len("añ😀z"), 5);
    }

    #[test]
    fn attribute_escapes_are_their_own_inverse() {
        let value = "a & b < c > \"d\" &amp; &lt;";
        assert_eq!(unescape_attribute(&escape_attribute(value)).unwrap(), value);
        for foreign in ["&", "&apos;", "a<b", "&#60;", "x\"y"] {
            assert_eq!(unescape_attribute(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn no_closing_tag_survives_in_any_case() {
        assert_eq!(
            neutralise_closing("x </TrAnSiT> </tranſit_full", "transit"),
            "x &lt;/transit> &lt;/transit_full"
        );
        assert_eq!(neutralise_closing("<</transit</", "transit"), "<&lt;/transit</");
        assert_eq!(
            neutralise_closing("</transi </ transit <transit>", "transit"),
            "</transi </ transit <transit>"
        );
        assert_eq!(neutralise_closing("</</transit>", "transit"), "</&lt;/transit>");
        assert_eq!(
            neutralise_closing("</transit_ful </transit_FULL x", "transit_full"),
            "</transit_ful &lt;/transit_full x"
        );
    }
}
