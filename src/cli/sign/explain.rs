//! Why does it not verify? The usual mistakes, tried one by one.
//!
//! Nothing of this ever runs where a signature decides about something: it only names what a person did wrong.

mod restyle;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use crate::proto::ingest::Signer;

/// What did not verify.
pub(super) struct Case<'a> {
    pub(super) secret: &'a str,
    pub(super) timestamp: &'a [u8],
    pub(super) signature: &'a [u8],
    pub(super) body: &'a [u8],
}

type Mac = [u8; 32];

/// The mistake that makes the signature what it is; `None` when no usual one does.
pub(super) fn explain(case: &Case<'_>) -> Option<String> {
    let wanted = macs_in(case.signature);
    let fits = |mac: Mac| wanted.contains(&mac);
    let start = [case.timestamp, b"."].concat();
    let key = case.secret.as_bytes();
    if fits(mac(key, &start, case.body)) {
        return Some(wrong_form(case));
    }
    if let Some(what) =
        stamps(case).find_map(|(what, start)| fits(mac(key, &start, case.body)).then_some(what))
    {
        return Some(what);
    }
    let key_fits = |(what, key): (&str, Vec<u8>)| fits(mac(&key, &start, case.body)).then(|| what.to_owned());
    if let Some(what) = keys(case.secret).into_iter().find_map(key_fits) {
        return Some(what);
    }
    let body_fits = |(what, body): (&str, Vec<u8>)| fits(mac(key, &start, &body)).then(|| what.to_owned());
    bodies(case.body).into_iter().find_map(body_fits)
}

fn mac(key: &[u8], start: &[u8], body: &[u8]) -> Mac {
    let mut running = Signer::from_key(key).begin_bare();
    running.update(start);
    running.update(body);
    running.finish_bytes()
}

/// Everything in a signature header that could be the 32 bytes of an HMAC, in whatever form.
fn macs_in(signature: &[u8]) -> Vec<Mac> {
    let Ok(text) = str::from_utf8(signature) else { return Vec::new() };
    let mut macs = Vec::new();
    for word in text.split([',', ';', ' ', '\t', '"']) {
        // `v1=…`, `sha256=…`, or nothing in front; the padding of base64 is no such sign.
        let after =
            word.trim_end_matches('=').split_once('=').map_or(word, |(name, _)| &word[name.len() + 1..]);
        for form in [word, after] {
            macs.extend(decode_all(form).into_iter().filter_map(|bytes| Mac::try_from(bytes).ok()));
        }
    }
    macs
}

/// The bytes that `text` is, read as hexadecimal digits and as the usual kinds of base64.
fn decode_all(text: &str) -> Vec<Vec<u8>> {
    let base64 = [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD];
    hex::decode(text).into_iter().chain(base64.iter().filter_map(|engine| engine.decode(text).ok())).collect()
}

/// The HMAC is right, so what failed is how the headers are written.
fn wrong_form(case: &Case<'_>) -> String {
    let in_milliseconds = case.timestamp.len() == 13 && case.timestamp.iter().all(u8::is_ascii_digit);
    if in_milliseconds {
        "the timestamp is in milliseconds; Transit-Timestamp is in seconds".to_owned()
    } else {
        "the HMAC is right, but its form is not: write v1= and 64 lowercase hexadecimal digits, and digits alone \
         for the timestamp"
            .to_owned()
    }
}

