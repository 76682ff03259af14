//! Agents that are programs, in homes of their own, with real processes and no Worker.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::super::tests::{eventually, host};
use super::*;
use crate::daemon::control::send::{Asked, send};
use crate::daemon::peer;
use crate::daemon::registry::{Caller, Hint};
use crate::proto::envelope::{self, Envelope, Kind};
use crate::store::home::owed::Owed;
use crate::store::spool::agents::Place;
use crate::store::spool::inbox::Delivery;
use crate::store::spool::local::LocalState;

const ID: &str = "tx_00000000000a";

struct World {
    dir: TempDir,
    host: Arc<Host>,
    programs: Option<Programs>,
}

impl World {
    /// A home with an agent that is a script, and another agent of the host that may write to it.
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        write_agent(dir.path(), "tiny", script, "");
        let host = host(dir.path());
        let jess = Identity { harness: "claude".parse().unwrap(), session_id: "1".into() };
        let name = "jess".parse().unwrap();
        let place =
            host.spool().unwrap().remember(&jess, Some(&name), |_| false, |_| name.clone(), host.wall());
        place.unwrap();
        let programs = Some(Programs::start(Home::at(dir.path()), &host).unwrap());
        let world = Self { dir, host, programs };
        world.until_there("tiny");
        world
    }

    fn until_there(&self, name: &str) {
        eventually("the agent is on the roster", || self.has(name));
    }

    fn has(&self, name: &str) -> bool {
        let found = self.host.registry.get(&name.parse().unwrap());
        found.is_some_and(|session| session.way.gives_way())
    }

    fn write(&self, id: &str, kind: Kind) {
        self.write_as("jess@titan", id, kind);
    }

    fn write_as(&self, from: &str, id: &str, kind: Kind) {
        let (from, ts) = (from.to_owned(), "2026-01-01T00:00:00Z".to_owned());
        let text = Envelope { from, id: id.into(), ts, reply_to: None, body: "hi \"you\"".into(), kind };
        let envelope = envelope::render(&text);
        let delivery = Delivery { id: id.into(), agent: "tiny".into(), envelope, redelivery: 0 };
        self.host.spool().unwrap().put_local(&delivery, self.host.wall()).unwrap();
        self.host.registry.wake("tiny");
    }

    fn state(&self, id: &str) -> (LocalState, Option<String>) {
        let row = self.host.spool().unwrap().local_deliveries(id).unwrap().remove(0);
        (row.state, row.code)
    }

    /// What jess has got.
    fn replies(&self) -> Vec<Envelope> {
        let due = self.host.spool().unwrap().due("jess", self.host.wall(), 99).unwrap();
        due.iter().map(|row| envelope::parse(&row.envelope).unwrap().envelope).collect()
    }

    fn stop(&mut self) {
        self.host.stop.trigger();
        self.programs.take().unwrap().into_thread().join().unwrap();
    }

    fn home(&self, file: &str) -> std::path::PathBuf {
        self.dir.path().join("agents/tiny").join(file)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.programs.is_some() && !std::thread::panicking() {
            self.stop();
        }
    }
}

fn write_agent(home: &Path, name: &str, script: &str, more: &str) {
    let dir = home.join("agents").join(name);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("run.sh"), script).unwrap();
    let text = format!("[agent]\nname = \"{name}\"\n[run]\ncommand = \"sh\"\nargs = [\"run.sh\"]\n{more}");
    fs::write(dir.join("agent.toml"), text).unwrap();
}

#[test]
fn an_envelope_starts_a_run_and_its_reply_goes_back() {
    let mut world = World::new(
        "printf %s \"$AGENT_TRIGGER_PAYLOAD\" > got; echo \"$AGENT_TRIGGER_SOURCE $AGENT_TRIGGER_ACTOR $AGENT_SESSION_ID $AGENT_TRIGGER_REPLY_TO\"",
    );
    world.write(ID, Kind::Dm);
    eventually("the message is settled", || world.state(ID).0 == LocalState::Injected);
    let [reply] = &world.replies()[..] else { panic!("{:?}", world.replies()) };
    assert_eq!((reply.from.as_str(), reply.reply_to.as_deref()), ("tiny@titan", Some(ID)));
    assert_eq!(reply.body, "transit jess@titan jess_titan jess@titan");
    let got: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(world.home("got")).unwrap()).unwrap();
    assert_eq!(got["session_id"], "jess_titan");
    let text = got["text"].as_str().unwrap();
    assert!(text.starts_with("<transit from=\"jess@titan\"") && text.contains("hi \"you\""), "{text}");
    let trail = fs::read_to_string(world.dir.path().join("audit.log")).unwrap();
    assert!(trail.contains("trigger_received") && trail.contains(ID) && !trail.contains("you"), "{trail}");
    world.stop();
    assert!(world.host.registry.all().is_empty());
}

