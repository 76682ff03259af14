//! Finding envelopes in a stream that holds other things too, such as a terminal's log.

mod frame;
mod runs;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use self::frame::{FRAME_LONGEST, is_frame, unframed};
use self::runs::Runs;
use super::parse::opening;
use super::screen::{C1_LEAD, ESC, Screen, Shown};
use super::{LONGEST, ParseError, Parsed, parse};

/// What stands where an envelope begins, or seems to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where its first byte is, in bytes from the beginning of the stream.
    pub offset: u64,
    /// The envelope, or why it is none.
    pub what: Result<Box<Parsed>, Fault>,
}

/// Why what begins like an envelope is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It is whole, but not as it is rendered.
    #[error("byte {at}: {reason}")]
    Malformed {
        /// The place, in bytes from the beginning of the stream.
        at: u64,
        /// What is wrong there.
        reason: &'static str,
    },
    /// It was cut off: another one begins before it ends.
    #[error("no </transit> before the next opening tag at byte {next}")]
    CutByNext {
        /// Where the other one begins, in bytes from the beginning of the stream.
        next: u64,
    },
    /// It was cut off by the end of the stream.
    #[error("no </transit> before the end")]
    CutByEnd,
    /// It does not end within the length that an envelope can have.
    #[error("no </transit> within {LONGEST} bytes")]
    Endless,
}

impl Fault {
    /// Whether a part of it is missing, rather than wrong.
    pub fn is_truncated(&self) -> bool {
        !matches!(self, Self::Malformed { .. })
    }
}

/// Finds every envelope in a stream of bytes that comes in pieces of any size.
///
/// What a terminal does not show (escape sequences, controls) may stand anywhere, within envelopes too; lines may end
/// with CRLF or with a move of the cursor, and may stand in a frame that is drawn at their left, or left and right. Of
/// what looks like an envelope within another one's body nothing is told, nor of what a `<transit_full …>` shows: both
/// are somebody's text.
///
/// Memory stays flat: twice [`LONGEST`] bytes of what is shown are held at most, and where each of them stood, which
/// makes 4 MiB for a stream that is made to need it. Each byte costs about the same, however the stream is made.
#[derive(Debug, Default)]
pub struct Scanner {
    screen: Screen,
    /// The bytes that were taken.
    offset: u64,
    /// What is shown since the first of `opens`, or of what may become an opening tag.
    shown: Vec<u8>,
    /// Which of them do not follow the one before them in the stream, and where they are.
    places: Vec<(usize, u64)>,
    /// Before which of them the cursor was moved to another line.
    breaks: Vec<usize>,
    /// Where in `shown` opening tags begin whose ends have not come.
    opens: Vec<usize>,
    /// Where in `shown` an opening tag may begin.
    start: Option<usize>,
    /// What is shown of the line before `shown`.
    line: Line,
    /// The `<transit_full …>` that we are in.
    wrapper: Option<Wrapper>,
    found: VecDeque<Found>,
}

/// A `<transit_full …>`: what is found after it waits until it is known whether it ends.
#[derive(Debug)]
struct Wrapper {
    offset: u64,
    ends_before: u64,
}

/// What it is that ends opening tags without making an envelope of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// A closing tag, which belongs to the last opening tag whose form is right.
    Close { last: Option<usize> },
    /// The end of the stream.
    Stream,
    /// The length that envelopes can have.
    Length,
}

/// The beginning of a line, as much of it as a frame may have.
#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    is_long: bool,
}

const OPEN: &[u8] = b"<transit ";
const CLOSE: &[u8] = b"</transit>";
const WRAPPER_OPEN: &[u8] = b"<transit_full id=";
const WRAPPER_CLOSE: &[u8] = b"</transit_full>";
/// The longest name of an attribute that is looked at.
const NAME_LONGEST: usize = 16;
/// More than any `<transit_full …>` has, in bytes of the stream.
const WRAPPER_LONGEST: u64 = 128 * 1024;
/// What is spent on one closing tag to look behind frames, in bytes.
const FRAMED_WORK: usize = 8 * LONGEST;

