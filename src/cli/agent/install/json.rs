//! One entry of somebody's JSON file, put in or taken out. Every other byte stays as it is.
//!
//! The file must be strict JSON, with a byte order mark if its writer put one there. What only looks like it
//! (comments, final commas) is refused: it could not be changed without a risk to what a person wrote.

use std::ops::Range;

use serde_json::Value;

/// What some editors begin a file with. It is no part of the JSON, and whoever reads the file may pass over it.
const MARK: &str = "\u{feff}";

/// Why a file is left alone.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(super) enum EditError {
    /// It is not strict JSON.
    #[error("it is no strict JSON ({why}), and is left as it is")]
    NotJson {
        /// What is wrong, with its place.
        why: String,
    },
    /// Something else is where an object should be.
    #[error("{at} is no object")]
    NoObject {
        /// The key, or `the file`.
        at: String,
    },
}

/// The value at `keys`, if it is there. An empty text is an empty object.
///
/// # Errors
/// When the text is no JSON.
pub(super) fn get(text: &str, keys: &[&str]) -> Result<Option<Value>, EditError> {
    let (_, text) = unmarked(text);
    let mut value = parse(if text.trim().is_empty() { "{}" } else { text })?;
    for key in keys {
        match value.get_mut(key) {
            Some(found) => value = found.take(),
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

/// The text with `value` at `keys`; the objects on the way are made where they are missing. An empty text is an empty
/// object.
///
/// # Errors
/// When the text is no JSON, or something else than an object is on the way.
pub(super) fn set(text: &str, keys: &[&str], value: &Value) -> Result<String, EditError> {
    let (mark, text) = unmarked(text);
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    Ok(format!("{mark}{}", set_in(text, keys, value)?))
}

fn set_in(text: &str, keys: &[&str], value: &Value) -> Result<String, EditError> {
    parse(text)?;
    let mut object = outermost(text)?;
    for (depth, key) in keys.iter().enumerate() {
        let last = depth + 1 == keys.len();
        match object.member(key) {
            Some(member) if last => return Ok(replaced(text, member.value.clone(), value, depth + 1)),
            Some(member) => object = inner(text, member, key)?,
            None => {
                let rest = keys[depth + 1..].iter().rev().fold(value.clone(), |value, key| {
                    Value::Object([((*key).to_owned(), value)].into_iter().collect())
                });
                return Ok(object.with(text, key, &rest, depth + 1));
            }
        }
    }
    unreachable!("there is at least one key, and the last one returns")
}

/// The text without what is at `keys`, and without the objects that held nothing else. `None` when it is not there.
///
/// # Errors
/// As [`set`].
pub(super) fn remove(text: &str, keys: &[&str]) -> Result<Option<String>, EditError> {
    let (mark, text) = unmarked(text);
    if text.trim().is_empty() {
        return Ok(None);
    }
    Ok(remove_in(text, keys)?.map(|text| format!("{mark}{text}")))
}

fn remove_in(text: &str, keys: &[&str]) -> Result<Option<String>, EditError> {
    parse(text)?;
    let mut objects = vec![outermost(text)?];
    for (depth, key) in keys.iter().enumerate() {
        let Some(member) = objects[depth].member(key) else { return Ok(None) };
        if depth + 1 < keys.len() {
            let next = inner(text, member, key)?;
            objects.push(next);
        }
    }
    let shared = |depth: &usize| *depth == 0 || objects[*depth].members.len() > 1;
    let depth = (0..keys.len()).rev().find(shared).expect("the outermost object always counts");
    Ok(Some(objects[depth].without(text, keys[depth])))
}

/// Whether the text is an object that holds nothing.
pub(super) fn is_empty(text: &str) -> bool {
    matches!(serde_json::from_str::<Value>(unmarked(text).1), Ok(Value::Object(object)) if object.is_empty())
}

/// The mark that a text begins with, if it does, and what comes after it.
fn unmarked(text: &str) -> (&str, &str) {
    text.strip_prefix(MARK).map_or(("", text), |rest| (MARK, rest))
}

fn parse(text: &str) -> Result<Value, EditError> {
    serde_json::from_str(text).map_err(|err| EditError::NotJson { why: err.to_string() })
}

/// An object of a text that is known to be JSON.
struct Object {
    /// From its brace to behind the closing one.
    span: Range<usize>,
    members: Vec<Member>,
}

struct Member {
    key: String,
    /// Where its key begins.
    start: usize,
    value: Range<usize>,
}

fn outermost(text: &str) -> Result<Object, EditError> {
    object(text, skip_blanks(text, 0)).ok_or_else(|| EditError::NoObject { at: "the file".to_owned() })
}

fn inner(text: &str, member: &Member, key: &str) -> Result<Object, EditError> {
    object(text, member.value.start).ok_or_else(|| EditError::NoObject { at: key.to_owned() })
}

/// The object that begins at `start`.
fn object(text: &str, start: usize) -> Option<Object> {
    let bytes = text.as_bytes();
    if bytes.get(start) != Some(&b'{') {
        return None;
    }
    let mut members = Vec::new();
    let mut at = skip_blanks(text, start + 1);
    while bytes[at] == b'"' {
        let key_end = skip_value(text, at);
        let value_start = skip_blanks(text, skip_blanks(text, key_end) + 1);
        let value = value_start..skip_value(text, value_start);
        let next = skip_blanks(text, value.end);
        members.push(Member { key: serde_json::from_str(&text[at..key_end]).ok()?, start: at, value });
        at = if bytes[next] == b',' { skip_blanks(text, next + 1) } else { next };
    }
    Some(Object { span: start..at + 1, members })
}

impl Object {
    /// Of several members of one key, the last one counts, as for those who read the file.
    fn member(&self, key: &str) -> Option<&Member> {
        self.members.iter().rfind(|member| member.key == key)
    }

    /// The text with one more member at the end of this object, laid out as its neighbours are.
    fn with(&self, text: &str, key: &str, value: &Value, depth: usize) -> String {
        let key = Value::from(key);
        if let Some(last) = self.members.last() {
            let before = self.members.len().checked_sub(2).map(|at| self.members[at].value.end);
            let between = &text[before.unwrap_or(self.span.start + 1)..last.start];
            let blanks = between.split_once(',').map_or(between, |(_, blanks)| blanks);
            let value = laid_out(text, value, blanks.contains('\n'), depth);
            return spliced(text, last.value.end..last.value.end, &format!(",{blanks}{key}: {value}"));
        }
        let is_spread = depth == 1 || text.trim_end().contains('\n');
        let value = laid_out(text, value, is_spread, depth);
        let (unit, newline) = (unit(text), newline(text));
        let inside = if is_spread {
            format!("{{{newline}{}{key}: {value}{newline}{}}}", unit.repeat(depth), unit.repeat(depth - 1))
        } else {
            format!("{{{key}: {value}}}")
        };
        spliced(text, self.span.clone(), &inside)
    }

    /// The text without this object's member.
    fn without(&self, text: &str, key: &str) -> String {
        let at = self.members.iter().rposition(|member| member.key == key);
        let at = at.expect("the member was found before");
        let span = match (at, self.members.get(at + 1)) {
            (0, None) => return spliced(text, self.span.clone(), "{}"),
            (0, Some(next)) => self.members[0].start..next.start,
            _ => self.members[at - 1].value.end..self.members[at].value.end,
        };
        spliced(text, span, "")
    }
}

fn replaced(text: &str, span: Range<usize>, value: &Value, depth: usize) -> String {
    let is_spread = text[span.clone()].contains('\n');
    spliced(text, span, &laid_out(text, value, is_spread, depth))
}

fn spliced(text: &str, span: Range<usize>, new: &str) -> String {
    [&text[..span.start], new, &text[span.end..]].concat()
}

/// A value as it is written at this depth of the file.
fn laid_out(text: &str, value: &Value, is_spread: bool, depth: usize) -> String {
    if !is_spread || !(value.is_object() || value.is_array()) {
        return value.to_string();
    }
    let (unit, newline) = (unit(text), newline(text));
    let pretty = serde_json::to_string_pretty(value).expect("a value is always JSON");
    let lines = pretty.lines().enumerate().map(|(n, line)| {
        let inner = line.trim_start_matches(' ');
        let deep = (line.len() - inner.len()) / 2;
        if n == 0 { line.to_owned() } else { format!("{}{inner}", unit.repeat(depth + deep)) }
    });
    lines.collect::<Vec<_>>().join(newline)
}

/// What the file is indented with: the blanks before the first line that has some.
fn unit(text: &str) -> &str {
    let blanks = text.lines().map(|line| &line[..line.len() - line.trim_start().len()]);
    blanks.map(|blanks| blanks.trim_end_matches('\r')).find(|blanks| !blanks.is_empty()).unwrap_or("  ")
}

fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

fn skip_blanks(text: &str, at: usize) -> usize {
    at + text[at..].bytes().take_while(|byte| b" \t\r\n".contains(byte)).count()
}

/// The end of the value, or of the key, that begins at `at`.
fn skip_value(text: &str, at: usize) -> usize {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for (n, byte) in text.bytes().enumerate().skip(at) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => {
                in_string = !in_string;
                if !in_string && depth == 0 {
                    return n + 1;
                }
            }
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return n,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return n + 1;
                }
            }
            b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' if depth == 0 => return n,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests;
