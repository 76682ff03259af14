//! What a watcher is told: counts of what a Worker does, kept as numbers and turned into text only when asked.
//!
//! A label is one of a list that stands here. What a peer says is never one: it would let a peer grow the list, and
//! write into the page.

mod page;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::rpc::METHODS;
use crate::clock::{Mono, Wall};
use crate::store::tally::{Counter, Histogram};
pub(super) use page::{Now, page};

/// Microseconds from a frame to its answer.
const LATENCIES: [u64; 16] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

const OTHER: &str = "other";

/// Codes of `send_nak`.
const NAKS_SENT: [&str; 7] =
    ["no_route", "not_member", "body_too_large", "reserved_name", "rate_limited", "plan_limit", OTHER];
/// Codes of `deliver_nak` that daemons and adapters are known to say.
const NAKS_RECEIVED: [&str; 19] = [
    "adapter_ack_invalid",
    "adapter_rejected",
    "adapter_timeout",
    "adapter_unavailable",
    "agent_not_found",
    "agent_stopped",
    "behind_another",
    "command_killed",
    "command_lost",
    "command_not_started",
    "command_refused",
    "command_timeout",
    "command_try_later",
    "delivery_canceled",
    "draft_busy",
    "frame_too_large",
    "history_write_failed",
    "paused",
    OTHER,
];
/// Statuses of `POST /ingest/{source}`.
const STATUSES: [&str; 11] = ["200", "202", "400", "401", "404", "408", "413", "429", "500", "503", OTHER];
/// How a connection of a daemon ended: the close code, or that it broke.
const CLOSES: [&str; 13] =
    ["1001", "1002", "1003", "1007", "1009", "1013", "4000", "4001", "4002", "4003", "4008", "broken", OTHER];
/// What came of posting a reply.
const CALLBACKS: [&str; 5] = [POSTED, NOT_PERMITTED, ANSWERED_ERROR, UNREACHABLE, OTHER];
pub(super) const POSTED: &str = "posted";
pub(super) const NOT_PERMITTED: &str = "not_permitted";
pub(super) const ANSWERED_ERROR: &str = "answered_error";
pub(super) const UNREACHABLE: &str = "unreachable";
/// What an `rpc` was answered with.
const CODES: [&str; 17] = [
    "ok",
    "unknown_method",
    "bad_params",
    "not_found",
    "not_owner",
    "conversation_mismatch",
    "one_way",
    "already_handled",
    "room_exists",
    "room_not_found",
    "invite_only",
    "room_full",
    "not_connected",
    "invalid_caller",
    "too_many",
    "rpc_error",
    OTHER,
];
/// Why a connection was not served.
const REFUSALS: [&str; 3] = [CONNECTIONS, SOCKETS_OF_HOST, OTHER];
pub(super) const CONNECTIONS: &str = "connections";
pub(super) const SOCKETS_OF_HOST: &str = "sockets_of_host";

/// Counts by a word of a list, whose last word stands for all others.
pub(super) struct Family {
    words: &'static [&'static str],
    counts: Box<[Counter]>,
}

impl Family {
    fn new(words: &'static [&'static str]) -> Self {
        Self { words, counts: words.iter().map(|_| Counter::default()).collect() }
    }

    /// Once more of this.
    pub(super) fn one(&self, word: &str) {
        self.counts[place(self.words, word)].one();
    }

    fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.words.iter().zip(&self.counts).map(|(word, count)| (*word, count.get()))
    }
}

fn place(words: &[&str], word: &str) -> usize {
    words.iter().position(|known| *known == word).unwrap_or(words.len() - 1)
}

/// How many there are now.
#[derive(Default)]
pub(super) struct Gauge(AtomicU64);

impl Gauge {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// One more, until what comes back is let go; `None` when there are `most` already.
    pub(super) fn enter(self: &std::sync::Arc<Self>, most: u64) -> Option<Inside> {
        let inside = Inside(self.clone());
        // Counted before it is looked at, so that two that come at once are not both the last one.
        (self.0.fetch_add(1, Ordering::Relaxed) < most).then_some(inside)
    }
}

