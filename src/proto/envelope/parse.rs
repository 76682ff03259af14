//! Parsing transit/1, strictly: only what [`super::render`] makes is an envelope.

use std::borrow::Cow;

use super::{CLOSE, Envelope, Kind, SCHEMA, SETTLE_HINT, TAG, redelivery_note, reply_hint};
use crate::clock::Wall;
use crate::id::IdKind;
use crate::limits;
use crate::text;

/// An envelope that was read, and what stood beside its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The fields; the body as it was rendered.
    pub envelope: Envelope,
    /// The body was clipped; `read_message` has the whole.
    pub truncated: bool,
    /// The line that says how to answer.
    pub hint: String,
    /// The line about redelivery.
    pub note: Option<String>,
}

/// Where and why a text is no envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {reason}")]
pub struct ParseError {
    offset: usize,
    reason: &'static str,
}

impl ParseError {
    /// The place, in bytes from the beginning of the text.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// What is wrong there.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// Whether it is something in the body that no body has, whatever the envelope.
    pub(super) fn is_of_any_body(&self) -> bool {
        matches!(self.reason, CONTROL | CLOSING)
    }
}

const CONTROL: &str = "a control character in the body";
const CLOSING: &str = "a closing tag in the body";

/// Reads a text that is one envelope and nothing else, not even a newline at its end.
///
/// # Errors
/// At the first byte that [`super::render`] would not have written there.
pub fn parse(text: &str) -> Result<Parsed, ParseError> {
    let (tag, mut envelope, truncated) = opening(text)?;
    let inner = text[tag.at..].strip_suffix(CLOSE);
    let inner = inner.ok_or(ParseError { offset: text.len(), reason: "does not end with </transit>" })?;
    let (rest, note) = take_note(inner, &mut envelope.kind)
        .ok_or_else(|| at_last_line(tag.at, inner, "not the note of this redelivery"))?;
    let (body, hint) = take_hint(rest, &mut envelope)
        .ok_or_else(|| at_last_line(tag.at, rest, "not the hint of this envelope"))?;
    check_body(body, truncated, &envelope.kind)
        .map_err(|(at, reason)| ParseError { offset: tag.at + at, reason })?;
    envelope.body = body.to_owned();
    Ok(Parsed { envelope, truncated, hint, note })
}

/// The sender of an envelope, as it stands in its text; `None` for a text that begins otherwise. Cheaper than reading
/// all of it, for whoever only tells senders apart.
pub fn sender(text: &str) -> Option<&str> {
    let (sender, _) = text.strip_prefix("<transit from=\"")?.split_once('"')?;
    Some(sender)
}

/// Reads the opening tag with the line break after it, whatever comes then.
pub(super) fn opening(text: &str) -> Result<(Tag<'_>, Envelope, bool), ParseError> {
    let mut tag = Tag { text, at: 0 };
    tag.expect("<transit", "not the opening tag of an envelope")?;
    let (envelope, truncated) = attributes(&mut tag)?;
    tag.expect(">\n", "the opening tag does not end here")?;
    Ok((tag, envelope, truncated))
}

fn at_last_line(start: usize, lines: &str, reason: &'static str) -> ParseError {
    ParseError { offset: start + lines.rfind('\n').map_or(0, |at| at + 1), reason }
}

/// All attributes in their order, and whether the body was clipped. The body is still to come.
fn attributes(tag: &mut Tag<'_>) -> Result<(Envelope, bool), ParseError> {
    let from = tag.filled("from")?;
    let id_at = tag.at;
    let id = tag.required("id")?;
    let ts = tag.matching("ts", "not an RFC 3339 time", Wall::is_rfc3339)?;
    let kind_at = tag.at;
    let kind = tag.required("kind")?;
    let reply_to;
    let kind = match kind.as_str() {
        "dm" => {
            reply_to = tag.optional("reply_to")?;
            Kind::Dm
        }
        "room" => {
            let room = tag.filled("room")?;
            let seq = tag.number("seq")?;
            reply_to = tag.optional("reply_to")?;
            Kind::Room { room, seq, operator: false }
        }
        "channel" => {
            reply_to = tag.optional("reply_to")?;
            channel(tag)?
        }
        _ => return Err(ParseError { offset: kind_at, reason: "kind is not dm, room or channel" }),
    };
    let id_kind = if matches!(kind, Kind::Channel { .. }) { IdKind::Delivery } else { IdKind::Message };
    if IdKind::of(&id) != Some(id_kind) {
        return Err(ParseError { offset: id_at, reason: "not the id of this kind of envelope" });
    }
    let truncated_at = tag.at;
    let truncated = tag.optional("truncated")?;
    if truncated.as_deref().is_some_and(|truncated| truncated != "1" || id_kind == IdKind::Delivery) {
        return Err(ParseError {
            offset: truncated_at,
            reason: "truncated stands only as 1, and on no channel",
        });
    }
    tag.matching("schema", "schema is not transit/1", |schema| schema == SCHEMA)?;
    Ok((Envelope { from, id, ts, reply_to, body: String::new(), kind }, truncated.is_some()))
}

fn channel(tag: &mut Tag<'_>) -> Result<Kind, ParseError> {
    let conversation_id = tag.required("conversation_id")?;
    let connector = tag.filled("connector")?;
    let clipped = |user: &str| !user.is_empty() && text::clip(user, limits::USER_RUNES) == user;
    let user = tag.matching("user", "user is not 1 to 64 code points", clipped)?;
    let redelivery_at = tag.at;
    let redelivery = u32::try_from(tag.number("redelivery")?)
        .map_err(|_| ParseError { offset: redelivery_at, reason: "redelivery is out of range" })?;
    let trigger_at = tag.at;
    let trigger = tag.optional("trigger")?;
    if trigger.as_deref() == Some("") {
        return Err(ParseError { offset: trigger_at, reason: "an empty trigger is left out" });
    }
    let trigger = trigger.unwrap_or_default();
    Ok(Kind::Channel { conversation_id, connector, user, redelivery, read: false, trigger })
}

