//! Agents in the panes of a Herdr that is ours, from the Worker to the pane and back.

mod attempts;
mod fake;
mod roster;
mod stalls;
mod waiting;

use transit::proto::envelope::{Envelope, Kind, render};
use transit::proto::wire::{AgentInfo, WorkerEvent};

use self::fake::Fake;
use super::world::{Worker, enrolled};
use crate::support::{Background, Home};

const ONE: &str = "tx_000000000001";
const TWO: &str = "tx_000000000002";

/// A host with a Herdr, at a scripted Worker.
struct Scene {
    worker: Worker,
    home: Home,
    herdr: Fake,
    daemon: Option<Background>,
}

impl Scene {
    /// Nobody is in any pane yet, and the daemon does not run.
    fn new() -> Self {
        let worker = Worker::start();
        let home = enrolled(worker.at);
        let herdr = Fake::start(&home.path(""));
        Self { worker, home, herdr, daemon: None }
    }

    /// The agent `jess` is in the pane w1:p1.
    fn with_jess() -> Self {
        let mut scene = Self::new();
        scene.herdr.open("w1:p1", Some("jess"));
        scene.start(&[]);
        scene.roster_with("jess");
        scene
    }

    fn start(&mut self, env: &[(&str, &str)]) {
        let ready = self.home.path("ready.json");
        let _ = std::fs::remove_file(&ready);
        let mut command = self.home.command("transitd");
        command.args(["run", "--ready-file"]).arg(&ready).env("TRANSIT_POLL_SECONDS", "1");
        let mut daemon = Background::start(command.envs(env.iter().copied()));
        daemon.ready(&ready);
        self.daemon = Some(daemon);
    }

    /// The roster once this agent is in it.
    fn roster_with(&self, name: &str) -> Vec<AgentInfo> {
        self.roster_where(|agents| agents.iter().any(|agent| agent.name == name))
    }

    fn roster_where(&self, is_it: impl Fn(&[AgentInfo]) -> bool) -> Vec<AgentInfo> {
        self.worker.wait(|event| match event {
            WorkerEvent::Roster(agents) if is_it(&agents) => Some(agents),
            _ => None,
        })
    }

    /// Delivers a message to jess.
    fn deliver(&self, id: &str) -> String {
        let envelope = message(id);
        self.worker.deliver(id, "jess", &envelope);
        envelope
    }

    fn answers(&self, id: &str, what: &str) {
        assert_eq!(self.worker.answer(), (id.to_owned(), "jess".to_owned(), what.to_owned()));
    }

    /// What was submitted in jess's pane.
    fn log(&self) -> Vec<String> {
        self.herdr.with("w1:p1", |pane| pane.log.clone())
    }
}

fn message(id: &str) -> String {
    render(&Envelope {
        from: "omar@atlas".into(),
        id: id.into(),
        ts: "2026-01-01T00:00:00Z".into(),
        reply_to: None,
        body: "are you there?".into(),
        kind: Kind::Dm,
    })
}
