//! A WebSocket client that does not block: what a machine of `proto/` is driven with.
//!
//! The owner reads with [`Socket::read`] until nothing more has come, writes what its machine wants said, and only
//! then calls [`Socket::wait`], which first flushes what was written: so many frames share one system call, and
//! none waits for another one to come.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tungstenite::client::IntoClientRequest;
use tungstenite::error::ProtocolError;
use tungstenite::handshake::HandshakeError;
use tungstenite::http::HeaderValue;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};
use url::Url;

use super::dial::{DialError, Interrupt, Stream, dial, timespec};
use super::proxy::Proxy;
use super::relay::End;
use super::wake::Wake;
use crate::limits;
use crate::proto::Input;
use crate::proto::wire::close;
use crate::secret::Secret;

/// Bytes read at once.
const READ_BUFFER: usize = 8 * 1024;
/// Bytes that may wait for a peer that does not read, before the connection is given up.
const WRITE_BUFFER: usize = 8 * limits::FRAME_BYTES;
/// Time for the peer to answer our close.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// What came from the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary,
    /// A message over [`limits::FRAME_BYTES`].
    TooLong,
    /// A ping or pong of the WebSocket protocol.
    Sound,
}

impl Heard {
    /// The same for a machine.
    pub fn as_input(&self) -> Input<'_> {
        match self {
            Self::Text(text) => Input::Text(text),
            Self::Binary => Input::Binary,
            Self::TooLong => Input::TooLong,
            Self::Sound => Input::Sound,
        }
    }
}

/// The connection is over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Gone {
    /// The peer closed it.
    #[error("the server closed the connection ({code}{}{reason})", if reason.is_empty() { "" } else { " " })]
    Closed {
        /// The close code; 1005 when there was none.
        code: u16,
        /// The reason, which may be empty.
        reason: String,
    },
    /// The peer broke the WebSocket protocol: to be closed, with this code.
    #[error("the server {reason}")]
    Fault {
        /// The close code.
        code: u16,
        /// What the peer did.
        reason: &'static str,
    },
    /// It broke.
    #[error("the connection broke: {0}")]
    Broken(String),
}

/// How a connection is to be closed whose peer broke the WebSocket protocol itself (RFC 6455, 7.4.1): the code, and
/// what the peer did. `None` when the connection has broken, or has ended.
pub fn fault(err: &Error) -> Option<(u16, &'static str)> {
    use ProtocolError::{ReceivedAfterClosing, ResetWithoutClosingHandshake, SendAfterClosing};
    match err {
        Error::Protocol(ReceivedAfterClosing | ResetWithoutClosingHandshake | SendAfterClosing) => None,
        Error::Protocol(_) => Some((close::NO_FRAME, "sent what is no WebSocket frame")),
        Error::Utf8(_) => Some((close::NOT_UTF8, "sent a text that is not UTF-8")),
        _ => None,
    }
}

/// What a wait ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// Something may have come.
    Ready,
    /// The wake-up was given; it is taken.
    Woken,
    /// The time is over.
    Time,
}

/// One WebSocket.
pub struct Socket<S = Stream> {
    ws: WebSocket<S>,
    has_unsent: bool,
    /// What came was too long or no frame: it was not read, so that what follows can be understood by nobody.
    is_deaf: bool,
}

/// Opens the WebSocket of `url` (`ws` or `wss`) with a bearer token.
///
/// # Errors
/// When the server cannot be reached, does not take the token, or is no WebSocket server; each step has
/// [`limits::CONNECT_WAIT`].
pub fn open(
    url: &Url,
    token: &Secret,
    proxy: Option<&Proxy>,
    interrupt: Interrupt<'_>,
) -> Result<Socket, DialError> {
    open_over(dial(url, proxy, interrupt)?, url, Some(token), interrupt)
}

/// The same over a connection that stands, with a token or without.
///
/// # Errors
/// When the server does not take the token, or is no WebSocket server.
pub fn open_over<S: End>(
    stream: S,
    url: &Url,
    token: Option<&Secret>,
    interrupt: Interrupt<'_>,
) -> Result<Socket<S>, DialError> {
    let garbage = |err: Error| DialError::Garbage { why: err.to_string() };
    let mut request = url.as_str().into_client_request().map_err(garbage)?;
    if let Some(token) = token {
        let mut bearer = HeaderValue::try_from(format!("Bearer {}", token.expose()))
            .map_err(|_| DialError::Unauthorized { status: 401 })?;
        bearer.set_sensitive(true);
        request.headers_mut().insert("authorization", bearer);
    }
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(READ_BUFFER)
        .max_write_buffer_size(WRITE_BUFFER)
        .max_message_size(Some(limits::FRAME_BYTES))
        .max_frame_size(Some(limits::FRAME_BYTES));
    let until = Instant::now() + limits::CONNECT_WAIT;
    let mut tried = tungstenite::client::client_with_config(request, stream, Some(config));
    loop {
        match tried {
            Ok((ws, _)) => return Ok(Socket { ws, has_unsent: false, is_deaf: false }),
            Err(HandshakeError::Interrupted(mid)) => {
                let stream = mid.get_ref().get_ref();
                interrupt.wait(stream.as_fd(), stream.wants(), until, "waiting for the upgrade")?;
                tried = mid.handshake();
            }
            Err(HandshakeError::Failure(Error::Http(answer))) => {
                let status = answer.status().as_u16();
                return Err(match status {
                    401 | 403 => DialError::Unauthorized { status },
                    _ => DialError::Status { status },
                });
            }
            Err(HandshakeError::Failure(Error::Io(source))) => {
                let to = url.host_str().unwrap_or_default().to_owned();
                return Err(DialError::Connect { to, source });
            }
            Err(HandshakeError::Failure(err)) => return Err(garbage(err)),
        }
    }
}

