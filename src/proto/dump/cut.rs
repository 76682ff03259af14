//! Cutting a stream of bytes into the lines of a dump, in place.
//!
//! Unlike [`lines`](crate::proto::lines) it hands out borrowed bytes, which is what makes printing a dump cheap, and it
//! takes lines far longer than a frame may be, because a dump may hold what broke that rule.

use std::ops::Range;

/// Longest line of a dump, in bytes without its newline. A frame of 1 MiB fits whatever its bytes are, also when it
/// is no JSON and stands in its record as a text, with six bytes for every byte of it.
pub const LINE_BYTES: usize = 8 * 1024 * 1024;

/// What is read at once while lines are short.
const READ: usize = 256 * 1024;

/// One line without its newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut<'a> {
    /// Its bytes; there may be none.
    Line(&'a [u8]),
    /// A line over the limit, told once, as soon as that is known; nothing of it is held.
    TooLong,
}

/// A stream on its way to lines: fill [`space`](Self::space), say how much was [`filled`](Self::filled), and take
/// [`next`](Self::next) until it answers `None`. Then what is held is less than one line.
#[derive(Debug)]
pub struct Cutter {
    limit: usize,
    bytes: Vec<u8>,
    /// Where the line that has not been taken begins.
    start: usize,
    /// Up to where a newline was looked for.
    seen: usize,
    /// Where what was read ends.
    end: usize,
    /// The line that has not ended is over the limit.
    is_skipping: bool,
    /// That was not told yet.
    is_untold: bool,
}

