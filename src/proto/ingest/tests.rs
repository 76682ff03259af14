//! The rules of an event body, each with a case on either side of it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MINIMAL: &str = r#""schema":"transit.ingest/1","event_key":"k","conversation_id":"c","content":"hi""#;

/// A body with these further fields.
fn with(fields: &str) -> String {
    format!("{{{MINIMAL},{fields}}}")
}

/// A body whose `field` has this JSON value.
fn where_is(field: &str, json: &str) -> String {
    let value = |name: &str, usual: &str| {
        let json = if name == field { json } else { usual };
        format!("\"{name}\":{json}")
    };
    let fields = [
        value("schema", "\"transit.ingest/1\""),
        value("event_key", "\"k\""),
        value("conversation_id", "\"c\""),
        value("content", "\"hi\""),
    ];
    format!("{{{}}}", fields.join(","))
}

fn text_of(length: usize, c: &str) -> String {
    format!("\"{}\"", c.repeat(length))
}

#[track_caller]
fn passes(body: &str) -> Event {
    parse_event(body.as_bytes()).unwrap_or_else(|err| panic!("{err}: {body:.200}"))
}

#[track_caller]
fn refused(body: impl AsRef<[u8]>, field: Option<&str>) {
    let body = body.as_ref();
    match parse_event(body) {
        Ok(event) => panic!("passed: {event:?}"),
        Err(err) => assert_eq!(err.field.as_deref(), field, "{err}: {:.200}", String::from_utf8_lossy(body)),
    }
}

