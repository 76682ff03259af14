//! The head of a command's file: a little of YAML, as far as such heads go.

use std::collections::BTreeMap;

/// Splits a file into the scalars of its head and its body. A nested structure is no scalar and is left out.
///
/// # Errors
/// One line about what is missing.
pub(super) fn split(text: &str) -> Result<(BTreeMap<String, String>, &str), &'static str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rest = text;
    let mut next = || {
        let line = (!rest.is_empty()).then(|| rest.split_inclusive('\n').next().unwrap_or_default())?;
        rest = &rest[line.len()..];
        Some(line.trim_end_matches(['\n', '\r']))
    };
    if next().is_none_or(|line| line.trim_end() != "---") {
        return Err("its first line is not ---");
    }
    let mut head = Vec::new();
    loop {
        match next() {
            None => return Err("its head is not closed by ---"),
            Some(line) if matches!(line.trim_end(), "---" | "...") => break,
            Some(line) => head.push(line),
        }
    }
    Ok((scalars(&head), rest))
}

fn scalars(head: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut lines = head.iter().peekable();
    while let Some(line) = lines.next() {
        let is_top = line.starts_with(|c: char| !c.is_whitespace() && !matches!(c, '#' | '-'));
        let Some((key, value)) = line.split_once(':').filter(|_| is_top) else { continue };
        let value = value.trim();
        let mut below = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with([' ', '\t']) || line.is_empty()) {
            below.push(line.trim());
        }
        let folds = value.starts_with('>');
        let value = match value.chars().next() {
            Some('|' | '>') => block(&below, folds),
            None if below.iter().any(|line| !line.is_empty()) => continue,
            Some('[' | '{') => continue,
            _ => scalar(value),
        };
        found.insert(key.trim().to_owned(), value);
    }
    found
}

/// A block: its lines kept, or folded into one for each paragraph.
fn block(lines: &[&str], folds: bool) -> String {
    let joined = if folds {
        let paragraphs = lines.split(|line| line.is_empty()).filter(|lines| !lines.is_empty());
        paragraphs.map(|lines| lines.join(" ")).collect::<Vec<_>>().join("\n")
    } else {
        lines.join("\n")
    };
    joined.trim().to_owned()
}

/// A value without its quotes, or without the comment behind it.
fn scalar(value: &str) -> String {
    let quoted = match value.as_bytes().first() {
        Some(b'"') => double_quoted(&value[1..]),
        Some(b'\'') => single_quoted(&value[1..]),
        _ => None,
    };
    quoted.unwrap_or_else(|| value.split(" #").next().unwrap_or(value).trim_end().to_owned())
}

/// What stands before the closing quote; a quote inside is written twice.
fn single_quoted(text: &str) -> Option<String> {
    let mut inner = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('\'')?;
        inner.push_str(before);
        match after.strip_prefix('\'') {
            Some(more) => {
                inner.push('\'');
                rest = more;
            }
            None => return is_over(after).then_some(inner),
        }
    }
}

/// What stands before the closing quote, with the escapes that people write there.
fn double_quoted(text: &str) -> Option<String> {
    let mut inner = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return is_over(chars.as_str()).then_some(inner),
            '\\' => match chars.next()? {
                'n' => inner.push('\n'),
                't' => inner.push('\t'),
                same @ ('"' | '\\' | '/') => inner.push(same),
                other => inner.extend(['\\', other]),
            },
            other => inner.push(other),
        }
    }
}

/// Whether nothing but a comment stands behind a closing quote.
fn is_over(after: &str) -> bool {
    let after = after.trim_start();
    after.is_empty() || after.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_gives_its_scalars_and_the_body_follows() {
        let text = "\u{feff}---\r\nname: \"a: b\"\nhint: '[x]' # no\nplain: one # two\nlist:\n  - a\nflow: [a]\n\
                    # c: d\nlong: >-\n  one\n  two\n\nkept: |\n  one\n  two\nempty:\n...\nbody\n---\n";
        let (head, body) = split(text).unwrap();
        let want = [
            ("name", "a: b"),
            ("hint", "[x]"),
            ("plain", "one"),
            ("long", "one two"),
            ("kept", "one\ntwo"),
            ("empty", ""),
        ];
        assert_eq!(head, want.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert_eq!(body, "body\n---\n");
    }

    #[test]
    fn a_scalar_is_what_stands_in_its_quotes() {
        for (value, want) in [
            (r#""say \"hi\" \\ \d" # no"#, r#"say "hi" \ \d"#),
            ("'it''s'", "it's"),
            ("''", ""),
            ("\"open", "\"open"),
            ("'a' and 'b'", "'a' and 'b'"),
            ("\"# kept\"#no", "# kept"),
        ] {
            assert_eq!(scalar(value), want, "{value}");
        }
        let (head, _) = split("---\nlong: >\n  one\n  two\n\n\n  three\n---\nx").unwrap();
        assert_eq!(head["long"], "one two\nthree");
    }

    #[test]
    fn a_file_without_a_whole_head_says_so() {
        for text in ["", "x\n---\n---\n", " ---\n---\n", "---\nname: x\n"] {
            assert!(split(text).is_err(), "{text:?}");
        }
    }
}