/// What may have been signed before the body.
fn stamps(case: &Case<'_>) -> impl Iterator<Item = (String, Vec<u8>)> {
    let stamp = String::from_utf8_lossy(case.timestamp).into_owned();
    let fixed = [
        ("the body alone was signed; sign the timestamp, a dot and the body", String::new()),
        ("the dot between the timestamp and the body was left out", stamp.clone()),
        ("another separator than a dot was signed after the timestamp", format!("{stamp}:")),
        ("another separator than a dot was signed after the timestamp", format!("{stamp}\n")),
        ("another separator than a dot was signed after the timestamp", format!("{stamp},")),
        ("a version was signed before the timestamp, as Slack does", format!("v0:{stamp}:")),
        ("a version was signed before the timestamp, as Slack does", format!("v1:{stamp}:")),
        ("the timestamp that was signed has no leading zeros", format!("{}.", stamp.trim_start_matches('0'))),
        ("the timestamp that was signed has no blanks or signs around its digits", {
            let is_digit = |c: char| c.is_ascii_digit();
            format!("{}.", stamp.trim_matches(|c| !is_digit(c)))
        }),
        ("the timestamp that was signed is in seconds, the one that was sent in milliseconds", {
            format!("{}.", stamp.get(..stamp.len().saturating_sub(3)).unwrap_or_default())
        }),
    ];
    let milliseconds = (0..1000).map(move |ms| {
        let what =
            "the timestamp that was signed is in milliseconds; sign the seconds that are sent".to_owned();
        (what, format!("{stamp}{ms:03}.").into_bytes())
    });
    fixed.into_iter().map(|(what, start)| (what.to_owned(), start.into_bytes())).chain(milliseconds)
}

/// What may have been taken for the secret.
fn keys(secret: &str) -> Vec<(&'static str, Vec<u8>)> {
    let mut keys = vec![
        ("the signer's secret ends with a newline", format!("{secret}\n").into_bytes()),
        ("the signer's secret ends with a newline (CRLF)", format!("{secret}\r\n").into_bytes()),
        (
            "the signer's secret has no blank or newline at its ends; this one has",
            secret.trim().as_bytes().to_vec(),
        ),
        ("the signer's secret ends with a blank", format!("{secret} ").into_bytes()),
        ("the signer's secret begins with a byte order mark", format!("\u{feff}{secret}").into_bytes()),
        ("the signer's secret has no byte order mark; this one has", {
            secret.trim_start_matches('\u{feff}').as_bytes().to_vec()
        }),
        ("the signer's secret is in quotes", format!("\"{secret}\"").into_bytes()),
    ];
    for text in [secret, secret.strip_prefix("whsec_").unwrap_or(secret)] {
        let decoded = "the signer decodes the secret (hexadecimal or base64); the key is its text as it is";
        keys.extend(decode_all(text).into_iter().map(|key| (decoded, key)));
    }
    keys
}

