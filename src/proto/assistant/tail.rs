//! The end of a long output: the last lines, and no more bytes of them than a reply may have.

use std::collections::VecDeque;

/// Lines that a reply shows of an output at the most (local client API, `reply`).
const LINES: usize = 500;

/// What stands before a text whose beginning was left out.
const CUT_BEFORE: &str = "…";

/// The length of `text` inside a JSON string, in bytes: what an event that carries it takes.
pub fn json_len(text: &str) -> usize {
    let extra = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..=0x1f => 5,
        _ => 0,
    };
    text.len() + text.bytes().map(extra).sum::<usize>()
}

/// The beginning of `text` that takes at most `longest` bytes inside a JSON string.
pub fn clip_json(text: &str, longest: usize) -> &str {
    if json_len(text) <= longest {
        return text;
    }
    let mut taken = 0;
    let mut buffer = [0; 4];
    let end = text.char_indices().find(|(_, c)| {
        taken += json_len(c.encode_utf8(&mut buffer));
        taken > longest
    });
    end.map_or(text, |(end, _)| &text[..end])
}

/// The end of `text` that takes at most `longest` bytes inside a JSON string.
fn end_of(text: &str, longest: usize) -> &str {
    let mut taken = 0;
    let mut buffer = [0; 4];
    let start = text.char_indices().rev().find(|(_, c)| {
        taken += json_len(c.encode_utf8(&mut buffer));
        taken > longest
    });
    start.map_or(text, |(at, c)| &text[at + c.len_utf8()..])
}

/// The last 500 lines of an output, as far as they take no more than so many bytes inside a JSON string.
#[derive(Debug)]
pub struct Tail {
    longest: usize,
    lines: VecDeque<String>,
    bytes: usize,
    /// The bytes, and not the lines, were too many.
    is_cut: bool,
}

impl Tail {
    /// An empty one of at most `longest` bytes.
    pub fn new(longest: usize) -> Self {
        Self { longest, lines: VecDeque::new(), bytes: 0, is_cut: false }
    }

    /// Takes the next line, and forgets what it pushes out.
    pub fn push(&mut self, line: &str) {
        let kept = end_of(line, self.longest);
        self.is_cut |= kept.len() < line.len();
        self.bytes += cost(kept);
        self.lines.push_back(kept.to_owned());
        while self.lines.len() > LINES || self.bytes > self.longest + 2 {
            self.is_cut |= self.lines.len() <= LINES;
            let Some(gone) = self.lines.pop_front() else { break };
            self.bytes -= cost(&gone);
        }
    }

    /// The lines, joined. Begins with an ellipsis when bytes of them were left out.
    pub fn text(&self) -> String {
        let lines = self.lines.iter().map(String::as_str);
        let cut = self.is_cut.then_some(CUT_BEFORE);
        cut.into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    }
}

/// A line, and what joins it to the next.
fn cost(line: &str) -> usize {
    json_len(line) + 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_five_hundred_lines_stay() {
        let mut tail = Tail::new(1 << 20);
        (1..=600).for_each(|n| tail.push(&n.to_string()));
        let want: Vec<_> = (101..=600).map(|n| n.to_string()).collect();
        assert_eq!(tail.text(), want.join("\n"));
        assert_eq!(Tail::new(9).text(), "");
    }

    #[test]
    fn bytes_are_counted_as_they_are_sent() {
        let mut tail = Tail::new(8);
        tail.push("abcdefghé");
        assert_eq!(tail.text(), "…\ncdefghé");
        tail.push("x");
        assert_eq!(tail.text(), "…\nx");
        let mut tail = Tail::new(12);
        tail.push("\u{1}\u{1}\u{1}");
        assert_eq!(tail.text(), "…\n\u{1}\u{1}");
    }

    proptest! {
        #[test]
        fn the_length_in_json_is_what_a_writer_makes(text in any::<String>(), longest in 0_usize..40) {
            prop_assert_eq!(json_len(&text), serde_json::to_string(&text).unwrap().len() - 2);
            let (start, end) = (clip_json(&text, longest), end_of(&text, longest));
            prop_assert!(text.starts_with(start) && json_len(start) <= longest);
            prop_assert!(text.ends_with(end) && json_len(end) <= longest);
        }

        #[test]
        fn a_tail_is_never_longer_than_it_may_be(lines in proptest::collection::vec(any::<String>(), 0..30), longest in 0_usize..60) {
            let mut tail = Tail::new(longest);
            lines.iter().for_each(|line| tail.push(line));
            prop_assert!(json_len(&tail.text()) <= longest + 5);
        }
    }
}
