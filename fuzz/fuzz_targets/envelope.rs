//! What parses renders to the same fields again, and no body closes its own envelope.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transit::proto::envelope::{Envelope, Kind, parse, render};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(parsed) = parse(text) {
        let _ = render(&parsed.envelope);
    }
    let envelope = Envelope {
        from: "jess@titan".into(),
        id: "tx_001122334455".into(),
        ts: "2026-01-01T00:00:00Z".into(),
        reply_to: None,
        body: text.to_owned(),
        kind: Kind::Dm,
    };
    let rendered = render(&envelope);
    assert_eq!(rendered.to_lowercase().matches("</transit").count(), 1);
    let again = parse(&rendered).expect("what is rendered parses");
    assert_eq!(again.envelope.from, envelope.from);
});
