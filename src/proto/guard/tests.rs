use proptest::prelude::*;

use super::*;

const ORG: &str = "org_1";
const SPAN: Duration = Duration::from_secs(600);

fn fresh(limit: u32) -> Guard {
    Guard::new(limit, SPAN, RandomState::new())
}

fn at(s: u64) -> Mono {
    Mono(Duration::from_secs(s))
}

fn dm<'a>(from: &'a str, to: &'a str, id: &'a str, reply_to: Option<&'a str>) -> Passing<'a> {
    Passing { org_id: ORG, from, to, id, reply_to }
}

/// Messages of one pair, one a second from `from_s` on, until one is refused: how many passed, and the refusal.
fn burst(guard: &mut Guard, (from, to): (&str, &str), from_s: u64) -> (u64, Held) {
    for n in 0.. {
        let id = format!("{from} {to} {from_s} {n}");
        if let Err(held) = guard.pass(dm(from, to, &id, None), None, at(from_s + n)) {
            return (n, held);
        }
    }
    unreachable!("the numbers do not end")
}

#[test]
fn a_pair_is_stopped_at_the_limit_and_cools_after_the_last_one_that_counted() {
    let mut guard = fresh(3);
    let (passed, held) = burst(&mut guard, ("a@x", "b@y"), 0);
    assert_eq!((passed, held.what, held.is_first), (3, "pair", true));
    assert_eq!(held.cools_in, Duration::from_secs(599), "the last that counted came a second ago");
    let again = guard.pass(dm("a@x", "b@y", "again", None), None, at(601)).unwrap_err();
    assert_eq!(
        (again.cools_in, again.is_first),
        (Duration::from_secs(1), false),
        "the operator is told once"
    );
    guard.pass(dm("b@y", "a@x", "back", None), None, at(3)).unwrap();
    guard.pass(dm("a@x", "c@y", "aside", None), None, at(3)).unwrap();
    let (passed, held) = burst(&mut guard, ("a@x", "b@y"), 602);
    assert_eq!((passed, held.is_first), (3, true), "it is cool, and what happens then is news");
}

#[test]
fn messages_that_are_spread_out_are_no_loop() {
    let mut guard = fresh(3);
    for n in 0..50 {
        guard.pass(dm("a@x", "b@y", &n.to_string(), None), None, at(n * 301)).unwrap();
    }
    // Three within the time: the fourth is refused even when the first of them is past that time.
    let mut guard = fresh(3);
    for s in [0, 1, 590] {
        guard.pass(dm("a@x", "b@y", &s.to_string(), None), None, at(s)).unwrap();
    }
    assert!(guard.pass(dm("a@x", "b@y", "late", None), None, at(1189)).is_err());
    guard.pass(dm("a@x", "b@y", "cool", None), None, at(1190)).unwrap();
}

#[test]
fn a_chain_is_followed_through_whoever_answers_and_counts_its_first_message() {
    let mut guard = fresh(5);
    let agents = ["a@x", "b@x", "c@x", "d@x", "e@x", "f@x", "g@x"];
    let (mut before, mut passed) = (None, 0);
    let held = loop {
        let id = format!("tx_{passed}");
        let message = dm(agents[passed], agents[passed + 1], &id, before.as_deref());
        match guard.pass(message, None, at(passed as u64)) {
            Ok(_) => (passed, before) = (passed + 1, Some(id)),
            Err(held) => break held,
        }
    };
    assert_eq!((passed, held.what), (5, "chain"));
    // The answer to an answer in the middle is of the same chain, and one to something unknown begins another.
    assert_eq!(guard.pass(dm("x@x", "y@x", "m", Some("tx_2")), None, at(9)).unwrap_err().what, "chain");
    for n in 0..5 {
        guard.pass(dm(&format!("p{n}@x"), "q@x", &n.to_string(), Some("unknown")), None, at(9)).unwrap();
    }
    assert_eq!(guard.pass(dm("r@x", "q@x", "n", Some("unknown")), None, at(9)).unwrap_err().what, "chain");
}

