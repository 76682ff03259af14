//! A small receiver of reply callbacks on loopback: what a sender of events would run, for trying things out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::app::{error, unauthorized};
use super::body::read_body;
use super::connection::Host;
use super::metrics::Metrics;
use super::{STOP_WAIT, WorkerError, connect, connection, listen_on, run};
use crate::clock::{Clock, SystemClock};
use crate::limits::{INGEST_BYTES, PROBES};
use crate::net::service::Shutdown;
use crate::proto::ingest::{SIGNATURE_HEADER, Signer, TIMESTAMP_HEADER, check_headers};
use crate::secret::Secret;

/// A reply whose signature was good.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReceivedReply {
    /// The name of the source.
    pub source: String,
    /// The event's conversation.
    pub conversation_id: String,
    /// The event's key.
    pub event_key: String,
    /// The delivery that was answered.
    pub delivery_id: String,
    /// The address of the agent that answered.
    pub agent: String,
    /// What it said.
    pub message: String,
    /// Who the event was from.
    #[serde(default)]
    pub user: Option<String>,
}

struct Desk {
    signer: Signer,
    clock: SystemClock,
    replies: Sender<ReceivedReply>,
}

/// Receives replies at the answered URL, which ends in `/`, on a thread of its own until `stop` is raised. A reply
/// is answered with 204 once it was handed over; one whose signature is no good with 401.
///
/// # Errors
/// When the address or a thread cannot be had.
pub fn receive(
    listen: SocketAddr,
    secret: &Secret,
    stop: &Shutdown,
) -> Result<(String, Receiver<ReceivedReply>), WorkerError> {
    let (listener, listen) = listen_on(listen)?;
    let (replies, received) = mpsc::channel();
    let clock = SystemClock::new();
    let now = clock.wall();
    let desk = Arc::new(Desk { signer: Signer::new(secret), clock, replies });
    let router = Router::new()
        .route("/", post(take))
        .fallback(|| async { error(StatusCode::NOT_FOUND, "not_found") })
        .with_state(desk);
    let stop = stop.clone();
    let serve = move || {
        let served = run(&stop, |stopping| async move {
            let doors =
                connect(vec![listener], false).map_err(|source| WorkerError::Listen { listen, source })?;
            let host = Host { router, metrics: Arc::new(Metrics::new(now)), connections: PROBES };
            connection::serve(doors, host, stopping, STOP_WAIT).await;
            Ok(())
        });
        if let Err(err) = served {
            tracing::error!(%err, "receiving replies failed");
        }
    };
    std::thread::Builder::new().name("receiver".into()).spawn(serve).map_err(WorkerError::Runtime)?;
    Ok((format!("http://{listen}/"), received))
}

async fn take(State(desk): State<Arc<Desk>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    // It is for trying things out: each may be as long as it may.
    let memory = Semaphore::new(INGEST_BYTES);
    let (body, _memory) = match read_body(&memory, body, INGEST_BYTES).await {
        Ok(body) => body,
        Err(answer) => return answer,
    };
    let value = |name| head.headers.get(name).map(|value| value.as_bytes());
    let now_s = desk.clock.wall().unix_seconds();
    let Ok(headers) = check_headers(value(TIMESTAMP_HEADER), value(SIGNATURE_HEADER), now_s) else {
        return unauthorized();
    };
    if !desk.signer.verify(headers.timestamp(), &body, headers.signature()) {
        return unauthorized();
    }
    let Ok(reply) = serde_json::from_slice(&body) else {
        return error(StatusCode::BAD_REQUEST, "not a reply");
    };
    match desk.replies.send(reply) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(_) => error(StatusCode::GONE, "nobody waits for replies any more"),
    }
}
