//! The local client API: one JSON object a line, both ways, on `api.sock`.
//!
//! A client asks with `{"id","method","params"}` and gets one answer for each request, in order: `{"id","result"}` or
//! `{"id","error"}`. Between the answers come events, which name the session that they are about. [`Server`] is the
//! daemon's end of one connection: it cuts and checks the lines, counts them against the rate, keeps the answers and
//! the events in order, and says when a client that does not read is given up. What a request comes to is its owner's
//! business.
//!
//! ```text
//! client                            server
//! ── {"id":1,"method":"message.send","params":{"text":"hi"}} ──►  rate, size, UTF-8, JSON, shape, method, params
//! ◄─ {"id":"1","result":{"accepted":true}} ─────────────────────  nothing of the run is told before this
//! ◄─ {"event":"run.started",…} {"event":"typing",…} ────────────
//! ◄─ {"event":"reply.delta",…} ─────────────────────────────────  one for each line of the agent's output
//! ◄─ {"event":"reply",…} ───────────────────────────────────────  the last one of this request
//! ── end of its writing ───────────────────────────────────────►  closes once every request has had its reply
//! ```

mod cutter;
mod frames;
mod request;
mod salvage;
mod server;
#[cfg(test)]
mod tests;
pub mod words;

pub use self::frames::{Answer, Code, EventFrame, Status, WireError, error_line};
pub use self::request::{Request, parse};
pub use self::salvage::salvage_id;
pub use self::server::{Asked, Input, Server, ServerConfig, Ticket, Unsent};
pub use self::words::{BadSessionId, CatalogEntry, LocalEvent, SessionId};
