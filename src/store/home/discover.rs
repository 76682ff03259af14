//! Which agents there are.

use std::collections::BTreeSet;
use std::fs;
use std::io;
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
    /// Manifests that do not count, because their name is that of an earlier one.
    pub shadowed: Vec<Broken>,
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

    /// Takes the manifest of a directory.
    fn add(&mut self, dir: &Path) {
        let path = dir.join("agent.toml");
        let agent = match Manifest::load(dir) {
            Ok(agent) => agent,
            Err(why) => return self.broken.push(Broken { path, why }),
        };
        match self.get(&agent.name) {
            None => self.agents.push(agent),
            Some(other) => {
                let why =
                    format!("{:?} is the agent of {}", agent.name, other.dir.join("agent.toml").display());
                self.shadowed.push(Broken { path, why });
            }
        }
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
        Found { agents, unfit: unfit.collect(), ..found }
    }

    /// Looks for agents: directly below each directory of `$DOTAGENT_ROOT`, `agents` of the home, `agents` of the
    /// directory that the daemon runs in, and that directory itself. The first one of a name is it; within a directory
    /// they are looked at by the names of theirs.
    pub fn discover(&self) -> Found {
        let mut found = Found::default();
        for root in self.agent_roots() {
            for manifest in manifests(&root) {
                match manifest {
                    Ok(dir) => found.add(&dir),
                    // Of what else may be in the directory that the daemon runs in, nothing is said.
                    Err(_) if self.cwd.as_ref() == Some(&root) => {}
                    Err(broken) => found.broken.push(broken),
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

/// The directories directly below `root` that have a manifest, by their names, and what looks like one and cannot be
/// read.
fn manifests(root: &Path) -> Vec<Result<PathBuf, Broken>> {
    let broken =
        |path: &Path, why: &dyn std::fmt::Display| Broken { path: path.to_owned(), why: why.to_string() };
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(err) if is_absent(&err) => return Vec::new(),
        Err(err) => return vec![Err(broken(root, &err))],
    };
    let mut dirs: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    dirs.sort();
    let manifest = |dir: PathBuf| {
        let path = dir.join("agent.toml");
        match fs::metadata(&path) {
            Ok(found) if found.is_file() => Some(Ok(dir)),
            Ok(_) => Some(Err(broken(&path, &"it is no file"))),
            Err(err) if is_absent(&err) => {
                let dangling = [&dir, &path].into_iter().find(|path| is_dangling(path));
                dangling.map(|path| Err(broken(path, &"a link that leads nowhere")))
            }
            Err(err) => Some(Err(broken(&path, &err))),
        }
    };
    dirs.into_iter().filter_map(manifest).collect()
}

fn is_absent(err: &io::Error) -> bool {
    matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn is_dangling(path: &Path) -> bool {
    path.is_symlink() && fs::metadata(path).is_err_and(|err| err.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn agent(root: &Path, dir: &str, name: &str) {
        fs::create_dir_all(root.join(dir)).unwrap();
        let text = format!("[agent]\nname = {name}\n[run]\ncommand = \"{dir}\"\n");
        fs::write(root.join(dir).join("agent.toml"), text).unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_told_and_the_others_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let (agents, cwd) = (dir.path().join("agents"), dir.path().join("cwd"));
        for root in [&agents, &cwd] {
            fs::create_dir_all(root.join("dir/agent.toml")).unwrap();
            fs::create_dir_all(root.join("link")).unwrap();
            fs::create_dir_all(root.join("none")).unwrap();
            symlink("gone", root.join("link/agent.toml")).unwrap();
            symlink("gone", root.join("dangling")).unwrap();
            symlink("loop", root.join("loop")).unwrap();
            symlink(".", root.join("up")).unwrap();
            agent(root, "one", "\"one\"");
            agent(root, "zwei", "\"one\"");
        }
        let home = Home { cwd: Some(cwd.clone()), ..Home::at(dir.path()) };
        let found = home.discover();
        assert_eq!(found.agents.len(), 1);
        let told: Vec<_> =
            found.broken.iter().map(|broken| broken.path.strip_prefix(&agents).unwrap()).collect();
        let want = ["dangling", "dir/agent.toml", "link/agent.toml", "loop/agent.toml"];
        assert_eq!(told, want.map(Path::new), "{:?}", found.broken);
        let shadowed: Vec<_> = found.shadowed.iter().map(|other| other.path.as_path()).collect();
        let want = [agents.join("zwei"), cwd.join("one"), cwd.join("zwei")].map(|dir| dir.join("agent.toml"));
        assert_eq!(shadowed, want);
        assert!(found.shadowed[0].why.contains("one/agent.toml"), "{}", found.shadowed[0].why);
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
