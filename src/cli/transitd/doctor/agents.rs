//! The home of the host's own agents: whether they can be run, and who could change what they run.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::cli::control;
use crate::cli::findings::Findings;
use crate::store::files;
use crate::store::home::audit::Checked;
use crate::store::home::{Found, Home, Manifest};

const CHECK: &str = "agents";
const RELOAD: &str = "correct it, then transitd reload";
/// Writing by the group or by others.
const WRITABLE: u32 = 0o022;

/// Looks at the home, if there is one. What the daemon has said of its API is not said again.
pub(super) fn home(status: Option<&Map<String, Value>>, found: &mut Findings) {
    let Some(home) = control::agents_home().map(|home| home.elsewhere()) else { return };
    if !home.dir().is_dir() {
        return;
    }
    let there = home.discover();
    for broken in &there.broken {
        found.wrong(CHECK, format!("{}: {}", broken.path.display(), broken.why), RELOAD);
    }
    for other in &there.shadowed {
        let text = format!("{} does not count: {}", other.path.display(), other.why);
        found.note(CHECK, text, "give one of them another [agent] name, or take it away");
    }
    there.agents.iter().for_each(|agent| one(&home, agent, found));
    commands(&home, found);
    not_done_here(&home, found);
    trail(&home, found);
    let says = |name: &str| status.is_some_and(|status| status.get(name).is_some_and(Value::is_string));
    let is_told = says("api_error") || says("api_sock");
    dispatcher(&home, &there, is_told, found);
    permissions(&home, &there, found);
    let path = home.dir().display();
    found.ok(CHECK, format!("{} can be run of those in {path}", fit(&there)));
}

/// Files of commands that are not listed.
fn commands(home: &Home, found: &mut Findings) {
    // Of a configuration that makes no sense it is told below.
    let Ok(settings) = home.settings() else { return };
    for broken in home.catalog(&settings.commands).1 {
        let text = format!("{}: {}", broken.path.display(), broken.why);
        found.note("commands", text, "commands.list leaves it out: correct it, or take it away");
    }
}

/// What the home has besides that nothing here uses.
fn not_done_here(home: &Home, found: &mut Findings) {
    const SEE: &str = "see \"A home of dotagent\" in docs/agents.md";
    if home.settings().is_ok_and(|settings| settings.wants_telegram) {
        found.note(CHECK, "[telegram] bot_token is set: nothing here speaks to Telegram", SEE);
    }
    let secrets = home.dir().join("secrets.env");
    if secrets.exists() {
        found.note(CHECK, format!("{} is not read: only notifiers use it", secrets.display()), SEE);
    }
}

/// Whether the audit trail is whole.
fn trail(home: &Home, found: &mut Findings) {
    match home.check_audit() {
        Ok(Checked { entries: 0, .. }) => {}
        Ok(Checked { entries, broken: None }) => {
            found.ok("audit", format!("{entries} entries, each with the hash of the one before"));
        }
        Ok(Checked { broken: Some((path, line)), .. }) => {
            let text = format!("{}: line {line} does not go on from the one before", path.display());
            found.wrong("audit", text, "something has changed the file: find out what, and put it aside");
        }
        Err(err) => found.wrong("audit", err.to_string(), "nothing is triggered without it"),
    }
}

fn fit(there: &Found) -> usize {
    there.agents.iter().filter(|agent| agent.unfit.is_none()).count()
}

/// What an agent's manifest asks for and does not get.
fn one(home: &Home, agent: &Manifest, found: &mut Findings) {
    let name = &agent.name;
    for plugin in agent.preflight.iter().map(|check| home.plugin(&check.plugin)) {
        if !can_be_found(&plugin) {
            let text = format!("{name} is not run: its preflight {} is not there", plugin.display());
            found.wrong(CHECK, text, format!("put it into {} or PATH", home.dir().join("plugins").display()));
        }
    }
    if let Some(why) = agent.unfit {
        let hint =
            format!("take that out of {}, or keep it for a daemon that does it", manifest(agent).display());
        return found.wrong(CHECK, format!("{name} is not run: {why}"), hint);
    }
    if let Some(why) = agent.out_of_reach().filter(|_| agent.is_on_the_mesh) {
        found.note(
            CHECK,
            format!("{}: {why}", manifest(agent).display()),
            "only local clients reach it, as the dispatcher; another [agent] name mends that",
        );
    }
    if !agent.without_effect.is_empty() {
        let what = agent.without_effect.join(", ");
        found.note(
            CHECK,
            format!("{name} is run without {what}: nothing here does that"),
            "see docs/agents.md",
        );
    }
}

/// Whether a program is a file, or one of PATH.
fn can_be_found(program: &Path) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    program.is_file() || env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn dispatcher(home: &Home, there: &Found, is_told: bool, found: &mut Findings) {
    match home.settings() {
        Err(_) if is_told => {}
        Err(err) => found.wrong(CHECK, err.to_string(), "correct it, then restart transitd"),
        Ok(settings) if is_told || there.get(&settings.dispatcher).is_some() => {}
        Ok(settings) if settings.is_dispatcher_named => {
            let text =
                format!("no agent is called {:?}, as [telegram] dispatcher_agent says", settings.dispatcher);
            found.wrong(CHECK, text, format!("correct {}, then restart transitd", home.config().display()));
        }
        Ok(_) => found.note(
            CHECK,
            "no dispatcher is named: messages reach the agents, and local clients have no api.sock",
            format!(
                "[telegram] dispatcher_agent = \"NAME\" in {}, then restart transitd",
                home.config().display()
            ),
        ),
    }
}

/// Whether others can change what is run, or read what is secret.
fn permissions(home: &Home, there: &Found, found: &mut Findings) {
    let of_agents = there.agents.iter().flat_map(|agent| [agent.dir.clone(), manifest(agent)]);
    for path in [home.dir().to_owned(), home.config()].into_iter().chain(of_agents) {
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if metadata.mode() & WRITABLE != 0 && metadata.mode() & 0o1000 == 0 {
            let (shown, mode) = (path.display(), metadata.mode() & 0o777);
            let text = format!("others can change {shown} (mode {mode:o}), and so what is run");
            found.wrong(CHECK, text, format!("chmod go-w {shown}"));
        }
    }
    let secrets = home.dir().join("secrets.env");
    if files::is_exposed(&secrets) {
        let shown = secrets.display();
        found.wrong(CHECK, format!("others can read {shown}"), format!("chmod 600 {shown}"));
    }
}

fn manifest(agent: &Manifest) -> PathBuf {
    agent.dir.join("agent.toml")
}
