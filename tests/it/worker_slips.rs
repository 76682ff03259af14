//! Slips of a Worker's operator: what is mistyped, too long, or goes to a place that takes nothing.

use std::fs::File;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::support::{Home, text};

fn run(home: &Home, args: &str) -> Output {
    home.run("transit-worker", args.split_whitespace(), b"")
}

/// This exit code, nothing on stdout, and two lines on stderr, which hold these words.
#[track_caller]
fn refused(output: &Output, code: i32, why: &str, way_out: &str) {
    let words = text(&output.stderr);
    let lines: Vec<&str> = words.lines().collect();
    assert_eq!((output.status.code(), text(&output.stdout), lines.len()), (Some(code), "", 2), "{words}");
    assert!(lines[0].contains(why) && lines[1].contains(way_out), "{words}");
}

#[test]
fn a_database_that_is_not_there_is_made_for_what_begins_something_and_for_nothing_else() {
    let home = Home::new();
    for args in [
        "org list",
        "user list",
        "host list",
        "host revoke titan",
        "source list",
        "source rotate ci",
        "source pause ci",
        "room list",
        "room add ops a@b",
        "delivery list",
        "delivery handle dlv_00000000000a",
        "message list",
        "message cancel tx_00000000000a",
        "doctor",
        "backup copy.db",
    ] {
        refused(
            &run(&home, &format!("{args} --database typo.db")),
            66,
            "there is none at typo.db",
            "--database",
        );
    }
    assert!(!home.path("typo.db").exists());
    assert!(run(&home, "source list").status.success(), "nothing was mistyped");
    for (at, args) in
        ["org create Acme", "host enroll titan", "source create ci --target a@b", "room create ops"]
            .iter()
            .enumerate()
    {
        let made = run(&home, &format!("{args} --database new{at}.db"));
        assert!(made.status.success(), "{}", text(&made.stderr));
        let told = format!("there was no database at new{at}.db, and a new one was made");
        assert!(text(&made.stderr).contains(&told), "{}", text(&made.stderr));
        assert!(run(&home, &format!("org list --database new{at}.db")).status.success());
    }
}

#[test]
fn a_secret_that_could_not_be_shown_is_not_taken_for_one_that_was() {
    let home = Home::new();
    let into_full = |args: &[&str]| {
        let mut command = home.command("transit-worker");
        command.args(args).stdout(Stdio::from(File::create("/dev/full").unwrap())).output().unwrap()
    };
    assert!(run(&home, "migrate").status.success());
    let create = ["source", "create", "ci", "--target", "a@b"];
    refused(&into_full(&create), 74, "write the output", "source rotate ci");
    assert!(run(&home, "source list").status.success(), "it is there");
    refused(&into_full(&["source", "rotate", "ci"]), 74, "write the output", "source rotate ci");
    let enroll = ["host", "enroll", "titan", "--public-url", "https://hub.example"];
    refused(&into_full(&enroll), 74, "write the output", "make another one");
    home.file("given", "s3cret");
    let given = into_full(&["source", "create", "cd", "--target", "a@b", "--secret-file", "given"]);
    assert_eq!((given.status.code(), text(&given.stderr).lines().count()), (Some(74), 1), "nothing is lost");
}

#[test]
fn a_secret_of_the_environment_is_taken_only_when_it_is_named() {
    let home = Home::new();
    let secret = |args: &str| {
        let mut command = home.command("transit-worker");
        command.env("TRANSIT_SECRET", "not meant").env("MEANT", "meant");
        let output = command.args(args.split_whitespace()).arg("--json").output().unwrap();
        let made: Value = serde_json::from_slice(&output.stdout).unwrap();
        made["secret"].as_str().unwrap().to_owned()
    };
    assert_eq!(secret("source create one --target a@b").len(), 43, "it was made");
    assert_eq!(secret("source create two --target a@b --secret-env MEANT"), "meant");
    let help = home.run("transit-worker", ["source", "create", "--help"], b"");
    assert!(!text(&help.stdout).contains("TRANSIT_SECRET"), "{}", text(&help.stdout));
}

#[test]
fn instructions_are_as_long_as_an_agent_wants_to_read() {
    let home = Home::new();
    let create = |name: &str, length: usize| {
        let instructions = "ü".repeat(length);
        home.run(
            "transit-worker",
            ["source", "create", name, "--target", "a@b", "--instructions", &instructions],
            b"",
        )
    };
    assert!(create("one", 1_000).status.success());
    refused(&create("two", 1_001), 65, "1001 characters; 1000 are allowed", "finds the rest");
    let long = "x".repeat(100_000);
    let update = home.run("transit-worker", ["source", "update", "one", "--instructions", &long], b"");
    refused(&update, 65, "100000 characters", "finds the rest");
}

#[test]
fn a_very_long_argument_is_not_said_back_whole() {
    let home = Home::new();
    run(&home, "migrate");
    let long = "x".repeat(100_000);
    for args in [
        vec!["source", "create", &long, "--target", "a@b"],
        vec!["source", "create", "x", "--target", &long],
        vec!["org", "list", "--database", &long],
        vec!["source", "list", "--org", &long],
        vec!["serve", "--listen", &long],
        vec![&long],
    ] {
        let output = home.run("transit-worker", &args, b"");
        let words = text(&output.stderr);
        assert!(!output.status.success() && words.len() < 5_000, "{} bytes", words.len());
        assert!(words.starts_with("transit-worker: "), "{}", &words[..100]);
    }
}

#[test]
fn a_copy_goes_to_a_file_and_no_window_is_no_time() {
    let home = Home::new();
    run(&home, "migrate");
    refused(&run(&home, "backup -"), 2, "a stream cannot be", "backup worker.copy");
    assert!(!home.path("-").exists());
    assert!(run(&home, "backup ./-").status.success(), "a file may be called that");
    refused(
        &run(&home, "serve --listen 127.0.0.1:0 --loop-window 0s"),
        2,
        "a limit of 0 turns the guard off",
        "--help",
    );
}

#[test]
fn what_is_not_there_or_there_already_comes_with_a_way_out() {
    let home = Home::new();
    run(&home, "source create ci --target a@b");
    run(&home, "room create ops");
    for (args, code, why, way_out) in [
        ("source create ci --target a@b", 65, "exists already", "source update"),
        ("source pause cd", 67, "no source cd", "source list"),
        ("room create ops", 65, "exists already", "room update"),
        ("room delete den", 67, "no such room: #den", "room list"),
        ("host revoke titan", 67, "no host titan", "host list"),
        ("delivery show dlv_00000000000a", 1, "no delivery", "delivery list"),
        ("message show tx_00000000000a", 1, "no message", "message list"),
        ("source create gmail --target a@b", 65, "built-in", "another name"),
    ] {
        refused(&run(&home, args), code, why, way_out);
    }
}
