//! The harnesses that have an adapter: where each keeps its files, and what is to be among them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::source::{self, Programs};

/// A program in which agents run, and for which there is an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli) enum Harness {
    /// Claude Code.
    Claude,
    /// OMP.
    Omp,
    /// Pi.
    Pi,
    /// OpenCode.
    #[value(name = "opencode")]
    OpenCode,
}

/// What an adapter consists of.
pub(super) enum Artifact {
    /// A file that is all ours.
    File {
        /// Where.
        path: PathBuf,
        /// What is in it.
        content: String,
    },
    /// Entries in a JSON file of the harness.
    Entries {
        /// Where.
        path: PathBuf,
        /// What is to be in it.
        entries: Vec<Entry>,
    },
}

/// An entry in a JSON file of the harness.
pub(super) struct Entry {
    /// The way to it.
    pub(super) keys: [&'static str; 2],
    /// What it is to be.
    pub(super) value: Value,
    /// Whether another value of it is one that this program put there.
    pub(super) is_ours: fn(&Value) -> bool,
}

impl Artifact {
    /// The file that it is, or is in.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::File { path, .. } | Self::Entries { path, .. } => path,
        }
    }
}

impl Harness {
    /// All of them.
    pub(in crate::cli) const ALL: [Self; 4] = [Self::Claude, Self::Omp, Self::OpenCode, Self::Pi];

    /// Its name, which is also that of its program.
    pub(in crate::cli) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Omp => "omp",
            Self::Pi => "pi",
            Self::OpenCode => "opencode",
        }
    }

    /// When an adapter that was just installed is there.
    pub(super) fn takes_effect(self) -> &'static str {
        match self {
            Self::Claude => "Claude Code has it in every session that is started from now on",
            Self::Omp => "OMP has it in every session that is started from now on",
            Self::Pi => {
                "Pi has it in every session that is started from now on, and in a running one after /reload"
            }
            Self::OpenCode => "OpenCode has it when it is started the next time",
        }
    }

    /// Where the harness keeps its configuration. `None` when nothing tells.
    pub(super) fn dir(self, var: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let set = |name: &str| var(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let home = || set("HOME").filter(|path| path.is_absolute());
        let own = |name: &str| set(name).and_then(|path| below_home(path, home()));
        match self {
            Self::Claude => own("CLAUDE_CONFIG_DIR").or_else(|| Some(home()?.join(".claude"))),
            Self::Omp => own("PI_CODING_AGENT_DIR").or_else(|| Some(home()?.join(".omp/agent"))),
            Self::Pi => own("PI_CODING_AGENT_DIR").or_else(|| Some(home()?.join(".pi/agent"))),
            Self::OpenCode => {
                let base = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
                base.or_else(|| Some(home()?.join(".config"))).map(|base| base.join("opencode"))
            }
        }
    }

    /// What the adapter consists of, in the order in which it is put in place.
    pub(super) fn artifacts(self, dir: &Path, programs: &Programs) -> Vec<Artifact> {
        let script = |path: &str, text| Artifact::File {
            path: dir.join(path),
            content: source::script(self.name(), text, programs),
        };
        match self {
            Self::Pi => {
                vec![script("extensions/transit.js", include_str!("../../../../adapters/pi/transit.js"))]
            }
            Self::OpenCode => {
                vec![script("plugins/transit.js", include_str!("../../../../adapters/opencode/transit.js"))]
            }
            Self::Omp => vec![
                script("extensions/transit-omp.js", include_str!("../../../../adapters/omp/transit.js")),
                Artifact::Entries { path: dir.join("mcp.json"), entries: vec![mcp_server(programs)] },
            ],
            Self::Claude => claude(&dir.join("transit"), &dir.join("settings.json"), programs),
        }
    }
}

/// A path as the harnesses take it from a variable: `~` is the home directory.
fn below_home(path: PathBuf, home: Option<PathBuf>) -> Option<PathBuf> {
    match path.strip_prefix("~") {
        Ok(below) => Some(home?.join(below)),
        Err(_) => Some(path),
    }
}

fn mcp_server(programs: &Programs) -> Entry {
    Entry {
        keys: ["mcpServers", "transit"],
        value: json!({ "command": programs.mcp() }),
        is_ours: |found| found["command"].as_str().is_some_and(|command| command.ends_with("transit-mcp")),
    }
}

/// A plugin, in a marketplace that is a directory of this machine and holds nothing else.
fn claude(plugin: &Path, settings: &Path, programs: &Programs) -> Vec<Artifact> {
    let file = |name: &str, text| Artifact::File {
        path: plugin.join(".claude-plugin").join(name),
        content: source::plugin_file(text, programs),
    };
    let source = json!({ "source": { "source": "directory", "path": plugin.display().to_string() } });
    vec![
        file("marketplace.json", include_str!("../../../../adapters/claude/marketplace.json")),
        file("plugin.json", include_str!("../../../../adapters/claude/plugin.json")),
        Artifact::Entries {
            path: settings.to_owned(),
            entries: vec![
                Entry {
                    keys: ["extraKnownMarketplaces", "transit"],
                    value: source,
                    is_ours: |found| found["source"]["source"] == "directory",
                },
                Entry {
                    keys: ["enabledPlugins", "transit@transit"],
                    value: Value::Bool(true),
                    is_ours: Value::is_boolean,
                },
            ],
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_harness_is_found_where_it_looks_itself() {
        let with = |set: &'static [(&str, &str)]| {
            move |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        };
        let home = with(&[("HOME", "/h"), ("PI_CODING_AGENT_DIR", ""), ("XDG_CONFIG_HOME", "relative")]);
        let dirs = Harness::ALL.map(|harness| harness.dir(home).unwrap());
        assert_eq!(
            dirs.map(|dir| dir.display().to_string()),
            ["/h/.claude", "/h/.omp/agent", "/h/.config/opencode", "/h/.pi/agent"]
        );
        let own = with(&[
            ("HOME", "/h"),
            ("CLAUDE_CONFIG_DIR", "/c"),
            ("PI_CODING_AGENT_DIR", "~/p"),
            ("XDG_CONFIG_HOME", "/x"),
        ]);
        let dirs = Harness::ALL.map(|harness| harness.dir(own).unwrap());
        assert_eq!(dirs.map(|dir| dir.display().to_string()), ["/c", "/h/p", "/x/opencode", "/h/p"]);
        assert_eq!(Harness::Pi.dir(|_| None), None);
    }
}
