//! What a terminal shows of the bytes that are written to it: escape sequences and controls taken out.
//!
//! No more than is needed to read text out of a log: there is no grid, and where a sequence moves the cursor is
//! not followed. A sequence that moves it to another line is told as a [`Shown::Break`], because programs that draw
//! whole screens end their lines so.

const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
pub(super) const ESC: u8 = 0x1b;
/// What every C1 control begins with in UTF-8.
pub(super) const C1_LEAD: u8 = 0xc2;

/// What one byte adds to the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// This byte.
    Byte(u8),
    /// The cursor goes to another line, or to the beginning of this one.
    Break,
    /// Nothing that can be read.
    Nothing,
}

/// Where in a sequence the last byte was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Ground,
    /// After the first byte of what may be a C1 control.
    Lead,
    Escape,
    /// In a control sequence, `ESC [`.
    Control,
    /// In a string that is not shown: a title, a clipboard, an image.
    Hidden,
    /// The same, after the first byte of what may be its end.
    HiddenLead,
}

/// Reads a stream byte by byte.
#[derive(Debug, Clone, Default)]
pub(super) struct Screen(State);

impl Screen {
    /// Whether the next byte stands for itself.
    pub(super) fn is_ground(&self) -> bool {
        self.0 == State::Ground
    }

    /// What the next byte shows; before it the one byte that was held back, when that was no control after all.
    pub(super) fn take(&mut self, byte: u8) -> (Option<u8>, Shown) {
        match self.0 {
            State::Lead => {
                self.0 = State::Ground;
                match byte {
                    0x80..=0x9f => (None, self.c1(byte)),
                    _ => (Some(C1_LEAD), self.plain(byte)),
                }
            }
            _ => (None, self.step(byte)),
        }
    }

    fn step(&mut self, byte: u8) -> Shown {
        match (self.0, byte) {
            (State::Ground | State::Lead, _) => self.plain(byte),
            (_, ESC) => self.goes_to(State::Escape),
            (_, CAN | SUB) | (State::Hidden | State::HiddenLead, BEL) => self.goes_to(State::Ground),
            // A title has no line break; one that was cut off must not hide the rest of the log.
            (State::Hidden | State::HiddenLead, b'\n') => self.ends_with(Shown::Byte(b'\n')),
            (State::HiddenLead, 0x9c) => self.goes_to(State::Ground),
            (State::Hidden | State::HiddenLead, C1_LEAD) => self.goes_to(State::HiddenLead),
            (State::Hidden | State::HiddenLead, _) => self.goes_to(State::Hidden),
            (_, 0..=0x1f | 0x7f) => control(byte),
            (State::Escape, b'[') => self.goes_to(State::Control),
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_' | b'k') => self.goes_to(State::Hidden),
            (State::Escape, 0x20..=0x2f) | (State::Control, 0x20..=0x3f) => Shown::Nothing,
            (State::Escape, b'D' | b'E' | b'M') => self.ends_with(Shown::Break),
            (State::Control, b'A' | b'B' | b'E' | b'F' | b'H' | b'd' | b'e' | b'f') => {
                self.ends_with(Shown::Break)
            }
            (_, 0x30..=0x7e) => self.goes_to(State::Ground),
            // No part of a sequence: it was cut off.
            _ => {
                self.0 = State::Ground;
                self.plain(byte)
            }
        }
    }

    fn goes_to(&mut self, state: State) -> Shown {
        self.0 = state;
        Shown::Nothing
    }

    fn ends_with(&mut self, shown: Shown) -> Shown {
        self.0 = State::Ground;
        shown
    }

    fn plain(&mut self, byte: u8) -> Shown {
        match byte {
            ESC => self.goes_to(State::Escape),
            C1_LEAD => self.goes_to(State::Lead),
            0..=0x1f | 0x7f => control(byte),
            _ => Shown::Byte(byte),
        }
    }

    /// A C1 control by its second byte in UTF-8.
    fn c1(&mut self, byte: u8) -> Shown {
        match byte {
            0x9b => self.goes_to(State::Control),
            0x90 | 0x98 | 0x9d | 0x9e | 0x9f => self.goes_to(State::Hidden),
            0x84 | 0x85 | 0x8d => Shown::Break,
            _ => Shown::Nothing,
        }
    }
}

/// A C0 control outside of strings.
fn control(byte: u8) -> Shown {
    match byte {
        // Going back over what was written is no noise: the text is not what it seems, and its reader will say so.
        b'\n' | b'\t' | 0x08 => Shown::Byte(byte),
        b'\r' | 0x0b | 0x0c => Shown::Break,
        _ => Shown::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text, with `|` for a break.
    fn shown(bytes: &[u8]) -> String {
        let mut screen = Screen::default();
        let mut out = Vec::new();
        for &byte in bytes {
            let (held, shown) = screen.take(byte);
            out.extend(held);
            match shown {
                Shown::Byte(byte) => out.push(byte),
                Shown::Break => out.push(b'|'),
                Shown::Nothing => {}
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn sequences_are_not_shown() {
        for (bytes, text) in [
            ("a\x1b[1;31mb\x1b[0mc", "abc"),
            ("a\x1b[2K\x1b[?25l\x1b[5Cb", "ab"),
            ("a\x1b]0;title\x07b\x1b]8;;http://h/\x1b\\c", "abc"),
            ("a\x1bPq#0\x1b\\b\x1b_G\x1b\\c\x1bkname\x1b\\d", "abcd"),
            ("a\x1b(Bb\x1b=c\x1b7d", "abcd"),
            ("a\u{9b}1mb\u{9d}0;t\u{9c}c\u{85}d", "abc|d"),
            ("é© \u{a0}\t\n", "é© \u{a0}\t\n"),
            ("a\x07\0\x0e\x7fb\x08", "ab\x08"),
            ("a\r\nb\x1b[5;1Hc\x1b[Bd\x0be", "a|\nb|c|d|e"),
        ] {
            assert_eq!(shown(bytes.as_bytes()), text, "{bytes:?}");
        }
    }

    #[test]
    fn a_sequence_that_was_cut_off_hides_little() {
        assert_eq!(shown(b"a\x1b]0;title\nb"), "a\nb");
        assert_eq!(shown("a\x1b[1é".as_bytes()), "aé");
        assert_eq!(shown(b"a\x1b[1\x1b[2mb"), "ab");
        assert_eq!(shown(b"a\x1b[1\x18b\x1bPx\x1ac"), "abc");
        assert_eq!(shown(b"a\xc2\x1b[1mb"), "a\u{fffd}b");
    }
}
