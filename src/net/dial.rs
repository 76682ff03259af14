//! Connecting to a server over TCP, through a proxy where there is one, and over TLS where the URL says so. Every
//! step has its deadline, and a wish to stop ends it at once.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use url::Url;

use super::proxy::Proxy;
use super::service::Shutdown;
use super::tls;
use super::wake::Wake;
use crate::limits;

/// Longest head of a proxy's answer, in bytes.
const PROXY_HEAD: usize = 8 * 1024;

/// Why no connection stands.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// The URL names no host.
    #[error("{url} names no host to connect to")]
    NoHost {
        /// The URL.
        url: Url,
    },
    /// The name of the host has no address.
    #[error("could not find the address of {host}: {source}")]
    Resolve {
        /// The host.
        host: String,
        /// Why not.
        source: io::Error,
    },
    /// Nobody answers there, or the connection broke.
    #[error("could not connect to {to}: {source}")]
    Connect {
        /// The host and port, of the proxy if there is one.
        to: String,
        /// Why not.
        source: io::Error,
    },
    /// The proxy does not let us through.
    #[error("the proxy {proxy} does not connect to {to}: {why}")]
    Proxy {
        /// The proxy, without its password.
        proxy: String,
        /// The server behind it.
        to: String,
        /// What it answered.
        why: String,
    },
    /// TLS could not be set up.
    #[error("could not set up TLS with {host}: {why}")]
    Tls {
        /// The host.
        host: String,
        /// Why not.
        why: String,
    },
    /// The server does not take the token.
    #[error("the server does not accept the device token ({status})")]
    Unauthorized {
        /// The HTTP status, 401 or 403.
        status: u16,
    },
    /// The server answers, but not with a WebSocket.
    #[error("the server answered {status} instead of opening a WebSocket")]
    Status {
        /// The HTTP status.
        status: u16,
    },
    /// The server's answer is not HTTP or breaks the WebSocket protocol.
    #[error("the server's answer makes no sense: {why}")]
    Garbage {
        /// What is wrong with it.
        why: String,
    },
    /// The server takes too long.
    #[error("the server did not answer in time ({doing})")]
    Timeout {
        /// What was waited for.
        doing: &'static str,
    },
    /// The process is stopping.
    #[error("stopped")]
    Stopped,
}

/// What ends a wait before its time.
#[derive(Clone, Copy)]
pub struct Interrupt<'a> {
    /// Wakes the waiting thread; alone it ends nothing.
    pub wake: &'a Wake,
    /// Whether the wake-up means to stop.
    pub stop: &'a Shutdown,
}

/// Why a wait ended without what was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Time,
    Stop,
}

impl Ended {
    fn error(self, doing: &'static str) -> DialError {
        match self {
            Self::Time => DialError::Timeout { doing },
            Self::Stop => DialError::Stopped,
        }
    }
}

impl Interrupt<'_> {
    /// Waits until `fd` is ready.
    pub(super) fn wait(
        self,
        fd: BorrowedFd<'_>,
        flags: PollFlags,
        until: Instant,
        doing: &'static str,
    ) -> Result<(), DialError> {
        loop {
            if self.stop.is_triggered() {
                return Err(Ended::Stop.error(doing));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Ended::Time.error(doing));
            }
            let mut fds = [PollFd::from_borrowed_fd(fd, flags), PollFd::new(self.wake, PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(err) => return Err(DialError::Connect { to: doing.to_owned(), source: err.into() }),
            }
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
            if !fds[1].revents().is_empty() {
                self.wake.clear();
            }
        }
    }
}

/// A wait for poll, rounded up, so that it never ends before its time; an hour at most.
pub fn timespec(wait: Duration) -> Timespec {
    let wait = wait.saturating_add(Duration::from_micros(999)).min(Duration::from_secs(3600));
    Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(3600),
        tv_nsec: i64::from(wait.subsec_nanos()),
    }
}

/// A connection that does not block.
#[derive(Debug)]
pub enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// Under TLS.
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>),
}

