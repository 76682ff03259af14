//! Accepting connections and ending them in order.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, StatusCode};
use futures_util::FutureExt;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, Sleep};

use super::metrics::{CONNECTIONS, Inside, Metrics};
use crate::limits::{HEAD_BYTES, HEAD_WAIT, REFUSED_AT_ONCE, WRITE_WAIT};

/// Rest after a failure to accept, which is most often a lack of descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// Bytes that are still read, and time that is still waited, for a peer that has been answered. After a wish to stop one
/// that is silent for a moment has nothing on its way.
const LINGER_BYTES: u64 = 4 << 20;
const LINGER_WAIT: Duration = Duration::from_secs(2);
const LINGER_QUIET: Duration = Duration::from_millis(200);
/// Time in which a request that is on its way is still taken on a connection, after a wish to stop.
const LAST_REQUEST_WAIT: Duration = Duration::from_millis(200);
/// What a connection beyond the limit is told.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n\
    content-type: application/json\r\ncontent-length: 32\r\n\r\n{\"error\":\"too_many_connections\"}";

/// Where connections come from.
pub(super) struct Door {
    pub(super) listener: TcpListener,
    /// Somebody else keeps it open when we close it, so that what waits there is for the next server.
    pub(super) is_inherited: bool,
}

/// Who may come in.
pub(super) struct Host {
    pub(super) router: Router,
    pub(super) metrics: Arc<Metrics>,
    /// Connections that may be open at once.
    pub(super) connections: u64,
}

/// Serves everybody who comes to one of `doors` until `stopping` turns true; then gives the requests in hand up to
/// `longest` to end. Answers when that time is, or would have been, over.
pub(super) async fn serve(
    doors: Vec<Door>,
    host: Host,
    stopping: watch::Receiver<bool>,
    longest: Duration,
) -> Instant {
    // Every connection holds a sender; the last one that goes ends the wait below.
    let (alive, mut all_ended) = mpsc::channel::<Infallible>(1);
    let entrance = Arc::new(Entrance::new(host, stopping.clone()));
    let keepers: Vec<_> = doors
        .into_iter()
        .map(|door| tokio::spawn(keep(door, entrance.clone(), alive.clone(), stopping.clone())))
        .collect();
    drop(alive);
    for keeper in keepers {
        if let Err(err) = keeper.await {
            tracing::error!(%err, "accepting connections failed");
        }
    }
    let until = Instant::now() + longest;
    let _ = tokio::time::timeout_at(until, all_ended.recv()).await;
    until
}

/// Accepts at one door until `stopping` turns true.
async fn keep(
    door: Door,
    entrance: Arc<Entrance>,
    alive: mpsc::Sender<Infallible>,
    mut stopping: watch::Receiver<bool>,
) {
    let Door { listener, is_inherited } = door;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = raised(&mut stopping) => break,
        };
        match accepted {
            Ok((stream, peer)) => entrance.enter(stream, peer, &alive),
            Err(err) => {
                tracing::warn!(%err, "could not accept a connection");
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
    // Closing the listener would reset those that wait at it. Where another server follows at once they are its own.
    while !is_inherited && let Some(Ok((stream, peer))) = listener.accept().now_or_never() {
        entrance.enter(stream, peer, &alive);
    }
}

/// What becomes of a connection that was accepted.
struct Entrance {
    http: http1::Builder,
    host: Host,
    service: TowerToHyperService<Router>,
    refusing: Arc<Semaphore>,
    stopping: watch::Receiver<bool>,
}

impl Entrance {
    fn new(host: Host, stopping: watch::Receiver<bool>) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT).max_buf_size(HEAD_BYTES);
        // Who has said all that it has to say still waits for its answer.
        http.half_close(true);
        let service = TowerToHyperService::new(host.router.clone());
        Self { http, host, service, refusing: Arc::new(Semaphore::new(REFUSED_AT_ONCE)), stopping }
    }

    fn enter(&self, stream: TcpStream, peer: SocketAddr, alive: &mpsc::Sender<Infallible>) {
        let Some(inside) = self.host.metrics.connections.enter(self.host.connections) else {
            let open = Open { stream, stopping: self.stopping.clone(), inside: None, alive: alive.clone() };
            return self.turn_away(open, peer);
        };
        let (service, stopped) = (self.service.clone(), self.stopping.clone());
        let answering = service_fn(move |request| {
            let (answer, stopped) = (service.call(request), stopped.clone());
            async move {
                let mut answer = answer.await?;
                if *stopped.borrow() && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(answer)
            }
        });
        let open =
            Open { stream, stopping: self.stopping.clone(), inside: Some(inside), alive: alive.clone() };
        let connection = self.http.serve_connection(TokioIo::new(Lingering::new(open)), answering);
        let (connection, mut stopping) = (connection.with_upgrades(), self.stopping.clone());
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            let outcome = tokio::select! {
                outcome = connection.as_mut() => outcome,
                () = stop_reading(&mut stopping) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            ended(peer, outcome);
        });
    }

    /// Says that it is full. Those who would wait in a row for that are dropped.
    fn turn_away(&self, mut open: Open, peer: SocketAddr) {
        self.host.metrics.refused.one(CONNECTIONS);
        tracing::debug!(%peer, most = self.host.connections, "too many connections");
        let Ok(permit) = self.refusing.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            let _permit = permit;
            if open.stream.write_all(FULL).await.is_ok() {
                linger(open).await;
            }
        });
    }
}

