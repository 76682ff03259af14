//! The role of a host: `transitd`.
