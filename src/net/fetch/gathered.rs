//! A connection that sends what was written once an answer is waited for, or once there is much of it.
//!
//! The request for a tunnel is written word by word, and would go out so, a packet a word. There are proxies that read
//! it once, and take what they have then for all of it.

use ureq::unversioned::transport::{Buffers, NextTimeout, Transport};

/// As much is held back at most.
const MOST: usize = 16 * 1024;

/// The connection, and what was written and not sent.
#[derive(Debug)]
pub(super) struct Gathered {
    inner: Box<dyn Transport>,
    written: Vec<u8>,
}

impl Gathered {
    pub(super) fn new(inner: Box<dyn Transport>) -> Self {
        Self { inner, written: Vec::new() }
    }

    fn send(&mut self, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let written = std::mem::take(&mut self.written);
        let mut left = written.as_slice();
        while !left.is_empty() {
            let room = self.inner.buffers().output();
            let (now, later) = left.split_at(left.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.inner.transmit_output(now.len(), timeout)?;
            left = later;
        }
        Ok(())
    }
}

impl Transport for Gathered {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.written.extend_from_slice(&self.inner.buffers().output()[..amount]);
        if self.written.len() < MOST { Ok(()) } else { self.send(timeout) }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.send(timeout)?;
        self.inner.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}
