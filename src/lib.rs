//! Transit moves messages between people's systems and the coding agents that run in their terminals.
//!
//! Each message becomes a short, typed envelope in the right agent's session, exactly once in effect, and the
//! agent's reply goes back where it came from. This crate is the whole of it; the programs in `src/bin` are a few
//! lines each.
//!
//! # A tour, from the ground up
//!
//! A file names its own folder or a lower floor, never a higher one.
//!
//! | floor | modules | what lives there |
//! | --- | --- | --- |
//! | 0 | [`addr`] [`id`] [`clock`] [`text`] [`limits`] [`secret`] | words: addresses, ids, time, runes, numbers, secrets |
//! | 1 | [`proto`] | the protocols, pure: formats as pairs of functions, conversations as machines |
//! | 2 | [`store`] | the host's spool and the Worker's ledger: the only SQL |
//! | 3 | [`net`] | drivers that feed machines: sockets, WebSocket, HTTP, service manners |
//! | 4 | [`daemon`] [`worker`] | the two roles; they meet only through a protocol or rows |
//! | 5 | [`cli`] | one file a command: arguments, run, output, exit code |
//!
//! `ARCHITECTURE.md` follows one message through these floors.

pub mod addr;
pub mod clock;
pub mod id;
pub mod limits;
pub mod secret;
pub mod text;

pub mod proto;

pub mod store;

pub mod net;

pub mod daemon;
pub mod worker;

pub mod cli;
