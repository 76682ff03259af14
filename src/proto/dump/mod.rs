//! Dumps: conversations kept as lines of JSON, one record a frame.
//!
//! A record is `{"at","proto","dir","conn"?,"frame"}`, or `{"at","proto","dir","conn"?,"note",…}` for what happened
//! on a connection besides its frames. [`record`] writes them.

pub mod record;

pub use record::{Note, Proto, Record, Way};
