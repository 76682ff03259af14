//! The gateway with real processes, in homes of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use super::*;
use crate::daemon::guard::Loops;
use crate::daemon::herdr;
use crate::net::service::Shutdown;
use crate::net::wake::Wake;
use crate::store::config::{Config, Paths};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A daemon without threads, with its data in `dir`.
pub(in crate::daemon) fn host(dir: &Path) -> Arc<Host> {
    let paths = Paths { config: dir.join("c.json"), data: dir.join("data") };
    fs::create_dir_all(&paths.data).unwrap();
    let (stop, wake) = (Shutdown::new(), Wake::new().unwrap());
    let panes = herdr::Settings::load(&Config::default(), |_| None).unwrap();
    let (loops, panes) = (Loops::new((0, LONG)), herdr::State::new(panes).unwrap());
    Arc::new(Host::new(paths, "titan".parse().unwrap(), stop, wake, None, loops, panes))
}

struct Events(Mutex<Sender<LocalEvent>>);

impl Sink for Events {
    fn event(&self, event: LocalEvent) -> bool {
        locked(&self.0).send(event).is_ok()
    }
}

struct World {
    dir: TempDir,
    host: Arc<Host>,
    gateway: Arc<Gateway>,
    sink: Arc<dyn Sink>,
    events: Receiver<LocalEvent>,
}

impl World {
    /// A home whose dispatcher is a script.
    fn new(script: &str) -> Self {
        Self::with(script, "", "")
    }

    fn with(script: &str, manifest: &str, config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("agents/tiny")).unwrap();
        fs::write(dir.path().join("agents/tiny/run.sh"), script).unwrap();
        let text = format!(
            "[agent]\nname = \"tiny\"\ntimeout_seconds = 30\n[run]\ncommand = \"sh\"\nargs = [\"run.sh\"]\n{manifest}"
        );
        fs::write(dir.path().join("agents/tiny/agent.toml"), text).unwrap();
        let config = format!("[telegram]\ndispatcher_agent = \"tiny\"\n{config}");
        fs::write(dir.path().join("config.toml"), config).unwrap();
        Self::open(dir)
    }

    fn open(dir: TempDir) -> Self {
        let host = host(dir.path());
        let gateway = Gateway::open(Home::at(dir.path()), &host).unwrap().unwrap();
        let (tell, events) = channel();
        let sink: Arc<dyn Sink> = Arc::new(Events(Mutex::new(tell)));
        Self { dir, host, gateway, sink, events }
    }
    fn submit(&self, session: &str, text: &str) -> Result<(), Refusal> {
        self.gateway.submit(self.trigger(session, text))
    }

    fn trigger(&self, session: &str, text: &str) -> Trigger {
        Trigger {
            source: "local",
            session: session.parse().unwrap(),
            text: text.to_owned(),
            actor: Actor { pid: Some(7), uid: Some(8) },
            sink: Arc::clone(&self.sink),
        }
    }

    fn next(&self) -> LocalEvent {
        self.events.recv_timeout(LONG).unwrap()
    }

    /// The lines and the reply of one message.
    fn ask(&self, session: &str, text: &str) -> (Vec<String>, String) {
        self.submit(session, text).unwrap();
        let mut lines = Vec::new();
        loop {
            match self.next() {
                LocalEvent::ReplyDelta { line, .. } => lines.push(line),
                LocalEvent::Reply { text, .. } => return (lines, text),
                LocalEvent::Typing { .. } | LocalEvent::RunStarted { .. } => {}
            }
        }
    }

    fn reply(&self, text: &str) -> String {
        self.ask("default", text).1
    }

    /// The events on the audit trail.
    fn trail(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.path().join("audit.log")).unwrap();
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].take()).collect()
    }

    fn is_nothing_left(&self) -> bool {
        fs::read_dir(self.dir.path().join("data/runs/local")).unwrap().count() == 0
    }
}

/// Waits until something is so.
pub(super) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let waiting = Shutdown::new();
    let found = (0..3000).any(|_| is_so() || waiting.wait(Some(Duration::from_millis(10))));
    assert!(found, "{what}");
}

