//! One pass over the bytes of one line: is it JSON, and where are the fields of the record and of its frame?
//!
//! No value is built. A line that passes is JSON by its whole grammar (RFC 8259); what is noted of it is where its
//! outermost fields stand, and whether it may be shown as it is.

use std::fmt;

use super::raw::names_secret;
use super::record::is_secret;

/// Deepest nesting of a line. Deeper frames stand in a dump as texts.
pub(super) const DEPTH: u32 = 127;
/// Fields of a record, and of its frame, that are noted. Those after them are checked and not found by name.
pub(super) const FIELDS: usize = 4096;

/// A line that is no JSON object: where, and what is wrong there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct NotJson {
    /// The byte, from 1.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
    /// It is JSON all the same, and no object.
    pub is_json: bool,
}

/// A part of a line.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    start: usize,
    end: usize,
}

impl Span {
    #[inline]
    pub(super) fn of(self, line: &str) -> &str {
        &line[self.start..self.end]
    }

    /// The same as bytes, which are compared without a look at where characters begin.
    #[inline]
    pub(super) fn bytes_of(self, line: &str) -> &[u8] {
        &line.as_bytes()[self.start..self.end]
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// A field of an object: its name as it is written, without the quotes, and its value as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) name: Span,
    pub(super) value: Span,
}

/// What one pass has found. Kept from line to line, so that it costs no memory anew.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// The fields of the outermost object.
    pub(super) outer: Vec<Found>,
    /// The fields of the object that its last `frame` is.
    pub(super) frame: Vec<Found>,
    /// Nothing in it needs redaction, an escape or the removal of blanks.
    pub(super) is_clean: bool,
    /// A name of a field has an escape in it.
    pub(super) has_escaped_name: bool,
}

impl Marks {
    /// Reads a line.
    ///
    /// # Errors
    /// When it is no JSON object.
    pub(super) fn read(&mut self, line: &str) -> Result<(), NotJson> {
        let mut scan = Scan::new(line.as_bytes());
        let is_object =
            self.walk(&mut scan).map_err(|Fault(what)| NotJson { at: scan.at + 1, what, is_json: false })?;
        if !is_object {
            let what = "a frame is a JSON object, and there is something else";
            return Err(NotJson { at: 1, what, is_json: true });
        }
        self.is_clean = scan.is_clean;
        self.has_escaped_name = scan.has_escaped_name;
        Ok(())
    }

    /// Notes the fields of an object; answers whether it is one.
    fn walk(&mut self, scan: &mut Scan<'_>) -> Result<bool, Fault> {
        let Self { outer, frame, .. } = self;
        outer.clear();
        frame.clear();
        if scan.next() != Some(b'{') {
            scan.value(0)?;
            scan.end()?;
            return Ok(false);
        }
        scan.members(0, |scan, name| {
            let start = scan.at;
            if scan.peek() == Some(b'{') && &scan.bytes[name.start..name.end] == b"frame" {
                frame.clear();
                scan.members(1, |scan, name| {
                    let start = scan.at;
                    scan.value(2)?;
                    note(frame, name, Span { start, end: scan.at });
                    Ok(())
                })?;
            } else {
                scan.value(1)?;
            }
            note(outer, name, Span { start, end: scan.at });
            Ok(())
        })?;
        scan.end().map(|()| true)
    }
}

fn note(fields: &mut Vec<Found>, name: Span, value: Span) {
    if fields.len() < FIELDS {
        fields.push(Found { name, value });
    }
}

/// What is wrong where a pass has come to: small, because each step hands one back.
#[derive(Debug, Clone, Copy)]
struct Fault(&'static str);

/// The pass itself.
pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    specials: Specials,
    is_clean: bool,
    has_escaped_name: bool,
}

