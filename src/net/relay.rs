//! Passing bytes between two connections, unchanged, both ways at once: half-closes and resets too.
//!
//! One thread serves one pair, so that an observer sees a question before its answer. Bytes are passed on before
//! they are looked at, and at most one read of each way is held.

use std::io::{self, Read, Write};
use std::net::{Shutdown as Half, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::dial::{Interrupt, Stream};
use crate::proto::dump::Way;

/// Bytes read at once.
const READ: usize = 64 * 1024;

/// One end of a relay: a connection that does not block.
pub trait End: Read + Write + AsFd {
    /// What the socket must be ready for before a read can go on.
    fn wants(&self) -> PollFlags {
        PollFlags::IN
    }

    /// Tells the peer that nothing more comes. It is called again when it would block.
    ///
    /// # Errors
    /// When it would block, or the connection is over.
    fn close_write(&mut self) -> io::Result<()>;

    /// Makes dropping the connection a reset, where there is such a thing.
    fn reset(&mut self) {}
}

impl End for TcpStream {
    fn close_write(&mut self) -> io::Result<()> {
        self.shutdown(Half::Write)
    }

    fn reset(&mut self) {
        // Where it cannot be had, the peer sees an ordinary end.
        let _ = sockopt::set_socket_linger(&*self, Some(Duration::ZERO));
    }
}

impl End for UnixStream {
    fn close_write(&mut self) -> io::Result<()> {
        self.shutdown(Half::Write)
    }
}

impl End for Stream {
    fn wants(&self) -> PollFlags {
        Self::wants(self)
    }

    fn close_write(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.close_write(),
            Self::Tls(tls) => {
                tls.conn.send_close_notify();
                tls.flush()?;
                tls.sock.close_write()
            }
        }
    }

    fn reset(&mut self) {
        match self {
            Self::Plain(tcp) => tcp.reset(),
            Self::Tls(tls) => tls.sock.reset(),
        }
    }
}

/// Who is told what passes. It must not wait for anybody.
pub trait Observer: Send {
    /// These bytes were read, and passed on as far as the other end takes them.
    fn saw(&mut self, way: Way, bytes: &[u8]);

    /// Nothing more comes this way: it was closed, or broke.
    fn ended(&mut self, way: Way, broken: Option<&io::Error>);
}

/// One way through the relay.
struct Lane {
    way: Way,
    /// Bytes that the other end has not taken yet.
    pending: Vec<u8>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Bytes pass.
    Open,
    /// The source has closed; the other end is told once it has all.
    Ending,
    /// It is over.
    Over,
    /// The source broke, and with it the connection.
    Broken,
    /// The other end takes nothing any more; what it still says is passed on by the other lane.
    Refused,
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Moved,
    Waits,
}

/// Passes bytes between `client`, which connected, and `server` until both have closed, one breaks, or the process
/// stops.
///
/// # Errors
/// When the system cannot wait for sockets.
pub fn relay(
    client: &mut dyn End,
    server: &mut dyn End,
    observer: &mut dyn Observer,
    interrupt: Interrupt<'_>,
) -> io::Result<()> {
    let mut buffer = vec![0; READ];
    let lane = |way| Lane { way, pending: Vec::new(), state: State::Open };
    let (mut forth, mut back) = (lane(Way::Forth), lane(Way::Back));
    loop {
        let forth_moved = forth.step(client, server, &mut buffer, observer);
        let back_moved = back.step(server, client, &mut buffer, observer);
        match (forth.state, back.state) {
            (State::Over, State::Over) => return Ok(()),
            (State::Broken, _)
            | (_, State::Broken)
            | (State::Refused, State::Over | State::Refused)
            | (State::Over, State::Refused) => {
                client.reset();
                server.reset();
                return Ok(());
            }
            _ => {}
        }
        if interrupt.stop.is_triggered() {
            observer.ended(Way::Forth, Some(&io::Error::other("the proxy was stopped")));
            return Ok(());
        }
        if (forth_moved, back_moved) == (Step::Waits, Step::Waits) {
            let to_client = forth.wanted(&*client) | back.unsent();
            let to_server = back.wanted(&*server) | forth.unsent();
            wait(&[(&*client, to_client), (&*server, to_server)], interrupt)?;
        }
    }
}

