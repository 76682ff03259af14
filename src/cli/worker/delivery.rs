//! `transit-worker delivery`.

use std::io::Write;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{OrgArg, Session, or_dash};
use crate::cli::output::{Exit, Failure, Out};
use crate::store::ledger::Refusal;
use crate::store::ledger::inspect::{self, Listed, Reply};
use crate::text;

/// Rows that are read at once; a list is as long as it is, and memory stays flat.
const PAGE_ROWS: u32 = 500;

const STATES: [&str; 6] = ["pending", "dispatched", "read", "replied", "handled", "dead"];

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List deliveries in the order in which their events came; one to a room once for each member.
    List {
        /// Only those that stand here.
        #[arg(long, value_name = "STATE", value_parser = STATES)]
        state: Option<String>,
        #[command(flatten)]
        org: OrgArg,
    },
    /// Show one delivery with the attempts to post its reply.
    Show(One),
    /// Make a delivery due now: its agent is shown it again, also one that it has refused for good, or its reply is
    /// posted again.
    Requeue(One),
    /// Settle a delivery in its agent's place. A reply that was not posted yet never will be.
    Handle(One),
}

#[derive(Debug, clap::Args)]
pub(super) struct One {
    /// The delivery's id, dlv_….
    id: String,
    #[command(flatten)]
    org: OrgArg,
}

pub(super) fn run(verb: Verb, session: &Session) -> Result<Exit, Failure> {
    let now = session.now;
    match verb {
        Verb::List { state, org } => list(session, state.as_deref(), &org),
        Verb::Show(One { id, org }) => show(session, &id, &org),
        Verb::Requeue(One { id, org }) => {
            let org = session.org(&org)?.id;
            let found =
                session.write("requeue the delivery", move |tx| inspect::requeue(tx, &org, &id, now))?;
            session.print([(json!({ "delivery": record(&found) }), format!("{} is due now.", found.id))])
        }
        Verb::Handle(One { id, org }) => {
            let org = session.org(&org)?.id;
            let found =
                session.write("settle the delivery", move |tx| inspect::handle(tx, &org, &id, now))?;
            session.print([(json!({ "delivery": record(&found) }), format!("{} is handled.", found.id))])
        }
    }
}

fn list(session: &Session, state: Option<&str>, org: &OrgArg) -> Result<Exit, Failure> {
    let org = session.org(org)?.id;
    let mut out = Out::new();
    let mut after = 0;
    loop {
        let page =
            session.read("list the deliveries", |tx| inspect::list(tx, &org, state, after, PAGE_ROWS))?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for found in &page {
            if session.json {
                writeln!(out, "{}", record(found))?;
            } else {
                writeln!(out, "{}", line(found))?;
            }
        }
    }
    out.finish()?;
    Ok(Exit::Ok)
}

fn show(session: &Session, id: &str, org: &OrgArg) -> Result<Exit, Failure> {
    let org = session.org(org)?.id;
    let (all, reply) = session
        .read("show the delivery", |tx| Ok((inspect::get(tx, &org, id)?, inspect::reply(tx, &org, id)?)))?;
    let Some(delivery) = all.first() else {
        let unknown = Refusal::NotFound { what: "delivery", name: id.to_owned() };
        return Err(Failure::store("show the delivery", &unknown.into()));
    };
    let mut shown = record(delivery);
    shown["last_error"] = json!(delivery.last_error);
    shown["reply"] = json!(reply.as_ref().map(reply_record));
    if delivery.room.is_some() {
        shown["recipients"] = all.iter().map(recipient_record).collect();
    }
    session.print([(shown, words(&all, reply.as_ref()))])
}

fn record(found: &Listed) -> Value {
    json!({
        "id": found.id,
        "state": found.state,
        "source": found.source,
        "agent": found.agent,
        "room": found.room,
        "conversation_id": found.conversation_id,
        "event_key": found.event_key,
        "attempts": found.attempts,
        "created_at": found.created_at.to_string(),
        "updated_at": found.updated_at.to_string(),
    })
}

fn recipient_record(found: &Listed) -> Value {
    json!({
        "agent": found.agent,
        "state": found.state,
        "attempts": found.attempts,
        "last_error": found.last_error,
    })
}

fn reply_record(reply: &Reply) -> Value {
    let attempts: Vec<_> = reply
        .attempts
        .iter()
        .map(|(number, at, error)| json!({ "attempt": number, "at": at.to_string(), "error": error }))
        .collect();
    json!({
        "agent": reply.agent,
        "message": reply.message,
        "state": reply.state,
        "last_error": reply.last_error,
        "next_attempt_at": (reply.state == "due").then(|| reply.next_attempt_at.to_string()),
        "attempts": attempts,
    })
}

fn line(found: &Listed) -> String {
    let Listed { id, state, agent, conversation_id, created_at, .. } = found;
    let source = or_dash(found.source.as_ref());
    format!("{id}  {state:<10}  {created_at}  {source} -> {agent}  {}", text::visible(conversation_id))
}

fn words(all: &[Listed], reply: Option<&Reply>) -> String {
    let Some(found) = all.first() else { return String::new() };
    let mut rows = vec![
        ("delivery", found.id.clone()),
        ("state", found.state.clone()),
        ("source", or_dash(found.source.as_ref())),
        ("agent", found.room.as_ref().map_or_else(|| found.agent.clone(), |room| format!("#{room}"))),
        ("conversation", found.conversation_id.clone()),
        ("event key", found.event_key.clone()),
        ("attempts", found.attempts.to_string()),
        ("last error", or_dash(found.last_error.as_ref())),
        ("accepted", found.created_at.to_string()),
        ("last moved", found.updated_at.to_string()),
    ];
    for Listed { agent, state, attempts, .. } in all.iter().filter(|found| found.room.is_some()) {
        rows.push(("member", format!("{agent} {state}, attempts {attempts}")));
    }
    if let Some(reply) = reply {
        rows.push(("reply", format!("{}: {}", reply.state, reply.message)));
        if found.room.is_some() {
            rows.push(("replied by", reply.agent.clone()));
        }
        if reply.state == "due" {
            rows.push(("next post", reply.next_attempt_at.to_string()));
        }
        for (number, at, error) in &reply.attempts {
            let outcome = error.as_deref().unwrap_or("taken");
            rows.push(("post", format!("{number}. {at} {outcome}")));
        }
    }
    let lines: Vec<_> =
        rows.iter().map(|(name, value)| format!("{name:<13} {}", text::visible(value))).collect();
    lines.join("\n")
}
