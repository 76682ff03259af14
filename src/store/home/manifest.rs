//! `agent.toml`: what an agent is called, and how it is run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::files;
use super::unread;
use crate::addr::Name;

/// Longest manifest, in bytes.
const LONGEST: u64 = 1 << 20;
/// The only protocol of an agent's stdout.
const ASSISTANT_V1: &str = "assistant-v1";
/// The schedule of a run that nothing scheduled.
const TRIGGER: &str = "trigger";

/// An agent, as its manifest has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The directory of the manifest.
    pub dir: PathBuf,
    /// What the agent is called.
    pub name: String,
    /// What it says about itself, or nothing.
    pub description: String,
    /// How long a run may take.
    pub timeout: Duration,
    /// The program, to be looked up in PATH when it is a bare name.
    pub command: String,
    /// Its arguments, those of the first schedule among them.
    pub args: Vec<String>,
    /// Where it runs.
    pub working_dir: PathBuf,
    /// Whether its stdout is assistant-v1.
    pub is_assistant_v1: bool,
    /// Whether it gets the environment of the daemon.
    pub inherits_env: bool,
    /// What is added to its environment.
    pub extra_env: BTreeMap<String, String>,
    /// The id of the first schedule, or `trigger`.
    pub schedule: String,
    /// What the registry keeps for it, if anything.
    pub assistant: Option<Assistant>,
    /// What has to let it run each time.
    pub preflight: Vec<Preflight>,
    /// Why a trigger cannot run it, though the manifest is well formed.
    pub unfit: Option<&'static str>,
    /// Whether messages of others may run it: `[transit] mesh`.
    pub is_on_the_mesh: bool,
    /// What the manifest asks for that nothing here does, by the names of its tables.
    pub without_effect: Vec<&'static str>,
}

/// A plugin of `[[preflight]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preflight {
    /// What it is called.
    pub plugin: String,
    /// What it is told.
    pub config: serde_json::Value,
    /// How long it may take.
    pub timeout: Duration,
}

/// `[assistant]`, when it is enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assistant {
    /// Whether what it wants remembered is kept.
    pub memory: bool,
    /// Bytes of a transcript above which the agent's session is retired.
    pub transcript_bytes_max: u64,
    /// Tool servers that the agent is told of.
    pub servers: Vec<Server>,
}

/// One tool server of `[[assistant.toolkit.servers]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// What the agent calls it.
    pub name: String,
    /// How it is reached.
    pub way: Way,
}

/// How a tool server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// The host's own tools.
    Own,
    /// Over HTTP.
    Http {
        /// Where.
        url: String,
    },
    /// A program, on its stdin and stdout.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
    },
}

#[derive(Deserialize)]
struct File {
    agent: AgentTable,
    run: RunTable,
    #[serde(default)]
    env: EnvTable,
    #[serde(default)]
    lifecycle: LifecycleTable,
    assistant: Option<AssistantTable>,
    #[serde(default)]
    transit: TransitTable,
    #[serde(default)]
    schedules: Vec<ScheduleTable>,
    #[serde(default)]
    preflight: Vec<PreflightTable>,
    notifiers: Option<IgnoredAny>,
    on_success: Option<IgnoredAny>,
    on_failure: Option<IgnoredAny>,
    memory: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct AgentTable {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default = "half_an_hour")]
    timeout_seconds: u64,
}

#[derive(Deserialize)]
struct RunTable {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    working_dir: Option<PathBuf>,
    protocol: Option<String>,
}

#[derive(Deserialize)]
#[serde(default)]
struct EnvTable {
    inherit: bool,
    extra: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LifecycleTable {
    mode: Mode,
    startup_timeout_seconds: Option<u64>,
}

#[derive(Deserialize, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Oneshot,
    Persistent,
}