/// Waits until one of them is ready as it is wanted, or the wake-up is given.
fn wait(ends: &[(&dyn End, PollFlags)], interrupt: Interrupt<'_>) -> io::Result<()> {
    // An end of which nothing is wanted is left out: poll would report its hang-up for ever.
    let wanted = ends.iter().filter(|(_, flags)| !flags.is_empty());
    let mut fds: Vec<_> = wanted.map(|(end, flags)| PollFd::from_borrowed_fd(end.as_fd(), *flags)).collect();
    fds.push(PollFd::new(interrupt.wake, PollFlags::IN));
    match poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(err) => Err(err.into()),
    }
}

impl Lane {
    fn wanted(&self, source: &dyn End) -> PollFlags {
        let reads = self.pending.is_empty() && self.state == State::Open;
        if reads { source.wants() } else { source.wants() & PollFlags::OUT }
    }

    fn unsent(&self) -> PollFlags {
        if self.pending.is_empty() { PollFlags::empty() } else { PollFlags::OUT }
    }

    /// Passes on what can be passed on.
    fn step(
        &mut self,
        from: &mut dyn End,
        to: &mut dyn End,
        buffer: &mut [u8],
        observer: &mut dyn Observer,
    ) -> Step {
        if matches!(self.state, State::Over | State::Broken | State::Refused) {
            return Step::Waits;
        }
        if let Err(err) = self.send(to) {
            return self.refused(&err, observer);
        }
        if !self.pending.is_empty() {
            return Step::Waits;
        }
        if self.state == State::Ending {
            return self.finish(to, observer);
        }
        match from.read(buffer) {
            Ok(0) => self.state = State::Ending,
            Ok(n) => {
                let read = &buffer[..n];
                let sent = write(to, read);
                observer.saw(self.way, read);
                match sent {
                    Ok(sent) => self.pending.extend_from_slice(&read[sent..]),
                    Err(err) => return self.refused(&err, observer),
                }
            }
            Err(err) if is_passing(&err) => return Step::Waits,
            // TLS that ends without saying so: to the bytes it is an end all the same.
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => self.state = State::Ending,
            Err(err) => {
                observer.ended(self.way, Some(&err));
                self.state = State::Broken;
            }
        }
        Step::Moved
    }

    /// Sends what waits, and what TLS holds back.
    fn send(&mut self, to: &mut dyn End) -> io::Result<()> {
        if to.wants().contains(PollFlags::OUT) {
            match to.flush() {
                Err(err) if !is_passing(&err) => return Err(err),
                _ => {}
            }
        }
        if !self.pending.is_empty() {
            let sent = write(to, &self.pending)?;
            self.pending.drain(..sent);
            if self.pending.is_empty() {
                self.pending = Vec::new();
            }
        }
        Ok(())
    }

    /// The source has closed: so do we.
    fn finish(&mut self, to: &mut dyn End, observer: &mut dyn Observer) -> Step {
        match to.close_write() {
            Err(err) if is_passing(&err) => return Step::Waits,
            // A peer that is gone needs not be told.
            _ => {}
        }
        observer.ended(self.way, None);
        self.state = State::Over;
        Step::Moved
    }

    /// The other end takes nothing any more.
    fn refused(&mut self, err: &io::Error, observer: &mut dyn Observer) -> Step {
        observer.ended(self.way, Some(err));
        self.pending = Vec::new();
        self.state = State::Refused;
        Step::Moved
    }
}

/// Writes what the end takes at the moment; answers how much.
fn write(to: &mut dyn End, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match to.write(&bytes[sent..]) {
            Ok(0) => break,
            Ok(n) => sent += n,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => break,
            Err(err) => return Err(err),
        }
    }
    Ok(sent)
}

