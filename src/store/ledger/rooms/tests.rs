//! Rooms: who may be in them, and what becomes of messages and events.

use super::*;
use crate::limits::{DELIVERY_TTL, QUEUE_MAX};
use crate::proto::ingest::Event;
use crate::proto::wire::{NakCode, SendFrame};
use crate::secret::Secret;
use crate::store::ledger::messages::{self, Posted};
use crate::store::ledger::roster::tests::{agent, enrol};
use crate::store::ledger::sources::{self, NewSource, SourceRow};
use crate::store::ledger::tests::{code, with_org};
use crate::store::ledger::{directory, events, replies};
use crate::store::seal::MasterKey;

const NOW: Wall = Wall(1_700_000_000_000);

fn ops() -> Name {
    "ops".parse().unwrap()
}

fn queue(org: &str, address: &str) -> Queue {
    let (agent, host) = address.split_once('@').unwrap();
    Queue { org_id: org.into(), host: host.into(), agent: agent.into() }
}

/// The hosts alpha and beta, with three agents each.
fn with_agents(test: impl Fn(&Tx<'_>, &str) + Send + 'static) {
    with_org(move |tx, org| {
        for host in ["alpha", "beta"] {
            let agents = ["amy", "bob", "cat"].map(|name| agent(name, "idle"));
            enrol(tx, &org.id, host, &agents, NOW).unwrap();
        }
        test(tx, &org.id);
    });
}

fn with_room(members: &'static [&'static str], test: impl Fn(&Tx<'_>, &str) + Send + 'static) {
    with_agents(move |tx, org| {
        create(tx, org, &ops(), Policy::Open, None, NOW).unwrap();
        for member in members {
            join(tx, &ops(), &queue(org, member), By::Itself, NOW).unwrap();
        }
        test(tx, org);
    });
}

fn frame(n: u32, from: &str) -> SendFrame {
    SendFrame {
        id: format!("tx_{n:012}"),
        from: from.into(),
        to: "#ops".into(),
        body: format!("body {n}"),
        reply_to: None,
        ts: "2020-01-01T00:00:00Z".into(),
    }
}

fn post(tx: &Tx<'_>, org: &str, n: u32, from: &str) -> Posted {
    messages::post(tx, &queue(org, from), &ops(), &frame(n, from), &|_| false, NOW).unwrap()
}

#[track_caller]
fn stored(posted: Posted) -> Vec<String> {
    match posted {
        Posted::Stored(places) => {
            places.iter().map(|at| format!("{}@{}", at.queue.agent, at.queue.host)).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// What may go to an agent: the numbers of messages in the room.
fn due(tx: &Tx<'_>, org: &str, to: &str, now: Wall) -> Vec<u64> {
    let due = messages::due(tx, &queue(org, to), 0, now, 99).unwrap();
    due.iter().filter_map(|due| due.room.as_ref().map(|(_, number)| *number)).collect()
}

#[test]
fn a_room_is_made_changed_and_deleted_and_its_name_is_free_again() {
    with_agents(|tx, org| {
        let made = create(tx, org, &ops(), Policy::Invite, Some(3), NOW).unwrap();
        assert_eq!((made.policy, made.loop_limit, made.members), (Policy::Invite, Some(3), 0));
        assert_eq!(code(create(tx, org, &ops(), Policy::Open, None, NOW)), "room_exists");
        let changed = update(tx, org, &ops(), Some(Policy::Open), None).unwrap();
        assert_eq!((changed.policy, changed.loop_limit), (Policy::Open, Some(3)));
        assert_eq!(update(tx, org, &ops(), None, Some(None)).unwrap().loop_limit, None);
        assert_eq!(list(tx, org).unwrap().len(), 1);
        delete(tx, org, &ops(), NOW).unwrap();
        assert_eq!(find(tx, org, &ops()).unwrap(), None);
        assert_eq!(code(delete(tx, org, &ops(), NOW)), "room_not_found");
        assert_eq!(code(update(tx, org, &ops(), None, None)), "room_not_found");
        let again = create(tx, org, &ops(), Policy::Open, None, NOW).unwrap();
        assert!(again.seq != made.seq && history(tx, org, &again, 9).unwrap().is_empty());
    });
}

#[test]
fn an_open_room_is_joined_and_an_invited_one_is_not() {
    with_agents(|tx, org| {
        let bob = queue(org, "bob@beta");
        create(tx, org, &ops(), Policy::Invite, None, NOW).unwrap();
        assert_eq!(code(join(tx, &ops(), &bob, By::Itself, NOW)), "invite_only");
        join(tx, &ops(), &bob, By::Operator, NOW).unwrap();
        join(tx, &ops(), &bob, By::Itself, NOW).unwrap();
        let room = get(tx, org, &ops()).unwrap();
        assert_eq!((room.members, is_member(tx, &room, &bob).unwrap()), (1, true));
        assert_eq!(code(join(tx, &ops(), &queue(org, "eve@beta"), By::Operator, NOW)), "not_found");
        assert_eq!(code(join(tx, &ops(), &queue(org, "bob@gone"), By::Operator, NOW)), "not_found");
        leave(tx, &ops(), &bob, NOW).unwrap();
        leave(tx, &ops(), &bob, NOW).unwrap();
        assert_eq!(get(tx, org, &ops()).unwrap().members, 0);
        let other: Name = "other".parse().unwrap();
        assert_eq!(code(join(tx, &other, &bob, By::Itself, NOW)), "room_not_found");
        assert_eq!(code(leave(tx, &other, &bob, NOW)), "room_not_found");
    });
}

#[test]
fn a_room_has_64_members_and_no_65th() {
    with_org(|tx, org| {
        let org = org.id.as_str();
        let names: Vec<String> = (0..65).map(|n| format!("a{n}")).collect();
        let agents: Vec<_> = names.iter().map(|name| agent(name, "idle")).collect();
        enrol(tx, org, "alpha", &agents, NOW).unwrap();
        found(tx, &ops(), Policy::Open, &queue(org, "a0@alpha"), NOW).unwrap();
        for name in &names[1..64] {
            join(tx, &ops(), &queue(org, &format!("{name}@alpha")), By::Itself, NOW).unwrap();
        }
        let last = queue(org, "a64@alpha");
        assert_eq!(code(join(tx, &ops(), &last, By::Operator, NOW)), "room_full");
        assert_eq!(stored(post(tx, org, 1, "a0@alpha")).len(), 63);
        leave(tx, &ops(), &queue(org, "a5@alpha"), NOW).unwrap();
        join(tx, &ops(), &last, By::Itself, NOW).unwrap();
    });
}

#[test]
fn a_message_gets_the_next_number_and_goes_to_everybody_else() {
    with_room(&["amy@alpha", "bob@alpha", "bob@beta"], |tx, org| {
        assert_eq!(stored(post(tx, org, 1, "amy@alpha")), ["bob@alpha", "bob@beta"]);
        assert_eq!(stored(post(tx, org, 2, "bob@beta")), ["amy@alpha", "bob@alpha"]);
        assert_eq!(post(tx, org, 1, "amy@alpha"), Posted::Before(None));
        assert_eq!(post(tx, org, 1, "bob@beta"), Posted::Refused(NakCode::ReservedName));
        assert_eq!(due(tx, org, "bob@alpha", NOW), [1, 2]);
        assert_eq!(due(tx, org, "bob@beta", NOW), [1]);
        let first = &messages::due(tx, &queue(org, "bob@beta"), 0, NOW, 9).unwrap()[0];
        assert_eq!((first.room.clone(), first.ts.clone()), (Some(("#ops".into(), 1)), NOW.to_string()));
        messages::arrived(tx, org, "alpha", "tx_000000000001", Some("bob"), messages::Arrival::Injected, NOW)
            .unwrap();
        assert_eq!((due(tx, org, "bob@alpha", NOW), due(tx, org, "bob@beta", NOW)), (vec![2], vec![1]));
        let fate = messages::fate(tx, org, "tx_000000000001").unwrap().unwrap();
        let states: Vec<_> = fate.recipients.iter().map(|r| (r.agent.as_str(), r.state.as_str())).collect();
        assert_eq!(states, [("bob@alpha", "injected"), ("bob@beta", "queued")]);
        let room = get(tx, org, &ops()).unwrap();
        let told = history(tx, org, &room, 9).unwrap();
        assert_eq!(told.iter().map(|post| post.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(history(tx, org, &room, 1).unwrap()[0].sender, "bob@beta");
    });
}

#[test]
fn an_ack_without_an_agent_settles_the_oldest_of_that_id() {
    with_room(&["amy@alpha", "bob@beta", "cat@beta"], |tx, org| {
        post(tx, org, 1, "amy@alpha");
        messages::arrived(tx, org, "beta", "tx_000000000001", None, messages::Arrival::Injected, NOW)
            .unwrap();
        assert_eq!((due(tx, org, "bob@beta", NOW), due(tx, org, "cat@beta", NOW)), (vec![], vec![1]));
    });
}

#[test]
fn who_is_no_member_and_what_is_no_room_are_refused_for_good() {
    with_room(&["amy@alpha", "bob@beta"], |tx, org| {
        assert_eq!(post(tx, org, 1, "cat@alpha"), Posted::Refused(NakCode::NotMember));
        let none: Name = "none".parse().unwrap();
        let nowhere =
            messages::post(tx, &queue(org, "amy@alpha"), &none, &frame(2, "amy@alpha"), &|_| true, NOW);
        assert_eq!(nowhere.unwrap(), Posted::Refused(NakCode::NoRoute));
        join(tx, &ops(), &queue(org, "cat@alpha"), By::Itself, NOW).unwrap();
        assert_eq!(post(tx, org, 1, "cat@alpha"), Posted::Before(Some(NakCode::NotMember)));
        assert_eq!(stored(post(tx, org, 3, "cat@alpha")).len(), 2);
        let room = get(tx, org, &ops()).unwrap();
        assert_eq!(room.last_number, 1, "what was refused has no number");
        leave(tx, &ops(), &queue(org, "cat@alpha"), NOW).unwrap();
        assert_eq!(post(tx, org, 4, "cat@alpha"), Posted::Refused(NakCode::NotMember));
        assert_eq!(post(tx, org, 3, "cat@alpha"), Posted::Before(None));
    });
}

#[test]
fn a_full_queue_of_one_member_takes_nothing_for_anybody_and_is_not_remembered() {
    with_room(&["amy@alpha", "bob@beta", "cat@beta"], |tx, org| {
        for n in 0..u32::try_from(QUEUE_MAX).unwrap() {
            let direct = SendFrame { to: "bob@beta".into(), ..frame(n, "amy@alpha") };
            messages::take(tx, &queue(org, "bob@beta"), "alpha", &direct, false, NOW).unwrap();
        }
        assert_eq!(post(tx, org, 5_000, "amy@alpha"), Posted::Refused(NakCode::RateLimited));
        assert_eq!(due(tx, org, "cat@beta", NOW), [0; 0]);
        assert_eq!(code(messages::post_as_operator(tx, org, &ops(), "x", None, NOW)), "rate_limited");
        messages::arrived(tx, org, "beta", "tx_000000000007", None, messages::Arrival::Injected, NOW)
            .unwrap();
        assert_eq!(stored(post(tx, org, 5_000, "amy@alpha")), ["bob@beta", "cat@beta"]);
    });
}

#[test]
fn a_member_that_cannot_be_written_to_holds_nobody_up() {
    with_room(&["amy@alpha", "cat@alpha", "bob@beta"], |tx, org| {
        directory::revoke_host(tx, org, &"beta".parse().unwrap(), NOW).unwrap();
        assert_eq!(stored(post(tx, org, 1, "amy@alpha")), ["cat@alpha"]);
        let fate = messages::fate(tx, org, "tx_000000000001").unwrap().unwrap();
        let bob = fate.recipients.iter().find(|recipient| recipient.agent == "bob@beta").unwrap();
        assert_eq!((bob.state.as_str(), bob.error.as_deref()), ("dead", Some("no_route")));
    });
}

#[test]
fn each_member_that_was_not_reached_is_told_to_the_sender_and_never_to_the_operator() {
    with_room(&["amy@alpha", "bob@beta", "cat@beta"], |tx, org| {
        post(tx, org, 1, "amy@alpha");
        let said = messages::post_as_operator(tx, org, &ops(), "hear, hear", None, NOW).unwrap();
        assert_eq!((said.number, said.sender.as_str()), (2, "operator@transit"));
        let refused = |id: &str| {
            messages::refused(tx, (org, "beta"), id, Some("bob"), ("no_thanks", false), NOW)
                .unwrap()
                .unwrap()
                .1
        };
        let amy = queue(org, "amy@alpha");
        assert_eq!(refused("tx_000000000001"), messages::Refused::Dead(Some(amy.clone())));
        assert_eq!(refused(&said.id), messages::Refused::Dead(None));
        let told = |now| {
            let due = messages::due(tx, &amy, 0, now, 9).unwrap().into_iter();
            due.filter(|due| due.sender == messages::SYSTEM).map(|due| due.body).collect::<Vec<_>>()
        };
        assert_eq!(told(NOW), ["undeliverable to bob@beta in #ops: no_thanks"]);
        let late = NOW + DELIVERY_TTL;
        assert_eq!(messages::expire(tx, late).unwrap(), std::slice::from_ref(&amy));
        assert_eq!(told(late), ["undeliverable to cat@beta in #ops: it waited for 24 h"]);
    });
}

#[test]
fn what_waits_reaches_who_has_left_and_who_was_in_a_room_that_is_gone() {
    with_room(&["amy@alpha", "bob@beta", "cat@beta"], |tx, org| {
        post(tx, org, 1, "amy@alpha");
        leave(tx, &ops(), &queue(org, "bob@beta"), NOW).unwrap();
        post(tx, org, 2, "amy@alpha");
        assert_eq!(due(tx, org, "bob@beta", NOW), [1]);
        delete(tx, org, &ops(), NOW).unwrap();
        assert_eq!(due(tx, org, "cat@beta", NOW), [1, 2]);
        assert_eq!(post(tx, org, 3, "amy@alpha"), Posted::Refused(NakCode::NoRoute));
        create(tx, org, &ops(), Policy::Open, None, NOW).unwrap();
        join(tx, &ops(), &queue(org, "amy@alpha"), By::Itself, NOW).unwrap();
        post(tx, org, 4, "amy@alpha");
        assert_eq!(get(tx, org, &ops()).unwrap().last_number, 1, "another room counts from 1");
    });
}

#[test]
fn a_text_is_its_members_and_its_sender_s() {
    with_room(&["amy@alpha", "bob@beta"], |tx, org| {
        post(tx, org, 1, "amy@alpha");
        let text = |who: &str| messages::text(tx, &queue(org, who), "tx_000000000001").unwrap().unwrap();
        assert!(text("amy@alpha").is_of_room);
        assert_eq!((text("bob@beta").state.as_deref(), text("cat@beta").state), (Some("queued"), None));
    });
}

fn source(tx: &Tx<'_>, org: &str) -> Result<SourceRow, StoreError> {
    let new = NewSource {
        name: "ci".parse().unwrap(),
        target_addr: "#ops".parse().unwrap(),
        reply_url: None,
        prefixes: vec![],
        secret: Secret::new("s").unwrap(),
        rate: 1,
        burst: 1,
        instructions: None,
    };
    let key = MasterKey::from_base64("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").unwrap();
    sources::create(tx, org, &new, &key, NOW)
}

fn accept(tx: &Tx<'_>, source: &SourceRow, key: &str) -> events::Accepted {
    let event =
        Event { event_key: key.into(), conversation_id: "c".into(), content: "x".into(), ..Event::default() };
    events::accept(tx, source, &event, &events::digest(&event), 1, &source.target_addr, NOW).unwrap()
}

fn due_events(tx: &Tx<'_>, org: &str, to: &str) -> usize {
    deliveries::due(tx, &queue(org, to), 0, NOW, 99).unwrap().len()
}

#[test]
fn an_event_goes_to_every_member_and_the_first_to_settle_settles_it_for_all() {
    with_room(&["amy@alpha", "bob@beta"], |tx, org| {
        let source = source(tx, org).unwrap();
        let event = accept(tx, &source, "k1");
        assert_eq!(event.members, [queue(org, "amy@alpha"), queue(org, "bob@beta")]);
        let id = &event.delivery_id;
        let of = |who: &str| deliveries::get(tx, &queue(org, who), id).unwrap().unwrap();
        assert!(
            of("amy@alpha").is_of(&queue(org, "amy@alpha")) && of("bob@beta").is_of(&queue(org, "bob@beta"))
        );
        assert!(!of("cat@beta").is_of(&queue(org, "cat@beta")));
        deliveries::dispatched(tx, org, "beta", id, Some("bob"), NOW).unwrap();
        assert_eq!((due_events(tx, org, "amy@alpha"), due_events(tx, org, "bob@beta")), (1, 0));
        replies::record(tx, org, &of("bob@beta"), "mine", NOW).unwrap();
        assert_eq!(due_events(tx, org, "amy@alpha"), 0);
        assert!(of("amy@alpha").state.is_settled());
        let due = replies::due(tx, org, &source.integration_id, NOW, 9).unwrap();
        assert_eq!((due.len(), due[0].agent.as_str()), (1, "bob@beta"));
        replies::posted(tx, &due[0], NOW).unwrap();
        assert_eq!(of("amy@alpha").state, deliveries::State::Handled);
        assert_eq!(accept(tx, &source, "k1").delivery_id, *id);
    });
}

#[test]
fn an_event_of_an_empty_room_waits_for_the_first_who_joins() {
    with_room(&[], |tx, org| {
        let source = source(tx, org).unwrap();
        let first = accept(tx, &source, "k1");
        accept(tx, &source, "k2");
        assert!(first.members.is_empty());
        assert!(join(tx, &ops(), &queue(org, "amy@alpha"), By::Itself, NOW).unwrap());
        assert!(!join(tx, &ops(), &queue(org, "bob@beta"), By::Itself, NOW).unwrap());
        assert_eq!((due_events(tx, org, "amy@alpha"), due_events(tx, org, "bob@beta")), (2, 0));
        // Who leaves takes nothing along: what was amy's alone is bob's.
        assert_eq!(leave(tx, &ops(), &queue(org, "amy@alpha"), NOW).unwrap(), [queue(org, "bob@beta")]);
        assert_eq!((due_events(tx, org, "amy@alpha"), due_events(tx, org, "bob@beta")), (0, 2));
        accept(tx, &source, "k3");
        join(tx, &ops(), &queue(org, "cat@beta"), By::Itself, NOW).unwrap();
        accept(tx, &source, "k4");
        assert!(leave(tx, &ops(), &queue(org, "cat@beta"), NOW).unwrap().is_empty());
        assert_eq!((due_events(tx, org, "bob@beta"), due_events(tx, org, "cat@beta")), (4, 0));
        assert!(leave(tx, &ops(), &queue(org, "bob@beta"), NOW).unwrap().is_empty());
        assert!(join(tx, &ops(), &queue(org, "cat@beta"), By::Itself, NOW).unwrap());
        assert_eq!(due_events(tx, org, "cat@beta"), 4);
    });
}

#[test]
fn a_room_that_gets_the_name_of_a_deleted_one_has_none_of_its_events() {
    with_room(&[], |tx, org| {
        let source = source(tx, org).unwrap();
        let id = accept(tx, &source, "k1").delivery_id;
        sources::delete(tx, org, &source.name).unwrap();
        delete(tx, org, &ops(), NOW).unwrap();
        let amy = queue(org, "amy@alpha");
        assert!(!found(tx, &ops(), Policy::Open, &amy, NOW).unwrap());
        assert_eq!(due_events(tx, org, "amy@alpha"), 0);
        assert_eq!(deliveries::get(tx, &amy, &id).unwrap().unwrap().state, deliveries::State::Handled);
    });
}

#[test]
fn who_leaves_a_room_of_a_deleted_one_s_name_keeps_what_was_said_in_the_deleted_one() {
    with_room(&["amy@alpha", "bob@beta"], |tx, org| {
        let first = source(tx, org).unwrap();
        accept(tx, &first, "k1");
        sources::delete(tx, org, &first.name).unwrap();
        delete(tx, org, &ops(), NOW).unwrap();
        let amy = queue(org, "amy@alpha");
        found(tx, &ops(), Policy::Open, &amy, NOW).unwrap();
        let second = source(tx, org).unwrap();
        accept(tx, &second, "k2");
        assert_eq!(due_events(tx, org, "amy@alpha"), 2);
        leave(tx, &ops(), &amy, NOW).unwrap();
        assert_eq!((due_events(tx, org, "amy@alpha"), due_events(tx, org, "bob@beta")), (1, 1));
        join(tx, &ops(), &queue(org, "cat@beta"), By::Itself, NOW).unwrap();
        assert_eq!(due_events(tx, org, "cat@beta"), 1, "only what was of this room");
    });
}

#[test]
fn an_agent_that_gets_another_name_stays_in_its_rooms() {
    with_room(&["amy@alpha", "bob@beta"], |tx, org| {
        for (old, new) in [("bob", "cat"), ("cat", "cat2")] {
            roster::rename(tx, org, "beta", (old, new), NOW).unwrap();
        }
        let ops = get(tx, org, &ops()).unwrap();
        let members = members(tx, org, &ops).unwrap().into_iter().map(|member| member.queue);
        assert_eq!(members.collect::<Vec<_>>(), [queue(org, "amy@alpha"), queue(org, "cat2@beta")]);
    });
    with_room(&["amy@alpha", "bob@alpha"], |tx, org| {
        roster::rename(tx, org, "alpha", ("bob", "amy"), NOW).unwrap();
        assert_eq!(get(tx, org, &ops()).unwrap().members, 1, "nobody is in it twice");
    });
}

#[test]
fn a_source_needs_its_room_and_keeps_it() {
    with_agents(|tx, org| {
        assert_eq!(code(source(tx, org)), "room_not_found");
        create(tx, org, &ops(), Policy::Open, None, NOW).unwrap();
        source(tx, org).unwrap();
        assert_eq!(code(delete(tx, org, &ops(), NOW)), "room_in_use");
        sources::delete(tx, org, &"ci".parse().unwrap()).unwrap();
        delete(tx, org, &ops(), NOW).unwrap();
    });
}

#[test]
fn organisations_do_not_see_each_others_rooms() {
    with_room(&["amy@alpha"], |tx, org| {
        let other = directory::create_org(tx, &"other".parse().unwrap(), "Other").unwrap().id;
        enrol(tx, &other, "alpha", &[agent("amy", "idle")], NOW).unwrap();
        assert_eq!(find(tx, &other, &ops()).unwrap(), None);
        assert_eq!(code(join(tx, &ops(), &queue(&other, "amy@alpha"), By::Operator, NOW)), "room_not_found");
        assert_eq!(post(tx, &other, 1, "amy@alpha"), Posted::Refused(NakCode::NoRoute));
        create(tx, &other, &ops(), Policy::Open, None, NOW).unwrap();
        let room = get(tx, org, &ops()).unwrap();
        assert!(members(tx, &other, &room).unwrap().is_empty());
        assert!(!is_member(tx, &room, &queue(&other, "amy@alpha")).unwrap());
        assert_eq!(get(tx, &other, &ops()).unwrap().members, 0);
    });
}
