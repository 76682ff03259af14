//! Planted faults: each breaks one law in a story that was right, and that law must see it.

use serde_json::json;
use transit::proto::wire::NakCode;

use super::proof::LAWS;
use super::story::{Story, Whose};
use super::{Plot, run};

/// Which law is to see it, and how to plant it; `None` when the story has no place for it.
type Fault = (&'static str, fn(&mut Story) -> Option<()>);

const FAULTS: &[Fault] = &[
    ("promise", |story| {
        story.promises.first_mut()?.is_kept = false;
        Some(())
    }),
    ("answer", |story| {
        let acked = story.accepted.iter_mut().find(|one| one.answers.contains(&Ok(())))?;
        acked.answers.push(Err(NakCode::NoRoute));
        Some(())
    }),
    ("answer", |story| {
        story.accepted.first_mut()?.answers.clear();
        Some(())
    }),
    ("fate", |story| {
        // An acknowledged message is in no ledger.
        let acked = story.accepted.iter().find(|one| one.answers.contains(&Ok(())))?;
        let (org, id) = (acked.org, acked.id.clone());
        story.messages.retain(|row| row.org != org || row.id != id);
        Some(())
    }),
    ("fate", |story| {
        // It is said to be in a session that never showed it.
        let row = story.messages.iter().find(|row| row.state == "injected" && row.sender != "transit")?;
        let (id, agent) = (row.id.clone(), row.agent.clone());
        story.shown.retain(|shown| shown.id != id || shown.agent != agent);
        Some(())
    }),
    ("fate", |story| {
        let bounce = story.messages.iter().find(|row| row.sender == "transit")?.clone();
        story.messages.push(bounce);
        Some(())
    }),
    ("fate", |story| {
        story.messages.iter().find(|row| row.sender == "transit")?;
        story.messages.retain(|row| row.sender != "transit");
        Some(())
    }),
    ("event", |story| {
        let at = to_an_agent(story)?;
        story.deliveries.remove(at);
        Some(())
    }),
    ("event", |story| {
        story.deliveries.first_mut()?.state = "read".into();
        Some(())
    }),
    ("event", |story| {
        let row = story.deliveries[to_an_agent(story)?].clone();
        story.deliveries.push(row);
        Some(())
    }),
    ("event", |story| {
        let event = story.events.iter_mut().find(|event| !event.taken.is_empty())?;
        event.taken.push((200, "dlv_000000000000".into()));
        Some(())
    }),
    ("once", |story| {
        let shown = story.shown.last()?.clone();
        story.shown.push(shown);
        Some(())
    }),
    ("order", |story| {
        // The last of a pair comes first.
        let sent = |story: &Story, at: usize| {
            let one = &story.accepted[at];
            let shown = |shown: &super::story::Shown| {
                shown.org == one.org && shown.id == one.id && shown.agent == one.to
            };
            story.shown.iter().position(shown)
        };
        for first in 0..story.accepted.len() {
            for second in first + 1..story.accepted.len() {
                let (a, b) = (&story.accepted[first], &story.accepted[second]);
                if (a.org, &a.from, &a.to) != (b.org, &b.from, &b.to) {
                    continue;
                }
                if let (Some(a), Some(b)) = (sent(story, first), sent(story, second)) {
                    let late = story.shown.remove(b);
                    story.shown.insert(a, late);
                    return Some(());
                }
            }
        }
        None
    }),
    ("room", |story| {
        story.posts.first()?;
        story.posts.remove(0);
        Some(())
    }),
    ("room", |story| {
        let post = story.posts.iter().find(|post| post.sender != "ada@titan")?;
        let (org, id) = (post.org, post.id.clone());
        story.messages.retain(|row| row.org != org || row.id != id || row.agent != "ada@titan");
        Some(())
    }),
    ("room", |story| {
        *story.shown.iter_mut().find_map(|shown| shown.seq.as_mut())? += 1;
        Some(())
    }),
    ("settled", |story| {
        story.delivered.last_mut()?.was_open = false;
        Some(())
    }),
    ("reply", |story| {
        let mut posted = story.posted.first()?.clone();
        posted.body["message"] = json!("another");
        story.posted.push(posted);
        Some(())
    }),
    ("reply", |story| {
        story.posted.first_mut()?.is_signed = false;
        Some(())
    }),
    ("reply", |story| {
        let row = story.deliveries.iter_mut().find(|row| row.reply.as_deref() == Some("posted"))?;
        row.reply = Some("due".into());
        Some(())
    }),
    ("reply", |story| {
        let handled = |one: &&mut super::story::Called| {
            one.result.as_ref().is_ok_and(|value| value["status"] == "handled")
        };
        story.called.iter_mut().find(handled)?.is_taken = false;
        Some(())
    }),
    ("owner", |story| {
        let called = story.called.iter_mut().find(|one| one.whose == Whose::Others)?;
        called.result = Ok(json!({ "duplicate": false }));
        Some(())
    }),
    ("owner", |story| {
        let mut settling = story.called.iter_mut().filter(|one| one.method == "mark_handled");
        settling.find(|one| one.result.is_ok() && one.whose == Whose::Own)?.is_settled = false;
        Some(())
    }),
    ("tenant", |story| {
        let shown = story.shown.iter_mut().find(|one| one.body.contains("org "))?;
        shown.org = 1 - shown.org;
        Some(())
    }),
    ("tenant", |story| {
        let posted = story.posted.first_mut()?;
        posted.org = 1 - posted.org;
        Some(())
    }),
    ("operator", |story| {
        story.defied.push("an event was taken by a source that was paused".into());
        Some(())
    }),
    ("loop", |story| {
        let row =
            story.messages.iter().filter(|_| story.is_steady).find(|row| row.sender == "dan@rhea")?.clone();
        story.deliveries.clear();
        let again = |n| super::story::MessageRow { id: format!("again {n}"), ..row.clone() };
        story.messages.extend((0..40).map(again));
        Some(())
    }),
    ("space", |story| {
        story.crammed.push("message tx_000000000000".into());
        (story.without_room > 0).then_some(())
    }),
    ("goodbye", |story| {
        story.cut_off.push("tx_000000000000".into());
        (story.goodbyes > 0).then_some(())
    }),
    ("keep", |story| {
        story.gone.first_mut()?.is_settled = false;
        Some(())
    }),
    ("keep", |story| {
        let gone = story.gone.first_mut()?;
        gone.age_ms = gone.keep_ms - 1;
        Some(())
    }),
    ("rest", |story| {
        story.restless.push("something waits".into());
        Some(())
    }),
];

/// A delivery that is one agent's alone.
fn to_an_agent(story: &Story) -> Option<usize> {
    story.deliveries.iter().position(|row| !row.key.starts_with("siren"))
}

/// Plants every fault in a story that was right. Answers how many there are.
pub(crate) fn all_are_found() -> Result<u64, String> {
    let mut left: Vec<&Fault> = FAULTS.iter().collect();
    for seed in 1_000..1_020 {
        let told = run(Plot { seed, crash: None, is_quiet: false, is_told: false })?;
        let mut missed = Ok(());
        left.retain(|(name, plant)| {
            let mut story = told.story.clone();
            let is_planted = plant(&mut story).is_some();
            let law = LAWS.iter().find(|law| law.name == *name).expect("faults name laws");
            if is_planted && (law.check)(&story).is_ok() {
                missed = Err(format!("a fault was planted and {name} did not see it"));
            }
            !is_planted
        });
        missed?;
        if left.is_empty() {
            break;
        }
    }
    let unplanted: Vec<&str> = left.iter().map(|fault| fault.0).collect();
    let unbroken = LAWS.iter().find(|law| FAULTS.iter().all(|fault| fault.0 != law.name));
    match (unplanted.as_slice(), unbroken) {
        ([], None) => Ok(FAULTS.len() as u64),
        (_, Some(law)) => Err(format!("no fault was ever planted for {}", law.name)),
        (unplanted, None) => Err(format!("no story has a place for faults of {unplanted:?}")),
    }
}
