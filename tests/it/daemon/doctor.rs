//! `transitd doctor`: each fault is named, with a way to mend it, and a probe goes the whole way.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::world::{Adapter, Worker, ask, enrolled, nobody, outcome, start, status_until};
use crate::rig::Rig;
use crate::support::{Background, Home, text};

/// What the doctor finds: its exit, and every line of it.
fn findings(home: &Home) -> (i32, Vec<Value>) {
    let (code, out, err) = outcome(home.command("transitd").args(["doctor", "--json"]));
    assert!(err.is_empty(), "{err}");
    let found: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for finding in &found {
        let is_sound = finding["level"] == "ok";
        assert_eq!(finding["hint"].is_null(), is_sound, "every fault has its way out: {finding}");
    }
    (code, found)
}

/// The finding of this level and check whose text says this.
fn has(found: &[Value], level: &str, check: &str, says: &str) -> bool {
    found.iter().any(|finding| {
        finding["level"] == level
            && finding["check"] == check
            && finding["text"].as_str().unwrap().contains(says)
    })
}

#[test]
fn a_host_that_is_sound_is_told_so_and_without_a_daemon_it_is_not() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let _bob = rig.listen("bob");
    assert!(rig.home.run("transitd", ["status", "--wait", "60s"], b"").status.success());
    let (code, found) = findings(&rig.home);
    assert_eq!(code, 0, "{found:#?}");
    for check in [
        "config",
        "files",
        "disk",
        "spool",
        "daemon",
        "link",
        "sockets",
        "processes",
        "proxy",
        "worker",
        "clock",
    ] {
        assert!(has(&found, "ok", check, ""), "{check}: {found:#?}");
    }
    let (code, out, _) = outcome(rig.home.command("transitd").arg("doctor"));
    assert_eq!(code, 0);
    assert!(out.contains("ok       clock"), "{out}");
    let mut rig = rig;
    rig.kill_daemon();
    let (code, found) = findings(&rig.home);
    assert_eq!(code, 1);
    assert!(has(&found, "wrong", "daemon", "no daemon listens"), "{found:#?}");
    assert!(has(&found, "note", "sockets", "left of a daemon that was killed"), "{found:#?}");
    rig.kill_worker();
    assert!(has(&findings(&rig.home).1, "wrong", "worker", "could not"), "{found:#?}");
}

