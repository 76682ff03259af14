//! Operators: what is there from the beginning, who is let in, and what they change while everything runs.

use serde_json::json;
use transit::addr::{Host as HostName, Name, Slug, Source};
use transit::limits::{INGEST_BURST, INGEST_RATE, ROTATION_OVERLAP};
use transit::store::ledger::messages::Queue;
use transit::store::ledger::rooms::{self, By, Policy};
use transit::store::ledger::sources::{self, NewSource};
use transit::store::ledger::{Db, credentials, directory, inspect};

use super::agenda::Due;
use super::host::Host;
use super::world::{Org, ROOM, Waiting, World};

/// The sources of each organisation: their names, whom they reach, and whether replies go anywhere.
pub(crate) const SOURCES: [(&str, &str, bool); 4] = [
    ("ci", "ada@titan", true),
    ("pager", "cyd@rhea", true),
    ("feed", "bob@titan", false),
    ("siren", ROOM, true),
];
/// Who is in the room of an organisation from its beginning to its end.
pub(crate) const MEMBERS: [(&str, &str); 2] = [("titan", "ada"), ("rhea", "cyd")];

impl World {
    /// What an operator does beside the Worker, as a process of its own.
    fn as_operator<T>(&self, change: impl FnOnce(&Db) -> T) -> T {
        let db = Db::open_stepped(&self.database).expect("the ledger can be opened beside the Worker");
        change(&db)
    }

    /// The organisations and their sources, before anything begins.
    pub(crate) fn found(&mut self) {
        let (key, now) = (self.key.clone(), self.wall());
        self.orgs = self.as_operator(|db| {
            let umbra: Slug = "umbra".parse().unwrap();
            db.write(move |tx| directory::create_org(tx, &umbra, "Umbra")).unwrap();
            let ids = ["default", "umbra"]
                .map(|slug| db.read(|tx| directory::org(tx, slug)).unwrap().expect("it was just made").id);
            let found = ids.map(|id| {
                let mut org = Org {
                    id: id.clone(),
                    secrets: Default::default(),
                    paused: Default::default(),
                    has_met: false,
                    messages: 0,
                };
                let (org_id, room) = (id.clone(), hall());
                db.write(move |tx| rooms::create(tx, &org_id, &room, Policy::Open, None, now)).unwrap();
                for (name, target, is_answered) in SOURCES {
                    let secret = credentials::fresh_secret();
                    let url = format!("https://receiver.example/{id}/");
                    let new = NewSource {
                        name: name.parse().unwrap(),
                        target_addr: target.parse().unwrap(),
                        reply_url: is_answered.then(|| format!("{url}{name}")),
                        prefixes: vec![url.parse().unwrap()],
                        secret: secret.clone(),
                        rate: INGEST_RATE,
                        burst: INGEST_BURST,
                        instructions: None,
                    };
                    let (key, id) = (key.clone(), id.clone());
                    db.write(move |tx| sources::create(tx, &id, &new, &key, now)).unwrap();
                    org.secrets.insert(name, vec![secret]);
                }
                org
            });
            Vec::from(found)
        });
    }

    /// Puts the first members into the rooms, as soon as they are there.
    pub(crate) fn convene(&mut self) {
        if self.night {
            return;
        }
        let now = self.wall();
        for org in 0..self.orgs.len() {
            let org_id = self.orgs[org].id.clone();
            let joined = self.as_operator(|db| {
                db.write(move |tx| {
                    for (host, agent) in MEMBERS {
                        let member = Queue { org_id: org_id.clone(), host: host.into(), agent: agent.into() };
                        rooms::join(tx, &hall(), &member, By::Operator, now)?;
                    }
                    Ok(())
                })
            });
            self.orgs[org].has_met |= joined.is_ok();
        }
        if !self.orgs.iter().all(|org| org.has_met) {
            self.agenda.soon(5_000, Due::Convene);
        }
    }

