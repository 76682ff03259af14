//! An envelope as people and programs write it down: named fields, checked against the rules of transit/1.

use serde::{Deserialize, Serialize};

use super::{Envelope, Kind, LONGEST, Parsed, SCHEMA, render};
use crate::addr::{AgentAddr, Host, Name, Source};
use crate::clock::Wall;
use crate::id::IdKind;
use crate::text;

/// The fields of an envelope, by the names of its attributes. What is absent or null is not there; members that are
/// not named here are ignored when they are read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fields {
    /// An address, or the connector's name for a channel delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `tx_…`, or `dlv_…` for a channel delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<String>,
    /// `dm`, `room` or `channel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Of a room message, without `#`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<String>,
    /// Of a room message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The id of the message that is answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Of a channel delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// Of a channel delivery; the same as `from` when one of them is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connector: Option<String>,
    /// Of a channel delivery; `unknown` when it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Of a channel delivery; 0 when it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redelivery: Option<u32>,
    /// Of a channel delivery: it was read, but not settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<bool>,
    /// Of a channel delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// `transit/1`, also when it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The text; rendering clips it, or makes the preview of a channel delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// Why fields make no envelope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// A field that this kind needs.
    #[error("{field} is missing")]
    Missing {
        /// Its name.
        field: &'static str,
    },
    /// A field that only another kind has.
    #[error("{field} is no field of kind {kind}")]
    OtherKind {
        /// Its name.
        field: &'static str,
        /// The kind that was asked for.
        kind: &'static str,
    },
    /// A value that breaks a rule of transit/1.
    #[error("{field} {value:?} is not {wanted}")]
    Wrong {
        /// The field's name.
        field: &'static str,
        /// Its value, as it came.
        value: String,
        /// What it should be, in words.
        wanted: &'static str,
    },
    /// More than [`LONGEST`] bytes of attributes and body.
    #[error("the envelope would have {bytes} bytes, more than the {LONGEST} it may have")]
    TooLong {
        /// How long it would be.
        bytes: usize,
    },
}

impl FieldError {
    /// Whether a field is missing or out of place, rather than wrong in its value.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::OtherKind { .. })
    }
}

impl Fields {
    /// Renders them as an envelope that [`super::parse`] reads again.
    ///
    /// # Errors
    /// When they make none.
    pub fn render(self) -> Result<String, FieldError> {
        let text = render(&self.into_envelope()?);
        if text.len() > LONGEST { Err(FieldError::TooLong { bytes: text.len() }) } else { Ok(text) }
    }

    /// The envelope that they make. Without a `body` it is empty.
    ///
    /// # Errors
    /// When a field is missing, of another kind, or breaks a rule of transit/1.
    pub fn into_envelope(mut self) -> Result<Envelope, FieldError> {
        let kind = required("kind", self.kind.take())?;
        let kind = match kind.as_str() {
            "dm" => "dm",
            "room" => "room",
            "channel" => "channel",
            _ => return Err(wrong("kind", kind, "dm, room or channel")),
        };
        self.refuse_others(kind)?;
        let is_channel = kind == "channel";
        if is_channel {
            self.connector = self.connector.or_else(|| self.from.clone());
            self.from = self.from.or_else(|| self.connector.clone());
        }
        let from = match is_channel {
            true => check("from", self.from, "the name of a connector", is_connector)?,
            false => check("from", self.from, "an address", is_sender)?,
        };
        let id = match is_channel {
            true => check("id", self.id, "dlv_ and 12 lowercase hexadecimal digits", |id| {
                IdKind::of(id) == Some(IdKind::Delivery)
            })?,
            false => check("id", self.id, "tx_ and 12 lowercase hexadecimal digits", |id| {
                IdKind::of(id) == Some(IdKind::Message)
            })?,
        };
        let ts = check("ts", self.ts, "an RFC 3339 time", Wall::is_rfc3339)?;
        let reply_to = match self.reply_to {
            None => None,
            given => Some(check("reply_to", given, "the id of a message", |id| {
                matches!(IdKind::of(id), Some(IdKind::Message | IdKind::Delivery))
            })?),
        };
        if let given @ Some(_) = self.schema {
            check("schema", given, SCHEMA, |schema| schema == SCHEMA)?;
        }
        let kind = match kind {
            "room" => {
                let room =
                    check("room", self.room, "the name of a room", |room| room.parse::<Name>().is_ok())?;
                let seq = self.seq.ok_or(FieldError::Missing { field: "seq" })?;
                let operator = from == OPERATOR || from.starts_with("operator@");
                Kind::Room { room, seq, operator }
            }
            "channel" => Kind::Channel {
                conversation_id: required("conversation_id", self.conversation_id)?,
                connector: check("connector", self.connector, "the name of a connector", is_connector)?,
                user: self.user.unwrap_or_default(),
                redelivery: self.redelivery.unwrap_or(0),
                read: self.read.unwrap_or(false),
                trigger: self.trigger.unwrap_or_default(),
            },
            _ => Kind::Dm,
        };
        Ok(Envelope { from, id, ts, reply_to, body: self.body.unwrap_or_default(), kind })
    }

