//! The secret: which bytes of a file or a variable it is, and what is none.

use serde_json::Value;
use transit::proto::ingest::Signer;
use transit::secret::Secret;

use super::{PROGRAM, Server, code, home};
use crate::support::text;

#[test]
fn one_newline_is_dropped_and_what_looks_like_a_mistake_is_warned_of() {
    let home = home();
    for (content, secret, warned) in [
        ("s3cret", "s3cret", false),
        ("s3cret\n", "s3cret", false),
        ("s3cret\r\n", "s3cret", false),
        ("s3cret\n\n", "s3cret\n", true),
        ("s3cret ", "s3cret ", true),
        (" s3cret\n", " s3cret", true),
        ("\u{feff}s3cret\n", "\u{feff}s3cret", true),
    ] {
        home.file("k", content);
        for from_file in [true, false] {
            let server = Server::status("202 Accepted");
            let mut command = home.command(PROGRAM);
            command.args([&server.url(), "--conversation", "c", "-m", "hi"]);
            if from_file {
                command.args(["--secret-file", "k"]);
            } else {
                command.env("TRANSIT_SECRET", content);
            }
            let output = command.output().unwrap();
            assert_eq!(code(&output), 0, "{content:?}: {}", text(&output.stderr));
            assert_eq!(
                text(&output.stderr).contains("warning"),
                warned,
                "{content:?}: {}",
                text(&output.stderr)
            );
            assert!(!text(&output.stderr).contains("s3cret"));
            let (head, body) = server.request();
            let field = |name: &str| {
                let fields = head.lines().filter_map(|line| line.split_once(": "));
                fields.clone().find(|(n, _)| n.eq_ignore_ascii_case(name)).unwrap().1.to_owned()
            };
            let signer = Signer::new(&Secret::new(secret).unwrap());
            let verifies = signer.verify(&field("Transit-Timestamp"), &body, &field("Transit-Signature"));
            assert!(verifies, "{content:?}");
        }
    }
}

#[test]
fn without_a_secret_there_is_no_signature_and_nothing_is_kept() {
    let home = home();
    let server = Server::status("202 Accepted");
    for content in ["", "\n", "\r\n"] {
        home.file("k", content);
        for (options, variable) in [(&["--secret-file", "k"][..], None), (&[], Some(content))] {
            for more in [&[][..], &["--dry-run"], &["--spool-only"], &["--no-spool"]] {
                let mut command = home.command(PROGRAM);
                command.args([&server.url(), "--conversation", "c", "-m", "hi"]).args(options).args(more);
                command.envs(variable.map(|content| ("TRANSIT_SECRET", content)));
                let output = command.output().unwrap();
                assert_eq!((code(&output), text(&output.stdout)), (78, ""), "{content:?} {more:?}");
                assert!(text(&output.stderr).contains("empty"), "{}", text(&output.stderr));
            }
        }
    }
    assert_eq!(server.requests.try_iter().count(), 0);
    assert!(!home.data().exists());
}

#[test]
fn a_secret_that_others_can_read_is_warned_of_and_never_shown() {
    use std::os::unix::fs::PermissionsExt;
    let home = home();
    let path = home.file("k", "s3cret-of-mine");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let server = Server::status("401 Who");
    let usual = [&server.url(), "--secret-file", "k", "--conversation", "c", "-m", "hi"];
    for more in [&["--json"][..], &["--dry-run"], &["--dry-run", "--json"], &["--spool-only", "-vv"]] {
        let output = home.run(PROGRAM, usual.iter().chain(more), b"");
        assert!(
            text(&output.stderr).contains("others can read the secret file k"),
            "{}",
            text(&output.stderr)
        );
        assert!(!format!("{output:?}").contains("s3cret-of-mine"), "{more:?}");
    }
}

#[test]
fn a_secret_that_is_gone_later_lets_the_entry_wait_and_say_so() {
    let home = home();
    let secret = home.file("later", "s3cret");
    let usual = ["http://127.0.0.1:1/ingest/ci", "--secret-file", "later", "--conversation", "c", "-m", "hi"];
    let output = home.run(PROGRAM, usual.iter().chain(&["--spool-only", "--json"]), b"");
    assert_eq!(code(&output), 0);
    let id = serde_json::from_slice::<Value>(&output.stdout).unwrap()["id"].as_str().unwrap().to_owned();
    std::fs::remove_file(secret).unwrap();
    let ready = home.path("ready");
    let mut daemon = home.command("transitd");
    let mut daemon = crate::support::Background::start(daemon.args(["run", "--ready-file"]).arg(&ready));
    daemon.ready(&ready);
    let entry = crate::support::eventually(|| {
        Some(super::status(&home, &id)).filter(|entry| entry["attempts"].as_u64() > Some(0))
    });
    assert_eq!(entry["state"], "pending");
    assert!(entry["error"].as_str().unwrap().contains("later: No such file"), "{entry}");
}
