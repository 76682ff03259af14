//! What is written by hand, held against what is there: the manual's states, the map of the house, the lists of what
//! can be run, and the length of lines and of help.

use std::collections::BTreeSet;
use std::fs;

use transit::cli::tools;
use transit::store::spool::outbox::State;

use super::{man, markdown_files, root};

/// Rows that `-h` may take, so that it fits a screen.
const SCREEN: usize = 30;
/// Characters of a line of prose.
const LONGEST: usize = 120;

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// The names in a folder, without what follows their first dot.
fn names_in(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
    entries.map(|name| name.to_str().unwrap().split('.').next().unwrap().to_owned()).collect()
}

/// Those that a text does not name as a word.
fn unnamed(text: &str, names: &BTreeSet<String>) -> Vec<String> {
    let words: BTreeSet<&str> =
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').collect();
    names.iter().filter(|name| !words.contains(name.as_str())).cloned().collect()
}

#[test]
fn a_short_help_fits_a_screen() {
    for mut tool in tools() {
        tool.command.build();
        let mut commands = vec![tool.command];
        while let Some(mut command) = commands.pop() {
            let help = command.clone().term_width(100).render_help().to_string();
            let rows = help.lines().count();
            assert!(rows <= SCREEN, "{} -h has {rows} rows\n{help}", command.get_name());
            commands.extend(command.get_subcommands_mut().map(|sub| sub.clone()));
        }
    }
}

#[test]
fn every_page_has_every_section() {
    for tool in tools() {
        let page = man::page(&tool);
        for section in
            ["SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"]
        {
            let heading = [format!("\n.SH {section}\n"), format!("\n.SH \"{section}\"\n")];
            let found = heading.iter().any(|heading| page.contains(heading));
            assert!(found, "{} has no {section}", tool.command.get_name());
        }
        assert!(!tool.page.examples.is_empty() && !tool.page.see_also.is_empty());
        for (_, example) in tool.page.examples {
            assert!(example.lines().all(|line| line.len() <= 96), "{example} is broken in --help");
        }
    }
}

#[test]
fn the_manual_has_every_state_and_names_every_page() {
    let page = read("man/transit.7");
    let section = |heading: &str| page.split(heading).nth(1).unwrap().split("\n.S").next().unwrap();
    let has = |heading: &str, state: &str| section(heading).contains(&format!("\n{state} "));
    for state in State::ALL {
        assert!(has("entry of a host's spool", state.as_str()), "{}", state.as_str());
    }
    let tools = tools();
    let worker = tools.iter().find(|tool| tool.command.get_name() == "transit-worker").unwrap();
    let list = worker.command.find_subcommand("delivery").unwrap().find_subcommand("list").unwrap();
    let state = list.get_arguments().find(|arg| arg.get_long() == Some("state")).unwrap();
    let states = state.get_possible_values();
    assert!(!states.is_empty());
    for state in states {
        assert!(has("A delivery of an event at the Worker", state.get_name()), "{}", state.get_name());
    }
    let known: BTreeSet<String> = names_in("man").into_iter().filter(|name| name != "transit").collect();
    let see_also = page.split("SEE ALSO").nth(1).unwrap();
    assert_eq!(unnamed(see_also, &known), [""; 0]);
}

#[test]
fn the_map_names_every_module_and_every_program() {
    let text = read("ARCHITECTURE.md");
    let tree = text.split("```text").nth(1).unwrap().split("```").next().unwrap();
    let part = |folder: &str| {
        let from = tree.split(&format!("\nsrc/{folder}/ ")).nth(1).unwrap();
        from.split("\nsrc/").next().unwrap().split("\ntests/").next().unwrap()
    };
    let modules = |folder: &str| {
        let mut names = names_in(&format!("src/{folder}"));
        names.retain(|name| !["mod", "tests", "testing"].contains(&name.as_str()));
        names
    };
    for folder in ["proto", "store", "net", "daemon", "worker", "cli", "bin"] {
        assert_eq!(unnamed(part(folder), &modules(folder)), [""; 0], "src/{folder}");
    }
    assert_eq!(unnamed("one two_three", &["one".into(), "two".into()].into()), ["two"]);
    for folder in tree.lines().filter_map(|line| line.split(' ').next()).filter(|word| word.ends_with('/')) {
        assert!(root().join(folder).is_dir(), "{folder}");
    }
}

#[test]
fn what_can_be_run_is_listed() {
    let contributing = read("CONTRIBUTING.md");
    let benches = names_in("benches").into_iter().filter(|name| name != "support");
    for bench in benches {
        assert!(contributing.contains(&format!("cargo bench --bench {bench}`")), "{bench}");
    }
    let targets = names_in("fuzz/fuzz_targets");
    assert!(targets.iter().all(|target| contributing.contains(&format!("`{target}`"))), "{targets:?}");
    let readme = read("README.md");
    let examples = fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap());
    for example in examples.map(|entry| entry.file_name().into_string().unwrap()) {
        assert!(readme.contains(&format!("`{example}")), "{example}");
    }
    for tool in tools() {
        let name = tool.command.get_name();
        assert!(readme.contains(&format!("\n| `{name}` | ")), "{name} is not in the README's table");
    }
}

/// The lines that are too long, and are neither rows of a table nor in a block of code.
fn too_long(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let is_prose = |line: &&str| {
        is_code ^= line.starts_with("```");
        !is_code && !line.starts_with('|')
    };
    text.lines().filter(is_prose).filter(|line| line.chars().count() > LONGEST).collect()
}

#[test]
fn prose_is_wrapped() {
    for path in markdown_files() {
        assert_eq!(too_long(&fs::read_to_string(&path).unwrap()), [""; 0], "{}", path.display());
    }
    let long = "a".repeat(LONGEST + 1);
    assert_eq!(too_long(&format!("short\n```\n{long}\n```\n| {long}\n{long}\n")), [long.as_str()]);
}