    /// No field of another kind: it would be lost without a word.
    fn refuse_others(&self, kind: &'static str) -> Result<(), FieldError> {
        let given = [
            ("room", "room", self.room.is_some()),
            ("seq", "room", self.seq.is_some()),
            ("conversation_id", "channel", self.conversation_id.is_some()),
            ("connector", "channel", self.connector.is_some()),
            ("user", "channel", self.user.is_some()),
            ("redelivery", "channel", self.redelivery.is_some()),
            ("read", "channel", self.read == Some(true)),
            ("trigger", "channel", self.trigger.is_some()),
        ];
        match given.into_iter().find(|(_, of, is_given)| *is_given && *of != kind) {
            Some((field, ..)) => Err(FieldError::OtherKind { field, kind }),
            None => Ok(()),
        }
    }
}

impl From<Parsed> for Fields {
    /// The fields that were read. What the envelope does not have is absent.
    fn from(parsed: Parsed) -> Self {
        let Envelope { from, id, ts, reply_to, body, kind } = parsed.envelope;
        let mut fields = Self {
            from: Some(from),
            id: Some(id),
            ts: Some(ts),
            kind: Some(kind.name().to_owned()),
            reply_to,
            body: Some(body),
            schema: Some(SCHEMA.to_owned()),
            ..Self::default()
        };
        match kind {
            Kind::Dm => {}
            Kind::Room { room, seq, .. } => (fields.room, fields.seq) = (Some(room), Some(seq)),
            Kind::Channel { conversation_id, connector, user, redelivery, read, trigger } => {
                fields.conversation_id = Some(conversation_id);
                fields.connector = Some(connector);
                fields.user = Some(user);
                fields.redelivery = Some(redelivery);
                fields.read = Some(read);
                fields.trigger = Some(trigger).filter(|trigger| !trigger.is_empty());
            }
        }
        fields
    }
}

const OPERATOR: &str = "operator";

fn required(field: &'static str, value: Option<String>) -> Result<String, FieldError> {
    value.ok_or(FieldError::Missing { field })
}

fn check(
    field: &'static str,
    value: Option<String>,
    wanted: &'static str,
    fits: impl Fn(&str) -> bool,
) -> Result<String, FieldError> {
    let value = required(field, value)?;
    if fits(&value) { Ok(value) } else { Err(wrong(field, value, wanted)) }
}

/// Long values are shown by their beginning.
fn wrong(field: &'static str, value: String, wanted: &'static str) -> FieldError {
    FieldError::Wrong { field, value: text::clip(&value, 100).to_owned(), wanted }
}

/// An agent's address, or the system or its operator, which write in their own names.
fn is_sender(from: &str) -> bool {
    let system = |name: &str| matches!(name, "transit" | OPERATOR);
    let (name, host) = from.split_once('@').unwrap_or((from, ""));
    match (system(name), system(host)) {
        (true, true) => true,
        (true, false) => host.is_empty() && !from.contains('@') || host.parse::<Host>().is_ok(),
        _ => from.parse::<AgentAddr>().is_ok(),
    }
}

