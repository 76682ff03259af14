//! Request lines out of a stream of bytes.
//!
//! Unlike [`Lines`](crate::proto::lines::Lines) it keeps the beginning of a line that is too long, in which the id of
//! the request may stand, and hands out a line at a time, so that lines can wait as the bytes that they are.

/// One line, without its newline and one carriage return before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// A line of text that is not empty.
    Text(String),
    /// A line that is not UTF-8.
    NotUtf8,
    /// The first bytes of a line over the limit. Nothing comes after it.
    TooLong(Vec<u8>),
}

/// A stream on its way to lines. It never holds more than one line and what was pushed since it had none.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    bytes: Vec<u8>,
    /// How many of `bytes` have been handed out.
    taken: usize,
    /// Up to where there is no newline.
    searched: usize,
}

/// What an empty buffer may keep for the next line.
const KEEP: usize = 8 * 1024;

impl Cutter {
    /// Takes what was read.
    pub(super) fn push(&mut self, read: &[u8]) {
        self.reclaim();
        self.bytes.extend_from_slice(read);
    }

    /// The stream has ended: what stands after the last newline is a line, too.
    pub(super) fn end(&mut self) {
        if self.taken < self.bytes.len() {
            self.bytes.push(b'\n');
        }
    }

    /// Forgets what was not handed out.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The next line that is complete, or known to have more than `most` bytes. Empty ones are passed over.
    pub(super) fn next(&mut self, most: usize) -> Option<Piece> {
        loop {
            let found = memchr::memchr(b'\n', &self.bytes[self.searched..]);
            let end = found.map_or(self.bytes.len(), |at| self.searched + at);
            if end - self.taken > most {
                let start = self.bytes[self.taken..self.taken + most].to_vec();
                self.clear();
                return Some(Piece::TooLong(start));
            }
            self.searched = end;
            found?;
            let line = &self.bytes[self.taken..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let piece = std::str::from_utf8(line).map_or(Piece::NotUtf8, |text| Piece::Text(text.to_owned()));
            self.taken = end + 1;
            self.searched = self.taken;
            if piece != Piece::Text(String::new()) {
                return Some(piece);
            }
        }
    }

    /// Whether more bytes are needed before there is another line.
    pub(super) fn is_hungry(&self) -> bool {
        memchr::memchr(b'\n', &self.bytes[self.searched..]).is_none()
    }

    /// Gives handed-out bytes back. Moving only when at least half of the buffer is free keeps it linear.
    fn reclaim(&mut self) {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEEP);
        } else if self.taken * 2 >= self.bytes.len() {
            self.bytes.drain(..self.taken);
        } else {
            return;
        }
        self.searched -= self.taken;
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits;

    fn cut(pieces: &[&[u8]]) -> Vec<Piece> {
        let mut cutter = Cutter::default();
        let mut got = Vec::new();
        for piece in pieces {
            cutter.push(piece);
            got.extend(std::iter::from_fn(|| cutter.next(limits::API_LINE_BYTES)));
        }
        cutter.end();
        got.extend(std::iter::from_fn(|| cutter.next(limits::API_LINE_BYTES)));
        got
    }

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    #[test]
    fn a_line_ends_with_its_newline_and_the_last_one_with_the_stream() {
        assert_eq!(cut(&[b"a\n\n\r\nb", b"c\r\n \n\r\r\nd"]), ["a", "bc", " ", "\r", "d"].map(text));
        assert_eq!(cut(&[b"a\n"]), [text("a")]);
        assert_eq!(cut(&[b"\xf0\x9f", b"\x98", b"\x80\n\xff\nz\n"]), [text("😀"), Piece::NotUtf8, text("z")]);
        assert_eq!(cut(&[]), []);
    }

    #[test]
    fn exactly_the_limit_passes_and_one_more_is_told_before_its_newline() {
        let whole = "x".repeat(limits::API_LINE_BYTES);
        assert_eq!(cut(&[whole.as_bytes(), b"\na\n"]), [text(&whole), text("a")]);
        for more in [&b"x"[..], b"\r\n", b"y\nlost\n"] {
            assert_eq!(cut(&[whole.as_bytes(), more])[0], Piece::TooLong(whole.clone().into_bytes()));
        }
        let long = whole.repeat(3);
        assert_eq!(cut(&[b"a\n", long.as_bytes()])[1], Piece::TooLong(whole.into_bytes()));
    }

    #[test]
    fn whole_lines_can_wait_and_little_is_kept_of_them_afterwards() {
        let mut cutter = Cutter::default();
        assert!(cutter.is_hungry());
        cutter.push(&b"{}\n".repeat(20_000));
        assert!(!cutter.is_hungry());
        assert_eq!(std::iter::from_fn(|| cutter.next(limits::API_LINE_BYTES)).count(), 20_000);
        assert!(cutter.is_hungry());
        cutter.push(b"a");
        assert!(cutter.is_hungry() && cutter.bytes.capacity() <= KEEP);
    }

    proptest! {
        #[test]
        fn any_cuts_give_the_same_lines(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'a'), Just(0xc3), Just(0xa9), any::<u8>()], 0..200),
            sizes in prop::collection::vec(1usize..20, 1..40),
        ) {
            let whole = cut(&[&bytes]);
            let mut pieces = Vec::new();
            let mut rest = &bytes[..];
            for size in sizes.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, more) = rest.split_at((*size).min(rest.len()));
                pieces.push(piece);
                rest = more;
            }
            prop_assert_eq!(&cut(&pieces), &whole);
            prop_assert_eq!(&cut(&bytes.chunks(1).collect::<Vec<_>>()), &whole);
            let lines = bytes.split(|&b| b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
            let expected: Vec<Piece> = lines
                .filter(|line| !line.is_empty())
                .map(|line| std::str::from_utf8(line).map_or(Piece::NotUtf8, text))
                .collect();
            prop_assert_eq!(whole, expected);
        }
    }
}
