//! The states of an entry, with real processes that die.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use proptest::prelude::*;

use super::*;
use crate::store::process;

fn event<'a>(id: &'a str, body: &'a [u8]) -> NewEntry<'a> {
    NewEntry {
        id,
        kind: EntryKind::Event,
        dest: "http://127.0.0.1:9/ingest/ci",
        from: None,
        reply_to: None,
        event_key: Some("k"),
        body,
        secret: None,
    }
}

fn at(seconds: i64) -> Wall {
    Wall(1_700_000_000_000 + seconds * 1000)
}

fn ids(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.id.as_str()).collect()
}

/// A process that does nothing until it is told to, or killed.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn process(&self) -> Process {
        Process { pid: self.0.id(), start_time: process::start_time(self.0.id()).unwrap() }
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn an_entry_comes_back_as_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let secret = SecretRef::File("/tmp/a secret \u{e9}".into());
    let given = NewEntry { secret: Some(&secret), ..event("evt_1", b"\0\xff{}") };
    let mut spool = Spool::open(dir.path()).unwrap();
    assert_eq!(spool.outbox().add(&given, at(0)).unwrap(), Added::New);
    assert_eq!(spool.outbox().add(&given, at(9)).unwrap(), Added::Known(State::Pending));
    drop(spool);
    let mut spool = Spool::open(dir.path()).unwrap();
    let entry = spool.outbox().get("evt_1", at(1)).unwrap().unwrap();
    assert_eq!((entry.body.as_slice(), &entry.secret), (&b"\0\xff{}"[..], &Some(secret)));
    assert_eq!((entry.kind, entry.state, entry.attempts), (EntryKind::Event, State::Pending, 0));
    assert_eq!((entry.created_at, entry.next_attempt_at), (at(0), at(0)));
    assert_eq!(spool.outbox().get("evt_2", at(1)).unwrap(), None);
}

#[test]
fn the_longest_due_comes_first_and_of_those_the_first_added() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path()).unwrap();
    let mut outbox = spool.outbox();
    let me = Process::current();
    for id in ["b", "a", "c"] {
        outbox.add(&event(id, b""), at(0)).unwrap();
    }
    outbox.add(&NewEntry { kind: EntryKind::Message, ..event("m", b"") }, at(0)).unwrap();
    let claimed = outbox.claim_due(EntryKind::Event, me, at(0), at(0), 2).unwrap();
    assert_eq!(ids(&claimed), ["b", "a"]);
    assert!(outbox.retry_later("b", me, Duration::from_secs(20), "no answer", at(0)).unwrap());
    assert!(outbox.retry_later("a", me, Duration::from_secs(10), "no answer", at(0)).unwrap());
    assert!(!outbox.retry_later("a", me, Duration::from_secs(10), "again", at(0)).unwrap());
    assert_eq!(ids(&outbox.claim_due(EntryKind::Event, me, at(9), at(9), 9).unwrap()), ["c"]);
    assert_eq!(outbox.next_due(EntryKind::Event, at(9)).unwrap(), Some(at(10)));
    assert_eq!(ids(&outbox.claim_due(EntryKind::Event, me, at(20), at(20), 9).unwrap()), ["a", "b"]);
    assert_eq!(outbox.next_due(EntryKind::Event, at(20)).unwrap(), None);
    assert_eq!(outbox.next_due(EntryKind::Message, at(20)).unwrap(), Some(at(0)));
}

#[test]
fn a_claim_is_one_process_s_and_lapses_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path()).unwrap();
    let mut outbox = spool.outbox();
    let sleeper = Sleeper::start();
    let (it, me) = (sleeper.process(), Process::current());
    let added = outbox.add_claimed(&event("evt_1", b""), it, at(0)).unwrap();
    assert_eq!(added, outbox.get("evt_1", at(0)).unwrap());
    assert_eq!(outbox.add_claimed(&event("evt_1", b""), me, at(0)).unwrap(), None);
    assert_eq!(outbox.claim("evt_1", me, at(1)).unwrap(), None, "it runs");
    assert!(!outbox.retry_later("evt_1", me, Duration::ZERO, "", at(1)).unwrap(), "it is not ours");
    assert_eq!(outbox.next_due(EntryKind::Event, at(1)).unwrap(), None);
    sleeper.kill();
    assert_eq!(outbox.get("evt_1", at(1)).unwrap().unwrap().state, State::Pending);
    assert_eq!(outbox.next_due(EntryKind::Event, at(1)).unwrap(), Some(at(1)));
    let entry = outbox.claim("evt_1", me, at(1)).unwrap().unwrap();
    assert_eq!((entry.state, entry.attempts, entry.next_attempt_at), (State::Claimed, 0, at(0)));
    assert_eq!(outbox.claim("evt_1", me, at(1)).unwrap(), None, "our own claim is not free either");
    outbox.release("evt_1", me).unwrap();
    let entry = outbox.get("evt_1", at(1)).unwrap().unwrap();
    assert_eq!((entry.state, entry.attempts, entry.next_attempt_at), (State::Pending, 0, at(0)));
}

