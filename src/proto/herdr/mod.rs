//! What is said to Herdr, a terminal multiplexer for coding agents, over its socket.
//!
//! One request a connection: a line of JSON there, a line back, and the server closes. `id` is always a string, and
//! `params` is always there. [`Request`] is such a line, [`answer`] reads the one that comes back, and [`Delivery`]
//! is the conversation that brings one envelope into one pane.

mod delivery;
mod frames;
mod needle;
#[cfg(test)]
mod tests;

pub use delivery::{Delivery, Hold, Job, Proof, Searched, Step, Told, Verdict, is_free};
pub use frames::{
    Agent, Fault, PROTOCOLS, Processes, Request, Status, agents, answer, pane_text, processes, protocol,
};
pub use needle::Needle;
