//! The page that Prometheus reads (its text format, version 0.0.4).

use std::fmt::{Display, Write};

use super::Metrics;
use crate::store::ledger::Work;
use crate::store::ledger::depths::Depths;
use crate::store::tally::{Counter, Spread};

/// What is known elsewhere and belongs on the page.
pub(in super::super) struct Now<'a> {
    /// What waits; `None` when the ledger could not be asked.
    pub(in super::super) depths: Option<Depths>,
    /// What the ledger's writer does.
    pub(in super::super) work: &'a Work,
    /// Hosts whose hello was good.
    pub(in super::super) hosts: usize,
    /// Sockets of daemons, with a hello or without.
    pub(in super::super) sockets: usize,
    /// Connections that may be open at once.
    pub(in super::super) connections_max: u64,
    /// Whether [`readiness`](super::super::probes) has nothing against it.
    pub(in super::super) is_ready: bool,
}

/// All numbers as a page.
pub(in super::super) fn page(metrics: &Metrics, now: &Now<'_>) -> String {
    let mut page = Page(String::with_capacity(16 * 1024));
    process(&mut page, metrics, now);
    connections(&mut page, metrics, now);
    queues(&mut page, now.depths);
    messages(&mut page, metrics);
    events(&mut page, metrics);
    ledger(&mut page, now.work);
    page.0
}

fn process(page: &mut Page, metrics: &Metrics, now: &Now<'_>) {
    let version = env!("CARGO_PKG_VERSION");
    page.gauge("build_info", "Which version runs; always 1.", &[(&[("version", version)], 1)]);
    let started = metrics.started_at.0.div_euclid(1000);
    page.gauge("start_time_seconds", "When it started, in Unix seconds.", &[(&[], started)]);
    let ready = u64::from(now.is_ready);
    page.gauge("ready", "Whether /readyz would say 200.", &[(&[], ready)]);
}

fn connections(page: &mut Page, metrics: &Metrics, now: &Now<'_>) {
    page.gauge("hosts_connected", "Hosts whose daemon is linked.", &[(&[], now.hosts)]);
    page.gauge("sockets", "WebSockets of daemons, linked or not yet.", &[(&[], now.sockets)]);
    let open = metrics.connections.get();
    page.gauge("connections", "Connections that are open, of any kind.", &[(&[], open)]);
    let most = now.connections_max;
    page.gauge("connections_max", "Connections that may be open at once.", &[(&[], most)]);
    page.words(
        "refused_connections_total",
        "Connections that were turned away.",
        "why",
        metrics.refused.read(),
    );
    page.words(
        "closed_sockets_total",
        "WebSockets that ended, by close code.",
        "code",
        metrics.closes.read(),
    );
    let [came, went] = [&metrics.frames_in, &metrics.frames_out];
    let directions = |[came, went]: [&Counter; 2]| [("in", came.get()), ("out", went.get())].into_iter();
    let frames = directions([&came.count, &went.count]);
    page.words("frames_total", "Frames of transit-wire/1.", "direction", frames);
    let bytes = directions([&came.bytes, &went.bytes]);
    page.words("frame_bytes_total", "Bytes of those frames.", "direction", bytes);
}

fn queues(page: &mut Page, depths: Option<Depths>) {
    let Some(depths) = depths else { return };
    page.words_of(
        "gauge",
        "messages_waiting",
        "Messages that wait for a recipient; held are those of them that were refused or not answered.",
        "state",
        [("queued", depths.queued), ("held", depths.held)].into_iter(),
    );
    page.words_of(
        "gauge",
        "deliveries_waiting",
        "Deliveries of events that are not settled.",
        "state",
        [("pending", depths.pending), ("dispatched", depths.dispatched), ("read", depths.read)].into_iter(),
    );
    page.gauge("replies_waiting", "Replies that are to be posted.", &[(&[], depths.replies)]);
}

fn messages(page: &mut Page, metrics: &Metrics) {
    let help = "From a send frame to its send_ack.";
    page.times("send_ack_seconds", help, &metrics.send_ack.read());
    let help = "From a deliver frame to its deliver_ack.";
    page.times("deliver_ack_seconds", help, &metrics.deliver_ack.read());
    page.head("naks_total", "Refusals, by code: of messages (sent) and of deliveries (received).", "counter");
    for (direction, naks) in [("sent", &metrics.naks_sent), ("received", &metrics.naks_received)] {
        for (code, count) in naks.read() {
            page.sample("naks_total", &[("direction", direction), ("code", code)], count);
        }
    }
    page.head("rpcs_total", "Calls of agents, by method and code.", "counter");
    for (method, code, count) in metrics.calls() {
        page.sample("rpcs_total", &[("method", method), ("code", code)], count);
    }
}

fn events(page: &mut Page, metrics: &Metrics) {
    page.words("ingest_total", "Events that were posted, by the answer.", "status", metrics.ingest.read());
    page.times("ingest_seconds", "From the head of a request to its answer.", &metrics.ingest_times.read());
    page.words("callbacks_total", "Attempts to post a reply.", "outcome", metrics.callbacks.read());
}

fn ledger(page: &mut Page, work: &Work) {
    let help = "Changes of the ledger that share a commit.";
    page.spread("commit_changes", help, &work.sizes.read(), |size| size.to_string());
    page.times("commit_seconds", "How long a commit takes.", &work.times.read());
    let failures = work.failures.get();
    page.words_of(
        "counter",
        "commit_failures_total",
        "Commits that failed; whoever waited for one was told.",
        "",
        [("", failures)].into_iter(),
    );
}

