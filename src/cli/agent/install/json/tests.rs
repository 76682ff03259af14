use proptest::prelude::*;
use serde_json::json;

use super::*;

const KEYS: [&str; 2] = ["servers", "transit"];

fn put(text: &str) -> String {
    set(text, &KEYS, &json!({ "command": "t" })).unwrap()
}

#[test]
fn an_entry_is_laid_out_as_its_neighbours_are() {
    for (before, after) in [
        ("", "{\n  \"servers\": {\n    \"transit\": {\n      \"command\": \"t\"\n    }\n  }\n}\n"),
        ("{}", "{\n  \"servers\": {\n    \"transit\": {\n      \"command\": \"t\"\n    }\n  }\n}"),
        (r#"{"a":1}"#, r#"{"a":1,"servers": {"transit":{"command":"t"}}}"#),
        (r#"{"servers": {"x": 1, "y": 2}}"#, r#"{"servers": {"x": 1, "y": 2, "transit": {"command":"t"}}}"#),
        (
            "{\n\t\"servers\": {\n\t\t\"x\": {}\n\t}\n}\n",
            "{\n\t\"servers\": {\n\t\t\"x\": {},\n\t\t\"transit\": {\n\t\t\t\"command\": \"t\"\n\t\t}\n\t}\n}\n",
        ),
        (
            "{\r\n  \"servers\": {}\r\n}\r\n",
            "{\r\n  \"servers\": {\r\n    \"transit\": {\r\n      \"command\": \"t\"\r\n    }\r\n  }\r\n}\r\n",
        ),
        (
            "{\n  \"servers\": {\n    \"transit\": {\n      \"command\": \"old\"\n    },\n    \"x\": 1.50\n  }\n}",
            "{\n  \"servers\": {\n    \"transit\": {\n      \"command\": \"t\"\n    },\n    \"x\": 1.50\n  }\n}",
        ),
    ] {
        assert_eq!(put(before), after, "{before}");
        assert_eq!(put(after), after, "a second time");
    }
}

#[test]
fn a_byte_order_mark_stays_where_it_is() {
    for before in ["\u{feff}{\"a\":1}", "\u{feff}{\r\n  \"servers\": {}\r\n}", "\u{feff}{}"] {
        let after = put(before);
        assert_eq!(after.strip_prefix('\u{feff}').unwrap(), put(&before[3..]), "{before:?}");
        assert!(get(&after, &KEYS).unwrap().is_some() && get(before, &KEYS).unwrap().is_none());
        let removed = remove(&after, &KEYS).unwrap().unwrap();
        assert!(removed.starts_with('\u{feff}') && get(&removed, &KEYS).unwrap().is_none());
    }
    assert!(put("\u{feff}").starts_with("\u{feff}{"), "nothing but a mark is an empty file");
    assert!(is_empty("\u{feff}{}") && remove("\u{feff}", &KEYS).unwrap().is_none());
    assert!(set("\u{feff}\u{feff}{}", &KEYS, &json!(1)).is_err(), "one mark, at the beginning");
}

#[test]
fn what_was_put_in_can_be_taken_out_again() {
    for before in [
        "{}",
        r#"{"a":1}"#,
        r#"{"servers": {"x": 1, "y": 2}}"#,
        "{\n\t\"servers\": {\n\t\t\"x\": {}\n\t}\n}\n",
        "{\n  \"z\": [1, {\"servers\": 1}],\n  \"b\": \"}\\\"{\"\n}\n",
    ] {
        assert_eq!(remove(&put(before), &KEYS).unwrap().unwrap(), before);
        assert_eq!(remove(before, &KEYS).unwrap(), None);
    }
    assert_eq!(remove(r#"{"servers":{"transit":1},"b":2}"#, &KEYS).unwrap().unwrap(), r#"{"b":2}"#);
    assert_eq!(
        remove(r#"{"servers":{"transit":1,"x":2}}"#, &KEYS).unwrap().unwrap(),
        r#"{"servers":{"x":2}}"#
    );
    let emptied = remove(&put(""), &KEYS).unwrap().unwrap();
    assert!(is_empty(&emptied), "{emptied}");
    assert!(!is_empty("[]") && !is_empty("{\"a\":1}") && !is_empty("{"));
}

#[test]
fn what_is_no_strict_json_is_left_alone() {
    for text in ["{ // a comment\n}", "{\"a\":1,}", "{", "{}\u{feff}", "nothing"] {
        assert!(matches!(set(text, &KEYS, &json!(1)), Err(EditError::NotJson { .. })), "{text}");
        assert!(matches!(remove(text, &KEYS), Err(EditError::NotJson { .. })), "{text}");
        assert!(get(text, &KEYS).is_err());
    }
    for text in ["[]", "1", r#"{"servers":[]}"#, r#"{"servers":"x"}"#] {
        assert!(matches!(set(text, &KEYS, &json!(1)), Err(EditError::NoObject { .. })), "{text}");
    }
    assert_eq!(get(r#"{"servers":{"transit":7}}"#, &KEYS).unwrap(), Some(json!(7)));
    assert_eq!(get(r#"{"servers":7}"#, &KEYS).unwrap(), None);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~é\\n\"\\\\{}\\[\\],:]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z\"\\\\{}, ]{0,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_else_of_a_file_changes(
        before in any_json(), value in any_json(), keys in prop::collection::vec("[a-z]{0,3}", 1..4),
        pretty: bool,
    ) {
        let text = if pretty { serde_json::to_string_pretty(&before).unwrap() } else { before.to_string() };
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let Ok(edited) = set(&text, &keys, &value) else { return Ok(()) };
        prop_assert_eq!(get(&edited, &keys).unwrap(), Some(value.clone()));
        let mut expected = before.clone();
        let mut place = &mut expected;
        for key in &keys {
            place = place.as_object_mut().unwrap().entry(*key).or_insert_with(|| json!({}));
        }
        *place = value;
        prop_assert_eq!(serde_json::from_str::<Value>(&edited).unwrap(), expected);
        if get(&text, &keys[..1]).unwrap().is_none() {
            let back = remove(&edited, &keys).unwrap().unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&back).unwrap(), before);
        }
    }
}