    /// A host needs a token: the operator gives it a code, and the daemon uses it.
    pub(crate) fn enrol(&mut self, host: usize) {
        if self
            .waiting
            .values()
            .any(|waiting| matches!(waiting, Waiting::Enrolment { host: h } if *h == host))
        {
            return;
        }
        let org_id = self.orgs[self.hosts[host].org].id.clone();
        let name: HostName = self.hosts[host].name.parse().unwrap();
        let (code, now) = (credentials::fresh_code(), self.wall());
        let hash = credentials::code_hash(&code);
        self.as_operator(|db| {
            db.write(move |tx| {
                // An earlier code may have been used by an answer that never came.
                if directory::host(tx, &org_id, &name)?.is_some_and(|row| row.revoked_at.is_none()) {
                    directory::revoke_host(tx, &org_id, &name, now)?;
                }
                directory::issue_code(tx, &org_id, &name, &hash, now)
            })
            .unwrap();
        });
        self.tally.enrolments += 1;
        let body = json!({ "code": code, "daemon_ver": "sim" }).to_string().into_bytes();
        let process = self.process.as_mut().expect("only a Worker that runs is asked");
        let asked = process.post("/api/daemon/enroll", &[("content-type", "application/json")], body);
        self.waiting.insert(asked, Waiting::Enrolment { host });
    }

    pub(crate) fn operate(&mut self) {
        if self.calm {
            return;
        }
        if self.night {
            return;
        }
        self.agenda.soon(20_000, Due::Operate);
        self.tally.operations += 1;
        let org = self.agenda.rng.below(2);
        let (source, ..) = *self.agenda.rng.one(&SOURCES);
        let (org_id, now) = (self.orgs[org].id.clone(), self.wall());
        match self.agenda.rng.below(100) {
            0..30 => {
                let paused = !self.orgs[org].paused.remove(source);
                if paused {
                    self.orgs[org].paused.insert(source);
                }
                self.pause(org, source, paused);
            }
            30..50 => {
                let (key, secret) = (self.key.clone(), credentials::fresh_secret());
                let (name, new): (Source, _) = (source.parse().unwrap(), secret.clone());
                self.as_operator(|db| {
                    db.write(move |tx| {
                        sources::rotate(tx, &org_id, &name, (&key, &new), ROTATION_OVERLAP, now)
                    })
                    .unwrap();
                });
                self.orgs[org].secrets.get_mut(source).expect("all are there").push(secret);
            }
            50..65 => self.revoke_some_host(),
            _ => self.settle_or_requeue(org),
        }
    }

    fn pause(&self, org: usize, source: &str, paused: bool) {
        let (org_id, now) = (self.orgs[org].id.clone(), self.wall());
        let name: Source = source.parse().unwrap();
        self.as_operator(|db| {
            db.write(move |tx| sources::set_paused(tx, &org_id, &name, paused, now)).unwrap();
        });
    }

    pub(crate) fn resume_everything(&mut self) {
        for org in 0..self.orgs.len() {
            for source in std::mem::take(&mut self.orgs[org].paused) {
                self.pause(org, source, false);
            }
        }
    }

    fn revoke_some_host(&mut self) {
        let host = self.agenda.rng.below(self.hosts.len());
        let Host { org, name, .. } = &self.hosts[host];
        let (org_id, now) = (self.orgs[*org].id.clone(), self.wall());
        let name: HostName = name.parse().unwrap();
        self.as_operator(|db| {
            db.write(move |tx| {
                if directory::host(tx, &org_id, &name)?.is_some() {
                    directory::revoke_host(tx, &org_id, &name, now)?;
                }
                Ok(())
            })
            .unwrap();
        });
    }

    fn settle_or_requeue(&mut self, org: usize) {
        let ids: Vec<String> = self
            .story
            .events
            .iter()
            .filter(|event| event.org == org)
            .filter_map(|event| event.taken.first().map(|taken| taken.1.clone()))
            .collect();
        if ids.is_empty() {
            return;
        }
        let id = self.agenda.rng.one(&ids).clone();
        let (org_id, now, is_handled) = (self.orgs[org].id.clone(), self.wall(), self.agenda.rng.chance(40));
        let which = id.clone();
        let done = self.as_operator(|db| {
            db.write(move |tx| match is_handled {
                true => inspect::handle(tx, &org_id, &which, now).map(drop),
                false => inspect::requeue(tx, &org_id, &which, now).map(drop),
            })
        });
        if done.is_ok() && is_handled {
            self.story.by_operator.insert(id);
        }
    }
}

fn hall() -> Name {
    ROOM[1..].parse().expect("it is a name")
}