#[test]
fn the_fields_come_out_as_they_were_sent() {
    let event = passes(&with(
        r#""user":"A\u00e9","trigger":"","reply_url":"https://h.example/r","meta":{"b":"2","a":""},"other":[1e3,null,{}]"#,
    ));
    assert_eq!(
        (event.event_key.as_str(), event.conversation_id.as_str(), event.content.as_str()),
        ("k", "c", "hi")
    );
    assert_eq!((event.user.as_deref(), event.trigger.as_deref()), (Some("Aé"), Some("")));
    assert_eq!(event.reply_url.as_deref(), Some("https://h.example/r"));
    assert_eq!(event.meta.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(passes(&format!("{{{MINIMAL}}}")).user, None);
}

#[test]
fn the_body_is_one_json_object_in_utf8() {
    passes(&format!("\u{feff} \r\n{{{MINIMAL}}}\t\r\n "));
    for body in [
        "".to_owned(),
        " ".to_owned(),
        format!("\u{feff}\u{feff}{{{MINIMAL}}}"),
        format!("{{{MINIMAL}}}\u{feff}"),
        format!("{{{MINIMAL}}}\0"),
        format!("{{{MINIMAL}}}{{}}"),
        format!("{{{MINIMAL},}}"),
        format!("/* */{{{MINIMAL}}}"),
        r#"["transit.ingest/1","k","c","hi"]"#.to_owned(),
        "\"hi\"".to_owned(),
        "null".to_owned(),
        with("\"x\":NaN"),
        with("\"x\":01"),
        with("\"x\":\"\\ud83d\""),
        with("\"\\udc00\":1"),
        with("\"x\":\"\u{1}\""),
        with("\"x\":\"\\q\""),
        with("'x':1"),
    ] {
        refused(&body, None);
    }
    let mut latin1 = with("\"x\":\"?\"").into_bytes();
    let at = latin1.iter().position(|&b| b == b'?').unwrap();
    latin1[at] = 0xe9;
    refused(latin1, None);
    passes(&with("\"x\":18446744073709551616,\"y\":-1.5e3,\"z\":\"\\ud83d\\ude00\\u0000\u{7f}\""));
}

#[test]
fn no_object_has_a_key_twice() {
    refused(with(r#""event_key":"k""#), Some("event_key"));
    refused(with(r#""event\u005fkey":"other""#), Some("event_key"));
    refused(with(r#""meta":{"a":"1","\u0061":"1"}"#), Some("meta"));
    refused(with(r#""x":[{"y":{"a":1,"b":2,"a":3}}]"#), Some("x"));
    refused(with(r#""x":1,"x":1"#), Some("x"));
    passes(&with(r#""x":{"a":{"a":[{"a":1},{"a":2}]}},"X":1"#));
}

#[test]
fn nesting_has_an_end() {
    let nested = |arrays: usize| with(&format!("\"x\":{}{}", "[".repeat(arrays), "]".repeat(arrays)));
    passes(&nested(63));
    refused(nested(64), Some("x"));
    refused(nested(126), Some("x"));
    refused(nested(127), None);
    refused(nested(100_000), None);
    refused(with(&format!("\"x\":{}1{}", "{\"a\":".repeat(64), "}".repeat(64))), Some("x"));
}

#[test]
fn required_fields_are_strings_that_are_there() {
    for field in ["schema", "event_key", "conversation_id", "content"] {
        for json in ["null", "1", "true", "[]", "{}", "\"\""] {
            refused(where_is(field, json), Some(field));
        }
        refused(where_is(field, "\"x\"").replace(&format!("\"{field}\""), "\"absent\""), Some(field));
    }
    refused(where_is("schema", "\"transit.ingest/2\""), Some("schema"));
    refused(where_is("schema", "\"transit.ingest/1 \""), Some("schema"));
}

#[test]
fn keys_count_utf16_units_and_hold_no_nul() {
    for field in ["event_key", "conversation_id"] {
        passes(&where_is(field, &text_of(200, "é")));
        refused(where_is(field, &text_of(201, "e")), Some(field));
        passes(&where_is(field, &text_of(100, "😀")));
        refused(where_is(field, &text_of(101, "😀")), Some(field));
        refused(where_is(field, r#""a\u0000b""#), Some(field));
        passes(&where_is(field, r#""a\n\u007f ""#));
    }
}

#[test]
fn content_counts_bytes() {
    assert_eq!(passes(&where_is("content", &text_of(65_536, "a"))).content.len(), 65_536);
    refused(where_is("content", &text_of(65_537, "a")), Some("content"));
    passes(&where_is("content", &text_of(16_384, "😀")));
    refused(where_is("content", &text_of(16_385, "😀")), Some("content"));
    assert_eq!(passes(&where_is("content", r#""\u0000\u001b""#)).content, "\0\x1b");
}

#[test]
fn user_and_trigger_count_code_points() {
    for (field, most) in [("user", 200), ("trigger", 32)] {
        passes(&with(&format!("\"{field}\":{}", text_of(most, "😀"))));
        refused(with(&format!("\"{field}\":{}", text_of(most + 1, "a"))), Some(field));
        refused(with(&format!("\"{field}\":null")), Some(field));
        refused(with(&format!("\"{field}\":7")), Some(field));
    }
}

#[test]
fn a_reply_url_is_plain_http() {
    for url in ["https://h.example/a?b#c", "http://127.0.0.1:9/"] {
        passes(&with(&format!("\"reply_url\":\"{url}\"")));
    }
    for json in
        ["null", "\"\"", "\"ftp://h/\"", "\"https://me@h/\"", "\"https://h/\\n\"", "\"https://h/../\"", "[]"]
    {
        refused(with(&format!("\"reply_url\":{json}")), Some("reply_url"));
    }
}

#[test]
fn meta_has_limits_and_a_reserved_key() {
    let entries = |count: usize| (0..count).map(|n| format!("\"k{n}\":\"\"")).collect::<Vec<_>>().join(",");
    assert_eq!(passes(&with(&format!("\"meta\":{{{}}}", entries(32)))).meta.len(), 32);
    refused(with(&format!("\"meta\":{{{}}}", entries(33))), Some("meta"));
    for (key, value, good) in [
        ("k".repeat(64), "v".to_owned(), true),
        ("k".repeat(65), "v".to_owned(), false),
        ("😀".repeat(32), "😀".repeat(512), true),
        ("😀".repeat(33), "v".to_owned(), false),
        ("k".to_owned(), "v".repeat(1024), true),
        ("k".to_owned(), "v".repeat(1025), false),
        ("k".to_owned(), "😀".repeat(513), false),
        ("trigger".to_owned(), "v".to_owned(), false),
        ("Trigger".to_owned(), "v".to_owned(), true),
    ] {
        let body = with(&format!("\"meta\":{{\"{key}\":\"{value}\"}}"));
        if good {
            assert_eq!(passes(&body).meta[&key], value);
        } else {
            refused(body, Some("meta"));
        }
    }
    for json in
        ["null", "[]", "\"x\"", r#"{"a":1}"#, r#"{"a":null}"#, r#"{"a":{}}"#, r#"{"\u0074rigger":"x"}"#]
    {
        refused(with(&format!("\"meta\":{json}")), Some("meta"));
    }
}

#[test]
fn the_whole_body_has_a_limit() {
    let padded = |bytes: usize| {
        let body = with("\"pad\":\"\"");
        body.replace("\"pad\":\"\"", &format!("\"pad\":\"{}\"", "x".repeat(bytes - body.len())))
    };
    passes(&padded(crate::limits::INGEST_BYTES));
    refused(padded(crate::limits::INGEST_BYTES + 1), None);
}

#[test]
fn a_senders_event_is_checked_by_the_same_rules() {
    let mut event = Event {
        event_key: "k".to_owned(),
        conversation_id: "c".to_owned(),
        content: "hi".to_owned(),
        ..Event::default()
    };
    let body = event.checked_body().unwrap();
    assert_eq!(String::from_utf8(body).unwrap(), format!("{{{MINIMAL}}}"));
    event.meta.insert("trigger".to_owned(), "x".to_owned());
    assert_eq!(event.checked_body().unwrap_err().field.as_deref(), Some("meta"));
}

fn any_event() -> impl Strategy<Value = Event> {
    let key = "[a-z\u{1}\"\\\\é😀]{1,40}";
    (
        (key, key, ".{1,200}"),
        prop::option::of(".{0,20}"),
        prop::option::of(".{0,16}"),
        prop::collection::btree_map("[a-s\"é]{0,20}", ".{0,30}", 0..5),
    )
        .prop_map(|((event_key, conversation_id, content), user, trigger, meta)| Event {
            event_key,
            conversation_id,
            content,
            user,
            trigger,
            reply_url: Some("https://h.example/r".to_owned()),
            meta,
        })
}

proptest! {
    #[test]
    fn an_event_survives_its_body(event in any_event()) {
        prop_assert_eq!(parse_event(&event.checked_body().unwrap()).unwrap(), event);
    }

    #[test]
    fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..200, with in any::<u8>()) {
        let _ = parse_event(&body);
        let mut nearly = Event { event_key: "k".into(), conversation_id: "c".into(), content: "x".into(), user: None,
            trigger: None, reply_url: None, meta: BTreeMap::new() }.to_body();
        let at = at % nearly.len();
        nearly[at] = with;
        let _ = parse_event(&nearly);
    }

    #[test]
    fn an_allowed_url_stays_under_its_prefix(rest in "[a-z./%25ef\\\\;?#@: \u{2e}-\u{39}]{0,30}") {
        let prefix: ReplyPrefix = "https://h.example/in/".parse().unwrap();
        if let Ok(url) = reply_url_allowed(&format!("https://h.example/in/{rest}"), &[prefix]) {
            prop_assert!(url.as_str().starts_with("https://h.example/in/"));
            prop_assert_eq!(url.host_str(), Some("h.example"));
        }
    }
}
