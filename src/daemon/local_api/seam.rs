//! What the gateway and the API say to each other.

use std::sync::Arc;

use crate::proto::local::{LocalEvent, SessionId};

/// One message on its way to the dispatcher.
pub(in crate::daemon) struct Trigger {
    pub(in crate::daemon) source: &'static str,
    pub(in crate::daemon) session: SessionId,
    pub(in crate::daemon) text: String,
    pub(in crate::daemon) actor: Actor,
    pub(in crate::daemon) sink: Arc<dyn Sink>,
}

/// Who has sent it, as the kernel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::daemon) struct Actor {
    pub(in crate::daemon) pid: Option<u32>,
    pub(in crate::daemon) uid: Option<u32>,
}

/// Where what comes of it is told.
pub(in crate::daemon) trait Sink: Send + Sync {
    /// May block while the client's queue is full; false once the client is gone.
    fn event(&self, event: LocalEvent) -> bool;
}

/// Why a message is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::daemon) enum Refusal {
    RateLimited,
    SessionCap,
    QueueFull,
    Unavailable,
}
