//! `transit-wire-dump` on files and stdin: what it prints, and with which exit code.

use std::io::Write;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::rig::Rig;
use crate::support::{Background, Home, Sink, eventually, text};

pub(super) const PROGRAM: &str = "transit-wire-dump";

pub(super) fn wire(ms: u32, dir: &str, frame: &str) -> String {
    format!(
        "{{\"at\":\"2026-11-30T09:15:00.{ms:03}Z\",\"proto\":\"transit-wire/1\",\"dir\":\"{dir}\",\"frame\":{frame}}}\n"
    )
}

/// A short conversation that breaks no rule.
pub(super) fn conversation() -> String {
    let (forth, back) = ("daemon>worker", "worker>daemon");
    [
        wire(0, forth, r#"{"t":"hello","proto":1,"daemon_ver":"0.1.0","host":"titan"}"#),
        wire(1, back, r#"{"t":"hello_ok","host_id":"hst_1","org":"default"}"#),
        wire(10, forth, r#"{"t":"send","id":"tx_1","from":"jess@titan","to":"bob@rhea","body":"hi \"Bob\"\n","ts":"2026-11-30T09:15:00Z"}"#),
        wire(14, back, r#"{"t":"send_ack","id":"tx_1"}"#),
        wire(20, back, r#"{"t":"deliver","id":"tx_2","agent":"jess","envelope":"<transit>\nhi\n</transit>"}"#),
        wire(50, forth, r#"{"t":"deliver_nak","id":"tx_2","agent":"jess","code":"draft_busy","retryable":true}"#),
        wire(60, forth, r#"{"t":"rpc","rid":"r1","method":"whoami","params":{"caller":"jess@titan","token":"t0p"}}"#),
    ]
    .concat()
}

pub(super) fn ack(id: &str) -> String {
    format!("{{\"t\":\"send_ack\",\"id\":\"{id}\"}}\n")
}

pub(super) fn run(home: &Home, args: &[&str], input: impl AsRef<[u8]>) -> Output {
    home.run(PROGRAM, args, input.as_ref())
}

/// The exit code, stdout and stderr.
pub(super) fn told(output: &Output) -> (i32, &str, &str) {
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn each_frame_is_one_readable_line() {
    let home = Home::new();
    let printed = run(&home, &[], conversation());
    let expected = r#"2026-11-30T09:15:00.000Z daemon -> worker hello       proto=1 daemon_ver=0.1.0 host=titan
2026-11-30T09:15:00.001Z daemon <- worker hello_ok    host_id=hst_1 org=default
2026-11-30T09:15:00.010Z daemon -> worker send        tx_1 jess@titan > bob@rhea ts=2026-11-30T09:15:00Z body="hi \"Bob\"\n"
2026-11-30T09:15:00.014Z daemon <- worker send_ack    tx_1
2026-11-30T09:15:00.020Z daemon <- worker deliver     tx_2 agent=jess envelope="<transit>\nhi\n</transit>"
2026-11-30T09:15:00.050Z daemon -> worker deliver_nak tx_2 agent=jess code=draft_busy retryable=true
2026-11-30T09:15:00.060Z daemon -> worker rpc         r1 method=whoami params={"caller":"jess@titan","token":"[redacted]"}
"#;
    assert_eq!(told(&printed), (0, expected, ""));
}

#[test]
fn a_bare_frame_says_itself_which_way_it_goes() {
    let home = Home::new();
    let lines = [
        (
            r#"{"t":"send_nak","id":"tx_1","code":"no_route"}"#,
            "- daemon <- worker send_nak    tx_1 code=no_route",
        ),
        (r#"{"t":"register","session_id":"s"}"#, "- adapter -> daemon register    session_id=s"),
        (r#"{"t":"deliver","id":"tx_1","envelope":"e"}"#, "- adapter <- daemon deliver     tx_1 envelope=e"),
        (r#"{"op":"status"}"#, "- client -> server status     "),
        (r#"{"id":1,"method":"status.get"}"#, "- client -> server status.get  1"),
        (r#"{"id":"1","error":{"code":"x"}}"#, "- client <- server error       1 error={\"code\":\"x\"}"),
        (r#"{"t":"future","n":[1, 2]}"#, "- ? future      n=[1,2]"),
        (r#"{"x":null}"#, "- ? -           x=null"),
    ];
    for (line, shown) in lines {
        assert_eq!(told(&run(&home, &[], line)), (0, format!("{shown}\n").as_str(), ""), "{line}");
    }
    let json = run(&home, &["--json"], "{\"t\":\"ping\"}\n{\"x\":1}\n");
    let expected = "{\"proto\":\"transit-wire/1\",\"dir\":\"worker>daemon\",\"frame\":{\"t\":\"ping\"}}\n{\"frame\":{\"x\":1}}\n";
    assert_eq!(told(&json), (0, expected, ""));
}

#[test]
fn notes_and_texts_are_shown_for_what_they_are() {
    let home = Home::new();
    let note = "{\"at\":\"2026-11-30T09:15:00.000Z\",\"proto\":\"transit-wire/1\",\"dir\":\"worker>daemon\",\"conn\":2,\"note\":\"close\",\"code\":4000,\"reason\":\"replaced\"}\n";
    let input = format!("{note}{}", wire(0, "daemon>worker", "\"no json\""));
    let expected = "2026-11-30T09:15:00.000Z #2 daemon <- worker (close)     code=4000 reason=replaced\n\
                    2026-11-30T09:15:00.000Z daemon -> worker -           \"no json\"\n";
    assert_eq!(told(&run(&home, &[], &input)), (0, expected, ""));
    assert_eq!(told(&run(&home, &["--json"], &input)), (0, input.as_str(), ""));
}

#[test]
fn json_is_one_record_a_line_without_secrets_and_blanks() {
    let home = Home::new();
    let input = "{ \"at\" : \"x\",\"dir\":\"a>b\",\t\"frame\":{\"t\":\"x\",\"a\":[{\"\\u0063apability\" : {\"b\":[1,\"}\"]}}],\"Authorization\":\"B\"}}\r\n";
    let hidden = "{\"at\":\"x\",\"dir\":\"a>b\",\"frame\":{\"t\":\"x\",\"a\":[{\"\\u0063apability\":\"[redacted]\"}],\"Authorization\":\"[redacted]\"}}\n";
    let shown = "{\"at\":\"x\",\"dir\":\"a>b\",\"frame\":{\"t\":\"x\",\"a\":[{\"\\u0063apability\":{\"b\":[1,\"}\"]}}],\"Authorization\":\"B\"}}\n";
    assert_eq!(told(&run(&home, &["--json"], input)), (0, hidden, ""));
    assert_eq!(told(&run(&home, &["--json", "--show-secrets", "--color", "always"], input)), (0, shown, ""));
    let human = run(&home, &[], "{\"t\":\"pong\",\"capability\":\"c4p\",\"x\":{\"secret\":\"s3c\"}}");
    assert_eq!(
        text(&human.stdout),
        "- adapter -> daemon pong        capability=[redacted] x={\"secret\":\"[redacted]\"}\n"
    );
    let human = run(&home, &["--show-secrets"], "{\"t\":\"pong\",\"capability\":\"c4p\"}");
    assert_eq!(text(&human.stdout), "- adapter -> daemon pong        capability=c4p\n");
}

#[test]
fn nothing_that_a_terminal_would_act_on_comes_out() {
    let home = Home::new();
    let hostile = "\u{7f}\u{9b}31m\u{202e}\u{2066}\u{85}";
    let value = format!("{hostile}\\u001b[31m\\u009b");
    let input = format!(
        "{{\"at\":\"{value}\",\"proto\":\"{value}\",\"dir\":\"{value}>b\",\"frame\":{{\"t\":\"{value}\",\"{value}\":1,\"id\":\"{value}\",\"b\":[\"{value}\"]}}}}\n\
         {{\"t\":\"{value}\",\"from\":\"{value}\",\"to\":\"{value}\",\"op\":\"{value}\"}}\n\
         {{\"dir\":\"a>b\",\"note\":\"{value}\"}}\nno json {hostile}\x1b[31m\n{{\"a\":\"\x1b\"}}\n"
    );
    let file = "f\u{9b}\x1b";
    home.file(file, &input);
    for args in [
        &[][..],
        &["--json"],
        &["--check"],
        &["--check", "--json"],
        &["--stats"],
        &["--stats", "--json"],
        &["--width", "40"],
        &["--filter", "t=x"],
    ] {
        let output = run(&home, &[args, &[file]].concat(), "");
        for stream in [&output.stdout, &output.stderr] {
            let bad = |c: char| transit::text::is_unsafe(c) && c != '\n';
            assert!(!text(stream).contains(bad), "{args:?}: {:?}", text(stream));
        }
    }
    let again = run(&home, &["--json", file], "");
    let first: Value = serde_json::from_str(text(&again.stdout).lines().next().unwrap()).unwrap();
    assert_eq!(first["frame"]["id"], json!(format!("{hostile}\x1b[31m\u{9b}")), "it is the same data");
}

#[test]
fn what_is_no_frame_is_told_with_its_place_and_the_rest_goes_on() {
    let home = Home::new();
    let mut input =
        b"\xef\xbb\xbf{\"t\":\"ping\"}\r\nnope\n\n \t\n{\"a\":\"\xff\"}\n[1]\n{\"a\":\0}\n".to_vec();
    input.extend(b"x".repeat(9 << 20));
    input.extend(b"\n{\"t\":\"pong\"}");
    home.file("d", &input);
    let said = "transit-wire-dump: read d:2: no frame: no value at byte 1\n\
                transit-wire-dump: read d:5: no UTF-8 at byte 7\n\
                transit-wire-dump: read d:6: no frame: a frame is a JSON object, and there is something else at byte 1\n\
                transit-wire-dump: read d:7: no frame: no value at byte 6\n\
                transit-wire-dump: read d:8: longer than the 8388608 bytes that are read of a line\n";
    let shown = "- daemon <- worker ping       \n- daemon -> worker pong       \n";
    assert_eq!(told(&run(&home, &["d"], "")), (65, shown, said));
    let checked = run(&home, &["--check", "d"], "");
    assert_eq!(checked.status.code(), Some(1));
    assert!(text(&checked.stdout).contains("d:8: frame_too_large: longer than"), "{}", text(&checked.stdout));
    let counted = run(&home, &["--stats", "d"], "");
    assert_eq!((counted.status.code(), text(&counted.stderr)), (Some(65), said));
}

#[test]
fn a_long_frame_is_printed_and_found() {
    let home = Home::new();
    let body = "é\\u001b".repeat(300_000);
    let input = wire(
        0,
        "worker>daemon",
        &format!("{{\"t\":\"deliver\",\"id\":\"x\",\"agent\":\"a\",\"envelope\":\"{body}\"}}"),
    );
    let printed = run(&home, &["--json"], &input);
    assert!(told(&printed) == (0, input.as_str(), ""));
    assert!(text(&run(&home, &[], &input).stdout).ends_with("\\u001b\"\n"));
    let checked = run(&home, &["--check"], &input);
    assert_eq!(
        (checked.status.code(), text(&checked.stdout)),
        (Some(1), "-:1: frame_too_large: a frame is at most 1 MiB\n")
    );
}

#[test]
fn a_large_file_gives_what_a_pipe_gives() {
    let home = Home::new();
    let mut dump = String::new();
    for n in 0..6 {
        dump.push_str(&conversation().repeat(300 + n));
        // Longer than what is read at once, and longer than any line may be.
        let envelope = "x".repeat([70_000, 300_000, 9_000_000][n % 3]);
        dump.push_str(&format!(
            "{{\"t\":\"deliver\",\"id\":\"big_{n}\",\"agent\":\"jess\",\"envelope\":\"{envelope}\"}}\n"
        ));
    }
    dump.push_str(ack("tx_last").trim_end());
    home.file("large.ndjson", &dump);
    for args in [&["--json"][..], &["--stats"]] {
        let [file, pipe] = [run(&home, &[args, &["large.ndjson"]].concat(), ""), run(&home, args, &dump)];
        assert_eq!(file.status.code(), pipe.status.code());
        assert!(file.stdout == pipe.stdout, "{args:?}");
        assert_eq!(text(&file.stderr).replace("large.ndjson", "-"), text(&pipe.stderr));
        assert_eq!(text(&file.stderr).matches("longer than").count(), 2);
    }
}

#[test]
fn several_files_are_read_and_one_that_cannot_be_is_told() {
    let home = Home::new();
    home.file("a", "{\"t\":\"ping\"}\n");
    home.file("b", "{\"t\":\"pong\"}");
    let both = "- daemon <- worker ping       \n- daemon -> worker pong       \n";
    assert_eq!(told(&run(&home, &["a", "-"], "{\"t\":\"pong\"}\n")), (0, both, ""));
    assert_eq!(told(&run(&home, &["--", "a", "b"], "")), (0, both, ""));
    let missing = run(&home, &["a", "none", "b"], "");
    let said = "transit-wire-dump: open none: No such file or directory (os error 2)\n";
    assert_eq!(told(&missing), (66, both, said));
    let directory = run(&home, &["."], "");
    assert_eq!(told(&directory), (66, "", "transit-wire-dump: read .: Is a directory (os error 21)\n"));
    assert_eq!(told(&run(&home, &[], "")), (0, "", ""));
}

#[test]
fn a_filter_takes_what_it_names() {
    let home = Home::new();
    let lines = |args: &[&str]| {
        let output = run(&home, args, conversation());
        (output.status.code().unwrap(), text(&output.stdout).lines().count())
    };
    assert_eq!(lines(&["--filter", "id=tx_2"]), (0, 2));
    assert_eq!(lines(&["--filter", "id=tx_2,t=deliver"]), (0, 1));
    assert_eq!(lines(&["--filter", "t=send", "--filter", "t=send_ack"]), (0, 2));
    assert_eq!(lines(&["--filter", "dir=worker>daemon", "--json"]), (0, 3));
    assert_eq!(lines(&["--filter", "proto=transit-wire/1"]), (0, 7));
    assert_eq!(lines(&["--filter", "retryable=true"]), (0, 1));
    assert_eq!(lines(&["--filter", "t=nothing"]), (1, 0));
    assert_eq!(lines(&["--stats", "--filter", "t=nothing"]).0, 1);
    assert_eq!(lines(&["--check", "--filter", "t=nothing"]).0, 1);
    let wrong = run(&home, &["--filter", "t"], "");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("no list of FIELD=VALUE"), "{}", text(&wrong.stderr));
    assert_eq!(run(&home, &["--check", "--stats"], "").status.code(), Some(2));
}

#[test]
fn a_line_is_clipped_to_the_width_that_was_asked_for() {
    let home = Home::new();
    let shown = |width: &str| {
        text(&run(&home, &["--width", width], "{\"t\":\"hello\",\"host\":\"日本語\"}").stdout).to_owned()
    };
    assert_eq!(shown("0"), "- daemon -> worker hello       host=\"日本語\"\n");
    assert_eq!(shown("44"), "- daemon -> worker hello       host=\"日本語\"\n");
    assert_eq!(shown("40"), "- daemon -> worker hello       host=\"日…\n");
    assert_eq!(shown("1"), "…\n");
    assert_eq!(run(&home, &["--width", "x"], "").status.code(), Some(2));
}

#[test]
fn colour_is_ours_and_only_where_it_is_wanted() {
    let home = Home::new();
    let frame = "{\"t\":\"send_nak\",\"id\":\"x\"}";
    let shown = |args: &[&str]| text(&run(&home, args, frame).stdout).to_owned();
    assert_eq!(
        shown(&["--color", "always"]),
        "\x1b[2m-\x1b[0m daemon\x1b[35m <- \x1b[0mworker \x1b[1;31msend_nak\x1b[0m    x\n"
    );
    for args in [&["--color", "never"][..], &["--color", "auto"], &[]] {
        assert!(!shown(args).contains('\x1b'), "{args:?}");
    }
    assert_eq!(
        shown(&["--color", "always", "--width", "12"]),
        "\x1b[2m-\x1b[0m daemon\x1b[35m <-…\x1b[0m\n",
        "a clipped line does not leave its colour behind"
    );
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let home = Home::new();
    home.file("d", conversation().repeat(20_000));
    for args in ["", "--json"] {
        let mut shell = home.foreign("sh");
        let ran = shell
            .args(["-c", &format!("{{ {PROGRAM} {args} d; echo $? >&2; }} | head -n 1")])
            .output()
            .unwrap();
        assert_eq!((text(&ran.stdout).lines().count(), text(&ran.stderr)), (1, "0\n"));
    }
}

#[test]
fn an_output_that_is_full_is_told() {
    let home = Home::new();
    home.file("d", conversation().repeat(2_000));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ran = home.command(PROGRAM).arg("d").stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(ran.status.code(), Some(74));
    assert!(
        text(&ran.stderr).starts_with("transit-wire-dump: write the output: No space left"),
        "{}",
        text(&ran.stderr)
    );
}

#[test]
fn lines_of_a_pipe_come_out_as_they_come_in() {
    let home = Home::new();
    let mut dump = Background::start(&mut home.command(PROGRAM));
    for n in 0..3 {
        dump.write(format!("{{\"t\":\"send_ack\",\"id\":\"tx_{n}\"}}\n"));
        assert_eq!(dump.line(), format!("- daemon <- worker send_ack    tx_{n}"));
    }
    assert!(dump.wait().success());
}

#[test]
fn memory_does_not_grow_with_the_dump() {
    let home = Home::new();
    let script = format!("ulimit -v 200000; exec {PROGRAM} $0");
    let frame = ack(&"x".repeat(300));
    for (args, feed) in
        [("--json", frame.as_str()), ("--stats", &frame), ("--check", &frame), ("--json", "no newline ")]
    {
        let mut shell = home.foreign("sh");
        shell.args(["-c", &script.replace("$0", args)]);
        let mut child =
            shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let block = feed.repeat((1 << 20) / feed.len());
        (0..32).for_each(|_| stdin.write_all(block.as_bytes()).unwrap());
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(peak <= 24 * 1024, "{args} takes {peak} KiB");
        drop(stdin);
        child.wait().unwrap();
    }
}

#[test]
fn what_a_daemon_writes_checks_clean_and_prints() {
    let sink = Sink::start(&[200]);
    let mut rig = Rig::start(&format!("http://{}/reply/", sink.at));
    rig.kill_daemon();
    rig.start_daemon_with(&["--wire-log", "frames.ndjson"]);
    let mut agent = rig.listen("bob");
    assert_eq!(rig.post("build-1", "the build broke").status(), 202);
    let id = agent.delivered()["id"].as_str().unwrap().to_owned();
    agent.ack(&id);
    rig.call("bob", "mark_handled", &json!({"delivery_id": id}));
    let dump = rig.home.path("frames.ndjson");
    let shown = eventually(|| {
        let shown = rig.home.run(PROGRAM, [&dump], b"");
        text(&shown.stdout).contains("deliver_ack").then(|| text(&shown.stdout).to_owned())
    });
    for word in ["hello ", "hello_ok", "roster", "deliver ", "rpc ", "rpc_result"] {
        assert!(shown.contains(word), "{word} is missing in {shown}");
    }
    let checked = rig.home.run(PROGRAM, ["--check".as_ref(), dump.as_os_str()], b"");
    assert_eq!(told(&checked), (0, "", ""));
}
