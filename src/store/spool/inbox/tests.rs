//! What a delivery turns out to be, and what its session and the Worker hear of it.

use super::*;
use crate::proto::envelope::{Envelope, Kind};

const NOW: Wall = Wall(1_000_000_000_000);

fn spool() -> (tempfile::TempDir, Spool) {
    let dir = tempfile::tempdir().unwrap();
    let spool = Spool::open(dir.path()).unwrap();
    (dir, spool)
}

fn delivery(id: &str, agent: &str, redelivery: u32) -> Delivery {
    let envelope = format!("{id} {redelivery}");
    Delivery { id: id.into(), agent: agent.into(), envelope, redelivery }
}

fn receive(spool: &mut Spool, id: &str, redelivery: u32) -> Received {
    spool.receive(&[delivery(id, "jess", redelivery)], NOW).unwrap()[0]
}

/// What the Worker is told now; after it nothing is due.
fn answers(spool: &mut Spool) -> Vec<(String, Outcome)> {
    let due = spool.unanswered(100).unwrap();
    spool.answered(&due).unwrap();
    assert!(spool.unanswered(100).unwrap().is_empty());
    due.into_iter().map(|answer| (answer.id, answer.outcome)).collect()
}

fn due(spool: &mut Spool) -> Vec<String> {
    spool.due("jess", NOW, 100).unwrap().into_iter().map(|due| due.envelope).collect()
}

const TX: &str = "tx_00000000000a";
const DLV: &str = "dlv_00000000000a";

fn nak(code: &str, retryable: bool) -> Outcome {
    Outcome::Refused { code: code.into(), retryable }
}

#[test]
fn a_message_is_injected_once_and_then_answered_from_history() {
    let (_dir, mut spool) = spool();
    assert_eq!(receive(&mut spool, TX, 0), Received::New);
    assert_eq!(receive(&mut spool, TX, 0), Received::Waiting);
    assert_eq!(due(&mut spool), ["tx_00000000000a 0"]);
    assert!(spool.unanswered(9).unwrap().is_empty(), "nothing is told before the session has it");
    spool.injected(TX, "jess", NOW).unwrap();
    assert!(due(&mut spool).is_empty());
    assert_eq!(answers(&mut spool), [(TX.to_owned(), Outcome::Injected)]);
    assert_eq!(receive(&mut spool, TX, 3), Received::Injected);
    assert!(due(&mut spool).is_empty());
    assert_eq!(answers(&mut spool), [(TX.to_owned(), Outcome::Injected)]);
    spool.injected(TX, "jess", NOW).unwrap();
    assert!(answers(&mut spool).is_empty(), "a second ack of the adapter says nothing new");
}

#[test]
fn duplicates_are_told_apart_by_agent_too() {
    let (_dir, mut spool) = spool();
    let both = [delivery(TX, "jess", 0), delivery(TX, "omar", 0)];
    assert_eq!(spool.receive(&both, NOW).unwrap(), [Received::New, Received::New]);
    spool.injected(TX, "omar", NOW).unwrap();
    assert_eq!(due(&mut spool).len(), 1);
    assert_eq!(spool.unanswered(9).unwrap()[0].agent, "omar");
}

#[test]
fn a_channel_delivery_is_shown_again_only_for_a_later_redelivery() {
    let (_dir, mut spool) = spool();
    receive(&mut spool, DLV, 1);
    spool.injected(DLV, "jess", NOW).unwrap();
    answers(&mut spool);
    assert_eq!(receive(&mut spool, DLV, 1), Received::Injected);
    assert_eq!(receive(&mut spool, DLV, 0), Received::Injected);
    answers(&mut spool);
    assert_eq!(receive(&mut spool, DLV, 2), Received::Again);
    assert_eq!(receive(&mut spool, DLV, 2), Received::Waiting);
    assert_eq!(due(&mut spool), ["dlv_00000000000a 2"]);
}

#[test]
fn what_was_put_in_here_is_taken_back_unless_a_session_has_it() {
    let (_dir, mut spool) = spool();
    let local = delivery(TX, "jess", 0);
    spool.put_local(&local, NOW).unwrap();
    assert!(!spool.withdraw(TX, "jess").unwrap());
    assert!(due(&mut spool).is_empty());
    spool.put_local(&local, NOW).unwrap();
    spool.injected(TX, "jess", NOW).unwrap();
    assert!(spool.withdraw(TX, "jess").unwrap());
    assert_eq!(receive(&mut spool, TX, 0), Received::Injected, "the echo is answered from history");
    assert_eq!(answers(&mut spool), [(TX.to_owned(), Outcome::Injected)]);
}

