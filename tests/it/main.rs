//! All integration tests, in one binary: one link, and helpers that are compiled once.
//!
//! A file of this folder that is not listed here would never run; [`floors`] fails on one.

#![allow(clippy::unwrap_used)] // a test fails by panicking; clippy sees only `#[test]` functions as tests

mod agent;
mod api;
mod crash;
mod daemon;
mod docs;
mod envelope;
mod examples;
mod exchange;
mod floors;
mod gateway;
mod live;
mod load;
mod local_api;
mod machines;
mod mcp;
mod pairs;
mod passwords;
mod places;
mod rig;
mod rooms;
mod send;
mod sign;
mod sim;
mod spool;
mod support;
mod ways;
mod whole;
mod wire_dump;
mod wire_dump_watch;
mod worker;
mod worker_admin;
mod worker_keep;
mod worker_ops;
mod worker_room;
mod worker_serve;
mod worker_slips;