#[test]
fn a_message_becomes_a_run_and_its_events_come_in_their_order() {
    let world = World::new(
        "printf 'one\\ntwo'; echo oops >&2; echo \"$AGENT_TRIGGER_PAYLOAD\" > \"$AGENT_HOME/got\"",
    );
    world.submit("chat-9_a", "hi \"you\"").unwrap();
    let session: SessionId = "chat-9_a".parse().unwrap();
    assert_eq!(world.next(), LocalEvent::RunStarted { session: session.clone(), agent: "tiny".into() });
    assert_eq!(world.next(), LocalEvent::Typing { session: session.clone() });
    for line in ["one", "two"] {
        assert_eq!(world.next(), LocalEvent::ReplyDelta { session: session.clone(), line: line.into() });
    }
    assert_eq!(world.next(), LocalEvent::Reply { session, text: "one\ntwo".into() });
    let got = fs::read_to_string(world.dir.path().join("agents/tiny/got")).unwrap();
    assert_eq!(got, "{\"session_id\":\"chat-9_a\",\"text\":\"hi \\\"you\\\"\"}\n");
    let events: Vec<_> = world.trail().iter().map(|entry| entry["event_type"].clone()).collect();
    assert_eq!(events, ["trigger_received", "agent_triggered", "agent_run"]);
    let text = fs::read_to_string(world.dir.path().join("audit.log")).unwrap();
    assert!(text.contains("pid=7 uid=8") && !text.contains("you"), "{text}");
    eventually("the run's directory goes", || world.is_nothing_left());
}

#[test]
fn every_end_has_its_reply() {
    for (script, want) in [
        ("exit 0", "tiny finished with no output."),
        ("echo out; echo boom >&2; exit 3", "tiny exited 3.\nboom"),
        ("kill -9 $$", "tiny exited -1.\n"),
        ("printf 'ok1\\n\\377\\376 bad\\nok2\\n'", "ok1\n\u{fffd}\u{fffd} bad\nok2"),
        ("cat; echo end", "end"),
        ("rm -rf \"$AGENT_HOME\"; echo bye", "bye"),
    ] {
        assert_eq!(World::new(script).reply("hi"), want, "{script}");
    }
}

#[test]
fn a_run_leaves_its_heartbeat_and_what_it_has_printed() {
    let world = World::new("cat \"$AGENT_HEARTBEAT_FILE\"; echo oops >&2; exit 3");
    let (lines, _) = world.ask("a", "hi");
    let begun: Value = serde_json::from_str(&lines.concat()).unwrap();
    assert_eq!((&begun["name"], &begun["finished_at"]), (&json!("tiny"), &Value::Null), "{begun}");
    let path = world.dir.path().join("state/agents/tiny/trigger-local-a.heartbeat.json");
    let ended: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!((&ended["exit_code"], &ended["started_at"]), (&json!(3), &begun["started_at"]));
    let log = fs::read_to_string(world.dir.path().join("logs/agents/tiny/tiny.log")).unwrap();
    assert_eq!(log, format!("{}\noops\n", lines.join("\n")));
}

#[test]
fn a_preflight_lets_an_agent_run_or_says_why_not() {
    let manifest = "[[preflight]]\nplugin = \"gate\"\nconfig = { page = \"today\" }\ntimeout_seconds = 5";
    let world = World::with("echo ran; ls \"$AGENT_TMPDIR\"", manifest, "");
    let plugin = world.dir.path().join("plugins/dotagent-plugin-gate");
    let told = world.reply("hi");
    assert!(
        told.starts_with("tiny blocked by preflight gate: dotagent-plugin-gate could not be started: "),
        "{told}"
    );
    fs::create_dir_all(plugin.parent().unwrap()).unwrap();
    // Another process writes it: what this one has open for writing nobody can run.
    let write = "printf '#!/bin/sh\\nexec sh \"$0.sh\" \"$@\"\\n' > \"$0\" && chmod 700 \"$0\"";
    assert!(std::process::Command::new("sh").arg("-c").arg(write).arg(&plugin).status().unwrap().success());
    let gate = |script: &str| {
        fs::write(plugin.with_extension("sh"), script).unwrap();
        world.reply("hi")
    };
    let seen = world.dir.path().join("seen");
    let passes =
        format!("[ \"$1\" = invoke ] && cat > {}; echo '{{\"ok\":true,\"more\":1}}'", seen.display());
    assert_eq!(gate(&passes), "ran");
    let seen: Value = serde_json::from_slice(&fs::read(seen).unwrap()).unwrap();
    assert_eq!(
        (&seen["kind"], &seen["config"]),
        (&json!("preflight"), &json!({ "page": "today" })),
        "{seen}"
    );
    assert_eq!((&seen["agent"], &seen["schedule"]), (&json!("tiny"), &json!("trigger")));
    for (script, want) in [
        ("echo '{\"ok\":false,\"suggest\":\"warp-cli connect\"}'", ": warp-cli connect"),
        ("echo '{\"ok\":false,\"error\":\"no\"}'; exit 1", ": no"),
        ("echo '{\"ok\":false}'", ""),
        ("echo '{\"ok\":true}'; exit 3", ": it exited 3 and gave no answer: "),
        ("echo why >&2; exit 4", ": it exited 4 and gave no answer: why"),
        ("exec sleep 600", ": it took longer than 5 s"),
    ] {
        assert_eq!(gate(script), format!("tiny blocked by preflight gate{want}"), "{script}");
    }
    let failed = world.trail().into_iter().filter(|entry| entry["event_type"] == "preflight_failed").count();
    assert_eq!(failed, 7);
    assert!(world.is_nothing_left());
}

