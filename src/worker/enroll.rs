//! `POST /api/daemon/enroll`: a code that is used once becomes a device token.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use super::app::{App, failed, unauthorized};
use super::body::read_body;
use crate::store::ledger::{credentials, directory};

/// Longest body; a code and a version need far less.
const LONGEST: usize = 4096;
/// Longest version of a daemon, in bytes.
const VERSION_BYTES: usize = 100;

#[derive(Deserialize)]
struct Enrolment {
    code: String,
    daemon_ver: String,
}

/// Every failure that the caller has part in looks the same.
pub(super) async fn enroll(State(app): State<App>, request: Request) -> Response {
    let Ok((body, _memory)) = read_body(&app.body_memory, request.into_body(), LONGEST).await else {
        return unauthorized();
    };
    let Ok(Enrolment { code, daemon_ver }) = serde_json::from_slice(&body) else { return unauthorized() };
    if !(1..=VERSION_BYTES).contains(&daemon_ver.len()) {
        return unauthorized();
    }
    let token = credentials::fresh_secret();
    let (code_hash, token_hash) = (credentials::code_hash(&code), credentials::token_hash(token.expose()));
    let now = app.wall();
    let redeemed =
        app.write(move |tx| directory::redeem_code(tx, &code_hash, &token_hash, &daemon_ver, now)).await;
    match redeemed {
        Ok(Some(host)) => {
            tracing::info!(org = host.org_slug.as_str(), host = host.host.as_str(), "enrolled");
            Json(json!({
                "device_token": token.expose(),
                "host_id": host.host_id,
                "host": host.host,
                "org": host.org_slug.as_str(),
            }))
            .into_response()
        }
        Ok(None) => unauthorized(),
        Err(err) => failed("enrolling", &err),
    }
}
