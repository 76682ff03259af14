//! `config.toml`: the dispatcher, the catalogue, what `!` may run, and the limits of the local client API.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::super::{StoreError, files};
use super::Home;
use super::manifest::one_line;
use crate::limits;
use crate::proto::bang::Policy;
use crate::proto::local::ServerConfig;

/// Longest file, in bytes.
const LONGEST: u64 = 1 << 20;
/// What the dispatcher is called when nobody says otherwise.
const DISPATCHER: &str = "telegram-assistant";
/// The least that a connection may have waiting, in bytes: every event fits.
const LEAST_EVENT_BYTES: usize = 64 * 1024;
/// The same, in frames: some answers, and some events.
const LEAST_FRAMES: usize = 128;
/// The least that a line may have, in bytes: every request fits that has a short text.
const LEAST_LINE_BYTES: usize = 1024;
/// The most that a line may have, in bytes: what it says becomes a variable of a process, which has an end.
const MOST_LINE_BYTES: usize = 128 * 1024;

/// The file, with the defaults of what it leaves out. Keys that are not known are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The agent that messages of local clients are for.
    pub dispatcher: String,
    /// Whether the file says so, or it is only the usual name.
    pub is_dispatcher_named: bool,
    /// Whether the file wants Telegram served, which nothing here does.
    pub wants_telegram: bool,
    /// Where commands of the catalogue are.
    pub commands: Commands,
    /// What `!` may run.
    pub os: Policy,
    /// How long a parked command waits for `!!`.
    pub confirm_ttl: Duration,
    /// How long a command may take.
    pub os_timeout: Duration,
    /// The limits of the local client API.
    pub api: ApiLimits,
    /// How many parts of the audit trail are kept that were put aside; `None` is all.
    pub audit_segments: Option<usize>,
}

/// `[commands]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Commands {
    /// Whether there is a catalogue.
    pub enabled: bool,
    /// Whether Claude Code's commands are in it too.
    pub claude_commands: bool,
    /// Further directories, which come first.
    pub paths: Vec<PathBuf>,
}

/// `[api]`: the limits of the local client API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiLimits {
    /// What holds for each connection. Its rate is that of the triggers of one actor, too, and `TRANSIT_API_RATE` wins
    /// over the file there.
    pub server: ServerConfig,
    /// Connections at a time.
    pub connections: usize,
    /// Conversations with a job at a time.
    pub conversations: usize,
    /// Jobs of a conversation that wait.
    pub queue: usize,
    /// How long a connection may be silent with nothing under way; `None` is for ever.
    pub idle_timeout: Option<Duration>,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self {
            server: ServerConfig::default(),
            connections: limits::API_CONNECTIONS,
            conversations: limits::API_CONVERSATIONS,
            queue: limits::API_QUEUE,
            idle_timeout: Some(limits::API_IDLE),
        }
    }
}

impl ApiLimits {
    /// The longest text of one event, in bytes inside a JSON string: several of them may wait for a connection.
    pub fn text_bytes(&self) -> usize {
        self.server.event_bytes / 4
    }