impl Stream {
    /// What the socket must be ready for before anything moves again.
    pub(super) fn wants(&self) -> PollFlags {
        match self {
            Self::Tls(tls) if tls.conn.wants_write() => PollFlags::IN | PollFlags::OUT,
            _ => PollFlags::IN,
        }
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &tls.sock,
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp().as_fd()
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(bytes),
            Self::Tls(tls) => tls.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

/// Connects to the server of `url`; a scheme that ends in `s` means TLS. TLS itself is negotiated with the first
/// bytes.
///
/// # Errors
/// When the server cannot be reached within [`limits::CONNECT_WAIT`], or the proxy refuses.
pub fn dial(url: &Url, proxy: Option<&Proxy>, interrupt: Interrupt<'_>) -> Result<Stream, DialError> {
    let until = Instant::now() + limits::CONNECT_WAIT;
    let is_tls = matches!(url.scheme(), "https" | "wss");
    let host = url.host_str().ok_or_else(|| DialError::NoHost { url: url.clone() })?;
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or(if is_tls { 443 } else { 80 });
    let tcp = match proxy {
        None => connect(name, port, until, interrupt)?,
        Some(proxy) => {
            let mut tcp = connect(&proxy.host, proxy.port, until, interrupt)?;
            pass_through(&mut tcp, proxy, &format!("{host}:{port}"), until, interrupt)?;
            tcp
        }
    };
    if !is_tls {
        return Ok(Stream::Plain(tcp));
    }
    let failed = |why: String| DialError::Tls { host: name.to_owned(), why };
    let server =
        rustls::pki_types::ServerName::try_from(name.to_owned()).map_err(|err| failed(err.to_string()))?;
    let config = tls::client_config().map_err(|err| failed(err.to_string()))?;
    let conn = rustls::ClientConnection::new(config, server).map_err(|err| failed(err.to_string()))?;
    Ok(Stream::Tls(Box::new(rustls::StreamOwned::new(conn, tcp))))
}

/// The same, and negotiates TLS at once, so that what is wrong with it is told before anything passes.
///
/// # Errors
/// When the server cannot be reached, the proxy refuses, or TLS cannot be set up; each has [`limits::CONNECT_WAIT`].
pub fn dial_secured(url: &Url, proxy: Option<&Proxy>, interrupt: Interrupt<'_>) -> Result<Stream, DialError> {
    let mut stream = dial(url, proxy, interrupt)?;
    let until = Instant::now() + limits::CONNECT_WAIT;
    if let Stream::Tls(tls) = &mut stream {
        while tls.conn.is_handshaking() {
            match tls.conn.complete_io(&mut tls.sock) {
                Ok(_) => {}
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => {
                    let wants = if tls.conn.wants_write() { PollFlags::OUT } else { PollFlags::IN };
                    interrupt.wait(tls.sock.as_fd(), wants, until, "setting up TLS")?;
                }
                Err(err) => {
                    let host = url.host_str().unwrap_or_default().to_owned();
                    return Err(DialError::Tls { host, why: err.to_string() });
                }
            }
        }
    }
    Ok(stream)
}

/// The first address that takes a connection.
fn connect(host: &str, port: u16, until: Instant, interrupt: Interrupt<'_>) -> Result<TcpStream, DialError> {
    let to = format!("{host}:{port}");
    let name = host.to_owned();
    let lookup = move || (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
    let addresses = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => resolve(host, lookup, until, interrupt)?,
    };
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match connect_to(address, until, interrupt)? {
            Ok(tcp) => return Ok(tcp),
            Err(err) => last = err,
        }
    }
    Err(DialError::Connect { to, source: last })
}

/// Looks a name up. The system's resolver knows no deadline and no wish to stop, so that a thread of its own waits for
/// it; one that is given up ends when the resolver does.
fn resolve(
    host: &str,
    lookup: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    until: Instant,
    interrupt: Interrupt<'_>,
) -> Result<Vec<SocketAddr>, DialError> {
    let failed = |source| DialError::Resolve { host: host.to_owned(), source };
    let (tell, told) = channel();
    let done = Wake::new().map_err(failed)?;
    let its_done = done.clone();
    let spawned = std::thread::Builder::new().name("resolve".into()).spawn(move || {
        // Whoever asked may have given up.
        let _ = tell.send(lookup());
        its_done.wake();
    });
    spawned.map_err(failed)?;
    interrupt.wait(done.as_fd(), PollFlags::IN, until, "looking up the server's address")?;
    told.recv().unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into())).map_err(failed)
}