#[test]
fn the_deadline_ends_the_whole_group_and_the_grace_with_it() {
    let script = "trap '' HUP; sleep 600 & echo $! > \"$AGENT_HOME/pid\"; echo late >&2; wait";
    let world = World::new(script);
    let manifest = world.dir.path().join("agents/tiny/agent.toml");
    let text = fs::read_to_string(&manifest).unwrap().replace("= 30", "= 1");
    fs::write(&manifest, text).unwrap();
    assert_eq!(world.reply("hi"), "tiny timed out.\nlate");
    let pid = fs::read_to_string(world.dir.path().join("agents/tiny/pid")).unwrap();
    let pid = pid.trim().parse().unwrap();
    eventually("the grandchild ends", || crate::store::process::start_time(pid).is_none());
    let run = world.trail().pop().unwrap();
    assert_eq!((&run["exit_code"], &run["timed_out"]), (&json!(124), &json!(true)));
}

#[test]
fn a_grandchild_that_holds_stdout_open_delays_nobody_and_goes_too() {
    let world = World::new("sleep 600 & echo $! > \"$AGENT_HOME/pid\"; echo done");
    assert_eq!(world.reply("hi"), "done");
    let pid = fs::read_to_string(world.dir.path().join("agents/tiny/pid")).unwrap();
    let pid = pid.trim().parse().unwrap();
    eventually("the grandchild ends", || crate::store::process::start_time(pid).is_none());
}

#[test]
fn a_grandchild_that_goes_on_writing_delays_nobody_either() {
    // At this pace it would take days until it has written too much.
    let world = World::new("(trap '' TERM; while :; do echo x; sleep 0.05; done) & echo done");
    let (lines, reply) = world.ask("default", "hi");
    assert!(lines.contains(&"done".to_owned()) && lines.len() < 1000, "{}", lines.len());
    assert!(reply.contains("done"), "{reply}");
    world.gateway.engine.join();
}

#[test]
fn a_flood_comes_whole_and_in_order_and_the_reply_is_its_end() {
    let world = World::new("seq 1 100000");
    let (lines, reply) = world.ask("default", "hi");
    assert_eq!(lines.len(), 100_000);
    assert!(lines.iter().zip(1..).all(|(line, n)| *line == n.to_string()));
    assert_eq!(reply, lines[99_500..].join("\n"));
}

#[test]
fn a_line_without_an_end_is_bounded() {
    let world = World::new("head -c 3000000 /dev/zero | tr '\\0' x");
    let (lines, reply) = world.ask("default", "hi");
    assert_eq!(lines.concat().len(), 3_000_000);
    assert!(lines.iter().all(|line| line.len() <= 256 << 10) && reply.len() <= 512 << 10);
    assert!(reply.starts_with("…\nx") && reply.ends_with('x'));
}

#[test]
fn a_long_reply_frame_is_a_reply_and_is_clipped() {
    let script =
        "printf '{\"type\":\"reply\",\"text\":\"'; head -c 1500000 /dev/zero | tr '\\0' y; echo '\"}'";
    let world = World::with(script, "protocol = \"assistant-v1\"", "");
    let reply = world.reply("hi");
    assert!(reply.starts_with("yyy") && reply.ends_with("\n… truncated at 524288 bytes."));
    assert!(reply.len() <= 512 << 10);
}