#[test]
fn what_is_sent_is_final_and_what_is_dead_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path()).unwrap();
    let mut outbox = spool.outbox();
    let me = Process::current();
    outbox.add_claimed(&event("evt_1", b""), me, at(0)).unwrap();
    outbox.sent("evt_1", "queued", at(1)).unwrap();
    outbox.dead("evt_1", "too late", at(2)).unwrap();
    let entry = outbox.get("evt_1", at(2)).unwrap().unwrap();
    assert_eq!((entry.state, entry.attempts, entry.outcome.as_deref()), (State::Sent, 1, Some("queued")));
    outbox.add_claimed(&event("evt_2", b""), me, at(0)).unwrap();
    outbox.dead("evt_2", "400: content is missing", at(1)).unwrap();
    let entry = outbox.get("evt_2", at(2)).unwrap().unwrap();
    assert_eq!((entry.state, entry.error.as_deref()), (State::Dead, Some("400: content is missing")));
    assert_eq!(outbox.claim("evt_2", me, at(3)).unwrap(), None);
    outbox.add(&event("evt_3", b""), at(0)).unwrap();
    assert_eq!(outbox.counts().unwrap(), Counts { pending: 1, sent: 1, dead: 1 });
    assert_eq!(outbox.forget_sent(at(1)).unwrap(), 0);
    assert_eq!(outbox.forget_sent(at(2)).unwrap(), 1);
    assert_eq!(outbox.counts().unwrap(), Counts { pending: 1, sent: 0, dead: 1 });
}

#[test]
fn a_time_from_a_wrong_clock_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path()).unwrap();
    let mut outbox = spool.outbox();
    let me = Process::current();
    outbox.add_claimed(&event("evt_1", b""), me, at(7200)).unwrap();
    outbox.retry_later("evt_1", me, Duration::from_secs(5), "no answer", at(7200)).unwrap();
    assert_eq!(outbox.next_due(EntryKind::Event, at(0)).unwrap(), Some(at(0)));
    assert_eq!(outbox.get("evt_1", at(0)).unwrap().unwrap().next_attempt_at, at(0));
    assert_eq!(ids(&outbox.claim_due(EntryKind::Event, me, at(0), at(0), 9).unwrap()), ["evt_1"]);
    outbox.retry_later("evt_1", me, Duration::from_secs(3600), "asked to wait", at(0)).unwrap();
    assert_eq!(outbox.get("evt_1", at(1)).unwrap().unwrap().created_at, at(0));
    assert!(
        outbox.claim_due(EntryKind::Event, me, at(1), at(1), 9).unwrap().is_empty(),
        "a long wait may be right"
    );
}

#[test]
fn a_full_spool_refuses_the_next_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path()).unwrap();
    spool
        .write(|tx| {
            (0..limits::SPOOL_MAX)
                .try_for_each(|n| insert(tx, &event(&format!("evt_{n}"), b""), at(0), None).map(drop))
        })
        .unwrap();
    let mut outbox = spool.outbox();
    let refused = outbox.add(&event("more", b""), at(1)).unwrap_err();
    assert!(refused.is_passing() && matches!(refused, StoreError::LimitReached { .. }), "{refused}");
    assert_eq!(outbox.get("more", at(1)).unwrap(), None);
    outbox.dead("evt_7", "refused", at(1)).unwrap();
    assert_eq!(outbox.add(&event("more", b""), at(1)).unwrap(), Added::New);
    assert_eq!(outbox.counts().unwrap(), Counts { pending: limits::SPOOL_MAX, sent: 0, dead: 1 });
}

/// Not a test of its own: the child of the next one. It adds entries and says each that is safe.
#[test]
fn child_that_adds() {
    let Some(dir) = std::env::var_os("TRANSIT_TEST_SPOOL") else { return };
    let mut spool = Spool::open(Path::new(&dir)).unwrap();
    let mut out = std::io::stderr();
    for n in 0.. {
        let id = format!("evt_{}_{n}", std::process::id());
        spool.outbox().add_claimed(&event(&id, &[7; 3000]), Process::current(), at(n)).unwrap();
        if writeln!(out, "{id}").is_err() {
            return;
        }
    }
}