#[test]
fn what_an_agent_has_settled_is_not_shown_again_to_any_member_of_its_room() {
    let (_dir, mut spool) = spool();
    receive(&mut spool, DLV, 1);
    spool.receive(&[delivery(DLV, "omar", 1)], NOW).unwrap();
    spool.settled("dlv_00000000ffff", NOW).unwrap();
    assert_eq!(due(&mut spool).len(), 1, "it is another delivery");
    spool.settled(DLV, NOW).unwrap();
    assert!(due(&mut spool).is_empty());
    assert_eq!(
        answers(&mut spool),
        [(DLV.to_owned(), Outcome::Injected), (DLV.to_owned(), Outcome::Injected)]
    );
    spool.refused(DLV, "jess", "adapter_timeout", true, NOW).unwrap();
    spool.give_back("jess", "adapter_unavailable", NOW).unwrap();
    assert!(answers(&mut spool).is_empty(), "the one answer was the last");
}

#[test]
fn a_passing_refusal_keeps_the_row_for_the_next_session_or_the_next_deliver() {
    let (_dir, mut spool) = spool();
    receive(&mut spool, TX, 0);
    spool.refused(TX, "jess", "draft_busy", true, NOW).unwrap();
    assert!(due(&mut spool).is_empty());
    assert_eq!(answers(&mut spool), [(TX.to_owned(), nak("draft_busy", true))]);
    spool.release("jess").unwrap();
    assert_eq!(due(&mut spool).len(), 1);
    spool.refused(TX, "jess", "draft_busy", true, NOW).unwrap();
    assert!(answers(&mut spool).is_empty(), "the Worker did not ask again");
    assert_eq!(receive(&mut spool, TX, 0), Received::Waiting);
    assert_eq!(due(&mut spool).len(), 1);
    spool.refused(TX, "jess", "draft_busy", true, NOW).unwrap();
    answers(&mut spool);
    spool.injected(TX, "jess", NOW).unwrap();
    assert_eq!(answers(&mut spool), [(TX.to_owned(), Outcome::Injected)], "a late ack settles");
}

#[test]
fn an_outcome_that_changed_while_it_was_told_is_told_too() {
    let (_dir, mut spool) = spool();
    receive(&mut spool, TX, 0);
    assert_eq!(spool.give_back("jess", "adapter_unavailable", NOW).unwrap(), 1);
    let told = spool.unanswered(9).unwrap();
    spool.injected(TX, "jess", NOW).unwrap();
    spool.answered(&told).unwrap();
    assert_eq!(answers(&mut spool), [(TX.to_owned(), Outcome::Injected)]);
    assert_eq!(spool.give_back("jess", "adapter_unavailable", NOW).unwrap(), 0);
}

#[test]
fn a_refusal_for_good_is_tried_anew_only_when_the_worker_asks_anew() {
    let (_dir, mut spool) = spool();
    receive(&mut spool, TX, 0);
    spool.refused(TX, "jess", "no_thanks", false, NOW).unwrap();
    spool.release("jess").unwrap();
    assert!(due(&mut spool).is_empty());
    assert_eq!(receive(&mut spool, TX, 0), Received::Injected, "the answer was still under way");
    assert_eq!(answers(&mut spool), [(TX.to_owned(), nak("no_thanks", false))]);
    assert_eq!(receive(&mut spool, TX, 0), Received::Again);
    assert_eq!(due(&mut spool).len(), 1);
}

#[test]
fn what_never_left_the_host_is_retried_here_and_its_echo_is_answered_from_history() {
    let (_dir, mut spool) = spool();
    spool.put_local(&delivery(TX, "jess", 0), NOW).unwrap();
    spool.put_local(&delivery(TX, "jess", 0), NOW).unwrap();
    spool.refused(TX, "jess", "adapter_timeout", true, NOW).unwrap();
    assert!(spool.unanswered(9).unwrap().is_empty());
    assert!(due(&mut spool).is_empty());
    let next = spool.next_inbox_due("jess", NOW).unwrap().unwrap();
    assert_eq!(next, NOW + Backoff::DELIVERY.first);
    assert_eq!(spool.due("jess", next, 9).unwrap().len(), 1);
    spool.injected(TX, "jess", NOW).unwrap();
    assert!(spool.unanswered(9).unwrap().is_empty());
    assert_eq!(receive(&mut spool, TX, 0), Received::Injected);
    assert_eq!(answers(&mut spool), [(TX.to_owned(), Outcome::Injected)]);
}

