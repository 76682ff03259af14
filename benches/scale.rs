//! `cargo bench --bench scale`: what a message costs, by how many are stored and by how many hosts there are.
//!
//! The ledger is filled with messages that were delivered, a thousand and up to a million; then two daemons exchange
//! some more. After that, in a ledger of its own, ten and up to two thousand hosts are connected, and each writes to the
//! next one. The Worker's CPU time and the wall's are divided by the messages. Filling takes most of the time:
//! `-- hosts` measures by the hosts alone, in less than a minute, and `-- stored` by what is stored.

#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use support::daemon::Daemon;
use support::server::{self, Server};
use support::{micros, verdict_at_most, work_dir};
use transit::clock::{Clock, SystemClock};
use transit::net::service::raise_descriptor_limit;
use transit::proto::wire::SendFrame;
use transit::store::ledger::messages::{self, Queue};
use transit::store::ledger::{Db, directory};

const STORED: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const HOSTS: [usize; 4] = [10, 100, 500, 2_000];
/// Messages of one measurement.
const MESSAGES: usize = 6_400;
/// How many of them are under way at once between two hosts; and among many, where it is one a host also when there
/// are ten, because messages that come together cost less.
const TOGETHER: usize = 64;
const APART: usize = 10;
/// Stored messages that share a commit.
const GROUP: usize = 10_000;
/// The last size beside the first.
const BUDGET: f64 = 1.5;

fn main() {
    raise_descriptor_limit();
    if let Some(server) = server::from_arguments() {
        return server::run(&server);
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |what: &str| words.is_empty() || words.iter().any(|word| word == what);
    let dir = work_dir();
    if is_wanted("stored") {
        verdict("a million stored messages beside a thousand", &by_stored(&dir.path().join("stored")));
    }
    if is_wanted("hosts") {
        let by_hosts = HOSTS.map(|hosts| by_hosts(&dir.path().join(format!("hosts-{hosts}")), hosts));
        verdict("2,000 hosts beside 10", &by_hosts);
    }
}

/// What one message costs.
#[derive(Clone, Copy)]
struct Cost {
    cpu: Duration,
    wall: Duration,
}

fn verdict(what: &str, costs: &[Cost; 4]) {
    let ratio = |of: fn(&Cost) -> Duration| of(&costs[3]).as_secs_f64() / of(&costs[0]).as_secs_f64();
    verdict_at_most(&format!("CPU of a message, {what}"), ratio(|cost| cost.cpu), BUDGET);
    verdict_at_most(&format!("time of a message, {what}"), ratio(|cost| cost.wall), BUDGET);
}

fn by_stored(dir: &Path) -> [Cost; 4] {
    std::fs::create_dir(dir).expect("a directory");
    let (mut stored, mut tokens) = (0, Vec::new());
    STORED.map(|count| {
        let start = Instant::now();
        let server = server::start(dir, 512, |db| {
            if tokens.is_empty() {
                tokens = server::tokens(db, 2);
            }
            while stored < count {
                let more = GROUP.min(count - stored);
                store(db, stored, more);
                stored += more;
            }
        });
        let filled = start.elapsed();
        let mut daemons: Vec<Daemon> =
            (0..2).map(|n| Daemon::greeted(server.address, n, &tokens[n])).collect();
        let cost = exchange(&server, &mut daemons, TOGETHER);
        println!("{count:>9} messages stored: {} (filled in {:.0} s)", said(cost), filled.as_secs_f64());
        std::fs::remove_file(dir.join("ready")).expect("it was ready");
        cost
    })
}

fn by_hosts(dir: &Path, hosts: usize) -> Cost {
    std::fs::create_dir(dir).expect("a directory");
    let mut tokens = Vec::new();
    let server = server::start(dir, 512, |db| tokens = server::tokens(db, hosts));
    let mut daemons: Vec<Daemon> =
        tokens.iter().enumerate().map(|(n, token)| Daemon::greeted(server.address, n, token)).collect();
    let cost = exchange(&server, &mut daemons, APART);
    println!("{hosts:>9} hosts connected: {}", said(cost));
    cost
}

fn said(cost: Cost) -> String {
    format!("{:.1} us of CPU and {:.1} us of time a message", micros(cost.cpu), micros(cost.wall))
}

/// Every daemon writes to the next one, in turn.
fn exchange(server: &Server, daemons: &mut [Daemon], at_once: usize) -> Cost {
    let body = "x".repeat(1024);
    let hosts = daemons.len();
    let mut turn = 0;
    let mut windows = |count: usize| {
        for _ in 0..count {
            let senders = (turn..turn + at_once).map(|n| n % hosts);
            turn += at_once;
            for from in senders.clone() {
                daemons[from].send(&format!("a@h{}", (from + 1) % hosts), &body);
            }
            for from in senders {
                daemons[from].until("send_ack");
                let to = &mut daemons[(from + 1) % hosts];
                let frame = to.until("deliver");
                to.ack(&frame);
            }
        }
    };
    // Once around, so that everybody has written before.
    windows((hosts / at_once + 1).max(20));
    let (cpu, start) = (server.cpu(), Instant::now());
    windows(MESSAGES / at_once);
    let each = |time: Duration| time / u32::try_from(MESSAGES).expect("a number of messages");
    Cost { cpu: each(server.cpu() - cpu), wall: each(start.elapsed()) }
}

/// Stores messages that were delivered: from agents of `h0` to agents of `h1`, a hundred of each.
fn store(db: &Db, from: usize, count: usize) {
    let now = SystemClock::new().wall();
    db.write(move |tx| {
        let org_id = directory::default_org(tx)?.id;
        for n in from..from + count {
            let queue = Queue { org_id: org_id.clone(), host: "h1".into(), agent: format!("b{}", n % 100) };
            if n < 100 {
                let agent = transit::proto::wire::AgentInfo {
                    name: queue.agent.clone(),
                    kind: "bench".into(),
                    pane_id: "p".into(),
                    status: "idle".into(),
                    cwd: "/".into(),
                    title: String::new(),
                    named_by: transit::proto::wire::NamedBy::User,
                };
                transit::store::ledger::roster::replace(tx, &org_id, "h1", &[agent], now)?;
            }
            // Spread as random ids are, and each once.
            let id = (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
            let frame = SendFrame {
                id: format!("tx_{id:012x}"),
                from: format!("a{}@h0", n / 100 % 100),
                to: format!("{}@h1", queue.agent),
                body: "x".repeat(200),
                reply_to: None,
                ts: "2026-01-01T00:00:00Z".into(),
            };
            messages::take(tx, &queue, "h0", &frame, true, now)?;
            messages::arrived(
                tx,
                &org_id,
                "h1",
                &frame.id,
                Some(&queue.agent),
                messages::Arrival::Injected,
                now,
            )?;
        }
        Ok(())
    })
    .expect("stored messages");
}
