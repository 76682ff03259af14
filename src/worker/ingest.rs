//! transit.ingest/1: `POST /ingest/{source}` and its health.
//!
//! The order of checks is the protocol's: which source, how long, who, what, how often. Whatever is wrong with who
//! it is looks the same from outside.

use std::pin::pin;

use axum::Json;
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use serde_json::json;

use super::app::{App, Shared, error, failed, unauthorized};
use super::body::read_body;
use super::links::Grown;
use super::sources::{Known, Named};
use crate::addr::{Addr, AgentAddr, Source};
use crate::clock::Wall;
use crate::limits::INGEST_BYTES;
use crate::proto::ingest::{
    Event, RuleError, SCHEMA, SIGNATURE_HEADER, SignedHeaders, TIMESTAMP_HEADER, check_headers, parse_event,
    reply_url_allowed,
};
use crate::store::StoreError;
use crate::store::ledger::events::{self, Accepted, AcceptedKind};
use crate::store::ledger::messages::Queue;
use crate::store::ledger::sources::SourceRow;

/// After how many seconds a sender is asked to come again when there is no room.
const NO_ROOM_RETRY_S: u32 = 30;

/// `GET /ingest/{source}/health`: unsigned, the same for a source of any organisation.
pub(super) async fn health(State(app): State<App>, uri: Uri) -> Response {
    let name = uri.path().strip_prefix("/ingest/").and_then(|rest| rest.strip_suffix("/health"));
    match candidates(&app, name) {
        Ok(None) => not_found(),
        Ok(Some(_)) => Json(json!({ "ok": true, "schema": SCHEMA })).into_response(),
        Err(err) => failed("reading sources", &err),
    }
}

/// `POST /ingest/{source}`.
pub(super) async fn receive(State(app): State<App>, request: Request) -> Response {
    let began = app.mono();
    let (Ok(answer) | Err(answer)) = take(&app, request).await;
    app.metrics.ingested(answer.status().as_u16(), app.mono().since(began));
    answer
}

