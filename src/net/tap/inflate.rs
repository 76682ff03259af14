//! Inflating the messages of permessage-deflate (RFC 7692) in flat memory, to look at them.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

/// The largest window that deflate knows, in bytes. A smaller one that was agreed on fits into it.
const WINDOW: usize = 32 * 1024;
/// Most bytes that one message may become; one that grows further is given up, and so is what was built on it.
const MOST: u64 = 64 * 1024 * 1024;
/// What a sender takes off the end of each message (RFC 7692, 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// The messages of one way.
pub(super) struct Inflate {
    machine: Box<DecompressorOxide>,
    /// What was inflated last, in a ring: what comes next may refer to it, also across messages.
    window: Box<[u8]>,
    at: usize,
    /// Every message stands for itself.
    is_fresh_each: bool,
    /// Bytes of this message so far.
    grown: u64,
    /// Something was not understood, and so nothing is that may refer to it.
    is_lost: bool,
}

/// A message that cannot be inflated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lost;

impl Inflate {
    /// Messages that refer to earlier ones, unless `is_fresh_each` (`…_no_context_takeover`).
    pub(super) fn new(is_fresh_each: bool) -> Self {
        Self {
            machine: Box::default(),
            window: vec![0; WINDOW].into_boxed_slice(),
            at: 0,
            is_fresh_each,
            grown: 0,
            is_lost: false,
        }
    }

    /// A message begins.
    pub(super) fn begin(&mut self) {
        self.grown = 0;
        if self.is_fresh_each {
            self.machine.init();
            self.is_lost = false;
        }
    }

    /// Takes a piece of the message, and hands on what it becomes.
    pub(super) fn push(&mut self, piece: &[u8], out: &mut dyn FnMut(&[u8])) -> Result<(), Lost> {
        let mut rest = piece;
        while !self.is_lost {
            let (status, taken, made) =
                decompress(&mut self.machine, rest, &mut self.window, self.at, TINFL_FLAG_HAS_MORE_INPUT);
            out(&self.window[self.at..self.at + made]);
            rest = &rest[taken..];
            self.at = (self.at + made) % WINDOW;
            self.grown += made as u64;
            match status {
                TINFLStatus::NeedsMoreInput => return Ok(()),
                TINFLStatus::HasMoreOutput if self.grown <= MOST => {}
                // A last block, which a sender may use; another one follows, and may refer to it.
                TINFLStatus::Done if rest.is_empty() => {
                    self.machine.init();
                    return Ok(());
                }
                TINFLStatus::Done => self.machine.init(),
                _ => self.is_lost = true,
            }
        }
        Err(Lost)
    }

    /// The message ends.
    pub(super) fn finish(&mut self, out: &mut dyn FnMut(&[u8])) -> Result<(), Lost> {
        self.push(&TAIL, out)
    }
}
