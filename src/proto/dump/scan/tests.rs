use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::*;

fn read(line: &str) -> Result<Marks, NotJson> {
    let mut marks = Marks::default();
    marks.read(line).map(|()| marks)
}

fn pairs<'a>(line: &'a str, fields: &[Found]) -> Vec<(&'a str, &'a str)> {
    fields.iter().map(|found| (found.name.of(line), found.value.of(line))).collect()
}

#[test]
fn the_outermost_fields_of_a_record_and_of_its_frame_are_found() {
    let line = r#"{"at":"x","frame":{"t":"send","n":[1,{"frame":{"deep":1}}],"e":{}},"n":-1.5e3}"#;
    let marks = read(line).unwrap();
    assert_eq!(
        pairs(line, &marks.outer),
        [("at", "\"x\""), ("frame", r#"{"t":"send","n":[1,{"frame":{"deep":1}}],"e":{}}"#), ("n", "-1.5e3")]
    );
    assert_eq!(
        pairs(line, &marks.frame),
        [("t", "\"send\""), ("n", r#"[1,{"frame":{"deep":1}}]"#), ("e", "{}")]
    );
    assert!(marks.is_clean && !marks.has_escaped_name);
}

#[test]
fn what_may_not_be_shown_as_it_is_is_seen_at_any_depth() {
    for line in [
        r#"{"a": 1}"#,
        r#" {"a":1}"#,
        r#"{"a":[{"token":1}]}"#,
        r#"{"frame":{"\u0073ecret":1}}"#,
        r#"{"AUTHORIZATION":1}"#,
        "{\"a\":\"\u{7f}\"}",
        "{\"a\u{9b}\":1}",
        "{\"a\":[\"\u{202e}\"]}",
        "{\"a\":\"\u{2066}\"}",
    ] {
        assert!(!read(line).unwrap().is_clean, "{line}");
    }
    for line in
        [r#"{"a":"\u001b token é 日本 \u0000"}"#, r#"{"tokens":1,"tok":2}"#, "{\"\u{a0}\":\"\u{2026}\"}"]
    {
        assert!(read(line).unwrap().is_clean, "{line}");
    }
}

#[test]
fn what_is_no_json_is_told_with_its_place() {
    for (line, at, what) in [
        ("", 1, "the end where a value should be"),
        ("nope", 1, "no value"),
        ("{\"a\":01}", 7, "neither a comma nor the end of the object"),
        ("{\"a\":1,}", 8, "no field name"),
        ("{\"a\" 1}", 6, "no colon"),
        ("{\"a\":[1,]}", 9, "no value"),
        ("{\"a\":[1 2]}", 9, "neither a comma nor the end of the array"),
        ("{\"a\":\"\u{1}\"}", 7, "a control character in a string"),
        ("{\"a\":\"\\x\"}", 7, "no escape"),
        ("{\"a\":\"\\u12g4\"}", 7, "no escape"),
        ("{\"a\":\"x", 8, "the end in the middle of a string"),
        ("{\"a\":1} x", 9, "more after the end of the value"),
        ("{\"a\":-}", 7, "no digit"),
        ("[1]", 1, "a frame is a JSON object, and there is something else"),
        ("{\"a\":\0}", 6, "no value"),
    ] {
        let err = read(line).unwrap_err();
        assert_eq!((err.at, err.what, err.is_json), (at, what, line == "[1]"), "{line:?}");
    }
    let deep = |depth: usize| format!("{}{}", "{\"a\":".repeat(depth), "1") + &"}".repeat(depth);
    assert!(read(&deep(127)).is_ok());
    assert_eq!(read(&deep(128)).unwrap_err().what, "deeper nesting than is read");
    assert!(read(&"[".repeat(1_000_000)).is_err(), "and no stack is lost over it");
}

#[test]
fn fields_beyond_the_bound_are_checked_and_not_noted() {
    let fields: Vec<String> = (0..FIELDS + 9).map(|n| format!("\"{n}\":{n}")).collect();
    let line = format!("{{{}}}", fields.join(","));
    assert_eq!(read(&line).unwrap().outer.len(), FIELDS);
    assert!(read(&line.replace("4100:", "4100;")).is_ok() && read(&line.replace(":4100", ":x")).is_err());
}

/// Any JSON value, small.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,40}|[\\x00-\\x7f\\u{80}-\\u{9f}\\u{2066}]{0,20}".prop_map(Value::from),
    ];
    let name = prop_oneof![Just("frame".to_owned()), Just("secret".to_owned()), "[a-z\\\\\"]{0,9}"];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(name.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = String> {
    prop::collection::hash_map("[a-z]{1,6}", json(), 0..6)
        .prop_map(|map| Value::Object(map.into_iter().collect()).to_string())
}

proptest! {
    #[test]
    fn a_line_is_read_exactly_when_serde_reads_it(
        line in object(),
        at in any::<prop::sample::Index>(),
        with in prop_oneof![Just(""), Just("\""), Just("\\"), Just("{"), Just("]"), Just(","), Just("0"), Just(" "), Just("\u{1}")],
        remove in any::<bool>(),
    ) {
        prop_assert!(read(&line).is_ok());
        let mut changed: Vec<char> = line.chars().collect();
        let at = at.index(changed.len());
        if remove {
            changed.remove(at);
        }
        changed.splice(at..at, with.chars());
        let changed: String = changed.into_iter().collect();
        let is_json = serde_json::from_str::<IgnoredAny>(&changed).is_ok();
        let is_object = changed.trim_start().starts_with('{');
        prop_assert_eq!(read(&changed).is_ok(), is_json && is_object, "{}", changed);
    }

    #[test]
    fn the_next_special_byte_is_found_wherever_it_stands(
        bytes in prop::collection::vec(prop_oneof![30 => 0x20u8..0x7f, 1 => any::<u8>()], 0..300),
        steps in prop::collection::vec(0usize..20, 1..40),
    ) {
        let (mut specials, mut from) = (Specials::default(), 0);
        let is_special = |byte: &u8| matches!(byte, 0..=0x1f | b'"' | b'\\' | 0x7f..);
        for step in steps {
            from = (from + step).min(bytes.len());
            let expected = bytes[from..].iter().position(is_special).map_or(bytes.len(), |at| from + at);
            let found = specials.next(&bytes, from);
            prop_assert_eq!(found, expected);
            from = found;
        }
    }

    #[test]
    fn what_a_terminal_acts_on_is_the_same_everywhere(c in any::<char>()) {
        let mut bytes = [0; 4];
        let length = unsafe_length(c.encode_utf8(&mut bytes).as_bytes());
        let expected = if c >= ' ' && crate::text::is_unsafe(c) { c.len_utf8() } else { 0 };
        prop_assert_eq!(length, expected);
    }
}