#[test]
fn the_exit_decides_what_becomes_of_the_message() {
    for (script, state, code) in [
        ("exit 0", LocalState::Injected, None),
        ("exit 3", LocalState::Refused, Some("agent_refused")),
        ("exit 75", LocalState::Waiting, Some("agent_try_later")),
        ("exit 127", LocalState::Waiting, Some("agent_try_later")),
        ("kill -9 $$", LocalState::Waiting, Some("agent_try_later")),
    ] {
        let world = World::new(script);
        world.write(ID, Kind::Dm);
        let want = (state, code.map(str::to_owned));
        eventually(script, || world.state(ID) == want);
        // Its sender learns of a message that is refused for good, and there is nothing to say of others.
        let replies = world.replies();
        let bounced: Vec<_> = replies.iter().map(|reply| (&*reply.from, reply.reply_to.as_deref())).collect();
        let is_dead = want.0 == LocalState::Refused;
        assert_eq!(bounced, [("transit", Some(ID))][..usize::from(is_dead)], "{script}");
    }
}

#[test]
fn an_agent_that_writes_to_itself_is_run_for_that_and_not_for_its_reply() {
    let mut world = World::new("echo run >> runs; echo said");
    world.write_as("tiny@titan", ID, Kind::Dm);
    eventually("the message is settled", || world.state(ID).0 == LocalState::Injected);
    // What it had sent to itself would wait or run now; a stop lets that end.
    world.stop();
    assert_eq!(fs::read_to_string(world.home("runs")).unwrap(), "run\n");
    assert!(world.host.spool().unwrap().due("tiny", world.host.wall(), 9).unwrap().is_empty());
}

#[test]
fn two_programs_do_not_answer_each_others_answers() {
    let mut world = World::new("echo run >> runs; echo \"said $AGENT_NAME\"");
    write_agent(world.dir.path(), "other", "echo run >> runs; echo said", "");
    world.host.reload_parts();
    world.until_there("other");
    world.write_as("other@titan", ID, Kind::Dm);
    let runs = world.dir.path().join("agents/other/runs");
    eventually("the answer is run", || runs.exists());
    let answered =
        |agent: &str| world.host.spool().unwrap().due(agent, world.host.wall(), 9).unwrap().is_empty();
    eventually("both are settled", || answered("tiny") && answered("other"));
    world.stop();
    assert_eq!(fs::read_to_string(runs).unwrap(), "run\n");
    assert_eq!(fs::read_to_string(world.home("runs")).unwrap(), "run\n");
}

#[test]
fn a_message_that_was_answered_is_not_run_again() {
    let world = World::new("echo x >> runs; echo yes");
    world.write(ID, Kind::Dm);
    eventually("the message is settled", || world.state(ID).0 == LocalState::Injected);
    // As if the daemon had been killed right after it had kept the reply.
    let session = world.host.registry.get(&"tiny".parse().unwrap()).unwrap();
    let row = world.host.spool().unwrap().local_deliveries(ID).unwrap().remove(0);
    let engine =
        Engine::open(Home::at(world.dir.path()), &world.host, "again", ApiLimits::default()).unwrap();
    let message = Message::new("tiny".into(), session, Arc::default(), ID.into(), row.envelope);
    assert_eq!(handle(&engine, &message), Outcome::Injected);
    assert_eq!(fs::read_to_string(world.home("runs")).unwrap(), "x\n");
    assert_eq!(world.replies().len(), 1);
}

#[test]
fn an_event_is_answered_by_what_is_owed_to_the_worker() {
    let world = World::new("test \"$AGENT_TRIGGER_REPLY_TO\" = dlv_00000000000a && echo fixed");
    let kind = Kind::Channel {
        conversation_id: "build/7".into(),
        connector: "ingest".into(),
        user: "ann".into(),
        redelivery: 0,
        read: false,
        trigger: String::new(),
    };
    world.write("dlv_00000000000a", kind.clone());
    eventually("the event is settled", || world.state("dlv_00000000000a").0 == LocalState::Injected);
    let owed = Owed::of(&world.host.paths.data);
    let [reply] = &owed.all().unwrap()[..] else { panic!("{:?}", owed.all()) };
    assert_eq!((reply.caller.as_str(), reply.conversation_id.as_str()), ("tiny@titan", "build/7"));
    assert_eq!(reply.message.as_deref(), Some("fixed"));
}

/// A session enters that is called as the agent is.
fn namesake(world: &World) -> Session {
    let who = Identity { harness: "claude".parse().unwrap(), session_id: "2".into() };
    let ours = world.host.registry.get(&"tiny".parse().unwrap()).unwrap();
    let process = Process { pid: std::process::id(), start_time: 1 };
    let way = Way::Adapter { process, pane_id: None };
    let mailbox = Mailbox::new(Wake::new().unwrap());
    let session = Session { who, way, mailbox, ..ours };
    world.host.registry.enter(session.clone());
    session
}

