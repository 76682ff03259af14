//! What a Worker says of itself: whether it lives, whether it takes work, and its numbers.
//!
//! These answers are for the operator. A proxy in front of a Worker does not pass them on, or they are given a
//! listener of their own, where nothing else is served.

use std::sync::Mutex;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;

use super::app::{App, Shared, fall_back, lock};
use super::metrics::{Now, page};
use crate::clock::Mono;
use crate::store::StoreError;
use crate::store::ledger::depths::{Depths, depths};
use crate::store::ledger::directory;

/// What waits is counted anew after this long; a watcher that asks more often gets the same numbers.
const COUNTED_FOR: Duration = Duration::from_secs(5);
/// What waits is counted up to here.
const COUNTED_MAX: u32 = 100_000;
/// A commit that has not ended after this long is as good as failed.
const STUCK: Duration = Duration::from_secs(10);
/// Time that the ledger has for the write that is tried after a failure.
const TRY_WAIT: Duration = Duration::from_secs(2);

/// `/readyz` and `/metrics`.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/readyz", get(ready)).route("/metrics", get(metrics))
}

/// The same, and `/healthz`, for a listener of their own.
pub(super) fn router(app: App) -> Router {
    fall_back(routes().route("/healthz", get(health))).with_state(app)
}

/// `GET /healthz`: it lives. Its clock is told, because a wrong one makes every signed request a 401.
pub(super) async fn health(State(app): State<App>) -> Response {
    Json(json!({ "ok": true, "time": app.wall().to_string() })).into_response()
}

/// `GET /readyz`: it takes work, or why it does not.
async fn ready(State(app): State<App>) -> Response {
    match obstacle(&app).await {
        None => Json(json!({ "ready": true })).into_response(),
        Some(why) => {
            let told = Json(json!({ "ready": false, "reason": why }));
            (StatusCode::SERVICE_UNAVAILABLE, told).into_response()
        }
    }
}

/// Why no work should come here now. The ledger is believed as long as it does what it is asked; only after a failure
/// is it tried, so that asking costs no write.
async fn obstacle(app: &Shared) -> Option<&'static str> {
    if let Some(known) = known_obstacle(app) {
        return Some(known);
    }
    if app.db.work().has_failed() {
        let tried = tokio::time::timeout(TRY_WAIT, app.write(directory::touch)).await;
        if !matches!(tried, Ok(Ok(()))) {
            return Some("ledger");
        }
    }
    None
}

/// The same without trying anything.
fn known_obstacle(app: &Shared) -> Option<&'static str> {
    if *app.stopping.borrow() {
        return Some("stopping");
    }
    if !app.db.has_room() {
        return Some("disk");
    }
    (app.db.work().busy_for() > STUCK).then_some("ledger")
}

/// `GET /metrics`.
async fn metrics(State(app): State<App>) -> Response {
    let counting = app.clone();
    let counted = tokio::task::spawn_blocking(move || counting.waiting.count(&counting)).await;
    let depths = match counted {
        Ok(Ok(depths)) => Some(depths),
        Ok(Err(err)) => {
            tracing::error!(%err, "counting what waits failed");
            None
        }
        Err(err) => {
            tracing::error!(%err, "counting what waits failed");
            None
        }
    };
    let (hosts, sockets) = app.links.count();
    let is_ready = known_obstacle(&app).is_none() && !app.db.work().has_failed();
    let connections_max = app.limits.connections;
    let now = Now { depths, work: app.db.work(), hosts, sockets, connections_max, is_ready };
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page(&app.metrics, &now)).into_response()
}

/// What waits, as it was counted last.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Option<(Mono, Depths)>>);

impl Waiting {
    /// Counts, unless that was done a moment ago. Whoever asks meanwhile waits for the same count.
    fn count(&self, app: &Shared) -> Result<Depths, StoreError> {
        let mut counted = lock(&self.0);
        let now = app.mono();
        if let Some((at, depths)) = *counted
            && now.since(at) < COUNTED_FOR
        {
            return Ok(depths);
        }
        let found = app.db.read(|tx| depths(tx, COUNTED_MAX))?;
        *counted = Some((now, found));
        Ok(found)
    }
}
