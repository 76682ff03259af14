//! A TCP listener whose wait can be ended.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};

use super::wake::Wake;

/// A port that this process listens on.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    at: SocketAddr,
}

impl Listening {
    /// Listens at `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address is taken or is none of this machine's.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let at = listener.local_addr()?;
        Ok(Self { listener, at })
    }

    /// Where it listens.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// The next connection, which does not block, or `None` once `wake` is given.
    ///
    /// # Errors
    /// When the system has no descriptors left, or the listener is broken.
    pub fn accept(&self, wake: &Wake) -> io::Result<Option<TcpStream>> {
        use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        loop {
            let mut fds = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                polled => polled?,
            };
            if !fds[1].revents().is_empty() {
                return Ok(None);
            }
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    // Small frames pass as soon as they come.
                    stream.set_nodelay(true)?;
                    return Ok(Some(stream));
                }
                Err(err) if matches!(err.kind(), WouldBlock | Interrupted | ConnectionAborted) => {}
                Err(err) => return Err(err),
            }
        }
    }
}
