//! The role of the server: `transit-worker`.
