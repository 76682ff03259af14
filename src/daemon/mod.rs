//! The role of a host: `transitd`.
pub mod events;
