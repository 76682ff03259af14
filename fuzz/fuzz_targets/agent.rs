//! Whatever comes over `agent.sock`, in whatever pieces, both ends of transit-agent/1 stay in order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transit::clock::Mono;
use transit::limits;
use transit::proto::agent::{DaemonSide, PeerProcess, decode_adapter, decode_host};
use transit::proto::lines::{Line, Lines};
use transit::proto::Decoded;

fuzz_target!(|data: &[u8]| {
    let mut side = DaemonSide::new(PeerProcess { pid: 7, own: 7 }, Mono::default());
    let mut lines = Lines::new(limits::LINE_BYTES);
    for piece in data.chunks(7) {
        lines.push(piece);
        while let Some(line) = lines.next() {
            side.handle(line.as_input(), Mono::default());
            while side.poll().is_some() {}
            if let Line::Text(text) = &line {
                if let Decoded::Frame(frame) = decode_adapter(text) {
                    assert_eq!(decode_adapter(&frame.encode()), Decoded::Frame(frame));
                }
                if let Decoded::Frame(frame) = decode_host(text) {
                    assert_eq!(decode_host(&frame.encode()), Decoded::Frame(frame));
                }
            }
        }
    }
});
