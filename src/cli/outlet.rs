//! Stdout, and how a command that was asked to end gets away from one that nobody reads.

use std::io::{self, IsTerminal, StdoutLock, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::net::service::Shutdown;
use crate::net::wake::Wake;

/// What a pipe takes at once when it says that it takes anything.
const PIECE: usize = 4096;
/// Time for whoever reads to take the last of it.
const LAST: Duration = Duration::from_millis(500);

/// Stdout, locked.
pub(super) struct Outlet {
    stdout: StdoutLock<'static>,
    end: Option<End>,
}

/// The wish to end.
struct End {
    stop: Shutdown,
    wake: Wake,
    /// When nothing is waited for any more.
    at: Option<Instant>,
}

impl Outlet {
    /// One whose reader is waited for.
    pub(super) fn new() -> Self {
        Self { stdout: io::stdout().lock(), end: None }
    }

    /// One whose reader is waited for until `stop`.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub(super) fn until(stop: &Shutdown) -> io::Result<Self> {
        let wake = Wake::new()?;
        let waker = wake.clone();
        stop.on_trigger(move || waker.wake());
        Ok(Self { end: Some(End { stop: stop.clone(), wake, at: None }), ..Self::new() })
    }

    /// Whether it is a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        self.stdout.is_terminal()
    }
}

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(end) = &mut self.end else { return self.stdout.write(bytes) };
        // Past the buffer of the library, which would write more at once than there may be room for.
        loop {
            end.wait_for(&self.stdout)?;
            match rustix::io::write(&self.stdout, &bytes[..bytes.len().min(PIECE)]) {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()
    }
}

impl End {
    /// Returns once `stdout` takes something.
    fn wait_for(&mut self, stdout: &impl AsFd) -> io::Result<()> {
        loop {
            if self.at.is_none() && self.stop.is_triggered() {
                self.at = Some(Instant::now() + LAST);
            }
            let rest = self.at.map(|at| at.saturating_duration_since(Instant::now()));
            let timeout = rest.and_then(|rest| Timespec::try_from(rest).ok());
            let mut fds = [
                PollFd::new(stdout, PollFlags::OUT),
                PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
            ];
            // The wish is seen already: its end would only wake at once.
            let watched = if rest.is_some() { &mut fds[..1] } else { &mut fds[..] };
            match poll(watched, timeout.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
                Ok(_) if !fds[0].revents().is_empty() => return Ok(()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(err) => return Err(err.into()),
            }
        }
    }
}
