//! What the operator of a Worker does: every command beside `serve`, on a database of its own.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use serde_json::Value;

use crate::support::{Home, text};

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_KEY: &str = "BAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn run(home: &Home, args: &str) -> Output {
    home.run("transit-worker", args.split_whitespace(), b"")
}

/// Runs it with variables of its environment set.
fn run_with(home: &Home, variables: &[(&str, &str)], args: &str) -> Output {
    let mut command = home.command("transit-worker");
    command.envs(variables.iter().copied()).args(args.split_whitespace()).output().unwrap()
}

fn good(output: &Output) -> &str {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn json(home: &Home, args: &str) -> Value {
    serde_json::from_str(good(&run(home, &format!("{args} --json")))).unwrap()
}

fn json_lines(home: &Home, args: &str) -> Vec<Value> {
    let output = run(home, &format!("{args} --json"));
    good(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Nothing on stdout, this exit code, and a first line on stderr that holds `said`.
#[track_caller]
fn refused(output: &Output, code: i32, said: &str) {
    let line = text(&output.stderr).lines().next().unwrap_or_default();
    assert_eq!(output.status.code(), Some(code), "{line}");
    assert_eq!(text(&output.stdout), "");
    assert!(line.starts_with("transit-worker: ") && line.contains(said), "{line}");
}

#[test]
fn a_fresh_database_is_private_and_holds_one_organisation() {
    let home = Home::new();
    assert!(good(&run(&home, "migrate")).contains("is up to date"));
    let again = json(&home, "migrate");
    assert_eq!(again["database"], home.data().join("worker.db").to_str().unwrap());
    assert!(again["schema"].as_u64().unwrap() >= 2);
    let orgs = json_lines(&home, "org list");
    assert_eq!((orgs.len(), &orgs[0]["slug"]), (1, &"default".into()));
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.data()), 0o700);
    assert_eq!(mode(home.data().join("worker.db")), 0o600);
}

#[test]
fn the_database_is_the_one_that_is_named() {
    let home = Home::new();
    let (option, variable) = (home.path("a.db"), home.path("b.db"));
    good(&run(&home, &format!("migrate --database sqlite:{}", option.display())));
    let named = format!("sqlite:{}", variable.display());
    good(&run_with(&home, &[("TRANSIT_DATABASE", &named)], "migrate"));
    assert!(option.exists() && variable.exists() && !home.data().exists());
    let empty = run_with(&home, &[("TRANSIT_DATABASE", "")], "migrate");
    assert!(good(&empty).contains("worker.db"));
}

#[test]
fn organisations_are_made_and_chosen_when_there_are_several() {
    let home = Home::new();
    let made = home.run("transit-worker", ["org", "create", "Acme & Co", "--json"], b"");
    let made: Value = serde_json::from_str(good(&made)).unwrap();
    assert_eq!((&made["org"]["slug"], &made["org"]["name"]), (&"acme-co".into(), &"Acme & Co".into()));
    let id = made["org"]["id"].as_str().unwrap();
    assert!(id.starts_with("org_"));
    let said = run(&home, "org create Acme --slug acme");
    assert!(good(&said).starts_with("Organisation acme ("), "{said:?}");
    refused(&run(&home, "org create Acme --slug acme"), 65, "exists already");
    refused(&run(&home, "org create Acme --slug A_b"), 65, "does not match");
    refused(&home.run("transit-worker", ["org", "create", " "], b""), 65, "1 to 200 characters");

    let several = run(&home, "host list");
    refused(&several, 2, "there are several");
    assert!(text(&several.stderr).contains("--org: acme, acme-co, default"));
    refused(&run(&home, "host list --org other"), 67, "no organisation other");
    assert_eq!(good(&run(&home, &format!("host list --org {id}"))), "");
    assert!(good(&run(&home, "org list")).contains("acme-co  Acme & Co"));
}

#[test]
fn a_host_gets_a_code_and_the_command_that_uses_it() {
    let home = Home::new();
    let enrolled = run(&home, "host enroll titan");
    assert!(text(&enrolled.stderr).contains("--public-url"), "the address was not told");
    assert!(good(&enrolled).contains("    transitd enroll --url http://127.0.0.1:8787 --code "));

    let told = json(&home, "host enroll titan --public-url https://t.example/");
    let code = told["code"].as_str().unwrap();
    assert_eq!(told["command"], format!("transitd enroll --url https://t.example --code {code}"));
    assert!(told["expires_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!((code.len(), &code[4..5]), (9, "-"));

    refused(&run(&home, "host enroll Titan"), 65, "does not match");
    refused(&run(&home, "host enroll transit"), 65, "reserved");
    assert_eq!(run(&home, "host enroll titan --public-url t.example").status.code(), Some(2));
    assert_eq!(json_lines(&home, "host list").len(), 0, "a host is there when it has used its code");
    refused(&run(&home, "host revoke titan"), 67, "no host titan");
}

#[test]
fn an_enrolled_host_is_listed_revoked_and_let_in_again() {
    use transit::clock::Wall;
    use transit::store::ledger::{Db, Tx, credentials, directory};
    let home = Home::new();
    let enroll = || {
        let code = json(&home, "host enroll titan")["code"].as_str().unwrap().to_owned();
        let db = Db::open(&home.data().join("worker.db")).unwrap();
        let redeem = move |tx: &Tx<'_>| {
            directory::redeem_code(tx, &credentials::code_hash(&code), &code, "1.0", Wall(0))
        };
        db.write(redeem).unwrap().unwrap().host_id
    };
    let id = enroll();
    let listed = json_lines(&home, "host list").remove(0);
    assert_eq!((&listed["slug"], &listed["state"]), (&"titan".into(), &"enrolled".into()));
    refused(&run(&home, "host enroll titan"), 65, "enrolled already");
    assert_eq!(json(&home, "host revoke titan")["host"]["state"], "revoked");
    assert!(good(&run(&home, "host revoke titan")).contains("titan is revoked"));
    assert!(good(&run(&home, "host list")).contains("revoked"));
    assert_eq!(enroll(), id);
}

#[test]
fn a_source_is_made_with_a_fresh_secret_or_the_operators_own() {
    let home = Home::new();
    let made = json(&home, "source create ci --target bob@demo --reply-url-prefix https://ci.example/in/");
    assert_eq!((&made["source"]["name"], &made["source"]["target_addr"]), (&"ci".into(), &"bob@demo".into()));
    assert_eq!(made["source"]["endpoint"], "http://127.0.0.1:8787/ingest/ci");
    assert!(made["source"]["integration_id"].as_str().unwrap().starts_with("int_"));
    assert_eq!(made["secret"].as_str().unwrap().len(), 43);

    let file = home.file("secret", "my own\n");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let own =
        run(&home, "source create own --target eve@demo --secret-file secret --rate 100000 --burst 100000");
    assert!(!good(&own).contains("my own") && !text(&own.stderr).contains("warning"), "{own:?}");
    let env =
        run_with(&home, &[("S", "theirs")], "source create env --target eve@demo --secret-env S --json");
    assert_eq!(serde_json::from_str::<Value>(good(&env)).unwrap()["secret"], "theirs");

    let fresh = run(&home, "source create text --target eve@demo --public-url https://t.example");
    let shown = good(&fresh);
    assert!(shown.contains("https://t.example/ingest/text") && shown.contains("--secret-file text.secret"));
    let names: Vec<_> = json_lines(&home, "source list").iter().map(|row| row["name"].clone()).collect();
    assert_eq!(names, ["ci", "env", "own", "text"]);
    let key = home.data().join("worker.db.key");
    assert_eq!(std::fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_source_keeps_the_rules_of_its_protocol() {
    let home = Home::new();
    good(&run(&home, "source create ci --target bob@demo"));
    for (args, said) in [
        ("ci --target bob@demo", "exists already"),
        ("Ci --target bob@demo", "does not match"),
        ("gmail --target bob@demo", "built-in connector"),
        ("x --target bob", "neither name@host nor #room"),
        ("x --target operator@demo", "reserved"),
        ("x --target bob@demo --reply-url https://a.example/x", "no prefix"),
        ("x --target bob@demo --reply-url-prefix https://a.example", "ends in /"),
        ("x --target bob@demo --reply-url-prefix ftp://a.example/", "http"),
    ] {
        refused(&run(&home, &format!("source create {args}")), 65, said);
    }
    let lines = ["source", "create", "x", "--target", "a@b", "--instructions", "one\ntwo"];
    refused(&home.run("transit-worker", lines, b""), 65, "one line");
    for args in ["x", "x --target a@b --rate 0", "x --target a@b --burst many", "--target a@b"] {
        assert_eq!(run(&home, &format!("source create {args}")).status.code(), Some(2), "{args}");
    }
    refused(&run(&home, "source create x --target a@b --secret-file none"), 66, "secret");
    home.file("empty", "\n");
    refused(&run(&home, "source create x --target a@b --secret-file empty"), 78, "empty");
    assert_eq!(json_lines(&home, "source list").len(), 1);
}

#[test]
fn a_source_is_updated_rotated_paused_and_deleted() {
    let home = Home::new();
    let made = json(&home, "source create ci --target bob@demo --reply-url-prefix https://a.example/");
    let update = |args: &str| json(&home, &format!("source update ci {args}"))["source"].clone();
    let row = update("--reply-url https://a.example/x --rate 9");
    assert_eq!((&row["rate"], &row["burst"]), (&9.into(), &20.into()));
    refused(&run(&home, "source update ci --reply-url-prefix https://b.example/"), 65, "no prefix");
    let row = update("--reply-url-prefix https://b.example/ --no-reply-url --target eve@demo");
    assert_eq!(row["reply_url"], Value::Null);
    assert_eq!(
        (&row["reply_url_prefixes"][0], &row["target_addr"]),
        (&"https://b.example/".into(), &"eve@demo".into())
    );
    refused(&run(&home, "source update ci --target #ops"), 67, "no such room: #ops");
    refused(&run(&home, "source create cd --target #ops"), 67, "no such room: #ops");
    assert_eq!(update("--no-reply-url-prefix")["reply_url_prefixes"], Value::Array(vec![]));
    assert_eq!(update("--instructions Briefly.")["instructions"], "Briefly.");

    let rotated = json(&home, "source rotate ci --overlap 1h");
    assert_ne!(rotated["secret"], made["secret"]);
    assert_eq!(rotated["source"]["integration_id"], made["source"]["integration_id"]);
    assert!(rotated["old_secret_valid_until"].is_string());
    assert!(good(&run(&home, "source rotate ci")).contains("The old secret is valid until "));
    assert_eq!(run(&home, "source rotate ci --overlap soon").status.code(), Some(2));

    assert_eq!(json(&home, "source pause ci")["source"]["paused"], true);
    assert!(good(&run(&home, "source list")).contains("paused"));
    assert!(good(&run(&home, "source pause ci")).contains("404"));
    assert_eq!(json(&home, "source resume ci")["source"]["paused"], false);
    assert!(good(&run(&home, "source resume ci")).contains("takes events"));
    assert_eq!(json(&home, "source delete ci")["deleted"]["name"], "ci");
    for verb in ["update", "rotate", "pause", "resume", "delete"] {
        refused(&run(&home, &format!("source {verb} ci")), 67, "no source ci");
        refused(&run(&home, &format!("source {verb} C")), 65, "does not match");
    }
}

#[test]
fn one_organisation_does_not_reach_what_is_anothers() {
    let home = Home::new();
    good(&run(&home, "org create Other"));
    good(&run(&home, "source create ci --target bob@demo --org default"));
    assert_eq!(json_lines(&home, "source list --org other").len(), 0);
    for verb in ["update", "rotate", "pause", "resume", "delete"] {
        refused(&run(&home, &format!("source {verb} ci --org other")), 67, "no source ci");
    }
    good(&run(&home, "source create ci --target bob@demo --org other"));
}

#[test]
fn a_wrong_master_key_is_told_before_anything_is_sealed_under_it() {
    let home = Home::new();
    good(&run(&home, "migrate"));
    let with = |key, args| run_with(&home, &[("TRANSIT_MASTER_KEY", key)], args);
    for key in ["", "c2hvcnQ=", "not base64"] {
        refused(&with(key, "source create ci --target a@b"), 78, "32 bytes");
    }
    good(&with(KEY, "source create ci --target a@b"));
    assert!(!home.data().join("worker.db.key").exists());
    refused(&with(OTHER_KEY, "source create cd --target a@b"), 78, "master key");
    refused(&with(OTHER_KEY, "source rotate ci"), 78, "master key");
    refused(&run(&home, "source rotate ci"), 78, "master key");
    assert!(
        !home.data().join("worker.db.key").exists(),
        "another key in the place of a lost one opens nothing"
    );
    good(&with(OTHER_KEY, "source list"));
    std::fs::write(home.data().join("worker.db.key"), "rubbish").unwrap();
    refused(&run(&home, "source rotate ci"), 78, "32 bytes");
}

#[test]
fn who_has_lost_the_master_key_gives_each_source_a_new_secret() {
    let home = Home::new();
    let key = home.data().join("worker.db.key");
    for name in ["ci", "cd"] {
        good(&run(&home, &format!("source create {name} --target a@b")));
    }
    std::fs::remove_file(&key).unwrap();
    for args in ["source rotate ci", "source create ce --target a@b", "serve --listen 127.0.0.1:0"] {
        let output = run(&home, args);
        refused(&output, 78, "is not there, and secrets are stored under it");
        assert!(text(&output.stderr).contains("source rotate NAME --lost-key"), "{args}");
        assert!(!key.exists(), "{args}");
    }
    assert_eq!(run(&home, "source rotate ci --lost-key --overlap 1h").status.code(), Some(2));
    for name in ["ci", "cd"] {
        good(&run(&home, &format!("source rotate {name} --lost-key")));
    }
    good(&run(&home, "source create ce --target a@b"));
    let found = json_lines(&home, "doctor");
    assert!(found.iter().any(|it| it["check"] == "key" && it["level"] == "ok"), "{found:?}");
}

#[test]
fn messages_that_are_none_are_told_and_lists_are_narrowed() {
    let home = Home::new();
    assert_eq!(json_lines(&home, "message list").len(), 0);
    assert_eq!(json_lines(&home, "message list --state dead --room ops --limit 5").len(), 0);
    assert_eq!(json_lines(&home, "message list --room #ops").len(), 0);
    for verb in ["show", "requeue", "cancel"] {
        refused(&run(&home, &format!("message {verb} tx_000000000001")), 1, "no message tx_000000000001");
    }
    refused(&run(&home, "message list --room No!"), 65, "does not match");
    for args in ["list --state lost", "list --limit 0", "show", "cancel"] {
        assert_eq!(run(&home, &format!("message {args}")).status.code(), Some(2), "{args}");
    }
}

#[test]
fn a_user_is_made_with_a_password_of_a_file_or_one_that_is_told_once() {
    let home = Home::new();
    let file = home.file("password", "correct horse\n");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let made = json(&home, "user create --email Ada@Example.org --name Ada --password-file password");
    let id = made["user"]["id"].as_str().unwrap();
    assert_eq!((&made["user"]["email"], &made["org"]["id"]), (&"ada@example.org".into(), &id.into()));
    assert!(made.get("password").is_none(), "the operator has it");
    let org = json_lines(&home, "org list").into_iter().find(|org| org["id"] == id).unwrap();
    assert_eq!((&org["slug"], &org["name"]), (&"ada".into(), &"Ada".into()));

    let fresh = json(&home, "user create --email bo@example.org --name Bo");
    assert_eq!(fresh["password"].as_str().unwrap().len(), 43);
    let told = run(&home, "user create --email cy@example.org --name Cy");
    assert!(good(&told).contains("password  ") && good(&told).contains("not shown again"));
    let listed = json_lines(&home, "user list");
    assert_eq!(listed.iter().map(|user| &user["name"]).collect::<Vec<_>>(), ["Ada", "Bo", "Cy"]);
    assert!(good(&run(&home, "user list")).contains("ada@example.org  Ada"));

    refused(&run(&home, "user create --email ADA@example.org --name A"), 65, "exists already");
    refused(&run(&home, "user create --email ada --name A"), 65, "no address");
    refused(
        &home.run("transit-worker", ["user", "create", "--email", "d@x", "--name", " "], b""),
        65,
        "1 to 200",
    );
    home.file("short", "1234567\n");
    refused(&run(&home, "user create --email d@x --name D --password-file short"), 65, "8 to 128 characters");
    refused(&run(&home, "user create --email d@x --name D --password-file none"), 66, "secret");
    assert_eq!(run(&home, "user create --email d@x").status.code(), Some(2));
    assert_eq!(json_lines(&home, "user list").len(), 3);
}

#[test]
fn a_database_that_cannot_be_used_is_told_for_what_it_is() {
    let home = Home::new();
    for url in ["postgres://me:s3cret@h/db", "postgresql://h/db"] {
        let output = run(&home, &format!("org list --database {url}"));
        refused(&output, 78, "this build knows sqlite");
        assert!(!text(&output.stderr).contains("s3cret"));
    }
    refused(&run(&home, "org list --database mysql://h/db"), 78, "no such kind");
    refused(&run(&home, "org list --database sqlite::memory:"), 78, "needs a file");

    home.file("garbage.db", "this is no database, whatever its name says ".repeat(200));
    refused(&run(&home, "org list --database garbage.db"), 74, "damaged or no database");
    assert!(std::fs::read(home.path("garbage.db")).unwrap().starts_with(b"this is no database"));

    refused(&run(&home, "org list --database ."), 73, "not a file");
    refused(&run(&home, "org list --database garbage.db/below.db"), 73, "garbage.db");
}

#[test]
fn a_ledger_of_a_newer_version_and_one_that_lost_pages_are_refused() {
    let home = Home::new();
    good(&run(&home, "migrate --database w.db"));
    let whole = std::fs::read(home.path("w.db")).unwrap();
    let mut newer = whole.clone();
    // user_version, a big-endian number at this place of SQLite's file header.
    newer[60..64].copy_from_slice(&900_u32.to_be_bytes());
    home.file("newer.db", newer);
    refused(&run(&home, "org list --database newer.db"), 78, "newer version (schema 900");
    let mut foreign = whole.clone();
    foreign[68..72].copy_from_slice(&7_u32.to_be_bytes());
    home.file("foreign.db", foreign);
    refused(&run(&home, "org list --database foreign.db"), 74, "another program");
    home.file("cut.db", &whole[..whole.len() / 4]);
    refused(&run(&home, "org list --database cut.db"), 74, "damaged");
}

#[test]
fn a_directory_that_cannot_be_written_is_told() {
    let home = Home::new();
    let dir = home.path("closed");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o500)).unwrap();
    if std::fs::write(dir.join("probe"), "").is_ok() {
        // Root writes everywhere but to the kernel's own tree.
        refused(&run(&home, "migrate --database /proc/w.db"), 73, "/proc/w.db");
    } else {
        refused(&run(&home, "migrate --database closed/w.db"), 73, "closed/w.db");
    }
}

#[test]
fn deliveries_are_listed_shown_and_settled_by_their_ids() {
    let home = Home::new();
    assert_eq!(good(&run(&home, "delivery list")), "");
    assert_eq!(run(&home, "delivery list --state lost").status.code(), Some(2));
    for verb in ["show", "requeue", "handle"] {
        refused(&run(&home, &format!("delivery {verb} dlv_000000000000")), 1, "no delivery dlv_000000000000");
    }
}

#[test]
fn a_command_waits_its_turn_beside_a_server_that_is_at_work() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use transit::store::ledger::{Db, directory};
    let home = Home::new();
    good(&run(&home, "migrate"));
    let db = Db::open(&home.data().join("worker.db")).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                db.write(|tx| directory::set_public_url(tx, "https://t.example")).unwrap();
            }
        });
        for n in 0..5 {
            let name = format!("source create s{n} --target a@b");
            let output = run(&home, &name);
            done.fetch_or(!output.status.success(), Ordering::Relaxed);
            good(&output);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(json_lines(&home, "source list")[4]["endpoint"], "https://t.example/ingest/s4");
}

#[test]
fn wrong_options_and_missing_commands_are_usage() {
    let home = Home::new();
    for args in ["", "org", "host", "source", "delivery", "fly", "org list --nonsense", "host enroll"] {
        let output = run(&home, args);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{args}");
    }
    assert!(!home.data().exists(), "nothing was made");
}
