//! What every story must show. Each law is a function over what was seen; it answers how often it held, or where it
//! was broken.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::host::UNWELCOME;
use super::outside::MEMBERS;
use super::story::{Accepted, Story, Whose};
use super::strain;
use super::world::ROOM;

/// Something that always holds.
pub(crate) struct Law {
    /// The word for it.
    pub(crate) name: &'static str,
    /// What it says.
    pub(crate) says: &'static str,
    /// How often it held in a story, or the first place where it did not.
    pub(crate) check: fn(&Story) -> Result<u64, String>,
}

pub(crate) const LAWS: &[Law] = &[
    Law { name: "promise", says: "nothing is answered before the commit that makes it true", check: promise },
    Law { name: "answer", says: "a message has one final answer for ever", check: answer },
    Law {
        name: "fate",
        says: "what was acknowledged is delivered, or dead with exactly one bounce",
        check: fate,
    },
    Law { name: "event", says: "an event that was taken is one delivery, shown and settled", check: event },
    Law { name: "once", says: "nothing is shown twice but after a crash, or with its note", check: once },
    Law { name: "order", says: "messages of a pair are shown in the order they were sent", check: order },
    Law { name: "room", says: "a room counts without gaps and tells every member, in order", check: room },
    Law { name: "settled", says: "what is settled is never delivered again", check: settled },
    Law {
        name: "reply",
        says: "a delivery has one reply in effect, signed, posted until taken",
        check: reply,
    },
    Law { name: "owner", says: "only the owner of a delivery reads or settles it", check: owner },
    Law { name: "tenant", says: "nothing of one organisation reaches the other", check: tenant },
    Law { name: "operator", says: "what an operator changed holds at once", check: operator },
    Law { name: "loop", says: "no more than the limit pass with nobody between", check: strain::loops },
    Law { name: "space", says: "without room on the disk nothing new is taken", check: strain::room_on_disk },
    Law { name: "goodbye", says: "a stop answers what was read before it closes", check: strain::goodbye },
    Law { name: "keep", says: "what is removed was settled for long enough", check: strain::kept },
    Law { name: "rest", says: "everything comes to rest", check: rest },
];

fn all(wrong: Option<String>, count: usize) -> Result<u64, String> {
    wrong.map_or(Ok(count as u64), Err)
}

fn promise(story: &Story) -> Result<u64, String> {
    let broken = story.promises.iter().find(|promise| !promise.is_kept);
    all(broken.map(|promise| format!("{} was said and was not so", promise.what)), story.promises.len())
}

/// The answers to a message that are for good.
fn finals(accepted: &Accepted) -> impl Iterator<Item = &Result<(), transit::proto::wire::NakCode>> {
    accepted.answers.iter().filter(|answer| !answer.is_err_and(|code| !code.is_permanent()))
}

fn answer(story: &Story) -> Result<u64, String> {
    for accepted in &story.accepted {
        let mut finals = finals(accepted);
        let Some(first) = finals.next() else {
            return Err(format!("{} of org {} was never answered", accepted.id, accepted.org));
        };
        if let Some(other) = finals.find(|other| *other != first) {
            return Err(format!("{} was answered {first:?}, then {other:?}", accepted.id));
        }
    }
    Ok(story.accepted.len() as u64)
}

fn fate(story: &Story) -> Result<u64, String> {
    let mut count = 0;
    let mut shown = BTreeSet::new();
    shown.extend(story.shown.iter().map(|one| (one.org, one.id.as_str(), one.agent.as_str())));
    for accepted in &story.accepted {
        let Accepted { org, id, from, .. } = accepted;
        let is_taken = finals(accepted).next() == Some(&Ok(()));
        let rows: Vec<_> = story
            .messages
            .iter()
            .filter(|row| row.org == *org && row.id == *id && row.sender == *from)
            .collect();
        if !is_taken {
            continue;
        }
        if rows.is_empty() {
            return Err(format!("{id} of org {org} was acknowledged and is lost"));
        }
        for row in rows {
            count += 1;
            let bounces = story.messages.iter().filter(|one| {
                one.org == *org
                    && one.sender == "transit"
                    && one.reply_to.as_deref() == Some(id)
                    && one.body.contains(&row.agent)
            });
            let bounces = bounces.count();
            let was_shown = shown.contains(&(*org, id.as_str(), row.agent.as_str()));
            let is_right = match row.state.as_str() {
                "injected" => was_shown && bounces == 0,
                // A member of a room whom nobody knows any more is passed over, and nobody is told.
                "dead" if accepted.to == ROOM && row.error.as_deref() == Some("no_route") => bounces == 0,
                "dead" => bounces == 1,
                _ => false,
            };
            let unwelcome = accepted.body == UNWELCOME && row.state != "dead";
            if !is_right || unwelcome {
                return Err(format!(
                    "{id} of org {org} is {} for {}, was shown: {was_shown}, and has {bounces} bounces",
                    row.state, row.agent
                ));
            }
        }
    }
    Ok(count)
}

