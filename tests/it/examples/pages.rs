//! The examples of the manual pages, run as they stand there, with a Worker and an agent of this machine in the
//! places of those that they name.

use serde_json::json;
use transit::cli::tools;

use super::*;
use crate::support::Background;

/// What is in examples that do not end by themselves, that cron reads, or that need rooms, which there are none of.
/// Tests of the commands cover them.
const NOT_HERE: [&str; 8] =
    ["--follow", "--proxy", "--connect", "--proxy-socket", "* * * * *", "'#ops'", "claude mcp", "npx "];

/// What the examples take for granted: files, a source in the configuration, things in the spool.
fn furnish(rig: &Rig) {
    let home = &rig.home;
    let event =
        json!({"schema": "transit.ingest/1", "event_key": "k", "conversation_id": "c", "content": "red"});
    home.file("ci.secret", SECRET);
    home.file("event.json", event.to_string());
    home.file("body.json", "{}");
    home.file("events.ndjson", "{\"conversation_id\":\"c\",\"content\":\"one\"}\n".repeat(3));
    home.file("build.log", "cc -o a a.c\n".repeat(80));
    home.file("mail.html", "<p>Hello,\n<b>you</b>");
    let signed = home.run("transit-sign", ["--secret-file", "secret", "body.json"], b"");
    home.file("headers", &signed.stdout);
    let rendered =
        "transit-envelope render --kind dm --from jess@titan --id tx_0123456789ab --ts 2026-03-01T10:20:30Z";
    let rendered = home.run("transit-envelope", rendered.split(' ').skip(1), b"hello");
    home.file("typescript", [b"$ \x1b[1m", &rendered.stdout[..], b"\x1b[0m$ exit\n"].concat());
    home.file("frames.ndjson.2", "{\"t\":\"rpc\",\"id\":\"1\",\"method\":\"whoami\",\"params\":{}}\n");
    assert!(home.foreign("gzip").arg("frames.ndjson.2").status().unwrap().success());
    let config = home.path("config.json");
    let mut known: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    known["sources"] = json!({ "ci": { "url": rig.endpoint(), "secret_file": home.path("secret") } });
    home.file("config.json", known.to_string());
    // An agent of this host, for the local client API.
    let agents = home.path(".config/dotagent");
    fs::create_dir_all(agents.join("agents/tiny")).unwrap();
    fs::write(agents.join("config.toml"), "[telegram]\ndispatcher_agent = \"tiny\"\n").unwrap();
    let manifest = "[agent]\nname = \"tiny\"\n[run]\ncommand = \"cat\"\n";
    fs::write(agents.join("agents/tiny/agent.toml"), manifest).unwrap();
    spool_event(home, "kept");
}

#[test]
fn the_examples_of_the_manual_pages_do_what_they_say() {
    if !have(&["curl", "jq", "gzip"]) {
        return;
    }
    let sink = Sink::start(&[200]);
    let mut rig = Rig::start(&format!("http://{}/reply/", sink.at));
    furnish(&rig);
    for dump in ["frames.ndjson.1", "frames.ndjson"] {
        rig.kill_daemon();
        rig.start_daemon_with(&["--wire-log", rig.home.path(dump).to_str().unwrap()]);
        assert!(rig.home.run("transitd", ["status", "--wait", "30s"], b"").status.success());
    }
    let mut agent = rig.home.command("transit-agent");
    let agent = Background::start(agent.args(["listen", "--name", "bob", "--auto-ack"]));
    assert!(agent.line().contains("registered"));
    let places = [
        ("http://127.0.0.1:8787", format!("http://{}", rig.at)),
        ("https://transit.example", format!("http://{}", rig.at)),
        ("transit-send jess@titan --as helper", "transit-send bob@demo --as bob".to_owned()),
        // Outside of a session.
        ("transit-send jess@titan -", "transit-send bob@demo --as bob -".to_owned()),
        ("/var/lib/node_exporter/", String::new()),
    ];
    let (mut ran, mut left) = (0, 0);
    for tool in tools().iter().filter(|tool| tool.page.section == "1") {
        let name = tool.command.get_name();
        for (what, example) in tool.page.examples {
            if name == "transit-agent" || NOT_HERE.iter().any(|word| example.contains(word)) {
                left += 1;
                continue;
            }
            let line = places.iter().fold((*example).to_owned(), |line, (from, to)| line.replace(from, to));
            let mut shell = rig.home.foreign("sh");
            let output = shell.args(["-euc", &line]).stdin(Stdio::null()).output().unwrap();
            // Of an id that is nobody's, the answer is no.
            let expected = i32::from(example.contains("--status evt_0123456789ab"));
            assert_eq!(output.status.code(), Some(expected), "{name}: {what}\n{line}\n{}", said(&output));
            ran += 1;
        }
    }
    assert!(ran > 20 && left < 15, "{ran} ran, {left} did not");
}
