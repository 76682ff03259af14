//! An event that keeps the rules keeps them when it is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transit::proto::ingest::{check_headers, parse_event};

fuzz_target!(|data: &[u8]| {
    let (head, body) = data.split_at(data.len().min(16));
    let _ = check_headers(Some(head), Some(body), 0);
    if let Ok(event) = parse_event(data) {
        let body = event.checked_body().expect("an accepted event can be sent");
        assert_eq!(parse_event(&body).expect("and is accepted again"), event);
    }
});