/// One of those that a [`Gauge`] counts.
pub(super) struct Inside(std::sync::Arc<Gauge>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Frames of one direction.
#[derive(Default)]
pub(super) struct Frames {
    count: Counter,
    bytes: Counter,
}

impl Frames {
    pub(super) fn one(&self, bytes: usize) {
        self.count.one();
        self.bytes.add(bytes as u64);
    }
}

/// All of it.
pub(super) struct Metrics {
    started_at: Wall,
    /// Connections of any kind.
    pub(super) connections: std::sync::Arc<Gauge>,
    pub(super) refused: Family,
    pub(super) frames_in: Frames,
    pub(super) frames_out: Frames,
    send_ack: Histogram,
    deliver_ack: Histogram,
    naks_sent: Family,
    naks_received: Family,
    pub(super) closes: Family,
    ingest: Family,
    ingest_times: Histogram,
    pub(super) callbacks: Family,
    /// By method, the last for all others, and then by code.
    rpcs: Box<[Counter]>,
}

impl Metrics {
    pub(super) fn new(now: Wall) -> Self {
        Self {
            started_at: now,
            connections: Default::default(),
            refused: Family::new(&REFUSALS),
            frames_in: Frames::default(),
            frames_out: Frames::default(),
            send_ack: Histogram::new(&LATENCIES),
            deliver_ack: Histogram::new(&LATENCIES),
            naks_sent: Family::new(&NAKS_SENT),
            naks_received: Family::new(&NAKS_RECEIVED),
            closes: Family::new(&CLOSES),
            ingest: Family::new(&STATUSES),
            ingest_times: Histogram::new(&LATENCIES),
            callbacks: Family::new(&CALLBACKS),
            rpcs: (0..=METHODS.len()).flat_map(|_| CODES).map(|_| Counter::default()).collect(),
        }
    }

    /// A message was acknowledged, or refused with a code, so long after it came.
    pub(super) fn sent(&self, took: Duration, nak: Option<&str>) {
        match nak {
            None => self.send_ack.add_time(took),
            Some(code) => self.naks_sent.one(code),
        }
    }

    /// A daemon acknowledged what it was sent so long ago.
    pub(super) fn deliver_acked(&self, took: Duration) {
        self.deliver_ack.add_time(took);
    }

    /// A daemon refused what it was sent.
    pub(super) fn deliver_nacked(&self, code: &str) {
        self.naks_received.one(code);
    }

    /// A request of ingest was answered.
    pub(super) fn ingested(&self, status: u16, took: Duration) {
        let mut digits = [0; 3];
        for (digit, part) in digits.iter_mut().zip([status / 100, status / 10, status]) {
            *digit = b'0' + u8::try_from(part % 10).unwrap_or_default();
        }
        self.ingest.one(std::str::from_utf8(&digits).unwrap_or(OTHER));
        self.ingest_times.add_time(took);
    }

    /// A call was answered with a code, or with a result.
    pub(super) fn called(&self, method: &str, code: Option<&str>) {
        let method = METHODS.iter().position(|known| *known == method).unwrap_or(METHODS.len());
        self.rpcs[method * CODES.len() + place(&CODES, code.unwrap_or("ok"))].one();
    }

    /// The calls that there were, by method and code.
    fn calls(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let methods = METHODS.iter().chain([&OTHER]).flat_map(|method| CODES.map(|code| (*method, code)));
        let calls = methods.zip(&self.rpcs).map(|((method, code), count)| (method, code, count.get()));
        calls.filter(|(_, _, count)| *count > 0)
    }
}

/// Messages of one socket that wait for their answer: when each came. Ids are kept as hashes; two of the same cost a
/// figure, nothing else.
#[derive(Default)]
pub(super) struct Unanswered {
    since: std::collections::HashMap<u64, Mono>,
    /// How many are to be answered.
    count: usize,
}

impl Unanswered {
    pub(super) fn came(&mut self, id: &str, now: Mono) {
        self.count += 1;
        self.since.insert(hash(id), now);
    }

    /// How long the answer took, as far as it is known.
    pub(super) fn answered(&mut self, id: &str, now: Mono) -> Duration {
        self.count = self.count.saturating_sub(1);
        self.since.remove(&hash(id)).map_or(Duration::ZERO, |since| now.since(since))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

fn hash(id: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_on_a_list_counts_as_other() {
        let metrics = Metrics::new(Wall(0));
        metrics.deliver_nacked("draft_busy");
        metrics.deliver_nacked("a\"} 1\nforged 2");
        metrics.called("chat_reply", None);
        metrics.called("x", Some("y"));
        let naks: Vec<_> = metrics.naks_received.read().filter(|(_, count)| *count > 0).collect();
        assert_eq!(naks, [("draft_busy", 1), (OTHER, 1)]);
        let calls: Vec<_> = metrics.calls().collect();
        assert_eq!(calls, [("chat_reply", "ok", 1), (OTHER, OTHER, 1)]);
        metrics.ingested(202, Duration::ZERO);
        metrics.ingested(418, Duration::ZERO);
        let statuses: Vec<_> = metrics.ingest.read().filter(|(_, count)| *count > 0).collect();
        assert_eq!(statuses, [("202", 1), (OTHER, 1)]);
    }

    #[test]
    fn a_gauge_lets_in_as_many_as_it_may_and_forgets_those_that_left() {
        let gauge = std::sync::Arc::new(Gauge::default());
        let first = gauge.enter(2).unwrap();
        let second = gauge.enter(2).unwrap();
        assert!(gauge.enter(2).is_none());
        assert_eq!(gauge.get(), 2, "who was not let in is not there");
        drop(first);
        assert!(gauge.enter(2).is_some());
        drop(second);
        assert_eq!(gauge.get(), 0);
    }

    #[test]
    fn an_answer_is_timed_from_when_its_message_came() {
        let at = |seconds| Mono(Duration::from_secs(seconds));
        let mut waiting = Unanswered::default();
        waiting.came("tx_1", at(1));
        waiting.came("tx_1", at(2));
        assert_eq!(waiting.answered("tx_1", at(5)), Duration::from_secs(3));
        assert!(!waiting.is_empty());
        assert_eq!(waiting.answered("tx_1", at(6)), Duration::ZERO);
        assert!(waiting.is_empty());
    }
}
