//! `transit-wire-dump --stats`, `--check` and `--follow`: what it counts, what it finds, and a dump that grows.

use std::io::Write;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Background, Home, eventually, text};
use crate::wire_dump::{PROGRAM, ack, conversation, run, told, wire};

#[test]
fn the_numbers_of_a_dump() {
    let home = Home::new();
    let printed = run(&home, &["--stats"], conversation());
    let expected = "\
7 frames, 498 bytes, 0.060 s, 116.7 frames/s
2026-11-30T09:15:00.000Z to 2026-11-30T09:15:00.060Z

    FRAMES          BYTES  DIRECTION        T
         1             83  daemon>worker    deliver_nak
         1             59  daemon>worker    hello
         1             87  daemon>worker    rpc
         1            110  daemon>worker    send
         1             81  worker>daemon    deliver
         1             50  worker>daemon    hello_ok
         1             28  worker>daemon    send_ack

ANSWERS (ms)              ANSWERED      MIN      P50      P99      MAX  REFUSED UNANSWERED
send > send_ack                  1        4        4        4        4        0          0
deliver > deliver_ack            0        -        -        -        -        1          0
rpc > rpc_result                 0        -        -        -        -        0          1

rpc without rpc_result:
  r1
";
    let sizes = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(sizes(text(&printed.stdout)), sizes(expected));
    let json = run(&home, &["--stats", "--json"], conversation());
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(text(&json.stdout).lines().count(), 1);
    assert_eq!((&report["frames"], &report["seconds"]), (&json!(7), &json!(0.06)));
    assert_eq!(
        report["times"][0],
        json!({
            "proto": "transit-wire/1", "from": "send", "to": "send_ack", "answered": 1, "refused": 0,
            "min_ms": 4, "p50_ms": 4, "p99_ms": 4, "max_ms": 4, "unanswered": 0, "waiting": []
        })
    );
    assert_eq!(report["times"][2]["waiting"], json!(["r1"]));
    let filtered = run(&home, &["--stats", "--json", "--filter", "t=send"], conversation());
    let report: Value = serde_json::from_slice(&filtered.stdout).unwrap();
    assert_eq!(
        (&report["frames"], &report["times"][0]["answered"]),
        (&json!(1), &json!(1)),
        "its answer is timed"
    );
}

