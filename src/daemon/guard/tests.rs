use super::*;
use crate::store::spool::inbox::Delivery;
use crate::store::spool::outbox::{EntryKind, NewEntry};

const SPAN: Duration = Duration::from_secs(600);

fn at(s: u64) -> Mono {
    Mono(Duration::from_secs(s))
}

fn dm<'a>(from: &'a str, to: &'a str, id: &'a str, reply_to: Option<&'a str>) -> Passing<'a> {
    Passing { org_id: "", from, to, id, reply_to }
}

/// The road of one more message of the pair, with a Worker.
fn road(loops: &Loops, id: &str, s: u64) -> Road {
    loops.admit(dm("amy@titan", "bob@titan", id, None), true, true, at(s)).unwrap().road
}

#[test]
fn half_of_the_limit_goes_straight_and_the_rest_asks_the_worker() {
    for (limit, straight) in [(30, 15), (5, 2), (2, 1), (1, 0)] {
        let loops = Loops::new((limit, SPAN));
        for n in 0..40 {
            let id = n.to_string();
            let wanted = if n < straight { Road::Straight } else { Road::Round };
            assert_eq!(road(&loops, &id, n), wanted, "{n} of {limit}");
            loops.came_round(&id);
        }
        let other = dm("bob@titan", "amy@titan", "back", None);
        let road = loops.admit(other, true, true, at(40)).unwrap().road;
        assert_eq!(road == Road::Straight, limit > 1, "the other way is another pair");
    }
}

#[test]
fn a_limit_of_none_lets_everything_go_straight() {
    let loops = Loops::new((0, SPAN));
    for n in 0..100 {
        assert_eq!(road(&loops, &n.to_string(), 0), Road::Straight);
    }
    assert!(loops.admit(dm("amy@titan", "bob@titan", "x", None), true, false, at(0)).is_ok());
}

#[test]
fn a_chain_through_whoever_answers_asks_too() {
    let loops = Loops::new((4, SPAN));
    let names = ["a@titan", "b@titan", "c@titan", "d@titan", "e@titan"];
    for (n, wanted) in [Road::Straight, Road::Straight, Road::Round, Road::Round].into_iter().enumerate() {
        let (id, answered) = (n.to_string(), n.checked_sub(1).map(|n| n.to_string()));
        let message = dm(names[n], names[n + 1], &id, answered.as_deref());
        assert_eq!(loops.admit(message, true, true, at(0)).unwrap().road, wanted, "{n}");
    }
}

#[test]
fn without_a_worker_the_whole_limit_is_the_daemon_s() {
    let loops = Loops::new((3, SPAN));
    let admit = |id: &str, s| loops.admit(dm("amy@titan", "bob@titan", id, None), true, false, at(s));
    for n in 0..3 {
        assert_eq!(admit(&n.to_string(), n).unwrap().road, Road::Straight);
    }
    let held = admit("3", 10).unwrap_err();
    assert_eq!((held.counted, held.cools_in), (3, Duration::from_secs(592)));
    assert!(admit("4", 601).is_err(), "what was refused does not keep it warm, what passed does");
    admit("5", 602).unwrap();
}

#[test]
fn an_event_or_an_operator_between_lets_agents_go_on_and_a_bounce_does_not() {
    let envelope = |from: &str, kind| {
        let (id, ts, body) =
            ("tx_00000000000e".to_owned(), "2026-01-01T00:00:00Z".to_owned(), "x".to_owned());
        envelope::render(&Envelope { from: from.to_owned(), id, ts, reply_to: None, body, kind })
    };
    let post = Kind::Room { room: "ops".into(), seq: 1, operator: true };
    let message = "tx_00000000000e";
    for (id, text, wanted) in [
        ("dlv_00000000000e", "of another version".to_owned(), Road::Straight),
        (message, envelope("operator@transit", post), Road::Straight),
        (message, envelope("transit", Kind::Dm), Road::Round),
        (message, envelope("eve@hermes", Kind::Dm), Road::Round),
        (message, "no envelope".to_owned(), Road::Round),
    ] {
        let loops = Loops::new((4, SPAN));
        assert_eq!((road(&loops, "1", 0), road(&loops, "2", 0)), (Road::Straight, Road::Straight));
        loops.hear(id, "amy@titan", &text, at(1));
        assert_eq!(road(&loops, "3", 2), wanted, "{text}");
    }
}