impl Scanner {
    /// A scanner at the beginning of its stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what was read.
    pub fn push(&mut self, read: &[u8]) {
        let mut rest = read;
        while let Some(&byte) = rest.first() {
            if self.is_idle() {
                // What begins neither a tag nor a sequence is passed over at once.
                let plain = memchr::memchr3(b'<', ESC, C1_LEAD, rest).unwrap_or(rest.len());
                if plain > 0 {
                    self.line.pass(&rest[..plain]);
                    self.offset += plain as u64;
                    rest = &rest[plain..];
                    continue;
                }
            }
            let (held, shown) = self.screen.take(byte);
            if let Some(byte) = held {
                self.show(byte, self.offset - 1);
            }
            match shown {
                Shown::Byte(byte) => self.show(byte, self.offset),
                Shown::Break => self.end_line(),
                Shown::Nothing => {}
            }
            self.offset += 1;
            rest = &rest[1..];
        }
    }

    /// Takes the end of the stream: what has not ended is cut off.
    pub fn end(&mut self) {
        self.give_up(self.opens.len(), Ending::Stream);
        self.wrapper = None;
    }

    /// What was found next. `None` is not the end: there may be more after the next push.
    #[allow(clippy::should_implement_trait)] // for the same reason
    pub fn next(&mut self) -> Option<Found> {
        let offset = self.found.front()?.offset;
        let holds = |wrapper: &Wrapper| wrapper.offset < offset && self.offset < wrapper.ends_before;
        if self.wrapper.as_ref().is_some_and(holds) { None } else { self.found.pop_front() }
    }

    /// Whether nothing is under way.
    fn is_idle(&self) -> bool {
        self.screen.is_ground() && self.opens.is_empty() && self.start.is_none()
    }

    fn end_line(&mut self) {
        if self.opens.is_empty() && self.start.is_none() {
            self.line.clear();
        } else if self.breaks.last() != Some(&self.shown.len()) {
            self.breaks.push(self.shown.len());
        }
    }

    /// Takes a byte that is shown, and where it stands.
    fn show(&mut self, byte: u8, at: u64) {
        if byte == b'<' {
            if self.opens.is_empty() {
                self.start = None;
                self.forget(self.shown.len());
            }
            self.start = Some(self.shown.len());
        } else if self.opens.is_empty() && self.start.is_none() {
            self.line.pass(&[byte]);
            return;
        }
        let length = self.shown.len();
        let follows = |&(first, from): &(usize, u64)| from + (length - first) as u64 == at;
        if !self.places.last().is_some_and(follows) {
            self.places.push((length, at));
        }
        self.shown.push(byte);
        if let Some(start) = self.start {
            self.look_at_tag(start);
        }
        let Some(&first) = self.opens.first() else {
            if self.start.is_none() {
                self.forget(self.shown.len());
            }
            return;
        };
        if self.shown.ends_with(CLOSE) {
            self.close();
        } else if self.shown.len() - first >= 2 * LONGEST {
            // Half of it at once, so that moving the rest does not cost more than reading it did.
            let old = self.opens.partition_point(|&start| self.shown.len() - start > LONGEST);
            self.give_up(old, Ending::Length);
        }
    }

    /// Looks at what the last byte makes of the tag that begins at `start`.
    fn look_at_tag(&mut self, start: usize) {
        let tag = &self.shown[start..];
        if may_be_tag(tag) {
            return;
        }
        self.start = None;
        let (is_open, opens_wrapper, closes_wrapper) =
            (is_opening(tag), tag == WRAPPER_OPEN, tag == WRAPPER_CLOSE);
        let offset = self.at(start);
        if self.wrapper.as_ref().is_some_and(|wrapper| wrapper.ends_before <= offset) {
            self.wrapper = None;
        }
        if is_open {
            self.opens.push(start);
        } else if opens_wrapper && self.wrapper.is_none() {
            self.wrapper = Some(Wrapper { offset, ends_before: offset + WRAPPER_LONGEST });
        } else if closes_wrapper && let Some(wrapper) = self.wrapper.take() {
            // All that was found in it is somebody's text.
            let kept = self.opens.partition_point(|&start| self.at(start) < wrapper.offset);
            self.opens.truncate(kept);
            self.found.retain(|found| found.offset < wrapper.offset);
        }
    }

