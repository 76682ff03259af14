//! Many connections that do nothing: the others are served as before, and they cost little.

use std::os::unix::net::UnixStream;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;
use transit::net::service::raise_descriptor_limit;

use super::world::{Adapter, ask, enrolled, nobody, start};
use crate::support::{Background, Home, resident_bytes};

const CROWD: usize = 1_000;
/// A thread each, of which little is touched.
const BYTES_EACH: u64 = 64 * 1024;

fn crowd(home: &Home, name: &str, daemon: &Background) {
    let before = resident_bytes(daemon.pid());
    let connect = |_| UnixStream::connect(home.data().join(name)).unwrap();
    let idle: Vec<UnixStream> = (0..CROWD).map(connect).collect();
    let (mut jess, _) = Adapter::register(home, "s1", Some("jess"));
    assert_eq!(ask(home, &json!({ "op": "status" }))["agents"][0]["name"], "jess");
    jess.status("busy");
    let grown = resident_bytes(daemon.pid()).saturating_sub(before);
    assert!(grown < CROWD as u64 * BYTES_EACH, "{name}: {grown} bytes for {CROWD}");
    drop(idle);
}

/// Lets a process have no new descriptor from this one on, and answers what it was allowed before.
fn limit_descriptors(pid: u32, most: Option<u64>) -> Option<u64> {
    let pid = Pid::from_raw(pid.cast_signed());
    let before = getrlimit(Resource::Nofile);
    prlimit(pid, Resource::Nofile, Rlimit { current: most, maximum: before.maximum }).unwrap().current
}

#[test]
fn without_descriptors_it_says_so_and_when_that_is_over() {
    raise_descriptor_limit();
    let home = enrolled(nobody());
    let daemon = start(&home);
    let is_free = |fd: &u64| !std::fs::exists(format!("/proc/{}/fd/{fd}", daemon.pid())).unwrap();
    let free = (0..).find(is_free).unwrap();
    let before = limit_descriptors(daemon.pid(), Some(free));
    let crowd: Vec<UnixStream> =
        (0..4).map(|_| UnixStream::connect(home.data().join("agent.sock")).unwrap()).collect();
    while !daemon.error().contains("could not serve a connection") {}
    limit_descriptors(daemon.pid(), before);
    while !daemon.error().contains("connections are served again") {}
    drop(crowd);
    assert_eq!(ask(&home, &json!({ "op": "status" }))["ok"], true);
}

#[test]
fn a_thousand_idle_connections_keep_nobody_out() {
    raise_descriptor_limit();
    let home = enrolled(nobody());
    let mut daemon = start(&home);
    for name in ["agent.sock", "transit.sock"] {
        crowd(&home, name, &daemon);
    }
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.wait().success());
}
