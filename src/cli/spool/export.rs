//! `transit-spool export`, also out of a damaged spool.

use super::record::Record;
use super::{MEND, NAME, Session, failed};
use crate::cli::output::{self, Exit, Failure, Out};
use crate::cli::progress::Progress;
use crate::store::StoreError;
use crate::store::spool::look::{Look, Which};
use crate::store::spool::outbox::{Entry, Fault, Row, State};
use crate::store::spool::rescue::Rescue;
use crate::text;

/// Rows that are read at once, with their bodies.
const PAGE_ROWS: u32 = 32;
/// Lost entries that are named.
const MOST_NAMED: usize = 20;

pub(super) fn run(session: &Session, which: Which) -> Result<Exit, Failure> {
    match Look::open(&session.data) {
        Ok(None) => Ok(Exit::Ok),
        Ok(Some(look)) => match look.structure(false) {
            Ok(damage) if damage.is_empty() => whole(&look, which),
            Ok(_) | Err(StoreError::Damaged { .. } | StoreError::Sql { .. }) => {
                // The rescue reads the file itself, which would end the locks of a connection to it.
                drop(look);
                rescue(session, which)
            }
            Err(err) => Err(failed("look into the spool", &err)),
        },
        Err(StoreError::Damaged { .. } | StoreError::Sql { .. }) => rescue(session, which),
        Err(err) => Err(failed("look into the spool", &err)),
    }
}

/// Prints what is in a sound file.
fn whole(look: &Look, which: Which) -> Result<Exit, Failure> {
    let mut out = Out::new();
    let mut progress = Progress::new("exported", None, true);
    let mut faults = Vec::new();
    let (mut after, mut count) = (0, 0);
    loop {
        let rows = look.rows(after, PAGE_ROWS).map_err(|err| failed("export the entries", &err))?;
        let Some(last) = rows.last() else { break };
        after = last.as_ref().map_or_else(|fault| fault.seq, |row| row.seq);
        for row in rows {
            match row {
                Ok(row) => count += u64::from(write(&mut out, &row, which)?),
                Err(fault) => faults.push(fault),
            }
        }
        progress.at(count);
    }
    out.finish()?;
    drop(progress);
    if faults.is_empty() {
        return Ok(Exit::Ok);
    }
    let lost: Vec<&str> = faults.iter().map(named).collect();
    Err(damaged(look.path(), count, &lost))
}

/// Prints what can be read of a damaged one.
fn rescue(session: &Session, which: Which) -> Result<Exit, Failure> {
    let rescue = Rescue::open(&session.data).map_err(|err| failed("read the damaged spool", &err))?;
    let Some(rescue) = rescue else { return Ok(Exit::Ok) };
    let mut out = Out::new();
    let mut progress = Progress::new("rescued", Some(rescue.count()), true);
    let (mut count, mut done) = (0, 0);
    for row in rescue.rows() {
        count += u64::from(write(&mut out, &row, which)?);
        done += 1;
        progress.at(done);
    }
    out.finish()?;
    drop(progress);
    let mut lost: Vec<&str> = rescue.lost().chain(rescue.faults().iter().map(named)).collect();
    lost.sort_unstable();
    lost.dedup();
    Err(damaged(rescue.path(), count, &lost))
}

fn named(fault: &Fault) -> &str {
    fault.id.as_deref().unwrap_or("an entry without a readable id")
}

/// Writes a row if it is one of these. What is claimed by a process that is gone is pending.
fn write(out: &mut Out, row: &Row, which: Which) -> Result<bool, Failure> {
    if !which.holds(row.entry.state) {
        return Ok(false);
    }
    let is_lapsed = row.claim.is_some_and(|claim| !claim.is_alive());
    if is_lapsed {
        let free = Entry { state: State::Pending, ..row.entry.clone() };
        out.json(&Record::shown(&free))?;
    } else {
        out.json(&Record::shown(&row.entry))?;
    }
    Ok(true)
}

/// What a damaged spool ends with, after everything that could be read is out.
fn damaged(path: &std::path::Path, count: u64, lost: &[&str]) -> Failure {
    for id in lost.iter().take(MOST_NAMED) {
        output::say(format_args!("{NAME}: lost: {}", text::visible(id)));
    }
    let more = lost.len().saturating_sub(MOST_NAMED);
    if more > 0 {
        output::say(format_args!("{NAME}: lost: {more} more"));
    }
    let what = match lost.len() {
        0 => "nothing is known to be lost".to_owned(),
        1 => "1 is lost".to_owned(),
        n => format!("{n} are lost"),
    };
    let entries = if count == 1 { "entry was" } else { "entries were" };
    let why = format!("it is damaged; {count} {entries} rescued, {what}");
    Failure::new(Exit::Io, format_args!("export {}", path.display()), why).hint(MEND)
}