/// Takes the note off the last line where there must be one, and learns from it whether the delivery was read.
fn take_note<'a>(inner: &'a str, kind: &mut Kind) -> Option<(&'a str, Option<String>)> {
    let Kind::Channel { redelivery: 1.., read, .. } = kind else { return Some((inner, None)) };
    let (rest, line) = inner.rsplit_once('\n')?;
    *read = line.contains("read/unsettled");
    let Kind::Channel { redelivery, read, .. } = kind else { return None };
    (line == redelivery_note(*redelivery, *read)).then(|| (rest, Some(line.to_owned())))
}

/// Takes the hint off the last line, and learns from it whether the operator posted.
fn take_hint<'a>(rest: &'a str, envelope: &mut Envelope) -> Option<(&'a str, String)> {
    let (body, line) = rest.rsplit_once('\n')?;
    let Envelope { from, id, kind, .. } = envelope;
    let right = match kind {
        Kind::Dm => line == reply_hint(from, id),
        Kind::Room { room, operator, .. } => {
            *operator = line == reply_hint(&format!("#{room}"), id);
            *operator || line == reply_hint(from, id)
        }
        Kind::Channel { .. } => line == SETTLE_HINT,
    };
    right.then(|| (body, line.to_owned()))
}

/// Whether rendering could have made this body; else the place and what is wrong.
fn check_body(body: &str, truncated: bool, kind: &Kind) -> Result<(), (usize, &'static str)> {
    // How long it is comes first, so that what else is looked for costs no more than a body may.
    let clipped = text::clip(body, limits::CLIP_RUNES).len();
    if clipped < body.len() {
        return Err((clipped, "the body is over 4,000 code points"));
    }
    let one_line = matches!(kind, Kind::Channel { .. });
    if let Some(at) = body.find(|c| text::is_unsafe(c) && (one_line || !matches!(c, '\t' | '\n'))) {
        return Err((at, CONTROL));
    }
    if let Cow::Owned(neutralised) = text::neutralise_closing(body, TAG) {
        let at = body.bytes().zip(neutralised.bytes()).take_while(|(a, b)| a == b).count();
        return Err((at, CLOSING));
    }
    if truncated && text::clip(body, limits::CLIP_RUNES - 1).len() == body.len() {
        return Err((body.len(), "truncated, but under 4,000 code points"));
    }
    Ok(())
}

/// An opening tag that is read from the left.
pub(super) struct Tag<'a> {
    text: &'a str,
    at: usize,
}

impl Tag<'_> {
    fn expect(&mut self, literal: &str, reason: &'static str) -> Result<(), ParseError> {
        if !self.text[self.at..].starts_with(literal) {
            return Err(ParseError { offset: self.at, reason });
        }
        self.at += literal.len();
        Ok(())
    }

    /// The value of the next attribute, if it is this one.
    fn optional(&mut self, name: &str) -> Result<Option<String>, ParseError> {
        let rest = &self.text[self.at..];
        let value = rest.strip_prefix(' ').and_then(|rest| rest.strip_prefix(name));
        let Some(value) = value.and_then(|rest| rest.strip_prefix("=\"")) else { return Ok(None) };
        let start = self.at + rest.len() - value.len();
        let broken = |at, reason| ParseError { offset: start + at, reason };
        let end = value.find(['"', '<', '>']).unwrap_or(value.len());
        if let Some(at) = value[..end].find(text::is_unsafe) {
            return Err(broken(at, "a control character in an attribute"));
        }
        if !value[end..].starts_with('"') {
            return Err(broken(end, "an attribute is not closed"));
        }
        let plain = text::unescape_attribute(&value[..end]);
        let plain = plain.ok_or_else(|| broken(0, "an entity that transit/1 does not have"))?;
        self.at = start + end + 1;
        Ok(Some(plain.into_owned()))
    }

    fn required(&mut self, name: &'static str) -> Result<String, ParseError> {
        let offset = self.at;
        self.optional(name)?.ok_or(ParseError { offset, reason: missing(name) })
    }

    fn matching(
        &mut self,
        name: &'static str,
        reason: &'static str,
        fits: impl Fn(&str) -> bool,
    ) -> Result<String, ParseError> {
        let offset = self.at;
        let value = self.required(name)?;
        if fits(&value) { Ok(value) } else { Err(ParseError { offset, reason }) }
    }

    fn filled(&mut self, name: &'static str) -> Result<String, ParseError> {
        self.matching(name, "an attribute is empty", |value| !value.is_empty())
    }

    /// A number as rendering writes it, without a sign or leading zeros.
    fn number(&mut self, name: &'static str) -> Result<u64, ParseError> {
        let offset = self.at;
        let value = self.required(name)?;
        let number = value.parse().ok().filter(|number: &u64| number.to_string() == value);
        number.ok_or(ParseError { offset, reason: "not a plain number" })
    }
}

fn missing(name: &'static str) -> &'static str {
    match name {
        "from" => "from is missing",
        "id" => "id is missing or out of order",
        "ts" => "ts is missing or out of order",
        "kind" => "kind is missing or out of order",
        "room" => "room is missing or out of order",
        "seq" => "seq is missing or out of order",
        "conversation_id" => "conversation_id is missing or out of order",
        "connector" => "connector is missing or out of order",
        "user" => "user is missing or out of order",
        "redelivery" => "redelivery is missing or out of order",
        _ => "schema is missing, or an attribute is unknown or out of order",
    }
}