fn event(story: &Story) -> Result<u64, String> {
    for event in &story.events {
        let ids: BTreeSet<&String> = event.taken.iter().map(|taken| &taken.1).collect();
        let rows: Vec<_> =
            story.deliveries.iter().filter(|row| row.org == event.org && row.key == event.key).collect();
        // One to a room is one a member, all under one id.
        let most = if event.source == "siren" { 9 } else { 1 };
        let Some(row) = rows.first().filter(|_| rows.len() <= most) else {
            return Err(format!("event {} of org {} has {} deliveries", event.key, event.org, rows.len()));
        };
        if ids.len() != 1 || rows.iter().any(|row| !ids.contains(&row.id)) {
            return Err(format!("event {} was taken as {ids:?} and is {}", event.key, row.id));
        }
        if let Some(open) = rows.iter().find(|other| other.state != row.state) {
            return Err(format!("{} is {} for one and {} for another", row.id, row.state, open.state));
        }
        let was_shown = story.shown.iter().any(|shown| shown.id == row.id && shown.org == event.org);
        if row.state != "handled" || !(was_shown || story.by_operator.contains(&row.id)) {
            return Err(format!("{} is {}, was shown: {was_shown}", row.id, row.state));
        }
    }
    Ok(story.events.len() as u64)
}

fn once(story: &Story) -> Result<u64, String> {
    let mut before = BTreeMap::new();
    for shown in &story.shown {
        let key = (shown.org, &shown.agent, &shown.id);
        if let Some((life, redelivery)) = before.insert(key, (shown.life, shown.redelivery)) {
            let has_note = shown.redelivery > redelivery && shown.redelivery.is_some();
            if life == shown.life && !has_note {
                return Err(format!("{} was shown to {} twice", shown.id, shown.agent));
            }
        }
    }
    Ok(story.shown.len() as u64)
}

fn order(story: &Story) -> Result<u64, String> {
    let mut place = BTreeMap::new();
    for (at, shown) in story.shown.iter().enumerate() {
        place.entry((shown.org, shown.id.as_str(), shown.agent.as_str())).or_insert(at);
    }
    let (mut pairs, mut count) = (BTreeMap::new(), 0);
    for accepted in story.accepted.iter().filter(|one| finals(one).next() == Some(&Ok(()))) {
        let Accepted { org, id, from, to, .. } = accepted;
        let Some(&at) = place.get(&(*org, id.as_str(), to.as_str())) else { continue };
        count += 1;
        if let Some((before, earlier)) = pairs.insert((org, from, to), (at, id))
            && before > at
        {
            return Err(format!("{id} of {from} was shown to {to} before {earlier}"));
        }
    }
    Ok(count)
}

fn room(story: &Story) -> Result<u64, String> {
    for org in 0..2 {
        let numbers = story.posts.iter().filter(|post| post.org == org).map(|post| post.number);
        if let Some((expected, found)) = (1..).zip(numbers).find(|(expected, found)| expected != found) {
            return Err(format!("the room of org {org} has no {expected}, but {found}"));
        }
    }
    let rows: BTreeSet<_> =
        story.messages.iter().map(|row| (row.org, row.id.as_str(), row.agent.as_str())).collect();
    let members = MEMBERS.map(|(host, agent)| format!("{agent}@{host}"));
    let mut count = 0;
    for post in &story.posts {
        for member in members.iter().filter(|member| **member != post.sender) {
            count += 1;
            if !rows.contains(&(post.org, post.id.as_str(), member.as_str())) {
                return Err(format!("{} of org {} was never for {member}", post.id, post.org));
            }
        }
    }
    let numbers: BTreeMap<_, _> =
        story.posts.iter().map(|post| ((post.org, post.id.as_str()), post.number)).collect();
    let (mut seen, mut latest) = (BTreeSet::new(), BTreeMap::new());
    for shown in story.shown.iter().filter(|shown| shown.seq.is_some()) {
        if numbers.get(&(shown.org, shown.id.as_str())) != shown.seq.as_ref() {
            return Err(format!("{} was shown as number {:?}", shown.id, shown.seq));
        }
        if seen.insert((shown.org, &shown.agent, &shown.id)) {
            let before = latest.insert((shown.org, &shown.agent, &shown.from), shown.seq);
            if before > Some(shown.seq) {
                return Err(format!("{} was shown to {} too late", shown.id, shown.agent));
            }
        }
    }
    Ok(count)
}

