//! What the machines' tests share.

use std::time::Duration;

use super::{Close, Output};
use crate::clock::Mono;

/// Everything that a machine wanted done, by kind.
#[derive(Debug, PartialEq)]
pub(super) struct Drained<E> {
    pub(super) writes: Vec<String>,
    pub(super) events: Vec<E>,
    pub(super) wake: Option<Mono>,
    pub(super) close: Option<Close>,
}

impl<E> Drained<E> {
    pub(super) fn close_code(&self) -> Option<u16> {
        self.close.as_ref().map(|close| close.code)
    }
}

/// Polls until there is nothing more, and checks that nothing comes after a close.
pub(super) fn drain<E>(mut poll: impl FnMut() -> Option<Output<E>>) -> Drained<E> {
    let mut drained = Drained { writes: Vec::new(), events: Vec::new(), wake: None, close: None };
    while let Some(output) = poll() {
        assert!(drained.close.is_none(), "nothing comes after a close");
        match output {
            Output::Write(text) => drained.writes.push(text),
            Output::Event(event) => drained.events.push(event),
            Output::WakeAt(at) => drained.wake = Some(at),
            Output::Close(close) => drained.close = Some(close),
        }
    }
    drained
}

/// A point in time, in seconds.
pub(super) fn at(seconds: u64) -> Mono {
    Mono(Duration::from_secs(seconds))
}