/// A connector goes by the same names as a source.
fn is_connector(name: &str) -> bool {
    name.parse::<Source>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &str) -> Fields {
        serde_json::from_str(json).unwrap()
    }

    fn refusal(json: &str) -> String {
        fields(json).render().unwrap_err().to_string()
    }

    const DM: &str = r#""kind":"dm","from":"jess@titan","id":"tx_0a1b2c3d4e5f","ts":"2026-03-01T10:20:30Z""#;
    const ROOM: &str = r#""kind":"room","from":"jess@titan","id":"tx_0a1b2c3d4e5f","ts":"2026-03-01T10:20:30Z","room":"ops""#;
    const CHANNEL: &str =
        r#""kind":"channel","id":"dlv_0a1b2c3d4e5f","ts":"2026-03-01T10:20:30Z","conversation_id":"c""#;

    #[test]
    fn every_field_comes_back_by_its_name() {
        for json in [
            format!("{{{DM},\"reply_to\":\"tx_ffffffffffff\",\"body\":\"x\"}}"),
            format!("{{{ROOM},\"seq\":7,\"body\":\"\"}}"),
            format!(
                "{{{CHANNEL},\"from\":\"ci_main\",\"connector\":\"ci_main\",\"user\":\"Ada <a>\",\"redelivery\":2,\
                 \"read\":true,\"trigger\":\"t\",\"body\":\"x\"}}"
            ),
        ] {
            let given = Fields { schema: Some(SCHEMA.to_owned()), ..fields(&json) };
            let parsed = super::super::parse(&given.clone().render().unwrap()).unwrap();
            assert_eq!(Fields::from(parsed), given);
        }
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let text =
            fields(&format!("{{{CHANNEL},\"from\":\"ingest\",\"user\":null,\"new\":[1]}}")).render().unwrap();
        assert!(text.contains("connector=\"ingest\" user=\"unknown\" redelivery=\"0\" schema="), "{text}");
        // What was not read has nothing to lose.
        assert!(fields(&format!("{{{DM},\"read\":false}}")).render().is_ok());
        let text = fields(&format!("{{{CHANNEL},\"connector\":\"gmail\"}}")).render().unwrap();
        assert!(text.starts_with("<transit from=\"gmail\""), "{text}");
        let text = fields(&format!("{{{},\"seq\":1}}", ROOM.replace("jess@titan", "operator@transit")));
        assert!(text.render().unwrap().contains("to=\"#ops\""), "an operator's post answers the room");
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        for (json, why) in [
            ("{}".to_owned(), "kind is missing"),
            (format!("{{{DM}}}").replace("dm", "mail"), "kind \"mail\" is not dm, room or channel"),
            (format!("{{{DM}}}").replace("\"id\"", "\"ID\""), "id is missing"),
            (
                format!("{{{DM}}}").replace("tx_", "dlv_"),
                "id \"dlv_0a1b2c3d4e5f\" is not tx_ and 12 lowercase hexadecimal digits",
            ),
            (format!("{{{DM}}}").replace("jess@titan", "jess"), "from \"jess\" is not an address"),
            (format!("{{{DM}}}").replace("jess@titan", "#ops"), "from \"#ops\" is not an address"),
            (
                format!("{{{DM}}}").replace("T10", " 10"),
                "ts \"2026-03-01 10:20:30Z\" is not an RFC 3339 time",
            ),
            (format!("{{{DM},\"reply_to\":\"x\"}}"), "reply_to \"x\" is not the id of a message"),
            (format!("{{{DM},\"room\":\"ops\"}}"), "room is no field of kind dm"),
            (format!("{{{ROOM}}}"), "seq is missing"),
            (format!("{{{ROOM},\"seq\":1}}").replace("ops", "Ops"), "room \"Ops\" is not the name of a room"),
            (format!("{{{ROOM},\"seq\":1,\"user\":\"x\"}}"), "user is no field of kind room"),
            (format!("{{{CHANNEL}}}"), "from is missing"),
            (format!("{{{CHANNEL},\"from\":\"a@b\"}}"), "from \"a@b\" is not the name of a connector"),
            (format!("{{{DM},\"schema\":\"transit/2\"}}"), "schema \"transit/2\" is not transit/1"),
        ] {
            assert_eq!(refusal(&json), why);
        }
        let long = format!("{{{CHANNEL},\"from\":\"ingest\",\"trigger\":\"{}\"}}", "x".repeat(LONGEST));
        assert!(refusal(&long).starts_with("the envelope would have 65"), "{}", refusal(&long));
    }

    #[test]
    fn the_system_writes_in_its_own_name() {
        for from in ["transit", "operator", "operator@transit", "transit@titan", "jess@titan"] {
            assert!(is_sender(from), "{from}");
        }
        for from in ["", "@", "transit@", "jess@transit", "a b@c", "jess@titan@x"] {
            assert!(!is_sender(from), "{from}");
        }
    }
}
