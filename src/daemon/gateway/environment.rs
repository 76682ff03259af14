//! What an agent's process finds in its environment. What it is to do is nowhere else: not in its arguments, which
//! everybody on the machine can read, and not on its stdin.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::engine::{OF_THE_SERVICE, grouped};
use crate::clock::Wall;
use crate::store::home::assistant::Pointers;
use crate::store::home::runs::TMPDIR_VARIABLE;
use crate::store::home::{Manifest, component};

/// What decides about the letters of a process, one of which is enough.
const LOCALE: [&str; 3] = ["LANG", "LC_CTYPE", "LC_ALL"];

/// A trigger, as its run sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) source: &'a str,
    pub(super) session: &'a str,
    pub(super) actor: &'a str,
    /// Where the reply goes: the session, or an address.
    pub(super) reply_to: &'a str,
    /// A compact JSON object.
    pub(super) payload: &'a str,
}

impl Call<'_> {
    /// The name of the run's kind: for each conversation another one.
    pub(super) fn slug(&self) -> String {
        format!("trigger-{}-{}", self.source, component(self.session))
    }
}

/// What a run gets besides its trigger.
pub(super) struct Given<'a> {
    pub(super) tmp: &'a Path,
    pub(super) heartbeat: PathBuf,
    pub(super) pointers: &'a Pointers,
    pub(super) memory: Option<&'a str>,
    pub(super) now: Wall,
}

/// The command of a run, from the environment of the daemon.
pub(super) fn command(
    agent: &Manifest,
    call: &Call<'_>,
    given: &Given<'_>,
    inherited: impl Iterator<Item = (OsString, OsString)>,
) -> Command {
    let mut command = Command::new(&agent.command);
    command.args(&agent.args).current_dir(&agent.working_dir);
    command.env_clear().envs(variables(agent, call, given, inherited));
    grouped(command)
}

/// All variables. What comes later wins: what is inherited, the letters, the manifest's, the trigger's, and at last
/// what is the same for every agent.
fn variables(
    agent: &Manifest,
    call: &Call<'_>,
    given: &Given<'_>,
    inherited: impl Iterator<Item = (OsString, OsString)>,
) -> BTreeMap<OsString, OsString> {
    let is_of_another = |name: &OsStr| {
        let name = name.to_string_lossy();
        let of_a_run = ["AGENT_TRIGGER_", "AGENT_ASSISTANT_"].iter().any(|prefix| name.starts_with(prefix));
        of_a_run || name == "AGENT_SESSION_ID" || OF_THE_SERVICE.contains(&&*name)
    };
    let mut all: BTreeMap<OsString, OsString> = if agent.inherits_env {
        inherited.filter(|(name, _)| !is_of_another(name)).collect()
    } else {
        BTreeMap::new()
    };
    let has_locale = |name: &&str| all.contains_key(OsStr::new(name)) || agent.extra_env.contains_key(*name);
    if !LOCALE.iter().any(has_locale) {
        all.insert("LC_CTYPE".into(), "C.UTF-8".into());
    }
    all.extend(agent.extra_env.iter().map(|(name, value)| (name.into(), value.into())));
    let of_trigger = [
        ("AGENT_TRIGGER_SOURCE", call.source),
        ("AGENT_TRIGGER_ACTOR", call.actor),
        ("AGENT_TRIGGER_PAYLOAD", call.payload),
        ("AGENT_TRIGGER_REPLY_TO", call.reply_to),
        ("AGENT_SESSION_ID", call.session),
    ];
    all.extend(of_trigger.map(|(name, value)| (name.into(), value.into())));
    all.extend(of_assistant(given));
    let args = serde_json::to_string(&Vec::<&str>::new()).expect("a list is JSON");
    let of_run: [(&str, OsString); 9] = [
        ("AGENT_ARGV", args.into()),
        ("AGENT_DRY_RUN", "false".into()),
        ("AGENT_HEARTBEAT_FILE", given.heartbeat.clone().into()),
        ("AGENT_HOME", agent.dir.clone().into()),
        ("AGENT_NAME", agent.name.clone().into()),
        ("AGENT_SCHEDULE_ID", agent.schedule.clone().into()),
        ("AGENT_SLUG", call.slug().into()),
        ("AGENT_START_EPOCH", given.now.unix_seconds().to_string().into()),
        (TMPDIR_VARIABLE, given.tmp.into()),
    ];
    all.extend(of_run.map(|(name, value)| (name.into(), value)));
    all
}

