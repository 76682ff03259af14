//! The sessions that can be reached now: who they are, what they are doing, and how to wake the thread that serves
//! each. Nothing of it survives the process; names do, in the spool.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::session::{Mailbox, Session};
use crate::addr::Name;
use crate::proto::wire::AgentInfo;
use crate::store::process::Process;
use crate::store::spool::agents::{Identity, Place};

/// What a caller says of itself, from its environment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hint<'a> {
    /// The pane that it runs in.
    pub(super) pane_id: Option<&'a str>,
    /// The session that it was started for.
    pub(super) session_id: Option<&'a str>,
}

/// Which session a process runs in.
#[derive(Debug, Clone)]
pub(super) enum Caller {
    /// This one.
    Session(Box<Session>),
    /// None.
    Nobody,
    /// Several sessions share the process, and nothing tells them apart.
    Unclear,
    /// One that is not back yet, whoever else of its process is.
    Absent,
}

/// All sessions that can be reached, by name.
#[derive(Debug, Default)]
pub(super) struct Registry {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: BTreeMap<Name, Session>,
    /// Counts what the roster tells: arrivals, departures and names; and everything, with their states.
    members: u64,
    version: u64,
}

/// What the roster was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Version {
    /// Changes with who is there.
    pub(super) members: u64,
    /// Changes with anything.
    pub(super) any: u64,
}

impl Registry {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a session in its place. An older connection of the same session ends; it is answered here, for it may
    /// have heard what is not in the spool yet.
    pub(super) fn enter(&self, session: Session) -> Vec<Mailbox> {
        let mut inner = self.inner();
        let is_older = |name: &Name, other: &Session| other.who == session.who || *name == session.place.name;
        let names: Vec<Name> = inner
            .sessions
            .iter()
            .filter(|(name, other)| is_older(name, other))
            .map(|(name, _)| name.clone())
            .collect();
        let older: Vec<Mailbox> =
            names.iter().filter_map(|name| inner.sessions.remove(name)).map(|it| it.mailbox).collect();
        older.iter().for_each(|older| older.replace(&session.mailbox));
        inner.sessions.insert(session.place.name.clone(), session);
        inner.changed(true);
        older
    }

    /// Takes a session out; answers whether it was still there, and not replaced.
    pub(super) fn leave(&self, session: &Session) -> bool {
        let mut inner = self.inner();
        let name = &session.place.name;
        let is_there = inner.sessions.get(name).is_some_and(|now| now.is(session));
        if is_there {
            inner.sessions.remove(name);
            inner.changed(true);
        }
        is_there
    }

    /// Gives a session another place; answers whether it was still there, and not replaced.
    pub(super) fn rename(&self, session: &Session, place: &Place, address: &str) -> bool {
        let mut inner = self.inner();
        let name = &session.place.name;
        if !inner.sessions.get(name).is_some_and(|now| now.is(session)) {
            return false;
        }
        if let Some(mut now) = inner.sessions.remove(name) {
            now.place = place.clone();
            address.clone_into(&mut now.address);
            inner.sessions.insert(place.name.clone(), now);
        }
        inner.changed(true);
        true
    }

    /// Notes what a session is doing; answers whether that is news. What a connection says that was replaced is not.
    pub(super) fn set_status(&self, session: &Session, status: &str) -> bool {
        let mut inner = self.inner();
        let is_news = match inner.sessions.get_mut(&session.place.name) {
            Some(now) if now.is(session) && now.status != status => {
                status.clone_into(&mut now.status);
                true
            }
            _ => false,
        };
        if is_news {
            inner.changed(false);
        }
        is_news
    }

    /// Takes what was found out about a session that does not tell it by itself.
    pub(super) fn observed(&self, session: &Session) {
        let mut inner = self.inner();
        let Some(now) = inner.sessions.get_mut(&session.place.name).filter(|now| now.is(session)) else {
            return;
        };
        let is_news = now.status != session.status || now.cwd != session.cwd || now.title != session.title;
        now.status.clone_from(&session.status);
        now.cwd.clone_from(&session.cwd);
        now.title.clone_from(&session.title);
        now.way = session.way.clone();
        if is_news {
            inner.changed(false);
        }
    }

    /// Lets the whole roster be told once more: something that it does not say has become possible.
    pub(super) fn tell_again(&self) {
        self.inner().changed(true);
    }

    /// Wakes the session of this name; answers whether there is one.
    pub(super) fn wake(&self, name: &str) -> bool {
        let Ok(name) = name.parse::<Name>() else { return false };
        let inner = self.inner();
        let session = inner.sessions.get(&name);
        if let Some(session) = session {
            session.mailbox.wake.wake();
        }
        session.is_some()
    }

    /// The session of this name.
    pub(super) fn get(&self, name: &Name) -> Option<Session> {
        self.inner().sessions.get(name).cloned()
    }

