//! Looking at a conversation that passes by: bytes in, what they say out.
//!
//! A tap touches nothing. What it does not understand it says so of, and it holds no more than one message of each
//! way, whatever comes.

mod frames;
mod head;
mod inflate;
mod line;
mod stream;
#[cfg(test)]
mod tests;
mod web;

pub use line::LineTap;
pub use stream::Tapped;
pub use web::WebTap;

use crate::proto::dump::{Note, Proto, Way};

/// Something that a tap understood.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// What is spoken.
    pub proto: Proto,
    /// Which way it went.
    pub way: Way,
    /// What it is.
    pub what: What<'a>,
}

/// A frame, or something else.
#[derive(Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// The text of a frame.
    Text(&'a str),
    /// Anything else.
    Note(Note<'a>),
}

/// One conversation.
pub trait Tap: Send {
    /// These bytes passed.
    fn saw(&mut self, way: Way, bytes: &[u8], out: &mut dyn FnMut(Seen<'_>));

    /// Nothing more comes this way: it was closed, or broke for the reason that is given.
    fn ended(&mut self, way: Way, broken: Option<&str>, out: &mut dyn FnMut(Seen<'_>));
}
