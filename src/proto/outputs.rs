//! What a machine has to say, in order: the part that all machines share.

use std::collections::VecDeque;

use super::{Close, Output};
use crate::clock::Mono;
use crate::limits;
use crate::text;

/// Longest reason of a WebSocket close frame, in bytes.
const REASON_BYTES: usize = 123;

/// The queue behind a machine's `poll`. Once [`close`](Self::close) was said, nothing is added any more.
#[derive(Debug)]
pub(super) struct Outputs<E> {
    queue: VecDeque<Output<E>>,
    armed: Option<Mono>,
    closed: bool,
}

impl<E> Outputs<E> {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::new(), armed: None, closed: false }
    }

    /// Queues a frame, unless it is longer than every protocol here allows. Answers whether it was queued.
    pub(super) fn write(&mut self, text: String) -> bool {
        let fits = text.len() <= limits::FRAME_BYTES;
        if fits {
            self.push(Output::Write(text));
        }
        fits
    }

    /// Queues a line of a protocol that bounds what waits instead of each frame.
    pub(super) fn line(&mut self, line: String) {
        self.push(Output::Write(line));
    }

    pub(super) fn event(&mut self, event: E) {
        self.push(Output::Event(event));
    }

    /// Queues the end. The reason may hold a peer's words: it is made one safe line that a close frame can hold.
    pub(super) fn close(&mut self, code: u16, reason: &str) {
        let mut reason = text::attribute(reason).into_owned();
        let end = (0..=REASON_BYTES).rev().find(|&at| reason.is_char_boundary(at)).unwrap_or(0);
        reason.truncate(end);
        self.push(Output::Close(Close { code, reason }));
        self.closed = true;
    }

    /// Whether everything that was queued has been handed out.
    pub(super) fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the end was queued: whatever comes from outside is of no interest any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Forgets the time that was asked for, because it has come; the next `poll` asks anew.
    pub(super) fn woken(&mut self) {
        self.armed = None;
    }

    /// The next output. After the last one, `WakeAt(next)` when that is earlier than what was asked for before;
    /// a later time is asked for when the earlier one has come, so that a busy peer moves no timer.
    pub(super) fn poll(&mut self, next: Option<Mono>) -> Option<Output<E>> {
        if let Some(output) = self.queue.pop_front() {
            return Some(output);
        }
        let next = next.filter(|&next| !self.closed && self.armed.is_none_or(|armed| next < armed))?;
        self.armed = Some(next);
        Some(Output::WakeAt(next))
    }

    fn push(&mut self, output: Output<E>) {
        if !self.closed {
            self.queue.push_back(output);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    #[test]
    fn nothing_comes_after_the_close() {
        let mut outputs = Outputs::<u8>::new();
        outputs.close(4002, "bad");
        outputs.event(1);
        assert!(outputs.write("{}".into()), "it fits, and is of no interest");
        assert_eq!(outputs.poll(None), Some(Output::Close(Close { code: 4002, reason: "bad".into() })));
        assert_eq!(outputs.poll(Some(at(1))), None);
        assert!(outputs.is_closed());
    }

    #[test]
    fn a_reason_is_one_short_safe_line() {
        let mut outputs = Outputs::<u8>::new();
        outputs.close(4002, &format!("a\nb\u{1b}{}", "ü".repeat(200)));
        let Some(Output::Close(close)) = outputs.poll(None) else { panic!() };
        assert!(close.reason.len() <= REASON_BYTES);
        assert!(close.reason.starts_with("a\u{fffd}b\u{fffd}ü"), "{}", close.reason);
    }

    #[test]
    fn a_wake_up_is_asked_for_once_and_moved_only_forward() {
        let mut outputs = Outputs::<u8>::new();
        assert_eq!(outputs.poll(Some(at(30))), Some(Output::WakeAt(at(30))));
        assert_eq!(outputs.poll(Some(at(30))), None);
        assert_eq!(outputs.poll(Some(at(40))), None);
        assert_eq!(outputs.poll(Some(at(10))), Some(Output::WakeAt(at(10))));
        outputs.woken();
        assert_eq!(outputs.poll(Some(at(40))), Some(Output::WakeAt(at(40))));
    }

    #[test]
    fn a_frame_over_the_limit_is_never_written() {
        let mut outputs = Outputs::<u8>::new();
        assert!(!outputs.write("x".repeat(limits::FRAME_BYTES + 1)));
        assert_eq!(outputs.poll(None), None);
        assert!(outputs.write("x".repeat(limits::FRAME_BYTES)));
        assert!(outputs.poll(None).is_some());
    }
}