async fn take(app: &App, request: Request) -> Result<Response, Response> {
    let store = |err: StoreError| {
        if matches!(err, StoreError::Full { .. }) { no_room() } else { failed("taking an event", &err) }
    };
    let (head, body) = request.into_parts();
    let name = head.uri.path().strip_prefix("/ingest/");
    let mut sources = candidates(app, name).map_err(store)?.ok_or_else(not_found)?;
    if body.size_hint().lower() > INGEST_BYTES as u64 {
        return Err(error(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"));
    }
    // Its memory is taken until it is answered: what waits for its commit is as long again.
    let mut reading = pin!(read_body(&app.body_memory, body, INGEST_BYTES));
    let (body, _memory) = if let Some(read) = reading.as_mut().now_or_never() {
        read?
    } else {
        let read = reading.await?;
        // A body takes its time: the source may be gone by now, or have another secret.
        sources = candidates(app, name).map_err(store)?.ok_or_else(not_found)?;
        read
    };
    let now = app.wall();
    let headers = signed_headers(&head.headers, now.unix_seconds());
    let (at, secret_no) =
        sender(&sources, headers.as_ref(), &body, now).map_err(store)?.ok_or_else(unauthorized)?;
    let source = &sources[at].row;
    let event = parse_event(&body).map_err(|err| broken(&err))?;
    check_reply_url(source, &event).map_err(|err| broken(&err))?;

    let digest = events::digest(&event);
    let refused = if app.db.has_room() {
        let SourceRow { integration_id, rate, burst, .. } = source;
        app.source_rates.take(integration_id.clone(), *rate, *burst, app.mono()).err().map(too_many)
    } else {
        Some(no_room())
    };
    if let Some(refused) = refused {
        let before = app.db.read(|tx| events::find(tx, source, &event.event_key, &digest)).map_err(store)?;
        return before.map(|before| answer(source, &before)).ok_or(refused);
    }
    let accepted = store_event(app, sources.clone(), at, event, digest, secret_no).await.map_err(store)?;
    if accepted.kind != AcceptedKind::New {
        // A duplicate costs no rate.
        app.source_rates.give_back(&source.integration_id);
    }
    Ok(answer(source, &accepted))
}

/// The sources of this name that take events. A name that is none, as it is written, has none.
fn candidates(app: &Shared, name: Option<&str>) -> Result<Option<Named>, StoreError> {
    let Some(name) = name.and_then(|name| name.parse::<Source>().ok()) else { return Ok(None) };
    let named = app.sources.named(&app.db, &app.key, &name, (app.mono(), app.wall()))?;
    Ok((!named.is_empty()).then_some(named))
}

/// The signed headers, if each came exactly once, in its form, and in time.
fn signed_headers(headers: &HeaderMap, now_s: i64) -> Option<SignedHeaders> {
    let once = |name: &str| {
        let mut values = headers.get_all(name).iter();
        values.next().filter(|_| values.next().is_none()).map(|value| value.as_bytes())
    };
    check_headers(once(TIMESTAMP_HEADER), once(SIGNATURE_HEADER), now_s).ok()
}

/// The one source whose secret, current or old, made the signature, by its place, and the number of that secret. Every
/// secret is tried, also when the headers are no good, so that nothing tells which check failed.
fn sender(
    sources: &[Known],
    headers: Option<&SignedHeaders>,
    body: &[u8],
    now: Wall,
) -> Result<Option<(usize, i64)>, StoreError> {
    let (timestamp, signature) = headers.map_or(("0", ""), |h| (h.timestamp(), h.signature()));
    let (mut matched, mut unreadable) = (Vec::new(), None);
    for (at, source) in sources.iter().enumerate() {
        match source.verify(timestamp, body, signature, now) {
            Ok(number) => matched.extend(number.map(|number| (at, number))),
            Err(err) => unreadable = Some(err),
        }
    }
    match (matched.as_slice(), unreadable) {
        (&[found], _) => Ok(Some(found)),
        ([], Some(err)) => Err(err),
        _ => Ok(None),
    }
}

fn check_reply_url(source: &SourceRow, event: &Event) -> Result<(), RuleError> {
    match &event.reply_url {
        Some(url) => reply_url_allowed(url, &source.prefixes).map(drop),
        None => Ok(()),
    }
}

/// Stores the event; the agent's link hears of it as soon as it is committed.
async fn store_event(
    app: &App,
    sources: Named,
    at: usize,
    event: Event,
    digest: String,
    secret_no: i64,
) -> Result<Accepted, StoreError> {
    let source = &sources[at].row;
    let target = source.target_addr.clone();
    let queue = match &target {
        Addr::Agent(agent) => Some(queue_of(&source.org_id, agent)),
        Addr::Room(_) => None,
    };
    let (org_id, address) = (source.org_id.clone(), target.to_string());
    let (tell, told) = tokio::sync::oneshot::channel();
    let (now, hints) = (app.wall(), app.clone());
    app.db.submit(
        move |tx| events::accept(tx, &sources[at].row, &event, &digest, secret_no, &target, now),
        move |outcome| {
            if let Ok(Accepted { kind: AcceptedKind::New, members, .. }) = &outcome {
                let queues = queue.iter().chain(members);
                queues.for_each(|queue| hints.links.wake(queue, Grown::Deliveries));
                let members = members.iter().map(Queue::address);
                for address in members.chain([address]) {
                    hints.loops.interrupt(&org_id, &address, hints.mono());
                }
            }
            // The sender may have gone away; the event stands all the same.
            let _ = tell.send(outcome);
        },
    );
    told.await.unwrap_or(Err(StoreError::Closed))
}

fn queue_of(org_id: &str, agent: &AgentAddr) -> Queue {
    Queue { org_id: org_id.to_owned(), host: agent.host.to_string(), agent: agent.name.to_string() }
}

fn answer(source: &SourceRow, accepted: &Accepted) -> Response {
    let Accepted { event_id, delivery_id, kind, .. } = accepted;
    let (status, word) = match kind {
        AcceptedKind::New => (StatusCode::ACCEPTED, "queued"),
        AcceptedKind::Same | AcceptedKind::Different => (StatusCode::OK, "duplicate"),
    };
    let mut body = json!({ "status": word, "event_id": event_id, "delivery_id": delivery_id });
    if *kind == AcceptedKind::Different {
        body["same"] = false.into();
    }
    tracing::info!(source = source.name.as_str(), event_id, delivery_id, status = word, "an event was taken");
    (status, Json(body)).into_response()
}

fn broken(rule: &RuleError) -> Response {
    let mut body = json!({ "error": rule.text });
    if let Some(field) = &rule.field {
        body["field"] = field.as_str().into();
    }
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

fn too_many(wait: std::time::Duration) -> Response {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut answer = error(StatusCode::TOO_MANY_REQUESTS, "rate_limited");
    answer.headers_mut().insert(RETRY_AFTER, seconds.max(1).into());
    answer
}

/// The disk is full, or nearly: the sender keeps the event and comes again.
fn no_room() -> Response {
    let mut answer = error(StatusCode::SERVICE_UNAVAILABLE, "no_room");
    answer.headers_mut().insert(RETRY_AFTER, NO_ROOM_RETRY_S.into());
    answer
}

fn not_found() -> Response {
    error(StatusCode::NOT_FOUND, "source_not_found")
}
