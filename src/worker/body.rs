//! Bodies of requests, read without trusting anybody: no longer than they may be, in time, and all of them together in
//! a part of the memory.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::Response;
use futures_util::StreamExt;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::app::error;
use crate::limits::{BODIES_HELD_WAIT, BODY_FREE, BODY_WAIT};

/// After how many seconds a sender is asked to come again when there was no memory. It has waited already.
const NO_MEMORY_RETRY_S: u32 = 2;

/// What a body has taken of the memory; given back when it is dropped.
pub(super) type Taken<'a> = Option<SemaphorePermit<'a>>;

/// Reads a body of at most `longest` bytes, never more than one piece beyond; the answer when that cannot be.
/// `memory` is what all bodies together may still take, in bytes.
pub(super) async fn read_body(
    memory: &Semaphore,
    body: Body,
    longest: usize,
) -> Result<(Vec<u8>, Taken<'_>), Response> {
    let mut pieces = body.into_data_stream();
    let read = async {
        let (mut bytes, mut taken) = (Vec::new(), None);
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| error(StatusCode::BAD_REQUEST, "the body was cut off"))?;
            if bytes.len() + piece.len() > longest {
                return Err(error(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"));
            }
            take(memory, &mut taken, (bytes.len() + piece.len()).saturating_sub(BODY_FREE)).await?;
            bytes.extend_from_slice(&piece);
        }
        Ok((bytes, taken))
    };
    match timeout(BODY_WAIT, read).await {
        Ok(read) => read,
        Err(_) => Err(error(StatusCode::REQUEST_TIMEOUT, "request_timeout")),
    }
}

/// Takes as much of the memory as makes `bytes` in all. What is counted is what has come, not what is announced: whoever
/// sends slowly takes nothing from others.
async fn take<'a>(memory: &'a Semaphore, taken: &mut Taken<'a>, bytes: usize) -> Result<(), Response> {
    let has = taken.as_ref().map_or(0, SemaphorePermit::num_permits);
    let more = u32::try_from(bytes.saturating_sub(has)).unwrap_or(u32::MAX);
    if more == 0 {
        return Ok(());
    }
    // Bodies that wait for each other are let go by this time.
    let Ok(Ok(more)) = timeout(BODIES_HELD_WAIT, memory.acquire_many(more)).await else {
        tracing::warn!("no memory for a request: the bodies of others take it up");
        let mut answer = error(StatusCode::SERVICE_UNAVAILABLE, "no_memory");
        answer.headers_mut().insert(RETRY_AFTER, NO_MEMORY_RETRY_S.into());
        return Err(answer);
    };
    match taken {
        Some(taken) => taken.merge(more),
        None => *taken = Some(more),
    }
    Ok(())
}