#[test]
fn a_check_is_quiet_about_what_is_right_and_names_what_is_not() {
    let home = Home::new();
    assert_eq!(told(&run(&home, &["--check"], conversation())), (0, "", ""));
    let verbose = run(&home, &["--check", "-v"], conversation());
    assert_eq!(told(&verbose), (0, "", "transit-wire-dump: checked 7 lines, found 0 faults\n"));
    let wrong = [
        conversation(),
        wire(70, "daemon>worker", r#"{"t":"deliver_ack","id":"tx_9"}"#),
        wire(70, "daemon>worker", r#"{"t":"new","id":"tx_9"}"#),
        wire(70, "daemon>worker", r#"{"t":"new","id":"tx_9"}"#),
        wire(70, "daemon>worker", r#"{"t":"send_ack","id":"tx_1"}"#),
        wire(70, "worker>daemon", r#"{"t":"send_ack"}"#),
    ]
    .concat();
    home.file("d", &wrong);
    let expected = "d:8: ack_without_deliver: tx_9 was not delivered\n\
                    d:9: info: unknown_t: t new is not known; it is ignored\n\
                    d:11: wrong_direction: send_ack never goes daemon>worker\n\
                    d:12: invalid_frame: missing field `id`\n";
    assert_eq!(told(&run(&home, &["--check", "d"], "")), (1, expected, ""));
    let info = run(&home, &["--check", "d", "--filter", "t=new"], "");
    assert_eq!(told(&info), (0, "d:9: info: unknown_t: t new is not known; it is ignored\n", ""));
    let json = run(&home, &["--check", "--json", "d"], "");
    let first: Value = serde_json::from_str(text(&json.stdout).lines().next().unwrap()).unwrap();
    assert_eq!(
        first,
        json!({
            "file": "d", "line": 8, "level": "fault", "rule": "ack_without_deliver", "text": "tx_9 was not delivered"
        })
    );
}

/// A dump that is written while it is read.
struct Growing {
    home: Home,
    dump: Background,
}

impl Growing {
    fn start(args: &[&str], content: Option<&str>) -> Self {
        let home = Home::new();
        if let Some(content) = content {
            home.file("d", content);
        }
        let dump = Background::start(home.command(PROGRAM).args(["--follow", "d"]).args(args));
        Self { home, dump }
    }

    fn append(&self, name: &str, content: &str) {
        let mut file = std::fs::File::options().append(true).create(true).open(self.home.path(name)).unwrap();
        file.write_all(content.as_bytes()).unwrap();
    }

    #[track_caller]
    fn shows(&self, id: &str) {
        assert_eq!(self.dump.line(), format!("- daemon <- worker send_ack    {id}"));
    }
}

#[test]
fn a_file_is_followed_as_it_grows_and_half_a_line_waits() {
    let mut growing = Growing::start(&[], Some(&ack("tx_1")));
    growing.shows("tx_1");
    let line = ack("tx_2");
    let (half, rest) = line.split_at(9);
    growing.append("d", half);
    growing.append("d", rest);
    growing.append("d", half);
    growing.shows("tx_2");
    growing.append("d", rest);
    growing.shows("tx_2");
    growing.dump.signal(Signal::INT);
    assert!(growing.dump.wait().success());
    assert_eq!(growing.dump.last_error(), None);
}

#[test]
fn a_file_that_is_not_there_yet_is_waited_for() {
    let mut growing = Growing::start(&[], None);
    assert_eq!(
        growing.dump.error(),
        "transit-wire-dump: warning: waiting for d: No such file or directory (os error 2)"
    );
    growing.append("d", &ack("tx_1"));
    growing.shows("tx_1");
    growing.dump.signal(Signal::TERM);
    assert!(growing.dump.wait().success());
}

#[test]
fn a_rotated_file_is_read_to_its_end_and_then_the_new_one() {
    let growing = Growing::start(&[], Some(&ack("tx_1")));
    growing.shows("tx_1");
    std::fs::rename(growing.home.path("d"), growing.home.path("d.1")).unwrap();
    growing.append("d.1", &ack("tx_2"));
    growing.shows("tx_2");
    growing.append("d", "");
    growing.append("d.1", ack("tx_3").trim_end());
    growing.append("d", &ack("tx_4"));
    growing.shows("tx_3");
    growing.shows("tx_4");
    std::fs::remove_file(growing.home.path("d")).unwrap();
    growing.append("d", &ack("tx_5"));
    growing.shows("tx_5");
}

#[test]
fn a_file_that_was_cut_short_is_read_anew() {
    let growing = Growing::start(&[], Some(&[ack("tx_1"), ack("tx_2"), "{\"half".to_owned()].concat()));
    growing.shows("tx_1");
    growing.shows("tx_2");
    std::fs::File::options().write(true).truncate(true).open(growing.home.path("d")).unwrap();
    assert_eq!(growing.dump.error(), "transit-wire-dump: warning: d was cut short; reading it anew");
    growing.append("d", &ack("tx_3"));
    growing.shows("tx_3");
}

#[test]
fn a_signal_ends_following_with_the_numbers() {
    let mut growing = Growing::start(&["--stats", "--json"], Some(&conversation()));
    // Nothing is printed before the end, so it is seen by what it has open.
    let file = growing.home.path("d").canonicalize().unwrap();
    let position = |fd: std::fs::DirEntry| {
        let is_it = std::fs::read_link(fd.path()).is_ok_and(|link| link == file);
        let info = std::fs::read_to_string(fd.path().to_str()?.replace("/fd/", "/fdinfo/")).ok()?;
        is_it.then(|| info.lines().next()?.split_whitespace().nth(1)?.parse::<usize>().ok())?
    };
    eventually(|| {
        let open = std::fs::read_dir(format!("/proc/{}/fd", growing.dump.pid())).unwrap();
        open.filter_map(Result::ok).filter_map(position).find(|at| *at == conversation().len())
    });
    growing.dump.signal(Signal::INT);
    let report: Value = serde_json::from_str(&growing.dump.line()).unwrap();
    assert_eq!(report["frames"], 7);
    assert!(growing.dump.wait().success());
}

#[test]
fn a_signal_ends_following_although_nobody_reads_what_is_printed() {
    let home = Home::new();
    home.file("d", ack("tx_1").repeat(10_000));
    for args in [&["--follow", "d"][..], &["--follow", "--json", "d"], &["--follow", "--check", "d"]] {
        let mut command = home.command(PROGRAM);
        let mut dump = command.args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let unread = dump.stdout.take().unwrap();
        let size = u64::try_from(rustix::pipe::fcntl_getpipe_size(&unread).unwrap()).unwrap();
        eventually(|| (rustix::io::ioctl_fionread(&unread).unwrap() >= size - 4096).then_some(()));
        kill_process(Pid::from_child(&dump), Signal::INT).unwrap();
        assert!(eventually(|| dump.try_wait().unwrap()).success(), "{args:?}");
    }
}

#[test]
fn a_check_that_follows_tells_at_once_and_ends_with_no() {
    let mut growing = Growing::start(&["--check"], Some(&ack("tx_1")));
    assert!(growing.dump.line().starts_with("d:1: info: hello_required: hello_ok comes first"));
    assert_eq!(growing.dump.line(), "d:1: answer_without_send: send_ack for tx_1, which was not sent");
    growing.dump.signal(Signal::INT);
    assert_eq!(growing.dump.wait().code(), Some(1));
}

#[test]
fn stdin_is_followed_to_its_end() {
    let home = Home::new();
    let mut dump = Background::start(home.command(PROGRAM).arg("--follow"));
    dump.write(ack("tx_1"));
    assert_eq!(dump.line(), "- daemon <- worker send_ack    tx_1");
    dump.write(ack("tx_2").trim_end());
    dump.close_stdin();
    assert_eq!(dump.line(), "- daemon <- worker send_ack    tx_2");
    assert!(dump.wait().success());
}
