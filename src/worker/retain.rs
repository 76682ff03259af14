//! What is settled for long enough is removed from the ledger, a little at a time.
//!
//! Every look goes on where the rows are oldest. What it finds is removed in small changes with pauses between, so
//! that whoever waits for a commit does not wait for these.

use std::time::{Duration, Instant};

use super::app::App;
use super::connection::raised;
use crate::clock::Wall;
use crate::store::StoreError;
use crate::store::ledger::retention::{self, Keep, Over, Table};

/// Rows that one change removes.
const REMOVED_AT_ONCE: usize = 50;
/// A pause is so many times as long as the change before it took.
const PAUSE_FACTOR: u32 = 6;
/// Between two sweeps. Where things are kept for less, so is this.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// What a sweep has removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Swept {
    messages: u64,
    deliveries: u64,
    events: u64,
    codes: u64,
}

/// Runs until the process stops.
pub(super) async fn run(app: App, keep: Keep) {
    let shortest = [keep.messages, keep.deliveries].into_iter().flatten().min();
    let wait = shortest.unwrap_or(LONGEST_WAIT).clamp(SHORTEST_WAIT, LONGEST_WAIT);
    let mut stopping = app.stopping.clone();
    loop {
        let began = Instant::now();
        let swept = tokio::select! {
            () = raised(&mut stopping) => return,
            swept = sweep(&app, keep) => swept,
        };
        match swept {
            Ok(swept) if swept == Swept::default() => {}
            Ok(Swept { messages, deliveries, events, codes }) => tracing::info!(
                messages,
                deliveries,
                events,
                codes,
                seconds = began.elapsed().as_secs(),
                "removed what was settled for long enough"
            ),
            Err(err) => tracing::error!(%err, "removing what is settled failed"),
        }
        tokio::select! {
            () = raised(&mut stopping) => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn sweep(app: &App, keep: Keep) -> Result<Swept, StoreError> {
    let now = app.wall();
    let mut swept =
        Swept { codes: app.write(move |tx| retention::remove_codes(tx, now)).await?, ..Swept::default() };
    for table in Table::ALL {
        let removed = match table {
            Table::Messages => &mut swept.messages,
            Table::Deliveries => &mut swept.deliveries,
            Table::Events => &mut swept.events,
        };
        let Some(cutoff) = table.cutoff(keep, now) else { continue };
        let mut after = Some(0);
        while let Some(seq) = after {
            let reading = app.clone();
            let look = move || reading.db.read(|tx| retention::look(tx, table, seq, cutoff, now));
            // A look that panicked has its text in the log; the next one begins anew.
            let page = tokio::task::spawn_blocking(look).await.map_err(|_| StoreError::Closed)??;
            for rows in page.over.chunks(REMOVED_AT_ONCE) {
                *removed += remove(app, table, rows.to_vec(), cutoff).await?;
            }
            after = page.next;
        }
    }
    Ok(swept)
}

/// A whole sweep at once, on the calling thread: for simulations. Answers how many rows are gone.
#[cfg(feature = "simulation")]
pub(super) fn sweep_now(app: &App, keep: Keep) -> Result<u64, StoreError> {
    let (now, mut removed) = (app.wall(), 0);
    for table in Table::ALL {
        let Some(cutoff) = table.cutoff(keep, now) else { continue };
        let mut after = Some(0);
        while let Some(seq) = after {
            let page = app.db.read(|tx| retention::look(tx, table, seq, cutoff, now))?;
            for rows in page.over.chunks(REMOVED_AT_ONCE) {
                let rows = rows.to_vec();
                removed += app.db.write(move |tx| retention::remove(tx, table, &rows, cutoff))?;
            }
            after = page.next;
        }
    }
    Ok(removed)
}

async fn remove(app: &App, table: Table, rows: Vec<Over>, cutoff: Wall) -> Result<u64, StoreError> {
    let began = Instant::now();
    let removed = app.write(move |tx| retention::remove(tx, table, &rows, cutoff)).await?;
    tokio::time::sleep(began.elapsed() * PAUSE_FACTOR).await;
    Ok(removed)
}
