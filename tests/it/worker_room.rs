//! `transit-worker room`: every option, every exit code, on a database of its own.

use std::process::Output;

use serde_json::{Value, json};

use crate::support::{Home, text};
use transit::clock::Wall;
use transit::proto::wire::{AgentInfo, NamedBy};
use transit::store::ledger::{Db, credentials, directory, roster};

fn run(home: &Home, args: &str) -> Output {
    home.run("transit-worker", args.split_whitespace(), b"")
}

fn good(output: &Output) -> &str {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The records that a command prints.
fn records(home: &Home, args: &str) -> Vec<Value> {
    let output = run(home, &format!("{args} --json"));
    good(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Nothing on stdout, this exit code, and a first line on stderr that holds `said`.
#[track_caller]
fn refused(output: &Output, code: i32, said: &str) {
    let line = text(&output.stderr).lines().next().unwrap_or_default();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), ""), "{line}");
    assert!(line.starts_with("transit-worker: ") && line.contains(said), "{line}");
}

/// A database with the host `beta`, whose agents are these.
fn with_agents(names: &[&str]) -> Home {
    let home = Home::new();
    good(&run(&home, "migrate"));
    let info = |name: &&str| AgentInfo {
        name: (*name).into(),
        kind: "program".into(),
        pane_id: String::new(),
        status: "idle".into(),
        cwd: "/".into(),
        title: String::new(),
        named_by: NamedBy::User,
    };
    let agents: Vec<AgentInfo> = names.iter().map(info).collect();
    let db = Db::open(&home.data().join("worker.db")).unwrap();
    db.write(move |tx| {
        let (org, now) = (directory::default_org(tx)?.id, Wall(1_700_000_000_000));
        let code = credentials::code_hash("ABCD-EFGH");
        directory::issue_code(tx, &org, &"beta".parse().unwrap(), &code, now)?;
        directory::redeem_code(tx, &code, "hash", "1", now)?.unwrap();
        roster::replace(tx, &org, "beta", &agents, now)
    })
    .unwrap();
    home
}

#[test]
fn a_room_is_made_changed_shown_and_deleted() {
    let home = Home::new();
    let made = records(&home, "room create ops --policy invite --loop-limit 7").remove(0);
    let room = &made["room"];
    assert_eq!(
        (&room["name"], &room["policy"], &room["loop_limit"]),
        (&json!("ops"), &json!("invite"), &json!(7))
    );
    assert_eq!(room["members"], 0);
    assert!(good(&run(&home, "room create #lab")).contains("Room #lab is there. Any agent may join it."));
    refused(&run(&home, "room create ops"), 65, "a room #ops exists already");
    refused(&run(&home, "room create Ops"), 65, "does not match");
    refused(&run(&home, "room create operator"), 65, "reserved");
    assert_eq!(run(&home, "room create x --policy closed").status.code(), Some(2));
    assert_eq!(run(&home, "room create x --loop-limit -1").status.code(), Some(2));

    let listed = records(&home, "room list");
    assert_eq!(listed.iter().map(|room| &room["name"]).collect::<Vec<_>>(), ["lab", "ops"]);
    assert!(good(&run(&home, "room list")).starts_with("#lab "));
    let update = |args: &str| records(&home, &format!("room update ops {args}")).remove(0)["room"].clone();
    assert_eq!(update("--policy open")["loop_limit"], 7, "what is not named stays");
    assert_eq!((&update("--loop-limit 0")["loop_limit"], &update("")["policy"]), (&json!(0), &json!("open")));
    assert_eq!(update("--no-loop-limit")["loop_limit"], json!(null));
    assert_eq!(run(&home, "room update ops --loop-limit 1 --no-loop-limit").status.code(), Some(2));
    let shown = records(&home, "room show ops").remove(0);
    assert_eq!((&shown["members"], &shown["last_seq"]), (&json!([]), &json!(0)));
    assert!(good(&run(&home, "room show #ops")).contains("loop guard  as the server's"));

    good(&run(&home, "room delete ops"));
    for args in [
        "delete ops",
        "show ops",
        "update ops",
        "history ops",
        "post ops -m x",
        "add ops a@b",
        "remove ops a@b",
    ] {
        refused(&run(&home, &format!("room {args}")), 67, "no such room: #ops");
    }
    assert_eq!(run(&home, "room").status.code(), Some(2));
}