#[test]
fn who_answers_a_message_that_was_refused_goes_on_in_its_chain() {
    let mut guard = fresh(3);
    let say = |guard: &mut Guard, n: u64| {
        let (from, to) = if n.is_multiple_of(2) { ("a@x", "b@x") } else { ("b@x", "a@x") };
        let before = n.checked_sub(1).map(|before| before.to_string());
        guard.pass(dm(from, to, &n.to_string(), before.as_deref()), None, at(n))
    };
    let refused = (0..9).filter(|&n| say(&mut guard, n).is_err()).collect::<Vec<_>>();
    assert_eq!(refused, [3, 4, 5, 6, 7, 8]);
    assert!(guard.knows(ORG, "2") && !guard.knows(ORG, "3"), "it was not counted");
    let again = guard.pass(dm("b@x", "a@x", "3", Some("2")), None, at(700)).unwrap();
    assert!(again.is_some() && guard.knows(ORG, "3"), "it is cool");
}

#[test]
fn whatever_is_said_to_one_of_them_from_outside_empties_the_window() {
    for interrupted in ["a@x", "b@y"] {
        let mut guard = fresh(3);
        burst(&mut guard, ("a@x", "b@y"), 0);
        guard.interrupt("org_other", interrupted, at(5));
        guard.interrupt(ORG, "c@z", at(5));
        assert!(guard.pass(dm("a@x", "b@y", "1", None), None, at(5)).is_err());
        guard.interrupt(ORG, interrupted, at(5));
        let (passed, held) = burst(&mut guard, ("a@x", "b@y"), 5);
        assert_eq!((passed, held.is_first), (3, true), "{interrupted}");
    }
    let mut guard = fresh(2);
    guard.pass(dm("a@x", "b@x", "1", None), None, at(0)).unwrap();
    guard.interrupt(ORG, "b@x", at(1));
    guard.pass(dm("b@x", "a@x", "2", Some("1")), None, at(2)).unwrap();
    guard.pass(dm("c@x", "a@x", "3", Some("1")), None, at(2)).unwrap();
    let held = guard.pass(dm("d@x", "a@x", "4", Some("1")), None, at(2)).unwrap_err();
    assert_eq!(held.what, "chain", "what came before the interruption does not count in the chain");
}

#[test]
fn what_is_given_back_was_never_counted() {
    let mut guard = fresh(3);
    guard.pass(dm("a@x", "b@y", "0", None), None, at(0)).unwrap();
    for n in 1..10 {
        let counted = guard.pass(dm("a@x", "b@y", &n.to_string(), Some("0")), None, at(n)).unwrap();
        guard.give_back(counted.unwrap());
    }
    let (passed, _) = burst(&mut guard, ("a@x", "b@y"), 10);
    assert_eq!(passed, 2);
    let mut guard = fresh(1);
    let counted = guard.pass(dm("a@x", "b@y", "0", None), None, at(0)).unwrap().unwrap();
    assert!(guard.pass(dm("a@x", "b@y", "1", None), None, at(0)).is_err());
    guard.give_back(counted);
    guard.pass(dm("a@x", "b@y", "1", None), None, at(0)).unwrap();
}

#[test]
fn a_room_has_its_own_limit_and_one_count_for_all_who_post() {
    let mut guard = fresh(100);
    let post = |guard: &mut Guard, n: u64, limit| {
        guard.pass(dm(&format!("a{n}@x"), "#ops", &n.to_string(), None), Some(limit), at(n))
    };
    for n in 0..4 {
        post(&mut guard, n, 4).unwrap();
    }
    assert_eq!(post(&mut guard, 4, 4).unwrap_err().what, "room");
    post(&mut guard, 5, 6).unwrap();
    assert!(post(&mut guard, 6, 4).is_err(), "a limit that is lowered counts at once");
    guard.interrupt(ORG, "#ops", at(6));
    post(&mut guard, 7, 4).unwrap();
    for n in 8..100 {
        assert_eq!(post(&mut guard, n, 0), Ok(None), "0 turns it off");
    }
}

#[test]
fn a_limit_of_zero_or_one_beyond_all_bounds_lets_everything_pass() {
    for limit in [0, LIMIT_MAX + 1, u32::MAX] {
        let mut guard = fresh(limit);
        for n in 0..200 {
            assert_eq!(guard.pass(dm("a@x", "b@y", &n.to_string(), Some("0")), None, at(0)), Ok(None));
        }
        assert!(guard.windows.is_empty() && guard.messages.is_empty());
    }
}