impl<S: End> Socket<S> {
    /// The next message, or `None` when nothing more has come yet. After one that is too long, and after a fault,
    /// there is none: what still comes is dropped, until the owner closes.
    ///
    /// # Errors
    /// When the connection is over.
    pub fn read(&mut self) -> Result<Option<Heard>, Gone> {
        if self.is_deaf {
            return self.drop_all();
        }
        loop {
            return match self.ws.read() {
                Ok(Message::Text(text)) => Ok(Some(Heard::Text(text.as_str().to_owned()))),
                Ok(Message::Binary(_)) => Ok(Some(Heard::Binary)),
                Ok(Message::Ping(_)) => {
                    self.has_unsent = true;
                    Ok(Some(Heard::Sound))
                }
                Ok(Message::Pong(_)) => Ok(Some(Heard::Sound)),
                Ok(Message::Close(frame)) => {
                    let _ = self.ws.flush();
                    Err(closed(frame))
                }
                Ok(Message::Frame(_)) => continue,
                Err(Error::Io(err)) if err.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(Error::Io(err)) if err.kind() == io::ErrorKind::Interrupted => continue,
                Err(Error::Capacity(_)) => {
                    self.is_deaf = true;
                    Ok(Some(Heard::TooLong))
                }
                Err(Error::ConnectionClosed | Error::AlreadyClosed) => Err(closed(None)),
                Err(err) => Err(match fault(&err) {
                    Some((code, reason)) => {
                        self.is_deaf = true;
                        Gone::Fault { code, reason }
                    }
                    None => Gone::Broken(err.to_string()),
                }),
            };
        }
    }

    /// Drops what has come: bytes that wait unread would make closing a reset, which can destroy our close frame.
    fn drop_all(&mut self) -> Result<Option<Heard>, Gone> {
        let mut scratch = [0; READ_BUFFER];
        loop {
            match self.ws.get_mut().read(&mut scratch) {
                Ok(0) => return Err(closed(None)),
                Ok(_) => {}
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(Gone::Broken(err.to_string())),
            }
        }
    }

    /// Takes a text message; it goes out with the next wait at the latest.
    ///
    /// # Errors
    /// When the connection is over, or the peer has long stopped reading.
    pub fn write(&mut self, text: String) -> Result<(), Gone> {
        self.has_unsent = true;
        match self.ws.write(Message::text(text)) {
            Ok(()) => Ok(()),
            Err(err) => passing(err).map(drop),
        }
    }

    /// Writes out what was taken, as far as the peer reads; answers whether all of it went out.
    ///
    /// # Errors
    /// When the connection is over.
    pub fn flush(&mut self) -> Result<bool, Gone> {
        if self.has_unsent {
            self.has_unsent = match self.ws.flush() {
                Ok(()) => false,
                Err(err) => passing(err)?,
            };
        }
        Ok(!self.has_unsent)
    }

    /// Tells the peer that nothing more comes, as far as the connection can say so without a close frame. What was
    /// taken must have been flushed.
    ///
    /// # Errors
    /// When it would block, or the connection is over.
    pub fn half_close(&mut self) -> io::Result<()> {
        self.ws.get_mut().close_write()
    }

    /// Flushes, then waits until something may have come, the wake-up is given, or the time is over.
    ///
    /// # Errors
    /// When the connection is over.
    pub fn wait(&mut self, wake: &Wake, longest: Duration) -> Result<Waited, Gone> {
        let sent = self.flush()?;
        let stream = self.ws.get_ref();
        let wants = if sent { stream.wants() } else { PollFlags::IN | PollFlags::OUT };
        let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), wants), PollFd::new(wake, PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(longest))) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Waited::Ready),
            Err(err) => return Err(Gone::Broken(io::Error::from(err).to_string())),
        }
        if !fds[1].revents().is_empty() {
            wake.clear();
            return Ok(Waited::Woken);
        }
        Ok(if fds[0].revents().is_empty() { Waited::Time } else { Waited::Ready })
    }

    /// Closes the connection and waits a little for the peer to agree.
    pub fn close(mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: reason.to_owned().into() };
        if self.ws.close(Some(frame)).is_err_and(|err| passing(err).is_err()) {
            return;
        }
        self.has_unsent = true;
        let until = Instant::now() + CLOSE_WAIT;
        let Ok(never) = Wake::new() else { return };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.wait(&never, left).is_err() {
                return;
            }
            loop {
                match self.read() {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
        }
    }
}

/// Whether the peer just does not read at the moment; `Ok(true)` then.
fn passing(err: Error) -> Result<bool, Gone> {
    match err {
        Error::Io(err) if matches!(err.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(true)
        }
        Error::WriteBufferFull(_) => Err(Gone::Broken("the server does not read".to_owned())),
        Error::ConnectionClosed | Error::AlreadyClosed => Err(closed(None)),
        err => Err(Gone::Broken(err.to_string())),
    }
}

fn closed(frame: Option<CloseFrame>) -> Gone {
    match frame {
        Some(frame) => Gone::Closed { code: frame.code.into(), reason: frame.reason.as_str().to_owned() },
        None => Gone::Closed { code: 1005, reason: String::new() },
    }
}