fn is_passing(err: &io::Error) -> bool {
    matches!(err.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::net::service::Shutdown;
    use crate::net::wake::Wake;

    /// What passed, and how each way ended.
    #[derive(Default)]
    struct Seen {
        bytes: [Vec<u8>; 2],
        ends: Vec<(Way, bool)>,
    }

    impl Observer for Seen {
        fn saw(&mut self, way: Way, bytes: &[u8]) {
            self.bytes[usize::from(way == Way::Back)].extend_from_slice(bytes);
        }

        fn ended(&mut self, way: Way, broken: Option<&io::Error>) {
            self.ends.push((way, broken.is_some()));
        }
    }

    /// A connection over TCP.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    /// Runs a relay; gives the outer ends to `talk`.
    fn relayed(talk: impl FnOnce(TcpStream, TcpStream, &dyn Fn())) -> Seen {
        let (client, mut client_side) = pair();
        let (server, mut server_side) = pair();
        let (wake, stop) = (Wake::new().unwrap(), Shutdown::new());
        for side in [&client_side, &server_side] {
            side.set_nonblocking(true).unwrap();
        }
        thread::scope(|scope| {
            let relay = scope.spawn(|| {
                let mut seen = Seen::default();
                let interrupt = Interrupt { wake: &wake, stop: &stop };
                relay(&mut client_side, &mut server_side, &mut seen, interrupt).unwrap();
                drop((client_side, server_side));
                seen
            });
            talk(client, server, &|| {
                stop.trigger();
                wake.wake();
            });
            relay.join().unwrap()
        })
    }

    fn read_all(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).map(|_| all)
    }

    #[test]
    fn a_half_close_passes_and_the_other_way_goes_on() {
        let seen = relayed(|mut client, mut server, _| {
            client.write_all(b"question").unwrap();
            client.shutdown(Half::Write).unwrap();
            assert_eq!(read_all(&server).unwrap(), b"question");
            server.write_all(b"answer").unwrap();
            drop(server);
            assert_eq!(read_all(&client).unwrap(), b"answer");
        });
        assert_eq!(seen.bytes, [b"question".to_vec(), b"answer".to_vec()]);
        assert_eq!(seen.ends, [(Way::Forth, false), (Way::Back, false)]);
    }

    #[test]
    fn a_reset_passes_after_what_came_before_it() {
        let seen = relayed(|client, mut server, _| {
            server.write_all(b"last words").unwrap();
            let mut heard = [0; 10];
            (&client).read_exact(&mut heard).unwrap();
            server.reset();
            drop(server);
            assert_eq!(read_all(&client).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        });
        assert_eq!(seen.ends, [(Way::Back, true)]);
    }

    #[test]
    fn what_nobody_reads_is_held_back_and_comes_whole() {
        let sent: Vec<u8> = (0..32u32 << 20).map(|n| (n % 251) as u8).collect();
        let expected = sent.clone();
        let seen = relayed(move |client, server, _| {
            thread::scope(|scope| {
                let mut writer = &client;
                let mut echoer = &server;
                let sent = &sent;
                scope.spawn(move || {
                    writer.write_all(sent).unwrap();
                    writer.shutdown(Half::Write).unwrap();
                });
                // Everything comes before anything is echoed: both ways are full for a while.
                let all = read_all(&server).unwrap();
                scope.spawn(move || {
                    echoer.write_all(&all).unwrap();
                    echoer.shutdown(Half::Write).unwrap();
                });
                assert!(read_all(&client).unwrap() == *sent);
            });
        });
        assert!(seen.bytes.iter().all(|bytes| *bytes == expected));
    }

    #[test]
    fn a_server_that_is_gone_resets_a_client_that_still_writes() {
        let seen = relayed(|mut client, server, _| {
            drop(server);
            assert_eq!(read_all(&client).unwrap(), b"");
            while client.write_all(b"anybody there?").is_ok() {}
        });
        assert_eq!(seen.ends[0], (Way::Back, false));
        assert!(seen.ends[1..].contains(&(Way::Forth, true)), "{:?}", seen.ends);
    }

    #[test]
    fn a_wish_to_stop_ends_it() {
        let seen = relayed(|client, server, stop| {
            stop();
            assert!(read_all(&client).is_ok() && read_all(&server).is_ok());
        });
        assert_eq!(seen.ends, [(Way::Forth, true)]);
    }
}