#[test]
fn what_is_to_be_remembered_is_taken_out_of_the_longest_reply() {
    let script = "printf '{\"type\":\"reply\",\"text\":\"'; head -c 600000 /dev/zero | tr '\\0' y; \
                  printf '%s' '\\nMEMO: likes tea\"}'";
    let world = World::with(script, "protocol = \"assistant-v1\"\n[assistant]", "");
    let reply = world.reply("hi");
    assert!(reply.starts_with("yyy") && reply.ends_with("y\n… truncated at 524288 bytes."));
    assert_eq!(world.gateway.engine.home.remembered("tiny").unwrap().as_deref(), Some("- likes tea"));
}

#[test]
fn runs_of_a_session_come_one_after_the_other_and_those_of_two_side_by_side() {
    // Each waits for the other one of its pair.
    let script = "mkfifo \"$AGENT_HOME/$AGENT_SESSION_ID\" 2>/dev/null; case $AGENT_SESSION_ID in \
                  a) echo x > \"$AGENT_HOME/b\"; cat \"$AGENT_HOME/a\";; \
                  b) cat \"$AGENT_HOME/b\"; echo y > \"$AGENT_HOME/a\";; esac";
    let world = World::new(&format!("mkfifo \"$AGENT_HOME/a\" \"$AGENT_HOME/b\" 2>/dev/null; {script}"));
    world.submit("a", "1").unwrap();
    world.submit("b", "1").unwrap();
    let replies = std::iter::from_fn(|| Some(world.next()))
        .filter_map(|event| match event {
            LocalEvent::Reply { session, text } => Some((session.as_str().to_owned(), text)),
            _ => None,
        })
        .take(2);
    let mut replies: Vec<_> = replies.collect();
    replies.sort();
    assert_eq!(replies, [("a".into(), "y".into()), ("b".into(), "x".into())]);
    let serial = World::new(
        "test ! -e busy || exit 9; touch busy; sed 's/.*text.:.//;s/.}//' <<E\n$AGENT_TRIGGER_PAYLOAD\nE\nrm busy",
    );
    (0..5).for_each(|n| serial.submit("one", &n.to_string()).unwrap());
    let replies = std::iter::from_fn(|| Some(serial.next())).filter_map(|event| match event {
        LocalEvent::Reply { text, .. } => Some(text),
        _ => None,
    });
    assert_eq!(replies.take(5).collect::<Vec<_>>(), ["0", "1", "2", "3", "4"]);
}

#[test]
fn limits_hold_and_refusals_are_on_the_trail() {
    let world = World::with(
        "read x < \"$AGENT_HOME/go\"",
        "",
        "[api]\nconversations = 1\nqueue = 1\nrate_per_minute = 5\n",
    );
    let go = world.dir.path().join("agents/tiny/go");
    assert!(std::process::Command::new("mkfifo").arg(&go).status().unwrap().success());
    world.submit("a", "runs").unwrap();
    eventually("the first one runs", || {
        world.trail().iter().any(|entry| entry["event_type"] == "agent_triggered")
    });
    world.submit("a", "waits").unwrap();
    assert_eq!(world.submit("a", "too much"), Err(Refusal::QueueFull));
    assert_eq!(world.submit("b", "another"), Err(Refusal::SessionCap));
    world.submit("a", "!true").unwrap();
    assert_eq!(world.submit("a", "!true"), Err(Refusal::RateLimited));
    fs::write(&go, "\n").unwrap();
    fs::write(&go, "\n").unwrap();
    eventually("both are over", || {
        world.trail().iter().filter(|entry| entry["event_type"] == "agent_run").count() == 2
    });
    let reasons: Vec<_> =
        world.trail().into_iter().filter_map(|entry| entry["reason"].as_str().map(str::to_owned)).collect();
    assert_eq!(reasons, ["conversation queue full", "session cap reached", "rate limit exceeded"]);
}

#[test]
fn nothing_is_triggered_that_cannot_be_written_down() {
    let world = World::new("touch \"$AGENT_HOME/ran\"");
    fs::create_dir(world.dir.path().join("audit.log")).unwrap();
    assert_eq!(world.submit("a", "hi"), Err(Refusal::Unavailable));
    assert_eq!(world.submit("a", "!true"), Err(Refusal::Unavailable));
    fs::remove_dir(world.dir.path().join("audit.log")).unwrap();
    assert_eq!(world.reply("hi"), "tiny finished with no output.");
}

