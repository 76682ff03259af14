//! The local client API: one JSON object a line, both ways, on `api.sock`.

pub mod words;

pub use self::words::{BadSessionId, CatalogEntry, LocalEvent, SessionId};
