//! Everybody else: senders of events, receivers of replies, agents who act, and operators.

use serde_json::{Value, json};
use transit::addr::{Host as HostName, Name, Slug, Source};
use transit::limits::{INGEST_BURST, INGEST_RATE, ROTATION_OVERLAP};
use transit::net::fetch;
use transit::proto::ingest::{SIGNATURE_HEADER, Signer, TIMESTAMP_HEADER};
use transit::proto::wire::RpcError;
use transit::store::ledger::messages::Queue;
use transit::store::ledger::rooms::{self, By, Policy};
use transit::store::ledger::sources::{self, NewSource};
use transit::store::ledger::stepped::Disk;
use transit::store::ledger::{Db, credentials, directory, inspect};
use transit::worker::simulation::{Answered, DuePost, Process};

use super::agenda::Due;
use super::host::{Call, Host};
use super::story::{Called, Event, Posted, Whose};
use super::world::{Org, ROOM, Waiting, World};

/// The sources of each organisation: their names, whom they reach, and whether replies go anywhere.
const SOURCES: [(&str, &str, bool); 4] = [
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
        if !self.orgs.iter().all(|org| org.has_met) && !self.calm {
            self.agenda.soon(5_000, Due::Convene);
        }
    }

    /// One of the others joins the room, or leaves it.
    pub(crate) fn move_between_rooms(&mut self, host: usize, agent: &str) {
        let method = if self.agenda.rng.chance(60) { "join_room" } else { "leave_room" };
        let call = Call { agent: agent.to_owned(), method, about: ROOM.to_owned(), whose: Whose::Rooms };
        self.hosts[host].call(self.agenda.now, call, json!({ "room": "hall" }));
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

    pub(crate) fn something_happens(&mut self) {
        if self.calm {
            return;
        }
        if self.night {
            return;
        }
        self.agenda.soon(10_000, Due::Happens);
        let burst = if self.agenda.rng.chance(3) { 30 } else { 3 };
        for _ in 0..self.agenda.rng.below(burst) {
            let event = self.story.events.len();
            let org = self.agenda.rng.below(2);
            let (source, ..) = *self.agenda.rng.one(&SOURCES);
            // Keys are those of both organisations.
            let key = format!("{source}-{}", event / 2);
            let content = format!("org {org} tells {event}");
            let known = self.story.events.iter().any(|one| one.org == org && one.key == key);
            if !known {
                self.story.events.push(Event { org, source, key, content, taken: Vec::new() });
                self.tally.events += 1;
                self.agenda.soon(1_000, Due::Deliver { event });
            }
        }
    }

    pub(crate) fn deliver_event(&mut self, event: usize) {
        let Event { org, source, key, content, .. } = self.story.events[event].clone();
        let wall = self.wall();
        let body = json!({
            "schema": "transit.ingest/1",
            "event_key": key,
            "conversation_id": format!("c-{org}-{key}"),
            "content": content,
        });
        let body = body.to_string().into_bytes();
        let secret = self.orgs[org].secrets[source].last().expect("every source has a secret");
        let timestamp = wall.unix_seconds().to_string();
        let signature = Signer::new(secret).sign(&timestamp, &body);
        let was_paused = self.orgs[org].paused.contains(source);
        let was_full = self.strain.disk != Disk::Free;
        let Some(process) = self.process.as_mut().filter(|_| !self.strain.is_stopping) else {
            return self.deliver_later(event);
        };
        let headers = [(TIMESTAMP_HEADER, timestamp.as_str()), (SIGNATURE_HEADER, signature.as_str())];
        let asked = process.post(&format!("/ingest/{source}"), &headers, body);
        self.waiting.insert(asked, Waiting::Event { event, was_paused, was_full });
    }

    pub(crate) fn answered(&mut self, answered: Answered) {
        let Answered { asked, status, body } = answered;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        self.trace.line(self.agenda.now, format_args!("{asked:?} is answered {status} {body}"));
        match self.waiting.remove(&asked) {
            // The answer to an enrolment may be lost; then the host asks for another code.
            Some(Waiting::Enrolment { host }) if status == 200 && !self.agenda.rng.chance(10) => {
                self.hosts[host].token = body["device_token"].as_str().map(str::to_owned);
            }
            Some(Waiting::Enrolment { .. }) | None => {}
            Some(Waiting::Event { event, was_paused, was_full }) => {
                match status {
                    202 if was_full => self.story.crammed.push(format!("event {event}")),
                    503 if was_full => self.story.without_room += 1,
                    _ => {}
                }
                self.event_answered(event, was_paused, status, &body);
            }
        }
    }

    fn event_answered(&mut self, event: usize, was_paused: bool, status: u16, body: &Value) {
        let is_taken = matches!(status, 200 | 202);
        if was_paused {
            self.story.heeded += 1;
            if is_taken {
                self.story.defied.push(format!("event {event} was taken by a source that was paused"));
            }
        }
        if is_taken {
            let id = body["delivery_id"].as_str().unwrap_or_default().to_owned();
            self.check_event_is_kept(event, &id);
            if self.agenda.rng.chance(12) && !self.calm {
                return self.agenda.soon(8_000, Due::Deliver { event }); // the answer is lost on its way
            }
            self.story.events[event].taken.push((status, id));
            if self.agenda.rng.chance(8) && !self.calm {
                self.agenda.soon(60_000, Due::Deliver { event }); // the sender is not sure any more
            }
        } else {
            self.deliver_later(event);
        }
    }

    /// A sender tries again, at night less often.
    pub(crate) fn deliver_later(&mut self, event: usize) {
        let longest = if self.night { 3_600_000 } else { 10_000 };
        self.agenda.soon(longest, Due::Deliver { event });
    }

    fn check_event_is_kept(&mut self, event: usize, id: &str) {
        let org = self.story.events[event].org;
        let org_id = &self.orgs[org].id;
        let Some(db) = self.process.as_ref().map(Process::db) else { return };
        let row = db.read(|tx| inspect::get(tx, org_id, id)).unwrap();
        // Its key is known for longer than its delivery is kept.
        let is_gone = self.story.gone_ids.contains(&(org, id.to_owned()));
        let is_kept = is_gone || row.first().is_some_and(|row| row.event_key == self.story.events[event].key);
        let what = format!("org {org}: event {event} as {id}");
        self.story.promises.push(super::story::Promise { what, is_kept });
    }

    /// A reply is posted: its receiver takes it, or does not, or takes it and is not heard.
    pub(crate) fn post_reply(&mut self, post: &DuePost) {
        let Some(process) = &self.process else { return };
        let (rng, orgs, calm) = (&mut self.agenda.rng, &self.orgs, self.calm);
        let fate = if calm { 0 } else { rng.below(100) };
        let mut posted = None;
        process.post_reply(post, |request| {
            posted = Some(received(request, orgs, fate < 70));
            match fate {
                0..60 => Ok(answer(204)),
                60..70 => Err(fetch::FetchError::NoAnswer("timed out".into())),
                70..85 => Ok(answer(500)),
                _ => Err(fetch::FetchError::Connect("refused".into())),
            }
        });
        if let Some(posted) = posted {
            self.tally.posts += 1;
            self.trace.line(self.agenda.now, format_args!("a reply arrives: {posted:?}"));
            self.story.posted.push(posted);
        }
    }

    /// An agent does something about a delivery that it was shown, or about one that is none of its business.
    pub(crate) fn act(&mut self, host: usize, agent: &str, id: &str) {
        let org = self.hosts[host].org;
        let mut about = id.to_owned();
        let mut whose = Whose::Own;
        if self.agenda.rng.chance(12)
            && let Some((others, theirs)) = self.others_delivery(org, agent, self.hosts[host].name)
        {
            (about, whose) = (others, theirs);
        }
        let (key, is_of_room) = self.conversation(&about);
        if is_of_room && whose != Whose::Foreign {
            whose = Whose::Rooms;
        }
        let method = match self.agenda.rng.below(100) {
            0..25 if !self.calm && about == id => return, // it is busy; the delivery comes again
            25..45 => "read_message",
            45..70 => "mark_handled",
            _ => "chat_reply",
        };
        let params = match method {
            "read_message" => json!({ "id": about }),
            "mark_handled" => json!({ "delivery_id": about }),
            _ => json!({
                "delivery_id": about,
                "conversation_id": key,
                "message": format!("org {org} answers {about}, {}", self.agenda.rng.below(1000)),
            }),
        };
        let about_other = about != id;
        let call = Call { agent: agent.to_owned(), method, about, whose };
        if !self.hosts[host].call(self.agenda.now, call, params) || about_other {
            // Nothing was done about its own.
            self.act_again(host, agent, id);
        }
    }

    fn act_again(&mut self, host: usize, agent: &str, id: &str) {
        let longest = if self.night { 3_600_000 } else { 30_000 };
        self.agenda.soon(longest, Due::Act { host, agent: agent.to_owned(), id: id.to_owned() });
    }

    /// The conversation of a delivery, as its envelope has it, and whether that is a room's.
    fn conversation(&self, id: &str) -> (String, bool) {
        let shown = self.story.shown.iter().rev().find(|shown| shown.id == id);
        let conversation = shown.map(|shown| shown.conversation.clone()).unwrap_or_default();
        let is_of_room = conversation.contains("-siren-");
        (conversation, is_of_room)
    }

    /// A delivery that is not this agent's.
    fn others_delivery(&mut self, org: usize, agent: &str, host: &str) -> Option<(String, Whose)> {
        let me = format!("{agent}@{host}");
        let shown = self.story.shown.iter().filter(|shown| shown.redelivery.is_some());
        let others: Vec<(String, Whose)> = shown
            .filter_map(|shown| match (shown.org == org, shown.agent == me) {
                (true, true) => None,
                _ if self.story.gone_ids.contains(&(shown.org, shown.id.clone())) => None,
                (true, false) => Some((shown.id.clone(), Whose::Others)),
                (false, _) => Some((shown.id.clone(), Whose::Foreign)),
            })
            .collect();
        (!others.is_empty()).then(|| self.agenda.rng.one(&others).clone())
    }

    pub(crate) fn called(&mut self, host: usize, call: Call, result: Result<Value, RpcError>) {
        let Call { agent, method, about, whose } = call;
        let org = self.hosts[host].org;
        self.trace.line(self.agenda.now, format_args!("{method} of {agent} about {about}: {result:?}"));
        let state = self.process.as_ref().and_then(|process| {
            let rows = process.db().read(|tx| inspect::get(tx, &self.orgs[org].id, &about)).unwrap();
            rows.into_iter().next()
        });
        let is_settled = state.is_none_or(|row| matches!(row.state.as_str(), "replied" | "handled"));
        let is_taken =
            self.story.posted.iter().any(|posted| posted.is_taken && posted.body["delivery_id"] == about);
        let result = result.map_err(|err| err.code);
        let is_over = result.is_ok() && method != "read_message"
            || matches!(&result, Err(code) if code == "already_handled" || code == "not_owner");
        let is_own = about.starts_with("dlv_") && matches!(whose, Whose::Own | Whose::Rooms);
        if is_own && !is_over {
            self.act_again(host, &agent, &about);
        } else if is_own && self.agenda.rng.chance(15) && !self.calm {
            self.act_again(host, &agent, &about); // it has forgotten that it did
        }
        self.tally.calls += 1;
        // It was not done, for a reason of its own: no ledger, no answer in time, a roster that is not there yet.
        let failed_by_itself =
            matches!(&result, Err(code) if code == "rpc_error" || code == "invalid_caller");
        if !failed_by_itself {
            self.story.called.push(Called { org, method, about, whose, result, is_settled, is_taken });
        }
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

fn answer(status: u16) -> fetch::Answer {
    fetch::Answer { status, retry_after: None, body: Vec::new(), is_cut: false }
}

fn hall() -> Name {
    ROOM[1..].parse().expect("it is a name")
}

/// What a receiver sees of a reply.
fn received(request: &fetch::Request<'_>, orgs: &[Org], is_taken: bool) -> Posted {
    let org = orgs.iter().position(|org| request.url.path().starts_with(&format!("/{}/", org.id)));
    let org = org.expect("replies go where a source says");
    let header = |name: &str| {
        let found = request.headers.iter().find(|header| header.0.eq_ignore_ascii_case(name));
        found.map(|header| header.1).unwrap_or_default()
    };
    let (timestamp, signature) = (header(TIMESTAMP_HEADER), header(SIGNATURE_HEADER));
    let body: Value = serde_json::from_slice(request.body).unwrap_or_default();
    let secrets = orgs[org].secrets.get(body["source"].as_str().unwrap_or_default());
    let mut secrets = secrets.into_iter().flatten();
    let is_signed = secrets.any(|secret| Signer::new(secret).verify(timestamp, request.body, signature));
    Posted { org, body, is_signed, is_taken }
}