#[test]
fn what_cannot_be_run_says_why() {
    let world = World::new("exit 0");
    let manifest = world.dir.path().join("agents/tiny/agent.toml");
    let change = |from: &str, to: &str| {
        fs::write(&manifest, fs::read_to_string(&manifest).unwrap().replace(from, to)).unwrap();
    };
    assert!(world.gateway.is_dispatcher_there());
    change("\"sh\"", "\"no-such-program\"");
    let reply = world.reply("hi");
    assert!(reply.starts_with("Could not run tiny: spawn failed: No such file"), "{reply}");
    change("[run]", "[lifecycle]\nmode = \"persistent\"\nstartup_timeout_seconds = 1\n[run]");
    assert_eq!(world.reply("hi"), "Could not run tiny: persistent agents are not run");
    change("name", "nome");
    assert_eq!(world.reply("hi"), "Could not run tiny: trigger names unknown agent 'tiny'");
    assert!(!world.gateway.is_dispatcher_there());
    let told = world.trail().into_iter().filter(|entry| entry["event_type"] == "manifest_invalid").count();
    assert_eq!(told, 1, "once, though it was looked at again and again");
    change("nome", "name");
    assert!(world.gateway.is_dispatcher_there());
}

#[test]
fn a_home_without_a_dispatcher_has_no_gateway_and_a_broken_one_says_so() {
    let world = World::new("exit 0");
    let config = world.dir.path().join("config.toml");
    fs::write(&config, "[api]\n").unwrap();
    assert!(Gateway::open(Home::at(world.dir.path()), &world.host).unwrap().is_none());
    fs::write(&config, "[telegram]\ndispatcher_agent = \"another\"\n").unwrap();
    let told = Gateway::open(Home::at(world.dir.path()), &world.host).err().unwrap().to_string();
    assert!(told.contains("no agent is called \"another\""), "{told}");
    fs::write(&config, "[telegram\n").unwrap();
    let told = Gateway::open(Home::at(world.dir.path()), &world.host).err().unwrap().to_string();
    assert!(told.contains("config.toml") && told.contains("line 1"), "{told}");
    assert_eq!(world.reply("hi"), "tiny finished with no output.", "who was there goes on");
    let reply = world.reply("!true");
    assert!(reply.starts_with("`true` is not allowed: ") && reply.contains("line 1"), "{reply}");
    assert!(world.gateway.catalog().is_empty());
}

const ASSISTANT: &str = "protocol = \"assistant-v1\"\n[assistant]\ntranscript_bytes_max = 100\n";

#[test]
fn an_assistant_gets_its_session_back_until_it_is_retired() {
    let script = r#"
        printf '{"type":"session","claude_session":"s-1","transcript_bytes":%s}\n' "$(cat "$AGENT_HOME/bytes")"
        said="session=$AGENT_ASSISTANT_SESSION retired=$AGENT_ASSISTANT_CONTEXT_RETIRED"
        said="$said memory=$(printf %s "$AGENT_ASSISTANT_MEMORY" | head -n 1)"
        printf '{"type":"reply","text":"%s\\nMEMO: likes tea | topics: food"}\n' "$said"
    "#;
    let world = World::with(script, ASSISTANT, "");
    let bytes = |n: u32| fs::write(world.dir.path().join("agents/tiny/bytes"), n.to_string()).unwrap();
    bytes(100);
    assert_eq!(world.reply("1"), "session= retired= memory=");
    bytes(101);
    assert_eq!(world.reply("2"), "session=s-1 retired= memory=- likes tea");
    bytes(1);
    assert!(world.reply("3").starts_with("session= retired=true"));
    assert!(world.ask("other", "1").1.starts_with("session= retired="), "another conversation");
    assert!(world.reply("4").starts_with("session=s-1 retired= "), "told once");
    let (lines, reply) = world.ask("default", " /novo\n");
    assert_eq!((lines, reply.as_str()), (vec![], "A new session begins with the next message."));
    assert!(world.reply("5").starts_with("session= retired= "));
    fs::create_dir(world.dir.path().join("commands")).unwrap();
    fs::write(world.dir.path().join("commands/novo.md"), "---\ndescription: mine\n---\nx\n").unwrap();
    assert!(world.reply("/novo").starts_with("session=s-1"), "an installed command has the name");
}

