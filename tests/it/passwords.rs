//! A password in a URL is not echoed, wherever the URL is given and whatever is wrong with it.

use crate::support::{Home, text};

const PASSWORD: &str = "pa55w0rd";

/// Every place where a URL is given, with the exit that follows.
const CASES: &[(&str, &[&str], i32)] = &[
    ("transit-worker", &["serve", "--public-url", "http://u:pa55w0rd@h"], 2),
    ("transit-worker", &["serve", "--public-url", "u:pa55w0rd@h"], 2),
    ("transit-worker", &["serve", "http://u:pa55w0rd@h"], 2),
    ("transit-worker", &["--database", "postgres://u:pa55w0rd@h/db", "source", "list"], 78),
    ("transit-worker", &["source", "list", "--public-url", "ftp://u:pa55w0rd@h"], 2),
    (
        "transit-worker",
        &["source", "create", "ci", "--target", "b@h", "--reply-url", "http://u:pa55w0rd@h"],
        65,
    ),
    (
        "transit-worker",
        &["source", "create", "ci", "--target", "b@h", "--reply-url-prefix", "http://u:pa55w0rd@h/"],
        65,
    ),
    ("transitd", &["enroll", "--code", "ABCD-EFGH", "--url", "http://u:pa55w0rd@h"], 2),
    ("transitd", &["enroll", "--code", "ABCD-EFGH", "--url", "http://u:pa55/pa55w0rd@h"], 2),
    ("transitd", &["enroll", "--code", "ABCD-EFGH", "--url", "http://u:pa55 pa55w0rd@h"], 2),
    ("transitd", &["enroll", "--code", "ABCD-EFGH", "--url", "u:pa55w0rd@h"], 2),
    ("transitd", &["quickstart", "http://u:pa55w0rd@h"], 2),
    ("transit-send", &["http://u:pa55w0rd@h/ingest/ci", "--conversation", "c", "-m", "x"], 2),
    ("transit-send", &["u:pa55w0rd@h/ingest/ci", "--conversation", "c", "-m", "x"], 65),
    ("transit-agent", &["listen", "--name", "http://u:pa55w0rd@h"], 65),
];

/// That `output` ended with `exit`, said something, and told no password.
fn check(output: &std::process::Output, exit: i32, what: &str) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(exit), "{what}: {err}");
    assert!(!err.is_empty() && !out.contains(PASSWORD) && !err.contains(PASSWORD), "{what}: {out}{err}");
}

#[test]
fn no_command_echoes_the_password_of_a_url() {
    for (program, args, exit) in CASES {
        let home = Home::new();
        let output = home.command(program).args(*args).env("TRANSIT_SECRET", "s").output().unwrap();
        check(&output, *exit, &format!("{program} {args:?}"));
    }
}

#[test]
fn no_help_shows_the_url_of_the_environment() {
    let home = Home::new();
    let mut help = home.command("transitd");
    let output = help.args(["enroll", "--help"]).env("TRANSIT_URL", "http://u:pa55w0rd@h").output().unwrap();
    assert!(text(&output.stdout).contains("TRANSIT_URL") && !text(&output.stdout).contains(PASSWORD));
}

#[test]
fn a_password_in_the_configuration_is_not_told() {
    let home = Home::new();
    std::fs::create_dir(home.data()).unwrap();
    home.file("data/token", "t");
    home.file("secret", "s");
    home.file(
        "config.json",
        r#"{"url":"http://u:pa55w0rd@h","host":"demo",
            "sources":{"ci":{"url":"http://u:pa55w0rd@h/ingest/ci","secret_file":"secret"}}}"#,
    );
    check(&home.run("transitd", ["run"], b""), 78, "run");
    check(&home.run("transit-send", ["ci", "--conversation", "c", "-m", "x"], b""), 78, "send");
}

#[test]
fn the_password_of_a_proxy_is_not_told() {
    for (proxy, exit) in [
        ("http://u:pa55w0rd@127.0.0.1:1", 69),
        ("http://u:pa55w0rd@127.0.0.1:none", 69),
        ("socks5://u:pa55w0rd@127.0.0.1:1", 69),
        ("http://u:pa55 pa55w0rd@127.0.0.1:1", 69),
    ] {
        let home = Home::new();
        let mut enrol = home.command("transitd");
        enrol.args(["enroll", "--code", "ABCD-EFGH", "--url", "http://worker.test"]).env("HTTP_PROXY", proxy);
        check(&enrol.output().unwrap(), exit, proxy);
    }
}
