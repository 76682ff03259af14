//! What all requests share, and which request goes where.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::sync::{Semaphore, oneshot, watch};

use super::Limits;
use super::callback::Callbacks;
use super::clocks::Clocks;
use super::guard::Loops;
use super::links::Links;
use super::metrics::Metrics;
use super::places::Places;
use super::probes::{self, Waiting};
use super::sources::Sources;
use super::{enroll, ingest, socket};
use crate::clock::{Bucket, Clock, Mono, Wall};
use crate::limits;
use crate::store::StoreError;
use crate::store::ledger::{Db, Tx};
use crate::store::seal::MasterKey;

/// What every request and every link has.
pub(super) type App = Arc<Shared>;

pub(super) struct Shared {
    /// The ledger. Reads are short and run where they are asked for; writes never block a serving thread.
    pub(super) db: Db,
    /// Opens the secrets of sources.
    pub(super) key: MasterKey,
    /// The machine's clocks.
    pub(super) clock: Clocks,
    /// Who is connected.
    pub(super) links: Links,
    /// Where a reply is posted from.
    pub(super) callbacks: Callbacks,
    /// The sources that were asked for lately.
    pub(super) sources: Sources,
    /// The buckets of sources, by integration id.
    pub(super) source_rates: Buckets<String>,
    /// What bodies of requests may still take of the memory, in bytes.
    pub(super) body_memory: Semaphore,
    /// The buckets of senders, by host id and name.
    pub(super) senders: Buckets<(String, String)>,
    /// Who answers whom without end.
    pub(super) loops: Loops,
    /// Free places in the queues of agents.
    pub(super) places: Places,
    /// What a peer may do.
    pub(super) limits: Limits,
    /// What a watcher is told.
    pub(super) metrics: Arc<Metrics>,
    /// What waits, as a watcher was told last.
    pub(super) waiting: Waiting,
    /// Turns true when the process stops.
    pub(super) stopping: watch::Receiver<bool>,
}

impl Shared {
    pub(super) fn new(db: Db, key: MasterKey, limits: Limits, stopping: watch::Receiver<bool>) -> Self {
        let clock = Clocks::default();
        Self {
            db,
            key,
            limits,
            metrics: Arc::new(Metrics::new(clock.wall())),
            waiting: Waiting::default(),
            clock,
            links: Links::default(),
            callbacks: Callbacks::default(),
            sources: Sources::default(),
            source_rates: Buckets::default(),
            body_memory: Semaphore::new(limits::BODIES_HELD),
            senders: Buckets::default(),
            loops: Loops::new(limits.loops),
            places: Places::default(),
            stopping,
        }
    }

    pub(super) fn wall(&self) -> Wall {
        self.clock.wall()
    }

    pub(super) fn mono(&self) -> Mono {
        self.clock.mono()
    }

    /// Changes the ledger and waits for the commit, without blocking the thread.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        change: impl Fn(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (tell, told) = oneshot::channel();
        self.db.submit(change, move |outcome| {
            // Whoever waited may have gone away; the change stands all the same.
            let _ = tell.send(outcome);
        });
        told.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// Token buckets by key, each made when it is first asked for.
pub(super) struct Buckets<K>(Mutex<HashMap<K, Kept>>);

struct Kept {
    rate: u32,
    burst: u32,
    bucket: Bucket,
    asked: Mono,
}

/// Buckets that are kept; beyond, those that are full again are forgotten.
const BUCKETS_KEPT: usize = 10_000;

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Buckets<K> {
    /// Takes one token of `key`'s bucket, which is made anew when its rate or burst was changed.
    pub(super) fn take(&self, key: K, rate: u32, burst: u32, now: Mono) -> Result<(), Duration> {
        let mut buckets = lock(&self.0);
        if buckets.len() >= BUCKETS_KEPT {
            buckets.retain(|_, kept| {
                let full_after = f64::from(kept.burst) / f64::from(kept.rate.max(1));
                now.since(kept.asked).as_secs_f64() < full_after
            });
        }
        let fresh = || Kept { rate, burst, bucket: Bucket::new(rate, burst, now), asked: now };
        let kept = buckets.entry(key).or_insert_with(fresh);
        if (kept.rate, kept.burst) != (rate, burst) {
            *kept = fresh();
        }
        kept.asked = now;
        kept.bucket.take(now)
    }

    /// Puts back a token that [`take`](Self::take) has taken and that was not used.
    pub(super) fn give_back(&self, key: &K) {
        if let Some(kept) = lock(&self.0).get_mut(key) {
            kept.bucket.give_back();
        }
    }
}

/// A lock whose holder never leaves it half changed: a panic elsewhere does not spread through it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All routes; those that are the operator's alone are left out when they have a listener of their own.
pub(super) fn router(app: App, with_probes: bool) -> Router {
    let routes = Router::new()
        .route("/api/daemon/enroll", post(enroll::enroll))
        .route("/api/daemon/ws", get(socket::upgrade))
        .route("/ingest/{source}", post(ingest::receive))
        .route("/ingest/{source}/health", get(ingest::health))
        .route("/healthz", get(probes::health));
    let routes = if with_probes { routes.merge(probes::routes()) } else { routes };
    fall_back(routes).with_state(app)
}

/// A wrong method on a known path is 405, an unknown path 404; paths are taken as they are written.
pub(super) fn fall_back(routes: Router<App>) -> Router<App> {
    routes
        .fallback(|| async { error(StatusCode::NOT_FOUND, "not_found") })
        .method_not_allowed_fallback(|| async { error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed") })
}

/// `{"error": text}` with this status.
pub(super) fn error(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({ "error": text }))).into_response()
}

/// The one answer to whoever could not prove who they are.
pub(super) fn unauthorized() -> Response {
    error(StatusCode::UNAUTHORIZED, "Unauthorized")
}

/// What went wrong is the operator's to know.
pub(super) fn failed(doing: &str, err: &StoreError) -> Response {
    tracing::error!(doing, %err, "a request failed");
    error(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error")
}
