//! The clocks of a Worker, and waiting by them.

use std::future::Future;
use std::time::Duration;

#[cfg(feature = "simulation")]
use super::simulation::FakeClock;
use crate::clock::{Clock, Mono, SystemClock, Wall};

/// Where a Worker has its time from.
pub(super) enum Clocks {
    /// The machine.
    System(SystemClock),
    /// Whoever simulates one.
    #[cfg(feature = "simulation")]
    Fake(FakeClock),
}

impl Default for Clocks {
    fn default() -> Self {
        Self::System(SystemClock::new())
    }
}

impl Clocks {
    /// What comes of `what`, unless it takes longer.
    pub(super) async fn within<T>(&self, longest: Duration, what: impl Future<Output = T>) -> Option<T> {
        match self {
            Self::System(_) => tokio::time::timeout(longest, what).await.ok(),
            #[cfg(feature = "simulation")]
            Self::Fake(clock) => clock.within(longest, what).await,
        }
    }
}

impl Clock for Clocks {
    fn mono(&self) -> Mono {
        match self {
            Self::System(clock) => clock.mono(),
            #[cfg(feature = "simulation")]
            Self::Fake(clock) => clock.mono(),
        }
    }

    fn wall(&self) -> Wall {
        match self {
            Self::System(clock) => clock.wall(),
            #[cfg(feature = "simulation")]
            Self::Fake(clock) => clock.wall(),
        }
    }
}