    /// Where a byte of `shown` stands in the stream, if one before it is known.
    fn place(&self, index: usize) -> Option<u64> {
        let after = self.places.partition_point(|(first, _)| *first <= index);
        let (first, at) = self.places.get(after.checked_sub(1)?)?;
        Some(at + (index - first) as u64)
    }

    fn at(&self, index: usize) -> u64 {
        self.place(index).unwrap_or(self.offset)
    }

    /// Forgets the first `count` bytes that are shown. What of them is on the line of the next one stays known.
    fn forget(&mut self, count: usize) {
        if count == 0 && self.breaks.is_empty() {
            return;
        }
        let next = self.place(count);
        let passed = self.breaks.partition_point(|&at| at <= count);
        let from = passed.checked_sub(1).map(|last| self.breaks[last]);
        if from.is_some() {
            self.line.clear();
        }
        self.line.pass(&self.shown[from.unwrap_or(0)..count]);
        self.shown.drain(..count);
        self.breaks.drain(..passed);
        self.breaks.iter_mut().for_each(|at| *at -= count);
        self.places.retain(|(first, _)| *first > count);
        self.places.iter_mut().for_each(|(first, _)| *first -= count);
        if let (Some(at), false) = (next, self.shown.is_empty()) {
            self.places.insert(0, (0, at));
        }
        self.opens.iter_mut().for_each(|start| *start -= count);
        self.start = self.start.map(|start| start - count);
    }

    /// Takes a closing tag: the outermost opening tag that makes an envelope with it does so, and all that stands
    /// within is its body.
    fn close(&mut self) {
        let runs = Runs::of(&self.shown);
        let (which, parsed) = match self.plain(&runs).or_else(|| self.framed(&runs)) {
            Some((which, parsed)) => (which, Some(parsed)),
            None => (self.opens.len(), None),
        };
        let ending = Ending::Close {
            last: match parsed {
                Some(_) => None,
                None => self.opens.iter().rposition(|&start| opening(runs.from(start).0).is_ok()),
            },
        };
        let mut found: Vec<_> = (0..which).map(|which| self.fault(which, &runs, ending)).collect();
        if let Some(parsed) = parsed {
            let offset = self.at(self.opens[which]);
            // What a body begins is no wrapper.
            self.wrapper.take_if(|wrapper| wrapper.offset > offset);
            found.push(Found { offset, what: Ok(Box::new(parsed)) });
        }
        self.found.extend(found);
        self.opens.clear();
        self.start = None;
        self.forget(self.shown.len());
    }

    /// The first opening tag that makes an envelope as it stands.
    fn plain(&self, runs: &Runs<'_>) -> Option<(usize, Parsed)> {
        // What one body must not have, one that begins further in and has it too need not be tried for.
        let mut spoilt = 0;
        for (which, &start) in self.opens.iter().enumerate() {
            let (text, is_whole) = runs.from(start);
            if start < spoilt || !is_whole || text.len() > LONGEST {
                continue;
            }
            match parse(text) {
                Ok(parsed) => return Some((which, parsed)),
                Err(err) if err.is_of_any_body() => spoilt = start + err.offset(),
                Err(_) => {}
            }
        }
        None
    }

    /// The first opening tag that makes an envelope once it is taken out of its frame.
    fn framed(&self, runs: &Runs<'_>) -> Option<(usize, Parsed)> {
        let mut work = FRAMED_WORK;
        for (which, &start) in self.opens.iter().enumerate() {
            let (text, is_whole) = runs.from(start);
            work = work.checked_sub(text.len())?;
            let breaks = &self.breaks[self.breaks.partition_point(|&at| at <= start)..];
            let breaks: Vec<usize> = breaks.iter().map(|at| at - start).collect();
            let frame = self.line_before(start).filter(|line| is_frame(line));
            if !is_whole || text.len() > LONGEST || (breaks.is_empty() && frame.is_none()) {
                continue;
            }
            let parsed = unframed(text, &breaks, frame.as_deref()).find_map(|text| parse(&text).ok());
            if let Some(parsed) = parsed {
                return Some((which, parsed));
            }
        }
        None
    }

