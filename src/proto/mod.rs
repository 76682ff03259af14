//! The protocols, pure: bytes or values in, bytes or events out.
//!
//! Formats are pairs of functions; conversations are machines. Time and randomness are passed in. There is no
//! socket, clock, file, thread or random source below this module, and a test holds that.
//!
//! Every machine has one shape. It is made by `new(config, now)`, told what happened by `handle(input, now)`,
//! and asked for what is to be done by `poll()` until that answers `None`; its other verbs (`send`, `deliver`, …)
//! only queue outputs. Drain `poll` after *every* call, and only then wait for the next input or for the time of
//! the last [`Output::WakeAt`], whichever is first.

pub mod admission;
pub mod agent;
pub mod assistant;
pub mod bang;
pub mod composer;
pub mod control;
pub mod dump;
pub mod envelope;
pub mod guard;
pub mod herdr;
pub mod ingest;
pub mod lines;
pub mod local;
mod outputs;
mod tagged;
#[cfg(test)]
mod testing;
pub mod tmux;
pub mod wire;

use crate::clock::Mono;

/// What reaches a machine from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input<'a> {
    /// One whole text frame, or one line without its newline.
    Text(&'a str),
    /// A frame that is not text, or a line that is not UTF-8.
    Binary,
    /// A frame longer than the protocol allows; its content was not read.
    TooLong,
    /// Any other byte from the peer (a WebSocket ping or pong): it is alive.
    Sound,
    /// Nothing but time.
    Tick,
}

/// What a machine wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<E> {
    /// Send this text as one frame (a WebSocket text message, or a line and its newline).
    Write(String),
    /// Something the owner of the machine decides on.
    Event(E),
    /// Call `handle(Input::Tick, now)` at this time at the latest. Each one replaces the one before.
    WakeAt(Mono),
    /// Close the connection. Nothing comes after this.
    Close(Close),
}

/// Why a connection ends, as the peer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    /// The WebSocket close code; protocols over Unix sockets have none and use 4002.
    pub code: u16,
    /// One short line.
    pub reason: String,
}

/// A decoder's three answers: additive evolution (an unknown `t`) is not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded<F> {
    /// A frame of this version of the protocol.
    Frame(F),
    /// An object whose `t` is not known: ignored.
    Unknown,
    /// Not a frame, and why.
    Malformed(Malformed),
}

/// What is wrong with a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The text is not JSON.
    #[error("invalid_json: {0}")]
    Json(String),
    /// The JSON is not a frame: no object, no `t`, a field missing or of the wrong type.
    #[error("invalid_frame: {0}")]
    Frame(String),
    /// More bytes than the protocol allows.
    #[error("frame_too_large")]
    TooLong,
}

impl Malformed {
    /// The stable word.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Json(_) => "invalid_json",
            Self::Frame(_) => "invalid_frame",
            Self::TooLong => "frame_too_large",
        }
    }

    /// The close code that answers it.
    fn close_code(&self) -> u16 {
        match self {
            Self::Json(_) | Self::Frame(_) => wire::close::INVALID,
            Self::TooLong => wire::close::TOO_LONG,
        }
    }
}