    /// The longest reply, in bytes inside a JSON string.
    pub fn reply_bytes(&self) -> usize {
        self.server.event_bytes / 2
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct File {
    telegram: TelegramTable,
    commands: Commands,
    os: OsTable,
    api: ApiTable,
    audit: AuditTable,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TelegramTable {
    dispatcher_agent: Option<String>,
    bot_token: Option<toml::Value>,
}

#[derive(Deserialize)]
#[serde(default)]
struct OsTable {
    enabled: bool,
    allow: Vec<String>,
    deny: Vec<String>,
    confirm: Vec<String>,
    confirm_ttl_seconds: u64,
    timeout_seconds: u64,
}

#[derive(Deserialize)]
#[serde(default)]
struct AuditTable {
    segments: usize,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ApiTable {
    rate_per_minute: Option<usize>,
    connections: Option<usize>,
    conversations: Option<usize>,
    queue: Option<usize>,
    line_bytes: Option<usize>,
    text_bytes: Option<usize>,
    event_bytes: Option<usize>,
    frames: Option<usize>,
    write_timeout_seconds: Option<u64>,
    idle_timeout_seconds: Option<u64>,
}

impl Default for Commands {
    fn default() -> Self {
        Self { enabled: true, claude_commands: false, paths: Vec::new() }
    }
}

impl Default for AuditTable {
    fn default() -> Self {
        Self { segments: 8 }
    }
}

impl Default for OsTable {
    fn default() -> Self {
        Self {
            enabled: false,
            allow: Vec::new(),
            deny: Vec::new(),
            confirm: Policy::CONFIRM.map(str::to_owned).to_vec(),
            confirm_ttl_seconds: 120,
            timeout_seconds: 60,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        File::default().settings()
    }
}

impl ApiTable {
    fn server(&self) -> ServerConfig {
        let usual = ServerConfig::default();
        let least = |value: Option<usize>, usual: usize, least: usize| value.unwrap_or(usual).max(least);
        ServerConfig {
            rate_per_minute: self.rate_per_minute.unwrap_or(usual.rate_per_minute),
            line_bytes: least(self.line_bytes, usual.line_bytes, LEAST_LINE_BYTES).min(MOST_LINE_BYTES),
            text_bytes: least(self.text_bytes, usual.text_bytes, 1),
            event_bytes: least(self.event_bytes, usual.event_bytes, LEAST_EVENT_BYTES),
            frames: least(self.frames, usual.frames, LEAST_FRAMES),
            write_wait: self
                .write_timeout_seconds
                .map_or(usual.write_wait, |seconds| Duration::from_secs(seconds.max(1))),
        }
    }
}

impl File {
    fn settings(self) -> Settings {
        let Self { telegram, commands, os, api, audit } = self;
        let usual = ApiLimits::default();
        let idle =
            api.idle_timeout_seconds.map(|seconds| (seconds > 0).then(|| Duration::from_secs(seconds)));
        Settings {
            wants_telegram: telegram.bot_token.is_some_and(|token| token.as_str() != Some("")),
            is_dispatcher_named: telegram.dispatcher_agent.is_some(),
            dispatcher: telegram.dispatcher_agent.unwrap_or_else(|| DISPATCHER.to_owned()),
            commands,
            audit_segments: (audit.segments > 0).then_some(audit.segments),
            confirm_ttl: Duration::from_secs(os.confirm_ttl_seconds),
            os_timeout: Duration::from_secs(os.timeout_seconds),
            os: Policy { enabled: os.enabled, allow: os.allow, deny: os.deny, confirm: os.confirm },
            api: ApiLimits {
                server: api.server(),
                connections: api.connections.unwrap_or(usual.connections).max(1),
                conversations: api.conversations.unwrap_or(usual.conversations).max(1),
                queue: api.queue.unwrap_or(usual.queue),
                idle_timeout: idle.unwrap_or(usual.idle_timeout),
            },
        }
    }
}

impl Home {
    /// Reads `config.toml`; without one everything has its default.
    ///
    /// # Errors
    /// When it is there and cannot be read or makes no sense, with its line and column. Nothing is guessed then.
    pub fn settings(&self) -> Result<Settings, StoreError> {
        let path = self.config();
        if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            // A pipe would be waited for.
            return Err(StoreError::Config { path, why: "it is no file".to_owned() });
        }
        let text = match files::read_small(&path, LONGEST) {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let invalid = |why| StoreError::Config { path: path.clone(), why };
        let text = std::str::from_utf8(&text).map_err(|_| invalid("it is not UTF-8".to_owned()))?;
        let file: File = toml::from_str(text).map_err(|err| invalid(one_line(&err)))?;
        Ok(file.settings())
    }

    /// The limits of the local client API: those of `config.toml`, and `TRANSIT_API_RATE` from a way to read the
    /// environment.
    ///
    /// # Errors
    /// As [`settings`](Self::settings); also when the variable is no number.
    pub fn api_limits(&self, var: impl Fn(&str) -> Option<String>) -> Result<ApiLimits, StoreError> {
        let mut limits = self.settings()?.api;
        if let Some(rate) = var("TRANSIT_API_RATE").filter(|rate| !rate.is_empty()) {
            let why = || format!("TRANSIT_API_RATE is {rate:?}, which is no number of requests");
            let invalid = |_| StoreError::Config { path: self.config(), why: why() };
            limits.server.rate_per_minute = rate.parse().map_err(invalid)?;
        }
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn settings(text: &str) -> Result<Settings, StoreError> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("config.toml"), text).unwrap();
        Home::at(dir.path()).settings()
    }

    #[test]
    fn without_a_file_everything_has_its_default() {
        let dir = tempfile::tempdir().unwrap();
        let found = Home::at(dir.path()).settings().unwrap();
        assert_eq!(found, Settings::default());
        assert!(found.dispatcher == "telegram-assistant" && !found.is_dispatcher_named);
        assert!(!found.wants_telegram);
        assert_eq!((found.confirm_ttl.as_secs(), found.os_timeout.as_secs()), (120, 60));
        assert!(found.commands.enabled && !found.os.enabled && found.os.confirm.len() == 17);
        assert_eq!(found.api, ApiLimits::default());
        assert_eq!(settings("").unwrap(), found);
        assert_eq!(found.audit_segments, Some(8));
    }

    #[test]
    fn every_key_is_read_and_unknown_ones_are_ignored() {
        let text = "
            [telegram]
            dispatcher_agent = \"tiny\"
            bot_token = \"t\"
            [commands]
            enabled = false
            paths = [\"/c\"]
            [os]
            enabled = true
            allow = [\"ls\"]
            confirm = []
            timeout_seconds = 3
            [[os.tool]]
            name = \"x\"
            [api]
            rate_per_minute = 7
            event_bytes = 1
            idle_timeout_seconds = 0
            connections = 0
            line_bytes = 9000000
            text_bytes = 100
            frames = 1
            write_timeout_seconds = 3
            [audit]
            segments = 0
        ";
        let found = settings(text).unwrap();
        assert_eq!((found.dispatcher.as_str(), found.commands.enabled), ("tiny", false));
        assert!(found.wants_telegram);
        assert_eq!(found.commands.paths, [PathBuf::from("/c")]);
        assert!(found.os.enabled && found.os.confirm.is_empty() && found.os.allow == ["ls"]);
        let server = ServerConfig {
            rate_per_minute: 7,
            line_bytes: MOST_LINE_BYTES,
            text_bytes: 100,
            event_bytes: LEAST_EVENT_BYTES,
            frames: LEAST_FRAMES,
            write_wait: Duration::from_secs(3),
        };
        assert_eq!((found.api.connections, found.api.idle_timeout), (1, None));
        assert_eq!((found.api.server, found.audit_segments), (server, None));
    }

    #[test]
    fn a_file_that_makes_no_sense_is_told_with_its_place() {
        for (text, place) in
            [("[os]\nallow = 5", "line 2"), ("[os", "line 1"), ("[api]\n\nqueue = -1", "line 3")]
        {
            let told = settings(text).unwrap_err().to_string();
            assert!(told.contains("config.toml is no valid configuration") && told.contains(place), "{told}");
        }
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        assert!(std::process::Command::new("mkfifo").arg(home.config()).status().unwrap().success());
        assert!(home.settings().unwrap_err().to_string().contains("it is no file"));
    }

    #[test]
    fn the_environment_moves_the_rate() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let rate = |value: &str| {
            home.api_limits(|_| Some(value.to_owned())).map(|limits| limits.server.rate_per_minute)
        };
        assert_eq!((rate("1000").unwrap(), rate("").unwrap()), (1000, 30));
        assert!(rate("fast").is_err());
    }
}