impl Cutter {
    /// Lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let bytes = vec![0; READ.min(limit + 1)];
        Self { limit, bytes, start: 0, seen: 0, end: 0, is_skipping: false, is_untold: false }
    }

    /// Where to read to; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.seen -= self.start;
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            let length = (self.bytes.len() * 2).min(self.limit + 1);
            self.bytes.reserve_exact(length - self.bytes.len());
            self.bytes.resize(length, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Takes note of `length` bytes that were read into [`space`](Self::space).
    pub fn filled(&mut self, length: usize) {
        self.end += length;
    }

    /// Goes on with the bytes `block[read]`, which were read elsewhere: takes the block, puts what is held before them,
    /// and gives back another block. Does nothing and answers `false` when the room before them is too small for that.
    ///
    /// # Panics
    /// When `read` is no part of the block.
    pub fn swap(&mut self, block: &mut Vec<u8>, read: Range<usize>) -> bool {
        let held = &self.bytes[self.start..self.end];
        let Some(start) = read.start.checked_sub(held.len()) else { return false };
        block[start..read.start].copy_from_slice(held);
        assert!(read.end <= block.len(), "what was read is in the block");
        std::mem::swap(&mut self.bytes, block);
        self.seen = start + (self.seen - self.start);
        (self.start, self.end) = (start, read.end);
        true
    }

    /// The next line that is complete, or known to be too long.
    #[inline]
    #[allow(clippy::should_implement_trait)] // `None` is not the end: there is more after the next read
    pub fn next(&mut self) -> Option<Cut<'_>> {
        loop {
            let found = memchr::memchr(b'\n', &self.bytes[self.seen..self.end]);
            let Some(length) = found else {
                self.seen = self.end;
                self.skip();
                return std::mem::take(&mut self.is_untold).then_some(Cut::TooLong);
            };
            let (from, to) = (self.start, self.seen + length);
            self.start = to + 1;
            self.seen = self.start;
            if std::mem::take(&mut self.is_skipping) {
                continue;
            }
            return Some(self.whole(from, to));
        }
    }

    /// What stands after the last newline when the stream has ended; `None` when nothing does. The stream may go on
    /// with another one, as a file does that takes a rotated one's place.
    pub fn end(&mut self) -> Option<Cut<'_>> {
        let (from, to) = (self.start, self.end);
        (self.start, self.seen) = (to, to);
        let is_rest = std::mem::take(&mut self.is_skipping);
        (from < to && !is_rest).then(|| self.whole(from, to))
    }

    /// Whether a line has begun and not ended.
    pub fn is_open(&self) -> bool {
        self.is_skipping || self.start < self.end
    }

    fn whole(&self, from: usize, to: usize) -> Cut<'_> {
        if to - from > self.limit { Cut::TooLong } else { Cut::Line(&self.bytes[from..to]) }
    }

    /// Lets go of a line that is over the limit, or of more of it.
    fn skip(&mut self) {
        if !self.is_skipping && self.end - self.start > self.limit {
            self.is_skipping = true;
            self.is_untold = true;
        }
        if self.is_skipping {
            (self.start, self.seen, self.end) = (0, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lines of a stream that comes in these pieces; `None` for one that is too long.
    fn cut(limit: usize, pieces: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let mut cutter = Cutter::new(limit);
        let mut lines = Vec::new();
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let space = cutter.space();
                let length = space.len().min(rest.len());
                space[..length].copy_from_slice(&rest[..length]);
                cutter.filled(length);
                rest = &rest[length..];
                while let Some(line) = cutter.next() {
                    lines.push(owned(line));
                }
            }
        }
        lines.extend(cutter.end().map(owned));
        lines
    }

    /// The same when pieces are read elsewhere, with so much room before them.
    fn cut_elsewhere(limit: usize, pieces: &[&[u8]], room: usize) -> Vec<Option<Vec<u8>>> {
        let mut cutter = Cutter::new(limit);
        let mut lines = Vec::new();
        let mut take = |cutter: &mut Cutter| {
            while let Some(cut) = cutter.next() {
                lines.push(owned(cut));
            }
        };
        for piece in pieces {
            let mut block = [&vec![b'#'; room], *piece].concat();
            if !cutter.swap(&mut block, room..room + piece.len()) {
                for &byte in *piece {
                    cutter.space()[0] = byte;
                    cutter.filled(1);
                    take(&mut cutter);
                }
            }
            take(&mut cutter);
        }
        lines.extend(cutter.end().map(owned));
        lines
    }

    fn owned(cut: Cut<'_>) -> Option<Vec<u8>> {
        match cut {
            Cut::Line(line) => Some(line.to_vec()),
            Cut::TooLong => None,
        }
    }

    fn line(text: &str) -> Option<Vec<u8>> {
        Some(text.as_bytes().to_vec())
    }

    #[test]
    fn a_line_ends_with_its_newline_and_the_last_one_with_the_stream() {
        assert_eq!(cut(9, &[b"a\n\nb", b"c\r\nd"]), [line("a"), line(""), line("bc\r"), line("d")]);
        assert_eq!(cut(9, &[b"a\n"]), [line("a")]);
        assert_eq!(cut(9, &[]), []);
    }

    #[test]
    fn exactly_the_limit_passes_and_one_more_is_told_once() {
        assert_eq!(cut(4, &[b"1234\n12345\n1\n"]), [line("1234"), None, line("1")]);
        assert_eq!(cut(4, &[b"12", b"34", b"5678901", b"2\n12\n"]), [None, line("12")]);
        assert_eq!(cut(4, &[b"12345"]), [None]);
        assert_eq!(cut(4, &[b"123456789012345"]), [None], "the end of it is not another line");
    }

    #[test]
    fn an_endless_line_costs_no_memory() {
        let mut cutter = Cutter::new(1 << 20);
        let mut told = 0;
        for _ in 0..10_000 {
            let length = cutter.space().len();
            cutter.space().fill(b'x');
            cutter.filled(length);
            told += usize::from(cutter.next().is_some());
            assert!(cutter.bytes.capacity() <= (1 << 20) + 1);
        }
        assert_eq!(told, 1);
        assert!(cutter.is_open());
        assert_eq!(cutter.end(), None);
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_lines(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), any::<u8>()], 0..200),
            cuts in prop::collection::vec(1usize..20, 1..40),
        ) {
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
            let ended = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            let expected: Vec<_> = ended
                .split(|&b| b == b'\n')
                .map(|line| (line.len() <= 16).then(|| line.to_vec()))
                .collect();
            let expected = if bytes.is_empty() { vec![] } else { expected };
            prop_assert_eq!(cut(16, &pieces), expected.clone());
            prop_assert_eq!(cut(16, &[&bytes]), expected.clone());
            for room in [0, 3, 16] {
                prop_assert_eq!(cut_elsewhere(16, &pieces, room), expected.clone());
            }
        }
    }
}
