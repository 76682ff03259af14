//! Real shells are asked what they would complete.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use super::root;
use crate::support::{Home, left_out, programs, text};

/// A shell that is installed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    /// Those that are installed; the others are told.
    fn all() -> Vec<Self> {
        let all = [(Self::Bash, "bash"), (Self::Zsh, "zsh"), (Self::Fish, "fish")];
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = |name: &str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
        let mut found = Vec::new();
        for (shell, name) in all {
            if is_there(name) {
                found.push(shell);
            } else {
                left_out(&format!("completions in {name}, which is not installed: apt install {name}"));
            }
        }
        found
    }

    /// What it offers for the last word of a line, which may be empty.
    fn asks(self, home: &Home, line: &str) -> Vec<String> {
        let made = root().join("completions");
        let asking = root().join("tests/it/docs/completions");
        let words: Vec<&str> = line.split(' ').collect();
        let mut shell = match self {
            Self::Bash => {
                let mut shell = home.foreign("bash");
                shell.args(["--norc", "--noprofile"]).arg(asking.join("ask.bash")).arg(made).args(words);
                shell
            }
            Self::Zsh => {
                let mut shell = home.foreign("zsh");
                shell.arg("-f").arg(asking.join("ask.zsh")).arg(made).arg(line);
                shell
            }
            Self::Fish => {
                let script = made.join(format!("{}.fish", words[0]));
                let mut shell = home.foreign("fish");
                shell
                    .args(["--no-config", "-c", "source $argv[1]; complete -C $argv[2]"])
                    .arg(script)
                    .arg(line);
                shell
            }
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs =
            [home.path("first"), programs().to_owned()].into_iter().chain(std::env::split_paths(&path));
        shell.env("PATH", std::env::join_paths(dirs).unwrap()).env("TERM", "dumb");
        let ran = shell.stdin(Stdio::null()).output().unwrap();
        assert!(ran.status.success(), "{self:?} {line}: {}", text(&ran.stderr));
        let mut offers: Vec<String> = text(&ran.stdout)
            .lines()
            // fish describes after a tab, and repeats an option that the word begins with.
            .map(|offer| offer.split('\t').next().unwrap().rsplit('=').next().unwrap().to_owned())
            .collect();
        offers.sort();
        offers
    }
}

/// A home whose configuration has two sources, and whose spool holds three events; answers with their ids: two that
/// wait, and one that was sent.
fn furnished() -> (Home, [String; 3]) {
    let home = Home::new();
    let secret = home.file("secret", "s");
    let source = serde_json::json!({ "url": "http://127.0.0.1:1/ingest/ci", "secret_file": secret });
    home.file(
        "config.json",
        serde_json::json!({ "sources": { "ci": source, "nightly": source } }).to_string(),
    );
    let ids = ["one", "two", "three"].map(|body| {
        let args = ["nightly", "--conversation", "c", "-m", body, "--spool-only", "--json"];
        let sent = home.run("transit-send", args, b"");
        assert!(sent.status.success(), "{}", text(&sent.stderr));
        let said: serde_json::Value = serde_json::from_slice(&sent.stdout).unwrap();
        said["id"].as_str().unwrap().to_owned()
    });
    let exported = text(&home.run("transit-spool", ["export"], b"").stdout).to_owned();
    let sent = exported.lines().last().unwrap().replace("\"pending\"", "\"sent\"");
    assert!(home.run("transit-spool", ["rm", &ids[2]], b"").status.success());
    let imported = home.run("transit-spool", ["import"], sent.as_bytes());
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    (home, ids)
}

