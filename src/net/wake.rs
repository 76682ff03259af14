//! A thread that waits for sockets can be woken by another one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use super::dial::timespec;

/// A pipe of which the waiting thread polls one end. Clones wake the same thread; waking twice is waking once.
#[derive(Debug, Clone)]
pub struct Wake {
    ends: Arc<(OwnedFd, OwnedFd)>,
}

impl Wake {
    /// A wake-up that nobody has given yet.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let ends = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { ends: Arc::new(ends) })
    }

    /// Wakes the thread that waits, or lets its next wait end at once.
    pub fn wake(&self) {
        // A full pipe already wakes; nothing else can go wrong with a pipe whose two ends are held here.
        let _ = rustix::io::write(&self.ends.1, &[1]);
    }

    /// The end to write to, for whoever can only write: a signal's handler.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub(super) fn writer(&self) -> io::Result<OwnedFd> {
        self.ends.1.try_clone()
    }

    /// Waits until a wake-up is given, at most for `longest`, and takes it.
    pub fn wait(&self, longest: Duration) {
        // A signal, or whatever else ends the wait early, costs the caller one look too many.
        let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&timespec(longest)));
        self.clear();
    }

    /// Takes the wake-ups given so far.
    pub fn clear(&self) {
        let mut bytes = [0; 64];
        while rustix::io::read(&self.ends.0, &mut bytes).is_ok_and(|n| n == bytes.len()) {}
    }
}

impl AsFd for Wake {
    /// The end to poll for reading.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ends.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_ready(wake: &Wake) -> bool {
        poll(&mut [PollFd::new(wake, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn many_wake_ups_are_one_and_none_is_lost() {
        let wake = Wake::new().unwrap();
        assert!(!is_ready(&wake));
        let other = wake.clone();
        std::thread::spawn(move || (0..100_000).for_each(|_| other.wake())).join().unwrap();
        assert!(is_ready(&wake));
        wake.clear();
        assert!(!is_ready(&wake));
        wake.wake();
        assert!(is_ready(&wake));
    }
}
