//! Accepting connections and ending them in order.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::limits::HEAD_WAIT;

/// Longest head of a request, in bytes.
const HEAD_BYTES: usize = 32 * 1024;
/// Rest after a failure to accept, which is most often a lack of descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// Bytes that are still read, and time that is still waited, for a peer that has been answered.
const LINGER_BYTES: u64 = 4 << 20;
const LINGER_WAIT: Duration = Duration::from_secs(2);

/// Serves `router` to everybody until `stopping` turns true; then gives the requests in hand up to `longest` to
/// end.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    mut stopping: watch::Receiver<bool>,
    longest: Duration,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT).max_buf_size(HEAD_BYTES);
    let service = TowerToHyperService::new(router);
    // Every connection holds a sender; the last one that goes ends the wait below.
    let (alive, mut all_ended) = mpsc::channel::<Infallible>(1);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = raised(&mut stopping) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let io = TokioIo::new(Lingering::new(stream));
                let connection = http.serve_connection(io, service.clone()).with_upgrades();
                let (alive, mut stopping) = (alive.clone(), stopping.clone());
                tokio::spawn(async move {
                    let _alive = alive;
                    let mut connection = pin!(connection);
                    let outcome = tokio::select! {
                        outcome = connection.as_mut() => outcome,
                        () = raised(&mut stopping) => {
                            connection.as_mut().graceful_shutdown();
                            connection.await
                        }
                    };
                    ended(peer, outcome);
                });
            }
            Err(err) => {
                tracing::warn!(%err, "could not accept a connection");
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
    drop((listener, alive));
    let _ = tokio::time::timeout(longest, all_ended.recv()).await;
}

/// Ends when the wish to stop is raised.
pub(super) async fn raised(stopping: &mut watch::Receiver<bool>) {
    // An error means that nobody can raise it any more, which is the end as well.
    let _ = stopping.wait_for(|&stop| stop).await;
}

fn ended(peer: SocketAddr, outcome: hyper::Result<()>) {
    if let Err(err) = outcome {
        tracing::debug!(%peer, %err, "a connection ended badly");
    }
}

/// A socket that, when it is let go, still reads for a while what its peer sends. Closing at once would make the
/// system answer the rest of an overlong body with a reset, which can destroy the answer on its way.
struct Lingering(Option<TcpStream>);

impl Lingering {
    fn new(stream: TcpStream) -> Self {
        // Frames and answers are small and complete; waiting for more only adds delay.
        let _ = stream.set_nodelay(true);
        Self(Some(stream))
    }

    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.0.as_mut().expect("the stream is taken only on drop"))
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        if let (Some(stream), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(linger(stream));
        }
    }
}

async fn linger(mut stream: TcpStream) {
    let _ = stream.shutdown().await;
    let (mut scratch, mut left) = ([0; 4096], LINGER_BYTES);
    let drain = async {
        while left > 0 {
            match stream.read(&mut scratch).await {
                Ok(0) | Err(_) => break,
                Ok(read) => left = left.saturating_sub(read as u64),
            }
        }
    };
    let _ = tokio::time::timeout(LINGER_WAIT, drain).await;
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
        self.stream().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, slices)
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
