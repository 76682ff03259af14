//! The catalogue: `commands/**/*.md`, read anew for each look at it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::super::files;
use super::settings::Commands;
use super::{Broken, Home, frontmatter, unread};
use crate::proto::local::CatalogEntry;

/// How far below its root a command may be.
const DEPTH: usize = 3;
/// Files and directories that are looked at below a root.
const MOST: usize = 10_000;
/// Longest file of a command, in bytes.
const LONGEST: u64 = 1 << 20;
/// Longest name that Telegram takes, in characters.
const TELEGRAM_CHARS: usize = 32;
/// Directories that hold no commands.
const SKIPPED: [&str; 5] = [".git", "node_modules", "target", "__pycache__", ".venv"];

impl Home {
    /// The commands, and the files that are none. The first one of a name is it.
    pub fn catalog(&self, settings: &Commands) -> (Vec<CatalogEntry>, Vec<Broken>) {
        let (mut entries, mut broken) = (Vec::<CatalogEntry>::new(), Vec::new());
        if !settings.enabled {
            return (entries, broken);
        }
        let (mut names, mut telegram_names) = (BTreeSet::new(), BTreeSet::new());
        for root in self.command_roots(settings) {
            let mut walk = Walk::default();
            walk.through(&root, 0);
            broken.append(&mut walk.broken);
            for file in walk.files {
                match entry(&root, &file) {
                    Ok(entry) => {
                        let is_new = !names.contains(&entry.name);
                        names.insert(entry.name.clone());
                        if is_new && telegram_names.insert(entry.telegram_name.clone()) {
                            entries.push(entry);
                        }
                    }
                    Err(why) => broken.push(Broken { path: file, why }),
                }
            }
        }
        (entries, broken)
    }

    fn command_roots(&self, settings: &Commands) -> Vec<PathBuf> {
        let below = |root: &PathBuf| {
            let Ok(dirs) = fs::read_dir(root) else { return Vec::new() };
            let mut dirs: Vec<_> = dirs.filter_map(|dir| Some(dir.ok()?.path().join("commands"))).collect();
            dirs.sort();
            dirs.insert(0, root.join("commands"));
            dirs
        };
        let claude = |base: &Option<PathBuf>| {
            settings
                .claude_commands
                .then(|| base.as_ref().map(|base| base.join(".claude/commands")))
                .flatten()
        };
        let mut roots: Vec<_> = settings.paths.iter().map(|path| self.dir.join(path)).collect();
        roots.extend(self.roots.iter().flat_map(below));
        roots.push(self.dir.join("commands"));
        roots.extend(claude(&self.user));
        roots.extend(claude(&self.cwd));
        roots.extend(self.cwd.as_ref().map(|cwd| cwd.join("commands")));
        let mut seen = BTreeSet::new();
        roots.retain(|root| root.canonicalize().is_ok_and(|root| seen.insert(root)));
        roots
    }
}

/// A walk below a root.
#[derive(Default)]
struct Walk {
    files: Vec<PathBuf>,
    broken: Vec<Broken>,
    /// The directories that it is in now, as the system knows them.
    above: Vec<(u64, u64)>,
    seen: usize,
}

impl Walk {
    fn through(&mut self, dir: &Path, depth: usize) {
        let entered =
            fs::metadata(dir).and_then(|found| Ok(((found.dev(), found.ino()), fs::read_dir(dir)?)));
        let (place, entries) = match entered {
            Ok(entered) => entered,
            Err(err) => return self.tell(dir, err.to_string()),
        };
        if self.above.contains(&place) {
            return self.tell(dir, "a link back to a directory that it is in".to_owned());
        }
        self.above.push(place);
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            self.seen += 1;
            if self.seen > MOST {
                if self.seen == MOST + 1 {
                    self.tell(
                        &path,
                        format!("{MOST} files and directories were looked at before it, and none after"),
                    );
                }
                break;
            }
            self.look_at(path, depth);
        }
        self.above.pop();
    }

    fn look_at(&mut self, path: PathBuf, depth: usize) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            return;
        }
        if path.is_dir() {
            if depth < DEPTH && !SKIPPED.contains(&&*name) {
                self.through(&path, depth + 1);
            }
        } else if name.ends_with(".md") && name != "SKILL.md" {
            self.files.push(path);
        }
    }

    fn tell(&mut self, path: &Path, why: String) {
        self.broken.push(Broken { path: path.to_owned(), why });
    }
}

fn entry(root: &Path, file: &Path) -> Result<CatalogEntry, String> {
    if !file.is_file() {
        // A pipe would be waited for.
        return Err("it is no file".to_owned());
    }
    let text = files::read_small(file, LONGEST).map_err(unread)?;
    let text = std::str::from_utf8(&text).map_err(|_| "it is not UTF-8".to_owned())?;
    let (head, body) = frontmatter::split(text)?;
    let value = |keys: [&str; 2]| {
        keys.iter().find_map(|key| head.get(*key)).map(|value| value.trim()).filter(|value| !value.is_empty())
    };
    let description = value(["description", "description"]).ok_or("it has no description")?;
    if body.trim().is_empty() {
        return Err("it has no body".to_owned());
    }
    let name = match value(["name", "name"]) {
        Some(name) => name.to_owned(),
        None => name_of(root, file),
    };
    let telegram_name = telegram_name(&name)?;
    let hint = value(["argument-hint", "argument_hint"]);
    let described = hint.map(|hint| format!("{hint} — {description}"));
    Ok(CatalogEntry {
        name,
        telegram_name,
        description: described.unwrap_or_else(|| description.to_owned()),
        argument_hint: hint.map(str::to_owned),
    })
}