fn connect_to(
    address: SocketAddr,
    until: Instant,
    interrupt: Interrupt<'_>,
) -> Result<io::Result<TcpStream>, DialError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = match rustix::net::socket_with(family, SocketType::STREAM, flags, None) {
        Ok(socket) => socket,
        Err(err) => return Ok(Err(err.into())),
    };
    match rustix::net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            interrupt.wait(socket.as_fd(), PollFlags::OUT, until, "connecting")?;
            match sockopt::socket_error(&socket) {
                Ok(Ok(())) => {}
                Ok(Err(err)) | Err(err) => return Ok(Err(err.into())),
            }
        }
        Err(err) => return Ok(Err(err.into())),
    }
    let tcp = TcpStream::from(socket);
    Ok(tcp.set_nodelay(true).map(|()| tcp))
}

/// Asks the proxy for a way to `to` (HTTP CONNECT).
fn pass_through(
    tcp: &mut TcpStream,
    proxy: &Proxy,
    to: &str,
    until: Instant,
    interrupt: Interrupt<'_>,
) -> Result<(), DialError> {
    let failed = |why: String| DialError::Proxy { proxy: proxy.to_string(), to: to.to_owned(), why };
    let mut request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
    if let Some(authorization) = &proxy.authorization {
        request.push_str(&format!("Proxy-Authorization: {}\r\n", authorization.expose()));
    }
    request.push_str("\r\n");
    tcp.write_all(request.as_bytes()).map_err(|err| failed(err.to_string()))?;
    let mut head = Vec::new();
    // One byte at a time: whatever follows the head belongs to the server behind the proxy.
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match tcp.read(&mut byte) {
            Ok(0) => return Err(failed("it closed the connection".to_owned())),
            Ok(_) if head.len() < PROXY_HEAD => head.push(byte[0]),
            Ok(_) => return Err(failed("its answer is too long".to_owned())),
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => {
                interrupt.wait(tcp.as_fd(), PollFlags::IN, until, "waiting for the proxy")?;
            }
            Err(err) => return Err(failed(err.to_string())),
        }
    }
    let first = String::from_utf8_lossy(&head);
    let first = first.lines().next().unwrap_or_default();
    let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    match status {
        Some(status) if status.len() == 3 && status.starts_with('2') => Ok(()),
        _ => Err(failed(first.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolver_that_says_nothing_holds_up_neither_a_deadline_nor_a_stop() {
        let (wake, stop) = (Wake::new().unwrap(), Shutdown::new());
        let interrupt = Interrupt { wake: &wake, stop: &stop };
        let (answer, answers) = channel::<()>();
        let silent = move || {
            let _ = answers.recv();
            Ok(Vec::new())
        };
        let soon = Instant::now() + Duration::from_millis(10);
        let gave_up = resolve("hub.example", silent, soon, interrupt);
        assert!(matches!(gave_up, Err(DialError::Timeout { .. })), "{gave_up:?}");
        drop(answer);
        let waker = wake.clone();
        stop.on_trigger(move || waker.wake());
        let (stopper, (_answer, answers)) = (stop.clone(), channel::<()>());
        let silent = move || {
            stopper.trigger();
            let _ = answers.recv();
            Ok(Vec::new())
        };
        let late = Instant::now() + Duration::from_secs(3600);
        assert!(matches!(resolve("hub.example", silent, late, interrupt), Err(DialError::Stopped)));
    }

    #[test]
    fn a_name_has_its_addresses_or_is_told_by_name() {
        let (wake, stop) = (Wake::new().unwrap(), Shutdown::new());
        let interrupt = Interrupt { wake: &wake, stop: &stop };
        let late = Instant::now() + Duration::from_secs(3600);
        let at: SocketAddr = "127.0.0.1:1".parse().unwrap();
        assert_eq!(resolve("hub.example", move || Ok(vec![at]), late, interrupt).unwrap(), [at]);
        let err =
            resolve("hub.example", || Err(io::ErrorKind::NotFound.into()), late, interrupt).unwrap_err();
        assert!(err.to_string().contains("hub.example"), "{err}");
    }
}