#[test]
fn a_retirement_that_nobody_heard_of_is_told_again() {
    let script = "echo \"{\\\"type\\\":\\\"session\\\",\\\"claude_session\\\":\\\"s\\\",\\\"transcript_bytes\\\":101}\"; echo \"retired=$AGENT_ASSISTANT_CONTEXT_RETIRED\"";
    let world = World::with(script, ASSISTANT, "");
    assert!(world.reply("1").ends_with("retired="));
    let manifest = world.dir.path().join("agents/tiny/agent.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"sh\"", "\"no-such-program\"")).unwrap();
    assert!(world.reply("2").starts_with("Could not run"));
    fs::write(&manifest, text).unwrap();
    assert!(world.reply("3").ends_with("retired=true"));
}

const OS: &str = "[os]\nenabled = true\nallow = [\"echo\", \"sh\", \"sleep\", \"false\", \"seq\", \"no-such-program\"]\ntimeout_seconds = 1\n";

#[test]
fn commands_run_beside_the_dispatcher_and_answer_with_one_event() {
    let world = World::with("read x < \"$AGENT_HOME/go\"", "", OS);
    let go = world.dir.path().join("agents/tiny/go");
    assert!(std::process::Command::new("mkfifo").arg(&go).status().unwrap().success());
    world.submit("a", "hi").unwrap();
    for (text, want) in [
        ("!echo  hi \"a  b\"", "hi a  b".to_owned()),
        ("!false", "`false` exited 1.\n".to_owned()),
        ("!sleep 0", "`sleep` exited 0 and printed nothing.".to_owned()),
        ("!sleep 60", "`sleep` was still running after 1s and was killed.".to_owned()),
        ("!ls", "`ls` is not allowed. Add it to `[os] allow` in config.toml to change that.".to_owned()),
        ("!!", "Nothing is waiting for confirmation here (or it expired).".to_owned()),
        (
            "!seq 1 9000",
            format!(
                "{}\n… truncated at 8000 bytes.",
                &(1..9000).map(|n| format!("{n}\n")).collect::<String>()[..8000]
            ),
        ),
    ] {
        assert_eq!(world.ask("b", text), (vec![], want), "{text}");
    }
    let reply = world.ask("b", "!no-such-program").1;
    assert!(reply.starts_with("Could not start `no-such-program`: No such file"), "{reply}");
    let echo = world.trail().into_iter().find(|entry| entry["event_type"] == "os_command_invoked").unwrap();
    assert_eq!((&echo["bin"], &echo["args"]), (&json!("echo"), &json!(["hi", "a  b"])));
    assert_eq!((&echo["exit_code"], &echo["actor"]), (&json!(0), &json!("pid=7 uid=8")));
    fs::write(&go, "\n").unwrap();
    assert!(matches!(world.next(), LocalEvent::Reply { text, .. } if text.starts_with("tiny finished")));
}

#[test]
fn a_command_that_is_on_the_list_is_refused_for_what_keeps_it_from_running() {
    let list = "`echo` is not allowed. Add it to `[os] allow` in config.toml to change that.";
    let switch = "`echo` is not allowed. Set `enabled = true` in `[os]` of config.toml to change that.";
    for (os, want) in [
        ("[os]\nallow = [\"echo\"]\n", switch),
        ("[os]\nallow = [\"*\"]\nenabled = false\n", switch),
        ("[os]\nenabled = false\n", list),
        ("[os]\nallow = [\"ls\"]\n", list),
        ("[os]\nallow = [\"echo\"]\ndeny = [\"echo\"]\n", list),
        ("", list),
    ] {
        assert_eq!(World::with("exit 0", "", os).ask("a", "!echo hi").1, want, "{os}");
    }
}

#[test]
fn a_command_is_parked_for_its_own_session() {
    let world = World::with("exit 0", "", OS);
    let asked =
        "This will run:\n\n    sh -c 'echo x >&2; exit 7'\n\nSend `!!` to confirm. It expires in 120s.";
    assert_eq!(world.ask("a", "!sh -c 'echo x >&2; exit 7'").1, asked);
    assert!(world.ask("b", "!!").1.starts_with("Nothing is waiting"));
    assert_eq!(world.ask("a", "!!").1, "`sh` exited 7.\nx");
    assert!(world.ask("a", "!!").1.starts_with("Nothing is waiting"), "once");
    world.ask("a", "!sh -c 'exit 7'");
    let config = world.dir.path().join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}deny = [\"sh\"]\n")).unwrap();
    assert!(world.ask("a", "!!").1.starts_with("`sh` is not allowed"), "it is looked at again");
}

