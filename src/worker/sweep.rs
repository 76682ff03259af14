//! What is done by time alone: room on the disk is watched, revoked hosts are cut off, queues are looked at, old
//! messages end.

use std::time::Duration;

use super::app::App;
use super::connection::raised;
use super::links::Grown;
use crate::proto::wire::close;
use crate::store::StoreError;
use crate::store::ledger::{deliveries, messages, set_back};

/// How soon a revocation by another process is noticed.
const INTERVAL: Duration = Duration::from_secs(1);
/// How soon it is noticed that a command beside the server says that it has changed something.
const NOTICE: Duration = Duration::from_millis(100);
/// Every so many rounds queues are looked at that no hint has told of: operators change them from other processes.
const OVERDUE_ROUNDS: u32 = 3;
/// Every so many rounds messages whose time is over are ended.
const EXPIRY_ROUNDS: u32 = 10;
/// A wall clock that lost this much against the monotonic one was set back. A clock that is slewed loses far less.
const SET_BACK_MS: i64 = 1_000;

/// Runs until the process stops.
pub(super) async fn run(app: App) {
    let mut stopping = app.stopping.clone();
    let mut round = Round::first(&app);
    loop {
        // Asked before anything is looked at: what changes meanwhile is noticed then.
        let state = app.db.directory_state();
        let sweeping = app.clone();
        let swept = tokio::task::spawn_blocking(move || {
            sweeping.db.watch_room();
            sweep(&sweeping, round)
        });
        match swept.await {
            Ok(Err(err)) => tracing::error!(%err, "sweeping failed"),
            Err(err) => tracing::error!(%err, "sweeping failed"),
            Ok(Ok(())) => {}
        }
        tokio::select! {
            () = raised(&mut stopping) => return,
            told = noticed(&app, state) => round = round.next(&app, told),
        }
    }
}

/// One look around.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    number: u32,
    /// The directory has changed.
    is_told: bool,
    /// The wall clock may have been set back since the last one, or before the first.
    is_set_back: bool,
    /// How far the wall clock is ahead of the monotonic one, in milliseconds.
    ahead: i64,
}

impl Round {
    pub(super) fn first(app: &App) -> Self {
        Self { number: 0, is_told: false, is_set_back: true, ahead: ahead(app) }
    }

    /// The one after this, early when the directory `is_told` to have changed.
    pub(super) fn next(self, app: &App, is_told: bool) -> Self {
        let ahead = ahead(app);
        let is_set_back = self.ahead.saturating_sub(ahead) > SET_BACK_MS;
        Self { number: self.number.wrapping_add(1), is_told, is_set_back, ahead }
    }
}

fn ahead(app: &App) -> i64 {
    app.wall().0.saturating_sub(i64::try_from(app.mono().0.as_millis()).unwrap_or(i64::MAX))
}

/// What one round does.
pub(super) fn sweep(app: &App, round: Round) -> Result<(), StoreError> {
    cut_off_revoked(app)?;
    app.loops.hear_operators(&app.db, app.mono())?;
    if round.is_told {
        app.callbacks.poke();
    }
    if round.is_set_back {
        catch_up(app)?;
    }
    if round.is_told || round.is_set_back || round.number.is_multiple_of(OVERDUE_ROUNDS) {
        wake_overdue(app)?;
    }
    if round.number.is_multiple_of(EXPIRY_ROUNDS) { expire(app) } else { Ok(()) }
}

/// What a clock that was ahead has put off is due now.
fn catch_up(app: &App) -> Result<(), StoreError> {
    let now = app.wall();
    if app.db.write(move |tx| set_back::catch_up(tx, now))? > 0 {
        tracing::warn!("the wall clock was set back; what was due in its future is due now");
        app.callbacks.poke();
    }
    Ok(())
}

/// Waits for the next round. Answers whether it comes early, because the directory is not in this state any more.
async fn noticed(app: &App, state: Option<u64>) -> bool {
    let began = app.mono();
    while app.mono().since(began) < INTERVAL {
        tokio::time::sleep(NOTICE).await;
        if app.db.directory_state() != state {
            return true;
        }
    }
    false
}

/// A link whose token opens nothing any more, or opens another host, ends.
fn cut_off_revoked(app: &App) -> Result<(), StoreError> {
    let links = app.links.all();
    let revoked = app.db.read(|tx| {
        let mut revoked = Vec::new();
        for link in links {
            if !link.owner.is_good(tx)? {
                revoked.push(link);
            }
        }
        Ok(revoked)
    })?;
    for link in revoked {
        link.close(close::REVOKED, "host revoked");
    }
    Ok(())
}

fn wake_overdue(app: &App) -> Result<(), StoreError> {
    let now = app.wall();
    let overdue =
        app.db.read(|tx| Ok([messages::overdue(tx, now)?, deliveries::overdue(tx, now)?].concat()))?;
    for queue in overdue {
        app.links.wake_for_all(&queue);
    }
    Ok(())
}

fn expire(app: &App) -> Result<(), StoreError> {
    let now = app.wall();
    for bounced in app.db.write(move |tx| messages::expire(tx, now))? {
        app.links.wake(&bounced, Grown::Messages);
    }
    Ok(())
}
