//! A server that says back what it hears, through the Worker's own sockets: for test suites of the WebSocket protocol,
//! which know no other conversation.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use futures_util::{SinkExt, StreamExt};
use tokio::sync::watch;

use super::connection::{self, Host};
use super::link::Heard;
use super::metrics::Metrics;
use super::socket::{heard, say_goodbye, sized};
use crate::clock::{Clock, SystemClock};
use crate::limits::PROBES;
use crate::net::service::Shutdown;
use crate::proto::wire::close;

/// Serves until `stop` is raised; `ready` is told where.
///
/// # Errors
/// When loopback cannot be listened on, or the threads of the server cannot be started.
pub fn serve(stop: &Shutdown, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    let runtime = super::runtime(super::SERVING_THREADS).map_err(io::Error::other)?;
    let (tell, stopping) = watch::channel(false);
    stop.on_trigger(move || {
        tell.send_replace(true);
    });
    runtime.block_on(async move {
        let doors = super::connect(vec![listener], false)?;
        let metrics = Arc::new(Metrics::new(SystemClock::new().wall()));
        let router = Router::new().route("/", get(upgrade));
        ready(at);
        let host = Host { router, metrics, connections: PROBES };
        connection::serve(doors, host, stopping, super::STOP_WAIT).await;
        Ok(())
    })
}

async fn upgrade(socket: WebSocketUpgrade) -> Response {
    sized(socket).on_upgrade(|socket| async move { echo(socket).await })
}

/// Ends every connection as a link would, but hears binary messages too.
async fn echo(mut socket: WebSocket) {
    loop {
        let message = socket.next().await;
        let end = match heard(message.as_ref()) {
            Some(Heard::Text(_) | Heard::Binary) => {
                let Some(Ok(said)) = message else { return };
                if socket.send(said).await.is_err() {
                    return;
                }
                continue;
            }
            // What is answered by the socket itself has to be sent off.
            Some(Heard::Sound) => match socket.flush().await {
                Ok(()) => continue,
                Err(_) => return,
            },
            Some(Heard::TooLong) => (close::TOO_LONG, String::new()),
            Some(Heard::Fault(code, reason)) => (code, reason.to_owned()),
            None => return,
        };
        return say_goodbye(&mut socket, end.0, end.1, |_| {}).await;
    }
}