#[derive(Deserialize)]
#[serde(default)]
struct AssistantTable {
    enabled: bool,
    memory: bool,
    transcript_bytes_max: u64,
    toolkit: ToolkitTable,
    extractor: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ToolkitTable {
    servers: Vec<ServerTable>,
}

#[derive(Deserialize)]
struct ServerTable {
    name: String,
    #[serde(flatten)]
    way: WayTable,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum WayTable {
    Dotagent,
    Http {
        url: String,
    },
    Stdio {
        command: String,
        #[serde(default)]
        args: Vec<String>,
    },
}

#[derive(Deserialize)]
#[serde(default)]
struct TransitTable {
    mesh: bool,
}

#[derive(Deserialize)]
struct PreflightTable {
    plugin: String,
    #[serde(default = "nothing")]
    config: serde_json::Value,
    #[serde(default = "half_a_minute")]
    timeout_seconds: u64,
}

#[derive(Deserialize)]
struct ScheduleTable {
    #[serde(default)]
    id: String,
    #[serde(default)]
    args: Vec<String>,
}

impl Default for EnvTable {
    fn default() -> Self {
        Self { inherit: true, extra: BTreeMap::new() }
    }
}

impl Default for TransitTable {
    fn default() -> Self {
        Self { mesh: true }
    }
}

impl Default for AssistantTable {
    fn default() -> Self {
        let toolkit = ToolkitTable::default();
        Self { enabled: true, memory: true, transcript_bytes_max: 409_600, toolkit, extractor: None }
    }
}

fn nothing() -> serde_json::Value {
    serde_json::Value::Object(serde_json::Map::new())
}

fn half_a_minute() -> u64 {
    30
}

fn half_an_hour() -> u64 {
    1800
}

impl Manifest {
    /// Why no message of the mesh can run it, if it is one that none can.
    pub fn out_of_reach(&self) -> Option<String> {
        let no_name = |err| format!("{err}; messages reach an agent whose name is one of the mesh");
        self.unfit.map(str::to_owned).or_else(|| self.name.parse::<Name>().err().map(no_name))
    }

    /// Reads `agent.toml` of a directory.
    ///
    /// # Errors
    /// One line about what is wrong with it.
    pub fn load(dir: &Path) -> Result<Self, String> {
        let text = files::read_small(&dir.join("agent.toml"), LONGEST).map_err(unread)?;
        let text = std::str::from_utf8(&text).map_err(|_| "it is not UTF-8".to_owned())?;
        Self::parse(dir, text)
    }

    /// Reads the text of a manifest that stands in `dir`. Keys that are not known are ignored.
    ///
    /// # Errors
    /// One line about what is wrong with it.
    pub fn parse(dir: &Path, text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|err| one_line(&err))?;
        file.check()?;
        let without_effect = file.without_effect();
        let File { agent, run, env, lifecycle, assistant, transit, schedules, preflight, .. } = file;
        let schedule = schedules.into_iter().next();
        let mut args = run.args;
        let (schedule, more) = schedule.map(|first| (first.id, first.args)).unwrap_or_default();
        args.extend(more);
        let unfit = (lifecycle.mode == Mode::Persistent).then_some("persistent agents are not run");
        let preflight = preflight.into_iter().map(Preflight::from).collect();
        Ok(Self {
            dir: dir.to_owned(),
            name: agent.name,
            description: agent.description,
            timeout: Duration::from_secs(agent.timeout_seconds),
            command: run.command,
            args,
            working_dir: run.working_dir.map_or_else(|| dir.to_owned(), |below| dir.join(below)),
            is_assistant_v1: run.protocol.is_some(),
            inherits_env: env.inherit,
            extra_env: env.extra,
            schedule: if schedule.is_empty() { TRIGGER.to_owned() } else { schedule },
            assistant: assistant.filter(|table| table.enabled).map(Assistant::from),
            preflight,
            unfit,
            is_on_the_mesh: transit.mesh,
            without_effect,
        })
    }
}

impl File {
    fn without_effect(&self) -> Vec<&'static str> {
        let extractor = self.assistant.as_ref().and_then(|table| table.extractor.as_ref());
        let all = [
            ("schedules", !self.schedules.is_empty()),
            ("notifiers", self.notifiers.is_some()),
            ("on_success", self.on_success.is_some()),
            ("on_failure", self.on_failure.is_some()),
            ("memory", self.memory.is_some()),
            ("assistant.extractor", extractor.is_some()),
        ];
        all.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect()
    }