#[test]
fn what_is_wrong_with_the_hosts_own_agents_is_found() {
    let home = Home::new();
    let agent = |name: &str, more: &str| {
        let text = format!("[agent]\nname = \"{name}\"\n[run]\ncommand = \"true\"\n{more}");
        let dir = format!("agents-home/agents/{}", name.replace(' ', "-"));
        std::fs::create_dir_all(home.path(&dir)).unwrap();
        home.file(&format!("{dir}/agent.toml"), &text);
    };
    let look = || {
        let mut doctor = home.command("transitd");
        doctor.args(["doctor", "--json"]).env("DOTAGENT_HOME", home.path("agents-home"));
        let (_, out, _) = outcome(&mut doctor);
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    assert!(!look().iter().any(|finding| finding["check"] == "agents"), "there is no such home");
    agent("tiny", "");
    home.file("agents-home/config.toml", "[telegram]\ndispatcher_agent = \"tiny\"\n");
    assert!(
        !look().iter().any(|finding| finding["check"] == "agents" && finding["level"] != "ok"),
        "{:#?}",
        look()
    );
    agent("bad", "protocol = \"assistant-v9\"");
    agent("steady", "[lifecycle]\nmode = \"persistent\"");
    agent("gated", "[[preflight]]\nplugin = \"nowhere\"");
    agent("An Agent", "[[notifiers]]\ndriver = \"desktop\"\n[[schedules]]\nid = \"nightly\"");
    home.file(
        "agents-home/config.toml",
        "[telegram]\ndispatcher_agent = \"tiny\"\nbot_token = \"${TELEGRAM_BOT_TOKEN}\"\n",
    );
    std::fs::create_dir_all(home.path("agents-home/agents/twin")).unwrap();
    home.file("agents-home/agents/twin/agent.toml", "[agent]\nname = \"tiny\"\n[run]\ncommand = \"true\"\n");
    symlink("nowhere", home.path("agents-home/agents/link")).unwrap();
    std::fs::create_dir_all(home.path("agents-home/commands")).unwrap();
    symlink(".", home.path("agents-home/commands/loop")).unwrap();
    home.file("agents-home/audit.log", "{}\n");
    home.file("agents-home/secrets.env", "A=b\n");
    std::fs::set_permissions(home.path("agents-home/secrets.env"), PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::set_permissions(home.path("agents-home/config.toml"), PermissionsExt::from_mode(0o666)).unwrap();
    let found = look();
    for (level, says) in [
        ("wrong", "\"assistant-v9\" is not known"),
        ("wrong", "steady is not run: persistent"),
        ("wrong", "gated is not run: its preflight dotagent-plugin-nowhere"),
        ("note", "\"An Agent\" does not match"),
        ("note", "An Agent is run without schedules, notifiers"),
        ("note", "nothing here speaks to Telegram"),
        ("note", "secrets.env is not read"),
        ("note", "twin/agent.toml does not count: \"tiny\" is the agent of"),
        ("wrong", "agents/link: a link that leads nowhere"),
        ("wrong", "config.toml (mode 666)"),
        ("wrong", "others can read"),
        ("ok", "3 can be run of those in"),
    ] {
        assert!(has(&found, level, "agents", says), "{says}: {found:#?}");
    }
    assert!(has(&found, "note", "commands", "commands/loop: a link back"), "{found:#?}");
    assert!(has(&found, "wrong", "audit", "audit.log: line 1 does not go on"), "{found:#?}");
    for (config, level, says) in [
        ("[telegram]\ndispatcher_agent = \"another\"\n", "wrong", "no agent is called \"another\""),
        ("[os\n", "wrong", "line 1"),
        ("", "note", "no dispatcher is named"),
    ] {
        home.file("agents-home/config.toml", config);
        assert!(has(&look(), level, "agents", says), "{says}: {:#?}", look());
    }
}

#[test]
fn what_is_wrong_on_the_disk_is_found() {
    let home = enrolled(nobody());
    let faults = |home: &Home| {
        let (code, found) = findings(home);
        assert_eq!(code, 1);
        found
    };
    let mode = |name: &str, mode| {
        std::fs::set_permissions(home.path(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    mode("data", 0o700);
    assert!(has(&faults(&home), "ok", "files", ""));
    for (name, wrong, right) in
        [("data/token", 0o640, 0o600), ("config.json", 0o604, 0o600), ("data", 0o755, 0o700)]
    {
        mode(name, wrong);
        assert!(has(&faults(&home), "wrong", "files", name), "{name}");
        mode(name, right);
    }
    for config in ["", "{\"url\":\"http://x\"}", "{\"url\":\"ftp://x\",\"host\":\"titan\"}"] {
        home.file("config.json", config);
        assert!(has(&faults(&home), "wrong", "config", ""), "{config}");
    }
    home.file("config.json", "{}");
    assert!(has(&faults(&home), "note", "config", "not enrolled"));
    home.file("data/agent.sock", "precious");
    assert!(has(&faults(&home), "wrong", "sockets", "in the way"));
    home.file(
        "data/spool.db",
        "no database at all, and longer than its header is, which has a hundred bytes in all: these",
    );
    let (code, found) = findings(&home);
    assert_eq!(code, 74, "{found:#?}");
    assert!(has(&found, "damaged", "spool", ""), "{found:#?}");
}

#[test]
fn a_data_directory_that_cannot_be_written_is_found() {
    let home = enrolled(nobody());
    assert!(has(&findings(&home).1, "ok", "data", "can be written"));
    let left: Vec<_> =
        std::fs::read_dir(home.data()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["token"], "nothing is left behind");
    // Whose it is tells even one who may write everywhere; what it allows, everybody else.
    let is_root = rustix::process::geteuid().is_root();
    let says = if is_root {
        std::os::unix::fs::chown(home.data(), Some(12_345), None).unwrap();
        "belongs to user 12345"
    } else {
        std::fs::set_permissions(home.data(), PermissionsExt::from_mode(0o500)).unwrap();
        "cannot be written"
    };
    let (code, found) = findings(&home);
    assert!(code == 1 && has(&found, "wrong", "data", says), "{found:#?}");
    std::fs::set_permissions(home.data(), PermissionsExt::from_mode(0o700)).unwrap();
    let other = Home::new();
    let (_, found) = findings(&other);
    assert!(has(&found, "ok", "data", "is made by the first"), "{found:#?}");
    let mut doctor = other.command("transitd");
    let nowhere = outcome(doctor.args(["doctor", "--json"]).env("TRANSIT_DATA_DIR", "/proc/transit/data")).1;
    assert!(
        nowhere.contains("cannot be made in /proc:") && nowhere.contains("TRANSIT_DATA_DIR=DIR"),
        "{nowhere}"
    );
}

#[test]
fn a_worker_that_does_not_answer_well_and_another_clock_are_found() {
    let answers = |head: &'static str| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            use std::io::{Read, Write};
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut asked = [0; 4096];
                let _ = stream.read(&mut asked);
                let _ = stream.write_all(
                    format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes(),
                );
            }
        });
        enrolled(at)
    };
    let (_, found) = findings(&answers("200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT"));
    assert!(has(&found, "ok", "worker", "") && has(&found, "wrong", "clock", " s off "), "{found:#?}");
    let (_, found) = findings(&answers("502 Bad Gateway"));
    assert!(
        has(&found, "wrong", "worker", "502") && has(&found, "note", "clock", "does not tell"),
        "{found:#?}"
    );
    let (_, found) = findings(&answers("404 Not Found"));
    assert!(has(&found, "note", "worker", "not at /healthz"), "{found:#?}");
    let home = enrolled("192.0.2.1:80".parse().unwrap());
    let (_, out, _) =
        outcome(home.command("transitd").args(["doctor", "--json"]).env("ALL_PROXY", "socks5://x"));
    assert!(out.contains("\"proxy\"") && out.contains("its scheme is not http"), "{out}");
}

#[test]
fn a_daemon_that_is_paused_or_refused_by_the_worker_is_told() {
    let home =
        enrolled(super::world::impostor(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", false));
    let _daemon = start(&home);
    status_until(&home, |status| {
        status["last_error"].as_str().is_some_and(|why| why.contains("transitd enroll --force"))
    });
    ask(&home, &json!({ "op": "pause", "paused": true }));
    let (code, found) = findings(&home);
    assert_eq!(code, 1);
    assert!(has(&found, "wrong", "daemon", "paused"), "{found:#?}");
    assert!(has(&found, "wrong", "link", "device token"), "{found:#?}");
}

#[test]
fn a_deep_data_directory_is_no_fault_and_a_planted_one_is() {
    let home = Home::new();
    let deep = home.path(&"d".repeat(120));
    let doctor = || {
        let mut command = home.command("transitd");
        outcome(command.args(["doctor", "--json"]).env("TRANSIT_DATA_DIR", &deep)).1
    };
    assert!(doctor().contains("too deep"), "{}", doctor());
    let short = doctor();
    let dir = short.split("they are in ").nth(1).unwrap().split('"').next().unwrap().to_owned();
    symlink(home.path("x"), &dir).unwrap();
    let told = doctor();
    std::fs::remove_file(&dir).unwrap();
    assert!(told.contains("cannot be trusted") && told.contains("remove "), "{told}");
}

/// What is told beside a probe and its steps, and its exit.
fn probe(home: &Home, agent: &str) -> (Option<i32>, Vec<Value>) {
    let out = home.run("transitd", ["doctor", "--json", "--timeout", "20s", "--probe", agent], b"");
    let lines = text(&out.stdout).lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    (out.status.code(), lines.collect())
}

fn steps(told: &[Value]) -> Vec<&str> {
    told.iter().filter_map(|line| line["step"].as_str()).collect()
}

#[test]
fn a_probe_goes_through_the_worker_into_the_session_and_says_what_it_is() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let mut bob = rig.listen("bob");
    let (code, told) = std::thread::scope(|scope| {
        let probing = scope.spawn(|| probe(&rig.home, "bob"));
        let delivered = bob.delivered();
        let envelope = delivered["envelope"].as_str().unwrap();
        assert!(envelope.contains("from=\"doctor-") && envelope.contains("This is a probe"), "{envelope}");
        bob.ack(delivered["id"].as_str().unwrap());
        probing.join().unwrap()
    });
    assert_eq!(code, Some(0), "{told:#?}");
    assert_eq!(steps(&told), ["daemon", "registered", "kept", "committed", "delivered", "arrived", "told"]);
    assert!(told.iter().all(|line| line.get("step").is_none() || line["ms"].is_number()));
    let (code, told) = probe(&rig.home, "nobody@demo");
    assert_eq!((code, *steps(&told).last().unwrap()), (Some(1), "failed"), "{told:#?}");
    for (bad, says) in [("#ops", "name"), ("a@b@c", "name@host"), ("", "name")] {
        let (code, _, err) = outcome(rig.home.command("transitd").args(["doctor", "--probe", bad]));
        assert_eq!(code, 2, "{bad}: {err}");
        assert!(err.contains(says), "{err}");
    }
}

#[test]
fn a_probe_that_does_not_arrive_says_where_it_stopped() {
    let worker = Worker::start();
    let home = enrolled(worker.at);
    let _daemon = start(&home);
    let (_jess, _) = Adapter::register(&home, "s1", Some("jess"));
    status_until(&home, |status| status["connected"] == true);
    let failed = |timeout: &str| {
        let args = ["doctor", "--json", "--timeout", timeout, "--probe", "jess"];
        let (code, out, _) = outcome(home.command("transitd").args(args));
        let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        assert_eq!((code, &last["step"]), (1, &json!("failed")), "{out}");
        last["text"].as_str().unwrap().to_owned()
    };
    assert!(failed("0s").contains("the Worker has not taken it"));
    ask(&home, &json!({ "op": "pause", "paused": true }));
    assert!(failed("20s").contains("paused"));
}

#[test]
fn a_probe_says_that_nobody_is_there_and_ends_when_it_is_told_to() {
    let rig = Rig::start("http://127.0.0.1:9/");
    let bob = rig.listen("bob");
    // Once the Worker takes its calls, it knows the agent; what nobody has ever heard of is refused.
    rig.call("bob", "list_agents", &json!({}));
    drop(bob);
    status_until(&rig.home, |status| status["agents"] == json!([]));
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = rig.home.command("transitd");
        command.args(["doctor", "--json", "--timeout", "1h", "--probe", "bob"]);
        let mut probing = Background::start(&mut command);
        let step = |wanted: &str| loop {
            let told: Value = serde_json::from_str(&probing.line()).unwrap();
            assert!(wanted == "failed" || told["step"] != "failed", "{told}");
            if told["step"] == wanted {
                return told["text"].as_str().unwrap().to_owned();
            }
        };
        assert!(step("waits").contains("no session of bob@demo"));
        step("committed");
        probing.signal(signal);
        assert_eq!(step("failed"), "interrupted");
        assert_eq!(probing.wait().code(), Some(1));
    }
}

#[test]
fn without_a_worker_a_probe_goes_straight_into_the_session() {
    let home = Home::new();
    let _daemon = start(&home);
    let (mut jess, _) = Adapter::register(&home, "s1", Some("jess"));
    let (code, told) = std::thread::scope(|scope| {
        let probing = scope.spawn(|| probe(&home, "jess"));
        let id = jess.delivery();
        jess.nak(&id, "draft_busy", true);
        // Nobody but this host knows of it: it is tried again here.
        assert_eq!(jess.delivery(), id);
        jess.ack(&id);
        probing.join().unwrap()
    });
    assert_eq!(code, Some(0), "{told:#?}");
    assert_eq!(steps(&told), ["daemon", "registered", "kept", "delivered", "waits", "arrived"]);
    let waits = told.iter().find(|line| line["step"] == "waits").unwrap();
    assert!(waits["text"].as_str().unwrap().contains("draft_busy"));
}
