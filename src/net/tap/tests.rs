use miniz_oxide::deflate::core::{CompressorOxide, TDEFLFlush, compress_to_output};
use proptest::prelude::*;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::*;
use crate::limits;

const REQUEST: &[u8] = b"GET /api/daemon/ws?x=1 HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer s3cret\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n";

/// What a tap said, one word or two a thing.
struct Told<T>(T, Vec<String>);

impl<T: Tap> Told<T> {
    fn saw(&mut self, way: Way, bytes: &[u8]) {
        let said = &mut self.1;
        self.0.saw(way, bytes, &mut |seen| said.push(word(&seen)));
    }

    fn ended(&mut self, way: Way) {
        let said = &mut self.1;
        self.0.ended(way, None, &mut |seen| said.push(word(&seen)));
    }

    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.1)
    }
}

fn word(seen: &Seen<'_>) -> String {
    let way = if seen.way == Way::Forth { '>' } else { '<' };
    match &seen.what {
        What::Text(text) => format!("{way}{text}"),
        What::Note(note) => format!("{way}{note:?}"),
    }
}

fn web() -> Told<WebTap> {
    Told(WebTap::default(), Vec::new())
}

/// A tap on a WebSocket that is open, with this line in the answer.
fn open(extensions: &str) -> Told<WebTap> {
    let mut tap = web();
    tap.saw(Way::Forth, REQUEST);
    tap.saw(Way::Back, ANSWER);
    tap.saw(Way::Back, extensions.as_bytes());
    tap.saw(Way::Back, b"\r\n");
    assert_eq!(tap.take(), [r#">Open { path: "/api/daemon/ws" }"#, "<Answer { status: 101 }"]);
    tap
}

fn frame(opcode: OpCode, content: &[u8], change: impl FnOnce(&mut FrameHeader)) -> Vec<u8> {
    let mut header = FrameHeader { opcode, ..FrameHeader::default() };
    change(&mut header);
    let mut bytes = Vec::new();
    header.format(content.len() as u64, &mut bytes).unwrap();
    let mask = header.mask.unwrap_or_default();
    bytes.extend(content.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

fn text(content: &[u8]) -> Vec<u8> {
    frame(OpCode::Data(Data::Text), content, |_| ())
}

/// The payload of a compressed message, as an end that remembers the ones before makes it.
fn deflated(machine: &mut CompressorOxide, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress_to_output(machine, content, TDEFLFlush::Sync, |piece| {
        out.extend_from_slice(piece);
        true
    });
    assert!(out.ends_with(&[0, 0, 0xff, 0xff]));
    out.truncate(out.len() - 4);
    out
}

fn compressed(content: &[u8]) -> Vec<u8> {
    frame(OpCode::Data(Data::Text), content, |header| header.rsv1 = true)
}

#[test]
fn messages_are_put_together_around_what_comes_between() {
    let mut tap = open("");
    let mut bytes = Vec::new();
    let mask = Some([1, 2, 3, 4]);
    bytes.extend(frame(OpCode::Data(Data::Text), "hé".as_bytes(), |h| (h.is_final, h.mask) = (false, mask)));
    bytes.extend(frame(OpCode::Control(Control::Ping), b"still there?", |h| h.mask = mask));
    bytes.extend(frame(OpCode::Data(Data::Continue), b"", |h| (h.is_final, h.mask) = (false, mask)));
    bytes.extend(frame(OpCode::Data(Data::Continue), b"llo", |h| h.mask = mask));
    bytes.extend(frame(OpCode::Control(Control::Pong), b"", |h| h.mask = mask));
    bytes.extend(frame(OpCode::Data(Data::Binary), &[0, 255], |h| h.mask = mask));
    bytes.extend(text(b"\xff"));
    bytes.extend(frame(OpCode::Control(Control::Close), b"\x0f\xa0replaced", |_| ()));
    bytes.extend(frame(OpCode::Control(Control::Close), b"", |_| ()));
    tap.saw(Way::Forth, &bytes);
    tap.ended(Way::Forth);
    let said = [
        ">Ping { bytes: 12 }",
        ">héllo",
        ">Pong { bytes: 0 }",
        ">Binary { bytes: 2 }",
        ">NotUtf8",
        r#">Close { code: Some(4000), reason: "replaced" }"#,
        r#">Close { code: None, reason: "" }"#,
        ">End",
    ];
    assert_eq!(tap.take(), said);
}

#[test]
fn compressed_messages_are_read_with_those_before_them() {
    let words =
        ["to be or not to be, that is the question", "to be or not to be", "", "that is the question, to be"];
    for (agreed, remembers) in [
        ("Sec-WebSocket-Extensions: permessage-deflate\r\n", true),
        (
            "sec-websocket-extensions: x-other, permessage-deflate; client_max_window_bits=15; server_no_context_takeover\r\n",
            false,
        ),
    ] {
        let mut tap = open(agreed);
        let mut machine = CompressorOxide::default();
        machine.set_format_and_level(miniz_oxide::DataFormat::Raw, 6);
        for word in words.iter().cycle().take(2000) {
            if !remembers {
                machine.reset();
            }
            let payload = deflated(&mut machine, word.as_bytes());
            let (first, second) = payload.split_at(payload.len() / 2);
            tap.saw(
                Way::Back,
                &frame(OpCode::Data(Data::Text), first, |h| (h.rsv1, h.is_final) = (true, false)),
            );
            tap.saw(Way::Back, &frame(OpCode::Data(Data::Continue), second, |_| ()));
            assert_eq!(tap.take(), [format!("<{word}")]);
            tap.saw(Way::Back, &text(b"as it is"));
            assert_eq!(tap.take(), ["<as it is"]);
        }
    }
}

#[test]
fn a_message_may_end_with_a_last_block() {
    let mut tap = open("Sec-WebSocket-Extensions: permessage-deflate\r\n");
    for _ in 0..3 {
        let mut payload = miniz_oxide::deflate::compress_to_vec(b"whole and done", 6);
        payload.push(0);
        tap.saw(Way::Forth, &compressed(&payload));
        assert_eq!(tap.take(), [">whole and done"]);
    }
}

#[test]
fn what_is_too_long_is_told_and_what_follows_is_read() {
    let mut tap = open("Sec-WebSocket-Extensions: permessage-deflate\r\n");
    let longest = "x".repeat(limits::FRAME_BYTES);
    tap.saw(Way::Back, &text(longest.as_bytes()));
    assert_eq!(tap.take()[0].len(), limits::FRAME_BYTES + 1);
    let longer = vec![b'x'; limits::FRAME_BYTES + 1];
    tap.saw(Way::Back, &text(&longer));
    assert_eq!(tap.take(), ["<TooLong { bytes: 1048577 }"]);
    let mut machine = CompressorOxide::default();
    machine.set_format_and_level(miniz_oxide::DataFormat::Raw, 6);
    tap.saw(Way::Back, &compressed(&deflated(&mut machine, &longer)));
    tap.saw(Way::Back, &compressed(&deflated(&mut machine, b"xxxxxxx and more")));
    assert_eq!(tap.take(), ["<TooLong { bytes: 1048577 }", "<xxxxxxx and more"]);

    // A frame of 10 GB that never ends.
    let mut header = Vec::new();
    FrameHeader { opcode: OpCode::Data(Data::Text), ..FrameHeader::default() }
        .format(10 << 30, &mut header)
        .unwrap();
    tap.saw(Way::Back, &header);
    (0..100).for_each(|_| tap.saw(Way::Back, &longer));
    tap.ended(Way::Back);
    assert_eq!(tap.take(), ["<TooLong { bytes: 104857700 }", "<End"]);
}

#[test]
fn what_is_not_understood_is_told_once() {
    let blind = |why: &str| vec![format!("<Blind {{ why: {why:?} }}")];
    let mut tap = open("");
    tap.saw(Way::Back, &compressed(b"x"));
    assert_eq!(tap.take(), blind("it is compressed, which was not agreed on"));
    tap.saw(Way::Back, &frame(OpCode::Data(Data::Continue), b"x", |_| ()));
    assert_eq!(tap.take(), blind("a message goes on that had not begun"));
    tap.saw(Way::Back, &frame(OpCode::Data(Data::Text), b"x", |h| h.rsv3 = true));
    assert_eq!(tap.take(), blind("an extension that is not known changed it"));
    tap.saw(Way::Back, &frame(OpCode::Data(Data::Text), b"x", |h| h.is_final = false));
    tap.saw(Way::Back, &text(b"y"));
    assert_eq!(tap.take(), ["<Blind { why: \"a message begins inside of another one\" }", "<y"]);
    tap.saw(Way::Back, &[0x8f, 1, 2, 3]);
    assert_eq!(tap.take(), blind("what follows is no WebSocket frame"));
    tap.saw(Way::Back, &text(b"lost"));
    tap.ended(Way::Back);
    assert_eq!(tap.take(), ["<End"]);

    let mut tap = open("Sec-WebSocket-Extensions: permessage-deflate\r\n");
    tap.saw(Way::Back, &compressed(&[0xff; 40]));
    tap.saw(Way::Back, &text(b"plain"));
    assert_eq!(tap.take(), [blind("it cannot be inflated"), vec!["<plain".into()]].concat());
    tap.saw(Way::Back, &text(b"cut")[..3]);
    tap.ended(Way::Back);
    assert_eq!(tap.take(), ["<Cut", "<End"]);
}

#[test]
fn a_small_message_that_grows_without_end_is_given_up() {
    let mut tap = open("Sec-WebSocket-Extensions: permessage-deflate\r\n");
    let mut machine = CompressorOxide::default();
    machine.set_format_and_level(miniz_oxide::DataFormat::Raw, 6);
    tap.saw(Way::Back, &compressed(&deflated(&mut machine, &vec![0; 80 << 20])));
    assert_eq!(tap.take(), ["<Blind { why: \"it cannot be inflated\" }"]);
}

#[test]
fn an_answer_that_opens_nothing_ends_the_looking() {
    let mut tap = web();
    tap.saw(Way::Forth, b"POST /api/enroll?code=c HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}");
    tap.saw(Way::Back, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 401 Unauthorized\r\n\r\nno");
    tap.saw(Way::Back, &text(b"no"));
    assert_eq!(tap.take(), [r#">Open { path: "/api/enroll" }"#, "<Answer { status: 401 }"]);
    let mut tap = web();
    tap.saw(Way::Forth, &[b'x'; 70_000]);
    tap.saw(Way::Back, b"SSH-2.0\r\n\r\n");
    assert_eq!(tap.take().len(), 2);
}

#[test]
fn frames_that_come_with_the_heads_are_read() {
    let mut tap = web();
    tap.saw(Way::Forth, &[REQUEST, &text(b"early")].concat());
    tap.saw(Way::Back, &[ANSWER, b"\r\n", &text(b"at once")].concat());
    assert_eq!(tap.take()[2..], [">early", "<at once"]);
}

#[test]
fn the_first_line_tells_the_protocol() {
    for (first, proto) in [
        (r#"{"t":"register","proto":1}"#, Proto::Agent),
        (r#"{"op":"status"}"#, Proto::Control),
        (r#"{"id":1,"method":"status.get"}"#, Proto::Api),
        (r#"{"t":7}"#, Proto::Api),
        ("no json", Proto::Api),
    ] {
        let mut tap = LineTap::default();
        let mut protos = Vec::new();
        tap.saw(Way::Forth, format!("\n{first}\r\nsecond\n").as_bytes(), &mut |seen| protos.push(seen.proto));
        assert_eq!(protos, [proto, proto], "{first}");
    }
    let mut tap = Told(LineTap::default(), Vec::new());
    tap.saw(Way::Back, b"{\"error\":{}}\n\xff\ncut");
    tap.saw(Way::Forth, &vec![b'x'; limits::LINE_BYTES + 1]);
    tap.ended(Way::Back);
    assert_eq!(tap.take(), ["<{\"error\":{}}", "<NotUtf8", ">TooLong { bytes: 1048577 }", "<Cut", "<End"]);
}

proptest! {
    #[test]
    fn pieces_of_any_size_say_the_same(cuts in prop::collection::vec(1usize..40, 1..40)) {
        let mut machine = CompressorOxide::default();
        machine.set_format_and_level(miniz_oxide::DataFormat::Raw, 6);
        let mut bytes = [ANSWER, b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"].concat();
        for n in 0..20 {
            bytes.extend(compressed(&deflated(&mut machine, "héllo again ".repeat(n).as_bytes())));
            bytes.extend(frame(OpCode::Control(Control::Ping), b"x", |_| ()));
            bytes.extend(frame(OpCode::Data(Data::Text), &[b'y'; 130], |h| h.mask = Some([9, 8, 7, 6])));
        }
        let (mut whole, mut pieces) = (web(), web());
        whole.saw(Way::Back, &bytes);
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break }
            let (piece, more) = rest.split_at((*cut).min(rest.len()));
            pieces.saw(Way::Back, piece);
            rest = more;
        }
        prop_assert_eq!(whole.1.len(), 62);
        prop_assert_eq!(whole.1, pieces.1);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), deflate in any::<bool>()) {
        let agreed = if deflate { "Sec-WebSocket-Extensions: permessage-deflate\r\n" } else { "" };
        let mut tap = open(agreed);
        tap.saw(Way::Back, &bytes);
        tap.saw(Way::Forth, &bytes);
        let mut tap = web();
        tap.saw(Way::Back, &bytes);
        tap.saw(Way::Forth, &bytes);
        tap.ended(Way::Forth);
        let mut lines = Told(LineTap::default(), Vec::new());
        lines.saw(Way::Back, &bytes);
        lines.ended(Way::Back);
    }
}
