//! `transit-agent install`, `uninstall` and `socket`: what they write, what they leave alone, and what they say.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::{Home, programs, text};

fn agent(home: &Home, args: &[&str]) -> Output {
    home.run("transit-agent", args, b"")
}

fn told(out: &Output) -> Vec<Value> {
    text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// All files below a directory, with what is in them.
fn files(dir: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for path in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                dirs.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().display().to_string();
                files.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

#[test]
fn an_adapter_is_put_in_place_once_and_taken_away_whole() {
    for (harness, names) in [
        (
            "claude",
            &[
                ".claude/settings.json",
                ".claude/transit/.claude-plugin/marketplace.json",
                ".claude/transit/.claude-plugin/plugin.json",
            ][..],
        ),
        ("omp", &[".omp/agent/extensions/transit-omp.js", ".omp/agent/mcp.json"]),
        ("opencode", &[".config/opencode/plugins/transit.js"]),
        ("pi", &[".pi/agent/extensions/transit.js"]),
    ] {
        let home = Home::new();
        let dry = agent(&home, &["install", harness, "--dry-run", "--json"]);
        assert!(dry.status.success(), "{}", text(&dry.stderr));
        assert!(files(&home.path(".")).is_empty());
        let done = agent(&home, &["install", harness, "--json"]);
        let paths = |out| told(out).iter().map(|step| step["path"].clone()).collect::<Vec<_>>();
        assert_eq!(paths(&dry), paths(&done), "what would be done is what is done");
        assert!(told(&done).iter().all(|step| step["action"] == "created" && step["dry_run"] == false));
        let there = files(&home.path("."));
        assert_eq!(there.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
        let mcp = programs().join("transit-mcp").display().to_string();
        let has_mcp = |text: &str| text.contains(&mcp) || text.contains("transit-agent\";");
        assert!(there.iter().any(|(_, text)| has_mcp(text)), "{there:?}");

        let again = agent(&home, &["install", harness]);
        assert!(
            text(&again.stdout).lines().all(|line| line.starts_with("unchanged ")) && again.stderr.is_empty()
        );
        assert_eq!(files(&home.path(".")), there);
        assert!(
            text(&agent(&home, &["install", "--list"]).stdout).contains(&format!("{harness:<9} installed"))
        );

        let away = agent(&home, &["uninstall", harness, "--dry-run"]);
        assert!(text(&away.stdout).lines().all(|line| line.starts_with("would be removed ")));
        assert_eq!(files(&home.path(".")), there);
        assert!(agent(&home, &["uninstall", harness]).status.success());
        assert!(files(&home.path(".")).is_empty());
        let nothing = agent(&home, &["uninstall", harness]);
        assert!(nothing.status.success() && nothing.stdout.is_empty());
        assert!(text(&nothing.stderr).contains("nothing of Transit is in "), "{}", text(&nothing.stderr));
    }
}

#[test]
fn settings_keep_every_byte_but_the_entries_in_question() {
    let home = Home::new();
    let before =
        "{\n    \"model\" : \"opus\",\n    \"z\": 1.50,\n    \"enabledPlugins\": { \"a@b\": false }\n}\n";
    std::fs::create_dir(home.path("claude")).unwrap();
    let real = home.file("dotfiles.json", before);
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::os::unix::fs::symlink(&real, home.path("claude/settings.json")).unwrap();
    let install = || {
        let mut command = home.command("transit-agent");
        command.args(["install", "claude", "--dir", "claude", "--json"]).output().unwrap()
    };
    let done = install();
    let settings = told(&done).pop().unwrap();
    assert_eq!(
        settings["entries"],
        json!(["extraKnownMarketplaces.transit", "enabledPlugins.transit@transit"])
    );
    assert_eq!(settings["action"], "edited");
    let after = std::fs::read_to_string(&real).unwrap();
    assert!(after.starts_with("{\n    \"model\" : \"opus\",\n    \"z\": 1.50,\n"), "{after}");
    assert!(after.contains("{ \"a@b\": false, \"transit@transit\": true }"), "{after}");
    let place = home.path("claude/transit").display().to_string();
    let value: Value = serde_json::from_str(&after).unwrap();
    assert_eq!(value["extraKnownMarketplaces"]["transit"]["source"]["path"], place);
    assert!(home.path("claude/settings.json").is_symlink());
    assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o644);

    // A person who turned the plugin off gets it back by installing it.
    std::fs::write(&real, after.replace("\"transit@transit\": true", "\"transit@transit\": false")).unwrap();
    assert_eq!(told(&install()).pop().unwrap()["action"], "edited");
    assert_eq!(std::fs::read_to_string(&real).unwrap(), after);
    assert!(agent(&home, &["uninstall", "claude", "--dir", "claude"]).status.success());
    assert_eq!(std::fs::read_to_string(&real).unwrap(), before);
}

#[test]
fn what_a_person_has_changed_is_left_alone_until_it_is_forced() {
    let home = Home::new();
    assert!(agent(&home, &["install", "pi"]).status.success());
    let path = home.path(".pi/agent/extensions/transit.js");
    let ours = std::fs::read_to_string(&path).unwrap();
    let changed = format!("{ours}// mine\n");
    std::fs::write(&path, &changed).unwrap();
    for verb in ["install", "uninstall"] {
        let refused = agent(&home, &[verb, "pi"]);
        assert_eq!(refused.status.code(), Some(73));
        let said = text(&refused.stderr);
        assert!(said.contains("it was changed by hand") && said.contains("--force"), "{said}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), changed);
    }
    assert!(text(&agent(&home, &["install", "--list"]).stdout).contains("pi        changed"));
    assert!(agent(&home, &["install", "pi", "--force"]).status.success());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), ours);

    // A copy of another version is known by its sum, and renewed.
    let other = ours.replacen(env!("CARGO_PKG_VERSION"), "0.0.9", 1);
    std::fs::write(&path, other).unwrap();
    assert!(text(&agent(&home, &["install", "--list"]).stdout).contains("pi        outdated"));
    assert!(text(&agent(&home, &["install", "pi"]).stdout).starts_with("renewed "));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), ours);

    // An entry that is somebody else's.
    std::fs::create_dir_all(home.path("omp")).unwrap();
    let foreign = home.file("omp/mcp.json", r#"{"mcpServers":{"transit":{"command":"other"}}}"#);
    let refused = agent(&home, &["install", "omp", "--dir", "omp"]);
    assert_eq!(refused.status.code(), Some(73));
    assert!(text(&refused.stderr).contains("mcpServers.transit in it is not Transit's"));
    assert!(!home.path("omp/extensions").exists(), "nothing is written before everything was looked at");
    assert!(std::fs::read_to_string(foreign).unwrap().contains("other"));
}

