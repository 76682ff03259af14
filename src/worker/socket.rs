//! The socket of a daemon: moves bytes between it and its [`Link`], which decides everything.

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::header::{AUTHORIZATION, RETRY_AFTER, UPGRADE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::{FutureExt, SinkExt, StreamExt};
use std::sync::Arc;
use std::time::Duration;

use super::app::{App, error, failed, unauthorized};
use super::connection::raised;
use super::link::{Doing, Heard, Link};
use super::links::{Leave, Owner};
use super::metrics::SOCKETS_OF_HOST;
use super::notes::Notes;
use crate::limits::FRAME_BYTES;
use crate::net::ws;
use crate::proto::{Close, wire::close};

/// A message up to here is read whole, so that one over the limit can be told so in order.
const MESSAGE_BYTES: usize = 2 * FRAME_BYTES;
/// Small buffers: most sockets are idle most of the time. The one for writing grows only when it is used.
const READ_BUFFER: usize = 1024;
const WRITE_BUFFER: usize = 16 * 1024;
/// Frames that are taken before what they gave rise to is sent.
const FRAMES_AT_ONCE: usize = 64;
/// When a host that has too many sockets may ask again, in seconds.
const ASK_AGAIN_S: u64 = 5;
/// Time that a peer has for its half of the closing handshake.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// `GET /api/daemon/ws`.
pub(super) async fn upgrade(
    State(app): State<App>,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    headers: HeaderMap,
) -> Response {
    let Ok(socket) = socket else {
        let mut answer = error(StatusCode::UPGRADE_REQUIRED, "WebSocket upgrade required");
        answer.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        return answer;
    };
    let owner = match bearer(&headers).map(|token| Owner::of_token(&app, token)) {
        Some(Ok(Some(owner))) => owner,
        Some(Err(err)) => return failed("reading hosts", &err),
        None | Some(Ok(None)) => return unauthorized(),
    };
    if *app.stopping.borrow() {
        return busy(StatusCode::SERVICE_UNAVAILABLE, "stopping", 1);
    }
    let Some(leave) = Leave::ask(&app, &owner.host_id) else {
        app.metrics.refused.one(SOCKETS_OF_HOST);
        tracing::warn!(host = owner.host, org = owner.org, "a host has too many sockets");
        return busy(StatusCode::TOO_MANY_REQUESTS, "too_many_sockets", ASK_AGAIN_S);
    };
    sized(socket).on_upgrade(move |socket| {
        let (link, notes) = Link::new(app.clone(), owner);
        // In a box and by reference: what a future is given by value it keeps twice.
        let mut socket = Box::new(Socket { app, link, notes, socket, leave });
        async move { socket.run().await }
    })
}

/// With its buffers and limits.
pub(super) fn sized(socket: WebSocketUpgrade) -> WebSocketUpgrade {
    socket
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(MESSAGE_BYTES)
        .max_frame_size(MESSAGE_BYTES)
}

fn busy(status: StatusCode, why: &str, again_after_s: u64) -> Response {
    let mut answer = error(status, why);
    answer.headers_mut().insert(RETRY_AFTER, again_after_s.into());
    answer
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// A link with the socket that it speaks through.
struct Socket {
    app: App,
    link: Link,
    notes: Arc<Notes>,
    socket: WebSocket,
    /// The last to be let go: once it is, the process may end.
    leave: Leave,
}

impl Socket {
    async fn run(&mut self) {
        let mut stopping = self.app.stopping.clone();
        let (handle, notes) = (self.link.handle(), self.notes.clone());
        let end = loop {
            match self.act().await {
                Ok(None) => {}
                Ok(Some(end)) => break Some(end),
                // The peer is gone, or takes nothing.
                Err(_) => break None,
            }
            if self.link.is_greeted() {
                self.leave.greeted();
            }
            let wait = self.link.wake_at().since(self.app.mono());
            let is_draining = self.link.is_draining();
            tokio::select! {
                // What the peer has said is heard before it is found silent.
                biased;
                () = raised(&mut stopping), if !is_draining => self.link.stop(),
                message = self.socket.next(), if !is_draining => if !self.hear_all(message) { break None },
                () = notes.given() => self.note_all(),
                () = handle.ordered() => {
                    // What came of a message is told before what it made due.
                    self.note_all();
                    self.link.obey();
                }
                () = tokio::time::sleep(wait) => self.link.time(),
            }
        };
        if end.is_none() {
            self.link.hear_out();
        }
        self.link.gone(end.as_ref());
        if let Some(Close { code, reason }) = end {
            let link = &mut self.link;
            // Whoever is sent away for what it did, or was revoked, has nothing more to say.
            let is_in_order = matches!(code, close::GOING_AWAY | close::REPLACED);
            let late = |text: &str| {
                if is_in_order {
                    link.hear_late(text)
                }
            };
            say_goodbye(&mut self.socket, code, reason, late).await;
        }
    }

    /// Does what the link wants done. Answers how the connection is to end.
    async fn act(&mut self) -> Result<Option<Close>, axum::Error> {
        while let Some(doing) = self.link.next() {
            match doing {
                Doing::Write(text) => self.socket.feed(Message::Text(text.into())).await?,
                Doing::Answer(call) => {
                    tokio::spawn(call.answer());
                }
                Doing::End(end) => return Ok(Some(end)),
            }
        }
        self.socket.flush().await?;
        self.link.written();
        Ok(None)
    }

    /// Takes what came back from the ledger and from calls.
    fn note_all(&mut self) {
        self.notes.take().into_iter().for_each(|note| self.link.note(note));
    }

    /// Takes a message, and those that are there already behind it. `false` when there will be no more.
    fn hear_all(&mut self, first: Option<Result<Message, axum::Error>>) -> bool {
        let mut next = Some(first);
        for _ in 0..FRAMES_AT_ONCE {
            let Some(message) = next else { return true };
            // Nothing comes after an error; what it means is still to be told.
            let is_last = matches!(message, Some(Err(_)));
            let heard = self.hear(message);
            if is_last || !heard {
                return heard;
            }
            next = self.socket.next().now_or_never();
        }
        next.is_none_or(|last| self.hear(last))
    }

    fn hear(&mut self, message: Option<Result<Message, axum::Error>>) -> bool {
        heard(message.as_ref()).map(|heard| self.link.hear(heard)).is_some()
    }
}

/// What a message, or the failure to read one, is for a link; `None` when the connection is gone.
pub(super) fn heard(message: Option<&Result<Message, axum::Error>>) -> Option<Heard<'_>> {
    Some(match message? {
        Ok(Message::Text(text)) => Heard::Text(text.as_str()),
        Ok(Message::Binary(_)) => Heard::Binary,
        Ok(Message::Ping(_) | Message::Pong(_)) => Heard::Sound,
        // The peer's goodbye is answered by the socket itself while the last of it is read.
        Ok(Message::Close(_)) => Heard::Fault(close::GOING_AWAY, ""),
        Err(err) if is_too_long(err) => Heard::TooLong,
        Err(err) => {
            let (code, reason) = tungstenite_error(err).and_then(ws::fault)?;
            Heard::Fault(code, reason)
        }
    })
}

/// Says why, then reads until the peer has closed too; `late` is told what still came before that. After an error nothing
/// more can be read as frames; what still comes is dropped by the connection itself.
pub(super) async fn say_goodbye(
    socket: &mut WebSocket,
    code: u16,
    reason: String,
    mut late: impl FnMut(&str),
) {
    let goodbye = async {
        let frame = CloseFrame { code, reason: reason.into() };
        let _ = socket.send(Message::Close(Some(frame))).await;
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Text(text) = message {
                late(text.as_str());
            }
        }
    };
    let _ = tokio::time::timeout(CLOSE_WAIT, goodbye).await;
}

fn is_too_long(err: &axum::Error) -> bool {
    matches!(tungstenite_error(err), Some(tungstenite::Error::Capacity(_)))
}

fn tungstenite_error(err: &axum::Error) -> Option<&tungstenite::Error> {
    std::error::Error::source(err)?.downcast_ref()
}
