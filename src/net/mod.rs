//! Drivers that feed machines: Unix sockets, the WebSocket client loop, outbound HTTP, service manners.

pub mod dial;
pub mod fetch;
pub mod line;
pub mod proxy;
pub mod public;
pub mod relay;
pub mod service;
pub mod tap;
pub mod tcp;
pub mod tls;
pub mod unix;
pub mod wake;
pub mod ws;
