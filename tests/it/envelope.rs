//! `transit-envelope`: what its verbs print, what they refuse, and with which exit code.

use std::fmt::Write as _;
use std::process::{Output, Stdio};

use proptest::prelude::*;
use serde_json::{Value, json};
use transit::text::is_unsafe;

use crate::support::{Background, Home, text};

const ID: &str = "tx_0a1b2c3d4e5f";
const TS: &str = "2026-03-01T10:20:30.123456789Z";

fn run(home: &Home, args: &[&str], input: impl AsRef<[u8]>) -> Output {
    home.run("transit-envelope", args, input.as_ref())
}

/// Renders a direct message from `input`, with more options.
fn dm(home: &Home, more: &[&str], input: impl AsRef<[u8]>) -> Output {
    let args = ["render", "--kind", "dm", "--from", "jess@titan", "--id", ID, "--ts", TS];
    run(home, &[&args[..], more].concat(), input)
}

fn told(output: &Output) -> (i32, &str, &str) {
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn fails(output: &Output, exit: i32, stderr: &str) {
    assert_eq!(told(output), (exit, "", stderr));
}

/// The records that were printed.
fn records(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_kind_is_rendered_from_options() {
    let home = Home::new();
    let hint = format!("[reply: send_message to=\"jess@titan\" reply_to=\"{ID}\"]");
    let tag = format!("<transit from=\"jess@titan\" id=\"{ID}\" ts=\"{TS}\" kind=");
    let shown = format!("{tag}\"dm\" schema=\"transit/1\">\nhi\n\n{hint}\n</transit>\n");
    assert_eq!(told(&dm(&home, &[], "hi\n")), (0, &*shown, ""));
    home.file("body", "hi\n");
    assert_eq!(told(&dm(&home, &["body"], "")), (0, &*shown, ""));
    assert_eq!(told(&dm(&home, &["--", "-"], "hi\n")), (0, &*shown, ""));
    let empty = shown.replace("hi\n\n", "\n");
    assert_eq!(told(&dm(&home, &[], "")), (0, &*empty, ""));
    let reply = dm(&home, &["--reply-to", "tx_ffffffffffff", "-v"], "hi\n");
    assert!(text(&reply.stdout).contains("kind=\"dm\" reply_to=\"tx_ffffffffffff\" schema="));
    assert_eq!(text(&reply.stderr), "transit-envelope: rendered 1 envelope\n");

    let args = ["render", "--kind", "room", "--from", "operator@transit", "--id", ID, "--ts", TS];
    let room = run(&home, &[&args[..], &["--room", "ops", "--seq", "7"]].concat(), "up");
    assert!(text(&room.stdout).contains("kind=\"room\" room=\"ops\" seq=\"7\" schema="));
    assert!(text(&room.stdout).contains("\nup\n[reply: send_message to=\"#ops\" "));

    let args =
        ["render", "--kind", "channel", "--connector", "ingest", "--id", "dlv_0a1b2c3d4e5f", "--ts", TS];
    let more =
        ["--conversation-id", "c", "--user", "Ada", "--redelivery", "2", "--read", "--trigger", "alert"];
    let channel = run(&home, &[&args[..], &more].concat(), "<p>two\nlines</p>");
    assert_eq!(
        told(&channel).1,
        format!(
            "<transit from=\"ingest\" id=\"dlv_0a1b2c3d4e5f\" ts=\"{TS}\" kind=\"channel\" conversation_id=\"c\" \
             connector=\"ingest\" user=\"Ada\" redelivery=\"2\" trigger=\"alert\" schema=\"transit/1\">\ntwo lines\n\
             [read_message, then settle: chat_reply or mark_handled]\n\
             [redelivery 2, read/unsettled: do not reply twice; chat_reply or mark_handled]\n</transit>\n"
        )
    );
}

#[test]
fn what_makes_no_envelope_is_refused_before_a_body_is_read() {
    let home = Home::new();
    let usage = "transit-envelope: see transit-envelope render --help\n";
    let render = |args: &[&str]| run(&home, &[&["render"], args].concat(), b"\xff");
    let base = ["--kind", "dm", "--from", "jess@titan", "--id", ID, "--ts", TS];
    let with = |more: &[&str]| render(&[&base[..], more].concat());
    let instead = |of: &str, value: &str| {
        let mut args = base;
        let at = args.iter().position(|arg| *arg == of).unwrap();
        args[at + 1] = value;
        render(&args)
    };
    let say = |why: &str| format!("transit-envelope: render an envelope: {why}\n");
    fails(&render(&["--kind", "dm"]), 2, &(say("from is missing") + usage));
    fails(&instead("--kind", "room"), 2, &(say("room is missing") + usage));
    fails(&instead("--kind", "channel"), 65, &say("from \"jess@titan\" is not the name of a connector"));
    fails(&with(&["--seq", "1"]), 2, &(say("seq is no field of kind dm") + usage));
    fails(&with(&["--read"]), 2, &(say("read is no field of kind dm") + usage));
    fails(&with(&["a", "b"]), 2, &say("one BODY-FILE at a time"));
    fails(&instead("--from", "je\x1bss"), 65, &say("from \"je\\u{1b}ss\" is not an address"));
    let id = "is not tx_ and 12 lowercase hexadecimal digits";
    fails(&instead("--id", "tx_0A1b2c3d4e5f"), 65, &say(&format!("id \"tx_0A1b2c3d4e5f\" {id}")));
    fails(&instead("--ts", "1700000000"), 65, &say("ts \"1700000000\" is not an RFC 3339 time"));
    fails(&with(&["--reply-to", "x"]), 65, &say("reply_to \"x\" is not the id of a message"));
    fails(&with(&["--seq", "+1"]), 65, &say("--seq \"+1\" is not a number"));
    fails(&with(&["--redelivery", "-1"]), 65, &say("--redelivery \"-1\" is not a number"));
    fails(&with(&["--redelivery", "4294967296"]), 65, &say("--redelivery \"4294967296\" is not a number"));
    fails(&with(&[]), 65, "transit-envelope: read standard input: it is not UTF-8 at byte 0\n");
    let missing = "transit-envelope: open no\\u{9b}such: No such file or directory (os error 2)\n";
    fails(&with(&["no\u{9b}such"]), 66, missing);
    fails(&with(&["."]), 66, "transit-envelope: read .: Is a directory (os error 21)\n");
    for args in [&["--kind", "mail"][..], &["--json", "--kind", "dm"], &[], &["--nosuch"]] {
        let output = render(args);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{args:?}");
        assert!(text(&output.stderr).starts_with("transit-envelope: read the arguments: "), "{args:?}");
    }
    let long = "x".repeat(100_000);
    let args = ["--kind", "channel", "--from", "ingest", "--id", "dlv_0a1b2c3d4e5f", "--ts", TS];
    let output = render(&[&args[..], &["--conversation-id", &long]].concat());
    let (exit, _, stderr) = told(&output);
    assert_eq!(exit, 65);
    assert!(stderr.contains("more than the 65536 it may have"), "{stderr}");
}

#[test]
fn a_long_body_is_clipped_by_code_points() {
    let home = Home::new();
    let rendered = dm(&home, &[], "😀".repeat(5_000));
    let found = records(&run(&home, &["parse"], &rendered.stdout));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["truncated"], true);
    assert_eq!(found[0]["body"].as_str().unwrap().chars().count(), 4_000);
}

#[test]
fn records_go_in_and_envelopes_come_out() {
    let home = Home::new();
    let record = json!({"kind": "dm", "from": "jess@titan", "id": ID, "ts": TS, "body": "a", "new": [1], "room": null});
    let given = format!("{record}\n\n  {}\r\n", record.to_string().replace("\"a\"", "\"b\\n\""));
    let both = run(&home, &["render", "--json", "-v"], &given);
    assert_eq!(told(&both).0, 0);
    assert_eq!(text(&both.stderr), "transit-envelope: rendered 2 envelopes\n");
    let found = records(&run(&home, &["parse"], &both.stdout));
    assert_eq!(found.iter().map(|found| found["body"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b\n"]);
    home.file("one", format!("{record}"));
    let twice = run(&home, &["render", "--json", "one", "-", "--", "one"], "");
    assert_eq!(text(&twice.stdout).matches("<transit ").count(), 2);

    let good = run(&home, &["render", "--json"], record.to_string());
    let seq = "invalid type: string \"7\", expected u64 at line 1 column";
    for (bad, why) in [
        ("{\"kind\":\"dm\"}", "from is missing"),
        ("[1]", "it is no JSON object"),
        ("{", "EOF while parsing an object at line 1 column 1"),
        ("{\"seq\":\"7\"}", seq),
        ("{\"kind\":\"dm\\u001b\"}", "kind \"dm\\u{1b}\" is not dm, room or channel"),
        ("{\"id\":\"a\",\"id\":\"b\"}", "duplicate field `id`"),
    ] {
        let output = run(&home, &["render", "--json"], format!("\n{record}\n{bad}\n{record}\n"));
        let (exit, stdout, stderr) = told(&output);
        assert_eq!((exit, stdout), (65, text(&good.stdout)), "{bad}");
        let begin = format!("transit-envelope: render line 3 of standard input: {why}");
        assert!(stderr.starts_with(&begin) && stderr.lines().count() == 1, "{stderr}");
    }
    let broken = run(&home, &["render", "--json"], b"{\"kind\":\"\xff\"}");
    fails(&broken, 65, "transit-envelope: render line 1 of standard input: it is not UTF-8\n");
    let long = run(&home, &["render", "--json"], vec![b' '; 2 << 20]);
    fails(&long, 65, "transit-envelope: render line 1 of standard input: it is over 1048576 bytes long\n");
}

#[test]
fn envelopes_are_found_in_the_log_of_a_terminal() {
    let home = Home::new();
    let (first, last) = (dm(&home, &[], "first"), dm(&home, &[], "last\u{fffd}"));
    let drawn = text(&first.stdout).replace(' ', "\x1b[1m \x1b[0m").replace('\n', "\x1b[K\r\n");
    let log = format!(
        "\x1b]0;<transit from=\"x\"\x07$ run\r\n{drawn}╭─╮ {}<transit from=\"jess@titan\"\n{}",
        text(&last.stdout).replace("[reply", "[Reply"),
        text(&last.stdout),
    );
    home.file("log", &log);
    let at = |needle: &str| log.find(needle).unwrap();
    let places = [at("╮ <") + 4, at("[Reply"), log.rfind("<transit from=\"jess@titan\"\n").unwrap()];
    let damaged = format!(
        "transit-envelope: parse log: malformed envelope at byte {}: byte {}: not the hint of this envelope\n",
        places[0], places[1]
    );
    let output = run(&home, &["parse", "log"], "");
    let (exit, stdout, stderr) = told(&output);
    let rest = format!(
        "transit-envelope: parse log: truncated envelope at byte {}: no </transit> before the next opening tag at \
         byte {}\n",
        places[2],
        log.rfind("<transit ").unwrap()
    );
    assert_eq!((exit, stderr), (0, &*(damaged.clone() + &rest)));
    assert_eq!(
        stdout.lines().next().unwrap(),
        format!(
            "{{\"offset\":{},\"from\":\"jess@titan\",\"id\":\"{ID}\",\"ts\":\"{TS}\",\"kind\":\"dm\",\"schema\":\
             \"transit/1\",\"body\":\"first\",\"truncated\":false,\"hint\":\"[reply: send_message to=\\\"jess@titan\\\" \
             reply_to=\\\"{ID}\\\"]\"}}",
            at("<transit\x1b")
        )
    );
    assert_eq!(records(&output)[1]["body"], "last\u{fffd}");
    let strict = run(&home, &["parse", "--strict", "log"], "");
    assert_eq!(told(&strict), (65, &*format!("{}\n", stdout.lines().next().unwrap()), &*damaged));
    let both = run(&home, &["parse", "-v", "log", "-"], &last.stdout);
    let files: Vec<_> = records(&both).iter().map(|found| found["file"].clone()).collect();
    assert_eq!(files, ["log", "log", "-"]);
    assert!(text(&both.stderr).ends_with("transit-envelope: found 3 good, 2 damaged\n"));
    let missing = run(&home, &["parse", "nosuch", "-"], &last.stdout);
    let words = "transit-envelope: open nosuch: No such file or directory (os error 2)\n";
    assert_eq!((told(&missing).0, told(&missing).2, records(&missing).len()), (66, words, 1));
}

#[test]
fn nothing_found_is_1() {
    let home = Home::new();
    fails(&run(&home, &["parse"], ""), 1, "");
    fails(&run(&home, &["parse"], "no <transit> here\n"), 1, "");
    let cut = "transit-envelope: parse standard input: truncated envelope at byte 0: no </transit> before the end\n";
    fails(&run(&home, &["parse"], "<transit from=\"x\""), 1, cut);
    fails(&run(&home, &["parse", "--strict"], "<transit from=\"x\""), 65, cut);
    fails(&run(&home, &["parse", "."], ""), 66, "transit-envelope: read .: Is a directory (os error 21)\n");
}

#[test]
fn a_live_log_is_told_as_it_comes() {
    let home = Home::new();
    let shown = dm(&home, &[], "one").stdout;
    for args in [&["parse"][..], &["parse", "--strict"]] {
        let mut running = Background::start(home.command("transit-envelope").args(args));
        for _ in 0..2 {
            running.write(&shown);
            assert!(running.line().contains("\"body\":\"one\""));
        }
        assert!(running.wait().success());
    }
    let record = json!({"kind": "dm", "from": "jess@titan", "id": ID, "ts": TS, "body": "a"});
    let mut running = Background::start(home.command("transit-envelope").args(["render", "--json"]));
    running.write(format!("{record}\n"));
    assert!(running.line().starts_with("<transit from="));
    assert!(running.wait().success());
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let home = Home::new();
    let script = "transit-envelope id -n 100000 | head -n 1; transit-envelope id -n 2000 --json | \
                  sed 's/.*\\(tx_............\\).*/{\"kind\":\"dm\",\"from\":\"a@b\",\"id\":\"\\1\",\"ts\":\"2026-03-01T10:20:30Z\"}/' \
                  | transit-envelope render --json | transit-envelope parse | head -n 1";
    let output = home.foreign("sh").args(["-c", script]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(text(&output.stdout).lines().count(), 2);
}

#[test]
fn a_preview_is_one_line_a_file() {
    let home = Home::new();
    home.file("mail", "<h1>Hello</h1>\n\tworld\x1b[31m\u{85}");
    let output = run(&home, &["preview", "mail"], "");
    assert_eq!(told(&output), (0, "Hello world\u{fffd}[31m\u{fffd}\n", ""));
    let output = run(&home, &["preview", "--json", "-", "mail"], " \u{feff}");
    assert_eq!(
        told(&output).1,
        "{\"file\":\"-\",\"preview\":\"(no text — attachments or an empty body)\"}\n\
         {\"file\":\"mail\",\"preview\":\"Hello world\u{fffd}[31m\u{fffd}\"}\n"
    );
    let broken = run(&home, &["preview", "mail", "-"], b"ab\xff");
    assert_eq!(
        told(&broken),
        (
            65,
            "Hello world\u{fffd}[31m\u{fffd}\n",
            "transit-envelope: read standard input: it is not UTF-8 at byte 2\n"
        )
    );
}

#[test]
fn a_wrapper_is_printed_in_all_its_forms() {
    let home = Home::new();
    let base =
        ["full", "--id", "dlv_0a1b2c3d4e5f", "--conversation-id", "a&b", "--connector", "ingest", "--status"];
    let full = |more: &[&str], body: &str| run(&home, &[&base[..], more].concat(), body);
    let tag = "<transit_full id=\"dlv_0a1b2c3d4e5f\" conversation_id=\"a&amp;b\"";
    assert_eq!(
        told(&full(&["read"], "raw\r\n\x1b</transit_FULL>")).1,
        format!(
            "{tag} user=\"unknown\" connector=\"ingest\" status=\"read\" read=\"first\" schema=\"transit/1\">\n\
             raw\r\n\x1b&lt;/transit_full>\n[settle: chat_reply or mark_handled]\n</transit_full>\n"
        )
    );
    let more = ["handled", "--settled", "--read", "again", "--user", "Ada", "--instructions", "be\nbrief"];
    let settled = full(&more, "");
    let shown = format!(
        "{tag} user=\"Ada\" connector=\"ingest\" status=\"handled\" read=\"again\" schema=\"transit/1\">\n\n\
         [already settled; history only]\nbe brief\n</transit_full>\n"
    );
    assert_eq!(told(&settled), (0, &*shown, ""));
    let as_json = full(&[&more[..], &["--json"]].concat(), "");
    assert_eq!(records(&as_json)[0]["text"], shown.trim_end());
    let wrong =
        run(&home, &["full", "--id", "x", "--conversation-id", "c", "--connector", "i", "--status", "s"], "");
    fails(
        &wrong,
        65,
        "transit-envelope: use --id x: it is not dlv_ or tx_ and 12 lowercase hexadecimal digits\n",
    );
    assert_eq!(run(&home, &["full", "--id", ID], "").status.code(), Some(2));
}

#[test]
fn ids_are_fresh() {
    let home = Home::new();
    let many = run(&home, &["id", "-n", "1000"], "");
    let ids: std::collections::BTreeSet<&str> = text(&many.stdout).lines().collect();
    assert!(ids.len() == 1000 && ids.iter().all(|id| id.starts_with("tx_") && id.len() == 15));
    assert!(text(&run(&home, &["id", "delivery"], "").stdout).starts_with("dlv_"));
    assert_eq!(told(&run(&home, &["id", "-n", "0"], "")), (0, "", ""));
    assert!(records(&run(&home, &["id", "message", "--json"], ""))[0]["id"].is_string());
    assert_eq!(run(&home, &["id", "event"], "").status.code(), Some(2));
}

/// Text of what is most likely to be taken for something else.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("</transit>".to_owned()),
        Just("</TranſIT".to_owned()),
        Just("<transit from=\"a@b\" id=\"tx_0a1b2c3d4e5f\"".to_owned()),
        Just("\n[reply: send_message to=\"".to_owned()),
        Just("<transit_full id=\"".to_owned()),
        Just("</transit_full>".to_owned()),
        Just("\r\n│ ".to_owned()),
        Just("\x1b]0;".to_owned()),
        Just("\u{9b}2J\u{202e}".to_owned()),
        "[<>&\"/\x00-\x1fa-z\u{7f}\u{85}\u{202e} ]{0,6}",
        ".{0,8}",
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn any_record() -> impl Strategy<Value = Value> {
    let common = (hostile(), "[0-9a-f]{12}", prop::option::of("tx_[0-9a-f]{12}"), "[a-z][a-z0-9-]{0,9}");
    let kind = prop_oneof![
        Just(json!({"kind": "dm"})),
        ("[a-z]{1,9}x", any::<u64>()).prop_map(|(room, seq)| json!({"kind": "room", "room": room, "seq": seq})),
        (hostile(), hostile(), 0u32..4, any::<bool>(), hostile()).prop_map(|(conversation, user, n, read, trigger)| {
            json!({"kind": "channel", "conversation_id": conversation, "connector": "ingest", "user": user,
                   "redelivery": n, "read": read && n > 0, "trigger": trigger})
        }),
    ];
    (common, kind, 0usize..3).prop_map(|((body, hex, reply_to, name), mut record, long)| {
        let is_channel = record["kind"] == "channel";
        record["from"] = if is_channel { "ingest".into() } else { format!("{name}x@titan").into() };
        record["id"] = format!("{}{hex}", if is_channel { "dlv_" } else { "tx_" }).into();
        record["ts"] = TS.into();
        record["body"] = format!("{body}{}", "é".repeat(long * 2_000)).into();
        if let Some(reply_to) = reply_to {
            record["reply_to"] = reply_to.into();
        }
        record
    })
}

/// What of a record an envelope can tell: as it is, but for what would command a terminal.
fn comes_back(given: &Value, found: &Value) -> Result<(), TestCaseError> {
    for (name, value) in given.as_object().unwrap().iter().filter(|(name, _)| *name != "body") {
        let Some(given) = value.as_str() else {
            prop_assert_eq!(value, &found[name]);
            continue;
        };
        let mut expected: String = given.chars().map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect();
        if name == "user" {
            expected = expected.chars().take(64).collect();
            expected = if expected.is_empty() { "unknown".to_owned() } else { expected };
        }
        prop_assert_eq!(expected, found[name].as_str().unwrap_or_default(), "{}", name);
    }
    Ok(())
}

proptest! {
    // More of them: PROPTEST_CASES=16000 cargo test --test it envelope
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 8, ..ProptestConfig::default() })]

    #[test]
    fn what_is_rendered_is_found_again(records in prop::collection::vec(any_record(), 1..100)) {
        let home = Home::new();
        let mut given = String::new();
        records.iter().for_each(|record| writeln!(given, "{record}").unwrap());
        let rendered = run(&home, &["render", "--json"], &given);
        prop_assert_eq!(text(&rendered.stderr), "");
        let shown = text(&rendered.stdout);
        prop_assert!(!shown.contains(|c| is_unsafe(c) && !matches!(c, '\n' | '\t')));
        let parsed = run(&home, &["parse", "--strict"], &rendered.stdout);
        prop_assert_eq!(text(&parsed.stderr), "");
        prop_assert!(!text(&parsed.stdout).contains(|c| is_unsafe(c) && c != '\n'));
        let found = self::records(&parsed);
        prop_assert_eq!(found.len(), records.len());
        for (given, found) in records.iter().zip(&found) {
            comes_back(given, found)?;
        }
    }
}
