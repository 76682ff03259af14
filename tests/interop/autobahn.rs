//! The Autobahn test suite against the Worker's end of a WebSocket.
//!
//! `AUTOBAHN` is the command of its `wstest`. The suite (25.10.1, the last one) is written in Python 2:
//!
//! ```text
//! python2.7 -m pip install --target DIR autobahntestsuite==25.10.1 && touch DIR/zope/__init__.py
//! AUTOBAHN="env PYTHONPATH=DIR python2.7 DIR/bin/wstest" cargo test --features interop --test interop autobahn
//! ```

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::sync::mpsc::channel;

use serde_json::{Value, json};
use transit::net::service::Shutdown;
use transit::worker::echo;

use crate::support::{Home, left_out, text};

/// All that a server without compression has to do; 9 measures messages of up to 16 MB, which are over our limit.
const CASES: [&str; 8] = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*"];

#[test]
fn autobahn_finds_no_failure() {
    let Ok(command) = std::env::var("AUTOBAHN") else {
        return left_out("AUTOBAHN does not name the suite's wstest");
    };
    let home = Home::new();
    let (stop, (tell, told)) = (Shutdown::new(), channel());
    let (stopped, server) =
        (stop.clone(), move |stop: Shutdown| echo::serve(&stop, |at| tell.send(at).unwrap()));
    let serving = std::thread::spawn(move || server(stopped));
    let at = told.recv().unwrap();
    let spec = json!({
        "outdir": home.path("reports"), "cases": CASES, "exclude-cases": [], "exclude-agent-cases": {},
        "servers": [{ "agent": "transit", "url": format!("ws://{at}/") }],
    });
    home.file("spec.json", spec.to_string());
    let words: Vec<&str> = command.split_whitespace().collect();
    let mut suite = Command::new(words[0]);
    suite.args(&words[1..]).args(["-m", "fuzzingclient", "-s"]).arg(home.path("spec.json"));
    let ran = suite.current_dir(home.path("")).output().unwrap();
    stop.trigger();
    serving.join().unwrap().unwrap();

    let index = std::fs::read(home.path("reports").join("index.json"));
    let index: Value =
        serde_json::from_slice(&index.unwrap_or_else(|_| panic!("{}", text(&ran.stderr)))).unwrap();
    let mut counts = BTreeMap::<&str, usize>::new();
    let mut failed = Vec::new();
    for (case, result) in index["transit"].as_object().unwrap() {
        for what in ["behavior", "behaviorClose"] {
            let word = result[what].as_str().unwrap();
            if what == "behavior" {
                *counts.entry(word).or_default() += 1;
            }
            if !["OK", "INFORMATIONAL", "NON-STRICT"].contains(&word) {
                failed.push(format!("{case} {what}: {word}"));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
    assert!(counts.values().sum::<usize>() > 200, "{counts:?}");
    // Past the test harness, which would swallow it.
    let _ = writeln!(std::io::stderr(), "{counts:?}");
}
