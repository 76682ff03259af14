//! Whatever a client of the local API sends, in whatever pieces, the server stays in order: frames are JSON, answers
//! have an id, little is kept, and nothing comes after the end.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use transit::clock::Mono;
use transit::proto::Output;
use transit::proto::local::{
    Answer, Asked, EventFrame, Input, LocalEvent, Request, Server, ServerConfig, Unsent, parse, salvage_id,
};

// The first byte says how the rest is cut, and how much of what is written leaves.
fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    salvage_id(data);
    if let Ok(line) = std::str::from_utf8(data) {
        let _ = parse(line, 32_768);
    }
    let config = ServerConfig { rate_per_minute: 1_000, event_bytes: 4_096, ..ServerConfig::default() };
    let mut server = Server::new(config, Mono::default());
    let (mut is_over, mut tickets) = (false, Vec::new());
    for (n, piece) in data.chunks(usize::from(how % 61) + 1).enumerate() {
        let now = Mono(Duration::from_millis(100 * n as u64));
        server.handle(Input::Bytes(piece), now);
        while let Some(output) = server.poll() {
            assert!(!is_over, "nothing comes after the end");
            match output {
                Output::Write(line) => {
                    let frame: serde_json::Value = serde_json::from_str(&line).expect("a frame is JSON");
                    assert!(frame.get("id").is_some() != frame.get("event").is_some());
                    server.handle(Input::Sent(usize::from(how) + 1), now);
                }
                Output::Event(Asked { ticket, request }) => {
                    let answer = match request {
                        Request::Send { session, text } => {
                            tickets.push((ticket, session, text));
                            Answer::Accepted
                        }
                        Request::Commands | Request::Status => Answer::Commands(Vec::new()),
                    };
                    server.answer(ticket, &answer, now);
                }
                Output::WakeAt(_) => {}
                Output::Close(_) => is_over = true,
            }
        }
        if let Some((ticket, session, text)) = tickets.last().cloned() {
            let event = if n % 3 == 0 {
                LocalEvent::Reply { session, text }
            } else {
                LocalEvent::ReplyDelta { session, line: text }
            };
            match server.offer(ticket, EventFrame::new(&event), now) {
                Ok(()) | Err(Unsent::Full(_) | Unsent::Gone) => {}
            }
        }
        server.handle(Input::Tick, now);
    }
    server.handle(Input::End, Mono::default());
});
