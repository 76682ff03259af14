//! JSON as transit.ingest/1 takes it: strictly.
//!
//! serde's derived structs read arrays by position, skip ignored fields without a look at their text, and a
//! `serde_json::Value` keeps the last of two equal keys. Parsers that disagree about one body are how a signed
//! event comes to mean two things, so the whole body is read into this tree, which keeps every key, and then
//! checked.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::RuleError;
use crate::limits;

/// A JSON text, with the keys of its objects as they came. Numbers are known to be there, not what they are.
#[derive(Debug)]
pub(super) enum Json {
    Null,
    Bool,
    Number,
    Text(String),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    /// Reads a whole text. serde_json itself bounds the nesting that it follows, so that no stack overflows.
    pub(super) fn parse(text: &str) -> Result<Self, RuleError> {
        let json: Self = serde_json::from_str(text).map_err(|err| match err.to_string() {
            why if why.starts_with("recursion limit") => RuleError::of_body(too_deep()),
            why => RuleError::of_body(format!("the body is not valid JSON: {why}")),
        })?;
        json.check(1, "")?;
        Ok(json)
    }

    /// What it is, in words.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::Text(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }

    /// Refuses nesting over the limit and two equal keys in one object. `field` is the top-level field that this
    /// stands in.
    fn check(&self, depth: usize, field: &str) -> Result<(), RuleError> {
        if depth > limits::JSON_DEPTH && matches!(self, Self::Array(_) | Self::Object(_)) {
            return Err(RuleError::of(field, too_deep()));
        }
        match self {
            Self::Array(items) => items.iter().try_for_each(|item| item.check(depth + 1, field)),
            Self::Object(entries) => {
                let mut seen = BTreeSet::new();
                for (key, value) in entries {
                    let field = if field.is_empty() { key } else { field };
                    if !seen.insert(key) {
                        return Err(RuleError::of(field, "an object has the same key twice"));
                    }
                    value.check(depth + 1, field)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn too_deep() -> String {
    format!("the body is nested over {} deep", limits::JSON_DEPTH)
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Tree)
    }
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Bool)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Json, E> {
        Ok(Json::Number)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Json, E> {
        Ok(Json::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(Json::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Json::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            all.push(entry);
        }
        Ok(Json::Object(all))
    }
}
