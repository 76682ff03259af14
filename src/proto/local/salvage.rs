//! The id of a request that is no request.
//!
//! A client waits for an answer with its id. So the id is looked for even in a line that is cut, is no JSON, or holds
//! more than a line may: as a member of the outermost object, never of a nested one, and whole.

use serde_json::Value;

/// The id in `line`, as answers carry it; empty when there is none to be found. The last one counts, as in JSON that is
/// whole.
pub fn salvage_id(line: &[u8]) -> String {
    match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(members)) => members.get("id").and_then(normal).unwrap_or_default(),
        Ok(_) => String::new(),
        Err(_) => Scan { bytes: line, at: 0, depth: 0, is_object: false, found: None }.run(),
    }
}

/// An id as answers carry it: a string as it is, a number as its text; nothing else is one.
pub(super) fn normal(id: &Value) -> Option<String> {
    match id {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A walk over broken JSON. It knows strings and brackets, and takes the rest as it comes.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Brackets that are open.
    depth: usize,
    /// The outermost of them is a brace.
    is_object: bool,
    found: Option<String>,
}

impl<'a> Scan<'a> {
    fn run(mut self) -> String {
        let mut may_be_key = false;
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'{' | b'[' => {
                    if self.depth == 0 {
                        self.is_object = byte == b'{';
                    }
                    self.depth += 1;
                    self.at += 1;
                    may_be_key = true;
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        break;
                    }
                    self.at += 1;
                }
                b'"' => {
                    let is_key = may_be_key && self.depth == 1 && self.is_object;
                    may_be_key = false;
                    let Some(text) = self.string() else { break };
                    if is_key && self.is_colon() && is_id(text) {
                        self.found = self.value();
                    }
                }
                _ => {
                    may_be_key = byte == b',' || may_be_key && byte.is_ascii_whitespace();
                    self.at += 1;
                }
            }
        }
        self.found.unwrap_or_default()
    }

    /// The string that begins here, with its quotes; `None` when it does not end.
    fn string(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        let mut at = start + 1;
        loop {
            match self.bytes.get(at)? {
                b'"' => break,
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        self.at = at + 1;
        Some(&self.bytes[start..self.at])
    }

    /// Whether a colon comes next; it is passed over.
    fn is_colon(&mut self) -> bool {
        self.blanks();
        let is_colon = self.bytes.get(self.at) == Some(&b':');
        self.at += usize::from(is_colon);
        is_colon
    }

    fn blanks(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    /// The id that begins here, if it is one and has its end.
    fn value(&mut self) -> Option<String> {
        self.blanks();
        let start = self.at;
        if self.bytes.get(start) == Some(&b'"') {
            return serde_json::from_slice(self.string()?).ok();
        }
        let is_of_number = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let length = self.bytes[start..].iter().position(|byte| !is_of_number(byte))?;
        self.at += length;
        let number = serde_json::from_slice::<serde_json::Number>(&self.bytes[start..self.at]);
        number.ok().map(|number| number.to_string())
    }
}

/// Whether the string, in its quotes, is `id`, however that is written.
fn is_id(key: &[u8]) -> bool {
    key == br#""id""#
        || key.contains(&b'\\') && serde_json::from_slice::<String>(key).is_ok_and(|key| key == "id")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(line: &str) -> String {
        salvage_id(line.as_bytes())
    }

    #[test]
    fn whole_json_has_the_id_of_its_outermost_object_alone() {
        assert_eq!(of(r#"{"id":"a","x":1}"#), "a");
        assert_eq!(of(r#"{"id":"a","id":7}"#), "7");
        assert_eq!(of(r#"{"x":{"id":"a"}}"#), "");
        assert_eq!(of(r#"{"id":{"id":"a"}}"#), "");
        for none in [r#"[{"id":"a"}]"#, "5", "null", r#"{"id":null}"#, r#"{"id":true}"#] {
            assert_eq!(of(none), "", "{none}");
        }
    }

    #[test]
    fn a_broken_line_still_tells_its_id() {
        for (line, id) in [
            (r#"{"id":"a","method":"#, "a"),
            (r#"{"id":42,"method":"#, "42"),
            (r#"{"id":-1.50e3,"x""#, "-1500.0"),
            (r#"{ "id" : "a b" , "#, "a b"),
            (r#"{"method":"x","id":"late","#, "late"),
            (r#"{"x":{"id":"nested"},"id":"top","#, "top"),
            (r#"{"x":[{"id":"nested"},2],"id":9,"#, "9"),
            (r#"{"x":{"id":"nested"},"method":"#, ""),
            (r#"{"id":"a"} trailing"#, "a"),
            (r#"{"id":"a"}{"id":"b"}"#, "a"),
            (r#"{"id":"a","id":"b","#, "b"),
            (r#"{"id":"a","id":null,"#, ""),
            (r#"{"id":"a",}"#, "a"),
            (r#"{"id":"\u0061\"","#, "a\""),
            (r#"{"\u0069d":"a","#, "a"),
            (r#"{"text":"\"id\":\"no\"","id":"yes","#, "yes"),
            (r#"{"text": oops, "id":"yes"}"#, "yes"),
            (r#"garbage {"id":"yes"}"#, "yes"),
            (r#"{"id":"cut"#, ""),
            (r#"{"id":12"#, ""),
            (r#"{"id":01,"#, ""),
            (r#"{"id":NaN,"method":"x"}"#, ""),
            (r#"{"id":1e400,"#, ""),
            (r#"{"id":"\ud800","#, ""),
            (r#"{"id" "a","#, ""),
            (r#"{'id':'a'}"#, ""),
            (r#"[{"id":"a"},"#, ""),
            (r#"{"x":"id","y":"#, ""),
            ("", ""),
            ("\\", ""),
        ] {
            assert_eq!(of(line), id, "{line}");
        }
    }

    #[test]
    fn a_cut_inside_a_character_loses_nothing_before_it() {
        let line = r#"{"id":"a","text":"é"#.as_bytes();
        assert_eq!(salvage_id(&line[..line.len() - 1]), "a");
        assert_eq!(salvage_id(b"{\"id\":\"\xff\","), "", "an id is text");
        assert_eq!(salvage_id(b"{\"x\":\"\xff\",\"id\":\"a\","), "a");
    }

    proptest! {
        #[test]
        fn what_is_found_in_the_beginning_of_a_request_is_its_id(
            id in "\\PC{0,12}", text in "\\PC{0,40}", cut in any::<prop::sample::Index>(),
        ) {
            let line = serde_json::json!({ "id": id, "params": { "id": "nested", "text": text } }).to_string();
            let found = salvage_id(&line.as_bytes()[..=cut.index(line.len())]);
            prop_assert!(found.is_empty() || found == id);
            let with_id = line.find(",\"params\"").unwrap();
            prop_assert_eq!(salvage_id(&line.as_bytes()[..=with_id]), id);
        }

        #[test]
        fn any_bytes_are_looked_through(bytes in prop::collection::vec(prop_oneof![Just(b'"'), Just(b'{'), Just(b'}'), Just(b':'), Just(b'\\'), any::<u8>()], 0..60)) {
            salvage_id(&bytes);
        }
    }
}
