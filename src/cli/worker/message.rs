//! `transit-worker message`.

use std::io::Write;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{OrgArg, Session, or_dash};
use crate::addr::Name;
use crate::cli::output::{Exit, Failure, Out};
use crate::store::ledger::Refusal;
use crate::store::ledger::desk::{self, Listed, Wanted};
use crate::store::ledger::messages::Fate;
use crate::text;

/// Rows that are read at once; a list is as long as it is, and memory stays flat.
const PAGE_ROWS: u32 = 500;

const STATES: [&str; 4] = ["queued", "injected", "shown", "dead"];

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the messages of agents in the order in which they came.
    List {
        /// Only those that stand here.
        #[arg(long, value_name = "STATE", value_parser = STATES)]
        state: Option<String>,
        /// Only those to this room.
        #[arg(long, value_name = "ROOM")]
        room: Option<String>,
        /// Only the latest N.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        limit: Option<u32>,
        #[command(flatten)]
        org: OrgArg,
    },
    /// Show one message with its text and what became of it.
    Show(One),
    /// Queue a dead message again, with all its attempts and another 24 h.
    Requeue(One),
    /// End a message that waits. Its sender is not told, but sees it when it asks.
    ///
    /// What a daemon has been sent already cannot be called back; it is not sent again.
    Cancel(One),
}

#[derive(Debug, clap::Args)]
pub(super) struct One {
    /// The message's id, tx_….
    id: String,
    #[command(flatten)]
    org: OrgArg,
}

pub(super) fn run(verb: Verb, session: &Session) -> Result<Exit, Failure> {
    let now = session.now;
    match verb {
        Verb::List { state, room, limit, org } => {
            let room = room.map(|room| room_name(&room)).transpose()?;
            list(session, &Wanted { state, room }, limit, &org)
        }
        Verb::Show(One { id, org }) => show(session, &id, &org),
        Verb::Requeue(One { id, org }) => {
            let org = session.org(&org)?.id;
            let found = session.write("requeue the message", move |tx| desk::requeue(tx, &org, &id, now))?;
            session.print([(json!({ "message": record(&found) }), format!("{} is queued.", found.id))])
        }
        Verb::Cancel(One { id, org }) => {
            let org = session.org(&org)?.id;
            let found = session.write("cancel the message", move |tx| desk::cancel(tx, &org, &id, now))?;
            session.print([(json!({ "message": record(&found) }), format!("{} is cancelled.", found.id))])
        }
    }
}

/// A room with its `#`, which a shell may have eaten.
fn room_name(text: &str) -> Result<String, Failure> {
    let name = text.strip_prefix('#').unwrap_or(text);
    let name: Name = name.parse().map_err(|err| Failure::new(Exit::Data, "list the messages", err))?;
    Ok(format!("#{name}"))
}

fn list(session: &Session, wanted: &Wanted, limit: Option<u32>, org: &OrgArg) -> Result<Exit, Failure> {
    const WHAT: &str = "list the messages";
    let org = session.org(org)?.id;
    if let Some(limit) = limit {
        let found = session.read(WHAT, |tx| desk::latest(tx, &org, wanted, limit))?;
        return session.print(found.iter().map(|found| (record(found), line(found))));
    }
    let mut out = Out::new();
    let mut after = 0;
    loop {
        let page = session.read(WHAT, |tx| desk::list(tx, &org, wanted, after, PAGE_ROWS))?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for found in &page {
            if session.json {
                out.json(&record(found))?;
            } else {
                writeln!(out, "{}", line(found))?;
            }
        }
    }
    out.finish()?;
    Ok(Exit::Ok)
}

fn show(session: &Session, id: &str, org: &OrgArg) -> Result<Exit, Failure> {
    const WHAT: &str = "show the message";
    let org = session.org(org)?.id;
    let Some((found, body, fate)) = session.read(WHAT, |tx| desk::get(tx, &org, id))? else {
        let unknown = Refusal::NotFound { what: "message", name: id.to_owned() };
        return Err(Failure::store(WHAT, &unknown.into()));
    };
    let mut shown = record(&found);
    shown["body"] = json!(body);
    shown["recipients"] = fate
        .recipients
        .iter()
        .map(|to| json!({ "agent": to.agent, "state": to.state, "last_error": to.error }))
        .collect();
    session.print([(shown, words(&found, &body, &fate))])
}

fn record(found: &Listed) -> Value {
    json!({
        "id": found.id,
        "state": found.state,
        "from": found.from,
        "to": found.to,
        "reply_to": found.reply_to,
        "bytes": found.bytes,
        "attempts": found.attempts,
        "last_error": found.last_error,
        "created_at": found.created_at.to_string(),
        "updated_at": found.updated_at.to_string(),
    })
}

fn line(found: &Listed) -> String {
    let Listed { id, state, from, to, created_at, last_error, .. } = found;
    let mut line =
        format!("{id}  {state:<8}  {created_at}  {} -> {}", text::visible(from), text::visible(to));
    if let Some(error) = last_error {
        line += &format!("  {}", text::visible(error));
    }
    line
}

fn words(found: &Listed, body: &str, fate: &Fate) -> String {
    let mut rows = vec![
        ("message", found.id.clone()),
        ("state", found.state.clone()),
        ("from", found.from.clone()),
        ("to", found.to.clone()),
        ("answers", or_dash(found.reply_to.as_ref())),
        ("bytes", found.bytes.to_string()),
        ("attempts", found.attempts.to_string()),
        ("last error", or_dash(found.last_error.as_ref())),
        ("taken", found.created_at.to_string()),
        ("last moved", found.updated_at.to_string()),
    ];
    for to in &fate.recipients {
        let error = to.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        rows.push(("recipient", format!("{} {}{error}", to.agent, to.state)));
    }
    let lines: Vec<_> =
        rows.iter().map(|(name, value)| format!("{name:<13} {}", text::visible(value))).collect();
    format!("{}\n\n{body}", lines.join("\n"))
}
