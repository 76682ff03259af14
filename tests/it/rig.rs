//! A whole system in a temporary home: a Worker, a host `demo` with its daemon, and a source `ci` for `bob@demo`.
//!
//! All of it is the real programs as processes of their own; each can be killed and started again.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Output;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Background, Home, Http, eventually, http, request, text};

/// The source's secret.
pub(crate) const SECRET: &str = "rig-secret-of-the-ci-source";

pub(crate) struct Rig {
    pub(crate) home: Home,
    worker: Option<Background>,
    daemon: Option<Background>,
    pub(crate) at: SocketAddr,
}

impl Rig {
    /// Starts everything; replies of the source go to `reply_url`.
    pub(crate) fn start(reply_url: &str) -> Self {
        Self::start_through(reply_url, |_, worker| worker)
    }

    /// The same, but the daemon reaches the Worker where `door` says.
    pub(crate) fn start_through(reply_url: &str, door: impl FnOnce(&Home, SocketAddr) -> SocketAddr) -> Self {
        let home = Home::new();
        home.file("secret", SECRET);
        let mut rig = Self { home, worker: None, daemon: None, at: SocketAddr::from(([127, 0, 0, 1], 0)) };
        rig.start_worker();
        let code = rig.admin(&["host", "enroll", "demo"])["code"].as_str().unwrap().to_owned();
        let url = format!("http://{}", door(&rig.home, rig.at));
        let enrolled = rig.home.run("transitd", ["enroll", "--url", &url, "--code", &code], b"");
        assert!(enrolled.status.success(), "{}", text(&enrolled.stderr));
        let secret = rig.secret_file();
        let secret = secret.to_str().unwrap();
        let prefix = &reply_url[..=reply_url.rfind('/').unwrap()];
        rig.admin(&[
            "source",
            "create",
            "ci",
            "--target",
            "bob@demo",
            "--secret-file",
            secret,
            "--rate",
            "10000",
            "--burst",
            "10000",
            "--reply-url",
            reply_url,
            "--reply-url-prefix",
            prefix,
        ]);
        rig.start_daemon();
        rig
    }

    /// Starts the Worker; after the first time at the same address. A daemon that runs is told at once, as an operator
    /// would, rather than wait for a backoff that grows with every crash.
    pub(crate) fn start_worker(&mut self) {
        self.start_worker_untold();
        if self.daemon.is_some() {
            assert!(self.home.run("transitd", ["kick"], b"").status.success());
        }
    }

    /// Starts the Worker, and leaves it to the daemon to find out.
    pub(crate) fn start_worker_untold(&mut self) {
        let ready = self.home.path("worker.ready");
        let _ = std::fs::remove_file(&ready);
        let mut command = self.home.command("transit-worker");
        command.args([
            "serve",
            "--allow-private-callbacks",
            "--loop-limit",
            "0",
            "--listen",
            &self.at.to_string(),
            "--ready-file",
        ]);
        let mut worker = Background::start(command.arg(&ready));
        self.at = worker.ready(&ready)["listen"].as_str().unwrap().parse().unwrap();
        self.worker = Some(worker);
    }

    /// Starts the daemon.
    pub(crate) fn start_daemon(&mut self) {
        self.start_daemon_with(&[]);
    }

    /// Starts it with further options.
    pub(crate) fn start_daemon_with(&mut self, options: &[&str]) {
        let ready = self.home.path("daemon.ready");
        let _ = std::fs::remove_file(&ready);
        let mut command = self.home.command("transitd");
        let mut daemon = Background::start(command.args(["run", "--ready-file"]).arg(&ready).args(options));
        daemon.ready(&ready);
        self.daemon = Some(daemon);
    }

    /// Kills the Worker as a crash would.
    pub(crate) fn kill_worker(&mut self) {
        kill(&mut self.worker);
    }

    /// Kills the daemon as a crash would.
    pub(crate) fn kill_daemon(&mut self) {
        kill(&mut self.daemon);
    }

