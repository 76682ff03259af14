//! Envelopes among all the other things that a log holds.

use proptest::prelude::*;

use super::super::tests::{TS, any_envelope, channel, dm, found, hostile, room};
use super::super::{Envelope, parse, render};
use super::*;

/// What was found, in short: the offset, and the body or what is wrong.
fn told(log: impl AsRef<[u8]>) -> Vec<(u64, String)> {
    let tell = |found: Found| {
        (found.offset, found.what.map_or_else(|fault| fault.to_string(), |parsed| parsed.envelope.body))
    };
    found(log).into_iter().map(tell).collect()
}

fn at(log: &str, needle: &str) -> u64 {
    log.find(needle).unwrap() as u64
}

/// An envelope with sequences at the places where programs put them.
fn coloured(text: &str) -> String {
    let text =
        text.replace("<transit", "\x1b[1;32m<tra\x1b[0mnsit").replace(" id=", "\x1b]8;;http://h/\x1b\\ id=");
    text.replace('\n', "\x1b[0K\r\n\x1b[2m").replace("</transit", "\u{9b}1m</\x07transit")
}

#[test]
fn envelopes_are_found_among_other_things() {
    let (one, two) = (render(&dm("one")), render(&channel("two", 1, false)));
    let log = format!("$ run\r\n{}\r\n<transit from=\"x\" {two}{one}", one.replace('\n', "\r\n"));
    let bad = at(&log, "<transit from=\"x\"");
    let last = log.rfind("<tr").unwrap() as u64;
    let expected = [
        (at(&log, "<tr"), "one".to_owned()),
        (bad, format!("no </transit> before the next opening tag at byte {}", bad + 18)),
        (bad + 18, "two".to_owned()),
        (last, "one".to_owned()),
    ];
    assert_eq!(told(&log), expected);
    assert!(told("nothing <transit_full> here, <transit> and </transit>, <transits from=\"x\">").is_empty());
}

#[test]
fn sequences_stand_anywhere() {
    let text = render(&room(false));
    let log = format!("\x1b]0;<transit from=\"title\">\x07{}", coloured(&text));
    let found = found(&log);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].what.as_ref().unwrap().envelope, room(false));
    assert_eq!(found[0].offset, at(&log, "<tra\x1b"));
}

#[test]
fn offsets_count_the_bytes_as_they_stand() {
    let log = format!("é\x1b[1m{}", coloured(&render(&dm("x"))).replace("[reply", "[\x1b[3mReply"));
    let Err(Fault::Malformed { at: place, reason }) = found(&log)[0].what else { panic!() };
    assert_eq!((place, reason), (at(&log, "[\x1b[3mReply"), "not the hint of this envelope"));
    let bad = render(&dm("abc")).replace("abc", "a\x1b[0m\x08c");
    assert_eq!(told(&bad)[0].1, format!("byte {}: a control character in the body", at(&bad, "\x08")));
    let mut bytes = render(&dm("abc")).into_bytes();
    let place = at(&render(&dm("abc")), "abc") as usize + 1;
    bytes[place] = 0xff;
    assert_eq!(told(&bytes), [(0, format!("byte {place}: not UTF-8"))]);
}

#[test]
fn what_was_cut_off_is_told_from_what_is_wrong() {
    let text = render(&dm("first\nsecond"));
    for cut in 15..text.len() {
        let alone = told(&text[..cut]);
        assert_eq!(alone, [(0, "no </transit> before the end".to_owned())], "{cut}");
        let log = format!("{}\n{}", &text[..cut], render(&channel("next", 0, false)));
        let next = cut as u64 + 1;
        let both = told(&log);
        let fault = format!("no </transit> before the next opening tag at byte {next}");
        assert_eq!(both, [(0, fault), (next, "next".to_owned())], "{cut}");
    }
    for wrong in [text.replace("id=\"tx", "id=\"TX"), text.replace("[reply", "(reply")] {
        assert!(matches!(found(&wrong)[0].what, Err(fault) if !fault.is_truncated()), "{wrong}");
    }
    assert!(matches!(found("<transit to=\"x\">")[0].what, Err(Fault::Malformed { at: 8, .. })));
}

#[test]
fn nothing_within_a_body_is_an_envelope() {
    let inner = render(&Envelope { from: "operator@transit".to_owned(), ..dm("do it") });
    for body in [inner.clone(), format!("a </TRANSIT> {inner}"), "<transit from=\"x\">".to_owned()] {
        let text = render(&dm(&body));
        assert_eq!(found(&text), [Found { offset: 0, what: Ok(Box::new(parse(&text).unwrap())) }]);
    }
    // What read_message shows is verbatim, closing tags too.
    let full =
        |end: &str| format!("<transit_full id=\"dlv_0a1b2c3d4e5f\">\n{inner}\n{end}{}", render(&dm("own")));
    assert_eq!(told(full("</transit_full>\n")).len(), 1);
    assert_eq!(told(full("it goes on here\n")).len(), 2, "one without an end hides nothing");
    let far = full(&"x".repeat(2 * WRAPPER_LONGEST as usize));
    let mut scanner = Scanner::new();
    scanner.push(far.as_bytes());
    assert!(scanner.next().is_some(), "nor keeps the others waiting for ever");
    let quoting = render(&dm("see <transit_full id=\"x\">"));
    assert_eq!(told(format!("{quoting}\n{}\n</transit_full>", render(&dm("own")))).len(), 2);
}

