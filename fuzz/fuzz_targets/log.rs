//! Whatever a log holds, a scanner finds the same in it however it is cut into pieces, and what it finds renders again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transit::proto::envelope::{Found, Scanner, parse, render};

fn found(pieces: impl Iterator<Item = impl AsRef<[u8]>>) -> Vec<Found> {
    let mut scanner = Scanner::new();
    let mut found = Vec::new();
    for piece in pieces {
        scanner.push(piece.as_ref());
        found.extend(std::iter::from_fn(|| scanner.next()));
    }
    scanner.end();
    found.extend(std::iter::from_fn(|| scanner.next()));
    found
}

fuzz_target!(|data: &[u8]| {
    // The first byte says how long pieces are.
    let Some((size, log)) = data.split_first() else { return };
    let whole = found(std::iter::once(log));
    assert_eq!(whole, found(log.chunks(usize::from(*size) + 1)));
    assert!(whole.windows(2).all(|pair| pair[0].offset < pair[1].offset));
    for found in whole {
        assert_eq!(log[found.offset as usize], b'<');
        let Ok(parsed) = found.what else { continue };
        let again = parse(&render(&parsed.envelope)).expect("what is rendered parses");
        assert_eq!(again.envelope.id, parsed.envelope.id);
    }
});
