//! The same JSON as other programs would have written it, with its keys in their order and its numbers as they
//! stand.

/// How white space is set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    None,
    AfterSigns,
    Indent,
}

/// How strings are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strings {
    AsTheyStand,
    Unescaped,
    Ascii,
}

/// Every other style of a body that is JSON, with the mistake that it stands for.
pub(super) fn all(body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let Ok(text) = str::from_utf8(body) else { return Vec::new() };
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else { return Vec::new() };
    let spaces = [
        (
            "the JSON was re-serialised compactly before it was signed; sign the bytes that are sent",
            Space::None,
        ),
        (
            "the JSON was re-serialised with blanks after commas and colons before it was signed; sign the bytes \
             that are sent",
            Space::AfterSigns,
        ),
        (
            "the JSON was re-serialised and indented before it was signed; sign the bytes that are sent",
            Space::Indent,
        ),
    ];
    let mut styles = Vec::new();
    for (what, space) in spaces {
        for strings in [Strings::AsTheyStand, Strings::Unescaped, Strings::Ascii] {
            styles.push((what, restyle(text, space, strings).into_bytes()));
        }
    }
    // Sorting comes last: a body whose keys are sorted already is better explained by its white space.
    let sorted = value.to_string();
    for (_, space) in spaces {
        for strings in [Strings::AsTheyStand, Strings::Ascii] {
            styles.push((
                "the JSON was re-serialised with its keys sorted before it was signed; sign the bytes that are sent",
                restyle(&sorted, space, strings).into_bytes(),
            ));
        }
    }
    styles
}

/// Rewrites a text that is known to be JSON.
fn restyle(text: &str, space: Space, strings: Strings) -> String {
    let mut out = String::with_capacity(text.len());
    let mut depth = 0;
    let mut rest = text.trim_start();
    while let Some(c) = rest.chars().next() {
        let length = if c == '"' { string_length(rest) } else { c.len_utf8() };
        let (token, more) = rest.split_at(length);
        rest = more.trim_start();
        match c {
            '"' => out.push_str(&restring(token, strings)),
            '{' | '[' => {
                out.push(c);
                depth += 1;
                if !rest.starts_with(['}', ']']) {
                    break_line(&mut out, space, depth);
                }
            }
            '}' | ']' => {
                depth -= 1;
                if !out.ends_with(['{', '[']) {
                    break_line(&mut out, space, depth);
                }
                out.push(c);
            }
            ',' => {
                out.push(c);
                if space == Space::AfterSigns {
                    out.push(' ');
                }
                break_line(&mut out, space, depth);
            }
            ':' => out.push_str(if space == Space::None { ":" } else { ": " }),
            c => out.push(c),
        }
    }
    out
}

/// The length of the string token that `rest` begins with.
fn string_length(rest: &str) -> usize {
    let mut escaped = false;
    let end = rest.bytes().skip(1).position(|b| {
        let ends = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        ends
    });
    end.map_or(rest.len(), |end| end + 2)
}

fn restring(token: &str, strings: Strings) -> String {
    let plain = serde_json::from_str::<String>(token).map(|text| serde_json::Value::String(text).to_string());
    match (strings, plain) {
        (Strings::AsTheyStand, _) | (_, Err(_)) => token.to_owned(),
        (Strings::Unescaped, Ok(plain)) => plain,
        (Strings::Ascii, Ok(plain)) => {
            let mut units = [0; 2];
            let mut out = String::with_capacity(plain.len());
            for c in plain.chars() {
                if c.is_ascii() {
                    out.push(c);
                } else {
                    out.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
                }
            }
            out
        }
    }
}

fn break_line(out: &mut String, space: Space, depth: usize) {
    if space == Space::Indent {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_and_strings_change_and_nothing_else() {
        let text = " {\"b\\\"\" : [ ] ,\"a\":{\"x\": \"\\u00e9 , :\", \"y\":-1.50e+3}, \"z\":[true,null]}\n";
        assert_eq!(
            restyle(text, Space::None, Strings::AsTheyStand),
            "{\"b\\\"\":[],\"a\":{\"x\":\"\\u00e9 , :\",\"y\":-1.50e+3},\"z\":[true,null]}"
        );
        assert_eq!(
            restyle(text, Space::AfterSigns, Strings::Unescaped),
            "{\"b\\\"\": [], \"a\": {\"x\": \"é , :\", \"y\": -1.50e+3}, \"z\": [true, null]}"
        );
        assert_eq!(
            restyle("[\"😀\",{}]", Space::Indent, Strings::Ascii),
            "[\n  \"\\ud83d\\ude00\",\n  {}\n]"
        );
        let sorted = all("{\"b\":1,\"a\":\"é\"}".as_bytes());
        assert!(
            sorted
                .iter()
                .any(|(what, body)| what.contains("sorted") && body == b"{\"a\": \"\\u00e9\", \"b\": 1}")
        );
        assert!(all(b"no json").is_empty() && all(b"\xff").is_empty());
    }
}