fn settled(story: &Story) -> Result<u64, String> {
    let broken = story.delivered.iter().find(|one| !one.was_open);
    let broken = broken.map(|one| format!("{} of org {} went to {} again", one.id, one.org, one.agent));
    all(broken, story.delivered.len())
}

fn reply(story: &Story) -> Result<u64, String> {
    let mut bodies = BTreeMap::new();
    for posted in &story.posted {
        let id = posted.body["delivery_id"].as_str().unwrap_or_default();
        if !posted.is_signed {
            return Err(format!("the reply to {id} is not signed as its source signs"));
        }
        let before = bodies.insert((posted.org, id), &posted.body);
        if before.is_some_and(|before| *before != posted.body) {
            return Err(format!("two different replies to {id} were posted"));
        }
    }
    for row in story.deliveries.iter() {
        let is_taken = || story.posted.iter().any(|one| one.is_taken && one.body["delivery_id"] == row.id);
        match row.reply.as_deref() {
            Some("posted") if is_taken() => {}
            Some("dropped") if story.by_operator.contains(&row.id) => {}
            None => {}
            other => return Err(format!("the reply to {} is {other:?}", row.id)),
        }
    }
    let mut said: BTreeMap<&String, &Value> = BTreeMap::new();
    let told = story.called.iter().filter(|one| one.method == "chat_reply" && one.whose == Whose::Own);
    for called in told {
        let Ok(result) = &called.result else { continue };
        let is_handled = result["status"] == "handled";
        if is_handled && !called.is_taken {
            return Err(format!("{} is said to be handled, and nobody has taken it", called.about));
        }
        let before = said.insert(&called.about, &result["message"]);
        if before.is_some_and(|before| *before != result["message"]) {
            return Err(format!("{} was answered twice, with two replies", called.about));
        }
    }
    Ok(story.posted.len() as u64)
}

fn owner(story: &Story) -> Result<u64, String> {
    for called in &story.called {
        let code = called.result.as_ref().err().map(String::as_str);
        let is_right = match called.whose {
            // Who is a member changes all the time.
            Whose::Rooms => code.is_none_or(|code| !matches!(code, "not_found" | "bad_params")),
            Whose::Foreign => code == Some("not_found"),
            Whose::Others => code == Some("not_owner"),
            // What was done is done: the ledger has it.
            Whose::Own if called.method == "read_message" => code.is_none(),
            Whose::Own => {
                called.is_settled && code.is_none()
                    || matches!(code, Some("one_way" | "already_handled" | "conversation_mismatch"))
            }
        };
        if !is_right {
            return Err(format!(
                "{} about {} ({:?}) was answered {:?}, settled: {}",
                called.method, called.about, called.whose, called.result, called.is_settled
            ));
        }
    }
    Ok(story.called.len() as u64)
}

fn tenant(story: &Story) -> Result<u64, String> {
    let foreign = |org: usize, text: &str| text.contains(&format!("org {} ", 1 - org));
    for shown in &story.shown {
        if foreign(shown.org, &shown.body) {
            return Err(format!("{} of org {} was shown {:?}", shown.agent, shown.org, shown.body));
        }
    }
    for posted in &story.posted {
        if foreign(posted.org, &posted.body.to_string()) {
            return Err(format!("the receiver of org {} got {}", posted.org, posted.body));
        }
    }
    for called in &story.called {
        let text = called.result.as_ref().map(Value::to_string).unwrap_or_default();
        if foreign(called.org, &text) {
            return Err(format!("an agent of org {} was told {text}", called.org));
        }
    }
    Ok((story.shown.len() + story.posted.len() + story.called.len()) as u64)
}

fn operator(story: &Story) -> Result<u64, String> {
    all(story.defied.first().cloned(), story.heeded as usize)
}

fn rest(story: &Story) -> Result<u64, String> {
    all(story.restless.first().cloned(), 1)
}