#[test]
fn what_a_session_here_has_refused_for_good_is_not_shown_to_it_again_for_the_echo() {
    let (_dir, mut spool) = spool();
    spool.put_local(&delivery(TX, "jess", 0), NOW).unwrap();
    spool.refused(TX, "jess", "no_thanks", false, NOW).unwrap();
    assert!(answers(&mut spool).is_empty(), "the Worker did not ask yet");
    assert_eq!(receive(&mut spool, TX, 0), Received::Injected);
    assert!(due(&mut spool).is_empty());
    assert_eq!(answers(&mut spool), [(TX.to_owned(), nak("no_thanks", false))]);
    assert_eq!(receive(&mut spool, TX, 0), Received::Again, "the Worker asks anew");
}

/// A message of `from` to jess, as the Worker renders it.
fn message(n: u32, from: &str) -> Delivery {
    let id = format!("tx_{n:012}");
    let envelope = envelope::render(&Envelope {
        from: from.into(),
        id: id.clone(),
        ts: "2026-01-01T00:00:00.000Z".into(),
        reply_to: None,
        body: format!("body {n}"),
        kind: Kind::Dm,
    });
    Delivery { id, agent: "jess".into(), envelope, redelivery: 0 }
}

/// The numbers of the messages that are due to jess.
fn numbers(spool: &Spool, now: Wall) -> Vec<u32> {
    let due = spool.due("jess", now, 100).unwrap();
    due.iter().map(|due| due.id[3..].parse().unwrap()).collect()
}

#[test]
fn a_message_that_waits_for_its_retry_is_not_passed_by_the_next_of_its_sender() {
    let (_dir, mut spool) = spool();
    let [one, two, three] =
        [(1, "amy@alpha"), (2, "amy@alpha"), (3, "zoe@omega")].map(|(n, from)| message(n, from));
    let four = message(4, "amy@alpha");
    spool.receive(&[one.clone(), two, three], NOW).unwrap();
    assert_eq!(numbers(&spool, NOW), [1, 3], "what was handed over could not be taken back");
    spool.refused(&one.id, "jess", "draft_busy", true, NOW).unwrap();
    spool.receive(&[four], NOW).unwrap();
    assert_eq!(numbers(&spool, NOW), [3], "and what comes later waits too");
    answers(&mut spool);
    spool.receive(std::slice::from_ref(&one), NOW).unwrap();
    assert_eq!(numbers(&spool, NOW), [1, 3]);
    spool.refused(&one.id, "jess", "no_thanks", false, NOW).unwrap();
    assert_eq!(numbers(&spool, NOW), [2, 3], "one that is over holds nobody up");
    spool.injected("tx_000000000002", "jess", NOW).unwrap();
    assert_eq!(numbers(&spool, NOW), [3, 4]);
}

#[test]
fn a_message_of_this_host_holds_its_pair_up_until_its_own_retry() {
    let (_dir, mut spool) = spool();
    let both = [message(1, "amy@titan"), message(2, "amy@titan")];
    both.iter().for_each(|message| spool.put_local(message, NOW).unwrap());
    spool.refused(&both[0].id, "jess", "adapter_timeout", true, NOW).unwrap();
    assert!(numbers(&spool, NOW).is_empty());
    assert_eq!(numbers(&spool, NOW + Backoff::DELIVERY.first), [1]);
}

#[test]
fn one_who_has_sent_much_keeps_nobody_waiting_who_comes_soon_after() {
    let (_dir, mut spool) = spool();
    let of_amy: Vec<Delivery> = (0..300).map(|n| message(n, "amy@alpha")).collect();
    spool.receive(&[&[message(900, "zoe@omega")], &of_amy[..200]].concat(), NOW).unwrap();
    spool.receive(&[message(901, "kim@alpha")], NOW).unwrap();
    spool.receive(&of_amy[200..], NOW).unwrap();
    spool.receive(&[message(902, "sue@alpha")], NOW).unwrap();
    assert_eq!(numbers(&spool, NOW), [900, 0, 901], "how far is looked has an end");
    for id in ["tx_000000000900", "tx_000000000000", "tx_000000000901"] {
        spool.refused(id, "jess", "busy", true, NOW).unwrap();
    }
    assert_eq!(numbers(&spool, NOW), [902], "unless nothing else is due");
}