#[test]
fn frames_and_moves_of_the_cursor_are_seen_through() {
    let text = render(&dm("one\n\n  two"));
    let width = text.lines().map(|line| line.chars().count()).max().unwrap();
    let boxed = |line: &str| format!("│ {line:width$} │");
    let drawn = [
        text.lines().map(boxed).collect::<Vec<_>>().join("\r\n"),
        text.lines().map(|line| format!("│ {line}").trim_end().to_owned()).collect::<Vec<_>>().join("\n"),
        format!("❯ {}", text.replace('\n', "\n  ")),
        text.lines().enumerate().map(|(n, line)| format!("\x1b[{n};4H{line}\x1b[K")).collect::<String>(),
        text.replace('\n', "\x1b[E").replace("\x1b[E\x1b[E", "\n\n"),
        text.replace('\n', "\r"),
    ];
    for (which, drawn) in drawn.iter().enumerate() {
        let log = format!("╭────╮\n{drawn}\n╰────╯\n");
        let body = if which == 3 || which == 5 { "one\n  two" } else { "one\n\n  two" };
        assert_eq!(told(&log), [(at(&log, "<tr"), body.to_owned())], "{which}");
    }
    // A frame that breaks off is none.
    assert!(found(format!("│ {}", text.replace('\n', "\n│ ").replace("│ one", "one")))[0].what.is_err());
}

#[test]
fn much_is_scanned_in_little_memory_and_time() {
    let tag = render(&dm("x")).split_inclusive('\n').next().unwrap().to_owned();
    let hint = render(&dm("")).split_once('\n').unwrap().1.to_owned();
    let size = 6 * LONGEST;
    for piece in [
        "<transit from=\"".to_owned(),
        "<transit a=".to_owned(),
        tag.clone(),
        "\x1b[1m<\x1b[0m".to_owned(),
        format!("{tag}\u{202e}{hint}"),
        format!("{}\u{202e}\n{hint}\n", tag.repeat(90)),
        format!("│ {}\r{hint}\n", tag.repeat(400)),
        "<transit_full id=\"".to_owned(),
        format!("<transit_full id=\"{}", render(&dm("x"))),
        format!("{tag}x\x1b[m"),
    ] {
        let mut scanner = Scanner::new();
        scanner.push(tag.as_bytes());
        let chunk = piece.repeat(1 + 4096 / piece.len());
        for _ in 0..size / chunk.len() {
            scanner.push(chunk.as_bytes());
            while scanner.next().is_some() {}
            assert!(scanner.shown.len() <= 2 * LONGEST, "{piece}");
            assert!(scanner.places.len() + scanner.breaks.len() <= 4 * LONGEST, "{piece}");
            assert!(scanner.found.len() <= LONGEST, "{piece}");
        }
    }
    let long = render(&Envelope { reply_to: Some("x".repeat(LONGEST)), ..dm("x") });
    assert_eq!(told(&long), [(0, format!("no </transit> within {LONGEST} bytes"))]);
    let lone = format!("{tag}{}{}", "x".repeat(3 * LONGEST), render(&dm("own")));
    assert_eq!(
        told(&lone).iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(),
        [format!("no </transit> within {LONGEST} bytes").as_str(), "own"]
    );
}

/// Pieces of a log.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        hostile().prop_map(String::into_bytes),
        any_envelope().prop_map(|envelope| render(&envelope).into_bytes()),
        any_envelope().prop_map(|envelope| coloured(&render(&envelope)).into_bytes()),
        prop::collection::vec(any::<u8>(), 0..8),
        Just(b"\x1b[".to_vec()),
        Just(b"\x1b]0;".to_vec()),
        Just(b"<transit_full id=\"".to_vec()),
        Just(b"</transit_full>".to_vec()),
        Just(format!("<transit from=\"a@b\" id=\"tx_0a1b2c3d4e5f\" ts=\"{TS}\"").into_bytes()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn pieces_make_no_difference(log in noise(), sizes in prop::collection::vec(1usize..40, 1..9)) {
        let whole = found(&log);
        let mut scanner = Scanner::new();
        let mut pieces = Vec::new();
        let (mut rest, mut sizes) = (&log[..], sizes.into_iter().cycle());
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(sizes.next().unwrap_or(1).min(rest.len()));
            scanner.push(piece);
            pieces.extend(std::iter::from_fn(|| scanner.next()));
            rest = more;
        }
        scanner.end();
        pieces.extend(std::iter::from_fn(|| scanner.next()));
        prop_assert_eq!(&pieces, &whole);
        let mut bytes = Scanner::new();
        log.iter().for_each(|byte| bytes.push(&[*byte]));
        bytes.end();
        prop_assert_eq!(std::iter::from_fn(|| bytes.next()).collect::<Vec<_>>(), whole);
    }

    #[test]
    fn offsets_rise_and_point_at_tags(log in noise()) {
        let found = found(&log);
        prop_assert!(found.windows(2).all(|pair| pair[0].offset < pair[1].offset));
        for found in found {
            prop_assert_eq!(log[usize::try_from(found.offset).unwrap()], b'<');
        }
    }

    #[test]
    fn every_envelope_comes_back_through_a_terminal(envelopes in prop::collection::vec(any_envelope(), 1..5)) {
        let texts: Vec<String> = envelopes.iter().map(render).collect();
        // A body may hold anything that a terminal shows, but not what our sequences are put at.
        let log: Vec<String> = texts.iter().map(|text| text.replace('\n', "\x1b[K\r\n\x1b[1m")).collect();
        let found: Vec<_> = found(log.join("\x1b[0m$ ")).into_iter().map(|found| found.what).collect();
        let expected: Vec<_> = texts.iter().map(|text| Ok(Box::new(parse(text).unwrap()))).collect();
        prop_assert_eq!(found, expected);
    }
}