#[test]
fn its_memory_is_bounded_and_a_loop_among_a_crowd_is_still_found() {
    let mut guard = fresh(30);
    let mut refused = 0;
    for n in 0..150_000_u64 {
        let (now, id) = (at(n / 1000), n.to_string());
        let crowd = (format!("a{n}@x"), format!("b{n}@x"));
        let answered = format!("of old {n}");
        guard.pass(dm(&crowd.0, &crowd.1, &id, Some(&answered)), None, now).unwrap();
        if n % 1000 == 0 {
            refused +=
                u32::from(guard.pass(dm("l@x", "m@x", &format!("loop {n}"), None), None, now).is_err());
        }
    }
    assert!(refused > 100, "{refused}");
    assert!(guard.windows.len() <= WINDOWS + 2 && guard.agents.len() <= AGENTS + 2);
    assert!(guard.messages.len() <= MESSAGES + 1 && guard.order.len() <= MESSAGES + 1);
    guard.pass(dm("a@x", "b@x", "last", None), None, at(10_000)).unwrap();
    assert_eq!(guard.messages.len(), 1, "what is over is forgotten");
}

/// What happens in a generated history.
#[derive(Debug, Clone)]
enum Step {
    Message { from: usize, to: usize, answers: Option<usize> },
    Interrupt(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let agent = 0..3_usize;
    prop_oneof![
        8 => (agent.clone(), agent.clone(), proptest::option::of(0..40_usize))
            .prop_map(|(from, to, answers)| Step::Message { from, to, answers }),
        1 => agent.prop_map(Step::Interrupt),
        3 => (0..400_u64).prop_map(Step::Wait),
    ]
}

/// What passed: when, who, and the number of the chain.
#[derive(Debug, Clone, PartialEq)]
struct Passed {
    at: Mono,
    from: usize,
    to: usize,
    chain: usize,
    round: usize,
}

proptest! {
    /// Beside a plain list of everything: never more than the limit pass within the span with nothing between, and
    /// nothing is refused without that many, or after the span.
    #[test]
    fn it_stops_what_goes_round_and_nothing_else(
        steps in proptest::collection::vec(step(), 1..120),
        limit in 1..5_u32,
    ) {
        let mut guard = fresh(limit);
        let (mut now, mut passed) = (at(0), Vec::<Passed>::new());
        // How often each agent was interrupted.
        let mut interruptions = [0_usize; 3];
        let name = |agent: usize| format!("a{agent}@x");
        for step in steps {
            match step {
                Step::Wait(s) => now = now + Duration::from_secs(s),
                Step::Interrupt(agent) => {
                    interruptions[agent] += 1;
                    guard.interrupt(ORG, &name(agent), now);
                }
                Step::Message { from, to, answers } => {
                    let answered = answers.filter(|&n| n < passed.len());
                    let chain = answered.map_or(passed.len(), |n| passed[n].chain);
                    let (id, reply_to) = (passed.len().to_string(), answered.map(|n| n.to_string()));
                    let message = Passing {
                        org_id: ORG,
                        from: &name(from),
                        to: &name(to),
                        id: &id,
                        reply_to: reply_to.as_deref(),
                    };
                    let outcome = guard.pass(message, None, now);
                    // Since the last interruption of one of the two, and within the span of one another.
                    let round = interruptions[from] + interruptions[to];
                    let of_pair: Vec<Mono> = passed
                        .iter()
                        .filter(|p| (p.from, p.to, p.round) == (from, to, round))
                        .map(|p| p.at)
                        .collect();
                    let of_chain = passed.iter().filter(|p| p.chain == chain).count();
                    let last = of_pair.iter().rev().take(limit as usize).collect::<Vec<_>>();
                    let is_full = last.len() == limit as usize
                        && last[0].since(*last[limit as usize - 1]) < SPAN
                        && now.since(*last[0]) < SPAN;
                    match outcome {
                        Ok(_) => {
                            prop_assert!(!is_full, "{limit} of the pair were counted");
                            passed.push(Passed { at: now, from, to, chain, round });
                        }
                        Err(held) => {
                            prop_assert!(!held.cools_in.is_zero() && held.cools_in <= SPAN);
                            match held.what {
                                "pair" => prop_assert!(is_full, "{of_pair:?} at {now:?}"),
                                _ => prop_assert!(of_chain >= limit as usize),
                            }
                        }
                    }
                }
            }
        }
    }
}
