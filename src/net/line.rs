//! Lines over a Unix socket that does not block: what the machines of transit-agent/1 and `transit.sock` are driven
//! with. It is used as [`Socket`](super::ws::Socket) is: read until nothing more has come, write, then wait.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::dial::timespec;
use super::wake::Wake;
use super::ws::Waited;
use crate::limits;
use crate::proto::lines::{Line, Lines};

/// Time after which a peer that does not read is given up.
const STALLED: Duration = Duration::from_secs(10);

/// One connection.
#[derive(Debug)]
pub struct LineSocket {
    stream: UnixStream,
    lines: Lines,
    is_at_end: bool,
    /// The process without which the connection is nothing, and whether it has ended.
    process: Option<OwnedFd>,
    is_orphan: bool,
    unsent: Vec<u8>,
    /// Since when the peer has read nothing of what waits for it.
    stalled: Option<Instant>,
}

impl LineSocket {
    /// Takes a connection over.
    ///
    /// # Errors
    /// When the socket cannot be made not to block.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let lines = Lines::new(limits::LINE_BYTES);
        let (process, unsent) = (None, Vec::new());
        Ok(Self { stream, lines, is_at_end: false, process, is_orphan: false, unsent, stalled: None })
    }

    /// From now on the connection is over when this process (a pidfd) ends, whoever still holds its other end. What
    /// has come until then is read.
    pub fn end_with(&mut self, process: OwnedFd) {
        self.process = Some(process);
    }

    /// The next line, or `None` when none has come yet. A last line without its newline is none.
    ///
    /// # Errors
    /// When the connection is over; `UnexpectedEof` when the peer has closed it.
    pub fn read(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = [0; 8 * 1024];
        loop {
            if let Some(line) = self.lines.next() {
                return Ok(Some(line));
            }
            if self.is_at_end {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_at_end = true,
                Ok(n) => self.lines.push(&bytes[..n]),
                Err(err) if err.kind() == io::ErrorKind::WouldBlock && self.is_orphan => {
                    self.is_at_end = true;
                }
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(err),
            }
        }
    }

    /// What a peer that has ended its writing left without a newline; a line to those who take it for one.
    pub fn rest(&mut self) -> Option<Line> {
        if self.is_at_end { self.lines.end() } else { None }
    }

    /// Takes a line; it goes out with the next wait at the latest.
    pub fn write(&mut self, line: &str) {
        self.unsent.extend_from_slice(line.as_bytes());
        self.unsent.push(b'\n');
    }

    /// Writes out what was taken, as far as the peer reads; answers whether all of it went out.
    ///
    /// # Errors
    /// When the connection is over, or the peer has not read for 10 s.
    pub fn flush(&mut self) -> io::Result<bool> {
        let mut sent = 0;
        while sent < self.unsent.len() {
            match self.stream.write(&self.unsent[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => sent += n,
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => break,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(err),
            }
        }
        self.unsent.drain(..sent);
        if self.unsent.is_empty() {
            self.unsent.shrink_to(limits::LINE_BYTES / 16);
            self.stalled = None;
        } else if sent > 0 {
            self.stalled = None;
        }
        if !self.unsent.is_empty() && self.stalled.get_or_insert_with(Instant::now).elapsed() >= STALLED {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(self.unsent.is_empty())
    }

    /// Flushes, then waits until something may have come, the wake-up is given, or the time is over. That the peer has
    /// gone is told by the next read, after what it has said before.
    ///
    /// # Errors
    /// When the system cannot wait, or the peer has not read for 10 s.
    pub fn wait(&mut self, wake: &Wake, longest: Duration) -> io::Result<Waited> {
        let (wants, longest) = match self.flush() {
            Ok(true) => (PollFlags::IN, longest),
            Ok(false) => (PollFlags::IN | PollFlags::OUT, longest.min(STALLED)),
            Err(err) if matches!(err.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                self.unsent.clear();
                return Ok(Waited::Ready);
            }
            Err(err) => return Err(err),
        };
        let process = self.process.as_ref().filter(|_| !self.is_orphan).map(AsFd::as_fd);
        let mut fds = [
            PollFd::new(&self.stream, wants),
            PollFd::new(wake, PollFlags::IN),
            PollFd::from_borrowed_fd(process.unwrap_or(wake.as_fd()), PollFlags::IN),
        ];
        match poll(&mut fds, Some(&timespec(longest))) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Waited::Ready),
            Err(err) => return Err(err.into()),
        }
        if process.is_some() && !fds[2].revents().is_empty() {
            self.is_orphan = true;
            return Ok(Waited::Ready);
        }
        if !fds[1].revents().is_empty() {
            wake.clear();
            return Ok(Waited::Woken);
        }
        Ok(if fds[0].revents().is_empty() { Waited::Time } else { Waited::Ready })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_pass_both_ways_and_the_end_is_told_after_them() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut socket = LineSocket::new(ours).unwrap();
        assert_eq!(socket.read().unwrap(), None);
        theirs.write_all(b"one\ntw").unwrap();
        assert_eq!(socket.read().unwrap(), Some(Line::Text("one".into())));
        assert_eq!(socket.read().unwrap(), None);
        theirs.write_all(b"o\nlost").unwrap();
        socket.write("back");
        assert!(socket.flush().unwrap());
        let mut back = [0; 5];
        theirs.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"back\n");
        assert_eq!(socket.rest(), None, "it may go on");
        drop(theirs);
        assert_eq!(socket.read().unwrap(), Some(Line::Text("two".into())));
        assert_eq!(socket.read().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!((socket.rest(), socket.rest()), (Some(Line::Text("lost".into())), None));
    }

    #[test]
    fn what_a_peer_has_said_is_heard_although_it_hears_nothing_any_more() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut socket = LineSocket::new(ours).unwrap();
        theirs.write_all(b"last\n").unwrap();
        drop(theirs);
        socket.write("anybody there?");
        assert_eq!(socket.wait(&Wake::new().unwrap(), Duration::ZERO).unwrap(), Waited::Ready);
        assert_eq!(socket.read().unwrap(), Some(Line::Text("last".into())));
        assert_eq!(socket.read().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_connection_ends_with_its_process_after_what_came_before() {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        use std::process::{Command, Stdio};
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut socket = LineSocket::new(ours).unwrap();
        socket.end_with(pidfd_open(pid, PidfdFlags::empty()).unwrap());
        let wake = Wake::new().unwrap();
        assert_eq!(socket.wait(&wake, Duration::ZERO).unwrap(), Waited::Time);
        theirs.write_all(b"last\n").unwrap();
        drop(child.stdin.take());
        while !socket.is_orphan {
            socket.wait(&wake, Duration::from_secs(60)).unwrap();
        }
        assert_eq!(socket.read().unwrap(), Some(Line::Text("last".into())));
        assert_eq!(socket.read().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        child.wait().unwrap();
    }

    #[test]
    fn what_the_peer_does_not_read_waits() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut socket = LineSocket::new(ours).unwrap();
        let long = "x".repeat(4 << 20);
        socket.write(&long);
        assert!(!socket.flush().unwrap());
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; (4 << 20) + 1];
            theirs.read_exact(&mut got).unwrap();
            got.len()
        });
        let wake = Wake::new().unwrap();
        while !socket.flush().unwrap() {
            socket.wait(&wake, Duration::from_secs(1)).unwrap();
        }
        assert_eq!(reader.join().unwrap(), long.len() + 1);
    }
}