    /// Runs an administrator's command and answers its JSON.
    pub(crate) fn admin(&self, args: &[&str]) -> Value {
        let out = self.home.run("transit-worker", args.iter().chain(&["--json"]), b"");
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap_or(Value::Null)
    }

    pub(crate) fn secret_file(&self) -> PathBuf {
        self.home.path("secret")
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}/ingest/ci", self.at)
    }

    /// Posts a signed event; answers the whole answer.
    pub(crate) fn post(&self, event_key: &str, content: &str) -> Http {
        http(self.at, &signed_event("ci", SECRET, event_key, content))
    }

    /// Brings an agent: `transit-agent listen`, registered.
    pub(crate) fn listen(&self, name: &str) -> Agent {
        let mut command = self.home.command("transit-agent");
        let agent = Background::start(command.args(["listen", "--name", name]));
        let registered: Value = serde_json::from_str(&agent.line()).unwrap();
        assert_eq!(registered["t"], "registered", "{registered}");
        Agent(agent)
    }

    /// One tool call in the name of an agent of this host, made again while the Worker cannot be reached
    /// or the agent has not come back.
    pub(crate) fn call(&self, agent: &str, method: &str, params: &Value) -> String {
        let out = eventually(|| {
            let out =
                self.home.run("transit-agent", ["call", method, &params.to_string(), "--as", agent], b"");
            let is_early = out.status.code() == Some(69) || text(&out.stderr).contains("agent_not_found");
            (!is_early).then_some(out)
        });
        assert!(out.status.success(), "{method}: {}", text(&out.stderr));
        text(&out.stdout).to_owned()
    }

    /// Verifies a callback with transit-sign.
    pub(crate) fn verify_callback(&self, posted: &Http) -> Output {
        let field = |name| posted.field(name).unwrap();
        let secret = self.secret_file();
        let args = [
            "--verify",
            "--secret-file",
            secret.to_str().unwrap(),
            "--timestamp",
            field("transit-timestamp"),
            "--signature",
            field("transit-signature"),
        ];
        self.home.run("transit-sign", args, &posted.body)
    }
}

fn kill(program: &mut Option<Background>) {
    if let Some(mut running) = program.take() {
        running.signal(Signal::KILL);
        running.wait();
    }
}

/// The bytes of a signed ingest request.
pub(crate) fn signed_event(source: &str, secret: &str, event_key: &str, content: &str) -> Vec<u8> {
    use transit::clock::{Clock, SystemClock};
    let body = json!({
        "schema": "transit.ingest/1", "event_key": event_key, "conversation_id": "main", "content": content
    })
    .to_string();
    let timestamp = SystemClock::new().wall().unix_seconds().to_string();
    let secret = transit::secret::Secret::new(secret).unwrap();
    let signature = transit::proto::ingest::Signer::new(&secret).sign(&timestamp, body.as_bytes());
    let fields = [("Transit-Timestamp", timestamp.as_str()), ("Transit-Signature", signature.as_str())];
    request("POST", &format!("/ingest/{source}"), &fields, body.as_bytes())
}

/// A `transit-agent listen` that does what it is told.
pub(crate) struct Agent(Background);

impl Agent {
    /// The next delivery; registrations after a reconnect are passed over.
    pub(crate) fn delivered(&mut self) -> Value {
        loop {
            let line: Value = serde_json::from_str(&self.0.line()).unwrap();
            if line["t"] == "deliver" {
                return line;
            }
        }
    }

    /// Acknowledges a delivery.
    pub(crate) fn ack(&mut self, id: &str) {
        self.0.write(format!("{}\n", json!({"t": "deliver_ack", "id": id})));
    }

    /// Whether no delivery is waiting to be read.
    pub(crate) fn is_quiet(&self) -> bool {
        self.0.pending_lines().iter().all(|line| !line.contains("\"deliver\""))
    }
}

/// Looks at an administrator's answer until it is as told.
pub(crate) fn until(rig: &Rig, args: &[&str], done: impl Fn(&Value) -> bool) -> Value {
    eventually(|| Some(rig.admin(args)).filter(|answer| done(answer)))
}
