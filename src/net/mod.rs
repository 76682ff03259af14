//! Drivers that feed machines: Unix sockets, the WebSocket client loop, outbound HTTP, service manners.

pub mod service;
pub mod unix;
pub mod wake;