#[test]
fn who_is_in_a_room_is_the_operator_s_to_say() {
    let home = with_agents(&["bob", "cat"]);
    good(&run(&home, "room create ops --policy invite"));
    for agent in ["bob@beta", "cat@beta", "cat@beta"] {
        let added = records(&home, &format!("room add ops {agent}")).remove(0);
        assert_eq!(added["member"], agent);
    }
    let members = |home: &Home| {
        let shown = records(home, "room show ops").remove(0);
        let members = shown["members"].as_array().unwrap().iter();
        members.map(|member| member["agent"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(members(&home), ["bob@beta", "cat@beta"]);
    let unknown = run(&home, "room add ops eve@beta");
    refused(&unknown, 67, "no agent eve@beta");
    assert!(text(&unknown.stderr).contains("transit-worker host list"));
    refused(&run(&home, "room add ops bob@gone"), 67, "no agent bob@gone");
    refused(&run(&home, "room add ops bob"), 65, "neither name@host nor #room");
    refused(&run(&home, "room add ops operator@transit"), 65, "reserved");
    for _ in 0..2 {
        good(&run(&home, "room remove ops bob@beta"));
    }
    assert_eq!(members(&home), ["cat@beta"]);
    good(&run(&home, "host revoke beta"));
    assert!(good(&run(&home, "room show ops")).contains("cannot be written to"));
}

#[test]
fn what_is_said_is_kept_in_order() {
    let home = with_agents(&["bob"]);
    good(&run(&home, "room create ops"));
    good(&run(&home, "room add ops bob@beta"));
    assert_eq!(good(&run(&home, "room history ops")), "");
    let post = |args: &[&str], input: &[u8]| {
        let output = home.run("transit-worker", [&["room", "post", "ops", "--json"], args].concat(), input);
        serde_json::from_str::<Value>(good(&output)).unwrap()["message"].clone()
    };
    let first = post(&["-m", "one\u{1b}[31m"], b"");
    assert_eq!((&first["seq"], &first["from"]), (&json!(1), &json!("operator@transit")));
    home.file("two.txt", "two\nlines\n");
    let id = first["id"].as_str().unwrap();
    let second = post(&["two.txt", "--reply-to", id], b"");
    assert_eq!((&second["body"], &second["reply_to"]), (&json!("two\nlines\n"), &json!(id)));
    assert_eq!(post(&["-"], b"three")["seq"], 3);
    assert_eq!(post(&[], b"four")["body"], "four");
    let numbers = |args: &str| {
        records(&home, args).iter().map(|post| post["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(numbers("room history ops"), [1, 2, 3, 4]);
    assert_eq!(numbers("room history ops --limit 2"), [3, 4]);
    let told = run(&home, "room history ops");
    let told = good(&told);
    assert!(told.contains("    two\n    lines\n") && !told.contains('\u{1b}'), "{told}");

    let refuse = |args: &[&str], input: &[u8], code: i32, said: &str| {
        refused(&home.run("transit-worker", [&["room", "post", "ops"], args].concat(), input), code, said);
    };
    refuse(&["-m", ""], b"", 65, "it is empty");
    refuse(&[], b"\xff", 65, "not UTF-8 at byte 0");
    refuse(&[], &[b'x'; 65_537], 65, "at most 65536 bytes");
    refuse(&["none.txt"], b"", 66, "none.txt");
    refuse(&["-m", "x", "--reply-to", "the last"], b"", 65, "it is no id");
    refuse(&["-m", "x", "two.txt"], b"", 2, "");
    assert_eq!(numbers("room history ops"), [1, 2, 3, 4]);
}

#[test]
fn a_full_queue_is_told_and_what_a_source_needs_is_kept() {
    let home = with_agents(&["bob"]);
    good(&run(&home, "room create ops"));
    refused(&run(&home, "source create ci --target #none"), 67, "no such room: #none");
    good(&run(&home, "source create ci --target #ops"));
    let kept = run(&home, "room delete ops");
    refused(&kept, 65, "where the events of source ci go");
    assert!(text(&kept.stderr).contains("source update"));
    good(&run(&home, "source update ci --target bob@beta"));
    good(&run(&home, "room delete ops"));
    refused(&run(&home, "source update ci --target #ops"), 67, "no such room: #ops");
}

#[test]
fn organisations_have_rooms_of_their_own() {
    let home = with_agents(&["bob"]);
    good(&run(&home, "org create Other"));
    good(&run(&home, "room create ops --org default"));
    assert!(records(&home, "room list --org other").is_empty());
    for args in ["show ops", "post ops -m x", "add ops bob@beta", "delete ops", "history ops"] {
        refused(&run(&home, &format!("room {args} --org other")), 67, "no such room");
    }
    good(&run(&home, "room create ops --org other"));
    refused(&run(&home, "room add ops bob@beta --org other"), 67, "no agent bob@beta");
}
