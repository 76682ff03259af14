//! Rendering transit/1.

use std::borrow::Cow;
use std::fmt::{Display, Write};

use super::{CLOSE, Envelope, Full, Kind, NO_TEXT, SCHEMA, SETTLE_HINT, TAG};
use super::{redelivery_note, reply_hint, value};
use crate::limits;
use crate::text;

/// The whole envelope, without a newline at its end.
///
/// The body of a direct or room message is neutralised, then clipped to 4,000 runes; that of a channel delivery
/// is its [`preview`].
pub fn render(envelope: &Envelope) -> String {
    let (body, truncated) = match envelope.kind {
        Kind::Channel { .. } => (Cow::Owned(preview(&envelope.body)), false),
        Kind::Dm | Kind::Room { .. } => injected(&envelope.body),
    };
    let mut out = String::with_capacity(body.len() + 512);
    open(&mut out, envelope, truncated);
    out.push('\n');
    out.push_str(&body);
    out.push('\n');
    match &envelope.kind {
        Kind::Dm | Kind::Room { operator: false, .. } => {
            out.push_str(&reply_hint(&envelope.from, &envelope.id));
        }
        Kind::Room { operator: true, room, .. } => {
            out.push_str(&reply_hint(&format!("#{room}"), &envelope.id));
        }
        Kind::Channel { redelivery, read, .. } => {
            out.push_str(SETTLE_HINT);
            if *redelivery > 0 {
                out.push('\n');
                out.push_str(&redelivery_note(*redelivery, *read));
            }
        }
    }
    out.push_str(CLOSE);
    out
}

/// The opening tag. The order of its attributes is part of transit/1.
fn open(out: &mut String, envelope: &Envelope, truncated: bool) {
    out.push_str("<transit");
    attribute(out, "from", &envelope.from);
    attribute(out, "id", &envelope.id);
    attribute(out, "ts", &envelope.ts);
    attribute(out, "kind", envelope.kind.name());
    if let Kind::Room { room, seq, .. } = &envelope.kind {
        attribute(out, "room", room);
        number(out, "seq", seq);
    }
    if let Some(reply_to) = &envelope.reply_to {
        attribute(out, "reply_to", reply_to);
    }
    if let Kind::Channel { conversation_id, connector, user, redelivery, trigger, .. } = &envelope.kind {
        attribute(out, "conversation_id", conversation_id);
        attribute(out, "connector", connector);
        attribute(out, "user", named(text::clip(user, limits::USER_RUNES)));
        number(out, "redelivery", redelivery);
        if !trigger.is_empty() {
            attribute(out, "trigger", trigger);
        }
    }
    if truncated {
        attribute(out, "truncated", "1");
    }
    attribute(out, "schema", SCHEMA);
    out.push('>');
}

impl Kind {
    /// The value of the attribute `kind`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Dm => "dm",
            Self::Room { .. } => "room",
            Self::Channel { .. } => "channel",
        }
    }
}

/// The one line that a channel delivery shows of its body, at most 100 runes and what neutralising adds.
///
/// Every `<…>` becomes a space, white space as JavaScript has it collapses, and what a terminal would act on is
/// replaced. A body without text gives [`NO_TEXT`].
pub fn preview(body: &str) -> String {
    let stripped = strip_tags(body);
    let mut line = String::new();
    let mut runes = 0;
    for word in stripped.split(text::is_js_space).filter(|word| !word.is_empty()) {
        for c in (runes > 0).then_some(' ').into_iter().chain(word.chars()) {
            if runes == limits::PREVIEW_RUNES {
                break;
            }
            line.push(c);
            runes += 1;
        }
    }
    if line.is_empty() {
        return NO_TEXT.to_owned();
    }
    // An unclosed `</transit` is no tag and was not stripped.
    text::neutralise_closing(&text::attribute(&line), TAG).into_owned()
}

/// `body` with a space for each `<…>`, also across lines. A `<` that is never closed stays.
fn strip_tags(body: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = body;
    while let Some(start) = rest.find('<') {
        let Some(length) = rest[start..].find('>') else { break };
        out.push_str(&rest[..start]);
        out.push(' ');
        rest = &rest[start + length + 1..];
    }
    if rest.len() == body.len() {
        return Cow::Borrowed(body);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// A body as it is put into a terminal, and whether it was clipped.
fn injected(body: &str) -> (Cow<'_, str>, bool) {
    let safe = text::body(body);
    let whole = match text::neutralise_closing(&safe, TAG) {
        Cow::Owned(neutralised) => Cow::Owned(neutralised),
        Cow::Borrowed(_) => safe,
    };
    let end = text::clip(&whole, limits::CLIP_RUNES).len();
    if end == whole.len() { (whole, false) } else { (Cow::Owned(whole[..end].to_owned()), true) }
}

/// The `<transit_full …>` wrapper of `read_message`: the body verbatim, except that it cannot close the wrapper.
pub fn render_full(full: &Full) -> String {
    let mut out = String::with_capacity(full.body.len() + 512);
    out.push_str("<transit_full");
    attribute(&mut out, "id", &full.id);
    attribute(&mut out, "conversation_id", &full.conversation_id);
    attribute(&mut out, "user", named(full.user.as_deref().unwrap_or_default()));
    attribute(&mut out, "connector", &full.connector);
    attribute(&mut out, "status", &full.status);
    attribute(&mut out, "read", if full.first_read { "first" } else { "again" });
    attribute(&mut out, "schema", SCHEMA);
    out.push_str(">\n");
    out.push_str(&text::neutralise_closing(&full.body, "transit_full"));
    out.push_str(if full.settled {
        "\n[already settled; history only]"
    } else {
        "\n[settle: chat_reply or mark_handled]"
    });
    if let Some(instructions) = full.instructions.as_deref().filter(|text| !text.trim().is_empty()) {
        let one_line = instructions.split_whitespace().collect::<Vec<_>>().join(" ");
        out.push('\n');
        out.push_str(&text::neutralise_closing(&text::attribute(&one_line), "transit_full"));
    }
    out.push_str("\n</transit_full>");
    out
}

fn named(user: &str) -> &str {
    if user.is_empty() { "unknown" } else { user }
}

fn attribute(out: &mut String, name: &str, raw: &str) {
    number(out, name, value(raw));
}

/// An attribute whose value needs no escaping.
fn number(out: &mut String, name: &str, value: impl Display) {
    write!(out, " {name}=\"{value}\"").expect("a String takes everything");
}
