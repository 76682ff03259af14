//! The body of an event, and its rules.

use std::collections::BTreeMap;

use serde::Serialize;

use super::json::Json;
use super::reply_url;
use super::{RuleError, SCHEMA};
use crate::limits;
use crate::text;

/// An event from outside: the fields of a request body.
///
/// [`parse_event`] gives only events that keep every rule. One that is put together by hand keeps them when
/// [`checked_body`](Self::checked_body) says so.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Event {
    /// The sender's idempotency key, unique within the source: 1 to 200 characters, no NUL.
    pub event_key: String,
    /// Which conversation this belongs to; opaque, echoed on the callback: 1 to 200 characters, no NUL.
    pub conversation_id: String,
    /// Upstream's display name of who it is from: at most 200 code points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Why it is delivered, such as `mention` or `alert`: at most 32 code points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// The whole text that the agent reads: 1 to 65,536 bytes.
    pub content: String,
    /// Where a reply is posted instead of the source's own address; see [`super::reply_url_allowed`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_url: Option<String>,
    /// At most 32 entries of the sender's own; `trigger` is reserved.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
}

/// An event with the schema in front, in the seed's order of keys.
#[derive(Serialize)]
struct Body<'a> {
    schema: &'static str,
    #[serde(flatten)]
    event: &'a Event,
}

impl Event {
    /// The request body, whether or not the event keeps the rules. Sign and send exactly these bytes.
    pub fn to_body(&self) -> Vec<u8> {
        serde_json::to_vec(&Body { schema: SCHEMA, event: self }).expect("an event holds only strings")
    }

    /// The request body of an event that keeps every rule, so that a sender learns of a broken one before it
    /// sends.
    ///
    /// # Errors
    /// The first rule that is broken, as a Worker would say it.
    pub fn checked_body(&self) -> Result<Vec<u8>, RuleError> {
        let body = self.to_body();
        parse_event(&body)?;
        Ok(body)
    }
}

/// Reads a request body. The signature must have been verified before.
///
/// # Errors
/// The first rule that is broken, with the field that breaks it: UTF-8, JSON, one object, no key twice, nesting,
/// then the fields in the order of the specification. Unknown fields are ignored.
pub fn parse_event(body: &[u8]) -> Result<Event, RuleError> {
    if body.len() > limits::INGEST_BYTES {
        return Err(RuleError::of_body(format!("the body is over {} bytes", limits::INGEST_BYTES)));
    }
    let text = str::from_utf8(body)
        .map_err(|err| RuleError::of_body(format!("the body is not UTF-8 at byte {}", err.valid_up_to())))?;
    let mut fields = Fields(object(text)?);
    if fields.required("schema")? != SCHEMA {
        return Err(RuleError::of("schema", format!("schema is not {SCHEMA}")));
    }
    Ok(Event {
        event_key: fields.key("event_key")?,
        conversation_id: fields.key("conversation_id")?,
        content: fields.content()?,
        user: fields.short("user", limits::INGEST_USER_POINTS)?,
        trigger: fields.short("trigger", limits::TRIGGER_POINTS)?,
        reply_url: fields.reply_url()?,
        meta: fields.meta()?,
    })
}

/// Checks that a text is one JSON object as a Worker takes it, whatever its fields are: no key twice, not nested too
/// deep. For a sender that completes an object before it sends it.
///
/// # Errors
/// The first rule that is broken.
pub fn check_object(text: &str) -> Result<(), RuleError> {
    object(text).map(drop)
}

fn object(text: &str) -> Result<Vec<(String, Json)>, RuleError> {
    // One byte order mark is forgiven; it was signed like every other byte.
    match Json::parse(text.strip_prefix('\u{feff}').unwrap_or(text))? {
        Json::Object(fields) => Ok(fields),
        other => Err(RuleError::of_body(format!("the body is {}, not an object", other.kind()))),
    }
}

/// The fields of a body that are still to be looked at.
struct Fields(Vec<(String, Json)>);

impl Fields {
    fn take(&mut self, name: &str) -> Option<Json> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.swap_remove(at).1)
    }

    fn optional(&mut self, name: &str) -> Result<Option<String>, RuleError> {
        match self.take(name) {
            None => Ok(None),
            Some(Json::Text(text)) => Ok(Some(text)),
            Some(other) => Err(RuleError::of(name, format!("{name} is {}, not a string", other.kind()))),
        }
    }

    fn required(&mut self, name: &str) -> Result<String, RuleError> {
        self.optional(name)?.ok_or_else(|| RuleError::of(name, format!("{name} is missing")))
    }

    fn key(&mut self, name: &str) -> Result<String, RuleError> {
        let key = self.required(name)?;
        if !(1..=limits::KEY_UNITS).contains(&text::utf16_len(&key)) {
            let rule = format!("{name} is not 1 to {} characters long", limits::KEY_UNITS);
            return Err(RuleError::of(name, rule));
        }
        if key.contains('\0') {
            return Err(RuleError::of(name, format!("{name} holds a NUL")));
        }
        Ok(key)
    }

    fn content(&mut self) -> Result<String, RuleError> {
        let content = self.required("content")?;
        if !(1..=limits::CONTENT_BYTES).contains(&content.len()) {
            let rule = format!("content is not 1 to {} bytes long", limits::CONTENT_BYTES);
            return Err(RuleError::of("content", rule));
        }
        Ok(content)
    }

    fn short(&mut self, name: &str, points: usize) -> Result<Option<String>, RuleError> {
        let value = self.optional(name)?;
        if value.as_ref().is_some_and(|value| text::clip(value, points).len() < value.len()) {
            return Err(RuleError::of(name, format!("{name} is over {points} code points long")));
        }
        Ok(value)
    }

    fn reply_url(&mut self) -> Result<Option<String>, RuleError> {
        let url = self.optional("reply_url")?;
        if let Some(url) = &url {
            reply_url::parse(url)?;
        }
        Ok(url)
    }

    fn meta(&mut self) -> Result<BTreeMap<String, String>, RuleError> {
        let broken = |rule: String| RuleError::of("meta", rule);
        let entries = match self.take("meta") {
            None => return Ok(BTreeMap::new()),
            Some(Json::Object(entries)) => entries,
            Some(other) => return Err(broken(format!("meta is {}, not an object", other.kind()))),
        };
        if entries.len() > limits::META_ENTRIES {
            return Err(broken(format!("meta has over {} entries", limits::META_ENTRIES)));
        }
        let entry = |(key, value): (String, Json)| match value {
            _ if key == "trigger" => {
                Err(broken("meta.trigger is reserved; use the top-level trigger".to_owned()))
            }
            _ if text::utf16_len(&key) > limits::META_KEY_UNITS => {
                Err(broken(format!("a key of meta is over {} characters long", limits::META_KEY_UNITS)))
            }
            Json::Text(value) if text::utf16_len(&value) > limits::META_VALUE_UNITS => {
                Err(broken(format!("meta.{key} is over {} characters long", limits::META_VALUE_UNITS)))
            }
            Json::Text(value) => Ok((key, value)),
            other => Err(broken(format!("meta.{key} is {}, not a string", other.kind()))),
        };
        entries.into_iter().map(entry).collect()
    }
}
