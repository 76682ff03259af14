//! Manual pages, completions, help texts and the examples in the documentation.
//!
//! What is made from the commands is committed and compared byte for byte; `BLESS=1 cargo test docs` rewrites it.
//! What is written by hand is checked against the commands.

mod completions;
mod console;
mod man;
mod prose;
mod shells;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::Command;
use clap::error::ErrorKind;
use transit::cli::{Exit, Tool, tools};

use crate::support::{Home, text};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compares generated files with the ones in `dir`, or rewrites those. `ours` tells which of them are generated.
fn compare(dir: &str, ours: impl Fn(&str) -> bool, made: &BTreeMap<String, String>) {
    let dir = root().join(dir);
    let bless = std::env::var_os("BLESS").is_some();
    if bless {
        std::fs::create_dir_all(&dir).unwrap();
    }
    let present =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let stale: Vec<String> = present.filter(|name| ours(name) && !made.contains_key(name)).collect();
    let differs = |(name, content): &(&String, &String)| {
        std::fs::read_to_string(dir.join(name)).ok().as_ref() != Some(*content)
    };
    let changed: Vec<_> = made.iter().filter(differs).collect();
    if bless {
        stale.iter().for_each(|name| std::fs::remove_file(dir.join(name)).unwrap());
        changed.iter().for_each(|(name, content)| std::fs::write(dir.join(name), content).unwrap());
        return;
    }
    let changed: Vec<_> = changed.into_iter().map(|(name, _)| name).collect();
    assert!(
        changed.is_empty() && stale.is_empty(),
        "{}: {changed:?} differ from what the commands make, {stale:?} belong to none; BLESS=1 cargo test docs",
        dir.display()
    );
}

#[test]
fn manual_pages_are_what_the_commands_make() {
    let made = tools().iter().map(|tool| (man::file_name(tool), man::page(tool))).collect();
    compare("man", |name| !name.ends_with(".7"), &made);
}

#[test]
fn completions_are_what_the_commands_make() {
    let made = tools().iter().flat_map(completions::scripts).collect();
    compare("completions", |_| true, &made);
}

/// `-h` and `--help` of a command and of every command below it.
fn help(command: &mut Command, path: &str, out: &mut String) {
    let wide = command.clone().term_width(100);
    let short = wide.clone().render_help();
    let long = wide.clone().render_long_help();
    write!(out, "$ {path} -h\n{short}\n$ {path} --help\n{long}\n").unwrap();
    for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        let path = format!("{path} {}", sub.get_name());
        help(sub, &path, out);
    }
}

#[test]
fn help_texts_are_the_ones_that_were_looked_at() {
    let mut made = BTreeMap::new();
    for mut tool in tools() {
        let name = tool.command.get_name().to_owned();
        tool.command.build();
        let mut out = String::new();
        help(&mut tool.command, &name, &mut out);
        made.insert(
            format!("{name}.txt"),
            out.lines().map(|line| format!("{}\n", line.trim_end())).collect(),
        );
    }
    compare("tests/it/snapshots", |_| true, &made);
}

#[test]
fn every_program_is_in_the_list_and_says_its_version() {
    let bins = std::fs::read_dir(root().join("src/bin")).unwrap().map(|entry| entry.unwrap().path());
    let mut bins: Vec<String> =
        bins.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    let mut names: Vec<String> = tools().iter().map(|tool| tool.command.get_name().to_owned()).collect();
    bins.sort();
    names.sort();
    assert_eq!(bins, names);
    let home = Home::new();
    for name in names {
        let version = home.run(&name, ["-V"], b"");
        assert_eq!(text(&version.stdout), format!("{name} {}\n", env!("CARGO_PKG_VERSION")));
        let help = home.run(&name, ["--help"], b"");
        assert!(help.status.success() && help.stderr.is_empty() && !help.stdout.is_empty(), "{name} --help");
        let wrong = home.run(&name, ["--no-such-option"], b"");
        assert_eq!(wrong.status.code(), Some(i32::from(Exit::Usage as u8)), "{name}");
        assert!(wrong.stdout.is_empty() && !wrong.stderr.is_empty(), "{name} --no-such-option");
    }
}

/// What is wrong with the command lines of `line`, as far as they are ours.
fn wrong_usage(tools: &[Tool], line: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for words in console::simple_commands(line) {
        let program = Path::new(&words[0]).file_name().unwrap().to_str().unwrap();
        let Some(tool) = tools.iter().find(|tool| tool.command.get_name() == program) else {
            if program.starts_with("transit") {
                wrong.push(format!("no program {program}: {line}"));
            }
            continue;
        };
        if let Err(err) = tool.command.clone().try_get_matches_from(&words)
            && err.use_stderr()
            // What a variable holds is not known here.
            && !(err.kind() == ErrorKind::ValueValidation && line.contains('$'))
        {
            wrong.push(format!("{line}\n{err}"));
        }
    }
    wrong
}

