//! Where things are, and what the user configured.
//!
//! `config.json` is small and written by `transitd enroll` and by hand. A command reads it only if it needs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{StoreError, files};
use crate::addr::{Host, Source};

/// The files of one user's installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `$TRANSIT_CONFIG`, else `$XDG_CONFIG_HOME/transit/config.json`.
    pub config: PathBuf,
    /// `$TRANSIT_DATA_DIR`, else `$XDG_DATA_HOME/transit`.
    pub data: PathBuf,
}

/// Neither the variables nor a home directory say where things are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("neither {variable} nor HOME is set")]
pub struct NoHome {
    variable: &'static str,
}

impl Paths {
    /// The paths of this process, from a way to read its environment. Relative XDG values are ignored, as their
    /// specification says.
    ///
    /// # Errors
    /// When neither the variables nor HOME are set.
    pub fn from_env(var: impl Fn(&str) -> Option<PathBuf>) -> Result<Self, NoHome> {
        let place = |own: &'static str, xdg: &str, below_home: &str, file: &str| {
            if let Some(path) = var(own).filter(|path| !path.as_os_str().is_empty()) {
                return Ok(path);
            }
            let base = var(xdg).filter(|path| path.is_absolute());
            let home = || var("HOME").filter(|path| path.is_absolute()).map(|home| home.join(below_home));
            base.or_else(home).map(|base| base.join("transit").join(file)).ok_or(NoHome { variable: own })
        };
        Ok(Self {
            config: place("TRANSIT_CONFIG", "XDG_CONFIG_HOME", ".config", "config.json")?,
            data: place("TRANSIT_DATA_DIR", "XDG_DATA_HOME", ".local/share", "")?,
        })
    }

    /// The device token.
    pub fn token(&self) -> PathBuf {
        self.data.join("token")
    }

    /// The lock of the one daemon of this data directory; it holds the daemon's pid.
    pub fn daemon_lock(&self) -> PathBuf {
        self.data.join("daemon.lock")
    }

    /// There while the daemon is paused.
    pub fn paused(&self) -> PathBuf {
        self.data.join("paused")
    }

    /// The default database of a Worker.
    pub fn worker_db(&self) -> PathBuf {
        self.data.join("worker.db")
    }
}

/// `config.json`. Fields that are not known are kept out of the way of newer versions: they are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The Worker's base URL, without a final slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// This host's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Sources that `transit-send` knows by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<Source, SourceConfig>,
    /// When a Worker takes agents that answer each other for a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_guard: Option<LoopGuard>,
    /// Herdr's socket, where it is not in its usual place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub herdr_socket: Option<PathBuf>,
    /// What envelopes for an agent with an adapter of its own go through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_mode: Option<DeliveryMode>,
}

/// What envelopes for a coding agent go through that has, or could have, an adapter of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryMode {
    /// Through its pane, while the adapter is only looked at.
    Shadow,
    /// Through the adapter where there is one, else through the pane.
    #[default]
    Prefer,
    /// Through the adapter; without one they wait.
    Require,
}

/// No mode has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a delivery mode is shadow, prefer or require")]
pub struct NoDeliveryMode;

impl std::str::FromStr for DeliveryMode {
    type Err = NoDeliveryMode;

    fn from_str(word: &str) -> Result<Self, NoDeliveryMode> {
        match word {
            "shadow" => Ok(Self::Shadow),
            "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            _ => Err(NoDeliveryMode),
        }
    }
}

/// When a Worker takes agents that answer each other for a loop. What is left out has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopGuard {
    /// Messages that pass without a person or an event between them; 0 turns the guard off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Within what time, as options take it: `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
}

/// One source that `transit-send` knows by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceConfig {
    /// The endpoint, ending in `/ingest/SOURCE`.
    pub url: String,
    /// The file that holds the source's secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
}

const LONGEST: u64 = 1 << 20;

impl Config {
    /// Reads the file; an absent one is an empty configuration.
    ///
    /// # Errors
    /// When it cannot be read or is not what it should be, with its line and column.
    pub fn load(path: &Path) -> Result<Self, StoreError> {
        let text = match files::read_small(path, LONGEST) {
            Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            read => read?,
        };
        let invalid = |why: String| StoreError::Config { path: path.to_owned(), why };
        if text.trim_ascii_start().first() == Some(&b'[') {
            // Which would be taken for the values of the fields, in their order.
            return Err(invalid("it is a list, not an object".to_owned()));
        }
        serde_json::from_slice(&text).map_err(|err| invalid(err.to_string()))
    }

    /// Replaces the file whole, 0600.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), StoreError> {
        files::make_parent(path)?;
        let text = serde_json::to_vec_pretty(self)
            .map_err(|err| StoreError::Config { path: path.to_owned(), why: err.to_string() })?;
        files::write_private(path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(vars: &[(&str, &str)]) -> Result<Paths, NoHome> {
        Paths::from_env(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| PathBuf::from(v)))
    }

    #[test]
    fn own_variables_win_over_xdg_and_xdg_over_home() {
        let found = paths(&[("TRANSIT_CONFIG", "/c.json"), ("XDG_DATA_HOME", "/d"), ("HOME", "/h")]).unwrap();
        assert_eq!(found.config, Path::new("/c.json"));
        assert_eq!(found.data, Path::new("/d/transit/"));
        let found = paths(&[("XDG_CONFIG_HOME", "relative"), ("HOME", "/h")]).unwrap();
        assert_eq!(found.config, Path::new("/h/.config/transit/config.json"));
        assert_eq!(found.data, Path::new("/h/.local/share/transit/"));
        assert!(paths(&[]).is_err());
    }

    #[test]
    fn a_configuration_survives_its_file_and_a_broken_one_says_where() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("transit/config.json");
        assert_eq!(Config::load(&path).unwrap(), Config::default());
        let config = Config {
            url: Some("http://127.0.0.1:1".into()),
            host: Some("titan".parse().unwrap()),
            ..Config::default()
        };
        config.save(&path).unwrap();
        assert_eq!(Config::load(&path).unwrap(), config);
        std::fs::write(&path, "{\n \"host\": \"Not A Host\"}").unwrap();
        assert!(Config::load(&path).unwrap_err().to_string().contains("line 2"));
    }
}
