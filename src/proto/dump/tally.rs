//! What a dump holds in numbers: how many frames of what kind, and how long answers took.
//!
//! Memory is bounded whatever the dump holds: [`KINDS`] kinds of frames are told apart, [`WAITING`] questions wait for
//! their answers at a time, and times are kept in buckets (see `times`).

mod times;
mod waiting;

use std::collections::BTreeMap;

use serde::Serialize;

use super::line::{Kind, Line};
use super::record::{Proto, Way};
use crate::clock::Wall;
use crate::text;
use times::Times;
use waiting::Waiting;
pub use waiting::{NAMED, WAITING};

/// Kinds of frames that are counted apart; what comes after them is counted as [`OTHER`].
pub const KINDS: usize = 256;
/// The kind of all frames that are not counted apart.
pub const OTHER: &str = "(other)";
/// Most code points of a `t` that are kept.
const TAG_RUNES: usize = 64;

/// Frames of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Count {
    frames: u64,
    bytes: u64,
}

/// A question, its answer, and its refusal.
struct Pair {
    proto: Proto,
    asks: Way,
    question: &'static str,
    answer: &'static str,
    refusal: &'static str,
    id: &'static str,
}

const PAIRS: [Pair; 4] = [
    Pair {
        proto: Proto::Wire,
        asks: Way::Forth,
        question: "send",
        answer: "send_ack",
        refusal: "send_nak",
        id: "id",
    },
    Pair {
        proto: Proto::Wire,
        asks: Way::Back,
        question: "deliver",
        answer: "deliver_ack",
        refusal: "deliver_nak",
        id: "id",
    },
    Pair {
        proto: Proto::Wire,
        asks: Way::Forth,
        question: "rpc",
        answer: "rpc_result",
        refusal: "",
        id: "rid",
    },
    Pair {
        proto: Proto::Agent,
        asks: Way::Back,
        question: "deliver",
        answer: "deliver_ack",
        refusal: "deliver_nak",
        id: "id",
    },
];

/// Counts lines.
#[derive(Debug, Default)]
pub struct Tally {
    all: Count,
    notes: u64,
    kinds: BTreeMap<(String, String, String), Count>,
    first: Option<Wall>,
    last: Option<Wall>,
    times: [Times; PAIRS.len()],
    refused: [u64; PAIRS.len()],
    waiting: Waiting,
}

/// All numbers, as `--json` prints them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Frames.
    pub frames: u64,
    /// Bytes of their JSON.
    pub bytes: u64,
    /// Records of what is no frame.
    pub notes: u64,
    /// The earliest time of a record, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// The latest one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// Seconds between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Frames a second between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_per_second: Option<f64>,
    /// Frames by what they are.
    pub kinds: Vec<KindReport>,
    /// How long answers took.
    pub times: Vec<TimeReport>,
    /// Questions that were forgotten, because too many waited; their answers are in no number.
    #[serde(skip_serializing_if = "is_zero")]
    pub forgotten: u64,
}

/// Frames of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KindReport {
    /// The protocol; empty if that is not known.
    pub proto: String,
    /// The direction; empty if that is not known.
    pub dir: String,
    /// The `t`; empty if there is none.
    pub t: String,
    /// How many.
    pub frames: u64,
    /// Bytes of their JSON.
    pub bytes: u64,
}