fn markdown_files() -> Vec<PathBuf> {
    let docs = root().join("docs");
    let mut folders = vec![root().to_owned(), docs.clone()];
    folders.extend(std::fs::read_dir(docs).into_iter().flatten().map(|entry| entry.unwrap().path()));
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let files = files.map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|ext| ext == "md")).collect()
}

#[test]
fn examples_in_the_documentation_are_right_as_far_as_options_go() {
    let tools = tools();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in markdown_files() {
        for block in console::blocks(&std::fs::read_to_string(&path).unwrap()) {
            for (command, _) in &block.steps {
                seen += 1;
                let found = wrong_usage(&tools, command);
                wrong.extend(found.iter().map(|found| format!("{}:{}: {found}", path.display(), block.line)));
            }
        }
    }
    for (_, command) in tools.iter().flat_map(|tool| tool.page.examples) {
        let command = command.replace("\\\n", " ");
        wrong.extend(command.lines().flat_map(|line| wrong_usage(&tools, line)));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(seen > 5, "the documentation has no examples any more");
    assert!(!wrong_usage(&tools, "echo | transitd run --no-such-option").is_empty());
    assert!(!wrong_usage(&tools, "transit-unheard-of").is_empty());
}

#[test]
fn runnable_examples_of_the_readme_print_what_they_show() {
    let home = Home::new();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let blocks: Vec<_> = console::blocks(&readme).into_iter().filter(|block| block.runs).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        for (command, shown) in &block.steps {
            let mut shell = home.foreign("sh");
            shell.args(["-euc", command]);
            let ran = shell.stdin(Stdio::null()).output().unwrap();
            let said = format!("README.md:{}: {command}\n{}", block.line, text(&ran.stderr));
            assert!(ran.status.success(), "{said}");
            assert_eq!(text(&ran.stdout), shown, "{said}");
        }
    }
}

#[test]
fn the_manual_has_every_exit_code() {
    let page = std::fs::read_to_string(root().join("man/transit.7")).unwrap();
    let table = page.split(".SH EXIT STATUS").nth(1).unwrap().split(".SH").next().unwrap();
    let expected: String =
        Exit::ALL.iter().map(|exit| format!("\n.TP\n.B {}\n{}", *exit as u8, exit.meaning())).collect();
    assert!(table.trim_end().ends_with(&expected), "the table should be{expected}");
}

/// The modules that a text names by their path, `worker/ingest`, and that are not there.
fn modules_that_are_not_there(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '/' && c != '_');
    let floors = ["proto/", "store/", "net/", "daemon/", "worker/", "cli/"];
    let paths = words.filter(|word| floors.iter().any(|floor| word.starts_with(floor)));
    let is_there = |path: &str| {
        let path = root().join("src").join(path.trim_end_matches('/'));
        path.is_dir() || path.with_extension("rs").is_file()
    };
    paths.filter(|path| !is_there(path)).collect()
}

#[test]
fn the_architecture_names_what_is_there() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert!(text.lines().count() < 200, "it is to be read in one sitting");
    assert_eq!(modules_that_are_not_there(&text), [""; 0]);
    assert_eq!(modules_that_are_not_there("`worker/ingest` and cli/unheard_of, net/"), ["cli/unheard_of"]);
}

fn texts_below(dir: &Path, texts: &mut Vec<String>) {
    for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            texts_below(&path, texts);
        } else {
            texts.push(std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The names that a text gives as `Type::name`, of a function or a variant, and that no file of `src/` defines so.
fn names_that_are_not_there<'a>(sources: &[String], text: &'a str) -> Vec<&'a str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != ':' && c != '_');
    let names = words.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()));
    let pairs = names.filter_map(|word| Some((word, word.split_once("::")?)));
    let defines = |source: &str, kind: &str, name: &str| {
        let found = format!("{kind}{name}");
        source.match_indices(&found).any(|(at, _)| {
            !source[at + found.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    let is_there = |(owner, name): (&str, &str)| {
        sources.iter().any(|source| {
            ["struct ", "enum "].iter().any(|kind| defines(source, kind, owner))
                && ["fn ", "\n    "].iter().any(|kind| defines(source, kind, name))
        })
    };
    pairs.filter(|(_, pair)| !is_there(*pair)).map(|(word, _)| word).collect()
}

#[test]
fn the_architecture_names_types_as_they_are() {
    let mut sources = Vec::new();
    texts_below(&root().join("src"), &mut sources);
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert!(text.contains("WorkerEnd::deliver"), "the map names functions");
    assert_eq!(names_that_are_not_there(&sources, &text), [""; 0]);
    let wrong = "`WorkerEnd::deliver` WorkerEnd::unheard_of, DaemonEvent::Deliver, NoSuchType::new";
    assert_eq!(names_that_are_not_there(&sources, wrong), ["WorkerEnd::unheard_of", "NoSuchType::new"]);
}
