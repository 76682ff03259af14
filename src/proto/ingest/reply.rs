//! The body of a reply callback.

use serde::Serialize;

use super::SCHEMA;

/// An agent's reply on its way back to where the event came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The name of the source.
    pub source: &'a str,
    /// As the event had it, byte for byte.
    pub conversation_id: &'a str,
    /// As the event had it, byte for byte.
    pub event_key: &'a str,
    /// The delivery that is answered, `dlv_…`.
    pub delivery_id: &'a str,
    /// The address of the agent that answers.
    pub agent: &'a str,
    /// What it says.
    pub message: &'a str,
    /// As the event had it.
    pub user: Option<&'a str>,
}

/// The fields in the order in which they are written.
#[derive(Serialize)]
struct Body<'a> {
    schema: &'a str,
    kind: &'a str,
    source: &'a str,
    conversation_id: &'a str,
    event_key: &'a str,
    delivery_id: &'a str,
    agent: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
}

impl Reply<'_> {
    /// The body. Sign and send exactly these bytes.
    pub fn to_body(&self) -> Vec<u8> {
        let Self { source, conversation_id, event_key, delivery_id, agent, message, user } = *self;
        let body = Body {
            schema: SCHEMA,
            kind: "reply",
            source,
            conversation_id,
            event_key,
            delivery_id,
            agent,
            message,
            user,
        };
        serde_json::to_vec(&body).expect("a reply holds only strings")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_come_in_their_order_and_an_absent_user_not_at_all() {
        let mut reply = Reply {
            source: "ci",
            conversation_id: "c \u{e9}",
            event_key: "k\n",
            delivery_id: "dlv_001122334455",
            agent: "jess@titan",
            message: "done",
            user: None,
        };
        let start = "{\"schema\":\"transit.ingest/1\",\"kind\":\"reply\",\"source\":\"ci\",\"conversation_id\":\"c é\",\
                     \"event_key\":\"k\\n\",\"delivery_id\":\"dlv_001122334455\",\"agent\":\"jess@titan\",\
                     \"message\":\"done\"";
        assert_eq!(String::from_utf8(reply.to_body()).unwrap(), format!("{start}}}"));
        reply.user = Some("Ada");
        assert_eq!(String::from_utf8(reply.to_body()).unwrap(), format!("{start},\"user\":\"Ada\"}}"));
    }
}