/// How long one kind of answers took, by id. Percentiles are at most 1 % above what was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimeReport {
    /// The protocol.
    pub proto: &'static str,
    /// The `t` of the question.
    pub from: &'static str,
    /// The `t` of the answer.
    pub to: &'static str,
    /// Questions that were answered.
    pub answered: u64,
    /// Questions that were refused.
    pub refused: u64,
    /// The shortest time, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ms: Option<u64>,
    /// Half of the times are not longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// All but one of a hundred are not longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
    /// The longest time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
    /// Questions without an answer.
    pub unanswered: u64,
    /// The ids of the first [`NAMED`] of them, and their agents.
    pub waiting: Vec<String>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a line. One that `is_meant` is counted, and waits for its answer if it is a question; the answers to
    /// what waits are taken note of whether they are meant or not.
    pub fn take(&mut self, line: &Line<'_>, is_meant: bool) {
        let at = line.at().and_then(|at| at.text()).and_then(|text| Wall::parse(&text));
        if is_meant {
            self.count(line, at);
        }
        if line.kind() != Kind::Note {
            self.pair(line, at, is_meant);
        }
    }

    fn count(&mut self, line: &Line<'_>, at: Option<Wall>) {
        self.first = [self.first, at].into_iter().flatten().min();
        self.last = self.last.max(at);
        if line.kind() == Kind::Note {
            self.notes += 1;
            return;
        }
        let bytes = line.frame().json().len() as u64;
        let clipped = |text: &str| text::clip(text, TAG_RUNES).to_owned();
        let tag = line.tag().and_then(|tag| tag.text()).map(|tag| clipped(&tag)).unwrap_or_default();
        let ends = |text: Option<&str>| text.map(clipped).unwrap_or_default();
        let mut kind = (ends(line.proto()), ends(line.dir()), tag);
        if self.kinds.len() >= KINDS && !self.kinds.contains_key(&kind) {
            kind = (String::new(), String::new(), OTHER.to_owned());
        }
        for count in [&mut self.all, self.kinds.entry(kind).or_default()] {
            count.frames += 1;
            count.bytes += bytes;
        }
    }

    fn pair(&mut self, line: &Line<'_>, at: Option<Wall>, is_meant: bool) {
        let (Some(proto), Some(way), Some(tag)) = (line.known_proto(), line.way(), line.tag()) else {
            return;
        };
        let Some(tag) = tag.word() else { return };
        for (kind, pair) in PAIRS.iter().enumerate().filter(|(_, pair)| pair.proto == proto) {
            let is_question = pair.asks == way && pair.question == tag;
            let is_answer = pair.asks != way && (pair.answer == tag || pair.refusal == tag);
            if !is_question && !is_answer {
                continue;
            }
            let Some(id) = line.field(pair.id).and_then(|id| id.text()) else { return };
            let agent = line.field("agent").and_then(|agent| agent.text());
            if is_question && is_meant {
                self.waiting.asked(kind, &id, agent.as_deref(), at);
            } else if is_answer && let Some(since) = self.waiting.answered(kind, &id, agent.as_deref()) {
                if pair.refusal == tag {
                    self.refused[kind] += 1;
                } else {
                    self.times[kind].take(since.zip(at).map(|(since, at)| at.0.abs_diff(since.0.min(at.0))));
                }
            }
        }
    }

    /// All numbers.
    pub fn report(&self) -> Report {
        let seconds = self.first.zip(self.last).map(|(first, last)| (last.0 - first.0) as f64 / 1e3);
        let kinds = self.kinds.iter().map(|((proto, dir, t), count)| KindReport {
            proto: proto.clone(),
            dir: dir.clone(),
            t: t.clone(),
            frames: count.frames,
            bytes: count.bytes,
        });
        let times = PAIRS.iter().enumerate().map(|(kind, pair)| self.time(kind, pair));
        Report {
            frames: self.all.frames,
            bytes: self.all.bytes,
            notes: self.notes,
            first: self.first.map(|at| at.to_string()),
            last: self.last.map(|at| at.to_string()),
            seconds,
            frames_per_second: seconds
                .filter(|seconds| *seconds > 0.0)
                .map(|seconds| (self.all.frames as f64 / seconds * 100.0).round() / 100.0),
            kinds: kinds.collect(),
            times: times.filter(|time| time.answered + time.refused + time.unanswered > 0).collect(),
            forgotten: self.waiting.forgotten(),
        }
    }

    fn time(&self, kind: usize, pair: &Pair) -> TimeReport {
        let times = &self.times[kind];
        TimeReport {
            proto: pair.proto.name(),
            from: pair.question,
            to: pair.answer,
            answered: times.answered(),
            refused: self.refused[kind],
            min_ms: times.min(),
            p50_ms: times.percentile(50),
            p99_ms: times.percentile(99),
            max_ms: times.max(),
            unanswered: self.waiting.count(kind),
            waiting: self.waiting.names(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::dump::Reader;

    fn tally(lines: &[&str]) -> Report {
        let (mut tally, mut reader) = (Tally::new(), Reader::new());
        lines.iter().for_each(|line| tally.take(&reader.read(line).unwrap(), true));
        tally.report()
    }

    fn record(ms: u32, dir: &str, frame: &str) -> String {
        format!(
            r#"{{"at":"2026-01-01T00:00:{:02}.{:03}Z","proto":"transit-wire/1","dir":"{dir}","frame":{frame}}}"#,
            ms / 1000,
            ms % 1000
        )
    }

    #[test]
    fn frames_are_counted_by_kind_and_answers_are_timed_by_id_and_agent() {
        let lines = [
            record(0, "daemon>worker", r#"{"t":"send","id":"tx_1"}"#),
            record(0, "daemon>worker", r#"{"t":"send","id":"tx_2"}"#),
            record(30, "worker>daemon", r#"{"t":"send_ack","id":"tx_2"}"#),
            record(40, "worker>daemon", r#"{"t":"deliver","id":"tx_1","agent":"a","envelope":""}"#),
            record(40, "worker>daemon", r#"{"t":"deliver","id":"tx_1","agent":"b","envelope":""}"#),
            record(90, "daemon>worker", r#"{"t":"deliver_ack","id":"tx_1","agent":"b"}"#),
            record(
                2000,
                "daemon>worker",
                r#"{"t":"deliver_nak","id":"tx_1","agent":"a","code":"x","retryable":true}"#,
            ),
        ];
        let report = tally(&lines.each_ref().map(String::as_str));
        assert_eq!((report.frames, report.seconds, report.frames_per_second), (7, Some(2.0), Some(3.5)));
        let sends = &report.times[0];
        assert_eq!(
            (sends.answered, sends.min_ms, sends.p99_ms, sends.unanswered),
            (1, Some(30), Some(30), 1)
        );
        assert_eq!(sends.waiting, ["tx_1"]);
        let delivers = &report.times[1];
        assert_eq!((delivers.answered, delivers.refused, delivers.max_ms), (1, 1, Some(50)));
        assert_eq!(delivers.unanswered, 0);
        assert_eq!(report.kinds.len(), 5);
        assert_eq!(report.kinds.iter().map(|kind| kind.bytes).sum::<u64>(), report.bytes);
    }

    #[test]
    fn an_answer_without_an_agent_settles_the_oldest_question_of_its_id() {
        let lines = [
            record(0, "worker>daemon", r#"{"t":"deliver","id":"tx_1","agent":"a"}"#),
            record(1, "worker>daemon", r#"{"t":"deliver","id":"tx_1","agent":"b"}"#),
            record(9, "daemon>worker", r#"{"t":"deliver_ack","id":"tx_1"}"#),
        ];
        let report = tally(&lines.each_ref().map(String::as_str));
        assert_eq!(
            (report.times[0].max_ms, &report.times[0].waiting[..]),
            (Some(9), &["tx_1 b".to_owned()][..])
        );
    }

    #[test]
    fn kinds_that_peers_make_up_are_bounded() {
        let lines: Vec<String> = (0..1000).map(|n| format!(r#"{{"t":"made_up_{n}"}}"#)).collect();
        let report = tally(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((report.kinds.len(), report.frames), (KINDS + 1, 1000));
        assert_eq!(report.kinds.iter().find(|kind| kind.t == OTHER).unwrap().frames, 1000 - KINDS as u64);
    }
}
