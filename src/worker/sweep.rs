//! What is done by time alone: room on the disk is watched, revoked hosts are cut off, queues are looked at, old
//! messages end.

use std::time::Duration;

use super::app::App;
use super::connection::raised;
use super::links::Grown;
use crate::proto::wire::close;
use crate::store::StoreError;
use crate::store::ledger::{deliveries, directory, messages};

/// How soon a revocation by another process is noticed.
const INTERVAL: Duration = Duration::from_secs(1);
/// How soon it is noticed that a command beside the server says that it has changed something.
const NOTICE: Duration = Duration::from_millis(100);
/// Every so many rounds queues are looked at that no hint has told of: operators change them from other processes.
const OVERDUE_ROUNDS: u32 = 3;
/// Every so many rounds messages whose time is over are ended.
const EXPIRY_ROUNDS: u32 = 10;

/// Runs until the process stops.
pub(super) async fn run(app: App) {
    let mut stopping = app.stopping.clone();
    let mut told = false;
    for round in 0_u32.. {
        // Asked before anything is looked at: what changes meanwhile is noticed then.
        let state = app.db.directory_state();
        let sweeping = app.clone();
        let swept = tokio::task::spawn_blocking(move || {
            sweeping.db.watch_room();
            sweep(&sweeping, round, told)
        });
        match swept.await {
            Ok(Err(err)) => tracing::error!(%err, "sweeping failed"),
            Err(err) => tracing::error!(%err, "sweeping failed"),
            Ok(Ok(())) => {}
        }
        tokio::select! {
            () = raised(&mut stopping) => return,
            noticed = noticed(&app, state) => told = noticed,
        }
    }
}

/// What one round does; `told` says that the directory has changed.
pub(super) fn sweep(app: &App, round: u32, told: bool) -> Result<(), StoreError> {
    cut_off_revoked(app)?;
    app.loops.hear_operators(&app.db, app.mono())?;
    if told {
        app.callbacks.poke();
    }
    if told || round.is_multiple_of(OVERDUE_ROUNDS) {
        wake_overdue(app)?;
    }
    if round.is_multiple_of(EXPIRY_ROUNDS) { expire(app) } else { Ok(()) }
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
            let host = directory::host_by_token(tx, &link.owner.token_hash)?;
            if host.is_none_or(|host| host.id != link.owner.host_id) {
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
