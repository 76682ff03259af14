//! transit-agent/1: what a harness adapter and its own host's daemon say on `agent.sock`.
//!
//! Frames are JSON objects, one a line. The first one is `register`; what it claims about the process is checked
//! against the kernel by the daemon. Every later frame of the adapter carries the capability that `registered`
//! gave it; a frame with a wrong one is ignored. [`DaemonSide`] and [`AdapterSide`] are the two ends of one
//! connection.
//!
//! ```text
//! adapter                           daemon
//! connected ── register ──────────► accepted          10 s for it; its pid must be the socket's peer,
//!                                                     or an ancestor of that one
//!           ◄─ registered ───────── registered        or register_err, and a close
//!           ◄─ deliver ────────────                   30 s for an answer, from the last status or pong
//!           ── deliver_ack ───────►                   once it is durably visible; late is good too
//!           ◄─ ping every 15 s ────                   pong is welcome, not required
//! ```

mod adapter_side;
mod daemon_side;
mod frames;
#[cfg(test)]
mod tests;

pub use adapter_side::{AdapterEvent, AdapterSide};
pub use daemon_side::{DaemonSide, DaemonSideEvent, NOT_VISIBLE, PeerProcess, status_word};
pub use frames::{AdapterFrame, HostFrame, Register, decode_adapter, decode_host};

/// What `via` of an ack says when only the terminal has shown the envelope.
pub const VIA_SCREEN: &str = "screen";

/// The version that both ends speak.
pub const PROTO: u64 = 1;

/// The capability that these random bytes make: 32 hexadecimal characters.
pub fn capability(bytes: [u8; 16]) -> String {
    hex::encode(bytes)
}