#[test]
fn what_comes_back_from_the_worker_is_not_counted_again() {
    let loops = Loops::new((4, SPAN));
    assert_eq!(road(&loops, "tx_00000000000a", 0), Road::Straight);
    let echo = envelope::render(&Envelope {
        from: "amy@titan".into(),
        id: "tx_00000000000a".into(),
        ts: "2026-01-01T00:00:00Z".into(),
        reply_to: None,
        body: "x".into(),
        kind: Kind::Dm,
    });
    for _ in 0..3 {
        loops.hear("tx_00000000000a", "bob@titan", &echo, at(1));
    }
    assert_eq!(road(&loops, "tx_00000000000b", 2), Road::Straight);
    assert_eq!(road(&loops, "tx_00000000000c", 2), Road::Round);
}

#[test]
fn none_passes_an_earlier_one_that_goes_round() {
    let loops = Loops::new((4, SPAN));
    for (id, wanted) in [("1", Road::Straight), ("2", Road::Straight), ("3", Road::Round)] {
        assert_eq!(road(&loops, id, 0), wanted);
    }
    assert_eq!(road(&loops, "4", 700), Road::Round, "it is cool, but the third is still on its way");
    loops.came_round("3");
    loops.came_round("4");
    assert_eq!(road(&loops, "5", 1400), Road::Straight);
}

#[test]
fn a_refusal_is_not_counted_and_is_noticed_once_until_it_is_cool() {
    let loops = Loops::new((2, SPAN));
    assert_eq!(road(&loops, "1", 0), Road::Straight);
    for n in 2..9 {
        let id = n.to_string();
        let message = dm("amy@titan", "bob@titan", &id, None);
        let admitted = loops.admit(message, true, true, at(n)).unwrap();
        assert_eq!(admitted.road, Road::Round);
        assert!(loops.is_round(&id));
        loops.give_back(&id, admitted);
        assert!(!loops.is_round(&id));
        let held = loops.held(message, at(n));
        assert_eq!((held.counted, held.cools_in), (1, Duration::from_secs(600 - n)));
        assert_eq!(loops.is_to_be_noticed("amy@titan", "bob@titan", held.cools_in, at(n)), n == 2);
        assert_eq!(loops.is_to_be_noticed("amy@titan", "eve@titan", held.cools_in, at(n)), n == 2);
    }
    assert!(loops.is_to_be_noticed("amy@titan", "bob@titan", SPAN, at(601)), "that time is over");
}

#[test]
fn a_daemon_that_starts_anew_has_not_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path()).unwrap();
    let wall = Wall(1_700_000_000_000);
    for n in 0..4_i64 {
        let id = format!("tx_{n:012}");
        let entry = NewEntry {
            id: &id,
            kind: EntryKind::Message,
            dest: "bob@titan",
            from: Some("amy@titan"),
            reply_to: None,
            event_key: None,
            body: b"x",
            secret: None,
        };
        spool.outbox().add(&entry, wall + Duration::from_secs(n.unsigned_abs())).unwrap();
        let delivery =
            Delivery { id: id.clone(), agent: "bob".into(), envelope: String::new(), redelivery: 0 };
        if n != 3 {
            spool.put_local(&delivery, wall).unwrap();
        }
    }
    let now = wall + Duration::from_secs(100);
    let loops = Loops::new((6, SPAN));
    loops.recall(&spool, "titan", now, at(0)).unwrap();
    let standing = loops.held(dm("amy@titan", "bob@titan", "next", None), at(0));
    assert_eq!((standing.counted, standing.cools_in), (4, Duration::from_secs(503)));
    assert!(loops.is_round("tx_000000000003") && !loops.is_round("tx_000000000002"));
    assert_eq!(road(&loops, "next", 0), Road::Round);

    let loops = Loops::new((6, Duration::from_secs(98)));
    loops.recall(&spool, "titan", now, at(0)).unwrap();
    assert_eq!(
        loops.held(dm("amy@titan", "bob@titan", "next", None), at(0)).counted,
        1,
        "of the last time only"
    );
}
