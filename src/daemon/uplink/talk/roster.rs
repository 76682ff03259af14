//! What the Worker is told of who is here, and when.
//!
//! A Worker takes messages only of senders that are on the roster, and refuses others for good. What a session has sent
//! before it went away must go out all the same, as after a restart of the daemon, when sessions are not back yet: so a
//! sender of messages that are under way stays on the roster until they are not.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Mono;
use crate::daemon::registry::{Registry, Version};
use crate::limits;
use crate::proto::wire::{AgentInfo, NamedBy};

/// Shortest time between two rosters when only a state has changed.
const SETTLES: Duration = Duration::from_secs(1);

/// The newest roster that was told.
#[derive(Debug, Default)]
pub(super) struct Roster {
    /// What it was made from, and when it went out.
    told: Option<(Version, Mono)>,
    /// Who was on it.
    names: BTreeSet<String>,
    /// Those on it that have no session, for the sake of their messages.
    kept: BTreeSet<String>,
}

impl Roster {
    /// The roster, if one is due: on a change, and from time to time. On it are the senders of the messages that are
    /// under way as well, because the roster passes what waits for its turn.
    pub(super) fn due<'a>(
        &mut self,
        registry: &Registry,
        now: Mono,
        under_way: impl Iterator<Item = &'a str>,
    ) -> Option<Vec<AgentInfo>> {
        let version = registry.version();
        let mut under_way = under_way.peekable();
        let is_quiet = under_way.peek().is_none();
        let is_due = self.told.is_none_or(|(told, at)| {
            let age = now.since(at);
            let is_news = told != version || (is_quiet && !self.kept.is_empty());
            told.members != version.members || (is_news && age >= SETTLES) || age >= limits::ROSTER_REFRESH
        });
        if !is_due {
            return None;
        }
        self.kept = under_way.map(str::to_owned).collect();
        Some(self.tell(registry, now))
    }

    /// The roster with these senders on it, and those of what is under way already, if one of them was not on the newest
    /// one.
    pub(super) fn with<'a>(
        &mut self,
        mut senders: impl Iterator<Item = &'a str> + Clone,
        under_way: impl Iterator<Item = &'a str>,
        registry: &Registry,
        now: Mono,
    ) -> Option<Vec<AgentInfo>> {
        let all = senders.clone();
        if senders.all(|name| self.names.contains(name)) {
            return None;
        }
        self.kept = under_way.chain(all).map(str::to_owned).collect();
        Some(self.tell(registry, now))
    }

    /// When [`due`](Self::due) has something to say again.
    pub(super) fn next(&self, registry: &Registry) -> Option<Mono> {
        let (told, at) = self.told?;
        let is_news = told != registry.version() || !self.kept.is_empty();
        Some(at + if is_news { SETTLES } else { limits::ROSTER_REFRESH })
    }

    fn tell(&mut self, registry: &Registry, now: Mono) -> Vec<AgentInfo> {
        let (mut agents, version) = registry.roster();
        let present: BTreeSet<String> = agents.iter().map(|agent| agent.name.clone()).collect();
        self.kept.retain(|name| !present.contains(name));
        agents.extend(self.kept.iter().map(|name| absent(name)));
        agents.sort_by(|one, other| one.name.cmp(&other.name));
        self.names = agents.iter().map(|agent| agent.name.clone()).collect();
        self.told = Some((version, now));
        agents
    }
}

/// An agent that has no session now. What comes for it meanwhile is given back.
fn absent(name: &str) -> AgentInfo {
    AgentInfo {
        name: name.to_owned(),
        kind: "program".to_owned(),
        pane_id: format!("absent:{name}"),
        status: "offline".to_owned(),
        cwd: String::new(),
        title: String::new(),
        named_by: NamedBy::User,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::session::{Mailbox, Session, Way};
    use crate::net::wake::Wake;
    use crate::store::process::Process;
    use crate::store::spool::agents::{Identity, Place};

    fn names(roster: Option<Vec<AgentInfo>>) -> Option<Vec<String>> {
        roster.map(|agents| agents.into_iter().map(|agent| agent.name).collect())
    }

    #[test]
    fn a_sender_without_a_session_is_on_the_roster_while_its_messages_are_under_way() {
        let at = |s| Mono(Duration::from_secs(s));
        let (registry, mut roster) = (Registry::default(), Roster::default());
        let due = |roster: &mut Roster, s, under_way: &[&str]| {
            names(roster.due(&registry, at(s), under_way.iter().copied()))
        };
        assert_eq!(due(&mut roster, 0, &[]), Some(vec![]));
        assert_eq!(due(&mut roster, 59, &[]), None);
        assert_eq!(roster.next(&registry), Some(at(60)));
        let with = |roster: &mut Roster, names: &[&str]| {
            roster.with(names.iter().copied(), std::iter::empty(), &registry, at(60))
        };
        assert_eq!(names(with(&mut roster, &["omar", "jess"])), Some(vec!["jess".into(), "omar".into()]));
        assert_eq!(names(with(&mut roster, &["jess"])), None, "it is on it already");
        assert_eq!(roster.next(&registry), Some(at(61)));
        assert_eq!(due(&mut roster, 70, &["omar", "jess"]), None);
        assert_eq!(due(&mut roster, 70, &[]), Some(vec![]), "they are out");
        registry.tell_again();
        assert_eq!(due(&mut roster, 71, &["amy"]), Some(vec!["amy".into()]), "it has left in the meantime");
        assert_eq!(due(&mut roster, 130, &[]), Some(vec![]));
    }

    #[test]
    fn a_sender_that_leaves_stays_on_the_roster_that_is_told_for_another_one() {
        let (registry, mut roster) = (Registry::default(), Roster::default());
        let place = Place { name: "amy".parse().unwrap(), is_auto: false, generation: 1 };
        let amy = Session {
            who: Identity { harness: "claude".parse().unwrap(), session_id: "1".into() },
            place,
            address: "amy@titan".into(),
            way: Way::Adapter { process: Process::current(), pane_id: None },
            status: "idle".into(),
            cwd: "/".into(),
            title: String::new(),
            mailbox: Mailbox::new(Wake::new().unwrap()),
        };
        registry.enter(amy.clone());
        let now = Mono::default();
        assert_eq!(names(roster.due(&registry, now, std::iter::empty())), Some(vec!["amy".into()]));
        let with = |roster: &mut Roster, names: [&'static str; 1], under_way: Option<&'static str>| {
            roster.with(names.into_iter(), under_way.into_iter(), &registry, now)
        };
        assert_eq!(names(with(&mut roster, ["amy"], None)), None, "it is on it");
        registry.leave(&amy);
        let both = Some(vec!["amy".into(), "omar".into()]);
        assert_eq!(names(with(&mut roster, ["omar"], Some("amy"))), both);
    }
}
