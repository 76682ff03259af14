//! JSON objects that say what they are in a field `t`: the frames of transit-wire/1 and transit-agent/1.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Decoded, Malformed};
use crate::limits;

/// The JSON of a frame.
pub(super) fn encode<F: Serialize>(frame: &F) -> String {
    serde_json::to_string(frame).expect("frames hold only strings, numbers and JSON values")
}

#[derive(Deserialize)]
struct Tag<'a> {
    #[serde(borrow)]
    t: Option<&'a RawValue>,
}

/// Decodes one frame of a protocol that tags its objects with `t`.
pub(super) fn decode<F: for<'de> Deserialize<'de>>(text: &str, kinds: &[&str]) -> Decoded<F> {
    decode_by(text, kinds, |_, text| serde_json::from_str(text))
}

/// The same with a way of one's own to read a frame whose `t` is known. What serde derives first takes the whole
/// object to pieces, because `t` may come last.
pub(super) fn decode_by<F>(
    text: &str,
    kinds: &[&str],
    read: impl FnOnce(&str, &str) -> serde_json::Result<F>,
) -> Decoded<F> {
    if text.len() > limits::FRAME_BYTES {
        return Decoded::Malformed(Malformed::TooLong);
    }
    match decode_within(text, kinds, read) {
        Ok(Some(frame)) => Decoded::Frame(frame),
        Ok(None) => Decoded::Unknown,
        Err(malformed) => Decoded::Malformed(malformed),
    }
}

fn decode_within<F>(
    text: &str,
    kinds: &[&str],
    read: impl FnOnce(&str, &str) -> serde_json::Result<F>,
) -> Result<Option<F>, Malformed> {
    let frame = |what: &str| Malformed::Frame(what.to_owned());
    // serde would read an array as a struct; a frame is an object.
    if !text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{') {
        serde_json::from_str::<serde::de::IgnoredAny>(text)
            .map_err(|err| Malformed::Json(err.to_string()))?;
        return Err(frame("a frame is a JSON object"));
    }
    let tag: Tag<'_> = match serde_json::from_str(text) {
        Ok(tag) => tag,
        Err(err) if err.is_data() => return Err(Malformed::Frame(err.to_string())),
        Err(err) => return Err(Malformed::Json(err.to_string())),
    };
    let tag = tag.t.ok_or_else(|| frame("no t"))?;
    let tag: String = serde_json::from_str(tag.get()).map_err(|_| frame("t is not a string"))?;
    if !kinds.contains(&tag.as_str()) {
        return Ok(None);
    }
    read(&tag, text).map(Some).map_err(|err| Malformed::Frame(err.to_string()))
}
