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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use axum::body::Bytes;
    use futures_util::{FutureExt, stream};
    use tokio::sync::mpsc;

    use super::*;

    const KIB: usize = 1024;

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
    }

    fn of(bytes: usize) -> Body {
        Body::from(vec![b'x'; bytes])
    }

    /// A body that comes in pieces, and who sends them.
    fn piecewise() -> (mpsc::UnboundedSender<usize>, Body) {
        let (send, pieces) = mpsc::unbounded_channel();
        let stream = stream::unfold(pieces, |mut pieces| async move {
            let bytes: usize = pieces.recv().await?;
            Some((Ok::<_, Infallible>(Bytes::from(vec![b'x'; bytes])), pieces))
        });
        (send, Body::from_stream(stream))
    }

    #[test]
    fn the_first_bytes_are_free_and_the_rest_is_given_back() {
        run(async {
            let memory = Semaphore::new(8 * KIB);
            let (bytes, small) = read_body(&memory, of(BODY_FREE), KIB * KIB).await.unwrap();
            assert_eq!(
                (bytes.len(), small.is_none(), memory.available_permits()),
                (BODY_FREE, true, 8 * KIB)
            );
            let (_, large) = read_body(&memory, of(BODY_FREE + 6 * KIB), KIB * KIB).await.unwrap();
            assert_eq!(memory.available_permits(), 2 * KIB);
            drop(large);
            assert_eq!(memory.available_permits(), 8 * KIB);
        });
    }

    #[test]
    fn what_is_announced_takes_nothing_and_what_has_come_makes_others_wait() {
        run(async {
            let memory = Semaphore::new(8 * KIB);
            let (send, body) = piecewise();
            let mut slow = Box::pin(read_body(&memory, body, KIB * KIB));
            assert!((&mut slow).now_or_never().is_none());
            assert_eq!(memory.available_permits(), 8 * KIB);
            send.send(BODY_FREE + 5 * KIB).unwrap();
            assert!((&mut slow).now_or_never().is_none());
            assert_eq!(memory.available_permits(), 3 * KIB);
            let mut other = Box::pin(read_body(&memory, of(BODY_FREE + 4 * KIB), KIB * KIB));
            assert!((&mut other).now_or_never().is_none(), "there is not enough for both");
            let (bytes, _) = read_body(&memory, of(KIB), KIB * KIB).await.unwrap();
            assert_eq!(bytes.len(), KIB, "a usual one passes all the same");
            drop(slow);
            let (bytes, _taken) = other.await.unwrap();
            assert_eq!(bytes.len(), BODY_FREE + 4 * KIB);
        });
    }

    #[test]
    fn who_has_waited_in_vain_is_asked_to_come_again() {
        run(async {
            let memory = Semaphore::new(0);
            memory.close();
            let refused = read_body(&memory, of(BODY_FREE + 1), KIB * KIB).await.unwrap_err();
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(refused.headers()[RETRY_AFTER], "2");
            let refused = read_body(&memory, of(KIB + 1), KIB).await.unwrap_err();
            assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
            assert!(BODIES_HELD_WAIT < BODY_WAIT && BODIES_HELD_WAIT > Duration::ZERO);
        });
    }
}