#[test]
fn what_cannot_be_edited_is_told_and_left_alone() {
    let home = Home::new();
    std::fs::create_dir(home.path("omp")).unwrap();
    for (content, why) in [
        ("{\n  // mine\n}\n", "it is no strict JSON"),
        ("{\"mcpServers\": [1]}", "mcpServers is no object"),
        ("\u{1b}[31m", "it is no strict JSON"),
    ] {
        let path = home.file("omp/mcp.json", content);
        let refused = agent(&home, &["install", "omp", "--dir", "omp"]);
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(78), 0), "{content}");
        assert!(text(&refused.stderr).contains(why), "{}", text(&refused.stderr));
        assert!(!text(&refused.stderr).contains('\u{1b}'));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
    std::fs::write(home.path("omp/mcp.json"), b"\xff").unwrap();
    assert_eq!(agent(&home, &["install", "omp", "--dir", "omp"]).status.code(), Some(78));
    home.file("file", "");
    assert_eq!(
        agent(&home, &["install", "pi", "--dir", "file"]).status.code(),
        Some(73),
        "a file is in the way"
    );
    let mut command = home.command("transit-agent");
    let nowhere = command.env_remove("HOME").args(["install", "pi"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(78));
    assert!(text(&nowhere.stderr).contains("--dir"), "{}", text(&nowhere.stderr));
    for wrong in [&["install"][..], &["install", "emacs"], &["install", "--list", "pi"], &["uninstall"]] {
        assert_eq!(agent(&home, wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn what_is_read_only_or_a_link_to_nothing_is_left_alone_and_all_else_with_it() {
    let home = Home::new();
    for dir in [".claude", "dotfiles"] {
        std::fs::create_dir(home.path(dir)).unwrap();
    }
    let settings = home.file(".claude/settings.json", "{}");
    std::fs::set_permissions(&settings, std::fs::Permissions::from_mode(0o444)).unwrap();
    let refused = |why: &str| {
        let before = files(&home.path(".claude"));
        for args in [&["install", "claude"][..], &["install", "claude", "--force"]] {
            let out = agent(&home, args);
            assert_eq!(out.status.code(), Some(73));
            assert!(text(&out.stderr).contains(why) && out.stdout.is_empty(), "{}", text(&out.stderr));
        }
        assert_eq!(files(&home.path(".claude")), before);
    };
    refused("it is read-only");
    std::fs::remove_file(&settings).unwrap();
    std::os::unix::fs::symlink("nowhere.json", &settings).unwrap();
    let out = agent(&home, &["install", "claude"]);
    assert_eq!(out.status.code(), Some(73));
    assert!(text(&out.stderr).contains("a link to nothing") && settings.is_symlink());

    // A link that leads somewhere stays one, and so does what it leads to.
    let real = home.file("dotfiles/settings.json", "{}");
    std::fs::remove_file(&settings).unwrap();
    std::os::unix::fs::symlink(&real, &settings).unwrap();
    assert!(agent(&home, &["install", "claude"]).status.success());
    assert!(settings.is_symlink() && std::fs::read_to_string(&real).unwrap().contains("transit@transit"));
    assert!(agent(&home, &["uninstall", "claude"]).status.success());
    assert!(settings.is_symlink());
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "{}");
}

#[test]
fn adapters_are_told_where_the_daemon_is() {
    let home = Home::new();
    let socket = agent(&home, &["socket"]);
    assert_eq!(text(&socket.stdout), format!("{}\n", home.data().join("agent.sock").display()));
    let deep = home.path(&"d".repeat(120));
    let mut command = home.command("transit-agent");
    let short = command.env("TRANSIT_DATA_DIR", deep).arg("socket").output().unwrap();
    assert!(text(&short.stdout).ends_with("/agent.sock\n") && short.stdout.len() < 108, "{short:?}");
    let mut command = home.command("transit-agent");
    let nowhere = command.env_remove("HOME").env_remove("TRANSIT_DATA_DIR").arg("socket").output().unwrap();
    assert_eq!(nowhere.status.code(), Some(78));
}
