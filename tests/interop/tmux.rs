//! Programs in the panes of a real tmux.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Background, Home, eventually, text};

const RULE: &str = "────────────────────────────────";

/// A host with an agent `alice`, and a tmux whose one pane runs a script.
struct Scene {
    home: Home,
    _daemon: Background,
    _alice: Background,
    address: String,
}

impl Scene {
    fn new(script: &str) -> Self {
        let home = Home::new();
        let ready = home.path("ready.json");
        let mut command = home.command("transitd");
        let mut daemon = Background::start(command.args(["run", "--ready-file"]).arg(&ready));
        daemon.ready(&ready);
        let mut command = home.command("transit-agent");
        let alice = Background::start(command.args(["listen", "--name", "alice"]));
        let registered: Value = serde_json::from_str(&alice.line()).unwrap();
        let address = registered["address"].as_str().unwrap().replacen("alice", "bob", 1);
        home.file("script", script);
        let scene = Self { home, _daemon: daemon, _alice: alice, address };
        let started =
            scene.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "40", "sh script"]);
        assert!(started.is_some(), "tmux is needed: apt-get install tmux");
        if script.contains("exec tee") {
            // Until then the shell is in the foreground, and would be taken for the program.
            let program = ["display-message", "-p", "-t", "%0", "#{pane_current_command}"];
            eventually(|| (scene.tmux(&program)?.trim() == "tee").then_some(()));
        }
        scene
    }

    fn socket(&self) -> PathBuf {
        self.home.path("tmux.sock")
    }

    fn tmux(&self, args: &[&str]) -> Option<String> {
        let mut command = self.home.foreign("tmux");
        command.arg("-S").arg(self.socket()).args(args).stdin(Stdio::null()).env("LC_ALL", "C.UTF-8");
        let out = command.output().ok().filter(|out| out.status.success())?;
        Some(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Waits until the pane shows this.
    fn shows(&self, what: &str) {
        eventually(|| self.tmux(&["capture-pane", "-p", "-t", "%0"])?.contains(what).then_some(()));
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = self.home.command("transit-agent");
        command
            .args(["tmux", "--name", "bob", "--target", "%0", "--tmux-socket"])
            .arg(self.socket())
            .args(more);
        command
    }

    /// `transit-agent tmux`, registered.
    fn agent(&self, more: &[&str]) -> Background {
        let agent = Background::start(&mut self.command(more));
        assert!(agent.error().contains("registered as bob@"));
        agent
    }

    /// Sends to bob and waits; answers the exit code and the outcome.
    fn send(&self, body: &str, wait: &str) -> (i32, String) {
        let out = self.home.run(
            "transit-send",
            [&self.address, "--as", "alice", "--json", "--wait", wait],
            body.as_bytes(),
        );
        let line: Value = serde_json::from_slice(&out.stdout).unwrap();
        (out.status.code().unwrap(), line["outcome"].as_str().unwrap().to_owned())
    }

    /// What the program in the pane has read.
    fn got(&self) -> String {
        std::fs::read_to_string(self.home.path("got")).unwrap_or_default()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Reads line by line, and echoes.
const LINES: &str = "exec tee got";
/// Asks for brackets, reads every key, and shows what it reads.
const BRACKETS: &str = "stty raw -echo; printf '\\033[?2004hready'; exec tee got";

#[test]
fn an_envelope_arrives_whole_and_counts_as_shown() {
    let scene = Scene::new(LINES);
    eventually(|| std::fs::exists(scene.home.path("got")).unwrap().then_some(()));
    let mut agent = scene.agent(&[]);
    assert_eq!(scene.send("one\n\ttwo \u{1f600}", "settled=20s"), (0, "shown".to_owned()));
    let got = eventually(|| Some(scene.got()).filter(|got| got.contains("</transit>\n")));
    assert!(got.starts_with("<transit from=\"alice@") && got.contains("\none\n\ttwo \u{1f600}\n"), "{got}");
    assert_eq!(got.matches("<transit ").count(), 1);
    assert_eq!(scene.send("more", "injected=1s").0, 75, "nobody promises that it is kept");
    scene.tmux(&["kill-session"]);
    assert!(agent.error().contains("the pane is closed"));
    assert!(agent.wait().success());
}

#[test]
fn a_program_that_asks_for_brackets_gets_them_and_a_long_text_in_one_piece() {
    let scene = Scene::new(BRACKETS);
    scene.shows("ready");
    let _agent = scene.agent(&[]);
    assert_eq!(scene.send(&"\u{1f600}".repeat(5_000), "settled=20s"), (0, "shown".to_owned()));
    let got = eventually(|| Some(scene.got()).filter(|got| got.ends_with('\r')));
    let pasted = got.strip_prefix("\x1b[200~").unwrap().strip_suffix("\x1b[201~\r").unwrap();
    assert!(pasted.starts_with("<transit ") && pasted.ends_with("</transit>"), "{pasted:.200}");
    assert_eq!(pasted.matches('\u{1f600}').count(), 4_000);
    assert!(pasted.contains(" truncated=\"1\""));
}

#[test]
fn a_line_that_the_terminal_would_cut_is_refused_before_a_byte_is_typed() {
    let scene = Scene::new(LINES);
    eventually(|| std::fs::exists(scene.home.path("got")).unwrap().then_some(()));
    let agent = scene.agent(&[]);
    assert_eq!(scene.send(&"\u{1f600}".repeat(5_000), "settled=20s").0, 1);
    assert!(agent.error().contains("line_too_long"));
    assert_eq!(scene.got(), "");
    assert_eq!(scene.send("short", "settled=20s").0, 0);
}

#[test]
fn copy_mode_is_left_alone() {
    let scene = Scene::new(LINES);
    eventually(|| std::fs::exists(scene.home.path("got")).unwrap().then_some(()));
    let agent = scene.agent(&[]);
    scene.tmux(&["copy-mode", "-t", "%0"]);
    assert_eq!(scene.send("one", "settled=1s").0, 75);
    assert!(agent.error().contains("it is in a mode"));
    assert_eq!(scene.got(), "");
    assert_eq!(scene.tmux(&["display-message", "-p", "-t", "%0", "#{pane_in_mode}"]).unwrap().trim(), "1");
    scene.tmux(&["send-keys", "-t", "%0", "-X", "cancel"]);
    eventually(|| scene.got().contains("</transit>\n").then_some(()));
}

#[test]
fn a_draft_is_left_alone() {
    let draw = format!(
        "stty raw -echo; printf '{RULE}\\r\\n❯ half a th\\r\\n{RULE}\\r\\n'; exec tee got >/dev/null"
    );
    let scene = Scene::new(&draw);
    scene.shows("half a th");
    let agent = scene.agent(&["--harness", "claude"]);
    assert_eq!(scene.send("one", "settled=1s").0, 75);
    assert!(agent.error().contains("somebody types there"));
    assert_eq!(scene.got(), "");
}

#[test]
fn a_shell_is_never_typed_to() {
    let scene = Scene::new("exec sh -i");
    let out = eventually(|| {
        let out = scene.command(&[]).output().unwrap();
        (out.status.code() == Some(69)).then_some(out)
    });
    assert!(text(&out.stderr).contains("would run what is typed"), "{}", text(&out.stderr));
    let agent = scene.agent(&["--program", "tee"]);
    assert_eq!(scene.send("one", "settled=1s").0, 75);
    assert!(agent.error().contains("another program"));
    scene.tmux(&["send-keys", "-t", "%0", "exec tee got", "Enter"]);
    eventually(|| scene.got().contains("</transit>\n").then_some(()));
}

#[test]
fn with_a_transcript_it_counts_as_injected() {
    let scene = Scene::new(LINES);
    eventually(|| std::fs::exists(scene.home.path("got")).unwrap().then_some(()));
    let _agent = scene.agent(&["--transcript", "got"]);
    assert_eq!(scene.send("one", "injected=20s"), (0, "injected".to_owned()));
}

#[test]
fn a_pane_that_is_not_there_is_told() {
    let scene = Scene::new(LINES);
    let mut command = scene.home.command("transit-agent");
    command.args(["tmux", "--name", "bob", "--target", "%9", "--tmux-socket"]).arg(scene.socket());
    let out = command.output().unwrap();
    assert_eq!(out.status.code(), Some(69), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("%9"), "{}", text(&out.stderr));
}