#[test]
fn a_stop_waits_for_what_is_nearly_done_and_answers_for_the_rest() {
    let world =
        World::new("trap 'echo bye; exit 0' TERM; echo ready; read x < \"$AGENT_HOME/go\"; echo done");
    let go = world.dir.path().join("agents/tiny/go");
    assert!(std::process::Command::new("mkfifo").arg(&go).status().unwrap().success());
    world.submit("a", "runs").unwrap();
    world.submit("a", "waits").unwrap();
    let is_ready =
        |event: &LocalEvent| matches!(event, LocalEvent::ReplyDelta { line, .. } if line == "ready");
    while !is_ready(&world.next()) {}
    let stopping = std::thread::scope(|scope| {
        let stopping = scope.spawn(|| world.gateway.stop());
        let texts = std::iter::from_fn(|| Some(world.next())).filter_map(|event| match event {
            LocalEvent::Reply { text, .. } => Some(text),
            _ => None,
        });
        let mut texts = texts.take(2);
        eventually("it stops", || world.gateway.is_closed.load(Ordering::Acquire));
        assert_eq!(world.submit("b", "late"), Err(Refusal::Unavailable));
        fs::write(&go, "\n").unwrap();
        assert_eq!(texts.next().unwrap(), "ready\ndone");
        assert_eq!(texts.next().unwrap(), "Could not run tiny: the daemon is stopping", "each in its turn");
        stopping.join()
    });
    stopping.unwrap();
    assert!(world.is_nothing_left());
}

#[test]
fn whoever_was_let_in_before_a_stop_has_its_reply_when_it_returns() {
    let world = World::new("echo ready");
    world.reply("first");
    // The next trigger is let in, and cannot be written down yet.
    let trail = fs::File::open(world.dir.path().join("audit.log")).unwrap();
    flock(&trail, FlockOperation::LockExclusive).unwrap();
    let (gateway, second) = (&world.gateway, world.trigger("a", "second"));
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let submitted = scope.spawn(|| gateway.submit(second));
        eventually("it is let in", || gateway.submitting.try_lock().is_err());
        scope.spawn(move || {
            gateway.stop();
            tell.send(()).unwrap();
        });
        let has_reply = || world.events.try_iter().any(|event| matches!(event, LocalEvent::Reply { .. }));
        // A stop that does not wait for it is over by then; one that does is what is wanted.
        let is_early = told.recv_timeout(Duration::from_millis(500)).is_ok();
        let is_answered = is_early && has_reply();
        flock(&trail, FlockOperation::Unlock).unwrap();
        assert_eq!(submitted.join().unwrap(), Ok(()));
        assert!(is_answered || (!is_early && told.recv_timeout(LONG).is_ok() && has_reply()));
    });
}

#[test]
fn a_daemon_that_was_killed_leaves_no_group_behind() {
    let world = World::new("sleep 600 & echo ready; wait");
    world.submit("a", "hi").unwrap();
    let is_ready =
        |event: &LocalEvent| matches!(event, LocalEvent::ReplyDelta { line, .. } if line == "ready");
    while !is_ready(&world.next()) {}
    // What the next daemon does; that this one still waits makes no difference.
    let again = Engine::open(Home::at(world.dir.path()), &world.host, LOCAL, ApiLimits::default()).unwrap();
    assert!(matches!(world.next(), LocalEvent::Reply { text, .. } if text == "tiny exited -1.\n"));
    assert_eq!(again.runs.orphans().unwrap(), []);
    assert!(world.trail().iter().any(|entry| entry["event_type"] == "orphan_reaped"));
}

#[test]
fn the_home_is_used_as_it_is_and_nothing_in_it_is_for_others() {
    let world = World::with("exit 0", ASSISTANT, "");
    world.reply("hi");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&world.dir.path().join("audit.log")), 0o600);
    assert_eq!(mode(&world.dir.path().join("data/runs/local")), 0o700);
}
