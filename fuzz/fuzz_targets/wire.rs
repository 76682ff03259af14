//! Whatever the peer says, both ends of transit-wire/1 stay in order, and what decodes encodes to the same frame.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use transit::clock::Mono;
use transit::proto::wire::{
    DaemonConfig, DaemonEnd, WorkerConfig, WorkerEnd, decode_daemon, decode_worker,
};
use transit::proto::{Decoded, Input};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Decoded::Frame(frame) = decode_daemon(text) {
        assert_eq!(decode_daemon(&frame.encode()), Decoded::Frame(frame));
    }
    if let Decoded::Frame(frame) = decode_worker(text) {
        assert_eq!(decode_worker(&frame.encode()), Decoded::Frame(frame));
    }
    let mut now = Mono::default();
    let mut daemon = DaemonEnd::new(DaemonConfig { host: "titan".into(), daemon_ver: "fuzz".into() }, now);
    let config = WorkerConfig { host: "titan".into(), host_id: "hst_000000000001".into(), org: "default".into() };
    let mut worker = WorkerEnd::new(config, now);
    for line in text.lines() {
        now = now + Duration::from_millis(700);
        daemon.handle(Input::Text(line), now);
        while daemon.poll().is_some() {}
        worker.handle(Input::Text(line), now);
        while worker.poll().is_some() {}
    }
});
