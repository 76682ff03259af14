//! transit.ingest/1: signed events from outside, and the signed callback.
//!
//! A request is verified over its exact bytes with a [`Signer`] before anything of it is parsed; then
//! [`parse_event`] holds the rules of its body. A reply goes back as a [`Reply`], signed in the same way, to an
//! address that [`reply_url_allowed`] permits. Whom a source belongs to, rates and duplicates are the Worker's.

mod event;
mod headers;
mod json;
mod reply;
mod reply_url;
mod retry_after;
mod signature;
#[cfg(test)]
mod tests;

pub use event::{Event, check_object, parse_event};
pub use headers::{HeaderError, SignedHeaders, check_headers, parse_timestamp};
pub use reply::Reply;
pub use reply_url::{ReplyPrefix, reply_url_allowed};
pub use retry_after::{http_date, retry_after};
pub use signature::{Running, Signer};

use crate::text;

/// What every body says in `schema`.
pub const SCHEMA: &str = "transit.ingest/1";
/// The name of the header with the time of signing, in Unix seconds.
pub const TIMESTAMP_HEADER: &str = "Transit-Timestamp";
/// The name of the header with the signature.
pub const SIGNATURE_HEADER: &str = "Transit-Signature";
/// What a signature begins with.
pub const SIGNATURE_PREFIX: &str = "v1=";

/// A rule of a body that is broken: `{"error": text, "field"?: field}` in an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct RuleError {
    /// The top-level field, unless it is the body as a whole.
    pub field: Option<String>,
    /// The rule, in words.
    pub text: String,
}

impl RuleError {
    fn of_body(text: impl Into<String>) -> Self {
        Self { field: None, text: text.into() }
    }

    fn of(field: &str, text: impl Into<String>) -> Self {
        // An unknown field's name is as long as its sender likes.
        let field = text::clip(field, crate::limits::META_KEY_UNITS);
        Self { field: (!field.is_empty()).then(|| field.to_owned()), text: text.into() }
    }
}