fn name_of(root: &Path, file: &Path) -> String {
    let below = file.strip_prefix(root).unwrap_or(file).with_extension("");
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    parts.join(":")
}

/// The name in the letters that Telegram takes. One that is too long is not cut: it could be another's then.
fn telegram_name(name: &str) -> Result<String, String> {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let found: String = name.trim().to_lowercase().chars().map(letter).collect();
    match found.len() {
        1..=TELEGRAM_CHARS => Ok(found),
        0 => Err("it has no name".to_owned()),
        length => Err(format!("its name has {length} characters, and Telegram takes {TELEGRAM_CHARS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn command(more: &str) -> String {
        format!("---\ndescription: Does it\n{more}---\nDo it.\n")
    }

    #[test]
    fn commands_are_listed_in_their_order_and_what_is_none_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let root = dir.path().join("commands");
        write(&root, "standup.md", &command("argument-hint: '[day]'\n"));
        write(&root, "git/pull-request.md", &command(""));
        write(&root, "git/Pull_Request.md", &command(""));
        write(&root, "named.md", &command("name: Ünï\n"));
        write(&root, "a/b/c/deep.md", &command(""));
        write(&root, "a/b/c/d/deeper.md", &command(""));
        for skipped in [".hidden.md", "node_modules/x.md", "SKILL.md", "notes.txt"] {
            write(&root, skipped, "?");
        }
        write(&root, "x-no-head.md", "Do it.");
        write(&root, "x-no-body.md", "---\ndescription: x\n---\n \n");
        write(&root, "x-no-description.md", "---\nname: x\n---\nx");
        write(&root, &format!("{}.md", "x".repeat(33)), &command(""));
        assert!(std::process::Command::new("mkfifo").arg(root.join("x-pipe.md")).status().unwrap().success());
        let (entries, broken) = home.catalog(&Commands::default());
        let names: Vec<_> = entries.iter().map(|e| (e.name.as_str(), e.telegram_name.as_str())).collect();
        assert_eq!(
            names,
            [
                ("a:b:c:deep", "a_b_c_deep"),
                ("git:Pull_Request", "git_pull_request"),
                ("Ünï", "_n_"),
                ("standup", "standup"),
            ]
        );
        assert_eq!(entries[3].description, "[day] — Does it");
        assert_eq!(entries[3].argument_hint.as_deref(), Some("[day]"));
        assert_eq!((entries[0].description.as_str(), &entries[0].argument_hint), ("Does it", &None));
        assert_eq!(broken.len(), 5, "{broken:?}");
    }

    #[test]
    fn a_link_back_is_told_and_not_followed() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("commands");
        write(&root, "git/status.md", &command(""));
        for n in 0..60 {
            symlink("..", root.join(format!("git/up-{n:02}"))).unwrap();
            symlink(".", root.join(format!("here-{n:02}"))).unwrap();
        }
        symlink("loop", root.join("loop")).unwrap();
        symlink("loop.md", root.join("loop.md")).unwrap();
        symlink("git", root.join("vcs")).unwrap();
        let (entries, broken) = Home::at(dir.path()).catalog(&Commands::default());
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["git:status", "vcs:status"]);
        assert_eq!(broken.len(), 60 + 60 + 60 + 1, "each link once, and the file");
    }

    #[test]
    fn a_catalogue_has_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("commands");
        for n in 0..=MOST {
            write(&root, &format!("{n:06}.txt"), "");
        }
        write(&root, "z.md", &command(""));
        let (entries, broken) = Home::at(dir.path()).catalog(&Commands::default());
        assert_eq!((entries.len(), broken.len()), (0, 1));
        assert!(broken[0].why.contains("10000"), "{broken:?}");
    }

    #[test]
    fn roots_come_in_their_order_and_the_first_of_a_name_wins() {
        let dir = tempfile::tempdir().unwrap();
        let (cwd, user) = (dir.path().join("cwd"), dir.path().join("user"));
        let at = Home::at(&dir.path().join("home"));
        let home =
            Home { roots: vec![dir.path().join("root")], cwd: Some(cwd.clone()), user: Some(user), ..at };
        for (root, about) in [
            ("home/more", "paths"),
            ("root/commands", "list"),
            ("root/agent/commands", "root"),
            ("home/commands", "home"),
            ("user/.claude/commands", "user"),
            ("cwd/commands", "cwd"),
        ] {
            write(&dir.path().join(root), "same.md", &command(&format!("argument_hint: {about}\n")));
            write(&dir.path().join(root), &format!("{about}.md"), &command(""));
        }
        let commands = Commands { claude_commands: true, paths: vec!["more".into()], ..Commands::default() };
        let names = |commands: &Commands| -> Vec<String> {
            let (entries, _) = home.catalog(commands);
            entries.into_iter().map(|entry| entry.argument_hint.unwrap_or(entry.name)).collect()
        };
        assert_eq!(names(&commands), ["paths", "paths", "list", "root", "home", "user", "cwd"]);
        assert_eq!(names(&Commands::default()), ["list", "list", "root", "home", "cwd"]);
        assert!(names(&Commands { enabled: false, ..commands }).is_empty());
    }
}