/// What may have been signed instead of the body that came.
fn bodies(body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let with = |end: &[u8]| [body, end].concat();
    let mut bodies = vec![
        ("a final newline was signed, but is not in the body", with(b"\n")),
        ("a final newline was signed, but is not in the body (CRLF)", with(b"\r\n")),
        ("the body has a final newline that was not signed", {
            let line = body.strip_suffix(b"\n").unwrap_or(body);
            line.strip_suffix(b"\r").unwrap_or(line).to_vec()
        }),
        ("the body has blanks at its ends that were not signed", body.trim_ascii().to_vec()),
        ("line ends were changed: LF was signed, the body has CRLF", replace(body, b"\r\n", b"\n")),
        ("line ends were changed: CRLF was signed, the body has LF", {
            replace(&replace(body, b"\r\n", b"\n"), b"\n", b"\r\n")
        }),
        ("the body that was signed has no line breaks (curl -d @FILE drops them; use --data-binary)", {
            body.iter().copied().filter(|b| !matches!(b, b'\r' | b'\n')).collect()
        }),
        ("the body has a byte order mark that was not signed", {
            body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).to_vec()
        }),
        ("a byte order mark was signed, but is not in the body", [b"\xef\xbb\xbf", body].concat()),
    ];
    bodies.extend(restyle::all(body));
    bodies
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut last = 0;
    for at in memchr::memmem::find_iter(bytes, from) {
        out.extend_from_slice(&bytes[last..at]);
        out.extend_from_slice(to);
        last = at + from.len();
    }
    out.extend_from_slice(&bytes[last..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "c2VjcmV0LWtleQ==";
    const BODY: &[u8] = b"{\"a\": \"\xc3\xa9\",\n \"b\": [1, 2.50]}\n";

    fn found(key: &[u8], signed: &[u8]) -> String {
        let hex = format!("v1={}", hex::encode(mac(key, b"", signed)));
        let case = Case { secret: SECRET, timestamp: b"1700000000", signature: hex.as_bytes(), body: BODY };
        explain(&case).unwrap_or_default()
    }

    fn over(body: &[u8]) -> Vec<u8> {
        [b"1700000000.", body].concat()
    }

    #[test]
    fn each_usual_mistake_is_named() {
        let key = SECRET.as_bytes();
        let body = str::from_utf8(BODY).unwrap();
        for (key, signed, words) in [
            (key, over(body.trim_end().as_bytes()), "final newline that was not signed"),
            (key, over(format!("{body}\n").as_bytes()), "final newline was signed"),
            (key, over(body.replace('\n', "\r\n").as_bytes()), "CRLF was signed"),
            (key, over(body.replace('\n', "").as_bytes()), "no line breaks"),
            (key, over("{\"a\":\"é\",\"b\":[1,2.50]}".as_bytes()), "compactly"),
            (key, over("{\"a\":\"\\u00e9\",\"b\":[1,2.50]}".as_bytes()), "compactly"),
            (key, over("{\"a\": \"\\u00e9\", \"b\": [1, 2.50]}".as_bytes()), "blanks after"),
            (key, over("{\n  \"a\": \"é\",\n  \"b\": [\n    1,\n    2.50\n  ]\n}".as_bytes()), "indented"),
            (key, BODY.to_vec(), "body alone"),
            (key, [b"1700000000", BODY].concat(), "dot"),
            (key, [b"1700000000123.", BODY].concat(), "milliseconds"),
            (b"c2VjcmV0LWtleQ==\n", over(BODY), "ends with a newline"),
            (b"c2VjcmV0LWtleQ==\r\n", over(BODY), "ends with a newline"),
            (b"secret-key", over(BODY), "decodes the secret"),
        ] {
            let said = found(key, &signed);
            assert!(said.contains(words), "{words}: {said}");
        }
        assert_eq!(found(b"other", &over(BODY)), "");
    }

    #[test]
    fn a_right_hmac_in_another_form_is_recognised() {
        let right = mac(SECRET.as_bytes(), b"1700000000.", BODY);
        let hex = hex::encode(right);
        for form in [
            hex.clone(),
            hex.to_uppercase(),
            format!("sha256={hex}"),
            format!("V1={hex}"),
            format!("v1= {hex}"),
            format!("t=1700000000,v1={hex}"),
            format!("v1,{}", STANDARD.encode(right)),
            URL_SAFE_NO_PAD.encode(right),
        ] {
            let case =
                Case { secret: SECRET, timestamp: b"1700000000", signature: form.as_bytes(), body: BODY };
            assert!(explain(&case).is_some_and(|said| said.contains("form")), "{form}");
        }
        let form = format!("v1={hex}");
        for timestamp in [" 1700000000", "+1700000000\n"] {
            let case = Case {
                secret: SECRET,
                timestamp: timestamp.as_bytes(),
                signature: form.as_bytes(),
                body: BODY,
            };
            assert!(explain(&case).is_some_and(|said| said.contains("no blanks or signs")), "{timestamp:?}");
        }
        let late = mac(SECRET.as_bytes(), b"1700000000000.", BODY);
        let form = format!("v1={}", hex::encode(late));
        let case =
            Case { secret: SECRET, timestamp: b"1700000000000", signature: form.as_bytes(), body: BODY };
        assert!(explain(&case).is_some_and(|said| said.contains("milliseconds")));
    }

    #[test]
    fn a_secret_of_hexadecimal_digits_may_have_been_decoded() {
        let signed = mac(b"\xde\xad\xbe\xef", b"1.", b"x");
        let form = format!("v1={}", hex::encode(signed));
        let case = Case { secret: "deadbeef", timestamp: b"1", signature: form.as_bytes(), body: b"x" };
        assert!(explain(&case).is_some_and(|said| said.contains("decodes")));
    }
}