    /// The address of a session, whatever it is called now.
    pub(super) fn address_of(&self, who: &Identity) -> Option<String> {
        let inner = self.inner();
        inner.sessions.values().find(|session| session.who == *who).map(|session| session.address.clone())
    }

    /// All sessions, by name.
    pub(super) fn all(&self) -> Vec<Session> {
        self.inner().sessions.values().cloned().collect()
    }

    /// Lets every session register again.
    pub(super) fn end_all(&self) {
        for session in self.all() {
            session.mailbox.end();
        }
    }

    /// The roster, and what it was made from.
    ///
    /// An agent that gets another name is known by its pane, so that no two of them have the same one.
    pub(super) fn roster(&self) -> (Vec<AgentInfo>, Version) {
        let inner = self.inner();
        let mut agents: Vec<AgentInfo> = inner.sessions.values().map(Session::info).collect();
        let mut panes = BTreeMap::new();
        for agent in &agents {
            *panes.entry(agent.pane_id.clone()).or_insert(0) += 1;
        }
        for (agent, session) in agents.iter_mut().zip(inner.sessions.values()) {
            if panes.get(&agent.pane_id).is_some_and(|agents| *agents > 1) {
                agent.pane_id = session.long_pane_id();
            }
        }
        (agents, inner.seen())
    }

    /// What a roster would be made from now.
    pub(super) fn version(&self) -> Version {
        self.inner().seen()
    }

    /// The session that a process runs in: that of its nearest ancestor that has one. What the caller says of itself
    /// only tells sessions of one process apart; it may be old, and then counts for nothing. But a session of which
    /// `is_awaited` says that it may still come back is not taken for the one that is back already.
    pub(super) fn caller(
        &self,
        lineage: &[Process],
        hint: Hint<'_>,
        is_awaited: impl Fn(&str) -> bool,
    ) -> Caller {
        let inner = self.inner();
        let is_back = |id: &str| inner.sessions.values().any(|session| session.who.session_id == id);
        let is_absent = hint.session_id.is_some_and(|id| !is_back(id) && is_awaited(id));
        for process in lineage {
            let mut here: Vec<&Session> =
                inner.sessions.values().filter(|session| session.way.owns(process)).collect();
            if here.len() > 1 {
                let is_named = |session: &Session| hint.session_id == Some(session.who.session_id.as_str());
                let by_id = here.iter().any(|session| is_named(session));
                here.retain(|session| match hint.pane_id {
                    _ if by_id => is_named(session),
                    Some(pane_id) => session.pane_id() == pane_id,
                    None => false,
                });
                if here.len() != 1 {
                    return if is_absent { Caller::Absent } else { Caller::Unclear };
                }
            }
            if let [session] = here[..] {
                return if is_absent { Caller::Absent } else { Caller::Session(Box::new(session.clone())) };
            }
        }
        if is_absent { Caller::Absent } else { Caller::Nobody }
    }
}

impl Inner {
    fn changed(&mut self, members: bool) {
        self.version += 1;
        self.members += u64::from(members);
    }

