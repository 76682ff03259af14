//! A connection of our own that somebody looks at.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::PollFlags;

use crate::net::relay::{End, Observer};
use crate::proto::dump::Way;

/// A connection whose bytes an observer sees: what is written goes forth, what is read comes back.
pub struct Tapped<S, O> {
    stream: S,
    observer: Arc<Mutex<O>>,
    /// Nothing more may be written; what still is comes to nothing.
    is_half_closed: bool,
}

impl<S: End, O: Observer> Tapped<S, O> {
    /// Looks at `stream`.
    pub fn new(stream: S, observer: Arc<Mutex<O>>) -> Self {
        Self { stream, observer, is_half_closed: false }
    }

    fn saw(&self, way: Way, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.observer.lock().unwrap_or_else(PoisonError::into_inner).saw(way, bytes);
        }
    }
}

impl<S: End, O: Observer> Read for Tapped<S, O> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let n = self.stream.read(bytes)?;
        self.saw(Way::Back, &bytes[..n]);
        Ok(n)
    }
}

impl<S: End, O: Observer> Write for Tapped<S, O> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_half_closed {
            // A pong or the answer to a close frame: it cannot be said any more, which is no reason to stop reading.
            return Ok(bytes.len());
        }
        let n = self.stream.write(bytes)?;
        self.saw(Way::Forth, &bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_half_closed { Ok(()) } else { self.stream.flush() }
    }
}

impl<S: End, O: Observer> AsFd for Tapped<S, O> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl<S: End, O: Observer> End for Tapped<S, O> {
    fn wants(&self) -> PollFlags {
        self.stream.wants()
    }

    fn close_write(&mut self) -> io::Result<()> {
        self.stream.close_write()?;
        self.is_half_closed = true;
        Ok(())
    }
}