    /// What stands on the line before the byte at `start`, if that is short.
    fn line_before(&self, start: usize) -> Option<String> {
        let near = start.saturating_sub(FRAME_LONGEST + 1);
        let moved =
            self.breaks.partition_point(|&at| at <= start).checked_sub(1).map(|last| self.breaks[last]);
        let ended = memchr::memrchr(b'\n', &self.shown[near..start]).map(|at| near + at + 1);
        let line = match moved.max(ended) {
            Some(from) => self.shown[from..start].to_vec(),
            None if near == 0 && !self.line.is_long => [&self.line.bytes, &self.shown[..start]].concat(),
            None => return None,
        };
        String::from_utf8(line).ok()
    }

    /// Tells that the first `count` opening tags make no envelopes.
    fn give_up(&mut self, count: usize, ending: Ending) {
        let runs = Runs::of(&self.shown);
        let faults: Vec<_> = (0..count).map(|which| self.fault(which, &runs, ending)).collect();
        self.found.extend(faults);
        self.opens.drain(..count);
        self.forget(self.opens.first().copied().or(self.start).unwrap_or(self.shown.len()));
    }

    /// Why an opening tag makes no envelope.
    fn fault(&self, which: usize, runs: &Runs<'_>, ending: Ending) -> Found {
        let start = self.opens[which];
        let next = self.opens.get(which + 1).copied();
        let (text, is_whole) = runs.from(start);
        let malformed = |err: ParseError| Fault::Malformed {
            at: self.at(start + err.offset()),
            reason: if !is_whole && err.offset() == text.len() { "not UTF-8" } else { err.reason() },
        };
        let cut = match (next, ending) {
            (Some(next), _) => Fault::CutByNext { next: self.at(next) },
            (None, Ending::Stream) => Fault::CutByEnd,
            (None, _) => Fault::Endless,
        };
        let fault = match opening(text) {
            Ok(_) if ending == (Ending::Close { last: Some(which) }) => match parse(text) {
                Err(err) => malformed(err),
                // Only what is too long is left.
                Ok(_) => Fault::Endless,
            },
            Ok(_) => cut,
            Err(err) => {
                let own = next.map_or(text.len(), |next| text.len().min(next - start));
                let is_cut = next.is_some() || !matches!(ending, Ending::Close { .. });
                // The tag itself may be what was cut off; no `>` stands in one but its last, before a line break.
                let unended = !text[..own].contains('>') || text[..own].len() == err.offset() + 1;
                if is_cut && unended && (is_whole || own < text.len()) { cut } else { malformed(err) }
            }
        };
        Found { offset: self.at(start), what: Err(fault) }
    }
}

impl Line {
    fn pass(&mut self, bytes: &[u8]) {
        let last = memchr::memrchr2(b'\n', b'\r', bytes);
        if last.is_some() {
            self.clear();
        }
        let rest = &bytes[last.map_or(0, |at| at + 1)..];
        self.is_long |= self.bytes.len() + rest.len() > FRAME_LONGEST;
        if !self.is_long {
            self.bytes.extend_from_slice(rest);
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.is_long = false;
    }
}

/// Whether `tag` is the beginning of an envelope's opening tag up to the sign after its first attribute's name.
fn is_opening(tag: &[u8]) -> bool {
    let name = tag.strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(b"="));
    name.is_some_and(|name| !name.is_empty() && is_name(name))
}

/// Whether more bytes may make something of `tag`.
fn may_be_tag(tag: &[u8]) -> bool {
    let begins = |whole: &[u8]| tag.len() < whole.len() && whole.starts_with(tag);
    let named = |name: &[u8]| name.len() <= NAME_LONGEST && is_name(name);
    begins(OPEN) || begins(WRAPPER_OPEN) || begins(WRAPPER_CLOSE) || tag.strip_prefix(OPEN).is_some_and(named)
}

fn is_name(name: &[u8]) -> bool {
    name.iter().all(|b| b.is_ascii_lowercase() || *b == b'_')
}
