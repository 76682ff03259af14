//! What is made of an agent's output while it comes: events for who watches, and what the reply is made of.

use std::time::Duration;

use super::process::Intake;
use crate::proto::assistant::{Frames, Lines, Tail, clip_json};
use crate::store::home::run_log::RunLog;
use crate::store::process::Process;

/// How often whoever watches hears that a run is in progress.
pub(super) const TYPING: Duration = Duration::from_secs(4);
/// Longest line that may be a frame, in bytes.
const FRAME_BYTES: usize = 2 << 20;
/// What the words around a tail in a reply may take.
const WORDS: usize = 1024;

/// Whoever watches a run.
pub(super) trait Watch: Sync {
    /// It begins; the answer is told as which process it has begun. Whoever asks meanwhile what the process is waits for
    /// that.
    fn beginning(&self) -> Box<dyn FnOnce(Process) + '_> {
        Box::new(|_| {})
    }
    /// It is in progress.
    fn typing(&self);
    /// It has written a line. May block.
    fn line(&self, line: &str);
}

/// The stdout of an agent.
pub(super) struct Stdout<'a> {
    watch: &'a dyn Watch,
    log: RunLog,
    text_bytes: usize,
    lines: Lines,
    /// The lines once more, as long as a frame may be, if the agent speaks in frames.
    frame_lines: Option<Lines>,
    pub(super) frames: Frames,
    pub(super) tail: Tail,
}

impl<'a> Stdout<'a> {
    /// Whoever watches.
    pub(super) fn watch(&self) -> &'a dyn Watch {
        self.watch
    }

    /// `text_bytes` is the longest text of an event, and `reply_bytes` that of a reply, both inside a JSON string.
    pub(super) fn new(
        watch: &'a dyn Watch,
        log: RunLog,
        has_frames: bool,
        text_bytes: usize,
        reply_bytes: usize,
    ) -> Self {
        Self {
            watch,
            log,
            text_bytes,
            lines: Lines::new(text_bytes),
            frame_lines: has_frames.then(|| Lines::new(FRAME_BYTES)),
            frames: Frames::default(),
            tail: Tail::new(reply_bytes.saturating_sub(WORDS)),
        }
    }

    /// The stream is over. What the run has written to its stderr goes to the end of the log.
    pub(super) fn finish(&mut self, stderr: &str) {
        let Self { watch, log, text_bytes, lines, frame_lines, frames, tail } = self;
        if !stderr.is_empty() {
            log.add_last(format!("{stderr}\n").as_bytes());
        }
        lines.finish(|line| take(*watch, *text_bytes, tail, line));
        if let Some(lines) = frame_lines {
            lines.finish(|line| frames.line(line));
        }
    }
}

/// Hands a line on. One that JSON makes too long comes in pieces.
fn take(watch: &dyn Watch, text_bytes: usize, tail: &mut Tail, line: &str) {
    let mut rest = line;
    loop {
        let piece = clip_json(rest, text_bytes);
        watch.line(piece);
        tail.push(piece);
        rest = &rest[piece.len()..];
        if rest.is_empty() {
            break;
        }
    }
}

impl Intake for Stdout<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        let Self { watch, log, text_bytes, lines, frame_lines, frames, tail } = self;
        log.add(bytes);
        if let Some(lines) = frame_lines {
            lines.feed(bytes, |line| frames.line(line));
        }
        lines.feed(bytes, |line| take(*watch, *text_bytes, tail, line));
    }

    fn interval(&self) -> Option<Duration> {
        Some(TYPING)
    }

    fn tick(&mut self) {
        self.watch.typing();
    }
}

/// The stderr of an agent: only its end is of interest.
pub(super) struct Stderr {
    lines: Lines,
    pub(super) tail: Tail,
}

impl Stderr {
    pub(super) fn new(text_bytes: usize, reply_bytes: usize) -> Self {
        Self { lines: Lines::new(text_bytes), tail: Tail::new(reply_bytes.saturating_sub(WORDS)) }
    }

    /// The end of it, once the stream is over.
    pub(super) fn text(mut self) -> String {
        let Self { lines, tail } = &mut self;
        lines.finish(|line| tail.push(line));
        self.tail.text()
    }
}

impl Intake for Stderr {
    fn bytes(&mut self, bytes: &[u8]) {
        let Self { lines, tail } = self;
        lines.feed(bytes, |line| tail.push(line));
    }
}