#[test]
fn shells_complete_the_ids_and_sources_that_are_there_now() {
    let (home, [one, two, sent]) = furnished();
    let sorted = |ids: &[&String]| {
        let mut ids: Vec<String> = ids.iter().map(|id| (*id).clone()).collect();
        ids.sort();
        ids
    };
    let (all, waiting) = (sorted(&[&one, &two, &sent]), sorted(&[&one, &two]));
    for shell in Shell::all() {
        let asks = |line: &str| shell.asks(&home, line);
        for line in [
            "transit-spool show ",
            "transit-spool rm ",
            "transit-send --status ",
            "transit-spool --color never rm ",
        ] {
            assert_eq!(asks(line), all, "{shell:?} {line}");
        }
        assert_eq!(asks("transit-spool retry "), waiting, "{shell:?}");
        assert_eq!(asks(&format!("transit-spool show {} {}", one, &two[..15])), [two.as_str()], "{shell:?}");
        assert_eq!(asks("transit-send "), ["ci", "nightly"], "{shell:?}");
        assert_eq!(asks("transit-send n"), ["nightly"], "{shell:?}");
        assert_eq!(asks("transit-send -m hello --jobs 3 n"), ["nightly"], "{shell:?}");
        for line in ["transit-send ci n", "transit-send --secret-file n"] {
            assert!(!asks(line).contains(&"nightly".to_owned()), "{shell:?} {line}");
        }
        // What is made from the options alone is reached in programs with a dash in their names as well.
        assert_eq!(asks("transit-spool li"), ["list"], "{shell:?}");
        assert_eq!(asks("transit-spool flush --dead"), ["--deadline"], "{shell:?}");
        assert_eq!(asks("transit-spool list --state d"), ["dead"], "{shell:?}");
        assert_eq!(asks("transit-worker source rot"), ["rotate"], "{shell:?}");
        assert_eq!(asks("transitd enroll --co").first().map(String::as_str), Some("--code"), "{shell:?}");
    }
}

#[test]
fn nobodys_text_becomes_a_word_of_a_command_line() {
    let home = Home::new();
    let record = |id: &str, dest: &str| {
        let rest = "\"outcome\":\"spooled\",\"state\":\"pending\",\"attempts\":0}";
        format!("{{\"id\":\"{id}\",\"kind\":\"event\",\"dest\":\"{dest}\",{rest}")
    };
    let hostile = ["$(touch pwned)", "`touch pwned`", "a b", "x;touch pwned", "'\"", "*", "-n", "\u{1b}[31m"];
    let mut list: Vec<String> = hostile.iter().map(|text| record(&format!("evt_{text}"), "d")).collect();
    list.extend(hostile.iter().map(|text| record(&format!("evt_000000000001 {text}"), "d")));
    list.push(record("evt_00000000000a", "$(touch pwned) \\\",\\\"state\\\":\\\"$(touch pwned)\\\","));
    std::fs::create_dir(home.path("first")).unwrap();
    for (name, said) in
        [("transit-spool", list.join("\n") + "\n"), ("transit-send", hostile.join("\n") + "\nci\n")]
    {
        let said = home.file(&format!("{name}.said"), said);
        let stub = home.file(&format!("first/{name}"), format!("#!/bin/sh\ncat '{}'\n", said.display()));
        std::fs::set_permissions(stub, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    for shell in Shell::all() {
        assert_eq!(shell.asks(&home, "transit-spool show "), ["evt_00000000000a"], "{shell:?}");
        assert_eq!(shell.asks(&home, "transit-send --status "), ["evt_00000000000a"], "{shell:?}");
        assert_eq!(shell.asks(&home, "transit-send "), ["ci"], "{shell:?}");
        assert!(!home.path("pwned").exists(), "{shell:?}");
    }
}

#[test]
fn what_is_written_for_shells_by_hand_is_clean() {
    let home = Home::new();
    if home.foreign("shellcheck").arg("--version").output().is_err() {
        return left_out("shellcheck, which is not installed: apt install shellcheck");
    }
    let mut scripts: Vec<_> = std::fs::read_dir(root().join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "sh"))
        .collect();
    assert!(scripts.len() > 3, "the examples");
    scripts.extend(
        [".ci/run", "scripts/dist", "tests/it/docs/completions/ask.bash"].map(|path| root().join(path)),
    );
    scripts.extend(["send", "spool"].map(|name| root().join(format!("completions/transit-{name}.bash"))));
    let checked = home
        .foreign("shellcheck")
        // What clap makes splits words on purpose.
        .args(["--exclude=SC2207,SC2034"])
        .args(scripts)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", text(&checked.stdout));
}
