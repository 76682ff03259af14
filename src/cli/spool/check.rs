//! `transit-spool check`.

use std::io::Write;

use serde_json::json;

use super::{MEND, Session, failed};
use crate::cli::output::{Exit, Failure, Out};
use crate::cli::progress::Progress;
use crate::store::StoreError;
use crate::store::spool::look::Look;
use crate::store::spool::outbox::{Fault, Row};
use crate::store::spool::rescue::Rescue;
use crate::text;

/// Rows that are read at once, with their bodies.
const PAGE_ROWS: u32 = 32;

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// The file, or a row of it, is not what was written.
    Damage,
    /// A row is what was written, and breaks a rule.
    Rule,
    /// Nothing is wrong.
    Info,
}

impl Weight {
    fn as_str(self) -> &'static str {
        match self {
            Self::Damage => "damage",
            Self::Rule => "rule",
            Self::Info => "info",
        }
    }
}

/// Prints findings, and counts those that are faults.
struct Findings {
    out: Out,
    json: bool,
    faults: u64,
}

impl Findings {
    fn tell(&mut self, weight: Weight, at: &str, what: &str) -> Result<(), Failure> {
        self.faults += u64::from(weight != Weight::Info);
        let weight = weight.as_str();
        if self.json {
            self.out.json(&json!({ "finding": weight, "at": at, "what": what }))?;
        } else {
            writeln!(self.out, "{weight}: {}: {}", text::visible(at), text::visible(what))?;
        }
        Ok(())
    }

    fn row(&mut self, row: &Result<Row, Fault>) -> Result<(), Failure> {
        match row {
            Ok(row) => {
                let at = place(row.seq, Some(&row.entry.id));
                if let Some(claim) = row.claim.filter(|claim| !claim.is_alive()) {
                    let what =
                        format!("claimed by process {}, which is gone: it counts as pending", claim.pid);
                    self.tell(Weight::Info, &at, &what)?;
                }
                row.broken_rules().iter().try_for_each(|what| self.tell(Weight::Rule, &at, what))
            }
            Err(fault) => self.tell(Weight::Damage, &place(fault.seq, fault.id.as_deref()), &fault.why),
        }
    }
}

fn place(seq: i64, id: Option<&str>) -> String {
    match id {
        Some(id) => format!("row {seq} ({id})"),
        None => format!("row {seq}"),
    }
}

pub(super) fn run(session: &Session) -> Result<Exit, Failure> {
    let mut findings = Findings { out: Out::new(), json: session.json, faults: 0 };
    let is_readable = match Look::open(&session.data) {
        Ok(None) => {
            if !session.json {
                writeln!(findings.out, "there is no spool yet")?;
            }
            findings.out.finish()?;
            return Ok(Exit::Ok);
        }
        Ok(Some(look)) => read(&look, &mut findings)?,
        Err(err) => unreadable(err, &mut findings)?,
    };
    let path = session.data.join(crate::store::spool::SPOOL_DB);
    if findings.faults == 0 {
        if !session.json {
            writeln!(findings.out, "{} is sound", text::visible(&path.display().to_string()))?;
        }
        findings.out.finish()?;
        return Ok(Exit::Ok);
    }
    let mut why = format!("{} {}", findings.faults, if findings.faults == 1 { "fault" } else { "faults" });
    if !is_readable {
        let rescue = Rescue::open(&session.data).map_err(|err| failed("read the damaged spool", &err))?;
        let (count, lost) = rescue.map_or((0, 0), |rescue| (rescue.count(), rescue.lost().len()));
        why.push_str(&format!("; {count} entries can be rescued, {lost} are known to be lost"));
    }
    findings.out.finish()?;
    Err(Failure::new(Exit::Io, format_args!("check {}", path.display()), why).hint(MEND))
}

/// Looks at a file that the engine opens. Answers whether it could be read to its end.
fn read(look: &Look, findings: &mut Findings) -> Result<bool, Failure> {
    let damage = match look.structure(true) {
        Ok(damage) => damage,
        Err(err) => return unreadable(err, findings),
    };
    for what in &damage {
        findings.tell(Weight::Damage, "file", what)?;
    }
    let mut progress = Progress::new("checked", None, true);
    let (mut after, mut count) = (0, 0);
    loop {
        let rows = match look.rows(after, PAGE_ROWS) {
            Ok(rows) => rows,
            Err(err) => return unreadable(err, findings),
        };
        let Some(last) = rows.last() else { return Ok(damage.is_empty()) };
        after = last.as_ref().map_or_else(|fault| fault.seq, |row| row.seq);
        count += rows.len() as u64;
        rows.iter().try_for_each(|row| findings.row(row))?;
        progress.at(count);
    }
}

/// What the engine does not read is a finding; what keeps it from reading at all is a failure.
fn unreadable(err: StoreError, findings: &mut Findings) -> Result<bool, Failure> {
    match err {
        StoreError::Damaged { why, .. } => findings.tell(Weight::Damage, "file", &why)?,
        StoreError::Sql { source, .. } => findings.tell(Weight::Damage, "file", &source.to_string())?,
        err => return Err(failed("check the spool", &err)),
    }
    Ok(false)
}