struct Page(String);

/// Prefix of every name.
const PREFIX: &str = "transit_worker_";

impl Page {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP {PREFIX}{name} {help}"));
        self.line(format_args!("# TYPE {PREFIX}{name} {kind}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.0.write_fmt(line);
        self.0.push('\n');
    }

    /// One value. Labels are words of ours; none needs an escape.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels
            .iter()
            .filter(|(label, _)| !label.is_empty())
            .map(|(label, word)| format!("{label}=\"{word}\""))
            .collect();
        match labels.is_empty() {
            true => self.line(format_args!("{PREFIX}{name} {value}")),
            false => self.line(format_args!("{PREFIX}{name}{{{}}} {value}", labels.join(","))),
        }
    }

    fn gauge<V: Display>(&mut self, name: &str, help: &str, samples: &[(&[(&str, &str)], V)]) {
        self.head(name, help, "gauge");
        for (labels, value) in samples {
            self.sample(name, labels, value);
        }
    }

    fn words<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        samples: impl Iterator<Item = (&'a str, u64)>,
    ) {
        self.words_of("counter", name, help, label, samples);
    }

    fn words_of<'a>(
        &mut self,
        kind: &str,
        name: &str,
        help: &str,
        label: &str,
        samples: impl Iterator<Item = (&'a str, u64)>,
    ) {
        self.head(name, help, kind);
        for (word, value) in samples {
            self.sample(name, &[(label, word)], value);
        }
    }

    /// A histogram of microseconds, told in seconds.
    fn times(&mut self, name: &str, help: &str, spread: &Spread) {
        self.spread(name, help, spread, |micros| (Micros(micros)).to_string());
    }

    fn spread(&mut self, name: &str, help: &str, spread: &Spread, shown: impl Fn(u64) -> String) {
        self.head(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        for &(end, count) in &spread.ends {
            self.sample(&bucket, &[("le", &shown(end))], count);
        }
        self.sample(&bucket, &[("le", "+Inf")], spread.count);
        self.sample(&format!("{name}_sum"), &[], shown(spread.sum));
        self.sample(&format!("{name}_count"), &[], spread.count);
    }
}

/// Microseconds as seconds, exactly, and without zeros at the end.
struct Micros(u64);

impl Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{rest:06}").trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;
    use crate::clock::Wall;
    use crate::store::ledger::Db;

    fn shown(metrics: &Metrics) -> String {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(&dir.path().join("worker.db")).unwrap();
        let depths = Some(Depths { queued: 3, held: 1, ..Depths::default() });
        let now = Now { depths, work: db.work(), hosts: 2, sockets: 3, connections_max: 9, is_ready: true };
        page(metrics, &now)
    }

    #[test]
    fn seconds_are_exact() {
        let shown = [500, 1_000, 250_000, 1_000_000, 2_500_000, 0].map(|micros| Micros(micros).to_string());
        assert_eq!(shown, ["0.0005", "0.001", "0.25", "1", "2.5", "0"]);
    }

    #[test]
    fn a_page_has_what_was_counted() {
        let metrics = Metrics::new(Wall(1_700_000_000_000));
        metrics.sent(Duration::from_millis(2), None);
        metrics.sent(Duration::from_millis(2), Some("no_route"));
        metrics.frames_in.one(100);
        metrics.called("read_message", None);
        let page = shown(&metrics);
        for line in [
            "transit_worker_start_time_seconds 1700000000",
            "transit_worker_ready 1",
            "transit_worker_messages_waiting{state=\"queued\"} 3",
            "transit_worker_send_ack_seconds_bucket{le=\"0.001\"} 0",
            "transit_worker_send_ack_seconds_bucket{le=\"0.0025\"} 1",
            "transit_worker_send_ack_seconds_bucket{le=\"+Inf\"} 1",
            "transit_worker_send_ack_seconds_sum 0.002",
            "transit_worker_send_ack_seconds_count 1",
            "transit_worker_naks_total{direction=\"sent\",code=\"no_route\"} 1",
            "transit_worker_frame_bytes_total{direction=\"in\"} 100",
            "transit_worker_rpcs_total{method=\"read_message\",code=\"ok\"} 1",
            "transit_worker_commit_failures_total 0",
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn every_sample_stands_below_its_own_head_and_once() {
        let page = shown(&Metrics::new(Wall(0)));
        let (mut heads, mut samples, mut head) = (HashSet::new(), HashSet::new(), "");
        for line in page.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                head = help.split(' ').next().unwrap();
                assert!(heads.insert(head), "{head} has two heads");
            } else if !line.starts_with('#') {
                assert!(line.starts_with(head), "{line} stands below {head}");
                let (sample, value) = line.rsplit_once(' ').unwrap();
                assert!(samples.insert(sample), "{sample} is told twice");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(heads.len() > 15 && page.ends_with('\n'));
        let guide = include_str!("../../../docs/operating.md");
        for head in heads {
            let name = head.strip_prefix(PREFIX).unwrap();
            let is_told = [format!("`{name}`"), format!("`{name}{{")].iter().any(|told| guide.contains(told));
            assert!(is_told, "docs/operating.md does not tell of {name}");
        }
    }
}
