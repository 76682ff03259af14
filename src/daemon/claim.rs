//! A session claims a name. Its own thread gives it to it, between two deliveries, so that none of them is ever under
//! way for two names.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::dispatch::Dispatch;
use super::host::Host;
use super::session::{Session, Way};
use crate::addr::Name;
use crate::proto::control::ControlError;
use crate::store::spool::agents::Place;

/// Time that a session's thread has to answer.
const WAIT: Duration = Duration::from_secs(10);

/// One claim, and where its answer goes.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) name: Name,
    answer: Sender<Result<Place, String>>,
}

impl Claim {
    /// Answers it: the place, or why there is none.
    pub(super) fn answer(self, answer: Result<Place, String>) {
        // Whoever has stopped waiting finds the name with whoami.
        let _ = self.answer.send(answer);
    }
}

/// The claims that wait for the thread of their session; `None` once that has ended.
#[derive(Debug)]
pub(super) struct Claims(Mutex<Option<Vec<Claim>>>);

impl Default for Claims {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl Claims {
    fn with<T>(&self, f: impl FnOnce(&mut Option<Vec<Claim>>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn put(&self, name: Name) -> Receiver<Result<Place, String>> {
        let (answer, answered) = channel();
        self.with(|waiting| {
            if let Some(waiting) = waiting {
                waiting.push(Claim { name, answer });
            }
        });
        answered
    }

    pub(super) fn take(&self) -> Vec<Claim> {
        self.with(|waiting| waiting.as_mut().map(std::mem::take)).unwrap_or_default()
    }

    pub(super) fn close(&self) {
        self.with(|waiting| *waiting = None);
    }
}

/// Claims a name for a session, and waits until it has it.
///
/// # Errors
/// `claim_failed`, and why.
pub(super) fn ask(session: &Session, name: &str) -> Result<Place, ControlError> {
    let failed = |why: &dyn std::fmt::Display| ControlError::new("claim_failed", why.to_string());
    let name: Name = name.parse().map_err(|err| failed(&err))?;
    if let Way::Program { .. } = session.way {
        return Err(failed(&"an agent of this host's own is called what its manifest says"));
    }
    match session.mailbox.claim(name).recv_timeout(WAIT) {
        Ok(answer) => answer.map_err(|why| failed(&why)),
        Err(_) => Err(failed(&"the session has gone away")),
    }
}

/// Gives a session another name, with all that is kept for it and of it. For the session's own thread.
///
/// # Errors
/// When somebody else of this host has or had the name, or it cannot be stored; then nothing has changed.
pub(super) fn rename(
    host: &Host,
    session: &mut Session,
    dispatch: &mut Dispatch,
    name: &Name,
) -> Result<Place, String> {
    let _one_at_a_time = host.registering.lock().unwrap_or_else(PoisonError::into_inner);
    if session.mailbox.is_replaced() {
        return Err("another process has taken the session over".to_owned());
    }
    let place = dispatch.rename(&session.who, name, host.wall()).map_err(|err| err.to_string())?;
    let address = format!("{}@{}", place.name, host.name());
    host.registry.rename(session, &place, &address);
    tracing::info!(was = %session.place.name, agent = %place.name, "a session has claimed a name");
    session.place = place.clone();
    session.address = address;
    host.uplink.wake();
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_answered_or_let_go() {
        let claims = Claims::default();
        let name: Name = "ops".parse().unwrap();
        let answered = claims.put(name.clone());
        let mut taken = claims.take();
        assert!(claims.take().is_empty());
        let place = Place { name: name.clone(), is_auto: false, generation: 2 };
        taken.remove(0).answer(Ok(place.clone()));
        assert_eq!(answered.recv(), Ok(Ok(place)));
        let waits = claims.put(name.clone());
        claims.close();
        assert!(waits.recv().is_err(), "its thread has ended");
        assert!(claims.put(name).recv().is_err());
        assert!(claims.take().is_empty());
    }
}