    fn seen(&self) -> Version {
        Version { members: self.members, any: self.version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::session::{Mailbox, Way};
    use crate::net::wake::Wake;

    fn session(name: &str, session_id: &str, pid: u32, generation: u64) -> Session {
        Session {
            who: Identity { harness: "claude".parse().unwrap(), session_id: session_id.into() },
            place: Place { name: name.parse().unwrap(), is_auto: false, generation },
            address: format!("{name}@titan"),
            way: Way::Adapter { process: process(pid), pane_id: None },
            status: "idle".into(),
            cwd: "/".into(),
            title: String::new(),
            mailbox: Mailbox::new(Wake::new().unwrap()),
        }
    }

    fn process(pid: u32) -> Process {
        Process { pid, start_time: 7 }
    }

    fn name_of(caller: Caller) -> String {
        match caller {
            Caller::Session(session) => session.place.name.to_string(),
            Caller::Nobody => "nobody".into(),
            Caller::Unclear => "unclear".into(),
            Caller::Absent => "absent".into(),
        }
    }

    #[test]
    fn a_newer_connection_takes_its_session_over() {
        let registry = Registry::default();
        let (old, new) = (session("jess", "1", 10, 1), session("jo", "1", 11, 2));
        registry.enter(old.clone());
        let before = registry.version();
        registry.enter(new.clone());
        assert!(old.mailbox.is_replaced() && !new.mailbox.is_replaced());
        assert!(registry.version() != before);
        assert!(!registry.leave(&old), "it has no place any more");
        assert!(!registry.wake("jess") && registry.wake("jo"));
        assert!(registry.set_status(&new, "working") && !registry.set_status(&new, "working"));
        assert_eq!(registry.roster().0[0].status, "working");
        // The same name again, and the older connection has something to say that it heard before.
        let newer = session("jo", "1", 11, 3);
        registry.enter(newer.clone());
        assert!(!registry.set_status(&new, "blocked"));
        assert_eq!(registry.roster().0[0].status, "idle", "what the newer one says counts");
        assert!(!registry.leave(&new) && registry.leave(&newer));
        assert!(registry.roster().0.is_empty());
    }

    #[test]
    fn a_caller_belongs_to_its_nearest_ancestor_with_a_session() {
        let registry = Registry::default();
        registry.enter(session("outer", "outer", 10, 1));
        registry.enter(session("inner", "inner", 20, 1));
        let line = [30, 20, 10].map(process);
        let none = Hint::default();
        let caller = |line: &[Process], hint: Hint<'_>| registry.caller(line, hint, |_| false);
        assert_eq!(name_of(caller(&line, none)), "inner");
        assert_eq!(name_of(caller(&line[2..], none)), "outer");
        assert_eq!(name_of(caller(&[process(40)], none)), "nobody");
        let reused = [Process { pid: 10, start_time: 8 }];
        assert_eq!(name_of(caller(&reused, none)), "nobody", "a later process of that pid");
        let named = |session_id| Hint { session_id: Some(session_id), pane_id: None };
        for old in ["gone", "outer"] {
            assert_eq!(name_of(caller(&line, named(old))), "inner", "there is no other one here");
        }
        registry.enter(session("twin", "twin", 20, 1));
        assert_eq!(name_of(caller(&line, none)), "unclear");
        for old in ["gone", "outer"] {
            assert_eq!(name_of(caller(&line, named(old))), "unclear", "{old}");
        }
        assert_eq!(name_of(caller(&line, named("twin"))), "twin");
        assert_eq!(name_of(caller(&line, named("inner"))), "inner");
        let pane = Hint { pane_id: Some("native:claude:twin"), session_id: None };
        assert_eq!(name_of(caller(&line, pane)), "twin");
        let both = Hint { session_id: Some("inner"), ..pane };
        assert_eq!(name_of(caller(&line, both)), "inner");
        assert_eq!(name_of(caller(&[process(40)], named("twin"))), "nobody", "it is none of its own");
    }

    #[test]
    fn a_session_that_is_not_back_yet_is_no_other_one() {
        let registry = Registry::default();
        registry.enter(session("outer", "outer", 10, 1));
        registry.enter(session("inner", "inner", 20, 1));
        let line = [30, 20, 10].map(process);
        let caller = |id| {
            let hint = Hint { session_id: Some(id), pane_id: None };
            name_of(registry.caller(&line, hint, |id| ["outer", "twin"].contains(&id)))
        };
        assert_eq!(caller("twin"), "absent");
        assert_eq!(caller("gone"), "inner", "nobody waits for it");
        assert_eq!(caller("outer"), "inner", "it is back, and another process's");
        registry.enter(session("third", "third", 20, 1));
        assert_eq!((caller("twin"), caller("gone")), ("absent".into(), "unclear".into()));
        let alone = Hint { session_id: Some("twin"), pane_id: None };
        assert_eq!(name_of(registry.caller(&[process(40)], alone, |id| id == "twin")), "absent");
        assert_eq!(name_of(registry.caller(&[process(40)], alone, |_| false)), "nobody");
    }

    #[test]
    fn ids_that_begin_alike_have_panes_of_their_own() {
        let registry = Registry::default();
        let panes = |registry: &Registry| {
            registry.roster().0.into_iter().map(|agent| agent.pane_id).collect::<Vec<_>>()
        };
        registry.enter(session("a", "01a22a00-0000-7000-8000-00000000beef", 1, 1));
        registry.enter(session("b", "größer-als-acht-ß", 2, 1));
        assert_eq!(panes(&registry), ["native:claude:01a22a00", "native:claude:größer-a"]);
        registry.enter(session("c", "01a22a00-0000-7000-8000-00000000cafe", 3, 1));
        registry.enter(session("d", "größer-a", 4, 1));
        assert_eq!(
            panes(&registry),
            [
                "native:claude:01a22a000000beef",
                "native:claude:größer-as-acht-ß",
                "native:claude:01a22a000000cafe",
                "native:claude:größer-a"
            ]
        );
    }

    #[test]
    fn a_session_that_is_there_gets_another_name() {
        let registry = Registry::default();
        let old = session("jess", "1", 10, 1);
        registry.enter(old.clone());
        let place = Place { name: "ops".parse().unwrap(), is_auto: false, generation: 2 };
        let before = registry.version();
        assert!(registry.rename(&old, &place, "ops@titan"));
        assert!(registry.version().members != before.members, "the Worker hears of it at once");
        assert!(!registry.rename(&old, &place, "ops@titan"), "it is another one by now");
        assert!(!registry.wake("jess") && registry.wake("ops"));
        assert_eq!(registry.get(&place.name).unwrap().address, "ops@titan");
        assert!(!registry.leave(&old));
    }
}