#[test]
fn what_the_worker_has_given_up_holds_nobody_up_once_it_sends_a_later_one_again() {
    let (_dir, mut spool) = spool();
    let [one, two] = [message(1, "amy@alpha"), message(2, "amy@alpha")];
    spool.receive(&[one.clone(), two.clone()], NOW).unwrap();
    spool.refused(&one.id, "jess", "draft_busy", true, NOW).unwrap();
    spool.receive(std::slice::from_ref(&two), NOW).unwrap();
    assert!(numbers(&spool, NOW).is_empty(), "it may have crossed the refusal");
    answers(&mut spool);
    spool.receive(&[two], NOW).unwrap();
    assert_eq!(numbers(&spool, NOW), [2]);
    spool.release("jess").unwrap();
    assert_eq!(numbers(&spool, NOW), [2], "a message that has bounced is not shown after all");
    assert_eq!(spool.receive(&[one], NOW).unwrap(), [Received::Again]);
    assert_eq!(numbers(&spool, NOW), [1]);
}

#[test]
fn deliveries_of_sources_hold_nobody_up() {
    let (_dir, mut spool) = spool();
    receive(&mut spool, DLV, 0);
    receive(&mut spool, "dlv_00000000000b", 0);
    spool.refused(DLV, "jess", "command_try_later", true, NOW).unwrap();
    assert_eq!(due(&mut spool), ["dlv_00000000000b 0"]);
}

#[test]
fn what_the_worker_was_answered_for_before_is_retried_here() {
    let (_dir, mut spool) = spool();
    let [one, two] = [message(1, "amy"), message(2, "amy")];
    spool.receive(&[one.clone(), two.clone()], NOW).unwrap();
    spool.refused(&one.id, "jess", "paused", true, NOW).unwrap();
    spool.refused(&two.id, "jess", "paused", true, NOW).unwrap();
    assert_eq!(answers(&mut spool).len(), 2);
    spool.release("jess").unwrap();
    assert_eq!(numbers(&spool, NOW), [1]);
    spool.refused(&one.id, "jess", "busy", true, NOW).unwrap();
    assert!(answers(&mut spool).is_empty(), "it waits for nothing, so that it would not ask soon");
    let again = NOW + Backoff::DELIVERY.after(2);
    assert_eq!((numbers(&spool, NOW), spool.next_inbox_due("jess", NOW).unwrap()), (vec![], Some(again)));
    assert_eq!(numbers(&spool, again), [1], "in their order");
    // Not for longer than the Worker would.
    let late = NOW + limits::DELIVERY_TTL;
    spool.refused(&one.id, "jess", "busy", true, late).unwrap();
    assert_eq!(spool.next_inbox_due("jess", late).unwrap(), None);
    // Once the Worker sends the second one anew, the first has ended there.
    spool.release("jess").unwrap();
    spool.refused(&one.id, "jess", "busy", true, NOW).unwrap();
    spool.receive(&[two], NOW).unwrap();
    assert_eq!(numbers(&spool, NOW), [2]);
    assert_eq!(numbers(&spool, again + LONGEST_WAIT), [2]);
}

#[test]
fn history_ends_after_its_time() {
    let (_dir, mut spool) = spool();
    receive(&mut spool, TX, 0);
    receive(&mut spool, DLV, 0);
    spool.injected(TX, "jess", NOW).unwrap();
    let next = NOW + Duration::from_millis(1);
    assert_eq!(spool.forget(NOW, NOW).unwrap(), 0);
    assert_eq!(spool.forget(NOW, next).unwrap(), 1, "the waiting one");
    assert_eq!(spool.forget(next, next).unwrap(), 1);
}

#[test]
fn what_was_refused_under_a_clock_that_was_ahead_is_due_now() {
    let (_dir, mut spool) = spool();
    let (ahead, name) = (NOW + Duration::from_secs(7200), "jess");
    let one = message(1, "amy");
    spool.put_local(&one, ahead).unwrap();
    spool.refused(&one.id, name, "not_now", true, ahead).unwrap();
    assert_eq!(spool.next_inbox_due(name, ahead).unwrap(), Some(ahead + Backoff::DELIVERY.first));
    assert_eq!(numbers(&spool, ahead), [0; 0]);
    assert_eq!(numbers(&spool, NOW), [1], "the clock was set right");
    spool.held(&one.id, name, "draft_busy", ahead + LONGEST_WAIT, ahead).unwrap();
    assert_eq!(numbers(&spool, NOW), [1]);
    // One that is not due for longer than any retry waits for its own time, while the clock is what it was.
    let (notice, due) = (message(2, "transit"), NOW + Duration::from_secs(3600));
    spool.put_notice(&notice, due, NOW).unwrap();
    assert_eq!(numbers(&spool, NOW), [1]);
    assert_eq!(spool.next_inbox_due(name, NOW).unwrap(), Some(due));
    assert_eq!(numbers(&spool, NOW - Duration::from_secs(7200)), [1, 2]);
}
