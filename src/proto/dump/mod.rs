//! Dumps: conversations kept as lines of JSON, one record a frame.
//!
//! A record is `{"at","proto","dir","conn"?,"frame"}`, or `{"at","proto","dir","conn"?,"note",…}` for what happened
//! on a connection besides its frames. [`record`] writes them. [`cut`] and [`line`](mod@line) read them, and bare
//! frames too, a line at a time and without building a value; [`raw`] shows what they hold, [`check`] holds them
//! against their protocols, and [`tally`] counts them.

pub mod check;
pub mod cut;
pub mod line;
pub mod raw;
pub mod record;
mod scan;
pub mod tally;

pub use cut::{Cut, Cutter};
pub use line::{Kind, Line, Reader};
pub use raw::{Raw, Secrets};
pub use record::{Note, Proto, Record, Way};
pub use scan::NotJson;
