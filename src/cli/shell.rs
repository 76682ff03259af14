//! Words for sh.

use crate::text;

/// One word for sh, whatever bytes it holds.
///
/// What a terminal would act on is written as `"$(printf '\033')"`, so that the word can be shown and is the same for
/// sh. A newline stays, because a substitution would lose it at its end.
pub(super) fn quoted(word: &[u8]) -> Vec<u8> {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(b);
    if !word.is_empty() && word.iter().all(plain) {
        return word.to_vec();
    }
    let mut out = vec![b'\''];
    let mut hidden = Vec::new();
    for chunk in word.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mut bytes = [0; 4];
            let bytes = c.encode_utf8(&mut bytes).as_bytes();
            if text::is_unsafe(c) && !matches!(c, '\n' | '\t') {
                hidden.extend_from_slice(bytes);
                continue;
            }
            close(&mut out, &mut hidden);
            match c {
                '\'' => out.extend_from_slice(b"'\\''"),
                _ => out.extend_from_slice(bytes),
            }
        }
        hidden.extend_from_slice(chunk.invalid());
    }
    close(&mut out, &mut hidden);
    out.push(b'\'');
    out
}

/// Writes the bytes that are not to be seen, and goes on within quotes.
fn close(out: &mut Vec<u8>, hidden: &mut Vec<u8>) {
    if hidden.is_empty() {
        return;
    }
    out.extend_from_slice(b"'\"$(printf '");
    out.extend(hidden.drain(..).flat_map(|byte| format!("\\{byte:03o}").into_bytes()));
    out.extend_from_slice(b"')\"'");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_one_word_for_sh() {
        for (word, line) in [
            (&b""[..], "''"),
            (b"a/b.json", "a/b.json"),
            (b"a b", "'a b'"),
            (b"it's", "'it'\\''s'"),
            (b"-x", "-x"),
            (b"a\n$(b)`c`\\", "'a\n$(b)`c`\\'"),
            (b"a\x1b\x07b\xff", "'a'\"$(printf '\\033\\007')\"'b'\"$(printf '\\377')\"''"),
            ("é\u{202e}\u{9b}".as_bytes(), "'é'\"$(printf '\\342\\200\\256\\302\\233')\"''"),
        ] {
            assert_eq!(String::from_utf8_lossy(&quoted(word)), line);
        }
    }
}
