//! A stream of bytes as lines of text, however long they are.

use memchr::memchr;

/// Cuts a stream into lines, in little memory: a line that is longer than `longest` bytes comes in pieces of at most
/// that, and so does one without an end. What is not UTF-8 becomes U+FFFD. A line ends with a newline, before which
/// one carriage return is no part of it.
#[derive(Debug)]
pub struct Lines {
    longest: usize,
    partial: Vec<u8>,
    /// A part of the line was handed on already.
    is_cut: bool,
}

impl Lines {
    /// Nothing read so far. `longest` is at least 4, so that every character fits.
    pub fn new(longest: usize) -> Self {
        Self { longest: longest.max(4), partial: Vec::new(), is_cut: false }
    }

    /// Takes the next bytes, and hands on what they complete.
    pub fn feed(&mut self, mut bytes: &[u8], mut line: impl FnMut(&str)) {
        while let Some(end) = memchr(b'\n', bytes) {
            self.add(&bytes[..end], &mut line);
            self.end(&mut line);
            bytes = &bytes[end + 1..];
        }
        self.add(bytes, &mut line);
    }

    /// The stream has ended: a last line needs no newline.
    pub fn finish(&mut self, mut line: impl FnMut(&str)) {
        if !self.partial.is_empty() {
            self.end(&mut line);
        }
        self.is_cut = false;
    }

    /// Adds to the line that is being read, and hands on what is too much of it. The last byte is kept back, as it may
    /// be the carriage return of its end.
    fn add(&mut self, mut bytes: &[u8], line: &mut impl FnMut(&str)) {
        while self.partial.len() + bytes.len() > self.longest {
            let room = self.longest.saturating_sub(self.partial.len());
            let (now, later) = bytes.split_at(room);
            self.partial.extend_from_slice(now);
            bytes = later;
            let at = boundary(&self.partial);
            line(&String::from_utf8_lossy(&self.partial[..at]));
            self.partial.drain(..at);
            self.is_cut = true;
        }
        self.partial.extend_from_slice(bytes);
    }

    fn end(&mut self, line: &mut impl FnMut(&str)) {
        let bytes = self.partial.strip_suffix(b"\r").unwrap_or(&self.partial);
        // The end of a line that came in pieces is no line of its own.
        if !bytes.is_empty() || !self.is_cut {
            line(&String::from_utf8_lossy(bytes));
        }
        self.partial.clear();
        self.partial.shrink_to(64 * 1024);
        self.is_cut = false;
    }
}

/// Where to cut so that no character is torn: before the last one, if it may go on behind the cut.
fn boundary(bytes: &[u8]) -> usize {
    let back = bytes.iter().rev().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    let Some(lead) = bytes.len().checked_sub(back + 1) else { return bytes.len() };
    let wants = match bytes[lead] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        b'\r' if back == 0 => 2,
        _ => 0,
    };
    if wants > back + 1 && lead > 0 { lead } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(longest: usize, chunks: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut found) = (Lines::new(longest), Vec::new());
        for chunk in chunks {
            lines.feed(chunk, |line| found.push(line.to_owned()));
        }
        lines.finish(|line| found.push(line.to_owned()));
        found
    }

    #[test]
    fn lines_end_with_a_newline_and_the_last_one_without() {
        assert_eq!(split(99, &[b"a\r\n\nb", b"c\r", b"\n\r\r\nlast"]), ["a", "", "bc", "\r", "last"]);
        assert_eq!(split(99, &[b"a\n"]), ["a"]);
        assert_eq!(split(99, &[]), [""; 0]);
        assert_eq!(split(99, &[b"ok\n\xff\xfe bad\n"]), ["ok", "\u{fffd}\u{fffd} bad"]);
    }

    #[test]
    fn a_long_line_comes_in_pieces_and_no_character_is_torn() {
        assert_eq!(split(4, &[b"abcdefghij\nx"]), ["abcd", "efgh", "ij", "x"]);
        assert_eq!(split(4, &[b"abcdefgh\n"]), ["abcd", "efgh"]);
        assert_eq!(split(4, &["abcé\n".as_bytes()]), ["abc", "é"]);
        assert_eq!(split(5, &["ab😀c\n".as_bytes()]), ["ab", "😀c"]);
        assert_eq!(split(4, &[b"abc\r\n", b"abcd\r\ne"]), ["abc", "abcd", "e"]);
    }

    proptest! {
        #[test]
        fn how_the_bytes_come_makes_no_difference(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..200),
            longest in 4_usize..40,
            size in 1_usize..50,
        ) {
            let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
            let found = split(longest, &chunks);
            prop_assert_eq!(&found, &split(longest, &[&bytes]));
            // U+FFFD is as long as three bytes.
            prop_assert!(found.iter().all(|line| line.len() <= 3 * longest));
        }

        #[test]
        fn no_text_is_lost(text in "[a-zé😀\n]{0,300}") {
            let found = split(8, &[text.as_bytes()]).concat();
            prop_assert_eq!(found, text.replace('\n', ""));
        }
    }
}
