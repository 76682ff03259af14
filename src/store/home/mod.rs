//! The home of the host's own agents: manifests, their configuration, what they remember, and who triggered what.
//!
//! The layout is that of dotagent, so that an existing home is used as it is. No text of a peer becomes a path here:
//! what a name or a session is in a file's name goes through [`component`].

pub mod assistant;
pub mod audit;
pub mod catalog;
pub mod discover;
mod frontmatter;
pub mod heartbeat;
pub mod manifest;
pub mod memory;
pub mod owed;
pub mod run_log;
pub mod runs;
pub mod settings;

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub use self::discover::{Broken, Found};
pub use self::manifest::Manifest;
pub use self::settings::{ApiLimits, Settings};
use super::StoreError;

/// Longest name that is taken into a file's name as it is.
const PLAIN_BYTES: usize = 64;
/// What the name of a plugin's program begins with.
const PLUGIN: &str = "dotagent-plugin-";
/// Where plugins are installed for everybody.
const PLUGINS: &str = "/usr/local/lib/dotagent/plugins";
/// The home below the user's own.
const BELOW_HOME: &str = ".config/dotagent";

/// Where the agents of this user are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    dir: PathBuf,
    socket_dir: PathBuf,
    roots: Vec<PathBuf>,
    plugin_dirs: Vec<PathBuf>,
    user: Option<PathBuf>,
    cwd: Option<PathBuf>,
}

/// No variable says where the home is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("none of TRANSIT_AGENTS_HOME, DOTAGENT_HOME and HOME is set")]
pub struct NoAgentsHome;

impl Home {
    /// The home of this process, from a way to read its environment, and the directory that it runs in. The home is
    /// `$TRANSIT_AGENTS_HOME`, else `$DOTAGENT_HOME`, else `~/.config/dotagent`; an empty variable counts as none. The
    /// socket of the local client API is where its clients look for it, in `$DOTAGENT_HOME` if that is set.
    /// `$DOTAGENT_ROOT` is a list of further directories with agents, and `$DOTAGENT_PLUGIN_PATH` one of directories
    /// with plugins; they come first.
    ///
    /// # Errors
    /// When no variable says where it is.
    pub fn from_env(
        var: impl Fn(&str) -> Option<PathBuf>,
        cwd: Option<PathBuf>,
    ) -> Result<Self, NoAgentsHome> {
        let set = |name| var(name).filter(|path| !path.as_os_str().is_empty());
        let user = set("HOME").filter(|home| home.is_absolute());
        let dotagent = set("DOTAGENT_HOME");
        let below_user = || user.as_ref().map(|home| home.join(BELOW_HOME));
        let dir = set("TRANSIT_AGENTS_HOME").or_else(|| dotagent.clone()).or_else(below_user);
        let absolute = |path: PathBuf| match &cwd {
            Some(cwd) if path.is_relative() => cwd.join(path),
            _ => path,
        };
        let dir = absolute(dir.ok_or(NoAgentsHome)?);
        let socket_dir = dotagent.map_or_else(|| dir.clone(), absolute);
        let list = |name| {
            let list = set(name).map(|list| std::env::split_paths(&list).collect::<Vec<_>>());
            let dirs = list.into_iter().flatten().filter(|dir| !dir.as_os_str().is_empty());
            dirs.map(absolute).collect()
        };
        let (roots, plugin_dirs) = (list("DOTAGENT_ROOT"), list("DOTAGENT_PLUGIN_PATH"));
        Ok(Self { dir, socket_dir, roots, plugin_dirs, user, cwd })
    }

    /// A home at `dir` with everything in it, as tests want it.
    #[cfg(test)]
    pub(crate) fn at(dir: &Path) -> Self {
        let (roots, plugin_dirs) = (Vec::new(), Vec::new());
        Self { dir: dir.to_owned(), socket_dir: dir.to_owned(), roots, plugin_dirs, user: None, cwd: None }
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the socket of the local client API is.
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// `config.toml`.
    pub fn config(&self) -> PathBuf {
        self.dir.join("config.toml")
    }

    /// The record of who triggered what.
    pub fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }

    /// The program of a plugin: in `$DOTAGENT_PLUGIN_PATH`, `plugins` of the home, or where plugins are installed; else
    /// its bare name, to be looked up in PATH.
    pub fn plugin(&self, name: &str) -> PathBuf {
        let program = format!("{PLUGIN}{name}");
        let own = [self.dir.join("plugins"), PathBuf::from(PLUGINS)];
        let all = self.plugin_dirs.iter().cloned().chain(own).map(|dir| dir.join(&program));
        all.into_iter().find(|path| path.is_file()).unwrap_or_else(|| program.into())
    }

    /// Where it stands when an agent ran last: a file of its own for each slug.
    pub fn heartbeat(&self, agent: &str, slug: &str) -> PathBuf {
        self.dir.join("state/agents").join(component(agent)).join(format!("{slug}.heartbeat.json"))
    }
}

/// Why a file was not read, to be told behind its name.
fn unread(err: StoreError) -> String {
    match err {
        StoreError::Io { source, .. } => source.to_string(),
        StoreError::TooLong { longest, .. } => format!("it has more than {longest} bytes"),
        other => other.to_string(),
    }
}

/// `name` as a part of a path: itself when it is a plain identifier, else `k` and 16 hexadecimal digits that are the
/// same for the same name.
pub fn component(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=PLAIN_BYTES).contains(&name.len()) && name.bytes().all(is_plain) {
        return name.to_owned();
    }
    format!("k{}", hex::encode(&Sha256::digest(name.as_bytes())[..8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(vars: &[(&str, &str)]) -> Result<Home, NoAgentsHome> {
        let var = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| PathBuf::from(v));
        Home::from_env(var, Some(PathBuf::from("/here")))
    }

    #[test]
    fn the_variables_say_where_the_home_is() {
        let found = home(&[("HOME", "/h")]).unwrap();
        assert_eq!(found.config(), Path::new("/h/.config/dotagent/config.toml"));
        assert_eq!(found.socket_dir(), Path::new("/h/.config/dotagent"));
        let found = home(&[("HOME", "/h"), ("DOTAGENT_HOME", "d"), ("TRANSIT_AGENTS_HOME", "")]).unwrap();
        assert_eq!(found.audit_log(), Path::new("/here/d/audit.log"));
        let found = home(&[("DOTAGENT_HOME", "/d"), ("TRANSIT_AGENTS_HOME", "/t")]).unwrap();
        assert_eq!((found.dir(), found.socket_dir()), (Path::new("/t"), Path::new("/d")));
        let found = home(&[("HOME", "/h"), ("TRANSIT_AGENTS_HOME", "/t")]).unwrap();
        assert_eq!(found.socket_dir(), Path::new("/t"));
        assert_eq!(home(&[("HOME", "relative")]), Err(NoAgentsHome));
    }

    #[test]
    fn a_plugin_is_looked_for_in_its_places() {
        let dir = tempfile::tempdir().unwrap();
        let (first, own) = (dir.path().join("first"), dir.path().join("home"));
        for dir in [&first, &own.join("plugins")] {
            std::fs::create_dir_all(dir).unwrap();
            std::fs::write(dir.join("dotagent-plugin-a"), "").unwrap();
        }
        let home =
            |more: &str| home(&[("DOTAGENT_HOME", own.to_str().unwrap()), ("DOTAGENT_PLUGIN_PATH", more)]);
        let list = format!("/none:{}", first.display());
        assert_eq!(home(&list).unwrap().plugin("a"), first.join("dotagent-plugin-a"));
        assert_eq!(home("").unwrap().plugin("a"), own.join("plugins/dotagent-plugin-a"));
        assert_eq!(home("").unwrap().plugin("b"), Path::new("dotagent-plugin-b"));
    }

    #[test]
    fn no_name_leaves_its_directory() {
        for plain in ["a", "A-b_9", &"x".repeat(64)] {
            assert_eq!(component(plain), plain);
        }
        for other in ["", ".", "..", "a/b", "../../etc", "é", "a b", "a\0", &"x".repeat(65)] {
            let found = component(other);
            assert!(found.len() == 17 && found.starts_with('k'), "{found}");
            assert_eq!(component(&found), found);
            assert_ne!(found, component(&format!("{other}x")));
        }
    }
}