/// What only an assistant gets, and only where there is something to say.
fn of_assistant(given: &Given<'_>) -> impl Iterator<Item = (OsString, OsString)> {
    let Pointers { session, retired, toolkit } = given.pointers;
    let (config, hash) = toolkit.clone().unzip();
    let all: [(&str, Option<OsString>); 5] = [
        ("AGENT_ASSISTANT_SESSION", session.clone().map(Into::into)),
        ("AGENT_ASSISTANT_CONTEXT_RETIRED", retired.then(|| "true".into())),
        ("AGENT_ASSISTANT_MCP_CONFIG", config.map(Into::into)),
        ("AGENT_ASSISTANT_TOOLKIT_HASH", hash.map(Into::into)),
        ("AGENT_ASSISTANT_MEMORY", given.memory.map(Into::into)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.into(), value?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "[agent]\nname = \"tiny\"\n[run]\ncommand = \"bash\"\n";

    fn agent(more: &str) -> Manifest {
        Manifest::parse(Path::new("/a/tiny"), &format!("{LEAST}{more}")).unwrap()
    }

    fn found(agent: &Manifest, pointers: &Pointers, inherited: &[(&str, &str)]) -> BTreeMap<String, String> {
        let call =
            Call { source: "local", session: "chat", actor: "pid=7 uid=8", reply_to: "chat", payload: "{}" };
        let (tmp, heartbeat, now) = (Path::new("/t"), PathBuf::from("/h.json"), Wall(5_900));
        let given = Given { tmp, heartbeat, pointers, memory: pointers.session.as_deref(), now };
        let inherited = inherited.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let text = |text: OsString| text.into_string().unwrap();
        variables(agent, &call, &given, inherited).into_iter().map(|(n, v)| (text(n), text(v))).collect()
    }

    fn all(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_plain_agent_gets_exactly_what_is_promised() {
        let inherited = [
            ("PATH", "/bin"),
            ("LANG", "C"),
            ("AGENT_TRIGGER_PAYLOAD", "of another"),
            ("AGENT_TRIGGER_CHAT", "of another"),
            ("AGENT_ASSISTANT_SESSION", "of another"),
            ("AGENT_SESSION_ID", "of another"),
            ("AGENT_NAME", "of another"),
            ("NOTIFY_SOCKET", "/run/systemd/notify"),
        ];
        let want = all(&[
            ("AGENT_ARGV", "[]"),
            ("AGENT_DRY_RUN", "false"),
            ("AGENT_HEARTBEAT_FILE", "/h.json"),
            ("AGENT_HOME", "/a/tiny"),
            ("AGENT_NAME", "tiny"),
            ("AGENT_SCHEDULE_ID", "trigger"),
            ("AGENT_SESSION_ID", "chat"),
            ("AGENT_SLUG", "trigger-local-chat"),
            ("AGENT_START_EPOCH", "5"),
            ("AGENT_TMPDIR", "/t"),
            ("AGENT_TRIGGER_ACTOR", "pid=7 uid=8"),
            ("AGENT_TRIGGER_PAYLOAD", "{}"),
            ("AGENT_TRIGGER_REPLY_TO", "chat"),
            ("AGENT_TRIGGER_SOURCE", "local"),
            ("LANG", "C"),
            ("PATH", "/bin"),
        ]);
        assert_eq!(found(&agent(""), &Pointers::default(), &inherited), want);
    }

    #[test]
    fn what_comes_later_wins() {
        let extra =
            "[env]\ninherit = false\nextra = { A = \"b\", AGENT_NAME = \"x\", AGENT_TRIGGER_SOURCE = \"x\" }";
        let found_ = found(&agent(extra), &Pointers::default(), &[("PATH", "/bin"), ("LANG", "C")]);
        let value = |name: &str| found_.get(name).map(String::as_str);
        assert_eq!((value("PATH"), value("A")), (None, Some("b")));
        assert_eq!((value("AGENT_NAME"), value("AGENT_TRIGGER_SOURCE")), (Some("tiny"), Some("local")));
        assert_eq!(value("LC_CTYPE"), Some("C.UTF-8"));
        let named = found(&agent("[env]\nextra = { LC_ALL = \"de\" }"), &Pointers::default(), &[]);
        assert_eq!((named.get("LC_CTYPE"), named["LC_ALL"].as_str()), (None, "de"));
    }

    #[test]
    fn an_assistant_gets_what_there_is() {
        let toolkit = Some((PathBuf::from("/toolkit.json"), "abc".to_owned()));
        let pointers = Pointers { session: Some("s-1".into()), retired: true, toolkit };
        let found = found(&agent("[assistant]"), &pointers, &[]);
        let want = all(&[
            ("AGENT_ASSISTANT_CONTEXT_RETIRED", "true"),
            ("AGENT_ASSISTANT_MCP_CONFIG", "/toolkit.json"),
            ("AGENT_ASSISTANT_MEMORY", "s-1"),
            ("AGENT_ASSISTANT_SESSION", "s-1"),
            ("AGENT_ASSISTANT_TOOLKIT_HASH", "abc"),
        ]);
        let found: BTreeMap<_, _> =
            found.into_iter().filter(|(name, _)| name.starts_with("AGENT_ASSISTANT_")).collect();
        assert_eq!(found, want);
    }
}
