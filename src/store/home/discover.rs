//! Which agents there are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Home, Manifest};

/// What is in the directories that hold agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The agents, in the order in which they were found; each name once.
    pub agents: Vec<Manifest>,
    /// Manifests that make no sense. The others are there all the same.
    pub broken: Vec<Broken>,
    /// Agents that no message can reach, where that is what was looked for.
    pub unfit: Vec<Broken>,
}

/// A manifest that makes no sense, or whose agent cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Broken {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it, in one line.
    pub why: String,
}

impl Found {
    /// The agent of this name.
    pub fn get(&self, name: &str) -> Option<&Manifest> {
        self.agents.iter().find(|agent| agent.name == name)
    }
}

impl Home {
    /// The same home for whoever runs in another directory.
    pub fn elsewhere(&self) -> Self {
        Self { cwd: None, ..self.clone() }
    }

    /// The agents that messages of others may run, and that can be run for one; what is wrong with the others stands
    /// in `unfit`. Those that only the directory has in which the daemon happens to run are not looked at.
    pub fn on_the_mesh(&self) -> Found {
        let mut found = self.elsewhere().discover();
        found.agents.retain(|agent| agent.is_on_the_mesh);
        let (agents, others) = found.agents.into_iter().partition(|agent| agent.out_of_reach().is_none());
        let others: Vec<Manifest> = others;
        let unfit = others.into_iter().filter_map(|agent| {
            Some(Broken { why: agent.out_of_reach()?, path: agent.dir.join("agent.toml") })
        });
        Found { agents, unfit: unfit.collect(), broken: found.broken }
    }

    /// Looks for agents: directly below each directory of `$DOTAGENT_ROOT`, `agents` of the home, `agents` of the
    /// directory that the daemon runs in, and that directory itself. The first one of a name is it; within a directory
    /// they are looked at by the names of theirs.
    pub fn discover(&self) -> Found {
        let mut found = Found::default();
        let mut names = BTreeSet::new();
        for root in self.agent_roots() {
            for dir in directories_with_a_manifest(&root) {
                match Manifest::load(&dir) {
                    Ok(agent) => {
                        if names.insert(agent.name.clone()) {
                            found.agents.push(agent);
                        }
                    }
                    Err(why) => found.broken.push(Broken { path: dir.join("agent.toml"), why }),
                }
            }
        }
        found
    }

    /// The directories whose subdirectories are agents; each once.
    fn agent_roots(&self) -> Vec<PathBuf> {
        let own = self.dir.join("agents");
        let here = self.cwd.iter().flat_map(|cwd| [cwd.join("agents"), cwd.clone()]);
        let mut seen = BTreeSet::new();
        let all = self.roots.iter().cloned().chain([own]).chain(here);
        all.filter(|root| seen.insert(root.canonicalize().unwrap_or_else(|_| root.clone()))).collect()
    }
}

fn directories_with_a_manifest(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let mut dirs: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|dir| dir.join("agent.toml").is_file())
        .collect();
    dirs.sort();
    dirs
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn agent(root: &Path, dir: &str, name: &str) {
        fs::create_dir_all(root.join(dir)).unwrap();
        let text = format!("[agent]\nname = {name}\n[run]\ncommand = \"{dir}\"\n");
        fs::write(root.join(dir).join("agent.toml"), text).unwrap();
    }

    #[test]
    fn the_first_one_of_a_name_wins_and_a_broken_one_stands_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let (first, home, cwd) = (dir.path().join("first"), dir.path().join("home"), dir.path().join("cwd"));
        agent(&first, "z", "\"tiny\"");
        agent(&first, "a", "5");
        agent(&home.join("agents"), "a", "\"tiny\"");
        agent(&home.join("agents"), "b", "\"other\"");
        agent(&home.join("agents/b"), "deep", "\"deep\"");
        agent(&cwd.join("agents"), "c", "\"third\"");
        agent(&cwd, "d", "\"fourth\"");
        fs::write(home.join("agents/file"), "").unwrap();
        let home =
            Home { roots: vec![first.clone(), dir.path().join("none")], cwd: Some(cwd), ..Home::at(&home) };
        let found = home.discover();
        let names: Vec<_> = found.agents.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!(names, ["tiny", "other", "third", "fourth"]);
        assert_eq!(found.get("tiny").unwrap().command, "z");
        let [broken] = &found.broken[..] else { panic!("{:?}", found.broken) };
        assert_eq!(broken.path, first.join("a/agent.toml"));
        assert!(broken.why.contains("line 2"), "{}", broken.why);
        assert_eq!(found.get("deep"), None);
        let names: Vec<_> = home.on_the_mesh().agents.into_iter().map(|agent| agent.name).collect();
        assert_eq!(names, ["tiny", "other"]);
    }
}