#[test]
fn a_message_at_work_is_not_run_again_when_its_agent_is_back_before_that_has_ended() {
    let world = World::new("echo x >> runs; read x < go");
    assert!(std::process::Command::new("mkfifo").arg(world.home("go")).status().unwrap().success());
    let runs = || fs::read_to_string(world.home("runs")).unwrap_or_default();
    world.write(ID, Kind::Dm);
    eventually("it runs", || runs() == "x\n");
    let session = namesake(&world);
    world.host.reload_parts();
    eventually("the program has given way", || session.mailbox.is_replaced() || !world.has("tiny"));
    assert!(world.host.registry.leave(&session));
    eventually("the program is back", || {
        world.host.reload_parts();
        world.has("tiny")
    });
    let next = "tx_00000000000b";
    world.write(next, Kind::Dm);
    for id in [ID, next] {
        fs::write(world.home("go"), "\n").unwrap();
        eventually("the message is settled", || world.state(id).0 == LocalState::Injected);
    }
    assert_eq!(runs(), "x\nx\n");
}

#[test]
fn who_has_just_got_another_name_writes_under_that() {
    let world = World::new("exit 0");
    let jess = namesake(&world);
    let place = Place { name: "jo".parse().unwrap(), is_auto: false, generation: 9 };
    assert!(world.host.registry.rename(&jess, &place, "jo@titan"));
    world.host.reload_parts();
    world.until_there("tiny");
    // The call was taken for the session as it was called before.
    let (to, body, wait) = ("tiny@titan".to_owned(), "hi".to_owned(), Some(Duration::ZERO));
    let asked = Asked { to, body, reply_to: None, wait, far: false, id: Some(ID.to_owned()) };
    send(&world.host, &jess, &asked).unwrap();
    let row = world.host.spool().unwrap().local_deliveries(ID).unwrap().remove(0);
    assert_eq!(envelope::sender(&row.envelope), Some("jo@titan"));
}

#[test]
fn a_session_of_the_same_name_wins_until_it_goes() {
    let world = World::new("echo yes");
    let session = namesake(&world);
    world.write(ID, Kind::Dm);
    world.host.reload_parts();
    assert!(!world.has("tiny"));
    assert_eq!(world.state(ID).0, LocalState::Waiting, "it is the session's");
    assert!(world.host.registry.leave(&session));
    eventually("the program is back", || {
        world.host.reload_parts();
        world.has("tiny")
    });
    eventually("the message is settled", || world.state(ID).0 == LocalState::Injected);
}

#[test]
fn what_a_run_calls_its_agent_calls() {
    let world = World::new("echo $$ > pid; read x < go");
    assert!(std::process::Command::new("mkfifo").arg(world.home("go")).status().unwrap().success());
    world.write(ID, Kind::Dm);
    let pid = || fs::read_to_string(world.home("pid")).ok()?.trim().parse::<u32>().ok();
    eventually("it runs", || pid().is_some());
    let name = "tiny".parse().unwrap();
    assert_eq!(world.host.registry.get(&name).unwrap().status, "working");
    match world.host.registry.caller(
        &peer::lineage(pid().unwrap()),
        Hint { pane_id: None, session_id: None },
        |_| false,
    ) {
        Caller::Session(session) => assert_eq!(session.place.name, name),
        other => panic!("{other:?}"),
    }
    fs::write(world.home("go"), "\n").unwrap();
    eventually("it is over", || world.host.registry.get(&name).unwrap().status == "idle");
}

#[test]
fn what_no_message_can_reach_is_told_once_until_the_configuration_is_read_anew() {
    let world = World::new("exit 0");
    write_agent(world.dir.path(), "steady", "exit 0", "[lifecycle]\nmode = \"persistent\"");
    write_agent(world.dir.path(), "Not A Name", "exit 0", "");
    write_agent(world.dir.path(), "private", "exit 0", "[transit]\nmesh = false");
    write_agent(world.dir.path(), "late", "exit 0", "");
    world.host.reload_parts();
    world.until_there("late");
    let found = Home::at(world.dir.path()).on_the_mesh();
    let names: Vec<_> = found.agents.iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["late", "tiny"]);
    let why: Vec<_> = found.unfit.iter().map(|file| file.why.as_str()).collect();
    assert!(why[0].contains("\"Not A Name\"") && why[1].contains("persistent") && why.len() == 2, "{why:?}");
    for file in &found.unfit {
        assert!(!world.host.is_news(file), "{file:?} was told");
    }
    world.host.reload_parts();
    eventually("it is told again", || !world.host.is_news(&found.unfit[0]));
}

#[test]
fn agents_come_and_go_with_their_manifests() {
    let world = World::new("echo yes");
    write_agent(world.dir.path(), "other", "exit 0", "");
    write_agent(world.dir.path(), "hidden", "exit 0", "[transit]\nmesh = false\n");
    fs::remove_file(world.home("agent.toml")).unwrap();
    world.host.reload_parts();
    world.until_there("other");
    assert!(!world.has("hidden") && !world.has("tiny"));
}