#[test]
fn killed_processes_lose_nothing_that_they_were_promised() {
    let dir = tempfile::tempdir().unwrap();
    let mut promised = Vec::new();
    for round in 0..6 {
        let mut children: Vec<Child> = (0..2)
            .map(|_| {
                Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "store::spool::outbox::tests::child_that_adds", "--nocapture"])
                    .env("TRANSIT_TEST_SPOOL", dir.path())
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for child in &mut children {
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
            promised.extend((&mut lines).take(3 + round * 5).map(Result::unwrap));
            child.kill().unwrap();
            // What it still said before it died was promised too; only a last line may be cut.
            promised.extend(lines.map_while(Result::ok).filter(|line| line.len() > 10));
            child.wait().unwrap();
        }
    }
    promised.retain(|line| line.starts_with("evt_"));
    let mut spool = Spool::open(dir.path()).unwrap();
    let check: String =
        spool.read(|db| db.query_row("PRAGMA integrity_check", [], |row| row.get(0))).unwrap();
    assert_eq!(check, "ok");
    let free = spool
        .outbox()
        .claim_due(EntryKind::Event, Process::current(), at(1_000_000), at(1_000_000), 1_000_000)
        .unwrap();
    let free: std::collections::HashSet<&str> = free.iter().map(|entry| entry.id.as_str()).collect();
    for id in &promised {
        assert!(free.contains(id.as_str()), "{id} was promised and is not free");
    }
    assert!(promised.len() > 60);
}

#[derive(Debug, Clone)]
enum Step {
    Add(u8),
    Claim(u8),
    ClaimDue,
    Retry(u8, u16),
    Release(u8),
    Sent(u8),
    Dead(u8),
}

fn any_step() -> impl Strategy<Value = Step> {
    let id = 0..4u8;
    prop_oneof![
        id.clone().prop_map(Step::Add),
        id.clone().prop_map(Step::Claim),
        Just(Step::ClaimDue),
        (id.clone(), 0..9u16).prop_map(|(id, wait)| Step::Retry(id, wait)),
        id.clone().prop_map(Step::Release),
        id.clone().prop_map(Step::Sent),
        id.prop_map(Step::Dead),
    ]
}

/// The table of the module, as a model: id -> state and attempts.
type Model = std::collections::BTreeMap<u8, (State, u32)>;

fn step(outbox: &mut Outbox<'_>, model: &mut Model, step: &Step, now: Wall) {
    let me = Process::current();
    let name = |id: &u8| format!("evt_{id}");
    match step {
        Step::Add(id) => {
            let added = outbox.add(&event(&name(id), b"x"), now).unwrap();
            let known = model.get(id).map(|(state, _)| *state);
            assert_eq!(added, known.map_or(Added::New, Added::Known));
            model.entry(*id).or_insert((State::Pending, 0));
        }
        Step::Claim(id) => {
            let claimed = outbox.claim(&name(id), me, now).unwrap().is_some();
            assert_eq!(claimed, model.get(id).is_some_and(|(state, _)| *state == State::Pending));
            model.entry(*id).and_modify(|it| it.0 = if claimed { State::Claimed } else { it.0 });
        }
        Step::ClaimDue => {
            for entry in outbox.claim_due(EntryKind::Event, me, now, now, 2).unwrap() {
                let it = model.get_mut(&entry.id.as_bytes()[4].wrapping_sub(b'0')).unwrap();
                assert_eq!((it.0, it.1), (State::Pending, entry.attempts));
                it.0 = State::Claimed;
            }
        }
        Step::Retry(id, wait) => {
            let wait = Duration::from_secs(u64::from(*wait));
            let was_ours = outbox.retry_later(&name(id), me, wait, "later", now).unwrap();
            assert_eq!(was_ours, model.get(id).is_some_and(|(state, _)| *state == State::Claimed));
            if was_ours {
                model.entry(*id).and_modify(|it| *it = (State::Pending, it.1 + 1));
            }
        }
        Step::Release(id) => {
            outbox.release(&name(id), me).unwrap();
            model
                .entry(*id)
                .and_modify(|it| it.0 = if it.0 == State::Claimed { State::Pending } else { it.0 });
        }
        Step::Sent(id) | Step::Dead(id) => {
            let to = if matches!(step, Step::Sent(_)) { State::Sent } else { State::Dead };
            match to {
                State::Sent => outbox.sent(&name(id), "queued", now).unwrap(),
                _ => outbox.dead(&name(id), "no", now).unwrap(),
            }
            model.entry(*id).and_modify(|it| {
                if it.0 != State::Sent {
                    *it = (to, it.1 + u32::from(it.0 == State::Claimed));
                }
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn entries_move_only_as_the_table_says(steps in prop::collection::vec(any_step(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        let mut model = Model::new();
        for (n, one) in steps.iter().enumerate() {
            step(&mut spool.outbox(), &mut model, one, at(i64::try_from(n).unwrap()));
        }
        for (id, (state, attempts)) in &model {
            let entry = spool.outbox().get(&format!("evt_{id}"), at(100)).unwrap().unwrap();
            prop_assert_eq!((entry.state, entry.attempts), (*state, *attempts));
        }
    }
}
