//! Writing lines to stdout: many at once, and each no wider than it may be.

use std::io::{self, Write};

use crate::cli::output::Out;

/// What is written at once.
const BUFFER: usize = 64 * 1024;
const PLAIN: &str = "\x1b[0m";

/// Collects what is written. A line is put together from pieces and ended by [`end_line`](Self::end_line).
pub(super) struct Pen {
    out: Out,
    held: Vec<u8>,
    color: bool,
    clip: Option<Clip>,
}

/// A line on its way to its greatest width.
struct Clip {
    width: usize,
    columns: usize,
    /// Where in what is held the last column begins, in which the mark of a clipped line would stand.
    last: usize,
}

impl Pen {
    /// Lines of at most `width` columns, or as wide as they are.
    pub(super) fn new(out: Out, width: Option<usize>, color: bool) -> Self {
        let clip = width.map(|width| Clip { width: width.max(1), columns: 0, last: 0 });
        Self { out, held: Vec::with_capacity(2 * BUFFER), color, clip }
    }

    /// A piece of a line. It holds nothing that a terminal would act on.
    #[inline]
    pub(super) fn put(&mut self, piece: &str) -> io::Result<()> {
        if self.clip.is_none() && piece.len() < BUFFER {
            self.held.extend_from_slice(piece.as_bytes());
            return Ok(());
        }
        self.put_otherwise(piece)
    }

    #[inline(never)] // so that what most pieces need stands where they are put
    fn put_otherwise(&mut self, piece: &str) -> io::Result<()> {
        if let Some(clip) = &mut self.clip {
            clip.put(&mut self.held, piece);
            return Ok(());
        }
        self.flush_held()?;
        self.out.write_all(piece.as_bytes())
    }

    /// A piece of one ASCII character.
    #[inline]
    pub(super) fn put_byte(&mut self, byte: u8) {
        match &mut self.clip {
            Some(clip) => clip.put(&mut self.held, char::from(byte).encode_utf8(&mut [0; 4])),
            None => self.held.push(byte),
        }
    }

    /// Switches to a colour, which takes no column.
    #[inline]
    pub(super) fn style(&mut self, code: &str) {
        if self.color {
            self.held.extend_from_slice(code.as_bytes());
        }
    }

    /// Switches back.
    #[inline]
    pub(super) fn plain(&mut self) {
        self.style(PLAIN);
    }

    /// Ends a line, and clips it if it was too wide.
    #[inline]
    pub(super) fn end_line(&mut self) -> io::Result<()> {
        if let Some(clip) = &mut self.clip {
            if clip.columns > clip.width {
                self.held.truncate(clip.last);
                self.held.extend_from_slice("…".as_bytes());
                if self.color {
                    self.held.extend_from_slice(PLAIN.as_bytes());
                }
            }
            clip.columns = 0;
        }
        self.held.push(b'\n');
        if self.held.len() >= BUFFER { self.flush_held() } else { Ok(()) }
    }

    /// Writes out everything.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.flush_held()?;
        self.out.flush()
    }

    fn flush_held(&mut self) -> io::Result<()> {
        self.out.write_all(&self.held)?;
        self.held.clear();
        Ok(())
    }
}

impl Clip {
    /// Takes as much of the piece as can be seen.
    fn put(&mut self, held: &mut Vec<u8>, piece: &str) {
        for c in piece.chars() {
            if self.columns > self.width {
                return;
            }
            if self.columns < self.width {
                self.last = held.len();
            }
            self.columns += columns(c);
            held.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

/// How many columns of a terminal a character takes, as far as that can be said without asking it.
fn columns(c: char) -> usize {
    match u32::from(c) {
        0..=0x2ff => 1,
        0x300..=0x36f | 0x200b..=0x200f | 0x20d0..=0x20ff | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clipped(width: usize, pieces: &[&str]) -> String {
        let mut pen = Pen::new(Out::new(), Some(width), false);
        pieces.iter().for_each(|piece| pen.put(piece).unwrap());
        pen.end_line().unwrap();
        let line = String::from_utf8(std::mem::take(&mut pen.held)).unwrap();
        line.strip_suffix('\n').unwrap().to_owned()
    }

    #[test]
    fn a_line_takes_its_width_and_not_more() {
        assert_eq!(clipped(5, &["ab", "cde"]), "abcde");
        assert_eq!(clipped(5, &["ab", "cdef"]), "abcd…");
        assert_eq!(clipped(5, &["ab", "cde", "fgh", "i"]), "abcd…");
        assert_eq!(clipped(1, &["ab"]), "…");
        assert_eq!(clipped(0, &["ab"]), "…");
        assert_eq!(clipped(3, &["e\u{301}e\u{301}e\u{301}"]), "e\u{301}e\u{301}e\u{301}");
    }

    #[test]
    fn a_wide_character_takes_two_columns() {
        assert_eq!(clipped(4, &["日本"]), "日本");
        assert_eq!(clipped(4, &["日本語"]), "日…");
        assert_eq!(clipped(5, &["日本語"]), "日本…");
    }
}
