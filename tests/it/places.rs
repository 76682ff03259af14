//! Data directories, sockets and configurations that are not what they should be: one line, and an exit for it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use crate::support::{Background, Home, left_out, text};

/// Commands that make the data directory when it is missing.
const MAKERS: &[(&str, &[&str])] = &[
    ("transitd", &["run"]),
    ("transitd", &["enroll", "--url", "http://127.0.0.1:1", "--code", "ABCD-EFGH"]),
    ("transit-send", &["--spool-only", "http://127.0.0.1:1/ingest/ci", "--conversation", "c", "-m", "x"]),
    ("transit-worker", &["serve", "--listen", "127.0.0.1:0"]),
    ("transit-worker", &["source", "list"]),
    ("transit-worker", &["migrate"]),
];

/// Commands that ask the daemon at once.
const ASKERS: &[(&str, &[&str])] = &[
    ("transitd", &["status"]),
    ("transitd", &["kick"]),
    ("transitd", &["stop"]),
    ("transit-agent", &["call", "whoami"]),
    ("transit-send", &["bob@demo", "-m", "x"]),
];

/// Commands that wait for a daemon that is not there yet.
const WAITERS: &[(&str, &[&str])] = &[
    ("transit-agent", &["listen", "--name", "bob"]),
    ("transit-agent", &["run", "--name", "bob", "--", "true"]),
];

/// Runs each command with this data directory; each must end with `exit` and a first line that says `why`.
fn all_end(home: &Home, data: &str, commands: &[&[(&str, &[&str])]], exit: i32, why: &str) {
    for (program, args) in commands.iter().flat_map(|some| some.iter()) {
        let mut command = home.command(program);
        command.args(*args).env("TRANSIT_DATA_DIR", home.path(data)).env("TRANSIT_SECRET", "s");
        // In the background, so that one which waits for ever fails and does not hang.
        let mut ran = Background::start(&mut command);
        let ended = ran.wait();
        let lines: Vec<String> = std::iter::from_fn(|| ran.last_error()).collect();
        assert_eq!(ended.code(), Some(exit), "{program} {args:?}: {lines:?}");
        assert!(ran.pending_lines().is_empty() && lines.len() <= 2, "{program} {args:?}: {lines:?}");
        let is_told = lines[0].starts_with(&format!("{program}: ")) && lines[0].contains(why);
        assert!(is_told, "{program} {args:?}: {lines:?}");
    }
}

#[test]
fn a_file_in_the_place_of_the_data_directory_ends_every_command() {
    let home = Home::new();
    home.file("file", "");
    for data in ["file", "file/below", "file/far/below"] {
        all_end(&home, data, &[MAKERS, ASKERS, WAITERS], 73, "file is ");
    }
}

#[test]
fn a_file_in_the_place_of_a_socket_ends_who_would_use_it() {
    let home = Home::new();
    fs::create_dir(home.data()).unwrap();
    home.file("data/transit.sock", "");
    home.file("data/agent.sock", "");
    all_end(&home, "data", &[&MAKERS[..1], ASKERS, WAITERS], 73, "is in the way: it is no socket");
}

#[test]
fn a_directory_that_is_not_there_is_made_or_says_that_nobody_listens() {
    let home = Home::new();
    all_end(&home, "none", &[ASKERS], 69, "no daemon listens");
    all_end(&home, "none", &[&MAKERS[1..2]], 69, "could not reach the Worker");
    assert!(home.path("none").is_dir());
}

#[test]
fn somebody_else_s_directory_is_left_alone() {
    let home = Home::new();
    fs::create_dir(home.path("theirs")).unwrap();
    if chown(home.path("theirs"), Some(4711), None).is_err() {
        return left_out("only root can give a directory away");
    }
    all_end(&home, "theirs", &[MAKERS], 78, "theirs belongs to another user");
    all_end(&home, "theirs", &[ASKERS, WAITERS], 77, "belongs to another user");
    assert_eq!(fs::read_dir(home.path("theirs")).unwrap().count(), 0);
}

#[test]
fn a_directory_that_may_not_be_entered_ends_every_command() {
    let home = Home::new();
    fs::create_dir(home.path("shut")).unwrap();
    fs::set_permissions(home.path("shut"), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read_dir(home.path("shut")).is_ok() {
        return left_out("nothing is shut for root");
    }
    all_end(&home, "shut/data", &[MAKERS], 73, "Permission denied");
    all_end(&home, "shut/data", &[ASKERS, WAITERS], 77, "Permission denied");
}

#[test]
fn a_configuration_that_is_none_is_named_by_those_who_read_it() {
    let home = Home::new();
    for garbage in ["{\"a", "[]", "{\"host\":7}", "\u{fffd}\u{0}"] {
        home.file("config.json", garbage);
        all_end(&home, "data", &[&MAKERS[..2]], 78, "is no valid configuration");
        let output = home.run("transit-send", ["ci", "--conversation", "c", "-m", "x"], b"");
        assert_eq!(output.status.code(), Some(78), "{garbage:?}: {}", text(&output.stderr));
        // Whoever does not read it does not mind.
        all_end(&home, "data", &[ASKERS], 69, "no daemon listens");
    }
}
