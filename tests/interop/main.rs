//! Tests against real peers: openssl, curl and python3 as senders, strace as a saboteur, a full disk,
//! a disk whose power is cut, websockets at both ends of a proxy, the coding agents Pi and OpenCode, the official
//! clients of MCP.
//!
//! `cargo test --features interop --test interop` runs them. Each fails, and says so, where its peer is missing.

#![allow(clippy::unwrap_used)] // a test fails by panicking; clippy sees only `#[test]` functions as tests
#![allow(dead_code)] // the support is shared with the other test binary, which uses the rest of it

mod autobahn;
mod full;
mod harness;
#[path = "../it/load.rs"]
mod load;
mod mcp;
mod power;
mod proxies;
#[path = "../it/rig.rs"]
mod rig;
mod senders;
mod signing;
#[path = "../it/support.rs"]
mod support;
mod sweep;
mod tls;
mod tmux;
mod wire;
