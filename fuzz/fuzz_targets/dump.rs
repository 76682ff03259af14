//! Whatever a dump holds, it is cut into lines, and a line is read exactly when serde reads it; what is shown of it is
//! the same JSON, and nothing in it reaches a terminal that a terminal would act on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transit::proto::dump::check::Checker;
use transit::proto::dump::tally::Tally;
use transit::proto::dump::{Cut, Cutter, Reader, Secrets, raw};
use transit::text;

/// What is taken for a line of the dump.
const LONGEST: usize = 4096;
/// Deeper values are told, whether serde reads them or not.
const TOO_DEEP: &str = "deeper nesting";

fuzz_target!(|data: &[u8]| {
    let (mut cutter, mut reader) = (Cutter::new(LONGEST), Reader::new());
    let (mut checker, mut tally) = (Checker::new(), Tally::new());
    // The first byte says how much comes at once.
    let Some((&size, mut rest)) = data.split_first() else { return };
    while !rest.is_empty() {
        let space = cutter.space();
        let length = space.len().min(rest.len()).min(usize::from(size) + 1);
        space[..length].copy_from_slice(&rest[..length]);
        cutter.filled(length);
        rest = &rest[length..];
        while let Some(cut) = cutter.next() {
            if let Cut::Line(bytes) = cut {
                line(bytes, &mut reader, &mut checker, &mut tally);
            }
        }
    }
    if let Some(Cut::Line(bytes)) = cutter.end() {
        line(bytes, &mut reader, &mut checker, &mut tally);
    }
    let _ = tally.report();
});

fn line(bytes: &[u8], reader: &mut Reader, checker: &mut Checker, tally: &mut Tally) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let is_object = text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{');
    let by_serde = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() && is_object;
    let line = match reader.read(text) {
        Ok(line) => line,
        Err(err) => return assert!(!by_serde || err.what.starts_with(TOO_DEEP), "{err}"),
    };
    assert!(by_serde);
    let mut shown = String::new();
    let put = |piece: &str| {
        shown.push_str(piece);
        Ok::<_, std::convert::Infallible>(())
    };
    let Ok(()) = raw::shown(text, Secrets::Shown, put);
    assert!(!shown.contains(text::is_unsafe), "{shown:?}");
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    assert_eq!(value(&shown), value(text));
    if line.is_clean() {
        assert_eq!(shown, text);
    }
    checker.check(&line).for_each(drop);
    tally.take(&line, true);
}
