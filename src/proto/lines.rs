//! Lines: cutting a stream of bytes into frames.
//!
//! transit-agent/1, `transit.sock` and the local client API send one frame a line. The bytes come in any pieces;
//! a character may straddle two of them. Every byte is looked at once, and of a line that is too long nothing is
//! held.

use std::collections::VecDeque;

use super::Input;

/// One line without its newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line of text; it may be empty.
    Text(String),
    /// A line that is not UTF-8.
    NotUtf8,
    /// A line over the limit, told once, as soon as that is known; the rest of it is dropped.
    TooLong,
}

impl Line {
    /// The line as a machine takes it.
    pub fn as_input(&self) -> Input<'_> {
        match self {
            Self::Text(text) => Input::Text(text),
            Self::NotUtf8 => Input::Binary,
            Self::TooLong => Input::TooLong,
        }
    }
}

/// A stream on its way to lines. Call [`next`](Self::next) until it answers `None` after every
/// [`push`](Self::push); then what is held is never more than one line of `limit` bytes.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    /// The bytes of the lines in `ready`, then those of the line that has not ended.
    bytes: Vec<u8>,
    /// How many of `bytes` have been handed out.
    taken: usize,
    /// The length of the line that has not ended.
    open: usize,
    /// The line that has not ended is over the limit.
    skipping: bool,
    ready: VecDeque<Ready>,
}

#[derive(Debug, Clone, Copy)]
enum Ready {
    Whole(usize),
    TooLong,
}

/// What an empty buffer may keep for the next line.
const KEEP: usize = 64 * 1024;

impl Lines {
    /// Lines of at most `limit` bytes, not counting the newline.
    pub fn new(limit: usize) -> Self {
        Self { limit, bytes: Vec::new(), taken: 0, open: 0, skipping: false, ready: VecDeque::new() }
    }

    /// Takes what was read.
    pub fn push(&mut self, read: &[u8]) {
        self.reclaim();
        let mut rest = read;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.extend(&rest[..end]);
            rest = &rest[end + 1..];
            if !self.skipping {
                self.ready.push_back(Ready::Whole(self.open));
            }
            self.skipping = false;
            self.open = 0;
        }
        self.extend(rest);
    }

    /// The next line that is complete, or known to be too long.
    #[allow(clippy::should_implement_trait)] // `None` is not the end: there is more after the next push
    pub fn next(&mut self) -> Option<Line> {
        match self.ready.pop_front()? {
            Ready::Whole(length) => Some(self.take(length)),
            Ready::TooLong => Some(Line::TooLong),
        }
    }

    /// What stands after the last newline when the stream has ended; `None` when nothing does.
    pub fn end(&mut self) -> Option<Line> {
        let length = std::mem::take(&mut self.open);
        (length > 0).then(|| self.take(length))
    }

    fn extend(&mut self, piece: &[u8]) {
        if self.skipping {
            return;
        }
        if self.open + piece.len() > self.limit {
            self.bytes.truncate(self.bytes.len() - self.open);
            self.open = 0;
            self.skipping = true;
            self.ready.push_back(Ready::TooLong);
            return;
        }
        self.bytes.extend_from_slice(piece);
        self.open += piece.len();
    }

    fn take(&mut self, length: usize) -> Line {
        let line = &self.bytes[self.taken..self.taken + length];
        self.taken += length;
        std::str::from_utf8(line).map_or(Line::NotUtf8, |text| Line::Text(text.to_owned()))
    }

    /// Gives handed-out bytes back. Moving only when at least half of the buffer is free keeps it linear.
    fn reclaim(&mut self) {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEEP);
            self.taken = 0;
        } else if self.taken * 2 >= self.bytes.len() {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(limit: usize, pieces: &[&[u8]]) -> Vec<Line> {
        let mut lines = Lines::new(limit);
        let mut got = Vec::new();
        for piece in pieces {
            lines.push(piece);
            while let Some(line) = lines.next() {
                got.push(line);
            }
        }
        got.extend(lines.end());
        got
    }

    fn text(text: &str) -> Line {
        Line::Text(text.to_owned())
    }

    #[test]
    fn a_line_ends_with_its_newline_and_the_last_one_with_the_stream() {
        assert_eq!(cut(9, &[b"a\n\nb", b"c\r\nd"]), [text("a"), text(""), text("bc\r"), text("d")]);
        assert_eq!(cut(9, &[b"a\n"]), [text("a")]);
        assert_eq!(cut(9, &[]), []);
    }

    #[test]
    fn a_character_may_straddle_two_reads() {
        assert_eq!(
            cut(9, &[b"\xf0\x9f", b"\x98", b"\x80\n\xff\nz\n"]),
            [text("😀"), Line::NotUtf8, text("z")]
        );
    }

    #[test]
    fn exactly_the_limit_passes_and_one_more_is_told_once_at_once() {
        let mut lines = Lines::new(4);
        lines.push(b"1234");
        assert_eq!(lines.next(), None);
        lines.push(b"5");
        assert_eq!(lines.next(), Some(Line::TooLong), "before its newline has come");
        lines.push(b"678");
        assert_eq!(lines.next(), None);
        lines.push(b"9\n1234\n");
        assert_eq!(lines.next(), Some(text("1234")));
        assert_eq!((lines.next(), lines.end()), (None, None));
    }

    #[test]
    fn an_endless_line_costs_no_memory() {
        let mut lines = Lines::new(1 << 20);
        let piece = [b'x'; 4096];
        let mut told = 0;
        for _ in 0..10_000 {
            lines.push(&piece);
            told += usize::from(lines.next().is_some());
            assert!(lines.bytes.capacity() <= 2 << 20);
        }
        assert_eq!(told, 1);
        lines.push(b"\nback\n");
        assert_eq!(lines.next(), Some(text("back")));
        assert!(lines.bytes.capacity() <= KEEP, "a long line's memory is given back");
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_lines(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), Just(0xc3), Just(0xa9), any::<u8>()], 0..200),
            cuts in prop::collection::vec(1usize..20, 1..40),
        ) {
            let whole = cut(16, &[&bytes]);
            let mut pieces = Vec::new();
            let mut rest = &bytes[..];
            for size in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, more) = rest.split_at((*size).min(rest.len()));
                pieces.push(piece);
                rest = more;
            }
            prop_assert_eq!(&cut(16, &pieces), &whole);
            let one_by_one: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(&cut(16, &one_by_one), &whole);
            let expected: Vec<Line> = bytes
                .strip_suffix(b"\n")
                .unwrap_or(&bytes)
                .split(|&b| b == b'\n')
                .map(|line| match std::str::from_utf8(line) {
                    _ if line.len() > 16 => Line::TooLong,
                    Ok(line) => text(line),
                    Err(_) => Line::NotUtf8,
                })
                .collect();
            prop_assert_eq!(whole, if bytes.is_empty() { vec![] } else { expected });
        }
    }
}