impl<'a> Scan<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, specials: Specials::default(), is_clean: true, has_escaped_name: false }
    }

    /// The offset after the value that begins at `at`, in a text that is JSON.
    pub(super) fn after_value(bytes: &'a [u8], at: usize) -> usize {
        let mut scan = Scan { at, ..Scan::new(bytes) };
        // What was read once is read again; a fault would have been told then.
        let _ = scan.value(0);
        scan.at
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Steps over blanks; answers what comes then.
    #[inline]
    fn next(&mut self) -> Option<u8> {
        let next = self.peek();
        if next.is_some_and(|byte| byte <= b' ') { self.after_blanks() } else { next }
    }

    #[inline(never)] // so that what is written without blanks costs nothing of it
    fn after_blanks(&mut self) -> Option<u8> {
        self.is_clean = false;
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.peek()
    }

    fn end(&mut self) -> Result<(), Fault> {
        if self.next().is_none() { Ok(()) } else { Err(Fault("more after the end of the value")) }
    }

    /// The members of an object whose `{` is next; `each` reads the value after each name.
    #[inline]
    fn members(
        &mut self,
        depth: u32,
        mut each: impl FnMut(&mut Self, Span) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if depth >= DEPTH {
            return Err(Fault("deeper nesting than is read"));
        }
        self.at += 1;
        if self.next() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            if self.next() != Some(b'"') {
                return Err(Fault("no field name"));
            }
            let start = self.at + 1;
            let is_escaped = self.string()?;
            let name = Span { start, end: self.at - 1 };
            self.name(&self.bytes[start..self.at - 1], is_escaped);
            if self.next() != Some(b':') {
                return Err(Fault("no colon"));
            }
            self.at += 1;
            self.next();
            each(self, name)?;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(Fault("neither a comma nor the end of the object")),
            }
        }
    }

    fn elements(&mut self, depth: u32) -> Result<(), Fault> {
        if depth >= DEPTH {
            return Err(Fault("deeper nesting than is read"));
        }
        self.at += 1;
        if self.next() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.next();
            self.value(depth + 1)?;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(Fault("neither a comma nor the end of the array")),
            }
        }
    }

    /// The value that is next.
    #[inline]
    fn value(&mut self, depth: u32) -> Result<(), Fault> {
        if self.peek() == Some(b'"') {
            return self.string().map(drop);
        }
        self.no_string(depth)
    }

    #[inline(never)] // so that a string, which most values are, costs nothing of it
    fn no_string(&mut self, depth: u32) -> Result<(), Fault> {
        match self.peek() {
            Some(b'{') => self.members(depth, |scan, _| scan.value(depth + 1)),
            Some(b'[') => self.elements(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            Some(_) => Err(Fault("no value")),
            None => Err(Fault("the end where a value should be")),
        }
    }

    fn word(&mut self, word: &'static [u8]) -> Result<(), Fault> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(Fault("no value"));
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(Fault("no digit")) } else { Ok(()) }
    }

    #[inline]
    fn name(&mut self, name: &[u8], is_escaped: bool) {
        self.has_escaped_name |= is_escaped;
        let is_secret = if is_escaped { names_secret(name) } else { is_secret(name) };
        self.is_clean &= !is_secret;
    }

    /// A string whose first quote is next. Whether it has escapes in it.
    #[inline]
    fn string(&mut self) -> Result<bool, Fault> {
        self.at = self.specials.next(self.bytes, self.at + 1);
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(false);
        }
        self.rest_of_string()
    }

    /// The same from something special on, which most strings do not have.
    #[inline(never)] // so that a plain string costs nothing of it
    fn rest_of_string(&mut self) -> Result<bool, Fault> {
        let mut is_escaped = false;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(is_escaped);
                }
                Some(b'\\') => {
                    self.escape()?;
                    is_escaped = true;
                }
                Some(0..=0x1f) => return Err(Fault("a control character in a string")),
                Some(_) => {
                    self.is_clean &= unsafe_length(&self.bytes[self.at..]) == 0;
                    self.at += 1;
                }
                None => return Err(Fault("the end in the middle of a string")),
            }
            self.at = self.specials.next(self.bytes, self.at);
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let digits = self.bytes.get(self.at + 2..self.at + 6).unwrap_or_default();
                if digits.len() < 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(Fault("no escape"));
                }
                self.at += 6;
            }
            _ => return Err(Fault("no escape")),
        }
        Ok(())
    }
}

/// Bytes that are looked at in one go.
const BLOCK: usize = 64;

/// Where the bytes are that a string does not just go on with: quotes, backslashes, those below the blank, and those
/// beyond `~`. What was found of the last block is kept, because most strings are much shorter than one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Specials {
    start: usize,
    /// Where the block ends.
    end: usize,
    /// A bit for each byte of it.
    marks: u64,
}

impl Specials {
    /// The offset of the first of them from `at` on; the end of the bytes if there is none. It is always asked for the
    /// same bytes, and never for an offset before that of the time before.
    #[inline]
    pub(super) fn next(&mut self, bytes: &[u8], at: usize) -> usize {
        if at < self.end {
            let marks = self.marks >> (at - self.start);
            if marks != 0 {
                return at + marks.trailing_zeros() as usize;
            }
        }
        self.search(bytes, at.max(self.end))
    }

    /// The same beyond the block that was looked at.
    #[inline(never)] // so that what is found at once costs nothing of it
    fn search(&mut self, bytes: &[u8], mut at: usize) -> usize {
        while at < bytes.len() {
            self.look(bytes, at);
            let marks = self.marks >> (at - self.start);
            if marks != 0 {
                return at + marks.trailing_zeros() as usize;
            }
            at = self.end;
        }
        bytes.len()
    }

    /// Looks at the block that begins at `at`, or at the last one, which may begin before.
    #[inline]
    fn look(&mut self, bytes: &[u8], at: usize) {
        self.start = at.min(bytes.len().saturating_sub(BLOCK));
        let rest = &bytes[self.start..];
        if let Some(block) = rest.first_chunk() {
            self.end = self.start + BLOCK;
            self.marks = marks(block);
        } else {
            let mut block = [b' '; BLOCK];
            block[..rest.len()].copy_from_slice(rest);
            self.end = bytes.len();
            self.marks = marks(&block);
        }
    }
}

/// A bit for each byte that [`Specials`] look for, the lowest for the first.
#[inline]
fn marks(block: &[u8; BLOCK]) -> u64 {
    // Without a branch, which lets the compiler compare many bytes at once. As a signed number, a byte beyond 0x7f is
    // below the blank too.
    let is_special =
        |byte: u8| (byte.cast_signed() < 0x20) | (byte == b'"') | (byte == b'\\') | (byte == 0x7f);
    let found = block.map(|byte| u8::from(is_special(byte)));
    found.chunks_exact(8).rev().fold(0, |marks, eight| {
        let eight = u64::from_le_bytes(eight.try_into().expect("eight bytes"));
        // Moves the lowest bits of the eight bytes together into the highest byte.
        marks << 8 | eight.wrapping_mul(0x0102_0408_1020_4080) >> 56
    })
}

/// The length of the character that `bytes` begin with, if a terminal would act on it: DEL, C1, or one that reorders
/// what is read (see [`text::is_unsafe`](crate::text::is_unsafe)). 0 if it would not.
#[inline]
pub(super) fn unsafe_length(bytes: &[u8]) -> usize {
    match bytes {
        [0x7f, ..] => 1,
        [0xc2, 0x80..=0x9f, ..] => 2,
        [0xe2, 0x80, 0xaa..=0xae, ..] | [0xe2, 0x81, 0xa6..=0xa9, ..] => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