/// Ends when the wish to stop is raised.
pub(super) async fn raised(stopping: &mut watch::Receiver<bool>) {
    // An error means that nobody can raise it any more, which is the end as well.
    let _ = stopping.wait_for(|&stop| stop).await;
}

/// Ends a little after that. Until then a request that was on its way is answered, with the word that it is the last:
/// a connection that is closed in its face would leave its sender in doubt.
async fn stop_reading(stopping: &mut watch::Receiver<bool>) {
    raised(stopping).await;
    tokio::time::sleep(LAST_REQUEST_WAIT).await;
}

fn ended(peer: SocketAddr, outcome: hyper::Result<()>) {
    if let Err(err) = outcome {
        tracing::debug!(%peer, %err, "a connection ended badly");
    }
}

/// A socket that, when it is let go, still reads for a while what its peer sends. Closing at once would make the
/// system answer the rest of an overlong body with a reset, which can destroy the answer on its way.
///
/// A peer that takes nothing of what is written to it for too long is given up.
struct Lingering {
    /// Taken on drop.
    open: Option<Open>,
    /// Runs while the peer takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// A connection that is open.
struct Open {
    stream: TcpStream,
    stopping: watch::Receiver<bool>,
    /// What counts it, if it is served.
    inside: Option<Inside>,
    /// Held until nothing more is read from it: once all are let go, the process may end.
    alive: mpsc::Sender<Infallible>,
}

impl Lingering {
    fn new(open: Open) -> Self {
        // Frames and answers are small and complete; waiting for more only adds delay.
        let _ = open.stream.set_nodelay(true);
        Self { open: Some(open), stalled: None }
    }

    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.open.as_mut().expect("the stream is taken only on drop").stream)
    }

    fn written(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(WRITE_WAIT)));
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        if let (Some(open), Ok(runtime)) = (self.open.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(linger(open));
        }
    }
}

async fn linger(open: Open) {
    let Open { mut stream, mut stopping, inside, alive } = open;
    let _ = stream.shutdown().await;
    let (mut scratch, mut left) = ([0; 4096], LINGER_BYTES);
    let drain = async {
        while left > 0 {
            let quiet = async {
                raised(&mut stopping).await;
                tokio::time::sleep(LINGER_QUIET).await;
            };
            let read = tokio::select! {
                read = stream.read(&mut scratch) => read,
                () = quiet => break,
            };
            match read {
                Ok(0) | Err(_) => break,
                Ok(read) => left = left.saturating_sub(read as u64),
            }
        }
    };
    let _ = tokio::time::timeout(LINGER_WAIT, drain).await;
    drop((stream, inside, alive));
}

impl AsyncRead for Lingering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buf)
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = self.stream().poll_write(cx, bytes);
        self.written(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = self.stream().poll_write_vectored(cx, slices);
        self.written(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Wall;

    #[test]
    fn the_end_waits_for_peers_that_were_answered_and_still_send() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = listener.local_addr().unwrap();
            let metrics = Arc::new(Metrics::new(Wall(0)));
            let host = Host { router: Router::new(), metrics: metrics.clone(), connections: 1 };
            let (stop, stopping) = watch::channel(false);
            let door = Door { listener, is_inherited: false };
            let served = tokio::spawn(serve(vec![door], host, stopping, Duration::from_secs(30)));
            let mut peer = TcpStream::connect(at).await.unwrap();
            peer.write_all(b"POST /none HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000\r\n\r\nx")
                .await
                .unwrap();
            let mut answer = Vec::new();
            peer.read_to_end(&mut answer).await.unwrap();
            assert!(answer.starts_with(b"HTTP/1.1 404"));
            stop.send_replace(true);
            served.await.unwrap();
            assert_eq!(metrics.connections.get(), 0, "it has been read to its end");
        });
    }
}
