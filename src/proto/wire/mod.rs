//! transit-wire/1: the frames between a host's daemon and the Worker, and both ends of the conversation.
//!
//! A frame is one JSON object in one WebSocket text message, at most [`FRAME_BYTES`](crate::limits::FRAME_BYTES)
//! long. Unknown `t` values and unknown fields are ignored; a known `t` with a missing or wrongly typed field is
//! malformed. [`DaemonEnd`] and [`WorkerEnd`] hold the order of frames, the heartbeat, the limits and the close
//! codes of one connection; neither remembers anything beyond it.
//!
//! ```text
//! daemon                            Worker
//! dialled ──── hello ─────────────► upgraded          10 s for the hello
//!         ◄─── hello_ok ─────────── ready             or hello_err, and a close
//! ready   ──── roster, send, … ───► 50 frames a second, 100 at once
//!         ◄─── deliver, send_ack, …
//!         ──── pong every 30 s ───►
//!         ◄─── ping ───────────────                   90 s of silence: either closes
//! ```
//!
//! The two ends, without anything between them:
//!
//! ```
//! use transit::clock::Mono;
//! use transit::proto::wire::{DaemonConfig, DaemonEnd, DaemonEvent, WorkerConfig, WorkerEnd};
//! use transit::proto::{Input, Output};
//!
//! let now = Mono::default();
//! let config = DaemonConfig { host: "titan".into(), daemon_ver: "1".into() };
//! let mut daemon = DaemonEnd::new(config, now);
//! let config = WorkerConfig { host: "titan".into(), host_id: "hst_001122334455".into(), org: "default".into() };
//! let mut worker = WorkerEnd::new(config, now);
//!
//! worker.deliver("tx_001122334455", "jess", "<transit …>".into());
//! while let Some(output) = daemon.poll() {
//!     if let Output::Write(frame) = output {
//!         worker.handle(Input::Text(&frame), now);
//!     }
//! }
//! while let Some(output) = worker.poll() {
//!     if let Output::Write(frame) = output {
//!         daemon.handle(Input::Text(&frame), now);
//!     }
//! }
//! let events: Vec<_> =
//!     std::iter::from_fn(|| daemon.poll()).filter(|output| matches!(output, Output::Event(_))).collect();
//! assert!(matches!(
//!     &events[..],
//!     [Output::Event(DaemonEvent::Ready { .. }), Output::Event(DaemonEvent::Deliver { agent, .. })] if agent == "jess"
//! ));
//! ```

mod daemon_end;
mod frames;
#[cfg(test)]
mod tests;
mod worker_end;

pub use daemon_end::{DaemonConfig, DaemonEnd, DaemonEvent};
pub use frames::{
    AgentInfo, DaemonFrame, NakCode, NamedBy, RpcError, SendFrame, WorkerFrame, decode_daemon, decode_worker,
};
pub use worker_end::{WorkerConfig, WorkerEnd, WorkerEvent};

/// The version that both ends speak.
pub const PROTO: u64 = 1;

/// Close codes of transit-wire/1.
pub mod close {
    /// A newer connection of the same host said a good hello.
    pub const REPLACED: u16 = 4000;
    /// The host was revoked.
    pub const REVOKED: u16 = 4001;
    /// A frame was malformed, the first one was not hello, or the version is another.
    pub const INVALID: u16 = 4002;
    /// The hello names another host than the token.
    pub const HOST_MISMATCH: u16 = 4003;
    /// More frames than the rate allows.
    pub const RATE: u16 = 4008;
    /// A binary message.
    pub const NOT_TEXT: u16 = 1003;
    /// Bytes that are no WebSocket frame (RFC 6455, 7.4.1).
    pub const NO_FRAME: u16 = 1002;
    /// A text message that is not UTF-8.
    pub const NOT_UTF8: u16 = 1007;
    /// A message over the limit.
    pub const TOO_LONG: u16 = 1009;
    /// The server or the daemon goes away in order.
    pub const GOING_AWAY: u16 = 1001;
    /// The peer was silent for too long.
    pub const SILENT: u16 = 1001;
}
