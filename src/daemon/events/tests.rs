//! The table of answers, and a spool that is flushed against a server of one answer a connection.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::clock::SystemClock;
use crate::store::spool::outbox::{EntryKind, NewEntry, State};

fn answer(status: u16, body: &str) -> Answer {
    Answer { status, retry_after: None, date: None, body: body.as_bytes().to_vec(), is_cut: false }
}

fn judged(answer: Answer) -> Verdict {
    judge(&Ok(answer), Wall(0))
}

#[test]
fn a_2xx_is_final_whatever_follows_it() {
    for (status, body, outcome) in [
        (202, r#"{"status":"queued","event_id":"evt_1"}"#, Outcome::Queued),
        (202, "", Outcome::Queued),
        (200, r#"{"status":"duplicate"}"#, Outcome::Duplicate),
        (200, "", Outcome::Duplicate),
        (200, r#"{"status":"queued"}"#, Outcome::Queued),
        (204, "<html>", Outcome::Queued),
    ] {
        let cut = Answer { is_cut: true, ..answer(status, body) };
        assert_eq!(judged(cut), Verdict::Done(outcome), "{status} {body}");
        assert_eq!(judged(answer(status, body)), Verdict::Done(outcome), "{status} {body}");
    }
}

#[test]
fn a_refusal_is_permanent_or_passing_by_its_status() {
    let kind = |status| match judged(answer(status, "")) {
        Verdict::Refused { kind, .. } => Some(kind),
        Verdict::Later { wait: None, .. } => None,
        other => panic!("{other:?}"),
    };
    for status in [400, 402, 405, 409, 413, 415, 422, 431] {
        assert_eq!(kind(status), Some(Refusal::Rule), "{status}");
    }
    for (status, expected) in
        [(401, Refusal::Denied), (403, Refusal::Denied), (404, Refusal::NoSource), (410, Refusal::NoSource)]
    {
        assert_eq!(kind(status), Some(expected), "{status}");
    }
    for status in [300, 301, 302, 304, 307, 308, 408, 425, 429, 500, 502, 503, 504, 599, 600, 999] {
        assert_eq!(kind(status), None, "{status}");
    }
    let cut = Answer { is_cut: true, ..answer(400, "") };
    assert!(matches!(judged(cut), Verdict::Later { .. }), "a cut answer is no answer");
    let cut = Answer { is_cut: true, retry_after: Some("30".to_owned()), ..answer(429, "") };
    assert!(
        matches!(judged(cut), Verdict::Later { wait: Some(wait), .. } if wait == Duration::from_secs(30)),
        "but its head is whole"
    );
}

#[test]
fn the_other_side_names_the_rule_and_the_wait() {
    let why = |verdict| match verdict {
        Verdict::Refused { why, .. } | Verdict::Later { why, .. } => why,
        other => panic!("{other:?}"),
    };
    let body = r#"{"error":"is missing","field":"content"}"#;
    assert_eq!(why(judged(answer(400, body))), "the answer was 400: content: is missing");
    let body = r#"{"error":"content is missing","field":"content"}"#;
    assert_eq!(why(judged(answer(400, body))), "the answer was 400: content is missing");
    assert_eq!(why(judged(answer(500, "{\"error\":7}"))), "the answer was 500");
    assert!(why(judged(answer(400, &format!(r#"{{"error":"{}"}}"#, "x".repeat(9000))))).len() < 400);
    let asked = |value: &str| {
        let busy = Answer { retry_after: Some(value.to_owned()), ..answer(429, "") };
        match judged(busy) {
            Verdict::Later { wait, .. } => wait.map(|wait| wait.as_secs()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([asked("120"), asked("999999"), asked("soon")], [Some(120), Some(3600), None]);
}

/// A server that gives one raw answer to each connection, the last one for ever.
fn serve(answers: &'static [&'static str]) -> (String, &'static AtomicUsize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dest = format!("http://{}/ingest/ci", listener.local_addr().unwrap());
    let served: &'static AtomicUsize = Box::leak(Box::default());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let n = served.fetch_add(1, Ordering::SeqCst);
            let mut request = Vec::new();
            let mut bytes = [0; 4096];
            while !request.ends_with(b"{}") {
                match stream.read(&mut bytes) {
                    Ok(read) if read > 0 => request.extend_from_slice(&bytes[..read]),
                    _ => break,
                }
            }
            let _ = stream.write_all(answers[n.min(answers.len() - 1)].as_bytes());
        }
    });
    (dest, served)
}

fn add(spool: &mut Spool, id: &str, dest: &str, secret: &Path, now: Wall) {
    let secret = SecretRef::File(secret.to_owned());
    let entry = NewEntry {
        id,
        kind: EntryKind::Event,
        dest,
        from: None,
        reply_to: None,
        event_key: Some("k"),
        body: b"{}",
        secret: Some(&secret),
    };
    spool.outbox().add(&entry, now).unwrap();
}

/// A pass over at most so many entries.
struct Most(AtomicUsize);

impl Watch for Most {
    fn next(&self) -> Option<Duration> {
        let one_less = |left: usize| left.checked_sub(1);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).ok()?;
        Some(Duration::from_secs(20))
    }
}

#[test]
fn a_pass_without_claims_tries_what_is_due_and_nobody_has() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "s3cret").unwrap();
    let (dest, served) = serve(&["HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"]);
    let clock = SystemClock::new();
    let now = clock.wall();
    let mut spool = Spool::open(dir.path()).unwrap();
    for n in 0..40 {
        add(&mut spool, &format!("e{n}"), &dest, &secret, now);
    }
    add(&mut spool, "later", &dest, &secret, now + Duration::from_secs(60));
    assert!(spool.outbox().claim("e7", Process::current(), now).unwrap().is_some());
    let mut flusher = Flusher::new(Poster::new(Duration::from_secs(20)));
    let watch = Most(AtomicUsize::new(30));
    let flushed = flusher.flush_unclaimed(&mut spool, &clock, &watch).unwrap();
    assert_eq!((flushed.sent, served.load(Ordering::SeqCst)), (30, 30));
    let watch = Most(AtomicUsize::new(99));
    let flushed = flusher.flush_unclaimed(&mut spool, &clock, &watch).unwrap();
    assert_eq!((flushed.sent, served.load(Ordering::SeqCst)), (9, 39));
}

#[test]
fn many_jobs_share_a_pass() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "s3cret").unwrap();
    let (dest, served) = serve(&["HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"]);
    let clock = SystemClock::new();
    let mut spool = Spool::open(dir.path()).unwrap();
    for n in 0..30 {
        add(&mut spool, &format!("e{n}"), &dest, &secret, clock.wall());
    }
    let watch: std::sync::Arc<dyn Watch + Send> = std::sync::Arc::new(Most(AtomicUsize::new(20)));
    let poster = Poster::new(Duration::from_secs(20));
    let jobs = flush_in_parallel(dir.path(), 4, &poster, &watch).unwrap();
    let passes: Vec<_> = jobs.iter().map(Result::unwrap).collect();
    assert_eq!((passes.len(), passes.iter().map(|pass| pass.sent).sum::<u64>()), (4, 20));
    assert_eq!((served.load(Ordering::SeqCst), spool.outbox().waiting(EntryKind::Event).unwrap()), (20, 10));
}

#[test]
fn what_is_due_is_tried_once_a_pass() {
    let dir = tempfile::tempdir().unwrap();
    let (secret, missing) = (dir.path().join("secret"), dir.path().join("missing"));
    std::fs::write(&secret, "s3cret\n").unwrap();
    let (dest, served) = serve(&[
        "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "garbage\r\n\r\n",
    ]);
    let clock = SystemClock::new();
    let now = clock.wall();
    let mut spool = Spool::open(dir.path()).unwrap();
    for id in ["a", "b", "c", "d"] {
        add(&mut spool, id, &dest, &secret, now);
    }
    add(&mut spool, "e", &dest, &missing, now);
    let old = Wall(now.0 - 4 * 86_400_000);
    add(&mut spool, "z", "http://127.0.0.1:1/ingest/ci", &secret, old);
    let mut flusher = Flusher::new(Poster::new(Duration::from_secs(20)));
    let flushed = flusher.flush_due(&mut spool, &clock, &Most(AtomicUsize::new(99))).unwrap();
    assert_eq!(flushed, Flushed { sent: 1, waiting: 3, dead: 2, unnoted: 0 });
    assert_eq!(served.load(Ordering::SeqCst), 4);
    let entry = |spool: &mut Spool, id| spool.outbox().get(id, clock.wall()).unwrap().unwrap();
    assert_eq!(entry(&mut spool, "a").outcome.as_deref(), Some("queued"));
    let (b, d) = (entry(&mut spool, "b"), entry(&mut spool, "d"));
    assert!(b.next_attempt_at < d.next_attempt_at, "the other side asked for less than the backoff");
    assert_eq!((b.state, b.attempts, d.state), (State::Pending, 1, State::Pending));
    assert_eq!(entry(&mut spool, "c").state, State::Dead);
    let e = entry(&mut spool, "e");
    assert!(e.state == State::Pending && e.error.unwrap().contains("missing"));
    assert!(entry(&mut spool, "z").error.unwrap().starts_with("given up after 3 days: "));
    std::fs::write(&missing, "s3cret").unwrap();
    assert_eq!(
        flusher.flush_due(&mut spool, &clock, &Most(AtomicUsize::new(0))).unwrap(),
        Flushed::default()
    );
}

#[test]
fn the_longest_wait_ends_an_entrys_part_in_a_pass_as_any_other_does() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "s3cret").unwrap();
    let (dest, served) =
        serve(&["HTTP/1.1 429 Slow\r\nRetry-After: 99999\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"]);
    let clock = SystemClock::new();
    let mut spool = Spool::open(dir.path()).unwrap();
    add(&mut spool, "a", &dest, &secret, clock.wall());
    let mut flusher = Flusher::new(Poster::new(Duration::from_secs(20)));
    let flushed = flusher.flush_due(&mut spool, &clock, &Most(AtomicUsize::new(9))).unwrap();
    assert_eq!((flushed.waiting, served.load(Ordering::SeqCst)), (1, 1), "it is not due for an hour");
    // The same for the end of the backoff, without a word from the other side.
    add(&mut spool, "b", "http://127.0.0.1:1/ingest/ci", &secret, clock.wall());
    for _ in 0..9 {
        let me = Process::current();
        assert!(spool.outbox().claim("b", me, clock.wall()).unwrap().is_some());
        assert!(spool.outbox().retry_later("b", me, Duration::ZERO, "no", clock.wall()).unwrap());
    }
    let flushed = flusher.flush_due(&mut spool, &clock, &Most(AtomicUsize::new(9))).unwrap();
    assert_eq!(flushed.waiting, 1);
}

#[test]
fn an_event_dies_of_age_by_a_clock_that_can_be_believed() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path()).unwrap();
    let poster = Poster::new(Duration::from_secs(1));
    let now = SystemClock::new().wall();
    add(&mut spool, "a", "http://127.0.0.1:1/ingest/ci", Path::new("/secret"), now);
    let entry = spool.outbox().get("a", now).unwrap().unwrap();
    let is_too_old =
        |created_at, attempts, now| poster.is_too_old(&Entry { created_at, attempts, ..entry.clone() }, now);
    let ttl = limits::EVENT_TTL;
    assert!(is_too_old(now - ttl, 1, now), "after three days");
    assert!(!is_too_old(now, 1, now + ttl + ttl), "not by a step of the clock");
    assert!(
        !is_too_old(now + ttl, 1, now) && is_too_old(now + ttl, limits::EVENT_ATTEMPTS, now),
        "but not never"
    );
}