    fn check(&self) -> Result<(), String> {
        let Self { agent, run, env, lifecycle, assistant, preflight, .. } = self;
        let is_persistent = lifecycle.mode == Mode::Persistent;
        let startup = lifecycle.startup_timeout_seconds.unwrap_or(30);
        let odd = |name: &String| name.is_empty() || name.contains(['=', '\0']);
        if agent.name.trim().is_empty() {
            return Err("[agent] name is empty".to_owned());
        }
        if run.command.trim().is_empty() {
            return Err("[run] command is empty".to_owned());
        }
        match run.protocol.as_deref() {
            None => {}
            Some(ASSISTANT_V1) if is_persistent => {
                return Err("[run] protocol \"assistant-v1\" is not for a persistent agent".to_owned());
            }
            Some(ASSISTANT_V1) => {}
            Some(other) => {
                return Err(format!("[run] protocol {other:?} is not known; \"assistant-v1\" is"));
            }
        }
        if is_persistent && startup >= agent.timeout_seconds {
            return Err("[lifecycle] startup_timeout_seconds is not below timeout_seconds".to_owned());
        }
        if let Some(PreflightTable { plugin, .. }) = preflight.iter().find(|check| !is_plugin(&check.plugin))
        {
            return Err(format!("[[preflight]] plugin {plugin:?} is no name of a plugin"));
        }
        if let Some(name) = env.extra.keys().find(|name| odd(name)) {
            return Err(format!("[env] extra: {name:?} is no name of a variable"));
        }
        assistant.as_ref().map_or(Ok(()), AssistantTable::check)
    }
}

/// Whether it can be a part of a file's name.
fn is_plugin(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0'])
}

impl AssistantTable {
    fn check(&self) -> Result<(), String> {
        if self.transcript_bytes_max == 0 {
            return Err("[assistant] transcript_bytes_max is 0".to_owned());
        }
        let servers = &self.toolkit.servers;
        let twice = servers
            .iter()
            .enumerate()
            .find(|(at, server)| servers[..*at].iter().any(|other| other.name == server.name));
        match twice {
            Some((_, server)) => Err(format!("[[assistant.toolkit.servers]] has {:?} twice", server.name)),
            None => Ok(()),
        }
    }
}

impl From<PreflightTable> for Preflight {
    fn from(PreflightTable { plugin, config, timeout_seconds }: PreflightTable) -> Self {
        Self { plugin, config, timeout: Duration::from_secs(timeout_seconds) }
    }
}

impl From<AssistantTable> for Assistant {
    fn from(table: AssistantTable) -> Self {
        let servers = table.toolkit.servers.into_iter().map(|server| Server {
            name: server.name,
            way: match server.way {
                WayTable::Dotagent => Way::Own,
                WayTable::Http { url } => Way::Http { url },
                WayTable::Stdio { command, args } => Way::Stdio { command, args },
            },
        });
        let (memory, transcript_bytes_max) = (table.memory, table.transcript_bytes_max);
        Self { memory, transcript_bytes_max, servers: servers.collect() }
    }
}

