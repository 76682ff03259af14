//! One end.
