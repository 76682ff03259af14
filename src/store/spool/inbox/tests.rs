//! What a delivery turns out to be, and what its session and the Worker hear of it.

use super::*;

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
fn what_the_agent_has_settled_is_not_shown_again() {
    let (_dir, mut spool) = spool();
    receive(&mut spool, DLV, 1);
    spool.settled(DLV, "omar", NOW).unwrap();
    assert_eq!(due(&mut spool).len(), 1, "it is another agent's");
    spool.settled(DLV, "jess", NOW).unwrap();
    assert!(due(&mut spool).is_empty());
    assert_eq!(answers(&mut spool), [(DLV.to_owned(), Outcome::Injected)]);
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
fn history_ends_after_its_time() {
    let (_dir, mut spool) = spool();
    receive(&mut spool, TX, 0);
    receive(&mut spool, DLV, 0);
    spool.injected(TX, "jess", NOW).unwrap();
    assert_eq!(spool.forget(NOW + limits::DELIVERY_TTL).unwrap(), 0);
    let later = NOW + limits::HISTORY_KEEP;
    assert_eq!(spool.forget(later).unwrap(), 1, "the waiting one");
    assert_eq!(spool.forget(later + Backoff::DELIVERY.first).unwrap(), 1);
}
