//! Envelopes that were drawn: in a frame, or line by line with moves of the cursor.
//!
//! A frame is known by what stands before the opening tag on its line. It is taken off every line the same, so a body
//! comes back as it was drawn; blanks before a right border are lost with it.

/// The longest frame, in bytes.
pub(super) const FRAME_LONGEST: usize = 64;

/// Whether a line that begins so may be one within a frame: signs and blanks, no words.
pub(super) fn is_frame(start: &str) -> bool {
    !start.is_empty() && !start.contains(|c: char| c.is_alphanumeric() || c.is_control() || c == '<')
}

/// What `text` may have been before it was drawn, the likelier first: with a line break for each of `breaks`, and
/// without the frame that `prefix` begins.
pub(super) fn unframed(text: &str, breaks: &[usize], prefix: Option<&str>) -> impl Iterator<Item = String> {
    let lines = broken(text, breaks);
    let unframed = prefix.and_then(|prefix| without_frame(&lines, prefix));
    (!breaks.is_empty()).then_some(lines).into_iter().chain(unframed)
}

/// `text` with a line break where the cursor went to another line, unless there is one already.
fn broken(text: &str, breaks: &[usize]) -> String {
    let mut out = String::with_capacity(text.len() + breaks.len());
    let mut last = 0;
    for &at in breaks.iter().filter(|&&at| text.is_char_boundary(at)) {
        out.push_str(&text[last..at]);
        last = at;
        if !out.ends_with('\n') && !text[at..].starts_with('\n') {
            out.push('\n');
        }
    }
    out.push_str(&text[last..]);
    out
}

/// The lines without what stands at their left, and at their right when the first has a border there; `None` when they
/// are not in that frame. The first line begins after its frame, the last one ends before it.
fn without_frame(lines: &str, prefix: &str) -> Option<String> {
    // A sign before the first line, such as a prompt, is a blank before the others.
    let blank: String = prefix.chars().map(|c| if is_bar(c) { c } else { ' ' }).collect();
    let (first, rest) = lines.split_once('\n')?;
    let border = first.chars().next_back().filter(|c| is_bar(*c));
    let inner = |line: &'_ str| match border {
        Some(bar) => line.strip_suffix(bar).map(|line| line.trim_end_matches(' ').len()),
        None => Some(line.len()),
    };
    let mut out = String::with_capacity(lines.len());
    out.push_str(&first[..inner(first)?]);
    let mut rest = rest.split('\n').peekable();
    while let Some(line) = rest.next() {
        let line = if rest.peek().is_some() { &line[..inner(line)?] } else { line };
        let is_empty = |start: &str| line.trim_end() == start.trim_end();
        out.push('\n');
        match line.strip_prefix(prefix).or_else(|| line.strip_prefix(blank.as_str())) {
            Some(line) => out.push_str(line),
            None if is_empty(prefix) || is_empty(&blank) => {}
            None => return None,
        }
    }
    Some(out)
}

/// A vertical line.
fn is_bar(c: char) -> bool {
    matches!(c, '|' | '│' | '┃' | '║' | '┆' | '┇' | '┊' | '┋' | '▌' | '▎' | '▏' | '▐' | '▕')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_of_the_cursor_ends_a_line_that_has_no_end() {
        assert_eq!(broken("abcd", &[1, 3]), "a\nbc\nd");
        assert_eq!(broken("a\nb\n\nc", &[1, 2, 4, 5]), "a\nb\n\nc");
        assert_eq!(broken("é", &[1]), "é");
    }

    #[test]
    fn a_frame_is_taken_off_every_line_or_none() {
        assert_eq!(without_frame("a\n│   b\n│\n│ c", "│ ").as_deref(), Some("a\n  b\n\nc"));
        assert_eq!(without_frame("a  │\n│ b  │\n│    │\n│ c", "│ ").as_deref(), Some("a\nb\n\nc"));
        assert_eq!(without_frame("a\n  b\n  c", "❯ ").as_deref(), Some("a\nb\nc"));
        assert_eq!(without_frame("a\n│ b\nc", "│ "), None);
        assert_eq!(without_frame("a │\n│ b\n│ c", "│ "), None);
        assert!(is_frame("│ > ") && !is_frame("$ x") && !is_frame("") && !is_frame("<"));
    }
}