/// What a parser says, without its drawing.
pub(super) fn one_line(err: &toml::de::Error) -> String {
    let message = err.message().replace('\n', " ");
    let shown = err.to_string();
    let place = shown.lines().next().and_then(|line| line.strip_prefix("TOML parse error at "));
    match place {
        Some(place) => format!("{place}: {message}"),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "[agent]\nname = \"tiny\"\n[run]\ncommand = \"bash\"\n";

    fn parse(text: &str) -> Result<Manifest, String> {
        Manifest::parse(Path::new("/a/tiny"), text)
    }

    #[test]
    fn what_a_manifest_leaves_out_has_its_default() {
        let found = parse(LEAST).unwrap();
        assert_eq!((found.name.as_str(), found.command.as_str()), ("tiny", "bash"));
        assert_eq!(found.timeout, Duration::from_secs(1800));
        assert_eq!((found.working_dir.as_path(), found.schedule.as_str()), (Path::new("/a/tiny"), "trigger"));
        assert!(found.args.is_empty() && found.inherits_env && !found.is_assistant_v1);
        assert_eq!((found.assistant, found.unfit, found.is_on_the_mesh), (None, None, true));
    }

    #[test]
    fn every_key_is_read_and_unknown_ones_are_ignored() {
        let text = r#"
            surprise = 1
            [agent]
            name = "tiny"
            description = "d"
            monitor = false
            timeout_seconds = 7
            version = "1"
            [run]
            command = "./a.sh"
            args = ["x"]
            working_dir = "work"
            protocol = "assistant-v1"
            [env]
            inherit = false
            extra = { A = "b" }
            [assistant]
            memory = false
            transcript_bytes_max = 9
            [[assistant.toolkit.servers]]
            name = "own"
            kind = "dotagent"
            [[assistant.toolkit.servers]]
            name = "web"
            kind = "http"
            url = "http://localhost/"
            [[assistant.toolkit.servers]]
            name = "prog"
            kind = "stdio"
            command = "p"
            [[schedules]]
            id = "nightly"
            cron = "0 0 * * *"
            args = ["--all"]
            [[schedules]]
            id = "other"
            [security]
            network = false
            [transit]
            mesh = false
        "#;
        let found = parse(text).unwrap();
        assert_eq!(found.args, ["x", "--all"]);
        assert_eq!(
            (found.schedule.as_str(), found.working_dir.as_path()),
            ("nightly", Path::new("/a/tiny/work"))
        );
        assert!(found.is_assistant_v1 && !found.inherits_env && !found.is_on_the_mesh);
        assert_eq!(found.extra_env["A"], "b");
        let assistant = found.assistant.unwrap();
        assert_eq!((assistant.memory, assistant.transcript_bytes_max), (false, 9));
        assert_eq!(assistant.servers[0].way, Way::Own);
        assert_eq!(assistant.servers[2].way, Way::Stdio { command: "p".into(), args: vec![] });
        assert_eq!(parse(&format!("{LEAST}[assistant]\nenabled = false")).unwrap().assistant, None);
        assert_eq!(
            parse(&format!("{LEAST}[assistant]")).unwrap().assistant.unwrap().transcript_bytes_max,
            409_600
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_while_loading() {
        for (text, why) in [
            ("", "missing field `agent`"),
            ("[agent]\nname = \"\"\n[run]\ncommand = \"x\"", "name is empty"),
            ("[agent]\nname = \"a\"\n[run]\ncommand = \" \"", "command is empty"),
            ("[agent]\nname = \"a\"\n[run]\ncommand = \"x\"\nprotocol = \"acp\"", "\"acp\" is not known"),
            ("[agent]\nname = \"a\"\n[run]\ncommand = \"x\"\nprotocol = \"\"", "\"\" is not known"),
            ("[agent]\nname = 5", "line 2, column 8: invalid type"),
            ("[agent", "line 1"),
        ] {
            let told = parse(text).unwrap_err();
            assert!(told.contains(why) && !told.contains('\n'), "{text}: {told}");
        }
        for (more, why) in [
            ("protocol = \"assistant-v1\"\n[lifecycle]\nmode = \"persistent\"", "persistent"),
            ("[lifecycle]\nmode = \"sometimes\"", "unknown variant"),
            ("[lifecycle]\nmode = \"persistent\"\nstartup_timeout_seconds = 1800", "startup_timeout_seconds"),
            ("[assistant]\ntranscript_bytes_max = 0", "transcript_bytes_max"),
            ("[[preflight]]\nplugin = \"../x\"", "no name of a plugin"),
            ("[env]\nextra = { \"A=B\" = \"x\" }", "no name of a variable"),
            ("[[assistant.toolkit.servers]]\nname = \"a\"\nkind = \"ftp\"", "ftp"),
            (
                "[[assistant.toolkit.servers]]\nname = \"a\"\nkind = \"dotagent\"\n[[assistant.toolkit.servers]]\nname = \"a\"\nkind = \"dotagent\"",
                "twice",
            ),
        ] {
            let told = parse(&format!("{LEAST}{more}")).unwrap_err();
            assert!(told.contains(why), "{more}: {told}");
        }
    }

    #[test]
    fn what_is_not_run_here_is_known_and_says_why() {
        assert!(parse(&format!("{LEAST}[lifecycle]\nmode = \"persistent\"")).unwrap().unfit.is_some());
        let agent = parse(&format!("{LEAST}[[preflight]]\nplugin = \"x\"\nconfig = {{ a = [1] }}")).unwrap();
        let config = serde_json::json!({ "a": [1] });
        let check = Preflight { plugin: "x".into(), config, timeout: Duration::from_secs(30) };
        assert_eq!((agent.unfit, agent.preflight), (None, vec![check]));
    }
}
